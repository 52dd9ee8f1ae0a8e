"""Defines the metrics of a run as series over time: one series for each (client, node, partition)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.recording.metrics import BY_NAME, FIXED_CODE, MICRO, Metric, Origin, known_metric
from prozess.harness.schema import MISSING, Outcome

# Times are in seconds on the trial's clock. A value NaN is absent: unknown from then on. Between samples a series holds
# its last value, but no longer than `held_s`.


Columns = Mapping[str, np.ndarray]
ANSWERS = "jmx_answer"
HISTORY_BIN_S = 1.0


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """The values of one metric over time. `time_s` ascends; a `value` NaN is absent. If `ends` is set, the series ends
    with its last sample, because a client closed. Otherwise its value is unknown from then on."""

    time_s: np.ndarray
    """float64[n]"""
    value: np.ndarray
    """float64[n]"""
    held_s: float
    ends: bool = False

    def at(self, grid_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, exists) at these times. A value is NaN where the series exists and its value is not known.
        float64 and bool, both of the grid's shape."""
        if not len(self.time_s):
            return np.full(grid_s.shape, np.nan), np.full(grid_s.shape, not self.ends)
        # The last sample up to each time. Example: samples at 0 and 5 s, held for 3 s. At 2 s the first one holds; at 4 s it
        # is too old, and the value is not known.
        index = np.searchsorted(self.time_s, grid_s, side="right") - 1
        safe = np.maximum(index, 0)
        fresh = (index >= 0) & (grid_s - self.time_s[safe] <= self.held_s)
        values = np.where(fresh, self.value[safe], np.nan)
        if not self.ends:
            return values, np.full(grid_s.shape, True)
        return values, (grid_s >= self.time_s[0]) & (grid_s <= self.time_s[-1] + self.held_s)

    def rate(self) -> "MetricSeries":
        """Returns the rate of a counter per second: each sample says how fast the counter grew since the sample before.
        A counter that fell began anew at zero, with its process. The rate is not known at the first sample, and after an
        absence."""
        assert len(self.time_s) == len(self.value), "a value for each time"
        before, value = np.concatenate([[np.nan], self.value[:-1]]), self.value
        took_s = np.diff(self.time_s, prepend=np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            grown = np.where(value >= before, value - before, np.where(np.isnan(before), np.nan, value)) / took_s
        return MetricSeries(self.time_s, np.where(took_s > 0, grown, np.nan), self.held_s, self.ends)


class MetricTable:
    """Every series of a run. `dictionary` has the texts of `metric`. `sends` has (completed_ns, outcome) of all sends,
    from which some series are derived."""

    def __init__(self, rows: Columns, dictionary: Sequence[str], sends: Columns | None = None) -> None:
        order = np.lexsort((rows["time_ns"], rows["partition"], rows["node"], rows["client"], rows["metric"]))
        self._rows = {name: column[order] for name, column in rows.items()}
        self._codes = {text: code for code, text in enumerate(dictionary)}
        self._sends = sends

    @property
    def span_s(self) -> tuple[float, float] | None:
        """Returns the times of the first and the last sample. None: there are none."""
        times = self._rows["time_ns"]
        return (float(times.min()) / NS_PER_S, float(times.max()) / NS_PER_S) if len(times) else None

    def series(self, name: str) -> list[MetricSeries]:
        """Returns every series of a metric. What leaders report of partitions is one series for each partition, whoever
        led it."""
        metric = known_metric(name)
        assert metric is not None, name
        if metric.origin is Origin.HISTORY:
            return self._from_history(name)
        if name not in BY_NAME:
            return self._errors(name)
        chosen = self._of_code(metric.code)
        by_leader = metric.origin is Origin.PROTOCOL and metric.per_partition
        keys = [chosen["client"], chosen["partition"], *([] if by_leader else [chosen["node"]])]
        if by_leader:
            chosen = _sorted(chosen, ("partition", "time_ns"))
            keys = [chosen["partition"]]
        return [_series(metric, part) for part in _split(chosen, keys)]

    def by_node(self, name: str) -> dict[int, MetricSeries]:
        """Returns, for each node, the series of a metric that the node reports of itself."""
        metric = BY_NAME[name]
        rows = self._of_code(metric.code)
        return {int(part["node"][0]): _series(metric, part) for part in _split(rows, [rows["node"]])}

    def _of_code(self, code: int) -> dict[str, np.ndarray]:
        first, last = np.searchsorted(self._rows["metric"], [code, code + 1])
        return {name: column[first:last] for name, column in self._rows.items()}

    def _errors(self, name: str) -> list[MetricSeries]:
        """Returns the series of a counter of errors. Such a counter exists only from its first error on, so it is zero
        in every earlier answer of its node."""
        rows = self._of_code(self._codes[name]) if name in self._codes else self._of_code(FIXED_CODE - 1)
        metric = known_metric(name)
        assert metric is not None, name
        found = []
        for answers in _split(answered := self._of_code(BY_NAME[ANSWERS].code), [answered["node"]]):
            mine = rows["node"] == answers["node"][0]
            value = np.where(answers["absent"] == 1, np.nan, 0.0)
            where = np.searchsorted(answers["time_ns"], rows["time_ns"][mine])
            assert len(value) == len(answers["time_ns"]), "a value for each answer"
            value[where] = rows["value_micro"][mine] / MICRO
            found.append(MetricSeries(answers["time_ns"] / NS_PER_S, value, metric.held_s))
        return found

    def _from_history(self, name: str) -> list[MetricSeries]:
        """Returns a series that is counted at whole seconds. It is known as long as anything is sampled."""
        span = self.span_s
        if self._sends is None or span is None:
            return []
        done = self._sends["completed_ns"] != MISSING
        acknowledged = self._sends["outcome"] == Outcome.OK
        chosen = done & (acknowledged if name == "records_acknowledged" else ~acknowledged)
        edges = np.arange(np.floor(span[0]), np.ceil(span[1]) + 1, HISTORY_BIN_S)
        at_s = np.sort(self._sends["completed_ns"][chosen]) / NS_PER_S
        return [MetricSeries(edges, np.searchsorted(at_s, edges, side="right").astype(float), BY_NAME[name].held_s)]


def _series(metric: Metric, rows: Columns) -> MetricSeries:
    value = np.where(rows["absent"] == 1, np.nan, rows["value_micro"] / MICRO)
    return MetricSeries(rows["time_ns"] / NS_PER_S, value, metric.held_s, metric.origin is Origin.CLIENT)


def _sorted(rows: Columns, keys: Sequence[str]) -> dict[str, np.ndarray]:
    order = np.lexsort([rows[key] for key in reversed(keys)])
    return {name: column[order] for name, column in rows.items()}


def _split(rows: Columns, keys: Sequence[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Cuts the rows where any key changes."""
    length = len(rows["time_ns"])
    if not length:
        return []
    changed = np.zeros(length, dtype=bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    starts = np.flatnonzero(changed)
    ends = np.append(starts[1:], length)
    return [{name: column[a:b] for name, column in rows.items()} for a, b in zip(starts, ends, strict=True)]
