"""Threads that work beside a stage while a context is open."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

JOIN_TIMEOUT_S = 10.0


class Beside:
    """A context with threads of its own: `stopping` is set when it closes, and each is to end then."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def run_beside(self, work: Callable[[], None], name: str) -> None:
        """Do `work` in a thread of its own, from when the context is opened."""
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(timeout=JOIN_TIMEOUT_S)
        self.closed()

    def closed(self) -> None:
        """What is to be done once the threads have ended."""
