"""What transactions read themselves. A kernel over a whole cell; stage check.

A read belongs to the transaction that its client had open when it was given the record.
"""

import numpy as np

from checkers.transaction_arrays import CellIndex, reading_transactions
from checkers.transactions import of_reads
from harness.protocols import CellHistory, KernelResult


def own_read(history: CellHistory) -> KernelResult:
    """A transaction that reads at read_committed is not given what it has itself written, which is not committed yet.

    Source: KIP-98; https://kafka.apache.org/documentation/#consumerconfigs_isolation.level. Counts records per isolation
    level, as `aborted-read`. O(k log n) for k reads inside transactions.
    """
    index = CellIndex.of(history)
    judged = 0

    def of(position: int) -> np.ndarray:
        nonlocal judged
        rows, writer, reader, _ = reads_inside(index, position)
        judged += len(rows)
        own: np.ndarray = rows[writer == reader]
        return own

    found = of_reads(index, of)
    return KernelResult(found.witnesses, found.count, judged, incomplete=None)


def reads_inside(index: CellIndex, position: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of partition number `position` the reads inside transactions, of records of transactions: rows of `reads`, writing and
    reading transaction, level."""
    rows, writer, level = index.consumed(position)
    reads = index.partitions[position].reads
    reader = reading_transactions(index, reads["client"][rows], reads["read_ns"][rows])
    mine = reader >= 0
    return rows[mine], writer[mine], reader[mine], level[mine]
