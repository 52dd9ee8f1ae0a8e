"""What a running cluster is set to, for `prozess validate`: read by Kafka's own protocol; nothing there is changed."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from clusters.told import describe_elsewhere
from harness.clock import SystemClock
from harness.configuration import Variant
from harness.errors import BadInput, ClusterFailed, ProzessError

ASK_TIMEOUT_S = 10.0
_SET_BY_SOMEBODY = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker",
    ConfigSource.STATIC_BROKER_CONFIG: "broker",
}
"""Who set what is not Kafka's own default."""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Only what somebody has set; what is secret is not told."""

    brokers: int
    release: str | None
    """"4.3", as the brokers tell it; None: they do not."""
    broker: Mapping[str, str]
    """Of the broker with the lowest id."""
    topic: Mapping[str, str]
    """With replication.factor, of its first partition; empty where none was asked for."""
    notes: tuple[str, ...]


def live_settings(servers: str, topic: str | None, connection: Mapping[str, str]) -> LiveSettings:
    """Ask the cluster. `connection`: librdkafka's security.*, sasl.* and ssl.*. ClusterFailed if it does not answer, BadInput
    for a topic that it does not have or a property that librdkafka refuses."""
    try:
        client = AdminClient({**connection, "bootstrap.servers": servers, "log_level": 0})
        found = client.list_topics(timeout=ASK_TIMEOUT_S)
    except KafkaException as error:
        raise ClusterFailed(
            f"Kafka at {servers} does not answer within {ASK_TIMEOUT_S:g} s: {error.args[0].str()}. Give --cluster the "
            "addresses that clients use; how to log in is taken from a librdkafka file (--producer or --consumer)."
        ) from error
    except ValueError as error:
        raise BadInput(f"--cluster: librdkafka does not take its settings: {error}.") from error
    if topic is not None and topic not in found.topics:
        raise BadInput(f"--cluster-topic {topic!r}: Kafka at {servers} has no such topic.")
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in sorted(found.brokers)]
    resources += [ConfigResource(ResourceType.TOPIC, topic)] if topic is not None else []
    told = [dict(_set(scope, entries)) for scope, entries in _described(client, resources)]
    of_brokers = told[: len(found.brokers)]
    of_topic = told[-1] if topic is not None else {}
    if topic is not None:
        partitions = found.topics[topic].partitions
        of_topic["replication.factor"] = str(max(len(p.replicas) for p in partitions.values()))
    return LiveSettings(
        brokers=len(found.brokers),
        release=None if connection else _release(servers),
        broker=of_brokers[0],
        topic=of_topic,
        notes=tuple(_differing(of_brokers)),
    )


def _described(client: AdminClient, resources: list[ConfigResource]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    futures: Mapping[Any, Future[Mapping[str, Any]]] = client.describe_configs(resources, request_timeout=ASK_TIMEOUT_S)
    for resource in resources:
        try:
            entries = futures[resource].result(ASK_TIMEOUT_S + 1)
        except (KafkaException, WaitedTooLong) as error:
            raise ClusterFailed(
                f"The configuration of {resource.restype.name.lower()} {resource.name} is not told: {error}."
            ) from error
        yield resource.restype.name.lower(), entries


def _set(scope: str, entries: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, entry in entries.items():
        source = ConfigSource(entry.source)
        if _SET_BY_SOMEBODY.get(source) == scope and not entry.is_sensitive and entry.value is not None:
            yield name, str(entry.value)


def _differing(of_brokers: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """What brokers have differently although it says nothing of who or where they are."""
    own = ("listener", "id", "rack", "log.dir", "host", "port", "roles")
    for name in sorted(set().union(*of_brokers)):
        values = {settings.get(name, "Kafka's default") for settings in of_brokers}
        if len(values) > 1 and not any(part in name for part in own):
            yield f"the brokers differ in {name} ({', '.join(sorted(values))}): the first one's is taken"


def _release(servers: str) -> str | None:
    with suppress(ProzessError):
        told = describe_elsewhere(servers, Variant(), SystemClock())["kafka_version"]
        return None if told is None else str(told)
    return None
