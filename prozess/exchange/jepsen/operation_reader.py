"""Reads Jepsen's operations one by one into columns.

A process is a producer and a consumer: two clients. A record is (process, value): values are unique per key, as Jepsen's
own checker needs. An operation is a transaction where the history has any of several micro-operations, or of `:f :txn`
(jepsen.tests.kafka, "Operations").
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import cast

from prozess.exchange.jepsen.blocks import NUMBER_MAX, OPERATIONS
from prozess.exchange.jepsen.edn import MAP, EdnValue
from prozess.exchange.jepsen.lines import JepsenOperation, bad, is_offset, short
from prozess.exchange.jepsen.tables import SEND_WIDTH, JepsenRecords
from prozess.harness.errors import BadInput
from prozess.harness.schema import NONE, OFFSET_MAX, Outcome, ReadFlag

_OPERATIONS = frozenset(OPERATIONS)
_MICRO_OPERATIONS = (":send", ":poll")
_MOVES = frozenset({":assign", ":subscribe"})
OUTCOMES = {":ok": Outcome.OK, ":fail": Outcome.FAIL, ":info": Outcome.INFO}
_INTEGERS = {int}
_NOBODY: frozenset[int] = frozenset()


@dataclass(slots=True)
class JepsenProcess:
    """One Jepsen process: its open operation, and the spans that its consumer reads."""

    number: int
    started_ns: int
    ended_ns: int
    invoked: JepsenOperation | None = None
    sent: Sequence[int] = ()
    """Rows of the sends of the operation that is under way."""
    transactions: int = 0
    subscribed: bool = False
    spans: int = 0
    span: dict[int, int] = field(default_factory=dict)
    """Partition → span."""
    begins: dict[int, int] = field(default_factory=dict)
    """Partition → the ReadFlag that says where its consumer begins the next span, if that is known."""

    def new_span(self) -> int:
        self.spans += 1
        return self.spans

    def lose(self, partitions: Iterable[int]) -> None:
        """Ends the spans of these partitions: where their consumer reads on is not known."""
        for partition in partitions:
            self.span.pop(partition, None)
            self.begins.pop(partition, None)

    def go_back(self, partitions: Iterable[int]) -> None:
        """Ends the spans of these partitions: their consumer reads on where each ended, or further back."""
        for partition in partitions:
            if self.span.pop(partition, None) is not None:
                self.begins[partition] = int(ReadFlag.GOES_ON)

    def forget(self) -> None:
        """Ends all spans: nothing is known of where their consumer reads on."""
        self.span, self.begins = {}, {}


class JepsenReader:
    """Reads operations one by one into columns."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.recorded = JepsenRecords()
        self.processes: dict[int, JepsenProcess] = {}
        self.records_rebalances = False
        """Has a :rebalance-log been seen? Then the client writes one, and a group moves nothing without a word."""
        self.uninvoked: list[tuple[int, Set[int]]] = []
        """Completions without an invocation: the line, and the partitions that it names."""
        self.invokes = False
        """Was any operation invoked? If none was, the history has no invocations at all."""
        self.first_ns: int | None = None
        self.clockless: bool | None = None
        """Does the history lack :time? None = no operation was read yet."""

    def take(self, operation: JepsenOperation) -> None:
        """Takes one more operation."""
        without = operation.time_ns < 0
        if self.clockless is None:
            self.clockless = without
        if without is not self.clockless:
            raise self._bad(operation, "some operations have a :time and others none. Give all of them one, or none.")
        if without:  # then only the order of lines is known
            operation.time_ns = operation.line
        if self.first_ns is None:
            self.first_ns = operation.time_ns
        process = self._process(operation.process)
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

    def _process(self, name: int) -> JepsenProcess:
        """Returns the process of this name; it is created at its first occurrence."""
        held = self.processes.get(name)
        if held is None:
            assert self.first_ns is not None, name
            held = self.processes[name] = JepsenProcess(len(self.processes), self.first_ns, self.first_ns)
        return held

    def end(self) -> None:
        """Ends the file: what is still open never completed."""
        if not self.processes:
            raise BadInput(
                f"{self._source} has no operation of a client: nothing to import. Give Jepsen's history.edn."
            )
        self.recorded.processes = [
            (name, process.started_ns, process.ended_ns, process.transactions)
            for name, process in self.processes.items()
        ]

    def open_lines(self) -> list[int]:
        """Returns the lines of the operations that never completed, ascending."""
        return sorted(process.invoked.line for process in self.processes.values() if process.invoked is not None)

    def _bad(self, operation: JepsenOperation, what: str) -> BadInput:
        return bad(self._source, operation.line, what)

    # Sends and polls.

    def _transact(self, process: JepsenProcess, operation: JepsenOperation) -> None:
        if operation.type == ":invoke":
            if process.invoked is not None:
                line = process.invoked.line
                raise self._bad(
                    operation, f"process {operation.process} has not completed its operation of line {line}."
                )
            self.invokes = True
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
        process.invoked, process.sent = None, ()
        polled = self._complete(process, operation, sent)
        if invoked is None:
            self.uninvoked.append((operation.line, polled | {self.recorded.send_of(row)[0] for row in sent}))

    def _micro_operations(self, operation: JepsenOperation) -> list[list[EdnValue]]:
        value = operation.value
        if value is None:
            return []
        if not isinstance(value, list) or value[:1] == [MAP]:
            raise self._bad(operation, f":value {short(value)} is no vector of [:send k v] and [:poll].")
        recorded = self.recorded
        if len(value) > recorded.most_micro_operations:
            recorded.most_micro_operations = len(value)
        if operation.f == ":txn":
            recorded.has_txn = True
        for micro in value:
            if not isinstance(micro, list) or not micro or micro[0] not in _MICRO_OPERATIONS:
                raise self._bad(operation, f"micro-operation {short(micro)} is neither [:send k v] nor [:poll …].")
            if (len(micro) != 3) if micro[0] == ":send" else (len(micro) > 2):
                raise self._bad(operation, f"micro-operation {short(micro)} has {len(micro)} parts.")
        return cast("list[list[EdnValue]]", value)

    def _sends(self, process: JepsenProcess, operation: JepsenOperation, *, begun_ns: int) -> list[int]:
        """Adds a row for each send of an operation, and returns the rows."""
        rows = []
        for micro in self._micro_operations(operation):
            if micro[0] == ":send":
                _, value = pair_of(micro[2])
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

    def _complete(self, process: JepsenProcess, operation: JepsenOperation, sent: Sequence[int]) -> Set[int]:
        """Adds the results of an operation, and returns the partitions from which it polled records."""
        recorded, index = self.recorded, 0
        rebalanced = self._rebalanced(operation) if operation.extra else _NOBODY
        polled = set[int]()
        for micro in self._micro_operations(operation):
            if micro[0] == ":send":
                offset, value = pair_of(micro[2])
                key = self._partition(operation, micro[1])
                if index >= len(sent) or recorded.send_of(sent[index]) != (key, self._code(operation, value)):
                    raise self._bad(
                        operation, f"{short(micro)} is not what was invoked. Sends complete in their order."
                    )
                if offset is not None and not without_offset(offset):
                    if not is_offset(offset):
                        raise self._bad(
                            operation,
                            f"offset {short(offset)} of {short(micro)} is not a number from 0 to {OFFSET_MAX}, or -1, or "
                            "nil. Mend the line, or leave it out.",
                        )
                    recorded.sends[sent[index] * SEND_WIDTH + 4] = offset
                index += 1
            elif len(micro) == 2 and micro[1] is not None:
                polled |= self._polled(process, operation, micro[1], rebalanced)
        if operation.value is not None and operation.type == ":ok" and index != len(sent):
            raise self._bad(
                operation, f"{len(sent) - index} of its {len(sent)} sends are missing. An :ok shows all of them."
            )
        outcome = int(OUTCOMES[operation.type])
        for row in sent:
            recorded.complete(row, operation.time_ns, outcome)
        self._go_on(process, polled, ok=operation.type == ":ok", rebalanced=rebalanced)
        return polled

    def _go_on(
        self, process: JepsenProcess, polled: Iterable[int], *, ok: bool, rebalanced: Iterable[int] = _NOBODY
    ) -> None:
        """Ends the spans that do not go on after an operation that showed records of the partitions `polled`.

        After an abort a client may go back or not, in what it had polled (KAFKA-17582). A member of a group may have been
        given other partitions: those that the operation's :rebalance-log names, or any of them if its client writes none.
        """
        process.lose(rebalanced)
        if not ok:
            process.go_back(polled)
        if process.subscribed and not self.records_rebalances:
            process.forget()

    def _polled(
        self, process: JepsenProcess, operation: JepsenOperation, shown: EdnValue, rebalanced: Set[int]
    ) -> set[int]:
        """Adds the records of one poll, {k [[offset value] …], …}, and returns their partitions."""
        polled = set[int]()
        if not isinstance(shown, list) or shown[:1] != [MAP] or len(shown) % 2 == 0:
            raise self._bad(operation, f"[:poll {short(shown)}] has no map of keys to [[offset value] …].")
        for key, pairs in zip(shown[1::2], shown[2::2], strict=False):
            partition = self._partition(operation, key)
            if not pairs:
                continue
            polled.add(partition)
            offsets, codes = self._pairs(operation, key, pairs)
            if partition in rebalanced:  # anything may have happened between two of them
                for offset, code in zip(offsets, codes, strict=True):
                    own = process.new_span()
                    self.recorded.add_reads(process.number, partition, own, operation.time_ns, (offset,), (code,))
                continue
            span, begins = process.span.get(partition), 0
            if span is None:
                span = process.span[partition] = process.new_span()
                begins = process.begins.pop(partition, 0)
            self.recorded.add_reads(process.number, partition, span, operation.time_ns, offsets, codes, begins=begins)
        return polled

    def _pairs(self, operation: JepsenOperation, key: EdnValue, pairs: EdnValue) -> tuple[Sequence[int], Sequence[int]]:
        """Offsets, and numbers of the values, of [[offset value] …]."""
        try:
            offsets, values = pairs_of(pairs)
        except ValueError as error:
            raise self._bad(operation, f"{short(pairs)} of key {short(key)} {error}.") from error
        return offsets, [self._code(operation, value) for value in values]

    def _rebalanced(self, operation: JepsenOperation) -> Set[int]:
        """Returns the partitions that changed hands during an operation."""
        self.records_rebalances |= ":rebalance-log" in operation.extra
        return {self._partition(operation, key) for key in rebalanced_keys(operation.extra.get(":rebalance-log"))}

    # Assignments.

    def _move(self, process: JepsenProcess, operation: JepsenOperation) -> None:
        """Takes an assignment or a crash, and decides which spans continue."""
        if operation.f == ":crash":
            process.forget()
        rebalanced = self._rebalanced(operation) if operation.extra else _NOBODY
        process.lose(rebalanced)
        if operation.f not in _MOVES or operation.type == ":fail":
            return
        subscribes = operation.f == ":subscribe"
        keys = operation.value if isinstance(operation.value, list) else []
        kept = {self._partition(operation, key) for key in keys}
        certain = (
            operation.type == ":ok"
            and process.subscribed == subscribes
            and (self.records_rebalances or not subscribes)
            and not operation.extra.get(":seek-to-beginning?")
        )
        process.subscribed = subscribes
        process.span = {p: span for p, span in process.span.items() if certain and p in kept}
        process.begins = {p: begins for p, begins in process.begins.items() if certain and p in kept}
        if operation.type == ":ok" and not subscribes and operation.extra.get(":seek-to-beginning?"):
            process.begins = dict.fromkeys(kept - rebalanced, int(ReadFlag.FROM_START))

    # Names.

    def _partition(self, operation: JepsenOperation, key: object) -> int:
        if type(key) is int or type(key) is str:
            found = self.recorded.partitions.get(key)
            if found is not None:
                return found
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise self._bad(operation, f"key {short(key)} is no number or text.")
        return self.recorded.partitions.setdefault(key, len(self.recorded.partitions))

    def _code(self, operation: JepsenOperation, value: EdnValue) -> int:
        try:
            return code_of(value, self.recorded.texts)
        except ValueError as error:
            raise self._bad(operation, f"value {short(value)} {error}.") from error


def pair_of(value: EdnValue) -> tuple[EdnValue, EdnValue]:
    """Returns (offset, value) of what a send has: [offset value], or the value alone."""
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    return None, value


def without_offset(offset: EdnValue) -> bool:
    """Returns whether an acknowledgement names no offset: -1, with acks=0 or of a sequence that the broker had already."""
    return type(offset) is int and offset == NONE


def pairs_of(pairs: EdnValue) -> tuple[Sequence[int], Sequence[EdnValue]]:
    """Returns (offsets, values) of what a poll gave of a key, [[offset value] …]. ValueError says why it is none."""
    try:
        offsets, values = zip(*cast("list[list[int]]", pairs), strict=True)  # raises quickly for other shapes
    except (TypeError, ValueError) as error:
        raise ValueError("is no list of [offset value]") from error
    if set(map(type, offsets)) != _INTEGERS or min(offsets) < 0 or max(offsets) > OFFSET_MAX:
        raise ValueError(f"has offsets that are not numbers from 0 to {OFFSET_MAX}. Mend the line, or leave it out")
    return offsets, values


def rebalanced_keys(log: EdnValue) -> Iterator[EdnValue]:
    """Yields the keys that a :rebalance-log names."""
    for entry in log if isinstance(log, list) else []:
        if isinstance(entry, list) and entry[:1] == [MAP] and ":keys" in entry[1::2]:
            keys = entry[2::2][entry[1::2].index(":keys")]
            yield from keys if isinstance(keys, list) else ()


def code_of(value: EdnValue, texts: dict[str, int]) -> int:
    """Returns a number for a value: itself if it is one, else one beyond all of those, which is added to `texts`.
    ValueError: it is no value."""
    if type(value) is int and -NUMBER_MAX <= value < NUMBER_MAX:
        return value
    if value is None or isinstance(value, list):
        raise ValueError("is no number or text")
    return texts.setdefault(str(value), NUMBER_MAX + len(texts))
