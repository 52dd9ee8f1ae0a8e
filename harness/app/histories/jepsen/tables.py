"""Holds what was read of a Jepsen history, in columns, and the tables that they make. Vectorised."""

from array import array
from collections.abc import Sequence
from typing import Literal

import numpy as np

from prozess.harness.app.histories.imports import Imported, ImportedClient
from prozess.harness.errors import BadInput
from prozess.harness.schema import MISSING, NONE, Outcome

SEND_WIDTH = 9
"""The numbers that are kept for each send: process, partition, value, begun, offset, completed, outcome, line,
transaction."""
COMMIT, ABORT = 1, 2
"""`transactions.ended_by`."""


class JepsenRecords:
    """The sends and reads of a Jepsen history: sends one by one, reads by the poll."""

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
        self._runs.extend((process, partition, span, time_ns, len(offsets)))
        self._offsets.extend(offsets)
        self._values.extend(values)

    def add_many_sends(self, rows: np.ndarray) -> None:
        """int64[n, SEND_WIDTH]: sends that have begun."""
        self.sends.frombytes(rows.tobytes())

    def sends_table(self) -> np.ndarray:
        """Returns int64[n, SEND_WIDTH]: every send, to be completed in place. While it is held, none can be added."""
        return np.frombuffer(self.sends, dtype=np.int64).reshape(-1, SEND_WIDTH)

    def add_many_reads(self, runs: Sequence[int], offsets: np.ndarray, values: np.ndarray) -> None:
        """Records that polls gave: (process, partition, span, time, how many) of each stretch, one after the other."""
        self._runs.extend(runs)
        self._offsets.frombytes(offsets.astype(np.int64).tobytes())
        self._values.frombytes(values.astype(np.int64).tobytes())

    def send_columns(self) -> dict[str, np.ndarray]:
        """Returns the columns of every send, in the order of the file."""
        names = ("process", "partition", "value", "begun", "offset", "completed", "outcome", "line", "transaction")
        table = (
            np.frombuffer(self.sends, dtype=np.int64).reshape(-1, SEND_WIDTH) if self.sends else np.empty((0, 9), "i8")
        )
        return dict(zip(names, table.T, strict=True))

    def read_columns(self) -> dict[str, np.ndarray]:
        """Returns the columns of every record that was read, in the order of the file."""
        runs = np.frombuffer(self._runs, dtype=np.int64).reshape(-1, 5) if self._runs else np.empty((0, 5), "i8")
        columns = {
            name: np.repeat(runs[:, n], runs[:, 4]) for n, name in enumerate(("process", "partition", "span", "time"))
        }
        columns["offset"] = np.array(self._offsets, dtype=np.int64)
        columns["value"] = np.array(self._values, dtype=np.int64)
        return columns


def tables_of(recorded: JepsenRecords, *, transactions: Literal["auto", "yes", "no"], title: str) -> Imported:
    """Makes the tables of a history. BadInput if a value was sent twice to one key: nobody could tell the two apart."""
    sends, reads = recorded.send_columns(), recorded.read_columns()
    transactional = transactions == "yes" or (
        transactions == "auto" and (recorded.has_txn or recorded.most_micro_operations > 1)
    )
    sequence, producer = _sequences(sends), 2 * sends["process"] + 2
    read_columns = _read_columns(recorded, sends, reads, sequence, producer, transactional=transactional)
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
        topics=[(edn_text(key), 0) for key in recorded.partitions],
        clients=_clients(recorded, send_columns, read_columns),
        sends=send_columns,
        reads=read_columns,
        others={"transactions": _transactions(sends)} if transactional and len(sequence) else {},
        notes=[f"operations are {'' if transactional else 'no '}transactions"],
    )


def _read_columns(
    recorded: JepsenRecords,
    sends: dict[str, np.ndarray],
    reads: dict[str, np.ndarray],
    sequence: np.ndarray,
    producer: np.ndarray,
    *,
    transactional: bool,
) -> dict[str, np.ndarray]:
    """`sequence`, `producer`: of each send. What a transaction reads itself is its client's own."""
    reader = 2 * reads["process"] + (2 if transactional else 3)
    row = _rows_of(recorded, sends, reads)
    known = row >= 0
    unknown_sender = 2 * len(recorded.processes) + 2
    last = producer[row] if len(producer) else np.zeros(len(row), dtype=np.int64)
    their = sequence[row] if len(sequence) else last
    code = _dense(reads["partition"], reads["value"])
    return {
        "client": reader.astype(np.int32),
        "read_ns": reads["time"],
        "log_offset": reads["offset"],
        "sequence": np.where(known, their, code),
        "sender": np.where(known, last, unknown_sender).astype(np.int32),
        "partition": reads["partition"].astype(np.int32),
        "sent_partition": np.where(known, reads["partition"], NONE).astype(np.int32),
        "span": reads["span"].astype(np.int32),
        "flags": np.zeros(len(reader), dtype=np.int32),
    }


def edn_text(key: int | str) -> str:
    """A key as it stands in the file."""
    if isinstance(key, int):
        return str(key)
    if key.startswith('"'):
        return '"' + key[1:].replace("\\", "\\\\").replace('"', '\\"') + '"'
    return key[1:] if key.startswith("'") else key


def _sequences(sends: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the number of each send within its producer: its value, where those rise from operation to operation for
    each producer and key (Jepsen's do); else the order of sending."""
    value = sends["value"]
    if len(value) and value.min() >= 0 and value.max() < 1 << 40:
        order = np.lexsort((np.arange(len(value)), sends["partition"], sends["process"]))
        same = (np.diff(sends["process"][order]) == 0) & (np.diff(sends["partition"][order]) == 0)
        if (np.diff(value[order])[same] > 0).all():
            return value.copy()
    order = np.argsort(sends["process"], kind="stable")
    of = sends["process"][order]
    first = np.searchsorted(of, of)
    sequence = np.empty(len(value), dtype=np.int64)
    sequence[order] = np.arange(len(value)) - first
    return sequence


def _rows_of(recorded: JepsenRecords, sends: dict[str, np.ndarray], reads: dict[str, np.ndarray]) -> np.ndarray:
    """Returns intp[reads]: the send of each record read, -1 = nobody sent that value to that key."""
    both = _dense(
        np.concatenate([sends["partition"], reads["partition"]]), np.concatenate([sends["value"], reads["value"]])
    )
    of_sends, of_reads = both[: len(sends["value"])], both[len(sends["value"]) :]
    order = np.argsort(of_sends, kind="stable")
    twice = np.flatnonzero(np.diff(of_sends[order]) == 0)
    if len(twice):
        one = order[twice[0]]
        other = order[twice[0] + 1]
        keys, texts = list(recorded.partitions), {code: text for text, code in recorded.texts.items()}
        value, key = int(sends["value"][one]), keys[int(sends["partition"][one])]
        raise BadInput(
            f"Lines {sends['line'][one]} and {sends['line'][other]} both send {texts.get(value, value)} to key "
            f"{edn_text(key)}: values must be unique per key, else nobody can tell the two apart."
        )
    place = np.full(int(both.max(initial=-1)) + 1, -1, dtype=np.intp)
    place[of_sends] = np.arange(len(of_sends))
    return np.asarray(place[of_reads])


def _dense(partition: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns int64[n]: a number from 0 for each different (partition, value)."""
    order = np.lexsort((value, partition))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(partition[order]) != 0) | (value[order][1:] != value[order][:-1])
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers


def _clients(
    recorded: JepsenRecords, sends: dict[str, np.ndarray], reads: dict[str, np.ndarray]
) -> list[ImportedClient]:
    """A producer and a reader of each process that sent, or was given, anything."""
    written, read = _partitions_of(sends), _partitions_of(reads)
    issued = np.zeros(2 * len(recorded.processes) + 4, dtype=np.int64)
    np.maximum.at(issued, sends["client"], sends["sequence"] + 1)
    counts = np.bincount(reads["client"], minlength=len(issued))
    found = []
    for number, (process, started_ns, ended_ns, _) in enumerate(recorded.processes):
        for client, role, of, told in (
            (2 * number + 2, "producer", {**read, **written}, issued),
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


def _partitions_of(rows: dict[str, np.ndarray]) -> dict[int, tuple[int, ...]]:
    """Client → the partitions of its rows, ascending."""
    pairs = np.unique((rows["client"].astype(np.int64) << 32) | rows["partition"])
    clients, partitions = pairs >> 32, pairs & 0xFFFFFFFF
    bounds = np.flatnonzero(np.diff(clients)) + 1
    groups = zip(np.split(clients, bounds), np.split(partitions, bounds), strict=True)
    return {int(c[0]): tuple(p.tolist()) for c, p in groups if len(c)}


def _transactions(sends: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a row for each operation that sent: :ok committed, :fail certainly did not, :info may have."""
    key = (sends["process"] << 40) | sends["transaction"]
    _, first = np.unique(key, return_index=True)
    outcome = sends["outcome"][first]
    return {
        "client": (2 * sends["process"][first] + 2).astype(np.int32),
        "transaction": sends["transaction"][first],
        "begun_ns": sends["begun"][first],
        # The commit was invoked between the two; never earlier than the operation.
        "end_invoked_ns": np.where(outcome == Outcome.FAIL, sends["completed"][first], sends["begun"][first]),
        "completed_ns": sends["completed"][first],
        "ended_by": np.where(outcome == Outcome.FAIL, ABORT, COMMIT).astype(np.int32),
        "outcome": np.where(outcome == Outcome.FAIL, Outcome.OK, outcome).astype(np.int32),
    }
