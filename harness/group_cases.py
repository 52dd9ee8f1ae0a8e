"""Causes of what happens to consumer groups: `case` of their witnesses. Kernels find them, rules judge them."""

from enum import IntEnum


class GroupCase(IntEnum):
    """What explains a witness. One number means the same in every anomaly of groups."""

    NO_CAUSE = 0
    CRASHED = 1
    """The member that had the record died before it gave the partition up."""
    RELEASED = 2
    """The member gave the partition up, or it was taken away, in between."""
    SOUGHT = 3
    """The member was sent to that position by the application."""
    DUPLICATE = 4
    """The record stands in the log more than once."""
    EVICTED = 5
    """The member had lost the partition without knowing yet: it learned it later."""
    COVERED = 6
    """A commit of it had been acknowledged before the member that processed it again was assigned the partition."""
    RESET = 7
    """auto.offset.reset decided the position: there was no committed offset, or it was out of range."""
    OBSERVED = 8
    """`commit-regression`: a look-up of the committed offset shows it, and no commit."""
    WITHIN_SESSION = 9
    """`orphaned`: the last owner died or was frozen, and its session was not over yet."""
    BOTH_COMMITTED = 10
    """`two-owners`: both had commits accepted while both owned it, or one after it had lost it to the other."""
    SAME_INSTANCE = 11
    """`two-owners`: both have one group.instance.id, in the classic protocol."""
    LEFT_BEHIND = 12
    """`unprocessed`: it was sent to the retry topic, and never acknowledged or seen there."""
    SENT_AGAIN = 13
    """`reprocessed`: it was sent to the retry topic again, since the first send was never acknowledged."""
