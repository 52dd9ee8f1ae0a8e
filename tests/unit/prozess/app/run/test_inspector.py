"""Inspections of replicas' files: from a broker's directory into the history, and out of it for a kernel and for a person."""

from types import SimpleNamespace

from prozess.app.run.cluster_state import Inspector
from prozess.checkers.log.replicas import BEHIND, diverged
from prozess.harness.history.convert import History, write_history
from prozess.harness.interfaces.checking import CopyFacts
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import Recorder
from prozess.harness.report.summary import replica_lines
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import NONE, REMOTE_STORE, Isolation, ObservationKind, RemoteState
from tests.support.clock import FakeClock
from tests.unit.clusters.files.test_remote_segments import SEGMENT, believes, event, put
from tests.unit.clusters.files.test_remote_segments import batch as sound_batch
from tests.unit.clusters.files.test_segments import batch

TRIAL = {
    "name": "small",
    "title": "one topic",
    "topics": {"partitions": 1},
    "steps": [{"name": "look", "do": {"kind": "inspect"}}],
}


class Brokers:
    """A run directory, three brokers' data directories in it, and what the inspector reported the outer process."""

    def __init__(self, path):
        self.run = RunDirectory(path)
        self.run.create()
        self.plan = make_plan(parse_trial(TRIAL, source="test"), seed=1)
        self.run.plan.write_text(self.plan.model_dump_json(), encoding="utf-8")
        write_json(self.run.clock, {"start_monotonic_ns": 5, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
        self.directories = {node: path / "nodes" / str(node) for node in (1, 2, 3)}
        nodes = [
            SimpleNamespace(node_id=node, roles={"broker"}, data_directory=directory)
            for node, directory in self.directories.items()
        ]
        nodes.append(SimpleNamespace(node_id=3001, roles={"controller"}, data_directory=path / "none"))
        self.events, self.recorder = [], Recorder(self.run)
        self.inspector = Inspector(
            self.plan,
            SimpleNamespace(nodes=nodes),
            self.recorder,
            FakeClock(7),
            lambda name, **more: self.events.append(more),
        )

    def holds(self, node, *batches, epochs="0\n1\n0 0\n"):
        log = self.directories[node] / "cell-000-0"
        log.mkdir(parents=True, exist_ok=True)
        (log / "00000000000000000000.log").write_bytes(b"".join(batches))
        (log / "leader-epoch-checkpoint").write_text(epochs)

    def history(self):
        self.recorder.write(
            "observations",
            time_ns=8,
            kind=int(ObservationKind.AUDIT_COMPLETE),
            partition=0,
            isolation=int(Isolation.READ_UNCOMMITTED),
            value=9,
        )
        self.recorder.write("reads", partition=0, log_offset=9, sender=SENTINEL_CLIENT, sequence=0)
        self.recorder.close()
        write_history(self.run)
        return History.open(self.run)


def test_what_was_read_at_a_step_and_in_the_end_stays_apart(tmp_path):
    brokers = Brokers(tmp_path)
    for node in (1, 2, 3):
        brokers.holds(node, batch(0), batch(1, 2))
    brokers.holds(1, batch(0), batch(1, 2), batch(3, checksum=99))
    brokers.inspector.inspect([0], step=0)
    for node in (1, 2, 3):
        brokers.holds(node, batch(0), batch(1, 2), batch(3, epoch=1), epochs="0\n2\n0 0\n1 3\n")
    brokers.inspector.inspect([0])
    history = brokers.history()
    told = history.partition_history(0)
    assert told.copies == dict.fromkeys((1, 2, 3), CopyFacts(0, 4, None))
    assert sorted(told.replicas["step"].tolist()) == [NONE] * 9 + [0] * 7
    result = diverged(told)
    assert (result.count, result.judged, result.incomplete) == (0, 9, None)
    lines = "\n".join(replica_lines(history.plan, history))
    assert "**look**" in lines
    assert "| cell-000-0 | ends at 4, last batch 3 of epoch 0 (crc 00000063), epochs 0 from 0 | ends at 3," in lines
    assert "ends at 4, last batch 3 of epoch 1 (crc 00000007), epochs 0 from 0, 1 from 3" in lines
    assert brokers.events[0]["log_ends"] == {"broker-1": [4], "broker-2": [3], "broker-3": [3]}


def test_a_difference_in_the_end_reaches_the_kernel(tmp_path):
    brokers = Brokers(tmp_path)
    for node in (1, 2, 3):
        brokers.holds(node, batch(0), *([batch(1)] if node != 3 else []))
    brokers.inspector.inspect([0])
    (witness,) = diverged(brokers.history().partition_history(0)).witnesses
    assert (witness["case"], witness["log_offset"], witness["reader"]) == (BEHIND, 1, 3)


def test_a_copy_that_cannot_be_read_is_told_and_leaves_equality_open(tmp_path):
    brokers = Brokers(tmp_path)
    for node in (1, 2, 3):
        brokers.holds(node, batch(0), epochs="0\n1\n0 0\n" if node != 2 else "garbage")
    brokers.inspector.inspect([0])
    (event,) = brokers.events
    assert len(event["problems"]) == 1
    assert "log_ends" not in event
    result = diverged(brokers.history().partition_history(0))
    assert (result.count, result.incomplete) == (0, "the copies of partition 0 on brokers 2 were not read")


def test_log_ends_are_those_of_the_copies_there_are(tmp_path):
    brokers = Brokers(tmp_path)
    brokers.holds(1, batch(0), batch(1, 3))
    brokers.holds(3, batch(0)[:-1])
    assert brokers.inspector.log_ends([0]) == {(1, 0): 4, (3, 0): 0}


def test_the_remote_store_is_a_copy_of_its_own_and_its_segments_are_rows(tmp_path):
    brokers = Brokers(tmp_path)
    brokers.plan = brokers.inspector._plan = brokers.plan.model_copy(
        update={"variant": brokers.plan.variant.model_copy(update={"tiered_storage": True})}
    )
    brokers.directories = {node: tmp_path / "nodes" / f"broker-{node}" / "data" for node in (1, 2, 3)}
    for node, placed in zip((1, 2, 3), brokers.inspector._cluster.nodes, strict=False):
        placed.data_directory = brokers.directories[node]
        brokers.holds(node, batch(10, 2))
    put(tmp_path / "nodes" / "remote-store", 0, SEGMENT, sound_batch(0, 4), sound_batch(4, 6), topic="cell-000")
    copied = event(SEGMENT, 0, 9, RemoteState.COPIED, topic="cell-000")
    believes(brokers.directories[1], copied, topic="cell-000")
    brokers.inspector.inspect([0])
    history = brokers.history()
    told = history.partition_history(0)
    of_store = told.replicas["node"] == REMOTE_STORE
    assert told.replicas["base_offset"][of_store].tolist() == [0, 4]
    assert sorted(told.copies) == [1, 2, 3]
    segments = history.table("remote_segments")
    assert (segments["first_offset"].tolist(), segments["whole_to"].tolist(), segments["state"].tolist()) == (
        [0],
        [10],
        [RemoteState.COPIED],
    )
    assert told.remote_read
    assert brokers.events[-1]["batches"] == 5
