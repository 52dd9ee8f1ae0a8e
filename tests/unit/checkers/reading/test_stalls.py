"""Readers that are given nothing: found, and not the near miss. Times in seconds; every record is visible from the start."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.reading.positions import stalled
from prozess.harness.config.configuration import TransactionConfiguration
from prozess.harness.guarantees.evidence.envelope import CONTROL, TRANSACTIONAL, Envelope, batches_by_partition
from prozess.harness.guarantees.evidence.ground_truth import fault_records, timelines
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import STALLED_NS, StallCase, make_witnesses
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.cell_work import TransactionsWork
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import MISSING, NONE, Outcome
from tests.support.cells.evidence import DICTIONARIES, fault, ns, state
from tests.support.cells.partitions import OK, PARTITION, PRODUCER, READER, READER_COMMITTED, history, table
from tests.support.cells.transactions import CELL, ended

SENDS = [(PRODUCER, n, OK, n) for n in range(3)]
LOG = [(n, PRODUCER, n) for n in range(3)]
STATED = STALLED_NS / 1e9


def cell(
    *reads: tuple[float, int],
    until: float,
    beats=None,
    client=READER,
    transactions=(),
    stable=(),
    timeout_ms=4_000,
    killed=False,
) -> CellHistory:
    """A reader that is given records at these (time, offset), assigned at 0 and alive until `until`."""
    sends = [(*row, {"transaction": 0}) for row in SENDS] if transactions else SENDS
    rows = [(client, offset, PRODUCER, offset, {"read_ns": ns(at)}) for at, offset in reads]
    made = history(sends, LOG, rows)
    hearts = np.arange(0, until, 0.1) if beats is None else beats
    rows_of = {
        "clients": [{"client": client, "planned": client, "ended_ns": MISSING if killed else ns(until)}],
        "positions": [{"client": client, "time_ns": 0, "event": 1, "partition": PARTITION}],
        "heartbeats": [{"client": client, "time_ns": ns(t)} for t in hearts],
        "transactions": list(transactions),
    }
    offsets = [
        {"time_ns": ns(t), "metric": code_of(metric), "partition": PARTITION, "value_micro": value * MICRO, "absent": 0}
        for metric, t, value in stable
    ]
    tables = {name: table(name, given) for name, given in rows_of.items()} | {
        "leader_offsets": table("metrics", offsets)
    }
    level = "read_committed" if client == READER_COMMITTED else "read_uncommitted"
    reader = PlannedClient(client=client, role="reader", name="reader", partitions=(PARTITION,), isolation_level=level)
    kind = replace_cell(timeout_ms) if transactions else CELL
    return CellHistory(cell=kind, partitions={PARTITION: made}, tables=tables, clients=(reader,))


def replace_cell(timeout_ms):
    configuration = TransactionConfiguration(transaction_timeout_ms=timeout_ms)
    return CELL.model_copy(update={"work": TransactionsWork(configuration=configuration)})


def found(history):
    result = stalled(history)
    assert result.count == len(result.witnesses)
    return [(int(w["log_offset"]), w["begin_ns"] / 1e9, w["end_ns"] / 1e9, int(w["case"])) for w in result.witnesses]


def test_a_reader_that_is_given_nothing_for_the_stated_time_is_stalled():
    assert found(cell((1, 0), until=30)) == [(1, 1.0, 30.0, StallCase.READER)]


def test_and_one_that_is_given_something_just_in_time_is_not():
    assert found(cell((1, 0), (1 + STATED - 0.1, 1), (STATED + 2, 2), until=60)) == []


def test_a_reader_that_is_never_given_anything_is_stalled_since_it_was_assigned():
    [(offset, begin_s, end_s, _)] = found(cell(until=30))
    assert (offset, end_s) == (0, 30.0)
    assert begin_s == pytest.approx(0, abs=0.001)


def test_a_partition_that_the_reader_was_not_assigned_is_none_of_its():
    made = cell(until=60)
    elsewhere = {**made.tables["positions"], "partition": np.array([PARTITION + 1], dtype=np.int32)}
    assert found(replace(made, tables={**made.tables, "positions": elsewhere})) == []


def test_who_has_read_everything_waits_for_nothing():
    assert found(cell((1, 0), (1, 1), (1, 2), until=300)) == []


def test_a_reader_whose_life_ends_before_the_stated_time_is_not_stalled():
    assert found(cell((1, 0), until=STATED)) == []
    assert found(cell((1, 0), until=STATED, killed=True)) == []


def test_a_silence_between_two_records_counts_too():
    assert [offset for offset, *_ in found(cell((1, 0), (30, 1), (30, 2), until=31))] == [1]


def test_a_reader_whose_heart_stood_still_may_not_have_asked():
    beats = np.concatenate([np.arange(0, 10, 0.1), np.arange(15, 30, 0.1)])
    assert [case for *_, case in found(cell((1, 0), until=30, beats=beats))] == [StallCase.STARVED]


def test_only_the_stretch_with_a_beating_heart_counts():
    beats = np.concatenate([np.arange(0, 3, 0.1), np.arange(5, 30, 0.1)])
    assert found(cell((1, 0), until=30, beats=beats)) == [(1, 5.0, 30.0, StallCase.READER)]


@pytest.mark.parametrize(("timeout_s", "count"), [(4, 1), (15, 0)], ids=["its time is over", "it may still be open"])
def test_at_read_committed_an_open_transaction_explains_a_silence_until_its_timeout(timeout_s, count):
    left_open = ended(PRODUCER, 0, Outcome.INFO, begun_ns=0, completed_ns=MISSING)
    made = cell(until=40, client=READER_COMMITTED, transactions=[left_open], timeout_ms=timeout_s * 1000)
    assert len(found(made)) == count
    assert len(found(cell(until=40, transactions=[left_open], timeout_ms=timeout_s * 1000))) == 1


def test_a_last_stable_offset_that_stands_still_below_the_watermark_is_found():
    moving = [("high_watermark", t, 3) for t in range(60)]
    stuck = cell((0, 0), (0, 1), (0, 2), until=60, stable=[*moving, *(("last_stable_offset", t, 1) for t in range(60))])
    assert found(stuck) == [(1, 0.0, 59.0, StallCase.STABLE_OFFSET)]
    fine = cell((0, 0), (0, 1), (0, 2), until=60, stable=[*moving, *(("last_stable_offset", t, 3) for t in range(60))])
    assert found(fine) == []


@pytest.mark.parametrize(
    ("first_above_s", "expected"),
    [(0, [1.0]), (10, [10.0]), (25, []), (None, [])],
    ids=["from the beginning", "while there is time", "too late", "never"],
)
def test_a_reader_is_blamed_for_what_is_stable_alone(first_above_s, expected):
    """Seen in a matrix: a transaction that its coordinator had forgotten was ended after 55 s. The reader, which was given
    its record 16 s later, was blamed for all of it."""
    over = ended(PRODUCER, 0, Outcome.OK, begun_ns=0, completed_ns=ns(0.5))
    above = 99 if first_above_s is None else first_above_s
    stable = [("last_stable_offset", t, 3 if t >= above else 1) for t in range(40)]
    made = cell((1, 0), until=40, client=READER_COMMITTED, transactions=[over], stable=stable)
    assert [begin for _, begin, _, case in found(made) if case == StallCase.READER] == pytest.approx(expected)
    assert len(found(cell((1, 0), until=40, transactions=[over], stable=stable))) == 1, "it reads what is not committed"


# --- what the table makes of it ---------------------------------------------------------------------------------------

NEW = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
OLD = replace(NEW, version=(3, 5, 1))
QUIET = [state(-10, 0, 1, 0, (1, 2, 3))]


def judged(*faults, metadata=QUIET, case=StallCase.READER, configuration=NEW, batches=None, log_offset=NONE):
    rows = [row for made in faults for row in made]
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        timeline=timelines(table("metadata", metadata))[0],
        faults=fault_records(table("faults", rows), DICTIONARIES, NATURES) if rows else (),
        batches=lambda: None if batches is None else batches_by_partition(table("replicas", batches))[0],
    )
    columns = {"begin_ns": ns(100), "end_ns": ns(130), "case": case, "partition": 0, "log_offset": log_offset}
    witness = make_witnesses(1, columns)
    evaluation = evaluate_witnesses("stalled", configuration, envelope, witness)
    return Judgement(int(evaluation.judgement[0])), int(evaluation.rule[0])


def test_in_peace_it_is_forbidden():
    assert judged() == (Judgement.FORBIDDEN, -1)
    assert judged(fault(0, "kill", [1], 50, 90)) == (Judgement.FORBIDDEN, -1)
    assert judged(fault(0, "kill", [1], 50, 105)) == (Judgement.FORBIDDEN, -1)


@pytest.mark.parametrize("struck", [(50, 115), (115, 120), (115, None)])
def test_a_fault_within_the_stated_time_leaves_it_unjudged(struck):
    assert judged(fault(0, "pause", [2], *struck))[0] is Judgement.NOT_APPLICABLE


def test_so_does_a_gap_in_the_isr_or_a_new_leader():
    assert judged(metadata=[*QUIET, state(112, 0, 1, 0, (1, 2))])[0] is Judgement.NOT_APPLICABLE
    assert judged(metadata=[*QUIET, state(112, 0, 2, 1, (1, 2, 3))])[0] is Judgement.NOT_APPLICABLE
    assert (
        judged(metadata=[*QUIET, state(80, 0, 1, 0, (1, 2)), state(95, 0, 1, 0, (1, 2, 3))])[0] is Judgement.FORBIDDEN
    )


def test_a_starved_reader_is_unknown():
    assert judged(case=StallCase.STARVED)[0] is Judgement.UNKNOWN


def test_a_hanging_transaction_of_old_brokers_is_named_where_no_marker_ends_it():
    defect = [rule.id for rule in TABLE["stalled"].rules].index("stalled/KAFKA-14402")

    def batch(offset, attributes):
        place = {"partition": 0, "node": 1, "step": NONE, "base_offset": offset, "last_offset": offset}
        return place | {"producer_id": 7, "attributes": attributes}

    stands = {"case": StallCase.STABLE_OFFSET, "log_offset": 5}
    hanging = [batch(3, TRANSACTIONAL), batch(4, TRANSACTIONAL | CONTROL), batch(5, TRANSACTIONAL)]
    assert judged(**stands, configuration=OLD, batches=hanging) == (Judgement.FORBIDDEN, defect)
    assert judged(**stands, batches=hanging) == (Judgement.FORBIDDEN, -1)
    ended = [*hanging, batch(6, TRANSACTIONAL | CONTROL)]
    assert judged(**stands, configuration=OLD, batches=ended) == (Judgement.FORBIDDEN, -1)
    elsewhere = {"case": StallCase.STABLE_OFFSET, "log_offset": 3}
    assert judged(**elsewhere, configuration=OLD, batches=hanging) == (Judgement.FORBIDDEN, -1)
    assert judged(**stands, configuration=OLD) == (Judgement.FORBIDDEN, -1), "nobody read the log"
    assert judged(configuration=OLD) == (Judgement.FORBIDDEN, -1)
