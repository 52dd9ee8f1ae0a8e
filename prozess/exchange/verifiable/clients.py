"""The runs of verifiable clients: when each lived, and which values it sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from prozess.exchange.verifiable.lines import FileOfEvents
from prozess.harness.schema import MISSING, NONE, OFFSET_MAX

TIMESTAMP_MAX_MS = 2**42
"""The year 2109."""
_DIGITS_MAX = 12
Events = Sequence[tuple[int, dict[str, Any]]]
"""Events of a file, each with the number of its line."""
Send = tuple[int, int, int, int, str, int, bool]
"""(client, partition, offset, sequence, prefix, completed ms, acknowledged); offset NONE = it is not known."""


def split_value(value: object) -> tuple[str, int] | None:
    """Returns (prefix, n) of "prefix.n", or of "n" without one; None for anything else."""
    if not isinstance(value, str):
        return None
    prefix, dot, number = value.rpartition(".")
    good = 0 < len(number) <= _DIGITS_MAX and number.isascii() and number.isdigit() and bool(prefix) == bool(dot)
    return (prefix, int(number)) if good else None


@dataclass(slots=True)
class RunOfClient:
    """One client of an import: what one process of a verifiable tool printed from its start to its end."""

    file: FileOfEvents
    role: str
    name: str
    begun_ms: int | None
    """The time of its last event; None if no event has a time."""
    ended_ms: int | None
    ordered: bool
    """Do its times prove an order? All events have one, and no send began before the first."""
    prefixes: set[str] = field(default_factory=set)


class Senders:
    """Finds the sender of a record that was read: by the offset at which it was acknowledged, else by its value."""

    def __init__(self, sends: Sequence[Send], clients: Mapping[int, RunOfClient], topics: Sequence[str]) -> None:
        """`topics`: of each partition."""
        self._topics = topics
        self._at: dict[tuple[int, int], tuple[int, str, int]] = {}
        self._owner: dict[tuple[int, str, int], int] = {}
        self._seen: dict[tuple[int, str, int], int] = {}
        """Where each value was acknowledged, or else read first."""
        self._range: dict[tuple[int, str], tuple[int, int]] = {}
        """The least and the greatest offset that was acknowledged, by partition and prefix."""
        self._elsewhere: dict[tuple[str, int], int] = {}
        users: dict[str, set[int]] = {}
        of_topic: dict[tuple[str, str], set[int]] = {}
        for client, where, offset, sequence, prefix, _, acknowledged in sends:
            self._owner[where, prefix, sequence] = client
            users.setdefault(prefix, set()).add(client)
            of_topic.setdefault((topics[where], prefix), set()).add(client)
            if acknowledged and offset != NONE:
                self._at[where, offset] = client, prefix, sequence
                self._seen[where, prefix, sequence] = offset
                low, high = self._range.get((where, prefix), (offset, offset))
                self._range[where, prefix] = min(low, offset), max(high, offset)
                self._elsewhere[prefix, sequence] = where
        self._alone = {prefix for prefix, who in users.items() if len(who) == 1}
        self._shared = {key for key, who in of_topic.items() if len(who) > 1}
        self.by_prefix: dict[str | None, int] = {}
        for number, run in sorted(clients.items()):
            for prefix in run.prefixes:
                self.by_prefix.setdefault(prefix, number)

    def of(self, text: tuple[str, int] | None, where: int, offset: int) -> int | None:
        """Returns the client that sent this value. None: nobody reports it, or several may have sent it."""
        if text is None:
            return None
        acknowledged = self._at.get((where, offset))
        if acknowledged is not None and acknowledged[1:] == text:
            return acknowledged[0]
        return None if self.shared(text[0], where) else self._owner.get((where, *text))

    def shared(self, prefix: str, where: int) -> bool:
        """Returns whether several clients sent values with this prefix to the topic of a partition."""
        return (self._topics[where], prefix) in self._shared

    def doubtful(self, text: tuple[str, int], where: int, offset: int) -> bool:
        """Returns whether a value that stands at two offsets may be two records: one of them stands before or behind all
        that was acknowledged, where another run of the tool may have written the same values."""
        seen = self._seen.setdefault((where, *text), offset)
        if seen == offset:
            return False
        low, high = self._range.get((where, text[0]), (OFFSET_MAX, NONE))
        return not (low <= offset <= high and low <= seen <= high)

    def elsewhere(self, text: tuple[str, int]) -> int | None:
        """Returns the partition where a value was acknowledged that can be one producer's only: nobody else who was
        imported has its prefix."""
        return self._elsewhere.get(text) if text[0] in self._alone else None


def runs_of(events: Events) -> Iterator[Events]:
    """Yields the events of each run of the tool: one begins where it says that it has started."""
    begins = [index for index, (_, event) in enumerate(events) if event["name"] == "startup_complete" and index]
    for first, end in pairwise([0, *begins, len(events)]):
        yield events[first:end]


def client_of(file: FileOfEvents, events: Events, name: str, *, producer: bool) -> RunOfClient:
    times = [timestamp_ms(event) for _, event in events]
    known = [time for time in times if time is not None]
    # A send began at some time since the client's start: without that, nothing is known of it.
    ordered = len(known) == len(times) and (not producer or events[0][1]["name"] == "startup_complete")
    role = "verifiable-producer" if producer else "verifiable-consumer"
    return RunOfClient(file, role, name, min(known, default=None), max(known, default=None), ordered)


def completed_ms_of(events: Events, ended_ms: int | None) -> list[int]:
    """Returns by when each event was over: at its own time, or at the next that is known. MISSING: none is."""
    found, latest = [], MISSING if ended_ms is None else ended_ms
    for _, event in reversed(events):
        stamp = timestamp_ms(event)
        latest = latest if stamp is None else stamp
        found.append(latest)
    return found[::-1]


def timestamp_ms(event: Mapping[str, Any]) -> int | None:
    stamp = event.get("timestamp", event.get("time_ms"))
    known = isinstance(stamp, int) and not isinstance(stamp, bool) and 0 <= stamp < TIMESTAMP_MAX_MS
    return stamp if known else None
