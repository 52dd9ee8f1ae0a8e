"""Judges and reports the observations of a watch: outages, lost records, and findings of the checkers in the window."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from prozess.clusters.existing.canary_topic import RETENTION_MS, CanarySample, CanaryTopic
from prozess.clusters.existing.cluster_health import ClusterHealth
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.interfaces import BrokerView
from prozess.watch.leader_changes import TRIES_MAX
from prozess.watch.outages import (
    STOOD_STILL_S,
    Complaints,
    OutageLines,
    Silences,
    describe_partitions,
    named_partitions,
)
from prozess.watch.promises import Promises
from prozess.watch.state import Candidate, WatchCounts, WatchedPartition, WatchOptions
from prozess.watch.surroundings import Surroundings
from prozess.watch.window import LOST, PartitionWindow, Sighting
from prozess.workloads.canary import Canary

CHECK_S = 1.0
"""How often the window is judged, and the least pause between two samples of the metadata."""
CONFIRM_S = 6.0
"""How long a finding may wait for the brokers to be asked who leads, and for the log to be read again."""
KEPT_MS = 24 * 3600 * 1000
"""How long the topic keeps its records from the first finding about records on, while the watch goes on."""
UNCONFIRMED = "; the watch ended before it could be confirmed"
WITHOUT_EVIDENCE = frozenset({"deleted", "not-followed", "judge-failed", "stuck", "stalled", "leaderless"})
"""Findings that leave no trace in the topic's records."""
BEGINS = {"write": "no send was acknowledged", "read": "acknowledged records cannot be read"}
ENDS = {"write": "takes records again", "read": "can be read again"}
"""The words for each kind of outage."""

Report = Callable[[str, str], None]
"""Takes the kind of a line, such as OUTAGE, and the whole line."""


class WatchJudge:
    """The state of a watch, and the functions through which it reports."""

    def __init__(self, options: WatchOptions, topic: CanaryTopic, *, report: Report, clock: Clock) -> None:
        self._options, self.topic, self._report_line, self._clock = options, topic, report, clock
        self.partitions: dict[int, WatchedPartition] = {}
        self._promises = Promises(())
        for number in range(len(topic.assignment)):
            self._watch_partition(number)
        self.counts = WatchCounts()
        self.silences = {kind: Silences(limit_s=options.outage_s) for kind in BEGINS}
        self._outage_lines = OutageLines(gather_s=min(3.0, 1 / options.rate_hz + 0.2))
        self._complaints = Complaints()
        self.sample: CanarySample | None = None
        self.health: ClusterHealth | None = None
        self._surroundings = Surroundings(topic, clock)
        self._canary: Canary
        self._evidence = False
        self._turned_ns: int | None = None

    def _watch_partition(self, number: int) -> None:
        self.partitions[number] = WatchedPartition(PartitionWindow(number, retention_ns=RETENTION_MS * 1_000_000))
        self._promises.follow(number)

    def audited(self, partition: int, columns: Mapping[str, np.ndarray], *, whole: bool) -> None:
        watched, where = self.partitions[partition], f"{self.topic.name}-{partition}"
        order = watched.changes.under_way
        assert order is not None
        leader = f"broker {order.node} leads in epoch {order.leader_epoch}"
        if watched.changes.ended(whole=whole):
            self._unknown(
                f"{where}: {leader}, and its log could not be read again from offset {order.start} to {order.end} in "
                f"{TRIES_MAX} tries, so it is not known what it lacks"
            )
        if not whole:
            return
        if watched.candidate is not None:
            watched.candidate.audited = True
        lost = watched.records.compare(
            columns["log_offset"], columns["sequence"], columns["flags"], before_ns=order.asked_ns
        )
        if not lost.count:
            return
        first = max(order.start, min(lost.first_offset, order.end))
        watched.window.cut(lost.sequences, first, order.leader_epoch)
        watched.position_lost_ns = None
        self._canary.seek(partition, first)
        detail = (
            f"{lost.span}; {leader}, and its log, which was read again from offset {order.start} to its end at {order.end}, "
            "does not have them"
        )
        self._report_sighting(Sighting(partition, LOST, True, lost.count, detail))

    def _judge_outages(self, now_ns: int) -> None:
        if self._turned_ns is not None and now_ns - self._turned_ns > self._options.outage_s * NS_PER_S:
            gap_s = (now_ns - self._turned_ns) / NS_PER_S
            self._unknown(f"the watch itself stood still for {gap_s:.1f} s, and saw nothing of what happened meanwhile")
        if self._turned_ns is not None and now_ns - self._turned_ns > STOOD_STILL_S * NS_PER_S:
            self._promises.interrupted()
        self._turned_ns = now_ns
        waiting = self._waiting()
        for kind, silences in self.silences.items():
            for change in silences.look(waiting[kind], now_ns):
                self._outage_lines.add(kind, change, now_ns)
        self._report_outages(now_ns, at_once=len(self.silences["write"].open) == len(self.partitions))

    def _waiting(self) -> dict[str, dict[int, int | None]]:
        """Returns since when an acknowledgement and a record has been awaited of each partition; None: nothing is."""
        return {
            "write": {number: watched.write_since_ns for number, watched in self.partitions.items()},
            "read": {number: watched.window.unread_since() for number, watched in self.partitions.items()},
        }

    def _report_outages(self, now_ns: int, *, at_once: bool) -> None:
        """Reports which outages begin, in one line, and which are over. `at_once`: no other can begin."""
        for line in self._outage_lines.due(now_ns, at_once=at_once):
            words = BEGINS if line.begins else ENDS
            parts, mine = [], sorted({partition for _, partition in line.of})
            for kind in BEGINS:
                if numbers := line.partitions(kind):
                    many = words[kind].replace("takes", "take") if len(numbers) > 1 else words[kind]
                    parts.append(f"{named_partitions(self.topic.name, numbers)}{': ' if line.begins else ' '}{many}")
            if not line.begins:
                self._report(f"OVER: {' and '.join(parts)} after {line.lasted_s:.1f} s", "OVER")
                continue
            known = describe_partitions(self.topic.name, mine, self.views, min_in_sync=self.topic.min_in_sync)
            last = self._complaints.last(now_ns)
            error = f" The clients' last error: {last}." if last else ""
            self._seen("OUTAGE", f"{' and '.join(parts)} for {line.lasted_s:.1f} s; {known}.{error}")

    def _check(self, now_ns: int, *, at_end: bool = False) -> None:
        for watched in self.partitions.values():
            if watched.changes.holds(now_ns) and not at_end:
                continue
            found = watched.window.look(now_ns)
            if found and not self._is_confirmed(watched, found, now_ns):
                if not at_end:
                    continue
                found = [replace(sighting, certain=False, detail=sighting.detail + UNCONFIRMED) for sighting in found]
            audited = watched.candidate is not None and watched.candidate.audited
            watched.candidate = None
            for sighting in found + watched.window.settle(now_ns):
                if sighting.name != LOST or not sighting.certain:
                    self._report_sighting(sighting)
                elif audited:
                    there = f"{sighting.detail}; but the log has them: they were read when it was read again"
                    self._report_sighting(replace(sighting, certain=False, detail=there))
                elif count := watched.records.passed_by(np.array(sighting.sequences, dtype=np.int64)):
                    self._report_sighting(replace(sighting, count=count))

        waiting = self._waiting()
        for sighting in self._promises.check(waiting["write"], waiting["read"]):
            self._report_sighting(sighting)

    def _is_confirmed(self, watched: WatchedPartition, found: Sequence[Sighting], now_ns: int) -> bool:
        """Returns whether the finding is to be reported now.

        A leader that lacks records causes more than a loss: new records get the offsets of lost ones, and the reader may
        continue behind its position and skip them. Therefore a finding waits until the brokers were asked who leads since,
        and a record that the reader was not given is looked for in the log."""
        candidate = watched.candidate = watched.candidate or Candidate(now_ns)
        if now_ns - candidate.since_ns > CONFIRM_S * NS_PER_S:
            return True
        if self.sample is None or self.sample.asked_ns <= candidate.since_ns:
            return False
        if not candidate.audited and any(sighting.name == LOST for sighting in found):
            watched.changes.doubt(now_ns)
            return False
        return True

    def _last_check(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._report_outages(now_ns, at_once=True)
        self._check(now_ns, at_end=True)
        for number, watched in self.partitions.items():
            where = f"{self.topic.name}-{number}"
            if (left := watched.window.unproven()) and number not in self.silences["read"].open:
                self._unknown(f"{where}: the watch ended before {left} acknowledged records could be read")
            if (left := len(watched.pending)) and number not in self.silences["write"].open:
                self._unknown(f"{where}: the watch ended before {left} sends were answered")
            if watched.changes.open:
                self._unknown(f"{where}: the watch ended before the log under its new leader could be read again")

    # Views for other modules.

    @property
    def views(self) -> Mapping[int, BrokerView | None]:
        """Returns the last metadata of the topic from each broker; None for a broker that did not answer."""
        return {} if self.sample is None else self.sample.views

    def leaders(self) -> dict[int, tuple[int, int]]:
        """Returns the leader of each partition, and how many are in sync, by the view with the highest leader epoch."""
        found: dict[int, tuple[int, int, int]] = {}
        for view in self.views.values():
            for (_, number), seen in (view or {}).items():
                found[number] = max(found.get(number, (-1, -1, 0)), (seen.leader_epoch, seen.leader, len(seen.isr)))
        return {number: (leader, in_sync) for number, (_, leader, in_sync) in sorted(found.items())}

    def last_error(self) -> str:
        """Returns the last error of a client, with its age; "" if its broker answers again."""
        return self._complaints.last(self._clock.monotonic_ns())

    # Reporting.

    def _report_sighting(self, sighting: Sighting) -> None:
        self.counts.sightings[sighting.name, sighting.certain] += 1
        if sighting.name == "deleted":
            self.counts.deleted[sighting.partition] += sighting.count
        if sighting.name not in WITHOUT_EVIDENCE and not self._evidence:
            self._evidence = True
            self._surroundings.keep(KEPT_MS)
        text = f"{self.topic.name}-{sighting.partition}: {sighting.text}"
        if not sighting.certain:
            self._unknown(f"{sighting.name}: {text}".rstrip("."))
            return
        self._seen("UNREADABLE" if sighting.name == "deleted" else f"VIOLATION ({sighting.name})", text)

    def _seen(self, kind: str, text: str) -> None:
        self.counts.seen += 1
        self._report(f"{kind}: {text}", kind.split(" ")[0])

    def _unknown(self, text: str) -> None:
        self.counts.unknown += 1
        self._report(f"UNKNOWN: {text}.", "UNKNOWN")

    def _report(self, text: str, kind: str = "note") -> None:
        moment = datetime.fromtimestamp(self._clock.wall_ns() / NS_PER_S, UTC)
        self._report_line(kind, f"{moment:%Y-%m-%d %H:%M:%S}Z {text}")
