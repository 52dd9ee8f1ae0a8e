"""The process that client processes are forked from: everything is imported once, so that 28 of them start in a second.

Like multiprocessing's forkserver, and for its reason: librdkafka's threads do not survive a fork
(confluent-kafka-python#172), so clients must be created after it, in a child of a process that has no thread. Unlike it, it
and all its children end with whoever started it: it ends at the end of its pipe, and its children with it (PR_SET_PDEATHSIG).

Its pipe is a SOCK_SEQPACKET socket. In: {"clients", "logs", "log"} with the clients' ends of their control pipes
(SCM_RIGHTS): one client, or several that share a process; `log` is the process's. Out: {"started": pid, "clients"} and
{"exited": pid, "status"}.
"""

import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import catalogue
from workloads.client import Client, ClientExit, run_client
from workloads.company import run_company

ROLES: dict[str, Callable[[Client], Any]] = {
    role: catalogue.resolve(catalogue.ROLES, role, what="role") for role in catalogue.ROLES
}
"""Imported here, once, for every client."""
MESSAGE_BYTES_MAX = 64 * 1024
DESCRIPTORS_MAX = 64
"""Of one message; the kernel allows 253. [unix(7)]"""
ORPHANS_LIMIT_S = 5.0
_PR_SET_PDEATHSIG = 1
_GC_THRESHOLD = 100_000


def serve(connection: socket.socket) -> None:
    """Fork what is asked for until the pipe ends; then end the children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the outer process alone handles Ctrl-C
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    gc.freeze()
    children: set[int] = set()
    while True:
        readable, _, _ = select.select([connection.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            for pid, status in _reaped(children):
                connection.sendall(json.dumps({"exited": pid, "status": status}).encode())
        if connection.fileno() in readable:
            message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
            if not message:
                return _end(children)
            request = json.loads(message)
            pid = os.fork()
            if pid == 0:
                _become_clients(connection, (wake_read, wake_write), descriptors, request)
            for descriptor in descriptors:
                os.close(descriptor)
            children.add(pid)
            connection.sendall(json.dumps({"started": pid, "clients": request["clients"]}).encode())


def _reaped(children: set[int]) -> list[tuple[int, int]]:
    ended = []
    for pid in tuple(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            children.discard(pid)
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    return ended


def _end(children: set[int]) -> None:
    """Their control pipes are at their end too: wait for them to notice, then kill what is left (a paused one, say)."""
    deadline = time.monotonic() + ORPHANS_LIMIT_S
    while children and time.monotonic() < deadline:
        _reaped(children)
        select.select([], [], [], 0.02)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_clients(
    connection: socket.socket, pipes: tuple[int, int], controls: Sequence[int], request: dict[str, Any]
) -> None:
    """In the child: let go of what is the zygote's, and be the client, or the clients. Never returns."""
    code: int = ClientExit.CRASHED
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pipe in pipes:
            os.close(pipe)
        connection.close()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        # A core of a client is of no use, and its rows are mapped: it could be large.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        gc.set_threshold(_GC_THRESHOLD)
        sockets = [socket.socket(fileno=control) for control in controls]
        if len(sockets) == 1:
            code = run_client(sockets[0], ROLES, time.monotonic_ns)
        else:
            code = run_company(sockets, [Path(log) for log in request["logs"]], ROLES, time.monotonic_ns)
    except BaseException:  # noqa: BLE001 - a child must never return into the zygote's loop
        traceback.print_exc()
    finally:
        # No destructors: librdkafka's would wait for brokers that may be gone. Everything recorded is in mapped files.
        os._exit(code)


def main() -> None:
    """`python -m workloads.zygote DESCRIPTOR`."""
    assert Path(f"/proc/self/fd/{sys.argv[1]}").exists(), sys.argv
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
