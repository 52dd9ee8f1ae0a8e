"""What `dirty-read`, `skipped` and `rewound` report: bad histories, near-miss good ones, corners."""

import gc

import numpy as np
import pytest

from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.reading.positions import DIRTY_GONE, DIRTY_REPLACED, dirty_read, rewound, skipped
from prozess.checkers.registry import select
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, READS, SENDS
from tests.support.anomalies import OF_PARTITIONS
from tests.support.cells.partitions import (
    AUDIT_COMMITTED,
    CORRUPT,
    FAIL,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_2,
    READER,
    READER_2,
    READER_COMMITTED,
    SENTINEL_NS,
    history,
)

LOG = [(offset, PRODUCER, offset) for offset in range(6)]


def reading(*offsets, reader=READER, span=0):
    """Reads of LOG's records in this order."""
    return [(reader, offset, PRODUCER, offset, {"span": span}) for offset in offsets]


# --- dirty-read -----------------------------------------------------------------------------------------------------


def test_a_record_that_was_read_and_is_gone_is_a_dirty_read():
    result = dirty_read(history([(PRODUCER, 0, FAIL, NONE)], [], [(READER, 0, PRODUCER, 0)]))
    assert (result.count, result.judged) == (1, 1)
    witness = result.witnesses[0]
    assert (witness["case"], witness["reader"], witness["seen_ns"]) == (DIRTY_GONE, READER, 1_010)
    assert (witness["begin_ns"], witness["log_offset"]) == (10, 0)


def test_each_dirty_read_says_the_leader_epoch_that_its_reader_was_told():
    reads = [(READER, 0, PRODUCER, 0, {"leader_epoch": 2}), (READER_2, 0, PRODUCER, 0)]
    result = dirty_read(history([], [], reads))
    assert result.witnesses["leader_epoch"].tolist() == [2, NONE]


def test_reading_what_the_log_has_is_not_dirty():
    assert dirty_read(history([], LOG, reading(0, 1, 2))).count == 0


def test_each_read_is_counted():
    reads = [(READER, 0, PRODUCER, 0), (READER_2, 0, PRODUCER, 0)]
    assert dirty_read(history([], [], reads)).count == 2


def test_a_record_read_where_the_log_has_another_is_dirty_even_if_it_stands_elsewhere():
    result = dirty_read(history([], [(0, PRODUCER_2, 0), (1, PRODUCER, 0)], [(READER, 0, PRODUCER, 0)]))
    assert result.count == 1
    witness = result.witnesses[0]
    assert (witness["case"], witness["other_client"], witness["other_offset"]) == (DIRTY_REPLACED, PRODUCER_2, 0)


def test_a_record_read_where_the_log_has_a_hole_is_not_dirty_if_it_stands_elsewhere():
    assert dirty_read(history([], [(1, PRODUCER, 0)], [(READER, 0, PRODUCER, 0)])).count == 0


def test_a_read_behind_the_sentinel_is_not_judged():
    late = {"read_ns": SENTINEL_NS + 1}
    result = dirty_read(history([], [], [(READER, 9, PRODUCER, 0, late)], sentinel=3))
    assert (result.count, result.judged) == (0, 0)


def test_a_read_beyond_the_sentinel_before_that_was_sent_is_dirty():
    assert dirty_read(history([], [], [(READER, 9, PRODUCER, 0)], sentinel=3)).count == 1


def test_the_sentinel_is_nobodys_dirty_read():
    assert dirty_read(history([], [], [(READER, 3, SENTINEL_CLIENT, 0)], sentinel=3)).count == 0


def test_without_a_complete_audit_no_read_is_dirty_and_nothing_held():
    result = dirty_read(history([], [], [(READER, 0, PRODUCER, 0)], sentinel=None))
    assert (result.count, result.judged) == (0, 1)
    assert result.incomplete is not None


def test_an_unreadable_record_is_no_dirty_read():
    assert dirty_read(history([], [(0, PRODUCER, 0)], [(READER, 0, PRODUCER, 0, CORRUPT)])).count == 0
    assert dirty_read(history([], [(0, PRODUCER, 0, CORRUPT)], [(READER, 0, PRODUCER, 0)])).count == 0


def test_what_was_read_and_then_cleaned_is_not_dirty():
    reads = [(READER, 0, PRODUCER, 0, {"key": 1})]
    assert dirty_read(history([], [], reads, log_start=1)).count == 0
    assert dirty_read(history([], [(5, PRODUCER, 5, {"key": 1})], reads, compacted=True)).count == 0
    assert dirty_read(history([], [(5, PRODUCER, 5, {"key": 2})], reads, compacted=True)).count == 1
    tombstone = [(PRODUCER, 0, INFO, NONE, {"key": 1, "size": NONE})]
    assert dirty_read(history(tombstone, [], reads, compacted=True)).count == 0


# --- skipped --------------------------------------------------------------------------------------------------------


def test_a_jump_over_a_record_of_the_log_is_a_skip():
    result = skipped(history([], LOG, reading(0, 1, 4, 5)))
    assert (result.count, result.judged, result.incomplete) == (1, 4, None)
    witness = result.witnesses[0]
    assert (witness["sequence"], witness["log_offset"], witness["other_offset"]) == (2, 2, 2)
    assert (witness["begin_ns"], witness["end_ns"], witness["reader"]) == (1_020, 1_030, READER)


def test_when_the_record_that_was_jumped_over_was_sent_is_told():
    made = history([(PRODUCER, 2, OK, 2)], LOG, reading(0, 1, 4, 5))
    witness = skipped(made).witnesses[0]
    assert (witness["sequence"], witness["other_ns"]) == (
        2,
        made.sends["invoked_ns"][made.sends["client"] == PRODUCER][0],
    )
    assert skipped(history([], LOG, reading(0, 1, 4, 5))).witnesses[0]["other_ns"] == MISSING


def test_a_jump_over_a_hole_in_the_offsets_is_none():
    holes = [(0, PRODUCER, 0), (10**12, PRODUCER, 1), (10**12 + 7, PRODUCER, 2)]
    reads = [(READER, *row) for row in holes]
    assert skipped(history([], holes, reads, sentinel=10**12 + 9)).count == 0


def test_a_reader_that_began_late_and_ended_early_has_skipped_nothing():
    assert skipped(history([], LOG, reading(2, 3))).count == 0


def test_a_jump_between_two_spans_is_none():
    assert skipped(history([], LOG, reading(0, 1) + reading(4, 5, span=1))).count == 0


def test_a_jump_between_two_readers_is_none():
    assert skipped(history([], LOG, reading(0, 1) + reading(4, 5, reader=READER_2))).count == 0


def test_only_what_the_isolation_level_shows_can_be_skipped():
    visible = [LOG[0], LOG[3], LOG[4], LOG[5]]
    jump = reading(0, 3, reader=READER_COMMITTED)
    assert skipped(history([], LOG, jump, visible=visible)).count == 0
    assert skipped(history([], LOG, reading(0, 3), visible=visible)).count == 1
    jump = reading(0, 4, reader=READER_COMMITTED)
    result = skipped(history([], LOG, jump, visible=visible))
    assert result.count == 1
    assert result.witnesses[0]["log_offset"] == 3


def test_a_sentinel_between_two_reads_hides_no_skip_and_makes_none():
    sentinel = (READER, 2, SENTINEL_CLIENT, 0)
    log = [row for row in LOG if row[0] != 2]
    assert skipped(history([], log, [*reading(0, 1), sentinel, *reading(3)])).count == 0
    assert skipped(history([], log, [*reading(0), sentinel, *reading(4)])).count == 1
    assert rewound(history([], log, [*reading(0, 1), sentinel, *reading(3)])).count == 0
    assert rewound(history([], log, [*reading(0, 1), sentinel, *reading(1)])).count == 1


def test_a_rewind_and_reading_on_is_no_skip():
    assert skipped(history([], LOG, reading(0, 1, 2, 1, 2, 3))).count == 0


def test_a_skip_is_not_concluded_without_the_audit_at_the_readers_level():
    result = skipped(history([], LOG, reading(0, 4), sentinel=None))
    assert result.count == 0
    assert result.incomplete == "the audit of partition 7 at read_uncommitted did not reach its sentinel"
    result = skipped(history([], LOG, reading(0, 4, reader=READER_COMMITTED), sentinel=None))
    assert result.incomplete == "the audit of partition 7 at read_committed did not reach its sentinel"


# --- rewound --------------------------------------------------------------------------------------------------------


def test_a_step_back_is_a_rewind():
    result = rewound(history([], LOG, reading(0, 1, 2, 1, 2, 3)))
    assert result.count == 1
    witness = result.witnesses[0]
    assert (witness["log_offset"], witness["other_offset"], witness["reader"]) == (1, 2, READER)
    assert (witness["begin_ns"], witness["end_ns"]) == (1_030, 1_040)


def test_one_offset_twice_is_a_rewind():
    assert rewound(history([], LOG, reading(0, 1, 1, 2))).count == 1


def test_going_back_in_a_new_span_is_no_rewind():
    assert rewound(history([], LOG, reading(0, 1, 2) + reading(0, 1, span=1))).count == 0


def test_another_reader_further_back_is_no_rewind():
    assert rewound(history([], LOG, reading(4, 5) + reading(0, 1, reader=READER_2))).count == 0


def test_a_rewind_needs_no_audit():
    result = rewound(history([], [], reading(1, 0), sentinel=None))
    assert (result.count, result.incomplete) == (1, None)


def test_the_audit_is_judged_like_any_client():
    result = rewound(history([], LOG, visible=[*LOG, LOG[2]], sentinel=None))
    assert result.count == 1
    assert result.witnesses[0]["reader"] == AUDIT_COMMITTED


# --- all of them ----------------------------------------------------------------------------------------------------

KERNELS = select(OF_PARTITIONS).kernels


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("reads", [(), [(READER, 10**12, -7, -7)], [(2**31 - 1, 0, PRODUCER, 0)]])
@pytest.mark.parametrize("sends", [(), [(PRODUCER, 0, OK, 10**12)]])
@pytest.mark.parametrize("sentinel", [0, 2 * 10**12, None])
def test_scraps_of_a_history_do_not_crash(kernel, reads, sends, sentinel):
    result = kernel(history(sends, [], reads, sentinel=sentinel))
    assert len(result.witnesses) == result.count


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_no_rows_and_no_clients_at_all_do_not_crash(kernel):
    nobody = np.empty(0, dtype=np.int32)
    empty = PartitionHistory(
        0, empty_rows(SENDS), empty_rows(READS), nobody, nobody, nobody.astype(np.int64), nobody, {}
    )
    assert (kernel(empty).count, kernel(empty).judged) == (0, 0)


def test_an_index_is_made_once_and_goes_with_its_history():
    subject = history([], LOG)
    index = PartitionIndex.of(subject)
    assert PartitionIndex.of(subject) is index
    assert PartitionIndex.of(history([], LOG)) is not index
    before = len(PartitionIndex._known)
    del subject
    gc.collect()
    assert len(PartitionIndex._known) == before - 1
