"""`prozess watch`: it runs a canary on a real cluster, asks the brokers, and restores everything at the end."""

import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from prozess.clusters.existing.canary_topic import LONG_AGO_MS, PREFIX, CanarySample, CanaryTopic
from prozess.clusters.existing.cluster_health import ClusterHealth
from prozess.clusters.protocol.admin import PartitionOffsets
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.existing_clusters import Login
from prozess.harness.errors import ClusterFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.schema import Outcome
from prozess.watch.judging import CHECK_S, Report, WatchJudge
from prozess.watch.leader_changes import AuditOrder
from prozess.watch.state import OUTCOMES, UNREAD_MAX, WatchOptions
from prozess.watch.surroundings import PartitionAdded
from prozess.watch.topic_records import RecordedTopic, TopicRecord
from prozess.workloads.canary import Canary
from prozess.workloads.canary_producer import in_time

TURN_S = 0.05
WITHOUT_SAMPLES_S = 30.0
"""For how long brokers may refuse to be asked, as one that starts may refuse a login, until that is reported."""
WITHOUT_TOPIC_S = 10.0
"""For how long every broker that answers must say that the topic is gone before the watch believes it."""
FINISH_S, FINISH_SILENT_S = 2.5, 1.0
"""How long the last acknowledgements and records are waited for in the end, and how long if no broker answers."""
CLOSE_S = 0.5
"""How long each client, and each thread, may take to end."""
REPLACED_NAMED_MAX = 5
"""How many replaced clients are reported one by one; then each tenth is."""


def topic_of(options: WatchOptions, *, clock: Clock, login: Login | None) -> CanaryTopic:
    """Returns the topic that a watch will make. ClusterFailed if the cluster does not answer."""
    name = options.topic or PREFIX + secrets.token_hex(4)
    return CanaryTopic(options.servers, name, copies=options.copies, clock=clock, login=login)


class ClusterWatch(WatchJudge):
    """One watch of one cluster. It implements `prozess.workloads.canary.CanaryLog`."""

    def __init__(self, options: WatchOptions, topic: CanaryTopic, *, report: Report, clock: Clock) -> None:
        """`topic` is made by `run`. `report` is given a line for each thing that is seen."""
        super().__init__(options, topic, report=report, clock=clock)
        self._gone_since_ns: int | None = None
        self._topic_is_gone = False
        self._unsampled_since_ns: int | None = None
        self._unsampled_reported = False
        self.watching = False
        """True while its clients run."""
        self.began_ns = clock.monotonic_ns()

    # Reports of the clients (CanaryLog).

    def invoked(self, partition: int, *, client: int, sequence: int, invoked_ns: int, size: int) -> None:
        watched = self.partitions[partition]
        watched.window.invoked(client=client, sequence=sequence, invoked_ns=invoked_ns, size=size)
        watched.pending[sequence] = watched.unread[sequence] = invoked_ns
        if len(watched.unread) > UNREAD_MAX:
            del watched.unread[next(iter(watched.unread))]
        if watched.write_since_ns is None:
            watched.write_since_ns = invoked_ns

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
        watched = self.partitions[partition]
        watched.window.completed(sequence, completed_ns=completed_ns, log_offset=log_offset, outcome=outcome, code=code)
        invoked_ns = watched.pending.pop(sequence)
        self.counts.sends[partition, OUTCOMES[outcome]] += 1
        if outcome is Outcome.OK:
            watched.records.acknowledged(sequence, log_offset, completed_ns)
            watched.acknowledged.add((completed_ns - invoked_ns) / NS_PER_S)
            watched.write_since_ns = completed_ns if watched.pending else None
            return
        watched.unread.pop(sequence, None)
        self._disturbed(completed_ns)

    def read(self, partition: int, columns: Mapping[str, np.ndarray]) -> None:
        watched = self.partitions[partition]
        watched.window.read(columns)
        watched.changes.named(int(columns["leader_epoch"].max()))
        self.counts.reads[partition] += len(columns["log_offset"])
        for sequence, read_ns in zip(columns["sequence"].tolist(), columns["read_ns"].tolist(), strict=True):
            if (invoked_ns := watched.unread.pop(sequence, None)) is not None:
                watched.delivered.add((read_ns - invoked_ns) / NS_PER_S)

    def position_lost(self, partition: int, error: str) -> None:
        watched = self.partitions[partition]
        if watched.position_lost_ns is None:
            watched.position_lost_ns = self._clock.monotonic_ns()

    def client_replaced(self, client: str, reason: str) -> None:
        self._disturbed(self._clock.monotonic_ns())
        self._promises.interrupted()  # without a client nothing advances, whichever broker leads
        self.counts.replaced[client] += 1
        count = self.counts.replaced[client]
        if count > REPLACED_NAMED_MAX and count % 10:
            self.counts.unknown += 1
            return
        which = "" if count <= REPLACED_NAMED_MAX else f", for the {count}th time"
        doubt = ". What it had under way is in doubt" if client == "producer" else ""
        self._unknown(f"the watch's {client} could not go on and was replaced{which}: {reason.rstrip('.')}{doubt}")

    def committed(self, took_ns: int, error: str, code: int) -> None:
        self.counts.commits["failed" if error else "taken"] += 1
        if not error:
            self.counts.committed.add(took_ns / NS_PER_S)

    def complained(self, error: str) -> None:
        self._complaints.heard(error, self._clock.monotonic_ns())

    def _disturbed(self, now_ns: int) -> None:
        for watched in self.partitions.values():
            watched.window.disturbed(now_ns)

    # The watch.

    def run(self, stop: Callable[[], bool], each_second: Callable[[], None] = lambda: None) -> ExitCode:
        """Watches until `stop`, or until the time is over, and returns the exit code. It removes the topic in the end, unless
        it found something in its records or failed itself: then they are evidence."""
        record: TopicRecord | None = None
        try:
            self.topic.create(stop)
            record = TopicRecord(RecordedTopic(self.topic.cluster_id, self.topic.name, self.topic.id))
            if record.problem:
                self._report(
                    f"note: should this watch be killed, the next one does not know its topic: {record.problem}"
                )
            where = f"{len(self.topic.brokers)} brokers of cluster {self.topic.cluster_id}"
            self._report(f"watching {where} with the topic {self.topic.name}, {self.topic.copies} replicas")
            self._watch(stop, each_second)
        except (ClusterFailed, KeyboardInterrupt):
            raise
        except Exception:
            self._evidence = self.topic.made
            raise
        finally:
            self.watching = False
            try:
                gone = self._leave()
                if record is not None:
                    record.close(gone=gone, kept=self._evidence or self._options.keep_topic)
            finally:
                in_time([lambda: self._surroundings.close(CLOSE_S), self.topic.close], CLOSE_S)
        return self.counts.exit_code

    def _watch(self, stop: Callable[[], bool], each_second: Callable[[], None]) -> None:
        samples: queue.Queue[CanarySample | Exception] = queue.Queue(maxsize=2)
        over = threading.Event()
        sampler = threading.Thread(target=self._sample_until, args=(over, samples), name="samples", daemon=True)
        canary = self._canary = Canary(
            self._options.servers,
            self.topic.name,
            tuple(self.partitions),
            rate_hz=self._options.rate_hz,
            log=self,
            clock=self._clock,
        )
        self.began_ns = checked_ns = self._clock.monotonic_ns()
        self.watching = True
        sampler.start()
        self._surroundings.start()
        finish_ns: int | None = None
        try:
            while finish_ns is None or (self._left() and self._clock.monotonic_ns() < finish_ns):
                canary.turn(TURN_S)
                while not samples.empty():
                    self._take(samples.get_nowait())
                self._take_events()
                now_ns = self._clock.monotonic_ns()
                self._judge_outages(now_ns)
                if now_ns - checked_ns >= CHECK_S * NS_PER_S:
                    checked_ns = now_ns
                    self._check(now_ns)
                    each_second()
                if finish_ns is None and (stop() or self._is_over()):
                    canary.sending = False
                    self._check(now_ns)
                    finish_ns = now_ns + self._finish_ns()
            self._last_check()
        finally:
            over.set()
            self._surroundings.close(0)
            canary.close(timeout_s=CLOSE_S)

    def _finish_ns(self) -> int:
        """Reports what is still awaited, and returns until when."""
        if self._topic_is_gone or not (left := self._left()):
            return 0
        limit_s = FINISH_SILENT_S if self.is_silent() else FINISH_S
        self._report(f"stopping: the watch waits {limit_s:g} s at most for {left}")
        return int(limit_s * NS_PER_S)

    def _left(self) -> str:
        """Returns what a watch that ends now would leave open; "" if nothing."""
        sends = sum(len(watched.pending) for watched in self.partitions.values())
        unread = sum(watched.window.unproven() for watched in self.partitions.values())
        logs = sum(watched.changes.open for watched in self.partitions.values())
        found = sum(watched.candidate is not None for watched in self.partitions.values())
        parts = [f"the acknowledgement of {sends} sends"] if sends else []
        parts += [f"the read of {unread} acknowledged records"] if unread else []
        parts += [f"{logs} logs that are to be read again"] if logs else []
        parts += [f"{found} findings that are to be confirmed"] if found else []
        return ", and ".join(parts)

    def is_silent(self) -> bool:
        """Returns whether no broker answered when they were asked last."""
        views = self.views
        return bool(views) and all(view is None for view in views.values())

    def _leave(self) -> bool:
        """Removes the topic and the group, or reports where they are and why they stay. Returns whether there is no topic."""
        if not self.topic.made:
            return True
        name, silent = self.topic.name, self.is_silent()
        if silent:
            if self._evidence or self._options.keep_topic:
                self._report(
                    f"kept: the topic {name}. No broker answers, so its records stay for as long as its retention says"
                )
            else:
                self._unknown(
                    f"something is left in the cluster: no broker answers, so the topic {name} is still there"
                )
            return False
        self.topic.remove_group(name, timeout_s=CLOSE_S)
        if self._evidence:
            self._report(f"kept: the topic {name} is evidence of what was found{self._kept_for()}")
            return False
        if self._options.keep_topic:
            return False
        try:
            self.topic.remove()
        except ClusterFailed as error:  # the observations are the result all the same
            self._unknown(f"something is left in the cluster: {str(error).rstrip('.')}")
            return False
        return True

    def _kept_for(self) -> str:
        try:
            self.topic.keep(LONG_AGO_MS, timeout_s=2.0)
        except ClusterFailed as error:
            return f". Its retention could not be changed, so copy its records soon: {str(error).rstrip('.')}"
        return f", and keeps its records for 7 days. Delete it then: kafka-topics.sh --delete --topic {self.topic.name}"

    def _sample_until(self, over: threading.Event, samples: "queue.Queue[CanarySample | Exception]") -> None:
        while not over.wait(CHECK_S):
            try:
                sample: CanarySample | Exception = self.topic.sample()
            except Exception as error:  # noqa: BLE001 - the watch's own thread says so, or raises it
                sample = error
            with suppress(queue.Full):  # the watch was paused; its samples from before are outdated
                samples.put(sample, timeout=1)

    def _is_over(self) -> bool:
        limit_s = self._options.duration_s
        if self._topic_is_gone:
            return True
        return limit_s is not None and self._clock.monotonic_ns() - self.began_ns >= limit_s * NS_PER_S

    def _take_events(self) -> None:
        for event in self._surroundings.events():
            match event:
                case ClusterHealth():
                    self.health = event
                case PartitionAdded():
                    self._watch_partition(event.partition)
                    self._canary.add(event.partition, timeout_s=CHECK_S)
                    where = f"{self.topic.name}-{event.partition}"
                    self._report(f"note: broker {event.broker} came, and is watched with the new partition {where}")
                case _ if event.unknown:
                    self._unknown(event.text)
                case _:
                    self._report(f"note: {event.text}.")

    def _take(self, sample: CanarySample | Exception) -> None:
        if isinstance(sample, ClusterFailed):  # a broker that starts may refuse a login for a moment
            self._promises.interrupted()
            since_ns = self._unsampled_since_ns = self._unsampled_since_ns or self._clock.monotonic_ns()
            if self._clock.monotonic_ns() - since_ns > WITHOUT_SAMPLES_S * NS_PER_S and not self._unsampled_reported:
                self._unsampled_reported = True
                self._unknown(f"the brokers cannot be asked for their metadata: {str(sample).rstrip('.')}")
            return
        if isinstance(sample, Exception):
            raise sample
        self.sample, self._unsampled_since_ns, self._unsampled_reported = sample, None, False
        self._complaints.answered(sample.views, sample.asked_ns)
        self._promises.sampled(self.topic.name, sample.views, sample.answered_ns)
        for view in sample.views.values():
            for (_, number), known in (view or {}).items():
                if number in self.partitions:
                    self.partitions[number].changes.named(known.leader_epoch)
        for (_, number), answers in sample.offsets.items():
            if number in self.partitions:
                self._take_offsets(number, answers, sample)
        self._look_for_topic(sample)

    def _take_offsets(self, number: int, answers: Sequence[PartitionOffsets], sample: CanarySample) -> None:
        """Takes the answers about a partition's log from the brokers that take themselves for its leader."""
        watched = self.partitions[number]
        for answer in answers:
            watched.window.answered(
                time_ns=sample.answered_ns,
                node=answer.node,
                leader_epoch=answer.leader_epoch,
                log_start=answer.log_start,
                high_watermark=answer.high_watermark,
            )
        newest = max(answers, key=lambda answer: answer.leader_epoch)
        start, end = newest.log_start, newest.high_watermark
        if start is None or end is None:
            return
        watched.records.removed(start)
        order = AuditOrder(newest.node, newest.leader_epoch, start, end, sample.asked_ns)
        if watched.changes.answered(order, sample.answered_ns) is not None:
            self._canary.audit(number, start, end)
        lost_ns = watched.position_lost_ns
        # What was asked before the position was lost may be of the leader before.
        if lost_ns is not None and sample.asked_ns > lost_ns and not watched.changes.holds(sample.answered_ns):
            watched.position_lost_ns = None
            self._canary.seek(number, watched.window.restart_offset(end))

    def _look_for_topic(self, sample: CanarySample) -> None:
        """Ends the watch if its topic is gone."""
        views = [view for view in sample.views.values() if view is not None]
        if not views or any(name == self.topic.name for view in views for name, _ in view):
            self._gone_since_ns = None
            return
        self._gone_since_ns = self._gone_since_ns or sample.answered_ns
        if sample.answered_ns - self._gone_since_ns > WITHOUT_TOPIC_S * NS_PER_S and not self._topic_is_gone:
            self._topic_is_gone = True
            self.topic.made = False  # a topic that has its name from now on is somebody else's
            self._seen(
                "UNREADABLE",
                f"every broker that answers has stated for {WITHOUT_TOPIC_S:g} s that there is no topic {self.topic.name}: "
                "somebody deleted it, or the cluster lost its metadata. The watch cannot go on.",
            )
