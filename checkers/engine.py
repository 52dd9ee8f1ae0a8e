"""The local engine: threads over partitions. numpy and pyarrow release the interpreter, so threads are enough."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.cell_parts import in_order
from harness.history_reader import History
from harness.impact import FaultTime, Impact, groups_of, measure, put_together
from harness.kernels import KernelNames, check_unit, perform, units_of
from harness.pieces import ROWS_MAX
from harness.protocols import Finding
from harness.run_directory import RunDirectory


def check_locally(
    run_directory: Path, anomalies: Sequence[str], *, workers: int, rows_max: int = ROWS_MAX
) -> list[Finding]:
    """Findings of every anomaly in every partition, ordered by partition, then as `anomalies`.

    `workers`: partitions at a time; each holds one partition in memory, or a piece of about `rows_max` rows of a larger
    one. HistoryUnreadable if the history is; a page that is rotten inside makes the kernels that need it incomplete.
    """
    assert workers > 0, workers
    names = KernelNames.of(anomalies)
    kernels, history = names.resolve(), History.open(RunDirectory(run_directory))
    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        units = units_of(
            history, names, lambda jobs: list(pool.map(lambda job: perform(history, job), jobs)), rows_max=rows_max
        )
        parts = pool.map(lambda unit: check_unit(history, unit, kernels), units)
        found = [finding for findings in parts for finding in findings]
    return in_order(found, anomalies, history.plan.cells)


def measure_locally(run_directory: Path, faults: Sequence[FaultTime], *, workers: int) -> Impact:
    """What faults cost. HistoryUnreadable if the history is."""
    history = History.open(RunDirectory(run_directory))
    with ThreadPoolExecutor(workers, thread_name_prefix="measure") as pool:
        parts = pool.map(lambda group: measure(history, group, faults), groups_of(history, 2 * workers))
        return put_together(parts, faults)
