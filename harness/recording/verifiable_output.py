"""Reads what Kafka's verifiable clients print on standard output: one JSON object in a line, among other lines.

The protocol does not depend on a language (kafkatest, `services/verifiable_client.py`). Its events are those of
org.apache.kafka.tools.VerifiableProducer and VerifiableConsumer. Lines that are no event are skipped, as every reader of
the protocol must do.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from prozess.harness.schema import NONE

LINE_BYTES_MAX = 1 << 22
"""A longer line comes from no tool of Kafka."""
SHOWN_BYTES = 100
"""How much is shown of a line that cannot be read."""
_SEQUENCE_DIGITS_MAX = 12


Parse = Callable[[bytes], dict[str, Any] | None]


class EventLines:
    """Turns bytes that come out of a pipe into events. A line without an end waits for the rest of it."""

    def __init__(self, parse: Parse | None = None) -> None:
        """`parse` returns the event on a line, or None if there is none. The default is `parse_event`."""
        self._parse = parse or parse_event
        self._rest = b""
        self.strange = 0
        """How many lines so far were no event."""
        self.torn = 0
        """How many of those lines began as an event and could not be read, so that something was reported that is not
        known."""
        self.first_torn = ""
        """The first of the torn lines, shortened."""

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yields the events that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yields a last event. Nothing more comes, so a last line without an end is an event if it is whole."""
        line, self._rest = self._rest, b""
        yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[dict[str, Any]]:
        event = self._parse(line)
        if event is not None:
            yield event
        elif line.strip():
            self.strange += 1
            if is_torn(line):
                self.torn += 1
                self.first_torn = self.first_torn or line[:SHOWN_BYTES].decode("utf-8", "replace")


def is_torn(line: bytes) -> bool:
    """Returns whether the line begins as an event and is no JSON."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Returns the event on a line. None: the line is no JSON, or no object with a `name`."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("name"), str) else None


@dataclass(frozen=True, slots=True)
class EventPartition:
    """A topic partition in an event, and the offset with it. NONE: it has no offset."""

    topic: str
    partition: int
    offset: int = NONE


def event_partition(event: Mapping[str, Any]) -> EventPartition | None:
    """Returns topic, partition and offset of an event, or of an entry of its lists. None if it does not name them."""
    topic, partition, offset = event.get("topic"), event.get("partition"), event.get("offset", NONE)
    if isinstance(topic, str) and _is_number(partition) and _is_number(offset):
        return EventPartition(topic, partition, offset)
    return None


def event_partitions(event: Mapping[str, Any], name: str) -> list[EventPartition]:
    """Returns the topic partitions that are listed under `partitions` or `offsets`."""
    listed = event.get(name)
    entries = listed if isinstance(listed, list) else []
    return [found for entry in entries if isinstance(entry, dict) and (found := event_partition(entry)) is not None]


EXPIRED = -192
"""The code of a send that its client gave up after delivery.timeout.ms: librdkafka's _MSG_TIMED_OUT."""
_EXPIRED = re.compile(r"Expiring \d+ record\(s\) for (.+)-(\d{1,9}):\d+ ms has passed since batch creation")


def expired_partition(event: Mapping[str, Any]) -> EventPartition | None:
    """Returns the partition of a send that a Java producer gave up after delivery.timeout.ms, as its error names it. None:
    another error. [Sender.sendProducerData, 2.8.0 to 4.4.0]"""
    named = _EXPIRED.fullmatch(str(event.get("message")))
    return None if named is None else EventPartition(named[1], int(named[2]))


def sequence_of(value: object, *, prefix: int) -> int | None:
    """Returns n of the value "prefix.n" of a verifiable producer. None if it is no such value."""
    sender, sequence = foreign_identity(value)
    return sequence if sender == prefix else None


def foreign_identity(value: object) -> tuple[int, int]:
    """Returns (prefix, n) of "prefix.n", the identity of records of verifiable producers. The prefix is the client's id.
    (NONE, NONE) for anything else."""
    if isinstance(value, str):
        prefix, _, number = value.partition(".")
        if _is_digits(prefix, 9) and _is_digits(number, _SEQUENCE_DIGITS_MAX):
            return int(prefix), int(number)
    return NONE, NONE


def foreign_identities(values: Sequence[bytes | None]) -> tuple[np.ndarray, np.ndarray]:
    """Returns `foreign_identity` of many values as they stand in the log: (sender int32, sequence int64)."""
    texts = np.array([value or b"" for value in values], dtype=np.bytes_)
    sender, sequence = np.full(len(texts), NONE, dtype=np.int32), np.full(len(texts), NONE, dtype=np.int64)
    if not len(texts):
        return sender, sequence
    parts = np.strings.partition(texts, b".")
    prefix, number = parts[0], parts[2]
    good = np.strings.isdigit(prefix) & np.strings.isdigit(number)
    good &= (np.strings.str_len(prefix) <= 9) & (np.strings.str_len(number) <= _SEQUENCE_DIGITS_MAX)
    # A numpy byte string drops zeros at its end: such a value is none of a verifiable producer's.
    good &= np.strings.str_len(texts) == np.fromiter((len(value or b"") for value in values), np.int64, len(texts))
    sender[good], sequence[good] = prefix[good].astype(np.int32), number[good].astype(np.int64)
    return sender, sequence


def _is_digits(text: str, most: int) -> bool:
    return 0 < len(text) <= most and text.isascii() and text.isdigit()


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 2**62
