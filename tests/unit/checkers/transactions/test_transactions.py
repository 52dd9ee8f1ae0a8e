"""Kernels of transactions on hand-written cells of two partitions: each finds its anomaly, and not the near miss."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.log.losses import lost
from prozess.checkers.transactions.early_reads import early_read
from prozess.checkers.transactions.isolation import (
    AT_READ_COMMITTED,
    AT_READ_UNCOMMITTED,
    aborted_read,
    lost_transaction,
    torn,
    zombie_write,
)
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import EarlyCase
from prozess.harness.schema import MISSING, NONE, TRANSACTIONS
from tests.support.cells.partitions import (
    AUDIT_COMMITTED,
    FAIL,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_2,
    READER,
    READER_COMMITTED,
    SENTINEL_NS,
)
from tests.support.cells.transactions import ABORT, COMMIT, A, B, cell_of, columns_of, ended, instance
from tests.support.examples import examples

KERNELS = (torn, lost_transaction, zombie_write, aborted_read, early_read)


def found(result: KernelResult) -> list[tuple[int, int, int]]:
    """(partition, client, sequence) of each witness; the count is theirs."""
    assert result.count == len(result.witnesses)
    return [(int(w["partition"]), int(w["client"]), int(w["sequence"])) for w in result.witnesses]


def nothing(cell: CellHistory) -> None:
    assert {kernel.__name__: found(kernel(cell)) for kernel in KERNELS} == {kernel.__name__: [] for kernel in KERNELS}


EMPTY: dict[str, Any] = {"sends": [], "log": []}
WHOLE_A = {"sends": [(PRODUCER, 0, OK, 0, 0)], "log": [(0, PRODUCER, 0)]}
WHOLE_B = {"sends": [(PRODUCER, 1, OK, 0, 0)], "log": [(0, PRODUCER, 1)]}
COMMITTED = [ended(PRODUCER, 0, OK)]


def test_a_transaction_of_which_both_partitions_show_all_is_whole():
    nothing(cell_of(WHOLE_A, WHOLE_B, COMMITTED))
    assert torn(cell_of(WHOLE_A, WHOLE_B, COMMITTED)).judged == 1


def test_a_record_that_another_partition_does_not_show_is_torn_out():
    cell = cell_of(WHOLE_A, {**WHOLE_B, "visible": []}, COMMITTED)
    assert found(torn(cell)) == [(B, PRODUCER, 1)]
    (witness,) = torn(cell).witnesses
    assert (witness["other_client"], witness["other_sequence"], witness["other_offset"]) == (PRODUCER, 0, 0)
    assert witness["outcome"] == OK
    assert found(lost_transaction(cell)) == []


def test_a_committed_transaction_that_nobody_is_shown_is_lost():
    cell = cell_of({**WHOLE_A, "visible": []}, {**WHOLE_B, "visible": []}, COMMITTED)
    assert found(lost_transaction(cell)) == [(A, PRODUCER, 0), (B, PRODUCER, 1)]
    assert found(torn(cell)) == []


def test_of_a_commit_in_doubt_nothing_need_be_shown():
    sends = [{"sends": [(PRODUCER, n, INFO, 0, 0)], "log": [(0, PRODUCER, n)], "visible": []} for n in (0, 1)]
    nothing(cell_of(*sends, [ended(PRODUCER, 0, INFO)]))


def test_of_a_commit_in_doubt_of_which_one_record_is_shown_all_must_be():
    a = {"sends": [(PRODUCER, 0, INFO, 0, 0)], "log": [(0, PRODUCER, 0)]}
    b = {"sends": [(PRODUCER, 1, INFO, 0, 0)], "log": [(0, PRODUCER, 1)], "visible": []}
    assert found(torn(cell_of(a, b, [ended(PRODUCER, 0, INFO)]))) == [(B, PRODUCER, 1)]


def test_a_commit_in_doubt_that_a_committed_reader_saw_is_proven():
    a = {"sends": [(PRODUCER, 0, INFO, 0, 0)], "log": [], "reads": [(READER_COMMITTED, 0, PRODUCER, 0)]}
    b = {"sends": [(PRODUCER, 1, INFO, 0, 0)], "log": []}
    assert found(lost_transaction(cell_of(a, b, [ended(PRODUCER, 0, INFO)]))) == [(A, PRODUCER, 0), (B, PRODUCER, 1)]
    uncommitted = {**a, "reads": [(READER, 0, PRODUCER, 0)]}
    assert found(lost_transaction(cell_of(uncommitted, b, [ended(PRODUCER, 0, INFO)]))) == []


def test_a_record_that_produce_refused_is_no_part_of_its_transaction():
    b = {"sends": [(PRODUCER, 1, FAIL, NONE, 0)], "log": []}
    nothing(cell_of(WHOLE_A, b, COMMITTED))


def test_what_may_stand_behind_the_sentinel_is_not_missing():
    late = {"completed_ns": SENTINEL_NS + 1}
    b = {"sends": [(PRODUCER, 1, OK, NONE, 0, late)], "log": []}
    nothing(cell_of(WHOLE_A, b, COMMITTED))


def test_where_the_audit_did_not_get_through_nothing_is_missing_and_nothing_is_held():
    cell = cell_of(WHOLE_A, {**WHOLE_B, "visible": [], "sentinel": None}, COMMITTED)
    nothing(cell)
    for kernel in KERNELS:
        assert "partition 8 at read_committed" in str(kernel(cell).incomplete)
    assert all(kernel(cell_of(WHOLE_A, WHOLE_B, COMMITTED)).incomplete is None for kernel in KERNELS)


def test_a_transaction_without_a_row_leaves_doubt():
    result = torn(cell_of(WHOLE_A, WHOLE_B, []))
    assert result.incomplete == "2 records belong to transactions that were not recorded"


def test_a_record_of_a_commit_in_doubt_is_lost_once_another_of_it_was_seen_at_read_committed():
    sends = [(PRODUCER, 0, INFO, 0, 0), (PRODUCER, 1, INFO, 1, 0), (PRODUCER, 2, INFO, 2, 1)]
    rows = {"sends": sends, "log": [(0, PRODUCER, 0)]}
    cell = cell_of(rows, EMPTY, [ended(PRODUCER, 0, INFO), ended(PRODUCER, 1, INFO)])
    assert found(lost(cell.partitions[A])) == [(7, PRODUCER, 1)]
    hidden = cell_of({**rows, "visible": []}, EMPTY, [ended(PRODUCER, 0, INFO), ended(PRODUCER, 1, INFO)])
    assert found(lost(hidden.partitions[A])) == []


# --- aborted and early reads ------------------------------------------------------------------------------------------


ABORTED = [ended(PRODUCER, 0, FAIL, by=ABORT)]


def aborted(**rows: Any) -> dict[str, Any]:
    return {"sends": [(PRODUCER, 0, FAIL, 0, 0)], "log": [(0, PRODUCER, 0)], "visible": [], **rows}


def test_an_aborted_record_in_the_log_is_nothing_special():
    nothing(cell_of(aborted(), EMPTY, ABORTED))


def test_an_aborted_record_given_out_at_read_uncommitted_is_told_as_such():
    result = aborted_read(cell_of(aborted(reads=[(READER, 0, PRODUCER, 0)] * 2), EMPTY, ABORTED))
    assert found(result) == [(A, PRODUCER, 0)]
    assert result.witnesses["case"].tolist() == [AT_READ_UNCOMMITTED]
    assert result.witnesses["seen_ns"].tolist() == [1_010]


def test_an_aborted_record_given_out_at_read_committed_is_found_once_by_a_consumer_first():
    rows = {"reads": [(READER, 0, PRODUCER, 0), (READER_COMMITTED, 0, PRODUCER, 0)], "visible": [(0, PRODUCER, 0)]}
    witnesses = aborted_read(cell_of(aborted(**rows), EMPTY, ABORTED)).witnesses
    assert witnesses["case"].tolist() == [AT_READ_COMMITTED, AT_READ_UNCOMMITTED]
    assert witnesses["reader"].tolist() == [READER_COMMITTED, READER]


def test_an_aborted_record_that_only_the_audit_shows_is_found():
    (witness,) = aborted_read(cell_of(aborted(visible=[(0, PRODUCER, 0)]), EMPTY, ABORTED)).witnesses
    assert (witness["reader"], witness["seen_ns"], witness["case"]) == (AUDIT_COMMITTED, MISSING, AT_READ_COMMITTED)


def test_an_abort_that_followed_a_commit_in_doubt_proves_nothing():
    cell = cell_of(WHOLE_A, WHOLE_B, [ended(PRODUCER, 0, INFO, by=COMMIT)])
    assert found(aborted_read(cell)) == []


@pytest.mark.parametrize(("at", "early"), [(1_009, False), (1_010, False), (1_011, True)])
def test_a_read_before_the_commit_was_invoked_is_early(at, early):
    rows = {**WHOLE_A, "reads": [(READER_COMMITTED, 0, PRODUCER, 0)]}
    result = early_read(cell_of(rows, WHOLE_B, [ended(PRODUCER, 0, OK, at=at)]))
    assert found(result) == ([(A, PRODUCER, 0)] if early else [])
    assert result.witnesses["case"].tolist() == [AT_READ_COMMITTED] * early


def test_a_read_of_what_was_never_to_be_committed_is_early():
    never = ended(PRODUCER, 0, INFO, by=NONE) | {"end_invoked_ns": MISSING}
    rows = {"sends": [(PRODUCER, 0, INFO, 0, 0)], "log": [(0, PRODUCER, 0)], "visible": []}
    reads = [(READER, 0, PRODUCER, 0), (READER_COMMITTED, 0, PRODUCER, 0)]
    result = early_read(cell_of({**rows, "reads": reads}, EMPTY, [never]))
    assert result.witnesses["case"].tolist() == [AT_READ_COMMITTED, AT_READ_UNCOMMITTED]


def test_what_is_read_early_by_another_clock_proves_nothing():
    rows = {**WHOLE_A, "reads": [(READER_COMMITTED, 0, PRODUCER, 0)]}
    cell = cell_of(rows, WHOLE_B, [ended(PRODUCER, 0, OK, at=5_000)])
    clocks = cell.partitions[A].client_clock.copy()
    clocks[READER_COMMITTED] += 1
    moved = {number: replace(one, client_clock=clocks) for number, one in cell.partitions.items()}
    assert (found(early_read(cell)), found(early_read(replace(cell, partitions=moved)))) == ([(A, PRODUCER, 0)], [])


# --- behind the last stable offset ------------------------------------------------------------------------------------

# PRODUCER's transaction has the record at 3. What PRODUCER_2 wrote stands at 4, and was given to a reader at 1,010.
READ_NS = 1_010


def behind(
    open_row: dict[str, int], *, reads: Any = ((READER_COMMITTED, 4, PRODUCER_2, 0),), **rows: Any
) -> CellHistory:
    sends = [(PRODUCER, 0, open_row["outcome"], 3, 0), (PRODUCER_2, 0, OK, 4, 0)]
    log = [(3, PRODUCER, 0), (4, PRODUCER_2, 0)]
    shown = log if open_row["ended_by"] == COMMIT else log[1:]
    a = {"sends": sends, "log": log, "visible": shown, "reads": list(reads), **rows}
    return cell_of(a, EMPTY, [open_row, ended(PRODUCER_2, 0, OK, at=900)])


def cases(cell: CellHistory) -> list[tuple[int, int]]:
    """(case, offset of the open transaction's record) of each witness."""
    result = early_read(cell)
    assert result.count == len(result.witnesses)
    return [(int(w["case"]), int(w["other_offset"])) for w in result.witnesses]


OPEN, ABORTED_LATER = [(EarlyCase.BEHIND_OPEN, 3)], [(EarlyCase.BEHIND_ABORTED, 3)]


@pytest.mark.parametrize(("at", "expected"), [(READ_NS, []), (READ_NS + 1, OPEN)])
def test_a_committed_read_behind_a_transaction_whose_commit_was_asked_for_later_is_found(at, expected):
    cell = behind(ended(PRODUCER, 0, OK, at=at))
    assert cases(cell) == expected
    if expected:
        (witness,) = early_read(cell).witnesses
        assert (witness["client"], witness["log_offset"], witness["seen_ns"]) == (PRODUCER_2, 4, READ_NS)
        assert (witness["other_client"], witness["other_sequence"], witness["other_ns"]) == (PRODUCER, 0, at)
        assert witness["reader"] == READER_COMMITTED


def test_a_read_in_front_of_an_open_transaction_is_fine():
    sends = [(PRODUCER, 0, OK, 5, 0), (PRODUCER_2, 0, OK, 4, 0)]
    assert (
        cases(behind(ended(PRODUCER, 0, OK, at=5_000), sends=sends, log=[(4, PRODUCER_2, 0), (5, PRODUCER, 0)])) == []
    )


@pytest.mark.parametrize("reader", [READER, AUDIT_COMMITTED])
def test_only_a_consumer_at_read_committed_waits_for_open_transactions(reader):
    assert cases(behind(ended(PRODUCER, 0, OK, at=5_000), reads=[(reader, 4, PRODUCER_2, 0)])) == []


def test_a_record_of_no_transaction_waits_for_open_ones_too():
    sends = [(PRODUCER, 0, OK, 3, 0), (PRODUCER_2, 0, OK, 4, NONE)]
    assert cases(behind(ended(PRODUCER, 0, OK, at=5_000), sends=sends)) == OPEN


@pytest.mark.parametrize("outcome", [INFO, FAIL])
def test_a_transaction_whose_commit_was_not_confirmed_may_have_been_aborted_before(outcome):
    assert cases(behind(ended(PRODUCER, 0, outcome, at=5_000))) == []


@pytest.mark.parametrize(("at", "expected"), [(READ_NS, []), (READ_NS + 1, ABORTED_LATER)])
def test_a_committed_read_behind_a_transaction_whose_abort_was_asked_for_later_is_found(at, expected):
    assert cases(behind(ended(PRODUCER, 0, FAIL, by=ABORT, at=at))) == expected


@pytest.mark.parametrize(
    "columns",
    [
        {"code": -140},
        {"outcome": INFO},
        {"completed_ns": MISSING},
        {"begun_ns": READ_NS - 10_000_000_000},
        {"initialised_ns": MISSING},
    ],
    ids=["a send had failed", "in doubt", "it never returned", "beyond its timeout", "not initialised"],
)
def test_of_an_abort_that_its_coordinator_may_have_decided_before_nothing_is_certain(columns):
    assert cases(behind(ended(PRODUCER, 0, FAIL, by=ABORT, at=5_000) | columns)) == []


def test_a_transaction_at_its_timeout_is_still_open():
    begun_ns = READ_NS + 1 - 10_000_000_000
    assert cases(behind(ended(PRODUCER, 0, FAIL, by=ABORT, at=5_000) | {"begun_ns": begun_ns})) == ABORTED_LATER


@pytest.mark.parametrize(
    ("called", "returned", "expected"),
    [(READ_NS, 2_000, []), (READ_NS, MISSING, []), (READ_NS + 1, 2_000, ABORTED_LATER), (1, 4, ABORTED_LATER)],
)
def test_a_later_instance_may_have_aborted_it_once_it_was_to_be_initialised(called, returned, expected):
    cell = behind(ended(PRODUCER, 0, FAIL, by=ABORT, at=5_000))
    rows = [ended(PRODUCER, 0, FAIL, by=ABORT, at=5_000), ended(PRODUCER_2, 0, OK, at=900)]
    rows += [instance(PRODUCER, called=2, returned=5), instance(PRODUCER_2, called=called, returned=returned)]
    assert cases(replace(cell, tables=cell.tables | {"transactions": columns_of(TRANSACTIONS, rows)})) == expected


def test_of_several_open_transactions_the_one_that_was_open_for_longest_is_named():
    sends = [(PRODUCER, 0, OK, 2, 0), (PRODUCER, 1, FAIL, 3, 1), (PRODUCER_2, 0, OK, 4, 0)]
    log = [(2, PRODUCER, 0), (3, PRODUCER, 1), (4, PRODUCER_2, 0)]
    rows = {"sends": sends, "log": log, "visible": [log[0], log[2]], "reads": [(READER_COMMITTED, 4, PRODUCER_2, 0)]}
    table = [ended(PRODUCER, 0, OK, at=5_000), ended(PRODUCER, 1, FAIL, by=ABORT, at=9_000)]
    cell = cell_of(rows, EMPTY, [*table, ended(PRODUCER_2, 0, OK, at=900)])
    assert cases(cell) == [(EarlyCase.BEHIND_OPEN, 2)], "a commit is the surer proof"


def test_what_was_read_before_its_own_commit_is_found_as_that_alone():
    cell = behind(ended(PRODUCER, 0, OK, at=5_000))
    rows = [ended(PRODUCER, 0, OK, at=5_000), ended(PRODUCER_2, 0, OK, at=4_000)]
    result = early_read(replace(cell, tables=cell.tables | {"transactions": columns_of(TRANSACTIONS, rows)}))
    assert result.witnesses["case"].tolist() == [EarlyCase.READ_COMMITTED]


# --- zombies ----------------------------------------------------------------------------------------------------------


def zombie(at: int, *, first: tuple[int, int] = (1, 5), second: tuple[int, int] = (300, 400), **columns: int) -> Any:
    """A transaction of PRODUCER whose commit is invoked at `at`; PRODUCER_2 initialises the same id."""
    instances = [
        instance(PRODUCER, called=first[0], returned=first[1]),
        instance(PRODUCER_2, called=second[0], returned=second[1]) | columns,
    ]
    return cell_of(WHOLE_A, WHOLE_B, [*instances, ended(PRODUCER, 0, OK, at=at, instance=first[1])])


def test_a_commit_invoked_after_a_later_instance_was_initialised_is_a_zombies():
    result = zombie_write(zombie(401))
    assert found(result) == [(A, PRODUCER, 0), (B, PRODUCER, 1)]
    assert result.witnesses["other_ns"].tolist() == [400, 400]
    assert result.witnesses["other_client"].tolist() == [PRODUCER_2, PRODUCER_2]


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(zombie(399), id="the commit overlaps the init"),
        pytest.param(zombie(500, transactional_id=2), id="another transactional.id"),
        pytest.param(zombie(500, first=(350, 450)), id="the inits overlap"),
        pytest.param(zombie(500, second=(300, MISSING), initialised_ns=MISSING), id="the init never returned"),
        pytest.param(zombie(500, first=(420, 450)), id="the other was initialised before"),
    ],
)
def test_what_is_not_certainly_a_zombie_is_none(cell):
    assert found(zombie_write(cell)) == []


def test_a_zombie_whose_commit_had_no_effect_wrote_nothing():
    rows = [{"sends": [(PRODUCER, n, INFO, 0, 0)], "log": [(0, PRODUCER, n)], "visible": []} for n in (0, 1)]
    instances = [instance(PRODUCER, called=1, returned=5), instance(PRODUCER_2, called=10, returned=20)]
    assert found(zombie_write(cell_of(*rows, [*instances, ended(PRODUCER, 0, INFO)]))) == []


def test_of_several_later_instances_the_one_that_returned_first_is_told():
    later = [instance(client, called=c, returned=r) for client, c, r in ((11, 10, 90), (12, 20, 30), (13, 40, 60))]
    cell = cell_of(WHOLE_A, WHOLE_B, [*later, instance(PRODUCER, called=1, returned=5), ended(PRODUCER, 0, OK)])
    assert set(zombie_write(cell).witnesses["other_client"].tolist()) == {12}
    assert set(zombie_write(cell).witnesses["other_ns"].tolist()) == {30}


# --- a model ------------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Transactions one after the other, as Kafka would keep them."""

    sends: dict[int, list[Any]] = field(default_factory=lambda: {A: [], B: []})
    log: dict[int, list[Any]] = field(default_factory=lambda: {A: [], B: []})
    visible: dict[int, list[Any]] = field(default_factory=lambda: {A: [], B: []})
    rows: list[dict[str, int]] = field(default_factory=list)
    fates: list[tuple[str, list[tuple[int, int]]]] = field(default_factory=list)
    """(fate, its records as (partition, sequence)), by number."""
    sequence: int = 0

    def transact(self, fate: str, where: Sequence[int]) -> None:
        number = len(self.rows)
        outcome = {"committed": OK, "aborted": FAIL}.get(fate, INFO)
        self.rows.append(ended(PRODUCER, number, outcome, by=ABORT if fate == "aborted" else COMMIT))
        self.fates.append((fate, []))
        for partition in where:
            offset = len(self.log[partition]) + number  # markers leave holes
            self.sends[partition].append((PRODUCER, self.sequence, outcome, offset, number))
            self.log[partition].append((offset, PRODUCER, self.sequence))
            if fate in ("committed", "doubtful, committed"):
                self.visible[partition].append((offset, PRODUCER, self.sequence))
            self.fates[-1][1].append((partition, self.sequence))
            self.sequence += 1

    def cell(self) -> CellHistory:
        def rows(p: int) -> dict[str, Any]:
            reads = [(READER, *row) for row in self.log[p]] + [(READER_COMMITTED, *row) for row in self.visible[p]]
            return {"sends": self.sends[p], "log": self.log[p], "visible": self.visible[p], "reads": reads}

        return cell_of(rows(A), rows(B), self.rows)


@st.composite
def models(draw: st.DrawFn) -> Model:
    model = Model()
    fate = st.sampled_from(["committed", "aborted", "doubtful, committed", "doubtful, aborted"])
    for _ in range(draw(st.integers(1, 6))):
        model.transact(draw(fate), draw(st.lists(st.sampled_from([A, B]), min_size=1, max_size=5)))
    return model


@settings(max_examples=examples(60), deadline=None)
@given(models())
def test_valid_transactions_show_no_more_than_aborted_records_at_read_uncommitted(model):
    cell = model.cell()
    aborted_records = sum(len(records) for fate, records in model.fates if fate == "aborted")
    result = aborted_read(cell)
    assert result.witnesses["case"].tolist() == [AT_READ_UNCOMMITTED] * aborted_records
    assert [found(kernel(cell)) for kernel in (torn, lost_transaction, zombie_write)] == [[], [], []]
    assert found(early_read(cell)) == []  # every read comes after every end


@settings(max_examples=examples(60), deadline=None)
@given(models(), st.data())
def test_what_is_taken_from_what_is_shown_is_torn_or_lost_exactly(model, data):
    shown = [(p, row) for p in (A, B) for row in model.visible[p]]
    gone = data.draw(st.lists(st.sampled_from(shown), unique=True)) if shown else []
    for partition, row in gone:
        model.visible[partition].remove(row)
    left = {(p, row[2]) for p in (A, B) for row in model.visible[p]}
    torn_out, lost = set(), set()
    for fate, records in model.fates:
        if fate.endswith("committed"):
            missing = {record for record in records if record not in left}
            whole = len(missing) == len(records)
            torn_out |= set() if whole else missing
            lost |= missing if whole and fate == "committed" else set()
    cell = model.cell()
    assert {(p, s) for p, _, s in found(torn(cell))} == torn_out
    assert {(p, s) for p, _, s in found(lost_transaction(cell))} == lost
