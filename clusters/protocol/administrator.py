"""Makes single calls of an administrator to exactly one server, once: topics are made, deleted, altered and described.

Layouts: `CreateTopics` version 7, `DeleteTopics` 6, `IncrementalAlterConfigs` 1 and `DescribeConfigs` 4, of every
`kafka-clients` jar. Brokers hand on what the active controller decides (KIP-590). Controllers answer DescribeConfigs since
3.7 (KIP-919).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from prozess.clusters.protocol.client import NO_TAGS, Cursor, Request, WireClient, compact_string, unsigned_varint
from prozess.clusters.protocol.login import wire_login
from prozess.clusters.protocol.requests import topic_ids_request
from prozess.harness.clock import Clock
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces.cluster import ObservedCluster

T = TypeVar("T")
TOPIC_ALREADY_EXISTS = 36
RETENTION = "retention.ms"
_TOPIC = 2
"""The resource type of a topic. [ConfigResource.Type]"""
_SET = 0
"""The operation that sets a value. [AlterConfigOp.OpType]"""
_ONE = unsigned_varint(2)
"""The length of a compact array with one entry."""


@dataclass(frozen=True, slots=True)
class MadeTopic:
    """The answer to a call that makes a topic: the error, and the id of the topic."""

    error: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Described:
    """The answer to a call that describes a topic's retention.ms: the error, and the value. None: it has none."""

    error: int
    value: int | None


class Administrator:
    """Makes an administrator's calls. None stands for "no answer in time": the call may have taken effect, or may yet.

    No call is made twice: a second one could undo what others did in between. For one thread."""

    def __init__(self, cluster: ObservedCluster, *, clock: Clock, timeout_s: float) -> None:
        self._brokers = WireClient(
            lambda: cluster.observer_servers, name="broker", clock=clock, login=wire_login(cluster.login, clock)
        )
        self._controllers = WireClient(lambda: cluster.controller_servers, name="controller", clock=clock)
        self._cluster, self._timeout_s = cluster, timeout_s

    def close(self) -> None:
        """Gives back the connections."""
        self._brokers.close()
        self._controllers.close()

    def make(self, broker: int, topic: str, *, retention_ms: int, only_try: bool = False) -> MadeTopic | None:
        """Makes a topic with one partition and one replica; `only_try`: only asks whether it could be made."""
        return self._once(broker, make_request(topic, retention_ms, only_try=only_try))

    def delete(self, broker: int, topic_id: UUID) -> int | None:
        """Deletes the topic with this id. Returns the error."""
        return self._once(broker, delete_request(topic_id))

    def set_retention(self, broker: int, topic: str, retention_ms: int) -> int | None:
        """Sets retention.ms of a topic. Returns the error."""
        return self._once(broker, alter_request(topic, {RETENTION: str(retention_ms)}))

    def retention(self, node: int, topic: str) -> Described | None:
        """Asks this broker or controller for its copy of retention.ms of a topic."""
        return self._once(node, describe_request(topic, RETENTION))

    def topic_id(self, broker: int, topic: str) -> Mapping[str, UUID] | None:
        """Asks this broker for its copy of the id of a topic. Empty: it knows none of that name."""
        return self._once(broker, topic_ids_request([topic]))

    def _once(self, node: int, request: Request[T]) -> T | None:
        client = self._brokers if node in self._cluster.observer_servers else self._controllers
        client.close()  # a kept connection that turns out to be dead would have the request sent again
        try:
            answers = client.ask(node, request, timeout_s=self._timeout_s)
        except ClusterFailed:  # no answer of Kafka's: an older controller closes the connection, for example
            return None
        return None if answers is None else answers[0]


def make_request(topic: str, retention_ms: int, *, only_try: bool) -> Request[MadeTopic]:
    """Returns a CreateTopics request, v7: the first whose answer has the id (KIP-516)."""
    configs = _ONE + compact_string(RETENTION) + compact_string(str(retention_ms)) + NO_TAGS
    one = compact_string(topic) + struct.pack(">ih", 1, 1) + unsigned_varint(1) + configs + NO_TAGS
    body = _ONE + one + struct.pack(">ib", _CONTROLLER_MS, int(only_try)) + NO_TAGS
    return Request(19, 7, body, _made, flexible=True, flexible_response=True)


_CONTROLLER_MS = 5_000
"""How long the controller may take, as the request says."""


def _made(cursor: Cursor) -> MadeTopic:
    cursor.int32()  # throttle time
    cursor.unsigned_varint()
    cursor.compact_string()
    topic_id = cursor.uuid()
    return MadeTopic(cursor.int16(), topic_id)


def delete_request(topic_id: UUID) -> Request[int]:
    """Returns a DeleteTopics request, v6, for one id (KIP-516)."""
    body = _ONE + b"\0" + topic_id.bytes + NO_TAGS + struct.pack(">i", _CONTROLLER_MS) + NO_TAGS
    return Request(20, 6, body, _deleted, flexible=True, flexible_response=True)


def _deleted(cursor: Cursor) -> int:
    cursor.int32()  # throttle time
    cursor.unsigned_varint()
    cursor.compact_string()
    cursor.uuid()
    return cursor.int16()


def alter_request(topic: str, values: Mapping[str, str]) -> Request[int]:
    """Returns an IncrementalAlterConfigs request, v1 (KIP-339), for one topic."""
    configs = b"".join(
        compact_string(name) + struct.pack(">b", _SET) + compact_string(value) + NO_TAGS
        for name, value in values.items()
    )
    one = struct.pack(">b", _TOPIC) + compact_string(topic) + unsigned_varint(len(values) + 1) + configs + NO_TAGS
    return Request(44, 1, _ONE + one + b"\0" + NO_TAGS, _altered, flexible=True, flexible_response=True)


def _altered(cursor: Cursor) -> int:
    cursor.int32()  # throttle time
    cursor.unsigned_varint()
    return cursor.int16()


def describe_request(topic: str, name: str) -> Request[Described]:
    """Returns a DescribeConfigs request, v4, for one setting of one topic."""
    one = struct.pack(">b", _TOPIC) + compact_string(topic) + _ONE + compact_string(name) + NO_TAGS
    return Request(32, 4, _ONE + one + b"\0\0" + NO_TAGS, _described, flexible=True, flexible_response=True)


def _described(cursor: Cursor) -> Described:
    cursor.int32()  # throttle time
    cursor.unsigned_varint()
    error = cursor.int16()
    cursor.compact_string()
    cursor.int8()
    cursor.compact_string()
    if error or cursor.unsigned_varint() < 2:
        return Described(error, None)
    cursor.compact_string()
    value = cursor.compact_string()
    return Described(error, int(value) if value and value.lstrip("-").isdigit() else None)
