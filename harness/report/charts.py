"""Charts as data: panels over one time axis, as columns of JSON. The page draws them (`assets/chart.js`). Values only."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.history.convert import History
from prozess.harness.impact.alerts import Truth, aggregate, evaluate_expression, intervals
from prozess.harness.impact.cost import ImpactShown
from prozess.harness.plan.alerts import AlertRule
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.metric_series import MetricSeries, MetricTable
from prozess.harness.report.tables import Deliveries, DeliveryWindow
from prozess.harness.schema import MISSING, MetadataKind, MetadataSource, Outcome
from prozess.harness.verdict import AlertResult

BINS_MAX = 800
"""No more can be distinguished on a screen; a longer run has wider bins."""
_DIGITS = 4
"""For a number in a chart; more cannot be seen."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One line. `values`: float64, one per time of its panel; NaN = nothing is known. `style`: colour and dashes."""

    name: str
    values: np.ndarray
    style: int


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines with one axis. `at_s`: ascending times of the values (of bins and steps: where each begins)."""

    title: str
    at_s: np.ndarray
    series: Sequence[ChartSeries]
    kind: Literal["line", "step", "area", "bars"] = "line"
    log: bool = False
    height: int = 110

    def as_json(self) -> dict[str, Any]:
        """Returns the panel as `chart.js` reads it."""
        return {
            "title": self.title,
            "kind": self.kind,
            "log": self.log,
            "height": self.height,
            "at": numbers(self.at_s, digits=9),
            "series": [{"name": s.name, "style": s.style, "y": numbers(s.values)} for s in self.series],
        }


@dataclass(frozen=True, slots=True)
class Lane:
    """Spans of time on a line of their own: (begin_s, end_s, number of the kind)."""

    name: str
    spans: Sequence[tuple[float, float, int]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes below one another. `kinds`: what spans may be."""

    title: str
    lanes: Sequence[Lane]
    kinds: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Returns the lanes as `chart.js` reads them."""
        return {
            "title": self.title,
            "kind": "lanes",
            "kinds": list(self.kinds),
            "lanes": [
                {
                    "name": lane.name,
                    "spans": [[round(begin, 3), round(end, 3), kind] for begin, end, kind in lane.spans],
                }
                for lane in self.lanes
            ],
        }


def figure(panels: Sequence[Panel | Lanes], begin_s: float, end_s: float) -> Mapping[str, Any]:
    """Panels that share one time axis."""
    return {"begin": round(begin_s, 3), "end": round(end_s, 3), "panels": [panel.as_json() for panel in panels]}


def numbers(values: np.ndarray, *, digits: int = _DIGITS) -> list[float | int | None]:
    """Returns numbers with few significant digits, whole ones without a point, NaN as null: a quarter of the bytes."""
    return [_number(value, digits) for value in values.tolist()]


def _number(value: float, digits: int) -> float | int | None:
    if value != value:
        return None
    if value == int(value) and abs(value) < 10**15:
        return int(value)
    return float(f"{value:.{digits}g}")


# What became of sends over time, and in each partition: the table `sends` in, counts in bins out, a part at a time.


BIN_S = 0.25
WARM_UP_S = 5.0
"""At most this much of what is before the trial's start is shown."""
LEVELS = ("0", "1", "all")
"""For acks, in the order of charts."""
ROWS_AT_A_TIME = 1 << 21
_COLUMNS = ("invoked_ns", "completed_ns", "outcome", "partition")
_PER_E, _LATENCIES = 30, 600
"""Latencies are counted in bins of 3 %, from 1 µs up to e^20 µs."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class SendTraffic:
    """Counts of sends. Axes: place in LEVELS, Outcome, bin (by completion); latencies by bin of invocation."""

    edges_s: np.ndarray
    """float64[bins + 1], evenly spaced."""
    completed: np.ndarray
    """int64[3, 3, bins]"""
    latencies: np.ndarray
    """int64[3, bins, latencies]: of acknowledged ones; acks=0 is "acknowledged" by the client itself and left out."""
    outcomes: np.ndarray
    """int64[partitions, 3]: what became of all sends of a partition."""

    @property
    def width_s(self) -> float:
        """Returns how long a bin lasts."""
        return float(self.edges_s[1] - self.edges_s[0])

    def rates(self, level: int, outcome: Outcome) -> np.ndarray:
        """Returns the rates per second, bin by bin."""
        return np.asarray(self.completed[level, outcome] / self.width_s)

    def percentile_ms(self, level: int, share: float) -> np.ndarray:
        """Returns float64[bins]: so many took no longer (to 3 %); NaN where nothing was sent that was acknowledged."""
        cumulated = np.cumsum(self.latencies[level], axis=1)
        total = cumulated[:, -1]
        bin_index = (cumulated < np.maximum(1, np.ceil(share * total))[:, None]).sum(axis=1)
        return np.asarray(np.where(total > 0, np.exp((bin_index + 0.5) / _PER_E) / 1_000, np.nan))


def make_traffic(
    parts: Sequence[Columns] | Iterator[Columns], acks: Sequence[str], span_s: tuple[float, float]
) -> SendTraffic:
    """`parts`: columns of `sends`, together all of it. `acks`: by partition. `span_s`: what is shown; what was
    earlier, in the warm-up, counts in `outcomes` alone."""
    edges = edges_of(*span_s)
    bins, levels = len(edges) - 1, np.array([LEVELS.index(level) for level in acks] or [0])
    completed = np.zeros(len(LEVELS) * len(Outcome) * bins, dtype=np.int64)
    latencies = np.zeros(len(LEVELS) * bins * _LATENCIES, dtype=np.int64)
    outcomes = np.zeros((len(levels)) * len(Outcome), dtype=np.int64)
    for sends in parts:
        level, outcome = levels[sends["partition"]], sends["outcome"].astype(np.int64)
        outcomes += np.bincount(sends["partition"] * len(Outcome) + outcome, minlength=len(outcomes))
        first_ns = int(edges[0] * NS_PER_S)
        done = (sends["completed_ns"] != MISSING) & (sends["completed_ns"] >= first_ns)
        at = _bins(edges, sends["completed_ns"][done])
        completed += np.bincount((level[done] * 3 + outcome[done]) * bins + at, minlength=len(completed))
        mask = done & (outcome == Outcome.OK) & (level > 0) & (sends["invoked_ns"] >= first_ns)
        took_us = (sends["completed_ns"][mask] - sends["invoked_ns"][mask]) / 1_000
        size = np.clip(np.log(np.maximum(took_us, 1)) * _PER_E, 0, _LATENCIES - 1).astype(np.int64)
        at = _bins(edges, sends["invoked_ns"][mask])
        latencies += np.bincount((level[mask] * bins + at) * _LATENCIES + size, minlength=len(latencies))
    return SendTraffic(
        edges,
        completed.reshape(len(LEVELS), len(Outcome), bins),
        latencies.reshape(len(LEVELS), bins, _LATENCIES),
        outcomes.reshape(len(levels), len(Outcome)),
    )


def edges_of(first_s: float, last_s: float) -> np.ndarray:
    """Returns the edges of at most BINS_MAX bins from before `first_s` to behind `last_s`, a multiple of BIN_S wide."""
    width_s = BIN_S * max(1, np.ceil((last_s - first_s) / BIN_S / (BINS_MAX - 2)))
    first, last = np.floor(first_s / width_s), np.floor(last_s / width_s) + 1
    edges: np.ndarray = np.arange(first, last + 1) * width_s
    return edges


def _bins(edges: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
    """Rounding at the edges counts in the first or last bin."""
    found = np.floor((times_ns / NS_PER_S - edges[0]) / (edges[1] - edges[0])).astype(np.int64)
    return np.asarray(np.clip(found, 0, len(edges) - 2))


def sends_in_parts(history: History) -> Iterator[Columns]:
    """The whole table, up to ROWS_AT_A_TIME together, so that memory does not grow with the run."""
    file = history.files["sends"]
    row_ranges = np.array(file.intact, dtype=np.int64)
    sizes = np.cumsum([file.length_of(row_range) for row_range in row_ranges.tolist()])
    if not len(sizes):
        return
    for chosen in np.split(row_ranges, np.flatnonzero(np.diff(sizes // ROWS_AT_A_TIME)) + 1):
        yield file.read(_COLUMNS, chosen.tolist())


def span_of_sends(history: History) -> tuple[float, float] | None:
    """Returns the first and last time in `sends`, by the footer's statistics; None = nothing was sent."""
    file = history.files["sends"]
    if not file.rows:
        return None
    names = list(file.table.column_names)
    first_ns, last_ns = [], []
    for number in dict.fromkeys(map(file.row_group_of, file.intact)):
        group = file.metadata.row_group(number)
        invoked, completed = (group.column(names.index(name)).statistics for name in ("invoked_ns", "completed_ns"))
        first_ns.append(invoked.min)
        last_ns += [invoked.max, completed.max]
    return max(min(first_ns) / NS_PER_S, -WARM_UP_S), max(last_ns) / NS_PER_S


# What happened over time, for charts: throughput, latency, replication, unavailability. Arrays in, panels out. Pure.
#
# Seconds on the trial's clock; negative = warm-up.


LEAST_MS = 0.1
"""For a logarithmic axis."""


def timeline_panels(
    plan: Plan, traffic: SendTraffic, metadata: Columns, impact: ImpactShown | None = None
) -> list[Panel | Lanes]:
    """Every panel that has something to show."""
    at_s, end_s = traffic.edges_s[:-1], float(traffic.edges_s[-1])
    given = [level for level in range(len(LEVELS)) if traffic.completed[level].any()]

    def series(values: Mapping[int, np.ndarray]) -> list[ChartSeries]:
        return [ChartSeries(f"acks={LEVELS[level]}", array, level) for level, array in values.items()]

    acknowledged = {level: traffic.rates(level, Outcome.OK) for level in given}
    doubtful = {level: traffic.rates(level, Outcome.INFO) + traffic.rates(level, Outcome.FAIL) for level in given}
    doubtful = {level: rates for level, rates in doubtful.items() if rates.any()}
    levels = [level for level in given if traffic.latencies[level].any()]
    latency = {level: np.maximum(traffic.percentile_ms(level, 0.99), LEAST_MS) for level in levels}
    panels: list[Panel | Lanes | None] = [
        Panel("acknowledged per s", at_s, series(acknowledged), height=140),
        Panel("unknown or refused per s", at_s, series(doubtful), kind="bars", height=70) if doubtful else None,
        Panel("99 % acknowledged within, ms", at_s, series(latency), log=True) if latency else None,
        _replication(plan, metadata, traffic.edges_s),
        unavailability(plan, impact, end_s),
    ]
    return [panel for panel in panels if panel is not None]


def _replication(plan: Plan, metadata: Columns, edges_s: np.ndarray) -> Panel | None:
    """Returns the panel that shows at each bin's start: how many partitions have no leader, and how many an ISR smaller
    than their replicas."""
    truth = of_partitions(metadata)
    if not truth.any():
        return None
    time_s = metadata["time_ns"][truth] / NS_PER_S
    partition = metadata["partition"][truth]
    leaderless = metadata["leader"][truth] < 0
    shrunk = np.bitwise_count(metadata["isr"][truth]) < np.bitwise_count(metadata["replicas"][truth])
    series = []
    for style, (name, state) in enumerate((("a replica out of sync", shrunk), ("no leader", leaderless)), 3):
        changes = _changes(time_s, partition, state.astype(np.int64), len(plan.partitions))
        series.append(ChartSeries(name, _step_values(edges_s, *changes), style))
    return Panel("partitions, as the controllers' log says", edges_s, series, kind="area", height=80)


def of_partitions(metadata: Columns) -> np.ndarray:
    """Returns bool: rows in which the controllers' own log says who leads a partition and who is in sync, or that it
    was deleted."""
    of_one = np.isin(metadata["kind"], (MetadataKind.PARTITION, MetadataKind.DELETED))
    found: np.ndarray = (metadata["source"] == MetadataSource.CONTROLLER_LOG) & of_one
    return found


def _changes(time_s: np.ndarray, partition: np.ndarray, state: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Times at which the number of partitions in the state changes, and that number from then on."""
    order = np.lexsort((time_s, partition))
    before = np.concatenate([[0], state[order][:-1]])
    before[np.flatnonzero(np.diff(partition[order], prepend=-1))] = 0
    step = state[order] - before
    in_time = np.argsort(time_s[order], kind="stable")
    total = np.cumsum(step[in_time])
    assert total.size == 0 or (total.min() >= 0 and total.max() <= count), "each partition counts once"
    return time_s[order][in_time], total


def _step_values(at: np.ndarray, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    index = np.searchsorted(times, at, side="right") - 1
    return np.where(index >= 0, values[np.maximum(index, 0)], 0) if len(values) else np.zeros(len(at))


def unavailability(plan: Plan, impact: ImpactShown | None, end_s: float) -> Lanes | None:
    """A lane for every partition that was unavailable, with the longest windows of all."""
    spans: dict[int, list[tuple[float, float, int]]] = {}
    for window in impact.windows if impact else ():
        until_s = end_s if window.end_s is None else window.end_s
        spans.setdefault(window.partition, []).append((window.begin_s, until_s, int(window.fault is None)))
    lanes = [Lane(partition_name(plan, number), sorted(found)) for number, found in sorted(spans.items())]
    kinds: Sequence[str] = ("nothing acknowledged, a fault explains it", "nothing acknowledged, unexplained")
    return Lanes("unavailable, by partition", lanes, kinds) if lanes else None


def partition_name(plan: Plan, partition: int) -> str:
    """Returns the topic, and the number of the partition within it."""
    if not 0 <= partition < len(plan.partitions):
        return f"partition {partition}"
    planned = plan.partitions[partition]
    return f"{planned.topic_name}-{planned.number}"


# The most saying metrics over time, and when alerts fired: series of the history in, small rows out. Pure.
#
# Where what should have reported is absent, a line is what the others say, and the absence is a bar of its own.


STEP_S = 0.5
KINDS = ("fired", "may have fired", "reported nothing")
"""For spans in lanes."""
Span = tuple[float, float, int]


@dataclass(frozen=True, slots=True)
class MetricLine:
    """Describes what one line shows: an aggregate over all series of a metric."""

    label: str
    metric: str
    aggregate: str
    rate: bool = False


PANELS: tuple[tuple[str, tuple[MetricLine, ...]], ...] = (
    (
        "partitions, by metrics",
        (
            MetricLine("under-replicated", "under_replicated_partitions", "sum"),
            MetricLine("under min ISR", "under_min_isr_partitions", "sum"),
            MetricLine("offline", "offline_partitions", "max"),
        ),
    ),
    (
        "per s",
        (
            MetricLine("failed produce requests", "failed_produce_requests", "sum", rate=True),
            MetricLine("record errors", "record_errors", "sum", rate=True),
            MetricLine("requests sent again", "client_retries", "sum", rate=True),
        ),
    ),
    (
        "records per s",
        (
            MetricLine("transmitted, retries included", "client_records_sent", "sum", rate=True),
            MetricLine("acknowledged", "records_acknowledged", "sum", rate=True),
        ),
    ),
    (
        "Java clients, records per s",
        (
            MetricLine("sent, retries included", "java_records_sent", "sum", rate=True),
            MetricLine("sent again", "java_record_retries", "sum", rate=True),
            MetricLine("ended in an error", "java_record_errors", "sum", rate=True),
        ),
    ),
    (
        "greatest lag, records",
        (
            MetricLine("consumers", "consumer_lag", "max"),
            MetricLine("replicas", "replica_max_lag", "max"),
            MetricLine("last stable offset", "last_stable_offset_lag", "max"),
        ),
    ),
)


def monitor_panels(
    table: MetricTable, alerts: Sequence[AlertResult], names: Mapping[int, str], end_s: float
) -> list[Panel | Lanes]:
    """Panels up to `end_s`. `names`: node id → name. A metric that nobody stated has no line."""
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
    return [*panels, Lanes("alerts, and servers that reported nothing", lanes, KINDS)] if lanes else panels


def _series(table: MetricTable, lines: Sequence[MetricLine], grid_s: np.ndarray) -> list[ChartSeries]:
    found = []
    for style, line in enumerate(lines, 3):
        series = table.series(line.metric)
        if not (shown := [s.rate() for s in series] if line.rate else series):
            continue
        low, _ = aggregate(line.aggregate, shown, grid_s)
        known, _ = aggregate("count", shown, grid_s)
        if np.any(known):
            found.append(ChartSeries(line.label, np.where(np.asarray(known) > 0, low, np.nan), style))
    return found


def _alert_lanes(alerts: Sequence[AlertResult], end_s: float) -> list[Lane]:
    found = []
    for alert in alerts:
        spans: list[Span] = [
            (begin_s, min(max(until_s, begin_s + STEP_S / 2), end_s), kind)
            for kind, given in enumerate((alert.fired, alert.unknown))
            for begin_s, until_s in given
            if begin_s < end_s
        ]
        found.append(Lane(alert.name, sorted(spans)))
    return found


def _absence_lanes(table: MetricTable, names: Mapping[int, str], grid_s: np.ndarray) -> list[Lane]:
    """Nodes whose servers reported nothing."""
    found = []
    for node, series in table.by_node("jmx_answer").items():
        spans: list[Span] = [(a, b, 2) for a, b in intervals(_silent(series, grid_s), grid_s) if b > a]
        if spans:
            found.append(Lane(names.get(node, f"node {node}"), spans))
    return found


def _silent(series: MetricSeries, grid_s: np.ndarray) -> np.ndarray:
    rule = AlertRule("count", "jmx_answer", rate=False, comparison="<", number=1.0)
    found: np.ndarray = evaluate_expression(rule, {("jmx_answer", False): [series]}, grid_s) == Truth.TRUE
    return found


# Delivery over time as charts: produced and consumed, what was late or never came, and latencies beside the bounds.


DELIVERY_BINS_MAX = 400
_DELIVERY_LATENCIES = {"50 %": "p50_ms", "99 %": "p99_ms", "the last": "max_ms"}
_BOUNDS_MAX = 3
_LEAST_MS = 0.1


def delivery_panels(found: Sequence[Deliveries]) -> list[list[Panel | Lanes]]:
    """Returns the panels of each figure: one figure for all cells with windows of one length."""
    ordered = sorted((one for one in found if one.windows), key=lambda one: one.bound.window_s)
    return [_panels(list(group)) for _, group in groupby(ordered, key=lambda one: one.bound.window_s)]


def _panels(found: Sequence[Deliveries]) -> list[Panel | Lanes]:
    width_s = found[0].bound.window_s
    windows = [window for one in found for window in one.windows]
    span_s = max(w.end_s for w in windows) - min(w.begin_s for w in windows)
    bins = _binned(windows, width_s * float(max(1, np.ceil(span_s / width_s / DELIVERY_BINS_MAX))))
    at_s = np.array(list(bins))
    panels = [_counts(at_s, bins, width_s), _beyond(at_s, bins), _latency(at_s, bins, found)]
    return [panel for panel in panels if panel is not None]


def _binned(windows: Sequence[DeliveryWindow], bin_s: float) -> dict[float, list[DeliveryWindow]]:
    """Time → the windows of every cell that are drawn there, ascending."""
    found: dict[float, list[DeliveryWindow]] = defaultdict(list)
    for window in windows:
        found[round(float(window.begin_s // bin_s * bin_s), 3)].append(window)
    return dict(sorted(found.items()))


def _totals(bins: dict[float, list[DeliveryWindow]], column: str) -> np.ndarray:
    return np.array([sum(getattr(window, column) for window in windows) for windows in bins.values()], dtype=float)


def _counts(at_s: np.ndarray, bins: dict[float, list[DeliveryWindow]], width_s: float) -> Panel:
    took_s = np.array([len({window.begin_s for window in windows}) * width_s for windows in bins.values()])
    series = [
        ChartSeries(name, _totals(bins, name) / took_s, style) for style, name in enumerate(("produced", "consumed"))
    ]
    return Panel("records by the time of their send, per s", at_s, series)


def _beyond(at_s: np.ndarray, bins: dict[float, list[DeliveryWindow]]) -> Panel | None:
    """Returns the chart of late and missing records; None if there are none."""
    columns = {"late": "late", "never delivered": "missing"}
    series = [
        ChartSeries(name, _totals(bins, column), style) for style, (name, column) in enumerate(columns.items(), 3)
    ]
    series = [one for one in series if one.values.any()]
    return Panel("records beyond the bound", at_s, series, kind="bars", height=70) if series else None


def _latency(at_s: np.ndarray, bins: dict[float, list[DeliveryWindow]], found: Sequence[Deliveries]) -> Panel | None:
    """Returns the panel of the slowest cell's delivery in each bin, beside the bounds."""
    series = []
    for style, (name, column) in enumerate(_DELIVERY_LATENCIES.items()):
        known = [[value for w in windows if (value := getattr(w, column)) is not None] for windows in bins.values()]
        values = np.array([max(_LEAST_MS, *latencies) if latencies else np.nan for latencies in known])
        series += [ChartSeries(name, values, style)] if not np.isnan(values).all() else []
    if not series:
        return None
    bounds = sorted({one.bound.latency_s for one in found})[:_BOUNDS_MAX]
    series += [
        ChartSeries(f"bound {latency_s:g} s", np.full(len(at_s), latency_s * 1000), style)
        for style, latency_s in enumerate(bounds, 3)
    ]
    return Panel("delivered after, ms", at_s, series, log=True, height=120)
