"""Judges outages of partitions: how long none of a partition's sends was acknowledged, or none of its records was read, and
what the cluster's metadata says of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import BrokerView, PartitionView

OUTAGE_S = 6.5
"""How long a partition may take no records, by default. The longest silence in rolling restarts done right was 3.6 s on a
busy machine (docs/watch.md). A broker that dies is fenced after broker.session.timeout.ms, 9 s by default."""
STOOD_STILL_S = 1.0
"""A watch that did not look for so long stood still itself, and that time is not the cluster's."""


@dataclass(frozen=True, slots=True)
class OutageChange:
    """An outage of one partition that begins, or is over."""

    partition: int
    begins: bool
    since_ns: int
    lasted_s: float
    """How long it has lasted until now."""


class Silences:
    """Follows for each partition since when something has been waited for in vain: an acknowledgement, or a record."""

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
        """How long the outages lasted that are over, together."""
        self.longest_ns = 0
        """The longest silence of any partition so far."""

    def look(self, waiting_since: Mapping[int, int | None], now_ns: int) -> list[OutageChange]:
        """Returns the outages that begin or end now.

        `waiting_since`: since when each partition has been waited for; None if nothing is awaited, or it came. The time in
        which nobody looked for more than STOOD_STILL_S does not count: this process was paused, or its machine was.
        """
        gap_ns = 0 if self._looked_ns is None else now_ns - self._looked_ns
        self._looked_ns = now_ns
        changes = []
        for partition, since_ns in waiting_since.items():
            if since_ns is None or since_ns > self._since_ns.get(partition, since_ns):
                # Something came. The silence before it may have been long without anybody looking: it is over all the same.
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
        """Returns how long the partition has been waited for by now."""
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


# What the metadata says.


def describe_partition(key: tuple[str, int], views: Mapping[int, BrokerView | None], *, min_in_sync: int) -> str:
    """Returns what brokers say of a partition, in sentences. `views`: None for a broker that does not answer.

    Brokers that say the same are named together. What they say is evidence and no proof: a broker may be cut off from the
    controllers, and its copy of the metadata be old.
    """
    silent = [broker for broker, view in views.items() if view is None]
    told: dict[str, list[int]] = {}
    for broker, view in views.items():
        if view is not None:
            told.setdefault(_leadership(view.get(key), min_in_sync, silent), []).append(broker)
    sentences = [
        f"{_named(brokers)} {'says' if len(brokers) == 1 else 'say'}: {text}" for text, brokers in told.items()
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
