"""How a producer snapshot contradicts the batches: what the kernel says, and the guarantees ask."""

from enum import IntEnum


class SnapshotCase(IntEnum):
    """`case` of witnesses of `snapshot-conflict`; the first that applies."""

    UNKNOWN_THERE = 1
    """Batches of the producer are below the snapshot, which does not know it."""
    UNKNOWN_HERE = 2
    """The snapshot knows a producer that has no batch below it."""
    EPOCH = 3
    """Another producer epoch."""
    LAST_BATCH = 4
    """Another last sequence, offset, or number of records of the last batch."""
    TRANSACTION = 5
    """Another first offset of the open transaction, or one of them has none."""
    TIMESTAMP = 6
    """Another time of the last batch."""
