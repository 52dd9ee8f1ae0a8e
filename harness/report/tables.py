"""Rows for the tables of reports: delivery bounds window by window, what faults cost, and transactions that were
open at the end. Judges nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from pydantic import TypeAdapter, ValidationError

from prozess.harness.checking.findings import read_windows
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.impact.cost import AROUND_NS, UNAVAILABLE_NS, FaultImpact, ImpactShown, PhaseShown, RecoveryShown
from prozess.harness.interfaces.cluster import HangingTransaction
from prozess.harness.interfaces.witnesses import no_windows
from prozess.harness.plan.plan import Plan
from prozess.harness.printable import number_of
from prozess.harness.report.words import SIGNS
from prozess.harness.run_directory import RunDirectory, read_document, read_json
from prozess.harness.schema import MISSING
from prozess.harness.verdict import AnomalyOutcome, CellVerdict, FaultShown, TrialVerdict, WindowJudged

FOLDED_FROM = 60
"""A longer table shows quiet windows that follow one another as one row."""
_WORDS = {
    AnomalyOutcome.HELD: "within",
    AnomalyOutcome.PERMITTED: "beyond, permitted",
    AnomalyOutcome.UNKNOWN: "beyond, unknown",
    AnomalyOutcome.VIOLATED: "beyond",
}
OUTCOMES = (AnomalyOutcome.HELD, AnomalyOutcome.PERMITTED, AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN)
"""What a window may come to, as reports have them."""


@dataclass(frozen=True, slots=True)
class DeliveryWindow:
    """One window, or `count` quiet ones that follow one another. Times in seconds on the trial's clock."""

    begin_s: float
    end_s: float
    sent: int
    produced: int
    consumed: int
    late: int
    missing: int
    p50_ms: float | None
    """For several windows the greatest; None = nothing was delivered."""
    p99_ms: float | None
    max_ms: float | None
    outcome: AnomalyOutcome
    """HELD: within the bound; PERMITTED: not, and excepted; else UNKNOWN or VIOLATED."""
    faults: tuple[str, ...]
    """Steps whose faults were at work in it; of one beyond the bound, before its deadlines, or over for less than the
    recovery."""
    count: int = 1

    @property
    def words(self) -> str:
        """Returns the outcome of the window in words."""
        return _WORDS[self.outcome]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The delivery windows of one cell."""

    cell: int
    name: str
    bound: DeliveryBound
    outcome: AnomalyOutcome
    """The outcome of the anomaly `late` in the cell."""
    windows: Sequence[DeliveryWindow]
    """Ascending; those in which nothing was sent are left out."""

    def count(self, outcome: AnomalyOutcome) -> int:
        """Returns how many windows have this outcome."""
        return sum(window.outcome is outcome for window in self.windows)

    def total(self, column: str) -> int:
        """Returns a number over all windows."""
        return _sum(self.windows, column)

    @property
    def promise(self) -> str:
        """Returns the bound in words."""
        if not self.bound.except_during_faults:
            return f"within {self.bound.latency_s:g} s, whatever happens"
        return f"within {self.bound.latency_s:g} s, except during faults and {self.bound.recovery_s:g} s after them"

    @property
    def worst(self) -> DeliveryWindow | None:
        """The window that missed most, else the one with the longest latency; None = nothing was sent."""
        return max(self.windows, key=lambda w: (w.missing, w.max_ms or 0.0), default=None)

    @property
    def folded(self) -> Sequence[DeliveryWindow]:
        """Returns the windows; in a long trial those within the bound that no fault was at work in are put together."""
        if len(self.windows) < FOLDED_FROM:
            return self.windows
        rows: list[DeliveryWindow] = []
        for quiet, group in groupby(self.windows, key=lambda w: w.outcome is AnomalyOutcome.HELD and not w.faults):
            several = list(group)
            rows += [_together(several)] if quiet else several
        return rows


def deliveries(run: RunDirectory, plan: Plan, verdict: TrialVerdict) -> list[Deliveries]:
    """Returns the deliveries of every cell that states a bound; HistoryUnreadable if their findings cannot be read."""
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
    """Returns the section on delivery as lines of Markdown; empty if no cell states a bound."""
    if not found:
        return []
    out = [
        "",
        "## Delivery",
        "",
        "Each window counts the records that were sent in it. Latency is the time from the send until the last consumer "
        "read the record.",
        "",
    ]
    out += [
        "| cell | promised | windows | within | beyond, permitted | beyond | unknown | produced | consumed | late |"
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
    """Returns the worst window in a few words."""
    if (worst := one.worst) is None:
        return "nothing was sent"
    text = (
        f"99 % within {worst.p99_ms:,.0f} ms, the last after {worst.max_ms:,.0f} ms"
        if worst.max_ms
        else "nothing arrived"
    )
    never = f", {worst.missing:,} never delivered" if worst.missing else ""
    during = f", during {', '.join(worst.faults)}" if worst.faults else ""
    return f"{SIGNS[worst.outcome]} {worst.begin_s:g}–{worst.end_s:g} s: {text}{never}{during}"


def _windows(
    counted: np.ndarray, bound: DeliveryBound, cell: CellVerdict, faults: Sequence[FaultShown]
) -> list[DeliveryWindow]:
    judged = {window.number: window for window in cell.windows}
    return [
        _window({name: int(row[name]) for name in counted.dtype.names or ()}, bound, judged, faults) for row in counted
    ]


def _window(
    row: Mapping[str, int], bound: DeliveryBound, judged: Mapping[int, WindowJudged], faults: Sequence[FaultShown]
) -> DeliveryWindow:
    begin_s, beyond = row["number"] * bound.window_s, row["late"] + row["missing"]
    end_s = begin_s + bound.window_s
    before_s, since_s = (end_s + bound.latency_s, begin_s - bound.recovery_s) if beyond else (end_s, begin_s)
    at_work = (f.step for f in faults if f.begin_s < before_s and (f.end_s is None or f.end_s >= since_s))
    return DeliveryWindow(
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
    return AnomalyOutcome.PERMITTED


def _ms(time_ns: int) -> float | None:
    return None if time_ns == MISSING else time_ns / 1e6


def _together(windows: Sequence[DeliveryWindow]) -> DeliveryWindow:
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


def _sum(windows: Sequence[DeliveryWindow], column: str) -> int:
    return sum(getattr(window, column) for window in windows)


def _greatest(windows: Sequence[DeliveryWindow], column: str) -> float | None:
    values = (getattr(window, column) for window in windows)
    return max((value for value in values if value is not None), default=None)


def windows_words(one: Deliveries) -> str:
    """Returns how many windows held, in a sentence for a person."""
    within, excepted = one.count(AnomalyOutcome.HELD), one.count(AnomalyOutcome.PERMITTED)
    beyond, unknown = one.count(AnomalyOutcome.VIOLATED), one.count(AnomalyOutcome.UNKNOWN)
    lines = [f"{within} of {number_of(len(one.windows), 'window')} within the bound"]
    lines += [f"{excepted} beyond it and permitted"] if excepted else []
    lines += [f"{beyond} beyond it"] if beyond else []
    lines += [f"{unknown} unknown"] if unknown else []
    return ", ".join(lines)


# What faults cost the clients, as `impact.json` has it: lines of summary.md, and words for report.html.


HEADINGS = (
    "fault",
    "acks",
    "acknowledged/s",
    "median latency, ms",
    "99 % latency, ms",
    "times unavailable",
    "longest, s",
    "new leader known to all brokers, ms",
    "first acknowledged after the fault, ms",
    "first acknowledged after healing, ms",
)


def read_impact(run: RunDirectory) -> ImpactShown | None:
    """Reads what the faults cost; None = the run was not checked for it."""
    if not run.impact.is_file():
        return None
    return ImpactShown.model_validate_json(read_document(run.impact))


def impact_rows(shown: ImpactShown) -> list[tuple[str, ...]]:
    """One row of HEADINGS per fault and acks; three numbers in one are before, during and after."""
    return [row for fault in shown.faults for row in rows_of_fault(fault)]


def impact_words(shown: ImpactShown) -> str:
    """Returns what the table means, and what it leaves out."""
    if shown.incomplete is not None:
        return f"Not measured: {shown.incomplete}"
    least_s = UNAVAILABLE_NS / NS_PER_S
    counted = f"{shown.windows_counted:,} times a partition acknowledged nothing for {least_s:g} s or longer"
    text = f"{counted} although producers sent to it"
    text += f"; {shown.windows_open:,} of these lasted until the end" if shown.windows_open else ""
    text += f"; no fault explains {shown.windows_unexplained:,} of them" if shown.windows_unexplained else ""
    text += (
        f"; {shown.windows_warm_up:,} more, while clients warmed up, are not counted" if shown.windows_warm_up else ""
    )
    return (
        f"{text}. The table is about acks=1 and acks=all. Three numbers stand for the {AROUND_NS // NS_PER_S} s before the "
        f"fault, the time of the fault, and the {AROUND_NS // NS_PER_S} s after it; a record belongs to the time at which it "
        "was sent. Rates count acknowledged records; latencies, from send to acknowledgement, are exact to 2 %. For a new "
        "leader and for the first acknowledgement the table has the median over the partitions, and the slowest partition."
    )


def impact_lines(run: RunDirectory) -> list[str]:
    """Returns the section on the cost of faults for summary.md."""
    shown = read_impact(run)
    if shown is None or not (shown.faults or shown.windows_counted or shown.incomplete):
        return []
    lines = ["", "## What the faults cost", "", impact_words(shown)]
    if rows := impact_rows(shown):
        lines += ["", "| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines


def rows_of_fault(fault: FaultImpact) -> list[tuple[str, ...]]:
    """Returns what one fault cost as rows of a table, one for each acks: rates and latencies, windows, recoveries."""
    levels = dict.fromkeys(phase.acks for phase in fault.phases)
    windows = f"{fault.windows:,}" + (f" ({fault.open_windows:,} open)" if fault.open_windows else "")
    whole = (
        windows,
        "–" if fault.longest_s is None else f"{fault.longest_s:.1f}",
        _leaders(fault),
        _recovery(fault.after_fault),
        _recovery(fault.after_heal),
    )
    found = []
    for acks in levels:
        phases = [phase for phase in fault.phases if phase.acks == acks]
        numbers = (_numbers(phases, name) for name in ("per_s", "p50_ms", "p99_ms"))
        found.append((fault.name, acks, *numbers, *whole))
    return found


def _numbers(phases: Sequence[PhaseShown], name: str) -> str:
    values = (getattr(phase, name) for phase in phases)
    return " / ".join("–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in values)


def _leaders(fault: FaultImpact) -> str:
    """Says how long the partitions waited for a new leader that were led by the target of the fault."""
    if fault.reaction is None or not fault.reaction.led:
        return "–"
    new = fault.reaction.new_leader
    if new.median_ms is None:
        return _without(new.never, "no new leader before the next fault")
    return _median_and_slowest(new, "no new leader before the next fault")


def _recovery(shown: RecoveryShown) -> str:
    if not shown.partitions or shown.median_ms is None:
        return _without(shown.never, "none") or "–"
    return _median_and_slowest(shown, "none")


def _median_and_slowest(shown: RecoveryShown, nothing: str) -> str:
    """Returns "3,902 (slowest 4,191); 13 partitions: none". `nothing`: what the others had."""
    median, slowest = f"{shown.median_ms:,.0f}", f"{shown.slowest_ms:,.0f}"
    return "; ".join(
        filter(None, (median if median == slowest else f"{median} (slowest {slowest})", _without(shown.never, nothing)))
    )


def _without(partitions: int, nothing: str) -> str:
    return f"{number_of(partitions, 'partition')}: {nothing}" if partitions else ""


# Transactions that were still open when the audit was to begin, and what became of them: for a person.


_LIST = TypeAdapter(tuple[HangingTransaction, ...])
LEGEND = (
    "These transactions were still open after every transactional.id had been fenced, so the partition's last stable offset "
    "stood still (KIP-664). Where no coordinator knew the transaction, the run ended it as an operator would, and its "
    "records are aborted."
)


def read_hanging(run: RunDirectory) -> Sequence[HangingTransaction]:
    """Reads the transactions that hung; none for a run that did not look for them. HistoryUnreadable if the file is torn."""
    if not run.hanging.exists():
        return ()
    try:
        return _LIST.validate_python(read_json(run.hanging))
    except ValidationError as error:
        raise HistoryUnreadable(
            f"{run.hanging} does not hold a list of transactions. Make the run again, or put back the file."
        ) from error


def hanging_lines(found: Sequence[HangingTransaction]) -> list[str]:
    """Returns the section on hanging transactions as lines of Markdown; empty if none hung."""
    if not found:
        return []
    return ["", "## Hanging transactions", "", LEGEND, "", *(f"- {one.text}" for one in found)]
