"""A single combined Kafka node on loopback, for seconds: loads the classes that an archive is to hold."""

import logging
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # documented there

from harness.clock import NS_PER_S, Clock, wait_until
from harness.errors import ClusterFailed, NotReady

_TOPIC = "warm-up"
_RECORDS = 200
_STARTED = "Kafka Server started"
_KILL_TIMEOUT_S = 10.0
FORMAT_TIMEOUT_S = 60.0
_CLUSTER_ID = "cHJvemVzcy13YXJtLXVwMQ"  # any 16 bytes in URL-safe base64
_LOG4J2 = """status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
"""
_LOG4J1 = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=2
background.threads=2
"""


class WarmUpNode:
    """One node, formatted by StorageTool, in a scratch directory. `launcher`: Java and the flags of a broker."""

    def __init__(self, version: str, *, launcher: Sequence[str], class_path: str, scratch: Path, clock: Clock) -> None:
        self._launcher, self._class_path, self._scratch, self._clock = tuple(launcher), class_path, scratch, clock
        self._log = scratch / "server.log"
        self._properties = scratch / "server.properties"
        old = int(version.partition(".")[0]) < 4
        settings = scratch / "logging.properties"
        settings.write_text(_LOG4J1 if old else _LOG4J2, encoding="utf-8")
        self._logging = f"-Dlog4j.configuration=file:{settings}" if old else f"-Dlog4j2.configurationFile={settings}"
        self._process: subprocess.Popen[bytes] | None = None
        self._broker = ""

    @contextmanager
    def running(self, *flags: str, environment: Mapping[str, str]) -> Iterator[None]:
        """Format and start it; whatever happens inside, it is dead afterwards."""
        broker, controller = _free_ports(2)
        self._broker = f"127.0.0.1:{broker}"
        data = self._scratch / "data"
        self._properties.write_text(
            _PROPERTIES.format(broker=broker, controller=controller, data=data), encoding="utf-8"
        )
        surroundings = {**os.environ, **environment}
        with self._log.open("ab") as log:
            self._format(log.fileno(), surroundings)
            self._process = subprocess.Popen(
                [*self._command(*flags, "kafka.Kafka"), str(self._properties)],
                cwd=self._scratch,
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(timeout=_KILL_TIMEOUT_S)

    def warm_up(self, *, timeout_s: float) -> None:
        """Wait until it serves, then create a topic, write it, and read it as a group. NotReady, ClusterFailed."""
        wait_until(
            lambda: _STARTED in self._log_text() or self._dead(),
            awaited="the Kafka node that warms up",
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=self.last_words,
        )
        if dead := self._dead():
            raise ClusterFailed(f"the Kafka node that warms up {dead}; its last words: {self.last_words()}")
        try:
            self._use(timeout_s)
        except KafkaException as error:
            raise ClusterFailed(f"the Kafka node that warms up refused work: {error}") from error

    def end(self, *, timeout_s: float) -> None:
        """SIGTERM; returns once it is gone, having written what it writes at exit. NotReady if it stays."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        wait_until(
            self._dead,
            awaited="the end of the Kafka node that warms up",
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=self.last_words,
        )

    def last_words(self) -> str:
        """The last line of its log that says something."""
        lines = [line for line in self._log_text().splitlines() if line.strip()]
        return lines[-1][-300:] if lines else "none"

    def _format(self, log: int, environment: Mapping[str, str]) -> None:
        formatted = subprocess.run(
            [*self._command("kafka.tools.StorageTool"), "format", "-t", _CLUSTER_ID, "-c", str(self._properties)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if formatted.returncode != 0:
            raise ClusterFailed(f"StorageTool could not format the node that warms up: {self.last_words()}")

    def _command(self, *flags_and_class: str) -> list[str]:
        return [*self._launcher, self._logging, "-cp", self._class_path, *flags_and_class]

    def _dead(self) -> str | None:
        assert self._process is not None
        code = self._process.poll()
        return None if code is None else f"ended with {code}"

    def _log_text(self) -> str:
        with suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace")
        return ""

    def _use(self, timeout_s: float) -> None:
        silent = logging.getLogger(f"{__name__}.client")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        quiet: dict[str, Any] = {"bootstrap.servers": self._broker, "logger": silent}
        admin = AdminClient(quiet)
        for future in admin.create_topics([NewTopic(_TOPIC, 1, 1)], operation_timeout=timeout_s).values():
            future.result(timeout=timeout_s)
        producer = Producer({**quiet, "enable.idempotence": True})
        for index in range(_RECORDS):
            producer.produce(_TOPIC, value=f"record {index}".encode())
        if left := producer.flush(timeout_s):
            raise NotReady(awaited=f"{_RECORDS} acknowledgements", timeout_s=timeout_s, last_seen=f"{left} missing")
        consumer = Consumer({**quiet, "group.id": _TOPIC, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([_TOPIC])
            deadline_ns, seen = self._clock.monotonic_ns() + int(timeout_s * NS_PER_S), 0
            while seen < _RECORDS:
                if self._clock.monotonic_ns() > deadline_ns:
                    raise NotReady(awaited=f"{_RECORDS} records", timeout_s=timeout_s, last_seen=f"{seen} read")
                seen += sum(message.error() is None for message in consumer.consume(_RECORDS, timeout=0.2))
            consumer.commit(offsets=[TopicPartition(_TOPIC, 0, seen)], asynchronous=False)
        finally:
            consumer.close()


def _free_ports(count: int) -> list[int]:
    """Ports of loopback nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()
