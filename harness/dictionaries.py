"""Texts of a history by code. Tables hold integers only; the column's unit in `harness.schema` names its dictionary."""

import threading
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HistoryUnreadable
from harness.run_directory import read_json, write_json
from harness.schema import NONE


class Dictionaries:
    """`dictionaries.json`: name of the dictionary → list of texts; a code is an index of that list.

    Codes never change: texts are only added, and each new one is on disk, atomically, before `code` returns. Thread safe;
    one process writes at a time.
    """

    def __init__(self, path: Path) -> None:
        """Start with what the file holds, if it exists. HistoryUnreadable if it is no such file."""
        self._path = path
        self._lock = threading.Lock()
        self._texts: dict[str, list[str]] = {}
        if path.exists():
            held = read_json(path)
            if not isinstance(held, dict) or not all(_is_texts(texts) for texts in held.values()):
                raise HistoryUnreadable(f"{path} must map names of dictionaries to lists of texts, and does not.")
            self._texts = held
        self._codes = {name: {text: code for code, text in enumerate(texts)} for name, texts in self._texts.items()}

    def code(self, dictionary: str, text: str) -> int:
        """The code of `text`, a new one if it has none yet."""
        with self._lock:
            codes = self._codes.setdefault(dictionary, {})
            if text not in codes:
                texts = self._texts.setdefault(dictionary, [])
                codes[text] = len(texts)
                texts.append(text)
                write_json(self._path, self._texts)
            return codes[text]

    def codes(self, dictionary: str, texts: Sequence[str]) -> list[int]:
        """The codes of many texts, written once."""
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
        """The text of a code; empty for NONE. HistoryUnreadable if nobody ever gave it."""
        if code == NONE:
            return ""
        with self._lock:
            texts = self._texts.get(dictionary, [])
        if not 0 <= code < len(texts):
            raise HistoryUnreadable(f"{self._path}: dictionary {dictionary!r} has no text for code {code}.")
        return texts[code]


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
