"""What recording costs: sends and reads per second, and CPU microseconds per record, with recording and without, in one run.

    python benchmarks/recording.py [--cluster local|mock] [--records 400000] [--json FILE]

`local` is one real broker on this machine, brought up as trials do; `mock` is librdkafka's built-in mock cluster in a process
of its own. "bare" is the same client without any row: a producer with a delivery callback, a consumer that takes batches.
"recorded" makes the rows of producers and readers of the log workload.

CPU is of the client process with all its threads (librdkafka's too); own share = recorded - bare, per record. Records per
core are 1 / CPU per record: what one core carries if client and broker do not take it from each other.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from prozess.clusters.machine.sandbox import ISOLATION_VARIABLE
from prozess.harness.clock import SystemClock
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import READS, SENDS
from prozess.workloads.librdkafka import close
from prozess.workloads.log.producer import ISSUE_MAX
from prozess.workloads.log.reader import CONSUME_RECORDS_MAX, CONSUME_S, ReadRows, records_and_errors
from prozess.workloads.record.identity import encoder
from prozess.workloads.record.sends import Issuing, Reports, completer
from tests.support.servers.hosted import HostedCluster

TOPIC, READ_TOPIC = "bench", "bench-read"
PARTITIONS = tuple((number, READ_TOPIC, number) for number in range(4))
VALUE_BYTES = 100
IN_FLIGHT_MAX = 50_000
ROUNDS = 5
READ_PASSES = 4
READ_RECORDS = 120_000
"""How many records a pass reads. The mock keeps at most 5 MB of a partition: so many records of 100 bytes fit into four."""
READ_LIMIT_S = SEND_LIMIT_S = 60.0
READY_S = 120.0
TARGET_SEND_US, TARGET_SENDS_PER_CORE, TARGET_READS_PER_CORE = 2.5, 400_000.0, 500_000.0


@contextmanager
def local_broker() -> Iterator[str]:
    """Yields the bootstrap servers of a real broker of the local backend, reached directly: without namespaces, and
    without the relay."""
    document = {
        "name": "benchmark",
        "title": "One broker",
        "variant": {"brokers": 1},
        "base": {"topic.replication_factor": 1},
    }
    os.environ[ISOLATION_VARIABLE] = "signals"
    with tempfile.TemporaryDirectory() as path:
        run = RunDirectory(Path(path) / "run")
        run.create()
        plan = make_plan(parse_trial(document, source="benchmark"), seed=1)
        cluster = HostedCluster(plan, run, clock=SystemClock(), close=close)
        try:
            cluster.setup()
            cluster.wait_ready(timeout_s=READY_S)
            topics = [NewTopic(topic, len(PARTITIONS), 1) for topic in (TOPIC, READ_TOPIC)]
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            for future in admin.create_topics(topics, operation_timeout=READY_S).values():
                future.result(READY_S)
            yield cluster.bootstrap_servers
        finally:
            cluster.teardown()


@contextmanager
def mock_cluster() -> Iterator[str]:
    """Yields the bootstrap servers of a mock cluster in another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_mock, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.close()
        theirs.close()
        process.join(timeout=5)
        if process.is_alive():
            process.kill()


def _serve_mock(pipe: Connection) -> None:
    owner = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = owner.list_topics(timeout=10).brokers.values()
    pipe.send(",".join(f"{broker.host}:{broker.port}" for broker in brokers))
    try:
        pipe.recv()
    except EOFError:
        return


class Meter:
    """Measures wall and CPU time (of this process with all its threads) since it was made."""

    def __init__(self) -> None:
        self._cpu_s, self._wall_s = _cpu_s(), time.monotonic()

    def read(self, count: int) -> tuple[float, float]:
        """Returns records per second, and CPU microseconds per record."""
        return count / (time.monotonic() - self._wall_s), (_cpu_s() - self._cpu_s) / count * 1e6


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


Turn = tuple[int, str, int]
"""Dense partition, topic, and number within the topic."""


class Sender:
    """What is done beside produce() and poll(): nothing but counting, or recording into `rows`."""

    def __init__(self, rows: Path | None) -> None:
        self.reported = 0
        self._fixed = encoder(sender=1, value_bytes=VALUE_BYTES)(0, 0)
        self._reports: Reports | None = None
        if rows:
            sends, now_ns = RowWriter(rows, SENDS, 1), time.monotonic_ns
            one = completer(sends, {}, now_ns, lambda partition, error: self._count({partition: int(error is None)}))
            self._reports = Reports(sends, now_ns, complete_one=one, acknowledged=self._count)
            self._issuing = Issuing(sends, now_ns, sender=1, value_bytes=VALUE_BYTES, most=ISSUE_MAX)
        self.on_delivery = self._reports.reported if self._reports else self._bare

    def values(self, turns: list[Turn]) -> list[bytes]:
        """Returns what to send next."""
        return self._issuing.invoke(turns) if self._reports else [self._fixed] * len(turns)

    def complete(self) -> None:
        """Completes rows after a poll."""
        if self._reports:
            self._reports.complete()

    def _count(self, counts: Mapping[int, int]) -> None:
        self.reported += sum(counts.values())

    def _bare(self, error: KafkaError | None, message: Message) -> None:
        self.reported += error is None


def send(servers: str, records: int, rows: Path | None, topic: str = TOPIC) -> tuple[float, float]:
    """Sends `records` until each is reported. With `rows` it records them there. Returns rate and CPU as Meter.read."""
    sender = Sender(rows)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 2 * IN_FLIGHT_MAX,
            "linger.ms": 50,
            "batch.size": 900_000,
            "batch.num.messages": 100_000,
            "log_level": 0,
            "on_delivery": sender.on_delivery,
        }
    )
    turns = [(number, topic, number) for number, _, _ in PARTITIONS] * (ISSUE_MAX // len(PARTITIONS))
    produce, issued, meter = producer.produce, 0, Meter()
    while issued < records:
        for value, (_, _, number) in zip(sender.values(turns), turns, strict=True):
            produce(topic, value, None, number)
        issued += len(turns)
        producer.poll(0)
        sender.complete()
        while issued - sender.reported > IN_FLIGHT_MAX:
            producer.poll(0.02)
            sender.complete()
    producer.flush(SEND_LIMIT_S)
    sender.complete()
    assert sender.reported == issued, (sender.reported, issued)
    return meter.read(issued)


def read(servers: str, rows: Path | None) -> tuple[float, float]:
    """Reads what was prepared, READ_PASSES times, from the moment when the first records are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "check.crcs": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    reader = ReadRows(RowWriter(rows, READS, 2), PARTITIONS, time.monotonic_ns) if rows else None
    starts = [TopicPartition(topic, number, 0) for _, topic, number in PARTITIONS]
    count, until, meter, before = 0, time.monotonic() + READ_LIMIT_S, Meter(), 0
    for number in range(1, READ_PASSES + 1):
        consumer.assign(starts)
        while count < number * READ_RECORDS and time.monotonic() < until:
            messages = consumer.consume(CONSUME_RECORDS_MAX, CONSUME_S)
            if not before and messages:
                meter, before = Meter(), len(messages)
            if reader and messages:
                reader.record(records_and_errors(messages)[0])
            count += len(messages)
    figures = meter.read(count - before)
    consumer.close()
    assert count == READ_PASSES * READ_RECORDS, count
    return figures


def median(values: list[float]) -> float:
    """Returns the middle value."""
    return sorted(values)[len(values) // 2]


def compare(work: Callable[[Path | None], tuple[float, float]]) -> dict[str, float]:
    """Runs `work` bare and recorded in turn, ROUNDS times, and returns the medians."""
    results: dict[str, list[float]] = {"bare_per_s": [], "bare_us": [], "recorded_per_s": [], "recorded_us": []}
    for _ in range(ROUNDS):
        for name in ("bare", "recorded"):
            with tempfile.TemporaryDirectory() as rows:
                per_s, us = work(Path(rows) if name == "recorded" else None)
            results[f"{name}_per_s"].append(per_s)
            results[f"{name}_us"].append(us)
    found = {name: median(values) for name, values in results.items()}
    found["own_us"] = found["recorded_us"] - found["bare_us"]
    found["recorded_per_core"] = 1e6 / found["recorded_us"]
    return found


def met(figures: dict[str, dict[str, float]]) -> bool:
    """Returns whether the targets are reached."""
    sends, reads = figures["sends"], figures["reads"]
    fast = sends["recorded_per_core"] >= TARGET_SENDS_PER_CORE or sends["own_us"] <= TARGET_SEND_US
    return fast and reads["recorded_per_core"] >= TARGET_READS_PER_CORE


def main() -> int:
    """Measures, prints, and returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", choices=("local", "mock"), default="local")
    parser.add_argument("--records", type=int, default=400_000, help="sends per round")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    with {"local": local_broker, "mock": mock_cluster}[arguments.cluster]() as servers:
        figures = {"sends": compare(lambda rows: send(servers, arguments.records, rows))}
        with tempfile.TemporaryDirectory() as rows:
            send(servers, READ_RECORDS, Path(rows), topic=READ_TOPIC)
        figures["reads"] = compare(lambda rows: read(servers, rows))
    for kind, found in figures.items():
        print(
            f"{kind}: bare {found['bare_per_s']:>9,.0f}/s at {found['bare_us']:.2f} us CPU, recorded "
            f"{found['recorded_per_s']:>9,.0f}/s at {found['recorded_us']:.2f} us CPU ({found['recorded_per_core']:,.0f} "
            f"per core); own share {found['own_us']:.2f} us"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    targets = (
        f">= {TARGET_SENDS_PER_CORE:,.0f} sends per core or <= {TARGET_SEND_US} us own share, "
        f">= {TARGET_READS_PER_CORE:,.0f} reads per core"
    )
    print(f"targets ({targets}): {'met' if met(figures) else 'MISSED'}")
    return int(not met(figures))


if __name__ == "__main__":
    sys.exit(main())
