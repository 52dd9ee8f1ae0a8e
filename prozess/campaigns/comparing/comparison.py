"""`prozess compare`: puts two runs side by side: settings that differ, faults as they happened, what these cost, what was
found, and cells that came out differently. Nothing is judged again."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.campaigns.comparing import RunSummary
from prozess.harness.console import console
from prozess.harness.impact.cost import FaultImpact
from prozess.harness.plan.plan import Plan
from prozess.harness.report.words import SIGNS, VERDICT_SIGNS, brief_nodes
from prozess.harness.values import Frozen
from prozess.harness.verdict import AnomalyOutcome, CellVerdict, FaultShown, TrialVerdict

NOTHING = "–"
CELLS_MAX = 40
"""How many cells that differ are printed; --json has all."""
_SETTINGS = ("trial", "seed", "backend", "variant", "limits", "settle_s", "decide", "replays", "metrics")
"""The parts of a plan whose values are compared one by one."""


class ComparedPair(Frozen):
    """One thing, and what it was in either run."""

    what: str
    one: str
    other: str

    @property
    def differs(self) -> bool:
        """Returns whether it was not the same in both."""
        return self.one != self.other


class RunComparison(Frozen):
    """Two runs side by side. Lists have what there was in at least one of them."""

    runs: tuple[str, str]
    verdicts: ComparedPair
    settings: tuple[ComparedPair, ...]
    """Only what differs."""
    faults: tuple[ComparedPair, ...]
    """Step and fault → whom it hit, from when to when, in seconds of the trial."""
    costs: tuple[ComparedPair, ...]
    """Fault and measure → its value."""
    findings: tuple[ComparedPair, ...]
    """Anomaly → how many witnesses are forbidden, permitted and unknown."""
    cells: tuple[ComparedPair, ...]
    """Cell and anomaly → its outcome and count, where these differ in more than a count that is permitted; and cells that
    only one run has."""
    took_s: ComparedPair


def compare_runs(one: RunSummary, other: RunSummary) -> RunComparison:
    """Compares two runs by their files. HistoryUnreadable if one cannot be read or has no verdict."""
    runs = (one, other)
    plans, verdicts = tuple(run.plan for run in runs), tuple(run.judged for run in runs)
    return RunComparison(
        runs=(str(one.run.path), str(other.run.path)),
        verdicts=_pair("verdict", *(f"{VERDICT_SIGNS[v.verdict]} {v.verdict}" for v in verdicts)),
        settings=tuple(pair for pair in _pairs(*map(_settings, plans)) if pair.differs),
        faults=tuple(_faults(*(verdict.faults for verdict in verdicts))),
        costs=tuple(_pairs(*(_costs(run.impact.faults if run.impact else ()) for run in runs))),
        findings=tuple(_pairs(*map(_findings, verdicts))),
        cells=tuple(_cells(*(verdict.cells for verdict in verdicts))),
        took_s=_pair("took, s", *(NOTHING if run.took_s is None else f"{run.took_s:.0f}" for run in runs)),
    )


def print_comparison(found: RunComparison, *, as_json: bool) -> None:
    """Prints a comparison, as tables or as JSON."""
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=1) + "\n")
        return
    out = console()
    _show("", [_pair("run", *found.runs), found.verdicts, found.took_s])
    _show("Settings that differ", found.settings, none="All settings are the same.")
    _show("Faults: whom they hit, from when to when (s of the trial)", found.faults, none="There was no fault.")
    _show("What the faults cost", found.costs, none="")
    _show("What was found", found.findings, none="Nothing was found in either run.")
    _show("Cells that came out differently", found.cells[:CELLS_MAX], none="Every cell came out the same.")
    if len(found.cells) > CELLS_MAX:
        out.print(f"and {len(found.cells) - CELLS_MAX} more; --json has all")


def _show(title: str, pairs: Sequence[ComparedPair], *, none: str = "") -> None:
    out = console()
    if not pairs:
        if none:
            out.print(none)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title or None, title_justify="left")
    for heading in ("", "one", "the other"):
        table.add_column(heading, overflow="fold")
    for pair in pairs:
        what = f"[bold]{escape(pair.what)}[/bold]" if pair.differs else escape(pair.what)
        table.add_row(what, escape(pair.one), escape(pair.other))
    out.print(table)


def _pair(what: str, one: str, other: str) -> ComparedPair:
    return ComparedPair(what=what, one=one, other=other)


def _pairs(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[ComparedPair]:
    for what in dict.fromkeys((*one, *other)):
        yield _pair(what, one.get(what, NOTHING), other.get(what, NOTHING))


def _settings(plan: Plan) -> dict[str, str]:
    """Returns every setting of the trial by its dotted name, each step, and the values of each axis."""
    document = plan.model_dump(mode="json")
    facts = dict(_flat({name: document[name] for name in _SETTINGS}))
    facts |= {f"step {number}": str(step) for number, step in enumerate(document["steps"])}
    values: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        for axis, value in cell.axes.items():
            values.setdefault(f"{cell.workload}: {axis}", {})[value] = None
    return facts | {axis: ", ".join(of) for axis, of in values.items()} | {"cells": str(len(plan.cells))}


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, str(value)


def _faults(one: Sequence[FaultShown], other: Sequence[FaultShown]) -> Iterator[ComparedPair]:
    """Yields the faults in their order: the n-th of one run beside the n-th of the same step of the other."""
    mine, theirs = _by_step(one), _by_step(other)
    for step in dict.fromkeys((*mine, *theirs)):
        for pair in zip_longest(mine.get(step, ()), theirs.get(step, ())):
            yield _pair(step, *(NOTHING if fault is None else _happened(fault) for fault in pair))


def _by_step(faults: Iterable[FaultShown]) -> dict[str, list[FaultShown]]:
    found: dict[str, list[FaultShown]] = {}
    for fault in faults:
        found.setdefault(f"{fault.step}: {fault.fault}", []).append(fault)
    return found


def _happened(fault: FaultShown) -> str:
    until = "never" if fault.end_s is None else f"{fault.end_s:.1f}"
    seen = "" if fault.effective else ", not seen to work"
    return f"{brief_nodes(fault.nodes)} {fault.begin_s:.1f} to {until}{seen}".strip()


def _costs(faults: Iterable[FaultImpact]) -> dict[str, str]:
    """Returns what each fault cost: names that come again are numbered."""
    seen: Counter[str] = Counter()
    values: dict[str, str] = {}
    for fault in faults:
        seen[fault.name] += 1
        name = fault.name + (f" ({seen[fault.name]})" if seen[fault.name] > 1 else "")
        values[f"{name}: times unavailable"] = f"{fault.windows:,}"
        values[f"{name}: longest, s"] = NOTHING if fault.longest_s is None else f"{fault.longest_s:.1f}"
        values[f"{name}: never acknowledged"] = f"{fault.unanswered:,}"
        again = fault.after_fault.median_ms
        values[f"{name}: first acknowledged after it, ms"] = NOTHING if again is None else f"{again:,.0f}"
    return values


def _findings(verdict: TrialVerdict) -> dict[str, str]:
    counts: dict[str, Counter[str]] = {}
    for cell in verdict.cells:
        for name, anomaly in cell.anomalies.items():
            for effect in ("forbidden", "permitted", "unknown"):
                counts.setdefault(name, Counter())[effect] += getattr(anomaly, effect)
    values = {name: ", ".join(f"{n:,} {effect}" for effect, n in found.items() if n) for name, found in counts.items()}
    return {name: words for name, words in values.items() if words}


def _cells(one: Sequence[CellVerdict], other: Sequence[CellVerdict]) -> Iterator[ComparedPair]:
    mine, theirs = ({_name(cell): cell for cell in cells} for cells in (one, other))
    for name in dict.fromkeys((*mine, *theirs)):
        a, b = mine.get(name), theirs.get(name)
        if a is None or b is None:
            yield _pair(name, *(NOTHING if cell is None else str(cell.verdict) for cell in (a, b)))
            continue
        for anomaly in dict.fromkeys((*a.anomalies, *b.anomalies)):
            outcomes = [cell.anomalies.get(anomaly) for cell in (a, b)]
            kinds = [None if found is None else found.outcome for found in outcomes]
            worth = kinds[0] is not kinds[1] and not set(kinds) <= _ONLY_LUCK
            if worth:
                lines = (
                    NOTHING if found is None else f"{SIGNS[found.outcome]} {found.outcome} {found.seen or ''}".strip()
                    for found in outcomes
                )
                yield _pair(f"{name}: {anomaly}", *lines)


_ONLY_LUCK = {AnomalyOutcome.PERMITTED, AnomalyOutcome.POSSIBLE}
"""What is permitted is seen in one run and not in another, and says nothing about either."""


def _name(cell: CellVerdict) -> str:
    return f"{cell.workload} " + ", ".join(f"{axis}={value}" for axis, value in cell.axes.items())
