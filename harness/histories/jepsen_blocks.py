"""Many lines of Jepsen's at once, if all of them are of the usual kind: sends, polls and transactions of numbers, as Clojure
prints them. Pure.

Of each word of the lines there is one letter, and a number if it is one, all in one array. One expression over the letters
says whether every line is whole. Whatever is not of this kind is for `harness.histories.jepsen_lines`.
"""

import re
from dataclasses import dataclass

import numpy as np

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
    """None if one of the lines is of another kind, or none of Jepsen's."""
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
    """Where the word of these kinds stands in each line; None if one has none, or several."""
    places = np.flatnonzero(np.isin(letters, _codes(kinds)))
    one_each = len(places) == len(starts) and bool((_line(starts, places) == np.arange(len(starts))).all())
    return places if one_each else None


def _line(starts: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(starts, places, side="right") - 1


def _polled(letters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the keys of polls stand, and where their records open: [offset value], after another or the key's own bracket."""
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
