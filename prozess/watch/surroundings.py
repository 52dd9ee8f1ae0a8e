"""Observes the cluster around a watch's topic: its health, new brokers, and topics of other watches."""

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from prozess.clusters.existing.canary_topic import CanaryTopic
from prozess.clusters.existing.cluster_health import ClusterHealth, ask_health
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import ClusterFailed
from prozess.watch.topic_records import RecordsHere, forget, records_here

LOOK_S = 3.0
"""The least pause between two samples of the cluster."""
SHARE = 20
"""A sample of a cluster with very many partitions takes long. The pause is this many times as long as the sample took."""
ASK_LIMIT_S = 2.0
CHANGE_LIMIT_S = 10.0
"""How long it may take to add a partition, or to change the topic's retention."""
OTHERS_S = 4.0
"""How long the topics of other watches are looked at: one that is at work writes to its topic twice a second."""
OTHERS_MAX = 20
"""At most this many topics of other watches are named."""


@dataclass(frozen=True, slots=True)
class PartitionAdded:
    """A broker that came later, and the partition that it leads."""

    broker: int
    partition: int


@dataclass(frozen=True, slots=True)
class WatchNote:
    """A line to print. `unknown`: something was not possible, so the watch observed less than it should."""

    text: str
    unknown: bool = False


Event = ClusterHealth | PartitionAdded | WatchNote


def remark_on(
    name: str, before: Mapping[tuple[str, int], tuple[int, int]], now: Mapping[tuple[str, int], tuple[int, int]]
) -> str:
    """Returns a remark on the owner of another topic, by the log starts and ends of its partitions at two times.

    A watch writes to its topic all the time, and the topic keeps its records for half an hour: one that has grown is alive,
    and one that was written to and is empty is not. For all others nothing is certain: a watch that was killed, one that
    keeps its topic as evidence, and one that can write nothing at the moment look alike.
    """
    ends = {key: value for key, value in now.items() if key[0] == name}
    if any(end > before[key][1] for key, (_, end) in ends.items() if key in before):
        return f"{name} is another watch's, which is at work: its topic grows. It must stay"
    if ends and all(start == end for start, end in ends.values()) and any(end for _, end in ends.values()):
        return (
            f"{name} is debris of a watch that was killed: its records are older than its retention, and no new ones come. "
            f"Delete it: kafka-topics.sh --delete --topic {name}"
        )
    return (
        f"{name} has not grown for {OTHERS_S:g} s: a watch was killed or keeps it as evidence, or cannot write now. Look "
        "before you delete it"
    )


class Surroundings:
    """Samples the cluster periodically, and changes the watch's own topic where necessary."""

    def __init__(self, topic: CanaryTopic, clock: Clock) -> None:
        """Nothing is asked before `start`."""
        self._topic, self._clock = topic, clock
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._over, self._wake = threading.Event(), threading.Event()
        self._retention_ms: int | None = None
        self._refused: set[int] = set()
        self._absent_reported = False
        self._thread = threading.Thread(target=self._look_until, name="surroundings", daemon=True)

    def start(self) -> None:
        """Starts the samples."""
        self._thread.start()

    def events(self) -> list[Event]:
        """Returns the events since the last call."""
        found = []
        while not self._events.empty():
            found.append(self._events.get())
        return found

    def keep(self, retention_ms: int) -> None:
        """Orders a longer retention of the topic, which is set with the next sample."""
        self._retention_ms = retention_ms
        self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Ends the samples. One that is under way may end later."""
        self._over.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _look_until(self) -> None:
        try:
            self._look_at_others()
            while not self._over.is_set():
                self._retain()
                took_s = self._look()
                self._wake.wait(max(LOOK_S, SHARE * took_s))
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - the watch goes on without
            self._events.put(WatchNote(f"the watch looks at the cluster as a whole no more: {error!r}", unknown=True))

    def _look_at_others(self) -> None:
        here = records_here(self._topic.cluster_id)
        try:
            others = self._topic.others(timeout_s=ASK_LIMIT_S)
            names = [name for name in others if not self._is_removed(name, here)][:OTHERS_MAX]
            if not names:
                return
            before = self._topic.ends(names)
            if self._over.wait(OTHERS_S):
                return
            now = self._topic.ends(names)
        except ClusterFailed as error:
            self._events.put(WatchNote(f"the topics of other watches are not known: {str(error).rstrip('.')}"))
            return
        for name in names:
            alive = f"{name} is that of another watch, which runs on this machine. It must stay"
            self._events.put(WatchNote(alive if name in here.alive else remark_on(name, before, now)))

    def _is_removed(self, name: str, here: RecordsHere) -> bool:
        """Deletes a topic if a watch of this machine made the very same and was killed. Returns whether it did."""
        for left in here.left:
            if left.topic != name or left.topic_id is None:
                continue
            if self._topic.remove_left(name, left.topic_id, timeout_s=CHANGE_LIMIT_S):
                self._events.put(
                    WatchNote(f"{name} was left behind by a watch of this machine that was killed. It is deleted")
                )
                forget(name)
                return True
        return False

    def _retain(self) -> None:
        wanted, self._retention_ms = self._retention_ms, None
        if wanted is None:
            return
        try:
            self._topic.keep(wanted, timeout_s=CHANGE_LIMIT_S)
        except ClusterFailed as error:
            self._events.put(WatchNote(f"the topic keeps its records for half an hour only: {str(error).rstrip('.')}"))

    def _look(self) -> float:
        began_ns = self._clock.monotonic_ns()
        health = ask_health(self._topic.admin, self._topic.brokers, clock=self._clock, timeout_s=ASK_LIMIT_S)
        if health is None:
            return 0.0
        self._events.put(health)
        for broker, address in health.addresses.items():
            known = self._topic.brokers.get(broker)
            if known is None:
                self._add(broker, address)
            elif known != address:
                self._topic.moved(broker, address)
        if (absent := health.absent - self._topic.brokers.keys()) and not self._absent_reported:
            self._absent_reported = True
            named = ", ".join(map(str, sorted(absent)))
            self._events.put(
                WatchNote(f"broker {named} has replicas and is not there. It is watched from when it comes on")
            )
        return (self._clock.monotonic_ns() - began_ns) / NS_PER_S

    def _add(self, broker: int, address: tuple[str, int]) -> None:
        try:
            partition = self._topic.grow(broker, address, timeout_s=CHANGE_LIMIT_S)
        except ClusterFailed as error:
            if broker not in self._refused:
                self._refused.add(broker)
                self._events.put(
                    WatchNote(f"broker {broker} came, and is not watched: {str(error).rstrip('.')}", unknown=True)
                )
            return
        self._events.put(PartitionAdded(broker, partition))
