"""Topics while a trial runs: what is created first, what is added, what is deleted and recorded."""

from types import SimpleNamespace

import pytest

from prozess.app.run.schedule_runner import Context
from prozess.app.run.trial_topics import TrialTopics
from prozess.harness.errors import BadInput, ClusterFailed, NotReady
from prozess.harness.history.participants import retention_of, taken_partitions
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import ObservationKind
from tests.support.clock import FakeClock


class Scripted:
    """Admin, workload and recorder: notes what it is asked."""

    def __init__(self):
        self.calls, self.rows, self.refusals = [], [], 0

    def create_topics(self, topics, *, timeout_s):
        self.calls.append(("create", {t.name: t.assignment for t in topics}))

    def await_coordinators(self, group_ids, *, timeout_s):
        self.calls.append(("coordinators", sorted(group_ids)))

    def add_partitions(self, grown, *, timeout_s):
        self.calls.append(("add", dict(grown)))

    def delete_records(self, partitions, *, keep, timeout_s):
        self.calls.append(("delete", tuple(partitions), keep))
        return {name: 100 + number for number, name in enumerate(partitions)}

    def alter_configs(self, resource, properties, *, timeout_s):
        self.calls.append(("alter", resource, dict(properties)))
        self.refusals -= 1
        if self.refusals >= 0:
            raise ClusterFailed("no controller")

    def describe_configs(self, *, topics, timeout_s):
        return {f"topic:{name}": {"retention.ms": "5000", "segment.ms": "1"} for name in topics}

    def begin(self, partitions):
        self.calls.append(("begin", partitions))

    def write(self, table, **columns):
        self.rows.append((table, columns))


def plan_of(kind="group", steps=(), base=None, **topics):
    document = {
        "name": "x",
        "title": "t",
        "workload": kind,
        "topics": {"partitions": 2} | topics,
        "axes": {"producer.acks": ["1", "all"]},
        "steps": list(steps),
        **({"base": base} if base else {}),
    }
    return make_plan(parse_trial(document, source="x"), seed=1)


def test_late_partitions_are_created_by_a_step_and_begin_only_then():
    plan, scripted = plan_of(late_partitions=1, late_topic_partitions=2), Scripted()
    assert [(p.topic_name, p.number, p.late) for p in plan.partitions[:5]] == [
        ("cell-000", 0, False),
        ("cell-000", 1, False),
        ("cell-000", 2, True),
        ("cell-000-late", 0, True),
        ("cell-000-late", 1, True),
    ]
    topics = TrialTopics(plan, scripted, scripted, scripted)
    topics.create()
    assert scripted.calls == [
        ("create", {"cell-000": ((1, 2, 3), (2, 3, 1)), "cell-001": ((1, 2, 3), (2, 3, 1))}),
        ("coordinators", ["prozess-cell-000", "prozess-cell-001"]),
    ]
    world = Context(plan, scripted, dict, tuple, lambda: 0, absent=topics.absent)
    assert world.partitions_of({}) == [0, 1, 5, 6]
    scripted.calls.clear()
    topics.add_partitions(plan.cells[:1])
    assert scripted.calls == [
        ("add", {"cell-000": (2, ((3, 1, 2),))}),
        ("create", {"cell-000-late": ((1, 2, 3), (2, 3, 1))}),
        ("begin", [2, 3, 4]),
    ]
    assert world.partitions_of({}) == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(ClusterFailed, match="There are no late partitions left to add"):
        topics.add_partitions(plan.cells[:1])


def test_where_logs_begin_after_a_deletion_is_recorded():
    plan, scripted = plan_of(late_partitions=1), Scripted()
    topics = TrialTopics(plan, scripted, scripted, scripted)
    topics.delete_records(plan.cells, keep=7, step=3, clock=FakeClock(5))
    assert scripted.calls == [("delete", tuple((f"cell-00{c}", n) for c in (0, 1) for n in (0, 1)), 7)]
    told = [(row["partition"], row["value"], row["kind"], row["step"]) for _, row in scripted.rows]
    start = int(ObservationKind.LOG_START)
    assert told == [(0, 100, start, 3), (1, 101, start, 3), (3, 102, start, 3), (4, 103, start, 3)]


def test_a_topic_is_altered_again_until_a_controller_takes_it_and_kafka_reports_it():
    plan, scripted = plan_of(), Scripted()
    scripted.refusals = 1
    topics = TrialTopics(plan, scripted, scripted, scripted)
    topics.alter(plan.cells[:1], {"retention.ms": "5000"}, clock=FakeClock(5))
    assert scripted.calls == [("alter", "topic:cell-000", {"retention.ms": "5000"})] * 2
    with pytest.raises(NotReady, match=r"retention.ms = 7 of topic cell-000.*reports other values"):
        topics.alter(plan.cells[:1], {"retention.ms": "7"}, clock=FakeClock(5))


def test_a_step_alters_what_decides_of_retention_and_nothing_else():
    def altered(properties, base=None):
        step = {"name": "less", "do": {"kind": "alter_topics", "properties": properties}}
        return plan_of(steps=[step], base=base or {"topic.properties.retention.ms": "60000"})

    assert (
        altered({"retention.ms": "5000", "cleanup.policy": "delete"}).steps[0].do.properties["retention.ms"] == "5000"
    )
    with pytest.raises(BadInput, match=r"min.insync.replicas is not one of .* configure"):
        altered({"min.insync.replicas": "1"})
    with pytest.raises(BadInput, match="judged as compacted or not, all the time"):
        altered({"cleanup.policy": "compact,delete"})
    with pytest.raises(BadInput, match="states no retention"):
        altered({"retention.bytes": "5000"}, base={"producer.linger_ms": 1})


def test_of_all_values_that_a_topic_had_the_least_limits_what_retention_may_take():
    def limits(*altered):
        steps = [{"name": str(n), "do": {"kind": "alter_topics", "properties": p}} for n, p in enumerate(altered)]
        found = retention_of(plan_of(steps=steps, base={"topic.properties.retention.ms": "60000"}))
        return found[0].time_ns // 1_000_000, found[0].size_bytes

    assert limits() == (60_000, None)
    assert limits({"retention.ms": "5000"}, {"retention.ms": "-1"}) == (5_000, None)
    assert limits({"retention.bytes": "7"}, {"retention.bytes": "-1"}, {"segment.ms": "1"}) == (60_000, 7)


@pytest.mark.parametrize(
    ("more", "steps", "taken"),
    [
        ({}, [], False),
        ({"topic.properties.retention.ms": "-1"}, [], False),
        ({"topic.properties.retention.ms": "1000"}, [], True),
        ({"topic.properties.retention.bytes": "1048576"}, [], True),
        ({}, [{"kind": "delete_records", "keep": 1}], True),
    ],
)
def test_a_consumer_passes_over_nothing_that_retention_or_delete_records_may_have_taken(more, steps, taken):
    """Seen: retention.ms=1000 took 32 records that were 4 s old when they were acknowledged, and a reader went on at the log
    start: the topic was deleted before its audit, and they were called lost."""
    plan = plan_of(steps=[{"name": "x", "do": one} for one in steps], base=more)
    everything = frozenset(p for cell in plan.cells for p in cell.partitions)
    assert taken_partitions(plan) == (everything if taken else frozenset())


def test_topics_grow_only_where_they_can_and_where_there_is_something_to_add():
    with pytest.raises(BadInput, match="cannot grow"):
        plan_of("compaction", late_partitions=1)
    with pytest.raises(BadInput, match="no late partitions"):
        plan_of(steps=[{"name": "more", "do": {"kind": "add_partitions"}}])


def test_readers_by_assignment_leave_late_partitions_out_and_the_audit_does_not():
    plan = plan_of("log", late_partitions=1)
    of = {c.role: c.partitions for c in plan.clients}
    assert of["reader"] == (0, 1, 3, 4)
    assert of["audit"] == of["sentinel"] == (0, 1, 2, 3, 4, 5)


class Broker(Scripted):
    """A cluster in which producers ask for the topics that are deleted. `asked`: looks after which they are there again."""

    def __init__(self, names, *, asked):
        super().__init__()
        self._ids, self._asked, self._next = {name: number for number, name in enumerate(names)}, asked, 100

    def topic_ids(self, names):
        self._asked -= 1
        if self._asked <= 0:
            self._ids |= {name: self._next for name in names if name not in self._ids}
        return {name: self._ids[name] for name in names if name in self._ids}

    def delete_topics(self, ids, *, timeout_s):
        self.calls.append(("delete", sorted(ids)))
        self._ids = {name: one for name, one in self._ids.items() if one not in ids}

    def view(self, node, names):
        leader = SimpleNamespace(leader=node)
        return {(name, number): leader for name in names if name in self._ids for number in range(3)}

    def appeared(self, partitions, *, there):
        self.calls.append(("appeared", sorted(partitions), there))


AUTOMATIC = {"auto.create.topics.enable": "true", "num.partitions": "3", "default.replication.factor": "3"}


def automatic(properties=AUTOMATIC, base=None, **make):
    document = {
        "name": "x",
        "title": "t",
        "variant": {"properties": properties},
        "topics": {"partitions": 2},
        "steps": [
            {"name": "gone", "do": {"kind": "delete_topics"}},
            {"name": "back", "do": {"kind": "make_topics", "by": "clients"} | make},
        ],
        **({"base": base} if base else {}),
    }
    return make_plan(parse_trial(document, source="x"), seed=1)


@pytest.mark.parametrize("asked", [1, 4])
def test_topics_that_clients_ask_for_are_awaited_and_not_made(asked):
    plan = automatic()
    assert [(len(cell.partitions), cell.topic.min_insync_replicas) for cell in plan.cells] == [(2, 1), (3, 1)]
    broker = Broker(["cell-000"], asked=asked)
    topics = TrialTopics(plan, broker, broker, broker)
    topics.delete(plan.cells, avoid=(), clock=FakeClock(5))
    topics.make(plan.cells, by_clients=True, clock=FakeClock(5))
    assert [call[0] for call in broker.calls if call[0] == "create"] == []
    assert broker.calls[0] == ("delete", [0])
    assert broker.calls[-1][0] == "begin"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"properties": {}}, "auto.create.topics.enable"),
        ({"properties": AUTOMATIC | {"default.replication.factor": "2"}}, "controllers choose 2 brokers out of 3"),
        ({"settings": {"topic.min_insync_replicas": 2}}, "no settings of its own"),
        ({"base": {"topic.properties.segment.ms": "1000"}}, "no settings of its own"),
    ],
)
def test_topics_that_clients_ask_for_are_those_that_brokers_make(given, why):
    with pytest.raises(BadInput, match=why):
        automatic(**given)
