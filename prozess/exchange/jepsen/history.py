"""Reads a history of a Jepsen Kafka test, and writes a history of ours as jepsen.tests.kafka would.

A history has one operation per line of EDN. Reading: lines are taken in blocks (`blocks`, `block_reader`); a history in which
anything is unusual, one by one (`lines`, `operation_reader`). What the history does not say is not known: see
`prozess.exchange.imported_run`.

Writing: operations are in the order of time. A Jepsen process does one thing at a time and our producers do many, so sends of
one client that overlap become processes of their own. A transaction is one operation, and so is what a consumer was given at
one moment. Records that could not be read, and sentinels, are left out.
"""

import contextlib
import heapq
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from prozess.exchange.imported_run import Imported, StatedFault
from prozess.exchange.jepsen.block_reader import BlockReader, Unusual, blocks_of
from prozess.exchange.jepsen.edn import MAP, SET, EdnError, EdnValue, read_edn
from prozess.exchange.jepsen.lines import chunks_of, is_number, operations
from prozess.exchange.jepsen.operation_reader import JepsenReader
from prozess.exchange.jepsen.tables import JepsenColumns, tables_of
from prozess.harness.errors import BadInput
from prozess.harness.history.reader import History
from prozess.harness.plan.plan import SENTINEL_CLIENT, EvidenceGap
from prozess.harness.schema import MISSING, NONE, Outcome, ReadFlag, Role
from prozess.harness.values import no_collection


def read_jepsen(path: Path, *, transactions: Literal["auto", "yes", "no"] = "auto") -> Imported:
    """Returns the history in a file. BadInput with the line, the value, the rule and the way out, if it is none of
    Jepsen's."""
    with no_collection():
        read = read_at_once(path) or read_one_by_one(path)
    whole = whole_lines_of(path)
    if whole.others and not len(read.columns.sends["line"]) and not len(read.columns.runs["time"]):
        raise BadInput(
            f"{path} has no :send, :poll or :txn. Its operations are {', '.join(whole.others)}: they are of another workload "
            "than jepsen.tests.kafka. Give a history of that one."
        )
    imported = tables_of(read.columns, transactions=transactions, title=f"Jepsen's history {path.name}")
    faults, gaps = stated_faults(read.nemesis), gaps_of(read, whole, imported)
    notes = [f"{len(faults)} faults of its nemesis"] if faults else []
    notes += [f"{len(gaps)} gaps in the evidence"] if gaps else []
    return replace(imported, faults=faults, notes=[*imported.notes, *notes], gaps=gaps)


@dataclass(frozen=True, slots=True)
class JepsenRead:
    """What a history says."""

    columns: JepsenColumns
    nemesis: list[tuple[int, str]]
    """The lines of its nemesis, each with its number."""
    uninvoked: Sequence[tuple[int, Set[int]]] = ()
    """Completions that lack their invocation, although others have one: the line, and the partitions that it names."""
    open_lines: Sequence[int] = ()
    """The invocations that nothing completes: their lines, ascending."""


# Lines that are missing or cannot be parsed. Their sends and reads are unknown.


_KNOWN = frozenset((b":send", b":poll", b":txn", b":assign", b":subscribe", b":crash", b":debug-topic-partitions"))
_FUNCTION = re.compile(rb":f\s+(:?[^\s,}]+)")
_INDEX = re.compile(rb":index\s+([0-9]{1,18})\b")
_FUNCTIONS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class WholeLines:
    """Signs in the lines of a file that the file is not whole."""

    missing: int
    """How many lines the numbers in :index say are missing. 0: none, or lines have no :index."""
    others: Sequence[str]
    """Operations of clients that jepsen.tests.kafka does not have."""


def whole_lines_of(path: Path) -> WholeLines:
    """Looks for lines that are missing. Jepsen numbers the operations of a history 0, 1, 2, … in :index."""
    last = count = 0
    others: dict[str, None] = {}
    with contextlib.suppress(OSError, Unusual):
        for block in blocks_of(path):
            found = block.count(b":index ")
            if found:
                end = _INDEX.search(block, block.rfind(b":index "))
                last = int(end[1]) if end else last
                count += found
            usual = sum(block.count(b":f " + function + b",") for function in _KNOWN)
            unknown = set[bytes]() if usual == block.count(b":f ") else set(_FUNCTION.findall(block)) - _KNOWN
            others |= dict.fromkeys(sorted(_of_clients(block, unknown))) if unknown else {}
    return WholeLines(max(0, last + 1 - count) if count else 0, list(others)[:_FUNCTIONS_SHOWN])


def _of_clients(block: bytes, functions: Set[bytes]) -> set[str]:
    """Returns those of these functions that a client has, and not only the nemesis."""
    found = set()
    for function in functions:
        line = re.compile(rb"^.*:f\s+" + re.escape(function) + rb"[\s,}].*$", re.MULTILINE)
        if any(not _OF_NEMESIS_BYTES.search(match[0]) and b":process" in match[0] for match in line.finditer(block)):
            found.add(function.decode("utf-8", "replace"))
    return found


def gaps_of(read: JepsenRead, whole: WholeLines, imported: Imported) -> list[EvidenceGap]:
    """Returns the gaps of a history, with the partitions that each may concern."""
    every = tuple(range(len(imported.topics)))
    found: list[tuple[tuple[int, ...], str]] = []
    if whole.missing:
        found.append((every, f"every key: {whole.missing} lines are missing, by the numbers in :index"))
    if whole.others:
        names = ", ".join(whole.others)
        found.append((every, f"every key: it is not known what operations {names} sent or read"))
    for line, partitions in read.uninvoked:
        names = ", ".join(f"key {imported.topics[p][0]}" for p in sorted(partitions)) or "every key"
        found.append(
            (tuple(sorted(partitions)) or every, f"{names}: line {line} completes an operation that nobody invoked")
        )
    hides: tuple[Literal["sends", "reads"], ...] = ("sends", "reads")
    gaps = [EvidenceGap(partitions=ids, hides=what, why=why) for ids, why in found if ids for what in hides]
    if every and (ends := _ends_early(read)):
        gaps.append(EvidenceGap(partitions=every, hides="end", why=f"every key: {ends}"))
    return gaps


def _ends_early(read: JepsenRead) -> str:
    """Returns a clause that says how the file shows that it ends before its test did; else nothing. Jepsen waits for every
    operation before it ends a test, and completes those that crash with :info."""
    count = len(read.open_lines)
    if not count:
        return ""
    others = f" and {count - 1} more" if count > 1 else ""
    return (
        f"the operation of line {read.open_lines[0]}{others} never completed, as every operation of a whole test does: what "
        "came after the last line is not known"
    )


def read_at_once(path: Path) -> JepsenRead | None:
    """Reads a history as arrays. None: it is unusual, or wrong, or cannot be read."""
    reader, nemesis = BlockReader(path), list[tuple[int, str]]()
    try:
        for text in blocks_of(path):
            nemesis += of_nemesis(reader.take(text))
        columns = reader.columns()
        return JepsenRead(columns, nemesis, open_lines=reader.open_lines)
    except (Unusual, OSError):
        return None


def read_one_by_one(path: Path) -> JepsenRead:
    """Reads a history operation by operation. BadInput says what is wrong, and where."""
    reader, nemesis = JepsenReader(str(path)), list[tuple[int, str]]()
    for first, lines in chunks_of(path):
        numbers = range(first, first + len(lines))
        nemesis += of_nemesis(zip(numbers, lines, strict=True))
        for operation in operations(path, numbers, lines):
            reader.take(operation)
    reader.end()
    uninvoked = reader.uninvoked if reader.invokes else ()
    return JepsenRead(reader.recorded.columns(), nemesis, uninvoked, reader.open_lines())


def of_nemesis(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields those lines that report the nemesis."""
    return (line for line in lines if _OF_NEMESIS.search(line[1]))


# The faults of Jepsen's nemesis, as its history states them: windows of faults whose effects nobody observed.
#
# An operation of the nemesis has two lines, both `:info`, whose `:f` names it. What `:stop-X` ends is a `:start-X`,
# `:start` a `:kill` or a `:stop`, `:resume` a `:pause` (jepsen.nemesis.combined); anything else is a moment, from its
# first line to its second.


_OF_NEMESIS = re.compile(r":process\s+:nemesis\b")
_OF_NEMESIS_BYTES = re.compile(_OF_NEMESIS.pattern.encode())
_ENDED_BY = {"kill": "start", "pause": "resume", "start": "stop"}
VALUE_CHARACTERS_MAX = 300
"""At most this much of an operation's :value is kept."""
_DEPTH_MAX = 6
"""The longest value that is printed."""


def stated_faults(lines: Iterable[tuple[int, str]]) -> list[StatedFault]:
    """Returns the nemesis's operations, in order; those that end others are their ends. `lines`: those of the nemesis, each
    with its number. A line that cannot be read is a fault too: of what kind is not known."""
    found: list[StatedFault] = []
    first: tuple[str, list[StatedFault]] | None = None
    """The operation whose second line is next: its :f, and what it makes or ends."""
    for time_ns, f, value in _operations(lines):
        if first is not None and first[0] == f:
            for fault in first[1]:
                _complete(fault, f, time_ns, value)
            first = None
            continue
        ended = [fault for fault in found if fault.end_ns is None and _ends(f, fault.f)]
        for fault in ended:
            fault.end_ns = time_ns
        if not ended:
            found.append(StatedFault(f, time_ns, None if _lasts(f) else time_ns, value))
        first = f, ended or found[-1:]
    return found


def _complete(fault: StatedFault, f: str, time_ns: int, value: str) -> None:
    if fault.end_ns is not None:
        fault.end_ns = time_ns
    if fault.f == f and value:
        fault.value = value


def _lasts(f: str) -> bool:
    return f.startswith("start-") or f in _ENDED_BY


def _ends(f: str, earlier: str) -> bool:
    return _ENDED_BY.get(earlier) == f or (earlier.startswith("start-") and f == f"stop-{earlier[6:]}")


def _operations(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """(time, :f without its colon, value) of each line of the nemesis."""
    for number, line in lines:
        keys = _keys(line)
        time_ns, f, value = keys.get(":time"), keys.get(":f"), keys.get(":value")
        name = f[1:] if isinstance(f, str) and f.startswith(":") else "not understood"
        yield time_ns if is_number(time_ns) else number, name, _text_of_edn(value)[:VALUE_CHARACTERS_MAX]


def _keys(line: str) -> dict[str, EdnValue]:
    try:
        read = read_edn(line)
    except EdnError:
        return {}
    if not isinstance(read, list) or read[:1] != [MAP]:
        return {}
    return {key: value for key, value in zip(read[1::2], read[2::2], strict=False) if isinstance(key, str)}


def _text_of_edn(value: EdnValue, depth: int = 0) -> str:
    if value is None:
        return ""
    if not isinstance(value, list):
        return str(value).lstrip(":\"'")
    if depth == _DEPTH_MAX:
        return "…"
    if value[:1] == [MAP]:
        pairs = zip(value[1::2], value[2::2], strict=False)
        return ", ".join(f"{_text_of_edn(k, depth + 1)}: {_text_of_edn(v, depth + 1)}" for k, v in pairs)
    return " ".join(_text_of_edn(each, depth + 1) for each in value[value[:1] == [SET] :])


_TYPES = {Outcome.OK: ":ok", Outcome.FAIL: ":fail", Outcome.INFO: ":info"}
_SEQUENCE_BITS = 40
_FOREVER = np.iinfo(np.int64).max
INVOKED, COMPLETED = 0, 1
"""For two events at one time the completion comes first: nobody is asked before the answer."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation: its client, its begin and end (_FOREVER: never completed), and its lines without process, index and
    time.
    """

    process: int
    invoked_ns: int
    completed_ns: int
    f: str
    asked: str
    done: str
    type: str = ":ok"


def write_jepsen(history: History, path: Path) -> str:
    """Writes a history in Jepsen's format, and returns a summary of the file. BadInput if it cannot be written."""
    exporter = _Exporter(history)
    lines = 0
    try:
        with path.open("x", encoding="utf-8") as file:
            for line in exporter.lines():
                file.write(line)
                lines += 1
    except OSError as error:
        raise BadInput(f"--out {str(path)!r} cannot be written: {error.strerror}. Give another directory.") from error
    left_out = f"; {exporter.unreadable:,} records that could not be read are left out" if exporter.unreadable else ""
    return f"{lines:,} operations of {exporter.processes:,} processes{left_out}"


class _Exporter:
    def __init__(self, history: History) -> None:
        self._history = history
        named = history.plan.origin == "jepsen"
        self._keys = {p.partition: p.topic_name if named else str(p.partition) for p in history.plan.partitions}
        self.unreadable = self.processes = 0
        self._short = all(self._distinct(p) for p in history.partitions)
        """Sequences alone distinguish the records of each partition."""

    def _distinct(self, partition: int) -> bool:
        sends = self._sends(partition)
        return len(np.unique(sends["sequence"])) == len(sends["sequence"])

    def _sends(self, partition: int) -> dict[str, np.ndarray]:
        file = self._history.files["sends"]
        sends = file.read(file.table.column_names, file.row_ranges.get(partition, ()))
        return {name: values[sends["client"] != SENTINEL_CLIENT] for name, values in sends.items()}

    def _key(self, partition: int) -> str:
        return self._keys.get(partition, str(partition))

    def _values(self, client: np.ndarray, sequence: np.ndarray, *, known: np.ndarray) -> list[int]:
        """Returns a number per record, one of a kind within its partition."""
        long = (client.astype(np.int64) << _SEQUENCE_BITS) | sequence
        return [int(v) for v in np.where(known & self._short, sequence, long)]

    def lines(self) -> Iterator[str]:
        """Yields every line, with its end."""
        operations = [*self._sent(), *self._read()]
        events = [(op.invoked_ns, INVOKED, number) for number, op in enumerate(operations)]
        events += [
            (op.completed_ns, COMPLETED, number) for number, op in enumerate(operations) if op.completed_ns != _FOREVER
        ]
        # At one time, an invocation comes before its completion, and a completion before the next invocation.
        events.sort(key=lambda event: (event[0], event[2], event[1]))
        start_ns = min((event[0] for event in events), default=0)
        for index, (time_ns, which, number) in enumerate(events):
            op = operations[number]
            kind, value = (":invoke", op.asked) if which == INVOKED else (op.type, op.done)
            yield (
                f"{{:index {index}, :time {time_ns - start_ns}, :type {kind}, :process {op.process}, "
                f":f {op.f}, :value {value}}}\n"
            )

    # Sends.

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
        """Yields each operation in a process of its client that is free at that time."""
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

    # Reads.

    def _read(self) -> Iterator[_Operation]:
        """Yields the polls of each consumer, with an assignment in front where a span begins."""
        for _, reads in sorted(self._reads_by_client().items()):
            order = np.lexsort((np.arange(len(reads["read_ns"])), reads["partition"], reads["read_ns"]))
            ordered = {name: values[order] for name, values in reads.items()}
            keys = " ".join(self._key(p) for p in np.unique(ordered["partition"]).tolist())
            process, self.processes = self.processes, self.processes + 1
            yield from self._polls(process, ordered, keys)

    def _reads_by_client(self) -> dict[int, dict[str, np.ndarray]]:
        file, parts = self._history.files["reads"], []
        for partition in self._history.partitions:
            reads = file.read(file.table.column_names, file.row_ranges.get(partition, ()))
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
        goes_on = ((reads["flags"] & ReadFlag.GOES_ON) != 0).tolist()
        assigned, undone = self._first_assignment(reads, keys), self._undone(partitions, goes_on)
        for begin, end in zip(bounds.tolist(), [*bounds[1:].tolist(), len(values)], strict=True):
            now_ns = int(reads["read_ns"][begin])
            if any(spans.get(partitions[row]) != span[row] and not goes_on[row] for row in range(begin, end)):
                for listed in ("[]", assigned):
                    yield _Operation(process, now_ns, now_ns, ":assign", listed, listed)
                assigned = f"[{keys}]"
            given: dict[int, list[str]] = {}
            for row in range(begin, end):
                spans[partitions[row]] = span[row]
                given.setdefault(partitions[row], []).append(f"[{offsets[row]} {values[row]}]")
            shown = ", ".join(f"{self._key(p)} [{' '.join(pairs)}]" for p, pairs in given.items())
            kind = ":info" if undone.intersection(range(begin, end)) else ":ok"
            yield _Operation(process, now_ns, now_ns, ":poll", "[[:poll]]", f"[[:poll {{{shown}}}]]", kind)

    def _first_assignment(self, reads: dict[str, np.ndarray], keys: str) -> str:
        """Returns the value of a consumer's first assignment. It seeks to the beginning, if it began there in each partition,
        as our own readers do."""
        _, first = np.unique(reads["partition"], return_index=True)
        ours = self._history.plan.audited and self._history.clients.role[reads["client"][0]] == Role.READER
        sought = ours or ((reads["flags"][first] & ReadFlag.FROM_START) != 0).all()
        return f"[{keys}]{', :seek-to-beginning? true' if sought else ''}"

    def _undone(self, partitions: Sequence[int], goes_on: Sequence[bool]) -> set[int]:
        """Returns the last row of each span after which its consumer continued in another span: the poll had no effect."""
        latest: dict[int, int] = {}
        found = set[int]()
        for row, (partition, again) in enumerate(zip(partitions, goes_on, strict=True)):
            if again and partition in latest:
                found.add(latest[partition])
            latest[partition] = row
        return found
