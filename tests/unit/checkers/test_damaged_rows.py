"""What a damaged history shows to kernels: tables that contradict one another are reported, and fail no kernel."""

import pytest

from prozess.checkers.log.order import offset_conflict
from prozess.checkers.registry import CHECKERS
from prozess.harness.checking.kernels import PartitionChecker
from prozess.harness.schema import MISSING
from tests.support.cells.partitions import OK, PRODUCER, PRODUCER_2, READER, history

TIMES = [("sends", "completed_ns"), ("sends", "invoked_ns"), ("reads", "read_ns")]


@pytest.mark.parametrize(("table", "column"), TIMES)
def test_a_time_that_never_came_fails_no_kernel(table, column):
    sends = [(PRODUCER, 0, OK, 0), (PRODUCER_2, 0, OK, 0), (PRODUCER, 1, OK, 5), (PRODUCER_2, 1, OK, 5)]
    made = history(sends, [(0, PRODUCER_2, 0), (1, PRODUCER, 2)], [(READER, 0, PRODUCER, 0), (READER, 1, PRODUCER, 7)])
    getattr(made, table)[column][:] = MISSING
    for checker in CHECKERS.values():
        if isinstance(checker, PartitionChecker):
            assert checker.kernel(made).count >= 0
    assert offset_conflict(made).count == 3
