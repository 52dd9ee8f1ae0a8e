"""What a client's own library takes for each setting that nobody set, by library and version. Pure.

The values are the library's own, as the program informed them (`known_properties`). What a library makes of them while it is
configured is here: Kafka's `ProducerConfig.postProcessAndValidateIdempotenceConfigs` and librdkafka's
`rd_kafka_conf_finalize`. Before a run the library itself is asked, and what it says counts
(`prozess.workloads.library_check`): so the values of a version that is not in the table are only a first guess.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from prozess.harness.config.configuration import RETRIES_MAX, GroupConfiguration, ProducerConfiguration, version_numbers
from prozess.harness.config.known_properties import default_of, properties_of

PROPERTY_OF: Mapping[str, str] = {
    "acks": "acks",
    "enable_idempotence": "enable.idempotence",
    "retries": "retries",
    "max_in_flight": "max.in.flight.requests.per.connection",
    "delivery_timeout_ms": "delivery.timeout.ms",
    "compression_type": "compression.type",
    "linger_ms": "linger.ms",
}
"""Setting of a producer → Kafka's name of it, in Java and in librdkafka."""
IN_FLIGHT_MAX = 5
"""The most requests in flight of an idempotent producer. [KAFKA-5494; librdkafka CONFIGURATION, enable.idempotence]"""
_ALL = {"-1": "all"}
_IDEMPOTENT_BY_DEFAULT = (3, 0, 0)
_BY_DOCUMENTATION_ALONE = ((3, 0, 0), (3, 1, 0))


def is_idempotent_by_default(version: str) -> bool:
    """Says whether a Java producer of this version is idempotent if nobody says so (KIP-679)."""
    return version_numbers(version) >= _IDEMPOTENT_BY_DEFAULT and not is_idempotent_by_documentation_alone(version)


def is_idempotent_by_documentation_alone(version: str) -> bool:
    """Says whether the documentation of this version promises of a Java producer that it is idempotent if nobody says so,
    and the client is not (KAFKA-13598)."""
    return version_numbers(version) in _BY_DOCUMENTATION_ALONE


def with_library_defaults(
    producer: ProducerConfiguration,
    given: Collection[str],
    *,
    kafka_version: str,
    transaction_timeout_ms: int | None = None,
) -> ProducerConfiguration:
    """Returns a producer's configuration with the library's own value for each setting that is not in `given`.

    `kafka_version`: of the variant, which Java clients have unless the trial says another. `transaction_timeout_ms`: of
    a producer with a transactional.id; None means that it has none.
    """
    assert producer.client != "command", producer
    version = producer.client_version or kafka_version if producer.client == "java" else kafka_version
    known = properties_of("producer", producer.client, version)
    defaults = {property_: default_of(property_, known) for property_ in PROPERTY_OF.values()}
    return _resolved(producer, given, defaults, version, transaction_timeout_ms)


def _resolved(
    producer: ProducerConfiguration,
    given: Collection[str],
    defaults: Mapping[str, str],
    version: str,
    transaction_timeout_ms: int | None,
) -> ProducerConfiguration:
    """Returns the configuration as a library with these defaults has it. `version`: of a Java client."""
    java = producer.client == "java"
    own: dict[str, Any] = {name: defaults[property_] for name, property_ in PROPERTY_OF.items()}
    own["acks"] = _ALL.get(own["acks"], own["acks"])
    own["retries"] = "max" if own["retries"] == str(RETRIES_MAX) else own["retries"]
    own["enable_idempotence"] = own["enable_idempotence"] == "true" and (not java or is_idempotent_by_default(version))
    own |= {name: int(own[name]) for name in ("max_in_flight", "delivery_timeout_ms")}
    own["linger_ms"] = float(own["linger_ms"])
    chosen = {name: getattr(producer, name) for name in PROPERTY_OF if name in given}
    if transaction_timeout_ms is not None:
        own["enable_idempotence"] = True
        if not java:  # [rd_kafka_topic_conf_finalize: it lowers what nobody set]
            own["delivery_timeout_ms"] = min(own["delivery_timeout_ms"], transaction_timeout_ms)
    elif "enable_idempotence" not in given and _gives_idempotence_up(chosen, strict=java and _refuses_six(version)):
        own["enable_idempotence"] = False
    whole = own | chosen
    if whole["enable_idempotence"]:
        # What nobody set fits an idempotent producer. [KafkaProducer.configureAcks, before 3.0; rd_kafka_conf_finalize]
        more = {"acks": "all", "max_in_flight": min(own["max_in_flight"], IN_FLIGHT_MAX)}
        whole |= {name: value for name, value in more.items() if name not in given}
    left = tuple(name for name in PROPERTY_OF if name not in given)
    return producer.model_copy(update=whole | {"left_to_client": left})


def _refuses_six(version: str) -> bool:
    """From 4.0 on a Java client refuses more than five in flight; before, it silently gave idempotence up."""
    return version_numbers(version) >= (4, 0)


def _gives_idempotence_up(chosen: Mapping[str, Any], *, strict: bool) -> bool:
    """Says whether what was chosen contradicts an idempotence that nobody asked for: then the client is not
    idempotent (KIP-679)."""
    too_many = not strict and chosen.get("max_in_flight", 1) > IN_FLIGHT_MAX
    return chosen.get("acks", "all") != "all" or chosen.get("retries", "max") == "0" or too_many


def contradictions(
    producer: ProducerConfiguration,
    defaults: Mapping[str, str],
    *,
    version: str,
    transaction_timeout_ms: int | None = None,
) -> list[str]:
    """Returns what the library itself says otherwise than the plan has it, of what was left to it. `defaults`: Kafka's name
    of each setting → the library's own value; `version`: of a Java client."""
    given = PROPERTY_OF.keys() - set(producer.left_to_client)
    own = _resolved(producer, given, defaults, version, transaction_timeout_ms)
    differing = (name for name in producer.left_to_client if getattr(own, name) != getattr(producer, name))
    return [f"{PROPERTY_OF[name]}={defaults[PROPERTY_OF[name]]}, not {getattr(producer, name)}" for name in differing]


# Members of a group.

MEMBER_PROPERTY_OF: Mapping[str, str] = {
    "protocol": "partition.assignment.strategy",
    "commit": "enable.auto.commit",
    "auto_commit_interval_ms": "auto.commit.interval.ms",
    "auto_offset_reset": "auto.offset.reset",
    "isolation_level": "isolation.level",
    "session_timeout_ms": "session.timeout.ms",
    "max_poll_interval_ms": "max.poll.interval.ms",
}
"""Setting of a group → Kafka's name of the property that stands for it, in Java and in librdkafka."""
_RESETS = {"largest": "latest", "smallest": "earliest"}
_EAGER = re.compile(r"(class )?(org\.apache\.kafka\.clients\.consumer\.RangeAssignor|range)\b")
"""A list of assignors that begins with the range assignor: members that all have it share partitions by it, and give all of
them up in every rebalance. [ConsumerPartitionAssignor; KIP-429: eager is what every listed assignor supports]"""


def with_members_defaults(
    group: GroupConfiguration, given: Collection[str], *, kafka_version: str
) -> GroupConfiguration:
    """Returns a group's configuration with the library's own value for each setting of its members that is not in
    `given`. `kafka_version`: as of `with_library_defaults`."""
    version = group.client_version or kafka_version if group.client == "java" else kafka_version
    known = properties_of("consumer", group.client, version)
    return _members_resolved(group, given, {name: default_of(name, known) for name in MEMBER_PROPERTY_OF.values()})


def _members_resolved(
    group: GroupConfiguration, given: Collection[str], defaults: Mapping[str, str]
) -> GroupConfiguration:
    whole: dict[str, Any] = {name: defaults[property_] for name, property_ in MEMBER_PROPERTY_OF.items()}
    whole["protocol"] = "classic-eager" if _EAGER.match(whole["protocol"].strip("[]")) else "classic-cooperative"
    whole["commit"] = "auto" if whole["commit"] == "true" else "none"
    whole["auto_offset_reset"] = _RESETS.get(whole["auto_offset_reset"], whole["auto_offset_reset"])
    whole |= {name: int(whole[name]) for name in MEMBER_PROPERTY_OF if name.endswith("_ms")}
    left = tuple(name for name in MEMBER_PROPERTY_OF if name not in given)
    return group.model_copy(update={name: whole[name] for name in left} | {"left_to_client": left})


def members_contradictions(group: GroupConfiguration, defaults: Mapping[str, str]) -> list[str]:
    """Returns what the library itself says of its consumers otherwise than the plan has it, of what was left to it."""
    own = _members_resolved(group, MEMBER_PROPERTY_OF.keys() - set(group.left_to_client), defaults)
    differing = (name for name in group.left_to_client if getattr(own, name) != getattr(group, name))
    return [
        f"{MEMBER_PROPERTY_OF[name]}={defaults[MEMBER_PROPERTY_OF[name]]}, not {getattr(group, name)}"
        for name in differing
    ]
