"""One run directory becomes its rows of the tables over many runs.

A run directory is data, and somebody else may have sent it (`prozess.harness.run_tables.run_files`). Whatever is wrong with a
run, it has its row in `runs`, which says so; a table that rests on a damaged file has no rows of it.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from prozess.harness.checking.findings import findings_table, nested_table, schema_of
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import Variant
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.readable import RunNames, readable, readable_columns
from prozess.harness.impact.cost import FaultImpact, RecoveryShown
from prozess.harness.plan.cell_work import configurations_of
from prozess.harness.report.server_logs import TrialTime, complaints_in
from prozess.harness.result_tables import FINDINGS, WITNESSES, ResultTable
from prozess.harness.run_directory import RunDirectory, seconds_in_all
from prozess.harness.run_tables.definitions import (
    CELLS,
    CONTROLS,
    FAULTS,
    IMPACTS,
    KEYS,
    OUTCOMES,
    RECOVERIES,
    RUN_TABLES,
    RUNS,
    SCOPES,
    SERVER_ERRORS,
    UNPUBLISHED,
    ManyRunsTable,
)
from prozess.harness.run_tables.run_files import (
    CellPlanned,
    OutcomeRead,
    RunFiles,
    VerdictRead,
    first_problem,
    object_of,
    read_unlinked,
)
from prozess.harness.values import Frozen
from prozess.harness.verdict import AnomalyOutcome, Verdict

_SERVERS = re.compile(r"(?:broker|controller|zookeeper)-\d+")
"""The names of servers, after which their logs are named."""


def tables_of(
    run: RunDirectory, name: str, address: str, wanted: Collection[str] = tuple(RUN_TABLES)
) -> dict[str, pa.Table]:
    """Returns the rows of one run in these tables. `name` and `address`: those of the run's directory, wherever it was
    copied to. A run that is torn, damaged or of another version has its row in `runs`, and it raises nothing."""
    return tables_of_all([RunFiles.of(run, name, address)], wanted)


def tables_of_all(runs: Sequence[RunFiles], wanted: Collection[str]) -> dict[str, pa.Table]:
    """Returns the rows of several runs in these tables, in their order. Arrow makes each column once for all of them."""
    # The rows in `runs` are made last: they say what was wrong with the files that the other tables are made of.
    made = {table: _made(runs, table) for table in sorted(wanted, key=lambda table: table == RUNS.name)}
    return {table: made[table] for table in wanted}


_CANNOT = (pa.ArrowException, OverflowError, ValueError)
"""What a number beyond 64 bits, or a year that is none, raises."""


def _made(runs: Sequence[RunFiles], table: str) -> pa.Table:
    try:
        return _MAKERS[table](runs)
    except _CANNOT as error:
        if len(runs) > 1:  # one of them is odd: each by itself
            return pa.concat_tables([_made([files], table) for files in runs])
        (files,) = runs
        if table == RUNS.name:
            files.trouble, files.contents, files.unreadable = {"its files": f"hold {first_problem(error)}"}, {}, True
            files.__dict__.update(plan=None, verdict=None, impact=None, wall_ns=None, began=None)
            return _MAKERS[table](runs)
        files.trouble[f"table {table}"], files.unreadable = f"cannot be made: {first_problem(error)}", True
        return RUN_TABLES[table].schema.empty_table()


RowsOf = Callable[[RunFiles], Iterable[Sequence[object]]]
"""Gives the rows of one run in a table: its own columns, without those that every table has."""


def _of_rows(runs: Sequence[RunFiles], table: ManyRunsTable, rows_of: RowsOf) -> pa.Table:
    rows: list[Sequence[object]] = []
    counts = []
    for files in runs:
        before = len(rows)
        rows += rows_of(files)
        counts.append(len(rows) - before)
    columns = zip(*rows, strict=True) if rows else [()] * len(table.own)
    made = [pa.array(values, column.type) for values, column in zip(columns, table.own, strict=True)]
    return _keyed(runs, table, made, counts)


def _keyed(runs: Sequence[RunFiles], table: ManyRunsTable, own: Sequence[pa.Array], counts: Sequence[int]) -> pa.Table:
    keys = [
        (
            files.id,
            plan and plan.trial,
            plan and plan.seed,
            plan and " and ".join(plan.variant.kafka_versions),
            files.day,
        )
        for files in runs
        for plan in (files.plan,)
    ]
    at = pa.array(np.repeat(np.arange(len(runs)), counts))
    made = [pa.array(values, key.type).take(at) for values, key in zip(zip(*keys, strict=True), KEYS, strict=True)]
    return pa.table([*made, *own], schema=table.schema)


def _runs(files: RunFiles) -> Iterable[Sequence[object]]:
    plan, verdict, impact = files.plan, files.verdict, files.impact
    cluster, versions = files.object_in("cluster.json"), files.object_in("versions.json").get("prozess")
    parts_s, logs = _seconds(files.run), _server_logs(files.run)
    program = versions if isinstance(versions, dict) else {}
    memory = cluster.get("memory_pss_mib")
    began = files.began
    yield (
        files.state,
        files.problem,
        verdict and _believed(files, verdict.verdict),
        verdict and verdict.sentence,
        verdict and verdict.interrupted,
        verdict and files.state == "judged" and _by_known_defects(verdict),
        plan and plan.title,
        plan and plan.origin,
        plan and plan.backend,
        plan and len(plan.cells),
        None if verdict is None else [(name, n) for name, n in verdict.findings.items() if n],
        began,
        began and (began - timedelta(hours=12)).date(),
        seconds_in_all(parts_s) if parts_s else None,
        list(parts_s.items()) or None,
        float(memory) if isinstance(memory, int | float) else None,
        len(logs),
        files.name.encode(errors="replace").decode(),
        files.address.encode(errors="replace").decode(),
        str(program.get("commit") or program.get("version") or "") or None,
        plan and plan.scenarios,
        plan and plan.variant.metadata_mode,
        verdict and verdict.unknown_reasons,
        max((w.end_s - w.begin_s for w in impact.windows if w.end_s is not None), default=None) if impact else None,
        impact and impact.windows_open,
    )


def _seconds(run: RunDirectory) -> dict[str, float]:
    """Returns the seconds of each part of a run; empty if nobody noted them. No verdict rests on them."""
    with suppress(OSError, ValueError):
        found = object_of(read_unlinked(run.path, "seconds.json") or b"{}")
        return {part: float(took_s) for part, took_s in found.items()}
    return {}


def _believed(files: RunFiles, verdict: Verdict | AnomalyOutcome) -> str:
    """Returns a verdict or an outcome as far as the files prove it."""
    return str(verdict) if files.state == "judged" or verdict == "not judged" else str(Verdict.UNKNOWN)


def _by_known_defects(verdict: VerdictRead) -> bool:
    """Returns what `TrialVerdict.by_known_defects` does."""
    forbidden = [of for cell in verdict.cells for of in cell.anomalies.values() if of.verdict is Verdict.VIOLATED]
    others: list[object] = [verdict.server_errors, *(alert.verdict for alert in verdict.alerts)]
    others += [anomaly.outcome for anomaly in verdict.application.anomalies] if verdict.application else []
    return bool(forbidden) and "violated" not in others and all(map(_of_known_defects, forbidden))


def _of_known_defects(of: OutcomeRead) -> bool:
    return 0 < of.forbidden == sum(of.known.values())


def _cells(files: RunFiles) -> Iterable[Sequence[object]]:
    plan, verdict = files.plan, files.verdict
    if plan is None:
        return
    judged = {cell.cell: cell.verdict for cell in verdict.cells} if verdict else {}
    of_variant = [_plain(getattr(plan.variant, name)) for name in Variant.model_fields]
    for cell in plan.cells:
        yield (
            cell.cell,
            cell.name,
            cell.workload,
            _believed(files, judged[cell.cell]) if cell.cell in judged else None,
            cell.topic_name,
            len(cell.partitions),
            list(cell.axes.items()),
            *of_variant,
            *_settings(cell),
        )


_PUBLISHED = {
    model: tuple(name for name in model.model_fields if name not in UNPUBLISHED)
    for model in SCOPES.values()
    if model is not Variant
}
"""The settings of each scope but the cluster's, in the order of their columns."""


def _settings(cell: CellPlanned) -> Iterable[object]:
    """Yields the value of each setting but those of the cluster; None where a scope does not apply to the cell."""
    there: list[Frozen | None] = [cell.topic, cell.producer, cell.delivery_bound, *configurations_of(cell.work)]
    for model, names in _PUBLISHED.items():
        own = next((value for value in there if isinstance(value, model)), None)
        if own is None:
            yield from (None,) * len(names)
        else:
            yield from (_plain(getattr(own, name)) for name in names)


def _plain(value: object) -> object:
    match value:
        case dict():
            return [(str(key), str(of)) for key, of in value.items()]
        case tuple():
            return " ".join(map(str, value))
        case _:
            return value


def _outcomes(files: RunFiles) -> Iterable[Sequence[object]]:
    proven = files.state == "judged"
    for cell in files.verdict.cells if files.verdict else ():
        for of in cell.anomalies.values():
            outcome, verdict = str(of.outcome), str(of.verdict)
            if not proven:
                outcome, verdict = _believed(files, of.outcome), _believed(files, of.verdict)
            yield (
                *(cell.cell, cell.workload, of.anomaly, outcome, verdict),
                *(of.count, of.forbidden, of.permitted, of.unknown, of.not_applicable, of.proven),
                *(_of_known_defects(of), of.defects, list(of.by_rule.items()), of.reason, of.why),
            )


def _of_checks(runs: Sequence[RunFiles], result: ResultTable) -> pa.Table:
    """Returns a table that checks wrote, in its readable form. No rows of a run: it is not there, or damaged, which is noted.
    One pass makes the readable form of all runs: a partition is named by its run and its id together."""
    found = [_of_check(files, result) for files in runs]
    counts = [part.num_rows for part in found]
    raw = pa.concat_tables(found).combine_chunks()
    at = np.repeat(np.arange(len(runs), dtype=np.int64), counts)
    partitions = {
        (number << _PARTITION_BITS) + p.partition: (p.topic_name, p.number)
        for number, files in enumerate(runs)
        for p in (files.plan.partitions if files.plan and counts[number] else ())
    }
    columns = readable_columns(result.columns, named=True)
    if any(column.becomes == "topic" for column in columns):
        raw = raw.append_column(_KEY, pa.array((at << _PARTITION_BITS) + raw["partition"].to_numpy()))
        columns = tuple(replace(c, source=_KEY) if c.becomes == "topic" else c for c in columns)
    began = pa.array([files.wall_ns for files in runs], pa.int64()).take(pa.array(at))
    own = readable(raw, columns, RunNames(began, {}, partitions))
    return _keyed(runs, RUN_TABLES[result.name], own.columns, counts)


_KEY, _PARTITION_BITS = "run and partition", 32


def _of_check(files: RunFiles, result: ResultTable) -> pa.Table:
    path = f"findings/{result.name}.parquet"
    if path in files.contents and path not in files.trouble:
        try:
            return findings_table(files.run) if result is FINDINGS else nested_table(files.run, result)
        except HistoryUnreadable as error:
            files.trouble[path], files.unreadable = f"is not of this version: {first_problem(error)}", True
    return schema_of(result).empty_table()


def _impacts(files: RunFiles) -> Iterable[Sequence[object]]:
    return map(_impact, files.impact.faults if files.impact else ())


def _impact(of: FaultImpact) -> tuple[object, ...]:
    kind, _, target = of.name.partition(" ")
    reaction = of.reaction
    shown: Mapping[str, RecoveryShown] = {
        "after_fault": of.after_fault,
        "after_heal": of.after_heal,
        **({name: getattr(reaction, name) for name in list(RECOVERIES)[2:]} if reaction else {}),
    }
    seen = ("what", "effect", "seen"), ("apply_ms", "verify_ms", "undo_ms", "led", "copies", "isr_left")
    texts, numbers = (tuple(reaction and getattr(reaction, name) for name in names) for names in seen)
    recoveries = (
        (one.partitions, one.median_ms, one.slowest_ms, one.never) if (one := shown.get(name)) else (None,) * 4
        for name in RECOVERIES
    )  # fmt: skip
    return (
        *(of.fault, kind, target, *texts, of.unanswered, of.windows, of.open_windows, of.longest_s, *numbers),
        *(value for recovery in recoveries for value in recovery),
        [phase.model_dump() for phase in of.phases],
    )


def _faults(files: RunFiles) -> Iterable[Sequence[object]]:
    for of in files.verdict.faults if files.verdict else ():
        yield (
            *(of.number, of.step, of.fault, of.nodes, of.begin_s, of.end_s, files.at(of.begin_s), files.at(of.end_s)),
            *(of.effective, of.detail),
        )


def _controls(files: RunFiles) -> Iterable[Sequence[object]]:
    for of in files.verdict.controls if files.verdict and files.state == "judged" else ():
        yield of.anomaly, of.cells, of.fired_in, bool(of.fired_in), of.count, of.required


def _server_logs(run: RunDirectory) -> list[Path]:
    """Returns the logs of servers, each of which is a file."""
    if run.logs.is_symlink() or not run.logs.is_dir():
        return []
    with os.scandir(run.logs) as found:
        names = [e.name for e in found if e.is_file(follow_symlinks=False) and e.name.endswith(".log")]
    return [run.logs / name for name in sorted(names) if _SERVERS.fullmatch(name.removesuffix(".log"))]


def _server_errors(files: RunFiles) -> Iterable[Sequence[object]]:
    if files.wall_ns is None:
        return
    time = TrialTime(datetime.fromtimestamp(files.wall_ns / NS_PER_S, UTC))
    for path in _server_logs(files.run):
        for of in complaints_in(path, time):
            yield path.stem, of.level, of.kind, of.count, of.first_s, of.last_s, files.at(of.first_s), of.example


_ROWS: dict[str, RowsOf] = {
    RUNS.name: _runs,
    CELLS.name: _cells,
    OUTCOMES.name: _outcomes,
    IMPACTS.name: _impacts,
    FAULTS.name: _faults,
    SERVER_ERRORS.name: _server_errors,
    CONTROLS.name: _controls,
}
_MAKERS: dict[str, Callable[[Sequence[RunFiles]], pa.Table]] = {
    **{name: partial(_of_rows, table=RUN_TABLES[name], rows_of=rows_of) for name, rows_of in _ROWS.items()},
    **{result.name: partial(_of_checks, result=result) for result in (FINDINGS, WITNESSES)},
}
