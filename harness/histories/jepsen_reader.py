"""Takes Jepsen's operations one by one, and holds what they say in columns.

A process is a producer and a consumer: two clients. A record is (process, value): values are unique per key, as Jepsen's
own checker needs. An operation is a transaction where the history has any of several micro-operations, or of `:f :txn`
(jepsen.tests.kafka, "Operations").
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from harness.errors import BadInput
from harness.histories.edn import MAP
from harness.histories.jepsen_blocks import NUMBER_MAX
from harness.histories.jepsen_lines import Operation, bad, is_number, short
from harness.histories.jepsen_tables import SEND_WIDTH, Recorded
from harness.schema import Outcome

_OPERATIONS = frozenset({":send", ":poll", ":txn"})
_MICRO_OPERATIONS = (":send", ":poll")
_MOVES = frozenset({":assign", ":subscribe"})
OUTCOMES = {":ok": Outcome.OK, ":fail": Outcome.FAIL, ":info": Outcome.INFO}
_INTEGERS = {int}
_NOBODY: frozenset[int] = frozenset()


@dataclass(slots=True)
class Process:
    """One process: what it is at, and the spans of its consumer."""

    number: int
    started_ns: int
    ended_ns: int
    invoked: Operation | None = None
    sent: Sequence[int] = ()
    """Rows of the sends of the operation that is under way."""
    transactions: int = 0
    subscribed: bool = False
    spans: int = 0
    span: dict[int, int] = field(default_factory=dict)
    """Partition → span."""

    def new_span(self) -> int:
        self.spans += 1
        return self.spans


class Reader:
    """Takes operations one by one, and holds what they say in columns."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.recorded = Recorded()
        self.processes: dict[int, Process] = {}
        self.first_ns: int | None = None
        self.clockless: bool | None = None
        """Has the history no :time? None = nothing was taken yet."""

    def take(self, operation: Operation) -> None:
        """One more line."""
        without = operation.time_ns < 0
        if self.clockless is None:
            self.clockless = without
        if without is not self.clockless:
            raise self._bad(operation, "some operations have a :time and others none. Give all of them one, or none.")
        if without:  # then the order of lines is all there is
            operation.time_ns = operation.line
        if self.first_ns is None:
            self.first_ns = operation.time_ns
        process = self.process(operation.process)
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

    def process(self, name: int) -> Process:
        """The process of this name, from the first time on that it comes up."""
        held = self.processes.get(name)
        if held is None:
            assert self.first_ns is not None, name
            held = self.processes[name] = Process(len(self.processes), self.first_ns, self.first_ns)
        return held

    def end(self) -> None:
        """Of the whole file."""
        if not self.processes:
            raise BadInput(
                f"{self._source} has no operation of a client: nothing to import. Give Jepsen's history.edn."
            )
        self.recorded.processes = [
            (name, process.started_ns, process.ended_ns, process.transactions)
            for name, process in self.processes.items()
        ]

    def _bad(self, operation: Operation, what: str) -> BadInput:
        return bad(self._source, operation.line, what)

    # --- sends and polls ----------------------------------------------------------------------------------------------

    def _transact(self, process: Process, operation: Operation) -> None:
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
        process.invoked, process.sent = None, ()
        self._complete(process, operation, sent)

    def _micro_operations(self, operation: Operation) -> list[list[Any]]:
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
        return value

    def _sends(self, process: Process, operation: Operation, *, begun_ns: int) -> list[int]:
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

    def _complete(self, process: Process, operation: Operation, sent: Sequence[int]) -> None:
        recorded, place = self.recorded, 0
        rebalanced = self._rebalanced(operation) if operation.extra else _NOBODY
        polled = False
        for micro in self._micro_operations(operation):
            if micro[0] == ":send":
                offset, value = _pair(micro[2])
                key = self._partition(operation, micro[1])
                if place >= len(sent) or recorded.send_of(sent[place]) != (key, self._code(operation, value)):
                    raise self._bad(
                        operation, f"{short(micro)} is not what was invoked. Sends complete in their order."
                    )
                if offset is not None:
                    if not is_number(offset):
                        raise self._bad(
                            operation, f"offset {short(offset)} of {short(micro)} is no number from 0, or nil."
                        )
                    recorded.sends[sent[place] * SEND_WIDTH + 4] = offset
                place += 1
            elif len(micro) == 2 and micro[1] is not None:
                polled = self._polled(process, operation, micro[1], rebalanced) or polled
        if operation.value is not None and operation.type == ":ok" and place != len(sent):
            raise self._bad(
                operation, f"{len(sent) - place} of its {len(sent)} sends are missing. An :ok shows all of them."
            )
        outcome = int(OUTCOMES[operation.type])
        for row in sent:
            recorded.complete(row, operation.time_ns, outcome)
        if process.subscribed or rebalanced or (polled and operation.type != ":ok"):
            # After an abort a client may go back or not; of a group it may be given other partitions between two polls.
            process.span = {}

    def _polled(self, process: Process, operation: Operation, shown: Any, rebalanced: Set[int]) -> bool:  # noqa: ANN401
        """The records of one poll: {k [[offset value] …], …}."""
        if not isinstance(shown, list) or shown[:1] != [MAP] or len(shown) % 2 == 0:
            raise self._bad(operation, f"[:poll {short(shown)}] has no map of keys to [[offset value] …].")
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
            raise self._bad(operation, f"{short(pairs)} of key {short(key)} is no list of [offset value].") from error
        if set(map(type, offsets)) != _INTEGERS or min(offsets) < 0 or max(offsets) >= NUMBER_MAX:
            raise self._bad(operation, f"{short(pairs)} of key {short(key)} has offsets that are no numbers from 0.")
        if set(map(type, values)) == _INTEGERS and min(values) >= -NUMBER_MAX and max(values) < NUMBER_MAX:
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

    def _move(self, process: Process, operation: Operation) -> None:
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
            raise self._bad(operation, f"key {short(key)} is no number or text.")
        return self.recorded.partitions.setdefault(key, len(self.recorded.partitions))

    def _code(self, operation: Operation, value: object) -> int:
        """A number for a value: itself if it is one, else one beyond all of those."""
        if type(value) is int and -NUMBER_MAX <= value < NUMBER_MAX:
            return value
        if value is None or isinstance(value, list):
            raise self._bad(operation, f"value {short(value)} is no number or text.")
        return self.recorded.texts.setdefault(str(value), NUMBER_MAX + len(self.recorded.texts))


def _pair(value: Any) -> tuple[Any, Any]:  # noqa: ANN401 - EDN values
    """(offset, value) of what a send has: [offset value], or the value alone."""
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    return None, value
