"""Starts the container of a ZooKeeper-mode broker again that ended because the cluster was not ready for it.

As `clusters.guardian` does for processes, and on the same grounds. Docker's own restart policy cannot tell them apart: it
would bring back a broker whose disk failed.
"""

import threading
from collections.abc import Callable

from clusters.guardian import PAUSE_S, RESTART_FOR_S, may_start_again
from harness.clock import NS_PER_S, Clock
from harness.errors import HarnessFailed

LOOK_EVERY_S = 0.2
_FIRST_SIGNAL = 128
"""Exit codes above it are signals: somebody ended the server."""


class ContainerGuardian:
    """Watches a container for RESTART_FOR_S from now on, over its restarts, or until it is let go.

    `ended`: its exit code; None while it runs. `told`: what it logged since its last start. `again`: starts it.
    """

    def __init__(
        self,
        name: str,
        *,
        ended: Callable[[], int | None],
        told: Callable[[], str],
        again: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._ended, self._told, self._again, self._clock = ended, told, again, clock
        self._until_ns = clock.monotonic_ns() + int(RESTART_FOR_S * NS_PER_S)
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"guardian of {name}", daemon=True)
        self._thread.start()

    @property
    def undecided(self) -> bool:
        """May it still be started again?"""
        return self._thread.is_alive()

    def let_go(self) -> None:
        """The server is meant to end."""
        self._let_go.set()

    def _watch(self) -> None:
        while self._clock.monotonic_ns() < self._until_ns and not self._let_go.wait(LOOK_EVERY_S):
            try:
                code = self._ended()
                if code is None:
                    continue
                if code == 0 or code > _FIRST_SIGNAL or not may_start_again(self._told()):
                    return
                if not self._let_go.wait(PAUSE_S):
                    self._again()
            except HarnessFailed:
                return  # the engine is gone, or the container: nothing to start
