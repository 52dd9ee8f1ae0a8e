"""A local cluster for a caller outside the sandbox: a contract test, or a benchmark.

`python -m tests.support.servers.hosted` runs it inside; the caller forwards to it. Clients outside reach the brokers
through the relay: this process binds 127.0.0.1:PORT per broker and passes the listening sockets in, and each broker
advertises that address.
"""

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from prozess.clusters.install.kafka_jars import ensure_extra, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.clusters.local.cluster import LocalCluster, listen
from prozess.clusters.machine.archives import CloseConsumer, build_archives
from prozess.clusters.machine.processes import sweep_pids
from prozess.clusters.machine.sandbox import enter_command
from prozess.clusters.machine.server_properties import BROKER, node_name, node_roles
from prozess.harness.clock import Clock, SystemClock
from prozess.harness.config.existing_clusters import Login
from prozess.harness.config.impairments import Harm, Impairment
from prozess.harness.errors import ClusterFailed, HarnessFailed, NotReady
from prozess.harness.interfaces import Capability, MessageWatch, Node, NodeState
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate
from tests.support.paths import ROOT
from tests.support.servers.host_messages import (
    Answer,
    Asked,
    ClusterRequest,
    CollectLogsRequest,
    DescribeRequest,
    DescriptionAnswer,
    DoneAnswer,
    FactsAnswer,
    Failure,
    HarmedAnswer,
    HarmRequest,
    ImpairedRequest,
    ImpairRequest,
    LinkRequest,
    NodeFacts,
    NodeRequest,
    ReceivesRequest,
    Request,
    SeenAnswer,
    ServerRequest,
    SetupRequest,
    ShutdownRequest,
    StateAnswer,
    StateRequest,
    Told,
    WaitReadyRequest,
    decoded,
    encoded,
    error_of,
    failure_of,
)

HOST_START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
FACTS_NUMBER = 0
"""The number of the host's first message: the facts of the cluster that it has built, or why it could not."""
_TAIL_BYTES = 2000


A = TypeVar("A", bound=Answer)


class HostProcess:
    """`python -m tests.support.servers.hosted` in its sandbox, and the conversation with it."""

    def __init__(self, plan: Plan, run: RunDirectory, *, close: CloseConsumer) -> None:
        self._run = run
        run.create()
        run.plan.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
        for version in plan.variant.kafka_versions:
            jars = ensure_jars(version)  # here, since the sandbox has no way out
            build_archives(version, find_java(), jars, close=close)
        if plan.metrics:
            with suppress(HarnessFailed):  # without it the cluster runs all the same, and says what it lacks
                ensure_extra()
        brokers = [node_id for node_id, roles in node_roles(plan.variant).items() if BROKER in roles]
        listeners = listen(brokers)
        self.relay_ports = {broker: listener.getsockname()[1] for broker, listener in listeners.items()}
        self._pending: dict[int, Future[Answer]] = {FACTS_NUMBER: Future()}
        self._lock = threading.Lock()
        self._numbers = FACTS_NUMBER
        self._control, theirs = socket.socketpair()
        try:
            self._process = self._start(theirs, listeners)
        finally:
            theirs.close()
            for listener in listeners.values():
                listener.close()  # the relay's alone: when it is gone, callers are refused
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="cluster host", daemon=True)
        self._reader.start()
        try:
            self.facts = self._result(FACTS_NUMBER, FactsAnswer, "its facts", HOST_START_TIMEOUT_S)
        except BaseException:
            self.end()
            raise

    def _start(self, theirs: socket.socket, listeners: Mapping[int, socket.socket]) -> subprocess.Popen[bytes]:
        parent = os.pidfd_open(os.getpid())
        try:
            arguments = ["--control", str(theirs.fileno()), "--parent", str(parent)]
            arguments += ["--plan", str(self._run.plan), "--run", str(self._run.path)]
            for broker, listener in listeners.items():
                arguments += ["--relay", f"{broker}:{listener.fileno()}"]
            inherited = [theirs.fileno(), parent, *(listener.fileno() for listener in listeners.values())]
            paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
            with (self._run.logs / "host.log").open("ab") as log:
                return subprocess.Popen(
                    enter_command([sys.executable, "-P", "-m", "tests.support.servers.hosted", *arguments]),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=inherited,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                    start_new_session=True,
                )
        finally:
            os.close(parent)

    def ask(self, request: Request, answer: type[A], *, timeout_s: float) -> A:
        """Has the host carry out a request, and returns its answer or raises what it raised. NotReady if there is none
        in time."""
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._pending[number] = Future()
            try:
                self._control.sendall(encoded(Asked(number=number, request=request)))
            except OSError as error:
                del self._pending[number]
                raise self._gone() from error
        of = "the cluster" if isinstance(request, ClusterRequest) else request.node
        return self._result(number, answer, f"{request.ask} of {of}", timeout_s)

    def _result(self, number: int, answer: type[A], awaited: str, timeout_s: float) -> A:
        try:
            told = self._pending[number].result(timeout_s)
            assert isinstance(told, answer), f"{told!r} is no {answer.__name__}"
            return told
        except FutureTimeout as error:
            raise NotReady(
                awaited=f"the cluster's host to answer: {awaited}", timeout_s=timeout_s, last_seen=self._tail()
            ) from error
        finally:
            with self._lock:
                self._pending.pop(number, None)

    def _read(self) -> None:
        with self._control.makefile("rb") as lines:
            try:
                for line in lines:
                    if line.endswith(b"\n"):  # else the host has died within it
                        self._resolve(decoded(Told, line))
            except OSError:
                pass  # the end of the conversation, as below
            except AssertionError:
                self._process.kill()  # nobody waits for an answer that cannot come; the thread's traceback says why
                raise
            finally:
                self._over()

    def _over(self) -> None:
        self._process.wait()
        with self._lock:
            pending, self._pending = self._pending, {}
        for future in pending.values():
            future.set_exception(self._gone())
        sweep_pids(self._run)  # without a pid namespace the host's sudden death leaves servers

    def _resolve(self, told: Told) -> None:
        with self._lock:
            future = self._pending.get(told.number)
        if future is None:
            return  # given up on
        if isinstance(told.answer, Failure):
            future.set_exception(error_of(told.answer))
        else:
            future.set_result(told.answer)

    def _gone(self) -> HarnessFailed:
        return ClusterFailed(f"The cluster's host process has ended (exit {self._process.poll()}): {self._tail()}")

    def _tail(self) -> str:
        try:
            return (self._run.logs / "host.log").read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError:
            return "(no log)"

    def end(self) -> None:
        """Ends the host, which tears the cluster down. It is killed if it does not end."""
        with suppress(OSError):  # it may have ended first
            self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # unshare's --kill-child takes pid 1 with it, and that everything else
            self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        self._control.close()


CALL_TIMEOUT_S = 60.0
SETUP_TIMEOUT_S = 180.0


class HostedCluster:
    """A local cluster in a sandbox of its own, used from outside. Its nodes may be used from any thread."""

    login: Login | None = None
    client_prefix: Sequence[str] = ()

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock, close: CloseConsumer) -> None:
        self._plan, self._run, self._clock, self._close = plan, run, clock, close
        self._host: HostProcess | None = None
        self._lock = threading.RLock()
        self._nodes = tuple(
            HostedNode(self, node_name(node_id, roles), node_id, roles)
            for node_id, roles in sorted(
                node_roles(plan.variant).items(), key=lambda item: (BROKER in item[1], item[0])
            )
        )

    @property
    def nodes(self) -> Sequence["HostedNode"]:
        return self._nodes

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        return self.facts.capabilities

    @property
    def lacks(self) -> Mapping[Capability, str]:
        return self.facts.lacks

    @property
    def bootstrap_servers(self) -> str:
        """Returns the bootstrap servers inside the sandbox; a caller outside wants `relay_servers`."""
        return self.facts.bootstrap_servers

    @property
    def relay_servers(self) -> str:
        """Returns the bootstrap servers for clients outside."""
        return ",".join(f"127.0.0.1:{port}" for port in self._running().relay_ports.values())

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns the brokers' observer listeners, inside the sandbox."""
        return self.facts.observer_servers

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns the controllers' listeners, inside the sandbox."""
        return self.facts.controller_servers

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns the ZooKeeper servers, inside the sandbox; empty in KRaft."""
        return self.facts.zookeeper_servers

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """The metrics agents, inside the sandbox; empty if there are none."""
        return self.facts.metrics_servers

    @property
    def messages(self) -> MessageWatch | None:
        """Returns None: nothing is between the links that could see messages."""
        return None

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Returns None: what this backend can do, it can do to every link."""
        return None

    @property
    def facts(self) -> FactsAnswer:
        """Returns what the host stated of the cluster that it built. Starts the host if need be, but no server."""
        return self._running().facts

    @property
    def host_pid(self) -> int:
        """Returns the pid of the host."""
        return self._running().pid

    def setup(self) -> None:
        self.teardown()
        try:
            self.do(SetupRequest(), timeout_s=SETUP_TIMEOUT_S)
        except BaseException:
            self.teardown()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        self.do(WaitReadyRequest(timeout_s=timeout_s), timeout_s=timeout_s + CALL_TIMEOUT_S)

    def describe(self) -> Mapping[str, Any]:
        found = self.ask(DescribeRequest(), DescriptionAnswer)
        return {**found.description, "relay_servers": self.relay_servers}

    def collect_logs(self, into: Path) -> None:
        self.do(CollectLogsRequest(into=into.resolve()))

    def teardown(self) -> None:
        with self._lock:
            host, self._host = self._host, None
        if host is not None:
            host.end()

    def do(self, request: Request, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Has the host carry out a request; what that raises is raised here."""
        self.ask(request, DoneAnswer, timeout_s=timeout_s)

    def ask(self, request: Request, answer: type[A], *, timeout_s: float = CALL_TIMEOUT_S) -> A:
        """Has the host carry out a request, and returns its answer; what that raises is raised here."""
        return self._running().ask(request, answer, timeout_s=timeout_s)

    def _running(self) -> "HostProcess":
        with self._lock:
            if self._host is None:
                self._host = HostProcess(self._plan, self._run, close=self._close)
            return self._host


class HostedNode:
    """A node of a hosted cluster, which forwards every call to the host."""

    def __init__(self, cluster: HostedCluster, name: str, node_id: int, roles: frozenset[str]) -> None:
        self._cluster, self._name, self._node_id, self._roles = cluster, name, node_id, roles

    @property
    def name(self) -> str:
        return self._name

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def roles(self) -> frozenset[str]:
        return self._roles

    @property
    def address(self) -> str:
        return self._cluster.facts.nodes[self._name].address

    @property
    def data_directory(self) -> Path:
        return self._cluster.facts.nodes[self._name].data_directory

    @property
    def os_pid(self) -> int | None:
        return self._cluster.ask(StateRequest(node=self._name), StateAnswer).os_pid

    def state(self) -> NodeState:
        return self._cluster.ask(StateRequest(node=self._name), StateAnswer).state

    def start(self) -> None:
        self._cluster.do(ServerRequest(node=self._name, do="start"))

    def kill(self) -> None:
        self._cluster.do(ServerRequest(node=self._name, do="kill"))

    def stop(self, *, timeout_s: float) -> None:
        self._cluster.do(ShutdownRequest(node=self._name, timeout_s=timeout_s), timeout_s=timeout_s + CALL_TIMEOUT_S)

    def pause(self) -> None:
        self._cluster.do(ServerRequest(node=self._name, do="pause"))

    def resume(self) -> None:
        self._cluster.do(ServerRequest(node=self._name, do="resume"))

    def block(self, source: Node) -> None:
        self._cluster.do(LinkRequest(node=self._name, do="block", source=source.name))

    def unblock(self, source: Node) -> None:
        self._cluster.do(LinkRequest(node=self._name, do="unblock", source=source.name))

    def receives_from(self, source: Node) -> Tristate:
        return self._cluster.ask(ReceivesRequest(node=self._name, source=source.name), SeenAnswer).seen

    def impair(self, impairment: Impairment) -> None:
        self._cluster.do(ImpairRequest(node=self._name, do="impair", impairment=impairment))

    def repair(self, impairment: Impairment) -> None:
        self._cluster.do(ImpairRequest(node=self._name, do="repair", impairment=impairment))

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        told = self._cluster.ask(ImpairedRequest(node=self._name, impairment=impairment), SeenAnswer)
        return told.seen, told.what

    def harm(self, harm: Harm) -> str:
        return self._cluster.ask(HarmRequest(node=self._name, harm=harm), HarmedAnswer).what


# `python -m tests.support.servers.hosted`: runs a LocalCluster inside the sandbox for a caller outside.
#
# Serves requests from an inherited socket, each in a thread, so that a wait does not
# hold up a fault. The end of the caller, reported by the end of the socket or by a pidfd (which does not depend on who
# else inherited the socket), is the end of the cluster: it is torn down, and this process ends. As it is pid 1 of its
# pid namespace, whatever should be left then dies with it.


THREADS = 16
TEARDOWN_TIMEOUT_S = 20.0
"""How long the host may tear down after the caller's end; then it ends in any case."""


class Host:
    """Serves one cluster over a socket."""

    def __init__(self, control: socket.socket, cluster: LocalCluster) -> None:
        self._control, self._cluster = control, cluster
        self._send_lock = threading.Lock()

    def send(self, number: int, answer: Answer | Failure) -> None:
        """Sends the answer to the request of this number, if anybody is still there."""
        with self._send_lock:
            try:
                self._control.sendall(encoded(Told(number=number, answer=answer)))
            except OSError as error:
                print(f"cannot answer: {error}", file=sys.stderr)  # noqa: T201 - the host's log

    def facts(self) -> FactsAnswer:
        """Returns the facts of the cluster that do not change while the host lives."""
        cluster = self._cluster
        return FactsAnswer(
            isolation=cluster.isolation,
            capabilities=dict(cluster.capabilities),
            lacks=dict(cluster.lacks),
            bootstrap_servers=cluster.bootstrap_servers,
            observer_servers=dict(cluster.observer_servers),
            controller_servers=dict(cluster.controller_servers),
            zookeeper_servers=dict(cluster.zookeeper_servers),
            metrics_servers=dict(cluster.metrics_servers),
            nodes={
                node.name: NodeFacts(address=node.address, data_directory=node.data_directory) for node in cluster.nodes
            },
        )

    def answer(self, asked: Asked) -> None:
        """Carries out one request and answers it, whatever comes of it."""
        request = asked.request
        try:
            told: Answer | Failure = (
                self._of_cluster(request) if isinstance(request, ClusterRequest) else self._of_node(request)
            )
            self.send(asked.number, told)
        except Exception as error:  # noqa: BLE001 - raised again at the caller
            self.send(asked.number, failure_of(error))

    def _of_cluster(self, request: ClusterRequest) -> Answer:
        match request:
            case SetupRequest():
                self._cluster.setup()
            case WaitReadyRequest():
                self._cluster.wait_ready(timeout_s=request.timeout_s)
            case CollectLogsRequest():
                self._cluster.collect_logs(request.into)
            case DescribeRequest():
                return DescriptionAnswer(description=dict(self._cluster.describe()))
        return DoneAnswer()

    def _of_node(self, request: NodeRequest) -> Answer:
        nodes = {node.name: node for node in self._cluster.nodes}
        node = nodes[request.node]
        match request:
            case ServerRequest():
                {"start": node.start, "kill": node.kill, "pause": node.pause, "resume": node.resume}[request.do]()
            case ShutdownRequest():
                node.stop(timeout_s=request.timeout_s)
            case LinkRequest():
                {"block": node.block, "unblock": node.unblock}[request.do](nodes[request.source])
            case ImpairRequest():
                {"impair": node.impair, "repair": node.repair}[request.do](request.impairment)
            case StateRequest():
                return StateAnswer(state=node.state(), os_pid=node.os_pid)
            case ReceivesRequest():
                return SeenAnswer(seen=node.receives_from(nodes[request.source]))
            case ImpairedRequest():
                seen, what = node.impaired(request.impairment)
                return SeenAnswer(seen=seen, what=what)
            case HarmRequest():
                return HarmedAnswer(what=node.harm(request.harm))
        return DoneAnswer()

    def serve(self, parent: int | None) -> None:
        """Serves requests until the caller ends."""
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
        waiting = select.poll()
        waiting.register(self._control, select.POLLIN | select.POLLHUP)
        if parent is not None:
            waiting.register(parent, select.POLLIN)  # readable = that process has ended: pidfd_open(2)
        received = b""
        while True:
            ready = [descriptor for descriptor, _ in waiting.poll()]
            if parent in ready:
                return
            try:
                data = self._control.recv(65536)
            except ConnectionResetError:
                return
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                pool.submit(self.answer, decoded(Asked, line))


def main(argv: list[str] | None = None) -> None:
    """Builds a cluster, reports its facts, serves it, and tears it down."""
    options = _parse(argv)
    control = socket.socket(fileno=options.control)
    listeners = {int(broker): socket.socket(fileno=int(fd)) for broker, fd in (r.split(":") for r in options.relay)}
    for number in (signal.SIGTERM, signal.SIGINT):  # pid 1 of a namespace ignores what it does not handle
        signal.signal(number, lambda *_: control.shutdown(socket.SHUT_RD))
    try:
        plan = parse_plan(options.plan.read_text(encoding="utf-8"), source=str(options.plan))
        ports = {broker: listener.getsockname()[1] for broker, listener in listeners.items()}
        run = RunDirectory(options.run)
        cluster = LocalCluster(plan, run, clock=SystemClock(), relay_ports=ports)
    except Exception as error:  # noqa: BLE001 - raised again at the caller
        control.sendall(encoded(Told(number=FACTS_NUMBER, answer=failure_of(error))))
        return
    host = Host(control, cluster)
    relay = cluster.start_relay(listeners)
    try:
        host.send(FACTS_NUMBER, host.facts())
        host.serve(options.parent)
    finally:
        _end_in_any_case()
        try:
            cluster.teardown()
        finally:
            relay.kill()
            relay.wait()


def _end_in_any_case() -> None:
    watchdog = threading.Timer(TEARDOWN_TIMEOUT_S, os._exit, args=(1,))
    watchdog.daemon = True
    watchdog.start()


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.support.servers.hosted")
    parser.add_argument("--control", type=int, required=True, help="inherited socket")
    parser.add_argument("--parent", type=int, help="inherited pidfd of the caller")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--relay", action="append", default=[], help="BROKER:LISTENING_SOCKET")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
