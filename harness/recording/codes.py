"""The integers of a history stand for something else: texts, sets of brokers, the topics that had one name."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.run_directory import read_json, write_json
from prozess.harness.schema import NONE

# Texts by code. Tables hold integers only. The unit of a column in `prozess.harness.schema` names its dictionary.


class Dictionaries:
    """The texts of a history by code, in `dictionaries.json`: name of a dictionary → list of texts. A code is an index
    of that list.

    Codes never change: texts are only added, and each new one is on disk, atomically, before `code` returns. Thread safe;
    one process writes at a time.
    """

    def __init__(self, path: Path) -> None:
        """Starts with what the file holds, if it exists. HistoryUnreadable if it is no such file."""
        self._path = path
        self._lock = threading.Lock()
        self._texts: dict[str, list[str]] = {}
        if path.exists():
            self._texts = read_texts(path)
        self._codes = {name: {text: code for code, text in enumerate(texts)} for name, texts in self._texts.items()}

    def code(self, dictionary: str, text: str) -> int:
        """Returns the code of `text`, and gives it a new one if it has none yet."""
        with self._lock:
            codes = self._codes.setdefault(dictionary, {})
            if text not in codes:
                texts = self._texts.setdefault(dictionary, [])
                codes[text] = len(texts)
                texts.append(text)
                write_json(self._path, self._texts)
            return codes[text]

    def codes(self, dictionary: str, texts: Sequence[str]) -> list[int]:
        """Returns the codes of many texts. The file is written once."""
        with self._lock:
            codes = self._codes.setdefault(dictionary, {})
            known = self._texts.setdefault(dictionary, [])
            for text in texts:
                if text not in codes:
                    codes[text] = len(known)
                    known.append(text)
            write_json(self._path, self._texts)
            return [codes[text] for text in texts]

    def text(self, dictionary: str, code: int) -> str:
        """Returns the text of a code; empty for NONE. HistoryUnreadable if no text has this code."""
        if code == NONE:
            return ""
        with self._lock:
            texts = self._texts.get(dictionary, [])
        if not 0 <= code < len(texts):
            raise HistoryUnreadable(f"{self._path}: dictionary {dictionary!r} has no text for code {code}.")
        return texts[code]


def read_texts(path: Path) -> dict[str, list[str]]:
    """Returns the texts of each dictionary in a file. Empty if there is no file. HistoryUnreadable if it is no such
    file."""
    held = read_json(path) if path.exists() else {}
    if not isinstance(held, dict) or not all(_is_texts(texts) for texts in held.values()):
        raise HistoryUnreadable(
            f"{path} must map names of dictionaries to lists of texts, and does not. Put back the file that was there, "
            "or make the run again."
        )
    return held


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


# Sets of brokers: one integer with bit n set for broker n.


BROKER_IDS_MAX = 62


def broker_mask(brokers: Iterable[int]) -> int:
    """Returns an integer with bit n set for each broker n. HistoryUnreadable for an id that has no bit."""
    mask = 0
    for broker in brokers:
        if not 0 <= broker <= BROKER_IDS_MAX:
            raise HistoryUnreadable(
                f"Broker id {broker} does not fit the history's broker masks; use ids 0…{BROKER_IDS_MAX}."
            )
        mask |= 1 << broker
    return mask


# Kafka's own topics: which partition of `__consumer_offsets` keeps a group, and how its leadership is recorded.


OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
_FIRST = -2
"""The value of `metadata.partition` for partition 0 of an internal topic. NONE is -1."""


def java_hash(text: str) -> int:
    """Returns java.lang.String.hashCode of ASCII text: a signed 32-bit number."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def partition_for(key: str, count: int) -> int:
    """Returns which of `count` partitions of a coordinator's topic keeps this group or transactional.id.
    [GroupCoordinatorService, partitionFor: Utils.abs of the hash, which is 0 for the least number]"""
    assert count > 0, count
    number = java_hash(key)
    return 0 if number == -(1 << 31) else abs(number) % count


def recorded_as(number: int) -> int:
    """Returns the value of `metadata.partition` for this partition of an internal topic. It is less than every dense
    id."""
    assert number >= 0, number
    return _FIRST - number


def number_of(recorded: int) -> int:
    """Returns the partition of an internal topic that is recorded with this value."""
    assert recorded <= _FIRST, recorded
    return _FIRST - recorded


# What identifies a record for an application.


def identity_text(thing: object) -> bytes | None:
    """Returns the identity of a record, as an application's own function gives it, as bytes that can be compared. None
    stays None: such a record equals no other. The bytes are the `repr` of a text, a number or a tuple of such. TypeError
    for an object whose `repr` does not say what it is (`<Order object at 0x7f…>`), because it would equal no other."""
    if thing is None:
        return None
    text = repr(thing)
    if not isinstance(thing, str | bytes) and " object at 0x" in text:
        raise TypeError(f"the identity {text} does not say what it is. Give a text, a number, or a tuple of such.")
    return text.encode(errors="backslashreplace")
