"""What known defects leave in a history: each is named by its own signature, and by nothing that merely looks like it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import (
    CONTROL,
    TRANSACTIONAL,
    Envelope,
    TransactionTimes,
    batches_by_partition,
    older_epoch_from,
)
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord, timelines
from prozess.harness.guarantees.table import TABLE, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import CopyCase, make_witnesses
from prozess.harness.schema import MISSING, NONE, REMOTE_STORE, Outcome, Tristate
from tests.support.cells.evidence import MS, ns, state
from tests.support.cells.partitions import table

CLIENT, PRODUCER_ID = 3, 7
WALL_ZERO_MS = 1_795_000_000_000
VERSION_1 = CellConfiguration(
    acks="all",
    idempotent=True,
    retries=True,
    several_in_flight=True,
    librdkafka=True,
    transactions_before_v2=True,
    version=(4, 3, 1),
)
TRANSACTIONAL_ANOMALIES = (
    "torn",
    "lost-transaction",
    "aborted-read",
    "early-read",
    "own-read",
    "information-cycle",
    "not-exactly-once",
)
CUT = FaultRecord(
    number=0,
    kind="partition",
    step=0,
    nodes=(2,),
    hit=(2,),
    begin_ns=0,
    proven_ns=0,
    undone_ns=ns(1000),
    end_ns=ns(1000),
    effective=Tristate.YES,
    nature=FaultNature(cuts=True),
)


def batch(offset, at_s=0.0, *, marker=False, epoch=0, producer_id=PRODUCER_ID, **more):
    """A batch of one record, or a marker."""
    return {
        "partition": 0,
        "node": 1,
        "step": NONE,
        "base_offset": offset,
        "last_offset": offset,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "attributes": TRANSACTIONAL | CONTROL if marker else TRANSACTIONAL,
        "base_timestamp_ms": WALL_ZERO_MS + round(at_s * 1000),
        **more,
    }


def transaction(begun_s, end_s, client=CLIENT, number=0, took_s=0.1):
    end_ns, done_ns = (MISSING, MISSING) if end_s is None else (ns(end_s), ns(end_s + took_s))
    return {
        "client": client, "transaction": number, "begun_ns": ns(begun_s), "end_invoked_ns": end_ns,
        "completed_ns": done_ns,
    }  # fmt: skip


TWO = [transaction(10, 12, took_s=2), transaction(20, 25, number=1)]
"""One whose end took so long that the client asked again, and the next."""


def evaluated(anomaly, batches, *, transactions=TWO, faults=(CUT,), configuration=VERSION_1, wall=True, **columns):
    """Of a record that was sent in the second of two transactions, at offset 5."""
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        error_ns=MS,
        faults=faults,
        batches=lambda: None if batches is None else batches_by_partition(table("replicas", batches)).get(0),
        transactions=lambda: None if transactions is None else TransactionTimes.of(table("transactions", transactions)),
        wall_zero_ns=WALL_ZERO_MS * MS if wall else None,
    )
    given_ = {"partition": 0, "client": CLIENT, "begin_ns": ns(21), "end_ns": ns(26), "log_offset": 5}
    given_ |= {"outcome": int(Outcome.OK)} | columns
    return evaluate_witnesses(anomaly, configuration, envelope, make_witnesses(1, given_))


def named(anomaly, found):
    """(label of the defect that is proven, label of the one that is possible)"""
    assert Judgement(int(found.judgement[0])) is Judgement.FORBIDDEN
    rules, proven = TABLE[anomaly].rules, int(found.rule[0])
    possible = [rule.label for index, rule in enumerate(rules) if int(found.possible[0]) >> index & 1]
    assert len(possible) <= 1, possible
    return rules[proven].label if proven >= 0 else None, possible[0] if possible else None


LATE = [batch(2, 11), batch(3, 12.1, marker=True), batch(5, 21), batch(6, 22, marker=True), batch(9, 25.1, marker=True)]


@pytest.mark.parametrize("anomaly", TRANSACTIONAL_ANOMALIES)
def test_a_marker_that_nobody_had_asked_for_yet_proves_a_delayed_end(anomaly):
    assert named(anomaly, evaluated(anomaly, LATE)) == ("KAFKA-17754", None)
    assert named(anomaly, evaluated(anomaly, LATE, faults=())) == ("KAFKA-17754", None), "no fault is needed"


NEAR_MISSES = {
    "its own marker": [batch(5, 21), batch(9, 25.1, marker=True)],
    "a bumped epoch, by the coordinator": [
        batch(5, 21),
        batch(6, 22, marker=True, epoch=1),
        batch(9, 25.1, marker=True),
    ],
    "another producer's": [batch(5, 21), batch(6, 22, marker=True, producer_id=8), batch(9, 25.1, marker=True)],
    "before the record": [batch(3, 12.1, marker=True), batch(5, 21), batch(9, 25.1, marker=True)],
    "no marker, only records": [batch(5, 21), batch(6, 22), batch(9, 25.1, marker=True)],
}


@pytest.mark.parametrize("anomaly", [a for a in TRANSACTIONAL_ANOMALIES if a != "not-exactly-once"])
@pytest.mark.parametrize("batches", NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_any_other_marker_rules_it_out_although_a_node_was_cut_off(anomaly, batches):
    assert named(anomaly, evaluated(anomaly, batches)) == (None, None)


UNDESCRIBED = {
    "nobody read the log": {"batches": None},
    "the record is not in the log": {"batches": LATE, "log_offset": NONE},
    "sent in no transaction": {"batches": LATE, "begin_ns": ns(15)},
    "no end was asked for": {"batches": LATE, "transactions": [TWO[0], transaction(20, None)]},
    "the clocks were never compared": {"batches": LATE, "wall": False},
    "a clock was moved": {
        "batches": LATE,
        "faults": (CUT, replace(CUT, number=1, nature=FaultNature(shifts_clock=True))),
    },
    "no marker follows": {"batches": [batch(5, 21)]},
    "too close to say": {"batches": [batch(5, 21), batch(6, 24.999, marker=True)]},
}


@pytest.mark.parametrize("told", UNDESCRIBED.values(), ids=UNDESCRIBED.keys())
def test_where_it_cannot_be_told_it_is_possible_if_a_node_was_cut_off_and_never_named(told):
    assert named("torn", evaluated("torn", **told)) == (None, "KAFKA-17754")
    clocks = told.get("faults", (CUT,))[1:]
    assert named("torn", evaluated("torn", **(told | {"faults": clocks}))) == (None, None)


@pytest.mark.parametrize(
    "told",
    [{"transactions": None}, {"client": 4}, {"transactions": [transaction(10, 12, took_s=0.9), TWO[1]]}],
    ids=[
        "nobody recorded transactions",
        "another client's transactions",
        "no end took so long that it was asked for again",
    ],
)
def test_a_node_that_was_cut_off_is_no_trace_of_a_delayed_end(told):
    assert named("torn", evaluated("torn", None, **told)) == (None, None)


OLD = replace(VERSION_1, version=(3, 5, 2))
OVERTAKEN = [batch(2, 11), batch(3, 25.1, marker=True), batch(5, 21), batch(9, 40, marker=True, epoch=1)]
"""The marker of its own end stands before the record, and the next transaction commits it."""


def test_a_record_behind_the_marker_of_its_own_end_proves_a_delayed_write():
    assert named("aborted-read", evaluated("aborted-read", OVERTAKEN, configuration=OLD)) == ("KAFKA-14402", None)
    newer = evaluated("aborted-read", OVERTAKEN, faults=())
    assert named("aborted-read", newer) == (None, None), "brokers refuse it from 3.6 on"


NOT_OVERTAKEN = {
    "the marker of the transaction before": [batch(3, 12.1, marker=True), batch(5, 21), batch(9, 25.1, marker=True)],
    "another producer's": [batch(3, 25.1, marker=True, producer_id=8), batch(5, 21), batch(9, 25.1, marker=True)],
    "too close to say": [batch(3, 25, marker=True), batch(5, 21), batch(9, 25.1, marker=True)],
    "no marker": [batch(3, 25.1), batch(5, 21), batch(9, 25.1, marker=True)],
    "nobody read the log": None,
}


def test_a_delayed_write_is_possible_only_where_the_send_took_long():
    cut = {"configuration": replace(OLD, transactions_before_v2=False), "faults": (CUT,)}
    assert named("aborted-read", evaluated("aborted-read", None, **cut)) == (None, "KAFKA-14402"), "5 s"
    for soon in ({"end_ns": ns(21.5)}, {"end_ns": ns(21.5), "configuration": VERSION_1}):
        assert named("aborted-read", evaluated("aborted-read", None, **(cut | soon)))[1] != "KAFKA-14402"
    for doubtful in ({"outcome": int(Outcome.INFO)}, {"end_ns": MISSING}):
        found = evaluated("aborted-read", None, **(cut | {"end_ns": ns(21.5)} | doubtful))
        assert named("aborted-read", found) == (None, "KAFKA-14402")


@pytest.mark.parametrize("batches", NOT_OVERTAKEN.values(), ids=NOT_OVERTAKEN.keys())
def test_any_other_marker_before_it_proves_nothing(batches):
    found = named("aborted-read", evaluated("aborted-read", batches, configuration=OLD, faults=()))
    assert found == (None, None)


def test_a_record_that_was_copied_twice_in_confirmed_transactions_is_not_named():
    """The offset that a copier learned was an old one: both transactions have the markers that were asked for."""
    columns = {"case": int(CopyCase.REPEATED), "other_offset": 2}
    batches = [batch(2, 11), batch(3, 12.1, marker=True), batch(5, 21), batch(9, 25.1, marker=True)]
    found = evaluated("not-exactly-once", batches, **columns)
    assert named("not-exactly-once", found) == (None, "KAFKA-17754"), "the other copy was not looked at"
    assert named("not-exactly-once", evaluated("not-exactly-once", batches, faults=(), **columns)) == (None, None)


@given(
    written_s=st.floats(20, 30),
    asked_s=st.floats(20, 30),
    error_ms=st.integers(0, 500),
)
def test_a_marker_is_early_only_by_more_than_its_stamp_and_the_clocks_leave_open(written_s, asked_s, error_ms):
    batches = [batch(5, 20), batch(6, written_s, marker=True)]
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        error_ns=error_ms * MS,
        batches=lambda: batches_by_partition(table("replicas", batches))[0],
        transactions=lambda: TransactionTimes.of(table("transactions", [transaction(20, asked_s)])),
        wall_zero_ns=WALL_ZERO_MS * MS,
    )
    witness = {"partition": 0, "client": CLIENT, "begin_ns": ns(20), "log_offset": 5}
    found = evaluate_witnesses("torn", VERSION_1, envelope, make_witnesses(1, witness))
    stamp_ns = batches[1]["base_timestamp_ms"] * MS - WALL_ZERO_MS * MS
    assert (named("torn", found)[0] is not None) == (stamp_ns + MS + error_ms * MS < ns(asked_s))


def stored(offset, **more):
    return batch(offset, node=REMOTE_STORE, attributes=0, **more)


BUMPED = [batch(5, epoch=1, attributes=0, base_sequence=0), batch(6, epoch=1, attributes=0, base_sequence=1)]


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ([stored(3), stored(4)], 1),
        ([stored(3), stored(4), stored(5)], 1),
        ([stored(3), stored(4), stored(4, epoch=1)], -1),
        ([], -1),
    ],
    ids=["the store has the first", "and more than the broker", "two lineages", "nobody has it"],
)
def test_what_brokers_no_longer_have_themselves_stands_in_the_remote_store(remote, expected):
    found = batches_by_partition(table("replicas", [*remote, *BUMPED]))[0]
    assert found.bumped(make_witnesses(1, {"log_offset": 5, "other_offset": 4})).tolist() == [expected]
    assert (found.base_offset[1:] > found.last_offset[:-1]).all()


@pytest.mark.parametrize(
    ("remote", "first"),
    [((0, 1, 2, 3, 4), 0), ((0, 1, 3, 4), 3), ((0, 2, 3), 5), ((0, 1, 2, 3, 5), 5), ((0, 1, 4, 5, 6), 4)],
    ids=["whole", "a gap", "a gap before the broker's", "one before it in spite of what they share", "a gap, and more"],
)
def test_what_stands_before_a_gap_says_nothing_of_what_stands_behind_it(remote, first):
    """What is missing may be the first batch of a producer, or a marker."""
    late = [batch(5, epoch=1, attributes=0, base_sequence=4)]
    found = batches_by_partition(table("replicas", [*(stored(n, base_sequence=n) for n in remote), *late]))[0]
    assert found.base_offset.tolist() == list(range(first, 6))
    assert found.begins_late == (Tristate.UNKNOWN if first else Tristate.YES)


def test_a_store_without_a_broker_says_nothing_of_the_log():
    assert batches_by_partition(table("replicas", [stored(3)])) == {}


# --- markers and open transactions, against a plain loop ------------------------------------------------------------

LOGS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 1), st.sampled_from((0, TRANSACTIONAL, TRANSACTIONAL | CONTROL))),
    min_size=1,
    max_size=30,
)


def log_of(drawn):
    rows = [
        batch(2 * at, producer_id=producer, epoch=epoch, attributes=attributes)
        for at, (producer, epoch, attributes) in enumerate(drawn)
    ]
    return rows, batches_by_partition(table("replicas", rows))[0]


@given(LOGS)
def test_the_next_marker_is_the_first_of_the_same_producer_and_epoch(drawn):
    rows, made = log_of(drawn)
    expected = [
        next(
            (later for later in range(at + 1, len(rows)) if drawn[later] == (producer, epoch, TRANSACTIONAL | CONTROL)),
            -1,
        )
        for at, (producer, epoch, _) in enumerate(drawn)
    ]
    assert made.next_marker(np.arange(len(rows))).tolist() == expected


@given(LOGS)
def test_a_transaction_is_open_where_no_marker_of_its_producer_follows(drawn):
    rows, made = log_of(drawn)
    left = [
        row["base_offset"]
        for at, row in enumerate(rows)
        if drawn[at][2] == TRANSACTIONAL
        and not any(d[0] == drawn[at][0] and d[2] == TRANSACTIONAL | CONTROL for d in drawn[at:])
    ]
    assert made.open_from == (min(left) if left else NONE)


@given(
    copies=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(0, 3)), min_size=1, max_size=12),
    starts=st.dictionaries(st.integers(0, 3), st.integers(0, 40), min_size=1),
)
def test_an_older_epoch_stands_behind_a_newer_one_exactly_where_some_copy_has_it_so(copies, starts):
    rows = [batch(first, node=node, leader_epoch=epoch, last_offset=first + 2) for node, first, epoch in copies]
    expected = [
        max(first, start)
        for _, first, epoch in copies
        for newer, start in (*starts.items(), *((e, begun) for _, begun, e in copies))
        if newer > epoch and start <= first + 2
    ]
    assert older_epoch_from(table("replicas", rows), 0, starts) == (min(expected) if expected else NONE)


def test_a_newer_epoch_counts_although_who_appended_the_older_one_struck_it_out_of_its_checkpoint():
    # As seen with 3.8.1: epoch 1 from 157 on, epoch 0 again from 167 on, and a checkpoint that says "0 167" and "3 177".
    log = [(0, 156, 0), (157, 166, 1), (167, 176, 0), (177, 180, 3)]
    rows = [batch(first, node=1, leader_epoch=epoch, last_offset=last) for first, last, epoch in log]
    assert older_epoch_from(table("replicas", rows), 0, {0: 167, 3: 177}) == 167
    assert older_epoch_from(table("replicas", rows[:2]), 0, {0: 0, 1: 157}) == NONE


# --- KAFKA-14704 ----------------------------------------------------------------------------------------------------

OLD = replace(VERSION_1, version=(3, 4, 0))
MOVED = [state(-10, 0, 1, 0, (1, 2, 3)), state(50, 0, 2, 1, (2, 3)), state(60, 0, 2, 1, (1, 2, 3))]


def dirty(seen_s, epoch, *, configuration=OLD, rows=MOVED, cuts=(), taken_back=()):
    """Cuts and high watermarks that were taken back, as brokers' logs say: (broker, at, offset)."""
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        error_ns=MS,
        timeline=timelines(table("metadata", rows)).get(0) or Envelope(acks="all", unclean_enabled=False).timeline,
        truncations=said(cuts),
        taken_back=said(taken_back),
    )
    columns = {"begin_ns": ns(48), "end_ns": ns(49), "log_offset": 5, "outcome": int(Outcome.INFO), "partition": 0}
    columns |= {"seen_ns": ns(seen_s), "leader_epoch": epoch}
    return named("dirty-read", evaluate_witnesses("dirty-read", configuration, envelope, make_witnesses(1, columns)))


def said(rows):
    return tuple(np.array([row[k] if k != 1 else ns(row[k]) for row in rows], dtype=np.int64) for k in range(3))


def test_a_read_under_the_epoch_of_a_leader_that_was_replaced_before_proves_the_defect_of_old_brokers():
    assert dirty(50.5, 0) == ("KAFKA-14704", None)


def test_a_read_before_the_change_or_under_the_new_epoch_or_of_newer_brokers_does_not():
    assert dirty(49.5, 0) == (None, None)
    assert dirty(50.5, 1) == (None, None)
    assert dirty(50.5, 0, configuration=replace(OLD, version=(3, 5, 0))) == (None, None)


def test_a_read_whose_epoch_was_not_told_is_no_trace_of_it():
    assert dirty(50.5, NONE) == (None, None)
    assert dirty(50.0, 0) == (None, None), "too close to the election"


FOLLOWER = {"cuts": [(1, 52, 5)], "taken_back": [(1, 52.1, 8)]}
"""Broker 1 follows broker 2 from 50 s on, and cuts off what is below the high watermark that it has."""


@pytest.mark.parametrize("seen_s", [50.5, 51.9])
def test_a_follower_that_took_back_a_high_watermark_above_the_read_proves_it_for_readers_that_know_no_epochs(seen_s):
    assert dirty(seen_s, NONE, **FOLLOWER) == ("KAFKA-14704", None)


@pytest.mark.parametrize(
    "told",
    [
        {"cuts": [(1, 52, 6)], "taken_back": [(1, 52.1, 8)]},  # the record was kept
        {"cuts": [(1, 52, 5)], "taken_back": [(1, 52.1, 5)]},  # the record was above the high watermark
        {"cuts": [(3, 52, 5)], "taken_back": [(1, 52.1, 8)]},  # another broker cut it off
        {"cuts": [(1, 51, 5)], "taken_back": [(1, 52.1, 8)]},  # for another reason
        {"cuts": [(2, 52, 5)], "taken_back": [(2, 52.1, 8)]},  # the leader itself
    ],
)
def test_a_high_watermark_that_was_taken_back_elsewhere_or_for_other_offsets_does_not(told):
    assert dirty(50.5, NONE, **told) == (None, None)


def test_a_high_watermark_of_an_earlier_leader_does_not():
    assert dirty(49.5, NONE, **FOLLOWER) == (None, None), "read from the leader itself, and lost with it"
    later = [*MOVED[:2], state(51, 0, 3, 2, (3,))]
    assert dirty(50.5, NONE, rows=later, **FOLLOWER) == (None, None), "raised under one leader, cut under the next"
    assert dirty(50.5, NONE, configuration=replace(OLD, version=(3, 5, 0)), **FOLLOWER) == (None, None)


# --- KAFKA-15591 ----------------------------------------------------------------------------------------------------

IDEMPOTENT = replace(VERSION_1, transactions_before_v2=False)


def lost(batches, *, log_offset=NONE, configuration=IDEMPOTENT):
    return named("lost", evaluated("lost", batches, configuration=configuration, faults=(), log_offset=log_offset))


def sequenced(offset, sequence, **more):
    return batch(offset, base_sequence=sequence, **{"attributes": 0, **more})


def test_a_log_that_begins_with_a_second_batch_proves_that_the_first_was_refused():
    assert lost([sequenced(0, 1), sequenced(1, 2)]) == ("KAFKA-15591", None)


def test_a_log_that_begins_at_the_beginning_or_a_record_with_an_offset_does_not():
    assert lost([sequenced(0, 0), sequenced(1, 1)]) == (None, None)
    assert lost([sequenced(0, NONE, producer_id=NONE)]) == (None, None)
    assert lost([sequenced(0, 1)], log_offset=5) == (None, None)
    for other in ({"version": (4, 5, 0)}, {"librdkafka": False}, {"several_in_flight": False}, {"idempotent": False}):
        assert lost([sequenced(0, 1)], configuration=replace(IDEMPOTENT, **other)) == (None, None)


def test_it_is_proven_on_a_partition_that_has_records_of_another_producer_too():
    other = sequenced(0, 0, producer_id=77)
    assert lost([other, sequenced(1, 3)]) == ("KAFKA-15591", None)
    assert lost([other, sequenced(1, 0), sequenced(2, 3)])[0] is None, "its first batch is there"


def test_where_the_beginning_of_the_log_is_gone_it_is_possible():
    assert lost([sequenced(7, 8)]) == (None, "KAFKA-15591")
    assert lost(None) == (None, "KAFKA-15591")


# --- all of them ----------------------------------------------------------------------------------------------------


def test_no_known_defect_is_named_by_circumstances_alone():
    """What a configuration is, that a leader moved, and that a node was away are no signatures."""
    circumstances = {"leader changed", "delayed", "coordinator out", "leader was hampered", "fault at work"}
    for guarantee in TABLE.values():
        for rule in guarantee.rules:
            if rule.effect is RuleEffect.DEFECT:
                assert not circumstances & set(rule.when), rule.id
                assert rule.perhaps, rule.id
            else:
                assert not rule.perhaps, rule.id
