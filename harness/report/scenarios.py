"""The table of scenarios: a line per trial, from what its run said (`harness.scenario_rows`), in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.report.marked import write_between
from harness.scenario_rows import NewLeaders, ScenarioRow
from harness.scenarios import SCENARIOS

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
"""What is between them is written anew."""
_HEADINGS = (
    "scenarios",
    "trial",
    "where",
    "verdict",
    "control",
    "s",
    "longest gap",
    "new leader",
    "lost and other costs",
)


def table_text(rows: Iterable[ScenarioRow]) -> str:
    """A line per trial, in the order of its first scenario; then what was run on several metadata modes, side by side."""
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|" + "---|" * len(_HEADINGS)]
    ordered = sorted(rows, key=_order)
    lines += ["| " + " | ".join(cells(row)) + " |" for row in ordered]
    alike = {row.trial: [other for other in ordered if other.trial == row.trial] for row in ordered}
    compared = [side_by_side(several) for several in alike.values() if len(several) > 1]
    return "\n\n".join(["\n".join(lines), *compared]).rstrip("\n") + "\n"


def cells(row: ScenarioRow) -> tuple[str, ...]:
    """What stands in the columns."""
    return (
        " ".join(row.scenarios),
        row.trial + (f" (seed {row.seed})" if row.seed != 1 else ""),
        f"{row.backend}, {row.metadata_mode} {row.versions}",
        row.verdict + (", by a known defect" if row.verdict == "violated" and row.defects else ""),
        _control(row),
        "–" if row.seconds is None else f"{row.seconds:.0f}",
        _gap(row),
        _leaders(row.new_leaders),
        _costs(row),
    )


def line_of(row: ScenarioRow) -> str:
    """One line for a terminal, when the run is over."""
    what = f"{row.trial}, {row.metadata_mode}, seed {row.seed}: {row.verdict}; control {_control(row)}"
    took = f"longest gap {_gap(row)}; new leader {_leaders(row.new_leaders)}"
    why = f"; {row.unknown_reasons[0]}" if row.unknown_reasons else ""
    return f"{what}; {took}; {_costs(row)}{why}"


def write_table(path: Path, rows: Iterable[ScenarioRow]) -> None:
    """Write the table anew between its marks. BadInput if the file has none."""
    write_between(path, BEGIN, END, table_text(rows))


def side_by_side(rows: Sequence[ScenarioRow]) -> str:
    """Runs of one trial on several metadata modes: a line per fault and for the whole, a column per mode."""
    steps = list(dict.fromkeys(cost.step for row in rows for cost in row.faults))
    lines = [f"| {rows[0].trial} | " + " | ".join(f"{r.metadata_mode} {r.versions}" for r in rows) + " |"]
    lines.append("|" + "---|" * (len(rows) + 1))
    lines += [f"| {step} | " + " | ".join(_cost_of(row, step) for row in rows) + " |" for step in steps]
    lines.append("| verdict | " + " | ".join(row.verdict for row in rows) + " |")
    lines.append("| control | " + " | ".join(map(_control, rows)) + " |")
    lines.append("| costs | " + " | ".join(map(_costs, rows)) + " |")
    return "\n".join(lines) + "\n"


def _cost_of(row: ScenarioRow, step: str) -> str:
    cost = next((cost for cost in row.faults if cost.step == step), None)
    if cost is None:
        return "not struck"
    gap = "gap under 1 s" if cost.longest_s is None else f"gap {cost.longest_s:.1f} s"
    return gap if cost.new_leaders is None else f"new leader {_leaders(cost.new_leaders)}; {gap}"


def _order(row: ScenarioRow) -> tuple[int, str, str]:
    numbers = list(SCENARIOS)
    places = [numbers.index(number) for number in row.scenarios if number in SCENARIOS]
    return min(places, default=len(numbers)), row.trial, row.metadata_mode


def _control(row: ScenarioRow) -> str:
    if not row.controls.named:
        return "none named"
    told = f"{row.controls.fired} of {row.controls.named} fired"
    return f"{told}: {_counted(row.controls.shown)}" if row.controls.shown else told


def _gap(row: ScenarioRow) -> str:
    told = "under 1 s" if row.longest_s is None else f"{row.longest_s:.1f} s"
    return f"{told}, {row.open_windows} to the end" if row.open_windows else told


def _leaders(found: NewLeaders | None) -> str:
    if found is None:
        return "–"
    if found.elections == 1:
        return f"{found.slowest_s:.1f} s"
    return f"{found.median_s:.1f} s, slowest {found.slowest_s:.1f} s"


def _costs(row: ScenarioRow) -> str:
    parts = [f"permitted: {_counted(row.permitted)}"] if row.permitted else []
    parts += [f"**forbidden: {_counted(row.forbidden)}**"] if row.forbidden else []
    parts += [f"known defect: {defect}" for defect in row.defects]
    return "; ".join(parts) or "nothing"


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found.items())
