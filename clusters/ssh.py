"""The ssh backend: a cluster on machines of its own, which was there before the run and stays after it.

What Kafka is made of there is not ours: nothing is formatted, no property is set. Nodes that stand still are started for the
run, and stopped after it. Faults are commands; cuts are rules of the hosts' firewalls. The observer reaches the brokers over
the same network as everybody, from a machine that no fault cuts off.

The controllers' log and the copies' segments are fetched by sftp when the run ends, if they can be read there. Where they
cannot, or where a controller's clock is off, there is no ground truth, and what depends on it is unknown.
"""

import shutil
import socket
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clusters.admin import Admin
from clusters.impairers import Parts
from clusters.lasting import Kafka, Marker, each, settings_of
from clusters.properties import BROKER, CONTROLLER
from clusters.ready import Readiness
from clusters.ssh_disk import WAY, SshFullDisks, problem_of
from clusters.ssh_host import SshHost
from clusters.ssh_links import WAYS, SshLinks, impairers_of, problems_of, refusal_of
from clusters.ssh_node import SshNode
from harness.clock import NS_PER_S, Clock
from harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady
from harness.impairments import FullDisk
from harness.plan import Plan
from harness.protocols import Capability, NodeState
from harness.remote_options import SshNodeOptions, split_server
from harness.run_directory import RunDirectory

METADATA_LOG = "__cluster_metadata-0"
CHECKPOINTS = ("log-start-offset-checkpoint", "replication-offset-checkpoint", "recovery-point-offset-checkpoint")
STOP_TIMEOUT_S = 90.0
_MS = 1_000_000
_NOT_HERE = "the machines are not ours, and the ssh backend of this version does not do it to them"
_OF_DISKS = "whether and how a machine's disk recovers is not ours to try: only a full one is made, and made free again"
_WHY_NOT: Mapping[Capability, str] = {
    Capability.DELAY: "toxiproxy would have to run there, and this version puts no program on the machines",
    Capability.SHIFT_CLOCK: "the server would have to be started with a preloaded library, and how it is started is the "
    "machine's own; a machine's whole clock is not moved",
    Capability.CUT_CLIENTS: "clients, administration and ssh come over one network from here: it would cut us off",
    Capability.SLOW_DISK: _OF_DISKS,
    Capability.FREEZE_DISK: _OF_DISKS,
    Capability.FAIL_DISK: _OF_DISKS,
    Capability.LOSE_POWER: _OF_DISKS,
    Capability.CHANGE_FILES: "files of a cluster that stays after the run are not destroyed",
}


class SshCluster:
    """`harness.protocols.Cluster` of machines reached by ssh. `isolation`: of no meaning here."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> None:
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
        """What does not work there, found by asking every node. HarnessFailed or BadInput if one cannot be reached."""
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

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Why this very fault of links cannot be made; None if it can."""
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

    def setup(self) -> None:
        """Nodes that stand still are started. What an earlier run left of rules is taken away."""
        self._marker.set({node.name: node.state().value for node in self._nodes})
        for node in self._nodes:
            if Capability.BLOCK in self.capabilities:
                node.firewall.remove()
            node.resume()
            node.start()

    def wait_ready(self, *, timeout_s: float) -> None:
        Readiness(self.observer_servers, timeout_s=timeout_s, clock=self._clock, check_alive=self._check_alive).wait({})

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
            "nodes": {
                node.name: {
                    "id": node.node_id,
                    "roles": sorted(node.roles),
                    "address": node.address,
                    "state": node.state().value,
                    "pid": node.os_pid,
                }
                for node in self._nodes
            },
        }

    def collect_logs(self, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        for node in self._nodes:
            log = self._of[node.name].log or self._options.log
            if log is not None:
                self._fetch(node, node.filled(log), into / f"{node.name}.log")

    def teardown(self) -> None:
        """Fetch what the run needs, then leave the cluster as it was found: no rules, no topics of ours, and no server
        that did not run before. Nothing if `setup` was never called."""
        found = self._marker.found
        if found is None:
            return
        problems: list[str] = []
        if self._run.clock.exists():
            each(problems, *(lambda node=node: self._keep_files(node) for node in self._nodes))
        for node in self._nodes:
            if Capability.BLOCK in self.capabilities:
                each(problems, node.firewall.remove)
            if Capability.FILL_DISK in self.capabilities:
                each(problems, lambda node=node: node.repair(FullDisk()))  # type: ignore[misc]
            each(problems, node.resume)
        if any(node.state() is NodeState.RUNNING for node in self._nodes if BROKER in node.roles):
            each(problems, lambda: self._kafka.delete_topics(self._prefix))
        for node in reversed(self._nodes):
            each(problems, lambda node=node: self._leave(node, found.get(node.name, "")))  # type: ignore[misc]
            node.host.close()
        if problems:
            raise ClusterFailed("Not everything could be left as it was: " + "; ".join(problems))
        self._marker.clear()

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        assert self._plan.adopted is None or self._plan.adopted.prefix
        return self._plan.adopted.prefix if self._plan.adopted is not None else f"prozess-{self._run.path.name}-"

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
            try:
                node.stop(timeout_s=STOP_TIMEOUT_S)
            except NotReady:
                node.kill()
        elif before:
            node.start()

    def _keep_files(self, node: SshNode) -> None:
        """The controllers' log, and copies of the trial's partitions. What cannot be read is left out, whole."""
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
        said = node.host.run("date +%s%N").stdout.strip()
        after_ns = self._clock.wall_ns()
        if not said.isdigit():
            return False
        off_ns = max(before_ns - int(said), int(said) - after_ns, 0)
        return off_ns <= self._options.clock_skew_max_ms * _MS and after_ns - before_ns < NS_PER_S

    def _fetch(self, node: SshNode, remote: str, into: Path) -> None:
        """Half a copy tells what is not so: it is taken away."""
        try:
            node.host.fetch(remote, into)
        except (OSError, HarnessFailed):
            shutil.rmtree(into, ignore_errors=True) if into.is_dir() else into.unlink(missing_ok=True)


def _reached(server: str) -> tuple[str, int]:
    host, port = split_server(server)
    return socket.gethostbyname(host), port
