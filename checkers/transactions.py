"""What Kafka promises of transactions to those who read at read_committed: all or nothing, only what was committed, and
nothing of who was fenced. Kernels over a whole cell; stage check.

Source of all: KIP-98 "Exactly Once Delivery and Transactional Messaging", and
https://kafka.apache.org/documentation/#consumerconfigs_isolation.level. Counts are of records: each is a witness of its own,
in its own partition, because what excuses one (its partition lost data) does not excuse another.
"""

from collections.abc import Callable

import numpy as np

from checkers.lookup import differs_from_previous
from checkers.transaction_arrays import CellIndex
from harness.protocols import CellHistory, KernelResult
from harness.schema import MISSING, NONE, Isolation
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

AT_READ_COMMITTED = 0
"""`aborted-read`, `early-read`: a read_committed consumer was given the record (or V shows it)."""
AT_READ_UNCOMMITTED = 1
"""… a read_uncommitted consumer was: nothing else was promised."""


def torn(history: CellHistory) -> KernelResult:
    """Of the records of one transaction read_committed shows all, or none.

    Counts the records that are missing from V while V shows another of their transaction (`other_*`). Not judged:
    transactions that were only ever aborted (what is shown of them is `aborted-read`); what retention or compaction may have
    removed, what may stand behind the sentinel. O(n).
    """
    index = CellIndex.of(history)
    judged = index.shown & ~index.transactions.aborted
    rows = np.flatnonzero(index.missing & judged[index.transaction])
    which = index.transaction[rows[:WITNESSES_MAX]]
    sequence, offset = index.first_shown(which)
    columns = {
        "other_client": index.transactions.columns["client"][which],
        "other_sequence": sequence,
        "other_offset": offset,
    }
    return _of_records(index, rows, columns, judged=int(np.count_nonzero(index.committed)))


def lost_transaction(history: CellHistory) -> KernelResult:
    """A transaction whose commit was confirmed, or seen by a read_committed consumer, is shown.

    Counts the records of committed transactions of which V shows none. O(n).
    """
    index = CellIndex.of(history)
    gone = index.committed & ~index.shown
    rows = np.flatnonzero(index.missing & gone[index.transaction])
    return _of_records(index, rows, {}, judged=int(np.count_nonzero(index.committed)))


def zombie_write(history: CellHistory) -> KernelResult:
    """Once init_transactions of a later instance of a transactional.id has returned, no earlier one commits anything.

    Source: KIP-98, "Zombie fencing". Counts records in V of transactions whose commit was invoked after that (`other_ns`,
    `other_client`: the later instance). A commit that overlaps the init is legal; so is one of an instance of which it is not
    certain that it is the earlier. O(n).
    """
    index = CellIndex.of(history)
    transactions = index.transactions
    since, successor = transactions.superseded
    rows = np.flatnonzero((index.visible_at >= 0) & transactions.zombie[index.transaction])
    which = index.transaction[rows[:WITNESSES_MAX]]
    columns = {
        "log_offset": index.visible_offsets(rows[:WITNESSES_MAX]),
        "other_ns": since[which],
        "other_client": successor[which],
    }
    return _of_records(index, rows, columns, judged=transactions.committing)


def aborted_read(history: CellHistory) -> KernelResult:
    """What a transaction wrote that was aborted is never shown at read_committed.

    Counts records per isolation level, however often they were given: at read_committed by a consumer or V
    (AT_READ_COMMITTED), at read_uncommitted by a consumer (AT_READ_UNCOMMITTED). O(n), O(k log k) for k reads of aborted
    records.
    """
    index = CellIndex.of(history)
    aborted = index.transactions.aborted

    def of(position: int) -> np.ndarray:
        rows, transaction, _ = index.consumed(position)
        shown, shown_transaction = index.shown_by(position)
        return np.concatenate([rows[aborted[transaction]], shown[aborted[shown_transaction]]])

    return of_reads(index, of)


def early_read(history: CellHistory) -> KernelResult:
    """No read_committed consumer is given a record before the commit of its transaction was invoked.

    Counts records per isolation level, as `aborted_read`; of transactions that were not aborted. A poll's records were given
    when it returned, later than they were fetched: so what is found is certain. O(n), O(k log k) for k early reads.
    """
    index = CellIndex.of(history)

    def of(position: int) -> np.ndarray:
        rows, transaction, _ = index.consumed(position)
        early = index.partitions[position].reads["read_ns"][rows] < index.transactions.commit_invoked_ns[transaction]
        found: np.ndarray = rows[early & ~index.transactions.aborted[transaction]]
        return found

    return of_reads(index, of)


def _of_records(index: CellIndex, rows: np.ndarray, columns: dict[str, np.ndarray], *, judged: int) -> KernelResult:
    """A finding of these records; `columns` are of the first WITNESSES_MAX of them."""
    count = len(rows)
    rows = rows[:WITNESSES_MAX]
    if not len(rows):
        return KernelResult(no_witnesses(), count, judged, incomplete=index.incomplete)
    numbers = np.array([partition.partition for partition in index.partitions])
    whole = {
        "partition": numbers[index.which[rows]],
        "client": index.of_sends("client")[rows],
        "sequence": index.of_sends("sequence")[rows],
        "log_offset": index.of_sends("log_offset")[rows],
        "begin_ns": index.of_sends("invoked_ns")[rows],
        "end_ns": index.of_sends("completed_ns")[rows],
        "outcome": index.of_sends("outcome")[rows],
        "seen_ns": np.full(len(rows), MISSING),
        "reader": np.full(len(rows), NONE),
    }
    for position, partition in enumerate(index.partitions):
        mine = index.which[rows] == position
        if mine.any():
            seen = partition.seen(partition.send_key[index.row[rows[mine]]])
            whole["seen_ns"][mine], whole["reader"][mine] = seen["seen_ns"], seen["reader"]
    # Without an audit what is missing was read past: the finding stands.
    reason = index.incomplete if index.audited else None
    return KernelResult(make_witnesses(len(rows), whole | columns), count, judged, incomplete=reason)


def of_reads(index: CellIndex, of: Callable[[int], np.ndarray]) -> KernelResult:
    """A finding of the reads (rows per partition) that `of` chooses: one witness per record and isolation level, by whom it
    was first given, read_committed before read_uncommitted."""
    parts: list[np.ndarray] = [no_witnesses()]
    judged = 0
    for position, partition in enumerate(index.partitions):
        judged += len(index.consumed(position)[0]) + len(partition.visible.rows)
        rows = of(position)
        if not len(rows):
            continue
        reads = partition.reads
        level = partition.fact(partition.client_isolation, reads["client"][rows], unknown=Isolation.READ_UNCOMMITTED)
        case = np.where(level == Isolation.READ_COMMITTED, AT_READ_COMMITTED, AT_READ_UNCOMMITTED)
        audit = ~partition.by_consumer[rows]
        order = np.lexsort((reads["read_ns"][rows], audit, partition.read_key[rows], case))
        rows, case, audit = rows[order], case[order], audit[order]
        new = differs_from_previous(partition.read_key[rows]) | differs_from_previous(case)
        rows, case, audit = rows[new], case[new], audit[new]
        columns = {
            "partition": np.full(len(rows), partition.partition),
            "client": reads["sender"][rows],
            "sequence": reads["sequence"][rows],
            "log_offset": reads["log_offset"][rows],
            "reader": reads["client"][rows],
            "seen_ns": np.where(audit, MISSING, reads["read_ns"][rows]),
            "case": case,
            **partition.sent(partition.send_rows(partition.read_key[rows])),
        }
        parts.append(make_witnesses(len(rows), columns))
    found = np.concatenate(parts)
    found = found[np.argsort(found["case"], kind="stable")]
    return KernelResult(found[:WITNESSES_MAX], len(found), judged, incomplete=index.incomplete)
