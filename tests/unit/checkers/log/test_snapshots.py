"""`snapshot-conflict` on hand-made replicas, and against a producer state kept batch by batch, as a broker keeps it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.log.producer_snapshots import snapshot_conflict
from prozess.harness.columns import empty_rows
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.interfaces.checking import CopyFacts, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import SnapshotCase, make_witnesses
from prozess.harness.schema import NONE, READS, SENDS, ObservationKind
from prozess.harness.verdict import AnomalyOutcome
from tests.support.cells.evidence import evidence, failover, findings, of, plan
from tests.support.cells.partitions import table

NOBODY = np.empty(0, dtype=np.int32)
PLAIN, TRANSACTIONAL, MARKER = 0, 0x10, 0x30
FIELDS = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "timestamp_ms", "transaction_offset")


def batch(base, last, producer, epoch=0, sequence=0, attributes=PLAIN, time_ms=0):
    return {
        "base_offset": base,
        "last_offset": last,
        "producer_id": producer,
        "producer_epoch": epoch,
        "base_sequence": NONE if attributes == MARKER else sequence,
        "attributes": attributes,
        "max_timestamp_ms": time_ms or 1000 + base,
    }


def state_at(batches, offset):
    """Producer → its six fields: one batch after the other, as ProducerStateManager has it."""
    producers = {}
    for b in batches:
        if b["base_offset"] >= offset or b["producer_id"] < 0:
            continue
        state = producers.setdefault(
            b["producer_id"], dict(zip(FIELDS, (b["producer_epoch"], -1, -1, 0, -1, -1), strict=True))
        )
        if state["producer_epoch"] != b["producer_epoch"]:
            state |= {"producer_epoch": b["producer_epoch"], "last_sequence": -1, "last_offset": -1, "offset_delta": 0}
        state["timestamp_ms"] = b["max_timestamp_ms"]
        if b["attributes"] == MARKER:
            state["transaction_offset"] = -1
            continue
        delta = b["last_offset"] - b["base_offset"]
        state |= {"last_sequence": (b["base_sequence"] + delta) % 2**31, "last_offset": b["last_offset"]}
        state["offset_delta"] = delta
        if b["attributes"] == TRANSACTIONAL and state["transaction_offset"] < 0:
            state["transaction_offset"] = b["base_offset"]
    return producers


def history(batches, snapshots, *, log_start=0, log_end=None, compacted=False, damaged=(), assignment=(1,)):
    """One copy, on broker 1. `snapshots`: offset → (producer → fields)."""
    rows = [{"node": 1, "step": NONE, "partition": 4, **b} for b in batches]
    told = [
        {"snapshot_offset": offset, "producer_id": producer, "node": 1, "step": NONE, "read_ns": 9, **fields}
        for offset, producers in snapshots.items()
        for producer, fields in producers.items()
    ]
    noted = [{"value": o, "kind": ObservationKind.REPLICA_SNAPSHOT, "node": 1, "step": NONE} for o in snapshots]
    noted += [{"value": o, "kind": ObservationKind.REPLICA_SNAPSHOT_DAMAGED, "node": 1, "step": NONE} for o in damaged]
    end = max((b["last_offset"] + 1 for b in batches), default=0) if log_end is None else log_end
    return PartitionHistory(
        partition=4,
        sends=empty_rows(SENDS),
        reads=empty_rows(READS),
        client_role=NOBODY,
        client_isolation=NOBODY,
        client_issued=NOBODY,
        client_acks=NOBODY,
        audit_end={},
        compacted=compacted,
        assignment=assignment,
        copies={1: CopyFacts(log_start, end)},
        replicas=table("replicas", rows),
        snapshots=table("snapshots", told),
        observations=table("observations", noted),
    )


def found(*arguments, **more):
    result = snapshot_conflict(history(*arguments, **more))
    assert result.count == len(result.witnesses)
    return [(SnapshotCase(int(w["case"])), int(w["log_offset"])) for w in result.witnesses]


LOG = [
    batch(0, 2, 7, sequence=0),
    batch(3, 3, 8, attributes=TRANSACTIONAL),
    batch(4, 4, 8, sequence=1, attributes=TRANSACTIONAL),
    batch(5, 6, 7, sequence=3),
    batch(7, 7, 8, attributes=MARKER),
    batch(8, 9, 8, sequence=2, attributes=TRANSACTIONAL),
    batch(10, 10, 8, epoch=1, attributes=MARKER),
    batch(11, 11, -1),
]


def test_the_state_at_every_offset_agrees():
    result = snapshot_conflict(history(LOG, {o: state_at(LOG, o) for o in range(1, 13)}))
    assert (result.count, result.incomplete) == (0, None)
    assert result.judged == sum(len(state_at(LOG, o)) for o in range(1, 13))
    assert state_at(LOG, 12)[8]["last_sequence"] == -1, "a marker of another epoch"


@pytest.mark.parametrize(
    ("field", "case"),
    [
        ("producer_epoch", SnapshotCase.EPOCH),
        ("last_sequence", SnapshotCase.LAST_BATCH),
        ("last_offset", SnapshotCase.LAST_BATCH),
        ("offset_delta", SnapshotCase.LAST_BATCH),
        ("transaction_offset", SnapshotCase.TRANSACTION),
        ("timestamp_ms", SnapshotCase.TIMESTAMP),
    ],
)
def test_one_field_of_one_producer_that_differs_is_found(field, case):
    for producer in (7, 8):
        wrong = state_at(LOG, 5)
        wrong[producer][field] += 1
        assert found(LOG, {3: state_at(LOG, 3), 5: wrong, 7: state_at(LOG, 7)}) == [(case, 5)]


def test_a_producer_that_the_snapshot_forgot_and_one_that_it_made_up():
    forgot, more = state_at(LOG, 7), state_at(LOG, 7)
    del forgot[7]
    more[9] = more[7]
    assert found(LOG, {7: forgot}) == [(SnapshotCase.UNKNOWN_THERE, 7)]
    assert found(LOG, {7: more}) == [(SnapshotCase.UNKNOWN_HERE, 7)]
    assert found(LOG, {3: {}}) == [(SnapshotCase.UNKNOWN_THERE, 3)]


def test_a_sequence_goes_on_at_zero_after_the_greatest_int32():
    log = [batch(0, 9, 7, sequence=2**31 - 4)]
    assert state_at(log, 10)[7]["last_sequence"] == 5
    assert found(log, {10: state_at(log, 10)}) == []


def test_what_retention_took_away_cannot_contradict_what_is_left_can():
    rest = [b for b in LOG if b["base_offset"] >= 7]
    gone = {o: state_at(LOG, o) for o in range(8, 13)}
    assert found(rest, gone, log_start=7) == []
    wrong = state_at(LOG, 12)
    wrong[8]["producer_epoch"] = 0
    assert found(rest, {12: wrong}, log_start=7) == [(SnapshotCase.EPOCH, 12)]
    made_up = state_at(LOG, 12)
    made_up[9] = made_up[7] | {"last_offset": 8}
    assert found(rest, {12: made_up}, log_start=7) == [(SnapshotCase.UNKNOWN_HERE, 12)]
    assert found(rest, {12: {}}, log_start=7) == [(SnapshotCase.UNKNOWN_THERE, 12)]


def test_beyond_the_end_of_the_log_and_in_compacted_topics_nothing_is_judged():
    assert found(LOG, {99: {}}) == []
    assert found(LOG, {7: {}}, compacted=True) == []


def test_a_damaged_snapshot_and_a_copy_nobody_read_leave_it_open():
    assert snapshot_conflict(history(LOG, {}, damaged=[7])).incomplete == (
        "the snapshot 7 of partition 4 on broker 1 cannot be read"
    )
    unread = snapshot_conflict(history(LOG, {}, assignment=(1, 2)))
    assert unread.incomplete == "the copies of partition 4 on brokers 2 were not read"


BATCHES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from((-1, 7, 8)), st.integers(0, 2), st.sampled_from((PLAIN, 0x10, 0x30))),
    max_size=12,
)


@given(shape=BATCHES, data=st.data())
def test_it_finds_exactly_what_a_broker_that_keeps_its_state_batch_by_batch_would_say_otherwise(shape, data):
    log, base = [], 0
    for delta, producer, epoch, attributes in shape:
        delta = 0 if attributes == MARKER else delta
        log.append(batch(base, base + delta, producer, epoch, sequence=base, attributes=attributes))
        base += delta + 1
    ends = [b["last_offset"] + 1 for b in log]
    snapshots = {o: state_at(log, o) for o in ends}
    assert found(log, snapshots) == []
    entries = [(o, p) for o in ends for p in snapshots[o]]
    if entries:
        offset, producer = data.draw(st.sampled_from(entries))
        snapshots[offset][producer][data.draw(st.sampled_from(FIELDS))] += 1
        assert [where for _, where in found(log, snapshots)] == [offset]


# --- judged -------------------------------------------------------------------------------------------------------------


def judged(case, *, lived_s=60, **cluster):
    made = plan({"producer.acks": ["all"]})
    columns = {"partition": 0, "log_offset": 5, "reader": 2, "case": case, "begin_ns": 0, "end_ns": lived_s * 10**9}
    told = {("snapshot-conflict", 0): KernelResult(make_witnesses(1, columns), count=1, judged=3)}
    about = {"kafka_version": "4.4.0", "settings": cluster, "features": {}}
    return of(
        judge(made, findings(made, told), evidence(made, metadata=failover(1), cluster=about)), 0, "snapshot-conflict"
    )


def test_a_snapshot_that_contradicts_its_log_is_a_violation():
    outcome = judged(SnapshotCase.LAST_BATCH)
    assert (outcome.outcome, outcome.forbidden) == (AnomalyOutcome.VIOLATED, 1)
    assert "1 entry of a producer snapshot contradicts the batches below it" in outcome.reason


def test_only_a_producer_that_may_have_expired_may_be_unknown_to_a_snapshot():
    short = {"producer.id.expiration.ms": "30000"}
    assert judged(SnapshotCase.UNKNOWN_THERE).outcome is AnomalyOutcome.VIOLATED
    assert judged(SnapshotCase.UNKNOWN_THERE, **short).forbidden == 0
    assert judged(SnapshotCase.UNKNOWN_THERE, lived_s=20, **short).outcome is AnomalyOutcome.VIOLATED
    assert judged(SnapshotCase.EPOCH, **short).outcome is AnomalyOutcome.VIOLATED
