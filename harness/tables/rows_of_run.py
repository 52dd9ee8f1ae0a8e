"""One run directory becomes its rows of the tables over many runs.

A run directory is data, and somebody else may have sent it (`prozess.harness.tables.run_files`). Whatever is wrong with a
run, it has its row in `runs`, which says so; a table that rests on a damaged file has no rows of it.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa

from prozess.harness.checking.findings import findings_table, nested_table
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import Variant
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.readable import RunNames, readable, readable_columns
from prozess.harness.impact.cost import FaultImpact, RecoveryShown
from prozess.harness.plan.work import configurations_of
from prozess.harness.report.server_logs import TrialTime, complaints_in
from prozess.harness.result_tables import FINDINGS, WITNESSES, ResultTable
from prozess.harness.run_directory import RunDirectory, seconds_in_all
from prozess.harness.tables.definitions import (
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
from prozess.harness.tables.run_files import (
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
    files = RunFiles.of(run, name, address)
    # The row in `runs` is made last: it says what was wrong with the files that the other tables are made of.
    made = {table: _made(files, table) for table in sorted(wanted, key=lambda table: table == RUNS.name)}
    return {table: made[table] for table in wanted}


def _made(files: RunFiles, table: str) -> pa.Table:
    try:
        return _ROWS[table](files)
    except (pa.ArrowException, OverflowError, ValueError) as error:  # a number beyond 64 bits, or a year that is none
        if table == RUNS.name:
            files.trouble, files.contents, files.unreadable = {"its files": f"hold {first_problem(error)}"}, {}, True
            files.__dict__.update(plan=None, verdict=None, impact=None, wall_ns=None, began=None)
            return _runs(files)
        files.trouble[f"table {table}"], files.unreadable = f"cannot be made: {first_problem(error)}", True
        return RUN_TABLES[table].schema.empty_table()


def _rows(files: RunFiles, table: ManyRunsTable, rows: Iterable[Sequence[object]]) -> pa.Table:
    """Returns rows of a table: their own columns, behind those that every table has."""
    listed = list(rows)
    columns = zip(*listed, strict=True) if listed else [()] * len(table.own)
    made = [pa.array(values, column.type) for values, column in zip(columns, table.own, strict=True)]
    return _keyed(files, table, made, len(listed))


def _keyed(files: RunFiles, table: ManyRunsTable, own: Sequence[pa.Array], count: int) -> pa.Table:
    plan = files.plan
    keys = (
        *(files.id, plan and plan.trial, plan and plan.seed),
        *(plan and " and ".join(plan.variant.kafka_versions), files.day),
    )
    made = [pa.repeat(pa.scalar(value, key.type), count) for key, value in zip(KEYS, keys, strict=True)]
    return pa.table([*made, *own], schema=table.schema)


def _runs(files: RunFiles) -> pa.Table:
    plan, verdict, impact = files.plan, files.verdict, files.impact
    cluster, versions = files.object_in("cluster.json"), files.object_in("versions.json").get("prozess")
    parts_s, logs = _seconds(files.run), _server_logs(files.run)
    program = versions if isinstance(versions, dict) else {}
    memory = cluster.get("memory_pss_mib")
    began = files.began
    row = (
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
    return _rows(files, RUNS, [row])


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
    others: list[object] = [alert.verdict for alert in verdict.alerts]
    others += [anomaly.outcome for anomaly in verdict.application.anomalies] if verdict.application else []
    return bool(forbidden) and "violated" not in others and all(map(_of_known_defects, forbidden))


def _of_known_defects(of: OutcomeRead) -> bool:
    return 0 < of.forbidden == sum(of.known.values())


def _cells(files: RunFiles) -> pa.Table:
    plan, verdict = files.plan, files.verdict
    judged = {cell.cell: cell.verdict for cell in verdict.cells} if verdict else {}
    rows = [
        (
            cell.cell,
            cell.name,
            cell.workload,
            _believed(files, judged[cell.cell]) if cell.cell in judged else None,
            cell.topic_name,
            len(cell.partitions),
            list(cell.axes.items()),
            *_settings(plan.variant, cell),
        )
        for cell in (plan.cells if plan else ())
        if plan is not None
    ]
    return _rows(files, CELLS, rows)


def _settings(variant: Variant, cell: CellPlanned) -> Iterable[object]:
    """Yields the value of each setting, in the order of the columns; None where a scope does not apply to the cell."""
    there: list[Frozen | None] = [variant, cell.topic, cell.producer, cell.delivery_bound]
    there += configurations_of(cell.work)
    for model in SCOPES.values():
        own = next((value for value in there if isinstance(value, model)), None)
        for name in model.model_fields:
            if name not in UNPUBLISHED:
                yield None if own is None else _plain(getattr(own, name))


def _plain(value: object) -> object:
    match value:
        case dict():
            return [(str(key), str(of)) for key, of in value.items()]
        case tuple():
            return " ".join(map(str, value))
        case _:
            return value


def _outcomes(files: RunFiles) -> pa.Table:
    rows = [
        (
            *(cell.cell, cell.workload, of.anomaly, _believed(files, of.outcome), _believed(files, of.verdict)),
            *(of.count, of.forbidden, of.permitted, of.unknown, of.not_applicable, of.proven),
            *(_of_known_defects(of), of.defects, list(of.by_rule.items()), of.reason, of.why),
        )
        for cell in (files.verdict.cells if files.verdict else ())
        for of in cell.anomalies.values()
    ]
    return _rows(files, OUTCOMES, rows)


def _of_a_check(files: RunFiles, result: ResultTable) -> pa.Table:
    """Returns a table that a check wrote, in its readable form. No rows: it is not there, or damaged, which is noted."""
    path, table = f"findings/{result.name}.parquet", RUN_TABLES[result.name]
    if path not in files.contents or path in files.trouble:
        return table.schema.empty_table()
    try:
        found = findings_table(files.run) if result is FINDINGS else nested_table(files.run, result)
    except HistoryUnreadable as error:
        files.trouble[path], files.unreadable = f"is not of this version: {first_problem(error)}", True
        return table.schema.empty_table()
    planned = files.plan.partitions if files.plan else ()
    names = RunNames(files.wall_ns, {}, {p.partition: (p.topic_name, p.number) for p in planned})
    own = readable(found, readable_columns(result.columns, named=True), names)
    return _keyed(files, table, own.columns, own.num_rows)


def _impacts(files: RunFiles) -> pa.Table:
    return _rows(files, IMPACTS, map(_impact, files.impact.faults if files.impact else ()))


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


def _faults(files: RunFiles) -> pa.Table:
    rows = [
        (
            *(of.number, of.step, of.fault, of.nodes, of.begin_s, of.end_s, files.at(of.begin_s), files.at(of.end_s)),
            *(of.effective, of.detail),
        )
        for of in (files.verdict.faults if files.verdict else ())
    ]
    return _rows(files, FAULTS, rows)


def _controls(files: RunFiles) -> pa.Table:
    rows = [
        (of.anomaly, of.cells, of.fired_in, bool(of.fired_in), of.count, of.required)
        for of in (files.verdict.controls if files.verdict else ())
    ]
    return _rows(files, CONTROLS, rows)


def _server_logs(run: RunDirectory) -> list[Path]:
    """Returns the logs of servers, each of which is a file."""
    if run.logs.is_symlink() or not run.logs.is_dir():
        return []
    with os.scandir(run.logs) as found:
        names = [e.name for e in found if e.is_file(follow_symlinks=False) and e.name.endswith(".log")]
    return [run.logs / name for name in sorted(names) if _SERVERS.fullmatch(name.removesuffix(".log"))]


def _server_errors(files: RunFiles) -> pa.Table:
    if files.wall_ns is None:
        return SERVER_ERRORS.schema.empty_table()
    time = TrialTime(datetime.fromtimestamp(files.wall_ns / NS_PER_S, UTC))
    rows = [
        (path.stem, of.level, of.kind, of.count, of.first_s, of.last_s, files.at(of.first_s), of.example)
        for path in _server_logs(files.run)
        for of in complaints_in(path, time)
    ]
    return _rows(files, SERVER_ERRORS, rows)


_ROWS: dict[str, Callable[[RunFiles], pa.Table]] = {
    RUNS.name: _runs,
    CELLS.name: _cells,
    OUTCOMES.name: _outcomes,
    FINDINGS.name: partial(_of_a_check, result=FINDINGS),
    WITNESSES.name: partial(_of_a_check, result=WITNESSES),
    IMPACTS.name: _impacts,
    FAULTS.name: _faults,
    SERVER_ERRORS.name: _server_errors,
    CONTROLS.name: _controls,
}
