"""Cleans up after a run that was killed. `prozess heal` uses it, and so does the supervisor after a SIGKILL.

A run on a cluster that was there before it cuts broker-2 off and kills broker-1. Then the run itself is killed (SIGKILL). It
leaves the lock `alive.lock`, which nobody holds any more, and a journal with two open undos:

    0  unblock broker-2 from broker-1    applied
    1  start broker-1                    planned

`heal_run` does this, in this order, and each step is right however often it is repeated:

1. It takes the lock. If it cannot, the run is alive, and is refused.
2. It thaws the run's disks: a process that waits for a frozen disk does not end, even by SIGKILL.
3. It ends each process of the run whose pid and start time both match, so that no process of another program is hit.
4. It removes the run's containers, networks and disks.
5. It connects to the cluster, and carries out the open undos, the newest first: broker-1 is started, if it is down, and
   broker-2 is unblocked. Each one is observed, and only then marked as undone.
6. It compares every server with what the journal says of the time before the first fault.
7. Undos of what is gone are marked as undone, but only if nothing of steps 2 to 6 is left.

If it is killed in step 5, the next call finds what is still open, and goes on from there.
"""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from prozess.harness.clock import Clock, wait_until
from prozess.harness.errors import BadInput, NotReady, ProzessError
from prozess.harness.interfaces import AdminProtocol, Cluster
from prozess.harness.machine_record import MADE, PIDS, STATE_HOME, Made, kept, record_of
from prozess.harness.plan.outside_effects import reaches
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.processes import (
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
from prozess.harness.run_directory import RunDirectory, read_document
from prozess.nemesis.journal import Journal, UndoState, read_journal
from prozess.nemesis.nemesis import Nemesis

# What must be undone is what this machine's own record of the run says (`prozess.harness.machine_record`). The directory
# of the run does not count, since somebody may have sent it. What it alone claims is listed, and believed only with --trust.
#
# A run in namespaces leaves nothing: the kernel ends every process of its pid namespace with the first one
# (pid_namespaces(7)), and with them go the network namespaces and each rule in them. Healing observes that this is so.
# Without namespaces the backend writes down each process that it starts (`pids.jsonl`), and exactly those are ended.
# Containers and networks that a run made in a Docker engine carry its label, and are removed by it.


GONE_S = 10.0
"""How long a process may take to end after SIGKILL. A wait for a disk cannot be interrupted."""


class SweepReport(Protocol):
    """Describes what a sweep found of a run, what it removed, and what is left, in one sentence each."""

    @property
    def found(self) -> tuple[str, ...]: ...
    @property
    def done(self) -> tuple[str, ...]: ...
    @property
    def left(self) -> tuple[str, ...]: ...


class Reach(Protocol):
    """Connects again to a cluster that outlives runs. ProzessError or OSError if that is impossible."""

    def __call__(self, plan: Plan, run: RunDirectory, *, clock: Clock) -> tuple[Cluster, AdminProtocol]: ...


@dataclass(frozen=True, slots=True)
class Sweepers:
    """The functions that remove what the backends left of a run on this machine. Each is safe to repeat."""

    thaw_disks: Callable[[RunDirectory], SweepReport]
    disks: Callable[[RunDirectory], SweepReport]
    engine: Callable[[RunDirectory], SweepReport]
    """Removes the run's containers and networks from a Docker engine. It is asked only for runs that had one."""
    claimed: Callable[[RunDirectory], Iterable[str]]
    """Says which mounts, devices and control groups of this machine are in the directory. It only looks."""
    reach: Reach


@dataclass(frozen=True, slots=True)
class HealReport:
    """Describes what `heal_run` found, what it did, and what is left, in sentences for people."""

    run: Path
    found: tuple[str, ...]
    done: tuple[str, ...]
    left: tuple[str, ...]
    """What could not be removed, each with the reason."""

    def __str__(self) -> str:
        lines = [f"found: {line}" for line in self.found] + [f"done: {line}" for line in self.done]
        lines += [f"LEFT: {line}" for line in self.left]
        return "clean" if not lines else "; ".join(lines)

    @property
    def clean(self) -> bool:
        """Says whether it was observed that nothing of this run is left."""
        return not self.left


@contextmanager
def hold_alive(run: RunDirectory) -> Iterator[None]:
    """Marks the run as alive while this is held, so that `heal_run` refuses to touch it. BadInput if another process
    holds it.

    The mark is a lock, which goes with the process, however the process ends.
    """
    with _lock(run) as descriptors:
        own = identify(os.getpid())
        first = process_status(1)
        note = {
            "pid": os.getpid(),
            "start_time": own.start_time if own else None,
            "pid_namespace": pid_namespace(),
            "init_start_time": first.identity.start_time if first else None,
        }
        for descriptor in descriptors:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(note).encode() + b"\n", 0)
        yield
        for descriptor in descriptors:
            os.ftruncate(descriptor, 0)  # It ended in order.


def heal_run(
    run: RunDirectory, *, clock: Clock, sweepers: Sweepers, ends_within_s: float = 0.0, trust: bool = False
) -> HealReport:
    """Cleans up after a run that is over, and observes that it is clean. It is safe to repeat, and safe on a run that
    ended well.

    If this machine has no record of the run, nothing is touched, and what the directory claims is reported as left; with
    `trust` it is believed. BadInput if the run is alive. A caller that has just killed the run gives `ends_within_s`, the
    time that the run's last processes may take to end.
    """
    if not run.path.is_dir():
        raise BadInput(f"{str(run.path)!r} is not a run directory. Give a directory under runs/.")
    if ends_within_s:
        with suppress(NotReady):  # then `_lock` raises, and names the holder
            wait_until(lambda: not _is_alive(run), awaited="the run to end", timeout_s=ends_within_s, clock=clock)
    changed = (LOCK, MADE, run.journal.name)
    run.refuse_links(only=(*changed, run.lasting.name, run.logs.name), appended=changed)
    record = record_of(run)
    if record is None and not trust:
        return HealReport(run.path, (), (), _advised(claims_of(run, sweepers)))
    with _lock(run) as descriptors:
        report = _heal(run, _parse(os.pread(descriptors[0], 4096, 0)), clock, sweepers)
    if record is not None and report.clean:
        record.settle()
    return report


_ADVICE = (
    "nothing of that was touched: this machine has no record that it made this run, and somebody may have sent or changed "
    f"the directory. If you ran it here with another HOME or {STATE_HOME}, heal with that one. If you want all that is "
    "listed to be done, give --trust"
)


def _advised(claims: Iterable[str]) -> tuple[str, ...]:
    found = tuple(claims)
    return (*found, _ADVICE) if found else ()


def claims_of(run: RunDirectory, sweepers: Sweepers) -> Iterator[str]:
    """Yields what a directory says that its run has left, and what `--trust` would do, one sentence each.

    It only looks: at the directory's files, and at the processes, mounts and devices of this machine."""
    note = _note_of(run)
    for name, identity in _survivors(note, run.path / PIDS):
        yield f"it says that {name!a} is process {identity.pid}, which runs: --trust would kill it"
    if note and run.compose.exists():
        yield "it has a compose.yaml: --trust would remove the containers, networks and volumes with its path as their label"
    yield from sweepers.claimed(run)
    try:
        open_undos = read_journal(run.journal).open
    except OSError as error:
        yield f"{run.journal} cannot be read: {error.strerror}"
        return
    if run.lasting.exists():
        yield f"it says that a cluster is still in use: --trust would {_reaching(run)}, carry out {len(open_undos)} undos"
        made = Made(run)
        named = [f"delete the topic {name!a} ({known or 'no id'})" for name, known in made.topics.items()]
        yield from (
            f"--trust would {deed} there" for deed in [*named, *(f"delete the group {name!a}" for name in made.groups)]
        )
    elif open_undos:
        yield f"its journal has {len(open_undos)} undos open: --trust would mark them as done, for what they undo is gone"


def _reaching(run: RunDirectory) -> str:
    try:
        plan = parse_plan(read_document(run.plan), source=str(run.plan))
    except (OSError, UnicodeDecodeError, ProzessError) as error:
        return f"read plan.json, which cannot be read ({error})"
    return ", ".join(reaches(plan)) or f"reach a cluster of the {plan.backend} backend"


def _note_of(run: RunDirectory) -> dict[str, Any]:
    """Returns what the directory's alive.lock says of the run; nothing if it ended in order. BadInput if it is alive."""
    if not (run.path / LOCK).exists():
        return {}
    with _locked(run.path / LOCK) as descriptor:
        return _parse(os.pread(descriptor, 4096, 0))


def _heal(run: RunDirectory, note: dict[str, Any], clock: Clock, sweepers: Sweepers) -> HealReport:
    found: list[str] = []
    done: list[str] = []
    left: list[str] = []
    thawed = sweepers.thaw_disks(run)  # a process that waits for a frozen disk cannot be ended
    found += thawed.found
    done += thawed.done
    left += thawed.left
    for what, identity in _survivors(note, kept(run.path / PIDS)[0]):
        found.append(f"{what} (pid {identity.pid}) is still there")
        problem = _end(identity, clock)
        (left if problem else done).append(f"{what} (pid {identity.pid}): {problem or 'ended'}")
    if kept(run.compose)[0].exists():  # the module that talks to Docker is not installed everywhere
        engine = sweepers.engine(run)
        found += engine.found
        done += engine.done
        left += engine.left
    disks = sweepers.disks(run)
    found += disks.found
    done += disks.done
    left += disks.left
    elsewhere = heal_lasting(run, clock=clock, reach=sweepers.reach)
    found += elsewhere.found
    done += elsewhere.done
    left += elsewhere.left
    contents = read_journal(kept(run.journal)[0])
    if contents.unreadable:
        found.append(f"{contents.unreadable} lines of {run.journal} are not readable")
    for entry in contents.open:
        found.append(f"step {entry.step!r}: {entry.fault} of {', '.join(entry.targets)} was not healed")
    if contents.open and not left:
        # The run's processes are gone, and with them every fault in them.
        Journal(run.journal).mark(contents.open, UndoState.UNDONE)
        done.append(f"{len(contents.open)} undos of the journal need nothing more: what they were to undo is gone")
    return HealReport(run.path, tuple(found), tuple(done), tuple(left))


def _survivors(note: dict[str, Any], pids: Path) -> Iterator[tuple[str, ProcessIdentity]]:
    """Returns the processes of the run that are alive: their pid and their start time both match."""
    inode, start_time = note.get("pid_namespace"), note.get("init_start_time")
    if isinstance(inode, int) and isinstance(start_time, int) and inode != pid_namespace():
        first = namespace_init(inode=inode, start_time=start_time)
        if first is not None:
            yield "the run stage's sandbox", first
    for name, identity in read_pids(pids):
        if is_running(identity):
            yield name, identity


def read_pids(path: Path) -> list[tuple[str, ProcessIdentity]]:
    """Returns (node, process) for each line of `pids.jsonl`, each process once.

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
    """Kills a process with SIGKILL, after resuming it, and observes that it is gone. Returns "" or the reason why it is
    not."""
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


LOCK = "alive.lock"


@contextmanager
def _lock(run: RunDirectory) -> Iterator[list[int]]:
    """Takes the lock of the run, wherever it is kept, and returns its file descriptors; the first one counts. BadInput if
    another process holds it."""
    with ExitStack() as locks:
        yield [locks.enter_context(_locked(path)) for path in kept(run.path / LOCK)]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(
                f"The run in {str(path.parent)!r} is alive: {path} is held. Wait until it ends, or stop it with Ctrl-C where "
                "it was started."
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def _is_alive(run: RunDirectory) -> bool:
    try:
        with _lock(run):
            return False
    except BadInput:
        return True


# Healing a cluster that outlives the run: a process that knows only the run's files carries out the open undos there.
#
# The `Cluster` object is built again from `plan.json`, and connects to the servers that run now; it starts and formats
# nothing. Its own teardown then leaves the cluster as it was found before the run.


class _NoRecorder:
    """Records nothing, because the history ended with the run. What a later process undoes is reported to the user, and
    marked in the journal."""

    def write(self, table: str, **columns: int) -> None:
        """Drops the row: the run is over, and its history is written."""

    def code(self, dictionary: str, text: str) -> int:
        """Returns 0 for every text, since there is no dictionary."""
        return 0


@dataclass(slots=True)
class Healed:
    """Describes what was undone, in sentences like those of `prozess.nemesis.crash_recovery.HealReport`."""

    found: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def heal_lasting(run: RunDirectory, *, clock: Clock, reach: Reach) -> Healed:
    """Undoes all open faults, and leaves the cluster as it was before. It is safe to repeat. What fails is reported and
    stays open for the next attempt."""
    healed = Healed()
    if not kept(run.lasting)[0].exists():
        return healed
    healed.found.append("the run still used a cluster that was there before it")
    try:
        path = kept(run.plan)[0]
        plan = parse_plan(path.read_text(encoding="utf-8"), source=str(path))
        cluster, admin = reach(plan, run, clock=clock)
    except (ProzessError, OSError) as error:
        healed.left.append(f"the cluster cannot be reached again: {error}")
        return healed
    try:
        _forget_clients(run, {client.name for client in plan.clients})
        nemesis = Nemesis(run, cluster, admin, _NoRecorder(), clock, report=healed.done.append)
        count = len(read_journal(run.journal).open)
        # Without an open undo, too: what was undone may not have stayed so.
        if not _did(healed, "undo what the journal has open", lambda: nemesis.heal(None)):
            return healed  # a teardown would forget that the cluster is not as it was before
        still = read_journal(kept(run.journal)[0]).open
        assert not still, f"healing ended without an error, and left {len(still)} undos open"
        if count:
            healed.done.append(f"{count} undos of the journal were carried out, and seen to work")
        if _did(healed, "leave the cluster as it was", cluster.teardown):
            healed.done.append(
                "the cluster is left as it was found: what the run made there was deleted, and is seen to be gone"
            )
    finally:
        admin.close()
    return healed


def _forget_clients(run: RunDirectory, names: set[str]) -> None:
    """Closes the journal's entries of clients: they ended with the run, and with them whatever was wrong with them."""
    journal = Journal(run.journal)
    if ended := [entry for entry in journal.open if entry.undo.node in names]:
        journal.mark(ended, UndoState.UNDONE)


def _did(healed: Healed, what: str, deed: Callable[[], object]) -> bool:
    try:
        deed()
    except (ProzessError, OSError) as error:
        healed.left.append(f"could not {what}: {error}")
        return False
    return True
