"""Recorded clients of aiokafka on librdkafka's mock cluster."""

import asyncio

import numpy as np
import pytest

from prozess.harness.errors import ProzessError
from prozess.harness.history.convert import History
from prozess.harness.interfaces.application import RegisteredClient
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Outcome
from prozess.harness.verdict import Verdict
from prozess.testing.plans import group_of_members, producer_of
from prozess.testing.recorded.aiokafka import RecordedAIOKafkaConsumer, RecordedAIOKafkaProducer
from prozess.testing.recording import Recording
from tests.support.mock_kafka import mock_kafka

pytest.importorskip("aiokafka", reason="aiokafka is not installed: pip install 'prozess[aiokafka]'")
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from prozess.testing.recorded.aiokafka import consumer_properties, producer_properties

TOPIC = "orders"


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
def producer(recording, kafka):
    """Made within a running loop."""
    made = recording.client_class(RecordedAIOKafkaProducer)
    return lambda **more: made(bootstrap_servers=kafka.bootstrap_servers, **more)


@pytest.fixture
def consumer(recording, kafka):
    made = recording.client_class(RecordedAIOKafkaConsumer)
    reading = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return lambda *topics, **more: made(*topics, bootstrap_servers=kafka.bootstrap_servers, **{**reading, **more})


async def send(producing, count, **more):
    async with producing(acks="all", **more) as sending:
        futures = [await sending.send(TOPIC, f"order {n}".encode(), key=f"key-{n}".encode()) for n in range(count)]
        return [await future for future in futures]


async def read(consuming, count):
    async with asyncio.timeout(30):
        return [await consuming.getone() for _ in range(count)]


def test_what_is_sent_and_read_by_aiokafka_is_judged_and_held(recording, producer, consumer):
    async def work():
        told = await send(producer, 20)
        assert min(metadata.offset for metadata in told) == 0
        async with consumer(TOPIC) as reading:
            for record in await read(reading, 20):
                assert not record.headers, "the header is ours, and not the application's"
                with reading.processing(record):
                    await asyncio.sleep(0)
                await reading.commit({TopicPartition(TOPIC, record.partition): record.offset + 1})

    asyncio.run(work())
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    history = History.open(recording.run)
    sends, reads, commits = (history.table(name) for name in ("sends", "reads", "commits"))
    ours = sends["client"] == 1
    assert (sends["outcome"][ours] == Outcome.OK).tolist() == [True] * 20
    assert sorted(reads["sequence"][reads["client"] == 2].tolist()) == list(range(20))
    assert len(commits["outcome"]) == 20
    assert (commits["outcome"] == Outcome.OK).all()


def test_who_commits_before_it_processes_is_caught_with_aiokafka_too(recording, producer, consumer):
    async def work():
        await send(producer, 10)
        async with consumer(TOPIC) as reading:
            left = 10
            while left:
                async with asyncio.timeout(30):
                    found = await reading.getmany(timeout_ms=1000)
                records = [record for some in found.values() for record in some]
                left -= len(records)
                await reading.commit()
                for record in records:
                    try:
                        with reading.processing(record):
                            assert record.key != b"key-7"
                    except AssertionError:
                        pass

    asyncio.run(work())
    found = recording.conclude().verdict.cells[0].anomalies["unprocessed"]
    assert (found.count, found.witnesses[0].sequence) == (1, 7)


def test_what_it_commits_by_itself_is_recorded(recording, producer, consumer):
    async def work():
        await send(producer, 5)
        async with consumer(TOPIC, enable_auto_commit=True) as reading:
            await read(reading, 5)

    asyncio.run(work())
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    commits = History.open(recording.run).table("commits")
    assert sum(commits["log_offset"]) == 5
    assert (commits["outcome"] == Outcome.OK).all()


def test_a_record_that_was_given_up_is_in_doubt_and_one_that_was_refused_was_never_sent(recording, kafka, producer):
    async def work():
        async with producer(request_timeout_ms=500, max_request_size=2000) as sending:
            with pytest.raises(Exception, match="larger than"):
                await sending.send(TOPIC, b"x" * 5000, partition=0)
            await sending.send_and_wait(TOPIC, b"fits", partition=0)
            kafka.down()
            with pytest.raises(KafkaError):
                await sending.send_and_wait(TOPIC, b"lost on its way", partition=0)

    asyncio.run(work())
    kafka.up()
    recording.conclude()
    sends = History.open(recording.run).table("sends")
    assert sends["outcome"][sends["client"] == 1].tolist() == [Outcome.OK, Outcome.INFO]


def test_records_of_many_tasks_are_recorded_in_the_order_in_which_they_are_sent(recording, producer):
    async def work():
        async with producer(max_batch_size=200, acks="all") as sending:
            await asyncio.gather(*(sending.send_and_wait(TOPIC, b"%d" % n, partition=0) for n in range(200)))

    asyncio.run(work())
    judged = recording.conclude()
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    sends = History.open(recording.run).table("sends")
    offsets = sends["log_offset"][sends["client"] == 1]
    assert np.array_equal(offsets, np.arange(200))


def test_after_the_test_nothing_can_be_sent_or_read(recording, producer, consumer):
    async def work():
        async with producer() as sending, consumer(TOPIC) as reading:
            await sending.send_and_wait(TOPIC, b"x")
            await asyncio.to_thread(recording.conclude)
            with pytest.raises(ProzessError, match="The test is over"):
                await sending.send(TOPIC, b"late")
            await asyncio.to_thread(recording.close)
            with pytest.raises(ProzessError, match="The test is over"):
                await reading.getone()

    asyncio.run(work())


def test_what_is_not_recorded_is_refused(producer, consumer):
    async def work():
        with pytest.raises(NotImplementedError, match="Transactions of aiokafka are not recorded"):
            producer(transactional_id="t")
        with pytest.raises(NotImplementedError, match="do not log in"):
            consumer(security_protocol="SASL_SSL")
        async with producer() as sending:
            with pytest.raises(NotImplementedError, match="no send_batch"):
                await sending.send_batch(None, TOPIC, partition=0)

    asyncio.run(work())


def test_its_defaults_are_its_own_and_not_librdkafkas():
    sending = producer_of(producer_properties({}))
    assert (sending.acks, sending.enable_idempotence) == ("1", False)
    assert producer_of(producer_properties({"enable_idempotence": True})).acks == "all"
    assert producer_of(producer_properties({"acks": -1})).acks == "all"
    reading = consumer_properties({"group_id": "g"})
    assert reading["isolation.level"] == "read_uncommitted"
    group = group_of_members([RegisteredClient(1, "consumer", 1, reading)])
    assert group.session_timeout_ms == 10_000
