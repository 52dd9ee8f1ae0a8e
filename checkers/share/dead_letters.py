"""dead-letter-missing, dead-letter-extra: the dead-letter queue of a share group has other records than it should."""

import numpy as np

from prozess.checkers.share.deliveries import (
    ACCEPT,
    REJECT,
    TOO_LATE,
    SharedDeliveries,
    finished_below,
    share_of,
)
from prozess.harness.columns import rows_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, ShareCase, join_witnesses
from prozess.harness.schema import ObservationKind

NEVER_READ = "the dead-letter queue was not read to its end"


def dead_letter_missing(history: CellHistory) -> KernelResult:
    """Every record that was rejected or exhausted is in the dead-letter queue of its share group.

    Source: KIP-1191: a record that is rejected, or was delivered as often as the limit allows, is written to the queue before
    it is archived. Owed is a record that the group has finished, that nobody accepted, not even in doubt, and that either was
    rejected, which was answered, or was delivered as often as the limit allows and rejected by nobody. Witness: the record;
    `reader` was given it last; `case`: AT_LIMIT if it was exhausted, else NO_CAUSE. O(n log n).

    Example, with a limit of 2: offsets 4 and 5 were rejected, 6 was given with counts 1 and 2 and released each time, and the
    queue has 4. 5 (NO_CAUSE) and 6 (AT_LIMIT) count.
    """
    return _compared(history, extra=False)


def dead_letter_extra(history: CellHistory) -> KernelResult:
    """No record that a member accepted is in the dead-letter queue of its share group.

    Source: KIP-1191: the queue has the records that are rejected or exhausted. Counts records in the queue which a member
    accepted, and was answered, that nobody rejected, not even in doubt, and that were never given with the last count that
    the limit allows. A record may be in the queue twice, since it is written without idempotence. Witness: the record;
    `reader` was given it last; `case`: ONE_SHORT if the last count seen is one below the limit, else NO_CAUSE. O(n log n).

    Example, with a limit of 3: offset 4 was accepted with count 1 and is in the queue: NO_CAUSE. With count 3 it is no
    witness: the acceptance may have come too late, which is answered without an error (docs/workloads.md).
    """
    return _compared(history, extra=True)


def _compared(history: CellHistory, *, extra: bool) -> KernelResult:
    share, found, judged, unread = share_of(history), [], 0, None
    for number in history.partitions if share.dead_letter_replicas else ():
        queue = _queue(history, number)
        if queue is None:
            unread = NEVER_READ
            continue
        given = SharedDeliveries.of(history, number)
        if not len(given):
            continue
        kind = given["acknowledgement"]
        refused = given["code"] == TOO_LATE
        count = given.of_records(given["delivery_count"], np.maximum)
        last = np.append(np.flatnonzero(given.first)[1:], len(given)) - 1
        there = np.isin(given["log_offset"][last], queue)
        accepted, rejected = (given.of_records((kind == one) & ~refused, np.maximum) for one in (ACCEPT, REJECT))
        at_limit = count >= share.delivery_count_limit
        if extra:
            chosen = there & given.of_records(given.over(ACCEPT), np.maximum) & ~rejected & ~at_limit
            judged += len(queue)
            short = count == share.delivery_count_limit - 1
            case = np.where(short, ShareCase.ONE_SHORT.value, ShareCase.NO_CAUSE.value)
        else:
            owed = given.of_records(given.over(REJECT), np.maximum) | (at_limit & ~rejected)
            owed &= ~accepted & (given["log_offset"][last] < finished_below(history, number))
            chosen = owed & ~there
            judged += int(np.count_nonzero(owed))
            case = np.where(rejected, ShareCase.NO_CAUSE.value, ShareCase.AT_LIMIT.value)
        found.append(given.witnesses(last[chosen], number, case=case[chosen]))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], count=len(witnesses), judged=judged, incomplete=unread)


def _queue(history: CellHistory, partition: int) -> np.ndarray | None:
    """Returns the offsets of the records of a partition that stand in the queue. None: nobody read it to its end."""
    table = history.tables["observations"]
    rows = rows_of(table, partition)
    kinds = table["kind"][rows]
    if not (kinds == ObservationKind.DEAD_LETTERS_READ.value).any():
        return None
    return np.asarray(table["value"][rows[kinds == ObservationKind.DEAD_LETTER.value]])
