"""A consumer on aiokafka that takes the options of Kafka's VerifiableConsumer, and prints the lines that this prints.

python aiokafka_consumer.py --bootstrap-server HOST:PORT --topic TOPIC --group-id GROUP --command-config FILE

It commits what each poll returned. Nothing else is written to standard output. SIGTERM ends it in order: it leaves its group.
"""

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

POLL_MS = 200


def options() -> argparse.Namespace:
    """Returns the options. Those that this client has no use for are taken all the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--reset-policy", choices=("earliest", "latest", "none"), default="earliest")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--command-config", type=Path, required=True)
    return parser.parse_args()


def properties_in(path: Path) -> dict[str, str]:
    """Returns the file of properties, in the spelling of Kafka's Java client."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def say(name: str, **more: object) -> None:
    """Prints one event, at once: what was stated survives the program."""
    print(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **more}), flush=True)


def named(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    """Returns partitions as events name them."""
    return [{"topic": p.topic, "partition": p.partition} for p in sorted(partitions)]


class Told(ConsumerRebalanceListener):
    """Reports which partitions were given and taken. What was lost is reported as revoked, as Kafka's tool does."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Reports of an assignment, before its first record is fetched."""
        say("partitions_assigned", partitions=named(assigned))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Reports of partitions that it had."""
        say("partitions_revoked", partitions=named(revoked))


def show(record: ConsumerRecord) -> None:
    """Prints one record."""
    key, value = (None if part is None else part.decode(errors="replace") for part in (record.key, record.value))
    say("record_data", key=key, value=value, topic=record.topic, partition=record.partition, offset=record.offset)


async def commit(consumer: AIOKafkaConsumer, positions: dict[TopicPartition, int]) -> None:
    """Commits these positions, and says how that went."""
    told = [{"topic": p.topic, "partition": p.partition, "offset": offset} for p, offset in positions.items()]
    try:
        await consumer.commit(positions)
        say("offsets_committed", offsets=told, success=True)
    except KafkaError as error:
        say("offsets_committed", offsets=told, success=False, error=f"{type(error).__name__}: {error}")


async def work(given: argparse.Namespace) -> None:
    """Reads until SIGTERM comes, and commits after each poll."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    settings = properties_in(given.command_config)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap_server,
        client_id=settings["client.id"],
        group_id=given.group_id,
        auto_offset_reset=given.reset_policy,
        enable_auto_commit=False,
        isolation_level=settings["isolation.level"],
        metadata_max_age_ms=1000,
    )
    consumer.subscribe([given.topic], listener=Told())
    await consumer.start()
    say("startup_complete")
    while not stop.is_set():
        polled = await consumer.getmany(timeout_ms=POLL_MS)
        for records in polled.values():
            for record in records if given.verbose else ():
                show(record)
        if not any(polled.values()):
            continue
        ranges = [
            {**named([p])[0], "count": len(r), "minOffset": r[0].offset, "maxOffset": r[-1].offset}
            for p, r in polled.items()
            if r
        ]
        say("records_consumed", count=sum(map(len, polled.values())), partitions=ranges)
        await commit(consumer, {p: r[-1].offset + 1 for p, r in polled.items() if r})
    await consumer.stop()
    say("shutdown_complete")


asyncio.run(work(options()))
