"""`python -m clusters.host`: runs a LocalCluster inside the sandbox for a caller outside (`clusters.hosted`).

Serves requests (`clusters.control`) from an inherited socket, each in a thread, so that a wait does not hold up a fault.
The end of the caller, told by the end of the socket or by a pidfd (which does not depend on who else inherited the
socket), is the end of the cluster: it is torn down, and this process ends. As it is pid 1 of its pid namespace, whatever
should be left then dies with it.
"""

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

from clusters.control import CLUSTER_METHODS, FACTS_ID, NODE_METHODS, encode, error_to_json
from clusters.local import LocalCluster
from clusters.orphans import PIDS_NAME, recording_command
from clusters.relay import Route, relay_command
from harness.clock import SystemClock
from harness.impairments import HARM, IMPAIRMENT
from harness.plan import parse_plan
from harness.run_directory import RunDirectory

THREADS = 16
TEARDOWN_TIMEOUT_S = 20.0
"""After the caller's end; then this process ends in any case."""


class Host:
    """One cluster and the socket over which it is asked for."""

    def __init__(self, control: socket.socket, cluster: LocalCluster) -> None:
        self._control, self._cluster = control, cluster
        self._send_lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Answer; nobody is there any more = nobody is told."""
        with self._send_lock:
            try:
                self._control.sendall(encode(message))
            except OSError as error:
                print(f"cannot answer: {error}", file=sys.stderr)  # noqa: T201 - the host's log

    def facts(self) -> dict[str, Any]:
        """What does not change while the host lives."""
        cluster = self._cluster
        return {
            "isolation": cluster.isolation,
            "capabilities": dict(cluster.capabilities),
            "lacks": dict(cluster.lacks),
            "bootstrap_servers": cluster.bootstrap_servers,
            "observer_servers": [[i, *server] for i, server in cluster.observer_servers.items()],
            "controller_servers": [[i, *server] for i, server in cluster.controller_servers.items()],
            "nodes": {
                node.name: {"address": node.address, "data_directory": str(node.data_directory)}
                for node in cluster.nodes
            },
        }

    def answer(self, request: dict[str, Any]) -> None:
        """Carry out one request and answer it, whatever comes of it."""
        try:
            self.send({"id": request["id"], "result": self._call(request)})
        except Exception as error:  # noqa: BLE001 - raised again at the caller
            self.send({"id": request["id"], "error": error_to_json(error)})

    def _call(self, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        method, arguments = request["method"], dict(request["arguments"])
        if request["node"] is None:
            assert method in CLUSTER_METHODS, method
            if "into" in arguments:
                arguments["into"] = Path(arguments["into"])
            return getattr(self._cluster, method)(**arguments)
        assert method in NODE_METHODS, method
        nodes = {node.name: node for node in self._cluster.nodes}
        if "source" in arguments:
            arguments["source"] = nodes[arguments["source"]]
        if "impairment" in arguments:
            arguments["impairment"] = IMPAIRMENT.validate_python(arguments["impairment"])
        if "harm" in arguments:
            arguments["harm"] = HARM.validate_python(arguments["harm"])
        found = getattr(nodes[request["node"]], method)
        value = found(**arguments) if callable(found) else found
        return value.value if isinstance(value, Enum) else value

    def serve(self, parent: int | None) -> None:
        """Until the caller ends."""
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
        waiting = select.poll()
        waiting.register(self._control, select.POLLIN | select.POLLHUP)
        if parent is not None:
            waiting.register(parent, select.POLLIN)  # readable = that process has ended: pidfd_open(2)
        received = b""
        while True:
            ready = [descriptor for descriptor, _ in waiting.poll()]
            if parent in ready:
                return
            try:
                data = self._control.recv(65536)
            except ConnectionResetError:
                return
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                pool.submit(self.answer, json.loads(line))


def main(argv: list[str] | None = None) -> None:
    """Build, say the facts, serve, tear down, end."""
    options = _parse(argv)
    control = socket.socket(fileno=options.control)
    listeners = {int(broker): socket.socket(fileno=int(fd)) for broker, fd in (r.split(":") for r in options.relay)}
    for number in (signal.SIGTERM, signal.SIGINT):  # pid 1 of a namespace ignores what it does not handle
        signal.signal(number, lambda *_: control.shutdown(socket.SHUT_RD))
    try:
        plan = parse_plan(options.plan.read_text(encoding="utf-8"), source=str(options.plan))
        ports = {broker: listener.getsockname()[1] for broker, listener in listeners.items()}
        run = RunDirectory(options.run)
        cluster = LocalCluster(plan, run, clock=SystemClock(), relay_ports=ports)
    except Exception as error:  # noqa: BLE001 - raised again at the caller
        control.sendall(encode({"id": FACTS_ID, "error": error_to_json(error)}))
        return
    host = Host(control, cluster)
    relay = start_relay(cluster, listeners, run)
    try:
        host.send({"id": FACTS_ID, "result": host.facts()})
        host.serve(options.parent)
    finally:
        _end_in_any_case()
        try:
            cluster.teardown()
        finally:
            if relay is not None:
                relay.kill()
                relay.wait()


def start_relay(
    cluster: LocalCluster, listeners: Mapping[int, socket.socket], run: RunDirectory
) -> subprocess.Popen[bytes] | None:
    """A process of its own, so that what it carries does not wait for our threads. The listeners are then its alone."""
    if not listeners:
        return None
    routes = [
        Route(listeners[broker].fileno(), address, port, cluster.relay_address)
        for broker, (address, port) in cluster.client_servers.items()
    ]
    command = relay_command(routes)
    if cluster.isolation != "namespaces":
        command = recording_command(command, name="relay", into=run.path / PIDS_NAME)
    relay = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[route.listener for route in routes])
    for listener in listeners.values():
        listener.close()
    return relay


def _end_in_any_case() -> None:
    watchdog = threading.Timer(TEARDOWN_TIMEOUT_S, os._exit, args=(1,))
    watchdog.daemon = True
    watchdog.start()


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="clusters.host")
    parser.add_argument("--control", type=int, required=True, help="inherited socket")
    parser.add_argument("--parent", type=int, help="inherited pidfd of the caller")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--relay", action="append", default=[], help="BROKER:LISTENING_SOCKET")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # threads that still wait for a dead broker do not hold up the end
