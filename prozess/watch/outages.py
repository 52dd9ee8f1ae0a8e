"""Judges outages of partitions: the time without an acknowledged send, or without a record that was read, and the cluster's
metadata about it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import BrokerView, PartitionView

OUTAGE_S = 6.5
"""How long a partition may take no records, by default. The longest silence in rolling restarts done right was 3.6 s on a
busy machine (docs/watch.md). A broker that dies is fenced after broker.session.timeout.ms, 9 s by default."""
STOOD_STILL_S = 1.0
"""A watch that made no sample for this long was paused itself, and the time does not count against the cluster."""


@dataclass(frozen=True, slots=True)
class OutageChange:
    """An outage of one partition that begins, or is over."""

    partition: int
    begins: bool
    since_ns: int
    lasted_s: float
    """How long it has lasted until now."""


class Silences:
    """Tracks for each partition since when an acknowledgement or a record has been awaited."""

    def __init__(self, *, limit_s: float = OUTAGE_S) -> None:
        self._limit_ns = int(limit_s * NS_PER_S)
        self._looked_ns: int | None = None
        self._since_ns: dict[int, int] = {}
        self._excused_ns: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """The outages that go on: partition → since when nothing came."""
        self.count = 0
        """How many outages have begun."""
        self.total_ns = 0
        """The total length of the outages that are over."""
        self.longest_ns = 0
        """The longest silence of any partition so far."""

    def look(self, waiting_since: Mapping[int, int | None], now_ns: int) -> list[OutageChange]:
        """Returns the outages that begin or end now.

        `waiting_since`: since when something is awaited of each partition; None if nothing is. A time of more than
        STOOD_STILL_S between two calls does not count: this process was paused, or its machine was.
        """
        gap_ns = 0 if self._looked_ns is None else now_ns - self._looked_ns
        self._looked_ns = now_ns
        changes = []
        for partition, since_ns in waiting_since.items():
            if since_ns is None or since_ns > self._since_ns.get(partition, since_ns):
                # Something came. The silence before it may have been long and unobserved: it is over all the same.
                changes += self._end(partition, now_ns)
                self._since_ns.pop(partition, None)
                self._excused_ns.pop(partition, None)
            if since_ns is None:
                continue
            self._since_ns.setdefault(partition, since_ns)
            if gap_ns > STOOD_STILL_S * NS_PER_S:
                excused_ns = self._excused_ns.get(partition, 0) + min(gap_ns, now_ns - since_ns)
                self._excused_ns[partition] = excused_ns
            silent_ns = now_ns - self._since_ns[partition] - self._excused_ns.get(partition, 0)
            self.longest_ns = max(self.longest_ns, silent_ns)
            if silent_ns > self._limit_ns and partition not in self.open:
                self.open[partition] = self._since_ns[partition]
                self.count += 1
                changes.append(OutageChange(partition, True, self.open[partition], silent_ns / NS_PER_S))
        return changes

    def silent_s(self, partition: int, now_ns: int) -> float:
        """Returns how many seconds something has been awaited of the partition."""
        since_ns = self._since_ns.get(partition)
        return 0.0 if since_ns is None else (now_ns - since_ns - self._excused_ns.get(partition, 0)) / NS_PER_S

    def lasted_s(self, now_ns: int) -> float:
        """Returns how long all outages lasted together, those that go on included."""
        return (self.total_ns + sum(now_ns - since_ns for since_ns in self.open.values())) / NS_PER_S

    def _end(self, partition: int, now_ns: int) -> list[OutageChange]:
        if partition not in self.open:
            return []
        since_ns = self.open.pop(partition)
        self.total_ns += now_ns - since_ns
        return [OutageChange(partition, False, since_ns, (now_ns - since_ns) / NS_PER_S)]


# Evidence from the metadata.


def describe_partition(key: tuple[str, int], views: Mapping[int, BrokerView | None], *, min_in_sync: int) -> str:
    """Returns what brokers say of a partition, in sentences. `views`: None for a broker that does not answer.

    Brokers that say the same are named together. What they say is evidence and no proof: a broker may be cut off from the
    controllers, and its copy of the metadata be old.
    """
    silent = [broker for broker, view in views.items() if view is None]
    values: dict[str, list[int]] = {}
    for broker, view in views.items():
        if view is not None:
            values.setdefault(_leadership(view.get(key), min_in_sync, silent), []).append(broker)
    sentences = [
        f"{_named(brokers)} {'says' if len(brokers) == 1 else 'say'}: {text}" for text, brokers in values.items()
    ]
    if silent:
        sentences.append(f"{_named(silent)} {'does' if len(silent) == 1 else 'do'} not answer from here")
    return "; ".join(sentences) or "no broker is known"


def _leadership(view: PartitionView | None, min_in_sync: int, silent: list[int]) -> str:
    if view is None:
        return "there is no such topic"
    in_sync = ", ".join(map(str, view.isr)) or "nobody"
    offline = [broker for broker in view.replicas if broker in silent]
    if view.leader < 0:
        text = f"nobody leads in epoch {view.leader_epoch}"
    else:
        gone = " and does not answer" if view.leader in silent else ""
        text = f"broker {view.leader} leads in epoch {view.leader_epoch}{gone}"
    text += f", in sync: {in_sync} of {', '.join(map(str, view.replicas))}"
    if len(view.isr) < min_in_sync:
        text += f", fewer than min.insync.replicas={min_in_sync}"
    elif offline and view.leader >= 0:
        text += f", offline: {', '.join(map(str, offline))}"
    return text


def _named(brokers: list[int]) -> str:
    numbers = ", ".join(map(str, sorted(brokers)))
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {numbers}"


# Output about outages: outages that begin together are one line, and so are those that end together.


@dataclass(frozen=True, slots=True)
class OutageLine:
    """What one line of output reports: outages that began, or were over, at about the same time."""

    begins: bool
    of: tuple[tuple[str, int], ...]
    """(kind, partition) of each, in order."""
    lasted_s: float
    """How long the longest of them has lasted."""

    def partitions(self, kind: str) -> list[int]:
        """Returns the partitions with an outage of this kind."""
        return [partition for named, partition in self.of if named == kind]


@dataclass(slots=True)
class _Group:
    since_ns: int
    """When the first change of the group came."""
    lasted_s: dict[tuple[str, int], float]


class OutageLines:
    """Gathers the outages of one cause: a broker that dies stops every partition that has it in its ISR."""

    def __init__(self, *, gather_s: float, rest_s: float = 5.0) -> None:
        """`gather_s`: outages that begin within this time after the first belong to it. `rest_s`: after the first outage
        ends, the line waits this long for the others."""
        self._gather_ns, self._rest_ns = int(gather_s * NS_PER_S), int(rest_s * NS_PER_S)
        self._begun: _Group | None = None
        self._over: _Group | None = None
        self._open: set[tuple[str, int]] = set()

    def add(self, kind: str, change: OutageChange, now_ns: int) -> None:
        """Notes that an outage begins or is over."""
        key = (kind, change.partition)
        if change.begins:
            self._open.add(key)
            self._begun = self._begun or _Group(now_ns, {})
            self._begun.lasted_s[key] = change.lasted_s
        else:
            self._open.discard(key)
            self._over = self._over or _Group(now_ns, {})
            self._over.lasted_s[key] = change.lasted_s

    def due(self, now_ns: int, *, at_once: bool = False) -> list[OutageLine]:
        """Returns the lines that are to be reported now. `at_once`: nothing more is waited for."""
        lines = []
        if (begun := self._begun) is not None and (at_once or now_ns - begun.since_ns >= self._gather_ns):
            waited_s = (now_ns - begun.since_ns) / NS_PER_S
            lines.append(OutageLine(True, tuple(sorted(begun.lasted_s)), max(begun.lasted_s.values()) + waited_s))
            self._begun = None
        if (over := self._over) is None or self._begun is not None:
            return lines
        if at_once or not self._open or now_ns - over.since_ns >= self._rest_ns:
            lines.append(OutageLine(False, tuple(sorted(over.lasted_s)), max(over.lasted_s.values())))
            self._over = None
        return lines


def named_partitions(topic: str, partitions: list[int]) -> str:
    """Returns partitions of one topic for a person: "topic-0, -1, -2", ascending."""
    first, *others = sorted(partitions)
    return ", ".join([f"{topic}-{first}", *(f"-{number}" for number in others)])


def describe_partitions(
    topic: str, partitions: list[int], views: Mapping[int, BrokerView | None], *, min_in_sync: int
) -> str:
    """Returns the brokers' views of partitions: one partition in full, or the leaders of several and the brokers that do not
    answer.
    """
    if len(partitions) == 1:
        return describe_partition((topic, partitions[0]), views, min_in_sync=min_in_sync)
    silent = [broker for broker, view in views.items() if view is None]
    parts = []
    for number in sorted(partitions):
        known = [view[topic, number] for view in views.values() if view is not None and (topic, number) in view]
        if known:
            newest = max(known, key=lambda view: view.leader_epoch)
            leader = "nobody leads" if newest.leader < 0 else f"broker {newest.leader} leads"
            parts.append(f"-{number}: {leader} in epoch {newest.leader_epoch}, in sync: {_ids(newest.isr)}")
    if silent:
        parts.insert(0, f"{_named(silent)} {'does' if len(silent) == 1 else 'do'} not answer from here")
    return "; ".join(parts) or "no broker is known"


def _ids(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"


# Errors of the clients: the last one is shown with its age, until its broker answers again.

_BROKER = re.compile(r"/(\d+): ")


class Complaints:
    """Keeps the last error of the clients for each broker that it names, or for none."""

    def __init__(self) -> None:
        self._last: dict[int | None, tuple[int, str]] = {}

    def heard(self, text: str, now_ns: int) -> None:
        """Notes an error. librdkafka writes HOST:PORT/BROKER in front of what concerns one broker."""
        named = _BROKER.search(text)
        self._last[int(named[1]) if named else None] = (now_ns, text.rstrip("."))

    def answered(self, views: Mapping[int, BrokerView | None], asked_ns: int) -> None:
        """Records the brokers that answered a sample. Their earlier errors are over; an error that names no broker is over
        when all brokers answered."""
        over: set[int | None] = {broker for broker, view in views.items() if view is not None}
        if len(over) == len(views):
            over.add(None)
        self._last = {
            broker: (heard_ns, text)
            for broker, (heard_ns, text) in self._last.items()
            if heard_ns >= asked_ns or broker not in over
        }

    def last(self, now_ns: int) -> str:
        """Returns the last error that still counts, with its age; "" if there is none."""
        if not self._last:
            return ""
        heard_ns, text = max(self._last.values())
        return f"{text} ({(now_ns - heard_ns) / NS_PER_S:.0f} s ago)"
