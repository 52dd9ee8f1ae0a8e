"""What was computed of a partition is gone with it: nothing waits until Python looks for cycles, which it may never do."""

import gc
import weakref

import pytest

from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.registry import select
from prozess.harness.checking.kernels import check_cell, check_partition
from prozess.harness.history.reader import History
from tests.support.stored_runs import generated_run, jepsen_run


@pytest.mark.parametrize("make", [lambda path: generated_run(path, "log"), jepsen_run], ids=["audited", "imported"])
def test_a_partition_that_was_checked_leaves_nothing_in_memory(make, tmp_path):
    history = History.open(make(tmp_path / "run"))
    chosen = select()
    gc.collect()
    gc.disable()
    try:
        for partition in history.partitions:
            one = history.partition_history(partition)
            check_partition(one, chosen.kernels)
            cell = history.cell_of(partition)
            assert cell is not None
            checkers = {name: checker for name, checker in chosen.cell.items() if checker.applies(cell.traits)}
            check_cell(history.cell_history(cell.cell, only=[one]), checkers)
            index = weakref.ref(PartitionIndex.of(one))
            del one
            assert index() is None, partition
    finally:
        gc.enable()
