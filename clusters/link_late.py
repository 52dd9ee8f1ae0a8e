"""Connections that are open become late, while those that are made from then on are not: as when a long-lived flow is
rerouted over a bad path, or a machine on its way stands still.

A proxy is put between, as for latency (`clusters.link_latency`), and connections are made again, through it. Then new ones
are spared the redirect, so that whatever is opened from now on goes straight to the node, and only then are the proxied ones
made late. So a request can overtake one that was sent before it, on another connection: what TCP never does on one.
"""

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from toxiproxy import Toxiproxy

from clusters.link_connections import connections, destroy
from clusters.link_latency import DelayConnections, Way, destroy_proxies, ways_of
from clusters.links import LinkEnd, Links
from harness.clock import NS_PER_S, Clock, wait_until
from harness.errors import HarnessFailed, NotReady
from harness.impairments import DelayOpen
from harness.protocols import Node

REOPENED_TIMEOUT_S = 10.0
"""Until clients have connections again that were reset."""
AT_WORK_S = 1.5
"""So long connections are used before they become late: a new one begins with a question of its own."""
ANSWER_TIMEOUT_S = 10.0
SEEN_SHARE = 0.9
STREAMS = ("downstream", "upstream")


class LateConnections:
    """`clusters.impairers.Harmer` of `DelayOpen`. It takes as long as connections are late; afterwards nothing is left."""

    def __init__(self, links: Links, delays: DelayConnections, clock: Clock) -> None:
        self._links, self._delays, self._clock = links, delays, clock

    def harm(self, node: Node, harm: DelayOpen) -> str:
        """HarnessFailed if nobody had a connection, another latency is on the link, or nothing was late."""
        end, opener = self._links[node.name], self._links[harm.peer]
        before = len(self._open(opener, end))
        if not before:
            raise HarnessFailed(f"{harm.peer} has no open connection to {node.name} that could be late.")
        ways = ways_of(opener, end)
        server = self._delays.server(ways[0].at)
        server.start()
        names = [way.name for way in ways]
        if taken := set(names) & set(server.ask(lambda api: list(api.proxies()))):
            raise HarnessFailed(f"{min(taken)} is late already.")
        try:
            return self._make_late(end, opener, ways, harm, before)
        finally:
            for way in ways:
                self._delays.lead_no_more(way.at, way.redirect)
                self._delays.lead_no_more(way.at, way.straight_on)
            server.ask(lambda api: destroy_proxies(api, names))
            if not self._delays.others_to(end):
                for way in ways:
                    if way.back is not None:
                        self._delays.lead_no_more(end, way.back)

    def _make_late(self, end: LinkEnd, opener: LinkEnd, ways: Sequence[Way], harm: DelayOpen, before: int) -> str:
        ask = self._delays.server(ways[0].at).ask
        for way in ways:
            ask(partial(_make_proxy, way=way))
            if way.back is not None:
                self._delays.lead(end, way.back)
            self._delays.lead(way.at, way.redirect)
        destroy(opener, end, to_ports=end.ports)
        probe = opener.network.call(lambda: socket.create_connection((end.address, end.ports[0]), ANSWER_TIMEOUT_S))
        with probe:
            reopened = self._await_reopened(opener, end, before)
            for way in ways:
                self._delays.lead(way.at, way.straight_on, how="-I")
            for way in ways:
                ask(partial(_delay, way=way, latency_ms=harm.latency_ms))
            with ThreadPoolExecutor(1, thread_name_prefix="late") as pool:
                answer = pool.submit(self._answer_s, probe, end, 2 * harm.latency_ms / 1000 + ANSWER_TIMEOUT_S)
                self._clock.sleep(harm.lasts_s)
                took_s = answer.result()
        if took_s is None or took_s < SEEN_SHARE * 2 * harm.latency_ms / 1000:
            raise HarnessFailed(f"On a connection to {end.name} that was to be late, the answer came after {took_s} s.")
        return (
            f"{reopened} connections of {opener.name} were late; on one of them an answer took {took_s * 1000:.0f} ms"
        )

    def _await_reopened(self, opener: LinkEnd, end: LinkEnd, wanted: int) -> int:
        """How many there are once there are as many as before, or no more come."""
        with suppress(NotReady):
            wait_until(
                lambda: len(self._open(opener, end)) > wanted,  # the probe's is one more
                awaited=f"{wanted} connections of {opener.name} to {end.name}",
                timeout_s=REOPENED_TIMEOUT_S,
                clock=self._clock,
                last_seen=lambda: f"{len(self._open(opener, end))} are open",
            )
        self._clock.sleep(AT_WORK_S)
        return len(self._open(opener, end)) - 1

    def _open(self, opener: LinkEnd, end: LinkEnd) -> set[tuple[str, str]]:
        """Those that the opener made to the node's own ports."""
        ports = {str(port) for port in end.ports}
        return {pair for pair in connections(opener, end) if pair[1].rpartition(":")[2] in ports}

    def _answer_s(self, probe: socket.socket, end: LinkEnd, timeout_s: float) -> float | None:
        begun_ns = self._clock.monotonic_ns()
        with suppress(OSError):
            probe.settimeout(timeout_s)
            probe.sendall(end.question)
            if probe.recv(1):
                return (self._clock.monotonic_ns() - begun_ns) / NS_PER_S
        return None


def _make_proxy(api: Toxiproxy, *, way: Way) -> None:
    api.create(upstream=way.upstream, name=way.name, listen=way.listen)


def _delay(api: Toxiproxy, *, way: Way, latency_ms: int) -> None:
    """Of connections that are open too."""
    proxy = api.get_proxy(way.name)
    for stream in STREAMS:
        attributes = {"latency": latency_ms, "jitter": 0}
        proxy.add_toxic(name=f"late-{stream}", type="latency", stream=stream, attributes=attributes)
