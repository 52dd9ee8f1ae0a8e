"""Rows of `sends` inside transactions, and rows of `transactions`. Nothing here sends.

A delivery report inside a transaction says that the record was appended, not that it will ever be shown: it gives the row
its offset, and no more. Outcome and `completed_ns` of every record are its transaction's, given once that has ended.
"""

import mmap
import struct
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, Message

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, SENDS, TRANSACTIONS, Outcome
from workloads.carrier import IDENTITY, IDENTITY_OFFSET
from workloads.client import NowNs
from workloads.java_producer import Report
from workloads.send_rows import complete_refused

COMMIT, ABORT = 1, 2
"""`transactions.ended_by`."""
_AT = {name: SENDS.row_dtype.fields[name][1] for name in SENDS.row_dtype.names or ()}  # type: ignore[index]
_FIELDS = TRANSACTIONS.row_dtype.fields
assert _FIELDS is not None
_COLUMNS = {c.name: (struct.Struct("@q" if c.kind == "i8" else "@i"), _FIELDS[c.name][1]) for c in TRANSACTIONS.columns}
_OUTCOME, _TIME, _OFFSET = struct.Struct("@ii"), struct.Struct("@q"), struct.Struct("@q")
assert _AT["code"] == _AT["outcome"] + 4


class TransactionalSends:
    """`sends` of one client whose records are all in transactions. The sequence is the index of the row."""

    def __init__(self, writer: RowWriter, now_ns: NowNs, *, value_bytes: int) -> None:
        self._writer, self._now_ns, self._value_bytes = writer, now_ns, value_bytes

    @property
    def count(self) -> int:
        """Sequences issued so far."""
        return self._writer.count

    def issue(self, *, transaction: int, partition: int) -> int:
        """The row of a record that is about to be produced; its sequence."""
        sequence = self._writer.count
        values = (self._now_ns(), MISSING, NONE, sequence, transaction, NONE, partition, 0, 0, self._value_bytes)
        return self._writer.append(*values)

    def refused(self, sequence: int, code: int) -> None:
        """produce() raised: the record never entered the client's queue, and is no part of its transaction."""
        complete_refused(self._writer, sequence, code=code, completed_ns=self._now_ns())

    def reported(self, error: KafkaError | None, message: Message | Report) -> None:
        """A delivery report: where the record was appended, if it was."""
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            _, sequence = IDENTITY.unpack_from(message.value() or b"", IDENTITY_OFFSET)
            row, start = self._slot(sequence)
            _OFFSET.pack_into(row, start + _AT["log_offset"], offset)

    def complete(self, first: int, *, outcome: Outcome, code: int, completed_ns: int) -> None:
        """The transaction of the records from `first` on has ended so. `completed_ns` is written last: who follows the rows
        takes a row that has it as judged."""
        for sequence in range(first, self._writer.count):
            row, start = self._slot(sequence)
            if _TIME.unpack_from(row, start + _AT["completed_ns"])[0] == MISSING:
                _OUTCOME.pack_into(row, start + _AT["outcome"], int(outcome), code)
                _TIME.pack_into(row, start + _AT["completed_ns"], completed_ns)

    def close(self) -> None:
        """Flush."""
        self._writer.close()

    def _slot(self, sequence: int) -> tuple[mmap.mmap, int]:
        return self._writer.slot(sequence)


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A row of `transactions`, by columns."""

    transaction: int
    begun_ns: int
    initialised_ns: int
    transactional_id: int
    end_invoked_ns: int = MISSING
    completed_ns: int = MISSING
    ended_by: int = NONE
    outcome: Outcome = Outcome.INFO
    code: int = 0

    def values(self) -> list[int]:
        """In the order of the table."""
        return [int(getattr(self, column.name)) for column in TRANSACTIONS.columns]


class TransactionRows:
    """`transactions` of one client: each row is written before what it tells of is tried, and rewritten when it is known."""

    def __init__(self, writer: RowWriter, now_ns: NowNs, *, transactional_id: int) -> None:
        self._writer, self._now_ns, self._id = writer, now_ns, transactional_id
        self._row = -1
        self._current: TransactionRow | None = None
        self._initialised_ns = MISSING
        self.transactions = 0
        """Begun so far: the number of the next one."""

    @property
    def current(self) -> TransactionRow:
        """The row being told of."""
        assert self._current is not None
        return self._current

    def initialising(self) -> None:
        """init_transactions of a new instance is about to be called."""
        self._initialised_ns = MISSING
        self._append(TransactionRow(NONE, self._now_ns(), MISSING, self._id))

    def initialised(self) -> None:
        """It returned."""
        self._initialised_ns = self._now_ns()
        self._rewrite(outcome=Outcome.OK, completed_ns=self._initialised_ns, initialised_ns=self._initialised_ns)

    def begin(self) -> int:
        """A transaction is about to begin; its number."""
        number = self.transactions
        self.transactions += 1
        self._append(TransactionRow(number, self._now_ns(), self._initialised_ns, self._id))
        return number

    def ending(self, ended_by: int) -> None:
        """Its commit or abort is about to be invoked. The first of them counts."""
        if self.current.ended_by == NONE:
            self._rewrite(ended_by=ended_by, end_invoked_ns=self._now_ns())

    def ended(self, outcome: Outcome, code: int) -> int:
        """Nothing more will be tried; when that was."""
        now_ns = self._now_ns()
        self._rewrite(outcome=outcome, code=code, completed_ns=now_ns)
        return now_ns

    def close(self) -> None:
        """Flush."""
        self._writer.close()

    def _append(self, row: TransactionRow) -> None:
        self._current, self._row = row, self._writer.append(*row.values())

    def _rewrite(self, **columns: int) -> None:
        """In place and column by column: the rest of the row, its mark too, stays whole under a SIGKILL at any moment."""
        self._current = replace(self.current, **columns)  # type: ignore[arg-type] # Outcome is an int
        row, start = self._writer.slot(self._row)
        for name, value in columns.items():
            column, at = _COLUMNS[name]
            column.pack_into(row, start + at, int(value))
