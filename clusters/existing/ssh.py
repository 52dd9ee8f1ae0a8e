"""The ssh backend: a cluster on machines of its own, which was there before the run and stays after it.

What Kafka is made of there is not ours: nothing is formatted, no property is set. Nodes that stand still are started for the
run, and stopped after it. Faults are commands; cuts are rules of the hosts' firewalls. The observer reaches the brokers over
the same network as everybody, from a machine that no fault cuts off.

The controllers' log and the copies' segments are fetched by sftp when the run ends, if they can be read there. Where they
cannot, or where a controller's clock is off, there is no ground truth, and what depends on it is unknown.
"""

import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from prozess.clusters.disks.impairers import PROBE_BYTES
from prozess.clusters.existing.adoption import Kafka, Marker, begin_making, call_each, prefix_of, settings_of
from prozess.clusters.existing.ssh_node import CHAIN, PROBE_PORT, SshHost, SshNode
from prozess.clusters.impairers import AnyImpairer, Parts, node_facts
from prozess.clusters.links.links import LimitedLinks, LinkEnd, Links, LossyLinks
from prozess.clusters.machine.server_properties import BROKER, CONTROLLER
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.readiness import Readiness
from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.config.existing_clusters import Login, SshNodeOptions, split_server
from prozess.harness.config.impairments import CLIENTS, Capability, FullDisk
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed
from prozess.harness.interfaces import MessageWatch, NodeState, await_end, end_in_order
from prozess.harness.machine_record import Made
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate

METADATA_LOG = "__cluster_metadata-0"
CHECKPOINTS = ("log-start-offset-checkpoint", "replication-offset-checkpoint", "recovery-point-offset-checkpoint")
STOP_TIMEOUT_S = 90.0
_MS = 1_000_000
_NOT_HERE = "the ssh backend does not do this to machines that stay in use after the run"
_OF_DISKS = "a disk that fails or hangs may not recover, and the machine stays in use: the ssh backend only fills disks"
_WHY_NOT: Mapping[Capability, str] = {
    Capability.DELAY: "toxiproxy would have to run on the machines, and prozess puts no program there",
    Capability.SHIFT_CLOCK: "the server would have to be started with a preloaded library, but the machine's own command "
    "starts it; and prozess does not move the clock of a whole machine",
    Capability.METHODS: "the server would have to be started with Byteman's agent, but the machine's own command starts it",
    Capability.CUT_CLIENTS: "clients, administration and ssh use one network from here: the cut would hit all of them",
    Capability.SLOW_DISK: _OF_DISKS,
    Capability.FREEZE_DISK: _OF_DISKS,
    Capability.FAIL_DISK: _OF_DISKS,
    Capability.LOSE_POWER: _OF_DISKS,
    Capability.CHANGE_FILES: "prozess does not destroy files of a cluster that stays after the run",
}


class SshCluster:
    """A cluster on machines that are reached by ssh."""

    login: Login | None = None
    client_prefix: Sequence[str] = ()

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        if plan.ssh is None:
            raise BadInput("backend = 'ssh' needs [ssh] in the trial: its nodes, and how they are handled.")
        self._plan, self._run, self._clock, self._options = plan, run, clock, plan.ssh
        self._marker = Marker(run)
        ordered = sorted(self._options.nodes, key=lambda n: (BROKER in n.roles, n.id))
        links = SshLinks(lambda: self._nodes, clock=clock)
        parts = Parts({"full-disk": SshFullDisks(), **impairers_of(links, lambda: self._nodes)})
        self._of: dict[str, SshNodeOptions] = {node.name: node for node in ordered}
        self._nodes: tuple[SshNode, ...] = tuple(
            SshNode(
                n, self._options, run.nodes / n.name / "data", host=SshHost(n, self._options), parts=parts, clock=clock
            )
            for n in ordered
        )

    @property
    def nodes(self) -> Sequence[SshNode]:
        return self._nodes

    @cached_property
    def _problems(self) -> Mapping[Capability, str]:
        """The faults that do not work there, found by asking every node. HarnessFailed or BadInput if one cannot be
        reached."""
        found: dict[Capability, str] = {}
        for node in self._nodes:
            done = node.host.run_with_rights("command -v pgrep >/dev/null && kill -0 $$\n")
            if done.returncode:
                why = f"{node.host.where}: {(done.stderr.strip().splitlines() or ['pgrep (procps) is missing'])[-1]}"
                for capability in (Capability.KILL, Capability.STOP, Capability.PAUSE):
                    found.setdefault(capability, f"no commands with the server's rights (ssh.sudo): {why}")
            if problem := node.firewall.problem():
                found.setdefault(Capability.BLOCK, f"iptables cannot be used on {node.host.where}: {problem}")
            for capability, problem in problems_of(node).items():
                found.setdefault(capability, problem)
            if problem := problem_of(node):
                found.setdefault(Capability.FILL_DISK, problem)
        return found

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        ways = {
            Capability.KILL: "SIGKILL to the server process, over ssh",
            Capability.STOP: self._options.stop or "SIGTERM to the server process, over ssh",
            Capability.PAUSE: "SIGSTOP to the server process, over ssh",
            Capability.BLOCK: "a rule of iptables on the receiving machine",
            Capability.FILL_DISK: WAY,
            **WAYS,
        }
        return {capability: way for capability, way in ways.items() if capability not in self._problems}

    @property
    def lacks(self) -> Mapping[Capability, str]:
        lacking = {c: _WHY_NOT.get(c, _NOT_HERE) for c in Capability if c not in self.capabilities}
        return {**lacking, **self._problems}

    @property
    def messages(self) -> MessageWatch | None:
        """Returns None: nothing is between the links that could see messages."""
        return None

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Returns why this fault of links cannot be made with these parameters; None if it can."""
        return refusal_of(fault, parameters)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(n.listener for n in self._having(BROKER) if n.listener)

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        return {n.id: _reached(n.observer or n.listener or "") for n in self._having(BROKER)}

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        return {n.id: _reached(n.controller) for n in self._having(CONTROLLER) if n.controller}

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns no servers: the observer does not ask ZooKeeper on machines that are reached by ssh."""
        return {}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns no servers: nothing is put into the servers."""
        return {}

    def setup(self) -> None:
        """Starts the servers that do not run, and takes away the rules that an earlier run left."""
        self._marker.set({node.name: node.state().value for node in self._nodes})
        for node in self._nodes:
            if Capability.BLOCK in self.capabilities:
                node.firewall.remove()
            node.resume()
            node.start()

    def wait_ready(self, *, timeout_s: float) -> None:
        self._begin_making(timeout_s=timeout_s)
        Readiness(
            self.observer_servers,
            timeout_s=timeout_s,
            clock=self._clock,
            check_alive=self._check_alive,
            topic=f"{prefix_of(self._plan)}ready",
            made=Made(self._run),
        ).wait({})

    def describe(self) -> Mapping[str, Any]:
        admin = Admin(self, clock=self._clock)
        try:
            cluster_id, _ = self._kafka.describe()
            features = dict(admin.features())
            settings = settings_of(admin, self._having(BROKER)[0].id, self._plan.variant)
        finally:
            admin.close()
        return {
            "backend": "ssh",
            "kafka_version": self._plan.variant.kafka_version,
            "metadata_mode": self._plan.variant.metadata_mode,
            "cluster_id": cluster_id,
            "features": features,
            "settings": settings,
            "nodes": {node.name: node_facts(node) for node in self._nodes},
        }

    def collect_logs(self, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        for node in self._nodes:
            log = self._of[node.name].log or self._options.log
            if log is not None:
                self._fetch(node, node.filled(log), into / f"{node.name}.log")

    def teardown(self) -> None:
        """Fetches what the run needs, then leaves the cluster as it was found.

        No rules and no topics of ours are left, and no server runs that did not run before. Nothing happens if `setup` was
        never called."""
        found = self._marker.found
        if found is None:
            return
        problems: list[str] = []
        if self._run.clock.exists():
            call_each(problems, *(lambda node=node: self._keep_files(node) for node in self._nodes))
        for node in self._nodes:
            if Capability.BLOCK in self.capabilities:
                call_each(problems, node.firewall.remove)
            if Capability.FILL_DISK in self.capabilities:
                call_each(problems, lambda node=node: node.repair(FullDisk()))  # type: ignore[misc]
            call_each(problems, node.resume)
        if any(node.state() is NodeState.RUNNING for node in self._nodes if BROKER in node.roles):
            call_each(problems, self._remove_what_it_made)
        for node in reversed(self._nodes):
            call_each(problems, lambda node=node: self._leave(node, found.get(node.name, "")))  # type: ignore[misc]
            node.host.close()
        if problems:
            raise ClusterFailed("Not everything could be left as it was: " + "; ".join(problems))
        self._marker.clear()

    # Parts

    def _begin_making(self, *, timeout_s: float) -> None:
        """Writes down what the run is about to make, once Kafka lists what there is."""
        last = ["nothing"]

        def begun() -> bool:
            self._check_alive()
            try:
                begin_making(self._plan, self._run, self._kafka)
            except ClusterFailed as error:
                last[0] = str(error)
                return False
            return True

        if not Made(self._run).topics:
            wait_until(
                begun,
                awaited="Kafka to list its topics",
                timeout_s=timeout_s,
                clock=self._clock,
                last_seen=lambda: last[0],
            )

    def _remove_what_it_made(self) -> None:
        admin = Admin(self, clock=self._clock)
        try:
            self._kafka.remove(Made(self._run), admin)
        finally:
            admin.close()

    @cached_property
    def _kafka(self) -> Kafka:
        return Kafka(",".join(f"{host}:{port}" for host, port in self.observer_servers.values()), self._clock)

    def _having(self, role: str) -> list[SshNodeOptions]:
        return [node for node in self._of.values() if role in node.roles]

    def _check_alive(self) -> None:
        stopped = [node.name for node in self._nodes if node.state() is NodeState.STOPPED]
        if stopped:
            raise ClusterFailed(f"{stopped[0]} does not run, though it was started. See its log there.")

    def _leave(self, node: SshNode, before: str) -> None:
        if before == NodeState.STOPPED:
            end_in_order(node, timeout_s=STOP_TIMEOUT_S)
        elif before:
            await_end(node, timeout_s=STOP_TIMEOUT_S, clock=self._clock)
            node.start()

    def _keep_files(self, node: SshNode) -> None:
        """Fetches the controllers' log and the copies of the trial's partitions. What cannot be read is left out as a
        whole."""
        remote = node.remote_data
        if remote is None:
            return
        shutil.rmtree(node.data_directory, ignore_errors=True)
        wanted = {f"{p.topic_name}-{p.number}" for p in self._plan.partitions}
        try:
            there = wanted.intersection(node.host.names_in(remote))
        except OSError:
            return
        if BROKER in node.roles:
            for name in (*CHECKPOINTS, *sorted(there)):
                self._fetch(node, f"{remote}/{name}", node.data_directory / name)
        if CONTROLLER in node.roles and self._clock_is_right(node):
            self._fetch(node, f"{remote}/{METADATA_LOG}", node.data_directory / METADATA_LOG)

    def _clock_is_right(self, node: SshNode) -> bool:
        """Is the machine's clock near enough to ours? It stamps what its controller writes."""
        before_ns = self._clock.wall_ns()
        output = node.host.run("date +%s%N").stdout.strip()
        after_ns = self._clock.wall_ns()
        if not output.isdigit():
            return False
        off_ns = max(before_ns - int(output), int(output) - after_ns, 0)
        return off_ns <= self._options.clock_skew_max_ms * _MS and after_ns - before_ns < NS_PER_S

    def _fetch(self, node: SshNode, remote: str, into: Path) -> None:
        """Fetches a file or directory, all of it or nothing: half a copy would say what is not so."""
        try:
            node.host.fetch(remote, into)
        except (OSError, HarnessFailed):
            shutil.rmtree(into, ignore_errors=True) if into.is_dir() else into.unlink(missing_ok=True)


def _reached(server: str) -> tuple[str, int]:
    host, port = split_server(server)
    return socket.gethostbyname(host), port


# Links between machines of the ssh backend: loss and bandwidth, made by their own tools and seen from one to the
# other.
#
# Only links between nodes: administration, the trial's clients and ssh itself come over the same network from
# elsewhere, and what hits everybody would hit the hand that must mend it.


T = TypeVar("T")
TRANSFER_PORT = 29_099
"""The port on which the receiving machine listens while a transfer is measured."""
WAYS: Mapping[Capability, str] = {
    Capability.LOSE: "a rule of iptables on the receiving machine drops by chance",
    Capability.SHAPE: "a class of htb on the sending machine's device",
}
FAULTS = ("loss", "bandwidth")
_SLACK_S = 10.0
"""Time for ssh itself, beyond what is measured."""
_TRIED = {
    Capability.LOSE: "iptables -A INPUT -m statistic --mode random --probability 0.5 -s 192.0.2.1 -j DROP",
    Capability.SHAPE: "ip link set lo up && tc qdisc add dev lo root handle 1: htb default 0",
}
"""Commands that try a fault, in a network namespace that is thrown away: nothing of the machine is touched."""
_DEVICE = """
command -v python3 >/dev/null || { echo 'python3, by which transfers are measured, is missing' >&2; exit 1; }
device=$(ip -o -4 address show | awk -v wanted={address} '{ split($4, at, "/"); if (at[1] == wanted) { print $2; exit } }')
[ -n "$device" ] || { echo 'no device has the address {address}' >&2; exit 1; }
queue=$(tc qdisc show dev "$device" root | grep -v ' 0: ')
[ -z "$queue" ] || { echo "$device has a queue that somebody made, and it would be lost: $queue" >&2; exit 1; }
"""
# The limit of a transfer counts from its first byte; 5: not through by the limit.
_TAKE = """
import socket, sys, time
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connect_s, limit_s = float(sys.argv[4]), float(sys.argv[5])
listener = socket.create_server((address, port))
listener.settimeout(connect_s)
connection, _ = listener.accept()
begun = time.monotonic()
while count > 0:
    left_s = limit_s - (time.monotonic() - begun)
    if left_s <= 0:
        sys.exit(5)
    connection.settimeout(left_s)
    try:
        received = len(connection.recv(65536))
    except TimeoutError:
        sys.exit(5)
    if not received:
        sys.exit(4)
    count -= received
print(time.monotonic() - begun)
"""
_GIVE = """
import socket, sys, time
ours, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
connect_s, limit_s = float(sys.argv[5]), float(sys.argv[6])
until = time.monotonic() + connect_s
while True:
    try:
        connection = socket.create_connection((address, port), 1, source_address=(ours, 0))
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.02)
connection.settimeout(limit_s)
try:
    connection.sendall(bytes(count))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
except OSError:
    pass
"""


class _Machine:
    """The network of a machine that is only reached by ssh."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command there, as root."""
        return self._host.run_as_root(argv, text=text)

    def call(self, function: Callable[[], T]) -> T:
        """Always raises HarnessFailed: this process cannot be on another machine."""
        raise HarnessFailed(f"{self._host.where} is another machine.")


class SshLinks(Links):
    """The links between the nodes. Both ends of a link say what is seen of it."""

    def __init__(self, nodes: Callable[[], Sequence[SshNode]], *, clock: Clock) -> None:
        super().__init__(lambda: [LinkEnd(n.name, n.address, _Machine(n.host)) for n in nodes()], clock=clock)
        self._nodes = nodes

    def _node(self, name: str) -> SshNode:
        return next(node for node in self._nodes() if node.name == name)

    def arrivals(self, source: str, receiver: str, *, count: int = 1, bytes_each: int = 32) -> int:
        """Sends datagrams from one machine; the other one's firewall counts them behind our rules."""
        sender, taker = self._node(source), self._node(receiver)
        probe = f"printf %{bytes_each}s . > /dev/udp/{taker.address}/{PROBE_PORT}"
        with self._probing:
            taker.firewall.count_from(sender.address)
            try:
                sent = sender.host.run(f"bash -c 'for ((i = 0; i < {count}; i++)); do {probe} || exit 3; done'")
            finally:
                counted = taker.firewall.counted(sender.address)
        if sent.returncode or counted is None:
            raise HarnessFailed(f"{source} could not send datagrams to {receiver}: {sent.stderr.strip()[-200:]}")
        return counted

    def transfer(self, source: str, receiver: str, count: int, *, connect_s: float, limit_s: float) -> float | None:
        sender, taker = self._node(source), self._node(receiver)
        limits = [f"{connect_s:g}", f"{limit_s:g}"]
        to = [taker.address, str(TRANSFER_PORT), str(count), *limits]
        timeout_s = connect_s + limit_s + _SLACK_S
        with self._probing, ThreadPoolExecutor(2, thread_name_prefix="transfer") as pool:
            taken = pool.submit(taker.host.run, _python(_TAKE, to), timeout_s=timeout_s)
            given = pool.submit(sender.host.run, _python(_GIVE, [sender.address, *to]), timeout_s=timeout_s)
            received, sent = taken.result(), given.result()
        if received.returncode == 0:
            return float(received.stdout)
        if received.returncode == 5:
            return None
        errors = (received.stderr + sent.stderr).strip()[-300:]
        raise HarnessFailed(f"{source} cannot send {count} bytes to {receiver} on port {TRANSFER_PORT}: {errors}")


def impairers_of(links: SshLinks, nodes: Callable[[], Sequence[SshNode]]) -> dict[str, AnyImpairer]:
    """Returns the parts that impair links, by kind of impairment."""

    def prepare(name: str) -> None:
        next(node for node in nodes() if node.name == name).firewall.ensure_chain()

    return {"loss": LossyLinks(links, chain=CHAIN, prepare=prepare), "bandwidth": LimitedLinks(links)}


def problems_of(node: SshNode) -> dict[Capability, str]:
    """Returns the faults of links that the node's machine cannot make, each with the reason."""
    found = {}
    for capability, script in _TRIED.items():
        done = node.host.run_as_root(["unshare", "-n", "sh", "-c", script])
        if not done.returncode and capability is Capability.SHAPE:
            done = node.host.run_as_root(["sh", "-c", _DEVICE.replace("{address}", node.address)])
        if done.returncode:
            complaint = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:200]
            found[capability] = f"not on {node.host.where}: {complaint}"
    return found


def refusal_of(fault: str, parameters: Mapping[str, object]) -> str | None:
    """Returns why this fault of links cannot be made with these parameters; None if it can."""
    others = parameters.get("others")
    if fault not in FAULTS or not (others is None or others in (CLIENTS, "everybody") or _names_clients(others)):
        return None
    return (
        f"others = {others!r} would also hit administration and ssh, which use the same network; only links between nodes "
        'can be broken: others = "all", "brokers", "controllers", "followers" or a list of nodes'
    )


def _names_clients(others: object) -> bool:
    return isinstance(others, list | tuple) and CLIENTS in others


def _python(program: str, arguments: Sequence[str]) -> str:
    """A shell script that runs a Python program."""
    mark = "END_OF_PROGRAM"
    assert not re.search(mark, program)
    return f"python3 - {shlex.join(arguments)} <<'{mark}'\n{program}\n{mark}\n"


# Full disks of machines of the ssh backend: a ballast beside Kafka's data, where that has a file system of its own.


WAY = "a ballast file on the file system of the data directory"
TIMEOUT_S = 120.0
BALLAST = ".prozess-ballast"
NOT_TO_BE_FILLED = "/ /usr /var /tmp /home"
"""Directories on whose file systems a data directory must not be, since others write there."""
_PROBLEM = f"""
cd {{directory}} || exit 1
command -v fallocate >/dev/null || {{{{ echo 'fallocate (util-linux) is missing' >&2; exit 1; }}}}
device=$(stat -c %d .)
for other in {NOT_TO_BE_FILLED}; do
    if [ "$(stat -c %d "$other" 2>/dev/null)" = "$device" ]; then
        echo "it is on one file system with $other, where others write: give it one of its own" >&2
        exit 1
    fi
done
"""
# What statfs calls free cannot always be had whole: then half as much, and again.
_FILL = f"""
cd {{directory}} || exit 1
while :; do
    wanted=$(( $(stat -f -c '%f * %S' .) - {{left}} ))
    [ "$wanted" -gt 0 ] || exit 0
    have=$(stat -c %s {BALLAST} 2>/dev/null || echo 0)
    until fallocate -o "$have" -l "$wanted" {BALLAST} 2>/dev/null; do
        wanted=$(( wanted / 2 ))
        [ "$wanted" -ge 4096 ] || exit 0
    done
done
"""
_PROBE = """
cd {directory} || exit 1
LC_ALL=C dd if=/dev/zero of=.prozess-probe bs={size} count=1 conv=fsync 2>&1
rm -f .prozess-probe
"""


class SshFullDisks:
    """Fills the disks of machines reached by ssh."""

    def impair(self, node: SshNode, impairment: FullDisk) -> None:
        self._run(node, _FILL.format(directory=_directory(node), left=impairment.left_bytes))

    def repair(self, node: SshNode, impairment: FullDisk) -> None:
        if node.remote_data is not None:
            self._run(node, f"rm -f -- {_directory(node)}/{BALLAST}\n")

    def impaired(self, node: SshNode, impairment: FullDisk) -> tuple[Tristate, str]:
        """Looks whether a write really gets ENOSPC."""
        size = impairment.left_bytes + PROBE_BYTES
        answer = self._run(node, _PROBE.format(directory=_directory(node), size=size))
        if "No space left on device" in answer:
            return Tristate.YES, f"a write of {size} bytes gets ENOSPC"
        if f"{size} bytes" in answer:
            return Tristate.NO, f"a write of {size} bytes works"
        return Tristate.UNKNOWN, f"a write of {size} bytes: {answer.strip()[-200:]}"

    def _run(self, node: SshNode, script: str) -> str:
        done = node.host.run_with_rights(script, timeout_s=TIMEOUT_S)
        if done.returncode:
            raise HarnessFailed(f"{node.host.where}: the data directory cannot be used: {done.stderr.strip()[-300:]}")
        return done.stdout


def problem_of(node: SshNode) -> str | None:
    """Returns why the node's disk cannot be filled; None if it can."""
    if node.remote_data is None:
        return f"ssh.data_directory does not say where {node.name} has its data"
    done = node.host.run_with_rights(_PROBLEM.format(directory=_directory(node)))
    if done.returncode == 0:
        return None
    complaint = (done.stderr.strip().splitlines() or ["it cannot be looked at"])[-1]
    return f"{node.remote_data} of {node.host.where}: {complaint}"


def _directory(node: SshNode) -> str:
    return shlex.quote(node.remote_data or "")
