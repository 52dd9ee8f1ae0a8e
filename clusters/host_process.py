"""The process `python -m clusters.host` in its sandbox, and the conversation with it."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from pathlib import Path
from typing import Any

from clusters.agent import ensure_agent
from clusters.archives import build_archives
from clusters.control import FACTS_ID, encode, error_from_json
from clusters.jars import ensure_jars
from clusters.java import find_java
from clusters.orphans import sweep_pids
from clusters.placements import first_port, free_ports
from clusters.properties import BROKER, node_roles
from clusters.sandbox import enter_command
from harness.errors import ClusterFailed, HarnessFailed, NotReady
from harness.plan import Plan
from harness.run_directory import RunDirectory

HOST_START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
_TAIL_BYTES = 2000


class HostProcess:
    """`python -m clusters.host` in its sandbox, and the conversation with it."""

    def __init__(self, plan: Plan, run: RunDirectory) -> None:
        self._run = run
        run.create()
        run.plan.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
        for version in plan.variant.kafka_versions:
            jars = ensure_jars(version)  # here, since the sandbox has no way out
            build_archives(version, find_java(), jars)
        if plan.metrics:
            with suppress(HarnessFailed):  # without it the cluster runs all the same, and says what it lacks
                ensure_agent()
        brokers = [node_id for node_id, roles in node_roles(plan.variant).items() if BROKER in roles]
        listeners = listen(brokers)
        self.relay_ports = {broker: listener.getsockname()[1] for broker, listener in listeners.items()}
        self._pending: dict[int, Future[Any]] = {FACTS_ID: Future()}
        self._lock = threading.Lock()
        self._numbers = FACTS_ID
        self._control, theirs = socket.socketpair()
        try:
            self._process = self._start(theirs, listeners)
        finally:
            theirs.close()
            for listener in listeners.values():
                listener.close()  # the relay's alone: when it is gone, callers are refused
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="cluster host", daemon=True)
        self._reader.start()
        try:
            self.facts: Mapping[str, Any] = self._result(FACTS_ID, "its facts", HOST_START_TIMEOUT_S)
        except BaseException:
            self.end()
            raise

    def _start(self, theirs: socket.socket, listeners: Mapping[int, socket.socket]) -> subprocess.Popen[bytes]:
        parent = os.pidfd_open(os.getpid())
        try:
            arguments = ["--control", str(theirs.fileno()), "--parent", str(parent)]
            arguments += ["--plan", str(self._run.plan), "--run", str(self._run.path)]
            for broker, listener in listeners.items():
                arguments += ["--relay", f"{broker}:{listener.fileno()}"]
            inherited = [theirs.fileno(), parent, *(listener.fileno() for listener in listeners.values())]
            paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
            with (self._run.logs / "host.log").open("ab") as log:
                return subprocess.Popen(
                    enter_command([sys.executable, "-P", "-m", "clusters.host", *arguments]),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=inherited,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                    start_new_session=True,
                )
        finally:
            os.close(parent)

    def call(self, node: str | None, method: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Any:  # noqa: ANN401
        """The result; what the host raised is raised. NotReady if it does not answer in time."""
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._pending[number] = Future()
            request = {"id": number, "node": node, "method": method, "arguments": dict(arguments)}
            try:
                self._control.sendall(encode(request))
            except OSError as error:
                del self._pending[number]
                raise self._gone() from error
        return self._result(number, f"{method} of {node or 'the cluster'}", timeout_s)

    def _result(self, number: int, awaited: str, timeout_s: float) -> Any:  # noqa: ANN401
        try:
            return self._pending[number].result(timeout_s)
        except FutureTimeout as error:
            raise NotReady(
                awaited=f"the cluster's host to answer: {awaited}", timeout_s=timeout_s, last_seen=self._tail()
            ) from error
        finally:
            with self._lock:
                self._pending.pop(number, None)

    def _read(self) -> None:
        with self._control.makefile("rb") as lines:
            try:
                for line in lines:
                    self._resolve(json.loads(line))
            except (OSError, ValueError):
                pass  # the end of the conversation, as below
        self._process.wait()
        with self._lock:
            pending, self._pending = self._pending, {}
        for future in pending.values():
            future.set_exception(self._gone())
        sweep_pids(self._run)  # without a pid namespace the host's sudden death leaves servers

    def _resolve(self, message: dict[str, Any]) -> None:
        with self._lock:
            future = self._pending.get(message["id"])
        if future is None:
            return  # given up on
        if "error" in message:
            future.set_exception(error_from_json(message["error"]))
        else:
            future.set_result(message["result"])

    def _gone(self) -> HarnessFailed:
        return ClusterFailed(f"The cluster's host process has ended (exit {self._process.poll()}): {self._tail()}")

    def _tail(self) -> str:
        try:
            return (self._run.logs / "host.log").read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError:
            return "(no log)"

    def end(self) -> None:
        """No more requests: the host tears down and ends; killed if it does not."""
        with suppress(OSError):  # it may have ended first
            self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # unshare's --kill-child takes pid 1 with it, and that everything else
            self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        self._control.close()


def listen(brokers: Sequence[int]) -> dict[int, socket.socket]:
    """One listening socket on 127.0.0.1 per broker."""
    listeners = {}
    for broker, port in zip(brokers, free_ports(["127.0.0.1"], len(brokers), first=first_port()), strict=True):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        listeners[broker] = listener
    return listeners
