"""Takes a block of Jepsen's lines at once: the same rows as line by line (`harness.histories.jepsen_reader`).

Only what follows from one line to the next is gone through line by line: which invocation an operation completes, and which
span of reading goes on.
"""

from collections.abc import Sequence

import numpy as np

from harness.histories.jepsen_blocks import OPERATIONS, TYPES, Block
from harness.histories.jepsen_lines import Operation
from harness.histories.jepsen_reader import OUTCOMES, Reader
from harness.histories.jepsen_tables import SEND_WIDTH
from harness.schema import MISSING, NONE, Outcome

_NOBODY, _EARLIER = -1, -2
"""Instead of the line of an invocation: there is none; it stands before the block."""
_INVOKE, _OK = TYPES.index(":invoke"), TYPES.index(":ok")
_OUTCOME = np.array([NONE, *(int(OUTCOMES[name]) for name in TYPES[1:])])


class BlockReader:
    """One block, and who takes it. `lines`: the number of each line in the file."""

    def __init__(self, reader: Reader, block: Block, lines: Sequence[int]) -> None:
        self._reader, self._block, self._lines = reader, block, lines
        self._recorded = reader.recorded
        self._pending: dict[int, int] = {}
        """Process → the line of its invocation after the block."""
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
        """Which rows each operation completes. False if it completes nothing, or times or names do not fit."""
        block, known = self._block, dict[int, list[int]]()
        first, count = self._first, self._count
        columns = (block.type.tolist(), block.f.tolist(), block.process.tolist(), block.time_ns.tolist())
        for line, (kind, f, process, time_ns) in enumerate(zip(*columns, strict=True)):
            state = known.get(process)
            if state is None:
                state = known[process] = self._state(process)
            if time_ns < state[2]:
                return False
            state[2] = time_ns
            if kind == _INVOKE:
                if state[0] != _NOBODY:
                    return False
                state[0], state[1] = line, f
                continue
            if state[0] == _NOBODY or state[1] != f:
                return False
            if state[0] == _EARLIER:
                sent = self._reader.processes[process].sent
                first[line], count[line] = sent[0] if sent else 0, len(sent)
            else:
                first[line], count[line] = first[state[0]], count[state[0]]
            state[0] = _NOBODY
        self._pending = {process: state[0] for process, state in known.items()}
        return True

    def _state(self, process: int) -> list[int]:
        """[line of its invocation, its operation, when it last did anything], before the block."""
        held = self._reader.processes.get(process)
        if held is None:
            began_ns = self._reader.first_ns
            return [_NOBODY, 0, int(self._block.time_ns[0]) if began_ns is None else began_ns]
        if held.invoked is None:
            return [_NOBODY, 0, held.ended_ns]
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
            self._reader.first_ns = int(self._block.time_ns[0])
        for process in dict.fromkeys(self._block.process.tolist()):
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
        columns = (block.process, block.type, block.time_ns, numbers)
        polled = list(zip(partition.tolist(), block.polled_records.tolist(), strict=True))
        for process, kind, time_ns, number, begin, end in zip(
            *(column[polling].tolist() for column in columns),
            *(bounds[polling + more].tolist() for more in (0, 1)),
            strict=True,
        ):
            held = self._reader.processes[process]
            if held.subscribed:
                held.span = {}
            for key, records in polled[begin:end]:
                if records:
                    span = held.span.get(key)
                    if span is None:
                        span = held.span[key] = held.new_span()
                    runs += (number, key, span, time_ns, records)
            if held.subscribed or kind != _OK:
                held.span = {}
        self._recorded.add_many_reads(runs, block.offset, block.value)

    def _go_on(self) -> None:
        """What is known after the block."""
        block, lines = self._block, self._lines
        last = dict(zip(block.process.tolist(), block.time_ns.tolist(), strict=True))
        for process, at in self._pending.items():
            held = self._reader.processes[process]
            held.ended_ns = last[process]
            if at == _NOBODY:
                held.invoked, held.sent = None, []
            elif at != _EARLIER:
                f, first = OPERATIONS[block.f[at]], int(self._first[at])
                held.invoked = Operation(lines[at], ":invoke", f, process, int(block.time_ns[at]), None, {})
                held.sent = range(first, first + int(self._count[at]))
        recorded = self._recorded
        recorded.most_micro_operations = max(recorded.most_micro_operations, int(block.micro_operations.max(initial=0)))
        recorded.has_txn |= bool((block.f == OPERATIONS.index(":txn")).any())


class _Ids:
    """Dense ids of keys, which ascend."""

    def __init__(self, keys: np.ndarray, ids: np.ndarray) -> None:
        self._keys, self._ids = keys, ids

    def of(self, keys: np.ndarray) -> np.ndarray:
        """int64[k]."""
        return self._ids[np.searchsorted(self._keys, keys)] if len(keys) else np.empty(0, dtype=np.int64)
