"""Healing what an older run left: `prozess heal`, and the supervisor after a SIGKILL.

A run in namespaces leaves nothing: the kernel ends every process of its pid namespace with the first one
(pid_namespaces(7)), and with them go the network namespaces and each rule in them. Here that is seen to be so. Without
namespaces the backend writes down each process it starts (`pids.jsonl`), and exactly those are ended. What a run made in a
Docker engine carries its label, and is removed.
A cluster that outlives the run is reached again, and every open undo carried out (`nemesis.lasting`).
"""

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.clock import Clock, wait_until
from harness.errors import BadInput, NotReady
from harness.processes import (
    ProcessIdentity,
    boot_id,
    identify,
    is_running,
    namespace_init,
    parse_stat,
    pid_namespace,
    process_status,
    send_signal,
)
from harness.run_directory import RunDirectory
from nemesis.journal import Journal, UndoState, read_journal
from nemesis.lasting import heal_lasting

GONE_S = 10.0
"""How long a process may take to go after SIGKILL (uninterruptible disk waits)."""


@dataclass(frozen=True, slots=True)
class HealReport:
    """What `heal_run` found, what it did, and what is left; sentences for a person."""

    run: Path
    found: tuple[str, ...]
    done: tuple[str, ...]
    left: tuple[str, ...]
    """What could not be cleaned, with the reason."""

    def __str__(self) -> str:
        said = [f"found: {line}" for line in self.found] + [f"done: {line}" for line in self.done]
        said += [f"LEFT: {line}" for line in self.left]
        return "clean" if not said else "; ".join(said)

    @property
    def clean(self) -> bool:
        """Observed: nothing of this run is left."""
        return not self.left


@contextmanager
def hold_alive(run: RunDirectory) -> Iterator[None]:
    """While this is held the run is alive, and `heal_run` refuses to touch it. The lock goes with the process, however it
    ends. BadInput if another process holds it."""
    with _lock(run) as descriptor:
        own = identify(os.getpid())
        first = process_status(1)
        note = {
            "pid": os.getpid(),
            "start_time": own.start_time if own else None,
            "pid_namespace": pid_namespace(),
            "init_start_time": first.identity.start_time if first else None,
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode() + b"\n", 0)
        yield
        os.ftruncate(descriptor, 0)  # It ended in order.


def heal_run(run: RunDirectory, *, clock: Clock) -> HealReport:
    """Clean up after a run that is over, and see that it is clean. Safe to repeat, and on a run that ended well.

    BadInput if the run is alive.
    """
    if not run.path.is_dir():
        raise BadInput(f"{str(run.path)!r} is not a run directory. Give a directory under runs/.")
    with _lock(run) as descriptor:
        return _heal(run, _parse(os.pread(descriptor, 4096, 0)), clock)


def _heal(run: RunDirectory, note: dict[str, Any], clock: Clock) -> HealReport:
    found: list[str] = []
    done: list[str] = []
    left: list[str] = []
    thawed = catalogue.service("thaw-disks")(run)  # who waits for a frozen disk cannot be ended
    found += thawed.found
    done += thawed.done
    left += thawed.left
    for what, identity in _survivors(run, note):
        found.append(f"{what} (pid {identity.pid}) is still there")
        problem = _end(identity, clock)
        (left if problem else done).append(f"{what} (pid {identity.pid}): {problem or 'ended'}")
    if run.compose.exists():  # what knows Docker is not installed everywhere
        engine = catalogue.service("sweep-engine")(run)
        found += engine.found
        done += engine.done
        left += engine.left
    disks = catalogue.service("sweep-disks")(run)
    found += disks.found
    done += disks.done
    left += disks.left
    elsewhere = heal_lasting(run, clock=clock)
    found += elsewhere.found
    done += elsewhere.done
    left += elsewhere.left
    contents = read_journal(run.journal)
    if contents.unreadable:
        found.append(f"{contents.unreadable} lines of {run.journal} are not readable")
    for entry in contents.open:
        found.append(f"step {entry.step!r}: {entry.fault} of {', '.join(entry.targets)} was not undone")
    if contents.open and not left:
        # Its processes are gone, and with them what was done to them.
        Journal(run.journal).mark(contents.open, UndoState.UNDONE)
        done.append(f"{len(contents.open)} undos of the journal are settled: nothing they were about is left")
    return HealReport(run.path, tuple(found), tuple(done), tuple(left))


def _survivors(run: RunDirectory, note: dict[str, Any]) -> Iterator[tuple[str, ProcessIdentity]]:
    """Processes of the run that live: pid and start time both match."""
    inode, start_time = note.get("pid_namespace"), note.get("init_start_time")
    if isinstance(inode, int) and isinstance(start_time, int) and inode != pid_namespace():
        first = namespace_init(inode=inode, start_time=start_time)
        if first is not None:
            yield "the run stage's sandbox", first
    for name, identity in read_pids(run.path / "pids.jsonl"):
        if is_running(identity):
            yield name, identity


def read_pids(path: Path) -> list[tuple[str, ProcessIdentity]]:
    """(node, process) of each line of `pids.jsonl`, each process once.

    A line is {"node", "boot", "stat"}, `stat` being the process's own /proc/PID/stat, or {"node", "pid", "start_time"}.
    Lines of another boot of the machine name nobody. Torn lines are left out: their process had not become a server yet.
    """
    if not path.exists():
        return []
    processes: dict[ProcessIdentity, str] = {}
    for line in path.read_bytes().split(b"\n"):
        value = _parse(line)
        if (identity := _identity(value)) is not None and value.get("boot", boot_id()) == boot_id():
            processes[identity] = str(value.get("node", "a process"))
    return [(node, identity) for identity, node in processes.items()]


def _identity(value: dict[str, Any]) -> ProcessIdentity | None:
    if isinstance(stat := value.get("stat"), str):
        try:
            return parse_stat(stat).identity
        except (ValueError, IndexError):
            return None
    pid, start_time = value.get("pid"), value.get("start_time")
    return ProcessIdentity(pid, start_time) if isinstance(pid, int) and isinstance(start_time, int) else None


def _end(identity: ProcessIdentity, clock: Clock) -> str:
    """SIGKILL, resumed first, and seen to be gone; else why not."""
    try:
        send_signal(identity, signal.SIGCONT)
        send_signal(identity, signal.SIGKILL)
        wait_until(
            lambda: not is_running(identity),
            awaited=f"process {identity.pid} to go after SIGKILL",
            timeout_s=GONE_S,
            clock=clock,
            last_seen=lambda: f"state {status.state}" if (status := process_status(identity.pid)) else "gone",
        )
    except PermissionError:
        return "it belongs to another user; run `prozess heal` as that user or as root"
    except NotReady as error:
        return str(error)
    return ""


def _parse(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


@contextmanager
def _lock(run: RunDirectory) -> Iterator[int]:
    """The run's lock, held; its descriptor. BadInput if it is taken."""
    path = run.path / "alive.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(
                f"The run in {str(run.path)!r} is alive: {path} is held. Wait until it ends, or stop it with Ctrl-C where "
                "it was started."
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)
