"""Starts a server again that ended because the cluster was not ready for it, as an init system would.

A broker in ZooKeeper mode exits where KRaft's waits: if its last session is still there (restarted before it expired: a
`NodeExistsException` of `/brokers/ids/N`), or if no ZooKeeper server answers in time. Whoever ended on other grounds stays
ended.
"""

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness.clock import NS_PER_S, Clock

NOT_READY = (
    "NodeExistsException",
    "ZooKeeperClientTimeoutException",
    "ConnectionLossException",
    "SessionExpiredException",
)
"""What the broker's log names as the cause. [KafkaZkClient.registerBroker; ZooKeeperClient.waitUntilConnected]"""
RESTART_FOR_S = 180.0
"""From the start that was asked for: far beyond any session of a trial."""
PAUSE_S = 0.5
TOLD_BYTES = 200_000
"""Between the cause and the end of the log lie a stack trace and an orderly shutdown."""


def may_start_again(told: str) -> bool:
    """Did a broker of ZooKeeper mode end because the cluster was not ready? `told`: the end of its log."""
    return "Fatal error during KafkaServer startup" in told and any(cause in told for cause in NOT_READY)


def read_end(log: Path, *, after: int) -> str:
    """The end of a log, of what was written behind byte `after`."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(after, end - TOLD_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


class Guardian:
    """Watches one incarnation of a server until it ends; then `again` is called, if its log says that it should be.

    `told`: what the incarnation logged last. `again` starts the next one, or does nothing where nobody wants it any more;
    the new process has to be guarded anew, with the same `until_ns`.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        told: Callable[[], str],
        again: Callable[[], None],
        clock: Clock,
        until_ns: int | None,
    ) -> None:
        """`until_ns`: until when it is started again; None = for RESTART_FOR_S from now on."""
        self._process, self._told, self._again, self._clock = process, told, again, clock
        self.until_ns = clock.monotonic_ns() + int(RESTART_FOR_S * NS_PER_S) if until_ns is None else until_ns
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"guardian of {process.pid}", daemon=True)
        self._thread.start()

    @property
    def undecided(self) -> bool:
        """May it still be started again?"""
        return self._thread.is_alive()

    def let_go(self) -> None:
        """The server is meant to end."""
        self._let_go.set()

    def _watch(self) -> None:
        with suppress(ChildProcessError):  # somebody else has seen the end already
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)  # Popen.wait would keep others from looking
        if self._process.wait() <= 0:  # ended by a signal, or as it was told to
            return
        if self._clock.monotonic_ns() >= self.until_ns or not may_start_again(self._told()):
            return
        if not self._let_go.wait(PAUSE_S):
            self._again()
