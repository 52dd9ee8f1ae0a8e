"""Reads lines of Jepsen's as operations, whatever EDN they are written in. One line each, an error names it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from prozess.harness.app.histories.jepsen.edn import MAP, EdnError, EdnValue, Plain, read_edn, read_lines
from prozess.harness.errors import BadInput

CHUNK_LINES = 4096
LINE_CHARACTERS_MAX = 1 << 26
_SCALAR = re.compile(":[a-z][a-z0-9-]*|nil|0|[1-9][0-9]{0,17}")
"""Eighteen digits are below NUMBER_MAX."""
_NOTHING: dict[str, Any] = {}


@dataclass(slots=True)
class JepsenOperation:
    """One operation of a Jepsen history."""

    line: int
    type: str
    f: str
    process: int
    time_ns: int
    value: EdnValue
    extra: dict[str, Any]


def operations(path: Path, first: int, lines: list[str]) -> Iterator[JepsenOperation]:
    """Yields the operations of clients in these lines of a file, in order; those of the nemesis are left out. `first`: the
    number of the first line."""
    for number, (line, read) in enumerate(zip(lines, read_lines(lines), strict=True), start=first):
        made = (read and _plain(number, read)) or _operation(path, number, line, read)
        if made is not None:
            yield made


@lru_cache(maxsize=64)
def _places(keys: tuple[str, ...]) -> tuple[int, int, int, int] | None:
    """Returns where :type, :f, :process and :time stand among keys; None = not all of them do, each once."""
    if any(keys.count(key) != 1 for key in (":type", ":f", ":process", ":time")):
        return None
    return keys.index(":type"), keys.index(":f"), keys.index(":process"), keys.index(":time")


def _plain(number: int, read: Plain) -> JepsenOperation | None:
    """The operation of a line that holds what they usually hold, and no more; None = of any other line."""
    keys, texts, values = read
    places = _places(keys)
    if places is None or len(values) != 1:
        return None
    at_kind, at_f, at_process, at_time = places
    kind, f, process, time_ns = texts[at_kind], texts[at_f], texts[at_process], texts[at_time]
    numbers = process[0].isdigit() and time_ns[0].isdigit()
    if not numbers or kind not in _TYPES or f[0] != ":" or not all(map(_SCALAR.fullmatch, texts)):
        return None
    return JepsenOperation(number, kind, f, int(process), int(time_ns), values[0], _NOTHING)


def chunks_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, lines without their ends), a few thousand at a time."""
    first, lines = 1, []
    try:
        with path.open(encoding="utf-8", errors="strict", newline="\n") as file:
            while line := file.readline(LINE_CHARACTERS_MAX):
                lines.append(line.rstrip("\r\n"))
                if len(line) >= LINE_CHARACTERS_MAX:
                    raise bad(
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


def _operation(path: Path, number: int, line: str, read: Plain | None) -> JepsenOperation | None:
    if read is not None:
        head, tail = dict(zip(read[0], read[1], strict=True)), read[2]
        if head.get(":process") == ":nemesis":
            return None
        keys: dict[str, EdnValue] = {":value": tail[0] if tail else None}
        after = [(key, value) for key, value in zip(tail[1::2], tail[2::2], strict=False) if isinstance(key, str)]
        keys.update(after)
        usual = len(tail) == 1 + 2 * len(after)
        if usual and all(map(_SCALAR.fullmatch, read[1])):
            return _made(path, number, keys | {key: _scalar(text) for key, text in head.items()})
    if not line.strip() or line.lstrip().startswith(";"):
        return None
    try:
        value = read_edn(line)
    except EdnError as error:
        raise bad(
            path, number, f"{error.what}, at column {error.column}. One operation, a map of EDN, per line."
        ) from error
    if not isinstance(value, list) or value[:1] != [MAP]:
        raise bad(
            path, number, f"{short(value)} is not a map. One operation, such as {{:type :ok, :f :send …}}, per line."
        )
    return _made(
        path, number, {key: v for key, v in zip(value[1::2], value[2::2], strict=True) if isinstance(key, str)}
    )


def _scalar(text: str) -> int | str | None:
    return int(text) if text[0].isdigit() else None if text == "nil" else text


def _made(path: Path, number: int, keys: dict[str, EdnValue]) -> JepsenOperation | None:
    process, kind, f = keys.get(":process"), keys.get(":type"), keys.get(":f")
    if process == ":nemesis" or (isinstance(process, str) and process.startswith(":")):
        return None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise bad(
            path, number, f":type is {short(kind)}, not one of :invoke, :ok, :fail, :info. Give Jepsen's history."
        )
    if not isinstance(f, str) or not f.startswith(":"):
        raise bad(path, number, f":f is {short(f)}, not a keyword such as :send. Give Jepsen's history.")
    if not is_number(process):
        raise bad(
            path, number, f":process is {short(process)}, not a number from 0 (or :nemesis). Give Jepsen's history."
        )
    time_ns = keys.get(":time", 0)
    if not is_number(time_ns):
        raise bad(path, number, f":time is {short(time_ns)}, not nanoseconds from 0. Give all operations one, or none.")
    value = keys.get(":value")
    extra = keys if ":rebalance-log" in keys or ":seek-to-beginning?" in keys else {}
    return JepsenOperation(number, kind, f, process, time_ns if ":time" in keys else -1, value, extra)


def is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NUMBER_MAX


def bad(path: Path | str, line: int, what: str) -> BadInput:
    return BadInput(f"{path}, line {line}: {what}")


def short(value: object) -> str:
    """Returns the beginning of a value, for an error message."""
    try:
        text = "missing" if value is None else str(value)
    except RecursionError:
        text = "a value that is nested too deeply to be shown"
    return text if len(text) <= 60 else text[:57] + "…"


# Many lines of Jepsen's at once, if all of them are of the usual kind: sends, polls and transactions of numbers, as
# Clojure prints them. Pure.
#
# Of each word of the lines there is one letter, and a number if it is one, all in one array. One expression over the
# letters says whether every line is whole. Whatever is not of this kind is read
# line by line.


_PREFIX = "#jepsen.history.Op"
_WORDS = {
    # What stands around a word belongs to it, so that no longer word is cut.
    ", :index ": "i",
    ", :time ": "t",
    ", :process ": "p",
    ", :type :invoke": "0",
    ", :type :ok": "1",
    ", :type :fail": "2",
    ", :type :info": "3",
    ", :f :send": "4",
    ", :f :poll": "5",
    ", :f :txn": "6",
    ", :value ": "v",
    "[:send ": "S",
    "[:poll]": "Q",
    "[:poll {": "M",
    "[nil ": "N",
}
_CODED = [(word, chr(code)) for code, word in enumerate(_WORDS, start=14)]
"""Each word is one control character for a while."""
_CODES = "".join(code for _, code in _CODED).encode()
_LETTERS = np.zeros(256, dtype=np.uint8)
_LETTERS[list(b"[]{}")] = list(b"[]{}")
_LETTERS[list(_CODES)] = list("".join(_WORDS.values()).encode())
_LETTERS[ord("\n")] = ord("E")
_LETTERS[list(b"0123456789")] = ord("n")
_BLANK = bytes(code if chr(code).isdigit() else 32 for code in range(128)) + bytes(128)
_KNOWN = _CODES + b"0123456789 ,[]{}\n"
_ANY_OTHER = bytes(code for code in range(256) if code not in _CODES)
_HEAD = r"(?:in|tn|pn|[0-3]|[4-6])*"
_RECORDS = r"\[(?:\[nn\])*\]"
_MICRO = rf"Q|Snn\]|Sn\[nn\]\]|SnNn\]\]|M(?:n{_RECORDS})*\}}\]"
_LINES = re.compile(rf"(?:\{{{_HEAD}v\[(?:{_MICRO})*\]\}}E)*".encode())
_REST = b"0123456789 -"
NUMBER_MAX = 2**62
TYPES = (":invoke", ":ok", ":fail", ":info")
_TYPES = frozenset(TYPES)
OPERATIONS = (":send", ":poll", ":txn")


@dataclass(frozen=True, slots=True)
class Block:
    """Lines, one after the other: arrays of one length of lines, of sends, of keys polled and of records."""

    type: np.ndarray
    """Place in TYPES."""
    f: np.ndarray
    """Place in OPERATIONS."""
    process: np.ndarray
    time_ns: np.ndarray
    micro_operations: np.ndarray
    polls: np.ndarray
    """bool: was shown what a poll gave, if only that it was nothing."""
    send_line: np.ndarray
    send_key: np.ndarray
    send_offset: np.ndarray
    """NONE = not told."""
    send_value: np.ndarray
    polled_line: np.ndarray
    polled_key: np.ndarray
    polled_records: np.ndarray
    """How many records."""
    offset: np.ndarray
    value: np.ndarray
    keys: list[int]
    """Every key, in the order in which they come up."""


def read_block(lines: list[str]) -> Block | None:
    """Reads lines as a block; None if one of them is of another kind, or none of Jepsen's."""
    words = _words("\n".join(lines) + "\n")
    if words is None:
        return None
    letters, numbers = words
    if _LINES.fullmatch(letters.tobytes()) is None:
        return None
    starts = np.flatnonzero(letters == ord("{"))
    starts = starts[np.append(True, letters[starts[1:] - 1] == ord("E"))]
    heads = [_one_per_line(letters, starts, kinds) for kinds in ("0123", "456", "p", "t")]
    if any(places is None for places in heads):
        return None
    types, fs, processes, times = (np.asarray(places) for places in heads)
    send = np.flatnonzero(letters == ord("S"))
    told = letters[send + 2] != ord("n")
    given = send + np.where(told, 3, 2)
    nil = letters[send + 2] == ord("N")
    key, record = _polled(letters)
    of_key = np.searchsorted(key, record) - 1
    shown = np.sort(np.concatenate([send + 1, key]))
    micro = np.flatnonzero(np.isin(letters, _codes("SQM")))
    return Block(
        type=letters[types] - ord("0"),
        f=letters[fs] - ord("4"),
        process=numbers[processes + 1],
        time_ns=numbers[times + 1],
        micro_operations=np.bincount(_line(starts, micro), minlength=len(starts)),
        polls=np.bincount(_line(starts, np.flatnonzero(letters == ord("M"))), minlength=len(starts)) > 0,
        send_line=_line(starts, send),
        send_key=numbers[send + 1],
        send_offset=np.where(told & ~nil, numbers[given], -1),
        send_value=numbers[np.where(told & ~nil, given + 1, given)],
        polled_line=_line(starts, key),
        polled_key=numbers[key],
        polled_records=np.bincount(of_key, minlength=len(key)),
        offset=numbers[record + 1],
        value=numbers[record + 2],
        keys=_in_order(numbers[shown]),
    )


def _words(text: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The letter of each word, and the number that it is (0 where it is none); None if there are words of another kind."""
    text = text.replace(_PREFIX + "{", "{").replace(_PREFIX + " {", "{").replace("{:", "{, :")
    if not text.isascii() or text.encode().translate(None, _ANY_OTHER):
        return None
    for word, code in _CODED:
        text = text.replace(word, code)
    data = text.encode()
    if data.translate(None, _KNOWN):
        return None
    bytes_of = np.frombuffer(data, dtype=np.uint8)
    letters = _LETTERS[bytes_of]
    digit = letters == ord("n")
    begins = digit.copy()
    begins[1:] &= ~digit[:-1]
    if (begins[:-1] & digit[1:] & (bytes_of[:-1] == ord("0"))).any():  # zeros in front
        return None
    places = np.flatnonzero((letters != 0) & (begins | ~digit))
    letters = letters[places]
    numbers = np.zeros(len(letters), dtype=np.int64)
    numbers[letters == ord("n")] = np.fromstring(data.translate(_BLANK), dtype=np.int64, sep=" ")
    return (letters, numbers) if int(numbers.max(initial=0)) < NUMBER_MAX else None


def _codes(letters: str) -> np.ndarray:
    return np.frombuffer(letters.encode(), dtype=np.uint8)


def _one_per_line(letters: np.ndarray, starts: np.ndarray, kinds: str) -> np.ndarray | None:
    """Returns where the word of these kinds stands in each line; None if one has none, or several."""
    places = np.flatnonzero(np.isin(letters, _codes(kinds)))
    one_each = len(places) == len(starts) and bool((_line(starts, places) == np.arange(len(starts))).all())
    return places if one_each else None


def _line(starts: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(starts, places, side="right") - 1


def _polled(letters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the keys of polls stand, and where their records open: [offset value], after another or the key's
    own bracket."""
    opened = np.flatnonzero(letters == ord("["))
    before = letters[opened - 1]
    key = opened[(before == ord("n")) & (letters[opened - 2] != ord("S"))] - 1
    record = opened[(before == ord("[")) | ((before == ord("]")) & (letters[opened + 1] == ord("n")))]
    return key, record


def _in_order(keys: np.ndarray) -> list[int]:
    """Each once, where it comes up first."""
    values, first = np.unique(keys, return_index=True)
    ordered: list[int] = values[np.argsort(first)].tolist()
    return ordered
