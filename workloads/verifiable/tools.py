"""Verifiable clients on librdkafka: they can stand in for Kafka's own VerifiableProducer and VerifiableConsumer.

    python -m prozess.workloads.verifiable.tools producer --topic T --bootstrap-server H:P --value-prefix 1
    python -m prozess.workloads.verifiable.tools consumer --topic T --group-id G --bootstrap-server H:P --verbose

They take the options of the Java tools and speak as those do: one JSON object per line on standard output, `timestamp` and
`name` first; whatever is for people goes to standard error; SIGTERM or SIGINT ends them in order.
https://github.com/apache/kafka/tree/trunk/tools

The producer sends the values 0, 1, 2, … or "prefix.n". Its retries are 0, and idempotence is therefore off, unless the file
says otherwise; the file beats the options. `shutdown_complete` comes after everything was flushed, and `tool_data` after it.

The consumer prints, for each poll, `record_data` of each record, then `records_consumed`; then it commits synchronously and
prints `offsets_committed`. Unlike the Java tool it ends with exit code 1, and not 0, after a fatal error: nobody could
distinguish a crash from a clean end otherwise."""

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from prozess.harness.config.existing_clusters import hidden
from prozess.workloads.librdkafka import close, end_if_hanging, logged_in

POLL_S = 0.1
"""How long the consumer waits for records in one poll."""
POLL_RECORDS_MAX = 500
"""How many records the consumer takes in one poll: Java's default of max.poll.records."""
SERVE_S = 0.05
"""How long the producer waits, at most, while no send is due."""
FLUSH_S = 1.0
QUEUE_FULL_S = 0.1
"""How long the producer serves delivery reports when its queue is full."""
JAVA_ONLY = frozenset({
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "buffer.memory", "max.block.ms",
    "group.remote.assignor", "default.api.timeout.ms", "max.poll.records",
})  # fmt: skip
"""Properties of Java clients that librdkafka does not have: passed over, and stated so."""
_RENAMED = {
    "retries": "message.send.max.retries",
    "max.in.flight.requests.per.connection": "max.in.flight",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}


class Emitter:
    """Writes events to standard output."""

    def __init__(self) -> None:
        self._write = sys.stdout.write

    def __call__(self, name: str, **fields: object) -> None:
        """Writes one event as one line, and flushes it: a reader waits for it."""
        stamped = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        self._write(json.dumps(stamped, separators=(",", ":")) + "\n")
        sys.stdout.flush()


class StopSignal:
    """True once SIGTERM or SIGINT came; `code` is the exit code the Java tools have then."""

    def __init__(self) -> None:
        self.code = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.code = 128 + number

    def __bool__(self) -> bool:
        return self.code != 0


def complain(text: str) -> None:
    """Writes a line for people, who read standard error; events are on standard output."""
    sys.stderr.write(f"{text}\n")


def read_properties(path: str | None) -> dict[str, str]:
    """Reads a Java .properties file, as far as configurations of clients use them: comments, `key=value`, `key:
    value`. SystemExit 1 if it cannot be read, as the Java tools do."""
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        complain(f"{path} cannot be read: {error.strerror}")
        raise SystemExit(1) from error
    found = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        at = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=len(line))
        found[line[:at].strip()] = line[at + 1 :].strip()
    return found


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that librdkafka knows, under its names."""
    ignored = sorted(JAVA_ONLY & properties.keys())
    if ignored:
        complain(f"not known to librdkafka, passed over: {', '.join(ignored)}")
    return {_RENAMED.get(key, key): value for key, value in properties.items() if key not in JAVA_ONLY}


class Parser(argparse.ArgumentParser):
    """Parses arguments as the Java tools do: wrong ones are exit code 1, and none at all is the help."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        complain(f"{self.prog}: error: {message}")
        raise SystemExit(1)

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Returns the options; SystemExit 0 after the help if there are no arguments."""
        if not argv:
            self.print_help()
            raise SystemExit(0)
        return self.parse_args(argv)


def producer_options() -> Parser:
    """Returns the options of VerifiableProducer of Kafka 4.3."""
    parser = Parser(prog="verifiable-producer", description="Produce increasing integers; print JSON for each send.")
    add = parser.add_argument
    add("--topic", required=True)
    add("--bootstrap-server", required=True, metavar="HOST1:PORT1[,HOST2:PORT2[...]]")
    add("--max-messages", type=int, default=-1)
    add("--throughput", type=int, default=-1)
    add("--acks", type=int, choices=(0, 1, -1), default=-1)
    add("--message-create-time", type=int, default=-1)
    add("--value-prefix", type=int)
    add("--repeating-keys", type=int)
    file = parser.add_mutually_exclusive_group()
    file.add_argument("--producer.config", dest="file", metavar="CONFIG-FILE")
    file.add_argument("--command-config", dest="file", metavar="CONFIG-FILE")
    return parser


class ProducerTool:
    """Sends numbered records with librdkafka, and prints what Kafka's VerifiableProducer prints of each."""

    def __init__(self, argv: list[str]) -> None:
        self._options = given = producer_options().parse(argv)
        self._emit, self._stop = Emitter(), StopSignal()
        properties = {"bootstrap.servers": given.bootstrap_server, "acks": str(given.acks), "retries": "0"}
        properties |= read_properties(given.file)
        defaults = {"partitioner": "murmur2_random", "log_level": "0", "error_cb": lambda e: complain(str(e))}
        try:
            self._producer = Producer(logged_in(defaults | for_librdkafka(properties)))
        except KafkaException as error:
            complain(hidden(f"the configuration is refused: {error.args[0].str()}"))
            raise SystemExit(1) from error
        self._sent = self._acked = 0
        self._began_s = time.monotonic()

    def run(self) -> int:
        """Produces until --max-messages were sent or a signal came; returns the exit code."""
        self._emit("startup_complete")
        most = self._options.max_messages
        while not self._stop and (most < 0 or self._sent < most):
            wait_s = self._wait_s()  # asked once: librdkafka takes a negative time for ever
            if wait_s > 0:
                self._serve(min(SERVE_S, wait_s))
            else:
                self._send(self._sent)
        # flush() would go on with callbacks after a fatal error, while the binding's exception waits to be raised: they fail.
        while len(self._producer):
            self._serve(FLUSH_S)
        self._emit("shutdown_complete")
        passed_s = time.monotonic() - self._began_s
        self._emit(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._options.throughput,
            avg_throughput=self._acked / passed_s if passed_s else 0.0,
        )
        return self._stop.code

    def _wait_s(self) -> float:
        """Returns the seconds until the next send is due. A throughput of 0 allows one send, and then none for ever."""
        rate = self._options.throughput
        if rate < 0 or not self._sent:
            return 0.0
        due_s = self._began_s + self._sent / rate if rate else math.inf
        return due_s - time.monotonic()

    def _send(self, number: int) -> None:
        given = self._options
        value = str(number) if given.value_prefix is None else f"{given.value_prefix}.{number}"
        key = None if given.repeating_keys is None else str(number % given.repeating_keys)
        more: dict[str, Any] = {}
        if given.message_create_time >= 0:
            more["timestamp"] = given.message_create_time + int(1000 * (time.monotonic() - self._began_s))
        self._sent += 1
        while True:
            try:
                self._producer.produce(
                    given.topic, value, key, on_delivery=partial(self._report, key=key, value=value), **more
                )
            except BufferError:  # as the Java client blocks
                self._serve(QUEUE_FULL_S)
                if not self._stop:
                    continue
                self._failed(key, value, "queue full", "the local queue is full")
            except KafkaException as error:
                self._failed(key, value, error.args[0].name(), error.args[0].str())
            self._serve(0)
            return

    def _serve(self, timeout_s: float) -> None:
        """Serves callbacks. The binding raises a fatal error from there: every record is reported all the same."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            complain(hidden(error.args[0].str()))

    def _report(self, error: KafkaError | None, message: Message, *, key: str | None, value: str) -> None:
        if error is not None:
            self._failed(key, value, error.name(), error.str())
            return
        self._acked += 1
        offset = message.offset()
        self._emit(
            "producer_send_success",
            key=key,
            value=value,
            topic=message.topic(),
            partition=message.partition(),
            offset=-1 if offset is None or offset < 0 else offset,
        )

    def _failed(self, key: str | None, value: str, name: str, text: str) -> None:
        self._emit(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._options.topic,
            exception=f"librdkafka {name}",
            message=text,
        )


_STRATEGIES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def consumer_options() -> Parser:
    """Returns the options of VerifiableConsumer of Kafka 4.3."""
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


def consumer_properties(given: argparse.Namespace) -> dict[str, str]:
    """Returns the consumer's properties: those of the file, and over them what the options say."""
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


class ConsumerTool:
    """Reads as a member of a group with librdkafka, and prints what Kafka's VerifiableConsumer prints."""

    def __init__(self, argv: list[str]) -> None:
        self._options = consumer_options().parse(argv)
        self._emit, self._stop = Emitter(), StopSignal()
        self._read = 0
        self._fatal = False
        try:
            defaults = {"log_level": "0", "error_cb": self._on_error}
            self._properties = consumer_properties(self._options)
            self._consumer = Consumer(logged_in(defaults | self._properties))
        except KafkaException as error:
            complain(hidden(f"the configuration is refused: {error.args[0].str()}"))
            raise SystemExit(1) from error

    def run(self) -> int:
        """Consumes until --max-messages were read or a signal came; returns the exit code."""
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
        with end_if_hanging():
            close(self._consumer, self._properties)
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
        offsets = [{"topic": p.topic, "partition": p.partition, "offset": p.offset} for p in positions]
        problem = None
        try:
            for done in self._consumer.commit(offsets=positions, asynchronous=False) or []:
                problem = problem or (done.error.str() if done.error else None)
        except KafkaException as error:
            problem = error.args[0].str()
            self._fatal = self._fatal or error.args[0].fatal()
        if problem is None:
            self._emit("offsets_committed", offsets=offsets, success=True)
        else:
            self._emit("offsets_committed", offsets=offsets, error=problem, success=False)

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


def finish(code: int) -> NoReturn:
    """Ends the process with this code at once: librdkafka's threads need not be waited for, everything was stated."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


TOOLS: dict[str, Callable[[list[str]], ProducerTool | ConsumerTool]] = {
    "producer": ProducerTool,
    "consumer": ConsumerTool,
}


def main() -> NoReturn:
    """Runs the tool that the first argument names, with the arguments behind it."""
    if len(sys.argv) < 2 or sys.argv[1] not in TOOLS:
        complain(f"Name the tool first: {' or '.join(TOOLS)}.")
        raise SystemExit(1)
    finish(TOOLS[sys.argv[1]](sys.argv[2:]).run())


if __name__ == "__main__":
    main()
