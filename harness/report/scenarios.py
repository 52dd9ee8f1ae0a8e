"""The table of scenarios: a line per trial, from what its run said (`harness.scenario_rows`), in Markdown."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.errors import BadInput
from harness.scenario_rows import ScenarioRow
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
    """A line per trial, in the order of its first scenario."""
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|" + "---|" * len(_HEADINGS)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in sorted(rows, key=_order)]
    return "\n".join(lines) + "\n"


def cells(row: ScenarioRow) -> tuple[str, ...]:
    """What stands in the columns."""
    return (
        " ".join(row.scenarios),
        row.trial + (f" (seed {row.seed})" if row.seed != 1 else ""),
        f"{row.backend}, {row.cluster}",
        row.verdict,
        _control(row),
        "–" if row.seconds is None else f"{row.seconds:.0f}",
        _gap(row),
        _leaders(row),
        _costs(row),
    )


def line_of(row: ScenarioRow) -> str:
    """One line for a terminal, when the run is over."""
    gap, leaders = _gap(row), _leaders(row)
    told = (
        f"{row.trial}, seed {row.seed}: {row.verdict}; control {_control(row)}; longest gap {gap}; new leader {leaders}"
    )
    why = f"; {row.unknown_reasons[0]}" if row.unknown_reasons else ""
    return f"{told}; {_costs(row)}{why}"


def write_table(path: Path, rows: Iterable[ScenarioRow]) -> None:
    """Write the table anew between its marks. BadInput if the file has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"{str(path)!r} has no place for the table. Put {BEGIN} and {END} into it, each on a line.")
    path.write_text(f"{head}{BEGIN}\n{table_text(rows)}{END}{tail}", encoding="utf-8")


def _order(row: ScenarioRow) -> tuple[int, str]:
    numbers = list(SCENARIOS)
    places = [numbers.index(number) for number in row.scenarios if number in SCENARIOS]
    return min(places, default=len(numbers)), row.trial


def _control(row: ScenarioRow) -> str:
    if not row.controls.named:
        return "none named"
    told = f"{row.controls.fired} of {row.controls.named} fired"
    return f"{told}: {_counted(row.controls.shown)}" if row.controls.shown else told


def _gap(row: ScenarioRow) -> str:
    told = "under 1 s" if row.longest_s is None else f"{row.longest_s:.1f} s"
    return f"{told}, {row.open_windows} to the end" if row.open_windows else told


def _leaders(row: ScenarioRow) -> str:
    found = row.new_leaders
    if found is None:
        return "–"
    if found.elections == 1:
        return f"{found.slowest_s:.1f} s"
    return f"{found.median_s:.1f} s, slowest {found.slowest_s:.1f} s"


def _costs(row: ScenarioRow) -> str:
    parts = [f"permitted: {_counted(row.permitted)}"] if row.permitted else []
    parts += [f"**forbidden: {_counted(row.forbidden)}**"] if row.forbidden else []
    return "; ".join(parts) or "nothing"


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found.items())
