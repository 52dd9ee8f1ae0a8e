"""After healing, everything is what it was before the first fault: whatever the faults were, however they were undone, and
whenever the harness was killed."""

import tempfile
from functools import wraps
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prozess.harness.config.impairments import FullDisk
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.interfaces import NodeState
from prozess.harness.schema import FaultPhase, Tristate
from prozess.nemesis import journal as journal_module
from prozess.nemesis.journal import read_journal
from prozess.nemesis.nemesis import Nemesis
from tests.support.nemesis_bench import FakeBench

TOPIC = "topic:cell-000"


class Killed(BaseException):
    """The harness was killed with SIGKILL: nothing of it runs any more."""


append_whole = journal_module._append_to


def append_half(path, lines, *, sync):
    """Writes the first half of the lines, as a process does that is killed while it writes."""
    append_whole(path, lines[: len(lines) // 2], sync=False)


class Harness(FakeBench):
    """A nemesis on a cluster in memory, which can be killed at any of its deeds: before it, midway or after it. A deed is a
    write to one of the journal's files, or something that is done to a node or to Kafka. Midway leaves half of a write."""

    DEEDS = ("kill", "stop", "start", "pause", "resume", "block", "unblock", "impair", "repair", "harm")

    def __init__(self, path):
        super().__init__(path, controllers=3, metadata_mode="kraft-isolated")
        self.deeds_left, self.killed, self.dead = None, "before", False
        self.told = []
        for node in self.cluster.nodes:
            for name in self.DEEDS:
                setattr(node, name, self._deed(getattr(node, name)))
        for name in ("reassign", "alter_configs"):
            setattr(self.admin, name, self._deed(getattr(self.admin, name)))
        self.before = self.seen()
        self.revive()

    def _deed(self, do, *, midway=None):
        @wraps(do)
        def deed(*given, **named):
            if self.dead:
                raise Killed
            if self.deeds_left is not None:
                self.deeds_left -= 1
                if self.deeds_left < 0:
                    self.dead = True
                    done = {"before": None, "midway": midway, "after": do}[self.killed]
                    if done is not None:
                        done(*given, **named)
                    raise Killed
            return do(*given, **named)

        return deed

    def revive(self):
        """Another process continues, which knows nothing but the journal."""
        self.dead, self.deeds_left = False, None
        self.nemesis = Nemesis(self.run, self.cluster, self.admin, self.recorder, self.clock, report=self.told.append)
        journal = self.nemesis._journal
        write, append = journal._write, self._deed(append_whole, midway=append_half)

        def write_file_by_file(values, *, sync):
            with patch.object(journal_module, "_append_to", append):
                write(values, sync=sync)

        journal._write = write_file_by_file

    def die_at(self, deed, *, killed):
        self.deeds_left, self.killed = deed, killed

    def seen(self):
        """Everything that faults may change."""
        nodes = self.cluster.nodes
        return {
            "processes": {node.name: node.state() for node in nodes},
            "links": self.cluster.world.blocked.copy(),
            "impairments": {node.name: set(node.impairments) for node in nodes},
            "configuration": {resource: properties for resource, properties in self.admin._own.items() if properties},
            "replicas": {key: view.replicas for key, view in self.cluster.world.partitions.items()},
        }


NODES = st.sampled_from(["node:broker-1", "node:broker-2", "leader(0)", "active-controller", "brokers"])
PROCESS_FAULTS = st.one_of(
    st.tuples(st.sampled_from(["kill", "pause", "wipe", "disk-full", "disk-hang", "power-loss"]), NODES, st.just({})),
    st.tuples(st.just("stop"), NODES, st.fixed_dictionaries({"timeout_s": st.sampled_from([2.0, 30.0])})),
    st.tuples(st.just("clock"), NODES, st.just({"offset_ms": 900_000})),
    st.tuples(
        st.just("partition"),
        NODES,
        st.fixed_dictionaries({"others": st.sampled_from(["all", "brokers", "controllers"])}),
    ),
    st.tuples(st.just("half-open"), NODES, st.just({})),
    st.tuples(st.just("rolling-restart"), st.just("brokers"), st.just({"wait": "none", "timeout_s": 3.0})),
    st.tuples(st.just("move-controller"), st.just("active-controller"), st.just({"how": "stop", "timeout_s": 4.0})),
)
KAFKA_FAULTS = st.one_of(
    st.tuples(
        st.just("configure"),
        st.just("partition(0)"),
        st.fixed_dictionaries(
            {"properties": st.sampled_from([{"segment.ms": "100"}, {"segment.ms": "200", "x": "1"}])}
        ),
    ),
    st.tuples(
        st.just("reassign"),
        st.just("partition(0)"),
        st.fixed_dictionaries(
            {"how": st.sampled_from(["rotate", "shrink", "shrink-leader"]), "done": st.booleans()},
            optional={"throttle_bytes_per_s": st.just(1_000)},
        ),
    ),
)


class AnyFaultsInAnyOrder(RuleBasedStateMachine):
    """The model is small: everything is as before once all is healed, and until then the journal knows who is not."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.harness = Harness(Path(self.directory.name) / "run")
        self.steps = []

    def teardown(self):
        try:
            self.heal_everything()
            self.heal_everything()
        finally:
            self.directory.cleanup()

    def attempt(self, deed):
        """Does it; if the harness is killed meanwhile, another one comes, which has only the journal."""
        try:
            deed()
        except Killed:
            note("the harness was killed")
            self.harness.revive()
        except (ClusterFailed, NotReady) as error:
            note(str(error))

    @rule(fault=st.one_of(PROCESS_FAULTS, KAFKA_FAULTS))
    def strike(self, fault):
        name, target, parameters = fault
        step = f"step {len(self.steps)}"
        self.steps.append(step)
        self.attempt(lambda: self.harness.strike(step, name, target, **parameters))

    @precondition(lambda self: self.steps)
    @rule(data=st.data())
    def heal_one(self, data):
        step = data.draw(st.sampled_from(self.steps))
        self.attempt(lambda: self.harness.nemesis.heal(step))

    @rule(seconds=st.sampled_from([0.0, 2.0]))
    def reassignments_will_take(self, seconds):
        self.harness.admin.moves_s = seconds

    @rule(seconds=st.sampled_from([0.1, 3, 12]))
    def time_passes(self, seconds):
        self.harness.clock.sleep(seconds)

    @rule(deed=st.integers(0, 16), killed=st.sampled_from(["before", "midway", "after"]))
    def the_harness_will_be_killed(self, deed, killed):
        self.harness.die_at(deed, killed=killed)

    @rule(node=st.sampled_from([1, 2]))
    def a_server_ends_by_itself(self, node):
        """Only while the journal knows that faults were made: before the first one nobody has promised to start it."""
        if read_journal(self.harness.run.journal).before:
            self.harness.cluster.world.end(node)

    @rule()
    def everything_is_healed(self):
        self.attempt(lambda: self.harness.nemesis.heal(None))

    def heal_everything(self):
        self.harness.revive()
        self.harness.nemesis.heal(None)
        if read_journal(self.harness.run.journal).before:
            assert self.harness.seen() == self.harness.before
        assert read_journal(self.harness.run.journal).open == ()
        assert not self.harness.nemesis.unhealed()

    @invariant()
    def what_is_not_as_before_is_known_to_the_journal(self):
        contents = read_journal(self.harness.run.journal)
        assert contents.unreadable == 0
        if not contents.entries:
            assert self.harness.seen()["links"] == set()


AnyFaultsInAnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestAnyFaultsInAnyOrder = AnyFaultsInAnyOrder.TestCase


# What the machine above found, and what was seen in real runs, one by one.


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path / "run")


def killed_while_it_stops(harness):
    """broker-1 reaches no controller and was sent SIGTERM by a harness that is no more. Returns it."""
    harness.strike("cut", "partition", "node:broker-1", others="controllers")
    files = len(harness.nemesis._journal._paths)
    harness.die_at(files, killed="before")  # the journal is written; the next deed is the stop
    with pytest.raises(Killed):
        harness.strike("stop", "stop", "node:broker-1")
    harness.revive()
    harness.cluster.world.terminate(1)
    (broker,) = (node for node in harness.cluster.nodes if node.name == "broker-1")
    assert broker.state() is NodeState.STOPPING
    assert [entry.undo.action for entry in read_journal(harness.run.journal).open if entry.step == "stop"] == ["start"]
    return broker


def test_a_broker_that_is_shutting_down_when_the_harness_is_killed_is_up_after_healing(harness):
    killed_while_it_stops(harness)
    harness.nemesis.heal(None)
    assert harness.seen() == harness.before
    harness.nemesis.heal(None)
    assert harness.told == [], "each undo did its work"


def test_a_start_awaits_the_end_of_a_shutdown_and_kills_what_does_not_end(harness):
    broker = killed_while_it_stops(harness)
    assert 1 in harness.nemesis.unhealed()
    begun_ns = harness.clock.now_ns
    harness.nemesis.heal("stop")
    assert broker.state() is NodeState.RUNNING
    assert 15e9 <= harness.clock.now_ns - begun_ns < 17e9, "the cut is there still: it could not end"
    assert broker.log[-2:] == ["killed", "started"]


def test_a_start_kills_nothing_that_ends_in_time(harness):
    broker = killed_while_it_stops(harness)
    harness.nemesis.heal("cut")
    harness.nemesis.heal("stop")
    assert harness.seen() == harness.before
    assert "killed" not in broker.log


def test_a_shutdown_that_a_killed_harness_left_is_ended_and_the_broker_started(harness):
    harness.strike("cut", "partition", "node:broker-1", others="controllers")
    harness.cluster.world.terminate(1)  # SIGTERM was sent, and nobody waits for it any more
    (broker,) = (node for node in harness.cluster.nodes if node.name == "broker-1")
    assert broker.state() is NodeState.STOPPING
    harness.revive()
    harness.nemesis.heal(None)
    assert harness.seen() == harness.before
    (told,) = harness.told
    assert told == "after the last undo: broker-1 was stopped, and was started again", "the cut was lifted, so it ended"
    harness.nemesis.heal(None)
    assert harness.told == [told]


def test_a_stop_of_what_is_cut_off_ends_in_its_time_and_the_schedule_can_go_on(harness):
    harness.strike("cut", "partition", "node:broker-1", others="controllers")
    struck = harness.strike("stop", "stop", "node:broker-1", timeout_s=5)
    assert struck.effective is Tristate.YES
    assert struck.effects[0].detail == "the process is gone: it did not shut down within 5 s, and was killed"


def test_a_stop_spares_what_a_link_fault_cuts_off_if_it_is_asked_to(harness):
    harness.strike("cut", "partition", "node:broker-1", others="controllers")
    with pytest.raises(ClusterFailed, match="broker-1 is cut off, and might not be able to shut down: it is spared"):
        harness.strike("stop", "stop", "node:broker-1", cut_off="spare")
    assert harness.strike("other", "stop", "node:broker-2", cut_off="spare").effective is Tristate.YES
    harness.nemesis.heal("cut")
    assert harness.strike("later", "stop", "node:broker-1", cut_off="spare").effective is Tristate.YES


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a"), (None,)])
def test_a_property_that_two_faults_changed_is_at_its_first_value_after_both(harness, order):
    harness.admin.alter_configs(TOPIC, {"segment.ms": "7"})
    harness.strike("a", "configure", "partition(0)", properties={"segment.ms": "100"})
    harness.strike("b", "configure", "partition(0)", properties={"segment.ms": "200", "x": "1"})
    harness.nemesis.heal(order[0])
    if order[0] == "a":
        assert harness.admin.own_configs(TOPIC) == {"segment.ms": "200", "x": "1"}, "the second fault holds it still"
    if order[0] == "b":
        assert harness.admin.own_configs(TOPIC) == {"segment.ms": "100"}
    for step in order[1:]:
        harness.nemesis.heal(step)
    assert harness.admin.own_configs(TOPIC) == {"segment.ms": "7"}
    assert read_journal(harness.run.journal).open == ()


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a"), (None,)])
def test_replicas_that_two_faults_moved_are_where_they_were_after_both(harness, order):
    """Healed together, Kafka is asked once for what both had before."""
    harness.strike("a", "reassign", "partition(0)", how="rotate")
    harness.strike("b", "reassign", "partition(0)", how="shrink")
    harness.admin.moves_s = 2.0
    for step in order:
        harness.nemesis.heal(step)
    assert harness.seen() == harness.before
    assert harness.told == [], "each undo did its work"
    assert read_journal(harness.run.journal).open == ()


def test_a_setting_that_somebody_changed_after_its_undo_is_put_back_and_recorded(harness):
    harness.strike("a", "configure", "partition(0)", properties={"segment.ms": "100"})
    harness.nemesis.heal("a")
    harness.admin.alter_configs(TOPIC, {"segment.ms": "100"})
    rows = len(harness.recorder.rows)
    harness.nemesis.heal(None)
    assert harness.seen() == harness.before
    assert [row["phase"] for row in harness.recorder.rows[rows:]] == [FaultPhase.UNDONE, FaultPhase.UNDO_VERIFIED]
    assert "configure broker-1 was done again, since topic:cell-000 has segment.ms 100 of its own" in harness.told[0]


def test_an_impairment_that_is_still_there_at_the_end_is_repaired(harness):
    harness.strike("full", "disk-full", "node:broker-2")
    harness.nemesis.heal("full")
    (broker,) = (node for node in harness.cluster.nodes if node.name == "broker-2")
    broker.impairments.add(FullDisk(left_bytes=0))
    harness.nemesis.heal(None)
    assert harness.seen() == harness.before
    assert len(harness.told) == 1


def test_a_server_that_ends_each_time_is_started_three_times_and_named(harness):
    harness.strike("a", "kill", "node:broker-2")
    harness.nemesis.heal("a")
    (broker,) = (node for node in harness.cluster.nodes if node.name == "broker-2")
    broker.end("it ended by itself")
    broker.start = lambda: harness.deaf.append("start")
    harness.deaf = []
    with pytest.raises(ClusterFailed, match="broker-2 is stopped, though it was started again 3 times; see its log"):
        harness.nemesis.heal(None)
    assert len(harness.deaf) == 3
    for _ in range(3):
        harness.nemesis.keep_up()
    assert len(harness.deaf) == 3, "it stays at that"


def test_a_server_that_was_down_before_the_first_fault_stays_down(harness):
    (broker,) = (node for node in harness.cluster.nodes if node.name == "broker-3")
    broker.kill()
    harness.strike("a", "kill", "node:broker-2")
    harness.nemesis.heal(None)
    assert broker.state() is NodeState.STOPPED
    assert harness.told == []
