"""Order in real time: what was acknowledged stands before whatever was sent later. Stage check: the arrays of one partition
in, findings out."""

import numpy as np

from checkers.arrays import PartitionIndex
from harness.plan import SENTINEL_CLIENT
from harness.protocols import KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, Outcome
from harness.witnesses import WITNESSES_MAX, make_witnesses

_NEVER = np.iinfo(np.int64).max
_BEFORE_ALL = np.iinfo(np.int64).min


def time_travel(history: PartitionHistory) -> KernelResult:
    """What was acknowledged before another record was sent, on the same clock, stands before it in the log.

    Source: a leader appends to the end of its log, and acknowledges what it has appended; positions of a committed log never
    change (Kafka documentation, design, "Replicated logs"). Counts acknowledged records (acks other than 0) that stand, with
    their first copy, behind the first copy of a record that was invoked after they were completed; `other_*` is that record,
    of several the one sent last. Records without a row of `sends` are in no order of time. Where retention or compaction may
    have removed first copies, a record is judged only where it stands at its acknowledged offset. O(n): one running maximum
    of the times of invocation, in the order of the log.
    """
    index = PartitionIndex.of(history)
    row = _sends_in_log_order(index)
    sent = row >= 0
    place = np.flatnonzero(sent)
    row = row[place]
    sends = index.sends
    invoked_ns = sends["invoked_ns"][row]
    completed_ns = np.where(_acknowledged(index, row, place), sends["completed_ns"][row], _NEVER)
    clock = index.fact(history.client_clock, sends["client"][row], unknown=NONE)
    judged = 0
    found: list[np.ndarray] = []
    later: list[np.ndarray] = []
    for value in np.unique(clock[clock != NONE]).tolist():  # one for each host
        mine = np.flatnonzero(clock == value)
        judged += int(np.count_nonzero(completed_ns[mine] != _NEVER))
        newest = np.maximum.accumulate(invoked_ns[mine])
        before = np.append(_BEFORE_ALL, newest)[: len(mine)]
        behind = np.flatnonzero(before > completed_ns[mine])
        leader = _first_reaching(newest)
        found.append(mine[behind])
        later.append(mine[leader[behind - 1]])
    return _result(index, row, place, found, later, judged)


def _sends_in_log_order(index: PartitionIndex) -> np.ndarray:
    """intp[log]: the row of `sends` of the record whose first copy stands at each position of L(p); -1: there is none."""
    found = np.full(len(index.log.key), -1, dtype=np.intp)
    rows = np.arange(len(index.send_key))
    position = index.send_position
    if len(index.identities.extra) or not index.send_confirmed.all():
        unconfirmed = np.flatnonzero(~index.send_confirmed)
        if len(index.identities.extra):  # the acknowledged copy need not be the first
            unconfirmed = rows
        position = position.copy()
        position[unconfirmed] = index.identities.find(index.send_key[unconfirmed])
    there = (position >= 0) & (index.sends["client"] != SENTINEL_CLIENT)
    found[position[there]] = rows[there]
    return found


def _acknowledged(index: PartitionIndex, row: np.ndarray, place: np.ndarray) -> np.ndarray:
    """bool[k]: acknowledged with acks other than 0, and known to have stood there by then."""
    sends = index.sends
    known: np.ndarray = (sends["outcome"][row] == Outcome.OK) & (sends["completed_ns"][row] != MISSING)
    known &= index.fact(index.client_acks, sends["client"][row], unknown=0) != 0
    if index.compacted or index.log_start > 0:
        known &= sends["log_offset"][row] == index.log.offset[place]
    return known


def _first_reaching(newest: np.ndarray) -> np.ndarray:
    """intp[n]: where a running maximum first had the value it has at each place."""
    rises = np.ones(len(newest), dtype=bool)
    rises[1:] = newest[1:] > newest[:-1]
    return np.asarray(np.maximum.accumulate(np.where(rises, np.arange(len(newest)), 0)))


def _result(
    index: PartitionIndex,
    row: np.ndarray,
    place: np.ndarray,
    found: list[np.ndarray],
    later: list[np.ndarray],
    judged: int,
) -> KernelResult:
    nothing = np.empty(0, dtype=np.intp)
    late, other = np.concatenate([nothing, *found]), np.concatenate([nothing, *later])
    count = len(late)
    order = np.argsort(late, kind="stable")[:WITNESSES_MAX]
    late, other = late[order], other[order]
    sends = index.sends
    columns = {
        "partition": index.partition,
        "client": sends["client"][row[late]],
        "sequence": sends["sequence"][row[late]],
        "log_offset": index.log.offset[place[late]],
        "other_client": sends["client"][row[other]],
        "other_sequence": sends["sequence"][row[other]],
        "other_offset": index.log.offset[place[other]],
        "other_ns": sends["invoked_ns"][row[other]],
        **index.sent(row[late]),
        **(index.seen(index.send_key[row[late]]) if count else {}),
    }
    return KernelResult(make_witnesses(len(late), columns), count, judged, incomplete=index.incomplete())
