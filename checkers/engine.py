"""The local engine: threads over partitions. numpy and pyarrow release the interpreter, so threads are enough."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.history_reader import History
from harness.kernels import check_partition, resolve_kernels
from harness.protocols import Finding
from harness.run_directory import RunDirectory


def check_locally(run_directory: Path, anomalies: Sequence[str], *, workers: int) -> list[Finding]:
    """Findings of every anomaly in every partition, ordered by partition, then as `anomalies`.

    `workers`: partitions at a time; each holds one partition in memory. HistoryUnreadable if the history is; a page that
    is rotten inside makes the kernels that need it incomplete.
    """
    assert workers > 0, workers
    kernels = resolve_kernels(anomalies)
    history = History.open(RunDirectory(run_directory))
    # The largest first, so that no thread begins with it when the others have finished.
    order = sorted(history.partitions, key=history.rows_of, reverse=True)

    def check(partition: int) -> list[Finding]:
        return check_partition(history.partition_history(partition), kernels)

    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        found = dict(zip(order, pool.map(check, order), strict=True))
    return [finding for partition in history.partitions for finding in found[partition]]
