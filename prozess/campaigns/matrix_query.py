"""What all trials of a matrix say together, as a query on the tables over many runs (docs/run-tables.md): how often each
guarantee held with each setting, what was lost, what is unknown. A trial without a whole verdict is counted as such, and
never as held.

Nothing here loops over runs, cells or outcomes, but for the line that each trial has in the result: Arrow counts them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prozess.app.run_options import NO_SETTINGS
from prozess.app.run_tables import Read, by_run, opened_tables
from prozess.campaigns.campaign_plan import ALL_TRIALS, CampaignDirectory
from prozess.campaigns.engine import TrialAttempt
from prozess.campaigns.matrix_layout import read_matrix_file
from prozess.campaigns.matrix_results import (
    WORSE,
    WORTH_A_LOOK,
    CellTally,
    ConfigurationResult,
    MatrixTrialLine,
    Problem,
    Results,
    Tallies,
)
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.verdict import AnomalyOutcome, Verdict

_OUTCOMES = {str(outcome): outcome.name.lower() for outcome in WORSE if outcome is not AnomalyOutcome.NOT_JUDGED}
"""Outcome → the field of CellTally that counts it."""
_SUMS = (*_OUTCOMES.values(), "proven", "witnesses_permitted", "witnesses_forbidden")
_ROW_BITS = 40
"""A rank and a row in one number, the rank in front: the smallest is the first of the worst."""
_PROBLEMS = pa.array(["violated", "unknown"])
_READ = ("runs", "controls", "cells", "outcomes")
_LAST = 1 << 20
"""Where the axes of a trial stand: behind those of its cells."""


def read_results(
    directory: CampaignDirectory,
    location: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] = NO_SETTINGS,
) -> Results:
    """Reads the results of a matrix, or of one share of it. BadInput if the directory has none.

    `location`: where its runs are; None: in the directory. `master`: the Spark cluster whose workers read the runs, with
    the settings in `conf`.
    """
    begun, shard = read_matrix_file(directory.path), directory.begun().shard
    last = {attempt.job.number: attempt for attempt in directory.attempts()}
    planned = [MatrixTrialLine.model_validate(trial.model_dump()) for trial in begun.trials if shard.has(trial.number)]
    share = "" if shard == ALL_TRIALS else f" (share {shard.number} of {shard.of})"
    there = any(attempt.run is not None for attempt in last.values())
    tables: AbstractContextManager[Read] = nullcontext(_nothing)
    if there and (location is not None or directory.runs.is_dir()):
        tables = opened_tables([location or str(directory.runs)], together=_READ, master=master, conf=conf)
    with tables as read:
        lines, runs, notes = _lines(planned, last, read)
        return gather_results(begun.name, f"{begun.title}{share}", lines, runs, read, notes)


def _nothing(table: str, columns: Sequence[str]) -> pa.Table:
    return RUN_TABLES[table].schema.empty_table().select(list(columns))


def _lines(
    planned: Sequence[MatrixTrialLine], last: Mapping[int, TrialAttempt], read: Read
) -> tuple[list[MatrixTrialLine], dict[int, str], list[str]]:
    """Returns the line of each trial; number of the trial → id of its run, if it has a verdict; and what is wrong with the
    others."""
    runs = read("runs", ["name", "run", "state", "problem", "verdict", "sentence"]).to_pylist()
    by_name: dict[str, dict[str, Any]] = {run["name"]: run for run in runs}
    controls = by_run(read("controls", ["run", "anomaly", "fired"]))
    judged = read("cells", ["run", "verdict"])
    counted = judged.filter(judged["verdict"].is_valid()).group_by("run").aggregate([([], "count_all")])
    cells = dict(zip(counted["run"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    lines, ids, notes = [], {}, []
    for line in planned:
        attempt = last.get(line.number)
        if attempt is None:
            lines.append(line)
            continue
        update: dict[str, Any] = {
            "run": attempt.run, "took_s": attempt.took_s, "cpu_s": attempt.cpu_s, "sentence": attempt.reason
        }  # fmt: skip
        found = by_name.get(attempt.run or "")
        if attempt.run is None or attempt.verdict is None:
            notes.append(f"trial {line.number} has no verdict: {attempt.reason or 'it ended before it had one'}")
        elif found is None or found["state"] != "judged":
            why = "it is missing" if found is None else found["problem"]
            notes.append(
                f"trial {line.number}: the verdict of {attempt.run} cannot be read ({why}). Check the run again"
            )
        else:
            ids[line.number] = found["run"]
            own = controls[found["run"]]
            update |= {
                "verdict": Verdict(found["verdict"]),
                "sentence": found["sentence"],
                "cells": cells.get(found["run"], 0),
                "controls_fired": tuple(dict.fromkeys(c["anomaly"] for c in own if c["fired"])),
                "controls_silent": tuple(dict.fromkeys(c["anomaly"] for c in own if not c["fired"])),
            }
        lines.append(line.model_copy(update=update))
    return lines, ids, notes


def gather_results(
    name: str,
    title: str,
    lines: Sequence[MatrixTrialLine],
    runs: Mapping[int, str],
    read: Read,
    notes: Iterable[str] = (),
) -> Results:
    """Counts the outcomes of all trials. `runs`: number of a trial → id of its run, which has a verdict. `read`: reads the
    tables."""
    query = _MatrixQuery.of([line for line in lines if line.number in runs], runs, read, rows_of_trials=len(lines) > 1)
    return Results(
        name=name,
        title=title,
        planned=len(lines),
        trials=tuple(lines),
        guarantees=query.tallies(np.zeros(len(query.outcomes), np.int32)).get(0, {}),
        settings=query.settings(),
        configurations=tuple(query.configurations()),
        problems=tuple(
            sorted(query.problems(), key=lambda p: (p.outcome != AnomalyOutcome.VIOLATED, p.anomaly, p.trial))
        ),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _MatrixQuery:
    """The judged cells of all trials and their outcomes, in the order of the trials."""

    lines: Sequence[MatrixTrialLine]
    cells: pa.Table
    outcomes: pa.Table
    rows_of_trials: bool
    """Whether the trials differ in something."""

    @staticmethod
    def of(
        lines: Sequence[MatrixTrialLine], runs: Mapping[int, str], read: Read, *, rows_of_trials: bool
    ) -> "_MatrixQuery":
        order = pa.array([runs[line.number] for line in lines], pa.string())

        def ordered(table: pa.Table) -> pa.Table:
            """Returns the rows of these runs by trial, in each as they stand."""
            at = pc.index_in(table["run"], value_set=order)
            found = table.drop_columns("run").append_column("trial_at", at).filter(at.is_valid())
            return found.take(pc.sort_indices(found["trial_at"])).combine_chunks()

        cells = ordered(read("cells", ["run", "cell", "name", "workload", "verdict", "axes"]))
        outcomes = read(
            "outcomes",
            ["run", "cell", "anomaly", "outcome", "count", "proven", "permitted", "forbidden", "by_known_defects", "defects",
             "reason"],
        )  # fmt: skip
        outcomes = outcomes.filter(pc.not_equal(outcomes["outcome"], str(AnomalyOutcome.NOT_JUDGED)))
        # Sentences are most of the bytes, and only problems show theirs.
        shown = pc.if_else(pc.is_in(outcomes["outcome"], value_set=_PROBLEMS), outcomes["reason"], None)
        outcomes = ordered(outcomes.set_column(outcomes.schema.get_field_index("reason"), "reason", shown))
        cells = cells.filter(cells["verdict"].is_valid())
        where = pc.index_in(_cell_keys(outcomes), value_set=_cell_keys(cells))
        return _MatrixQuery(lines, cells, outcomes.append_column("cell_at", where).combine_chunks(), rows_of_trials)

    @cached_property
    def _cell_at(self) -> np.ndarray:
        """The row in `cells` of each outcome."""
        found: np.ndarray = self.outcomes["cell_at"].to_numpy()
        return found

    @cached_property
    def _counted(self) -> pa.Table:
        """The outcomes as numbers to add up, and the number of each row."""
        of, outcome = self.outcomes, self.outcomes["outcome"]
        rank = pc.index_in(outcome, value_set=pa.array(map(str, WORSE)))
        row = pa.array(np.arange(len(of)), pa.int64())
        first_worst = pc.bit_wise_or(pc.shift_left(rank.cast(pa.int64()), _ROW_BITS), row)
        is_held = pc.equal(outcome, "held")
        return pa.table(
            {field: pc.equal(outcome, name).cast(pa.int64()) for name, field in _OUTCOMES.items()}
            | {
                "proven": pc.and_(is_held, of["proven"].fill_null(False)).cast(pa.int64()),
                "witnesses_permitted": of["permitted"],
                "witnesses_forbidden": of["forbidden"],
                "anomaly": of["anomaly"],
                "row": row,
                "worst": first_worst,
                "look": pc.if_else(pc.less(rank, len(WORTH_A_LOOK)), row, None),
            }
        )

    def tallies(self, key: np.ndarray) -> dict[int, Tallies]:
        """Returns key → anomaly → tally, each in the order in which it was first seen. `key`: a number for each outcome."""
        return {of: dict(self._tallied(rows)) for of, rows in self._grouped(key).items()}

    def _grouped(self, key: np.ndarray) -> dict[int, list[dict[str, Any]]]:
        sums = [(name, "sum") for name in _SUMS]
        groups = (
            self._counted.append_column("key", pa.array(key))
            .group_by(["key", "anomaly"])
            .aggregate([*sums, ("row", "min"), ("worst", "min"), ("look", "min")])
            .sort_by("row_min")
        )
        defects = self._defects(key)
        found: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for group in groups.to_pylist():
            group["defects"] = defects.get((group["key"], group["anomaly"]), ())
            found[group["key"]].append(group)
        return found

    @staticmethod
    def _tallied(groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, CellTally]]:
        for group in groups:
            yield (
                group["anomaly"],
                CellTally(**{name: group[f"{name}_sum"] for name in _SUMS}, defects=group["defects"]),
            )

    def _defects(self, key: np.ndarray) -> dict[tuple[int, str], tuple[str, ...]]:
        """Returns (key, anomaly) → the known defects that are proven to have caused all that was forbidden in some cell."""
        proven = self.outcomes["by_known_defects"].fill_null(False)
        own = pa.table({name: self.outcomes[name] for name in ("anomaly", "defects")} | {"key": key}).filter(proven)
        found: dict[tuple[int, str], dict[str, None]] = defaultdict(dict)
        for row in own.to_pylist():
            found[row["key"], row["anomaly"]] |= dict.fromkeys(row["defects"])
        return {of: tuple(names) for of, names in found.items()}

    @cached_property
    def _axes(self) -> pa.Table:
        """The axes of cells in which those of their workload differ: a row per cell and axis, in the order of the plan."""
        long = axes_of(self.cells)
        long = long.append_column("workload", self.cells["workload"].take(long["cell_at"]))
        values = long.group_by(["workload", "axis"]).aggregate([("value", "count_distinct")])
        varying = values.filter(pc.greater(values["value_count_distinct"], 1))
        there = pc.index_in(_joined(long, "workload", "axis"), value_set=_joined(varying, "workload", "axis"))
        return long.filter(there.is_valid()).combine_chunks()

    @cached_property
    def _configuration(self) -> np.ndarray:
        """The configuration of each cell, by number, in the order in which they are first seen."""
        by_axis = self._axes.sort_by([("cell_at", "ascending"), ("axis", "ascending")]).combine_chunks()
        counts = np.bincount(by_axis["cell_at"].to_numpy(), minlength=len(self.cells))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        words = pa.ListArray.from_arrays(offsets, _joined(by_axis, "axis", "value").combine_chunks())
        settings = pc.binary_join(words, "\0")
        key = _joined(pa.table({"workload": self.cells["workload"], "settings": settings}), "workload", "settings")
        return _codes(key)

    def settings(self) -> dict[str, dict[str, Tallies]]:
        """Returns axis → value → tallies, for every axis that varies, of cells, cluster and schedule."""
        found: list[tuple[int, int, str, str, Tallies]] = []
        for axis, values, ranks in self._values_of_axes():
            encoded = pa.array(values, pa.string()).dictionary_encode()
            codes = encoded.indices.fill_null(-1).to_numpy()
            tallies = self.tallies(codes[self._cell_at])
            seen, at = np.unique(codes, return_index=True)
            firsts: dict[int, int] = dict(zip(seen.tolist(), at.tolist(), strict=True))
            for code, value in enumerate(encoded.dictionary.to_pylist()):
                found.append((firsts[code], int(ranks[firsts[code]]), axis, value, tallies.get(code, {})))
        by_axis: dict[str, dict[str, Tallies]] = {}
        for _, _, axis, value, own in sorted(found, key=lambda each: each[:2]):  # as they are first seen
            by_axis.setdefault(axis, {})[value] = own
        return by_axis

    def _values_of_axes(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yields each axis, its value in each cell (None: it does not vary there), and where it stands in the cell."""
        count, trial_at = len(self.cells), self.cells["trial_at"].to_numpy()
        yield "workload", self.cells["workload"].to_numpy(), np.zeros(count, np.int64)
        rows = [line.row if self.rows_of_trials else {} for line in self.lines]
        of_trials = dict.fromkeys(axis for row in rows for axis in row)
        for axis in self._axes["axis"].unique().to_pylist():
            own = self._axes.filter(pc.equal(self._axes["axis"], axis))
            values, ranks = np.full(count, None, object), np.zeros(count, np.int64)
            values[own["cell_at"].to_numpy()] = own["value"].to_numpy()
            ranks[own["cell_at"].to_numpy()] = own["rank"].to_numpy() + 1
            if axis not in of_trials:
                yield axis, values, ranks
        for rank, axis in enumerate(of_trials):
            values = np.array([row.get(axis) for row in rows], dtype=object)[trial_at]
            yield axis, values, np.full(count, _LAST + rank)

    def configurations(self) -> Iterator[ConfigurationResult]:
        """Yields each combination of settings, over all trials that had it."""
        number = self._configuration
        grouped = self._grouped(number[self._cell_at])
        _, firsts = np.unique(number, return_index=True)
        of_first = self.cells.take(pa.array(firsts))
        varying = self._axes.filter(pc.is_in(self._axes["cell_at"], value_set=pa.array(firsts)))
        axes: dict[int, dict[str, str]] = defaultdict(dict)
        for cell, axis, value in zip(
            *(varying[name].to_pylist() for name in ("cell_at", "axis", "value")), strict=True
        ):
            axes[cell][axis] = value
        for code, (first, workload) in enumerate(zip(firsts.tolist(), of_first["workload"].to_pylist(), strict=True)):
            groups = grouped.get(code, [])
            yield ConfigurationResult(
                workload=workload,
                axes=axes[first],
                tallies=dict(self._tallied(groups)),
                runs=dict(self._worst_runs(groups)),
            )

    def _worst_runs(self, groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """Yields each anomaly that was violated, unknown or seen, and the first run in which it was worst."""
        cells, trials = self._cell_at, self.cells["trial_at"]
        seen = [group for group in groups if group["look_min"] is not None]
        for group in sorted(seen, key=lambda group: int(group["look_min"])):
            row = group["worst_min"] % (1 << _ROW_BITS)
            run = self.lines[trials[int(cells[row])].as_py()].run
            assert run is not None
            yield group["anomaly"], run

    def problems(self) -> Iterator[Problem]:
        """Yields each violation, and what is unknown by its reason."""
        names, trial_at = self.cells["name"], self.cells["trial_at"]
        for outcome, described in ((AnomalyOutcome.VIOLATED, self._violated), (AnomalyOutcome.UNKNOWN, self._unknown)):
            own = self.outcomes.filter(pc.equal(self.outcomes["outcome"], str(outcome)))
            at = own["cell_at"]
            yield from described(own.append_column("name", names.take(at)).append_column("at", trial_at.take(at)))

    def _violated(self, rows: pa.Table) -> Iterator[Problem]:
        for row in rows.to_pylist():
            yield Problem(
                **self._where(row["at"]),
                cell=row["name"],
                anomaly=row["anomaly"],
                outcome=AnomalyOutcome.VIOLATED,
                count=row["forbidden"],
                reason=row["reason"],
                defects=tuple(row["defects"]) if row["by_known_defects"] else (),
            )

    def _unknown(self, rows: pa.Table) -> Iterator[Problem]:
        groups = rows.group_by(["at", "reason"], use_threads=False).aggregate(
            [("name", "first"), ("name", "count_distinct"), ("anomaly", "list"), ("count", "sum")]
        )
        for group in groups.to_pylist():
            yield Problem(
                **self._where(group["at"]),
                cell=group["name_first"],
                cells=group["name_count_distinct"],
                anomaly=", ".join(dict.fromkeys(group["anomaly_list"])),
                outcome=AnomalyOutcome.UNKNOWN,
                count=group["count_sum"],
                reason=group["reason"],
            )

    def _where(self, at: int) -> dict[str, Any]:
        return {"trial": self.lines[at].number, "run": self.lines[at].run}


def axes_of(cells: pa.Table) -> pa.Table:
    """Returns a row for each cell and axis, in the order of the cells: `cell_at` (int64), the row of the cell; `rank`
    (int64), where the axis stands in it; `axis` and `value` (text). `cells`: rows of the table `cells`, with their `axes`.

    Example: cells {a: 1, b: 2} and {a: 3} make (0, 0, a, 1), (0, 1, b, 2), (1, 0, a, 3).
    """
    axes = pa.concat_arrays(cells["axes"].chunks) if cells["axes"].num_chunks else pa.array([], cells["axes"].type)
    offsets = axes.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    cell_at = np.repeat(np.arange(len(lengths)), lengths)
    rank = np.arange(len(cell_at)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    own = slice(first, last)
    return pa.table({"cell_at": cell_at, "rank": rank, "axis": axes.keys[own], "value": axes.items[own]})


def _joined(table: pa.Table, *columns: str) -> pa.ChunkedArray:
    """Returns the texts of these columns as one text per row."""
    return pc.binary_join_element_wise(*(table[name] for name in columns), "\0")


def _cell_keys(table: pa.Table) -> pa.ChunkedArray:
    return pc.bit_wise_or(pc.shift_left(table["trial_at"].cast(pa.int64()), 32), table["cell"])


def _codes(texts: pa.ChunkedArray) -> np.ndarray:
    """Returns the number of each text, in the order in which they are first seen."""
    found: np.ndarray = pa.chunked_array(texts).combine_chunks().dictionary_encode().indices.to_numpy()
    return found
