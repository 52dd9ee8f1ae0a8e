"""What administrators of a trial write down of their calls, and where they are refused."""

import random
from types import SimpleNamespace
from uuid import UUID

import pytest

from prozess.app.run.admin_register import ALTERED, TOPICS, AdminRegister, value_of
from prozess.clusters.protocol.administrator import TOPIC_ALREADY_EXISTS, Described, MadeTopic
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, NONE, AdminOperation, AdminSetting, Outcome
from tests.support.clock import FakeClock

FIRST, SECOND = UUID(int=5 << 65), UUID(int=6 << 65)
SET, FOUND = AdminOperation.SET, AdminOperation.FOUND


class Kafka:
    """Answers as it is scripted: a call has the next answer, and takes a second."""

    def __init__(self, clock, *answers):
        self._clock, self._answers = clock, list(answers)

    def _next(self, *_given, **_more):
        self._clock.sleep(1)
        return self._answers.pop(0)

    make = delete = set_retention = retention = topic_id = _next


class First(random.Random):
    """Takes the first of whatever there is to choose from, and asks servers for their copies."""

    def choice(self, seq):
        return seq[0]

    def randrange(self, *_):
        return 0

    def random(self):
        return 0.9


def plan_of(**more):
    trial = {"name": "x", "title": "t", "workload": "log", "axes": {"producer.acks": ["1"]}} | more
    return make_plan(parse_trial(trial, source="x"), seed=1)


def written(*calls):
    """`calls`: (method, its answers). Returns what was written: setting, operation, value, node, outcome, seconds."""
    rows, clock = [], FakeClock(10)
    recorder = SimpleNamespace(write=lambda table, **columns: rows.append(columns))
    cluster = SimpleNamespace(observer_servers={2: ("h", 1), 3: ("h", 2)}, controller_servers={3001: ("h", 3)})
    register = AdminRegister(plan_of(), cluster, recorder, clock)
    for method, *answers in calls:
        getattr(register, f"_{method}")(Kafka(clock, *answers), First())
    ended = [
        None if row["completed_ns"] == MISSING else (row["completed_ns"] - row["invoked_ns"]) / 1e9 for row in rows
    ]
    names = ("topic", "setting", "operation", "value", "node", "outcome")
    return [(*(row[name] for name in names), took) for row, took in zip(rows, ended, strict=True)]


def test_a_value_that_kafka_took_is_set_and_one_that_it_refused_or_did_not_answer_may_be():
    rows = written(("alter", 0), ("alter", 41), ("alter", None))
    assert [row[3] for row in rows] == sorted({row[3] for row in rows}), "each value is set once"
    assert [(row[2], row[5], row[6]) for row in rows] == [
        (SET, Outcome.OK, 1.0), (SET, Outcome.INFO, None), (SET, Outcome.INFO, None),
    ]  # fmt: skip


def test_what_a_server_describes_is_found_on_it_and_an_error_says_nothing():
    rows = written(("describe", Described(0, 7)), ("describe", Described(3, None)), ("describe", None))
    assert rows == [(ALTERED, AdminSetting.RETENTION, FOUND, 7, 2, Outcome.OK, 1.0)]


def test_a_topic_is_made_and_deleted_by_its_id_and_was_there_until_then():
    rows = written(
        ("make_or_delete", MadeTopic(0, FIRST)), ("make_or_delete", 0), ("make_or_delete", MadeTopic(36, FIRST))
    )
    assert [row[2:4] for row in rows] == [(SET, value_of(FIRST)), (FOUND, value_of(FIRST)), (SET, 0), (SET, NONE)]
    assert [row[5] for row in rows] == [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.INFO]
    rows = written(("make_or_delete", MadeTopic(0, FIRST)), ("make_or_delete", None))
    assert rows[1:] == [(0, AdminSetting.TOPIC, SET, 0, NONE, Outcome.INFO, None)]


def test_a_look_says_which_topic_a_broker_knows_and_whether_the_controller_would_make_it():
    rows = written(("look", {TOPICS[0]: SECOND}), ("look", {}), ("look", None))
    assert [row[3:5] for row in rows] == [(value_of(SECOND), 2), (0, 2)]
    First.random = lambda _: 0.1
    try:
        rows = written(("look", MadeTopic(0, FIRST)), ("look", MadeTopic(TOPIC_ALREADY_EXISTS, FIRST)), ("look", None))
    finally:
        First.random = lambda _: 0.9
    assert [row[3:5] for row in rows] == [(0, NONE), (NONE, NONE)]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"variant": {"metadata_mode": "zookeeper", "kafka_version": "3.9.2"}}, "zookeeper"),
        ({"backend": "attach", "attach": {"bootstrap_servers": ["h:1"]}}, "attach"),
    ],
)
def test_where_nobody_judges_them_administrators_are_refused(more, named):
    assert plan_of(administrators=2).administrators == 2
    with pytest.raises(BadInput, match=named):
        plan_of(administrators=2, **more)
