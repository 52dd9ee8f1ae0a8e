"""What is noted of a cluster that does not come back after healing, on the cluster in memory with the real nemesis."""

import pytest

from prozess.app.run.schedule_runner import Context, Recovery, wait_whole
from prozess.harness.errors import ClusterFailed, Interrupted
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory, read_json
from tests.support.fake_cluster.kraft_model import Timings
from tests.support.nemesis_bench import FakeBench

KILL = FaultAction(kind="fault", fault="kill", targets=("node:broker-1",))


class Bench(FakeBench):
    """Broker 1 is killed; `start_s`: what a broker needs to start."""

    def __init__(self, path, *, start_s):
        super().__init__(path, timings=Timings(start_s=start_s), make_recorder=Recorder)
        self.told = []
        self.world = Context(
            plan=self.plan,
            admin=self.admin,
            progress=dict,
            unhealed=self.nemesis.unhealed,
            now_ns=self.clock.monotonic_ns,
        )
        self.recovery = Recovery(self.run, lambda event, **details: self.told.append((event, details)))
        self.nemesis.strike(0, Step(name="kill", do=KILL))
        self.clock.sleep(30)

    def recover(self):
        self.recovery.attempt(lambda: self.nemesis.heal(None))
        self.recovery.attempt(
            lambda: wait_whole(self.world, timeout_s=90, clock=self.clock, keep_up=self.nemesis.keep_up)
        )


def test_a_cluster_that_is_whole_again_leaves_nothing_to_note(tmp_path):
    bench = Bench(tmp_path, start_s=5)
    bench.recover()
    assert (bench.recovery.failed, bench.told, read_json(bench.run.recovery)) == (False, [], [])


def test_a_cluster_that_is_not_whole_in_time_is_noted_with_what_was_awaited_and_last_seen(tmp_path):
    bench = Bench(tmp_path, start_s=400)
    bench.recover()
    lacking = (
        "waited 90 s for every replica to be in sync, on every broker's own view; last seen: no answer from broker 1"
    )
    assert bench.recovery.failed
    assert read_json(bench.run.recovery) == [lacking]
    assert bench.told == [("not-whole", {"text": lacking})]


def test_an_undo_that_did_not_work_is_noted_once_however_often_it_is_tried(tmp_path):
    recovery = Recovery(RunDirectory(tmp_path), lambda *_, **__: None)

    def heal():
        raise ClusterFailed("1 of 2 undos did not work: unblock broker-1: it is still cut off.")

    recovery.attempt(heal)
    recovery.attempt(heal)
    assert read_json(RunDirectory(tmp_path).recovery) == [
        "1 of 2 undos did not work: unblock broker-1: it is still cut off."
    ]


def test_who_stops_a_run_while_it_heals_stops_it(tmp_path):
    recovery = Recovery(RunDirectory(tmp_path), lambda *_, **__: None)

    def heal():
        raise Interrupted("the run was stopped: by the user")

    with pytest.raises(Interrupted):
        recovery.attempt(heal)
    assert not recovery.failed
