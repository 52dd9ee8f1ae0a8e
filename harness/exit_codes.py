"""The exit codes of the command, and which verdict has which (docs/exit-codes.md).

An error has its own in `prozess.harness.errors`; several trials have the worst (`exit_code_of` in `campaigns/engine.py`).
"""

from collections.abc import Mapping
from enum import IntEnum, unique


@unique
class ExitCode(IntEnum):
    """The exit code that the process returns to its caller."""

    HELD = 0
    VIOLATED = 1
    UNKNOWN = 2
    BAD_INPUT = 254
    HARNESS_FAILED = 255


EXIT_CODES: Mapping[str, ExitCode] = {
    "held": ExitCode.HELD,
    "violated": ExitCode.VIOLATED,
    "unknown": ExitCode.UNKNOWN,
    "not judged": ExitCode.UNKNOWN,
}
"""The exit code of each `Verdict`."""
