"""Real producer processes against librdkafka's mock cluster: what they send, what they record, and how they end."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.harness.errors import BadInput
from prozess.harness.schema import MISSING, NONE, Outcome
from prozess.workloads.client import ClientExit
from prozess.workloads.log.producer import HANDLED_QUIET_NS
from prozess.workloads.record.sends import FEW
from tests.support.log_workload import CLOCK, LIMIT_S, PAUSE, RESUME, alive, bench, children, plan_of, send
from tests.support.mock_kafka import INIT_PRODUCER_ID_API, PRODUCE_API

DESCRIPTORS = Path("/proc/self/fd")
SLOW_BACKOFF = {"retry.backoff.ms": "10000", "retry.backoff.max.ms": "10000"}
"""So that a refusal counts as the answer to the first attempt, however slow this machine is just now."""


def test_every_send_is_recorded_and_acknowledged_at_the_rate_asked(tmp_path):
    with bench(plan_of(partitions=4, rate_hz=100, acks=["0", "1", "all"]), tmp_path) as b:
        b.workload.command(RESUME)
        b.until(lambda: min(p.ok for p in b.workload.progress().values()) >= 50, "50 acknowledgements everywhere")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        progress = b.workload.progress()
    assert not b.workload.dead_clients()
    for name, client in b.producers.items():
        sends, (told,) = b.rows("sends", client), b.rows("clients", client)
        assert (told["exit_code"], told["complete"], told["issued"]) == (0, 1, len(sends))
        assert told["ended_ns"] > told["started_ns"]
        assert (sends["sequence"] == np.arange(len(sends))).all()
        assert (sends["outcome"] == Outcome.OK).all()
        assert (sends["completed_ns"] >= sends["invoked_ns"]).all()
        assert (sends["key"] == NONE).all()
        for partition in np.unique(sends["partition"]):
            of = sends[sends["partition"] == partition]
            assert progress[partition].ok == progress[partition].issued == len(of)
            offsets = of["log_offset"]
            assert (offsets == NONE).all() if "acks_0" in name else (np.diff(offsets) == 1).all()
        # Interleaved over partitions, and spread over time: no partition is ever two rounds ahead of another.
        turns = np.stack([np.cumsum(sends["partition"] == p) for p in np.unique(sends["partition"])])
        assert (turns.max(axis=0) - turns.min(axis=0)).max() <= 1
        seconds = (sends["invoked_ns"][-1] - sends["invoked_ns"][0]) / 1e9
        assert (len(sends) - 1) / 4 / seconds < 150


@pytest.mark.parametrize("acks", ["0", "all"])
def test_what_is_sent_and_completed_by_the_batch_is_recorded_like_what_goes_one_by_one(tmp_path, acks):
    with bench(plan_of(partitions=3, acks=[acks]), tmp_path) as b:
        b.workload.command(send(3000, b.plan.cells[0]))
        b.workload.command(send(1, b.plan.cells[0]))
        b.until(lambda: b.total("ok") == 9003, "every acknowledgement")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        progress, sends = b.workload.progress(), b.rows("sends", b.producer)
    assert (sends["sequence"] == np.arange(9003)).all()
    assert len(np.unique(sends["invoked_ns"])) < 3000  # or none of it went by the batch
    assert (sends["outcome"] == Outcome.OK).all()
    assert (sends["completed_ns"] > sends["invoked_ns"]).all()
    assert (np.diff(sends["invoked_ns"]) >= 0).all()
    for partition in range(3):
        offsets = sends["log_offset"][sends["partition"] == partition]
        assert progress[partition].ok == len(offsets) == 3001
        assert (offsets == (NONE if acks == "0" else np.arange(3001))).all()


def test_at_full_speed_a_killed_producers_rows_are_whole(tmp_path):
    with bench(plan_of(rate_hz=50_000), tmp_path) as b:
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 20_000, "acknowledgements")
        os.kill(b.pid(b.producer), signal.SIGKILL)
        b.until_dead(next(iter(b.producers)))
        sends = b.rows("sends", b.producer)
        assert b.total("issued") == len(sends)
        assert b.total("ok") + b.total("info") == len(sends)
    assert (sends["sequence"] == np.arange(len(sends))).all()
    completed = sends["completed_ns"] != MISSING
    assert completed.sum() >= 20_000
    assert (sends["outcome"][completed] == Outcome.OK).all()
    assert (sends["log_offset"][completed] >= 0).all()


def test_paused_producers_send_exactly_what_is_asked_to_the_cells_asked(tmp_path):
    with bench(plan_of(acks=["1", "all"]), tmp_path) as b:
        chosen = b.plan.cells[1]
        b.workload.command(send(7, chosen))
        b.until(lambda: b.total("ok") == 14, "what was asked to be acknowledged")
        issued = {p: progress.issued for p, progress in b.workload.progress().items()}
        assert issued == {p: 7 if p in chosen.partitions else 0 for p in issued}
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") > 100, "traffic")
        b.workload.command(PAUSE)
        issued_when_paused = b.total("issued")
        b.until(lambda: b.total("ok") == b.total("issued"), "sends to settle")
        assert b.total("issued") == issued_when_paused


def test_a_killed_producers_sends_stay_readable_and_unfinished_ones_are_info(tmp_path):
    with bench(plan_of(acks=["all"]), tmp_path) as b:
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 50, "acknowledgements")
        b.kafka.slow(60_000)
        b.until(lambda: b.total("issued") >= b.total("ok") + 50, "sends in flight")
        os.kill(b.pid(b.producer), signal.SIGKILL)
        (name,) = b.producers
        assert b.until_dead(name).startswith("killed by signal 9")
        sends, (told,) = b.rows("sends", b.producer), b.rows("clients", b.producer)
        open_ = sends[sends["completed_ns"] == MISSING]
        assert len(open_) >= 50
        assert (open_["outcome"] == Outcome.INFO).all()
        assert b.total("info") == len(open_)
        assert b.total("issued") == len(sends)
        assert (told["exit_code"], told["complete"], told["ended_ns"]) == (-signal.SIGKILL, 0, MISSING)


def test_without_retries_a_refusal_is_recorded_as_what_it_proves(tmp_path):
    expected = {
        KafkaError.NOT_ENOUGH_REPLICAS: Outcome.FAIL,
        KafkaError.MSG_SIZE_TOO_LARGE: Outcome.FAIL,
        KafkaError.REQUEST_TIMED_OUT: Outcome.INFO,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Outcome.INFO,
    }
    with bench(plan_of(partitions=1, retries=["0"], properties=SLOW_BACKOFF), tmp_path) as b:
        for count, code in enumerate(expected, start=1):
            b.kafka.refuse(PRODUCE_API, [code])
            b.workload.command(send(1, b.plan.cells[0]))
            b.until(lambda count=count: b.total("failed") + b.total("info") == count, f"refusal number {count}")
        sends = b.rows("sends", b.producer)
    assert dict(zip(sends["code"].tolist(), sends["outcome"].tolist(), strict=True)) == expected
    assert (sends["log_offset"] == NONE).all()
    assert (sends["completed_ns"] > sends["invoked_ns"]).all()


def test_a_refusal_after_the_resend_that_librdkafka_does_unasked_proves_nothing(tmp_path):
    """retries=0 does not keep librdkafka from sending again after NOT_LEADER, which acks=all may answer after the append."""
    with bench(plan_of(partitions=1, retries=["0"]), tmp_path) as b:
        b.kafka.refuse(PRODUCE_API, [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NOT_ENOUGH_REPLICAS])
        b.workload.command(send(1, b.plan.cells[0]))
        b.until(lambda: b.total("failed") + b.total("info") == 1, "the second answer")
        (row,) = b.rows("sends", b.producer)
        assert (row["outcome"], row["code"]) == (Outcome.INFO, KafkaError.NOT_ENOUGH_REPLICAS)


def test_with_retries_a_refused_send_is_tried_again_and_succeeds(tmp_path):
    with bench(plan_of(partitions=1, retries=["max"]), tmp_path) as b:
        b.kafka.refuse(PRODUCE_API, [KafkaError.NOT_ENOUGH_REPLICAS] * 3)
        b.workload.command(send(1, b.plan.cells[0]))
        b.until(lambda: b.total("ok") == 1, "the retry")


def test_an_acks_0_producer_stays_until_the_partitions_hold_what_it_sent(tmp_path):
    with bench(plan_of(partitions=2, acks=["0"]), tmp_path) as b:
        b.workload.command(send(50, b.plan.cells[0]))
        b.until(lambda: b.total("ok") == 100, "reports")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        assert b.rows("clients", b.producer)["exit_code"] == 0


def test_an_acks_0_producer_whose_records_were_lost_ends_all_the_same(tmp_path):
    with bench(plan_of(partitions=1, acks=["0"]), tmp_path) as b:
        b.workload.command(send(1, b.plan.cells[0]))
        b.until(lambda: b.total("ok") == 1, "a connection")
        b.kafka.refuse(PRODUCE_API, [KafkaError.NOT_LEADER_FOR_PARTITION])  # nobody is reported: acks=0
        b.workload.command(send(1, b.plan.cells[0]))
        b.until(lambda: b.total("ok") == 2, "the report")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        last_ns = b.rows("sends", b.producer)["completed_ns"].max()
        (told,) = b.rows("clients", b.producer)
        assert told["exit_code"] == 0
        assert told["ended_ns"] - last_ns >= HANDLED_QUIET_NS


def test_what_the_cap_holds_back_is_withheld_and_not_attempted(tmp_path):
    plan = plan_of(traffic={"unacknowledged_max": 10})
    with bench(plan, tmp_path) as b:
        b.workload.command(send(1, b.plan.cells[0]))
        b.until(lambda: b.total("ok") == 2, "a first acknowledgement")
        b.kafka.slow(300)
        b.workload.command(RESUME)
        b.until(lambda: b.total("issued") >= 22, "the cap to be reached")
        b.until(lambda: b.total("ok") >= 22, "acknowledgements")
        b.workload.finish_sends(timeout_s=LIMIT_S)
    sends, withheld = b.rows("sends", b.producer), b.rows("withheld", b.producer)
    assert set(withheld["partition"]) == {0, 1}
    assert (withheld["count"] > 0).all()
    closed = withheld[withheld["ended_ns"] != MISSING]
    assert len(closed) > 0
    assert (closed["ended_ns"] > closed["begun_ns"]).all()
    for partition in (0, 1):
        of = sends[sends["partition"] == partition]
        times = np.concatenate([of["invoked_ns"], of["completed_ns"]])
        changes = np.repeat([1, -1], len(of))[np.argsort(times, kind="stable")]
        assert np.cumsum(changes).max() == 10


@pytest.mark.parametrize("count", [20, FEW + 300])
def test_a_full_queue_is_a_certain_failure_and_recorded(tmp_path, count):
    plan = plan_of(partitions=1, properties={"queue.buffering.max.messages": "5"})
    with bench(plan, tmp_path) as b:
        b.kafka.slow(60_000)
        b.workload.command(send(count, b.plan.cells[0]))
        assert (b.total("issued"), b.total("failed")) == (count, count - 5)
        sends = b.rows("sends", b.producer)
        failed = sends[sends["outcome"] == Outcome.FAIL]
        assert (failed["code"] == KafkaError._QUEUE_FULL).all()
        assert (failed["completed_ns"] >= failed["invoked_ns"]).all()


def test_records_of_a_batch_that_a_dead_instance_never_took_have_failed(tmp_path):
    def forbid(kafka):
        kafka.refuse(INIT_PRODUCER_ID_API, [KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 50)

    with bench(plan_of(partitions=1, rate_hz=50_000, enable_idempotence=[True]), tmp_path, before=forbid) as b:
        b.workload.command(RESUME)
        b.until_dead(next(iter(b.producers)))
        sends, (told,) = b.rows("sends", b.producer), b.rows("clients", b.producer)
        refused = sends["outcome"] == Outcome.FAIL
        assert (sends["code"][refused] == KafkaError._FATAL).all()
        assert not (sends["outcome"] == Outcome.OK).any()
        assert told["issued"] == len(sends)


def test_a_fatal_error_ends_the_client_with_a_reason_and_leaves_its_sends_info(tmp_path):
    def forbid(kafka):
        kafka.refuse(INIT_PRODUCER_ID_API, [KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 50)

    with bench(plan_of(partitions=1, enable_idempotence=[True]), tmp_path, before=forbid) as b:
        b.workload.command(RESUME)
        (name,) = b.producers
        why = b.until_dead(name)
        assert f"exit {ClientExit.FATAL.value}" in why
        assert "authorization" in why.lower()
        sends, (told,) = b.rows("sends", b.producer), b.rows("clients", b.producer)
        assert not (sends["outcome"] == Outcome.OK).any()
        refused = sends["outcome"] == Outcome.FAIL
        assert (sends["code"][refused] == KafkaError._FATAL).all()  # those that produce() itself refused
        assert (told["exit_code"], told["issued"]) == (ClientExit.FATAL, len(sends))


def test_a_full_disk_ends_the_client_with_its_sentence_and_keeps_what_was_recorded(tmp_path):
    with bench(plan_of(rate_hz=20_000), tmp_path) as b:
        resource.prlimit(b.pid(b.producer), resource.RLIMIT_FSIZE, (400_000, 400_000))
        b.workload.command(RESUME)
        (name,) = b.producers
        why = b.until_dead(name)
        assert f"exit {ClientExit.STORAGE_FULL.value}" in why
        assert "cannot allocate" in why
        assert "cannot allocate" in (b.run.logs / f"client-{name}.log").read_text(encoding="utf-8")
        sends, (told,) = b.rows("sends", b.producer), b.rows("clients", b.producer)
        assert len(sends) == 4096  # the first segment; the second could not be allocated
        assert (told["exit_code"], told["complete"]) == (ClientExit.STORAGE_FULL, 0)


def test_a_property_librdkafka_does_not_know_is_bad_input(tmp_path):
    with (
        pytest.raises(BadInput, match=r"no\.such\.property"),
        bench(plan_of(properties={"no.such.property": "1"}), tmp_path),
    ):
        pytest.fail("it started")


def test_nothing_is_left_after_close_and_closing_twice_is_safe(tmp_path):
    before, threads, descriptors = children(), threading.active_count(), len(list(DESCRIPTORS.iterdir()))
    with bench(plan_of(acks=["0", "1", "all"]), tmp_path, servers=None) as b:
        pids = [b.pid(client) for client in b.producers.values()]
        assert all(alive(pid) for pid in pids)
        b.workload.command(RESUME)
        b.workload.close()
        b.workload.close()
        assert not any(alive(pid) for pid in pids)
    assert children() == before
    assert threading.active_count() == threads
    assert len(list(DESCRIPTORS.iterdir())) <= descriptors


def test_a_paused_client_is_killed_at_the_end_and_not_reported_as_dead(tmp_path):
    with bench(plan_of(acks=["all"]), tmp_path) as b:
        pid = b.pid(b.producer)
        os.kill(pid, signal.SIGSTOP)
        b.workload.close()
        assert not alive(pid)
        assert not b.workload.dead_clients()


ORPHANING = """
import sys
from pathlib import Path
from tests.support.log_workload import RESUME, ClientBench, plan_of
from tests.support.mock_kafka import mock_kafka
with mock_kafka() as kafka:
    b = ClientBench(plan_of(acks=["1", "all"]), Path(sys.argv[1]), kafka)
    b.workload.start()
    b.workload.command(RESUME)
    b.until(lambda: b.total("ok") > 20, "traffic")
    print(*(b.pid(client) for client in b.producers.values()), flush=True)
    sys.stdin.read()
"""


def test_clients_end_when_the_harness_is_killed_and_their_rows_are_whole(tmp_path):
    from tests.support.log_workload import wait_until

    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHANING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
    finally:
        parent.kill()
        parent.communicate()
    wait_until(
        lambda: not any(alive(pid) for pid in pids), awaited="orphaned clients to end", timeout_s=60, clock=CLOCK
    )
    from prozess.harness.recording.rows import read_rows, recorded
    from prozess.harness.schema import CLIENTS, SENDS

    for client in recorded(tmp_path / "rows")["sends"]:
        sends, torn = read_rows(tmp_path / "rows", SENDS, client)
        (told,), _ = read_rows(tmp_path / "rows", CLIENTS, client)
        assert torn == 0
        assert (sends["sequence"] == np.arange(len(sends))).all()
        assert (told["exit_code"], told["issued"]) == (ClientExit.ORPHANED, len(sends))
