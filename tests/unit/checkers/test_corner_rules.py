"""What real histories have in their corners, one sentence each: evidence that is odd and right, and must not be mistaken.

The rules are those at the end of the definitions: successes without an offset, unknown sends that somebody saw, holes, empty
polls and assignments, partitions that come and go, seeks after an abort, offsets of 10¹², partitions nobody read.
"""

import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.registry import CHECKERS, select
from prozess.harness.checking.kernels import check_cell, check_partition
from prozess.harness.interfaces.checking import CellHistory, PartitionHistory
from prozess.harness.schema import NONE
from tests.support.anomalies import OF_CELLS, OF_PARTITIONS
from tests.support.cells.groups import ASSIGN, CLOSE, A, B, cell, commit, event, span, step
from tests.support.cells.partitions import INFO, OK, PRODUCER, PRODUCER_2, READER, READER_2, READER_COMMITTED, history
from tests.support.kafka_model.partition import drawn_facts

FAR = 10**12
STRANGER = 99
ALL = select(OF_PARTITIONS).kernels
OF_GROUPS = select([n for n in OF_CELLS if CHECKERS[n].traits == {"group"}]).cell


def found(made: PartitionHistory) -> Counter[str]:
    """Anomaly → count, of every kernel over partitions; none of them may fail."""
    findings = check_partition(made, ALL)
    assert not [f.result.incomplete for f in findings if "failed" in (f.result.incomplete or "")]
    return Counter({f.anomaly: f.result.count for f in findings if f.result.count})


def found_in_group(made: CellHistory) -> Counter[str]:
    findings = check_cell(made, OF_GROUPS)
    assert not [f.result.incomplete for f in findings if "failed" in (f.result.incomplete or "")]
    return Counter({f.anomaly: f.result.count for f in findings if f.result.count})


# --- what senders were reported -------------------------------------------------------------------------------------------


def test_a_success_whose_offset_nobody_told_takes_part_through_the_log():
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER, 1, OK, NONE), (PRODUCER, 2, OK, 2)]
    there = [(n, PRODUCER, n) for n in range(3)]
    assert found(history(sends, there)) == {}
    assert found(history(sends, [there[0], there[2]])) == {"lost": 1}
    assert found(history(sends, [*there, (3, PRODUCER, 1)])) == {"duplicate": 1}
    swapped = [(0, PRODUCER, 1), (1, PRODUCER, 0), (2, PRODUCER, 2)]
    assert found(history(sends, swapped))["reordered"] == 1


def test_an_unknown_send_that_is_in_the_log_is_neither_lost_nor_strange():
    sends = [(PRODUCER, 0, INFO, NONE), (PRODUCER, 1, OK, 1)]
    assert found(history(sends, [(0, PRODUCER, 0), (1, PRODUCER, 1)])) == {}
    assert found(history(sends, [(1, PRODUCER, 1)])) == {}


def test_an_unknown_send_that_somebody_was_given_is_proven_and_must_stay():
    sends = [(PRODUCER, 0, INFO, NONE), (PRODUCER, 1, OK, 1)]
    reads = [(READER, 0, PRODUCER, 0), (READER, 1, PRODUCER, 1)]
    assert found(history(sends, [(0, PRODUCER, 0), (1, PRODUCER, 1)], reads)) == {}
    assert found(history(sends, [(1, PRODUCER, 1)], reads)) == {"lost": 1, "dirty-read": 1}


# --- what readers were given ------------------------------------------------------------------------------------------


def test_holes_of_transaction_markers_are_jumped_over_by_everybody():
    offsets = (0, 1, 3, 9)
    sends = [(PRODUCER, n, OK, offset) for n, offset in enumerate(offsets)]
    log = [(offset, PRODUCER, n) for n, offset in enumerate(offsets)]
    reads = [(reader, offset, PRODUCER, n) for reader in (READER, READER_COMMITTED) for n, offset in enumerate(offsets)]
    assert found(history(sends, log, reads)) == {}
    assert found(history(sends, log, [row for row in reads if row[:2] != (READER, 3)])) == {"skipped": 1}


def test_holes_of_compaction_are_no_loss_no_skip_and_no_dirty_read():
    key, other = {"key": 1}, {"key": 2}
    keys = (key, other, key, other)
    sends = [(PRODUCER, n, OK, n, keys[n]) for n in range(4)]
    log = [(n, PRODUCER, n, keys[n]) for n in (2, 3)]
    before = [(READER, n, PRODUCER, n, keys[n]) for n in range(4)]
    after = [(READER_2, n, PRODUCER, n, keys[n]) for n in (2, 3)]
    assert found(history(sends, log, [*before, *after], compacted=True)) == {}
    assert found(history(sends, log, [*before, *after])) == {"lost": 2, "dirty-read": 2}


def test_polls_and_assignments_that_gave_nothing_leave_nothing_to_judge():
    empty = [dict(event(A, kind, at)) | {"partition": NONE} for kind, at in ((ASSIGN, 1), (CLOSE, 9))]
    assert found_in_group(cell(assignments=empty, positions=[], commits=[], processed=[])) == {}
    assert found(history([(PRODUCER, 0, OK, 0)], [(0, PRODUCER, 0)], reads=[])) == {}


def test_a_partition_that_was_dropped_and_regained_is_read_from_where_it_is_given_and_no_order_is_judged_across():
    sends = [(PRODUCER, n, OK, n) for n in range(6)]
    log = [(n, PRODUCER, n) for n in range(6)]
    first = [(READER, n, PRODUCER, n) for n in (0, 1, 2)]
    again = [(READER, n, PRODUCER, n, {"span": 1}) for n in (1, 2)]
    later = [(READER, n, PRODUCER, n, {"span": 2}) for n in (4, 5)]
    assert found(history(sends, log, [*first, *again, *later])) == {}
    plain = [(*row[:4], {"span": 0}) for row in (*first, *again, *later)]
    assert found(history(sends, log, plain)) == {"rewound": 1, "skipped": 1}


def test_a_partition_that_a_member_lost_and_regained_was_owned_by_one_at_a_time():
    events = [event(A, ASSIGN, 1), event(A, 2, 2), event(B, ASSIGN, 3), event(B, 2, 4), event(A, ASSIGN, 5)]
    assert found_in_group(cell(assignments=events))["two-owners"] == 0
    assert found_in_group(cell(assignments=[*events[:3], *events[4:]]))["two-owners"] == 1


def test_after_an_abort_the_application_seeks_back_and_processes_again_and_that_is_no_fault():
    steps = [step(A, 0, 2), step(A, 1, 2.1), step(A, 0, 4, span=1), step(A, 1, 4.1, span=1)]
    places = [span(A, 1, 0), span(A, 3, 0, number_of=1, kind=2)]
    made = cell(processed=steps, positions=places, commits=[commit(A, 2, 5)])
    (repeated,) = [f for f in check_cell(made, OF_GROUPS) if f.anomaly == "reprocessed"]
    assert set(repeated.result.witnesses["case"].tolist()) == {3}  # SOUGHT
    assert found_in_group(made) == {"reprocessed": 2}
    sends, log = [(PRODUCER, n, OK, n) for n in range(3)], [(n, PRODUCER, n) for n in range(3)]
    reads = [(READER, n, PRODUCER, n, {"span": number}) for number in (0, 1) for n in (0, 1)]
    assert found(history(sends, log, reads)) == {}


def test_every_read_is_evidence_and_not_only_the_last_at_its_offset():
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER_2, 0, INFO, NONE)]
    reads = [(READER, 0, PRODUCER_2, 0), (READER, 0, PRODUCER, 0, {"span": 1}), (READER_2, 0, PRODUCER_2, 0)]
    expected = {"dirty-read": 2, "offset-conflict": 1, "lost": 1}
    assert found(history(sends, [(0, PRODUCER, 0)], reads)) == expected


# --- sizes ------------------------------------------------------------------------------------------------------------


def moved_up(made: PartitionHistory, by: int) -> PartitionHistory:
    """The same at offsets higher by so much."""

    def up(columns: dict[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
        return {n: np.where(v != NONE, v + by, v) if n in names else v for n, v in columns.items()}

    watermarks = up(dict(made.observations), "value")
    return replace(
        made,
        sends=up(dict(made.sends), "log_offset"),
        reads=up(dict(made.reads), "log_offset"),
        observations=watermarks,
        audit_end={level: end + by for level, end in made.audit_end.items()},
        copies={},
    )


@pytest.mark.parametrize("seed", range(20))
def test_offsets_near_ten_to_the_twelve_show_what_small_ones_show_and_cost_no_more(seed):
    made = replace(drawn_facts(seed, duplicates=True)[0].history(), copies={})
    tracemalloc.start()
    assert found(moved_up(made, FAR)) == found(made)
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


# --- nothing ----------------------------------------------------------------------------------------------------------


def test_a_partition_that_nobody_read_shows_nothing_and_holds_nothing():
    made = history([(PRODUCER, 0, OK, 0)], sentinel=None)
    assert found(made) == {}
    results = {f.anomaly: f.result for f in check_partition(made, ALL)}
    for anomaly in ("lost", "duplicate", "dirty-read"):
        assert results[anomaly].incomplete is not None, anomaly
    for anomaly in ("skipped", "rewound", "corrupt", "phantom", "misplaced"):
        assert results[anomaly].judged == 0, anomaly


def test_a_partition_to_which_nothing_was_sent_shows_nothing_but_what_a_stranger_wrote():
    assert found(history()) == {}
    assert found(history(log=[(0, STRANGER, 0)], reads=[(READER, 0, STRANGER, 0)])) == {"phantom": 1}
