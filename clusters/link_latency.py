"""Latency: what an end opens to a node goes through a toxiproxy in the opener's own network namespace.

    opener P                                               node N
    Kafka -> N:9092  =DNAT=>  127.0.0.1:2xxxx toxiproxy -> N:19092  =DNAT=>  N:9092

The proxy goes to a port of its own on N, so that P's redirect does not meet it, and N leads that port back. Its packets go
from P to N and back, so whatever else is wrong between the two (a cut, loss, bandwidth) holds for what is proxied, too, and
the rules stay where they are when a process restarts. Connections that are open when this is made or undone are reset, so
that new ones go the new way.

An opener in whose network no rule may be made (clients on a host that is not ours) has its connections led there on arrival:

    opener P             node N
    client -> N:9092  =DNAT=>  N:2xxxx toxiproxy -> N:9092

What N sees on its link is P still, so the same holds.
"""

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Way:
    """How what an opener opens to one port of a node goes through a proxy."""

    at: LinkEnd
    """In whose network the proxy is, and the rule that leads there."""
    name: str
    """Of the proxy."""
    listen: str
    upstream: str
    redirect: tuple[str, ...]
    back: tuple[str, ...] | None
    """The node's rule for what comes from the proxy; None where that needs none."""

    @property
    def straight_on(self) -> tuple[str, ...]:
        """A rule to stand before `redirect`: new connections go straight to the node. (Were the redirect taken away instead,
        connections through it would be reset: with its last rule nft takes away the chain, and the translation.)"""
        return (*self.redirect[: self.redirect.index("-j")], "-j", "RETURN")


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
            for way in ways_of(opener, end):
                server = self.server(way.at)
                server.start()
                server.ask(partial(_proxy, way=way, impairment=impairment))
                if way.back is not None:
                    self.lead(end, way.back)
                self.lead(way.at, way.redirect)
        destroy(opener, end, to_ports=end.ports)

    def repair(self, node: Node, impairment: Latency) -> None:
        end, opener = self._links[node.name], self._links[impairment.peer]
        ways = ways_of(opener, end)
        with self._lock:
            server = self.server(ways[0].at)
            if server.answers() and not self._is_ours(server, ways, impairment):
                return  # another latency's
            for way in ways:
                self.lead_no_more(way.at, way.redirect)
            if server.answers():
                server.ask(lambda api: destroy_proxies(api, [way.name for way in ways]))
                if not server.ask(lambda api: api.proxies()):
                    server.stop()
            if not self.others_to(end):
                for way in ways:
                    if way.back is not None:
                        self.lead_no_more(end, way.back)
        destroy(opener, end, to_ports=end.ports)

    def impaired(self, node: Node, impairment: Latency) -> tuple[Tristate, str]:
        """By how long the node takes to answer the opener; how much of it is which way, toxiproxy says."""
        end, opener = self._links[node.name], self._links[impairment.peer]
        ways = ways_of(opener, end)
        with self._lock:
            server = self.server(ways[0].at)
            redirected = all(self._leads(way.at, way.redirect) for way in ways)
            if not redirected or not server.answers() or not self._is_ours(server, ways, impairment):
                return Tristate.NO, "its connections go no proxied way"
        least_s = sum(late_ms - jitter_ms for late_ms, jitter_ms in impairment.streams.values()) / 1000
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

    def server(self, at: LinkEnd) -> ToxiproxyServer:
        """Of that end; it may not run yet."""
        if at.name not in self._servers:
            log = self._logs / f"toxiproxy-{at.name}.log"
            self._servers[at.name] = ToxiproxyServer(at, log=log, clock=self._clock, record_pids=self._record_pids)
        return self._servers[at.name]

    def _is_ours(self, server: ToxiproxyServer, ways: Sequence[Way], impairment: Latency) -> bool:
        wanted = _attributes(impairment)

        def all_ours(api: Toxiproxy) -> bool:
            proxies = api.proxies()
            return all(way.name in proxies and _toxics(proxies[way.name]) == wanted for way in ways)

        return server.ask(all_ours)

    def others_to(self, end: LinkEnd) -> bool:
        """Does anybody else's redirect still need the node's way back?"""
        ways = (way for opener in self._links.besides(end.name) for way in ways_of(opener, end) if way.back is not None)
        return any(self._leads(way.at, way.redirect) for way in ways)

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

    def lead(self, end: LinkEnd, rule: Sequence[str], *, how: str = "-A") -> None:
        """Put the rule there, once: behind all others, or with `-I` before them. HarnessFailed if that is refused."""
        if not self._leads(end, rule):
            _checked(end, [how, *rule])

    def lead_no_more(self, end: LinkEnd, rule: Sequence[str]) -> None:
        """Take the rule away; safe where there is none."""
        while self._leads(end, rule):
            _checked(end, ["-D", *rule])


def _checked(end: LinkEnd, arguments: Sequence[str]) -> None:
    done = end.network.run_as_root([*IPTABLES, "-t", "nat", *arguments])
    if done.returncode:
        raise HarnessFailed(f"iptables of {end.name} refused a redirect: {done.stderr.strip()[-300:]}")


def ways_of(opener: LinkEnd, end: LinkEnd) -> list[Way]:
    """One for each port. None: it serves nothing there."""
    return [_at_opener(opener, end, port) if opener.has_rules else _at_node(opener, end, port) for port in end.ports]


def _at_opener(opener: LinkEnd, end: LinkEnd, port: int) -> Way:
    here = f"127.0.0.1:{_listen_port(end, end.ports.index(port))}"
    to, back = ["-d", end.address, "-p", "tcp", "--dport", str(port)], str(port + BACK_PORT_OFFSET)
    return Way(
        at=opener,
        name=f"{end.name}-{port}",
        listen=here,
        upstream=f"{end.address}:{back}",
        redirect=("OUTPUT", *to, "-j", "DNAT", "--to-destination", here),
        back=("PREROUTING", *to[:-1], back, "-j", "DNAT", "--to-destination", f"{end.address}:{port}"),
    )


def _at_node(opener: LinkEnd, end: LinkEnd, port: int) -> Way:
    """What the proxy opens there is not led back to it: it never comes by PREROUTING."""
    here = f"{end.address}:{_listen_port(opener, end.ports.index(port))}"
    between = ["-s", opener.address, "-d", end.address, "-p", "tcp", "--dport", str(port)]
    return Way(
        at=end,
        name=f"{opener.name}-to-{port}",
        listen=here,
        upstream=f"{end.address}:{port}",
        redirect=("PREROUTING", *between, "-j", "DNAT", "--to-destination", here),
        back=None,
    )


def _listen_port(other: LinkEnd, index: int) -> int:
    """Of the proxy, in the namespace where it is: another for every port of every node."""
    return LISTEN_FIRST + int(other.address.rpartition(".")[2]) * 8 + index


def _attributes(impairment: Latency) -> dict[str, dict[str, int]]:
    """Stream → of its toxic."""
    return {
        stream: {"latency": round(late_ms), "jitter": round(jitter_ms)}
        for stream, (late_ms, jitter_ms) in impairment.streams.items()
    }


def _toxics(proxy: object) -> dict[str, dict[str, int]]:
    return {toxic.stream: dict(toxic.attributes) for toxic in proxy.toxics().values()}  # type: ignore[attr-defined]


def _proxy(api: Toxiproxy, *, way: Way, impairment: Latency) -> None:
    """Safe to repeat. The toxics are looked at once they are made: the package does not look at every answer."""
    name, wanted = way.name, _attributes(impairment)
    proxy = api.get_proxy(name)
    if proxy is None:
        proxy = api.create(upstream=way.upstream, name=name, listen=way.listen)
    elif _toxics(proxy) not in ({}, wanted):
        raise ValueError(f"{name} is late already, by {_toxics(proxy)}")
    for stream, attributes in wanted.items():
        if stream not in _toxics(proxy):
            proxy.add_toxic(name=f"late-{stream}", type="latency", stream=stream, attributes=attributes)
    if _toxics(proxy) != wanted:
        raise ValueError(f"{name} has the toxics {_toxics(proxy)}")


def destroy_proxies(api: Toxiproxy, names: Sequence[str]) -> None:
    """And every connection through them. ValueError if one stays."""
    for proxy in _existing(api, names):
        proxy.destroy()  # type: ignore[attr-defined]
    if left := list(_existing(api, names)):
        raise ValueError(f"{len(left)} proxies are still there")


def _existing(api: Toxiproxy, names: Sequence[str]) -> Iterator[object]:
    return (proxy for name, proxy in api.proxies().items() if name in names)
