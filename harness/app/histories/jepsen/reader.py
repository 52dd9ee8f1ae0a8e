"""Takes Jepsen's operations one by one, and holds what they say in columns.

A process is a producer and a consumer: two clients. A record is (process, value): values are unique per key, as Jepsen's
own checker needs. An operation is a transaction where the history has any of several micro-operations, or of `:f :txn`
(jepsen.tests.kafka, "Operations").
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from prozess.harness.app.histories.jepsen.edn import MAP, EdnValue
from prozess.harness.app.histories.jepsen.lines import (
    NUMBER_MAX,
    OPERATIONS,
    TYPES,
    Block,
    JepsenOperation,
    bad,
    is_number,
    short,
)
from prozess.harness.app.histories.jepsen.tables import SEND_WIDTH, JepsenRecords
from prozess.harness.errors import BadInput
from prozess.harness.schema import MISSING, NONE, Outcome

_OPERATIONS = frozenset({":send", ":poll", ":txn"})
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

    def new_span(self) -> int:
        self.spans += 1
        return self.spans

    def lose(self, partitions: Iterable[int]) -> None:
        """Ends the spans of these partitions: where their consumer reads on is not known."""
        for partition in partitions:
            self.span.pop(partition, None)


class JepsenReader:
    """Takes operations one by one, and holds what they say in columns."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.recorded = JepsenRecords()
        self.processes: dict[int, JepsenProcess] = {}
        self.tells_rebalances = False
        """Has a :rebalance-log been seen? Then the client writes one, and a group moves nothing without a word."""
        self.first_ns: int | None = None
        self.clockless: bool | None = None
        """Has the history no :time? None = nothing was taken yet."""

    def take(self, operation: JepsenOperation) -> None:
        """Takes one more operation."""
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
            self.move(process, operation)
        process.ended_ns = operation.time_ns

    def process(self, name: int) -> JepsenProcess:
        """The process of this name, from the first time on that it comes up."""
        held = self.processes.get(name)
        if held is None:
            assert self.first_ns is not None, name
            held = self.processes[name] = JepsenProcess(len(self.processes), self.first_ns, self.first_ns)
        return held

    def knows(self, operation: JepsenOperation) -> bool:
        """Is this an assignment, or anything else that neither sends nor polls, and names no key for the first time?"""
        keys = operation.value if operation.f in _MOVES and isinstance(operation.value, list) else []
        known = self.recorded.partitions
        whole = all(type(key) is int or type(key) is str for key in keys) and all(key in known for key in keys)
        plain = ":rebalance-log" not in operation.extra
        return whole and plain and operation.f not in _OPERATIONS and operation.time_ns >= 0

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

    def _complete(self, process: JepsenProcess, operation: JepsenOperation, sent: Sequence[int]) -> None:
        recorded, place = self.recorded, 0
        rebalanced = self._rebalanced(operation) if operation.extra else _NOBODY
        polled = set[int]()
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
                polled |= self._polled(process, operation, micro[1], rebalanced)
        if operation.value is not None and operation.type == ":ok" and place != len(sent):
            raise self._bad(
                operation, f"{len(sent) - place} of its {len(sent)} sends are missing. An :ok shows all of them."
            )
        outcome = int(OUTCOMES[operation.type])
        for row in sent:
            recorded.complete(row, operation.time_ns, outcome)
        self.go_on(process, polled, ok=operation.type == ":ok", rebalanced=rebalanced)

    def go_on(
        self, process: JepsenProcess, polled: Iterable[int], *, ok: bool, rebalanced: Iterable[int] = _NOBODY
    ) -> None:
        """Ends the spans that do not go on after an operation that showed records of the partitions `polled`.

        After an abort a client may go back or not, in what it had polled (KAFKA-17582). A member of a group may have been
        given other partitions: those that the operation's :rebalance-log names, or any of them if its client writes none.
        """
        process.lose(rebalanced)
        if not ok:
            process.lose(polled)
        if process.subscribed and not self.tells_rebalances:
            process.span = {}

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
        return polled

    def _pairs(self, operation: JepsenOperation, key: EdnValue, pairs: EdnValue) -> tuple[Sequence[int], Sequence[int]]:
        """Offsets, and numbers of the values, of [[offset value] …]."""
        try:
            offsets, values = zip(*cast("list[list[int]]", pairs), strict=True)  # zip refuses what it is not, fast
        except (TypeError, ValueError) as error:
            raise self._bad(operation, f"{short(pairs)} of key {short(key)} is no list of [offset value].") from error
        if set(map(type, offsets)) != _INTEGERS or min(offsets) < 0 or max(offsets) >= NUMBER_MAX:
            raise self._bad(operation, f"{short(pairs)} of key {short(key)} has offsets that are no numbers from 0.")
        if set(map(type, values)) == _INTEGERS and min(values) >= -NUMBER_MAX and max(values) < NUMBER_MAX:
            return offsets, values
        return offsets, [self._code(operation, value) for value in values]

    def _rebalanced(self, operation: JepsenOperation) -> Set[int]:
        """Returns the partitions that changed hands during an operation."""
        log = operation.extra.get(":rebalance-log")
        found: set[int] = set()
        self.tells_rebalances |= ":rebalance-log" in operation.extra
        for entry in log if isinstance(log, list) else []:
            if isinstance(entry, list) and entry[:1] == [MAP] and ":keys" in entry[1::2]:
                keys = entry[2::2][entry[1::2].index(":keys")]
                found.update(self._partition(operation, key) for key in (keys if isinstance(keys, list) else ()))
        return found

    # Assignments.

    def move(self, process: JepsenProcess, operation: JepsenOperation) -> None:
        """Takes an assignment, or a crash: which spans go on."""
        if operation.f == ":crash":
            process.span = {}
        process.lose(self._rebalanced(operation) if operation.extra else ())
        if operation.f not in _MOVES or operation.type == ":fail":
            return
        subscribes = operation.f == ":subscribe"
        keys = operation.value if isinstance(operation.value, list) else []
        kept = {self._partition(operation, key) for key in keys}
        certain = (
            operation.type == ":ok"
            and process.subscribed == subscribes
            and (self.tells_rebalances or not subscribes)
            and not operation.extra.get(":seek-to-beginning?")
        )
        process.subscribed = subscribes
        process.span = {p: span for p, span in process.span.items() if certain and p in kept}

    # Names.

    def _partition(self, operation: JepsenOperation, key: object) -> int:
        if type(key) is int or type(key) is str:
            found = self.recorded.partitions.get(key)
            if found is not None:
                return found
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise self._bad(operation, f"key {short(key)} is no number or text.")
        return self.recorded.partitions.setdefault(key, len(self.recorded.partitions))

    def _code(self, operation: JepsenOperation, value: object) -> int:
        """Returns a number for a value: itself if it is one, else one beyond all of those."""
        if type(value) is int and -NUMBER_MAX <= value < NUMBER_MAX:
            return value
        if value is None or isinstance(value, list):
            raise self._bad(operation, f"value {short(value)} is no number or text.")
        return self.recorded.texts.setdefault(str(value), NUMBER_MAX + len(self.recorded.texts))


def _pair(value: EdnValue) -> tuple[EdnValue, EdnValue]:
    """(offset, value) of what a send has: [offset value], or the value alone."""
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    return None, value


# Takes a block of Jepsen's lines at once: the same rows as line by line.
#
# Only what follows from one line to the next is gone through line by line: which invocation an operation completes,
# and which span of reading goes on.


_NEVER = 1 << 62
"""Behind every line."""
_NO_OPERATION, _EARLIER = -1, -2
"""Instead of the line of an invocation: there is none; it stands before the block."""
_INVOKE, _OK = TYPES.index(":invoke"), TYPES.index(":ok")
_OUTCOME = np.array([NONE, *(int(OUTCOMES[name]) for name in TYPES[1:])])


class BlockReader:
    """One block, and who takes it. `lines`: the number of each line in the file. `moves`: operations on lines between
    them that neither send nor poll, in order; what they name is known (`JepsenReader.knows`)."""

    def __init__(
        self, reader: JepsenReader, block: Block, lines: Sequence[int], moves: Sequence[JepsenOperation] = ()
    ) -> None:
        self._reader, self._block, self._lines = reader, block, lines
        self._moves = [(bisect_left(lines, move.line), move) for move in moves]
        """Each with the place of the line of the block that it stands before."""
        began = self._moves[0][1].time_ns if self._moves and self._moves[0][0] == 0 else int(block.time_ns[0])
        self._began_ns = began if reader.first_ns is None else reader.first_ns
        self._recorded = reader.recorded
        self._pending: dict[int, int] = {}
        """Process → the line of its invocation after the block."""
        self._last: dict[int, int] = {}
        """Process → when it last did anything, after the block."""
        invoked = block.type == _INVOKE
        self._sends = np.bincount(block.send_line, minlength=len(block.type))
        """How many sends each line has."""
        made = np.where(invoked, self._sends, 0)
        self._base = len(self._recorded.sends) // SEND_WIDTH
        self._first = self._base + np.cumsum(made) - made
        """The first row of `sends` of what each line invokes, or completes."""
        self._count = made

    def take(self) -> bool:
        """False, and nothing was taken, if something is wrong in it, or unusual: line by line it will be said."""
        block, completed = self._block, self._block.type != _INVOKE
        if block.polls[~completed].any() or not self._pair():
            return False
        few = self._sends < self._count
        if (completed & ((self._sends > self._count) | (few & (block.type == _OK)))).any():
            return False
        partitions, offered = self._partitions(), ~completed[block.send_line]
        within = np.arange(len(block.send_line)) - (np.cumsum(self._sends) - self._sends)[block.send_line]
        done = np.flatnonzero(~offered)
        rows = (self._first[block.send_line] + within)[done]
        partition = partitions.of(block.send_key)
        if not self._same(rows, partition[done], block.send_value[done], partition[offered], block.send_value[offered]):
            return False
        self._register()
        numbers = np.array([self._reader.processes[p].number for p in block.process.tolist()])
        self._add_sends(np.flatnonzero(offered), partition, numbers)
        self._complete(rows, block.send_offset[done], np.flatnonzero(completed))
        self._add_reads(partitions.of(block.polled_key), numbers)
        self._go_on()
        return True

    def _pair(self) -> bool:
        """Returns which rows each operation completes. False if it completes nothing, or times or names do not fit."""
        block, known = self._block, dict[int, list[int]]()
        first, count = self._first, self._count
        moves = _Moves(self._moves)
        columns = (block.type.tolist(), block.f.tolist(), block.process.tolist(), block.time_ns.tolist())
        for line, (kind, f, process, time_ns) in enumerate(zip(*columns, strict=True)):
            if moves.first <= line and not self._pass(known, moves.until(line)):
                return False
            state = known.get(process)
            if state is None:
                state = known[process] = self._state(process)
            if time_ns < state[2]:
                return False
            state[2] = time_ns
            if kind == _INVOKE:
                if state[0] != _NO_OPERATION:
                    return False
                state[0], state[1] = line, f
                continue
            if state[0] == _NO_OPERATION or state[1] != f:
                return False
            if state[0] == _EARLIER:
                sent = self._reader.processes[process].sent
                first[line], count[line] = sent[0] if sent else 0, len(sent)
            else:
                first[line], count[line] = first[state[0]], count[state[0]]
            state[0] = _NO_OPERATION
        if not self._pass(known, moves.until(len(block.type))):
            return False
        self._pending = {process: state[0] for process, state in known.items()}
        self._last = {process: state[2] for process, state in known.items()}
        return True

    def _pass(self, known: dict[int, list[int]], moves: Sequence[JepsenOperation]) -> bool:
        """Are they in the order of time?"""
        for move in moves:
            state = known.setdefault(move.process, self._state(move.process))
            if move.time_ns < state[2]:
                return False
            state[2] = move.time_ns
        return True

    def _state(self, process: int) -> list[int]:
        """[line of its invocation, its operation, when it last did anything], before the block."""
        held = self._reader.processes.get(process)
        if held is None:
            return [_NO_OPERATION, 0, self._began_ns]
        if held.invoked is None:
            return [_NO_OPERATION, 0, held.ended_ns]
        return [_EARLIER, OPERATIONS.index(held.invoked.f), held.ended_ns]

    def _partitions(self) -> "_Ids":
        known = self._recorded.partitions
        for key in self._block.keys:
            known.setdefault(key, len(known))
        keys = np.array(sorted(self._block.keys), dtype=np.int64)
        return _Ids(keys, np.array([known[key] for key in keys.tolist()], dtype=np.int64))

    def _same(self, rows: np.ndarray, partition: np.ndarray, value: np.ndarray, *offered: np.ndarray) -> bool:
        """Are these the partitions and values of the sends in these rows? `offered`: of the rows that the block adds."""
        before, table = rows < self._base, self._recorded.sends_table()
        for place, (mine, new) in enumerate(zip((partition, value), offered, strict=True), start=1):
            if (table[rows[before], place] != mine[before]).any():
                return False
            if (new[rows[~before] - self._base] != mine[~before]).any():
                return False
        return True

    def _register(self) -> None:
        if self._reader.first_ns is None:
            self._reader.first_ns = self._began_ns
        processes = self._block.process.tolist()
        for place, move in reversed(self._moves):
            processes.insert(place, move.process)
        for process in dict.fromkeys(processes):
            self._reader.process(process)

    def _add_sends(self, chosen: np.ndarray, partition: np.ndarray, numbers: np.ndarray) -> None:
        """A row for each send that was invoked."""
        block, line = self._block, self._block.send_line[chosen]
        transaction = np.zeros(len(block.type), dtype=np.int64)
        sending = np.flatnonzero((block.type == _INVOKE) & (self._sends > 0))
        processes = self._reader.processes
        for at, process in zip(sending.tolist(), block.process[sending].tolist(), strict=True):
            transaction[at] = processes[process].transactions
            processes[process].transactions += 1
        rows = np.empty((len(chosen), SEND_WIDTH), dtype=np.int64)
        columns = (
            *(numbers[line], partition[chosen], block.send_value[chosen], block.time_ns[line], NONE, MISSING),
            *(int(Outcome.INFO), np.array(self._lines)[line], transaction[line]),
        )
        for place, column in enumerate(columns):
            rows[:, place] = column
        self._recorded.add_many_sends(rows)

    def _complete(self, rows: np.ndarray, offsets: np.ndarray, completed: np.ndarray) -> None:
        table, block, count = self._recorded.sends_table(), self._block, self._count[completed]
        table[rows[offsets != NONE], 4] = offsets[offsets != NONE]
        line = np.repeat(completed, count)
        every = self._first[line] + np.arange(len(line)) - np.repeat(np.cumsum(count) - count, count)
        table[every, 5], table[every, 6] = block.time_ns[line], _OUTCOME[block.type[line]]

    def _add_reads(self, partition: np.ndarray, numbers: np.ndarray) -> None:
        """The records of each poll, in spans that go on until something may have moved the client."""
        block, runs = self._block, list[int]()
        bounds = np.searchsorted(block.polled_line, np.arange(len(self._lines) + 1))
        polling = np.flatnonzero(block.polls)
        columns = (polling, block.process[polling], block.type[polling], block.time_ns[polling], numbers[polling])
        moves = _Moves(self._moves)
        polled = list(zip(partition.tolist(), block.polled_records.tolist(), strict=True))
        for line, process, kind, time_ns, number, begin, end in zip(
            *(column.tolist() for column in columns),
            *(bounds[polling + more].tolist() for more in (0, 1)),
            strict=True,
        ):
            if moves.first <= line:
                self._move(moves.until(line))
            held = self._reader.processes[process]
            for key, records in polled[begin:end]:
                if records:
                    span = held.span.get(key)
                    if span is None:
                        span = held.span[key] = held.new_span()
                    runs += (number, key, span, time_ns, records)
            if held.subscribed or kind != _OK:
                self._reader.go_on(held, (key for key, records in polled[begin:end] if records), ok=kind == _OK)
        self._move(moves.until(len(block.type)))
        self._recorded.add_many_reads(runs, block.offset, block.value)

    def _move(self, moves: Sequence[JepsenOperation]) -> None:
        for move in moves:
            if move.type != ":invoke":
                self._reader.move(self._reader.process(move.process), move)

    def _go_on(self) -> None:
        """Goes on with what is known after the block."""
        block, lines = self._block, self._lines
        for process, at in self._pending.items():
            held = self._reader.processes[process]
            held.ended_ns = self._last[process]
            if at == _NO_OPERATION:
                held.invoked, held.sent = None, []
            elif at != _EARLIER:
                f, first = OPERATIONS[block.f[at]], int(self._first[at])
                held.invoked = JepsenOperation(lines[at], ":invoke", f, process, int(block.time_ns[at]), None, {})
                held.sent = range(first, first + int(self._count[at]))
        recorded = self._recorded
        recorded.most_micro_operations = max(recorded.most_micro_operations, int(block.micro_operations.max(initial=0)))
        recorded.has_txn |= bool((block.f == OPERATIONS.index(":txn")).any())


class _Moves:
    """Operations that stand between the lines of a block, from the first to the last."""

    def __init__(self, placed: Sequence[tuple[int, JepsenOperation]]) -> None:
        self._left = placed
        self.first = placed[0][0] if placed else _NEVER

    def until(self, line: int) -> list[JepsenOperation]:
        """Takes those that stand before this line of the block and were not taken yet."""
        count = bisect_right(self._left, line, key=lambda placed: placed[0])
        taken, self._left = self._left[:count], self._left[count:]
        self.first = self._left[0][0] if self._left else _NEVER
        return [move for _, move in taken]


class _Ids:
    """Dense ids of keys, which ascend."""

    def __init__(self, keys: np.ndarray, ids: np.ndarray) -> None:
        self._keys, self._ids = keys, ids

    def of(self, keys: np.ndarray) -> np.ndarray:
        """int64[k]."""
        return self._ids[np.searchsorted(self._keys, keys)] if len(keys) else np.empty(0, dtype=np.int64)
