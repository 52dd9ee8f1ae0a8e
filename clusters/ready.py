"""When is a cluster ready: every broker knows every other, has the features it was formatted for, and takes a write."""

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # documented there

from clusters.wire import WireClient
from clusters.wire_requests import api_versions_request, metadata_request
from harness.clock import NS_PER_S, Clock, wait_until
from harness.errors import ClusterFailed, NotReady

READY_TOPIC = "prozess-ready"
_ASK_TIMEOUT_S = 2.0
_CREATE_TIMEOUT_S = 10.0
_TOPIC_ALREADY_EXISTS = 36
_INTERVAL_S = 0.05


class Readiness:
    """One wait for one cluster: all of its parts share the limit.

    `check_alive` raises if a node died that should run: then waiting on is pointless.
    """

    def __init__(
        self,
        servers: Mapping[int, tuple[str, int]],
        *,
        timeout_s: float,
        clock: Clock,
        check_alive: Callable[[], None],
    ) -> None:
        self._servers, self._clock, self._check_alive = dict(servers), clock, check_alive
        self._timeout_s = timeout_s
        self._deadline_ns = clock.monotonic_ns() + int(timeout_s * NS_PER_S)
        self._wire = WireClient(lambda: self._servers, name="broker", clock=clock)
        self._seen = "nothing"

    def wait(self, features: Mapping[str, int]) -> None:
        """Return once everything holds. NotReady with what was last seen; ClusterFailed for wrong feature levels."""
        try:
            self._until(self._all_unfenced, "every broker to see every broker unfenced")
            self._assert_features(features)
            self._until(self._topic_created, f"the topic {READY_TOPIC} to be created")
            self._until(self._topic_whole, f"the whole ISR of {READY_TOPIC} on every broker's own view")
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
        """Metadata lists only brokers that are registered and unfenced (KIP-631), as the asked one sees it."""
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
        """Every broker's finalized levels are those of the format: a bare format leaves all but one at level 0."""

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
        admin = AdminClient({"bootstrap.servers": self._bootstrap(), "log_level": 0, "reconnect.backoff.max.ms": 200})
        limit_s = min(_CREATE_TIMEOUT_S, max(1.0, self._left_s()))
        topic = NewTopic(READY_TOPIC, 1, replication_factor=len(self._servers))
        try:
            admin.create_topics([topic], operation_timeout=limit_s, request_timeout=limit_s)[READY_TOPIC].result(
                limit_s + 1
            )
        except KafkaException as error:
            if error.args[0].code() == _TOPIC_ALREADY_EXISTS:
                return True
            self._seen = f"create_topics answered {error.args[0]}"
            return False
        except TimeoutError:
            self._seen = f"create_topics gave no answer within {limit_s:g} s"
            return False
        return True

    def _topic_whole(self) -> bool:
        self._check_alive()
        for broker in self._servers:
            answers = self._wire.ask(broker, metadata_request([READY_TOPIC]), timeout_s=_ASK_TIMEOUT_S)
            view = answers[0].partitions.get((READY_TOPIC, 0)) if answers is not None else None
            if view is None or view.leader < 0 or set(view.isr) != self._servers.keys():
                self._seen = f"broker {broker} sees {view}"
                return False
        return True

    def _write(self) -> None:
        """One record with acks=all."""
        outcomes: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap(),
                "acks": "all",
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": int(max(1.0, self._left_s()) * 1000),
            }
        )
        producer.produce(READY_TOPIC, b"ready", on_delivery=lambda error, _: outcomes.append(error))

        def written() -> bool:
            self._check_alive()
            producer.poll(0.02)
            self._seen = f"delivery {outcomes[0]}" if outcomes else "no acknowledgement yet"
            return bool(outcomes)

        self._until(written, f"a write to {READY_TOPIC} with acks=all to be acknowledged")
        if outcomes[0] is not None:
            raise NotReady(
                awaited=f"a write to {READY_TOPIC} with acks=all", timeout_s=self._timeout_s, last_seen=str(outcomes[0])
            )

    def _bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._servers.values())
