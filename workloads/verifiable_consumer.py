"""A verifiable consumer on librdkafka: options, JSON lines and signals of org.apache.kafka.tools.VerifiableConsumer.

    python -m workloads.verifiable_consumer --topic T --group-id G --bootstrap-server H:P --verbose

As there: per poll, `record_data` of each record, then `records_consumed`, then a synchronous commit and `offsets_committed`.
Unlike there, a fatal error is exit code 1 and not 0: nobody can tell a crash from a clean end otherwise.
"""

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from workloads.verifiable_cli import Emitter, Parser, StopSignal, complain, finish, for_librdkafka, read_properties

POLL_S = 0.1
POLL_RECORDS_MAX = 500
"""Java's default of max.poll.records."""
_STRATEGIES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def options() -> Parser:
    """As of VerifiableConsumer of Kafka 4.3."""
    parser = Parser(prog="verifiable-consumer", description="Consume a topic in a group; print JSON for each event.")
    add = parser.add_argument
    add("--bootstrap-server", required=True, metavar="HOST1:PORT1[,HOST2:PORT2[...]]")
    add("--topic", required=True)
    add("--group-id", required=True)
    add("--group-protocol", choices=("classic", "consumer"), default="classic")
    add("--group-remote-assignor")
    add("--group-instance-id")
    add("--max-messages", type=int, default=-1)
    add("--session-timeout", type=int)
    add("--verbose", action="store_true")
    add("--enable-autocommit", action="store_true")
    add("--reset-policy", choices=("earliest", "latest", "none"), default="earliest")
    add("--assignment-strategy", default="org.apache.kafka.clients.consumer.RangeAssignor")
    file = parser.add_mutually_exclusive_group()
    file.add_argument("--consumer.config", dest="file", metavar="CONFIG-FILE")
    file.add_argument("--command-config", dest="file", metavar="CONFIG-FILE")
    return parser


def properties_of(given: Any) -> dict[str, str]:  # noqa: ANN401 - a Namespace
    """The file, and over it what the options say: here the options win."""
    chosen = {
        "bootstrap.servers": given.bootstrap_server,
        "group.id": given.group_id,
        "group.protocol": given.group_protocol,
        "enable.auto.commit": str(given.enable_autocommit).lower(),
        "auto.offset.reset": "error" if given.reset_policy == "none" else given.reset_policy,
        "group.instance.id": given.group_instance_id,
    }
    if given.group_protocol == "classic":
        strategy = given.assignment_strategy
        chosen["partition.assignment.strategy"] = _STRATEGIES.get(strategy, strategy)
        chosen["session.timeout.ms"] = None if given.session_timeout is None else str(given.session_timeout)
    else:
        chosen["group.remote.assignor"] = given.group_remote_assignor
    file = for_librdkafka(read_properties(given.file))
    return file | {key: value for key, value in chosen.items() if value is not None}


class VerifiableConsumer:
    """The tool."""

    def __init__(self, argv: list[str]) -> None:
        self._options = options().parse(argv)
        self._emit, self._stop = Emitter(), StopSignal()
        self._read = 0
        self._fatal = False
        try:
            defaults = {"log_level": "0", "error_cb": self._on_error}
            self._consumer = Consumer(defaults | properties_of(self._options))
        except KafkaException as error:
            complain(f"the configuration is refused: {error.args[0].str()}")
            raise SystemExit(1) from error

    def run(self) -> int:
        """Until --max-messages were read or a signal came; returns the exit code."""
        self._emit("startup_complete")
        self._consumer.subscribe([self._options.topic], on_assign=self._assigned, on_revoke=self._revoked)
        most = self._options.max_messages
        try:
            while not self._stop and not self._fatal and (most < 0 or self._read < most):
                self._poll(POLL_RECORDS_MAX if most < 0 else min(POLL_RECORDS_MAX, most - self._read))
        except KafkaException as error:
            complain(f"fatal: {error.args[0].str()}")
            self._fatal = True
        self._emit("shutdown_requested")
        self._consumer.close()
        self._emit("shutdown_complete")
        return 1 if self._fatal else self._stop.code

    def _poll(self, most: int) -> None:
        messages = self._consumer.consume(most, POLL_S)
        for message in messages:
            if (error := message.error()) is not None:
                self._on_error(error)
        records = [message for message in messages if message.error() is None]
        if not records:
            return
        self._read += len(records)
        by_partition: dict[tuple[str, int], list[int]] = {}
        for message in records:
            if self._options.verbose:
                self._emit("record_data", **_record(message))
            by_partition.setdefault((str(message.topic()), int(message.partition() or 0)), []).append(
                int(message.offset() or 0)
            )
        summaries = [
            {"topic": t, "partition": p, "count": len(o), "minOffset": min(o), "maxOffset": max(o)}
            for (t, p), o in by_partition.items()
        ]
        self._emit("records_consumed", count=len(records), partitions=summaries)
        if not self._options.enable_autocommit:
            self._commit([TopicPartition(t, p, max(o) + 1) for (t, p), o in by_partition.items()])

    def _commit(self, positions: list[TopicPartition]) -> None:
        told = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in positions]
        problem = None
        try:
            for done in self._consumer.commit(offsets=positions, asynchronous=False) or []:
                problem = problem or (done.error.str() if done.error else None)
        except KafkaException as error:
            problem = error.args[0].str()
            self._fatal = self._fatal or error.args[0].fatal()
        if problem is None:
            self._emit("offsets_committed", offsets=told, success=True)
        else:
            self._emit("offsets_committed", offsets=told, error=problem, success=False)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._emit("partitions_assigned", partitions=_names(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._emit("partitions_revoked", partitions=_names(partitions))

    def _on_error(self, error: KafkaError) -> None:
        complain(error.str())
        self._fatal = self._fatal or error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _names(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


def _record(message: Message) -> dict[str, Any]:
    key, value = message.key(), message.value()
    return {
        "key": None if key is None else key.decode(errors="replace"),
        "value": None if value is None else value.decode(errors="replace"),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
    }


if __name__ == "__main__":
    finish(VerifiableConsumer(sys.argv[1:]).run())
