"""Makes the callbacks of a generated group's members: who owned which partition, and when nobody came or went.

One member, the newcomer, has its first callback only when all records are written, gets no partition and leaves, at once
unless it is planted to starve. From then on nobody comes or goes, and each partition has an owner, until the newcomer's
process ends. Second owners are planted before this calm, while the group may still settle; and in it partitions move, or have
no owner, where that was planted.
"""

from collections.abc import Iterator

import numpy as np

from prozess.exchange.synthetic.cells import (
    CALLBACK_NS,
    FIRST_NS,
    SECOND_NS,
    SETTLED_AFTER_NS,
    Columns,
    GeneratedCell,
    owner_of,
    second_owner_of,
    spots_of,
)
from prozess.exchange.synthetic.log import STEP_NS, GeneratedPartition
from prozess.harness.schema import NONE

ASSIGN, REVOKE, CLOSE = 1, 2, 4
HEARTBEAT_MS, SESSION_MS, POLL_MS = 1_000, 10_000, 2**31 - 1
"""For the group. The planted second owner of a partition receives no records, so it must be allowed never to poll."""
MAY_EXPLAIN_NS = (4 * HEARTBEAT_MS + 10_000 + 3_000 + SESSION_MS) * 1_000_000
"""What happened so long before a partition moved may explain it: four heartbeats, the time that members may be at work, that
for which a coordinator waits for the first ones, and a session."""
UNOWNED_AFTER_NS = 11 * SECOND_NS
"""A partition without an owner was given up so long after the newcomer left: later than any of the silences that count for
members, and before a group has settled. The member that gave it up is not without one for long."""


def moved_ns(cell: GeneratedCell, partition: GeneratedPartition) -> np.ndarray:
    """Returns when a partition was planted to move to its other owner, in turn."""
    return cell.calm_ns + SETTLED_AFTER_NS + (1 + np.arange(cell.counts["moved"][partition.rank])) * cell.move_ns


def movers(cell: GeneratedCell, partition: GeneratedPartition) -> np.ndarray:
    """Returns who is given a partition each time that it was planted to move."""
    odd = np.arange(cell.counts["moved"][partition.rank]) % 2 == 1
    return np.where(odd, owner_of(cell, partition), second_owner_of(cell, partition))


def last_owner_of(cell: GeneratedCell, partition: GeneratedPartition) -> int:
    """Returns the member that owns a partition when all has been moved."""
    return int([owner_of(cell, partition), *movers(cell, partition)][-1])


def assignments(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Rows of `assignments`: its owners', in turn, and those of a second one where that was planted."""
    owner, now, last = owner_of(cell, partition), movers(cell, partition), last_owner_of(cell, partition)
    before, moved = np.append(owner, now)[:-1], moved_ns(cell, partition)
    events = [(FIRST_NS, owner, ASSIGN)]
    if cell.counts["unowned"][partition.rank]:
        events += [(cell.calm_ns + UNOWNED_AFTER_NS, owner, REVOKE), (cell.calm_end_ns + SECOND_NS // 2, owner, ASSIGN)]
    events += [
        (cell.drain_ns - SECOND_NS // 4, last, REVOKE)
        if cell.counts["orphaned"][partition.rank]
        else (cell.close_ns, last, CLOSE)
    ]
    begin = spots_of(cell, "two-owners", partition) * STEP_NS
    second = np.full(len(begin), second_owner_of(cell, partition))
    begin_ns, client, event = np.array(events, dtype=np.int64).T
    yield _callbacks(
        cell,
        partition.partition,
        client=np.concatenate([client, before, now, second, second]),
        started_ns=np.concatenate([begin_ns, moved - cell.move_ns // 4, moved, begin, begin + 2 * STEP_NS]),
        event=np.concatenate([event, np.repeat([REVOKE, ASSIGN], len(now)), np.repeat([ASSIGN, REVOKE], len(begin))]),
    )


def empty_callbacks(cell: GeneratedCell) -> Columns:
    """Rows of `assignments` without a partition: each member's first, and the newcomer's last one."""
    ids = [*cell.readers, cell.newcomer, cell.newcomer]
    started_ns = np.array([FIRST_NS] * len(cell.readers) + [cell.newcomer_ns, cell.calm_ns])
    event = np.array([ASSIGN] * (len(ids) - 1) + [CLOSE])
    return _callbacks(cell, NONE, client=np.array(ids), started_ns=started_ns, event=event)


def _callbacks(
    cell: GeneratedCell, partition: int, *, client: np.ndarray, started_ns: np.ndarray, event: np.ndarray
) -> Columns:
    order = np.argsort(started_ns, kind="stable")
    return {
        "client": client[order],
        "started_ns": started_ns[order],
        "done_ns": started_ns[order] + CALLBACK_NS,
        "partition": partition,
        "group": cell.cell,
        "event": event[order],
        "incremental": 0,
    }
