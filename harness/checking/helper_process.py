"""Processes that check partitions of a large history, each with an interpreter of its own.

Two threads that check partitions of some ten thousand rows wait for Python's interpreter lock half of the time: what numpy
does between two calls is short. A helper is started once, opens the history, and is given one task after the other through a
pipe. It ends at the end of its pipe, so it outlives nobody.
"""

import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from types import TracebackType
from typing import Any

from prozess.harness.errors import HarnessFailed

_TASK_S, _END_S = 3_600, 10
"""How long a task, which is at most a large partition, may take, and how long the end of a helper."""


def can_be_sent(checkers: object) -> bool:
    """Returns whether another process finds the same checkers by the names of their modules. It does not find what a user
    defined in a notebook, or inside a function."""
    try:
        return b"__main__" not in pickle.dumps(checkers)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


class HelperProcess:
    """A process that checks units of one run. It is a context manager, and for one thread at a time."""

    def __init__(self, work: object, run: object, checkers: object) -> None:
        """`work`: a function of a module, `work(run, checkers)`, which returns what answers a task (`unit_checker` in
        `prozess.harness.checking.kernels`); `run`: the RunDirectory; `checkers`: the CheckerSet. All are pickled."""
        self._mine, its = Pipe()
        command = [sys.executable, "-P", "-m", __name__, str(its.fileno())]
        with its:
            self._process = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        self._mine.send([folder for folder in sys.path if folder])  # so that it finds whatever this process does
        self._mine.send((work, run, checkers))

    def __enter__(self) -> "HelperProcess":
        return self

    def check(self, units: Sequence[object]) -> Any:  # noqa: ANN401 - of a task, whatever it returns
        """Returns what the work finds in these units, or raises what it raised. HarnessFailed if the process ended, or
        takes too long."""
        try:
            self._mine.send(units)
            if not self._mine.poll(_TASK_S):
                raise HarnessFailed(
                    f"A process that checks partitions gave no answer for {_TASK_S:,} s to {units!r:.200}."
                )
            error, found = self._mine.recv()
        except (EOFError, OSError) as gone:
            code = self._process.wait(_END_S)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise HarnessFailed(
                f"A process that checks partitions {how}. If memory is short, check with --workers 1."
            ) from gone
        if error is not None:
            raise error
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._mine.close()
        if error is not None:
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
            return
        self._process.kill()
        self._process.wait(_END_S)


def serve(pipe: Connection) -> None:
    """Checks what is asked through the pipe, until its end."""
    sys.path[:] = pipe.recv()
    work, run, checkers = pipe.recv()
    answer_to = work(run, checkers)
    while True:
        try:
            units = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[Exception | None, object] = None, answer_to(units)
        except Exception as error:  # noqa: BLE001 - the caller gets it, and decides
            answer = error, None
        pipe.send(answer)


if __name__ == "__main__":
    from prozess.harness.checking.memory import prepare_process

    prepare_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    with Connection(int(sys.argv[1])) as asked, suppress(BrokenPipeError, ConnectionResetError):
        serve(asked)
