"""Writes `docs/evidence.md`: the map as tables, with the reason for each change that a check does not notice."""

from collections import Counter
from collections.abc import Iterator, Sequence

from prozess.harness import installation
from prozess.harness.schema import TABLES
from tools.evidence.cases import FAILED, HELD, REFUSED, UNKNOWN, VIOLATED
from tools.evidence.changes import WAYS
from tools.evidence.found import Case, Found, cases
from tools.evidence.reasons import REASONS, reasons_for

DOCUMENT = installation.SEARCH_PATH / "docs" / "evidence.md"
_OUTCOMES = (VIOLATED, UNKNOWN, REFUSED, HELD, FAILED)
_HEAD = """\
# What is evidence

<!-- Made by `python -m tools.evidence`, from tools/evidence/reasons.py. Change that. -->

A verdict *held* means little if nobody would notice a wrong value. This page says, for each column of each table, what a
check makes of a wrong one. `python -m tools.evidence` takes a clean history, changes the column in three rows of each
cell, and checks it as `prozess check` does a run that is proven. It does so in five ways:

| way | the new value |
|---|---|
| less | one less; a time: 10 s earlier |
| greater | one more; a time: 10 s later |
| another's | the value of another row |
| none | NONE, or MISSING for a time |
| far | 2³⁰, or 10¹⁵ in columns of 64 bits: no row has such a value |

The rows are picked by chance, from a seed. The *generated* history has a cell of each workload that `prozess generate` knows.
The *recorded* one comes from a real cluster and has a pause of a broker in it (`tools/evidence/recorded.toml`); one more,
with tiered storage, has the rows of `remote_segments`. `python -m tools.evidence RUN` changes a run of yours. Cells that are
not held before anything is changed are left out.

What may become of a change:

| outcome | what it means |
|---|---|
| violated | an anomaly is found, as if Kafka had done it |
| unknown | the verdict is unknown, and says why: tables contradict one another, or a value cannot be |
| refused | the history cannot be read, and the error says why |
| held | nobody notices; the list below the table says why that is right |

A cell of a table has several outcomes, divided by `/`, if workloads or rows differ. A dash: no row has another value in this
way. The list below each table says why nobody notices what is held.
"""


def render(found: Found) -> str:
    """Returns the whole page as Markdown."""
    every = list(cases(found))
    parts = [_HEAD, "\n## How many cases there are\n\n", *_census(every)]
    for table in TABLES.values():
        parts += [f"\n## `{table.name}`\n\n"]
        mine = [case for case in every if case.table == table.name]
        if mine:
            parts += _table(table.name, table.column_names, mine)
        else:
            parts += ["No clean history here has rows in this table.\n\n"]
        parts += _reasons(table.name)
    return "".join(parts)


def _census(every: Sequence[Case]) -> Iterator[str]:
    yield f"| history | workload | cases | {' | '.join(_OUTCOMES)} |\n|---|---|---|{'---|' * len(_OUTCOMES)}\n"
    groups = sorted({(case.history, case.workload) for case in every})
    counted = [(*group, Counter(c.outcome for c in every if (c.history, c.workload) == group)) for group in groups]
    for history, workload, counts in [*counted, ("all", "", Counter(case.outcome for case in every))]:
        numbers = " | ".join(f"{counts[outcome]:,}" for outcome in _OUTCOMES)
        yield f"| {history} | {workload} | {sum(counts.values()):,} | {numbers} |\n"


def _table(table: str, columns: Sequence[str], mine: Sequence[Case]) -> Iterator[str]:
    yield f"| column | {' | '.join(WAYS)} | found as |\n|---|{'---|' * len(WAYS)}---|\n"
    for column in columns:
        of = [case for case in mine if case.column == column]
        shown = [_outcomes([case for case in of if case.way == way]) for way in WAYS]
        anomalies = sorted(frozenset[str]().union(*(case.anomalies for case in of)))
        yield f"| `{column}` | {' | '.join(shown)} | {', '.join(f'`{name}`' for name in anomalies)} |\n"


def _outcomes(of: Sequence[Case]) -> str:
    seen = {outcome.partition(":")[0] for case in of for outcome in case.outcomes}
    return " / ".join(outcome for outcome in _OUTCOMES if outcome in seen) or "–"


def _reasons(table: str) -> Iterator[str]:
    own = [reason for reason in REASONS if reason.table == table]
    if own:
        yield "\nHeld:\n\n"
    for reason in own:
        columns = ", ".join(f"`{column}`" for column in reason.columns)
        ways = "" if set(reason.ways) == set(WAYS) else f" ({', '.join(reason.ways)})"
        yield f"* {columns}{ways}: {reason.why}\n"


def unexplained(found: Found) -> list[Case]:
    """Returns the cases that are held without a reason."""
    return [
        case for case in cases(found) if case.outcome == HELD and not reasons_for(case.table, case.column, case.way)
    ]
