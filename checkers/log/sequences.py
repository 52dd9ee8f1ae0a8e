"""This kernel checks that the batches of each idempotent producer follow one another by their sequence numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from prozess.checkers.batches import CONTROL
from prozess.checkers.copies import Copies
from prozess.checkers.log.replicas import unread_copies
from prozess.checkers.lookup import differs_from_previous
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, SequenceCase, make_witnesses, no_witnesses
from prozess.harness.schema import MISSING, NONE

_NUMBERS = 1 << 31
"""A sequence that reaches the greatest int32 continues at 0. [DefaultRecordBatch.incrementSequence]"""
_AHEAD = _NUMBERS // 2
_FEW = 16_384
"""Up to so many batches of copies are looked at together: of a small partition a call costs more than its rows. In a large
one each copy is looked at by itself, so that memory is that of one."""
_COLUMNS = (*("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "attributes", "read_ns"),)
Columns = Mapping[str, np.ndarray]


def out_of_sequence(history: PartitionHistory) -> KernelResult:
    """In the log, each batch of a producer begins with the sequence number behind the last one of the batch before, and with
    0 if its producer epoch is a newer one; and no batch has an older epoch than one before it.

    Source: KIP-98, "Idempotent Producer Guarantees" (a broker refuses a batch whose sequence number is not the next one);
    KIP-360 (numbers begin at 0 again under a newer epoch); ProducerAppendInfo.checkProducerEpoch, checkSequence. A broker
    that knows nothing of a producer takes any number (KAFKA-15591), so the first batch of a producer in the log is not
    judged.

    Example: batches of one producer and epoch with the numbers 0–4, 5–9, 12–14 have a GAP at 12. 0–4, 5–9, 5–9 has them
    REPEATED. 0–4 under epoch 0 and 3–5 under epoch 1 is NOT_FROM_ZERO.

    Counts batches, in whichever of the replicas they are so: other replicas may have lost the batch before to retention.
    Witness: `log_offset` and `sequence` are the first of the batch, `other_sequence` is what it should be (of an OLD_EPOCH
    NONE), `other_offset` the last offset of the producer's batch before, `reader` the first broker that has it so; `begin_ns`
    is the first send to the partition that was recorded, `end_ns` when the copies were read. Judged are batches that follow
    another one of their producer, in each replica. Compacted topics are not judged: there the cleaner takes batches out.
    O(n log n).
    """
    if history.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    if not history.copies:
        return KernelResult(no_witnesses(), 0, 0, unread_copies(history))
    nodes = sorted(history.copies)
    together = [nodes] if len(history.replicas["node"]) <= _FEW else [[node] for node in nodes]
    found, judged = list[Columns](), 0
    for some in together:
        pairs = _pairs(Copies([replace(history, copies={node: history.copies[node] for node in some})]))
        judged += len(pairs["case"])
        pairs["reader"] = np.array(some)[pairs.pop("copy")]
        found.append({name: values[pairs["case"] > 0] for name, values in pairs.items()})
    if not any(len(one["case"]) for one in found):
        return KernelResult(no_witnesses(), 0, judged, unread_copies(history))
    columns = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    order = np.lexsort((columns["reader"], columns["producer_id"], columns["log_offset"]))
    columns = {name: values[order] for name, values in columns.items()}
    assert len(order) == len(columns["case"]), "columns of one length"
    first = differs_from_previous(columns["log_offset"]) | differs_from_previous(columns["producer_id"])
    count = int(np.count_nonzero(first))
    invoked_ns = history.sends["invoked_ns"]
    witnesses: dict[str, np.ndarray | int] = {
        name: values[first][:WITNESSES_MAX] for name, values in columns.items() if name != "producer_id"
    }
    witnesses |= {"partition": history.partition, "begin_ns": int(invoked_ns.min()) if len(invoked_ns) else MISSING}
    return KernelResult(make_witnesses(min(count, WITNESSES_MAX), witnesses), count, judged, unread_copies(history))


def out_of_sequence_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `out_of_sequence` finds in each of these small partitions."""
    copies = Copies(histories)
    pairs = _pairs(copies)
    judged, found = copies.count(pairs["copy"]), copies.count(pairs["copy"][pairs["case"] > 0])
    return [
        out_of_sequence(one)
        if found[i] or one.compacted
        else KernelResult(no_witnesses(), 0, judged[i], unread_copies(one))
        for i, one in enumerate(histories)
    ]


def _pairs(copies: Copies) -> dict[str, np.ndarray]:
    """Returns every batch of a copy that follows another one of its producer there. `case` is 0 where it does so in
    sequence."""
    replicas = copies.rows("replicas", _COLUMNS)
    copy = replicas["copy"]
    rows = np.flatnonzero((replicas["producer_id"] >= 0) & (replicas["last_offset"] >= copies.log_start[copy]))
    # All batches of one producer in one copy after another, each in the order of the log.
    rows = rows[np.lexsort((replicas["base_offset"][rows], replicas["producer_id"][rows], copy[rows]))]
    copy = copy[rows]
    producer, epoch = replicas["producer_id"][rows], replicas["producer_epoch"][rows]
    new = differs_from_previous(producer) | differs_from_previous(copy)
    control = (replicas["attributes"][rows] & CONTROL) != 0
    slot = np.arange(len(rows))
    # A running maximum of indices carries the latest one on: where the producer of each row begins, and below, its last
    # batch of records. Example: data, marker, data are the indices 0, 1, 2, and `last_data` is 0, 0, 2.
    begins = np.maximum.accumulate(np.where(new, slot, 0)) if len(rows) else slot
    newest = _newest_before(epoch, new)
    last_data = np.maximum.accumulate(np.where(control, -1, slot)) if len(rows) else slot
    # The last batch of records *before* each row, unless that one is another producer's.
    before = np.append(-1, last_data[:-1])[: len(rows)]
    before = np.where(before >= begins, before, -1)
    chosen = np.flatnonzero(~control & ~new)
    # Index -1 takes row 0; `follows` says below where that means nothing.
    one, other = rows[chosen], rows[np.maximum(before[chosen], 0)]
    follows = before[chosen] >= 0
    base = replicas["base_sequence"][one].astype(np.int64)
    # The last sequence of the batch before: its first, and one more for each further offset. It may be beyond 2³¹ here.
    end = replicas["base_sequence"][other] + replicas["last_offset"][other] - replicas["base_offset"][other]
    renewed = epoch[chosen] != replicas["producer_epoch"][other]
    wanted = np.where(renewed, 0, (end + 1) % _NUMBERS)
    # Numbers wrap around at 2³¹: less than half the circle ahead is a gap, and more is a step back.
    ahead = (base - wanted) % _NUMBERS
    # The later of these lines wins.
    case = np.where(ahead < _AHEAD, SequenceCase.GAP, SequenceCase.REPEATED)
    case = np.where(renewed, SequenceCase.NOT_FROM_ZERO, case)
    case = np.where(follows & (ahead != 0), case, 0)
    case = np.where(epoch[chosen] < newest[chosen], SequenceCase.OLD_EPOCH, case)
    return {
        "case": case,
        "producer_id": producer[chosen],
        "log_offset": replicas["base_offset"][one],
        "sequence": base,
        "other_sequence": np.where(case == SequenceCase.OLD_EPOCH, NONE, wanted),
        "other_offset": np.where(follows, replicas["last_offset"][other], NONE),
        "copy": copy[chosen],
        "end_ns": replicas["read_ns"][one],
    }


def _newest_before(epoch: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Returns, for each row, the greatest epoch of the rows of its producer before it, -1 for none. `new`: where rows of
    another producer begin."""
    if not len(epoch):
        return epoch.astype(np.int64)
    # Example: epochs 0 2 1 | 0 of two producers. With 4 and 8 added they are 4 6 5 | 8, the running maximum 4 6 6 | 8; each
    # row takes that of the row before it, less its own producer's 4 or 8: -1 0 2 | -1.
    apart = np.cumsum(new) * (int(epoch.max()) + 2)  # each producer's numbers are above those of all before
    greatest = np.maximum.accumulate(apart + epoch)
    return np.where(new, -1, np.append(0, greatest[:-1]) - apart)
