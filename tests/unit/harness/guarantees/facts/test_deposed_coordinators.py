"""Who answered a look-up of committed offsets, and what follows from an answer of a coordinator that was deposed."""

import json

import numpy as np
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.guarantees.evidence.envelope import LOOK_UP_NS, StaleAnswer, stale_answers
from prozess.harness.guarantees.evidence.ground_truth import FOREVER
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import CopyCase, make_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.codes import number_of, partition_for, recorded_as
from prozess.harness.recording.rows import RowWriter, read_rows
from prozess.harness.schema import NONE, OBSERVATIONS, MetadataKind, ObservationKind, Outcome
from prozess.harness.verdict import AnomalyOutcome
from prozess.workloads.group.observer import COORDINATOR, Answerers, Counters, coordinator_of
from tests.support.cells.evidence import CLUSTER, MS, evidence, fault, findings, ns, of, state, strike
from tests.support.cells.partitions import table

PLAN = make_plan(
    parse_trial(
        {
            "name": "copies",
            "title": "copies",
            "workload": "exactly-once",
            "topics": {"partitions": 1, "placement": [[1, 2, 3]]},
            "base": {"copier.members": 2, "copier.delivery": "exactly-once"},
            "steps": [strike("cut", "partition")],
        },
        source="test",
    ),
    seed=1,
)
(CELL,) = PLAN.cells
(SOURCE,), (COPY,) = CELL.written, CELL.derived
FIRST, SECOND = (c for c in PLAN.clients if c.group_id is not None)
NUMBER = partition_for(str(FIRST.group_id), 3)
OLD, NEW = 1, 2
LED = [
    {**state(-10, 0, OLD, 0, (1, 2, 3)), "partition": recorded_as(number), "kind": MetadataKind.OFFSETS_PARTITION}
    for number in range(3)
]
DEPOSED = [*LED, {**LED[NUMBER], "time_ns": ns(50), "leader": NEW, "leader_epoch": 1}]


def commit(at_s, offset, client=FIRST.client, **more):
    named = {"client": client, "partition": SOURCE, "log_offset": offset, "completed_ns": ns(at_s)}
    return named | {"outcome": Outcome.OK} | more


def look_up(at_s, told, node=OLD, client=SECOND.client, **more):
    kind = ObservationKind.COMMITTED
    return {
        "client": client,
        "partition": SOURCE,
        "time_ns": ns(at_s),
        "kind": kind,
        "value": told,
        "node": node,
    } | more


CLIENTS = [{"client": c.client, "planned": c.client} for c in PLAN.clients]
COMMITS = [commit(49, 1527), commit(60, 1577)]


def answers(*looked, commits=COMMITS, metadata=DEPOSED, clients=CLIENTS):
    return stale_answers(
        PLAN,
        observations=table("observations", looked),
        commits=table("commits", commits),
        metadata=table("metadata", metadata),
        clients=table("clients", clients),
        error_ns=MS,
    )


def test_an_older_offset_told_by_who_coordinates_the_group_no_more_is_a_stale_answer():
    assert answers(look_up(60.2, 1527)) == (
        StaleAnswer(SECOND.client, SOURCE, ns(60.2), FOREVER, answered=1527, committed=1577, node=OLD),
    )
    (first,) = answers(look_up(60.2, 1527), look_up(63, 1577, NEW))
    assert first.until_ns == ns(63)


def test_so_is_one_that_was_given_to_a_member_in_the_place_of_another():
    successor = {"client": 900, "planned": SECOND.client}
    assert len(answers(look_up(60.2, 1527, client=900), clients=[*CLIENTS, successor])) == 1


NEAR = {
    "by the new coordinator": {"looked": look_up(60.2, 1527, NEW)},
    "by nobody that is known": {"looked": look_up(60.2, 1527, NONE)},
    "what was committed": {"looked": look_up(60.2, 1577)},
    "before the commit was confirmed": {"looked": look_up(59.9, 1527)},
    "before it was deposed": {"looked": look_up(45, 1500), "commits": [commit(40, 1527)]},
    "while it was being deposed": {"looked": look_up(49.9, 1500), "commits": [commit(40, 1527)]},
    "by who is to lead again at once": {
        "looked": look_up(60.2, 1527),
        "metadata": [*DEPOSED, {**LED[NUMBER], "time_ns": ns(61), "leader": OLD, "leader_epoch": 2}],
    },
    "of another partition": {"looked": look_up(60.2, 1527, partition=COPY)},
    "after a commit that was not confirmed": {
        "looked": look_up(60.2, 1527),
        "commits": [commit(49, 1527), commit(60, 1577, outcome=Outcome.INFO)],
    },
    "where the controllers' log says nothing": {"looked": look_up(60.2, 1527), "metadata": []},
    "to somebody of no group": {"looked": look_up(60.2, 1527, client=901)},
}


@pytest.mark.parametrize("case", NEAR.values(), ids=NEAR.keys())
def test_nothing_less_is(case):
    looked = case["looked"]
    assert answers(looked, **{name: value for name, value in case.items() if name != "looked"}) == ()


@given(
    deposed_s=st.floats(10, 90),
    asked_s=st.floats(10, 90),
    told=st.integers(0, 30),
    confirmed_s=st.floats(0, 90),
    node=st.sampled_from((NONE, OLD, NEW)),
)
def test_an_answer_is_stale_only_with_each_piece_of_its_proof(deposed_s, asked_s, told, confirmed_s, node):
    rows = [*LED, {**LED[NUMBER], "time_ns": ns(deposed_s), "leader": NEW, "leader_epoch": 1}]
    found = answers(look_up(asked_s, told, node), commits=[commit(confirmed_s, 20)], metadata=rows)
    late = ns(deposed_s) <= ns(asked_s) - MS
    early = ns(asked_s) + LOOK_UP_NS + MS < ns(deposed_s)
    proven = ((node == OLD and late) or (node == NEW and early)) and told < 20 and ns(confirmed_s) < ns(asked_s)
    assert bool(found) is proven


# --- what is made of it -----------------------------------------------------------------------------------------------


def judged(*looked, begin_s=60.5, metadata=DEPOSED, case=CopyCase.REPEATED):
    columns = {
        "partition": COPY,
        "client": SECOND.client,
        "begin_ns": ns(begin_s) + np.arange(50),
        "end_ns": ns(begin_s + 1),
        "log_offset": 200 + np.arange(50),
        "other_offset": 100 + np.arange(50),
        "outcome": Outcome.OK,
        "case": case,
    }
    twice = {("not-exactly-once", SOURCE): KernelResult(make_witnesses(50, columns), 50, 1000)}
    asked_again = {
        "client": SECOND.client, "transaction": 0, "begun_ns": ns(45), "end_invoked_ns": ns(46), "completed_ns": ns(49),
    }  # fmt: skip
    of_topics = [state(-10, p, 1, 0, (1, 2, 3)) for p in CELL.partitions]
    told = evidence(
        PLAN,
        metadata=[*of_topics, *metadata],
        faults=fault(0, "partition", [OLD], 45, 70),
        observations=list(looked),
        commits=table("commits", COMMITS),
        transactions=table("transactions", [asked_again]),
        cluster=CLUSTER,
    )
    verdict = judge(PLAN, findings(PLAN, twice), told)
    return verdict, of(verdict, 0, "not-exactly-once")


def test_copies_after_a_stale_answer_are_explained_and_named_after_no_known_defect_though_a_cut_was_near():
    verdict, found = judged(look_up(60.2, 1527))
    assert (found.outcome, found.forbidden) == (AnomalyOutcome.VIOLATED, 50)
    assert (found.defects, found.known, found.possible) == ((), {}, {})
    assert "What happened: before that, the copier was given an older offset" in found.reason
    assert "KAFKA-17754" not in found.reason
    assert not verdict.by_known_defects
    assert "known defect" not in verdict.sentence


def test_without_that_answer_or_after_a_later_look_up_a_known_defect_is_possible_at_most():
    for looked in ([], [look_up(60.2, 1577, NEW)], [look_up(60.2, 1527), look_up(60.3, 1577, NEW)]):
        verdict, found = judged(*looked)
        assert (found.outcome, found.defects, found.known) == (AnomalyOutcome.VIOLATED, (), {})
        assert found.possible == {"KAFKA-17754": 50}
        assert "What happened" not in found.reason
        assert verdict.sentence.endswith(" Possibly by KAFKA-17754 ×50; nothing that was recorded proves it.")


# --- who answered, by librdkafka's statistics -------------------------------------------------------------------------


def report(at_s, *, up_s=10.0, nodename="10.0.0.1:9092", state="UP"):
    return {
        "ts": round(at_s * 1e6),
        "brokers": {
            "10.0.0.1:9092/1": {"nodeid": 1, "nodename": "10.0.0.1:9092", "source": "learned"},
            "10.0.0.2:9092/2": {"nodeid": 2, "nodename": "10.0.0.2:9092", "source": "learned"},
            "bootstrap": {"nodeid": -1, "nodename": "10.0.0.1:9092", "source": "configured"},
            COORDINATOR: {
                "nodeid": -1,
                "nodename": nodename,
                "source": "logical",
                "state": state,
                "stateage": round(up_s * 1e6),
            },
        },
    }


def test_the_coordinator_is_the_broker_at_the_address_of_its_connection():
    assert coordinator_of(report(100)) == (1, ns(90))
    assert coordinator_of(report(100, nodename="10.0.0.2:9092", up_s=0.5)) == (2, ns(99.5))
    for unknown in (report(100, nodename=""), report(100, nodename="elsewhere:1"), report(100, state="DOWN"), {}):
        assert coordinator_of(unknown) == (NONE, 0)


def nodes(directory, *told):
    """Of three look-ups: at 90 to 90.5 s, 95 to 95.5 s, 99 to 99.5 s."""
    writer = RowWriter(directory, OBSERVATIONS, 3)
    answerers = Answerers(writer)
    for asked_s in (90, 95, 99):
        row = writer.append(*(NONE for _ in OBSERVATIONS.columns))
        answerers.asked(row, asked_ns=ns(asked_s), answered_ns=ns(asked_s + 0.5))
    for given_ in told:
        answerers.note(given_)
    writer.close()
    rows, torn = read_rows(directory, OBSERVATIONS, 3)
    assert not torn
    return rows["node"].tolist()


def test_a_look_up_is_put_down_to_the_connection_that_was_up_all_the_while(tmp_path):
    assert nodes(tmp_path, report(99.4, up_s=9.4), report(100.4, up_s=10.4)) == [1, 1, 1]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], [NONE] * 3),
        ([report(98, up_s=5)], [NONE, 1, NONE]),
        ([report(96, up_s=20), report(100, up_s=1.5, nodename="10.0.0.2:9092")], [1, 1, 2]),
        ([report(96, up_s=20), report(100, up_s=0.9, nodename="10.0.0.2:9092")], [1, 1, NONE]),
        ([report(100, up_s=20, state="CONNECT")], [NONE] * 3),
    ],
    ids=["no statistics", "the connection was new", "it changed between look-ups", "it changed in one", "none is up"],
)
def test_where_the_connection_changed_meanwhile_nobody_is_told(tmp_path, told, expected):
    assert nodes(tmp_path, *told) == expected


@given(st.integers(0, 1000))
def test_partitions_of_the_offsets_topic_are_recorded_below_every_dense_id(number):
    assert recorded_as(number) < NONE
    assert number_of(recorded_as(number)) == number


@given(st.text(st.characters(codec="ascii"), max_size=30), st.integers(1, 50))
def test_a_group_falls_to_one_of_the_partitions(group_id, count):
    assert 0 <= partition_for(group_id, count) < count


def test_the_one_hash_without_a_positive_counterpart_falls_to_the_first():
    assert partition_for("polygenelubricants", 7) == 0


def counted(at_s, **fetches):
    """Requests beside those that are listed, by broker: `of_1=3`."""
    brokers = {
        name: {"nodeid": int(name.removeprefix("of_")), "tx": 99 + count, "req": {"Metadata": 90, "FindCoordinator": 9}}
        for name, count in fetches.items()
    }
    brokers["bootstrap"] = {"nodeid": -1, "tx": 7, "req": {}}
    return json.dumps({"ts": round(at_s * 1e6), "brokers": brokers})


def test_an_administrator_asked_the_one_broker_that_was_sent_more_requests():
    counters = Counters()
    assert counters.asked() == NONE, "nothing was reported yet"
    counters.note(counted(1, of_1=0, of_2=4))
    assert counters.asked() == 2
    assert counters.asked() == NONE, "nobody since"
    counters.note(counted(2, of_1=1, of_2=4))
    assert (counters.asked(), counters.at_ns) == (1, ns(2))
    counters.note(counted(3, of_1=2, of_2=5))
    assert counters.asked() == NONE, "two were asked: one of them answered"


def test_librdkafkas_own_statistics_tell_whom_an_administrator_asked():
    counters = Counters()
    settings = {"bootstrap.servers": "nowhere:1", "test.mock.num.brokers": 3, "statistics.interval.ms": 50}
    admin = AdminClient({**settings, "stats_cb": counters.note, "log_level": 0})

    def told() -> int:
        now_ns = SystemClock().monotonic_ns()
        wait_until(
            lambda: admin.poll(0.02) >= 0 and counters.at_ns >= now_ns,
            awaited="statistics",
            timeout_s=30,
            clock=SystemClock(),
        )
        return counters.asked()

    assert told() == NONE
    wanted = [ConsumerGroupTopicPartitions("group", [TopicPartition("topic", 0)])]
    admin.list_consumer_group_offsets(wanted, request_timeout=20)["group"].result(timeout=30)
    assert told() in (1, 2, 3)
    assert told() == NONE
