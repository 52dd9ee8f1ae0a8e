"""Starting and ending clients on a real cluster, again and again, leaves no process, no thread and no descriptor behind."""

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from prozess.app.wiring import TOOLBOX
from prozess.clusters.machine.sandbox import ISOLATION_VARIABLE
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.workloads.librdkafka import close
from prozess.workloads.runtime.clients import Clients
from prozess.workloads.runtime.fork_server import share
from tests.support.log_workload import RESUME, on_client
from tests.support.servers.clusters import READY_S, new_run
from tests.support.servers.hosted import HostedCluster

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
LIMIT_S = 60.0
WARM_ROUNDS, ROUNDS, RESTARTS = 1, 2, 3
OF_THE_LOG = {
    "producer.acks": ["0", "all"],
    "producer.retries": ["max", "0"],
    "producer.max_in_flight": [1, 5],
    "producer.compression_type": ["none", "lz4", "zstd"],
}
"""Of so many producers some share a process."""
WORKLOADS = ({"kind": "log", "axes": OF_THE_LOG}, {"kind": "group"}, {"kind": "transactions"})


@dataclass(frozen=True)
class Held:
    """What this process has."""

    threads: int
    descriptors: int
    children: frozenset[int]

    @classmethod
    def now(cls) -> "Held":
        """Threads are Python's, the rest the kernel's. A mapped file holds a descriptor until it is freed."""
        gc.collect()
        children = psutil.Process().children(recursive=True)
        return cls(
            threads=threading.active_count(),
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            children=frozenset(child.pid for child in children),
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedCluster]:
    """One broker on this host, reached without the relay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ISOLATION_VARIABLE, "signals")
        built = HostedCluster(plan_of(), new_run(tmp_path_factory.mktemp("run")), clock=CLOCK, close=close)
        try:
            built.setup()
            built.wait_ready(timeout_s=READY_S)
            topics = [NewTopic(cell.topic_name, len(cell.partitions), 1) for cell in plan_of().cells]
            admin = AdminClient({"bootstrap.servers": built.bootstrap_servers})
            for created in admin.create_topics(topics, operation_timeout=READY_S).values():
                created.result(READY_S)
            yield built
        finally:
            built.teardown()


def plan_of() -> Plan:
    replication = {"topic.replication_factor": 1}
    properties = {f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")}
    document = {
        "name": "leaks",
        "title": "Clients of several roles",
        "variant": {
            "metadata_mode": "kraft-combined",
            "brokers": 1,
            "properties": properties | {"transaction.state.log.min.isr": "1"},
        },
        "workloads": [{**workload, "base": replication, "topics": {"partitions": 1}} for workload in WORKLOADS],
    }
    return make_plan(parse_trial(document, source="leaks"), seed=1)


def shared_in(plan: Plan) -> list[PlannedClient]:
    """Who shares a process."""
    ids = {client for group in share(plan.clients, plan.steps) for client in group}
    return [client for client in plan.clients if client.client in ids]


def at_work(workload: Clients) -> None:
    """Until every partition has acknowledgements."""
    wait_until(
        lambda: min(p.ok for p in workload.progress().values()) > 0 and not workload.dead_clients(),
        awaited="acknowledgements on every partition",
        timeout_s=LIMIT_S,
        clock=CLOCK,
        last_seen=lambda: f"{workload.progress()}; dead: {workload.dead_clients()}",
    )


def one_round(cluster: HostedCluster, run: RunDirectory) -> None:
    """All clients of a trial: start, work, end."""
    workload = Clients(plan_of(), run, cluster=cluster, clock=CLOCK, toolbox=TOOLBOX)
    try:
        workload.start()
        workload.command(RESUME)
        at_work(workload)
        workload.finish_sends(timeout_s=LIMIT_S)
    finally:
        workload.close()


def test_clients_started_and_ended_many_times_leave_nothing(cluster: HostedCluster, tmp_path: Path) -> None:
    held = []
    for number in range(WARM_ROUNDS + ROUNDS):
        one_round(cluster, new_run(tmp_path / str(number)))
        held.append(Held.now())
    assert len(set(held[WARM_ROUNDS:])) == 1, held
    assert held[-1] == held[WARM_ROUNDS - 1]


def test_a_client_restarted_many_times_holds_no_more_than_one(cluster: HostedCluster, tmp_path: Path) -> None:
    """The producer's first incarnation ends alone in a process that others have too; its successors have their own."""
    plan = plan_of()
    producer = next(client.name for client in plan.clients if client.role == "producer" and "acks_all" in client.name)
    group = next(cell.cell for cell in plan.cells if cell.workload == "group")
    assert any(client.name == producer for client in shared_in(plan))
    workload = Clients(plan_of(), new_run(tmp_path / "run"), cluster=cluster, clock=CLOCK, toolbox=TOOLBOX)
    try:
        workload.start()
        workload.command(RESUME)
        at_work(workload)
        counts = []
        for _ in range(RESTARTS):
            for client in (f"member({group}, 0)", producer):
                workload.command(on_client("stop", client))
                workload.command(on_client("start", client))
            workload.progress()
            held = Held.now()
            counts.append((held.threads, held.descriptors, len(held.children)))
    finally:
        workload.close()
    assert len(set(counts)) == 1, counts
