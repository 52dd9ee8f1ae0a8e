"""What came of a delivery bound, window by window: rows for tables and charts, from findings and verdict; judges nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from harness.configuration import DeliveryBound
from harness.findings import read_windows
from harness.guarantees.sentences import number_of
from harness.plan import Plan
from harness.report.words import SIGNS
from harness.run_directory import RunDirectory
from harness.schema import MISSING
from harness.verdict import AnomalyOutcome, CellVerdict, FaultShown, TrialVerdict, WindowJudged
from harness.windows import no_windows

FOLDED_FROM = 60
"""A longer table shows quiet windows that follow one another as one row."""
_WORDS = {
    AnomalyOutcome.HELD: "within",
    AnomalyOutcome.SHOWN: "beyond, excepted",
    AnomalyOutcome.UNKNOWN: "beyond, cannot be told",
    AnomalyOutcome.VIOLATED: "beyond",
}
OUTCOMES = (AnomalyOutcome.HELD, AnomalyOutcome.SHOWN, AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN)
"""What a window may come to, as reports have them."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window, or `count` quiet ones that follow one another. Times in seconds on the trial's clock."""

    begin_s: float
    end_s: float
    sent: int
    produced: int
    consumed: int
    late: int
    missing: int
    p50_ms: float | None
    """Of several windows the greatest; None = nothing was delivered."""
    p99_ms: float | None
    max_ms: float | None
    outcome: AnomalyOutcome
    """HELD: within the bound; SHOWN: not, and excepted; else UNKNOWN or VIOLATED."""
    faults: tuple[str, ...]
    """Steps whose faults were at work in it; of one beyond the bound, before its deadlines, or over for less than the
    recovery."""
    count: int = 1

    @property
    def words(self) -> str:
        """Its outcome."""
        return _WORDS[self.outcome]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Of one cell."""

    cell: int
    name: str
    bound: DeliveryBound
    outcome: AnomalyOutcome
    """Of `late` in the cell."""
    windows: Sequence[Window]
    """Ascending; those in which nothing was sent are left out."""

    def count(self, outcome: AnomalyOutcome) -> int:
        """How many windows came to that."""
        return sum(window.outcome is outcome for window in self.windows)

    def total(self, column: str) -> int:
        """A number over all windows."""
        return _sum(self.windows, column)

    @property
    def promise(self) -> str:
        """The bound in words."""
        if not self.bound.except_during_faults:
            return f"within {self.bound.latency_s:g} s, whatever happens"
        return f"within {self.bound.latency_s:g} s, but for faults and {self.bound.recovery_s:g} s after them"

    @property
    def worst(self) -> Window | None:
        """The window that missed most, else the one with the longest latency; None = nothing was sent."""
        return max(self.windows, key=lambda w: (w.missing, w.max_ms or 0.0), default=None)

    @property
    def folded(self) -> Sequence[Window]:
        """Of a long trial, windows within the bound that no fault was at work in are put together."""
        if len(self.windows) < FOLDED_FROM:
            return self.windows
        rows: list[Window] = []
        for quiet, group in groupby(self.windows, key=lambda w: w.outcome is AnomalyOutcome.HELD and not w.faults):
            several = list(group)
            rows += [_together(several)] if quiet else several
        return rows


def deliveries(run: RunDirectory, plan: Plan, verdict: TrialVerdict) -> list[Deliveries]:
    """Of every cell that states a bound; HistoryUnreadable if their findings cannot be read."""
    bounded = {cell.cell: cell.delivery_bound for cell in plan.cells if cell.delivery_bound is not None}
    if not bounded:
        return []
    counted = read_windows(run)
    found = []
    for cell in verdict.cells:
        if (bound := bounded.get(cell.cell)) is None or "late" not in cell.anomalies:
            continue
        windows = _windows(counted.get(cell.cell, no_windows()), bound, cell, verdict.faults)
        found.append(Deliveries(cell.cell, cell.name, bound, cell.anomalies["late"].outcome, windows))
    return found


def delivery_lines(found: Sequence[Deliveries]) -> list[str]:
    """Markdown; empty where no cell states a bound."""
    if not found:
        return []
    out = ["", "## Delivery", "", "Windows by when records were sent; latency from the send to the last reader.", ""]
    out += [
        "| cell | promised | windows | within | beyond, excepted | beyond | cannot be told | produced | consumed | late |"
    ]
    out[-1] += " never | worst window |"
    out += ["|" + "---|" * 12]
    for one in found:
        counts = [one.count(outcome) for outcome in OUTCOMES]
        totals = [one.total(column) for column in ("produced", "consumed", "late", "missing")]
        cells = [str(one.cell), one.promise, str(len(one.windows)), *map(str, counts), *(f"{n:,}" for n in totals)]
        out.append(f"| {' | '.join([*cells, worst_words(one)])} |")
    return out


def worst_words(one: Deliveries) -> str:
    """The worst window in a few words."""
    if (worst := one.worst) is None:
        return "nothing was sent"
    told = (
        f"99 % within {worst.p99_ms:,.0f} ms, the last after {worst.max_ms:,.0f} ms"
        if worst.max_ms
        else "nothing arrived"
    )
    never = f", {worst.missing:,} never delivered" if worst.missing else ""
    during = f", during {', '.join(worst.faults)}" if worst.faults else ""
    return f"{SIGNS[worst.outcome]} {worst.begin_s:g}–{worst.end_s:g} s: {told}{never}{during}"


def _windows(
    counted: np.ndarray, bound: DeliveryBound, cell: CellVerdict, faults: Sequence[FaultShown]
) -> list[Window]:
    judged = {window.number: window for window in cell.windows}
    return [
        _window({name: int(row[name]) for name in counted.dtype.names or ()}, bound, judged, faults) for row in counted
    ]


def _window(
    row: Mapping[str, int], bound: DeliveryBound, judged: Mapping[int, WindowJudged], faults: Sequence[FaultShown]
) -> Window:
    begin_s, beyond = row["number"] * bound.window_s, row["late"] + row["missing"]
    end_s = begin_s + bound.window_s
    before_s, since_s = (end_s + bound.latency_s, begin_s - bound.recovery_s) if beyond else (end_s, begin_s)
    at_work = (f.step for f in faults if f.begin_s < before_s and (f.end_s is None or f.end_s >= since_s))
    return Window(
        begin_s=round(begin_s, 3),
        end_s=round(end_s, 3),
        sent=row["sent"],
        produced=row["acknowledged"] - row["open"],
        consumed=row["delivered"],
        late=row["late"],
        missing=row["missing"],
        p50_ms=_ms(row["p50_ns"]),
        p99_ms=_ms(row["p99_ns"]),
        max_ms=_ms(row["max_ns"]),
        outcome=_outcome(beyond, judged.get(row["number"])),
        faults=tuple(dict.fromkeys(at_work)),
    )


def _outcome(beyond: int, judged: WindowJudged | None) -> AnomalyOutcome:
    """The judge's; what it could not look at, because there were too many, is unknown."""
    if not beyond:
        return AnomalyOutcome.HELD
    if judged is not None and judged.forbidden:
        return AnomalyOutcome.VIOLATED
    if judged is None or judged.permitted < beyond:
        return AnomalyOutcome.UNKNOWN
    return AnomalyOutcome.SHOWN


def _ms(time_ns: int) -> float | None:
    return None if time_ns == MISSING else time_ns / 1e6


def _together(windows: Sequence[Window]) -> Window:
    """Quiet windows that follow one another as one row."""
    return replace(
        windows[0],
        end_s=windows[-1].end_s,
        sent=_sum(windows, "sent"),
        produced=_sum(windows, "produced"),
        consumed=_sum(windows, "consumed"),
        p50_ms=_greatest(windows, "p50_ms"),
        p99_ms=_greatest(windows, "p99_ms"),
        max_ms=_greatest(windows, "max_ms"),
        count=len(windows),
    )


def _sum(windows: Sequence[Window], column: str) -> int:
    return sum(getattr(window, column) for window in windows)


def _greatest(windows: Sequence[Window], column: str) -> float | None:
    values = (getattr(window, column) for window in windows)
    return max((value for value in values if value is not None), default=None)


def windows_words(one: Deliveries) -> str:
    """How many windows held, in a sentence for a person."""
    within, excepted = one.count(AnomalyOutcome.HELD), one.count(AnomalyOutcome.SHOWN)
    beyond, unknown = one.count(AnomalyOutcome.VIOLATED), one.count(AnomalyOutcome.UNKNOWN)
    told = [f"{within} of {number_of(len(one.windows), 'window')} within the bound"]
    told += [f"{excepted} beyond it, excepted"] if excepted else []
    told += [f"{beyond} beyond it"] if beyond else []
    told += [f"of {unknown} it cannot be told"] if unknown else []
    return ", ".join(told)
