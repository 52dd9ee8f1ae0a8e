"""The proxy process: it listens where connections are led to it, calls the real servers, and obeys its rules.

    python -m prozess.clusters.messages.proxy CONTROL_FD LISTENERS

LISTENERS is a JSON list: for each listening socket that it inherits, whose connections come and where they go. Over the
control socket it takes one JSON command a line, answers each, and says what it did to messages. When that socket ends, so
does the proxy, and with it every connection that it carries: nothing is left of it when prozess is gone. One thread, one
core.
"""

import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from prozess.clusters.messages.connections import Connection, Link, Poller, Upstream
from prozess.clusters.messages.rules import Rules
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.messages.facts import WantedMessage

NEWS_MAX = 200_000
"""At most this many entries of the journal may wait until they are taken. Others are counted, and lost."""
ACCEPT_MAX = 64


class MessageProxy:
    """The proxy: listeners, connections, rules, and the control socket."""

    def __init__(
        self, control: socket.socket, upstreams: Mapping[int, Upstream], now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`upstreams`: the descriptor of each listening socket → where its connections go."""
        self._control, self._upstreams = control, dict(upstreams)
        self._poller = Poller()
        self._now_ns = now_ns
        self.rules = Rules(now_ns, self._note)
        self._listeners = {fd: socket.socket(fileno=fd) for fd in upstreams}
        self._noted, self._heard = bytearray(), bytearray()
        self._waiting = self._lost = self._refused = 0
        control.setblocking(False)
        for listener in self._listeners.values():
            listener.setblocking(False)
            self._poller.epoll.register(listener, select.EPOLLIN)
        self._control_mask = select.EPOLLIN
        self._poller.epoll.register(control, self._control_mask)

    def run(self) -> None:
        """Works until the control socket ends."""
        while self.turn(self._until_due_s()):
            pass

    def close(self) -> None:
        """Ends every connection, and listens no more."""
        for connection in {id(found[0]): found[0] for found in self._poller.halves.values()}.values():
            connection.reset()
        for listener in self._listeners.values():
            listener.close()
        self._control.close()
        self._poller.epoll.close()

    def _until_due_s(self) -> float:
        """Returns how long the proxy may wait for its sockets; negative: for ever."""
        due_ns = self.rules.next_due_ns()
        return -1.0 if due_ns is None else max(0.0, (due_ns - self._now_ns()) / NS_PER_S)

    def turn(self, timeout_s: float) -> bool:
        """Waits once for sockets, and handles those that have something. Returns whether the control socket is still open."""
        for descriptor, events in self._poller.epoll.poll(timeout_s, 256):
            if descriptor == self._control.fileno():
                if events & select.EPOLLOUT:
                    self._speak()
                if events & ~select.EPOLLOUT and not self._listen():
                    return False
            elif descriptor in self._listeners:
                self._accept(descriptor)
            else:
                self._carry(descriptor, events)
        self.rules.release_due()
        if self._noted:
            self._speak()
        return True

    def _carry(self, descriptor: int, events: int) -> None:
        found = self._poller.halves.get(descriptor)
        if found is None:
            return
        connection, read, written = found
        if events & select.EPOLLOUT:
            connection.writable(written)
        if connection.closed:
            return
        if events & ~select.EPOLLOUT:
            if read.ended:
                connection.hung_up(read)
            else:
                connection.readable(read)

    def _accept(self, descriptor: int) -> None:
        for _ in range(ACCEPT_MAX):
            try:
                client, _ = self._listeners[descriptor].accept()
            except OSError:
                return
            try:
                Connection(client, self._upstreams[descriptor], self.rules, self._poller)
            except OSError:
                self._refused += 1
                client.close()

    # Control

    def _note(self, entry: Mapping[str, Any]) -> None:
        if self._waiting > NEWS_MAX:
            self._lost += 1
            return
        self._waiting += 1
        self._noted += json.dumps(entry).encode() + b"\n"

    def _speak(self) -> None:
        with suppress(BlockingIOError):
            while self._noted:
                sent = self._control.send(self._noted[: 1 << 20])
                self._waiting -= self._noted.count(b"\n", 0, sent)
                del self._noted[:sent]
        mask = select.EPOLLIN | (select.EPOLLOUT if self._noted else 0)
        if mask != self._control_mask:
            self._control_mask = mask
            self._poller.epoll.modify(self._control, mask)

    def _listen(self) -> bool:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._heard += data
        while (end := self._heard.find(b"\n")) >= 0:
            command = json.loads(self._heard[:end])
            del self._heard[: end + 1]
            self._noted += json.dumps({"kind": "reply", "id": command["id"], **self._obey(command)}).encode() + b"\n"
            self._waiting += 1
        return True

    def _obey(self, command: Mapping[str, Any]) -> dict[str, Any]:
        link = Link(*command["link"]) if command.get("link") else None
        match command["do"]:
            case "arm":
                until = command.get("until")
                self.rules.arm(
                    command["rule"], wanted_of(command["wanted"]), command["action"], link, until and wanted_of(until)
                )
            case "disarm":
                self.rules.disarm(command["rule"], link, deliver=command["deliver"])
            case "look":
                return self._look(command["rule"])
        return {}

    def _look(self, name: str) -> dict[str, Any]:
        rule = self.rules.named(name)
        traffic = {"connections": self._poller.opened, "open": len(self._poller.halves) // 2, "lost": self._lost}
        if rule is None:
            return {"armed": False, **traffic}
        links = None if rule.links is None else [[link.opener, link.server] for link in rule.links]
        return {
            "armed": True,
            "links": links,
            "matched": rule.matched,
            "acted": rule.acted,
            "unread": rule.unread,
            "held": len(rule.held),
            "failed": rule.failed,
            **traffic,
        }


def wanted_of(given: Mapping[str, Any]) -> WantedMessage:
    """Reads what `WantedMessage` became as JSON."""
    topic_id, after = given.get("topic_id"), given.get("after")
    resolved = {
        "apis": frozenset(given["apis"]),
        "topic_id": UUID(topic_id) if topic_id else None,
        "after": None if after is None else frozenset(after),
    }
    return WantedMessage(**{**given, **resolved})


def main(arguments: list[str]) -> int:
    """Runs a proxy until its control socket ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[0]))
    upstreams = {
        one["fd"]: Upstream(Link(one["opener"], one["server"]), one["host"], one["port"], one["network"])
        for one in json.loads(arguments[1])
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    proxy = MessageProxy(control, upstreams)
    os.set_inheritable(int(arguments[0]), False)
    proxy.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
