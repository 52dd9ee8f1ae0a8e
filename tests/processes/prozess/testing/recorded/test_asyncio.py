"""Recorded asyncio clients on librdkafka's mock cluster: their calls become the same history as those of the others."""

import asyncio

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer

from prozess.harness.errors import ProzessError
from prozess.harness.history.convert import History
from prozess.harness.recording.rows import read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import COMMITS, SENDS, Outcome
from prozess.harness.verdict import Verdict
from prozess.testing.recorded.application import RecordedAIOConsumer, RecordedAIOProducer
from prozess.testing.recorded.client import seal_clients
from prozess.testing.recording import Recording
from tests.support.mock_kafka import mock_kafka

TOPIC = "orders"
READING = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}


@pytest.fixture
def kafka(monkeypatch):
    monkeypatch.setattr("prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.2)
    with mock_kafka() as made:
        made.create(TOPIC, partitions=2)
        yield made


@pytest.fixture
def recording(tmp_path, kafka):
    made = Recording(RunDirectory(tmp_path / "run"), test="tests/test_x.py::test_y", command="pytest x")
    made.registry.add_topic(TOPIC, [[1], [1]], {})
    yield made
    made.close()


@pytest.fixture
def clients(recording, kafka):
    """(a producer, a consumer), made within a running loop."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers}

    def make(producing=None, **more):
        return (
            recording.client_class(RecordedAIOProducer)({**servers, **(producing or {})}, **more),
            recording.client_class(RecordedAIOConsumer)({**servers, **READING}),
        )

    return make


async def read(consumer, count):
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            message = await consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
    return found


def test_what_is_sent_and_read_by_asyncio_is_judged_and_held(recording, clients):
    async def work():
        producer, consumer = clients(batch_size=5)
        told = [await producer.produce(TOPIC, f"order {number}", f"key-{number}") for number in range(20)]
        await producer.flush()
        assert min([(await future).offset() for future in told]) == 0
        await consumer.subscribe([TOPIC])
        for message in await read(consumer, 20):
            assert message.headers() in (None, []), "the header is ours, and not the application's"
            with consumer.processing(message):
                await asyncio.sleep(0)
            await consumer.commit(message, asynchronous=False)
        await consumer.close()
        await producer.close()

    asyncio.run(work())
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    history = History.open(recording.run)
    sends, reads, commits = (history.table(name) for name in ("sends", "reads", "commits"))
    assert (sends["outcome"][sends["client"] == 1] == Outcome.OK).tolist() == [True] * 20
    assert sorted(reads["sequence"][reads["client"] == 2].tolist()) == list(range(20))
    assert (commits["outcome"] == Outcome.OK).all()


def test_who_commits_before_it_processes_is_caught_in_asyncio_too(recording, clients):
    async def work():
        producer, consumer = clients()
        for number in range(5):
            await producer.produce(TOPIC, str(number), partition=0)
        await producer.flush()
        await consumer.subscribe([TOPIC])
        for number, message in enumerate(await read(consumer, 5)):
            await consumer.commit(message, asynchronous=False)
            try:
                with consumer.processing(message):
                    await asyncio.sleep(0)
                    assert number != 3
            except AssertionError:
                pass
        await consumer.close()

    asyncio.run(work())
    found = recording.conclude().verdict.cells[0].anomalies["unprocessed"]
    assert (found.count, found.witnesses[0].log_offset) == (1, 3)


def test_callbacks_that_await_the_consumer_do_not_stand_in_the_way_of_its_end(recording, clients):
    events = []

    async def work():
        producer, consumer = clients()
        await producer.produce(TOPIC, "x", partition=0)
        await producer.flush()

        async def assigned(who, partitions):
            assert who is consumer
            events.append("assigned")
            await who.assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])

        async def revoked(who, partitions):
            events.append("revoked")
            await who.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)

        await consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=revoked)
        await read(consumer, 1)
        async with asyncio.timeout(20):  # far below the limit of a call that waits for another
            await consumer.close()

    asyncio.run(work())
    assert events == ["assigned", "revoked"]
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    commits = History.open(recording.run).table("commits")
    assert (commits["outcome"] == Outcome.OK).tolist() == [True]


def test_a_record_that_is_refused_certainly_failed_and_its_future_says_so(recording, clients):
    async def work():
        producer, _ = clients({"message.max.bytes": 2000})
        told = [await producer.produce(TOPIC, value, partition=0) for value in (b"x" * 5000, "fits")]
        await producer.flush()
        with pytest.raises(KafkaException):
            await told[0]
        assert (await told[1]).offset() == 0
        await producer.produce(TOPIC, object(), partition=0)
        with pytest.raises(TypeError, match="a value must be str or bytes"):
            await producer.flush()
        await producer.purge()

    asyncio.run(work())
    recording.conclude()
    sends = History.open(recording.run).table("sends")
    assert sends["outcome"][sends["client"] == 1].tolist() == [Outcome.FAIL, Outcome.OK]


def test_a_transaction_with_offsets_is_recorded(recording, clients):
    async def work():
        producer, consumer = clients({"transactional.id": "t"})
        await producer.init_transactions(15)
        await producer.begin_transaction()
        await producer.produce(TOPIC, "x", partition=0)
        await producer.commit_transaction(15)
        await consumer.subscribe([TOPIC])
        (message,) = await read(consumer, 1)
        await producer.begin_transaction()
        await producer.produce(TOPIC, "y", partition=1)
        offsets = [TopicPartition(TOPIC, 0, message.offset() + 1)]
        await producer.send_offsets_to_transaction(offsets, await consumer.consumer_group_metadata())
        await producer.abort_transaction(15)
        await consumer.close()

    asyncio.run(work())
    seal_clients(recording.run, timeout_s=60)
    sends, _ = read_rows(recording.run.rows, SENDS, 1)
    commits, _ = read_rows(recording.run.rows, COMMITS, 2)
    assert sends["outcome"].tolist() == [Outcome.OK, Outcome.FAIL]
    assert commits["outcome"].tolist() == [Outcome.INFO], "what an abort leaves of it"


def test_after_the_test_nothing_can_be_sent_or_read(recording, clients):
    async def work():
        producer, consumer = clients()
        await consumer.subscribe([TOPIC])
        await asyncio.to_thread(recording.conclude)
        late = await producer.produce(TOPIC, "late")
        with pytest.raises(ProzessError, match="The test is over"):
            await producer.flush()
        with pytest.raises(ProzessError, match="The test is over"):
            await late
        await producer.purge()
        await asyncio.to_thread(recording.close)
        with pytest.raises(ProzessError, match="The test is over"):
            await consumer.poll(1)

    asyncio.run(work())


def test_clients_that_are_not_recorded_are_what_they_were(recording, kafka):
    async def work():
        producer = AIOProducer({"bootstrap.servers": kafka.bootstrap_servers})
        consumer = AIOConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
        assert type(producer._producer) is Producer
        assert type(consumer._consumer) is Consumer
        await producer.close()
        await consumer.close()

    asyncio.run(work())
    assert not recording.registry.clients
