"""The server processes of a run, seen from outside: recorded so that none is left behind, restarted, and looked at.

`pids.jsonl` of a run names the processes that could outlive the harness. A guardian starts a server again that ended because
the cluster was not ready for it, as an init system would: a broker in ZooKeeper mode exits where KRaft's waits, if its last
session is still there (restarted before it expired: a `NodeExistsException` of `/brokers/ids/N`), or if no ZooKeeper server
answers in time. A server that ended for another reason stays ended.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import HarnessFailed
from prozess.harness.machine_record import PIDS, kept
from prozess.harness.processes import ProcessIdentity, boot_id, parse_stat, send_signal
from prozess.harness.run_directory import RunDirectory

# Servers that could outlive the harness: where there is no pid namespace, each writes down who it is before it runs.
#
# One JSON line per process in `pids.jsonl` of the run. A pid alone may have become someone else's; with the start time
# (clock ticks since boot) and the boot's id it is this process and no other.


def captured(
    command: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command that reads nothing, and returns its exit code and its text, whatever bytes are in it.

    OSError if it cannot be started; subprocess.TimeoutExpired if it does not end in time."""
    return subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        cwd=directory,
        env=None if environment is None else dict(environment),
    )


PIDS_NAME = PIDS
# The shell writes its own pid and start time, then becomes the server: there is no moment at which the server runs
# unrecorded. Words of /proc/PID/stat hold no quote or backslash: the command name is the shell's.
_RECORD = (
    'read -r stat < "/proc/$$/stat"; read -r boot < /proc/sys/kernel/random/boot_id; node=$1; shift; '
    'while [ "$1" != -- ]; do '
    'printf \'{"node": "%s", "boot": "%s", "stat": "%s"}\\n\' "$node" "$boot" "$stat" >> "$1"; shift; done; '
    'shift; exec "$@"'
)


def recording_command(command: Sequence[str], *, name: str, into: Path) -> list[str]:
    """A command line that records the process in a file of a run, wherever it is kept, and then becomes `command`."""
    return ["sh", "-c", _RECORD, "sh", name, *map(str, kept(into)), "--", *command]


def sweep_pids(run: RunDirectory) -> list[str]:
    """Kills what is left of the run's recorded processes, and says what was done. It never kills another's process."""
    done = []
    for name, identity in _recorded(kept(run.path / PIDS_NAME)[0]):
        try:
            if send_signal(identity, signal.SIGKILL):
                done.append(f"killed {name} (pid {identity.pid})")
        except PermissionError:
            done.append(f"{name} (pid {identity.pid}) is still there and may not be killed by this user")
    return done


def _recorded(path: Path) -> Iterator[tuple[str, ProcessIdentity]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            record = json.loads(line)
            found = str(record["node"]), parse_stat(record["stat"]).identity
        except (ValueError, KeyError, IndexError):
            continue  # torn by a crash: the process had not become a server yet
        if record.get("boot") == boot_id():
            yield found


# Guardians: they start a server again, a process or a container.


NOT_READY = (
    "NodeExistsException",
    "ZooKeeperClientTimeoutException",
    "ConnectionLossException",
    "SessionExpiredException",
)
"""The causes in a broker's log after which it is started again.

[KafkaZkClient.registerBroker; ZooKeeperClient.waitUntilConnected]"""
RESTART_FOR_S = 180.0
"""How long after the start that was asked for a server is started again: far beyond any session of a trial."""
PAUSE_S = 0.5
LOG_TAIL_BYTES = 200_000
"""How much of a log is read: a stack trace and an orderly shutdown lie between the cause and its end."""


def may_start_again(text: str) -> bool:
    """Did a broker of ZooKeeper mode end because the cluster was not ready? `text`: the end of its log."""
    return "Fatal error during KafkaServer startup" in text and any(cause in text for cause in NOT_READY)


def read_end(log: Path, *, after: int) -> str:
    """Reads the end of a log, of what was written behind byte `after`."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(after, end - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


class Guardian:
    """Watches one incarnation of a server until it ends; then `again` is called, if its log says that it should be.

    `last_output`: what the incarnation logged last. `again` starts the next one, or does nothing where nobody wants it any
    more; the new process has to be guarded anew, with the same `until_ns`.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        last_output: Callable[[], str],
        again: Callable[[], None],
        clock: Clock,
        until_ns: int | None,
    ) -> None:
        """`until_ns`: until when it is started again; None for RESTART_FOR_S from now on."""
        self._process, self._last_output, self._again, self._clock = process, last_output, again, clock
        self.until_ns = clock.monotonic_ns() + int(RESTART_FOR_S * NS_PER_S) if until_ns is None else until_ns
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"guardian of {process.pid}", daemon=True)
        self._thread.start()

    @property
    def undecided(self) -> bool:
        """Can the server still be started again?"""
        return self._thread.is_alive()

    def let_go(self) -> None:
        """Stops watching: the server is meant to end."""
        self._let_go.set()

    def _watch(self) -> None:
        with suppress(ChildProcessError):  # somebody else has seen the end already
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)  # Popen.wait would keep others from looking
        if self._process.wait() <= 0:  # ended by a signal, or as it was asked to
            return
        if self._clock.monotonic_ns() >= self.until_ns or not may_start_again(self._last_output()):
            return
        if not self._let_go.wait(PAUSE_S):
            self._again()


# Starts the container of a ZooKeeper-mode broker again that ended because the cluster was not ready for it.
#
# As for processes above, and on the same grounds. Docker's own restart policy
# cannot distinguish them: it would bring back a broker whose disk failed.


LOOK_EVERY_S = 0.2
_FIRST_SIGNAL = 128
"""Exit codes above it are signals: somebody ended the server."""


class ContainerGuardian:
    """Watches a container for RESTART_FOR_S from now on, over its restarts, or until it is let go.

    `ended`: its exit code; None while it runs. `last_output`: what it logged since its last start. `again`: starts it.
    """

    def __init__(
        self,
        name: str,
        *,
        ended: Callable[[], int | None],
        last_output: Callable[[], str],
        again: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._ended, self._last_output, self._again, self._clock = ended, last_output, again, clock
        self._until_ns = clock.monotonic_ns() + int(RESTART_FOR_S * NS_PER_S)
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"guardian of {name}", daemon=True)
        self._thread.start()

    @property
    def undecided(self) -> bool:
        """Can the server still be started again?"""
        return self._thread.is_alive()

    def let_go(self) -> None:
        """Stops watching: the server is meant to end."""
        self._let_go.set()

    def _watch(self) -> None:
        while self._clock.monotonic_ns() < self._until_ns and not self._let_go.wait(LOOK_EVERY_S):
            try:
                code = self._ended()
                if code is None:
                    continue
                if code == 0 or code > _FIRST_SIGNAL or not may_start_again(self._last_output()):
                    return
                if not self._let_go.wait(PAUSE_S):
                    self._again()
            except HarnessFailed:
                return  # the engine is gone, or the container: nothing to start


# What is seen of a server from outside: the end of its log, and how much memory it takes.


_TAIL_LINES = 3


def last_lines(text: str) -> str:
    """Returns the last lines of a server's log that say something: stack frames are left out."""
    lines = [line.strip() for line in text.splitlines()]
    return " | ".join([x for x in lines if x and not x.startswith(("at ", "... "))][-_TAIL_LINES:]) or "(nothing)"


def proportional_mib(pid: int | None) -> float | None:
    """The proportional set size of a process in MiB; None if there is none, or it is another user's."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")]
    return round(kib[0] / 1024, 1) if kib else None
