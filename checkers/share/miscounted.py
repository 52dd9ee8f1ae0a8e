"""miscounted: the delivery count of a record did not rise with a delivery, or rose beyond its limit."""

import numpy as np

from prozess.checkers.share.deliveries import RELEASE, SharedDeliveries, share_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, ShareCase, join_witnesses


def miscounted(history: CellHistory) -> KernelResult:
    """The delivery count of a record rises with each delivery, and never beyond the limit.

    Source: KIP-932, "In-flight records": each acquisition increments the delivery count; a record that was delivered as
    often as the limit allows is archived. Deliveries that no member has seen leave gaps, and are no witnesses. Witness:
    `reader` was given the record at `end_ns`; `case`: BEYOND_LIMIT; else `other_client` had it before (`begin_ns`,
    `other_ns`), with the same count, or with a greater one that it had certainly been given before: NOT_RAISED, or
    RELEASE_FORGOTTEN if it had released the record and was answered, for then the count was written. O(n log n).

    Example, with a limit of 2: counts 1, 1 are one witness, 1, 3 another (BEYOND_LIMIT), and 1, 2 none.
    """
    limit, found, judged = share_of(history).delivery_count_limit, [], 0
    for number in history.partitions:
        given = SharedDeliveries.of(history, number)
        count = given["delivery_count"]
        judged += int(np.count_nonzero(count > 0))
        beyond = np.flatnonzero(count > limit)
        found.append(given.witnesses(beyond, number, case=ShareCase.BEYOND_LIMIT.value))
        other = np.flatnonzero(~given.first)
        one = other - 1
        after = given.since_ns[other] >= given["acquired_ns"][one]
        raised = (count[other] > count[one]) | ((count[other] < count[one]) & ~after)
        wrong = ~raised & (count[one] > 0) & (count[other] > 0)
        one, other = one[wrong], other[wrong]
        released = given.over(RELEASE)[one] & (given["answered_ns"][one] <= given.since_ns[other])
        found.append(
            given.witnesses(
                other,
                number,
                begin_ns=given.since_ns[one],
                other_client=given["client"][one],
                other_ns=given["acquired_ns"][one],
                case=np.where(released, ShareCase.RELEASE_FORGOTTEN.value, ShareCase.NOT_RAISED.value),
            )
        )
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], count=len(witnesses), judged=judged)
