"""Holds what was read of a Jepsen history, in columns, and makes tables of them. Vectorised."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from prozess.harness.app.histories.imports import (
    Imported,
    ImportedClient,
    Part,
    PartitionedRows,
    clustered,
    stable_order,
)
from prozess.harness.errors import BadInput
from prozess.harness.history.parquet import ROW_GROUP_MAX
from prozess.harness.schema import MISSING, NONE, Outcome

SEND_COLUMNS = ("process", "partition", "value", "begun", "offset", "completed", "outcome", "line", "transaction")
"""The numbers that are kept for each send."""
RUN_COLUMNS = ("process", "partition", "span", "time", "start", "count")
"""The numbers that are kept for the records of one partition that one poll gave: `start` is the first one's place among all
records."""
SEND_WIDTH, RUN_WIDTH = len(SEND_COLUMNS), len(RUN_COLUMNS)
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
    """Of each record that was read."""
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
        self, process: int, partition: int, span: int, time_ns: int, offsets: Sequence[int], values: Sequence[int]
    ) -> None:
        """Adds records of one partition that one poll returned."""
        self._runs.extend((process, partition, span, time_ns, len(self._offsets), len(offsets)))
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
    """Makes the tables of a history. BadInput if a value was sent twice to one key: nobody could tell the two apart."""
    sends = columns.sends
    transactional = transactions == "yes" or (
        transactions == "auto" and (columns.has_txn or columns.most_micro_operations > 1)
    )
    sequence, producer = _sequences(sends), 2 * sends["process"] + 2
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
        clients=_clients(columns, send_columns, reads),
        sends=clustered(send_columns, ("client", "sequence")),
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
        runs, sends = columns.runs, columns.sends
        self.client = (2 * runs["process"] + (2 if transactional else 3)).astype(np.int32)
        """int32[runs]"""
        self._unknown_sender = 2 * len(columns.processes) + 2
        order = stable_order([runs["partition"], runs["process"]])
        self._runs = order[runs["count"][order] > 0]
        self._bounds = np.searchsorted(runs["partition"][self._runs], np.arange(len(columns.keys) + 1))
        by_value = stable_order([sends["partition"], sends["value"]])
        partition, value = sends["partition"][by_value], sends["value"][by_value]
        self._refuse_twice(by_value, (np.diff(value) == 0) & (np.diff(partition) == 0))
        self._sent_bounds = np.searchsorted(partition, np.arange(len(columns.keys) + 1))
        self._sent_value = value
        self._sent_sequence, self._sent_producer = sequence[by_value], producer[by_value].astype(np.int32)

    def _refuse_twice(self, order: np.ndarray, same: np.ndarray) -> None:
        if not same.any():
            return
        at = int(np.flatnonzero(same)[0])
        sends, one, other = self._columns.sends, order[at], order[at + 1]
        texts = {code: text for text, code in self._columns.texts.items()}
        value, key = int(sends["value"][one]), self._columns.keys[int(sends["partition"][one])]
        raise BadInput(
            f"Lines {sends['line'][one]} and {sends['line'][other]} both send {texts.get(value, value)} to key "
            f"{edn_text(key)}: values must be unique per key, else nobody can tell the two apart."
        )

    def counts(self, length: int) -> np.ndarray:
        """Returns int64[length]: how many records each client was given."""
        return np.bincount(self.client, weights=self._columns.runs["count"], minlength=length).astype(np.int64)

    def parts(self) -> Iterator[Part]:
        """Yields the rows of each partition, as `PartitionedRows` says."""
        unknown = 0
        runs = self._columns.runs
        for partition, (begin, end) in enumerate(pairwise(self._bounds.tolist())):
            mine = self._runs[begin:end]
            ends = np.cumsum(runs["count"][mine])
            total = int(ends[-1]) if len(ends) else 0
            senders = self._senders(partition) if total else None
            codes = dict[int, int]()
            for first in range(0, total, ROW_GROUP_MAX):
                assert senders is not None
                rows, sent = self._rows(mine, ends, first, min(first + ROW_GROUP_MAX, total), senders)
                if sent is not None:  # each different value that nobody sent is one record
                    for value in rows["sequence"][~sent].tolist():
                        codes.setdefault(value, unknown + len(codes))
                    rows["sequence"][~sent] = [codes[value] for value in rows["sequence"][~sent].tolist()]
                    sent_partition = np.where(sent, partition, NONE).astype(np.int32)
                else:
                    sent_partition = None
                whole = {"partition": partition, "flags": 0}
                yield rows | whole | {"sent_partition": partition if sent_partition is None else sent_partition}
            unknown += len(codes)

    def _rows(
        self, mine: np.ndarray, ends: np.ndarray, first: int, last: int, senders: "_Senders"
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Returns the rows with first ≤ number < last of the runs `mine`, and bool[n]: was the record sent? (None: all were.)
        `sequence` is the value of a record that nobody sent."""
        runs = self._columns.runs
        low, high = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, last, side="left") + 1
        chosen, until = mine[low:high], ends[low:high]
        begin = until - runs["count"][chosen]
        counts = np.minimum(until, last) - np.maximum(begin, first)
        of_run = np.repeat(np.arange(len(chosen)), counts)
        record = np.arange(first, last) + (runs["start"][chosen] - begin)[of_run]
        value = self._columns.values[record]
        sequence, sender, sent = senders.of(value)
        rows = {
            "client": self.client[chosen][of_run],
            "read_ns": runs["time"][chosen][of_run],
            "log_offset": self._columns.offsets[record],
            "sequence": sequence,
            "sender": sender,
            "span": runs["span"][chosen].astype(np.int32)[of_run],
        }
        return rows, sent

    def _senders(self, partition: int) -> "_Senders":
        begin, end = self._sent_bounds[partition : partition + 2]
        return _Senders(
            self._sent_value[begin:end],
            self._sent_sequence[begin:end],
            self._sent_producer[begin:end],
            self._unknown_sender,
        )


class _Senders:
    """Finds who sent a value to a key. `values` ascend."""

    def __init__(self, values: np.ndarray, sequence: np.ndarray, producer: np.ndarray, unknown: int) -> None:
        self._values = values
        self._sequence, self._producer = np.append(sequence, 0), np.append(producer, np.int32(unknown))
        self._least, self._place = 0, None
        width = int(values[-1]) - int(values[0]) + 1 if len(values) else 0
        if 0 < width <= _SPARSE * len(values) + 1024:
            self._least = int(values[0])
            self._place = np.full(width, len(values), dtype=np.intp)
            self._place[values - self._least] = np.arange(len(values))

    def of(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Returns (sequence, sender, was it sent?) of each value; None: all were. The sequence of one that was not is the
        value."""
        row = self._rows(values)
        sent = row < len(self._values)
        sequence, sender = self._sequence[row], self._producer[row]
        if sent.all():
            return sequence, sender, None
        return np.where(sent, sequence, values), sender, sent

    def _rows(self, values: np.ndarray) -> np.ndarray:
        if self._place is None:
            row = np.searchsorted(self._values, values)
            there = row < len(self._values)
            there[there] = self._values[row[there]] == values[there]
            return np.where(there, row, len(self._values))
        places = values - self._least
        if len(places) and (places.min() < 0 or places.max() >= len(self._place)):
            inside = (places >= 0) & (places < len(self._place))
            return np.where(inside, self._place[np.where(inside, places, 0)], len(self._values))
        return np.asarray(self._place[places])


def edn_text(key: int | str) -> str:
    """A key as it stands in the file."""
    if isinstance(key, int):
        return str(key)
    if key.startswith('"'):
        return '"' + key[1:].replace("\\", "\\\\").replace('"', '\\"') + '"'
    return key[1:] if key.startswith("'") else key


def _sequences(sends: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the number of each send within its producer: its value, where those rise from operation to operation for
    each producer and key (Jepsen's do); else the order of sending."""
    value, process = sends["value"], sends["process"]
    if len(value) and value.min() >= 0 and value.max() < 1 << 40:
        order = stable_order([process, sends["partition"]])
        same = (np.diff(process[order]) == 0) & (np.diff(sends["partition"][order]) == 0)
        if (np.diff(value[order])[same] > 0).all():
            return value.copy()
    order = stable_order([process])
    of = process[order]
    first = np.searchsorted(of, of)
    sequence = np.empty(len(value), dtype=np.int64)
    sequence[order] = np.arange(len(value)) - first
    return sequence


def _clients(columns: JepsenColumns, sends: Mapping[str, np.ndarray], reads: _Reads) -> list[ImportedClient]:
    """A producer and a reader of each process that sent, or was given, anything."""
    given = columns.runs["count"] > 0
    written = _partitions_of(sends["client"], sends["partition"])
    read = _partitions_of(reads.client[given], columns.runs["partition"][given])
    issued = np.zeros(2 * len(columns.processes) + 4, dtype=np.int64)
    np.maximum.at(issued, sends["client"], sends["sequence"] + 1)
    counts = reads.counts(len(issued))
    either = {**read, **written}
    found = []
    for number, (process, started_ns, ended_ns, _) in enumerate(columns.processes):
        for client, role, of, told in (
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
                        issued=int(told[client]),
                        started_ns=started_ns,
                        ended_ns=ended_ns,
                        partitions=of[client],
                        reads=client in read,
                    )
                )
    return found


def _partitions_of(client: np.ndarray, partition: np.ndarray) -> dict[int, tuple[int, ...]]:
    """Client → the partitions of its rows, ascending."""
    pairs = np.unique((client.astype(np.int64) << 32) | partition)
    clients, partitions = pairs >> 32, pairs & 0xFFFFFFFF
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
