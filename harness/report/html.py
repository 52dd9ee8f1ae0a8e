"""Writes report.html: one file that opens offline, with its styles and scripts inside.

What the page shows at once is in its text; the rest is data for its scripts. Pages of other modules share the templates,
styles and scripts.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.table import TABLE
from prozess.harness.history.convert import History
from prozess.harness.history.versions import concurrent_runs_note, machine_of, unverified
from prozess.harness.impact.cost import ImpactShown
from prozess.harness.plan.plan import Plan
from prozess.harness.printable import number_of, printable
from prozess.harness.recording.codes import read_texts
from prozess.harness.recording.metric_series import MetricTable
from prozess.harness.report.charts import (
    ROWS_AT_A_TIME,
    SendTraffic,
    delivery_panels,
    figure,
    make_traffic,
    monitor_panels,
    of_partitions,
    partition_name,
    sends_in_parts,
    span_of_sends,
    timeline_panels,
)
from prozess.harness.report.server_complaints import SHOWN_MAX, ServerComplaints
from prozess.harness.report.server_logs import ServerLogs, TrialTime
from prozess.harness.report.stories import StoryWriter, application_stories, write_stories
from prozess.harness.report.tables import (
    HEADINGS,
    LEGEND,
    Deliveries,
    deliveries,
    impact_rows,
    impact_words,
    read_hanging,
    read_impact,
    rows_of_fault,
    windows_words,
    worst_words,
)
from prozess.harness.report.words import (
    EXPECTED,
    FOLDED_FROM,
    MEANINGS,
    REACHED,
    SIGNS,
    TABLES_EACH,
    VERDICT_MEANINGS,
    VERDICT_SIGNS,
    CellMatrix,
    anomalies_of,
    cells_line,
    clients_on_trial,
    css_class,
    fault_name,
    has_section,
    kafka_description,
    matrices,
    not_judged_lines,
    reproduce,
    rows_each,
    seen_groups,
    short,
    tallies,
    verdict_words,
)
from prozess.harness.run_directory import RunDirectory, seconds_in_all, write_whole
from prozess.harness.schema import MISSING, NONE, Outcome
from prozess.harness.verdict import AnomalyOutcome, CellVerdict, FaultShown, TrialVerdict

BASE_STYLES = ("base.css",)
REPORT_STYLES = (*BASE_STYLES, "report.css")
REPORT_SCRIPTS = ("page.js", "chart.js", "timeline.js", "matrix.js", "details.js", "stories.js", "main.js")
"""In the order in which they are run."""


def environment(package: str) -> Environment:
    """Returns the environment for the templates of a package; `style` is what all pages share."""
    made = Environment(loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    made.globals["style"] = Markup(assets(BASE_STYLES))
    made.globals["number_of"] = number_of
    return made


@cache
def assets(names: Sequence[str]) -> str:
    """Returns the texts of these files, one after the other."""
    folder = files("prozess.harness.report") / "assets"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def embedded_json(value: Mapping[str, Any]) -> Markup:
    """JSON that may stand in a script element: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def security_policy(script: str) -> str:
    """Only this script runs, and nothing is loaded, whatever the texts of a history are."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"


def write_html(
    run: RunDirectory,
    plan: Plan,
    verdict: TrialVerdict,
    seconds: Mapping[str, float],
    history: History,
    complaints: ServerComplaints,
    *,
    counted: bool = True,
) -> Path:
    """Writes report.html; returns its path. `counted`: false where the history is damaged, and its records are not
    counted."""
    tables = matrices(verdict.cells)
    impact, traffic = read_impact(run), _traffic(plan, history)
    delivered, seen = deliveries(run, plan, verdict), seen_groups(verdict)
    pairs = [pair for group in seen for pair in group.pairs]
    writer = StoryWriter(history, verdict.faults, ServerLogs(run, plan.server_names.values()))
    time = TrialTime.of(run)
    outcomes = traffic.outcomes if traffic else np.zeros((len(plan.partitions), len(Outcome)), dtype=np.int64)
    data = overview(plan, verdict, tables, history, outcomes, impact)
    data["wall"] = None if time is None else round(time.began.timestamp() * 1000)
    data["figures"] = _figures(run, plan, verdict, history, traffic, impact, delivered)
    script = f'"use strict";\n{assets(REPORT_SCRIPTS)}'
    text = environment("prozess.harness.report").get_template("report.html.j2").render(
        _words(tables),
        verdict=verdict,
        plan=plan,
        matrices=tables,
        filters=_filters(tables),
        seen=seen,
        stories=write_stories(pairs, writer),
        application=verdict.application,
        application_stories=application_stories(verdict.application, writer),
        rows_each=rows_each(sum(min(len(group.pairs), TABLES_EACH) for group in seen)),
        tables_each=TABLES_EACH,
        folded_from=FOLDED_FROM,
        client=writer.name,
        rows={"sends": history.rows("sends"), "reads": history.rows("reads")} if counted else None,
        excluded=Counter(exclusion.reason for exclusion in plan.excluded),
        reasons=_reasons(verdict),
        not_judged=not_judged_lines(verdict),
        tallies=tallies(verdict),
        delivered=delivered,
        complaints=complaints.unusual[:SHOWN_MAX],
        more_complaints=max(0, len(complaints.unusual) - SHOWN_MAX),
        impact=impact,
        hanging=read_hanging(run),
        hanging_legend=LEGEND,
        reproduce=reproduce(run),
        kafka=kafka_description(run, plan),
        began=None if time is None else time.began.strftime("%Y-%m-%d %H:%M:%S UTC"),
        wall="".format if time is None else time.brief,
        host=str(machine_of(run).get("host", "")),
        beside=concurrent_runs_note(run),
        headlines=[group for group in seen if group.pairs],
        clients=clients_on_trial(plan),
        unverified=unverified(run),
        seconds_by_part=seconds,
        took_s=seconds_in_all(seconds),
        data=data,
        plain=plain_tables(data),
        embedded=embedded_json(data),
        script=Markup(script),
        policy=security_policy(script),
        style=Markup(assets(REPORT_STYLES)),
    )  # fmt: skip
    path = run.path / "report.html"
    write_whole(path, printable(text))
    return path


def _words(tables: Sequence[CellMatrix[CellVerdict]]) -> dict[str, Any]:
    """Returns what templates call."""
    labels = {cell.cell: matrix.label(cell) for matrix in tables for cell in matrix.cells}
    return {
        "anomalies_of": anomalies_of,
        "impact_headings": HEADINGS,
        "impact_rows": impact_rows,
        "impact_words": impact_words,
        "windows_words": windows_words,
        "worst_words": worst_words,
        "milliseconds": lambda value: "–" if value is None else f"{value:,.0f}",
        "signs": SIGNS,
        "meanings": MEANINGS,
        "verdict_signs": VERDICT_SIGNS,
        "verdict_words": verdict_words,
        "reached": REACHED,
        "short": short,
        "breakable": _breakable,
        "cells_line": cells_line,
        "css": css_class,
        "expected": EXPECTED,
        "verdict_meanings": VERDICT_MEANINGS,
        "seconds": lambda value: "never" if value is None else f"{value:.3f}",
        "cell_label": lambda cell: labels[cell.cell] or cell.name,
        "has_section": has_section,
        "promise": lambda anomaly: TABLE[anomaly].promise if anomaly in TABLE else "",
        "meaning": lambda anomaly: TABLE[anomaly].meaning_in_full if anomaly in TABLE else "",
    }


def _breakable(text: str) -> Markup:
    """A heading that may break after dots and hyphens, so that narrow columns keep narrow."""
    return Markup("<wbr>").join(Markup.escape(part) for part in re.split(r"(?<=[.-])", text))


def _filters(tables: Sequence[CellMatrix[CellVerdict]]) -> dict[str, list[str]]:
    """Axis → its values, of all tables in which it varies."""
    found: dict[str, dict[str, None]] = {}
    for matrix in tables:
        for axis in matrix.axes:
            found.setdefault(axis, {}).update(dict.fromkeys(cell.axes[axis] for cell in matrix.cells))
    return {axis: list(values) for axis, values in found.items()}


def _reasons(verdict: TrialVerdict) -> list[tuple[str, AnomalyOutcome, str, str, int]]:
    """(anomaly, outcome, reason, source, cells) of what has no section of its own, the most cells first."""
    counted = Counter(
        (a.anomaly, a.outcome, a.reason, a.source)
        for cell in verdict.cells
        for a in cell.anomalies.values()
        if a.reason and not has_section(a)
    )
    return [(*key, count) for key, count in counted.most_common()]


def _traffic(plan: Plan, history: History) -> SendTraffic | None:
    span_s = span_of_sends(history)
    if span_s is None:
        return None
    acks = [plan.cells[planned.cell].producer.acks for planned in plan.partitions]
    return make_traffic(sends_in_parts(history), acks, span_s)


def _figures(
    run: RunDirectory,
    plan: Plan,
    verdict: TrialVerdict,
    history: History,
    traffic: SendTraffic | None,
    impact: ImpactShown | None,
    delivered: Sequence[Deliveries],
) -> list[Mapping[str, Any]]:
    """Returns what clients and replicas did, with what metrics and alerts stated; and a figure for each kind of delivery
    bound."""
    if traffic is None:
        return []
    begin_s, end_s = float(traffic.edges_s[0]), float(traffic.edges_s[-1])
    whole = history.rows("sends") <= ROWS_AT_A_TIME
    sends = history.files["sends"].read(("completed_ns", "outcome")) if whole else None
    table = MetricTable(history.table("metrics"), read_texts(run.dictionaries).get("metric", []), sends)
    panels = timeline_panels(plan, traffic, history.table("metadata"), impact)
    panels += monitor_panels(table, verdict.alerts, plan.server_names, end_s)
    return [figure(panels, begin_s, end_s), *(figure(each, begin_s, end_s) for each in delivery_panels(delivered))]


# The data of report.html: cells, partitions, clients and faults as columns, shown on demand. Judges nothing.


CHANGES_MAX = 20_000
"""For leaders and ISR that the page holds, the earliest; the history has all."""
NEAR_MAX = 30
"""At most this many anomalies are named with a fault."""


@dataclass(slots=True)
class Texts:
    """Texts by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Returns the number of a text, a new one if need be."""
        return self.numbers.setdefault(text, len(self.numbers))


def overview(
    plan: Plan,
    verdict: TrialVerdict,
    tables: Sequence[CellMatrix[CellVerdict]],
    history: History,
    outcomes: np.ndarray,
    impact: ImpactShown | None,
) -> dict[str, Any]:
    """Returns the data for `page.js`. `outcomes`: as `Traffic` has them."""
    texts, names = Texts(), Texts()
    cells = [
        _cell(cell, kind, matrix.label(cell), texts, names)
        for kind, matrix in enumerate(tables)
        for cell in matrix.cells
    ]
    return {
        "signs": {str(word): sign for word, sign in (SIGNS | VERDICT_SIGNS).items()},
        "outcomes": [str(outcome) for outcome in AnomalyOutcome],
        "kinds": [{"workload": m.workload, "axes": list(m.cells[0].axes)} for m in tables],
        "cells": cells,
        "texts": list(texts.numbers),
        "anomalies": list(names.numbers),
        "partitions": _partitions(plan, history, outcomes),
        "changes": _changes(history.table("metadata")),
        "windows": _windows(impact),
        "clients": _clients(plan, history),
        "faults": _faults(plan, verdict.faults, impact),
        "costs": HEADINGS[1:],
        "near": _near(verdict),
    }


def _cell(cell: CellVerdict, kind: int, label: str, texts: Texts, names: Texts) -> list[Any]:
    order = list(AnomalyOutcome)
    judged: list[int] = []
    for anomaly in cell.anomalies.values():
        fields = (names.number(anomaly.anomaly), order.index(anomaly.outcome), anomaly.seen)
        judged += [*fields, texts.number(anomaly.reason), texts.number(anomaly.source), int(has_section(anomaly))]
    return [cell.cell, kind, str(cell.verdict), cell.name, label, [texts.number(v) for v in cell.axes.values()], judged]


def _partitions(plan: Plan, history: History, outcomes: np.ndarray) -> dict[str, list[Any]]:
    numbers = range(len(plan.partitions))
    return {
        "name": [partition_name(plan, number) for number in numbers],
        "cell": [planned.cell for planned in plan.partitions],
        "replicas": [" ".join(map(str, planned.assignment)) for planned in plan.partitions],
        "sent": outcomes.sum(axis=1).tolist(),
        "ok": outcomes[:, Outcome.OK].tolist(),
        "unknown": outcomes[:, Outcome.INFO].tolist(),
        "refused": outcomes[:, Outcome.FAIL].tolist(),
        "read": [history.files["reads"].rows_of(number) for number in numbers],
    }


def _changes(metadata: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Returns the changes of leaders and ISR, by the controllers' log."""
    rows = np.flatnonzero(of_partitions(metadata))
    rows = rows[np.argsort(metadata["time_ns"][rows], kind="stable")][:CHANGES_MAX]
    return {
        "partition": metadata["partition"][rows].tolist(),
        "at": np.round(metadata["time_ns"][rows] / NS_PER_S, 3).tolist(),
        "leader": metadata["leader"][rows].tolist(),
        "epoch": metadata["leader_epoch"][rows].tolist(),
        "isr": metadata["isr"][rows].tolist(),
        "whole": (metadata["isr"][rows] == metadata["replicas"][rows]).astype(int).tolist(),
    }


def _windows(impact: ImpactShown | None) -> dict[str, list[Any]]:
    windows = impact.windows if impact else ()
    return {
        "partition": [window.partition for window in windows],
        "begin": [round(window.begin_s, 3) for window in windows],
        "end": [None if window.end_s is None else round(window.end_s, 3) for window in windows],
        "fault": [window.fault for window in windows],
    }


def _clients(plan: Plan, history: History) -> dict[str, list[Any]]:
    """Planned clients, and those that took their place."""
    table = history.table("clients")
    values = {name: table[name].tolist() for name in ("client", "planned", "started_ns", "ended_ns", "exit_code")}
    rows = {client: index for index, client in enumerate(values["client"])}
    planned = {client.client: client for client in plan.clients}
    later = zip(values["client"], values["planned"], strict=True)
    stood_in = {c: planned[of] for c, of in later if c not in planned and of in planned}
    cells = {c: sorted({plan.partitions[p].cell for p in of.partitions}) for c, of in planned.items()}
    columns: dict[str, list[Any]] = {name: [] for name in ("name", "role", "cells", "started", "ended", "exit")}
    for number, client in (planned | stood_in).items():
        index = rows.get(number)
        again = f"{client.name}, started again as {number}" if number in stood_in else f"{client.name} ({number})"
        row = (again, client.role, cells[client.client], *_life(values, index))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def _life(values: Mapping[str, list[int]], row: int | None) -> tuple[float | None, float | None, str]:
    """Returns when a client started and ended, and how."""
    if row is None:
        return None, None, "left no record"
    started, ended, code = (values[name][row] for name in ("started_ns", "ended_ns", "exit_code"))
    how = "clean" if code == 0 else "not known" if code == NONE else f"signal {-code}" if code < 0 else f"status {code}"
    return _seconds(started), _seconds(ended), how


def _seconds(time_ns: int) -> float | None:
    return None if time_ns == MISSING else round(time_ns / NS_PER_S, 3)


def _faults(plan: Plan, faults: Sequence[FaultShown], impact: ImpactShown | None) -> list[dict[str, Any]]:
    costs = {fault.fault: [row[1:] for row in rows_of_fault(fault)] for fault in impact.faults} if impact else {}
    return [
        {
            "number": fault.number,
            "name": fault_name(fault, plan.steps),
            "step": fault.step,
            "nodes": fault.nodes,
            "begin": round(fault.begin_s, 3),
            "end": None if fault.end_s is None else round(fault.end_s, 3),
            "effective": fault.effective,
            "detail": fault.detail,
            "cost": costs.get(fault.number, []),
        }
        for fault in faults
    ]


def _near(verdict: TrialVerdict) -> dict[str, list[tuple[int, str]]]:
    """Step → (cell, anomaly) of those whose witnesses name it, the worst first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for cell, anomaly in (pair for group in seen_groups(verdict) for pair in group.pairs):
        for step in {step for witness in anomaly.witnesses for step in witness.faults}:
            named = found.setdefault(step, [])
            if len(named) < NEAR_MAX:
                named.append((cell.cell, anomaly.anomaly))
    return found


# The page's data as tables of texts, for readers without scripts: the timeline coarsely, partitions, clients.


ROWS_MAX = 60


@dataclass(frozen=True, slots=True)
class PlainTable:
    """Describes one table of the page without scripts: its title, its headings and its rows, all as texts."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def plain_tables(data: Mapping[str, Any]) -> list[PlainTable]:
    """Returns tables of what `overview` and the figures hold."""
    tables = [_timeline(figure, data["faults"]) for figure in data["figures"]]
    partitions, clients = data["partitions"], data["clients"]
    return [
        *tables,
        _columns("Partitions", partitions, ("name", "cell", "replicas", "sent", "ok", "unknown", "refused", "read")),
        _columns("Clients", clients, ("name", "role", "started", "ended", "exit")),
    ]


def _columns(title: str, columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> PlainTable:
    rows = zip(*(columns[name] for name in names), strict=True)
    return PlainTable(title, names, [["" if value is None else str(value) for value in row] for row in rows])


def _timeline(figure: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Every line at a few moments, with the faults that were active."""
    lines = [(panel, series) for panel in figure["panels"] if panel["kind"] != "lanes" for series in panel["series"]]
    moments = np.linspace(figure["begin"], figure["end"], ROWS_MAX + 1)[:-1]
    indices = {id(panel): np.searchsorted(panel["at"], moments, side="right") - 1 for panel, _ in lines}
    rows = []
    for number, at_s in enumerate(moments.tolist()):
        active = [f["name"] for f in faults if f["begin"] <= at_s and (f["end"] is None or f["end"] >= at_s)]
        values = (
            (series["y"][index] if (index := int(indices[id(panel)][number])) >= 0 else None) for panel, series in lines
        )
        rows.append([f"{at_s:.2f}", ", ".join(active), *("" if value is None else str(value) for value in values)])
    headings = ["s", "faults", *(f"{panel['title']}: {series['name']}" for panel, series in lines)]
    return PlainTable("The timeline in numbers", headings, rows)
