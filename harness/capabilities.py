"""What a backend can do to a node, by name."""

from enum import StrEnum


class Capability(StrEnum):
    """What a backend can do to a node."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    BLOCK = "block"
    """Drop what one node sends to another, one way."""
    LOSE = "lose"
    """Drop a share of the packets."""
    SHAPE = "shape"
    """Limit bandwidth."""
    DELAY = "delay"
    """Make what passes on a link late."""
    RESET = "reset"
    """Reset connections that are open."""
    FILL_DISK = "fill-disk"
    """Fill the file system of a node's data, which nobody else has."""
    SLOW_DISK = "slow-disk"
    FREEZE_DISK = "freeze-disk"
    FAIL_DISK = "fail-disk"
    """Read-only, or EIO."""
    CHANGE_FILES = "change-files"
    """Wipe and corrupt files of a node that is down."""
    LOSE_POWER = "lose-power"
    """End a node, and all that it has not fsynced."""
    SHIFT_CLOCK = "shift-clock"
    """Set the wall clock of one running node."""
