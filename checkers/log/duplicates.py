"""This kernel checks that no record stands in a partition's log twice."""

import numpy as np

from prozess.checkers.lookup import differs_from_previous, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.schema import NONE, Isolation


def duplicate(history: PartitionHistory) -> KernelResult:
    """No record stands at two offsets of the log (of a transactional producer: of what read_committed shows).

    Source: enable.idempotence, "exactly one copy of each message is written in the stream",
    https://kafka.apache.org/documentation/#producerconfigs_enable.idempotence; KIP-98. Counts copies beyond the first;
    `log_offset` is the copy's, `other_offset` that of the first. O(n), O(n log n) if the log is not in order.

    Example: in the log [a b a c a] the copies at 2 and 4 count, each with `other_offset` 0.
    """
    index = PartitionIndex.of(history)
    log, found = index.log, index.identities
    # What the identities report of L(p) are all copies beyond the first, in no order of the log.
    extra, first, reason = found.extra, found.extra_first, index.incomplete()
    if not len(extra):
        return KernelResult(no_witnesses(), 0, judged=len(log.key), incomplete=reason)
    row = index.send_rows(log.key[extra])
    # A copy of a transactional record counts if V shows it: aborted ones stay in L(p), and nobody is given them.
    transactional = row >= 0
    transactional[transactional] = index.sends["transaction"][row[transactional]] != NONE
    if transactional.any():
        reason = reason or index.incomplete(Isolation.READ_COMMITTED)
        assert len(extra) == len(first) == len(transactional), "a further copy has a first one"
        visible = _visible_copies(index, extra[transactional], first[transactional])
        extra = np.concatenate([extra[~transactional], visible[0]])
        first = np.concatenate([first[~transactional], visible[1]])
    count = len(extra)
    order = np.argsort(extra, kind="stable")[:WITNESSES_MAX]
    extra, first = extra[order], first[order]
    witnesses = make_witnesses(len(extra), pairs_in_log(index, extra, first))
    return KernelResult(witnesses, count, judged=len(log.key), incomplete=reason)


def pairs_in_log(index: PartitionIndex, slot: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray | int]:
    """Returns columns of witnesses: the records at these positions of L(p), and (`other_*`) those at the other positions."""
    log, sender, sequence = index.log, index.reads["sender"], index.reads["sequence"]
    return {
        "partition": index.partition,
        "client": sender[log.rows[slot]],
        "sequence": sequence[log.rows[slot]],
        "log_offset": log.offset[slot],
        "other_client": sender[log.rows[other]],
        "other_sequence": sequence[log.rows[other]],
        "other_offset": log.offset[other],
        **index.sent(index.send_rows(log.key[slot])),
        **index.seen(log.key[slot]),
    }


def _visible_copies(index: PartitionIndex, extra: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for records with several copies in L(p), the copies beyond the first that V(p) shows, and that first one."""
    log, visible = index.log, index.visible
    # All copies of these records, the first ones too, as far as V shows them; then each group in the order of the log.
    position = np.concatenate([distinct(first), extra])
    slot = visible.positions.find(log.offset[position])
    shown = slot >= 0
    shown[shown] = visible.key[slot[shown]] == log.key[position[shown]]
    position = position[shown]
    position = position[np.lexsort((position, log.key[position]))]
    key = log.key[position]
    new = differs_from_previous(key)
    starts = position[new]
    # Example: V shows a at 2 and at 5, not its first copy at 0. Then 2 is the first, and 5 the only further copy.
    return position[~new], starts[np.cumsum(new)[~new] - 1]
