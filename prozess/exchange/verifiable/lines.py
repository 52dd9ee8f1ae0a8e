"""Reads lines that Kafka's verifiable clients printed: whole events, and lines on which an event was torn.

Client and logger often share one stream, so an event may stand behind a log line, next to another event, or in pieces on two
lines: `{"timestamp":17,"name":"record_da[2026-01-01] WARN …` and `ta","value":"7",…}`. Every whole event is read. A line that
has a piece of an event is *torn*: what the event stated is not known, and perhaps not even about which partition.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from prozess.exchange.imported_run import PARTITIONS_END
from prozess.exchange.input_files import open_history
from prozess.harness import inputs
from prozess.harness.errors import BadInput
from prozess.harness.recording.verifiable_output import LINE_BYTES_MAX, EventPartition
from prozess.harness.schema import OFFSET_MAX

PRODUCER_EVENTS = frozenset({"producer_send_success", "producer_send_error", "tool_data"})
CONSUMER_EVENTS = frozenset(
    {"records_consumed", "record_data", "partitions_assigned", "partitions_revoked", "offsets_committed"}
    | {"offsets_acknowledged", "offset_reset_strategy_set"}
)
SHARE_EVENTS = frozenset({"offsets_acknowledged", "offset_reset_strategy_set"})
_KNOWN = PRODUCER_EVENTS | CONSUMER_EVENTS | {"startup_complete", "shutdown_requested", "shutdown_complete"}
_ABOUT_RECORDS = frozenset({"topic", "partition", "partitions", "offset", "offsets", "value"})
_PIECE = re.compile(
    r'"(timestamp|time_ms|name|topic|partitions?|offsets?|key|value|count|minOffset|maxOffset|success|sent|acked)"\s*:'
    r'|^\s*\{"|\{("\w*)?\s*$|\x00'
)
"""What only a piece of an event has: one of its keys, its beginning, or a hole in the file."""
_TOPIC = re.compile(r'"topic"\s*:\s*"([^"\\]+)"')
_PARTITION = re.compile(r'"partition"\s*:\s*([0-9]{1,9})\s*[,}]')
_ONCE_NAME, _ONCE_VALUE, _ONCE_OFFSET = '"name":', '"value":', '"offset":'
"""Keys that an event has at most once: with two of one, the line is what is left of two events."""
_BRACES_MAX = 10_000
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class TornLine:
    """A line with a piece of an event. What names neither topic nor partition may be about any."""

    line: int
    topic: str | None
    partition: int | None


@dataclass(slots=True)
class FileOfEvents:
    """The content of a file: its events, each with the number of its line, and its torn lines."""

    path: Path
    events: list[tuple[int, dict[str, Any]]]
    torn: list[TornLine]
    strange: int = 0
    """How many lines have no whole event, torn ones among them."""

    def bad(self, line: int, what: str) -> BadInput:
        """Returns an error about a line."""
        return BadInput(f"{self.path}, line {line}: {what}")


def read_events(path: Path) -> FileOfEvents:
    """Reads a file. BadInput if it cannot be read."""
    inputs.refuse_unless_file(path, "what a verifiable client printed, in a file")
    found = FileOfEvents(path, [], [])
    try:
        with open_history(path) as file:
            for number, line in enumerate(_lines(file), start=1):
                _take(found, number, line)
    except OSError as error:
        raise BadInput(
            f"{str(path)!r} cannot be read: {error.strerror}. Give what a verifiable client printed."
        ) from error
    return found


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file; one that is too long in several parts, so that it is torn."""
    while line := file.readline(LINE_BYTES_MAX):
        yield line


def _is_known(name: object) -> bool:
    return isinstance(name, str) and name in _KNOWN


def _take(found: FileOfEvents, number: int, line: bytes) -> None:
    if line.startswith(b"{"):
        try:
            text = line.decode()
            event, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            event, end, text = None, 0, ""
        if event is not None and text[end:].isspace() and _is_known(event.get("name")):
            twice = text.count(_ONCE_NAME) > 1 or text.count(_ONCE_VALUE) > 1
            if not twice and (text.count(_ONCE_OFFSET) <= 1 or "offsets" in event):
                found.events.append((number, event))
                return
    if not line.strip():
        return
    text = line.decode("utf-8", "replace")
    events, rest = _taken_apart(text)
    found.events += ((number, event) for event in events)
    found.strange += not events
    if _PIECE.search(rest) or rest.count("}") > rest.count("{"):
        found.torn.append(_torn(number, rest))


def _taken_apart(text: str) -> tuple[list[dict[str, Any]], str]:
    """Returns the whole events on a line, and what is left of it without them and without other JSON."""
    if text.count("{") > _BRACES_MAX:
        return [], text
    events, rest, begin, at = [], [], 0, text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        piece = text[at:end]
        twice = piece.count(_ONCE_NAME) > 1 or piece.count(_ONCE_VALUE) > 1
        twice |= piece.count(_ONCE_OFFSET) > 1 and "offsets" not in value
        if not twice and _is_known(value.get("name")):
            events.append(value)
        elif not _ABOUT_RECORDS.isdisjoint(value):
            at = text.find("{", at + 1)
            continue
        rest.append(text[begin:at])
        begin, at = end, text.find("{", end)
    rest.append(text[begin:])
    return events, " ".join(rest)


def _torn(number: int, rest: str) -> TornLine:
    topics, partitions = set(_TOPIC.findall(rest)), set(_PARTITION.findall(rest))
    topic = topics.pop() if len(topics) == 1 else None
    partition = int(partitions.pop()) if topic is not None and len(partitions) == 1 else None
    return TornLine(number, topic, partition if partition is None or partition < PARTITIONS_END else None)


def tp_in(file: FileOfEvents, line: int, event: Mapping[str, Any], *, offset_min: int | None) -> EventPartition | None:
    """Returns topic, partition and offset of an event, or of an entry of its lists. `offset_min`: the lowest offset that it
    may have; None = it has none. BadInput for numbers that no format can have. None if it names no topic."""
    topic = event.get("topic")
    if not isinstance(topic, str):
        return None
    partition = event.get("partition")
    if type(partition) is not int or not 0 <= partition < PARTITIONS_END:
        raise file.bad(
            line,
            f"partition {partition!r} is not a number from 0 to {PARTITIONS_END - 1}. Mend the line, or leave it out.",
        )
    if offset_min is None:
        return EventPartition(topic, partition)
    return EventPartition(topic, partition, number_in(file, line, event, "offset", least=offset_min, most=OFFSET_MAX))


def tps_in(
    file: FileOfEvents, line: int, event: Mapping[str, Any], name: str, *, offset_min: int | None = None
) -> list[EventPartition]:
    """Returns the topic partitions that are listed under `partitions` or `offsets`."""
    listed = event.get(name)
    entries = listed if isinstance(listed, list) else []
    found = (tp_in(file, line, each, offset_min=offset_min) for each in entries if isinstance(each, dict))
    return [tp for tp in found if tp is not None]


def number_in(file: FileOfEvents, line: int, event: Mapping[str, Any], name: str, *, least: int, most: int) -> int:
    """Returns a number of an event. BadInput if it is none, or none that may be there."""
    value = event.get(name)
    if type(value) is not int or not least <= value <= most:
        shown = "missing" if value is None else repr(value)[:60]
        raise file.bad(
            line,
            f"{name} of {event.get('name', 'an entry')} is {shown}, not a number from {least} to {most}. Mend the line, or "
            "leave it out.",
        )
    return value
