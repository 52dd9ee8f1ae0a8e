"""How a replica in sync came to lead without a committed record: which known defect may have done it, and near misses."""

import pytest

from prozess.harness.guarantees.table import TABLE, RuleEffect
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.schema import MISSING, NONE, MetadataKind, MetadataSource, ObservationKind
from tests.support.cells.evidence import (
    ACKS,
    ACKS_ALL,
    CLUSTER,
    evidence,
    fault,
    findings,
    lost_in,
    ns,
    of,
    plan,
    state,
    strike,
)

WHOLE = (1, 2, 3)
FOLLOWED = [state(-10, ACKS_ALL, 1, 0, WHOLE), state(5, ACKS_ALL, 2, 1, WHOLE), state(8, ACKS_ALL, 3, 2, WHOLE)]
"""Broker 3 follows broker 1, then broker 2, and leads from 8 s on."""
AT_ONCE = [state(-10, ACKS_ALL, 1, 0, WHOLE), state(8, ACKS_ALL, 3, 2, WHOLE)]
"""It leads after broker 1."""


def registered(node, at_s):
    return {
        "time_ns": ns(at_s), "kind": MetadataKind.BROKER_REGISTERED, "source": MetadataSource.CONTROLLER_LOG,
        "partition": NONE, "node": node,
    }  # fmt: skip


def a_log(begins_at, newest):
    """The newest epoch begins there, in a log that had epoch 0."""
    batches = [(0, begins_at - 1, 0), (begins_at, begins_at + 50, newest)]
    return [
        {"partition": ACKS_ALL, "node": node, "base_offset": a, "last_offset": b, "leader_epoch": e, "step": NONE}
        for node in (2, 3)
        for a, b, e in batches
    ]


def server_log(node, *cuts):
    """The log of a broker was read, and says that it cut its copy off: (at, offset)."""
    of = {"node": node, "step": NONE}
    read = {**of, "kind": ObservationKind.SERVER_LOG, "time_ns": 0, "value": 1_000, "partition": NONE}
    cut = {**of, "kind": ObservationKind.TRUNCATED, "partition": ACKS_ALL}
    return [read, *({**cut, "time_ns": ns(at_s), "value": offset} for at_s, offset in cuts)]


def judged(
    *,
    version,
    metadata,
    begins_at=90,
    faults=(),
    begun_s=4.0,
    acknowledged_s=4.1,
    kill="kill",
    observations=(),
    newest=2,
):
    """One record of acks=all is gone, acknowledged at offset 100, under epoch 0 unless it is stated otherwise."""
    planned = plan(ACKS, steps=[strike("it is done", kill, "node:broker-3")])
    told = evidence(
        planned,
        metadata=[*metadata, *(state(-10, p, 1, 0, WHOLE) for p in (0, 1))],
        faults=faults,
        replicas=a_log(begins_at, newest),
        observations=list(observations),
        cluster=CLUSTER | {"kafka_version": version},
    )
    return of(
        judge(planned, findings(planned, lost_in(ACKS_ALL, 1, begin_s=begun_s, end_s=acknowledged_s)), told), ACKS_ALL
    )


def test_a_follower_of_two_leaders_that_then_led_without_the_record_may_have_cut_its_log():
    found = judged(version="3.9.0", metadata=FOLLOWED)
    assert (found.forbidden, found.known, found.possible) == (1, {}, {"KAFKA-18991": 1})


@pytest.mark.parametrize(
    ("version", "metadata"),
    [
        ("3.9.1", FOLLOWED),
        ("3.9.0", AT_ONCE),
        ("3.9.0", [*FOLLOWED[:2], state(6, ACKS_ALL, 2, 1, (1, 2)), state(7, ACKS_ALL, 2, 1, WHOLE), FOLLOWED[2]]),
        ("3.9.0", FOLLOWED[:1]),
    ],
    ids=["it is fixed", "it followed no other leader", "it had left the ISR", "no leader changed"],
)
def test_a_loss_without_a_part_of_its_trace_is_not_ascribed_to_that_defect(version, metadata):
    found = judged(version=version, metadata=metadata)
    assert (found.forbidden, found.known, found.possible) == (1, {}, {})


def test_a_change_of_leaders_long_before_the_record_is_no_trace_of_it():
    long_ago = [state(-90, ACKS_ALL, 1, 0, WHOLE), state(-80, ACKS_ALL, 2, 1, WHOLE), state(8, ACKS_ALL, 3, 2, WHOLE)]
    assert judged(version="3.9.0", metadata=long_ago).possible == {}


def test_a_broker_that_was_started_again_and_led_without_the_record_may_have_joined_the_isr_too_early():
    again = [*AT_ONCE, registered(3, -20), registered(3, 6)]
    assert judged(version="3.4.1", metadata=again).possible == {"KAFKA-14617": 1}
    assert judged(version="3.5.0", metadata=again).possible == {}
    assert judged(version="3.4.1", metadata=[*AT_ONCE, registered(3, -20)]).possible == {}, "started before the record"
    assert judged(version="3.4.1", metadata=[*AT_ONCE, registered(2, 6)]).possible == {}, "another broker"


def test_a_copy_that_was_destroyed_and_back_in_the_isr_proves_it():
    wiped = fault(0, "wipe", [3], 5, 5.5)
    away = [AT_ONCE[0], state(5, ACKS_ALL, 1, 0, (1, 2)), state(6, ACKS_ALL, 1, 0, WHOLE), AT_ONCE[1]]
    found = judged(version="3.4.1", metadata=away, faults=wiped, kill="wipe")
    assert (found.forbidden, found.known) == (1, {"KAFKA-14617": 1})
    early = fault(0, "wipe", [3], 1, 1.5)
    gone_early = [AT_ONCE[0], state(1, ACKS_ALL, 1, 0, (1, 2)), state(2, ACKS_ALL, 1, 0, WHOLE), AT_ONCE[1]]
    found = judged(version="3.4.1", metadata=gone_early, faults=early, kill="wipe")
    assert (found.forbidden, found.known) == (1, {}), "the record came when the copy was whole again"


def test_where_nobody_knows_when_it_was_acknowledged_no_defect_is_named():
    found = judged(version="3.9.0", metadata=FOLLOWED, acknowledged_s=MISSING / 1e9)
    assert found.possible == {}


OF_THE_NEW = {"version": "2.8.0", "metadata": FOLLOWED, "begun_s": 5.2, "acknowledged_s": 5.3}
"""Acknowledged under epoch 1, by broker 2, which leads since 5 s."""


def test_where_no_server_log_was_read_a_history_cannot_tell_two_defects_apart_and_both_are_named():
    found = judged(**OF_THE_NEW)
    assert (found.known, found.possible) == ({}, {"KAFKA-18991": 1, "KAFKA-13141": 1})
    assert found.reason.endswith(" Nothing that was recorded distinguishes KAFKA-18991 and KAFKA-13141.")
    assert judged(**(OF_THE_NEW | {"version": "2.8.1"})).possible == {"KAFKA-18991": 1}, "it is fixed there"


@pytest.mark.parametrize(
    ("cuts", "known", "possible"),
    [
        ([(6.5, 100)], {"KAFKA-13141": 1}, {}),
        ([(5.29, 90)], {}, {"KAFKA-13141": 1}),  # a client notes an acknowledgement later than it was given
        ([(5.29, 101)], {}, {}),
        ([(4.0, 90)], {}, {}),
        ([(8.5, 90)], {}, {}),
        ([], {}, {}),
    ],
    ids=["cut after it", "cut as it came", "cut behind it", "cut long before", "cut when it led", "never cut"],
)
def test_the_replicas_own_log_tells_a_fetch_beyond_its_end_from_a_stale_answer(cuts, known, possible):
    """It cut the record off under the leader that had acknowledged it: that took the offset of its fetch for what it had."""
    found = judged(**OF_THE_NEW, observations=server_log(3, *cuts))
    assert (found.forbidden, found.known, found.possible) == (1, known, possible)


@pytest.mark.parametrize(
    ("observations", "possible"),
    [
        (server_log(3, (5.2, 90)), {"KAFKA-18991": 1}),
        (server_log(3, (4.5, 90)), {}),
        (server_log(3), {}),
        (server_log(2, (5.2, 90)), {"KAFKA-18991": 1}),
    ],
    ids=["cut under the next leader", "cut under its own", "never cut", "the log of another broker"],
)
def test_a_stale_answer_cuts_under_a_later_leader_than_acknowledged_the_record(observations, possible):
    assert judged(version="3.9.0", metadata=FOLLOWED, observations=observations).possible == possible


CUT = server_log(3, (5.2, 90))


@pytest.mark.parametrize(
    ("version", "observations", "metadata", "known"),
    [
        ("3.9.0", [*CUT, *server_log(2)], FOLLOWED, {"KAFKA-18991": 1}),
        ("3.9.1", [*CUT, *server_log(2)], FOLLOWED, {}),
        ("3.9.0", CUT, FOLLOWED, {}),
        ("3.9.0", [*CUT, *server_log(2, (5.1, 90))], FOLLOWED, {}),
        ("3.9.0", [*CUT, *server_log(2, (5.1, 101))], FOLLOWED, {"KAFKA-18991": 1}),
        ("3.9.0", [*CUT, *server_log(2, (8.5, 90))], FOLLOWED, {"KAFKA-18991": 1}),
        ("3.9.0", [*CUT, *server_log(2)], [*FOLLOWED, registered(2, 4.5)], {}),
        ("3.9.0", [*CUT, *server_log(2)], [*FOLLOWED, registered(2, -20)], {"KAFKA-18991": 1}),
        ("3.9.0", [*server_log(3, (5.2, 101)), *server_log(2)], FOLLOWED, {}),
        ("3.9.0", [*server_log(3, (4.5, 90)), *server_log(2)], FOLLOWED, {}),
        ("3.9.0", [*CUT, *server_log(2)], [state(-10, ACKS_ALL, 1, 0, (1, 3)), *FOLLOWED[1:]], {}),
    ],
    ids=[
        "its leader had it", "a mended broker", "its leader's log was not read", "its leader had cut it before",
        "its leader had cut behind it", "its leader cut it later", "its leader was started again",
        "its leader was started before", "cut behind it", "cut under its own leader", "its leader was out of sync",
    ],
)  # fmt: skip
def test_a_cut_under_a_leader_that_had_the_record_proves_a_stale_answer(version, observations, metadata, known):
    assert judged(version=version, metadata=metadata, observations=observations).known == known
    again = judged(version=version, metadata=metadata, observations=observations, begun_s=-11)
    assert again.known == {}, "nobody knows who led when it was sent"


def test_a_record_that_was_sent_again_under_the_next_leader_is_proven_too():
    again = [
        FOLLOWED[0],
        *(state(at, ACKS_ALL, node, epoch, WHOLE) for at, node, epoch in ((2, 2, 1), (5, 1, 2), (8, 3, 3))),
    ]
    told = {"metadata": again, "observations": [*CUT, *server_log(1)], "begun_s": 1, "newest": 3}
    assert judged(version="3.9.0", **told).known == {"KAFKA-18991": 1}
    assert judged(version="3.9.0", **(told | {"acknowledged_s": 5.3})).known == {}, "cut before it was acknowledged"


_NO_TRACE = {"leader changed", "idempotent", "librdkafka", "several in flight", "transactions before version 2"}


@pytest.mark.parametrize(
    "rule",
    [rule for guarantee in TABLE.values() for rule in guarantee.rules if rule.effect is RuleEffect.DEFECT],
    ids=lambda rule: rule.id,
)
def test_a_defect_is_possible_only_where_a_part_of_its_own_trace_was_recorded(rule):
    of_trace = [f for f in rule.perhaps if f.removeprefix("not ") not in _NO_TRACE and not f.startswith("brokers to")]
    assert of_trace or not rule.perhaps, "a version and a change of leaders are no trace"
