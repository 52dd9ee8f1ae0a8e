"""Stage three: history in, findings out. Needs no cluster; can be repeated on any run, with either engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness import catalogue
from harness.errors import HarnessFailed
from harness.findings import read_findings, write_findings
from harness.history import ensure_history
from harness.protocols import Finding
from harness.run_directory import RunDirectory

EngineName = Literal["local", "spark"]
ANOMALIES: tuple[str, ...] = (*catalogue.KERNELS, *catalogue.CELL_KERNELS, *catalogue.FACT_KERNELS)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How to check. `session`: a Spark session that was started ahead, if there is one."""

    engine: EngineName = "spark"
    workers: int = 2
    anomalies: Sequence[str] = ANOMALIES
    session: Any = None


def check_run(run: RunDirectory, options: CheckOptions) -> Sequence[Finding]:
    """Every kernel over every partition; writes `findings/`. HistoryUnreadable if the history cannot be read."""
    ensure_history(run)
    engine = catalogue.resolve(catalogue.ENGINES, options.engine, what="engine")
    extra = {"session": options.session} if options.engine == "spark" else {}
    findings: Sequence[Finding] = engine(run.path, options.anomalies, workers=options.workers, **extra)
    write_findings(run, findings)
    return findings


def compare_with_oracle(run: RunDirectory, *, workers: int, session: object = None) -> None:
    """Ask for a second opinion on the findings of a checked run: the same checks, written independently in SQL. `session`:
    a Spark session, if there is one.

    HarnessFailed, with the anomaly, the cell and both numbers, if it differs: then one of the two is wrong.
    """
    disagreements = catalogue.service("oracle")(run, read_findings(run), workers=workers, session=session)
    if disagreements:
        raise HarnessFailed(
            f"The second opinion differs: {'; '.join(disagreements)}. One of the two checkers is wrong: keep the run, and "
            "report it with the run's history."
        )
