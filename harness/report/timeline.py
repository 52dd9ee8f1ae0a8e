"""What happened over time, for charts: throughput, latency, replication, unavailability. Arrays in, panels out. Pure.

Seconds on the trial's clock; negative = warm-up.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from harness.clock import NS_PER_S
from harness.impact_summary import ImpactShown
from harness.plan import Plan
from harness.report.panels import Lane, Lanes, Panel, Series
from harness.report.traffic import LEVELS, Traffic
from harness.schema import MetadataKind, MetadataSource, Outcome

LEAST_MS = 0.1
"""Of a logarithmic axis."""
Columns = Mapping[str, np.ndarray]


def timeline_panels(
    plan: Plan, traffic: Traffic, metadata: Columns, impact: ImpactShown | None = None
) -> list[Panel | Lanes]:
    """Every panel that has something to show."""
    at_s, end_s = traffic.edges_s[:-1], float(traffic.edges_s[-1])
    given = [level for level in range(len(LEVELS)) if traffic.completed[level].any()]

    def series(values: Mapping[int, np.ndarray]) -> list[Series]:
        return [Series(f"acks={LEVELS[level]}", array, level) for level, array in values.items()]

    acknowledged = {level: traffic.rates(level, Outcome.OK) for level in given}
    doubtful = {level: traffic.rates(level, Outcome.INFO) + traffic.rates(level, Outcome.FAIL) for level in given}
    doubtful = {level: rates for level, rates in doubtful.items() if rates.any()}
    told = [level for level in given if traffic.latencies[level].any()]
    latency = {level: np.maximum(traffic.percentile_ms(level, 0.99), LEAST_MS) for level in told}
    panels: list[Panel | Lanes | None] = [
        Panel("acknowledged per s", at_s, series(acknowledged), height=140),
        Panel("unknown or refused per s", at_s, series(doubtful), kind="bars", height=70) if doubtful else None,
        Panel("99 % answered within, ms", at_s, series(latency), log=True) if latency else None,
        _replication(plan, metadata, traffic.edges_s),
        unavailability(plan, impact, end_s),
    ]
    return [panel for panel in panels if panel is not None]


def _replication(plan: Plan, metadata: Columns, edges_s: np.ndarray) -> Panel | None:
    """At each bin's start: how many partitions have no leader, and how many an ISR smaller than their replicas."""
    truth = of_partitions(metadata)
    if not truth.any():
        return None
    time_s = metadata["time_ns"][truth] / NS_PER_S
    partition = metadata["partition"][truth]
    leaderless = metadata["leader"][truth] < 0
    shrunk = np.bitwise_count(metadata["isr"][truth]) < np.bitwise_count(metadata["replicas"][truth])
    series = []
    for style, (name, state) in enumerate((("ISR not whole", shrunk), ("no leader", leaderless)), 3):
        changes = _changes(time_s, partition, state.astype(np.int64), len(plan.partitions))
        series.append(Series(name, _step_values(edges_s, *changes), style))
    return Panel("partitions, by the controllers", edges_s, series, kind="area", height=80)


def of_partitions(metadata: Columns) -> np.ndarray:
    """bool: rows in which the controllers' own log says who leads a partition and who is in sync."""
    found: np.ndarray = (metadata["source"] == MetadataSource.CONTROLLER_LOG) & (
        metadata["kind"] == MetadataKind.PARTITION
    )
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
    """Topic and number within it."""
    if not 0 <= partition < len(plan.partitions):
        return f"partition {partition}"
    planned = plan.partitions[partition]
    return f"{planned.topic_name}-{planned.number}"
