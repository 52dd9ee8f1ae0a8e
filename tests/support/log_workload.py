"""A log workload on a mock cluster, for tests with real client processes."""

import atexit
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prozess.app.wiring import TOOLBOX
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.interfaces import Workload
from prozess.harness.plan.plan import Cell, Plan, PlannedClient
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import ClientAction, PauseSends, ResumeSends, Send, StallAction, TakeOver
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from prozess.workloads.runtime.clients import Clients
from prozess.workloads.runtime.processes import ForkServers
from tests.support.mock_kafka import MockKafka, mock_kafka

CLOCK = SystemClock()
LIMIT_S = 40.0
FORK_SERVERS = ForkServers()
"""What one test leaves to the next. Trials start their own: tests of the system run those."""
atexit.register(FORK_SERVERS.close)
RESUME = ResumeSends(kind="resume_sends")
PAUSE = PauseSends(kind="pause_sends")
TAKE_OVER = TakeOver(kind="take_over")
"""Of every cell, while who has the id holds a transaction open."""


def send(count: int, cell: Cell | None = None) -> Send:
    """The action that sends so many records to each partition of a cell; None = of every cell."""
    return Send(kind="send", count=count, cells={} if cell is None else dict(cell.axes))


def on_client(do: Literal["stop", "start"], client: str) -> ClientAction:
    """The action that stops, starts or stalls these clients."""
    return ClientAction(kind="client", do=do, client=(client,))


def stall(client: str, *, seconds: float) -> StallAction:
    """The action that stalls one client."""
    return StallAction(kind="client", do="stall", client=(client,), seconds=seconds)


def plan_of(
    *,
    partitions: int = 2,
    rate_hz: float = 200,
    traffic: dict[str, Any] | None = None,
    properties: dict[str, str] | None = None,
    **axes: Any,
) -> Plan:
    """A plan with these producer axes: `acks=["0", "all"]` becomes `producer.acks`. `properties`: of every producer."""
    document = {
        "name": "test",
        "title": "test",
        "topics": {"partitions": partitions},
        "traffic": {"rate_hz": rate_hz, **(traffic or {})},
        "axes": {f"producer.{key}": values for key, values in axes.items()} or {"producer.acks": ["all"]},
    }
    plan = make_plan(parse_trial(document, source="test"), seed=1)

    def with_properties(client: PlannedClient) -> PlannedClient:
        if client.producer is None or properties is None:
            return client
        producer = client.producer.model_copy(update={"properties": properties})
        return client.model_copy(update={"producer": producer})

    return plan.model_copy(update={"clients": tuple(map(with_properties, plan.clients))})


class ClientBench:
    """A workload, its run directory and the mock cluster under it."""

    def __init__(self, plan: Plan, path: Path, kafka: MockKafka, servers: ForkServers | None = FORK_SERVERS) -> None:
        self.plan, self.run, self.kafka = plan, RunDirectory(path), kafka
        self.run.create()
        there = Counter(partition.topic_name for partition in plan.partitions if not partition.late)
        for name, partitions in there.items():
            kafka.create(name, partitions=partitions)
        self.workload: Workload = Clients(plan, self.run, cluster=kafka, clock=CLOCK, toolbox=TOOLBOX, servers=servers)
        self.producers = {c.name: c.client for c in plan.clients if c.role == "producer"}
        self.clients = {c.name: c.client for c in plan.clients}

    @property
    def producer(self) -> int:
        """The only producer."""
        (client,) = self.producers.values()
        return client

    def rows(self, table: str, client: int) -> np.ndarray:
        """What is there now. A row that is just being written looks torn to this reader, once."""
        for _ in range(20):
            rows, torn = read_rows(self.run.rows, TABLES[table], client)
            if torn == 0:
                return rows
        raise AssertionError(f"{torn} rows of {table} by client {client} stay torn")

    def pid(self, client: int) -> int:
        return int(self.rows("clients", client)["os_pid"][0])

    def total(self, count: str) -> int:
        return sum(getattr(progress, count) for progress in self.workload.progress().values())

    def until(self, probe: Any, awaited: str) -> None:
        wait_until(probe, awaited=awaited, timeout_s=LIMIT_S, clock=CLOCK, interval_s=0.01, last_seen=self.seen)

    def seen(self) -> str:
        return f"{dict(self.workload.progress())}; dead: {dict(self.workload.dead_clients())}"

    def until_dead(self, name: str) -> str:
        self.until(lambda: name in self.workload.dead_clients(), f"{name} to be reported dead")
        return self.workload.dead_clients()[name]


@contextmanager
def bench(
    plan: Plan,
    path: Path,
    *,
    brokers: int = 1,
    before: Callable[[MockKafka], None] = lambda kafka: None,
    servers: ForkServers | None = FORK_SERVERS,
) -> Iterator[ClientBench]:
    """A started workload; closed at the end, whatever happens. `before` its start, the cluster may be prepared.
    `servers`: None: nothing is left to the next test."""
    with mock_kafka(brokers=brokers) as kafka:
        made = ClientBench(plan, path, kafka, servers)
        before(kafka)
        try:
            made.workload.start()
            yield made
        finally:
            made.workload.close()


def alive(pid: int) -> bool:
    """Is there a process of that id that is not a zombie?"""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children() -> set[int]:
    """Process ids of this process's children."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()}
