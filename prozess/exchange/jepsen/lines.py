"""Reads lines of Jepsen's as operations, whatever EDN they are written in. One line each; an error names it."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from prozess.exchange.input_files import open_history
from prozess.exchange.jepsen.blocks import NUMBER_MAX, TYPES
from prozess.exchange.jepsen.edn import MAP, EdnError, EdnValue, Plain, read_edn, read_lines
from prozess.harness.errors import BadInput
from prozess.harness.schema import OFFSET_MAX

CHUNK_LINES = 4096
LINE_CHARACTERS_MAX = 1 << 26
_SCALAR = re.compile(":[a-z][a-z0-9-]*|nil|0|[1-9][0-9]{0,17}")
"""Eighteen digits are below NUMBER_MAX."""
_NOTHING: dict[str, Any] = {}
_TYPES = frozenset(TYPES)


@dataclass(slots=True)
class JepsenOperation:
    """A line of a Jepsen history: who (`process`) began or ended (`type`) what (`f`, `value`), and when."""

    line: int
    type: str
    f: str
    process: int
    time_ns: int
    value: EdnValue
    extra: dict[str, Any]


def operations(path: Path, numbers: Sequence[int], lines: list[str]) -> Iterator[JepsenOperation]:
    """Yields the operations of clients in these lines of a file, in order; those of the nemesis are left out. `numbers`: of
    each line in the file, from 1."""
    for number, line, read in zip(numbers, lines, read_lines(lines), strict=True):
        made = (read and _plain(number, read)) or _operation(path, number, line, read)
        if made is not None:
            yield made


@lru_cache(maxsize=64)
def _fields(keys: tuple[str, ...]) -> tuple[int, int, int, int] | None:
    """Returns where :type, :f, :process and :time stand among keys; None = not all of them do, each once."""
    if any(keys.count(key) != 1 for key in (":type", ":f", ":process", ":time")):
        return None
    return keys.index(":type"), keys.index(":f"), keys.index(":process"), keys.index(":time")


def _plain(number: int, read: Plain) -> JepsenOperation | None:
    """The operation of a line that holds what they usually hold, and no more; None = of any other line."""
    keys, texts, values = read
    fields = _fields(keys)
    if fields is None or len(values) != 1:
        return None
    at_kind, at_f, at_process, at_time = fields
    kind, f, process, time_ns = texts[at_kind], texts[at_f], texts[at_process], texts[at_time]
    numbers = process[0].isdigit() and time_ns[0].isdigit()
    if not numbers or kind not in _TYPES or f[0] != ":" or not all(map(_SCALAR.fullmatch, texts)):
        return None
    return JepsenOperation(number, kind, f, int(process), int(time_ns), values[0], _NOTHING)


def chunks_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, lines without their ends), a few thousand at a time."""
    first, lines = 1, []
    try:
        with io.TextIOWrapper(open_history(path), encoding="utf-8", errors="strict", newline="\n") as file:
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


def is_offset(value: object) -> TypeGuard[int]:
    """Returns whether a value is an offset that a log may have."""
    return is_number(value) and value <= OFFSET_MAX


def bad(path: Path | str, line: int, what: str) -> BadInput:
    return BadInput(f"{path}, line {line}: {what}")


def short(value: object) -> str:
    """Returns the beginning of a value, for an error message."""
    try:
        text = "missing" if value is None else str(value)
    except RecursionError:
        text = "a value that is nested too deeply to be shown"
    return text if len(text) <= 60 else text[:57] + "…"
