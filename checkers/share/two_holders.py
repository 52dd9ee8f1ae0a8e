"""two-holders: a record was acquired again while the lock of whoever had it held for certain."""

import numpy as np

from prozess.checkers.share.deliveries import FAR_NS, LONG_AGO_NS, SharedDeliveries, or_never, share_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses
from prozess.harness.schema import MISSING


def two_holders(history: CellHistory) -> KernelResult:
    """No record is acquired by two deliveries at the same time.

    Source: KIP-932, "In-flight records": an acquired record has a lock of share.record.lock.duration.ms, and is not
    available before the lock ends or the record is acknowledged. A delivery certainly holds from when its poll returned
    until the lock of the earliest moment at which it may have been acquired ends (of its last renewal), the member begins to
    acknowledge, or it was last heard of. It is not certain while an acknowledgement of an earlier delivery to the same member
    is on its way: brokers know a hold by record and member alone (SharePartition.acknowledge), and end this one. Two such
    times of one record that overlap are a witness: `reader` was given it second, `end_ns` when; `other_client` had it since
    `begin_ns` at the earliest, and was given it at `other_ns`. O(n log n).

    Example, with locks of 4 s: member 7 had an empty buffer at 2.0 s and was given offset 4 at 2.1 s, so its lock holds
    until 5 s at least (it may have been SHARE_WAY_NS on its way). Member 8 is given 4 at 4.5 s, with an empty buffer at 4.4
    s: counts. Given at 5.5 s it does not.
    """
    found, judged = [], 0
    lock_ns, last_ns = share_of(history).lock_ns, _last_beats(history)
    for number in history.partitions:
        given = SharedDeliveries.of(history, number)
        judged += len(given)
        client = given["client"]
        known = (client >= 0) & (client < len(last_ns))
        lived_ns = np.where(known, last_ns[np.where(known, client, 0)] if len(last_ns) else LONG_AGO_NS, LONG_AGO_NS)
        locked_ns = (
            np.maximum(given.since_ns, given["renewed_ns"]) + lock_ns
        )  # what was never renewed is MISSING, long ago
        until_ns = np.minimum(np.minimum(locked_ns, or_never(given["acknowledged_ns"])), lived_ns)
        rows = np.flatnonzero((given["acquired_ns"] < until_ns) & ~_may_be_ended_before(given))
        # The times are in the order of their begins: if any two overlap, then two neighbours do.
        one, other = rows[:-1], rows[1:]
        record = given.record
        again = (record[one] == record[other]) & (given["acquired_ns"][other] < until_ns[one])
        one, other = one[again], other[again]
        found.append(
            given.witnesses(
                other,
                number,
                begin_ns=given.since_ns[one],
                other_client=client[one],
                other_ns=given["acquired_ns"][one],
            )
        )
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], count=len(witnesses), judged=judged)


def _may_be_ended_before(given: SharedDeliveries) -> np.ndarray:
    """Returns bool[n]: may an acknowledgement of an earlier delivery of the record to the same member have ended this one?

    Example: a lock ended before the member was given the record, so it acquired the record again meanwhile. Its
    acknowledgement of the first delivery, answered at 6.3 s, releases the second, which it is given at 6.5 s.
    """
    acknowledged = given["acknowledged_ns"] != MISSING
    answered_ns = np.where(acknowledged, or_never(given["answered_ns"]), LONG_AGO_NS)
    ended = np.zeros(len(given), dtype=bool)
    later = np.flatnonzero(~given.first)
    earlier = later - 1
    while len(later):  # as often as a record was delivered
        same = given["client"][later] == given["client"][earlier]
        ended[later] |= same & (answered_ns[earlier] > given.since_ns[later])
        more = ~given.first[earlier]
        later, earlier = later[more], earlier[more] - 1
    return ended


def _last_beats(history: CellHistory) -> np.ndarray:
    """Returns int64[clients]: when each client was last heard of, FAR_NS at most; LONG_AGO_NS: never."""
    beats = history.tables["heartbeats"]
    known = beats["client"] >= 0
    last_ns = np.full(int(beats["client"].max(initial=-1)) + 1, LONG_AGO_NS, dtype=np.int64)
    np.maximum.at(last_ns, beats["client"][known], beats["time_ns"][known])
    assert not len(last_ns) or MISSING < int(last_ns.max()) < FAR_NS, "heartbeats have times"
    return last_ns
