"""The local engine: threads over partitions. numpy and pyarrow release the interpreter, so threads are enough."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.history_reader import History
from harness.kernels import KernelNames, check_cell, check_partition, in_order
from harness.protocols import Finding
from harness.run_directory import RunDirectory


def check_locally(run_directory: Path, anomalies: Sequence[str], *, workers: int) -> list[Finding]:
    """Findings of every anomaly in every partition, ordered by partition, then as `anomalies`.

    `workers`: partitions at a time; each holds one partition in memory. HistoryUnreadable if the history is; a page that
    is rotten inside makes the kernels that need it incomplete.
    """
    assert workers > 0, workers
    kernels = KernelNames.of(anomalies).resolve()
    history = History.open(RunDirectory(run_directory))
    # The largest first, so that no thread begins with it when the others have finished.
    order = sorted(history.partitions, key=history.rows_of, reverse=True)
    cells = [cell.cell for cell in history.plan.cells] if kernels.cell else []
    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        of_cells = pool.map(lambda cell: check_cell(history.cell_history(cell), kernels.cell), cells)
        of_partitions = pool.map(lambda p: check_partition(history.partition_history(p), kernels.partition), order)
        found = [finding for findings in (*of_partitions, *of_cells) for finding in findings]
    return in_order(found, anomalies)
