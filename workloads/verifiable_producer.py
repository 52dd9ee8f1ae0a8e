"""A verifiable producer on librdkafka: options, JSON lines and signals of org.apache.kafka.tools.VerifiableProducer.

    python -m workloads.verifiable_producer --topic T --bootstrap-server H:P --value-prefix 1 --throughput 100

As there: values are 0, 1, 2, … or "prefix.n"; retries are 0 and idempotence therefore off unless the file says otherwise; the
file beats the options; `shutdown_complete` comes after everything was flushed, and `tool_data` after it.
"""

import math
import sys
import time
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from workloads.verifiable_cli import Emitter, Parser, StopSignal, complain, finish, for_librdkafka, read_properties

POLL_S = 0.05
FLUSH_S = 1.0
QUEUE_FULL_S = 0.1


def options() -> Parser:
    """As of VerifiableProducer of Kafka 4.3."""
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


class VerifiableProducer:
    """The tool."""

    def __init__(self, argv: list[str]) -> None:
        self._options = given = options().parse(argv)
        self._emit, self._stop = Emitter(), StopSignal()
        properties = {"bootstrap.servers": given.bootstrap_server, "acks": str(given.acks), "retries": "0"}
        properties |= read_properties(given.file)
        defaults = {"partitioner": "murmur2_random", "log_level": "0", "error_cb": lambda e: complain(str(e))}
        try:
            self._producer = Producer(defaults | for_librdkafka(properties))
        except KafkaException as error:
            complain(f"the configuration is refused: {error.args[0].str()}")
            raise SystemExit(1) from error
        self._sent = self._acked = 0
        self._began_s = time.monotonic()

    def run(self) -> int:
        """Until --max-messages were sent or a signal came; returns the exit code."""
        self._emit("startup_complete")
        most = self._options.max_messages
        while not self._stop and (most < 0 or self._sent < most):
            wait_s = self._wait_s()  # asked once: librdkafka takes a negative time for ever
            if wait_s > 0:
                self._producer.poll(min(POLL_S, wait_s))
            else:
                self._send(self._sent)
        while self._producer.flush(FLUSH_S):
            pass
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
        """Until the next send is due. A throughput of 0 allows one send, and then none for ever."""
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
                self._producer.poll(QUEUE_FULL_S)
                if not self._stop:
                    continue
                self._failed(key, value, "queue full", "the local queue is full")
            except KafkaException as error:
                self._failed(key, value, error.args[0].name(), error.args[0].str())
            self._producer.poll(0)
            return

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


if __name__ == "__main__":
    finish(VerifiableProducer(sys.argv[1:]).run())
