"""Waits until a cluster is ready: every broker knows every other, has the features of the format, and takes a write."""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # documented there

from prozess.clusters.protocol.client import Cursor, Request, WireClient, string
from prozess.clusters.protocol.login import wire_login
from prozess.clusters.protocol.requests import api_versions_request, metadata_request, topic_ids_request
from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.config.existing_clusters import Login
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.machine_record import Made

READY_TOPIC = "prozess-ready"
_ASK_TIMEOUT_S = 2.0
_CREATE_TIMEOUT_S = 10.0
_TOPIC_ALREADY_EXISTS = 36
_INTERVAL_S = 0.05


class Readiness:
    """Waits until one cluster is ready. All parts of the wait share its limit.

    `check_alive` raises if a node died that should run: then waiting on is pointless.
    """

    def __init__(
        self,
        servers: Mapping[int, tuple[str, int]],
        *,
        timeout_s: float,
        clock: Clock,
        check_alive: Callable[[], None],
        login: Login | None = None,
        topic: str = READY_TOPIC,
        made: Made | None = None,
    ) -> None:
        """`topic`: the topic that is made for it. `made`: where its id is written down, if the cluster outlives the run."""
        self._topic, self._made = topic, made
        self._servers, self._clock, self._check_alive = dict(servers), clock, check_alive
        self._timeout_s = timeout_s
        self._deadline_ns = clock.monotonic_ns() + int(timeout_s * NS_PER_S)
        self._logging_in = {} if login is None else dict(login.properties)
        self._wire = WireClient(lambda: self._servers, name="broker", clock=clock, login=wire_login(login, clock))
        self._seen = "nothing"

    def wait(self, features: Mapping[str, int]) -> None:
        """Returns once everything holds. NotReady with what was last seen; ClusterFailed for wrong feature levels."""
        try:
            self._until(self._all_unfenced, "every broker to see every broker unfenced")
            self._assert_features(features)
            self._until(self._topic_created, f"the topic {self._topic} to be created")
            self._until(self._topic_whole, f"the whole ISR of {self._topic} on every broker's own view")
            self._write()
        finally:
            self._wire.close()

    def _until(self, probe: Callable[[], bool], awaited: str) -> None:
        try:
            wait_until(
                probe,
                awaited=awaited,
                timeout_s=self._left_s(),
                clock=self._clock,
                last_seen=lambda: self._seen,
                interval_s=_INTERVAL_S,
            )
        except NotReady as error:
            raise NotReady(awaited=awaited, timeout_s=self._timeout_s, last_seen=error.last_seen) from None

    def _left_s(self) -> float:
        return max(0.0, (self._deadline_ns - self._clock.monotonic_ns()) / NS_PER_S)

    def _all_unfenced(self) -> bool:
        """Does every broker see every other? Metadata lists only brokers that are registered and unfenced (KIP-631)."""
        self._check_alive()
        for broker in self._servers:
            answers = self._wire.ask(broker, metadata_request([]), timeout_s=_ASK_TIMEOUT_S)
            if answers is None:
                self._seen = f"broker {broker} does not answer"
                return False
            if answers[0].brokers != self._servers.keys():
                self._seen = f"broker {broker} sees the brokers {sorted(answers[0].brokers)}"
                return False
        return True

    def _assert_features(self, promised: Mapping[str, int]) -> None:
        """Checks that every broker's finalized levels are those of the format: a bare format leaves all but one at level
        0."""

        def same() -> bool:
            self._check_alive()
            for broker in self._servers:
                answers = self._wire.ask(broker, api_versions_request(), timeout_s=_ASK_TIMEOUT_S)
                found = answers[0].features if answers is not None else {}
                wrong = {name: found.get(name, 0) for name, level in promised.items() if found.get(name, 0) != level}
                if wrong:
                    self._seen = f"broker {broker} has {wrong} where the format promised {dict(promised)}"
                    return False
            return True

        try:
            self._until(same, "the feature levels of the format on every broker")
        except NotReady as error:
            raise ClusterFailed(f"The cluster has other feature levels than it was formatted for: {error}") from error

    def _topic_created(self) -> bool:
        self._check_alive()
        admin = AdminClient(
            {
                **self._logging_in,
                "bootstrap.servers": self._bootstrap(),
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        limit_s = min(_CREATE_TIMEOUT_S, max(1.0, self._left_s()))
        topic = NewTopic(self._topic, 1, replication_factor=len(self._servers))
        try:
            admin.create_topics([topic], operation_timeout=limit_s, request_timeout=limit_s)[self._topic].result(
                limit_s + 1
            )
        except KafkaException as error:
            if error.args[0].code() == _TOPIC_ALREADY_EXISTS:
                return self._noted()
            self._seen = f"create_topics answered {error.args[0]}"
            return False
        except TimeoutError:
            self._seen = f"create_topics gave no answer within {limit_s:g} s"
            return False
        return self._noted()

    def _noted(self) -> bool:
        """Writes down the topic's id, if the ledger must know it. Returns whether a broker has answered with one."""
        if self._made is None:
            return True
        for broker in self._servers:
            answers = self._wire.ask(broker, topic_ids_request([self._topic]), timeout_s=_ASK_TIMEOUT_S)
            if answers is not None and answers[0]:
                self._made.made(answers[0])
                return True
        self._seen = f"no broker informs the id of {self._topic}"
        return False

    def _topic_whole(self) -> bool:
        self._check_alive()
        for broker in self._servers:
            answers = self._wire.ask(broker, metadata_request([self._topic]), timeout_s=_ASK_TIMEOUT_S)
            view = answers[0].partitions.get((self._topic, 0)) if answers is not None else None
            if view is None or view.leader < 0 or set(view.isr) != self._servers.keys():
                self._seen = f"broker {broker} sees {view}"
                return False
        return True

    def _write(self) -> None:
        """Writes one record with acks=all."""
        outcomes: list[object] = []
        producer = Producer(
            {
                **self._logging_in,
                "bootstrap.servers": self._bootstrap(),
                "acks": "all",
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": int(max(1.0, self._left_s()) * 1000),
            }
        )
        producer.produce(self._topic, b"ready", on_delivery=lambda error, _: outcomes.append(error))

        def written() -> bool:
            self._check_alive()
            producer.poll(0.02)
            self._seen = f"delivery {outcomes[0]}" if outcomes else "no acknowledgement yet"
            return bool(outcomes)

        self._until(written, f"a write to {self._topic} with acks=all to be acknowledged")
        if outcomes[0] is not None:
            raise NotReady(
                awaited=f"a write to {self._topic} with acks=all", timeout_s=self._timeout_s, last_seen=str(outcomes[0])
            )

    def _bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._servers.values())


# Coordinators of groups: that they are there before anybody needs them.
#
# On a new cluster `__consumer_offsets` is made when the first coordinator is looked for, and brokers learn of it one
# after the other. librdkafka 2.16 does not live well with what they say meanwhile: a consumer whose first look at the
# committed offsets is answered NOT_COORDINATOR owns its partitions and never reads them (librdkafka#5586).


_GROUP = b"\x00"
_ALL_TOPICS = struct.pack(">i", -1)
_COMMITTED = struct.Struct(">iqi")  # partition, offset, leader epoch
TRY_S = 5.0


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The coordinator of a group; with an `error` other than 0 it is not yet known."""

    error: int
    node_id: int


def find_coordinator_request(group_id: str) -> Request[FoundCoordinator]:
    """A FindCoordinator request, v1 (KIP-98), which makes `__consumer_offsets` where it is not there yet."""
    return Request(10, 1, string(group_id) + _GROUP, _found_coordinator)


def _found_coordinator(cursor: Cursor) -> FoundCoordinator:
    cursor.int32()  # throttle time
    error = cursor.int16()
    cursor.string()  # error message
    return FoundCoordinator(error, cursor.int32())


def offset_fetch_request(group_id: str) -> Request[int]:
    """An OffsetFetch request, v5, of everything that a group has committed; only the error code is read.

    0 means that this broker is the group's coordinator, and has loaded what it must know."""
    return Request(9, 5, string(group_id) + _ALL_TOPICS, _offset_fetch_error)


def _offset_fetch_error(cursor: Cursor) -> int:
    cursor.int32()  # throttle time
    for _ in range(cursor.int32()):
        cursor.string()
        for _ in range(cursor.int32()):
            cursor.numbers(_COMMITTED)
            cursor.string()  # metadata
            cursor.int16()
    return cursor.int16()


def await_coordinators(
    group_ids: Collection[str],
    wire: WireClient,
    brokers: Callable[[], Sequence[int]],
    *,
    clock: Clock,
    timeout_s: float,
) -> None:
    """Returns once each of the running `brokers` names a coordinator of each group that answers for it.

    NotReady with what the last one lacked."""
    lacking = {group_id: "no broker was asked yet" for group_id in sorted(group_ids)}

    def none_lacks() -> bool:
        for group_id in list(lacking):
            why = _why_not(group_id, wire, brokers())
            if why is not None:
                lacking[group_id] = why
                return False
            del lacking[group_id]
        return True

    wait_until(
        none_lacks,
        awaited=f"the coordinators of {len(group_ids)} groups",
        timeout_s=timeout_s,
        clock=clock,
        last_seen=lambda: next((f"{group_id}: {why}" for group_id, why in lacking.items()), "all of them"),
    )


def _why_not(group_id: str, wire: WireClient, brokers: Sequence[int]) -> str | None:
    """Returns what a group lacks; None if its coordinator works and every broker knows it."""
    named = set()
    for broker in brokers:
        found = wire.ask(broker, find_coordinator_request(group_id), timeout_s=TRY_S)
        if found is None:
            return f"broker {broker} does not answer"
        if found[0].error:
            return f"broker {broker} names no coordinator (error code {found[0].error})"
        named.add(found[0].node_id)
    for node_id in named:
        answers = wire.ask(node_id, offset_fetch_request(group_id), timeout_s=TRY_S)
        if answers is None or answers[0]:
            why = "does not answer" if answers is None else f"is not ready (error code {answers[0]})"
            return f"broker {node_id}, which is its coordinator, {why}"
    return None
