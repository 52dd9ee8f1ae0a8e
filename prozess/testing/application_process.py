"""The processes that a test starts for an application: a guard, and the recorder that the guard starts.

    python -P -m prozess.testing.application_process guard OUTPUT ERRORS -- COMMAND…
    python -P -m prozess.testing.application_process application MODULE:FUNCTION | FILE.py ARGUMENTS…
    python -P -m prozess.testing.application_process command KIND PROPERTIES WORDS…

`guard` starts an application for a test, says how it ends, and lets nothing of it outlive the test. The application leads a
session and a process group of its own. Standard output says what becomes of it, in lines of JSON: `{"pid": …}` or
`{"error": …}`, and later `{"ended": status, "at_ns": …}`. A byte on standard input asks it to end (SIGTERM). The end of
standard input, which comes with the end of the test process whatever ended that, kills it, and all it started.

`application` runs Python code with recorded clients in place of its Kafka clients; `sys.argv` is as if the code had been
started by itself. `command` runs any program, and records the client whose doings the program prints in lines of JSON. KIND
is `producer` or `consumer`; PROPERTIES is a JSON object with the configuration of that client.
"""

import ctypes
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prozess.harness.interfaces.application import ClientKind

GONE_S = 10.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""prctl(2)."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def guard(argv: list[str]) -> int:
    """Runs the application until it has ended or nobody wants it any more; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a handler, which a child does not inherit
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # a process that leaves its session must still be ended here
    output, errors, dashes, *command = argv
    assert dashes == "--", argv
    try:
        with open(output, "ab") as out, open(errors, "ab") as error:  # noqa: PTH123
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                start_new_session=True,
                preexec_fn=_die_with_the_guard,  # safe: this process has one thread
            )
    except OSError as error:
        _say(error=f"{error.strerror}: {error.filename}")
        return 1
    _say(pid=process.pid)
    _attend(process)
    _kill_rest()
    return 0


def _attend(process: "subprocess.Popen[bytes]") -> None:
    ended = os.pidfd_open(process.pid)
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if ended in readable:
            _say(ended=process.wait(), at_ns=time.monotonic_ns())
            return
        if not os.read(0, 64):
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def _kill_rest() -> None:
    """Kills everything that the application started, and what those processes started meanwhile."""
    import psutil  # here: an application that is recorded loads nothing that it does not need

    until = time.monotonic() + GONE_S
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for child in left:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _die_with_the_guard() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(**fields: str | int) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(fields).encode() + b"\n")


# The recorder of the application.


def _run_application(words: list[str]) -> None:
    from prozess.testing.recorded.application import record_clients

    target = words[0]
    sys.argv = words
    record_clients()
    if target.endswith(".py"):
        sys.path.insert(0, str(Path(target).resolve().parent))
        runpy.run_path(target, run_name="__main__")
        return
    module, _, function = target.partition(":")
    sys.argv[0] = module
    sys.exit(getattr(import_module(module), function)())


def _run_command(words: list[str]) -> int:
    from prozess.testing.recorded.command import record_command

    kinds: dict[str, ClientKind] = {"producer": "producer", "consumer": "consumer"}
    kind, properties, *command = words
    return record_command(kinds[kind], json.loads(properties), command)


def main() -> int:
    """Does what the command line says; returns the exit code. An application ends this process by itself."""
    what, *rest = sys.argv[1:]
    if what == "guard":
        return guard(rest)
    if what == "application":
        _run_application(rest)
        return 0
    assert what == "command", what
    return _run_command(rest)


if __name__ == "__main__":
    raise SystemExit(main())
