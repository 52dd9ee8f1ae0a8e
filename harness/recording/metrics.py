"""Defines every metric that a history may hold, with its unit and its source."""

import re
from dataclasses import dataclass
from enum import StrEnum, unique

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


@unique
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
