"""Latency: what an end opens to a node goes through a toxiproxy in the opener's own network namespace.

    opener P                                               node N
    Kafka -> N:9092  =DNAT=>  127.0.0.1:2xxxx toxiproxy -> N:19092  =DNAT=>  N:9092

The proxy goes to a port of its own on N, so that P's redirect does not meet it, and N leads that port back. Its packets go
from P to N and back, so whatever else is wrong between the two (a cut, loss, bandwidth) holds for what is proxied, too, and
the rules stay where they are when a process restarts. Connections that are open when this is made or undone are reset, so
that new ones go the new way.
"""

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from toxiproxy import Toxiproxy

from clusters.link_connections import destroy
from clusters.link_loss import IPTABLES
from clusters.links import LinkEnd, Links
from clusters.toxiproxy_server import ToxiproxyServer
from harness.clock import NS_PER_S, Clock
from harness.errors import HarnessFailed
from harness.impairments import Latency
from harness.protocols import Node
from harness.schema import Tristate

BACK_PORT_OFFSET = 10_000
LISTEN_FIRST = 21_000
ASKED = 3
"""How often a node is asked; the quickest answer counts, so that a slow machine is not taken for latency."""
ANSWER_S = 5.0
SEEN_SHARE = 0.9
STREAMS = ("downstream", "upstream")


class DelayConnections:
    """`clusters.impairers.Impairer` of `Latency`."""

    def __init__(self, links: Links, *, logs: Path, clock: Clock, record_pids: Path | None = None) -> None:
        """`record_pids`: as of `ToxiproxyServer`."""
        self._links, self._logs, self._clock, self._record_pids = links, logs, clock, record_pids
        self._servers: dict[str, ToxiproxyServer] = {}
        self._lock = threading.RLock()

    def impair(self, node: Node, impairment: Latency) -> None:
        """HarnessFailed if another latency is on the same link."""
        end, opener = self._links[node.name], self._links[impairment.peer]
        with self._lock:
            server = self._server(opener)
            server.start()
            for port in end.ports:
                server.ask(partial(_proxy, end=end, port=port, impairment=impairment))
                self._lead(end, _back(end, port))
                self._lead(opener, _redirect(end, port))
        destroy(opener, end, to_ports=end.ports)

    def repair(self, node: Node, impairment: Latency) -> None:
        end, opener = self._links[node.name], self._links[impairment.peer]
        with self._lock:
            server = self._server(opener)
            if server.answers() and not self._is_ours(server, end, impairment):
                return  # another latency's
            for port in end.ports:
                self._lead_no_more(opener, _redirect(end, port))
            if server.answers():
                server.ask(lambda api: _destroy(api, [_name(end, port) for port in end.ports]))
                if not server.ask(lambda api: api.proxies()):
                    server.stop()
            if not self._others_to(end):
                for port in end.ports:
                    self._lead_no_more(end, _back(end, port))
        destroy(opener, end, to_ports=end.ports)

    def impaired(self, node: Node, impairment: Latency) -> tuple[Tristate, str]:
        """By how long the node takes to answer the opener."""
        end, opener = self._links[node.name], self._links[impairment.peer]
        with self._lock:
            server = self._server(opener)
            redirected = all(self._leads(opener, _redirect(end, port)) for port in end.ports)
            if not redirected or not server.answers() or not self._is_ours(server, end, impairment):
                return Tristate.NO, "its connections go no proxied way"
        least_s = 2 * max(0.0, impairment.latency_ms - impairment.jitter_ms) / 1000
        with ThreadPoolExecutor(ASKED, thread_name_prefix="answer") as pool:
            asked = [pool.submit(self._answer_s, opener, end, 2 * least_s + ANSWER_S) for _ in range(ASKED)]
        answers = [answer for a in asked if (answer := a.result()) is not None]
        if not answers:
            return Tristate.UNKNOWN, f"{node.name} does not answer {impairment.peer}"
        seen = f"{node.name} answers {impairment.peer} after {min(answers) * 1000:.0f} ms"
        return Tristate(int(min(answers) >= SEEN_SHARE * least_s)), seen

    def close(self) -> None:
        """End every server that was started here."""
        with self._lock:
            for server in self._servers.values():
                server.stop()
            self._servers.clear()

    def _server(self, opener: LinkEnd) -> ToxiproxyServer:
        if opener.name not in self._servers:
            log = self._logs / f"toxiproxy-{opener.name}.log"
            self._servers[opener.name] = ToxiproxyServer(
                opener, log=log, clock=self._clock, record_pids=self._record_pids
            )
        return self._servers[opener.name]

    def _is_ours(self, server: ToxiproxyServer, end: LinkEnd, impairment: Latency) -> bool:
        wanted = {stream: _attributes(impairment) for stream in STREAMS}

        def all_ours(api: Toxiproxy) -> bool:
            proxies = api.proxies()
            names = [_name(end, port) for port in end.ports]
            return all(n in proxies and _toxics(proxies[n]) == wanted for n in names)

        return server.ask(all_ours)

    def _others_to(self, end: LinkEnd) -> bool:
        """Does anybody else's redirect still need the node's way back?"""
        openers = self._links.besides(end.name)
        return any(self._leads(opener, _redirect(end, port)) for opener in openers for port in end.ports)

    def _answer_s(self, opener: LinkEnd, end: LinkEnd, timeout_s: float) -> float | None:
        def ask() -> float | None:
            begun_ns = self._clock.monotonic_ns()
            with suppress(OSError), socket.create_connection((end.address, end.ports[0]), timeout_s) as connection:
                connection.sendall(end.question)
                if connection.recv(1):
                    return (self._clock.monotonic_ns() - begun_ns) / NS_PER_S
            return None

        return opener.network.call(ask)

    def _leads(self, end: LinkEnd, rule: Sequence[str]) -> bool:
        done = end.network.run_as_root([*IPTABLES, "-t", "nat", "-C", *rule])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(
                f"iptables of {end.name} does not tell about its redirects: {done.stderr.strip()[-300:]}"
            )
        return done.returncode == 0

    def _lead(self, end: LinkEnd, rule: Sequence[str]) -> None:
        if not self._leads(end, rule):
            _checked(end, ["-A", *rule])

    def _lead_no_more(self, end: LinkEnd, rule: Sequence[str]) -> None:
        while self._leads(end, rule):
            _checked(end, ["-D", *rule])


def _checked(end: LinkEnd, arguments: Sequence[str]) -> None:
    done = end.network.run_as_root([*IPTABLES, "-t", "nat", *arguments])
    if done.returncode:
        raise HarnessFailed(f"iptables of {end.name} refused a redirect: {done.stderr.strip()[-300:]}")


def _name(end: LinkEnd, port: int) -> str:
    return f"{end.name}-{port}"


def _listen_port(end: LinkEnd, port: int) -> int:
    """Of the proxy, in the opener's namespace: another for every port of every node."""
    return LISTEN_FIRST + int(end.address.rpartition(".")[2]) * 8 + end.ports.index(port)


def _redirect(end: LinkEnd, port: int) -> list[str]:
    to = f"127.0.0.1:{_listen_port(end, port)}"
    return ["OUTPUT", "-d", end.address, "-p", "tcp", "--dport", str(port), "-j", "DNAT", "--to-destination", to]


def _back(end: LinkEnd, port: int) -> list[str]:
    here = ["-d", end.address, "-p", "tcp", "--dport", str(port + BACK_PORT_OFFSET)]
    return ["PREROUTING", *here, "-j", "DNAT", "--to-destination", f"{end.address}:{port}"]


def _attributes(impairment: Latency) -> dict[str, int]:
    return {"latency": round(impairment.latency_ms), "jitter": round(impairment.jitter_ms)}


def _toxics(proxy: object) -> dict[str, dict[str, int]]:
    return {toxic.stream: dict(toxic.attributes) for toxic in proxy.toxics().values()}  # type: ignore[attr-defined]


def _proxy(api: Toxiproxy, *, end: LinkEnd, port: int, impairment: Latency) -> None:
    """Safe to repeat. The toxics are looked at once they are made: the package does not look at every answer."""
    name, wanted = _name(end, port), {stream: _attributes(impairment) for stream in STREAMS}
    proxy = api.get_proxy(name)
    if proxy is None:
        listen = f"127.0.0.1:{_listen_port(end, port)}"
        proxy = api.create(upstream=f"{end.address}:{port + BACK_PORT_OFFSET}", name=name, listen=listen)
    elif _toxics(proxy) not in ({}, wanted):
        raise ValueError(f"{name} is late already, by {_toxics(proxy)}")
    for stream in STREAMS:
        if stream not in _toxics(proxy):
            proxy.add_toxic(name=f"late-{stream}", type="latency", stream=stream, attributes=_attributes(impairment))
    if _toxics(proxy) != wanted:
        raise ValueError(f"{name} has the toxics {_toxics(proxy)}")


def _destroy(api: Toxiproxy, names: Sequence[str]) -> None:
    for proxy in _existing(api, names):
        proxy.destroy()  # type: ignore[attr-defined]
    if left := list(_existing(api, names)):
        raise ValueError(f"{len(left)} proxies are still there")


def _existing(api: Toxiproxy, names: Sequence[str]) -> Iterator[object]:
    return (proxy for name, proxy in api.proxies().items() if name in names)
