"""This kernel checks that leader epochs never fall: in what one broker reports, along a log, and along what readers get."""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.checkers.alignment import rows_where
from prozess.harness.columns import joined, of_clients
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    EpochCase,
    join_witnesses,
    make_witnesses,
    no_witnesses,
)
from prozess.harness.schema import MetadataKind, MetadataSource, Role

Columns = Mapping[str, np.ndarray]


def epoch_regression(history: PartitionHistory) -> KernelResult:
    """The leader epoch of a partition never falls: neither in the answers of one broker, nor along a log.

    Source: a leader epoch only rises, each leader appends under its own, and a follower cuts its log to that of its leader
    before it appends (KIP-101, KIP-279); a broker applies the controllers' log in its order (KIP-500). Counts falls, by
    `case` (EpochCase). ANSWERED: answers (Metadata, by the samples twice a second) with a lower epoch than the same broker's
    before; answers of different brokers are not compared, because zombies answer, too. IN_LOG: batches of one replica's
    segments with a lower epoch than the batch in front. AUDITED and READ: records that the audit, or a consumer, got with a
    lower epoch than the record it got before, at a lower offset of the same span. Epochs 0, 3, 3, 1, 2 along a log fall once,
    from 3 to 1.

    Witness: `reader` (a broker, or a client) has epoch `sequence` at `log_offset` and `end_ns`, after `other_sequence` at
    `other_offset` and `begin_ns`. O(n log n) for n answers, O(n) for batches and reads.
    """
    parts = [_answers(history), _batches(history), _reads(history)]
    found = join_witnesses(witnesses for witnesses, _ in parts)
    return KernelResult(found[:WITNESSES_MAX], len(found), sum(judged for _, judged in parts))


def epoch_regression_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `epoch_regression` finds in each of these small partitions."""
    count = len(histories)
    judged, fell = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    table, owner = joined([one.metadata for one in histories], ("source", "kind", "leader_epoch", "time_ns", "node"))
    along = [(owner, *_answers_in_order(table, owner))]
    if held := [i for i, one in enumerate(histories) if one.replicas]:
        table, owner = joined([histories[i].replicas for i in held], ("node", "step", "leader_epoch"))
        owner = np.array(held)[owner]
        along.append((owner, *_batches_in_order(table, owner)))
    for owner, rows, after in along:
        judged += np.bincount(owner[rows], minlength=count)
        fell[owner[rows[after]]] = True
    reads, owner = joined([one.reads for one in histories], ("leader_epoch", "client"))
    epoch, client, same = reads["leader_epoch"], reads["client"], owner[1:] == owner[:-1]
    judged += np.bincount(owner[epoch >= 0], minlength=count)
    # An unknown epoch is less than all others: a fall, so far. Not each of these is one. Clients ascend, as written.
    fell[owner[1:][same & (epoch[1:] < epoch[:-1]) & (client[1:] == client[:-1])]] = True
    fell[owner[1:][same & (client[1:] < client[:-1])]] = True
    return [
        epoch_regression(one) if fell[i] else KernelResult(no_witnesses(), 0, int(judged[i]))
        for i, one in enumerate(histories)
    ]


def _answers_in_order(table: Columns, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of `metadata` that are answers with an epoch: those of one broker about one partition (`owner`) in the
    order of time; and the indices at which one has a lower epoch than the one before."""
    rows = np.flatnonzero(
        (table["source"] == MetadataSource.SAMPLE.value)
        & (table["kind"] == MetadataKind.PARTITION.value)
        & (table["leader_epoch"] >= 0)
    )
    rows = rows[np.lexsort((table["time_ns"][rows], table["node"][rows], owner[rows]))]
    node, epoch = table["node"][rows], table["leader_epoch"][rows]
    # Each answer but the first of a broker has one before it.
    return rows, 1 + np.flatnonzero(
        (epoch[1:] < epoch[:-1]) & (node[1:] == node[:-1]) & (owner[rows[1:]] == owner[rows[:-1]])
    )


def _answers(history: PartitionHistory) -> tuple[np.ndarray, int]:
    table = history.metadata
    rows, later = _answers_in_order(table, np.zeros(len(table["node"]), dtype=np.int64))
    if not len(later):
        return no_witnesses(), len(rows)
    node, epoch, time_ns = (table[name][rows] for name in ("node", "leader_epoch", "time_ns"))
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": node[later],
        "sequence": epoch[later],
        "other_sequence": epoch[later - 1],
        "begin_ns": time_ns[later - 1],
        "end_ns": time_ns[later],
        "case": int(EpochCase.ANSWERED),
    }
    return make_witnesses(len(later), columns), len(rows)


def _batches_in_order(table: Columns, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of `replicas` that have an epoch: those of one reading of one copy of a partition (`owner`) in the
    order of its log; and the indices at which one has a lower epoch than the one before."""
    # One number for each reading of one replica: the node in the high half, the step in the low one, where NONE is 0.
    copy = table["node"].astype(np.int64) << 32 | (table["step"] + 1)
    # The sort is stable, so the batches of each copy keep the order of its log.
    order = np.lexsort((copy, owner))
    order = order[table["leader_epoch"][order] >= 0]
    epoch, copy, owner = table["leader_epoch"][order], copy[order], owner[order]
    assert len(epoch) == len(copy) == len(order), "columns of one length"
    return order, 1 + np.flatnonzero((epoch[1:] < epoch[:-1]) & (copy[1:] == copy[:-1]) & (owner[1:] == owner[:-1]))


def _batches(history: PartitionHistory) -> tuple[np.ndarray, int]:
    """Returns falls along the logs of replicas. Batches of old formats have no epoch. Two that overlap were not read of one
    state of the log, if the broker ran while its segments were read."""
    table = history.replicas
    if not table or not len(table["node"]):
        return make_witnesses(0, {}), 0
    order, fell = _batches_in_order(table, np.zeros(len(table["node"]), dtype=np.int64))
    before, after = order[fell - 1], order[fell]
    behind = table["base_offset"][after] > table["last_offset"][before]
    before, after = before[behind], after[behind]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": table["node"][after],
        "sequence": table["leader_epoch"][after],
        "other_sequence": table["leader_epoch"][before],
        "log_offset": table["base_offset"][after],
        "other_offset": table["base_offset"][before],
        "begin_ns": table["read_ns"][before],
        "end_ns": table["read_ns"][after],
        "case": int(EpochCase.IN_LOG),
    }
    return make_witnesses(len(after), columns), len(order)


def _reads(history: PartitionHistory) -> tuple[np.ndarray, int]:
    """Returns falls along what readers got. Without an audit only consumers are readers."""
    reads = history.reads
    epoch, client = reads["leader_epoch"], reads["client"]
    if epoch.strides == (0,) and len(epoch):  # one value for all
        return make_witnesses(0, {}), len(epoch) if int(epoch[0]) >= 0 else 0
    judged = int(np.count_nonzero(epoch >= 0))
    # Falls are few, so everything else is asked of them alone. An unknown epoch (-1) is less than all others: a fall so far.
    before = rows_where(len(epoch) - 1, lambda rows: epoch[rows.start + 1 : rows.stop + 1] < epoch[rows])
    if not len(before):
        return no_witnesses(), judged
    after = before + 1
    unknown = epoch[after] < 0
    if unknown.any():  # the next of which it is known
        # The number of all rows stands for: there is no next one. It is dropped below.
        known = np.append(np.flatnonzero(epoch >= 0), len(epoch))
        # Example: epochs 5 ? 4. Row 1 says nothing, so row 0 is compared with row 2: a fall from 5 to 4.
        after[unknown] = known[np.searchsorted(known, after[unknown])]
        before, after = before[after < len(epoch)], after[after < len(epoch)]
    fell = (epoch[after] < epoch[before]) & (reads["log_offset"][after] > reads["log_offset"][before])
    for name in ("client", "span"):
        fell &= reads[name][after] == reads[name][before]
    audit = of_clients(history.client_role, client[after], unknown=0) == Role.AUDIT.value
    if not history.audited:
        fell &= ~audit
    before, after, audit = before[fell], after[fell], audit[fell]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "reader": client[after],
        "sequence": epoch[after],
        "other_sequence": epoch[before],
        "log_offset": reads["log_offset"][after],
        "other_offset": reads["log_offset"][before],
        "begin_ns": reads["read_ns"][before],
        "end_ns": reads["read_ns"][after],
        "seen_ns": reads["read_ns"][after],
        "leader_epoch": epoch[after],
        "case": np.where(audit, int(EpochCase.AUDITED), int(EpochCase.READ)),
    }
    return make_witnesses(len(after), columns), judged
