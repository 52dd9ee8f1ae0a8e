"""given-up: a record that its share group finished although no member had accepted or rejected it."""

import numpy as np

from prozess.checkers.share.deliveries import ACCEPT, REJECT, TOO_LATE, SharedDeliveries, finished_below, share_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, ShareCase, join_witnesses


def given_up(history: CellHistory) -> KernelResult:
    """A record that was released, or whose lock ran out, comes back until it was delivered as often as the limit allows.

    Source: KIP-932, "In-flight records": a released record, and one whose lock runs out, is available again, unless its
    delivery count has reached the limit. Judged are the records that were delivered, and that the group finished: its start
    offset was seen beyond them, or in the end nothing was left. Witness: the record, none of whose deliveries was accepted
    or rejected in time, be it in doubt; `reader` was given it last; `case`: AT_LIMIT (the last count seen is the limit:
    exhausted), ONE_SHORT (one below it) or NO_CAUSE. O(n log n).

    Example, with a limit of 3: offset 4 was given with count 1 and released, and in the end nothing is left: NO_CAUSE. With
    counts 1, 2, 3 it is AT_LIMIT.
    """
    limit, found, judged = share_of(history).delivery_count_limit, [], 0
    for number in history.partitions:
        given = SharedDeliveries.of(history, number)
        decided = np.isin(given["acknowledgement"], (ACCEPT, REJECT))
        late = decided & (given["code"] == TOO_LATE)
        decided_ever, late_ever = (given.of_records(what, np.maximum) for what in (decided & ~late, late))
        count = given.of_records(given["delivery_count"], np.maximum)
        last = np.append(np.flatnonzero(given.first)[1:], len(given)) - 1 if len(given) else np.empty(0, dtype=np.intp)
        done = given["log_offset"][last] < finished_below(history, number)
        judged += int(np.count_nonzero(done))
        # What was refused may be the second copy of an acknowledgement that took effect: below the limit that is a doubt.
        chosen = np.flatnonzero(done & ~decided_ever & (~late_ever | (count >= limit)))
        short = limit - count[chosen]
        case = np.select(
            [short <= 0, short == 1], [ShareCase.AT_LIMIT.value, ShareCase.ONE_SHORT.value], ShareCase.NO_CAUSE.value
        )
        found.append(given.witnesses(last[chosen], number, case=case))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], count=len(witnesses), judged=judged)
