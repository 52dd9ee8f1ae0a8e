"""Jepsen's Kafka histories (jepsen.tests.kafka; one operation per line of EDN) as a history of ours.

A process is a producer and a consumer: two clients. A record is (process, value): values are unique per key, as Jepsen's
own checker needs. An operation is a transaction where the history has any of several micro-operations, or of `:f :txn`
(jepsen.tests.kafka, "Operations"). What the history does not say is not known: see `harness.histories.imported`.
"""

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeGuard

from harness.errors import BadInput
from harness.histories.edn import MAP, EdnError, Plain, read_edn, read_lines
from harness.histories.imported import Imported
from harness.histories.jepsen_tables import SEND_WIDTH, Recorded, tables_of
from harness.schema import Outcome

CHUNK_LINES = 4096
LINE_CHARACTERS_MAX = 1 << 26
_OPERATIONS = frozenset({":send", ":poll", ":txn"})
_MICRO_OPERATIONS = (":send", ":poll")
_MOVES = frozenset({":assign", ":subscribe"})
_OUTCOMES = {":ok": Outcome.OK, ":fail": Outcome.FAIL, ":info": Outcome.INFO}
_TYPES = frozenset({":invoke", *_OUTCOMES})
TIME_MAX = 2**62
_NOTHING: dict[str, Any] = {}
_INTEGERS = {int}
_NOBODY: frozenset[int] = frozenset()


@dataclass(slots=True)
class Operation:
    """One line."""

    line: int
    type: str
    f: str
    process: int
    time_ns: int
    value: Any
    extra: dict[str, Any]


def read_jepsen(path: Path, *, transactions: Literal["auto", "yes", "no"] = "auto") -> Imported:
    """The history in a file. BadInput with the line, the value, the rule and the way out, if it is none of Jepsen's."""
    reader = _Reader(str(path))
    with _no_collection():
        for operation in operations(path):
            reader.take(operation)
    reader.end()
    return tables_of(reader.recorded, transactions=transactions, title=f"Jepsen's history {path.name}")


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Values are lists in lists, and in no cycle: looking for cycles among them costs as much as reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def operations(path: Path) -> Iterator[Operation]:
    """The operations of clients in a file, in order; those of the nemesis are left out."""
    clockless: bool | None = None
    for first, lines in _chunks(path):
        for number, (line, read) in enumerate(zip(lines, read_lines(lines), strict=True), start=first):
            made = (read and _plain(number, read)) or _operation(path, number, line, read)
            if made is None:
                continue
            without = made.time_ns < 0
            if clockless is None:
                clockless = without
            if without is not clockless:
                raise _bad(path, number, "some operations have a :time and others none. Give all of them one, or none.")
            if clockless:  # then the order of lines is all there is
                made.time_ns = number
            yield made


@lru_cache(maxsize=64)
def _places(keys: tuple[str, ...]) -> tuple[int, int, int, int] | None:
    """Where :type, :f, :process and :time stand among keys; None = not all of them do, each once."""
    wanted = (":type", ":f", ":process", ":time")
    found = tuple(keys.index(key) for key in wanted if keys.count(key) == 1)
    return found if len(found) == len(wanted) else None  # type: ignore[return-value]


def _plain(number: int, read: Plain) -> Operation | None:
    """The operation of a line that holds what they usually hold, and no more; None = of any other line."""
    keys, texts, values = read
    places = _places(keys)
    if places is None or len(values) != 1:
        return None
    at_kind, at_f, at_process, at_time = places
    kind, f, process, time_ns = texts[at_kind], texts[at_f], texts[at_process], texts[at_time]
    # Eighteen digits are below TIME_MAX.
    numbers = process.isdigit() and time_ns.isdigit() and len(process) <= 18 and len(time_ns) <= 18
    if not numbers or kind not in _TYPES or f[0] != ":":
        return None
    return Operation(number, kind, f, int(process), int(time_ns), values[0], _NOTHING)


def _chunks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines without their ends), a few thousand at a time."""
    first, lines = 1, []
    try:
        with path.open(encoding="utf-8", errors="strict", newline="\n") as file:
            while line := file.readline(LINE_CHARACTERS_MAX):
                lines.append(line.rstrip("\r\n"))
                if len(line) >= LINE_CHARACTERS_MAX:
                    raise _bad(
                        path, first + len(lines) - 1, f"the line is longer than {LINE_CHARACTERS_MAX:,} characters."
                    )
                if len(lines) == CHUNK_LINES:
                    yield first, lines
                    first, lines = first + len(lines), []
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not UTF-8 text ({error.reason}): Jepsen writes history.edn. Give that file."
        ) from error
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror}. Give Jepsen's history.edn.") from error
    if lines:
        yield first, lines


def _operation(path: Path, number: int, line: str, read: Plain | None) -> Operation | None:
    if read is not None:
        head, tail = dict(zip(read[0], read[1], strict=True)), read[2]
        if head.get(":process") == ":nemesis":
            return None
        keys: dict[str, Any] = {":value": tail[0] if tail else None}
        keys.update(zip(tail[1::2], tail[2::2], strict=False))
        if len(tail) % 2 == 1 and all(isinstance(key, str) for key in tail[1::2]):
            return _made(path, number, keys | {key: _scalar(text) for key, text in head.items()})
    if not line.strip() or line.lstrip().startswith(";"):
        return None
    try:
        value = read_edn(line)
    except EdnError as error:
        raise _bad(
            path, number, f"{error.what}, at column {error.column}. One operation, a map of EDN, per line."
        ) from error
    if not isinstance(value, list) or value[:1] != [MAP]:
        raise _bad(
            path, number, f"{_short(value)} is not a map. One operation, such as {{:type :ok, :f :send …}}, per line."
        )
    return _made(
        path, number, {key: v for key, v in zip(value[1::2], value[2::2], strict=True) if isinstance(key, str)}
    )


def _scalar(text: str) -> Any:  # noqa: ANN401 - a keyword or a number
    return int(text) if text.isdigit() else None if text == "nil" else text


def _made(path: Path, number: int, keys: dict[str, Any]) -> Operation | None:
    process, kind, f = keys.get(":process"), keys.get(":type"), keys.get(":f")
    if process == ":nemesis" or (isinstance(process, str) and process.startswith(":")):
        return None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _bad(
            path, number, f":type is {_short(kind)}, not one of :invoke, :ok, :fail, :info. Give Jepsen's history."
        )
    if not isinstance(f, str) or not f.startswith(":"):
        raise _bad(path, number, f":f is {_short(f)}, not a keyword such as :send. Give Jepsen's history.")
    if not _is_number(process):
        raise _bad(
            path, number, f":process is {_short(process)}, not a number from 0 (or :nemesis). Give Jepsen's history."
        )
    time_ns: Any = keys.get(":time", 0)
    if not _is_number(time_ns):
        raise _bad(
            path, number, f":time is {_short(time_ns)}, not nanoseconds from 0. Give all operations one, or none."
        )
    value = keys.get(":value")
    extra = keys if ":rebalance-log" in keys or ":seek-to-beginning?" in keys else {}
    return Operation(number, kind, f, process, time_ns if ":time" in keys else -1, value, extra)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < TIME_MAX


def _bad(path: Path | str, line: int, what: str) -> BadInput:
    return BadInput(f"{path}, line {line}: {what}")


def _short(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


@dataclass(slots=True)
class _Process:
    """One process: what it is at, and the spans of its consumer."""

    number: int
    started_ns: int
    ended_ns: int
    invoked: Operation | None = None
    sent: list[int] = field(default_factory=list)
    """Rows of the sends of the operation that is under way."""
    transactions: int = 0
    subscribed: bool = False
    spans: int = 0
    span: dict[int, int] = field(default_factory=dict)
    """Partition → span."""

    def new_span(self) -> int:
        self.spans += 1
        return self.spans


class _Reader:
    """Takes operations one by one, and holds what they say in columns."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.recorded = Recorded()
        self._processes: dict[int, _Process] = {}
        self._first_ns: int | None = None

    def take(self, operation: Operation) -> None:
        """One more line."""
        if self._first_ns is None:
            self._first_ns = operation.time_ns
        process = self._processes.get(operation.process)
        if process is None:
            number = len(self._processes)
            process = _Process(number, self._first_ns, self._first_ns)
            self._processes[operation.process] = process
        if operation.time_ns < process.ended_ns:
            raise self._bad(
                operation,
                f":time {operation.time_ns} is before that of an earlier line. Lines must be in the order of time.",
            )
        if operation.f in _OPERATIONS:
            self._transact(process, operation)
        elif operation.type != ":invoke":
            self._move(process, operation)
        process.ended_ns = operation.time_ns

    def end(self) -> None:
        """Of the whole file."""
        if not self._processes:
            raise BadInput(
                f"{self._source} has no operation of a client: nothing to import. Give Jepsen's history.edn."
            )
        self.recorded.processes = [
            (name, process.started_ns, process.ended_ns, process.transactions)
            for name, process in self._processes.items()
        ]

    def _bad(self, operation: Operation, what: str) -> BadInput:
        return _bad(self._source, operation.line, what)

    # --- sends and polls ----------------------------------------------------------------------------------------------

    def _transact(self, process: _Process, operation: Operation) -> None:
        if operation.type == ":invoke":
            if process.invoked is not None:
                line = process.invoked.line
                raise self._bad(
                    operation, f"process {operation.process} has not completed its operation of line {line}."
                )
            process.invoked = operation
            process.sent = self._sends(process, operation, begun_ns=operation.time_ns)
            return
        invoked, sent = process.invoked, process.sent
        if invoked is None:  # a history without invocations: it began after the one before
            sent = self._sends(process, operation, begun_ns=process.ended_ns)
        elif invoked.f != operation.f:
            raise self._bad(
                operation, f"{operation.f} completes {invoked.f} of line {invoked.line}. They must be alike."
            )
        process.invoked, process.sent = None, []
        self._complete(process, operation, sent)

    def _micro_operations(self, operation: Operation) -> list[list[Any]]:
        value = operation.value
        if value is None:
            return []
        if not isinstance(value, list) or value[:1] == [MAP]:
            raise self._bad(operation, f":value {_short(value)} is no vector of [:send k v] and [:poll].")
        recorded = self.recorded
        if len(value) > recorded.most_micro_operations:
            recorded.most_micro_operations = len(value)
        if operation.f == ":txn":
            recorded.has_txn = True
        for micro in value:
            if not isinstance(micro, list) or not micro or micro[0] not in _MICRO_OPERATIONS:
                raise self._bad(operation, f"micro-operation {_short(micro)} is neither [:send k v] nor [:poll …].")
            if (len(micro) != 3) if micro[0] == ":send" else (len(micro) > 2):
                raise self._bad(operation, f"micro-operation {_short(micro)} has {len(micro)} parts.")
        return value

    def _sends(self, process: _Process, operation: Operation, *, begun_ns: int) -> list[int]:
        """A row for each send of an operation."""
        rows = []
        for micro in self._micro_operations(operation):
            if micro[0] == ":send":
                _, value = _pair(micro[2])
                row = self.recorded.add_send(
                    process=process.number,
                    partition=self._partition(operation, micro[1]),
                    value=self._code(operation, value),
                    begun_ns=begun_ns,
                    line=operation.line,
                    transaction=process.transactions,
                )
                rows.append(row)
        if rows:
            process.transactions += 1
        return rows

    def _complete(self, process: _Process, operation: Operation, sent: list[int]) -> None:
        recorded, place = self.recorded, 0
        rebalanced = self._rebalanced(operation) if operation.extra else _NOBODY
        polled = False
        for micro in self._micro_operations(operation):
            if micro[0] == ":send":
                offset, value = _pair(micro[2])
                key = self._partition(operation, micro[1])
                if place >= len(sent) or recorded.send_of(sent[place]) != (key, self._code(operation, value)):
                    raise self._bad(
                        operation, f"{_short(micro)} is not what was invoked. Sends complete in their order."
                    )
                if offset is not None:
                    if not _is_number(offset):
                        raise self._bad(
                            operation, f"offset {_short(offset)} of {_short(micro)} is no number from 0, or nil."
                        )
                    recorded.sends[sent[place] * SEND_WIDTH + 4] = offset
                place += 1
            elif len(micro) == 2 and micro[1] is not None:
                polled = self._polled(process, operation, micro[1], rebalanced) or polled
        if operation.value is not None and operation.type == ":ok" and place != len(sent):
            raise self._bad(
                operation, f"{len(sent) - place} of its {len(sent)} sends are missing. An :ok shows all of them."
            )
        outcome = int(_OUTCOMES[operation.type])
        for row in sent:
            recorded.complete(row, operation.time_ns, outcome)
        if process.subscribed or rebalanced or (polled and operation.type != ":ok"):
            # After an abort a client may go back or not; of a group it may be given other partitions between two polls.
            process.span = {}

    def _polled(self, process: _Process, operation: Operation, shown: Any, rebalanced: Set[int]) -> bool:  # noqa: ANN401
        """The records of one poll: {k [[offset value] …], …}."""
        if not isinstance(shown, list) or shown[:1] != [MAP]:
            raise self._bad(operation, f"[:poll {_short(shown)}] has no map of keys to [[offset value] …].")
        for key, pairs in zip(shown[1::2], shown[2::2], strict=False):
            partition = self._partition(operation, key)
            if not pairs:
                continue
            span = process.span.get(partition)
            if span is None:
                span = process.span[partition] = process.new_span()
            offsets, codes = self._pairs(operation, key, pairs)
            if partition in rebalanced:  # anything may have happened between two of them
                spans: Iterable[int] = (process.new_span() for _ in offsets)
                for offset, code, own in zip(offsets, codes, spans, strict=True):
                    self.recorded.add_reads(process.number, partition, own, operation.time_ns, (offset,), (code,))
            else:
                self.recorded.add_reads(process.number, partition, span, operation.time_ns, offsets, codes)
        return True

    def _pairs(self, operation: Operation, key: object, pairs: Any) -> tuple[Sequence[int], Sequence[int]]:  # noqa: ANN401
        """Offsets, and numbers of the values, of [[offset value] …]."""
        try:
            offsets, values = zip(*pairs, strict=True)
        except (TypeError, ValueError) as error:
            raise self._bad(operation, f"{_short(pairs)} of key {_short(key)} is no list of [offset value].") from error
        if set(map(type, offsets)) != _INTEGERS or min(offsets) < 0 or max(offsets) >= TIME_MAX:
            raise self._bad(operation, f"{_short(pairs)} of key {_short(key)} has offsets that are no numbers from 0.")
        if set(map(type, values)) == _INTEGERS and min(values) >= -TIME_MAX and max(values) < TIME_MAX:
            return offsets, values
        return offsets, [self._code(operation, value) for value in values]

    def _rebalanced(self, operation: Operation) -> Set[int]:
        """The partitions that changed hands during an operation."""
        log = operation.extra.get(":rebalance-log")
        found: set[int] = set()
        for entry in log if isinstance(log, list) else []:
            if isinstance(entry, list) and entry[:1] == [MAP] and ":keys" in entry[1::2]:
                keys = entry[2::2][entry[1::2].index(":keys")]
                found.update(self._partition(operation, key) for key in (keys if isinstance(keys, list) else ()))
        return found

    # --- assignments --------------------------------------------------------------------------------------------------

    def _move(self, process: _Process, operation: Operation) -> None:
        """An assignment, or a crash: which spans go on."""
        if operation.f == ":crash":
            process.span = {}
        if operation.f not in _MOVES or operation.type == ":fail":
            return
        process.subscribed = operation.f == ":subscribe"
        keys = operation.value if isinstance(operation.value, list) else []
        kept = {self._partition(operation, key) for key in keys}
        certain = (
            operation.type == ":ok" and operation.f == ":assign" and not operation.extra.get(":seek-to-beginning?")
        )
        process.span = {p: span for p, span in process.span.items() if certain and p in kept}

    # --- names --------------------------------------------------------------------------------------------------------

    def _partition(self, operation: Operation, key: object) -> int:
        if type(key) is int or type(key) is str:
            found = self.recorded.partitions.get(key)
            if found is not None:
                return found
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise self._bad(operation, f"key {_short(key)} is no number or text.")
        return self.recorded.partitions.setdefault(key, len(self.recorded.partitions))

    def _code(self, operation: Operation, value: object) -> int:
        """A number for a value: itself if it is one, else one beyond all of those."""
        if type(value) is int and -TIME_MAX <= value < TIME_MAX:
            return value
        if value is None or isinstance(value, list):
            raise self._bad(operation, f"value {_short(value)} is no number or text.")
        return self.recorded.texts.setdefault(str(value), TIME_MAX + len(self.recorded.texts))


def _pair(value: Any) -> tuple[Any, Any]:  # noqa: ANN401 - EDN values
    """(offset, value) of what a send has: [offset value], or the value alone."""
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    return None, value
