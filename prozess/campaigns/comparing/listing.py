"""`prozess runs`: lists the runs that there are, the newest first, with what came of each."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field, TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.campaigns.comparing import RunSummary, run_directories
from prozess.harness.console import console
from prozess.harness.errors import ProzessError
from prozess.harness.printable import number_of
from prozess.harness.report.words import VERDICT_SIGNS
from prozess.harness.values import Frozen
from prozess.harness.verdict import Verdict

FOUND_MAX = 3
"""How many anomalies a line names."""
BESIDE_PATHS = 90
"""Characters that the other columns need at least. If there are fewer, paths are folded, too."""


class ListedRun(Frozen):
    """What `prozess list` shows of a run: where it is, when it began, on what it ran, and how it ended."""

    path: str
    trial: str
    seed: int | None = None
    began: str
    """When it began (UTC), as the name of its directory says: 20261125T153527. Empty where it has another name."""
    took_s: float | None
    where: str = ""
    """The backend, the metadata mode and the versions of Kafka."""
    verdict: Verdict | None = None
    """None: it has none, or one that cannot be read."""
    findings: dict[str, int] = Field(default_factory=dict)
    """Anomaly → how many witnesses there are, of those that were found."""
    trouble: str = ""
    """Why the run cannot be read. Empty: it can."""


def line_of(path: Path) -> ListedRun:
    """Returns the line of a run. For one that is damaged or of another version it says so."""
    summary = RunSummary.at(path)
    name, began, took_s = str(path), summary.began, summary.took_s
    try:
        plan, verdict = summary.plan, summary.verdict
    except ProzessError as error:
        trouble = str(error).splitlines()[0]
        return ListedRun(path=name, trial=path.name, began=began, took_s=took_s, trouble=trouble)
    return ListedRun(
        path=name,
        trial=plan.trial,
        seed=plan.seed,
        began=began,
        took_s=took_s,
        where=f"{plan.backend}, {plan.variant.metadata_mode}, Kafka {summary.versions}",
        verdict=None if verdict is None else verdict.verdict,
        findings={} if verdict is None else {name: count for name, count in verdict.findings.items() if count},
    )


def list_runs(
    directories: Sequence[Path], *, trial: str | None, verdict: str | None, last: int, as_json: bool
) -> list[ListedRun]:
    """Prints the runs below these directories, the newest first, and returns those that it printed. `trial`, `verdict`: only
    these; `last`: at most so many. BadInput if there is no run."""
    found = chosen((line_of(path) for path in run_directories(directories)), trial=trial, verdict=verdict)
    shown = found[:last]
    if as_json:
        sys.stdout.buffer.write(TypeAdapter(list[ListedRun]).dump_json(shown, indent=1) + b"\n")
        return shown
    out, table = console(), Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("began (UTC)", "trial", "seed", "took", "verdict", "found", "where"):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("seed", "took") else "left")
    whole = out.width - max((len(line.path) for line in shown), default=0) >= BESIDE_PATHS
    table.add_column("run", overflow="fold", no_wrap=whole)
    for line in shown:
        text = "no verdict" if line.verdict is None else f"{VERDICT_SIGNS[line.verdict]} {line.verdict}"
        table.add_row(
            _day_and_time(line.began),
            escape(line.trial),
            "" if line.seed is None else str(line.seed),
            "" if line.took_s is None else f"{line.took_s:.0f} s",
            text,
            escape(line.trouble or _found(line)),
            line.where,
            escape(line.path),
        )
    out.print(table)
    more = f"; --last {len(found)} shows all" if len(found) > len(shown) else ""
    out.print(f"{number_of(len(found), 'run')}{more}. `prozess compare RUN RUN` puts two side by side.", soft_wrap=True)
    return shown


def chosen(lines: Iterable[ListedRun], *, trial: str | None, verdict: str | None) -> list[ListedRun]:
    """Returns the runs of that trial and with that verdict ("none": without one), the newest first; those without a time are
    last."""
    found = [
        line
        for line in lines
        if trial in (None, line.trial) and verdict in (None, "none" if line.verdict is None else str(line.verdict))
    ]
    return sorted(sorted(found, key=lambda line: line.path), key=lambda line: line.began, reverse=True)


def _found(line: ListedRun) -> str:
    most = sorted(line.findings.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name} {count:,}" for name, count in most[:FOUND_MAX])
    return text + (f" and {len(most) - FOUND_MAX} more" if len(most) > FOUND_MAX else "")


def _day_and_time(began: str) -> str:
    return f"{began[:4]}-{began[4:6]}-{began[6:8]} {began[9:11]}:{began[11:13]}" if len(began) >= 13 else began
