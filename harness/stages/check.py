"""Stage three: history in, findings out. Needs no cluster; can be repeated on any run, with either engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness import catalogue
from harness.errors import HarnessFailed
from harness.findings import read_findings, write_findings
from harness.history import History, ensure_history
from harness.impact import fault_names, fault_times, reactions_of
from harness.impact_summary import ImpactShown, summarise
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
    run.impact.write_text(_impact(run, options).model_dump_json(indent=1), encoding="utf-8")
    return findings


def _impact(run: RunDirectory, options: CheckOptions) -> ImpactShown:
    """What faults cost: measured, not judged, so that what cannot be measured costs no verdict."""
    engine = catalogue.resolve(catalogue.IMPACTS, options.engine, what="engine")
    extra = {"session": options.session} if options.engine == "spark" else {}
    try:
        history = History.open(run)
        faults, names = fault_times(history), fault_names(history)
        found = engine(run.path, faults, workers=options.workers, **extra)
        return summarise(found, faults, names, reactions_of(history))
    except HarnessFailed as error:
        return ImpactShown(incomplete=str(error))


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
