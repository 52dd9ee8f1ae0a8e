"""Every metric that a history may hold is defined here, with its unit and its source. Samples of metrics become series
over time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import MISSING, Outcome

# Every metric that a history may hold.
#
# `metrics.metric` holds a code. Codes from FIXED_CODE up are those of this table, the same in every process and every
# run, so that clients can write them without a dictionary. Lower codes are those of the dictionary `metric`, for names
# that are known only at run time (`errors(Produce,NOT_ENOUGH_REPLICAS)`). A code is never used again for something
# else.
#
# Values are recorded in millionths of the unit. If somebody should have reported a metric and did not, there is a row
# with `absent` = 1 and value 0: the metric is not zero, but unknown.


FIXED_CODE = 1_000_000
MICRO = 1_000_000
HELD_S = 5.0
"""How long a sample stands if no newer one of its series comes. Samples come every second, and a starved machine may
answer later."""
REFRESH_S = 10.0
"""Metrics of partitions are written when they change, and at least this often."""
_ERRORS = re.compile(r"errors\([A-Za-z]+,[A-Z_0-9]+\)")


class Origin(StrEnum):
    """Says who reports a metric."""

    BROKER = "broker"
    """A broker reports it, by JMX."""
    CONTROLLER = "controller"
    """A controller reports it, by JMX. Inactive controllers report, too."""
    PROTOCOL = "protocol"
    """A broker or controller reports it in Kafka's protocol, when the observer asks."""
    CLIENT = "client"
    """A client of the trial reports it in its statistics. `client` says which one."""
    HISTORY = "history"
    """It is derived from the recorded history when that is judged. The table `metrics` has no row of it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A counter grows from the start of its process, so its rate is what matters."""

    code: int
    name: str
    unit: str
    origin: Origin
    meaning: str
    counter: bool = False
    per_partition: bool = False

    @property
    def held_s(self) -> float:
        """Returns how long a sample stands without a newer one."""
        return HELD_S + (REFRESH_S if self.per_partition and self.origin is Origin.PROTOCOL else 0.0)


def _m(
    number: int, name: str, unit: str, origin: Origin, meaning: str, *, counter: bool = False, partition: bool = False
) -> Metric:
    return Metric(FIXED_CODE + number, name, unit, origin, meaning, counter, partition)


_B, _C, _P, _L, _H = Origin.BROKER, Origin.CONTROLLER, Origin.PROTOCOL, Origin.CLIENT, Origin.HISTORY

METRICS: tuple[Metric, ...] = (
    # https://kafka.apache.org/documentation/#monitoring
    _m(1, "under_replicated_partitions", "partitions", _B, "led by the broker, with an ISR smaller than the replicas"),
    _m(2, "under_min_isr_partitions", "partitions", _B, "led by the broker, ISR below min.insync.replicas"),
    _m(3, "at_min_isr_partitions", "partitions", _B, "led by the broker, ISR exactly min.insync.replicas"),
    _m(4, "offline_replicas", "replicas", _B, "on the broker, in a log directory that failed"),
    _m(5, "leaders", "partitions", _B, "led by the broker"),
    _m(6, "isr_shrinks", "count", _B, "ISRs made smaller by the broker as leader", counter=True),
    _m(7, "isr_expands", "count", _B, "ISRs made larger by the broker as leader", counter=True),
    _m(8, "failed_isr_updates", "count", _B, "changes of an ISR that the controller refused", counter=True),
    _m(9, "late_transaction_partitions", "partitions", _B, "with a transaction open beyond its timeout: hanging"),
    _m(10, "replica_max_lag", "records", _B, "the broker's followers behind their leaders, the worst"),
    _m(11, "broker_state", "state", _B, "0 not running 1 starting 2 recovering 3 running 6 controlled shutdown"),
    _m(12, "failed_produce_requests", "count", _B, "partitions of produce requests that failed", counter=True),
    _m(13, "failed_fetch_requests", "count", _B, "partitions of fetch requests that failed", counter=True),
    _m(14, "messages_in", "records", _B, "appended by the broker as leader", counter=True),
    _m(15, "bytes_in", "bytes", _B, "appended by the broker as leader", counter=True),
    _m(16, "invalid_records", "count", _B, "refused: checksum wrong", counter=True),
    _m(17, "request_handler_idle", "share", _B, "of the request handlers' time, one minute's moving average"),
    _m(18, "log_flushes", "count", _B, "log segments forced to the disk", counter=True),
    _m(19, "log_flush_p99", "ms", _B, "99th percentile of the time a flush took"),
    _m(20, "offline_log_directories", "directories", _B, "that failed"),
    _m(21, "produce_p99", "ms", _B, "99th percentile of the time a produce request took, replication included"),
    _m(22, "dead_fetcher_threads", "threads", _B, "replica fetchers that ended"),
    _m(30, "active_controllers", "controllers", _C, "1 on the node that is active; the sum must be 1"),
    _m(31, "offline_partitions", "partitions", _C, "without leader, as the active controller sees it"),
    _m(32, "fenced_brokers", "brokers", _C, "registered and fenced"),
    _m(33, "active_brokers", "brokers", _C, "registered and not fenced"),
    _m(34, "unclean_elections", "count", _C, "leaders from outside ISR and ELR", counter=True),
    _m(35, "controller_changes", "count", _C, "new active controllers that the node learned of", counter=True),
    _m(36, "preferred_replica_imbalance", "partitions", _C, "not led by their preferred leader"),
    _m(37, "metadata_errors", "count", _C, "metadata records that could not be processed", counter=True),
    _m(38, "timed_out_heartbeats", "count", _C, "broker heartbeats that came too late", counter=True),
    _m(50, "jmx_answer", "ms", _P, "until a node had answered for all its JMX metrics"),
    _m(51, "isr_size", "replicas", _P, "as the leader itself says", partition=True),
    _m(52, "elr_size", "replicas", _P, "eligible leader replicas (KIP-966)", partition=True),
    _m(53, "high_watermark", "offset", _P, "as the leader itself says", partition=True),
    _m(54, "last_stable_offset", "offset", _P, "as the leader itself says", partition=True),
    _m(55, "last_stable_offset_lag", "records", _P, "high watermark − last stable offset: open transactions", partition=True),
    _m(56, "quorum_leader", "node id", _P, "of the metadata log, as each controller that leads says"),
    _m(57, "quorum_epoch", "epoch", _P, "of the metadata log, as each controller that leads says"),
    _m(58, "open_transactions", "transactions", _P, "ongoing, by coordinator"),
    _m(59, "oldest_transaction_idle", "s", _P, "since its producer's last record; 0 = none open", partition=True),
    _m(60, "oldest_transaction_offset", "offset", _P, "where the oldest open one begins; -1 = none", partition=True),
    _m(61, "oldest_transaction_producer", "producer id", _P, "whose it is; -1 = none open", partition=True),
    _m(62, "oldest_transaction_epoch", "epoch", _P, "of that producer; -1 = none open", partition=True),
    _m(63, "oldest_transaction_coordinator_epoch", "epoch", _P, "of its last marker; -1 = none", partition=True),
    _m(70, "client_retries", "requests", _L, "requests sent again whole, after a lost connection or answer", counter=True),
    _m(71, "client_request_errors", "requests", _L, "requests that failed on the way", counter=True),
    _m(72, "client_timeouts", "requests", _L, "requests without an answer in time", counter=True),
    _m(73, "client_queued_records", "records", _L, "produced, and not yet answered for"),
    _m(74, "client_outbound_requests", "requests", _L, "waiting to be sent, or for their answer"),
    _m(75, "client_rtt_p99", "ms", _L, "99th percentile of round trips, the slowest broker's"),
    _m(76, "client_records_sent", "records", _L, "transmitted; records that a broker refused, again and again", counter=True),
    _m(77, "client_records_received", "records", _L, "fetched", counter=True),
    _m(78, "consumer_lag", "records", _L, "the partition's end for this reader − its position", partition=True),
    _m(79, "copier_records", "records", _L, "copied and committed, as TransactionalMessageCopier says", counter=True),
    _m(80, "copier_remaining", "records", _L, "still to copy when it was last assigned, as TransactionalMessageCopier says"),
    _m(81, "client_known_brokers", "brokers", _L, "that it may ask where leaders are; 0 for good: librdkafka#5301"),
    _m(82, "client_stray_partitions", "partitions", _L, "with no broker, or one that the client knows not to lead"),
    _m(90, "record_errors", "records", _H, "sends that were completed and not acknowledged", counter=True),
    _m(91, "records_acknowledged", "records", _H, "sends that were acknowledged", counter=True),
    # https://kafka.apache.org/documentation/#producer_monitoring and #consumer_monitoring
    _m(100, "java_record_error_rate", "records/s", _L, "not sent, as record-error-rate says: over up to a minute"),
    _m(101, "java_record_retry_rate", "records/s", _L, "sent again, as record-retry-rate says: over up to a minute"),
    _m(102, "java_record_send_rate", "records/s", _L, "sent, as record-send-rate says: over up to a minute"),
    _m(103, "java_record_errors", "records", _L, "record-error-total: sends that ended in an error", counter=True),
    _m(104, "java_record_retries", "records", _L, "record-retry-total: records sent again", counter=True),
    _m(105, "java_records_sent", "records", _L, "record-send-total: in requests, so retries count again", counter=True),
    _m(106, "java_request_latency_avg", "ms", _L, "of requests, as request-latency-avg says: over up to a minute"),
    _m(107, "java_request_latency_max", "ms", _L, "the same, request-latency-max"),
    _m(110, "java_records_lag_max", "records", _L, "records-lag-max: the consumer's greatest lag in up to a minute"),
    _m(111, "java_records_consumed_rate", "records/s", _L, "records-consumed-rate: over up to a minute"),
    _m(112, "java_records_consumed", "records", _L, "records-consumed-total", counter=True),
    _m(113, "java_commits", "commits", _L, "commit-total", counter=True),
    _m(114, "java_commit_latency_max", "ms", _L, "commit-latency-max: over up to a minute"),
    _m(115, "java_rebalances", "rebalances", _L, "rebalance-total: completed ones", counter=True),
    _m(116, "java_failed_rebalances", "rebalances", _L, "failed-rebalance-total", counter=True),
    _m(117, "java_rebalance_latency_max", "ms", _L, "rebalance-latency-max: over up to a minute"),
    _m(118, "java_assigned_partitions", "partitions", _L, "assigned-partitions: of the consumer"),
    _m(119, "java_last_heartbeat", "s", _L, "last-heartbeat-seconds-ago: to the coordinator of the group"),
)  # fmt: skip
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
_BY_CODE: dict[int, Metric] = {metric.code: metric for metric in METRICS}
assert len(BY_NAME) == len(_BY_CODE) == len(METRICS)


def code_of(name: str) -> int:
    """Returns the fixed code of a metric of the table. Any other name is our own mistake."""
    return BY_NAME[name].code


def errors_metric(request: str, error: str) -> str:
    """Returns the name of the counter of answers with an error, by request and error:
    `errors(Produce,NOT_LEADER_OR_FOLLOWER)`."""
    return f"errors({request},{error})"


def known_metric(name: str) -> Metric | None:
    """Returns the metric with this name: one of the table, or a counter of errors. None: there is no such metric."""
    if _ERRORS.fullmatch(name):
        return Metric(-1, name, "count", Origin.BROKER, "answers with this error", counter=True)
    return BY_NAME.get(name)


# Metrics of a run as series over time: from rows of `metrics` to one series for each (client, node, partition).
#
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


# Jolokia, which is JMX over HTTP: how its agent is started in a JVM, what it is asked, and what its answers say. One
# POST answers for all MBeans. https://jolokia.org/reference/html/manual/jolokia_protocol.html#bulk-requests


JSON = Mapping[str, Any]
PATH = "/jolokia/?includeStackTrace=false&serializeException=false"
HEADERS = {"Content-Type": "application/json"}
_VALUE_MAX = 9.2e12
"""The greatest value of which millionths fit into an int64."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One number of one MBean. An MBean name with `*` is a pattern that must match exactly one MBean."""

    metric: str
    mbean: str
    attribute: str


def agent_flags(agent: Path | None, *, host: str, port: int) -> tuple[str, ...]:
    """Returns the JVM options that start the Jolokia agent. With port 0 it takes a free port, and prints it.
    https://jolokia.org/reference/html/manual/agents.html#agents-jvm"""
    if agent is None:
        return ()
    return (f"-javaagent:{agent}=host={host},port={port},discoveryEnabled=false,executor=single",)


def reads(attributes: Sequence[Attribute]) -> list[JSON]:
    """Returns the body of one request: one read for each MBean, with all attributes that are wanted, in the order of the
    MBeans."""
    wanted: dict[str, list[str]] = {}
    for attribute in attributes:
        wanted.setdefault(attribute.mbean, []).append(attribute.attribute)
    return [{"type": "read", "mbean": mbean, "attribute": names} for mbean, names in wanted.items()]


def values(attributes: Sequence[Attribute], answers: Sequence[JSON]) -> dict[str, float | None]:
    """Returns the value of each metric, from the answers to `reads(attributes)` in their order. None: the process did
    not report it, because the MBean is not registered yet, the value is no number, or several MBeans match a pattern."""
    found: dict[tuple[str, str], float] = {}
    for asked, answer in zip(reads(attributes), answers, strict=False):
        value = answer.get("value")
        if answer.get("status") != 200 or not isinstance(value, Mapping):
            continue
        # The answer repeats the name, but a pattern in another spelling: keys sorted.
        mbean = str(asked["mbean"])
        if "*" in mbean:
            value = next(iter(value.values())) if len(value) == 1 else {}
        if isinstance(value, Mapping):
            found |= {(mbean, name): float(number) for name, number in value.items() if is_number(number)}
    return {a.metric: found.get((a.mbean, a.attribute)) for a in attributes}


def is_number(value: object) -> bool:
    """Returns whether this is a number that can be recorded. JMX has NaN where nothing was measured yet."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < _VALUE_MAX
