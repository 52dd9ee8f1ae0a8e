"""What counts as stalled: the stated time, and causes. Kernels find them, rules judge them; clients are given that time."""

from enum import IntEnum

from harness.clock import NS_PER_S

STALLED_NS = 20 * NS_PER_S
"""So long a reader may take for nothing: twice what a client waits for an answer here (socket.timeout.ms), so that one lost
answer explains it."""
SCAN_NS = 10 * NS_PER_S
"""How often a coordinator looks for transactions beyond their timeout, by default.
[transaction.abort.timed.out.transaction.cleanup.interval.ms]"""


class StallCase(IntEnum):
    """`case` of witnesses of `stalled`."""

    READER = 0
    """A reader was given nothing although it lived and beat all the time."""
    STARVED = 1
    """The reader's own heart stood still in between: it may not have asked."""
    STABLE_OFFSET = 2
    """The last stable offset did not move, whoever reads."""
