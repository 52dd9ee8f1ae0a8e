"""The most telling metrics over time, and when alerts fired: series of the history in, small rows out. Pure.

Where what should have told is absent, a line is what the others say, and the absence is a bar of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.alert_rules import Rule
from harness.alerts import Truth, aggregate, evaluate_expression, intervals
from harness.metric_series import MetricTable, Series
from harness.report.panels import BINS_MAX, Lane, Lanes, Panel
from harness.report.panels import Series as Drawn
from harness.report.traffic import WARM_UP_S
from harness.verdict import AlertResult

STEP_S = 0.5
KINDS = ("fired", "may have fired", "tells nothing")
"""Of spans in lanes."""
Span = tuple[float, float, int]


@dataclass(frozen=True, slots=True)
class Line:
    """What one line shows: an aggregate over all series of a metric."""

    label: str
    metric: str
    aggregate: str
    rate: bool = False


PANELS: tuple[tuple[str, tuple[Line, ...]], ...] = (
    (
        "partitions, by metrics",
        (
            Line("under-replicated", "under_replicated_partitions", "sum"),
            Line("under min ISR", "under_min_isr_partitions", "sum"),
            Line("offline", "offline_partitions", "max"),
        ),
    ),
    (
        "per s",
        (
            Line("failed produce requests", "failed_produce_requests", "sum", rate=True),
            Line("record errors", "record_errors", "sum", rate=True),
            Line("requests sent again", "client_retries", "sum", rate=True),
        ),
    ),
    (
        "records per s",
        (
            Line("transmitted, retries included", "client_records_sent", "sum", rate=True),
            Line("acknowledged", "records_acknowledged", "sum", rate=True),
        ),
    ),
    (
        "Java clients, records per s",
        (
            Line("sent, retries included", "java_records_sent", "sum", rate=True),
            Line("sent again", "java_record_retries", "sum", rate=True),
            Line("ended in an error", "java_record_errors", "sum", rate=True),
        ),
    ),
    (
        "greatest lag, records",
        (
            Line("consumers", "consumer_lag", "max"),
            Line("replicas", "replica_max_lag", "max"),
            Line("last stable offset", "last_stable_offset_lag", "max"),
        ),
    ),
)


def monitor_panels(
    table: MetricTable, alerts: Sequence[AlertResult], names: Mapping[int, str], end_s: float
) -> list[Panel | Lanes]:
    """Panels up to `end_s`. `names`: node id → name. A metric that nobody told has no line."""
    if table.span_s is None:
        return []
    begin_s = max(table.span_s[0], -WARM_UP_S)
    step_s = max(STEP_S, (end_s - begin_s) / BINS_MAX)
    grid_s = np.arange(np.ceil(begin_s / step_s), np.floor(end_s / step_s) + 1) * step_s
    panels: list[Panel | Lanes] = [
        Panel(title, grid_s, series, kind="step", height=80)
        for title, lines in PANELS
        if (series := _series(table, lines, grid_s))
    ]
    lanes = [*_alert_lanes(alerts, end_s), *_absence_lanes(table, names, grid_s)]
    return [*panels, Lanes("alerts, and who told nothing", lanes, KINDS)] if lanes else panels


def _series(table: MetricTable, lines: Sequence[Line], grid_s: np.ndarray) -> list[Drawn]:
    found = []
    for style, line in enumerate(lines, 3):
        series = table.series(line.metric)
        if not (told := [s.rate() for s in series] if line.rate else series):
            continue
        low, _ = aggregate(line.aggregate, told, grid_s)
        known, _ = aggregate("count", told, grid_s)
        if np.any(known):
            found.append(Drawn(line.label, np.where(np.asarray(known) > 0, low, np.nan), style))
    return found


def _alert_lanes(alerts: Sequence[AlertResult], end_s: float) -> list[Lane]:
    found = []
    for alert in alerts:
        spans: list[Span] = [
            (begin_s, min(max(until_s, begin_s + STEP_S / 2), end_s), kind)
            for kind, told in enumerate((alert.fired, alert.unknown))
            for begin_s, until_s in told
            if begin_s < end_s
        ]
        found.append(Lane(alert.name, sorted(spans)))
    return found


def _absence_lanes(table: MetricTable, names: Mapping[int, str], grid_s: np.ndarray) -> list[Lane]:
    """Nodes whose servers told nothing."""
    found = []
    for node, series in table.by_node("jmx_answer").items():
        spans: list[Span] = [(a, b, 2) for a, b in intervals(_silent(series, grid_s), grid_s) if b > a]
        if spans:
            found.append(Lane(names.get(node, f"node {node}"), spans))
    return found


def _silent(series: Series, grid_s: np.ndarray) -> np.ndarray:
    rule = Rule("count", "jmx_answer", rate=False, comparison="<", number=1.0)
    found: np.ndarray = evaluate_expression(rule, {("jmx_answer", False): [series]}, grid_s) == Truth.TRUE
    return found
