"""What happened over time, aggregated into bins: arrays of the history in, small rows out. Pure.

Seconds on the trial's clock; negative = warm-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.clock import NS_PER_S
from harness.plan import Plan
from harness.schema import MISSING, MetadataKind, MetadataSource, Outcome
from harness.verdict import FaultShown

BIN_S = 0.25
BINS_MAX = 800
"""A longer run has wider bins: a chart of altair's takes 5,000 rows, and no more can be told apart in it."""
Row = dict[str, float | str]
NAMED_MAX = 2
"""So many nodes of a fault are named in a chart."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows for charts: `traffic` (at_s, acks, outcome, per_s), `latency` (at_s, acks, p50_ms, p99_ms), `replication`
    (at_s, what, partitions)."""

    traffic: list[Row]
    latency: list[Row]
    replication: list[Row]
    begin_s: float
    end_s: float


def make_timeline(plan: Plan, sends: Mapping[str, np.ndarray], metadata: Mapping[str, np.ndarray]) -> Timeline:
    """The timeline of a run. `sends`, `metadata`: columns of those tables, times since the trial's start."""
    acks = _acks_of_partitions(plan)
    done = sends["completed_ns"] != MISSING
    last_ns = int(sends["completed_ns"][done].max(initial=0))
    first_ns = max(int(sends["invoked_ns"].min(initial=0)), -5 * NS_PER_S)
    edges = _edges(first_ns / NS_PER_S, last_ns / NS_PER_S)
    traffic: list[Row] = []
    latency: list[Row] = []
    for level in sorted(set(acks.tolist())):
        mine = done & np.isin(sends["partition"], np.flatnonzero(acks == level))
        for outcome in Outcome:
            chosen = mine & (sends["outcome"] == outcome)
            if chosen.any():
                traffic += _rates(edges, sends["completed_ns"][chosen], level, outcome)
        latency += _latencies(edges, sends, mine & (sends["outcome"] == Outcome.OK), level)
    return Timeline(traffic, latency, _replication(plan, metadata, edges), float(edges[0]), float(edges[-1]))


def _edges(first_s: float, last_s: float) -> np.ndarray:
    """Of bins from before `first_s` to behind `last_s`, a multiple of BIN_S wide, BINS_MAX at most."""
    width_s = BIN_S * max(1, np.ceil((last_s - first_s) / BIN_S / (BINS_MAX - 2)))
    edges: np.ndarray = np.arange(np.floor(first_s / width_s), np.ceil(last_s / width_s) + 1) * width_s
    return edges


def _acks_of_partitions(plan: Plan) -> np.ndarray:
    return np.array([plan.cells[p.cell].producer.acks for p in plan.partitions])


def _rates(edges: np.ndarray, times_ns: np.ndarray, level: str, outcome: Outcome) -> list[Row]:
    counted, _ = np.histogram(times_ns / NS_PER_S, bins=edges)
    width_s = edges[1] - edges[0]
    name = {Outcome.OK: "acknowledged", Outcome.INFO: "unknown", Outcome.FAIL: "refused"}[outcome]
    return [
        {"at_s": float(at), "acks": f"acks={level}", "outcome": name, "per_s": float(count / width_s)}
        for at, count in zip(edges[:-1], counted, strict=True)
    ]


def _latencies(edges: np.ndarray, sends: Mapping[str, np.ndarray], chosen: np.ndarray, level: str) -> list[Row]:
    """50th and 99th percentile by bin of invocation."""
    if level == "0" or not chosen.any():
        return []  # acks=0 is "acknowledged" by the client itself.
    begun_s = sends["invoked_ns"][chosen] / NS_PER_S
    took_ms = (sends["completed_ns"][chosen] - sends["invoked_ns"][chosen]) / 1e6
    bins = np.digitize(begun_s, edges) - 1
    order = np.lexsort((took_ms, bins))
    bins, took_ms = bins[order], took_ms[order]
    starts = np.flatnonzero(np.diff(bins, prepend=-2))
    ends = np.append(starts[1:], len(bins))
    rows: list[Row] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if not 0 <= bins[start] < len(edges):
            continue
        sample = took_ms[start:end]
        rows.append(
            {
                "at_s": float(edges[bins[start]]),
                "acks": f"acks={level}",
                "p50_ms": float(sample[(len(sample) - 1) // 2]),
                "p99_ms": float(sample[int((len(sample) - 1) * 0.99)]),
            }
        )
    return rows


def _replication(plan: Plan, metadata: Mapping[str, np.ndarray], edges: np.ndarray) -> list[Row]:
    """At each bin's start: how many partitions have no leader, and how many an ISR smaller than their replicas."""
    truth = (metadata["source"] == MetadataSource.CONTROLLER_LOG) & (metadata["kind"] == MetadataKind.PARTITION)
    if not truth.any():
        return []
    time_s = metadata["time_ns"][truth] / NS_PER_S
    partition = metadata["partition"][truth]
    leaderless = metadata["leader"][truth] < 0
    shrunk = np.bitwise_count(metadata["isr"][truth]) < np.bitwise_count(metadata["replicas"][truth])
    rows: list[Row] = []
    for name, state in (("no leader", leaderless), ("ISR not whole", shrunk)):
        changes = _changes(time_s, partition, state.astype(np.int64), len(plan.partitions))
        counts = _step_values(edges, *changes)
        rows += [
            {"at_s": float(at), "what": name, "partitions": float(count)}
            for at, count in zip(edges, counts, strict=True)
        ]
    return rows


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


def _briefly(nodes: Sequence[str]) -> str:
    """All of two, else the first and how many more: the table of faults has them all."""
    return ", ".join(nodes) if len(nodes) <= NAMED_MAX else f"{nodes[0]} and {len(nodes) - 1} more"


def fault_bands(faults: Sequence[FaultShown], end_s: float) -> list[Row]:
    """Bands of a chart: one per fault, with its name and what it hit."""
    return [
        {
            "begin_s": fault.begin_s,
            "end_s": end_s if fault.end_s is None else fault.end_s,
            "fault": f"{fault.fault} {_briefly(fault.nodes)}",
        }
        for fault in faults
    ]
