"""Files that a person names are read whole, but never without a limit: any of them may be a device or a pipe.

/dev/zero has no end, and a pipe that nobody writes keeps its reader waiting. Each is refused with a sentence, within LIMIT_S
and LIMIT_BYTES. A pipe with a writer is read: `<(…)` of a shell is one.
"""

import errno
import os
import select
import stat
import time
import tomllib
from pathlib import Path
from typing import Any

from prozess.harness.errors import BadInput

LIMIT_BYTES = 32 * 1024 * 1024
"""Longer than any file of settings or any trial: those of thousands of lines have some hundred kilobytes."""
LIMIT_S = 10.0
"""How long a pipe may keep its reader waiting, from the beginning to its end."""
_PIECE = 1024 * 1024


def read_bytes(path: Path, *, limit_bytes: int = LIMIT_BYTES, timeout_s: float = LIMIT_S) -> bytes:
    """Returns what is in a file. OSError, with the reason in its `strerror`, if that cannot be read within these limits."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in its name
        raise OSError(errno.EINVAL, f"no file has such a name ({error})") from error
    try:
        waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
        until_s = time.monotonic() + timeout_s
        pieces: list[bytes] = []
        size = 0
        while True:
            if waits and not select.select([descriptor], [], [], max(0.0, until_s - time.monotonic()))[0]:
                raise OSError(errno.ETIMEDOUT, f"it is no file, and nothing came from it within {timeout_s:g} s")
            piece = os.read(descriptor, _PIECE)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            if size > limit_bytes:
                raise OSError(
                    errno.EFBIG, f"it goes on after {limit_bytes // 1024**2} MiB, and no such file is so long"
                )
    finally:
        os.close(descriptor)


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    """Returns the text of a file, with every end of a line as a newline. OSError as of `read_bytes`; UnicodeDecodeError."""
    return read_bytes(path).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


CONTINUED_MAX = 10_000
"""How many lines one line of a .properties file may go on over. Their parser joins them one by one, which is quadratic."""


def refuse_endless_line(text: str, where: object) -> None:
    """Raises BadInput for a .properties file with a line that goes on (by a backslash at its end) over more than
    CONTINUED_MAX lines."""
    run = 0
    for number, line in enumerate(text.split("\n"), 1):
        run = run + 1 if line.endswith("\\") else 0
        if run > CONTINUED_MAX:
            raise BadInput(
                f"{where}:{number}: one line goes on over more than {CONTINUED_MAX:,} lines, and no setting is so long."
            )


TOML_LINE_MAX = 1_000_000
"""The parser of TOML takes 130 bytes for each character of a number."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parses TOML. ValueError for what is none, and for a line of more than TOML_LINE_MAX characters."""
    if any(len(line) > TOML_LINE_MAX for line in text.split("\n")):
        raise ValueError(f"a line has more than {TOML_LINE_MAX:,} characters")
    return tomllib.loads(text)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Reads a TOML file. BadInput if there is none, or if it cannot be read. `what` it is: "Trial", "Matrix"."""
    try:
        return parse_toml(read_text(path))
    except FileNotFoundError as error:
        raise BadInput(
            f"{what} file {str(path)!r} does not exist. Give an existing .toml file, or a name from `prozess list`."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{what} file {str(path)!r} cannot be read: {error}.") from error
    except ValueError as error:  # a number of over 4,300 digits, too
        raise BadInput(f"{what} file {str(path)!r} is not TOML: {error}.") from error
    except RecursionError as error:
        raise BadInput(
            f"{what} file {str(path)!r} is nested too deeply to be read. Nothing that it may say needs more than ten levels."
        ) from error


def refuse_unless_file(path: Path, what: str) -> None:
    """Raises BadInput if there is something with this name that is no file, for one that is read in pieces. `what`: what to
    give, as the end of a sentence."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # who opens it says so
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise BadInput(f"{str(path)!r} is no file but a pipe, a socket or a device. Give {what}.")
