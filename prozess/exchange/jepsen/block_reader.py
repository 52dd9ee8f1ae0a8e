"""Reads a whole history of Jepsen's as arrays, with the result of `operation_reader`, which takes one operation after the
other.

Many lines are read at once (`blocks`); any other line is read by itself, into the same arrays. Relations between lines are
found for all lines together, by sorting: which invocation an operation completes, and which span of reading goes on.
A line that is wrong, or holds more than these arrays can, raises `Unusual`: then `operation_reader` reads the file again, and
reports the error.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from prozess.exchange.imported_run import stable_order
from prozess.exchange.input_files import open_history
from prozess.exchange.jepsen.blocks import (
    FUNCTIONS,
    NUMBER_MAX,
    OPERATIONS,
    OTHER,
    TYPES,
    Gaps,
    Lines,
    read_lines_at_once,
)
from prozess.exchange.jepsen.edn import MAP, EdnValue
from prozess.exchange.jepsen.lines import LINE_CHARACTERS_MAX, JepsenOperation, is_offset, operations
from prozess.exchange.jepsen.operation_reader import (
    OUTCOMES,
    code_of,
    pair_of,
    pairs_of,
    rebalanced_keys,
    without_offset,
)
from prozess.exchange.jepsen.tables import JepsenColumns
from prozess.harness.errors import BadInput
from prozess.harness.schema import MISSING, NONE, OFFSET_MAX, Outcome, ReadFlag

BLOCK_BYTES = 1 << 20
"""At most this much text is read at once: few enough to stay in a core's cache."""
INVOKE, OK, FAIL = (TYPES.index(name) for name in (":invoke", ":ok", ":fail"))
ASSIGN, SUBSCRIBE, CRASH = (FUNCTIONS.index(name) for name in (":assign", ":subscribe", ":crash"))
TRANSACTION = FUNCTIONS.index(":txn")
_NO_LINE = -1
_SMALL_KEYS = 1 << 20
"""Smaller keys are looked up in an array."""
_NARROW = 1 << 31
_FIELDS = {
    "lines": {"type": "i1", "f": "i1", "process": "i8", "time": "i8", "nothing": "?", "seeks": "?"},
    "sends": {"line": "i8", "partition": "i4", "offset": "i8", "value": "i8"},
    "runs": {"line": "i8", "partition": "i4", "start": "i8", "count": "i8", "alone": "?"},
    "items": {"line": "i8", "partition": "i8"},
    "lost": {"line": "i8", "partition": "i8"},
    "rebalances": {"line": "i8"},
}
"""The columns that are collected, and their types."""
_OUTCOME = np.array([NONE, *(int(OUTCOMES[name]) for name in TYPES[1:])])


class Unusual(Exception):
    """A history cannot be read as arrays. It need not be wrong."""


class _Column:
    """An array that grows. It is never held twice, because a history may have 10⁸ records."""

    def __init__(self, dtype: str, *, narrow: bool = False) -> None:
        """`narrow`: integers are held in 32 bits as long as all fit."""
        self._narrow, self._count = narrow, 0
        self._held = np.empty(0, dtype="i4" if narrow else dtype)

    def add(self, values: np.ndarray) -> None:
        """Appends these values to the end of the column."""
        if self._narrow and len(values) and (int(values.min()) < -_NARROW or int(values.max()) >= _NARROW):
            self._narrow, self._held = False, self._held.astype(np.int64)
        end = self._count + len(values)
        if end > len(self._held):
            self._held.resize(max(end, len(self._held) * 9 // 8), refcheck=False)
        self._held[self._count : end] = values
        self._count = end

    def whole(self) -> np.ndarray:
        """Returns all of them, and forgets them."""
        held, self._held = self._held, np.empty(0, dtype=self._held.dtype)
        held.resize(self._count, refcheck=False)
        self._count = 0
        return held


class _OneByOne:
    """Takes the operations of a block that were read one by one, as rows of what the arrays have.

    A row begins with the line's index in the block, the key's index in the text, and the key: a number from 0, or the
    negative code of any other key.
    """

    def __init__(
        self, lines: Lines, first: int, start: int, texts: dict[str, int], odd_keys: dict[int | str, int]
    ) -> None:
        """`first`: the number of lines before the block. `start`: the index of the first record that is added here."""
        self._lines, self._first, self._start = lines, first, start
        self._texts, self._odd_keys = texts, odd_keys
        self._begin = self._position = 0
        self.sends, self.runs = list[tuple[int, ...]](), list[tuple[int, ...]]()
        self.items, self.lost = list[tuple[int, ...]](), list[tuple[int, ...]]()
        self.rebalances = list[int]()
        """The lines that have a :rebalance-log."""
        self.offsets, self.values = list[int](), list[int]()

    def take(self, operation: JepsenOperation) -> None:
        """Takes an operation. Unusual, if it is wrong, or without a time."""
        at, lines = operation.line - 1 - self._first, self._lines
        if operation.time_ns < 0:
            raise Unusual("no time")
        self._begin, self._position = at, int(lines.bounds[at])
        f = FUNCTIONS.index(operation.f) if operation.f in FUNCTIONS else OTHER
        lines.type[at], lines.f[at] = TYPES.index(operation.type), f
        lines.process[at], lines.time_ns[at] = operation.process, operation.time_ns
        lines.nothing[at] = operation.value is None
        lines.seeks[at] = bool(operation.extra.get(":seek-to-beginning?"))
        rebalanced = set[int]()
        if operation.type != ":invoke" and ":rebalance-log" in operation.extra:
            self.rebalances.append(at)
            for key in rebalanced_keys(operation.extra[":rebalance-log"]):
                self.lost.append(self._named(key))
                rebalanced.add(self.lost[-1][2])
        if f < len(OPERATIONS):
            lines.micro_operations[at] = self._transact(operation, rebalanced)
        elif f in (ASSIGN, SUBSCRIBE) and operation.type not in (":invoke", ":fail"):
            self.items += [self._named(key) for key in _listed(operation.value)]

    def _transact(self, operation: JepsenOperation, rebalanced: set[int]) -> int:
        """Returns how many micro-operations it has."""
        micro_operations = _listed(operation.value)
        for micro in micro_operations:
            parts = micro if isinstance(micro, list) else []
            match parts:
                case [":send", key, sent]:
                    offset, value = pair_of(sent)
                    if without_offset(offset):
                        offset = None
                    if offset is not None and not is_offset(offset):
                        raise Unusual("offset")
                    named = self._named(key)
                    self.sends.append((*named, NONE if offset is None else offset, self._code(value)))
                case [":poll"] | [":poll", None]:
                    pass
                case [":poll", [str(opened), *shown]] if opened == MAP and len(shown) % 2 == 0:
                    if operation.type != ":invoke":
                        self._polled(shown, rebalanced)
                case _:
                    raise Unusual("micro-operation")
        return len(micro_operations)

    def _polled(self, shown: Sequence[EdnValue], rebalanced: set[int]) -> None:
        for key, pairs in zip(shown[::2], shown[1::2], strict=True):
            named = self._named(key)
            try:
                offsets, values = pairs_of(pairs) if pairs else ((), ())
            except ValueError as error:
                raise Unusual("poll") from error
            self.offsets += offsets
            self.values += map(self._code, values)
            start = self._start + len(self.offsets) - len(offsets)
            if named[2] in rebalanced:  # anything may have happened between two of them
                self.runs += [(*named, record, 1, True) for record in range(start, start + len(offsets))]
            else:
                self.runs.append((*named, start, len(offsets), False))

    def _named(self, key: EdnValue) -> tuple[int, int, int]:
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise Unusual("key")
        self._position += 1
        code = key if isinstance(key, int) and 0 <= key < NUMBER_MAX else self._odd(key)
        return self._begin, self._position, code

    def _odd(self, key: int | str) -> int:
        return self._odd_keys.setdefault(key, -1 - len(self._odd_keys))

    def _code(self, value: EdnValue) -> int:
        try:
            return code_of(value, self._texts)
        except ValueError as error:
            raise Unusual("value") from error


def _listed(value: EdnValue) -> list[EdnValue]:
    """Returns the elements of a vector; nil has none."""
    if value is None:
        return []
    if not isinstance(value, list) or value[:1] == [MAP]:
        raise Unusual("value")
    return value


def _joined(arrays: Sequence[np.ndarray], rows: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Adds rows to columns, of which the first is the line, in the order of lines."""
    if not rows:
        return list(arrays)
    both = [np.concatenate(pair) for pair in zip(arrays, np.array(rows, dtype=np.int64).T, strict=True)]
    order = np.argsort(both[0], kind="stable")
    return [column[order] for column in both]


class _Partitions:
    """Numbers keys in the order of their first occurrence."""

    def __init__(self) -> None:
        self.keys = list[int]()
        self._small = np.full(64, NONE, dtype=np.int64)
        """The partition of each small key."""
        self._others: dict[int, int] = {}

    def of(self, keys: np.ndarray, fields: np.ndarray) -> np.ndarray:
        """int64[n]: the partition of each key. `indices`: where each stands in the text."""
        found = self._found(keys)
        unknown = np.flatnonzero(found == NONE)
        if len(unknown):
            for key in dict.fromkeys(keys[unknown[np.argsort(fields[unknown], kind="stable")]].tolist()):
                self._add(key)
            found = self._found(keys)
        return found

    def _found(self, keys: np.ndarray) -> np.ndarray:
        inside = (keys >= 0) & (keys < len(self._small))
        if inside.all():
            return np.asarray(self._small[keys])
        found = np.full(len(keys), NONE, dtype=np.int64)
        found[inside] = self._small[keys[inside]]
        others, which = np.unique(keys[~inside], return_inverse=True)
        found[~inside] = np.array([self._others.get(key, NONE) for key in others.tolist()], dtype=np.int64)[which]
        return found

    def _add(self, key: int) -> None:
        if 0 <= key < _SMALL_KEYS:
            if key >= len(self._small):
                more = np.full((1 << key.bit_length()) - len(self._small), NONE, dtype=np.int64)
                self._small = np.concatenate([self._small, more])
            self._small[key] = len(self.keys)
        else:
            self._others[key] = len(self.keys)
        self.keys.append(key)


class BlockReader:
    """Takes blocks of lines, one after the other, and returns the columns of all of them."""

    def __init__(self, path: Path) -> None:
        self._path, self._gaps = path, Gaps()
        self._partitions = _Partitions()
        self._texts, self._odd_keys = dict[str, int](), dict[int | str, int]()
        self._lines = self._records = self._most = 0
        self._transacts = False
        self.open_lines: Sequence[int] = ()
        """Once all is read: the lines of the operations that never completed."""
        self._columns = {
            table: {name: _Column(kind) for name, kind in fields.items()} for table, fields in _FIELDS.items()
        }
        self._offsets, self._values = _Column("i8", narrow=True), _Column("i8", narrow=True)

    def take(self, text: bytes) -> list[tuple[int, str]]:
        """Takes the next lines, each with its end, and returns those that were not read at once: (number, line without its
        end). Unusual, if that cannot be."""
        lines = read_lines_at_once(text, self._gaps)
        if max(int(lines.offset.max(initial=0)), int(lines.send_offset.max(initial=0))) > OFFSET_MAX:
            raise Unusual("offset")
        left = np.flatnonzero(~lines.taken)
        lines.type[left] = _NO_LINE
        begins, ends = lines.bounds[left].tolist(), lines.bounds[left + 1].tolist()
        numbers = (self._lines + 1 + left).tolist()
        start = self._records + len(lines.offset)
        others = _OneByOne(lines, self._lines, start, self._texts, self._odd_keys)
        try:
            texts = [text[begin:end].decode().rstrip("\r\n") for begin, end in zip(begins, ends, strict=True)]
            for operation in operations(self._path, numbers, texts):
                others.take(operation)
        except (UnicodeDecodeError, BadInput) as error:
            raise Unusual(str(error)) from error
        self._add(lines, others)
        self._lines += len(lines.taken)
        return list(zip(numbers, texts, strict=True))

    def _add(self, lines: Lines, others: _OneByOne) -> None:
        kind, f = lines.type, lines.f
        operates = (kind != _NO_LINE) & (f < len(OPERATIONS))
        self._most = max(self._most, int(lines.micro_operations[operates].max(initial=0)))
        self._transacts |= bool((operates & (f == TRANSACTION) & ~lines.nothing).any())
        self._extend("lines", (kind, f, lines.process, lines.time_ns, lines.nothing, lines.seeks))
        given = kind[lines.run_line] != INVOKE  # records in an invocation were not returned to any client
        alone = np.zeros(len(given), dtype=bool)
        start = self._records + np.cumsum(lines.run_count) - lines.run_count
        moved = ((f == ASSIGN) | (f == SUBSCRIBE)) & (kind != INVOKE) & (kind != FAIL)
        named = moved[lines.item_line]
        rows = {
            "sends": _joined(
                (lines.send_line, lines.send_field, lines.send_key, lines.send_offset, lines.send_value), others.sends
            ),
            "runs": _joined(
                [
                    column[given]
                    for column in (lines.run_line, lines.run_field, lines.run_key, start, lines.run_count, alone)
                ],
                others.runs,
            ),
            "items": _joined(
                [column[named] for column in (lines.item_line, lines.item_field, lines.item_key)], others.items
            ),
            "lost": _joined([np.empty(0, dtype=np.int64)] * 3, others.lost),
        }
        partitions = self._partitions.of(*(np.concatenate([table[n] for table in rows.values()]) for n in (2, 1)))
        begin = 0
        for name, table in rows.items():
            end = begin + len(table[0])
            self._extend(name, (table[0] + self._lines, partitions[begin:end], *table[3:]))
            begin = end
        self._extend("rebalances", (np.array(others.rebalances, dtype=np.int64) + self._lines,))
        for column, arrays, listed in (
            (self._offsets, lines.offset, others.offsets),
            (self._values, lines.value, others.values),
        ):
            column.add(arrays)
            if listed:
                column.add(np.array(listed, dtype=np.int64))
        self._records += len(lines.offset) + len(others.offsets)

    def _extend(self, table: str, columns: Sequence[np.ndarray]) -> None:
        for held, column in zip(self._columns[table].values(), columns, strict=True):
            held.add(column)

    def columns(self) -> JepsenColumns:
        """Returns everything. Unusual, if it does not fit together."""
        names = {code: key for key, code in self._odd_keys.items()}
        tables = {
            table: {name: column.whole() for name, column in columns.items()}
            for table, columns in self._columns.items()
        }
        whole = _Whole(tables, len(self._partitions.keys))
        sends, runs, processes = whole.sends(), whole.runs(), whole.processes()
        self.open_lines = whole.open_lines()
        del whole, tables
        return JepsenColumns(
            keys=[names.get(key, key) for key in self._partitions.keys],
            texts=self._texts,
            sends=sends,
            runs=runs,
            processes=processes,
            offsets=self._offsets.whole(),
            values=self._values.whole(),
            most_micro_operations=self._most,
            has_txn=self._transacts,
        )


_Table = dict[str, np.ndarray]


class _Whole:
    """All lines of a history. Columns of a line are by its row: lines that are no operation of a client have none."""

    def __init__(self, tables: dict[str, _Table], partitions: int) -> None:
        """Takes the tables: each is forgotten when it was used."""
        self._partitions = partitions
        self._numbers = np.flatnonzero(tables["lines"]["type"] != _NO_LINE)
        """Each row's line, from 0."""
        lines = tables["lines"]
        if not len(self._numbers):
            raise Unusual("no operation")
        if len(self._numbers) < len(lines["type"]):
            row = np.cumsum(lines["type"] != _NO_LINE) - 1
            lines = {name: column[self._numbers] for name, column in lines.items()}
            for table in tables.values():
                if "line" in table:
                    table["line"] = row[table["line"]]
        self._lines, self._tables = lines, tables
        self._sent = np.bincount(tables["sends"]["line"], minlength=len(self._numbers))
        """int64[rows]: how many sends each has."""
        self._names, self._process = _in_order(lines["process"])
        """The processes, and int64[rows]: which of them."""
        self._order = stable_order([self._process])
        """The rows of each process, one process after the other."""
        self._begins = np.searchsorted(self._process[self._order], np.arange(len(self._names) + 1))
        self._check_times()
        self._completes = self._paired()
        """int64[rows]: the row of the invocation that each operation completes; NONE = it is no completion."""
        self._transactions = self._ordinals((lines["type"] == INVOKE) & (self._sent > 0))

    def _check_times(self) -> None:
        time = self._lines["time"]
        ordered, same = time[self._order], self._process[self._order]
        if (ordered[1:] < ordered[:-1])[same[1:] == same[:-1]].any() or (time < time[0])[
            self._order[self._begins[:-1]]
        ].any():
            raise Unusual("times")

    def _paired(self) -> np.ndarray:
        lines = self._lines
        order = self._order[lines["f"][self._order] < len(OPERATIONS)]
        process, kind, f = self._process[order], lines["type"][order], lines["f"][order]
        begins = np.flatnonzero(np.diff(process, prepend=-1) != 0)
        first = np.repeat(begins, np.diff(begins, append=len(order)))
        second = ((np.arange(len(order)) - first) & 1).astype(bool)
        if ((kind == INVOKE) == second).any():
            raise Unusual("pairs")
        at = np.flatnonzero(second)
        if (f[at] != f[at - 1]).any():
            raise Unusual("functions")
        completes = np.full(len(lines["type"]), NONE, dtype=np.int64)
        completes[order[at]] = order[at - 1]
        return completes

    def _ordinals(self, chosen: np.ndarray) -> np.ndarray:
        """int64[rows + 1 …]: of each row, how many rows of its process that were chosen stand before it."""
        ordered = chosen[self._order]
        before = np.cumsum(ordered) - ordered
        begins = self._begins[:-1]
        counts = np.empty(len(chosen), dtype=np.int64)
        counts[self._order] = before - np.repeat(before[begins], np.diff(self._begins))
        return counts

    def open_lines(self) -> list[int]:
        """Returns the lines of the operations that never completed, ascending."""
        lines = self._lines
        invoked = (lines["type"] == INVOKE) & (lines["f"] < len(OPERATIONS))
        invoked[self._completes[self._completes != NONE]] = False
        return [int(line) + 1 for line in self._numbers[invoked]]

    def processes(self) -> list[tuple[int, int, int, int]]:
        """Returns (name, start, end, operations with sends) of each."""
        lines, last = self._lines, self._order[self._begins[1:] - 1]
        sending = (lines["type"] == INVOKE) & (self._sent > 0)
        counts = self._transactions[last] + sending[last]
        started = int(lines["time"][0])
        rows = zip(self._names.tolist(), lines["time"][last].tolist(), counts.tolist(), strict=True)
        return [(name, started, ended, count) for name, ended, count in rows]

    def sends(self) -> _Table:
        """Returns what JepsenColumns.sends has. Unusual, if what an operation shows is not what was invoked."""
        lines, sends = self._lines, self._tables.pop("sends")
        kind, count, line = lines["type"], self._sent, sends["line"]
        invoked = np.where(kind == INVOKE, count, 0)
        first = np.cumsum(invoked) - invoked
        completed = np.flatnonzero(self._completes != NONE)
        fewer = count[self._completes[completed]] - count[completed]
        whole = (kind[completed] == OK) & ~lines["nothing"][completed]
        if (fewer < 0).any() or (fewer[whole] > 0).any():
            raise Unusual("sends")
        done = kind[line] != INVOKE
        within = np.arange(len(line)) - (np.cumsum(count) - count)[line]
        row = (first[self._completes[line]] + within)[done]
        made = {name: column[~done] for name, column in sends.items()}
        for name in ("partition", "value"):
            if (made[name][row] != sends[name][done]).any():
                raise Unusual("sends")
        made["offset"] = np.full(len(made["line"]), NONE, dtype=np.int64)
        mask = sends["offset"][done] != NONE
        made["offset"][row[mask]] = sends["offset"][done][mask]
        ended = np.full(len(kind), NONE, dtype=np.int64)
        ended[self._completes[completed]] = completed
        end = ended[made["line"]]
        return {
            "process": self._process[made["line"]],
            "partition": made["partition"],
            "value": made["value"],
            "begun": lines["time"][made["line"]],
            "offset": made["offset"],
            "completed": np.where(end == NONE, MISSING, lines["time"][end]),
            "outcome": np.where(end == NONE, int(Outcome.INFO), _OUTCOME[kind[end]]),
            "line": self._numbers[made["line"]] + 1,
            "transaction": self._transactions[made["line"]],
        }

    # Spans of reading.

    def runs(self) -> _Table:
        """Returns what JepsenColumns.runs has."""
        runs = self._tables.pop("runs")
        if not runs["count"].all():
            chosen = runs["count"] > 0
            runs = {name: column[chosen] for name, column in runs.items()}
        line, partition = runs["line"], runs["partition"]
        process = self._process[line]
        order = stable_order([process, partition])
        at, pair = line[order], process[order] * self._partitions + partition[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(pair) != 0) | runs["alone"][order][1:]
        begins = np.zeros(len(order), dtype=np.int64)
        later = np.flatnonzero(~new)
        broken, moved = self._broken(at[later - 1], at[later], pair[later])
        new[later] = broken
        begins[later[broken & ~moved]] = int(ReadFlag.GOES_ON)
        alone = runs["alone"][order]
        started = np.flatnonzero(new & ~alone)
        previous = np.where(np.diff(pair, prepend=-1) == 0, np.append(-1, at[:-1]), -1)
        begins[started[self._from_start(previous[started], at[started], pair[started])]] = int(ReadFlag.FROM_START)
        span = np.empty(len(order), dtype=np.int64)
        is_first = np.zeros(len(order), dtype=bool)
        is_first[order] = new
        first = np.flatnonzero(is_first)
        by_process = first[stable_order([process[first]])]
        of = process[by_process]
        span[by_process] = np.arange(len(of)) - np.searchsorted(of, of) + 1
        source = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        span[order] = span[order[source]]
        how = np.empty(len(order), dtype=np.int64)
        how[order] = begins
        return {
            "process": process,
            "partition": partition,
            "span": span,
            "time": self._lines["time"][line],
            "start": runs["start"],
            "count": runs["count"],
            "begins": how,
        }

    def _broken(self, before: np.ndarray, after: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns two bool[n]: does no span go on from the row `before` to the row `after`, in which a pair (process and
        partition) was given records? And was its consumer moved between the two?

        After an abort a client may go back or not (KAFKA-17582). It may have been moved by what its process did between the
        two, or by a rebalance.
        """
        failed = (self._lines["type"][before] != OK) & (before != after)
        moved = self._moved(before, after, pair)
        return np.asarray(failed | moved), moved

    def _moved(self, before: np.ndarray, after: np.ndarray, pair: np.ndarray) -> np.ndarray:
        """bool[n]: did anything move the consumer of a pair in the rows from `before` to `after`, without it?"""
        is_move, keeping = self._moves
        moves = self._ordinals(is_move)
        count = moves[after] - moves[before]
        moved = count > 0
        asked = np.flatnonzero(moved)
        kept = self._between(keeping, before[asked], after[asked], pair[asked])
        moved[asked] = kept < count[asked]
        lost = self._tables["lost"]
        if len(lost["line"]):
            moved |= self._between((lost["line"], lost["partition"]), before, after, pair) > 0
        return np.asarray(moved)

    def _from_start(self, previous: np.ndarray, at: np.ndarray, pair: np.ndarray) -> np.ndarray:
        """bool[n]: is the span that a pair begins in the row `at` one from the beginning of its partition? Its consumer went
        there after the row `previous` (-1: there is none), and nothing moved it since."""
        items, rows = self._tables["items"], len(self._process)
        kind, f = self._lines["type"], self._lines["f"]
        seeks = (kind == OK) & (f == ASSIGN) & self._lines["seeks"]
        chosen = np.flatnonzero(seeks[items["line"]])
        found = np.zeros(len(at), dtype=bool)
        if not len(chosen):
            return found
        row, partition = items["line"][chosen], items["partition"][chosen]
        packed = np.unique((self._process[row] * self._partitions + partition) * rows + row)
        index = np.searchsorted(packed, pair * rows + at) - 1
        sought = packed[index] - pair * rows  # of another pair: below zero, or none at all
        asked = np.flatnonzero((index >= 0) & (sought > previous) & (sought >= 0))
        is_move, keeping = self._moves
        moves = self._ordinals(is_move)
        since, until, of = sought[asked], at[asked], pair[asked]
        count = moves[until] - moves[since] - 1  # the seek itself is one
        kept = self._between(keeping, since, until, of)
        lost = self._tables["lost"]
        gone = self._between((lost["line"], lost["partition"]), since, until, of) if len(lost["line"]) else 0
        found[asked] = (kept >= count) & (gone == 0)
        return found

    def _between(
        self, events: tuple[np.ndarray, np.ndarray], before: np.ndarray, after: np.ndarray, pair: np.ndarray
    ) -> np.ndarray:
        """int64[n]: how many events (row, partition) of each pair stand in the rows from `before` to `after`, without it."""
        row, partition = events
        rows = len(self._process)
        if rows * self._partitions * len(self._names) >= NUMBER_MAX:
            raise Unusual("size")
        packed = np.unique((self._process[row] * self._partitions + partition) * rows + row)
        first, end = (np.searchsorted(packed, pair * rows + row) for row in (before, after))
        return np.asarray(end - first)

    @cached_property
    def _moves(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Returns bool[rows]: is it an operation after which its process goes on with no key but those that it keeps? And
        what each of these keeps: (row, partition)."""
        lines, items = self._lines, self._tables["items"]
        kind, f = lines["type"], lines["f"]
        rebalanced = self._tables["rebalances"]["line"]
        reports = int(rebalanced[0]) if len(rebalanced) else len(kind)
        moved = (kind != INVOKE) & ((f == CRASH) | ((kind != FAIL) & ((f == ASSIGN) | (f == SUBSCRIBE))))
        keeps = np.zeros(len(kind), dtype=bool)
        chosen = np.flatnonzero(moved & (f != CRASH))
        chosen = chosen[stable_order([self._process[chosen]])]
        process, subscribes = self._process[chosen], f[chosen] == SUBSCRIBE
        subscribed = np.zeros(len(chosen), dtype=bool)
        subscribed[1:] = subscribes[:-1] & (process[1:] == process[:-1])
        certain = (kind[chosen] == OK) & (subscribed == subscribes) & ~lines["seeks"][chosen]
        keeps[chosen[certain & (~subscribes | (chosen >= reports))]] = True
        if subscribes.any():
            # A group may move a member without a word, until its client is known to say.
            is_move = np.zeros(len(kind), dtype=bool)
            is_move[chosen] = True
            latest = np.maximum.accumulate(np.where(is_move[self._order], np.arange(len(kind)), -1))
            there = latest >= np.repeat(self._begins[:-1], np.diff(self._begins))
            member = np.zeros(len(kind), dtype=bool)
            member[self._order] = there & (f[self._order[latest]] == SUBSCRIBE)
            moved |= member & (self._completes != NONE) & (np.arange(len(kind)) < reports)
        kept = keeps[items["line"]]
        return moved, (items["line"][kept], items["partition"][kept])


def _in_order(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the different names in the order in which they come up, and int64[n]: which of them each is."""
    by_name = stable_order([names])
    ordered = names[by_name]
    new = np.append(True, ordered[1:] != ordered[:-1])
    first = by_name[new]
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    which = np.empty(len(names), dtype=np.int64)
    which[by_name] = rank[np.cumsum(new) - 1]
    return names[first[order]], which


def blocks_of(path: Path) -> Iterator[bytes]:
    """Yields a file in blocks of whole lines, each with its end. Unusual for lines that are too long."""
    with open_history(path) as file:
        rest = b""
        while read := file.read(BLOCK_BYTES):
            end = read.rfind(b"\n") + 1
            if end:
                yield rest + read[:end]
                rest = read[end:]
            else:
                rest += read
            if len(rest) > LINE_CHARACTERS_MAX:
                raise Unusual("a long line")
        if rest:
            yield rest + b"\n"
