"""A producer that provokes errors which no retry can heal: for example, an ACL denies its topic to it now and then."""

import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.serialization import SerializationContext, SerializationError
from confluent_kafka.serializing_producer import SerializingProducer

from prozess.harness.config.configuration import DAY_MS, PROVOCATIONS
from prozess.harness.schema import MISSING, NONE
from prozess.workloads import messages
from prozess.workloads.client import Client
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.producer import LogProducer
from prozess.workloads.record.identity import encoder, key_id
from prozess.workloads.record.sends import PartitionName
from prozess.workloads.settings import ErrorsOptions, options_of

# A producer that provokes errors which no retry can heal, beside records that are well; and records who learned what.
#
# What was bad about a record is not written down: a record is bad by its sequence
# (`prozess.checkers.log.records.is_bad`), and an error that is a state of client or cluster is known by its
# code.


QUEUE_BURSTS = 2
"""A burst is this many times what the client's queue holds."""
MISCONFIGURED: tuple[dict[str, Any], ...] = (
    {"enable.idempotence": True, "acks": "1"},
    {"no.such.property": "1"},
    {"linger.ms": 10_000, "delivery.timeout.ms": 5_000},
    {"compression.type": "brotli"},
)
"""Each makes librdkafka refuse to make a producer: a contradiction, an unknown name, a limit below what it must exceed, a
value that is none."""
_QUEUE_HOLDS = "queue.buffering.max.messages"


class ErrorsProducer(LogProducer):
    """A producer that provokes errors (role `errors-producer`). Options: `error` (a name of PROVOCATIONS), `every`. It
    obeys the commands of LogProducer."""

    def __init__(self, client: Client) -> None:
        options = options_of(client.spec, ErrorsOptions)
        self._error, self._every = options.error, options.every
        self._provocation = PROVOCATIONS[options.error]
        self._turns_taken = 0
        super().__init__(client)
        self._bad_bytes = self._provocation.value_bytes or client.spec.value_bytes
        self._encode_bad = encoder(sender=client.spec.client, value_bytes=self._bad_bytes)
        self._denial = Denial(client) if self._error == "not-authorised" else None

    def close(self) -> None:
        """Writes the rows to their end, and takes the denial away."""
        if self._denial is not None:
            self._denial.end()
        super().close()

    def _made(self, configuration: dict[str, Any]) -> Producer:
        if self._error == "serialization":
            return SerializingProducer(logged_in({**configuration, "value.serializer": _only_bytes}))
        return super()._made(configuration)

    def _obey(self, order: messages.Order) -> None:
        if isinstance(order.command, messages.FinishCommand) and self._denial is not None:
            self._denial.end()
        super()._obey(order)

    def _issue_due(self, now_ns: int) -> float:
        if self._denial is not None and self._resumed:
            self._denial.tick(now_ns)
        return super()._issue_due(now_ns)

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """Sends one record for each turn; every n-th is a bad one, or a burst of them if the queue is to be full."""
        of_record, every = self._provocation.of_record, self._every
        burst = QUEUE_BURSTS * int(self._spec.properties[_QUEUE_HOLDS]) if self._error == "full-queue" else 1
        for turn in turns:
            last_of_n = (self._sends.count if of_record else self._turns_taken) % every == every - 1
            self._turns_taken += 1
            for partition in repeat(turn, burst if last_of_n else 1):
                if self._client.fatal is None:
                    self._attempt(partition, bad=of_record and last_of_n)

    def _attempt(self, partition: PartitionName, *, bad: bool) -> None:
        """Tries to send one record, whose row is written before. A record that the partition's cap holds back is not
        sent."""
        dense, topic, number = partition
        if self._in_flight[dense] >= self._spec.unacknowledged_max:
            self._withheld.hold(dense)
            return
        self._withheld.release(dense)
        sequence = self._sends.count
        record = self._record(dense, sequence, bad=bad)
        size = self._bad_bytes if bad else self._spec.value_bytes
        self._sends.append(self._now_ns(), MISSING, NONE, sequence, NONE, key_id(record.get("key")), dense, 0, 0, size)
        self._in_flight[dense] += 1
        try:
            if bad and self._error == "bad-configuration":
                self._misconfigure(sequence)
            self._producer.produce(topic, partition=number, **record)
        except (BufferError, KafkaException) as error:
            self._goes_on(sequence, dense, error)

    def _record(self, dense: int, sequence: int, *, bad: bool) -> dict[str, Any]:
        """Returns the arguments with which produce() is called for a record."""
        value: Any = (self._encode_bad if bad else self._encode)(dense, sequence)
        match self._error:
            case (
                "invalid-record"
            ):  # a compacted topic takes no record without key; a key of its own keeps the others there
                return {"value": value} if bad else {"value": value, "key": sequence.to_bytes(8, "little")}
            case "invalid-timestamp" if bad:
                return {"value": value, "timestamp": time.time_ns() // 1_000_000 - DAY_MS}
            case "serialization" if bad:
                return {"value": {"partition": dense, "sequence": sequence}}
        return {"value": value}

    def _misconfigure(self, sequence: int) -> None:
        """Makes a producer with a wrong configuration, as an application would that then has none: KafkaException."""
        wrong = MISCONFIGURED[sequence // self._every % len(MISCONFIGURED)]
        Producer(logged_in({**self._spec.properties, **wrong}))
        self._client.log(f"librdkafka took a configuration that contradicts itself: {wrong}")


def _only_bytes(value: object, context: SerializationContext) -> bytes:
    """Serializes bytes as they are, and refuses everything else."""
    if isinstance(value, bytes):
        return value
    raise SerializationError(f"{type(value).__name__} cannot be written into {context.topic}")


# A topic that its producer may not write to, now and then: an ACL that denies it, set and taken away by Kafka's own
# means.
#
# Only writes from this host's address on the trial's network are denied, so that the audit, which comes over the
# observer's link, is not. Once a topic has any ACL, who is not named by one is refused
# (`allow.everyone.if.no.acl.found` is of resources without); so everybody is allowed everything first. A denial beats
# that. [Kafka documentation, security, "Authorization and ACLs"]


ALLOWED_NS, DENIED_NS = 2_000_000_000, 2_000_000_000
REQUEST_LIMIT_S = 10.0
"""The limit for one change of ACLs."""
END_LIMIT_S = 10.0
"""The limit for taking the denial away in the end."""
_EVERYONE, _UNNAMED = "User:*", "User:ANONYMOUS"


class Denial:
    """Denies writing to a topic for DENIED_NS after every ALLOWED_NS, as long as it is ticked. It never blocks but in
    `end`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        servers = str(client.spec.properties["bootstrap.servers"])
        self._admin = AdminClient(logged_in({"bootstrap.servers": servers, "log_level": 0}))
        self._topics = sorted({topic for _, topic, _ in client.spec.partitions})
        self._host = _own_address(servers)
        self._pending: list[Future[Any]] = []
        self._denied, self._ended = False, False
        self._next_ns = client.now_ns() + ALLOWED_NS
        allow = AclPermissionType.ALLOW
        self._request([_binding(topic, _EVERYONE, "*", AclOperation.ALL, allow) for topic in self._topics])

    def tick(self, now_ns: int) -> None:
        """Denies or allows writing, if it is time to."""
        if self._ended or now_ns < self._next_ns or not self._answered():
            return
        if self._denied:
            self._withdraw()
        else:
            deny = AclPermissionType.DENY
            self._request([_binding(t, _UNNAMED, self._host, AclOperation.WRITE, deny) for t in self._topics])
        self._denied = not self._denied
        self._next_ns = now_ns + (DENIED_NS if self._denied else ALLOWED_NS)

    def end(self) -> None:
        """Takes the denial away for good. Safe to call twice. What the cluster does not answer is logged, and the
        audit will say so."""
        if self._ended:
            return
        self._ended = True
        if self._denied:
            self._withdraw()
        for future in self._pending:
            try:
                future.result(timeout=END_LIMIT_S)
            except (KafkaException, TimeoutError) as error:
                self._client.log(f"an ACL was not changed within {END_LIMIT_S:g} s: {error}")

    def _answered(self) -> bool:
        if not all(future.done() for future in self._pending):
            return False
        for future in self._pending:
            if (error := future.exception()) is not None:
                self._client.log(f"an ACL was not changed: {error}")
        self._pending = []
        return True

    def _request(self, bindings: list[AclBinding]) -> None:
        self._pending += self._admin.create_acls(bindings, request_timeout=REQUEST_LIMIT_S).values()

    def _withdraw(self) -> None:
        filters = [
            AclBindingFilter(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                _UNNAMED,
                self._host,
                AclOperation.WRITE,
                AclPermissionType.DENY,
            )
            for topic in self._topics
        ]
        self._pending += self._admin.delete_acls(filters, request_timeout=REQUEST_LIMIT_S).values()


def _binding(
    topic: str, principal: str, host: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, host, operation, permission)


def _own_address(servers: str) -> str:
    """Returns the address that the brokers see of this process: that of the interface which leads to the first of
    them."""
    host, _, port = servers.split(",")[0].rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # of a datagram socket: nothing is sent
        return str(probe.getsockname()[0])
