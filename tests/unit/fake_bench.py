"""A nemesis on three brokers in memory, which behave as Kafka's do, on a clock that a test moves."""

from clusters.fake import FakeCluster
from harness.clock import FakeClock
from harness.planning import make_plan
from harness.protocols import TopicSpec
from harness.run_directory import RunDirectory
from harness.schedule import FaultAction, Step
from harness.trial import parse_trial
from nemesis.nemesis import Nemesis
from tests.unit.nemesis_bench import TRIAL


class Rows:
    """A recorder that keeps `faults` in memory."""

    def __init__(self):
        self.rows = []

    def write(self, table, **columns):
        assert table == "faults"
        self.rows.append(columns)

    def code(self, dictionary, text):
        return 0


class FakeBench:
    """`make_recorder`: of the run's directory; None = one in memory."""

    def __init__(self, path, *, seed=1, timings=None, make_recorder=None, **variant):
        self.run, self.clock = RunDirectory(path), FakeClock()
        self.run.create()
        self.recorder = Rows() if make_recorder is None else make_recorder(self.run)
        self.plan = make_plan(parse_trial(TRIAL | {"variant": variant}, source="unit"), seed=seed)
        self.run.plan.write_text(self.plan.model_dump_json())
        self.cluster = FakeCluster(self.plan, self.run, clock=self.clock, timings=timings)
        self.cluster.setup()
        self.cluster.wait_ready(timeout_s=600)
        self.admin = self.cluster.admin()
        self.admin.create_topics([TopicSpec("cell-000", ((1, 2, 3),))], timeout_s=60)
        self.nemesis = Nemesis(self.run, self.cluster, self.admin, self.recorder, self.clock)

    def strike(self, name, fault, *targets, **parameters):
        action = FaultAction(kind="fault", fault=fault, targets=targets, parameters=parameters)
        return self.nemesis.strike(0, Step(name=name, do=action))
