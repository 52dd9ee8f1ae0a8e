"""The map itself: what became of each change, and the file in which it is kept."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prozess.exchange.synthetic.history import KINDS, GenerateOptions, generate
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from tools.evidence.cases import FAILED, HELD, REFUSED, UNKNOWN, VIOLATED, Bench
from tools.evidence.changes import WAYS

KEPT = Path(__file__).with_name("found.json")
GENERATED = GenerateOptions(rows=2000, partitions=2, kinds=tuple(kind for kind in KINDS if kind != "tiered"), seed=3)
"""The clean history that anybody can make: a cell of each workload that can be generated, without a remote store."""
TRIES = 1
"""In so many rows of each cell, one after the other, a column is changed in each way, until the change is held once."""
WEAKEST_FIRST = (HELD, FAILED, UNKNOWN, REFUSED, VIOLATED)

Found = dict[str, dict[str, dict[str, dict[str, dict[str, list[str]]]]]]
"""Keyed by the kind of history, the table, the column, the way and the workload: every outcome that a try had."""


@dataclass(frozen=True, slots=True)
class Case:
    """What became of a column that was changed in one way, in the cells of one workload."""

    history: str
    table: str
    column: str
    way: str
    workload: str
    outcomes: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """Returns the weakest outcome of all tries, without the names of anomalies."""
        seen = {outcome.partition(":")[0] for outcome in self.outcomes}
        return next(outcome for outcome in WEAKEST_FIRST if outcome in seen)

    @property
    def anomalies(self) -> frozenset[str]:
        """Returns the anomalies that were violated in some try."""
        names = [name for outcome in self.outcomes for name in outcome.partition(": ")[2].split(", ")]
        return frozenset(names) - {""}


def generated(folder: Path) -> RunDirectory:
    """Makes the clean history in a new folder, and returns it."""
    run = RunDirectory(folder)
    run.create()
    generate(run, GENERATED, command="python -m tools.evidence")
    return run


def one(bench: Bench, table: str, column: str, way: str, *, tries: int = TRIES) -> dict[str, list[str]]:
    """Changes a column in one way, and returns every outcome of each workload. Empty: no row has another value."""
    found: dict[str, set[str]] = {}
    for attempt in range(tries):
        for workload, outcomes in bench.became(table, column, way, attempt).items():
            found.setdefault(workload, set()).update(outcomes)
        if found and all(HELD in outcomes for outcomes in found.values()):
            break
    return {workload: sorted(outcomes) for workload, outcomes in sorted(found.items())}


def of_history(
    bench: Bench, tables: Sequence[str], say: Callable[[str], None], *, tries: int = TRIES
) -> dict[str, dict[str, dict[str, dict[str, list[str]]]]]:
    """Returns the map of these tables of one history. `say` is given a line for each column."""
    found: dict[str, dict[str, dict[str, dict[str, list[str]]]]] = {}
    for table in (name for name in tables if bench.rows(name)):
        for column in TABLES[table].column_names:
            ways = {way: one(bench, table, column, way, tries=tries) for way in WAYS}
            found.setdefault(table, {})[column] = ways
            say(f"{table}.{column}: {ways}")
    return found


Table = dict[str, dict[str, dict[str, list[str]]]]


def merged(known: dict[str, Table], newer: dict[str, Table]) -> dict[str, Table]:
    """Returns what is known of a history, with what is newer: workloads that the newer one leaves out stay as they are."""
    found = dict(known)
    for table, columns in newer.items():
        old = known.get(table, {})
        found[table] = {
            column: {way: old.get(column, {}).get(way, {}) | of for way, of in ways.items()}
            for column, ways in columns.items()
        }
    return found


def read(path: Path = KEPT) -> Found:
    """Returns the map that is kept."""
    found: Found = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(found: Mapping[str, object], path: Path = KEPT) -> None:
    """Keeps a map, with a line for each way."""
    text = json.dumps(found, indent=1, sort_keys=True)
    path.write_text(_shorter(text) + "\n", encoding="utf-8")


def _shorter(text: str) -> str:
    """Puts what is within a way on one line."""
    lines: list[str] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip(" "))
        inner = depth > 4 or (depth == 4 and line.strip().startswith("}"))
        if inner and lines:
            lines[-1] += (" " if lines[-1].endswith(",") else "") + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines)


def cases(found: Found) -> Iterator[Case]:
    """Yields every case in the order of the tables."""
    for history, tables in sorted(found.items()):
        for table in (name for name in TABLES if name in tables):
            for column in (name for name in TABLES[table].column_names if name in tables[table]):
                for way in WAYS:
                    for workload, outcomes in tables[table][column].get(way, {}).items():
                        yield Case(history, table, column, way, workload, tuple(outcomes))
