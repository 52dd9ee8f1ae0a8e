"""What a matrix is, on the terminal: axes, counts, exclusions with reasons, what the trials cover, how long they take."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from harness.console import console
from harness.matrices.trials import CellCount, Layout

_REASONS = 12
"""Shown of each list of exclusions; the rest is counted."""


def show_matrix(layout: Layout) -> None:
    """Everything but the trials' own steps."""
    out = console()
    matrix = layout.matrix
    out.print(f"[bold]{matrix.name}[/bold]  {matrix.title}", markup=True)
    _show_cells(out, layout)
    _show_trials(out, layout)


def _show_cells(out: Console, layout: Layout) -> None:
    first = layout.rows[0]
    out.print(f"\nCells, as with {', '.join(list(first.values())[:-1])}:")
    table = Table(box=None, pad_edge=False)
    columns = ("workload", "raw product", "valid", "strength", "run", "pairs or triples covered", "per trial", "parts")
    for column in columns:
        table.add_column(column, justify="left" if column in ("workload", "strength") else "right")
    counts = layout.counts(first)
    workloads = layout.matrix.trial(first).workloads
    for count, workload in zip(counts, workloads, strict=True):
        covered = "all" if count.pairs is None else f"{count.pairs[0]:,} of {count.pairs[1]:,}"
        cells = (f"{n:,}" for n in (count.raw, count.valid))
        table.add_row(
            count.kind,
            *cells,
            str(workload.strength),
            f"{count.chosen:,}",
            covered,
            f"{count.of_trial:,}",
            str(count.parts),
        )
    table.add_row(
        "together",
        *(f"{sum(getattr(c, name) for c in counts):,}" for name in ("raw", "valid")),
        "",
        f"{sum(c.chosen for c in counts):,}",
        "",
        f"{sum(c.of_trial for c in counts):,}",
        "",
    )
    out.print(table)
    for count in counts:
        _show_reasons(out, f"Excluded of {count.kind}", _reasons(count))


def _reasons(count: CellCount) -> Iterable[str]:
    return (exclusion.reason for exclusion in count.exclusions)


def _show_reasons(out: Console, title: str, reasons: Iterable[str]) -> None:
    counted = Counter(reasons).most_common()
    if not counted:
        return
    out.print(f"\n{title}, {sum(n for _, n in counted):,}:")
    for reason, count in counted[:_REASONS]:
        out.print(f"  {count:6,}  {reason}", markup=False, soft_wrap=True)
    if len(counted) > _REASONS:
        out.print(f"          and {len(counted) - _REASONS} more reasons")


def _show_trials(out: Console, layout: Layout) -> None:
    spec = layout.matrix.spec
    out.print("\nAxes that cost a trial each:")
    for axis, values in spec.values.items():
        out.print(f"  {axis}: {', '.join(values)}", markup=False, soft_wrap=True)
    _show_reasons(out, "Excluded choices", (why for _, why in layout.excluded))
    done, possible, impossible = layout.coverage()
    strength = 2 if spec.strength == "full" else spec.strength
    what = {2: "pairs", 3: "triples"}[strength]
    raw = len(layout.valid) + len(layout.excluded)
    out.print(
        f"\nChoices: {raw:,} raw, {len(layout.valid):,} valid, {len(layout.rows):,} run (strength {spec.strength}). "
        f"They cover {done:,} of {possible:,} valid {what} of values.",
        soft_wrap=True,
    )
    if impossible:
        out.print(f"{len(impossible):,} {what} that no valid choice has:")
        for apart in impossible[: 2 * _REASONS]:
            named = ", ".join(f"{axis}={value}" for axis, value in apart.items())
            out.print(f"  {named}: {layout.why_impossible(apart)}", markup=False, soft_wrap=True)
        if len(impossible) > 2 * _REASONS:
            out.print(f"  and {len(impossible) - 2 * _REASONS} more")
    trials = layout.trials
    cells, clients = layout.size(trials[0])
    hours = sum(layout.seconds(trial) for trial in trials) / 3600
    time = (
        f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:,.1f} hours" if hours < 72 else f"{hours / 24:,.0f} days"
    )
    out.print(
        f"\nTrials: {len(trials):,}, with {len(spec.seeds)} seed(s). The first has {cells:,} cells and {clients:,} clients. "
        f"About {time} on two cores.",
        soft_wrap=True,
    )
