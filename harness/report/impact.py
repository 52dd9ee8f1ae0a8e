"""What faults cost the clients, as `impact.json` has it: lines of summary.md, and words for report.html."""

from collections.abc import Sequence

from harness.clock import NS_PER_S
from harness.impact import AROUND_NS
from harness.impact_gaps import UNAVAILABLE_NS
from harness.impact_summary import FaultImpact, ImpactShown, PhaseShown, RecoveryShown
from harness.run_directory import RunDirectory

HEADINGS = (
    "fault",
    "acks",
    "acknowledged/s",
    "50 %, ms",
    "99 %, ms",
    "unavailable, times",
    "longest, s",
    "next leader known to all, ms",
    "first after fault, ms",
    "first after heal, ms",
)


def read_impact(run: RunDirectory) -> ImpactShown | None:
    """What was measured; None = a run that was checked before it was."""
    if not run.impact.is_file():
        return None
    return ImpactShown.model_validate_json(run.impact.read_text(encoding="utf-8"))


def impact_rows(shown: ImpactShown) -> list[tuple[str, ...]]:
    """One row of HEADINGS per fault and acks; three numbers in one are before, during and after."""
    return [row for fault in shown.faults for row in rows_of_fault(fault)]


def impact_words(shown: ImpactShown) -> str:
    """What the table means, and what it leaves out."""
    if shown.incomplete is not None:
        return f"Not measured: {shown.incomplete}"
    least_s = UNAVAILABLE_NS / NS_PER_S
    counted = f"{shown.windows_counted:,} times a partition acknowledged nothing for {least_s:g} s or longer"
    told = f"{counted} although it was sent something"
    told += f"; {shown.windows_open:,} of these lasted until the end" if shown.windows_open else ""
    told += f"; {shown.windows_unexplained:,} no fault explains" if shown.windows_unexplained else ""
    return (
        f"{told}. Three numbers: {AROUND_NS // NS_PER_S} s before, during, and {AROUND_NS // NS_PER_S} s after the fault, by "
        "when records were sent (rates: acknowledged); of acks=1 and acks=all; latencies to 2 %."
    )


def impact_lines(run: RunDirectory) -> list[str]:
    """For summary.md."""
    shown = read_impact(run)
    if shown is None or not (shown.faults or shown.windows_counted or shown.incomplete):
        return []
    lines = ["", "## What the faults cost", "", impact_words(shown)]
    if rows := impact_rows(shown):
        lines += ["", "| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines


def rows_of_fault(fault: FaultImpact) -> list[tuple[str, ...]]:
    """Of one fault, by acks."""
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
    """Of the partitions that were led by whom it was aimed at."""
    if fault.reaction is None or not fault.reaction.led:
        return "–"
    new = fault.reaction.new_leader
    if new.median_ms is None:
        return f"kept {new.never:,}"
    kept = f"; kept {new.never:,}" if new.never else ""
    return f"{new.median_ms:,.0f}, at most {new.slowest_ms:,.0f}{kept}"


def _recovery(shown: RecoveryShown) -> str:
    if not shown.partitions or shown.median_ms is None:
        return f"never in {shown.never:,}" if shown.never else "–"
    never = f"; never in {shown.never:,}" if shown.never else ""
    return f"{shown.median_ms:,.0f}, at most {shown.slowest_ms:,.0f}{never}"
