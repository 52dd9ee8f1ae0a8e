"""What a topic is like, asked of the brokers that a test's own client talks to."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # it does export it

from harness.errors import BadInput
from harness.testing.registry import Property, Registry, TopicFacts

ASK_S = 15.0
_CONNECTING = ("bootstrap.servers", "metadata.broker.list", "security.", "sasl.", "ssl.")


def known_topic(registry: Registry, name: str, properties: Mapping[str, Property]) -> TopicFacts:
    """What is known of a topic, which is asked for when it is first used. BadInput if it is not there."""
    return registry.topic(name) or ask_topic(registry, name, properties)


def ask_topic(registry: Registry, name: str, properties: Mapping[str, Property]) -> TopicFacts:
    """Ask for its partitions, their brokers and its settings, and tell the registry. `properties`: of a client that can reach
    the brokers."""
    admin = AdminClient({key: value for key, value in properties.items() if key.startswith(_CONNECTING)})
    try:
        found = admin.list_topics(name, timeout=ASK_S).topics[name]
    except KafkaException as error:
        raise BadInput(f"topic {name!r} cannot be looked up: {error.args[0].str()}. Is the cluster there?") from error
    if found.error is not None or not found.partitions:
        why = found.error.str() if found.error is not None else "it has no partitions"
        raise BadInput(f"topic {name!r}: {why}. Create it before it is used: kafka_cluster.create_topic({name!r}).")
    assignment = [found.partitions[number].replicas for number in sorted(found.partitions)]
    return registry.add_topic(name, assignment, _settings(admin, name))


def _settings(admin: Any, name: str) -> dict[str, str]:  # noqa: ANN401 - AdminClient
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    try:
        entries = admin.describe_configs([resource], request_timeout=ASK_S)[resource].result(ASK_S)
    except KafkaException as error:
        raise BadInput(f"the settings of topic {name!r} cannot be looked up: {error.args[0].str()}.") from error
    return {key: entry.value for key, entry in entries.items() if entry.value is not None and not entry.is_sensitive}
