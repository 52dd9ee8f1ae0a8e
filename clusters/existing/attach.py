"""The attach backend: a cluster of which only the bootstrap servers are known.

No node can be touched. What can be broken is the way between the trial's own clients and the brokers.

    client ──► the broker's own address, taken (client_network.py) ──► relay ──► toxiproxy ──► the broker
               in the clients' network                               ·············· out here ··············

The observer asks the brokers directly. There is no ground truth: neither the controllers' log nor any copy can be read, so
who led, who was in sync, and what broke by itself is unknown, and nothing that depends on it is ever held.
"""

import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from prozess.clusters.existing import client_network
from prozess.clusters.existing.adoption import (
    Kafka,
    Marker,
    begin_making,
    call_each,
    described_by,
    login_for,
    prefix_of,
)
from prozess.clusters.impairers import AnyImpairer, HasParts, Parts
from prozess.clusters.install.tools import ensure_toxiproxy
from prozess.clusters.local.relay import Route, relay_command
from prozess.clusters.machine.processes import PIDS_NAME, recording_command
from prozess.clusters.machine.servers import first_port, free_ports
from prozess.clusters.messages.placing import AlteredMessages, Carried, MessageProxies
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.client import WireClient
from prozess.clusters.protocol.login import WireLogin, wire_login
from prozess.clusters.protocol.readiness import Readiness
from prozess.clusters.protocol.requests import api_versions_request
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.impairments import CLIENTS, ONLY_CLIENTS, Bandwidth, ClientCut, Latency, ResetConnections
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed, MissingTool
from prozess.harness.interfaces import Capability, MessageWatch, Node, NodeState
from prozess.harness.machine_record import Made
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import MESSAGE_FAULT
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate

# One toxiproxy server out here, for one run of the attach backend, and its API (https://github.com/Shopify/toxiproxy).
#
# On any free port: nothing else on this machine is ours. (The package toxiproxy-python knows no limits, and one server
# only.)


START_TIMEOUT_S = 20.0
PROXY_TIMEOUT_S = 10.0


class Toxiproxy:
    """A toxiproxy server on 127.0.0.1 for one run. `pids`: the file that names its process before it runs."""

    def __init__(self, *, pids: Path, log: Path, clock: Clock) -> None:
        server = ensure_toxiproxy()
        (port,) = free_ports(["127.0.0.1"], 1, first=first_port())
        self._api = f"http://127.0.0.1:{port}"
        with log.open("ab") as words:
            self._process = subprocess.Popen(
                recording_command([str(server), "-host", "127.0.0.1", "-port", str(port)], name="toxiproxy", into=pids),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={**os.environ, "LOG_LEVEL": "error"},
                start_new_session=True,
            )
        try:
            wait_until(self._answers, awaited="toxiproxy", timeout_s=START_TIMEOUT_S, clock=clock, interval_s=0.02)
        except BaseException:
            self.close()
            raise

    def proxy(self, name: str, upstream: str) -> int:
        """Makes a proxy to `upstream`, HOST:PORT, and returns the port on 127.0.0.1 where it listens."""
        made = self._ask(
            "POST", "/proxies", {"name": name, "listen": "127.0.0.1:0", "upstream": upstream, "enabled": True}
        )
        assert isinstance(made, dict), made
        return int(str(made["listen"]).rpartition(":")[2])

    def enable(self, name: str, enabled: bool) -> None:
        """Enables a proxy or disables it: a disabled one drops its connections and takes none."""
        self._ask("POST", f"/proxies/{name}", {"enabled": enabled})

    def add(self, name: str, toxic: str, kind: str, *, stream: str, **attributes: float) -> None:
        """Adds a toxic to a proxy, or changes the one of that name."""
        wanted = {"name": toxic, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes}
        if toxic in self.toxics(name):
            self._ask("POST", f"/proxies/{name}/toxics/{toxic}", wanted)
        else:
            self._ask("POST", f"/proxies/{name}/toxics", wanted)

    def remove(self, name: str, toxic: str) -> None:
        """Removes a toxic from a proxy. Safe when it is not there."""
        if toxic in self.toxics(name):
            self._ask("DELETE", f"/proxies/{name}/toxics/{toxic}")

    def toxics(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        """Returns the toxics of a proxy: name → what the server says of it."""
        answer = self._ask("GET", f"/proxies/{name}/toxics")
        assert isinstance(answer, list), answer
        return {toxic["name"]: toxic for toxic in answer}

    def close(self) -> None:
        """Ends the server. Safe to repeat."""
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise HarnessFailed(f"toxiproxy ended by itself ({self._process.returncode}).")
        try:
            self._ask("GET", "/version")
        except HarnessFailed:
            return False
        return True

    def _ask(self, method: str, path: str, value: Mapping[str, Any] | None = None) -> object:
        request = urllib.request.Request(
            self._api + path,
            method=method,
            data=None if value is None else json.dumps(value).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "prozess"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PROXY_TIMEOUT_S) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            raise HarnessFailed(
                f"toxiproxy refuses {method} {path}: {error.read().decode(errors='replace')[:200]}"
            ) from error
        except OSError as error:
            raise HarnessFailed(f"toxiproxy does not answer {method} {path}: {error}.") from error
        try:
            return json.loads(body) if body else {}
        except ValueError:
            return str(body.decode(errors="replace"))


# A broker of the attach backend: an address that answers, and the link of the trial's clients to it.


NODE_TIMEOUT_S = 2.0


class AttachNode(HasParts):
    """A broker of somebody else's cluster, to which little can be done. Methods may be called from any thread."""

    def __init__(
        self,
        node_id: int,
        server: tuple[str, int],
        data: Path,
        *,
        toxiproxy: Callable[[], Toxiproxy | None],
        parts: Parts,
        clock: Clock,
        login: WireLogin | None = None,
    ) -> None:
        self._id, self._server, self._data, self._toxiproxy, self._parts = node_id, server, data, toxiproxy, parts
        self._wire = WireClient(lambda: {node_id: server}, name="broker", clock=clock, login=login)

    @property
    def name(self) -> str:
        return f"broker-{self._id}"

    @property
    def node_id(self) -> int:
        return self._id

    @property
    def roles(self) -> frozenset[str]:
        """Its roles, as far as they are known."""
        return frozenset({"broker"})

    @property
    def address(self) -> str:
        return socket.gethostbyname(self._server[0])

    @property
    def data_directory(self) -> Path:
        """A directory in which nothing ever is."""
        return self._data

    @property
    def os_pid(self) -> int | None:
        """Returns None: the server's process is not known."""
        return None

    @property
    def toxiproxy(self) -> Toxiproxy | None:
        """The toxiproxy between the clients and this node; None if nothing is between them."""
        return self._toxiproxy()

    def state(self) -> NodeState:
        """Returns running if it answers, else stopped: whether it is dead, paused or cut off cannot be known."""
        answers = self._wire.ask(self._id, api_versions_request(), timeout_s=NODE_TIMEOUT_S)
        return NodeState.STOPPED if answers is None else NodeState.RUNNING

    def kill(self) -> None:
        self._refuse()

    def stop(self, *, timeout_s: float) -> None:
        self._refuse()

    def start(self) -> None:
        """Does nothing for a broker that runs. HarnessFailed for one that does not."""
        if self.state() is NodeState.STOPPED:
            self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        """Does nothing: prozess never paused it."""

    def block(self, source: Node) -> None:
        self._refuse()

    def unblock(self, source: Node) -> None:
        """Does nothing: it never was blocked."""

    def receives_from(self, source: Node) -> Tristate:
        """Returns unknown: nobody here can look."""
        return Tristate.UNKNOWN

    def close(self) -> None:
        """Closes the connection by which it is asked. A new one is made when it is needed."""
        self._wire.close()

    def _refuse(self) -> None:
        raise HarnessFailed(f"{self.name} cannot be touched: only its bootstrap servers are known.")


# What the attach backend can do to the link between the trial's clients and a broker, by toxiproxy's toxics.
#
# Toxics: https://github.com/Shopify/toxiproxy#toxics. "downstream" is what the broker answers, "upstream" what clients
# send.


STREAMS = ("upstream", "downstream")
_STREAM_OF = {"to-node": "upstream", "from-node": "downstream"}
_KB = 1000


def _server(node: AttachNode, peer: str | None) -> Toxiproxy:
    """Returns the toxiproxy of a link. HarnessFailed if it is not one of the trial's clients, or nothing is in between."""
    if peer != CLIENTS:
        raise HarnessFailed(
            f"{node.name}: only the link to the trial's own clients can be impaired here (peer {CLIENTS!r})."
        )
    if node.toxiproxy is None:
        raise HarnessFailed(f"{node.name}: no proxy stands between it and the clients.")
    return node.toxiproxy


def _toxics_seen(node: AttachNode, peer: str | None, name: str) -> tuple[Tristate, str]:
    """Looks whether the server says that it has the toxic now."""
    if node.toxiproxy is None or peer != CLIENTS:
        return Tristate.NO, "no proxy stands between clients and the node"
    try:
        there = node.toxiproxy.toxics(node.name)
    except HarnessFailed as error:
        return Tristate.UNKNOWN, str(error)
    found = [toxic for toxic_name, toxic in there.items() if toxic_name.startswith(name)]
    if not found:
        return Tristate.NO, f"toxiproxy has no {name} on the link"
    return Tristate.YES, "toxiproxy says " + ", ".join(f"{t['stream']} {t['type']} {t['attributes']}" for t in found)


def _repair(node: AttachNode, name: str) -> None:
    if node.toxiproxy is not None:
        for stream in STREAMS:
            node.toxiproxy.remove(node.name, f"{name}-{stream}")


class LatencyOfLink:
    """Makes a link late by the toxic `latency`, each way."""

    def impair(self, node: AttachNode, impairment: Latency) -> None:
        server = _server(node, impairment.peer)
        for stream, (late_ms, jitter_ms) in impairment.streams.items():
            server.add(
                node.name,
                f"latency-{stream}",
                "latency",
                stream=stream,
                latency=round(late_ms),
                jitter=round(jitter_ms),
            )

    def repair(self, node: AttachNode, impairment: Latency) -> None:
        _repair(node, "latency")

    def impaired(self, node: AttachNode, impairment: Latency) -> tuple[Tristate, str]:
        return _toxics_seen(node, impairment.peer, "latency")


class BandwidthOfLink:
    """Limits what the node sends, or what is sent to it, by the toxic `bandwidth`, whose unit is kB/s."""

    def impair(self, node: AttachNode, impairment: Bandwidth) -> None:
        rate, stream = max(1, round(impairment.bytes_per_s / _KB)), _STREAM_OF[impairment.way]
        _server(node, impairment.peer).add(node.name, f"bandwidth-{stream}", "bandwidth", stream=stream, rate=rate)

    def repair(self, node: AttachNode, impairment: Bandwidth) -> None:
        if node.toxiproxy is not None:
            node.toxiproxy.remove(node.name, f"bandwidth-{_STREAM_OF[impairment.way]}")

    def impaired(self, node: AttachNode, impairment: Bandwidth) -> tuple[Tristate, str]:
        return _toxics_seen(node, impairment.peer, f"bandwidth-{_STREAM_OF[impairment.way]}")


class CutOfLink:
    """Cuts a link one way by the toxic `timeout` with 0: nothing passes, neither end learns of it, and the proxy still
    accepts connections."""

    def impair(self, node: AttachNode, impairment: ClientCut) -> None:
        stream = _STREAM_OF[impairment.way]
        _server(node, impairment.peer).add(node.name, f"cut-{stream}", "timeout", stream=stream, timeout=0)

    def repair(self, node: AttachNode, impairment: ClientCut) -> None:
        if node.toxiproxy is not None:
            node.toxiproxy.remove(node.name, f"cut-{_STREAM_OF[impairment.way]}")

    def impaired(self, node: AttachNode, impairment: ClientCut) -> tuple[Tristate, str]:
        return _toxics_seen(node, impairment.peer, f"cut-{_STREAM_OF[impairment.way]}")


class ResetOfLink:
    """Resets connections: a proxy that is disabled drops them at once, and then takes new ones again."""

    def harm(self, node: AttachNode, harm: ResetConnections) -> str:
        server = _server(node, harm.peer)
        try:
            server.enable(node.name, enabled=False)
        finally:
            with suppress(HarnessFailed):
                server.enable(node.name, enabled=True)
        return "the proxy dropped every connection of the trial's clients to the node"


_UNTOUCHED = "no node can be touched: only its bootstrap servers are known"
LINK_FAULTS = ("latency", "bandwidth", "reset", "partition", "message")
_RELAY_END_S = 10.0


class AttachCluster:
    """Somebody else's cluster, reached by its bootstrap servers."""

    def __init__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> None:
        if plan.attach is None:
            raise BadInput("backend = 'attach' needs [attach] in the trial: bootstrap_servers.")
        self._plan, self._run, self._clock = plan, run, clock
        self._marker = Marker(run)
        self.login = login_for(plan.attach)
        self._wire_login = wire_login(self.login, clock)
        self._kafka = Kafka(",".join(plan.attach.bootstrap_servers), clock, self.login)
        self._toxiproxy: Toxiproxy | None = None
        self._client_network: client_network.ClientNetwork | None = None
        self._relay: subprocess.Popen[bytes] | None = None
        links: dict[str, AnyImpairer] = {
            "latency": LatencyOfLink(),
            "bandwidth": BandwidthOfLink(),
            "client-cut": CutOfLink(),
        }
        self._proxies = MessageProxies(
            None, log=run.logs / "message-proxy.log", clock=clock, record_pids=run.path / PIDS_NAME
        )
        links["message"] = AlteredMessages(None, self._proxies)
        self._parts = Parts(links, {"reset-connections": ResetOfLink()})

    @cached_property
    def _found(self) -> tuple[str, dict[int, tuple[str, int]]]:
        """The cluster id, and where each broker advertises itself; asked once, since faults must not change who is meant."""
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
                login=self._wire_login,
            )
            for node_id, server in self._found[1].items()
        )

    @property
    def _asked(self) -> bool:
        return "nodes" in self.__dict__

    @cached_property
    def _no_client_network(self) -> str | None:
        """Returns why nothing can be put between clients and brokers here; None if it can."""
        if (why := client_network.why_no_client_network()) is not None:
            return f"clients cannot be given a network of their own here: {why}"
        try:
            ensure_toxiproxy()
        except MissingTool as error:
            return str(error)
        return None

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        if self._no_client_network is not None:
            return {}
        readable = {} if self._encrypted else {Capability.MESSAGES: "a proxy between the trial's clients and a broker"}
        return readable | {
            Capability.DELAY: "toxiproxy between the trial's clients and a broker",
            Capability.SHAPE: "toxiproxy between the trial's clients and a broker",
            Capability.RESET: "toxiproxy between the trial's clients and a broker",
            Capability.CUT_CLIENTS: "toxiproxy between the trial's clients and a broker, one way or both",
        }

    @property
    def lacks(self) -> Mapping[Capability, str]:
        between = (Capability.DELAY, Capability.SHAPE, Capability.RESET, Capability.CUT_CLIENTS)
        lacking = {c: self._no_client_network or "" if c in between else _UNTOUCHED for c in Capability}
        lacking[Capability.MESSAGES] = (
            self._no_client_network or "the links are encrypted, and a proxy cannot read what passes"
        )
        return {capability: why for capability, why in lacking.items() if capability not in self.capabilities}

    @property
    def messages(self) -> MessageWatch | None:
        return (
            self._proxies
            if self._plan.message_steps and not self._encrypted and self._no_client_network is None
            else None
        )

    @property
    def _encrypted(self) -> bool:
        """Says whether what passes on the links cannot be read."""
        protocol = "" if self.login is None else self.login.properties.get("security.protocol", "")
        return protocol.upper().endswith("SSL")

    def refusal_of(self, fault: str, parameters: Mapping[str, Any]) -> str | None:
        """Returns why this fault of links cannot be made with these parameters; None if it can."""
        if fault == MESSAGE_FAULT and "others" not in parameters:
            return None  # clients, by default
        if fault in LINK_FAULTS and parameters.get("others") not in ONLY_CLIENTS:
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
        """Returns no servers: controllers are not reached."""
        return {}

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns no servers: only brokers are reached."""
        return {}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns no servers: nothing runs in the servers."""
        return {}

    @property
    def client_prefix(self) -> Sequence[str]:
        """Returns the words before the command of the clients' process that put it into their network."""
        return [] if self._client_network is None else self._client_network.enter_command

    def setup(self) -> None:
        """Changes nothing of the cluster. It makes the clients' network, without which they go straight to the brokers."""
        made = begin_making(self._plan, self._run, self._kafka)
        self._marker.set({"cluster_id": self._found[0]})
        assert made.topics, "the run will make some"
        self._run.logs.mkdir(parents=True, exist_ok=True)
        if self._no_client_network is not None:
            return
        pids = self._run.path / PIDS_NAME
        try:
            self._toxiproxy = Toxiproxy(pids=pids, log=self._run.logs / "toxiproxy.log", clock=self._clock)
            taken = [client_network.Broker.at(host, port) for host, port in self._found[1].values()]
            self._client_network = client_network.ClientNetwork(taken, hosts=self._run.path / "hosts", pids=pids)
            upstreams = [(node.name, _upstream(broker)) for node, broker in zip(self.nodes, taken, strict=True)]
            self._start_relay([self._toxiproxy.proxy(*named) for named in upstreams], pids)
        except BaseException:
            self._close_client_network()
            raise

    def wait_ready(self, *, timeout_s: float) -> None:
        Readiness(
            self.observer_servers,
            timeout_s=timeout_s,
            clock=self._clock,
            check_alive=lambda: None,
            login=self.login,
            topic=f"{prefix_of(self._plan)}ready",
            made=Made(self._run),
        ).wait({})

    def describe(self) -> Mapping[str, Any]:
        admin = Admin(self, clock=self._clock)
        try:
            description = described_by(admin, self._found[1], self._plan.variant)
        finally:
            admin.close()
        return {
            "backend": "attach",
            "cluster_id": self._found[0],
            **description,
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
        """Does nothing: no logs can be read."""

    def teardown(self) -> None:
        """Deletes the topics and groups that the run made. Does nothing if `setup` was never called."""
        self._close_client_network()
        try:
            self._leave_as_found()
        finally:  # what is removed is removed by brokers that are asked for their state, over connections of their own
            for node in self.nodes if self._asked else ():
                node.close()

    # Parts

    def _leave_as_found(self) -> None:
        found = self._marker.found
        if found is None:
            return
        problems: list[str] = []
        call_each(problems, lambda: self._remove_what_it_made(found.get("cluster_id", "")))
        if problems:
            raise ClusterFailed("Not everything could be left as it was: " + "; ".join(problems))
        self._marker.clear()

    def _remove_what_it_made(self, cluster_id: str) -> None:
        if self._found[0] != cluster_id:
            raise ClusterFailed(
                f"Kafka at {self.bootstrap_servers} is the cluster {self._found[0]} now, and the run says that it was on "
                f"{cluster_id!a}: nothing of it was touched"
            )
        admin = Admin(self, clock=self._clock)
        try:
            self._kafka.remove(Made(self._run), admin)
        finally:
            admin.close()

    def _start_relay(self, ports: Sequence[int], pids: Path) -> None:
        assert self._client_network is not None
        listeners = self._client_network.listeners
        if self.messages is not None:
            between = zip(self.nodes, listeners, ports, strict=True)
            self._proxies.relay([Carried(CLIENTS, node.name, s, ("127.0.0.1", port)) for node, s, port in between])
            for listener in listeners:
                listener.close()
            return
        routes = [Route(s.fileno(), "127.0.0.1", port) for s, port in zip(listeners, ports, strict=True)]
        self._relay = subprocess.Popen(
            recording_command(relay_command(routes), name="relay", into=pids),
            stdin=subprocess.DEVNULL,
            pass_fds=[route.listener for route in routes],
            start_new_session=True,
        )
        for listener in listeners:
            listener.close()

    def _close_client_network(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait(_RELAY_END_S)
        if self._client_network is not None:
            self._client_network.close()
        if self._toxiproxy is not None:
            self._toxiproxy.close()
        self._proxies.close()
        self._relay = self._client_network = self._toxiproxy = None


def _upstream(broker: client_network.Broker) -> str:
    host = f"[{broker.address}]" if ":" in broker.address else broker.address
    return f"{host}:{broker.port}"
