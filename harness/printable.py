"""Texts of files and of other programs are made printable: none of their control characters reaches the terminal.

An escape sequence in a title could hide a line, or overwrite the verdict. Therefore everything that goes to standard output
and standard error passes through `PrintableStream`. What rich writes for styles and for the cursor goes past it
(`prozess.harness.console`). Nothing heavy is imported here: every command begins with it.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

# C0 and C1 but tab and line feed, DEL, what turns the direction of a text, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Returns the text with each character that a terminal would obey, or cannot encode, written as `\x1b` or
    `\u202e`."""
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


class PrintableStream:
    """A stream of text that makes everything `printable` that is written to it. Everything else is left to the stream
    behind it, `raw`."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Writes the text, with control characters made visible."""
        if not isinstance(text, str):
            raise TypeError(f"a text is written, not {type(text).__name__}")
        self.raw.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes these lines, with control characters made visible."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.raw, name)


def raw_of(stream: TextIO) -> TextIO:
    """Returns the stream behind a `PrintableStream`, or the stream itself."""
    return stream.raw if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_streams() -> Iterator[None]:
    """A context in which standard output and standard error are printable."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PrintableStream(out), PrintableStream(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


NAMED_MAX = 4
"""How many anomalies a sentence names."""


def first_of_many(names: Sequence[str]) -> str:
    """Returns only the first of many: what a client that died leaves open is thirty anomalies, and the cells name each."""
    more = len(names) - NAMED_MAX
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMED_MAX])} and {more} more"


def number_of(count: int, noun: str) -> str:
    """Returns the count with its noun: 1 record, 2,000 records."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
