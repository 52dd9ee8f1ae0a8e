"""The local engine: threads over partitions. numpy and pyarrow release the interpreter, so threads are enough."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.history_reader import History
from harness.kernels import KernelNames, check_unit, in_order, units_of
from harness.protocols import Finding
from harness.run_directory import RunDirectory


def check_locally(run_directory: Path, anomalies: Sequence[str], *, workers: int) -> list[Finding]:
    """Findings of every anomaly in every partition, ordered by partition, then as `anomalies`.

    `workers`: partitions at a time; each holds one partition in memory. HistoryUnreadable if the history is; a page that
    is rotten inside makes the kernels that need it incomplete.
    """
    assert workers > 0, workers
    names = KernelNames.of(anomalies)
    kernels, history = names.resolve(), History.open(RunDirectory(run_directory))
    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        parts = pool.map(lambda unit: check_unit(history, unit, kernels), units_of(history, names))
        found = [finding for findings in parts for finding in findings]
    return in_order(found, anomalies, history.plan.cells)
