"""What became of sends over time, and in each partition: the table `sends` in, counts in bins out, a part at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.clock import NS_PER_S
from harness.history import History
from harness.report.panels import BINS_MAX
from harness.schema import MISSING, Outcome

BIN_S = 0.25
WARM_UP_S = 5.0
"""So much of what is before the trial's start is shown."""
LEVELS = ("0", "1", "all")
"""Of acks, in the order of charts."""
ROWS_AT_A_TIME = 1 << 21
_COLUMNS = ("invoked_ns", "completed_ns", "outcome", "partition")
_PER_E, _LATENCIES = 30, 600
"""Latencies are counted in bins of 3 %, from 1 µs up to e^20 µs."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Traffic:
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
        """Of a bin."""
        return float(self.edges_s[1] - self.edges_s[0])

    def rates(self, level: int, outcome: Outcome) -> np.ndarray:
        """Per second, bin by bin."""
        return np.asarray(self.completed[level, outcome] / self.width_s)

    def percentile_ms(self, level: int, share: float) -> np.ndarray:
        """float64[bins]: so many took no longer (to 3 %); NaN where nothing was sent that was acknowledged."""
        cumulated = np.cumsum(self.latencies[level], axis=1)
        total = cumulated[:, -1]
        place = (cumulated < np.maximum(1, np.ceil(share * total))[:, None]).sum(axis=1)
        return np.asarray(np.where(total > 0, np.exp((place + 0.5) / _PER_E) / 1_000, np.nan))


def make_traffic(
    parts: Sequence[Columns] | Iterator[Columns], acks: Sequence[str], span_s: tuple[float, float]
) -> Traffic:
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
        told = done & (outcome == Outcome.OK) & (level > 0) & (sends["invoked_ns"] >= first_ns)
        took_us = (sends["completed_ns"][told] - sends["invoked_ns"][told]) / 1_000
        size = np.clip(np.log(np.maximum(took_us, 1)) * _PER_E, 0, _LATENCIES - 1).astype(np.int64)
        at = _bins(edges, sends["invoked_ns"][told])
        latencies += np.bincount((level[told] * bins + at) * _LATENCIES + size, minlength=len(latencies))
    return Traffic(
        edges,
        completed.reshape(len(LEVELS), len(Outcome), bins),
        latencies.reshape(len(LEVELS), bins, _LATENCIES),
        outcomes.reshape(len(levels), len(Outcome)),
    )


def edges_of(first_s: float, last_s: float) -> np.ndarray:
    """Of bins from before `first_s` to behind `last_s`, a multiple of BIN_S wide, BINS_MAX at most."""
    width_s = BIN_S * max(1, np.ceil((last_s - first_s) / BIN_S / (BINS_MAX - 2)))
    first, last = np.floor(first_s / width_s), np.floor(last_s / width_s) + 1
    edges: np.ndarray = np.arange(first, last + 1) * width_s
    return edges


def _bins(edges: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
    """Rounding at the edges counts in the first or last bin."""
    found = np.floor((times_ns / NS_PER_S - edges[0]) / (edges[1] - edges[0])).astype(np.int64)
    return np.asarray(np.clip(found, 0, len(edges) - 2))


def sends_in_parts(history: History) -> Iterator[Columns]:
    """The whole table, row groups together up to ROWS_AT_A_TIME, so that memory does not grow with the run."""
    file = history.files["sends"]
    sizes = np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)])
    if not len(sizes):
        return
    for part in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(sizes // ROWS_AT_A_TIME)) + 1):
        yield file.read(_COLUMNS, part.tolist())


def span_of_sends(history: History) -> tuple[float, float] | None:
    """First and last time in `sends`, by the footer's statistics; None = nothing was sent."""
    file = history.files["sends"]
    if not file.rows:
        return None
    names = list(file.table.column_names)
    first_ns, last_ns = [], []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if not group.num_rows:
            continue
        invoked, completed = (group.column(names.index(name)).statistics for name in ("invoked_ns", "completed_ns"))
        first_ns.append(invoked.min)
        last_ns += [invoked.max, completed.max]
    return max(min(first_ns) / NS_PER_S, -WARM_UP_S), max(last_ns) / NS_PER_S
