"""Makes links late: connections to a node go through a toxiproxy in the network namespace of the end that opens them.

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

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prozess.clusters.install.tools import toxiproxy_server
from prozess.clusters.links.links import (
    LinkEnd,
    Links,
    change_redirect,
    connections,
    destroy,
    is_redirected,
    lead_no_more,
    listen_port,
)
from prozess.clusters.machine.processes import recording_command
from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.config.impairments import DelayOpen, Latency
from prozess.harness.errors import HarnessFailed, MissingTool, NotReady
from prozess.harness.interfaces import Node
from prozess.harness.schema import Tristate

if TYPE_CHECKING:
    from toxiproxy import Toxiproxy

# One toxiproxy server in the network namespace of one end, and what it is asked for, through the package toxiproxy-
# python.
#
# The package speaks to 127.0.0.1:8474 and knows no time limits: it is used inside the namespace, where that address is
# the namespace's own, in a thread that is waited for only so long.


T = TypeVar("T")
API = ("127.0.0.1", 8474)
ASK_S = 10.0
START_S = 15.0


class ToxiproxyServer:
    """The toxiproxy server of one end, started when it is first needed."""

    def __init__(self, end: LinkEnd, *, log: Path, clock: Clock, record_pids: Path | None = None) -> None:
        """`record_pids`: the file that names its process before it runs; None where it ends with the sandbox."""
        self._end, self._log, self._clock, self._record_pids = end, log, clock, record_pids
        self._process: subprocess.Popen[bytes] | None = None

    def answers(self) -> bool:
        """Does a server run there, whoever started it?"""
        return self._end.network.call(_listens)

    def start(self) -> None:
        """Starts the server, unless one runs. MissingTool if there is no program; NotReady if it does not answer."""
        if self.answers():
            return
        program = toxiproxy_server()
        if program is None:
            raise MissingTool("toxiproxy is neither on PATH nor in the cache; `prozess doctor` says more.")
        self._process = self._end.network.call(lambda: self._fork(program))
        wait_until(
            self.answers,
            awaited=f"toxiproxy of {self._end.name} to answer",
            timeout_s=START_S,
            clock=self._clock,
            last_seen=lambda: f"its exit code is {self._process.poll() if self._process else None}",
        )

    def stop(self) -> None:
        """Ends the server that was started here. Safe to repeat."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def ask(self, question: Callable[[Any], T]) -> T:
        """Calls `question` with a `toxiproxy.Toxiproxy`, and returns its answer. HarnessFailed if it cannot be asked."""
        from toxiproxy import Toxiproxy  # with it comes requests: few processes make a link late
        from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

        pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toxiproxy")
        try:
            # The worker is born in the namespace, as its parent thread is there.
            return self._end.network.call(lambda: pool.submit(question, Toxiproxy()).result(ASK_S))
        except FutureTimeout as error:
            raise HarnessFailed(f"toxiproxy of {self._end.name} gave no answer within {ASK_S:g} s.") from error
        except (OSError, ValueError, KeyError, InvalidToxic, NotFound, ProxyExists) as error:
            raise HarnessFailed(f"toxiproxy of {self._end.name}: {type(error).__name__}: {error}.") from error
        finally:
            pool.shutdown(wait=False)

    def _fork(self, program: Path) -> subprocess.Popen[bytes]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            command = [str(program), "-host", API[0], "-port", str(API[1])]
            if self._record_pids is not None:
                command = recording_command(command, name=f"toxiproxy of {self._end.name}", into=self._record_pids)
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LOG_LEVEL": "error"},
                start_new_session=True,
            )


def _listens() -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(API) == 0


BACK_PORT_OFFSET = 10_000
LISTEN_FIRST = 21_000
ASKED = 3
"""How often a node is asked. The quickest answer counts, so that a slow machine is not taken for latency."""
ANSWER_S = 5.0
SEEN_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class ProxiedRoute:
    """The route of connections to one port of a node through a proxy."""

    at: LinkEnd
    """The end in whose network the proxy is, and the rule that leads there."""
    name: str
    """The name of the proxy."""
    listen: str
    upstream: str
    redirect: tuple[str, ...]
    back: tuple[str, ...] | None
    """The node's rule for what comes from the proxy; None where none is needed."""

    @property
    def straight_on(self) -> tuple[str, ...]:
        """A rule that stands before `redirect` and lets new connections go straight to the node.

        If the redirect were taken away instead, connections through it would be reset: with its last rule nft takes away the
        chain, and the translation."""
        return (*self.redirect[: self.redirect.index("-j")], "-j", "RETURN")


class DelayConnections:
    """Makes links late, and sees how long answers take."""

    def __init__(self, links: Links, *, logs: Path, clock: Clock, record_pids: Path | None = None) -> None:
        """`record_pids`: as for `ToxiproxyServer`."""
        self._links, self._logs, self._clock, self._record_pids = links, logs, clock, record_pids
        self._servers: dict[str, ToxiproxyServer] = {}
        self._lock = threading.RLock()

    def impair(self, node: Node, impairment: Latency) -> None:
        """Makes the link late. HarnessFailed if another latency is on it."""
        end, opener = self._links[node.name], self._links[impairment.peer]
        with self._lock:
            for route in routes_of(opener, end):
                server = self.server(route.at)
                server.start()
                server.ask(partial(_proxy, route=route, impairment=impairment))
                if route.back is not None:
                    self.lead(end, route.back)
                self.lead(route.at, route.redirect)
        destroy(opener, end, to_ports=end.ports)

    def repair(self, node: Node, impairment: Latency) -> None:
        end, opener = self._links[node.name], self._links[impairment.peer]
        routes = routes_of(opener, end)
        with self._lock:
            server = self.server(routes[0].at)
            if server.answers() and not self._is_ours(server, routes, impairment):
                return  # another latency's
            for route in routes:
                lead_no_more(route.at, route.redirect)
            if server.answers():
                server.ask(lambda api: destroy_proxies(api, [route.name for route in routes]))
                if not server.ask(lambda api: api.proxies()):
                    server.stop()
            if not self.others_to(end):
                for route in routes:
                    if route.back is not None:
                        lead_no_more(end, route.back)
        destroy(opener, end, to_ports=end.ports)

    def impaired(self, node: Node, impairment: Latency) -> tuple[Tristate, str]:
        """Looks how long the node takes to answer the opener. How much of it is which way, toxiproxy says."""
        end, opener = self._links[node.name], self._links[impairment.peer]
        routes = routes_of(opener, end)
        with self._lock:
            server = self.server(routes[0].at)
            redirected = all(is_redirected(route.at, route.redirect) for route in routes)
            if not redirected or not server.answers() or not self._is_ours(server, routes, impairment):
                return Tristate.NO, "its connections go by no proxy"
        least_s = sum(late_ms - jitter_ms for late_ms, jitter_ms in impairment.streams.values()) / 1000
        with ThreadPoolExecutor(ASKED, thread_name_prefix="answer") as pool:
            asked = [pool.submit(self._answer_s, opener, end, 2 * least_s + ANSWER_S) for _ in range(ASKED)]
        answers = [answer for a in asked if (answer := a.result()) is not None]
        if not answers:
            return Tristate.UNKNOWN, f"{node.name} does not answer {impairment.peer}"
        seen = f"{node.name} answers {impairment.peer} after {min(answers) * 1000:.0f} ms"
        return Tristate(int(min(answers) >= SEEN_SHARE * least_s)), seen

    def close(self) -> None:
        """Ends every server that was started here."""
        with self._lock:
            for server in self._servers.values():
                server.stop()
            self._servers.clear()

    def server(self, at: LinkEnd) -> ToxiproxyServer:
        """The server of that end, which may not run yet."""
        if at.name not in self._servers:
            log = self._logs / f"toxiproxy-{at.name}.log"
            self._servers[at.name] = ToxiproxyServer(at, log=log, clock=self._clock, record_pids=self._record_pids)
        return self._servers[at.name]

    def _is_ours(self, server: ToxiproxyServer, routes: Sequence[ProxiedRoute], impairment: Latency) -> bool:
        wanted = _attributes(impairment)

        def all_ours(api: "Toxiproxy") -> bool:
            proxies = api.proxies()
            return all(route.name in proxies and _toxics(proxies[route.name]) == wanted for route in routes)

        return server.ask(all_ours)

    def others_to(self, end: LinkEnd) -> bool:
        """Does anybody else's redirect still need the node's rule for what comes back?"""
        routes = (
            route
            for opener in self._links.besides(end.name)
            for route in routes_of(opener, end)
            if route.back is not None
        )
        return any(is_redirected(route.at, route.redirect) for route in routes)

    def _answer_s(self, opener: LinkEnd, end: LinkEnd, timeout_s: float) -> float | None:
        def ask() -> float | None:
            begun_ns = self._clock.monotonic_ns()
            with suppress(OSError), socket.create_connection((end.address, end.ports[0]), timeout_s) as connection:
                connection.sendall(end.question)
                if connection.recv(1):
                    return (self._clock.monotonic_ns() - begun_ns) / NS_PER_S
            return None

        return opener.network.call(ask)

    def lead(self, end: LinkEnd, rule: Sequence[str], *, how: str = "-A") -> None:
        """Puts the rule there once: behind all others, or with `-I` before them. HarnessFailed if that is refused."""
        if not is_redirected(end, rule):
            change_redirect(end, how, rule)


def routes_of(opener: LinkEnd, end: LinkEnd) -> list[ProxiedRoute]:
    """Returns the routes to a node, one for each port on which it serves. Empty if it serves on none."""
    return [_at_opener(opener, end, port) if opener.has_rules else _at_node(opener, end, port) for port in end.ports]


def _at_opener(opener: LinkEnd, end: LinkEnd, port: int) -> ProxiedRoute:
    here = f"127.0.0.1:{listen_port(LISTEN_FIRST, end, end.ports.index(port))}"
    to, back = ["-d", end.address, "-p", "tcp", "--dport", str(port)], str(port + BACK_PORT_OFFSET)
    return ProxiedRoute(
        at=opener,
        name=f"{end.name}-{port}",
        listen=here,
        upstream=f"{end.address}:{back}",
        redirect=("OUTPUT", *to, "-j", "DNAT", "--to-destination", here),
        back=("PREROUTING", *to[:-1], back, "-j", "DNAT", "--to-destination", f"{end.address}:{port}"),
    )


def _at_node(opener: LinkEnd, end: LinkEnd, port: int) -> ProxiedRoute:
    """The route for an opener whose network takes no rules: the proxy is at the node.

    What the proxy opens there is not led back to it, since it never comes by PREROUTING."""
    here = f"{end.address}:{listen_port(LISTEN_FIRST, opener, end.ports.index(port))}"
    between = ["-s", opener.address, "-d", end.address, "-p", "tcp", "--dport", str(port)]
    return ProxiedRoute(
        at=end,
        name=f"{opener.name}-to-{port}",
        listen=here,
        upstream=f"{end.address}:{port}",
        redirect=("PREROUTING", *between, "-j", "DNAT", "--to-destination", here),
        back=None,
    )


def _attributes(impairment: Latency) -> dict[str, dict[str, int]]:
    """Stream → the attributes of its toxic."""
    return {
        stream: {"latency": round(late_ms), "jitter": round(jitter_ms)}
        for stream, (late_ms, jitter_ms) in impairment.streams.items()
    }


def _toxics(proxy: object) -> dict[str, dict[str, int]]:
    return {toxic.stream: dict(toxic.attributes) for toxic in proxy.toxics().values()}  # type: ignore[attr-defined]


def _proxy(api: "Toxiproxy", *, route: ProxiedRoute, impairment: Latency) -> None:
    """Makes a proxy with its toxics. Safe to repeat. They are looked at afterwards, since the package ignores some
    answers."""
    name, wanted = route.name, _attributes(impairment)
    proxy = api.get_proxy(name)
    if proxy is None:
        proxy = api.create(upstream=route.upstream, name=name, listen=route.listen)
    elif _toxics(proxy) not in ({}, wanted):
        raise ValueError(f"{name} is late already, by {_toxics(proxy)}")
    for stream, attributes in wanted.items():
        if stream not in _toxics(proxy):
            proxy.add_toxic(name=f"late-{stream}", type="latency", stream=stream, attributes=attributes)
    if _toxics(proxy) != wanted:
        raise ValueError(f"{name} has the toxics {_toxics(proxy)}")


def destroy_proxies(api: "Toxiproxy", names: Sequence[str]) -> None:
    """Removes proxies, and with them every connection through them. ValueError if one stays."""
    for proxy in _existing(api, names):
        proxy.destroy()  # type: ignore[attr-defined]
    if left := list(_existing(api, names)):
        raise ValueError(f"{len(left)} proxies are still there")


def _existing(api: "Toxiproxy", names: Sequence[str]) -> Iterator[object]:
    return (proxy for name, proxy in api.proxies().items() if name in names)


# Connections that are open become late, while those that are made from then on are not: as when a long-lived flow is
# rerouted over a bad path, or a machine on its way stands still.
#
# A proxy is put between, as for latency, and connections are made again, through
# it. Then new ones are spared the redirect, so that whatever is opened from now on goes straight to the node, and only
# then are the proxied ones made late. Therefore a request can overtake one that was sent before it, on another connection:
# what TCP never does on one.


REOPENED_TIMEOUT_S = 10.0
"""How long clients may take to open connections again that were reset."""
AT_WORK_S = 1.5
"""How long connections are used before they become late: a new one begins with a question of its own."""
ANSWER_TIMEOUT_S = 10.0
STREAMS = ("downstream", "upstream")


class LateLinks:
    """Makes open connections late for a while, and new ones not. It returns when the while is over and nothing is left."""

    def __init__(self, links: Links, delays: DelayConnections, clock: Clock) -> None:
        self._links, self._delays, self._clock = links, delays, clock

    def harm(self, node: Node, harm: DelayOpen) -> str:
        """Makes the open connections late. HarnessFailed if nobody had a connection, another latency is on the link, or
        nothing was late."""
        end, opener = self._links[node.name], self._links[harm.peer]
        before = len(self._open(opener, end))
        if not before:
            raise HarnessFailed(f"{harm.peer} has no open connection to {node.name} that could be late.")
        routes = routes_of(opener, end)
        server = self._delays.server(routes[0].at)
        server.start()
        names = [route.name for route in routes]
        if taken := set(names) & set(server.ask(lambda api: list(api.proxies()))):
            raise HarnessFailed(f"{min(taken)} is late already.")
        try:
            return self._make_late(end, opener, routes, harm, before)
        finally:
            for route in routes:
                lead_no_more(route.at, route.redirect)
                lead_no_more(route.at, route.straight_on)
            server.ask(lambda api: destroy_proxies(api, names))
            if not self._delays.others_to(end):
                for route in routes:
                    if route.back is not None:
                        lead_no_more(end, route.back)

    def _make_late(
        self, end: LinkEnd, opener: LinkEnd, routes: Sequence[ProxiedRoute], harm: DelayOpen, before: int
    ) -> str:
        ask = self._delays.server(routes[0].at).ask
        for route in routes:
            ask(partial(_make_proxy, route=route))
            if route.back is not None:
                self._delays.lead(end, route.back)
            self._delays.lead(route.at, route.redirect)
        destroy(opener, end, to_ports=end.ports)
        probe = opener.network.call(lambda: socket.create_connection((end.address, end.ports[0]), ANSWER_TIMEOUT_S))
        with probe:
            reopened = self._await_reopened(opener, end, before)
            for route in routes:
                self._delays.lead(route.at, route.straight_on, how="-I")
            for route in routes:
                ask(partial(_delay, route=route, latency_ms=harm.latency_ms))
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
        """Waits until there are as many connections as before, or no more come, and returns how many there are."""
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
        """Returns the connections that the opener made to the node's own ports."""
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


def _make_proxy(api: "Toxiproxy", *, route: ProxiedRoute) -> None:
    api.create(upstream=route.upstream, name=route.name, listen=route.listen)


def _delay(api: "Toxiproxy", *, route: ProxiedRoute, latency_ms: int) -> None:
    """Delays what passes on a proxy's connections, those that are open included."""
    proxy = api.get_proxy(route.name)
    for stream in STREAMS:
        attributes = {"latency": latency_ms, "jitter": 0}
        proxy.add_toxic(name=f"late-{stream}", type="latency", stream=stream, attributes=attributes)
