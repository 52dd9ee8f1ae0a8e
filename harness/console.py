"""A console for people, by rich: tables, styles and progress, with texts that are printable."""

import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from prozess.harness.printable import printable, raw_of

WIDE = 160
"""The width of output to a file or a pipe, in columns. No window bounds it (rich would take 80 there). `COLUMNS` sets
another width."""


class PrintableConsole(Console):
    """A console that prints no control characters but its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields the segments of a renderable, with texts that are `printable`."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Returns a console for standard output, or for standard error. It is as wide as the terminal, and wider where there
    is none."""
    stream = sys.stderr if stderr else sys.stdout
    bounded = stream.isatty() or "COLUMNS" in os.environ
    return PrintableConsole(file=raw_of(stream), quiet=quiet, highlight=False, width=None if bounded else WIDE)
