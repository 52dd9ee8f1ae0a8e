"""One case of the map: a copy of a clean run with some values changed in each cell, sealed again and checked."""

import logging
import random
import shutil
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.harness.errors import CONTRADICTION, ProzessError
from prozess.harness.history.convert import History
from prozess.harness.history.manifest import WHOLE_HISTORY, seal_recorded
from prozess.harness.history.parquet import TableWriter
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, TABLES
from prozess.harness.verdict import AnomalyOutcome, CellVerdict, TrialVerdict, Verdict
from tools.evidence.changes import changed

_log = logging.getLogger(__name__)
HELD, UNKNOWN, REFUSED, VIOLATED, FAILED = "held", "unknown", "refused", "violated", "a kernel failed"

ROWS_AT_ONCE = 3
"""In so many rows of each cell the value is changed, where there are as many."""


class Bench:
    """A clean run of which one table at a time is changed. The run itself stays as it is."""

    def __init__(self, clean: RunDirectory, folder: Path, *, seed: int) -> None:
        """Copies the run's history. The rows that it was made of are left out: the manifest proves the history alone."""
        self.run, self._seed = RunDirectory(folder), seed
        shutil.copytree(clean.path, folder, ignore=shutil.ignore_patterns("rows", "nodes", "logs", "tools"))
        seal_recorded(self.run)
        history = History.open(self.run)
        self.plan: Plan = history.plan
        self._start_ns = {name: history.files[name].start_monotonic_ns for name in TABLES}
        self._tables = {name: history.table(name) for name in TABLES}
        self._cell_of = self._cells()
        self.clean = self._judged()
        self.held = {number for number, cell in enumerate(self.clean.cells) if cell.verdict is Verdict.HELD}
        """The cells that a change may show something in: those that are held before."""

    def _cells(self) -> dict[str, np.ndarray]:
        """Returns the cell of each row of each table; NONE: of none."""
        of_partition = {p: cell.cell for cell in self.plan.cells for p in cell.partitions}
        of_planned = {c.client: {of_partition[p] for p in c.partitions} for c in self.plan.clients}
        table = self._tables["clients"]
        planned = dict(zip(table["client"].tolist(), table["planned"].tolist(), strict=True))

        def of(client: int) -> int:
            cells = of_planned.get(planned.get(client, client), set())
            return next(iter(cells)) if len(cells) == 1 else NONE

        found = {}
        for name, columns in self._tables.items():
            whose = "transactional_id" if name == "transaction_states" else "client"
            ids = columns["partition"] if "partition" in columns else columns.get("cell", columns[whose])
            know = of_partition.get if "partition" in columns else None
            if name in ("cells", "group_states", "share_states"):
                cells = columns["cell" if name == "cells" else "group"].tolist()
            elif know is not None:
                cells = [know(p, NONE) for p in ids.tolist()]
            else:
                cells = [of(c) for c in ids.tolist()]
            found[name] = np.array(cells, dtype=np.int64)
        return found

    def rows(self, table: str) -> int:
        """Returns how many rows a table has."""
        return len(self._cell_of[table])

    def rows_to_change(self, table: str, attempt: int) -> list[int]:
        """Returns ROWS_AT_ONCE rows of each cell, and of those that belong to no cell, by chance from the seed. Rows of
        transactions are of some that were begun, and not of instances, of which there is one for each producer."""
        rng = random.Random(f"{self._seed} {table} {attempt}")
        cells, there = self._cell_of[table], np.ones(self.rows(table), dtype=bool)
        if table == "transactions":
            there = self._tables[table]["transaction"] != NONE
        chosen = []
        for cell in np.unique(cells[there]).tolist():
            mine = np.flatnonzero(there & (cells == cell)).tolist()
            chosen += rng.sample(mine, min(ROWS_AT_ONCE, len(mine)))
        return chosen

    def became(self, table: str, column: str, way: str, attempt: int) -> Mapping[str, set[str]]:
        """Returns what became of the cells of each workload, as `_outcome` says. Empty: there was nothing to change."""
        rows = self.rows_to_change(table, attempt)
        columns = changed(table, self._tables[table], column, rows, way)
        found: dict[str, set[str]] = {}
        if columns is None:
            return found
        touched = set(self._cell_of[table][rows].tolist())
        cells = [
            cell for cell in self.plan.cells if cell.cell in self.held and (cell.cell in touched or NONE in touched)
        ]
        self._write(table, columns)
        try:
            verdict = self._judged()
        except ProzessError:
            return {cell.workload: {REFUSED} for cell in cells}
        except Exception:  # noqa: BLE001 - a crash is an outcome, too
            _log.exception("%s of %s (%s, attempt %s) crashed", way, column, table, attempt)
            return {cell.workload: {FAILED} for cell in cells}
        finally:
            self._write(table, self._tables[table])
        for cell in cells:
            outcome = _outcome(verdict.cells[cell.cell], verdict, self.clean)
            found.setdefault(cell.workload, set()).add(outcome)
        return found

    def _judged(self) -> TrialVerdict:
        findings = check_run(self.run, CheckOptions(engine="local", workers=1), WHOLE_HISTORY)
        return judge_run(self.run, findings, WHOLE_HISTORY)

    def _write(self, table: str, columns: Mapping[str, np.ndarray]) -> None:
        with TableWriter(self.run, TABLES[table], start_ns=self._start_ns[table]) as writer:
            for rows in _parts(table, columns):
                writer.write({name: values[rows] for name, values in columns.items()})


def _parts(table: str, columns: Mapping[str, np.ndarray]) -> Iterator[slice]:
    """Yields the rows of each partition of a clustered table, or all rows."""
    if not TABLES[table].partitioned:
        yield slice(None)
        return
    partition = columns["partition"]
    bounds = [0, *(np.flatnonzero(partition[1:] != partition[:-1]) + 1).tolist(), len(partition)]
    yield from (slice(low, high) for low, high in pairwise(bounds))


def _outcome(cell: CellVerdict, verdict: TrialVerdict, clean: TrialVerdict) -> str:
    """Returns what became of a cell that was held; if it is violated, by what. A trial that becomes unknown as a whole is so
    in each cell."""
    wrong = {name for name, of in cell.anomalies.items() if of.outcome is AnomalyOutcome.VIOLATED}
    contradicted = any(CONTRADICTION.lower() in why.lower() for why in verdict.unknown_reasons)
    if not contradicted and any(" failed: " in of.why for of in cell.anomalies.values()):
        return FAILED
    if wrong:
        return f"{VIOLATED}: {', '.join(sorted(wrong))}"
    doubted = {name for name, of in cell.anomalies.items() if of.outcome is AnomalyOutcome.UNKNOWN}
    before = clean.cells[cell.cell].anomalies.items()
    doubted -= {name for name, of in before if of.outcome is AnomalyOutcome.UNKNOWN}
    whole = verdict.verdict is Verdict.UNKNOWN and not set(verdict.unknown_reasons) <= set(clean.unknown_reasons)
    return UNKNOWN if doubted or whole else HELD
