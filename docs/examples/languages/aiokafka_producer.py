"""A producer on aiokafka that takes the options of Kafka's VerifiableProducer, and prints the lines that this prints.

python aiokafka_producer.py --bootstrap-server HOST:PORT --topic TOPIC --acks -1 --throughput 20 --value-prefix 1

Values are "PREFIX.n". Nothing else is written to standard output. SIGTERM ends it in order: it waits for its sends.
"""

import argparse
import asyncio
import json
import signal
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError


def options() -> argparse.Namespace:
    """Returns the options. Those that this client has no use for are taken all the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--acks", type=int, choices=(0, 1, -1), default=-1)
    parser.add_argument("--throughput", type=float, default=20)
    parser.add_argument("--value-prefix", required=True)
    parser.add_argument("--repeating-keys", type=int, default=100)
    parser.add_argument("--command-config", type=Path, required=True)
    return parser.parse_args()


def properties_in(path: Path) -> dict[str, str]:
    """Returns the file of properties, in the spelling of Kafka's Java client."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def say(name: str, **more: str | int | None) -> None:
    """Prints one event, at once: what was stated survives the program."""
    print(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **more}), flush=True)


async def send(producer: AIOKafkaProducer, topic: str, key: str, value: str) -> None:
    """Sends one record, and says so before and after."""
    say("producer_send", key=key, value=value, topic=topic)
    try:
        told = await producer.send_and_wait(topic, value.encode(), key=key.encode())
        say("producer_send_success", key=key, value=value, topic=topic, partition=told.partition, offset=told.offset)
    except KafkaError as error:
        say(
            "producer_send_error", key=key, value=value, topic=topic, exception=type(error).__name__, message=str(error)
        )


async def work(given: argparse.Namespace) -> None:
    """Sends at the rate that is asked for until SIGTERM comes, then waits for what is under way."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    settings = properties_in(given.command_config)
    producer = AIOKafkaProducer(
        bootstrap_servers=given.bootstrap_server,
        client_id=settings["client.id"],
        acks="all" if given.acks == -1 else given.acks,
        enable_idempotence=settings["enable.idempotence"] == "true",
        linger_ms=int(settings["linger.ms"]),
        request_timeout_ms=int(settings["request.timeout.ms"]),
        metadata_max_age_ms=1000,
    )
    await producer.start()
    say("startup_complete")
    sends, number, began = set(), 0, loop.time()
    while not stop.is_set():
        task = loop.create_task(
            send(producer, given.topic, str(number % given.repeating_keys), f"{given.value_prefix}.{number}")
        )
        sends.add(task)
        task.add_done_callback(sends.discard)
        number += 1
        wait_s = began + number / given.throughput - loop.time()
        try:
            await asyncio.wait_for(stop.wait(), timeout=max(0.0, wait_s))
        except TimeoutError:
            continue
    await asyncio.gather(*sends)
    await producer.stop()
    say("shutdown_complete")


asyncio.run(work(options()))
