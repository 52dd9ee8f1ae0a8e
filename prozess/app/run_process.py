"""Starts `prozess run` in a process of its own, for commands that run many trials, and handles the signals that end a
command."""

import ctypes
import errno
import io
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from prozess.harness.errors import ProzessError
from prozess.harness.exit_codes import ExitCode

RUN = (sys.executable, "-P", "-c", "from prozess.__main__ import main; main()", "run")
"""`-P`: a folder `harness` where somebody happens to be is not ours."""
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent ends."""
WEBHOOK = "PROZESS_WEBHOOK"
"""The variable that names the address of a webhook (`prozess.app.webhook`)."""
END_TIMEOUT_S = 120.0
"""How long a trial may take from Ctrl-C to its end: it heals, keeps what was recorded, and reports."""


def run_while(parent: int) -> tuple[str, ...]:
    """Returns the command of a trial that is interrupted, so that it heals, when the process with that pid ends."""
    name = end_with_parent.__name__
    begin = f"from {__name__} import {name}; {name}({parent}); "
    return (*RUN[:3], begin + RUN[3], *RUN[4:])


def end_with_parent(parent: int) -> None:
    """Makes the kernel interrupt this process when its parent ends. If the parent has ended already, ends it now."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(f"prozess: process {parent} began this trial and has ended.")


@dataclass(slots=True)
class StopRequest:
    """Remembers whether somebody asked the command to stop, and passes this on to the trial that runs."""

    asked: bool = False
    _child: "subprocess.Popen[bytes] | None" = None
    _passed_on: bool = False

    def ask(self) -> None:
        """Notes that a signal came, and asks the trial that runs to end."""
        self.asked = True
        if self._child is not None:
            self._passed_on = True
            _ask(self._child)

    def runs_now(self, child: "subprocess.Popen[bytes] | None") -> None:
        """Sets the trial that runs now; None when it has ended. A trial that is being started when the signal comes is asked
        at once."""
        self._child = child
        if child is not None and self.asked and not self._passed_on:
            self._passed_on = True
            _ask(child)


@contextmanager
def listening() -> Iterator[StopRequest]:
    """A context in which Ctrl-C, SIGTERM and SIGHUP are noted and passed on to the trial that runs."""
    stop = StopRequest()
    before = replace_handlers(stop.ask)
    try:
        yield stop
    finally:
        restore_handlers(before)


def await_end(child: "subprocess.Popen[bytes]", timeout_s: float) -> int:
    """Waits for the trial to end and returns its exit code. One that takes too long is interrupted, then killed."""
    for end in (_ask, subprocess.Popen.kill):
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            end(child)
            timeout_s = END_TIMEOUT_S
    return child.wait(timeout_s)


def _ask(child: "subprocess.Popen[bytes]") -> None:
    """Asks a trial to end: by Ctrl-C, or by SIGTERM where Ctrl-C is ignored (behind a script's `&`)."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    child.send_signal(signal.SIGTERM if ignored else signal.SIGINT)


def run_trial_command(
    words: Sequence[str],
    runs: Path,
    log: Path,
    *,
    timeout_s: float,
    stop: StopRequest,
    began: Callable[["subprocess.Popen[bytes]"], None] = lambda child: None,
) -> tuple[int, Path | None]:
    """Runs a command that makes a run directory in `runs`, with its output in `log`. Returns (exit code, run
    directory).

    `began` gets the process; if it raises ProzessError, the process is ended.
    """
    before = _directories(runs)
    with log.open("wb") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C comes to it through us, once
            env={
                name: value for name, value in os.environ.items() if name != WEBHOOK
            },  # a command that runs many trials posts messages itself
        )
        stop.runs_now(child)
        try:
            began(child)
        except ProzessError:
            _ask(child)
            await_end(child, END_TIMEOUT_S)
            raise
        code = await_end(child, timeout_s)
        stop.runs_now(None)
    return code, next(iter(sorted(_directories(runs) - before)), None)


def _directories(runs: Path) -> set[Path]:
    return {path for path in runs.iterdir() if path.is_dir()}


# Ctrl-C, SIGTERM and SIGHUP all ask a command to end: it heals, keeps what was recorded, and reports. The exit code says
# which signal it was.

OTHER_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""The signals that end a command as Ctrl-C does. systemd, Docker, CI and `timeout` send the first, a closed terminal
the other."""
SAME_SIGNAL_S = 1.0
"""Two signals of one kind within this time count as one: `timeout` signals a process and its group, and both a shell
and the kernel report a terminal that is gone."""
_FIRST_SIGNAL = 128
_heard: dict[int, float] = {}
"""Signal → when it last came, in seconds of the monotonic clock. The first signal that came is the first key."""


def note_signal(number: int) -> bool:
    """Notes a signal. Returns False if it says nothing new: the same one again, or a closed terminal after another
    signal."""
    now_s = time.monotonic()
    new = not _heard if number == signal.SIGHUP else now_s - _heard.get(number, -SAME_SIGNAL_S) >= SAME_SIGNAL_S
    _heard[number] = now_s
    return new


def listen_for_signals() -> None:
    """Makes SIGTERM and SIGHUP interrupt this process as Ctrl-C does. A signal that is ignored (`nohup`) stays ignored.
    A terminal that is closed is no error for what is printed.

    Call it once, in the main thread.
    """
    _outlive_terminals()
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _into_nothing(terminals)
        if note_signal(number):
            raise KeyboardInterrupt

    for number in (signal.SIGINT, *OTHER_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def replace_handlers(ask: Callable[[], None]) -> dict[int, object]:
    """Calls `ask` once for each signal, until `restore_handlers` is called. Returns the handlers that were there before."""
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def asked(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _into_nothing(terminals)
        if note_signal(number):
            ask()

    wanted = [n for n in (signal.SIGINT, *OTHER_SIGNALS) if signal.getsignal(n) is not signal.SIG_IGN]
    return {number: signal.signal(number, asked) for number in wanted}


def restore_handlers(before: dict[int, object]) -> None:
    """Restores the handlers that `replace_handlers` returned."""
    for number, handler in before.items():
        signal.signal(number, handler)  # type: ignore[arg-type]


def exit_code(code: int) -> int:
    """Returns the exit code of a command that ends with `code`. If a signal ended it, the code says which one, as a
    shell would (143 for SIGTERM, 129 for SIGHUP). After Ctrl-C it stays 2.

    The result stands from now on: the interpreter puts the defaults back while it ends, and a signal would kill it."""
    for number in (signal.SIGINT, *OTHER_SIGNALS):
        signal.signal(number, signal.SIG_IGN)
    # A KeyboardInterrupt that passed through the text of an exec() (each dataclass has one) leaves a mark, by which
    # `python -m` kills itself with SIGINT in the end, although it was caught. The next text that is run removes it.
    # [CPython, Python/pythonrun.c, run_eval_code_obj; Modules/main.c, Py_RunMain]
    exec("")
    first = next(iter(_heard), signal.SIGINT)
    return _FIRST_SIGNAL + first if code == ExitCode.UNKNOWN and first != signal.SIGINT else code


def _into_nothing(terminals: list[int]) -> None:
    """Sends further output to /dev/null, because a write to a closed terminal is an error.

    It runs in a signal's handler. If the signal came in the middle of a flush, Python refuses another one (RuntimeError), and
    that one goes on by itself.
    """
    with suppress(OSError, ValueError, RuntimeError):
        _discard(terminals)
        sys.stdout.flush()


def _discard(descriptors: list[int]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _Terminal(io.FileIO):
    """A terminal that may be closed while a command prints to it. Later output goes to /dev/null."""

    def write(self, data: memoryview) -> int:  # type: ignore[override] # this is what a BufferedWriter gives
        """Writes the bytes to the terminal, or to /dev/null from when it is closed on."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            _discard([self.fileno()])
            return data.nbytes


def _outlive_terminals() -> None:
    """Lets standard output and standard error outlive their terminal.

    The kernel makes a write to a closed terminal an error (EIO) before SIGHUP comes: it signals the shell alone, and the
    shell signals this process. The interrupt should end the command then, and not the error. If SIGHUP is ignored, nothing
    should.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or stream is not getattr(sys, f"__{name}__"):
            continue  # somebody reads it in this process
        if stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):  # isatty() says no when it is closed already
            terminal: io.RawIOBase = _Terminal(stream.fileno(), "w", closefd=False)
            lasting = io.TextIOWrapper(
                io.BufferedWriter(terminal),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, lasting)
