"""What recording costs: sends and reads per second, and CPU microseconds per record, with recording and without, in one run.

    python benchmarks/recording.py [--records 400000] [--json FILE]

Against librdkafka's built-in mock cluster, in a process of its own on the same machine: figures about our own share, not
about Kafka. "bare" is the same client without any row; "recorded" is what producers and readers of the log workload run.
Own share = CPU time of the recording client − CPU time of the bare one, per record (both include librdkafka's threads).
"""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, READS, SENDS
from workloads.carrier import encoder
from workloads.reader import CONSUME_RECORDS_MAX, CONSUME_S, ReadRows
from workloads.send_rows import completer

READ_TOPIC = "bench-read"
PARTITIONS = tuple((number, READ_TOPIC, number) for number in range(4))
VALUE_BYTES = 100
IN_FLIGHT_MAX = 50_000
ROUNDS = 5
READ_PASSES = 4
READ_RECORDS = 120_000
"""A pass. The mock keeps at most 5 MB a partition: so many records of 100 bytes in four fit."""
READ_LIMIT_S = 20.0
TARGET_SEND_US, TARGET_READS_PER_S = 2.5, 500_000.0


@contextmanager
def mock_cluster() -> Iterator[str]:
    """Bootstrap servers of a mock cluster in another process."""
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
    """Wall and CPU time (this process with all its threads) from its making on."""

    def __init__(self) -> None:
        self._cpu_s, self._wall_s = _cpu_s(), time.monotonic()

    def read(self, count: int) -> tuple[float, float]:
        """Records per second, and CPU microseconds per record."""
        return count / (time.monotonic() - self._wall_s), (_cpu_s() - self._cpu_s) / count * 1e6


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def send(servers: str, records: int, rows: Path | None, topic: str = "bench") -> tuple[float, float]:
    """Send `records` until each is reported. `rows`: record them there. Returns rate and CPU as Meter.read."""
    encode = encoder(sender=1, value_bytes=VALUE_BYTES)
    reported = 0

    def settled(partition: int, error: KafkaError | None) -> None:
        nonlocal reported
        reported += 1

    def bare(error: KafkaError | None, message: Message) -> None:
        nonlocal reported
        reported += 1

    sends = RowWriter(rows, SENDS, 1) if rows else None
    report = completer(sends, {}, time.monotonic_ns, settled) if sends else bare
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 2 * IN_FLIGHT_MAX,
            "log_level": 0,
            "on_delivery": report,
        }
    )
    fixed, now_ns, meter = encode(0, 0), time.monotonic_ns, Meter()
    for sequence in range(records):
        dense, _, number = PARTITIONS[sequence % len(PARTITIONS)]
        if sends:
            sends.append(now_ns(), MISSING, NONE, sequence, NONE, NONE, dense, 0, 0, VALUE_BYTES)
            producer.produce(topic, encode(dense, sequence), None, number)
        else:
            producer.produce(topic, fixed, None, number)
        if sequence % 500 == 0:
            producer.poll(0)
            while sequence - reported > IN_FLIGHT_MAX:
                producer.poll(0.02)
    producer.flush(30)
    assert reported == records, (reported, records)
    return meter.read(records)


def read(servers: str, rows: Path | None) -> tuple[float, float]:
    """Read what was prepared, READ_PASSES times, from the moment on that the first records are there."""
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
                reader.record(messages)
            count += len(messages)
    figures = meter.read(count - before)
    consumer.close()
    assert count == READ_PASSES * READ_RECORDS, count
    return figures


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def compare(work: Callable[[Path | None], tuple[float, float]]) -> dict[str, float]:
    """`work` bare and recorded in turn, ROUNDS times: medians."""
    results: dict[str, list[float]] = {"bare_per_s": [], "bare_us": [], "recorded_per_s": [], "recorded_us": []}
    for _ in range(ROUNDS):
        for name in ("bare", "recorded"):
            with tempfile.TemporaryDirectory() as rows:
                per_s, us = work(Path(rows) if name == "recorded" else None)
            results[f"{name}_per_s"].append(per_s)
            results[f"{name}_us"].append(us)
    found = {name: median(values) for name, values in results.items()}
    found["own_us"] = found["recorded_us"] - found["bare_us"]
    return found


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000, help="sends per round")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    with mock_cluster() as servers:
        figures: dict[str, Any] = {"sends": compare(lambda rows: send(servers, arguments.records, rows))}
        with tempfile.TemporaryDirectory() as rows:
            send(servers, READ_RECORDS, Path(rows), topic=READ_TOPIC)
        figures["reads"] = compare(lambda rows: read(servers, rows))
    for kind, found in figures.items():
        print(
            f"{kind}: bare {found['bare_per_s']:>9,.0f}/s at {found['bare_us']:.2f} us CPU, "
            f"recorded {found['recorded_per_s']:>9,.0f}/s at {found['recorded_us']:.2f} us CPU; own {found['own_us']:.2f} us"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    missed = figures["sends"]["own_us"] > TARGET_SEND_US or figures["reads"]["recorded_per_s"] < TARGET_READS_PER_S
    targets = f"<= {TARGET_SEND_US} us own per send, >= {TARGET_READS_PER_S:,.0f} reads/s"
    print(f"targets ({targets}): {'MISSED' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
