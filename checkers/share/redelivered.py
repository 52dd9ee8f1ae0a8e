"""accepted-again, rejected-again: a record that its share group had finished was delivered once more."""

import numpy as np

from prozess.checkers.share.deliveries import ACCEPT, FAR_NS, REJECT, SharedDeliveries
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses


def accepted_again(history: CellHistory) -> KernelResult:
    """No record is delivered again once a member has accepted it, and was answered.

    Source: KIP-932, "In-flight records": an acknowledged record is not delivered again; a leader answers an acknowledgement
    after the share coordinator has written it. Counts deliveries that certainly came after: the member had an empty buffer
    after the answer (`absent_ns`), and more than SHARE_WAY_NS after it. Witness: the record; `reader` was given it again,
    `end_ns` when; `other_client` had accepted it, answered at `other_ns`. O(n log n).

    Example: member 7 accepted offset 4 and was answered at 3 s. Member 8 had nothing at 5 s and was given 4 at 6 s: counts.
    Member 9, given 4 at 6 s too, last had nothing at 2 s: it may have held the record since before 7 did.
    """
    return _again(history, ACCEPT)


def rejected_again(history: CellHistory) -> KernelResult:
    """No record is delivered again once a member has rejected it, and was answered.

    Source: KIP-932, "In-flight records": a rejected record is archived. Counts as `accepted_again` does: of member 7, which
    rejected offset 4 and was answered at 3 s, and member 8, which had nothing at 5 s and was given 4 at 6 s, one delivery.
    O(n log n).
    """
    return _again(history, REJECT)


def _again(history: CellHistory, kind: int) -> KernelResult:
    found, judged = [], 0
    for number in history.partitions:
        deliveries = SharedDeliveries.of(history, number)
        over = deliveries.over(kind)
        answered = np.where(over, deliveries["answered_ns"], FAR_NS)
        # The earliest such answer of each record, and who had it: a pair of (time, row) would sort alike.
        earliest = deliveries.of_records(answered, np.minimum)[deliveries.record]
        is_it = over & (answered == earliest)
        row = deliveries.of_records(np.where(is_it, np.arange(len(over)), len(over)), np.minimum)[deliveries.record]
        rows = np.flatnonzero((earliest != FAR_NS) & (deliveries.since_ns >= earliest))
        other = row[rows]
        found.append(
            deliveries.witnesses(
                rows, number, other_client=deliveries["client"][other], other_ns=deliveries["answered_ns"][other]
            )
        )
        judged += int(np.count_nonzero(over))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], count=len(witnesses), judged=judged)
