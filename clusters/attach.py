"""The attach backend: a cluster of which nothing is known but where it answers. No node can be touched; what can be broken is
the way between the trial's own clients and the brokers.

    client ──► the broker's own address, taken (clusters.detour) ──► relay ──► toxiproxy ──► the broker
               in the clients' network                               ·············· out here ··············

The observer asks the brokers directly. There is no ground truth: neither the controllers' log nor any copy can be read, so
who led, who was in sync, and what broke by itself is unknown, and nothing that depends on it is ever held.
"""

import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clusters import detour
from clusters.admin import Admin
from clusters.attach_links import BandwidthOfLink, CutOfLink, LatencyOfLink, ResetOfLink
from clusters.attach_node import AttachNode
from clusters.attach_proxy import Toxiproxy
from clusters.impairers import Impairer, Parts
from clusters.lasting import Kafka, Marker, each
from clusters.orphans import PIDS_NAME, recording_command
from clusters.ready import Readiness
from clusters.relay import Route, relay_command
from clusters.told import told_by
from clusters.toxiproxy import ensure_toxiproxy
from harness.adoption import run_prefix
from harness.clock import Clock
from harness.errors import BadInput, ClusterFailed, MissingTool
from harness.impairments import CLIENTS
from harness.plan import Plan
from harness.protocols import Capability
from harness.run_directory import RunDirectory

_UNTOUCHED = "no node can be touched: only its bootstrap servers are known"
LINK_FAULTS = ("latency", "bandwidth", "reset", "partition")
_RELAY_END_S = 10.0


class AttachCluster:
    """`harness.protocols.Cluster` of somebody else. `isolation`: of no meaning here."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> None:
        if plan.attach is None:
            raise BadInput("backend = 'attach' needs [attach] in the trial: bootstrap_servers.")
        self._plan, self._run, self._clock = plan, run, clock
        self._marker = Marker(run)
        self._kafka = Kafka(",".join(plan.attach.bootstrap_servers), clock)
        self._toxiproxy: Toxiproxy | None = None
        self._detour: detour.Detour | None = None
        self._relay: subprocess.Popen[bytes] | None = None
        links: dict[str, Impairer] = {
            "latency": LatencyOfLink(),
            "bandwidth": BandwidthOfLink(),
            "client-cut": CutOfLink(),
        }
        self._parts = Parts(links, {"reset-connections": ResetOfLink()})

    @cached_property
    def _found(self) -> tuple[str, dict[int, tuple[str, int]]]:
        """Cluster id, and where each broker advertises itself: asked once, since faults must not change who is meant."""
        return self._kafka.describe()

    @cached_property
    def nodes(self) -> Sequence[AttachNode]:
        return tuple(
            AttachNode(
                node_id,
                server,
                self._run.nodes / f"broker-{node_id}" / "data",
                toxiproxy=lambda: self._toxiproxy,
                parts=self._parts,
                clock=self._clock,
            )
            for node_id, server in self._found[1].items()
        )

    @property
    def _asked(self) -> bool:
        return "nodes" in self.__dict__

    @cached_property
    def _no_detour(self) -> str | None:
        """Why nothing can be put between clients and brokers here; None if it can."""
        if (why := detour.problem()) is not None:
            return f"clients cannot be given a network of their own here: {why}"
        try:
            ensure_toxiproxy()
        except MissingTool as error:
            return str(error)
        return None

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        if self._no_detour is not None:
            return {}
        return {
            Capability.DELAY: "toxiproxy between the trial's clients and a broker",
            Capability.SHAPE: "toxiproxy between the trial's clients and a broker",
            Capability.RESET: "toxiproxy between the trial's clients and a broker",
            Capability.CUT_CLIENTS: "toxiproxy between the trial's clients and a broker, one way or both",
        }

    @property
    def lacks(self) -> Mapping[Capability, str]:
        between = (Capability.DELAY, Capability.SHAPE, Capability.RESET, Capability.CUT_CLIENTS)
        lacking = {c: self._no_detour or "" if c in between else _UNTOUCHED for c in Capability}
        return {capability: why for capability, why in lacking.items() if capability not in self.capabilities}

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Why this very fault of links cannot be made; None if it can."""
        if fault in LINK_FAULTS and parameters.get("others") not in (CLIENTS, [CLIENTS], (CLIENTS,)):
            return f'only the links of the trial\'s own clients can be broken: others = "{CLIENTS}"'
        return None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._found[1].values())

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        return self._found[1]

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        """None: controllers are not reached."""
        return {}

    @property
    def client_prefix(self) -> Sequence[str]:
        """Before the command of the process that the trial's clients are: into their network."""
        return [] if self._detour is None else self._detour.enter_command

    def setup(self) -> None:
        """Nothing of the cluster is changed. Without the detour clients go straight to the brokers."""
        self._marker.set({"cluster_id": self._found[0]})
        self._run.logs.mkdir(parents=True, exist_ok=True)
        if self._no_detour is not None:
            return
        pids = self._run.path / PIDS_NAME
        try:
            self._toxiproxy = Toxiproxy(pids=pids, log=self._run.logs / "toxiproxy.log", clock=self._clock)
            taken = [detour.Broker.at(host, port) for host, port in self._found[1].values()]
            self._detour = detour.Detour(taken, hosts=self._run.path / "hosts", pids=pids)
            upstreams = [(node.name, _upstream(broker)) for node, broker in zip(self.nodes, taken, strict=True)]
            self._start_relay([self._toxiproxy.proxy(*named) for named in upstreams], pids)
        except BaseException:
            self._close_detour()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        Readiness(self.observer_servers, timeout_s=timeout_s, clock=self._clock, check_alive=lambda: None).wait({})

    def describe(self) -> Mapping[str, Any]:
        admin = Admin(self, clock=self._clock)
        try:
            told = told_by(admin, self._found[1], self._plan.variant)
        finally:
            admin.close()
        return {
            "backend": "attach",
            "cluster_id": self._found[0],
            **told,
            "nodes": {
                node.name: {
                    "id": node.node_id,
                    "roles": ["broker"],
                    "address": node.address,
                    "state": node.state().value,
                }
                for node in self.nodes
            },
        }

    def collect_logs(self, into: Path) -> None:
        """There are none that could be read."""

    def teardown(self) -> None:
        """The topics of the run are deleted. Nothing if `setup` was never called."""
        self._close_detour()
        for node in self.nodes if self._asked else ():
            node.close()
        if self._marker.found is None:
            return
        problems: list[str] = []
        each(problems, lambda: self._kafka.delete_topics(self._prefix))
        if problems:
            raise ClusterFailed("Not everything could be left as it was: " + "; ".join(problems))
        self._marker.clear()

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return self._plan.adopted.prefix if self._plan.adopted is not None else run_prefix(self._run.path.name)

    def _start_relay(self, ports: Sequence[int], pids: Path) -> None:
        assert self._detour is not None
        listeners = self._detour.listeners
        routes = [Route(s.fileno(), "127.0.0.1", port) for s, port in zip(listeners, ports, strict=True)]
        self._relay = subprocess.Popen(
            recording_command(relay_command(routes), name="relay", into=pids),
            stdin=subprocess.DEVNULL,
            pass_fds=[route.listener for route in routes],
            start_new_session=True,
        )
        for listener in listeners:
            listener.close()

    def _close_detour(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait(_RELAY_END_S)
        if self._detour is not None:
            self._detour.close()
        if self._toxiproxy is not None:
            self._toxiproxy.close()
        self._relay = self._detour = self._toxiproxy = None


def _upstream(broker: detour.Broker) -> str:
    host = f"[{broker.address}]" if ":" in broker.address else broker.address
    return f"{host}:{broker.port}"
