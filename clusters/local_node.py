"""One Kafka server of the local backend: a JVM as a child process, in its own network namespace where there are any."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from clusters.datagrams import PROBE_PORT, Probe, bound
from clusters.guardian import Guardian, read_end
from clusters.impairers import HasParts, Parts
from clusters.network import Network
from clusters.orphans import recording_command
from clusters.properties import Placement
from clusters.server_facts import proportional_mib, telling_tail
from harness.clock import Clock, wait_until
from harness.errors import ClusterFailed, HarnessFailed, NotReady
from harness.processes import parse_stat, process_status
from harness.protocols import Node, NodeState
from harness.schema import Tristate

T = TypeVar("T")
SIGNAL_TIMEOUT_S = 15.0
"""A killed or paused process of a starved machine takes its time to die or stop."""
_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the server of a node."""

    command: Callable[[], Sequence[str]]
    """Asked at each start."""
    log: Path
    """Appended to, over every incarnation."""
    working_directory: Path
    record_pids: Path | None
    """Where pid and start time go before anything runs; None where the sandbox's end is the server's end."""
    guarded: bool = False
    """Is it started again when it ended because the cluster was not ready for it (`clusters.guardian`)?"""
    environment: Callable[[], Mapping[str, str]] = dict
    """Laid over the harness's own. Asked at each start."""


class LocalNode(HasParts):
    """`harness.protocols.Node`. Methods may be called from any thread."""

    def __init__(
        self, placement: Placement, launch: Launch, *, network: Network | None, parts: Parts, clock: Clock
    ) -> None:
        self._parts = parts
        self._placement, self._launch, self._network, self._clock = placement, launch, network, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_end = False
        self._guardian: Guardian | None = None
        self._probe = Probe(placement.name)
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        return self._placement.name

    @property
    def node_id(self) -> int:
        return self._placement.node_id

    @property
    def roles(self) -> frozenset[str]:
        return self._placement.roles

    @property
    def address(self) -> str:
        return self._placement.data_address

    @property
    def data_directory(self) -> Path:
        return self._placement.data_directory

    @property
    def placement(self) -> Placement:
        """Every address and port of the node."""
        return self._placement

    @property
    def os_pid(self) -> int | None:
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def died(self) -> int | None:
        """Exit code of the server (negative: a signal) if it ended although nobody here asked it to, for good."""
        with self._lock:
            if self._process is None or self._asked_to_end or (self._guardian is not None and self._guardian.undecided):
                return None
            return self._process.poll()

    def state(self) -> NodeState:
        with self._lock:
            pid = self.os_pid
            status = process_status(pid) if pid is not None else None
        if status is None:
            return NodeState.STOPPED
        return NodeState.PAUSED if status.state in "Tt" else NodeState.RUNNING

    # --- process ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self._lock:
            if self.os_pid is not None:
                return
            self._launch_server(until_ns=None)

    def _launch_server(self, *, until_ns: int | None) -> None:
        """With the lock held."""
        log = self._launch.log
        begun_at = log.stat().st_size if log.exists() else 0
        process = self._process = self._inside(self._fork)
        self._asked_to_end = False
        if self._launch.guarded:
            self._guardian = Guardian(
                process,
                told=lambda: read_end(log, after=begun_at),
                again=lambda: self._start_again(process),
                clock=self._clock,
                until_ns=until_ns,
            )

    def _start_again(self, ended: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if self._process is ended and not self._asked_to_end:
                assert self._guardian is not None
                self._launch_server(until_ns=self._guardian.until_ns)

    def _fork(self) -> subprocess.Popen[bytes]:
        launch = self._launch
        command = launch.command()
        if launch.record_pids is not None:
            command = recording_command(command, name=self.name, into=launch.record_pids)
        try:
            with launch.log.open("ab") as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=launch.working_directory,
                    env={**os.environ, "MALLOC_ARENA_MAX": "2", **launch.environment()},
                    start_new_session=True,  # a terminal's Ctrl-C is for the harness, not for the servers
                )
        except OSError as error:
            raise ClusterFailed(f"{self.name} cannot be started: {error}.") from error

    def kill(self) -> None:
        self._end(signal.SIGKILL, awaited=f"{self.name} to be gone after SIGKILL", timeout_s=SIGNAL_TIMEOUT_S)

    def stop(self, *, timeout_s: float) -> None:
        self._end(signal.SIGTERM, awaited=f"{self.name} to shut down after SIGTERM", timeout_s=timeout_s)

    def _end(self, number: signal.Signals, *, awaited: str, timeout_s: float) -> None:
        """Signal and wait, without the lock: a node that shuts down slowly can still be looked at, and killed."""
        with self._lock:
            process, self._asked_to_end = self._process, True
            if self._guardian is not None:
                self._guardian.let_go()
            self._signal(number)
        if process is None:
            return
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen=f"process {self.state().value}") from error

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._await_threads(stopped=True, awaited=f"every thread of {self.name} to be stopped")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._await_threads(stopped=False, awaited=f"{self.name} to run again")

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

    def _await_threads(self, *, stopped: bool, awaited: str) -> None:
        """A group stop is complete only when every thread is in state T."""

        def reached() -> bool:
            pid = self.os_pid
            return pid is None or all((letter in "Tt") == stopped for letter in _thread_states(pid))

        wait_until(
            reached,
            awaited=awaited,
            timeout_s=SIGNAL_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"process {self.state().value}",
            interval_s=0.005,
        )

    # --- network ----------------------------------------------------------------------------------------------------

    def block(self, source: Node) -> None:
        self.block_address(source.address)

    def unblock(self, source: Node) -> None:
        self.unblock_address(source.address)

    def block_address(self, source_address: str) -> None:
        """As `block`, for who is no node: the run stage's clients (`LocalCluster.client_address`)."""
        if self._network is None:
            raise HarnessFailed(f"{self.name} cannot be cut off: there are no network namespaces here.")
        self._network.block(self.name, source_address)

    def unblock_address(self, source_address: str) -> None:
        """As `unblock`, for who is no node."""
        if self._network is not None:
            self._network.unblock(self.name, source_address)

    def receives_from(self, source: Node) -> Tristate:
        assert isinstance(source, LocalNode), source
        return self._probe.hears(source._probe, address=self.address, source_address=source.address)

    def open_network(self) -> None:
        """Bind the probe's socket where the server listens; it works while the server is dead or paused."""
        # Without namespaces the port may be someone's: then any free one does.
        port = PROBE_PORT if self._network is not None else 0
        self._probe.open(lambda: self._inside(lambda: bound(self.address, port)))

    def _inside(self, function: Callable[[], T]) -> T:
        return function() if self._network is None else self._network.run_inside(self.name, function)

    # --- for the cluster --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the process, whatever its state, and close the probe. Safe to call twice."""
        self.kill()
        self._probe.close()

    def log_tail(self) -> str:
        """The last lines of the server's log that say something: stack frames are left out."""
        try:
            with self._launch.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return telling_tail(log.read().decode(errors="replace"))
        except OSError:
            return "(no log)"

    def memory_mib(self) -> float | None:
        """Proportional set size of the process, MiB; None when stopped."""
        return proportional_mib(self.os_pid)


def _thread_states(pid: int) -> list[str]:
    """The letter of each thread (proc(5)); one that ends meanwhile is left out."""
    letters = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                letters.append(parse_stat((thread / "stat").read_text(errors="replace")).state)
    return letters
