"""`prozess watch`: it runs a canary on a real cluster, judges what happens to its records, and tells what it sees."""

import queue
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from prozess.clusters.existing.canary_topic import PREFIX, RETENTION_MS, CanarySample, CanaryTopic
from prozess.harness.app.watch.metrics import PREFIX_OF_METRICS, Histogram, PrometheusMetric, counter, gauge
from prozess.harness.app.watch.outages import STOOD_STILL_S, OutageChange, Silences, describe_partition
from prozess.harness.app.watch.promises import Promises
from prozess.harness.app.watch.window import WORDS, PartitionWindow, Sighting
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.existing_clusters import Login
from prozess.harness.errors import ClusterFailed, ExitCode
from prozess.harness.interfaces import BrokerView
from prozess.harness.schema import Outcome
from prozess.workloads.canary import Canary

TURN_S = 0.05
CHECK_S = 1.0
"""How often the window is judged, and the least pause between two samples of the metadata."""
WITHOUT_SAMPLES_S = 30.0
"""For how long brokers may refuse to be asked, as one that starts may refuse a login, until that is told."""
WITHOUT_TOPIC_S = 10.0
"""For how long every broker that answers must say that the topic is gone before the watch believes it."""

OUTCOMES = {Outcome.OK: "acknowledged", Outcome.FAIL: "failed", Outcome.INFO: "in-doubt"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch is asked to do."""

    servers: str
    topic: str | None = None
    copies: int | None = None
    rate_hz: float = 2.0
    outage_s: float = 6.5
    duration_s: float | None = None
    """None: until it is stopped."""
    keep_topic: bool = False


@dataclass(slots=True)
class WatchCounts:
    """What a watch has counted. It grows with the number of partitions and of kinds of sightings, and not with time."""

    sends: Counter[tuple[int, str]] = field(default_factory=Counter)
    """(partition, "acknowledged", "failed" or "in-doubt") → records."""
    reads: Counter[int] = field(default_factory=Counter)
    sightings: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """(name, certain) → how many things were told."""
    latencies: dict[int, Histogram] = field(default_factory=dict)
    producers_replaced: int = 0
    unknown: int = 0
    """How many events were told as unknown, sightings included."""
    seen: int = 0
    """How many events were told as certain: outages, unreadable records, violations."""

    @property
    def exit_code(self) -> ExitCode:
        """Returns 1 if an outage, unreadable records or a violation was seen; else 2 if something is unknown; else 0."""
        if self.seen:
            return ExitCode.VIOLATED
        return ExitCode.UNKNOWN if self.unknown else ExitCode.HELD


def topic_of(options: WatchOptions, *, clock: Clock, login: Login | None) -> CanaryTopic:
    """Returns the topic that a watch will make. ClusterFailed if the cluster does not answer."""
    name = options.topic or PREFIX + secrets.token_hex(4)
    return CanaryTopic(options.servers, name, copies=options.copies, clock=clock, login=login)


class ClusterWatch:
    """One watch of one cluster. It implements `prozess.workloads.canary.CanaryLog`."""

    def __init__(self, options: WatchOptions, topic: CanaryTopic, *, tell: Callable[[str], None], clock: Clock) -> None:
        """`topic` is made by `run`. `tell` is given a line for each thing that is seen."""
        self._options, self.topic, self._tell_line, self._clock = options, topic, tell, clock
        numbers = range(len(self.topic.brokers))
        self._windows = {n: PartitionWindow(n, retention_ns=RETENTION_MS * 1_000_000) for n in numbers}
        self.counts = WatchCounts(latencies={n: Histogram() for n in numbers})
        self._writes, self._reads = (Silences(limit_s=options.outage_s) for _ in range(2))
        self._promises = Promises(numbers)
        self._pending: dict[int, dict[int, int]] = {n: {} for n in numbers}
        """Partition → sequence → when it was sent, of each record that was not answered yet."""
        self._write_since_ns: dict[int, int | None] = dict.fromkeys(numbers)
        self._lost_positions: dict[int, int] = {}
        """Partition → when its reader's position was lost."""
        self._sample: CanarySample | None = None
        self._gone_since_ns: int | None = None
        self._topic_is_gone = False
        self._unsampled_since_ns: int | None = None
        self._unsampled_told = False
        self._turned_ns: int | None = None
        self.began_ns = clock.monotonic_ns()

    # What the clients say (CanaryLog).

    def invoked(self, partition: int, *, client: int, sequence: int, invoked_ns: int, size: int) -> None:
        self._windows[partition].invoked(client=client, sequence=sequence, invoked_ns=invoked_ns, size=size)
        self._pending[partition][sequence] = invoked_ns
        if self._write_since_ns[partition] is None:
            self._write_since_ns[partition] = invoked_ns

    def completed(
        self,
        partition: int,
        sequence: int,
        *,
        completed_ns: int,
        log_offset: int,
        outcome: Outcome,
        error: str,
        code: int,
    ) -> None:
        self._windows[partition].completed(
            sequence, completed_ns=completed_ns, log_offset=log_offset, outcome=outcome, code=code
        )
        invoked_ns = self._pending[partition].pop(sequence)
        self.counts.sends[partition, OUTCOMES[outcome]] += 1
        if outcome is not Outcome.OK:
            self._disturbed(completed_ns)
        else:
            self.counts.latencies[partition].add((completed_ns - invoked_ns) / NS_PER_S)
            self._write_since_ns[partition] = completed_ns if self._pending[partition] else None

    def read(self, partition: int, columns: Mapping[str, np.ndarray]) -> None:
        self._windows[partition].read(columns)
        self.counts.reads[partition] += len(columns["log_offset"])

    def position_lost(self, partition: int, error: str) -> None:
        self._lost_positions.setdefault(partition, self._clock.monotonic_ns())

    def producer_replaced(self, reason: str) -> None:
        self._disturbed(self._clock.monotonic_ns())
        self.counts.producers_replaced += 1
        self._unknown(
            f"the watch's producer could not go on and was replaced: {reason}. What it had under way is in doubt"
        )

    def _disturbed(self, now_ns: int) -> None:
        for window in self._windows.values():
            window.disturbed(now_ns)

    # The watch.

    def run(self, stop: Callable[[], bool], each_second: Callable[[], None] = lambda: None) -> ExitCode:
        """Watches until `stop`, or until the time is over, and returns the exit code. It removes the topic in the end."""
        try:
            self.topic.create()
            for name in self.topic.others()[:5]:
                self._tell(f"note: {name} is there too: another watch's topic, or one that a killed watch left behind")
            where = f"{len(self.topic.brokers)} brokers of cluster {self.topic.cluster_id}"
            self._tell(f"watching {where} with the topic {self.topic.name}, {self.topic.copies} replicas")
            self._watch(stop, each_second)
        finally:
            try:
                if not self._options.keep_topic:
                    self.topic.remove()
            except ClusterFailed as error:  # what was seen is the result all the same
                self._unknown(f"something is left in the cluster: {str(error).rstrip('.')}")
            finally:
                self.topic.close()
        return self.counts.exit_code

    def _watch(self, stop: Callable[[], bool], each_second: Callable[[], None]) -> None:
        samples: queue.Queue[CanarySample | Exception] = queue.Queue(maxsize=2)
        over = threading.Event()
        sampler = threading.Thread(target=self._sample_until, args=(over, samples), name="samples", daemon=True)
        numbers = tuple(self._windows)
        canary = Canary(
            self._options.servers, self.topic.name, numbers, rate_hz=self._options.rate_hz, log=self, clock=self._clock
        )
        self.began_ns = checked_ns = self._clock.monotonic_ns()
        sampler.start()
        try:
            while not stop() and not self._is_over():
                canary.turn(TURN_S)
                while not samples.empty():
                    self._take(samples.get_nowait(), canary)
                now_ns = self._clock.monotonic_ns()
                self._judge_outages(now_ns, canary.last_error)
                if now_ns - checked_ns >= CHECK_S * NS_PER_S:
                    checked_ns = now_ns
                    self._check(now_ns)
                    each_second()
            if not self._topic_is_gone:
                canary.finish(lambda: not any(window.unproven() for window in self._windows.values()))
            self._last_check()
        finally:
            over.set()
            canary.close()
            sampler.join(10)

    def _sample_until(self, over: threading.Event, samples: "queue.Queue[CanarySample | Exception]") -> None:
        while not over.wait(CHECK_S):
            try:
                sample: CanarySample | Exception = self.topic.sample()
            except Exception as error:  # noqa: BLE001 - the watch's own thread says so, or raises it
                sample = error
            with suppress(queue.Full):  # the watch stands still; what was seen meanwhile is old
                samples.put(sample, timeout=1)

    def _is_over(self) -> bool:
        limit_s = self._options.duration_s
        if self._topic_is_gone:
            return True
        return limit_s is not None and self._clock.monotonic_ns() - self.began_ns >= limit_s * NS_PER_S

    def _take(self, sample: CanarySample | Exception, canary: Canary) -> None:
        if isinstance(sample, ClusterFailed):  # a broker that starts may refuse a login for a moment
            self._promises.interrupted()
            since_ns = self._unsampled_since_ns = self._unsampled_since_ns or self._clock.monotonic_ns()
            if self._clock.monotonic_ns() - since_ns > WITHOUT_SAMPLES_S * NS_PER_S and not self._unsampled_told:
                self._unsampled_told = True
                self._unknown(f"the brokers cannot be asked for their metadata: {str(sample).rstrip('.')}")
            return
        if isinstance(sample, Exception):
            raise sample
        self._sample, self._unsampled_since_ns, self._unsampled_told = sample, None, False
        self._promises.sampled(self.topic.name, sample.views, sample.answered_ns)
        for (_, number), answers in sample.offsets.items():
            for answer in answers:
                self._windows[number].answered(
                    time_ns=sample.answered_ns,
                    node=answer.node,
                    leader_epoch=answer.leader_epoch,
                    log_start=answer.log_start,
                    high_watermark=answer.high_watermark,
                )
        for number, since_ns in list(self._lost_positions.items()):
            newest = max(sample.offsets.get((self.topic.name, number), ()), key=lambda a: a.leader_epoch, default=None)
            # What was asked before the position was lost may be of the leader before.
            if newest is not None and newest.high_watermark is not None and sample.asked_ns > since_ns:
                del self._lost_positions[number]
                canary.seek(number, self._windows[number].restart_offset(newest.high_watermark))
        self._look_for_topic(sample)

    def _look_for_topic(self, sample: CanarySample) -> None:
        """Ends the watch if its topic is gone."""
        told = [view for view in sample.views.values() if view is not None]
        if not told or any(name == self.topic.name for view in told for name, _ in view):
            self._gone_since_ns = None
            return
        self._gone_since_ns = self._gone_since_ns or sample.answered_ns
        if sample.answered_ns - self._gone_since_ns > WITHOUT_TOPIC_S * NS_PER_S and not self._topic_is_gone:
            self._topic_is_gone = True
            self.topic.made = False  # a topic that has its name from now on is somebody else's
            self._seen(
                "UNREADABLE",
                f"every broker that answers has said for {WITHOUT_TOPIC_S:g} s that there is no topic {self.topic.name}: "
                "somebody deleted it, or the cluster lost its metadata. The watch cannot go on.",
            )

    # Judging.

    def _judge_outages(self, now_ns: int, last_error: str) -> None:
        if self._turned_ns is not None and now_ns - self._turned_ns > self._options.outage_s * NS_PER_S:
            gap_s = (now_ns - self._turned_ns) / NS_PER_S
            self._unknown(f"the watch itself stood still for {gap_s:.1f} s, and saw nothing of what happened meanwhile")
        if self._turned_ns is not None and now_ns - self._turned_ns > STOOD_STILL_S * NS_PER_S:
            self._promises.interrupted()
        self._turned_ns = now_ns
        for change in self._writes.look(self._write_since_ns, now_ns):
            self._tell_outage(change, "no send was acknowledged", "takes records again", last_error)
        unread = {number: window.unread_since() for number, window in self._windows.items()}
        for change in self._reads.look(unread, now_ns):
            self._tell_outage(change, "acknowledged records cannot be read", "can be read again", last_error)

    def _tell_outage(self, change: OutageChange, begins: str, ends: str, last_error: str) -> None:
        where = f"{self.topic.name}-{change.partition}"
        if not change.begins:
            self._tell(f"OVER: {where} {ends} after {change.lasted_s:.1f} s")
            return
        said = describe_partition(
            (self.topic.name, change.partition), self._views(), min_in_sync=self.topic.min_in_sync
        )
        error = f" The client's last error: {last_error.rstrip('.')}." if last_error else ""
        self._seen("OUTAGE", f"{where}: {begins} for {change.lasted_s:.1f} s; {said}.{error}")

    def _check(self, now_ns: int) -> None:
        for window in self._windows.values():
            for sighting in window.check(now_ns):
                self._tell_sighting(sighting)
        unread = {number: window.unread_since() for number, window in self._windows.items()}
        for sighting in self._promises.check(self._write_since_ns, unread):
            self._tell_sighting(sighting)

    def _last_check(self) -> None:
        self._check(self._clock.monotonic_ns())
        for number, window in self._windows.items():
            if (left := window.unproven()) and number not in self._reads.open:
                self._unknown(
                    f"{self.topic.name}-{number}: the watch ended before {left} acknowledged records could be read"
                )
            if (left := len(self._pending[number])) and number not in self._writes.open:
                self._unknown(f"{self.topic.name}-{number}: the watch ended before {left} sends were answered")

    # What it shows of itself.

    def status(self) -> str:
        """Returns one line on how the watch is doing."""
        now_ns = self._clock.monotonic_ns()
        sends = Counter[str]()
        for (_, name), count in self.counts.sends.items():
            sends[name] += count
        parts = [f"{(now_ns - self.began_ns) / NS_PER_S:,.0f} s", f"{sends['acknowledged']:,} acknowledged"]
        parts.append(f"{sum(self.counts.reads.values()):,} read")
        parts += [f"{sends['in-doubt']:,} in doubt"] if sends["in-doubt"] else []
        silent_s = max(self._writes.silent_s(n, now_ns) for n in self._windows)
        parts += [f"silent for {silent_s:.1f} s"] if silent_s > CHECK_S else []
        led = self._leaders()
        leaderless = sum(leader < 0 for leader, _ in led.values())
        parts += [f"{leaderless} without a leader"] if leaderless else []
        shrunken = sum(in_sync < self.topic.copies for _, in_sync in led.values())
        parts += [f"{shrunken} with a shrunken ISR"] if shrunken else []
        silent = [broker for broker, view in self._views().items() if view is None]
        parts += [f"no answer from {', '.join(map(str, silent))}"] if silent else []
        open_now = sorted({*self._writes.open, *self._reads.open})
        parts += [f"OUTAGE of {', '.join(map(str, open_now))}"] if open_now else []
        parts.append(f"{self.counts.seen} seen, {self.counts.unknown} unknown")
        return " · ".join(parts)

    def metrics(self) -> list[PrometheusMetric]:
        """Returns the numbers of the watch for Prometheus. Their number depends on the brokers, and not on time."""
        now_ns, counts, windows = self._clock.monotonic_ns(), self.counts, self._windows
        by = {n: {"topic": self.topic.name, "partition": str(n)} for n in windows}
        kinds = {"write": self._writes, "read": self._reads}
        views, led = self._views(), self._leaders()
        return [
            counter("sends_total", "Records that were sent, by what became of them.",
                   [("", {**by[n], "outcome": name}, counts.sends[n, name]) for n in by for name in OUTCOMES.values()]),
            counter("reads_total", "Records that the reader was given.",
                   [("", by[n], counts.reads[n]) for n in by]),
            PrometheusMetric(PREFIX_OF_METRICS + "acknowledgement_seconds", "histogram",
                   f"How long acknowledgements took. They are noticed up to {TURN_S:g} s late.",
                   [sample for n in by for sample in counts.latencies[n].samples(by[n])]),
            gauge("silence_seconds", "For how long something has been waited for by now.",
                   [("", {**by[n], "kind": kind}, of.silent_s(n, now_ns)) for kind, of in kinds.items() for n in by]),
            gauge("outage", "1 while the partition takes no records, or gives none.",
                   [("", {**by[n], "kind": kind}, float(n in of.open)) for kind, of in kinds.items() for n in by]),
            counter("outages_total", "Outages that have begun.",
                   [("", {"kind": kind}, of.count) for kind, of in kinds.items()]),
            counter("outage_seconds_total", "How long all outages lasted together.",
                   [("", {"kind": kind}, of.lasted_s(now_ns)) for kind, of in kinds.items()]),
            gauge("longest_silence_seconds", "The longest silence so far.",
                   [("", {"kind": kind}, of.longest_ns / NS_PER_S) for kind, of in kinds.items()]),
            counter("sightings_total", "What the checkers found, by anomaly.",
                   [("", {"anomaly": name, "certain": str(certain).lower()}, counts.sightings[name, certain])
                    for name in WORDS for certain in (True, False)]),
            counter("seen_total", "Outages, unreadable records and violations that were told.",
                   [("", {}, counts.seen)]),
            counter("unknown_total", "What was told as unknown.", [("", {}, counts.unknown)]),
            counter("producers_replaced_total", "Producers that could not go on.",
                   [("", {}, counts.producers_replaced)]),
            gauge("rows", "Rows of the rolling window.", [("", by[n], windows[n].rows) for n in by]),
            gauge("leader", "The broker that leads the partition; -1: none.",
                   [("", by[n], leader) for n, (leader, _) in led.items()]),
            gauge("in_sync_replicas", "Replicas in sync.",
                   [("", by[n], in_sync) for n, (_, in_sync) in led.items()]),
            gauge("broker_answers", "1 if the broker answered when it was last asked.",
                   [("", {"broker": str(b)}, float(view is not None)) for b, view in views.items()]),
        ]  # fmt: skip

    def _views(self) -> Mapping[int, BrokerView | None]:
        return {} if self._sample is None else self._sample.views

    def _leaders(self) -> dict[int, tuple[int, int]]:
        """Returns the leader of each partition, and how many are in sync, by the view with the highest leader epoch."""
        found: dict[int, tuple[int, int, int]] = {}
        for view in self._views().values():
            for (_, number), told in (view or {}).items():
                found[number] = max(found.get(number, (-1, -1, 0)), (told.leader_epoch, told.leader, len(told.isr)))
        return {number: (leader, in_sync) for number, (_, leader, in_sync) in sorted(found.items())}

    # Telling.

    def _tell_sighting(self, sighting: Sighting) -> None:
        self.counts.sightings[sighting.name, sighting.certain] += 1
        text = f"{self.topic.name}-{sighting.partition}: {sighting.text}"
        if not sighting.certain:
            self._unknown(f"{sighting.name}: {text}".rstrip("."))
            return
        self._seen("UNREADABLE" if sighting.name == "deleted" else f"VIOLATION ({sighting.name})", text)

    def _seen(self, kind: str, text: str) -> None:
        self.counts.seen += 1
        self._tell(f"{kind}: {text}")

    def _unknown(self, text: str) -> None:
        self.counts.unknown += 1
        self._tell(f"UNKNOWN: {text}.")

    def _tell(self, text: str) -> None:
        moment = datetime.fromtimestamp(self._clock.wall_ns() / NS_PER_S, UTC)
        self._tell_line(f"{moment:%Y-%m-%d %H:%M:%S}Z {text}")
