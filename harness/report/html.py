"""report.html: one file that opens offline. What the page shows at once is in its text; the rest is data for its scripts."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from harness.guarantees.table import TABLE
from harness.history import History
from harness.impact_summary import ImpactShown
from harness.metric_series import MetricTable
from harness.plan import Plan
from harness.report.delivery import Deliveries, deliveries, windows_words, worst_words
from harness.report.delivery_charts import delivery_panels
from harness.report.hanging import LEGEND, read_hanging
from harness.report.impact import HEADINGS, impact_rows, impact_words, read_impact
from harness.report.metric_lines import monitor_panels
from harness.report.overview import overview
from harness.report.page import REPORT_SCRIPTS, REPORT_STYLES, assets, embedded_json, environment, security_policy
from harness.report.panels import figure
from harness.report.plain import plain_tables
from harness.report.seen import FOLDED_FROM, TABLES_EACH, has_section, rows_each, seen_groups, tallies
from harness.report.stories import Teller, tell_stories
from harness.report.timeline import timeline_panels
from harness.report.traffic import ROWS_AT_A_TIME, Traffic, make_traffic, sends_in_parts, span_of_sends
from harness.report.words import MEANINGS, SIGNS, VERDICT_SIGNS, anomalies_of, kafka_told, matrices, reproduce, short
from harness.run_directory import RunDirectory, read_json
from harness.schema import Outcome
from harness.verdict import AnomalyOutcome, TrialVerdict


def write_html(
    run: RunDirectory, plan: Plan, verdict: TrialVerdict, seconds: Mapping[str, float], history: History
) -> Path:
    """Write report.html; returns its path."""
    tables = matrices(verdict.cells)
    impact, traffic = read_impact(run), _traffic(plan, history)
    delivered, seen = deliveries(run, plan, verdict), seen_groups(verdict)
    pairs = [pair for group in seen for pair in group.pairs]
    teller = Teller(history, verdict.faults)
    outcomes = traffic.outcomes if traffic else np.zeros((len(plan.partitions), len(Outcome)), dtype=np.int64)
    data = overview(plan, verdict, tables, history, outcomes, impact)
    data["figures"] = _figures(run, plan, verdict, history, traffic, impact, delivered)
    script = f'"use strict";\n{assets(REPORT_SCRIPTS)}'
    text = environment("harness.report").get_template("report.html.j2").render(
        _words(tables),
        verdict=verdict,
        plan=plan,
        matrices=tables,
        filters=_filters(tables),
        seen=seen,
        stories=tell_stories(pairs, teller),
        rows_each=rows_each(sum(min(len(group.pairs), TABLES_EACH) for group in seen)),
        tables_each=TABLES_EACH,
        folded_from=FOLDED_FROM,
        client=teller.name,
        rows={"sends": history.rows("sends"), "reads": history.rows("reads")},
        excluded=Counter(exclusion.reason for exclusion in plan.excluded),
        reasons=_reasons(verdict),
        tallies=tallies(verdict),
        delivered=delivered,
        impact=impact,
        hanging=read_hanging(run),
        hanging_legend=LEGEND,
        reproduce=reproduce(run),
        kafka=kafka_told(run, plan),
        seconds_by_part=seconds,
        data=data,
        plain=plain_tables(data),
        embedded=embedded_json(data),
        script=Markup(script),
        policy=security_policy(script),
        style=Markup(assets(REPORT_STYLES)),
    )  # fmt: skip
    path = run.path / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def _words(tables: Sequence[Any]) -> dict[str, Any]:
    """What templates call."""
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
        "short": short,
        "breakable": _breakable,
        "css": lambda text: str(text).replace(" ", "-"),
        "seconds": lambda value: "never" if value is None else f"{value:.3f}",
        "cell_label": lambda cell: labels[cell.cell] or cell.name,
        "has_section": has_section,
        "promise": lambda anomaly: TABLE[anomaly].promise if anomaly in TABLE else "",
    }


def _breakable(text: str) -> Markup:
    """A heading that may break after dots and hyphens, so that narrow columns keep narrow."""
    return Markup("<wbr>").join(Markup.escape(part) for part in re.split(r"(?<=[.-])", text))


def _filters(tables: Sequence[Any]) -> dict[str, list[str]]:
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


def _traffic(plan: Plan, history: History) -> Traffic | None:
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
    traffic: Traffic | None,
    impact: ImpactShown | None,
    delivered: Sequence[Deliveries],
) -> list[Mapping[str, Any]]:
    """What clients and replicas did, with what metrics and alerts said; and a figure for each kind of delivery bound."""
    if traffic is None:
        return []
    begin_s, end_s = float(traffic.edges_s[0]), float(traffic.edges_s[-1])
    whole = history.rows("sends") <= ROWS_AT_A_TIME
    sends = history.files["sends"].read(("completed_ns", "outcome")) if whole else None
    table = MetricTable(history.table("metrics"), _texts(run, "metric"), sends)
    panels = timeline_panels(plan, traffic, history.table("metadata"), impact)
    panels += monitor_panels(table, verdict.alerts, plan.variant.server_names(), end_s)
    return [figure(panels, begin_s, end_s), *(figure(each, begin_s, end_s) for each in delivery_panels(delivered))]


def _texts(run: RunDirectory, dictionary: str) -> Sequence[str]:
    found: Mapping[str, Sequence[str]] = read_json(run.dictionaries) if run.dictionaries.exists() else {}
    return found.get(dictionary, ())
