"""Processes by identity: a pid together with its start time, so that a reused pid is never taken for the old process.

Reads /proc alone and imports little: the supervisor starts with it. A zombie counts as gone: it holds nothing.
"""

import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, and no later one with the same pid. `start_time` is in clock ticks since boot, field 22 of
    /proc/PID/stat (proc(5)), and is the same in every pid namespace."""

    pid: int
    start_time: int


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Describes what /proc says about one process."""

    identity: ProcessIdentity
    state: str
    """R, S, D, T (stopped by a signal), Z (zombie), … as in proc(5)."""
    group: int
    session: int
    name: str = ""
    """The name of the process or thread, its first 15 bytes."""


def process_status(pid: int) -> ProcessStatus | None:
    """Returns the status of the process with that pid. None if there is none, or only its zombie."""
    try:
        status = parse_stat((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return None if status.state in "ZX" else status


def parse_stat(text: str) -> ProcessStatus:
    """Returns what the text of a /proc/PID/stat says. ValueError or IndexError if it is no such text."""
    # The second field is the name in parentheses, which may itself hold spaces and parentheses.
    pid, fields = int(text[: text.index(" ")]), text[text.rindex(")") + 2 :].split()
    name = text[text.index("(") + 1 : text.rindex(")")]
    return ProcessStatus(ProcessIdentity(pid, int(fields[19])), fields[0], int(fields[2]), int(fields[3]), name)


SHUTTING_DOWN = "SIGTERM handler"
"""The thread that a JVM has from a SIGTERM on until its shutdown hooks are done. [jdk.internal.misc.Signal.dispatch]"""


def is_shutting_down(pid: int) -> bool:
    """Returns whether the JVM with that pid is shutting down over a SIGTERM, whoever sent it. False if nobody may look."""
    with suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):  # it has ended meanwhile
                if (thread / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n") == SHUTTING_DOWN:
                    return True
    return False


def boot_id() -> str:
    """Returns the id of this boot of the machine. Start times of different boots cannot be compared (random(4))."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> ProcessIdentity | None:
    """Returns which process has that pid now. None: no process has it."""
    status = process_status(pid)
    return status.identity if status else None


def is_running(identity: ProcessIdentity) -> bool:
    """Returns whether exactly this process is still there. A process that a signal stopped counts as there."""
    return identify(identity.pid) == identity


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Sends a signal to exactly this process, never to a later one with the same pid. False if the process is gone.
    PermissionError passes."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor holds the process that has the pid now; after this look it cannot become another one.
        if not is_running(identity):
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
            return True
        return False
    finally:
        os.close(descriptor)


def all_processes() -> Iterable[ProcessStatus]:
    """Yields every process that is visible here."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (status := process_status(int(entry.name))) is not None:
            yield status


def argument_lists() -> Iterable[tuple[int, Sequence[str]]]:
    """Yields pid and arguments of every process that is visible here and has not ended."""
    for status in all_processes():
        with suppress(OSError):
            command = (_PROC / str(status.identity.pid) / "cmdline").read_bytes()
            yield status.identity.pid, command.decode(errors="replace").rstrip("\0").split("\0")


def session_members(session: int) -> list[ProcessStatus]:
    """Returns every process of that session. The kernel does not reuse a pid while it names a session with members."""
    return [status for status in all_processes() if status.session == session]


def pid_namespace(pid: int | str = "self") -> int | None:
    """Returns the inode of a process's pid namespace. None if the process is gone or not ours to look at."""
    try:
        return (_PROC / str(pid) / "ns" / "pid").stat().st_ino
    except OSError:
        return None


def namespace_init(*, inode: int, start_time: int) -> ProcessIdentity | None:
    """Returns the first process of a pid namespace, seen from outside, if it lives. Inodes are reused, so the start time
    is compared as well."""
    for status in all_processes():
        identity = status.identity
        if identity.start_time == start_time and pid_namespace(identity.pid) == inode and _is_init(identity.pid):
            return identity
    return None


def _is_init(pid: int) -> bool:
    with suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[-1] == "1"
    return False
