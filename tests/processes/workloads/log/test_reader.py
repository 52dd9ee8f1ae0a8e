"""Real readers and the real audit against librdkafka's mock cluster.

Everything given is recorded, and nothing is claimed that was not read.
"""

import numpy as np
import pytest
from confluent_kafka import KafkaError, Producer

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import ClientSpec
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE, Isolation, ObservationKind, Outcome, ReadFlag, Role
from prozess.workloads.client import ClientLaunch
from prozess.workloads.record.identity import SENTINEL_KEY, key_id
from prozess.workloads.record.members import ASSIGNED, RESET
from prozess.workloads.runtime.processes import ClientProcesses
from prozess.workloads.settings import reader_properties
from tests.support.log_workload import CLOCK, LIMIT_S, RESUME, ClientBench, bench, plan_of, send, wait_until
from tests.support.mock_kafka import FETCH_API, PRODUCE_API, mock_kafka

LEVELS = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}


def raw_producer(b: ClientBench) -> Producer:
    return Producer({"bootstrap.servers": b.kafka.bootstrap_servers, "log_level": 0})


def test_readers_at_both_levels_record_every_record_in_order_with_its_identity(tmp_path):
    with bench(plan_of(acks=["1", "all"]), tmp_path) as b:
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 200, "acknowledgements")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        total = b.total("ok")
        for level in LEVELS:
            b.until(
                lambda level=level: len(b.rows("reads", b.clients[f"reader-{level}"])) == total, f"{level} to read all"
            )
        b.workload.close()
        sent = {
            (client, row["sequence"], row["partition"], row["log_offset"])
            for client in b.producers.values()
            for row in b.rows("sends", client)
        }
        for level, isolation in LEVELS.items():
            client = b.clients[f"reader-{level}"]
            reads, positions, (told,) = (b.rows(table, client) for table in ("reads", "positions", "clients"))
            fields = ("sender", "sequence", "sent_partition", "log_offset")
            assert {tuple(row[field] for field in fields) for row in reads} == sent
            assert (reads["partition"] == reads["sent_partition"]).all()
            assert not reads["flags"].any()
            assert (reads["key"] == NONE).all()
            assert (reads["span"] == 0).all()
            assert (np.diff(reads["read_ns"]) >= 0).all()
            for partition in np.unique(reads["partition"]):
                assert (np.diff(reads["log_offset"][reads["partition"] == partition]) == 1).all()
            assert sorted(positions["partition"]) == [p.partition for p in b.plan.partitions]
            assert set(zip(positions["event"], positions["log_offset"], positions["span"], strict=True)) == {
                (ASSIGNED, 0, 0)
            }
            assert (told["role"], told["isolation"]) == (Role.READER, isolation)
            assert (told["exit_code"], told["complete"], told["issued"]) == (0, 1, len(reads))
            beats = b.rows("heartbeats", client)["time_ns"]
            assert np.diff(beats).min() >= 90_000_000


def test_foreign_records_and_tombstones_are_recorded_as_corrupt(tmp_path):
    with bench(plan_of(partitions=1), tmp_path) as b:
        foreign, topic = raw_producer(b), b.plan.cells[0].topic_name
        foreign.produce(topic, b"not one of ours, but long enough to be read as one", None, 0)
        foreign.produce(topic, None, b"key", 0)
        foreign.flush(LIMIT_S)
        b.workload.command(send(1, b.plan.cells[0]))
        client = b.clients["reader-read_uncommitted"]
        b.until(lambda: len(b.rows("reads", client)) == 3, "three records")
        reads = b.rows("reads", client)
    assert reads["flags"].tolist() == [ReadFlag.CORRUPT, ReadFlag.CORRUPT, 0]
    assert reads["sender"].tolist() == [NONE, NONE, b.producer]
    assert reads["key"].tolist() == [NONE, key_id(b"key"), NONE]
    assert reads["log_offset"].tolist() == [0, 1, 2]


def test_a_position_out_of_range_is_a_reset_and_begins_a_new_span(tmp_path):
    """Records 0…49 vanish under a reader that starts at 0: it is reported, goes to the log start, and says so."""
    rows, logs = tmp_path / "rows", tmp_path / "logs"
    rows.mkdir()
    logs.mkdir()
    with mock_kafka() as kafka:
        kafka.create("topic", partitions=2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "linger.ms": 0})
        for number in range(200):
            producer.produce("topic", b"value", None, number % 2)
            producer.flush(LIMIT_S)  # one batch each: the mock deletes whole batches
        kafka.delete_records("topic", 1, before=50)
        spec = ClientSpec(
            client=5,
            role="reader",
            name="reader",
            bootstrap_servers=kafka.bootstrap_servers,
            properties=reader_properties(
                "read_uncommitted", bootstrap_servers=kafka.bootstrap_servers, client_name="reader"
            ),
            partitions=((0, "topic", 0), (1, "topic", 1)),
        )
        processes = ClientProcesses(rows=rows, logs=logs, clock=CLOCK)
        try:
            processes.start([ClientLaunch(spec=spec, rows=rows, planned=spec.client)])
            reads = wait_until(
                lambda: (found := read(rows, "reads", 5)) is not None and len(found) == 150 and found.size and [found],
                awaited="150 records",
                timeout_s=LIMIT_S,
                clock=CLOCK,
            )[0]
        finally:
            processes.close()
        positions = read(rows, "positions", 5)
    first, second = (reads[reads["partition"] == partition] for partition in (0, 1))
    assert (first["log_offset"].tolist(), set(first["span"])) == (list(range(100)), {0})
    assert (second["log_offset"].tolist(), set(second["span"])) == (list(range(50, 100)), {1})
    fields = ("event", "partition", "log_offset", "span")
    assert [tuple(row[field] for field in fields) for row in positions] == [
        (ASSIGNED, 0, 0, 0),
        (ASSIGNED, 1, 0, 0),
        (RESET, 1, NONE, 1),
    ]


def read(rows, table, client):
    from prozess.harness.recording.rows import read_rows
    from prozess.harness.schema import TABLES

    return read_rows(rows, TABLES[table], client)[0]


def test_the_audit_reads_every_partition_through_its_sentinel_at_both_levels(tmp_path):
    with bench(plan_of(acks=["0", "all"]), tmp_path) as b:
        b.workload.command(send(20))
        b.until(lambda: b.total("ok") == 80, "acknowledgements")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.kafka.bootstrap_servers = "127.0.0.1:1"  # the audit has no business there
        result = b.workload.audit(timeout_s=LIMIT_S)
        b.workload.close()
        assert not b.workload.dead_clients()
        every = {(p.partition, isolation) for p in b.plan.partitions for isolation in (0, 1)}
        assert result.incomplete == {}
        assert result.complete == dict.fromkeys(every, 20)
        for level in LEVELS:  # tailing readers were given the time to get as far
            assert (b.rows("reads", b.clients[f"reader-{level}"])["sender"] == SENTINEL_CLIENT).sum() == len(
                b.plan.partitions
            )

        sentinels, (told,) = b.rows("sends", SENTINEL_CLIENT), b.rows("clients", SENTINEL_CLIENT)
        assert sorted(sentinels["partition"]) == [p.partition for p in b.plan.partitions]
        assert (sentinels["outcome"] == Outcome.OK).all()
        assert (sentinels["log_offset"] == 20).all()
        assert (sentinels["key"] == key_id(SENTINEL_KEY)).all()
        assert (told["role"], told["issued"], told["exit_code"]) == (Role.SENTINEL, len(sentinels), 0)
        for level, isolation in LEVELS.items():
            client = b.clients[f"audit-{level}"]
            reads, observed = b.rows("reads", client), b.rows("observations", client)
            (told,) = b.rows("clients", client)
            assert (told["role"], told["isolation"], told["exit_code"]) == (Role.AUDIT, isolation, 0)
            assert (observed["isolation"] == isolation).all()
            for partition in b.plan.partitions:
                mine = reads[reads["partition"] == partition.partition]
                assert mine["log_offset"].tolist() == list(range(21))
                assert (mine["sender"][-1], mine["key"][-1]) == (SENTINEL_CLIENT, key_id(SENTINEL_KEY))
                values = {
                    kind: set(
                        observed["value"][(observed["partition"] == partition.partition) & (observed["kind"] == kind)]
                    )
                    for kind in (
                        ObservationKind.LOG_START,
                        ObservationKind.HIGH_WATERMARK,
                        ObservationKind.AUDIT_COMPLETE,
                    )
                }
                assert list(values.values()) == [{0}, {21}, {20}]


def test_a_sentinel_that_fails_is_written_again_until_one_is_acknowledged(tmp_path):
    with bench(plan_of(partitions=1), tmp_path) as b:
        b.kafka.refuse(PRODUCE_API, [KafkaError.INVALID_RECORD] * 2)
        result = b.workload.audit(timeout_s=LIMIT_S)
        sentinels = b.rows("sends", SENTINEL_CLIENT)
    assert sentinels["outcome"].tolist() == [Outcome.INFO, Outcome.INFO, Outcome.OK]
    assert sentinels["code"].tolist() == [KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD, 0]
    assert result.complete == {(0, 0): 0, (0, 1): 0}


def test_partitions_that_cannot_be_written_are_incomplete_with_the_reason(tmp_path):
    with bench(plan_of(), tmp_path) as b:
        b.kafka.refuse(PRODUCE_API, [KafkaError.INVALID_RECORD] * 1000)
        result = b.workload.audit(timeout_s=1.5)
    assert result.complete == {}
    assert len(result.incomplete) == 4
    assert all("sentinel was not acknowledged: INVALID_RECORD" in why for why in result.incomplete.values())


def test_partitions_that_cannot_be_read_are_incomplete_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "prozess.workloads.runtime.final_phase.STALLED_NS", NS_PER_S
    )  # the tailing reader, too, waits for it
    with bench(plan_of(partitions=1), tmp_path) as b:
        b.kafka.refuse(FETCH_API, [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 10_000)
        result = b.workload.audit(timeout_s=2)
        assert (
            b.rows("observations", b.clients["audit-read_committed"])["kind"] != ObservationKind.AUDIT_COMPLETE
        ).all()
    assert result.complete == {}
    assert set(result.incomplete) == {(0, 0), (0, 1)}
    assert all("not through the sentinel" in why for why in result.incomplete.values())


@pytest.mark.parametrize(
    ("name", "api", "code"),
    [
        ("sentinel", PRODUCE_API, KafkaError.INVALID_RECORD),
        ("audit-read_committed", FETCH_API, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_an_audit_whose_client_dies_is_incomplete_with_its_last_words(tmp_path, name, api, code):
    import os
    import signal
    import threading

    with bench(plan_of(partitions=1), tmp_path) as b:
        b.kafka.slow(100)
        b.kafka.refuse(api, [code] * 10_000)  # so that it cannot be done before it is killed, however slow this machine

        def kill() -> None:
            b.until(lambda: len(b.rows("heartbeats", b.clients[name])) >= 3, f"{name} to be at work")
            os.kill(int(rows()["os_pid"][0]), signal.SIGKILL)
            b.kafka.accept(api)

        def rows():
            return b.rows("clients", b.clients[name])

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            result = b.workload.audit(timeout_s=LIMIT_S)
        finally:
            killer.join()
        assert (0, 1) in result.incomplete
        assert "killed by signal 9" in result.incomplete[0, 1]
        assert f"{name}" in b.workload.dead_clients()
