"""The most telling metrics over time, and when alerts fired: series of the history in, small rows out. Pure.

Where what should have told is absent, a line is what the others say, and the absence is a bar of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.alert_rules import Rule
from harness.alerts import Truth, aggregate, evaluate_expression, intervals
from harness.metric_series import MetricTable, Series
from harness.report.timeline import Row
from harness.verdict import AlertResult

STEP_S = 0.5
POINTS_MAX = 800


@dataclass(frozen=True, slots=True)
class Line:
    """What one line shows: an aggregate over all series of a metric."""

    label: str
    metric: str
    aggregate: str
    rate: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines with one axis. `rows`: at_s, what, value."""

    title: str
    labels: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Monitor:
    """Everything about metrics that a timeline shows. `bars`: what, begin_s, end_s, kind (fired, unknown, absent)."""

    panels: list[Panel] = field(default_factory=list)
    bars: list[Row] = field(default_factory=list)


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


def make_monitor(table: MetricTable, alerts: Sequence[AlertResult], names: Mapping[int, str], end_s: float) -> Monitor:
    """Panels up to `end_s`. `names`: node id → name. A metric that nobody told has no line."""
    if table.span_s is None:
        return Monitor()
    begin_s = max(table.span_s[0], -5.0)
    step_s = max(STEP_S, (end_s - begin_s) / POINTS_MAX)
    grid_s = np.arange(np.ceil(begin_s / step_s), np.floor(end_s / step_s) + 1) * step_s
    panels = [Panel(title, tuple(line.label for line in lines), _rows(table, lines, grid_s)) for title, lines in PANELS]
    bars = [*_alert_bars(alerts, end_s), *_absence_bars(table, names, grid_s)]
    return Monitor([panel for panel in panels if panel.rows], bars)


def _rows(table: MetricTable, lines: Sequence[Line], grid_s: np.ndarray) -> list[Row]:
    rows: list[Row] = []
    for line in lines:
        series = table.series(line.metric)
        told = [s.rate() for s in series] if line.rate else series
        if not told:
            continue
        low, _ = aggregate(line.aggregate, told, grid_s)
        known, _ = aggregate("count", told, grid_s)
        rows += [
            {"at_s": float(at), "what": line.label, "value": float(value)}
            for at, value, count in zip(grid_s, low, known, strict=True)
            if count
        ]
    return rows


def _alert_bars(alerts: Sequence[AlertResult], end_s: float) -> list[Row]:
    return [
        {"what": alert.name, "begin_s": begin_s, "end_s": min(max(until_s, begin_s + STEP_S / 2), end_s), "kind": kind}
        for alert in alerts
        for kind, spans in (("fired", alert.fired), ("unknown", alert.unknown))
        for begin_s, until_s in spans or ()
        if begin_s < end_s
    ]


def _absence_bars(table: MetricTable, names: Mapping[int, str], grid_s: np.ndarray) -> list[Row]:
    """Nodes whose servers told nothing."""
    bars: list[Row] = []
    for node, series in table.by_node("jmx_answer").items():
        silent = _silent(series, grid_s)
        bars += [
            {"what": f"{names.get(node, f'node {node}')} tells nothing", "begin_s": a, "end_s": b, "kind": "absent"}
            for a, b in intervals(silent, grid_s)
            if b > a
        ]
    return bars


def _silent(series: Series, grid_s: np.ndarray) -> np.ndarray:
    rule = Rule("count", "jmx_answer", rate=False, comparison="<", number=1.0)
    found: np.ndarray = evaluate_expression(rule, {("jmx_answer", False): [series]}, grid_s) == Truth.TRUE
    return found
