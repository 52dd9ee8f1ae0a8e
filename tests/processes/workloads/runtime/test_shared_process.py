"""Producers that share a process: each is recorded, commanded and ended as one that has its own; a death takes them all."""

import json
import os
import signal
import socket
import time

import numpy as np
import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import ClientSpec
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.plan.schedule import ClientAction, FaultAction, HealAction, Step
from prozess.harness.plan.trial import Traffic
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import NONE, TABLES, Outcome
from prozess.workloads.client import ClientExit, ClientLaunch
from prozess.workloads.roles import SHARED
from prozess.workloads.runtime.fork_server import (
    ALONE_MAX,
    RATE_MAX_HZ,
    TOGETHER_MAX,
    run_shared,
    share,
    targets_of,
)
from tests.support.examples import examples
from tests.support.log_workload import LIMIT_S, PAUSE, RESUME, ClientBench, bench, plan_of, send
from tests.support.mock_kafka import INIT_PRODUCER_ID_API

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


def processes(b: ClientBench) -> dict[int, list[int]]:
    """Process id → its producers."""
    found: dict[int, list[int]] = {}
    for client in b.producers.values():
        found.setdefault(b.pid(client), []).append(client)
    return found


def test_each_of_many_in_a_process_is_recorded_as_if_it_had_its_own(tmp_path):
    with bench(company(), tmp_path) as b:
        shared = processes(b)
        b.workload.command(RESUME)
        b.until(lambda: min(p.ok for p in b.workload.progress().values()) >= 5, "5 acknowledgements everywhere")
        b.workload.command(PAUSE)
        b.until(lambda: b.total("ok") == b.total("issued"), "what is under way")
        paused = b.total("issued")
        for cell in b.plan.cells[:2]:
            b.workload.command(send(50, cell))
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
        b.workload.command(RESUME)
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
        b.workload.command(RESUME)
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


def _serves(b: ClientBench, clients: list[int], partition: int) -> bool:
    return any(partition in client.partitions for client in b.plan.clients if client.client in clients)


class Counting:
    """Work of so many steps, after which it ends, or crashes where its client is asked to."""

    def __init__(self, client):
        self._client, self._left, self.let_go_of = client, client.spec.options["steps"], False

    def steps(self):
        while self._left:
            self._left -= 1
            self._client.heartbeat(self._client.now_ns())
            yield 0.0
        if self._client.spec.options["crashes"]:
            raise ZeroDivisionError("by a mistake of ours")

    def poll(self, wait_s):
        assert wait_s == 0

    def let_go(self):
        self.let_go_of = True

    def issued(self):
        return self._client.spec.options["steps"]

    def close(self):
        assert self.let_go_of


def test_one_that_crashes_ends_alone_and_its_log_says_why(tmp_path):
    names = ["first", "second", "third"]
    pairs, logs = [socket.socketpair() for _ in names], [tmp_path / f"{name}.log" for name in names]
    for number, ((ours, _), name) in enumerate(zip(pairs, names, strict=True), start=1):
        options = {"steps": 10 * number, "crashes": name == "second"}
        spec = ClientSpec(
            client=number, role="producer", name=name, bootstrap_servers="", options=options, partitions=()
        )
        launch = ClientLaunch(spec=spec, rows=tmp_path, planned=number).model_dump(mode="json")
        ours.sendall(json.dumps(launch).encode() + b"\n")
    code = run_shared([theirs for _, theirs in pairs], logs, {"producer": Counting}, time.monotonic_ns)
    told = [[json.loads(line) for line in ours.recv(1 << 16).splitlines()] for ours, _ in pairs]
    assert code == ClientExit.CLEAN
    assert [[said["event"] for said in of_one] for of_one in told] == [["ready", "ended"]] * 3
    assert [of_one[1]["code"] for of_one in told] == [ClientExit.CLEAN, ClientExit.CRASHED, ClientExit.CLEAN]
    assert ["by a mistake of ours" in log.read_text(encoding="utf-8") for log in logs] == [False, True, False]
    rows = [read_rows(tmp_path, TABLES["clients"], client)[0][0] for client in (1, 2, 3)]
    assert [(row["exit_code"], row["complete"], row["issued"]) for row in rows] == [
        (0, 1, 10),
        (NONE, 0, NONE),
        (0, 1, 30),
    ]
    for pair in pairs:
        for end in pair:
            end.close()


# ----------------------------------------------------------------------------------------------------------------------
# Who shares a process: only plain producers that no step means, a bounded number of them, and nobody where there are
# few.


ROLES_THERE = [
    "producer",
    "producer",
    "producer",
    "keyed-producer",
    "reader",
    "member",
    "transactor",
    "errors-producer",
]


@st.composite
def clients_and_steps(draw):
    """Clients of all kinds, and steps of which some mean some of them."""
    kinds = draw(st.lists(st.sampled_from(ROLES_THERE), max_size=120))
    clients = [
        PlannedClient(
            client=number + 1,
            role=role,
            name=f"{role}-{number}",
            partitions=tuple(range(draw(st.integers(1, 4)))),
            traffic=Traffic(rate_hz=draw(st.sampled_from([1.0, 5.0, 200.0, 10_000.0]))),
            cell=number if role in ("member", "transactor") else None,
            late=draw(st.integers(0, 9)) == 0,
        )
        for number, role in enumerate(kinds)
    ]
    names = draw(st.lists(st.sampled_from([c.name for c in clients]), max_size=4)) if clients else []
    steps = [
        Step(
            name=f"step {number}",
            do=ClientAction(kind="client", do="stop", client=(name,))
            if draw(st.booleans())
            else FaultAction(kind="fault", fault="kill", targets=(f"client:{name}", "leader(0)")),
        )
        for number, name in enumerate(names)
    ]
    return clients, steps, set(names)


@settings(deadline=None, max_examples=examples(200))
@given(clients_and_steps())
def test_who_shares_a_process_may_and_no_process_has_too_many_or_too_much_to_do(made):
    clients, steps, meant = made
    groups = share(clients, steps)
    of = {client.client: client for client in clients}
    shared = [of[client] for group in groups for client in group]
    assert len({client.client for client in shared}) == len(shared)
    for client in shared:
        assert client.role in SHARED
        assert client.name not in meant
        assert not client.late
    for group in groups:
        assert 2 <= len(group) <= TOGETHER_MAX
        assert list(group) == sorted(group)
        assert sum(of[c].traffic.rate_hz * len(of[c].partitions) for c in group) <= RATE_MAX_HZ
    fit = [c for c in clients if c.role in SHARED and c.name not in meant and not c.late]
    assert not groups or len(fit) > ALONE_MAX
    idle = [c for c in fit if c.traffic.rate_hz * len(c.partitions) * TOGETHER_MAX <= RATE_MAX_HZ]
    if len(idle) == len(fit) > ALONE_MAX:  # nobody is too busy: as few processes as there can be
        assert len(groups) + len(fit) - len(shared) == -(-len(fit) // TOGETHER_MAX)


def many(role: str = "producer") -> list[PlannedClient]:
    return [
        PlannedClient(client=n, role=role, name=f"producer-{n}", partitions=(n,), traffic=Traffic(rate_hz=5))
        for n in range(1, 2 * ALONE_MAX + 1)
    ]


def test_where_every_producer_is_meant_each_has_a_process():
    for do in (
        FaultAction(kind="fault", fault="pause", targets=("producers",)),
        FaultAction(kind="fault", fault="partition", targets=("leader(0)",), parameters={"others": ["producers"]}),
        ClientAction(kind="client", do="stop", client=("producers",)),
    ):
        assert share(many(), [Step(name="step", do=do)]) == ()


def test_steps_that_mean_no_client_leave_producers_together():
    steps = [
        Step(name="kill", do=FaultAction(kind="fault", fault="kill", targets=("leader(0)",))),
        Step(name="a member", do=FaultAction(kind="fault", fault="kill", targets=("member(0, 1)",))),
        Step(name="heal", do=HealAction(kind="heal", step="kill")),
        Step(name="wait"),
    ]
    assert [target.role for target in targets_of(steps)] == ["member"]
    assert sum(map(len, share(many(), steps))) == 2 * ALONE_MAX
