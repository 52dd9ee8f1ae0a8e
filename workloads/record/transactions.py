"""Rows of `sends` inside transactions, and rows of `transactions`.

A delivery report inside a transaction says that the record was appended, not that it will ever be shown: it gives the
row its offset, and no more. Outcome and `completed_ns` of every record are its transaction's, given once that has
ended.
"""

import mmap
import struct
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError

from prozess.harness.columns import offsets_in_row
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, TRANSACTIONS, Outcome
from prozess.workloads.client import NowNs
from prozess.workloads.record.identity import IDENTITY, IDENTITY_OFFSET
from prozess.workloads.record.sends import FIELD_AT, OUTCOME_FORM, TIME_FORM, DeliveryReport, complete_refused

_AT = offsets_in_row(TRANSACTIONS)
_COLUMNS = {c.name: (struct.Struct("@q" if c.kind == "i8" else "@i"), _AT[c.name]) for c in TRANSACTIONS.columns}


class TransactionalSends:
    """Writes the `sends` of a client whose records are all in transactions. A record's sequence is the index of its
    row."""

    def __init__(self, writer: RowWriter, now_ns: NowNs, *, value_bytes: int) -> None:
        self._writer, self._now_ns, self._value_bytes = writer, now_ns, value_bytes

    @property
    def count(self) -> int:
        """Returns how many sequences were issued."""
        return self._writer.count

    def issue(self, *, transaction: int, partition: int) -> int:
        """Writes the row of a record that is about to be produced, and returns its sequence."""
        sequence = self._writer.count
        values = (self._now_ns(), MISSING, NONE, sequence, transaction, NONE, partition, 0, 0, self._value_bytes)
        return self._writer.append(*values)

    def refused(self, sequence: int, code: int) -> None:
        """Completes a row as failed: produce() raised, so the record is no part of its transaction."""
        complete_refused(self._writer, sequence, code=code, completed_ns=self._now_ns())

    def reported(self, error: KafkaError | None, message: DeliveryReport) -> None:
        """Takes a delivery report: notes where the record was appended, if it was."""
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            _, sequence = IDENTITY.unpack_from(message.value() or b"", IDENTITY_OFFSET)
            row, start = self._slot(sequence)
            TIME_FORM.pack_into(row, start + FIELD_AT["log_offset"], offset)

    def complete(self, first: int, *, outcome: Outcome, code: int, completed_ns: int) -> None:
        """Completes the records from `first` on with the end of their transaction. `completed_ns` is written last: who
        follows the rows takes a row that has it as judged."""
        for sequence in range(first, self._writer.count):
            row, start = self._slot(sequence)
            if TIME_FORM.unpack_from(row, start + FIELD_AT["completed_ns"])[0] == MISSING:
                OUTCOME_FORM.pack_into(row, start + FIELD_AT["outcome"], int(outcome), code)
                TIME_FORM.pack_into(row, start + FIELD_AT["completed_ns"], completed_ns)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _slot(self, sequence: int) -> tuple[mmap.mmap, int]:
        return self._writer.slot(sequence)


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """What a client knows of one transaction, or of one init_transactions: the columns of `transactions`. Times in ns."""

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
        """Returns the values in the order of the table."""
        return [int(getattr(self, column.name)) for column in TRANSACTIONS.columns]


class TransactionRows:
    """Writes the `transactions` of one client. A row is written before what it reports is tried, and rewritten when
    that is known."""

    def __init__(self, writer: RowWriter, now_ns: NowNs, *, transactional_id: int) -> None:
        self._writer, self._now_ns, self._id = writer, now_ns, transactional_id
        self._row = -1
        self._current: TransactionRow | None = None
        self._initialised_ns = MISSING
        self.transactions = 0
        """How many transactions were begun, which is also the number of the next one."""

    @property
    def current(self) -> TransactionRow:
        """The row that is being written."""
        assert self._current is not None
        return self._current

    def initialising(self) -> None:
        """Notes that init_transactions of a new instance is about to be called."""
        self._initialised_ns = MISSING
        self._append(TransactionRow(NONE, self._now_ns(), MISSING, self._id))

    def initialised(self) -> None:
        """Notes that init_transactions returned."""
        self._initialised_ns = self._now_ns()
        self._rewrite(outcome=Outcome.OK, completed_ns=self._initialised_ns, initialised_ns=self._initialised_ns)

    def begin(self) -> int:
        """Notes that a transaction is about to begin, and returns its number."""
        number = self.transactions
        self.transactions += 1
        self._append(TransactionRow(number, self._now_ns(), self._initialised_ns, self._id))
        return number

    def ending(self, ended_by: int) -> None:
        """Notes that a commit or an abort is about to be invoked. The first of them counts."""
        if self.current.ended_by == NONE:
            self._rewrite(ended_by=ended_by, end_invoked_ns=self._now_ns())

    def ended(self, outcome: Outcome, code: int) -> int:
        """Notes that nothing more will be tried, and returns when that was."""
        now_ns = self._now_ns()
        self._rewrite(outcome=outcome, code=code, completed_ns=now_ns)
        return now_ns

    def close(self) -> None:
        """Writes the rows to their end."""
        self._writer.close()

    def _append(self, row: TransactionRow) -> None:
        self._current, self._row = row, self._writer.append(*row.values())

    def _rewrite(self, **columns: int) -> None:
        """Rewrites a row in place, column by column: its rest and its mark stay whole under a SIGKILL at any moment."""
        self._current = replace(self.current, **columns)  # type: ignore[arg-type] # Outcome is an int
        row, start = self._writer.slot(self._row)
        for name, value in columns.items():
            column, at = _COLUMNS[name]
            column.pack_into(row, start + at, int(value))
