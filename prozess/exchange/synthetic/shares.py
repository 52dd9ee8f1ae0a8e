"""Makes the deliveries of a generated share group: each record goes to a member that accepts it, but for what was planted.

A record that was planted to come again is given to another member as well, some seconds later, and that one accepts it.
"""

from collections.abc import Iterator

import numpy as np

from prozess.exchange.synthetic.cells import (
    FIRST_NS,
    SECOND_NS,
    WATERMARKS_APART,
    Columns,
    GeneratedCell,
    owner_of,
    second_owner_of,
    spots_of,
)
from prozess.exchange.synthetic.log import EPOCH, GeneratedPartition
from prozess.harness.interfaces.witnesses import SHARE_WAY_NS
from prozess.harness.schema import MISSING, NONE, Acknowledgement, ObservationKind, Outcome

ACCEPT, RELEASE, REJECT = Acknowledgement
ABSENT_NS, DECIDED_NS, ANSWERED_NS = 500, 100, 200
"""The member's buffer was empty so long before it was given a record; it acknowledges it so long after that, and is answered
so long after it was given it."""
HELD_NS = 4 * SECOND_NS
"""How long a member takes that holds a record when another is given it, which is after half of that time."""
AGAIN_NS = 5 * SECOND_NS
LIMIT = 5
"""How often a record is delivered, by default."""
_REPEATED = ("accepted-again", "rejected-again", "two-holders", "miscounted")
"""Anomalies of a record that is delivered twice."""


def given_again(cell: GeneratedCell, partition: GeneratedPartition) -> np.ndarray:
    """Returns the positions of the records that are delivered twice, ascending."""
    return np.sort(np.concatenate([spots_of(cell, name, partition) for name in _REPEATED]))


def again_ns(cell: GeneratedCell, partition: GeneratedPartition, position: np.ndarray) -> np.ndarray:
    """Returns when these are delivered for the second time."""
    held = np.isin(position, spots_of(cell, "two-holders", partition))
    return np.asarray(partition.read_ns(position) + np.where(held, HELD_NS // 2, AGAIN_NS))


def since_ns(given_ns: np.ndarray) -> np.ndarray:
    """Returns before when a record that was given then was certainly not acquired."""
    return np.asarray(given_ns - ABSENT_NS - SHARE_WAY_NS)


def reads_again(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `reads` of second deliveries."""
    position = given_again(cell, partition)
    sender, sequence = partition.identities(position)
    return {
        "client": np.full(len(position), second_owner_of(cell, partition)),
        "read_ns": again_ns(cell, partition, position),
        "log_offset": partition.offsets(position),
        "sequence": sequence,
        "sender": sender,
        "partition": partition.partition,
        "sent_partition": partition.partition,
        "span": position,
        "flags": 0,
        "leader_epoch": EPOCH,
    }


def deliveries(cell: GeneratedCell, partition: GeneratedPartition, first: int, last: int) -> Iterator[Columns]:
    """Rows of `deliveries` of the records between two positions: to their owner; and, with those of position 0, all second
    ones."""
    position = np.arange(first, last)
    position = position[~np.isin(position, spots_of(cell, "undelivered", partition))]

    def planted(name: str) -> np.ndarray:
        return np.isin(position, spots_of(cell, name, partition))

    kind = np.full(len(position), ACCEPT)
    kind[planted("rejected-again") | planted("dead-letter-missing")] = REJECT
    kind[planted("given-up") | planted("miscounted")] = RELEASE
    given_ns = partition.read_ns(position)
    held_ns = np.where(planted("two-holders"), HELD_NS, 0)
    owner, count = owner_of(cell, partition), np.ones(len(position), dtype=np.int64)
    yield _rows(cell, partition, position, owner, given_ns, kind=kind, count=count, held_ns=held_ns)
    if first == 0:
        again = given_again(cell, partition)
        miscounted = spots_of(cell, "miscounted", partition)
        count = np.full(len(again), 2)
        count[np.isin(again, miscounted[::2])] = 1
        count[np.isin(again, miscounted[1::2])] = LIMIT + 1
        accepted, at_ns = np.full(len(again), ACCEPT), again_ns(cell, partition, again)
        second = second_owner_of(cell, partition)
        none = np.zeros(len(again), dtype=np.int64)
        yield _rows(cell, partition, again, second, at_ns, kind=accepted, count=count, held_ns=none)


def _rows(
    cell: GeneratedCell,
    partition: GeneratedPartition,
    position: np.ndarray,
    client: int,
    given_ns: np.ndarray,
    *,
    kind: np.ndarray,
    count: np.ndarray,
    held_ns: np.ndarray,
) -> Columns:
    sender, sequence = partition.identities(position)
    return {
        "client": np.full(len(position), client),
        "absent_ns": given_ns - ABSENT_NS,
        "acquired_ns": given_ns,
        "acknowledged_ns": given_ns + DECIDED_NS + held_ns,
        "answered_ns": given_ns + ANSWERED_NS + held_ns,
        "renewed_ns": MISSING,
        "log_offset": partition.offsets(position),
        "sequence": sequence,
        "sender": sender,
        "partition": partition.partition,
        "group": cell.cell,
        "delivery_count": count,
        "acknowledgement": kind,
        "outcome": Outcome.OK,
        "code": 0,
    }


def group_offsets(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Rows of `observations`: start offsets of the group, of which some were planted to go back; and in the end, when it was
    asked to finish, nothing is left, and the dead-letter queue has what was planted there."""
    finished_ns = cell.end_ns + 2 * AGAIN_NS + SECOND_NS
    dead = partition.offsets(spots_of(cell, "dead-letter-extra", partition))
    fallen = np.arange(1, 1 + int(cell.counts["share-start-regression"][partition.rank]))
    start = np.stack([fallen * WATERMARKS_APART, fallen * WATERMARKS_APART - 1], axis=1).ravel()
    for kind, value, time_ns in (
        (ObservationKind.SHARE_START, np.append(0, start), start_answered_ns(1 + len(start))),
        (ObservationKind.DRAIN_BEGUN, np.array([1000]), np.array([cell.end_ns + 2 * AGAIN_NS])),
        (ObservationKind.SHARE_LAG, np.array([0]), np.array([finished_ns])),
        (ObservationKind.DEAD_LETTER, dead, np.full(len(dead), finished_ns)),
        (ObservationKind.DEAD_LETTERS_READ, np.array([len(dead)]), np.array([finished_ns])),
    ):
        yield {
            "client": np.full(len(value), owner_of(cell, partition)),
            "time_ns": time_ns,
            "value": value,
            "partition": partition.partition,
            "kind": kind,
            "node": NONE,
        }


def start_answered_ns(count: int) -> np.ndarray:
    """Returns when start offsets were answered."""
    return FIRST_NS + 20 + np.arange(count)
