"""A test's topics: their partitions and settings, asked of the brokers, and the records that stand in them when the
test is over."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, cast

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # it does export it

from prozess.harness.clock import Clock
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces.application import Contents, Record, RegisteredTopic, Registry
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.recording.rows import read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import SENDS, Outcome
from prozess.testing.recorded.client import (
    IDENTITY_NAME,
    OUR_HEADERS,
    ClientLog,
    identity_in,
    properties_to_connect,
    recorded_login,
)
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.record.identity import SENTINEL_KEY, decode, header_of

# The description of a topic, from the brokers that a test's own client talks to.


ASK_S = 15.0


def known_topic(
    registry: Registry, name: str, properties: Mapping[str, Any], log: ClientLog | None = None
) -> RegisteredTopic:
    """Returns the description of a topic. It is fetched at the first use. BadInput if the topic is not there."""
    return registry.topic(name) or ask_topic(registry, name, properties, log)


def ask_topic(
    registry: Registry, name: str, properties: Mapping[str, Any], log: ClientLog | None = None
) -> RegisteredTopic:
    """Asks for a topic's partitions, their brokers and its settings, and adds the topic to the registry. `properties`: of a
    client that can reach the brokers. `log`: where librdkafka's own lines go; None = to standard error."""
    admin = AdminClient(properties_to_connect(properties), **({} if log is None else {"logger": log}))
    try:
        admin.poll(0)  # a callback that gives a token is served here
        return _ask(admin, registry, name)
    finally:
        admin.poll(0)  # lines of its log


def _ask(admin: AdminClient, registry: Registry, name: str) -> RegisteredTopic:
    try:
        found = admin.list_topics(name, timeout=ASK_S).topics[name]
    except KafkaException as error:
        raise BadInput(f"topic {name!r} cannot be looked up: {error.args[0].str()}. Is the cluster there?") from error
    if found.error is not None or not found.partitions:
        why = found.error.str() if found.error is not None else "it has no partitions"
        raise BadInput(f"topic {name!r}: {why}. Create it before it is used: kafka_cluster.create_topic({name!r}).")
    assignment = [found.partitions[number].replicas for number in sorted(found.partitions)]
    return registry.add_topic(name, assignment, _settings(admin, name))


def _settings(admin: AdminClient, name: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    try:
        entries = admin.describe_configs([resource], request_timeout=ASK_S)[resource].result(ASK_S)
    except KafkaException as error:
        raise BadInput(f"the settings of topic {name!r} cannot be looked up: {error.args[0].str()}.") from error
    except TimeoutError as error:
        raise BadInput(
            f"the settings of topic {name!r} cannot be looked up: no broker answered within {ASK_S:g} s. "
            "Is the cluster there?"
        ) from error
    return {key: entry.value for key, entry in entries.items() if entry.value is not None and not entry.is_sensitive}


# The contents of topics when a test is over, with keys and values. prozess itself reads them from the start of each log
# through the audit's sentinel, at read_committed.


RECORDS_MAX = 1_000
POLL_S = 0.25
CONTENTS_ASK_S = 15.0


def read_contents(
    run: RunDirectory, topics: Sequence[RegisteredTopic], bootstrap_servers: str, *, clock: Clock, timeout_s: float
) -> dict[str, Contents]:
    """Reads the contents of each topic. What could not be read to its end says so. ClusterFailed if nothing can be
    read."""
    through, token = _sentinels(run), Registry(run.path).token
    properties = {
        **logged_in({}),
        **(recorded_login(run) or {}),
        "bootstrap.servers": bootstrap_servers,
        "group.id": "prozess-contents",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    records: dict[str, list[Record]] = {topic.name: [] for topic in topics}
    incomplete: dict[str, str] = {}
    wanted: dict[tuple[str, int], int] = {}
    for topic in topics:
        for number, dense in enumerate(topic.partitions):
            if dense in through:
                wanted[topic.name, number] = through[dense]
            else:
                incomplete[topic.name] = f"the audit did not come to the end of {topic.name}/{number}"
    try:
        with closing(Consumer(properties)) as consumer:
            for name, number in wanted:
                low, _ = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=CONTENTS_ASK_S)
                if low > 0:
                    incomplete[name] = f"records of {name}/{number} below offset {low} were deleted"
            consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for name, number in wanted])
            until_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
            while wanted and clock.monotonic_ns() < until_ns:
                for message in consumer.consume(RECORDS_MAX, POLL_S):
                    _take(message, records, wanted, token)
    except KafkaException as error:
        raise ClusterFailed(f"the topics of the test could not be read: {error.args[0].str()}") from error
    for name, number in wanted:
        incomplete[name] = f"{name}/{number} was not read to its end within {timeout_s:g} s"
    return {name: Contents(tuple(found), incomplete.get(name, "")) for name, found in records.items()}


def _take(message: Message, records: dict[str, list[Record]], wanted: dict[tuple[str, int], int], token: bytes) -> None:
    if message.error() is not None:
        return
    name, number, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
    at = (name, number)
    if at in wanted:
        if offset <= wanted[at] and not _is_sentinel(message):
            records[name].append(_record(message, name, number, offset, token))
        if offset >= wanted[at]:
            del wanted[at]


def _record(message: Message, name: str, number: int, offset: int, token: bytes) -> Record:
    key, value, headers = message.key(), message.value(), message.headers() or []
    sender, _, sequence, _ = identity_in(header_of(message), token)
    given = cast(list[tuple[str, Any]], headers)
    held = [(title, content.encode() if isinstance(content, str) else content) for title, content in given]
    return Record(
        topic=name,
        partition=number,
        offset=offset,
        key=key.encode() if isinstance(key, str) else key,
        value=value.encode() if isinstance(value, str) else value,
        headers=tuple(pair for pair in held if pair[0] not in OUR_HEADERS),
        timestamp_ms=int(message.timestamp()[1]),
        sender=sender,
        sequence=sequence,
        identity=next((content for title, content in held if title == IDENTITY_NAME), None),
    )


def _is_sentinel(message: Message) -> bool:
    return message.key() == SENTINEL_KEY and int(decode([message.value()]).sender[0]) == SENTINEL_CLIENT


def _sentinels(run: RunDirectory) -> Mapping[int, int]:
    """Returns the offset of the last acknowledged sentinel in each partition (dense id)."""
    sends, _ = read_rows(run.rows, SENDS, SENTINEL_CLIENT)
    written = sends[(sends["outcome"] == Outcome.OK) & (sends["log_offset"] >= 0)]
    order = np.argsort(written["log_offset"], kind="stable")
    return dict(zip(written["partition"][order].tolist(), written["log_offset"][order].tolist(), strict=True))
