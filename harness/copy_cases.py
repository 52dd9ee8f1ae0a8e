"""What is wrong with a copy: `case` of witnesses of `not-exactly-once`. The kernel finds them, rules judge them."""

from enum import IntEnum


class CopyCase(IntEnum):
    """Of one record."""

    MISSING = 1
    """A source record below the group's final committed offset has no copy."""
    REPEATED = 2
    """A copy more than there are source records of it."""
    STRANGE = 3
    """A record in the derived topic that is no copy of any source record."""
