"""Puts the message proxy into the links of a cluster, before any connection is made, and gives it its rules.

    opener P                                                  node N
    Kafka -> N:9092  =DNAT=>  127.0.0.1:2xxxx proxy =mark=> N:9092

Where the proxy opens connections itself, its mark (SO_MARK) lets them pass the rule that leads all others to it. Therefore
whatever else is done to the link (a cut, loss, latency by toxiproxy) holds for what is proxied, too. One process carries
all links of a run, so that messages of different links are counted, held and released together. It opens its connections
in the opener's network namespace: the node sees them come from there.

An opener in whose network no rule may be made (clients on a host that is not ours) has its connections led there on arrival.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prozess.clusters.links.links import (
    FOUR_LETTERS,
    LinkEnd,
    Links,
    change_redirect,
    destroy,
    lead_no_more,
    listen_port,
)
from prozess.clusters.machine.processes import recording_command
from prozess.clusters.messages.connections import MARK
from prozess.harness.clock import Clock
from prozess.harness.config.impairments import MessageRule
from prozess.harness.config.messages.facts import WantedMessage
from prozess.harness.errors import HarnessFailed, NotReady
from prozess.harness.interfaces import Node
from prozess.harness.schema import Tristate

LISTEN_FIRST = 24_000
REPLY_TIMEOUT_S = 10.0
END_TIMEOUT_S = 5.0
BACKLOG = 512


@dataclass(frozen=True, slots=True)
class MessageRoute:
    """The way of connections to one port of a node through the proxy."""

    at: LinkEnd
    """The end in whose network the proxy listens, and the rule that leads there."""
    opener: str
    node: str
    listen: tuple[str, int]
    upstream: tuple[str, int]
    redirect: tuple[str, ...]


def routes_of(opener: LinkEnd, end: LinkEnd) -> list[MessageRoute]:
    """Returns the routes to a node, one for each port on which it takes Kafka's requests."""
    if end.question == FOUR_LETTERS:
        return []
    return [_route(opener, end, index) for index in range(len(end.ports))]


def _route(opener: LinkEnd, end: LinkEnd, index: int) -> MessageRoute:
    port, to = end.ports[index], ["-d", end.address, "-p", "tcp", "--dport", str(end.ports[index])]
    marked = ["-m", "mark", "!", "--mark", f"{MARK:#x}"]
    if opener.has_rules:
        at, chain, host, listen = opener, "OUTPUT", "127.0.0.1", listen_port(LISTEN_FIRST, end, index)
    else:
        at, chain, host, listen = end, "PREROUTING", end.address, listen_port(LISTEN_FIRST, opener, index)
        to, marked = ["-s", opener.address, *to], []  # what the proxy opens there never comes by PREROUTING
    redirect = (chain, *to, *marked, "-j", "DNAT", "--to-destination", f"{host}:{listen}")
    return MessageRoute(at, opener.name, end.name, (host, listen), (end.address, port), redirect)


@dataclass(frozen=True, slots=True)
class Carried:
    """A listening socket, whose connections come to it, and where they go on to. `network`: a descriptor of the network
    namespace from which that is called; None means the proxy's own."""

    opener: str
    node: str
    listener: socket.socket
    upstream: tuple[str, int]
    network: int | None = None


class MessageProxies:
    """The message proxy of a run: it is placed once, is given rules, and reports what it did. Any thread may use it."""

    def __init__(self, links: Links | None, *, log: Path, clock: Clock, record_pids: Path | None = None) -> None:
        """`links` None: of links nothing can be changed, and `relay` is used instead of
        `install`. `record_pids`: the file that names the process before it runs; None where it ends with the sandbox."""
        self._links, self._log, self._clock, self._record_pids = links, log, clock, record_pids
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock, self._replied = threading.Lock(), threading.Condition()
        self._replies: dict[int, Mapping[str, Any]] = {}
        self._asked = 0
        self._ended = False
        self.on_message: Callable[[Mapping[str, Any]], None] = lambda entry: None
        """What is called with each entry of the proxy's journal, in a thread of its own."""

    def install(self, openers: Collection[str] | None) -> None:
        """Starts the proxy, and leads the connections of these openers to it; None means those of everybody.

        Connections that are open already are reset, so that they are made again. HarnessFailed if a rule is refused."""
        assert self._links is not None, "without links there is nowhere to place it"
        links = self._links
        ends = list(links.values())
        routes = [
            route
            for opener in ends
            if openers is None or opener.name in openers
            for end in links.besides(opener.name)
            for route in routes_of(opener, end)
        ]
        listeners, networks = [], dict[str, int]()
        try:
            listeners = [route.at.network.call(partial(_listener, route.listen)) for route in routes]
            networks = {route.at.name: route.at.network.call(_own_network) for route in routes}
            carried = [
                Carried(route.opener, route.node, listener, route.upstream, networks[route.at.name])
                for route, listener in zip(routes, listeners, strict=True)
            ]
            self._start(carried, list(networks.values()))
        finally:
            for listener in listeners:
                listener.close()
            for descriptor in networks.values():
                os.close(descriptor)
        for route in routes:
            change_redirect(route.at, "-I", route.redirect)
        for route in routes:
            if route.at.name == route.opener:
                destroy(route.at, links[route.node], to_ports=[route.upstream[1]])

    def relay(self, carried: Sequence["Carried"]) -> None:
        """Starts the proxy between callers of these sockets and servers, where the sockets are reached anyway."""
        self._start(carried, [])

    def _start(self, carried: Sequence["Carried"], networks: Sequence[int]) -> None:
        listeners = [
            {
                "fd": one.listener.fileno(),
                "opener": one.opener,
                "server": one.node,
                "host": one.upstream[0],
                "port": one.upstream[1],
                "network": one.network,
            }
            for one in carried
        ]
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-P",
            "-m",
            "prozess.clusters.messages.proxy",
            str(theirs.fileno()),
            json.dumps(listeners),
        ]
        if self._record_pids is not None:
            command = recording_command(command, name="message proxy", into=self._record_pids)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno(), *(one.listener.fileno() for one in carried), *networks],
                start_new_session=True,
            )
        self._control, self._ended = ours, False
        threading.Thread(target=self._hear, args=(ours,), name="message proxy", daemon=True).start()

    @property
    def placed(self) -> bool:
        """Says whether the proxy was placed by this process."""
        return self._process is not None

    def arm(
        self,
        rule: str,
        wanted: WantedMessage,
        action: Mapping[str, object],
        *,
        link: tuple[str, str] | None,
        until: WantedMessage | None = None,
    ) -> None:
        """Arms a rule for one more link (opener, server), or with None for every link."""
        self.ask(
            "arm",
            rule=rule,
            wanted=_as_document(wanted),
            action=dict(action),
            link=link,
            until=until and _as_document(until),
        )

    def disarm(self, rule: str, *, link: tuple[str, str] | None, deliver: bool) -> None:
        """Disarms a rule for a link, or altogether."""
        self.ask("disarm", rule=rule, link=link, deliver=deliver)

    def look(self, rule: str) -> Mapping[str, Any]:
        """Returns what the proxy says of a rule: whether it is `armed`, and how many messages it `matched` and so on."""
        return self.ask("look", rule=rule)

    def ask(self, do: str, **given: object) -> Mapping[str, Any]:
        """Gives the proxy a command, and returns its answer. HarnessFailed if it does not run or does not answer."""
        with self._lock:
            if self._control is None or self._ended:
                raise HarnessFailed("The message proxy does not run; its log is message-proxy.log in the run's logs.")
            self._asked += 1
            number = self._asked
            assert number not in self._replies, f"command {number} was answered before it was given"
            line = json.dumps({"id": number, "do": do, **given}).encode() + b"\n"
            try:
                self._control.sendall(line)
            except OSError as error:
                raise HarnessFailed(f"The message proxy has ended: {error}.") from error
        with self._replied:
            self._replied.wait_for(lambda: number in self._replies or self._ended, REPLY_TIMEOUT_S)
            reply = self._replies.pop(number, None)
        if reply is None and self._ended:
            raise HarnessFailed("The message proxy has ended; its log is message-proxy.log in the run's logs.")
        if reply is None:
            raise NotReady(awaited=f"the message proxy to {do}", timeout_s=REPLY_TIMEOUT_S, last_seen="no answer")
        return reply

    def _hear(self, control: socket.socket) -> None:
        with suppress(OSError), control.makefile("rb") as lines:
            for line in lines:
                entry = json.loads(line)
                if entry["kind"] == "reply":
                    with self._replied:
                        self._replies[entry["id"]] = entry
                        self._replied.notify_all()
                else:
                    self.on_message(entry)
        with self._replied:
            self._ended = True
            self._replied.notify_all()

    def lead_no_more(self, opener: LinkEnd, end: LinkEnd) -> None:
        """Takes the rules of a link away, which another process made. Safe where there are none."""
        for route in routes_of(opener, end):
            lead_no_more(route.at, route.redirect)

    def close(self) -> None:
        """Ends the proxy and every connection through it. Safe to repeat."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            with suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)
            control.close()
        if process is not None:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class AlteredMessages:
    """Does to messages what a rule says, on the links of one node with one peer."""

    def __init__(self, links: Links | None, proxies: MessageProxies) -> None:
        """`links` as for `MessageProxies`."""
        self._links, self._proxies = links, proxies

    def impair(self, node: Node, impairment: MessageRule) -> None:
        """Arms the rule. HarnessFailed if no proxy was placed before the cluster started."""
        until = impairment.until
        self._proxies.arm(
            impairment.rule,
            impairment.meant.wanted,
            impairment.for_proxy,
            link=(impairment.peer, node.name),
            until=until.wanted if until is not None else None,
        )

    def repair(self, node: Node, impairment: MessageRule) -> None:
        """Disarms the rule. Messages that wait go on, or are dropped, as it says."""
        if self._proxies.placed:
            link = (impairment.peer, node.name)
            self._proxies.disarm(impairment.rule, link=link, deliver=impairment.delivers)
        elif (
            self._links is not None
        ):  # the proxy ended with the process that placed it, and connections are still led to it
            self._proxies.lead_no_more(self._links[impairment.peer], self._links[node.name])

    def impaired(self, node: Node, impairment: MessageRule) -> tuple[Tristate, str]:
        """Says what the proxy's own journal has of the rule: NO until a message was meant."""
        if not self._proxies.placed:
            return Tristate.NO, "no proxy is in the link"
        found = self._proxies.look(impairment.rule)
        if not found["armed"] or [impairment.peer, node.name] not in found["links"]:
            return Tristate.NO, "nothing is done to messages of this link"
        seen = journal_in_words(found["matched"], found["acted"], impairment.did)
        if found["held"]:
            seen += f"; {found['held']:,} {'waits' if found['held'] == 1 else 'wait'}"
        if found["failed"]:
            return Tristate.UNKNOWN if not found["acted"] else Tristate.YES, f"{seen}; {found['failed']}"
        if not found["acted"] and found["unread"]:
            return Tristate.UNKNOWN, f"{seen}; {found['unread']} messages could not be read: their version is not known"
        return Tristate(int(found["acted"] > 0)), seen


def journal_in_words(matched: int, acted: int, did: str) -> str:
    """Says what the journal has: how many messages matched, and to how many of them something was done."""
    if not matched:
        return "no message matched"
    messages = f"{matched:,} {'message' if matched == 1 else 'messages'} matched, and "
    if acted == matched:
        return messages + (f"was {did}" if matched == 1 else f"all were {did}")
    if matched == 1:
        return f"{messages}was not {did}"
    return f"{messages}{acted or 'none'} of them {'was' if acted < 2 else 'were'} {did}"


def _listener(address: tuple[str, int]) -> socket.socket:
    return socket.create_server(address, backlog=BACKLOG)


def _own_network() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _as_document(wanted: WantedMessage) -> dict[str, object]:
    return {
        **asdict(wanted),
        "apis": sorted(wanted.apis),
        "after": None if wanted.after is None else sorted(wanted.after),
        "topic_id": str(wanted.topic_id) if wanted.topic_id is not None else None,
    }
