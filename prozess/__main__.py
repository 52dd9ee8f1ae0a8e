"""The command `prozess`, and `python -m prozess`: it answers signals from its first import on, and then loads the rest.

To load the command takes some tenths of a second. A signal in this time ends it with the exit code that the page promises
(docs/exit-codes.md), and without a traceback, because nothing was begun. It imports nothing but what Python has loaded.
"""

import os
import signal
from contextlib import suppress

_CODES = {signal.SIGINT: 2, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGHUP: 128 + signal.SIGHUP}


def answer_signals() -> None:
    """Ends this process in order at each of these signals, until `main` of the command line handles them. One that is ignored
    (`nohup`) stays ignored."""
    for number in _CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    with suppress(OSError):  # nobody reads it
        os.write(2, b"Interrupted.\n")
    os._exit(_CODES[signal.Signals(number)])


def main() -> None:
    """The entry point of the command `prozess`."""
    answer_signals()
    from prozess import command

    command.main()


if __name__ == "__main__":
    main()
