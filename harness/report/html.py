"""report.html: one file that opens offline: sentence, controls, matrix, timeline with fault bands, witnesses."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.history import History
from harness.metric_series import MetricTable
from harness.plan import Plan
from harness.report.charts import draw_monitor, draw_timeline
from harness.report.delivery import Deliveries, deliveries, windows_words, worst_words
from harness.report.delivery_charts import delivery_panels
from harness.report.impact import HEADINGS, impact_rows, impact_words, read_impact
from harness.report.metric_charts import monitor_charts
from harness.report.metric_lines import make_monitor
from harness.report.timeline import fault_bands, make_timeline
from harness.report.words import MEANINGS, SIGNS, VERDICT_SIGNS, anomalies_of, matrices, reproduce, short
from harness.run_directory import RunDirectory, read_json
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict

_WORST_FIRST = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.SHOWN)
_SEND_COLUMNS = ("invoked_ns", "completed_ns", "outcome", "partition")


def write_html(
    run: RunDirectory, plan: Plan, verdict: TrialVerdict, seconds: Mapping[str, float], history: History
) -> Path:
    """Write report.html; returns its path."""
    environment = Environment(
        loader=PackageLoader("harness.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    tables = matrices(verdict.cells)
    labels = {cell.cell: matrix.label(cell) for matrix in tables for cell in matrix.cells}
    names = {client.client: client.name for client in plan.clients}
    delivered = deliveries(run, plan, verdict)
    text = environment.get_template("report.html.j2").render(
        verdict=verdict,
        plan=plan,
        matrices=tables,
        anomalies_of=anomalies_of,
        seen=_seen(verdict),
        rows={"sends": history.rows("sends"), "reads": history.rows("reads")},
        excluded=Counter(exclusion.reason for exclusion in plan.excluded),
        timeline_svgs=_timelines(run, plan, verdict, history),
        delivered=delivered,
        delivery_svgs=_delivery(delivered, verdict),
        impact=read_impact(run),
        impact_headings=HEADINGS,
        impact_rows=impact_rows,
        impact_words=impact_words,
        windows_words=windows_words,
        worst_words=worst_words,
        milliseconds=lambda value: "–" if value is None else f"{value:,.0f}",
        reproduce=reproduce(run),
        seconds_by_part=seconds,
        signs=SIGNS,
        meanings=MEANINGS,
        verdict_signs=VERDICT_SIGNS,
        short=short,
        breakable=_breakable,
        css=lambda text: str(text).replace(" ", "-"),
        client=lambda client: names.get(client, f"client {client}"),
        seconds=lambda value: "never" if value is None else f"{value:.3f}",
        cell_label=lambda cell: labels[cell.cell] or cell.name,
    )
    path = run.path / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def _breakable(text: str) -> Markup:
    """A heading that may break after dots and hyphens, so that narrow columns keep narrow."""
    return Markup("<wbr>").join(Markup.escape(part) for part in re.split(r"(?<=[.-])", text))


def _seen(verdict: TrialVerdict) -> list[tuple[CellVerdict, CellAnomaly]]:
    """What has something to show, worst first."""
    found = [
        (cell, anomaly)
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.outcome in _WORST_FIRST and (anomaly.witnesses or anomaly.count)
    ]
    return sorted(found, key=lambda pair: (_WORST_FIRST.index(pair[1].outcome), pair[0].cell))


def _timelines(run: RunDirectory, plan: Plan, verdict: TrialVerdict, history: History) -> list[str]:
    """One figure of what clients and replicas did, one of what metrics and alerts said."""
    sends = history.files["sends"].read(_SEND_COLUMNS)
    if not len(sends["partition"]):
        return ["<p>Nothing was sent.</p>"]
    timeline = make_timeline(plan, sends, history.table("metadata"))
    bands = fault_bands(verdict.faults, timeline.end_s)
    table = MetricTable(history.table("metrics"), _texts(run, "metric"), sends)
    panels = monitor_charts(make_monitor(table, verdict.alerts, plan.variant.server_names(), timeline.end_s))
    drawn = [draw_timeline(timeline, bands)]
    return [*drawn, draw_monitor(panels, bands, [timeline.begin_s, timeline.end_s])] if panels else drawn


def _delivery(found: Sequence[Deliveries], verdict: TrialVerdict) -> list[str]:
    """One figure for all cells whose windows have one length."""
    windows = [window for one in found for window in one.windows]
    if not windows:
        return []
    domain = [min(window.begin_s for window in windows), max(window.end_s for window in windows)]
    bands = fault_bands(verdict.faults, domain[1])
    return [draw_monitor(panels, bands, domain) for panels in delivery_panels(found)]


def _texts(run: RunDirectory, dictionary: str) -> Sequence[str]:
    found: Mapping[str, Sequence[str]] = read_json(run.dictionaries) if run.dictionaries.exists() else {}
    return found.get(dictionary, ())
