"""What a run of a campaign says of itself: where it ran, what was found, and why it did not hold."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from harness.configuration import Variant
from harness.errors import HistoryUnreadable
from harness.run_directory import RunDirectory, read_object
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict

CELLS_MAX = 2
"""So many cells are named with a reason; the report has them all."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Of one run."""

    variant: str
    """Backend, metadata mode and versions; empty where there is no plan."""
    forbidden: tuple[tuple[str, int], ...] = ()
    permitted: tuple[tuple[str, int], ...] = ()
    why: tuple[str, ...] = ()
    """Why it did not hold."""
    by_defects: bool = False
    """It was violated, and known defects explain all of it."""


NOTHING = RunFacts("")


@lru_cache(maxsize=10_000)
def facts_of(path: Path) -> RunFacts:
    """Of a run that is over."""
    run = RunDirectory(path)
    try:
        plan = read_object(run.plan)
        where = Variant.model_validate(plan["variant"])
        parts = (plan["backend"], where.metadata_mode, " and ".join(where.kafka_versions))
        # What was attached to is not known here.
        variant = ", ".join(parts[:1] if plan["backend"] == "attach" else parts)
    except (HistoryUnreadable, KeyError, ValidationError):
        return NOTHING
    try:
        verdict = TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return RunFacts(variant)
    return RunFacts(
        variant,
        forbidden=_found(verdict, "forbidden"),
        permitted=_found(verdict, "permitted"),
        why=tuple(why(verdict)),
        by_defects=verdict.by_known_defects,
    )


def why(verdict: TrialVerdict) -> Iterator[str]:
    """A sentence for each reason: what was violated, and in which cells; else why it is unknown."""
    if verdict.verdict is Verdict.VIOLATED:
        yield from _by_reason(verdict, AnomalyOutcome.VIOLATED)
    elif verdict.verdict is Verdict.UNKNOWN:
        of_cells = list(_by_reason(verdict, AnomalyOutcome.UNKNOWN))
        told = {a.reason.rstrip(".").casefold() for _, a in _those(verdict, AnomalyOutcome.UNKNOWN)}
        yield from of_cells
        for reason in verdict.unknown_reasons:
            if not any(said and said in reason.casefold() for said in told):
                yield reason[:1].upper() + reason[1:] + "."


def _those(verdict: TrialVerdict, outcome: AnomalyOutcome) -> Iterator[tuple[CellVerdict, CellAnomaly]]:
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values():
            if anomaly.outcome is outcome:
                yield cell, anomaly


def _by_reason(verdict: TrialVerdict, outcome: AnomalyOutcome) -> Iterator[str]:
    """One reason may stand behind many anomalies of many cells: it is said once."""
    grouped: dict[tuple[str, ...], list[tuple[CellVerdict, CellAnomaly]]] = defaultdict(list)
    for cell, anomaly in _those(verdict, outcome):
        own = (anomaly.anomaly,) if outcome is AnomalyOutcome.VIOLATED else ()
        grouped[(anomaly.reason, *anomaly.defects, *own)].append((cell, anomaly))
    for found in grouped.values():
        cells = list(dict.fromkeys(cell.name for cell, _ in found))
        _, first = found[0]
        names = list(dict.fromkeys(anomaly.anomaly for _, anomaly in found))
        what = _what(names, sum(anomaly.forbidden for _, anomaly in found))
        unsaid = [defect for defect in first.defects if defect not in first.reason]
        known = f" Known: {'; '.join(unsaid)}." if unsaid else ""
        yield f"{what} in {_cells(cells, len(verdict.cells))}: {first.reason}{known}"


def _what(names: Sequence[str], count: int) -> str:
    if count:
        return f"{names[0]} {count:,}"
    return " and ".join(names) if len(names) <= CELLS_MAX else f"{len(names)} anomalies"


def _cells(names: Sequence[str], of: int) -> str:
    if len(names) == of > CELLS_MAX:
        return f"all {of} cells"
    more = f" and {len(names) - CELLS_MAX} more" if len(names) > CELLS_MAX else ""
    return ", ".join(names[:CELLS_MAX]) + more


def _found(verdict: TrialVerdict, effect: str) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = defaultdict(int)
    for cell in verdict.cells:
        for name, anomaly in cell.anomalies.items():
            counts[name] += getattr(anomaly, effect)
    return tuple((name, count) for name, count in counts.items() if count)
