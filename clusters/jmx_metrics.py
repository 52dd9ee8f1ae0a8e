"""Which MBean and attribute each metric of `harness.metrics` is, in Kafka 3.x and 4.x.

Names: https://kafka.apache.org/documentation/#monitoring. Gauges have `Value`, meters `Count`, histograms percentiles.
"""

from collections.abc import Iterable, Mapping, Sequence

from harness import jolokia
from harness.jolokia import JSON, Attribute, is_number
from harness.metrics import errors_metric

ERRORS = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*"
"""Pattern: one MBean per (request, error) that ever happened, NONE included."""


def _replica_manager(metric: str, name: str, attribute: str = "Value") -> Attribute:
    return Attribute(metric, f"kafka.server:type=ReplicaManager,name={name}", attribute)


def _topics(metric: str, name: str) -> Attribute:
    return Attribute(metric, f"kafka.server:type=BrokerTopicMetrics,name={name}", "Count")


def _controller(metric: str, name: str) -> Attribute:
    return Attribute(metric, f"kafka.controller:type=KafkaController,name={name}", "Value")


_FLUSH = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
BROKER: tuple[Attribute, ...] = (
    _replica_manager("under_replicated_partitions", "UnderReplicatedPartitions"),
    _replica_manager("under_min_isr_partitions", "UnderMinIsrPartitionCount"),
    _replica_manager("at_min_isr_partitions", "AtMinIsrPartitionCount"),
    _replica_manager("offline_replicas", "OfflineReplicaCount"),
    _replica_manager("leaders", "LeaderCount"),
    _replica_manager("isr_shrinks", "IsrShrinksPerSec", "Count"),
    _replica_manager("isr_expands", "IsrExpandsPerSec", "Count"),
    _replica_manager("failed_isr_updates", "FailedIsrUpdatesPerSec", "Count"),
    _replica_manager("late_transaction_partitions", "PartitionsWithLateTransactionsCount"),
    Attribute("replica_max_lag", "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica", "Value"),
    Attribute(
        "dead_fetcher_threads", "kafka.server:type=ReplicaFetcherManager,name=DeadThreadCount,clientId=Replica", "Value"
    ),
    Attribute("broker_state", "kafka.server:type=KafkaServer,name=BrokerState", "Value"),
    _topics("failed_produce_requests", "FailedProduceRequestsPerSec"),
    _topics("failed_fetch_requests", "FailedFetchRequestsPerSec"),
    _topics("messages_in", "MessagesInPerSec"),
    _topics("bytes_in", "BytesInPerSec"),
    _topics("invalid_records", "InvalidMessageCrcRecordsPerSec"),
    Attribute(
        "request_handler_idle",
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "OneMinuteRate",
    ),
    Attribute("log_flushes", _FLUSH, "Count"),
    Attribute("log_flush_p99", _FLUSH, "99thPercentile"),
    Attribute("offline_log_directories", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "Value"),
    Attribute("produce_p99", "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce", "99thPercentile"),
)
CONTROLLER: tuple[Attribute, ...] = (
    _controller("active_controllers", "ActiveControllerCount"),
    _controller("offline_partitions", "OfflinePartitionsCount"),
    _controller("fenced_brokers", "FencedBrokerCount"),
    _controller("active_brokers", "ActiveBrokerCount"),
    _controller("preferred_replica_imbalance", "PreferredReplicaImbalanceCount"),
    _controller("metadata_errors", "MetadataErrorCount"),
    _controller("timed_out_heartbeats", "TimedOutBrokerHeartbeatCount"),
    Attribute("unclean_elections", "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec", "Count"),
    _controller("controller_changes", "NewActiveControllersCount"),
)
WITH_ZOOKEEPER: tuple[Attribute, ...] = tuple(
    attribute
    for attribute in CONTROLLER
    if attribute.metric not in ("metadata_errors", "timed_out_heartbeats", "controller_changes")
)
"""Of a broker that may become the controller, as each may with ZooKeeper; the rest is of KRaft's controllers alone.
[KafkaController.scala of 3.9]"""
BY_ROLE: Mapping[str, tuple[Attribute, ...]] = {"broker": BROKER, "controller": CONTROLLER}


def attributes_of(roles: Iterable[str], *, with_zookeeper: bool = False) -> tuple[Attribute, ...]:
    """What a node of these roles tells; a ZooKeeper server tells nothing here."""
    roles = sorted(roles)
    more = WITH_ZOOKEEPER if with_zookeeper and "broker" in roles else ()
    return (*(attribute for role in roles for attribute in BY_ROLE.get(role, ())), *more)


def reads(attributes: Sequence[Attribute]) -> list[JSON]:
    """The body of one request to a server: its attributes, and the pattern of errors last."""
    return [*jolokia.reads(attributes), {"type": "read", "mbean": ERRORS, "attribute": ["Count"]}]


def values(attributes: Sequence[Attribute], answers: Sequence[JSON]) -> dict[str, float | None]:
    """Metric → value, from the answers to `reads(attributes)`: see `jolokia.values`. Errors appear by `errors_metric` once
    they happened."""
    asked = len(jolokia.reads(attributes))
    told = jolokia.values(attributes, answers[:asked])
    for answer in answers[asked:]:
        value = answer.get("value")
        if answer.get("status") == 200 and isinstance(value, Mapping):
            told |= _errors(value)
    return told


def _errors(by_mbean: JSON) -> dict[str, float | None]:
    told: dict[str, float] = {}
    for mbean, attributes in by_mbean.items():
        keys = dict(part.split("=", 1) for part in mbean.partition(":")[2].split(",") if "=" in part)
        if keys.get("error", "NONE") == "NONE" or not is_number(attributes.get("Count")):
            continue
        name = errors_metric(keys.get("request", "").replace("-", ""), keys["error"])
        told[name] = told.get(name, 0.0) + float(attributes["Count"])
    return dict(told)
