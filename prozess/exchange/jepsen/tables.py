"""Holds a Jepsen history in columns, and makes tables of them. Vectorised."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, NoReturn

import numpy as np

from prozess.exchange.imported_run import (
    Imported,
    ImportedClient,
    Part,
    PartitionedRows,
    by_partition,
    stable_order,
)
from prozess.harness.errors import BadInput
from prozess.harness.history.parquet import ROW_GROUP_MAX
from prozess.harness.schema import MISSING, NONE, Outcome

SEND_COLUMNS = ("process", "partition", "value", "begun", "offset", "completed", "outcome", "line", "transaction")
"""The numbers that are kept for each send."""
RUN_COLUMNS = ("process", "partition", "span", "time", "start", "count", "begins")
"""The numbers that are kept for the records of one partition that one poll gave: `start` is the first one's index among all
records; `begins` is the ReadFlag that says how a span begins here, or 0."""
SEND_WIDTH = len(SEND_COLUMNS)
COMMIT, ABORT = 1, 2
"""`transactions.ended_by`."""
_SPARSE = 4
"""Values of a key that are spread over more than this many times their number are searched for, not looked up."""


@dataclass(frozen=True, slots=True)
class JepsenColumns:
    """What a Jepsen history says, in columns of integers."""

    keys: Sequence[int | str]
    """The key of each dense partition id."""
    texts: Mapping[str, int]
    """Values that are no numbers → their codes."""
    processes: Sequence[tuple[int, int, int, int]]
    """(process, started, ended, operations with sends)."""
    sends: Mapping[str, np.ndarray]
    """SEND_COLUMNS → n, in the order in which they were invoked."""
    runs: Mapping[str, np.ndarray]
    """RUN_COLUMNS → n, in the order of the file."""
    offsets: np.ndarray
    """For each record that was read."""
    values: np.ndarray
    most_micro_operations: int
    has_txn: bool


class JepsenRecords:
    """The sends and reads of a Jepsen history while it is read: sends one by one, reads by the poll."""

    def __init__(self) -> None:
        self.partitions: dict[int | str, int] = {}
        """Key → dense partition id."""
        self.texts: dict[str, int] = {}
        """Values that are no numbers → their codes."""
        self.processes: Sequence[tuple[int, int, int, int]] = ()
        """(process, started, ended, operations with sends)."""
        self.sends = array("q")
        self._runs = array("q")
        self._offsets, self._values = array("q"), array("q")
        self.most_micro_operations = 0
        self.has_txn = False

    def add_send(self, *, process: int, partition: int, value: int, begun_ns: int, line: int, transaction: int) -> int:
        """Adds a send that has begun, and returns its row."""
        row = len(self.sends) // SEND_WIDTH
        self.sends.extend((process, partition, value, begun_ns, NONE, MISSING, Outcome.INFO, line, transaction))
        return row

    def send_of(self, row: int) -> tuple[int, int]:
        """Returns (partition, value) of a send."""
        return self.sends[row * SEND_WIDTH + 1], self.sends[row * SEND_WIDTH + 2]

    def complete(self, row: int, time_ns: int, outcome: int) -> None:
        """Notes how a send ended."""
        self.sends[row * SEND_WIDTH + 5] = time_ns
        self.sends[row * SEND_WIDTH + 6] = outcome

    def add_reads(
        self,
        process: int,
        partition: int,
        span: int,
        time_ns: int,
        offsets: Sequence[int],
        values: Sequence[int],
        *,
        begins: int = 0,
    ) -> None:
        """Adds records of one partition that one poll returned."""
        self._runs.extend((process, partition, span, time_ns, len(self._offsets), len(offsets), begins))
        self._offsets.extend(offsets)
        self._values.extend(values)

    def columns(self) -> JepsenColumns:
        """Returns everything that was added, in the order of the file."""
        return JepsenColumns(
            keys=list(self.partitions),
            texts=self.texts,
            processes=self.processes,
            sends=_columns(self.sends, SEND_COLUMNS),
            runs=_columns(self._runs, RUN_COLUMNS),
            offsets=np.array(self._offsets, dtype=np.int64),
            values=np.array(self._values, dtype=np.int64),
            most_micro_operations=self.most_micro_operations,
            has_txn=self.has_txn,
        )


def _columns(numbers: "array[int]", names: Sequence[str]) -> dict[str, np.ndarray]:
    table = np.array(numbers, dtype=np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(column) for name, column in zip(names, table.T, strict=True)}


def tables_of(columns: JepsenColumns, *, transactions: Literal["auto", "yes", "no"], title: str) -> Imported:
    """Makes the tables of a history. BadInput if a value was sent twice to one key: nobody could distinguish the two."""
    sends = columns.sends
    transactional = transactions == "yes" or (
        transactions == "auto" and (columns.has_txn or columns.most_micro_operations > 1)
    )
    order = stable_order([sends["partition"], sends["process"]])
    sequence, producer = _sequences(sends, order), 2 * sends["process"] + 2
    reads = _Reads(columns, sequence, producer, transactional=transactional)
    send_columns = {
        "client": producer.astype(np.int32),
        "invoked_ns": sends["begun"],
        "completed_ns": sends["completed"],
        "log_offset": sends["offset"],
        "sequence": sequence,
        "transaction": sends["transaction"] if transactional else np.full(len(sequence), NONE),
        "partition": sends["partition"].astype(np.int32),
        "outcome": sends["outcome"].astype(np.int32),
        "code": np.where(sends["outcome"] == Outcome.OK, 0, -1).astype(np.int32),
        "size": np.zeros(len(sequence), dtype=np.int32),
    }
    return Imported(
        origin="jepsen",
        title=title,
        workload="transactions" if transactional else "log",
        topics=[(edn_text(key), 0) for key in columns.keys],
        clients=_clients(columns, send_columns, order, reads),
        sends=by_partition(send_columns, order),  # sequences rise as operations do
        reads=PartitionedRows(len(columns.offsets), reads.parts),
        others={"transactions": _transactions(sends)} if transactional and len(sequence) else {},
        notes=[f"operations are {'' if transactional else 'no '}transactions"],
    )


class _Reads:
    """The records that consumers were given, and who sent each. Rows are made partition by partition, because there are many
    more of them than of what polls gave."""

    def __init__(
        self, columns: JepsenColumns, sequence: np.ndarray, producer: np.ndarray, *, transactional: bool
    ) -> None:
        """`sequence`, `producer`: of each send. What a transaction reads itself is its client's own."""
        self._columns = columns
        runs = columns.runs
        self.client = (2 * runs["process"] + (2 if transactional else 3)).astype(np.int32)
        """int32[runs]"""
        self._unknown_sender = 2 * len(columns.processes) + 2
        order = stable_order([runs["partition"], runs["process"]])
        self._runs = order[runs["count"][order] > 0]
        partition = runs["partition"][self._runs]
        self._bounds = np.searchsorted(partition, np.arange(len(columns.keys) + 1))
        self.partitions = _partitions_of(self.client[self._runs], partition)
        """Client → the partitions that it was given records of."""
        self._sent = _Sent(columns, sequence, producer.astype(np.int32))

    def counts(self, length: int) -> np.ndarray:
        """Returns int64[length]: how many records each client was given."""
        return np.bincount(self.client, weights=self._columns.runs["count"], minlength=length).astype(np.int64)

    def parts(self) -> Iterator[Part]:
        """Yields the rows of each partition, as `PartitionedRows` says. Each different value that nobody sent is a record of
        its own."""
        runs, unsent = self._columns.runs, 0
        for partition, (begin, end) in enumerate(pairwise(self._bounds.tolist())):
            mine = self._runs[begin:end]
            ends = np.cumsum(runs["count"][mine])
            total = int(ends[-1]) if len(ends) else 0
            known = np.empty(0, dtype=np.int64)
            for first in range(0, total, ROW_GROUP_MAX):
                rows, sent = self._rows(partition, mine, ends, first, min(first + ROW_GROUP_MAX, total))
                sent_partition: np.ndarray | int = partition
                if sent is not None:
                    values = rows["sequence"][~sent]
                    known = np.append(known, np.setdiff1d(values, known))
                    order = np.argsort(known)
                    rows["sequence"][~sent] = unsent + order[np.searchsorted(known, values, sorter=order)]
                    sent_partition = np.where(sent, partition, NONE)
                yield rows | {"partition": partition, "sent_partition": sent_partition}
            unsent += len(known)

    def _rows(
        self, partition: int, mine: np.ndarray, ends: np.ndarray, first: int, last: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Returns the rows with first ≤ number < last of the runs `mine`, and bool[n]: was the record sent? (None: all were.)
        `sequence` is the value of a record that nobody sent. `ends`: the rows up to the end of each run."""
        runs = self._columns.runs
        low, high = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, last, side="left") + 1
        chosen, until = mine[low:high], ends[low:high]
        begin = until - runs["count"][chosen]
        counts = np.minimum(until, last) - np.maximum(begin, first)
        of_run = np.repeat(np.arange(len(chosen)), counts)
        record = np.arange(first, last) + (runs["start"][chosen] - begin)[of_run]
        value = self._columns.values[record]
        sequence, sender, sent = self._sent.of(partition, value)
        if sent is not None:
            sequence, sender = np.where(sent, sequence, value), np.where(sent, sender, np.int32(self._unknown_sender))
        flags = np.zeros(last - first, dtype=np.int32)
        begun = np.flatnonzero((runs["begins"][chosen] != 0) & (begin >= first))
        flags[begin[begun] - first] = runs["begins"][chosen[begun]]
        rows = {
            "flags": flags,
            "client": self.client[chosen][of_run],
            "read_ns": runs["time"][chosen][of_run],
            "log_offset": self._columns.offsets[record],
            "sequence": sequence,
            "sender": sender,
            "span": runs["span"][chosen].astype(np.int32)[of_run],
        }
        return rows, sent


class _Sent:
    """Finds who sent a value to a key. Values of most keys are numbers without many gaps: then it is an array access."""

    def __init__(self, columns: JepsenColumns, sequence: np.ndarray, producer: np.ndarray) -> None:
        """`sequence`, `producer`: of each send. BadInput if a value was sent twice to one key."""
        self._columns = columns
        partition, value = columns.sends["partition"], columns.sends["value"]
        keys = len(columns.keys)
        self._least = np.full(keys, np.iinfo(np.int64).max)
        most = np.full(keys, np.iinfo(np.int64).min)
        np.minimum.at(self._least, partition, value)
        np.maximum.at(most, partition, value)
        widths = [max(0, high - low + 1) for low, high in zip(self._least.tolist(), most.tolist(), strict=True)]
        self._ends = list(accumulate(widths, initial=0))
        self._dense = self._ends[-1] <= _SPARSE * len(value) + 1024
        if self._dense:
            index = np.array(self._ends[:-1], dtype=np.int64)[partition] + (value - self._least[partition])
            row = np.full(self._ends[-1] + 1, NONE, dtype=np.int64)
            row[index] = np.arange(len(value))
            if (row[index] != np.arange(len(value))).any():
                self._refuse_twice()
            self._known = row != NONE
            # The row of what nobody sent is the last one's, or, if there are no sends, one more.
            self._sequence, self._producer = np.append(sequence, 0)[row], np.append(producer, np.int32(0))[row]
        else:
            order = stable_order([partition, value])
            self._value, ordered = value[order], partition[order]
            if ((np.diff(self._value) == 0) & (np.diff(ordered) == 0)).any():
                self._refuse_twice()
            self._ends = np.searchsorted(ordered, np.arange(keys + 1)).tolist()
            self._sequence, self._producer = sequence[order], producer[order]

    def of(self, partition: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Returns (sequence, sender, was it sent?) of each value in a partition; None: all were. Sequence and sender of one
        that was not are anything."""
        begin, end = self._ends[partition : partition + 2]
        if begin == end:
            nothing = np.zeros(len(values), dtype=np.int64)
            return nothing, nothing.astype(np.int32), nothing.astype(bool)
        if self._dense:
            row = values - int(self._least[partition])
            inside = (row >= 0) & (row < end - begin)
            row = begin + (row if inside.all() else np.where(inside, row, 0))
            sent = inside & self._known[row]
        else:
            row = begin + np.minimum(np.searchsorted(self._value[begin:end], values), end - begin - 1)
            sent = self._value[row] == values
        return self._sequence[row], self._producer[row], None if sent.all() else sent

    def _refuse_twice(self) -> NoReturn:
        sends = self._columns.sends
        order = np.lexsort([sends["value"], sends["partition"]])
        same = (np.diff(sends["value"][order]) == 0) & (np.diff(sends["partition"][order]) == 0)
        at = int(np.flatnonzero(same)[0])
        one, other = order[at], order[at + 1]
        texts = {code: text for text, code in self._columns.texts.items()}
        value, key = int(sends["value"][one]), self._columns.keys[int(sends["partition"][one])]
        raise BadInput(
            f"Lines {sends['line'][one]} and {sends['line'][other]} both send {texts.get(value, value)} to key "
            f"{edn_text(key)}: values must be unique per key, else nobody can distinguish the two."
        )


def edn_text(key: int | str) -> str:
    """Returns a key as EDN writes it. Texts are kept with a quotation mark in front, and other values with an apostrophe."""
    if isinstance(key, int):
        return str(key)
    if key.startswith('"'):
        return '"' + key[1:].replace("\\", "\\\\").replace('"', '\\"') + '"'
    return key[1:] if key.startswith("'") else key


def _sequences(sends: Mapping[str, np.ndarray], order: np.ndarray) -> np.ndarray:
    """Returns the number of each send within its producer: its value, where those rise from operation to operation for
    each producer and key (Jepsen's do); else the order of sending. `order`: by partition and process."""
    value, process = sends["value"], sends["process"]
    if len(value) and value.min() >= 0 and value.max() < 1 << 40:
        same = (np.diff(process[order]) == 0) & (np.diff(sends["partition"][order]) == 0)
        if (np.diff(value[order])[same] > 0).all():
            return value
    order = stable_order([process])
    of = process[order]
    first = np.searchsorted(of, of)
    sequence = np.empty(len(value), dtype=np.int64)
    sequence[order] = np.arange(len(value)) - first
    return sequence


def _clients(
    columns: JepsenColumns, sends: Mapping[str, np.ndarray], order: np.ndarray, reads: _Reads
) -> list[ImportedClient]:
    """Returns a producer and a reader for each process that sent or received records."""
    written, read = _partitions_of(sends["client"][order], sends["partition"][order]), reads.partitions
    issued = np.zeros(2 * len(columns.processes) + 4, dtype=np.int64)
    np.maximum.at(issued, sends["client"], sends["sequence"] + 1)
    counts = reads.counts(len(issued))
    either = {**read, **written}
    found = []
    for number, (process, started_ns, ended_ns, _) in enumerate(columns.processes):
        for client, role, of, count in (
            (2 * number + 2, "producer", either, issued),
            (2 * number + 3, "reader", read, counts),
        ):
            if client in of:
                name = f"process-{process}" if role == "producer" else f"process-{process}-consumer"
                found.append(
                    ImportedClient(
                        client=client,
                        role=role,
                        name=name,
                        issued=int(count[client]),
                        started_ns=started_ns,
                        ended_ns=ended_ns,
                        partitions=of[client],
                        reads=client in read,
                    )
                )
    return found


def _partitions_of(client: np.ndarray, partition: np.ndarray) -> dict[int, tuple[int, ...]]:
    """Client → the partitions of its rows, ascending. The rows are in the order of partitions, and of clients in each."""
    first = np.flatnonzero((np.diff(client, prepend=-1) != 0) | (np.diff(partition, prepend=-1) != 0))
    first = first[stable_order([client[first]])]
    clients, partitions = client[first], partition[first]
    bounds = np.flatnonzero(np.diff(clients)) + 1
    groups = zip(np.split(clients, bounds), np.split(partitions, bounds), strict=True)
    return {int(c[0]): tuple(p.tolist()) for c, p in groups if len(c)}


def _transactions(sends: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a row for each operation that sent: :ok committed, :fail certainly did not, :info may have."""
    process, transaction = sends["process"], sends["transaction"]
    begins = np.ones(len(process), dtype=bool)  # the sends of an operation follow one another
    begins[1:] = (np.diff(process) != 0) | (np.diff(transaction) != 0)
    first = np.flatnonzero(begins)
    first = first[stable_order([process[first], transaction[first]])]
    outcome = sends["outcome"][first]
    return {
        "client": (2 * process[first] + 2).astype(np.int32),
        "transaction": transaction[first],
        "begun_ns": sends["begun"][first],
        # The commit was invoked between the two; never earlier than the operation.
        "end_invoked_ns": np.where(outcome == Outcome.FAIL, sends["completed"][first], sends["begun"][first]),
        "completed_ns": sends["completed"][first],
        "ended_by": np.where(outcome == Outcome.FAIL, ABORT, COMMIT).astype(np.int32),
        "outcome": np.where(outcome == Outcome.FAIL, Outcome.OK, outcome).astype(np.int32),
    }
