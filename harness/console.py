"""Where tables and sentences for people are printed: as wide as the terminal, and wider where there is none."""

import os
import sys

from rich.console import Console

WIDE = 160
"""Columns of what goes to a file or a pipe, which no window bounds (rich takes 80 there). `COLUMNS` sets another width."""


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """To standard output, or standard error."""
    bounded = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, quiet=quiet, highlight=False, width=None if bounded else WIDE)
