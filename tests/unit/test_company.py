"""Producers that share a process: each is recorded, commanded and ended as one that has its own; a death takes them all."""

import os
import signal

import numpy as np
import pytest
from confluent_kafka import KafkaError

from harness.errors import ClusterFailed
from harness.schema import Outcome
from tests.unit.log_workload import LIMIT_S, Bench, bench, plan_of
from tests.unit.mock_kafka import INIT_PRODUCER_ID_API
from workloads.client import ClientExit
from workloads.sharing import ALONE_MAX, TOGETHER_MAX

AXES = {
    "acks": ["0", "1", "all"],
    "enable_idempotence": [False, True],
    "retries": ["0", "max"],
    "max_in_flight": [1, 5],
    "compression_type": ["none", "lz4"],
}


def company(**changes):
    """A plan whose producers share processes."""
    plan = plan_of(partitions=1, rate_hz=5, **(AXES | changes))
    assert sum(client.role == "producer" for client in plan.clients) > max(ALONE_MAX, TOGETHER_MAX)
    return plan


def processes(b: Bench) -> dict[int, list[int]]:
    """Process id → its producers."""
    found: dict[int, list[int]] = {}
    for client in b.producers.values():
        found.setdefault(b.pid(client), []).append(client)
    return found


def test_each_of_many_in_a_process_is_recorded_as_if_it_had_its_own(tmp_path):
    with bench(company(), tmp_path) as b:
        shared = processes(b)
        b.workload.command("resume_sends")
        b.until(lambda: min(p.ok for p in b.workload.progress().values()) >= 5, "5 acknowledgements everywhere")
        b.workload.command("pause_sends")
        b.until(lambda: b.total("ok") == b.total("issued"), "what is under way")
        paused = b.total("issued")
        b.workload.command("send", cells=(0, 1), count=50)
        b.until(lambda: b.total("ok") == paused + 100, "what was asked for, and nothing else")
        one = next(node for node in b.workload.nodes() if node.client in b.producers.values())
        for hit in (one.kill, one.pause):
            with pytest.raises(ClusterFailed, match="cannot be hit alone"):
                hit()
        b.workload.finish_sends(timeout_s=LIMIT_S)
        assert not b.workload.dead_clients()
        assert len(shared) < len(b.producers)
        assert max(map(len, shared.values())) <= TOGETHER_MAX
        for name, client in b.producers.items():
            sends, (told,), beats = (b.rows(table, client) for table in ("sends", "clients", "heartbeats"))
            assert (told["exit_code"], told["complete"], told["issued"]) == (0, 1, len(sends))
            assert told["ended_ns"] > told["started_ns"]
            assert (sends["sequence"] == np.arange(len(sends))).all()
            assert (sends["outcome"] == Outcome.OK).all()
            assert (sends["completed_ns"] >= sends["invoked_ns"]).all()
            if "acks_0" not in name:
                assert (np.diff(sends["log_offset"]) == 1).all()
            assert np.diff(beats["time_ns"]).min() >= 90_000_000


def test_a_process_that_is_killed_takes_all_of_its_clients_and_each_is_told_to_be_dead(tmp_path):
    with bench(company(), tmp_path) as b:
        b.workload.command("resume_sends")
        b.until(lambda: min(p.ok for p in b.workload.progress().values()) >= 2, "acknowledgements everywhere")
        names = {client: name for name, client in b.producers.items()}
        pid, clients = max(processes(b).items(), key=lambda found: len(found[1]))
        os.kill(pid, signal.SIGKILL)
        b.until(lambda: len(b.workload.dead_clients()) >= len(clients), "its clients to be reported dead")
        dead = b.workload.dead_clients()
        assert set(dead) == {names[client] for client in clients}
        assert all(
            f"killed by signal 9, and with it the {len(clients) - 1} that shared" in why for why in dead.values()
        )
        for client in clients:
            (told,) = b.rows("clients", client)
            assert (told["exit_code"], told["complete"]) == (-signal.SIGKILL, 0)
        alive = b.workload.progress()
        of_others = [p for p in range(len(b.plan.partitions)) if not _serves(b, clients, p)]
        b.until(lambda: all(b.workload.progress()[p].ok > alive[p].ok for p in of_others), "others to go on")


def test_one_that_dies_of_a_fatal_error_ends_alone(tmp_path):
    """The first to ask for a producer id is refused it for good, and every other is given one."""

    def forbid(kafka):
        kafka.refuse(INIT_PRODUCER_ID_API, [KafkaError.CLUSTER_AUTHORIZATION_FAILED])

    with bench(company(), tmp_path, before=forbid) as b:
        b.workload.command("resume_sends")
        b.until(lambda: b.workload.dead_clients(), "one to be reported dead")
        ((name, why),) = b.workload.dead_clients().items()
        assert f"exit {ClientExit.FATAL.value}" in why
        assert "authorization" in why.lower()
        (told,) = b.rows("clients", b.producers[name])
        assert (told["exit_code"], told["complete"]) == (ClientExit.FATAL, 1)
        assert "authorization" in (b.run.logs / f"client-{name}.log").read_text(encoding="utf-8").lower()
        others = [p for p in range(len(b.plan.partitions)) if not _serves(b, [b.producers[name]], p)]
        b.until(lambda: all(b.workload.progress()[p].ok >= 2 for p in others), "every other to be acknowledged")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        assert list(b.workload.dead_clients()) == [name]


def _serves(b: Bench, clients: list[int], partition: int) -> bool:
    return any(partition in client.partitions for client in b.plan.clients if client.client in clients)
