"""A history of ours as jepsen.tests.kafka writes one: operations in the order of time, one per line of EDN.

A Jepsen process does one thing at a time and our producers do many: of one client, sends that overlap become processes of
their own. A transaction is one operation; so is what a consumer was given at one moment. Records that could not be read, and
sentinels, are left out.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.errors import BadInput
from harness.history_reader import History
from harness.plan import SENTINEL_CLIENT
from harness.schema import MISSING, NONE, Outcome, ReadFlag

_TYPES = {Outcome.OK: ":ok", Outcome.FAIL: ":fail", Outcome.INFO: ":info"}
_SEQUENCE_BITS = 40
_FOREVER = np.iinfo(np.int64).max
INVOKED, COMPLETED = 0, 1
"""Of two events at one time the completion comes first: nobody is asked before the answer."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation: who, from when until when (_FOREVER: never completed), and its lines but for process, index and time."""

    process: int
    invoked_ns: int
    completed_ns: int
    f: str
    asked: str
    done: str
    type: str = ":ok"


def write_jepsen(history: History, path: Path) -> str:
    """Write the file; returns what is in it. BadInput if it cannot be written."""
    exporter = _Exporter(history)
    lines = 0
    try:
        with path.open("x", encoding="utf-8") as file:
            for line in exporter.lines():
                file.write(line)
                lines += 1
    except OSError as error:
        raise BadInput(f"--out {str(path)!r} cannot be written: {error.strerror}. Give another place.") from error
    left_out = f"; {exporter.unreadable:,} records that could not be read are left out" if exporter.unreadable else ""
    return f"{lines:,} operations of {exporter.processes:,} processes{left_out}"


class _Exporter:
    def __init__(self, history: History) -> None:
        self._history = history
        named = history.plan.origin == "jepsen"
        self._keys = {p.partition: p.topic_name if named else str(p.partition) for p in history.plan.partitions}
        self.unreadable = self.processes = 0
        self._short = all(self._distinct(p) for p in history.partitions)
        """Sequences alone tell the records of each partition apart."""

    def _distinct(self, partition: int) -> bool:
        sends = self._sends(partition)
        return len(np.unique(sends["sequence"])) == len(sends["sequence"])

    def _sends(self, partition: int) -> dict[str, np.ndarray]:
        file = self._history.files["sends"]
        sends = file.read(file.table.column_names, file.row_groups.get(partition, ()))
        return {name: values[sends["client"] != SENTINEL_CLIENT] for name, values in sends.items()}

    def _key(self, partition: int) -> str:
        return self._keys.get(partition, str(partition))

    def _values(self, client: np.ndarray, sequence: np.ndarray, *, known: np.ndarray) -> list[int]:
        """A number per record, one of a kind within its partition."""
        long = (client.astype(np.int64) << _SEQUENCE_BITS) | sequence
        return [int(v) for v in np.where(known & self._short, sequence, long)]

    def lines(self) -> Iterator[str]:
        """Every line, with its end."""
        operations = [*self._sent(), *self._read()]
        events = [(op.invoked_ns, INVOKED, number) for number, op in enumerate(operations)]
        events += [
            (op.completed_ns, COMPLETED, number) for number, op in enumerate(operations) if op.completed_ns != _FOREVER
        ]
        # Asked before answered; the answer to one before the next is asked.
        events.sort(key=lambda event: (event[0], event[2], event[1]))
        start_ns = min((event[0] for event in events), default=0)
        for index, (time_ns, which, number) in enumerate(events):
            op = operations[number]
            kind, value = (":invoke", op.asked) if which == INVOKED else (op.type, op.done)
            yield (
                f"{{:index {index}, :time {time_ns - start_ns}, :type {kind}, :process {op.process}, "
                f":f {op.f}, :value {value}}}\n"
            )

    # --- sends --------------------------------------------------------------------------------------------------------

    def _sent(self) -> Iterator[_Operation]:
        transactions: dict[tuple[int, int], list[tuple[int, int, str, str]]] = {}
        single: list[tuple[int, int, int, str, str, int]] = []
        for partition in self._history.partitions:
            sends, key = self._sends(partition), self._key(partition)
            values = self._values(sends["client"], sends["sequence"], known=np.ones(len(sends["client"]), dtype=bool))
            columns = ("client", "transaction", "invoked_ns", "completed_ns", "log_offset", "outcome", "sequence")
            rows = zip(values, *(sends[name].tolist() for name in columns), strict=True)
            for value, client, transaction, invoked, completed, offset, outcome, sequence in rows:
                asked, done = f"[:send {key} {value}]", f"[:send {key} [{'nil' if offset == NONE else offset} {value}]]"
                if transaction != NONE:
                    transactions.setdefault((client, transaction), []).append((sequence, invoked, asked, done))
                else:
                    ended = _FOREVER if completed == MISSING else completed
                    single.append((client, invoked, ended, asked, done, outcome))
        yield from self._transactions(transactions)
        yield from self._laned(single)

    def _transactions(self, found: dict[tuple[int, int], list[tuple[int, int, str, str]]]) -> Iterator[_Operation]:
        table = self._history.table("transactions")
        rows = zip(
            *(table[n].tolist() for n in ("client", "transaction", "completed_ns", "outcome", "ended_by")), strict=True
        )
        ends = {(client, number): (completed, outcome, by) for client, number, completed, outcome, by in rows}
        lanes: dict[tuple[int, int], int] = {}
        for (client, number), records in found.items():
            records.sort()
            completed, outcome, by = ends.get((client, number), (MISSING, Outcome.INFO, NONE))
            invoked = min(record[1] for record in records)
            committed = by == 1 and outcome == Outcome.OK
            aborted = by == 2
            process = lanes.setdefault((client, number if completed == MISSING else NONE), len(lanes))
            yield _Operation(
                process,
                invoked,
                _FOREVER if completed == MISSING else max(completed, invoked),
                ":txn",
                f"[{' '.join(record[2] for record in records)}]",
                f"[{' '.join(record[3] for record in records)}]",
                ":ok" if committed else ":fail" if aborted else ":info",
            )
        self.processes = len(lanes)

    def _laned(self, single: list[tuple[int, int, int, str, str, int]]) -> Iterator[_Operation]:
        """Each in a process of its client that is free by then."""
        single.sort(key=lambda send: send[:2])
        free: list[tuple[int, int]] = []
        last = None
        for client, invoked, completed, asked, done, outcome in single:
            if client != last:
                free, last = [], client
            if free and free[0][0] < invoked:
                _, process = heapq.heappop(free)
            else:
                process, self.processes = self.processes, self.processes + 1
            if completed != _FOREVER:
                heapq.heappush(free, (completed, process))
            kind = _TYPES[Outcome(outcome)]
            yield _Operation(process, invoked, max(completed, invoked), ":send", f"[{asked}]", f"[{done}]", kind)

    # --- reads --------------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[_Operation]:
        """Polls of each consumer, with an assignment in front where a span begins."""
        for _, reads in sorted(self._reads_by_client().items()):
            order = np.lexsort((np.arange(len(reads["read_ns"])), reads["partition"], reads["read_ns"]))
            ordered = {name: values[order] for name, values in reads.items()}
            keys = " ".join(self._key(p) for p in np.unique(ordered["partition"]).tolist())
            process, self.processes = self.processes, self.processes + 1
            yield from self._polls(process, ordered, keys)

    def _reads_by_client(self) -> dict[int, dict[str, np.ndarray]]:
        file, parts = self._history.files["reads"], []
        for partition in self._history.partitions:
            reads = file.read(file.table.column_names, file.row_groups.get(partition, ()))
            spoiled = (reads["flags"] & ReadFlag.CORRUPT) != 0
            self.unreadable += int(np.count_nonzero(spoiled))
            kept = ~spoiled & (reads["sender"] != SENTINEL_CLIENT) & (reads["log_offset"] >= 0)
            parts.append({name: values[kept] for name, values in reads.items()})
        if not parts:
            return {}
        whole = {name: np.concatenate([part[name] for part in parts]) for name in file.table.column_names}
        clients = np.unique(whole["client"]).tolist()
        return {c: {name: values[whole["client"] == c] for name, values in whole.items()} for c in clients}

    def _polls(self, process: int, reads: dict[str, np.ndarray], keys: str) -> Iterator[_Operation]:
        issued = self._history.clients.issued
        sender = reads["sender"]
        known = (sender >= 0) & (sender < len(issued))
        values = self._values(sender, reads["sequence"], known=known)
        bounds = np.flatnonzero(np.diff(reads["read_ns"], prepend=reads["read_ns"][0] - 1))
        spans: dict[int, int] = {}
        offsets, partitions, span = (reads[name].tolist() for name in ("log_offset", "partition", "span"))
        for begin, end in zip(bounds.tolist(), [*bounds[1:].tolist(), len(values)], strict=True):
            now_ns = int(reads["read_ns"][begin])
            if any(spans.get(partitions[row]) != span[row] for row in range(begin, end)):
                for listed in ("[]", f"[{keys}]"):
                    yield _Operation(process, now_ns, now_ns, ":assign", listed, listed)
            given: dict[int, list[str]] = {}
            for row in range(begin, end):
                spans[partitions[row]] = span[row]
                given.setdefault(partitions[row], []).append(f"[{offsets[row]} {values[row]}]")
            shown = ", ".join(f"{self._key(p)} [{' '.join(pairs)}]" for p, pairs in given.items())
            yield _Operation(process, now_ns, now_ns, ":poll", "[[:poll]]", f"[[:poll {{{shown}}}]]")
