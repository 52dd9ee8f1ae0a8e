"""Samples metrics once a second while a trial runs, over the observer's link, into the table `metrics`.

Each node is asked in threads of its own, so one that hangs delays no other. A node that does not answer is absent, from
the moment when that was found out, but at most half a second after it was asked. Nothing here can end a trial: a node
that answers nonsense is absent, too.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from prozess.app.run.samplers import Beside
from prozess.app.run.time_lookups import TimeLookups
from prozess.clusters.protocol.metrics import LeaderState, MetricsObserver
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Cluster
from prozess.harness.interfaces.cluster import OpenTransaction
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.metrics import BY_NAME, MICRO, REFRESH_S, code_of
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, ObservationKind

PERIOD_S = 1.0
ELR_EVERY = 5
"""Eligible leader replicas are asked for every so many seconds: they change rarely, and one broker describes every
topic."""
ANSWER_TIMEOUT_S = 3.0
"""How long a node may take to answer. A busy machine may answer late; a node that hangs never answers."""
ABSENT_AFTER_NS = NS_PER_S // 2
VALUE_MAX = 2**62


class MetricsSampler(Beside):
    """A context in which metrics are recorded. A plan with `metrics = false` records none."""

    def __init__(
        self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock, *, observer: MetricsObserver | None = None
    ) -> None:
        super().__init__()
        self._clock = clock
        self._observer: MetricsObserver | None = observer
        if not plan.metrics:
            return
        watch = self._observer = observer or MetricsObserver(cluster)
        rows = MetricRows(recorder, clock)
        partitions = plan.recorded
        leaders = LeaderSampler(watch, partitions, rows)
        for node in cluster.nodes:
            if watch.expected(node.node_id):
                self._every_second(JmxOfNode(watch, node.node_id, rows).sample, f"jmx {node.node_id}")
        for broker in watch.brokers:
            self._every_second(partial(leaders.sample, broker), f"offsets {broker}")
        if plan.time_lookups:
            lookups = TimeLookups(watch, partitions, recorder, clock, random.Random(plan.seed))
            for broker in watch.brokers:
                self._every_second(partial(lookups.sample, broker), f"times {broker}")
        self._every_second(Quorum(watch, partitions, rows).sample, "quorum")

    def _every_second(self, sample: Callable[[], None], name: str) -> None:
        self.run_beside(partial(self._repeat, sample), f"metrics {name}")

    def _repeat(self, sample: Callable[[], None]) -> None:
        due_ns = self._clock.monotonic_ns()
        while True:
            now_ns = self._clock.monotonic_ns()
            if self.stopping.wait(max(0.0, (due_ns - now_ns) / NS_PER_S)):
                return
            with suppress(HarnessFailed):
                sample()
            period_ns = int(PERIOD_S * NS_PER_S)
            due_ns += period_ns * max(1, -((due_ns - self._clock.monotonic_ns()) // period_ns))

    def closed(self) -> None:
        """Ends the connections to the nodes whose metrics were sampled."""
        if self._observer is not None:
            self._observer.close()


class MetricRows:
    """Writes samples as rows of the table `metrics`."""

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder, self.clock = recorder, clock

    def absent_ns(self, asked_ns: int) -> int:
        """Returns the time from which a node is absent that was asked at `asked_ns` and has not answered until now."""
        return min(self.clock.monotonic_ns(), asked_ns + ABSENT_AFTER_NS)

    def write(
        self, time_ns: int, samples: Sequence[tuple[str, float | None]], *, node: int = NONE, partition: int = NONE
    ) -> None:
        """Writes (metric, value) of one node or partition at one time. A value of None is absent."""
        self.write_many(time_ns, [(metric, value, node, partition) for metric, value in samples])

    def write_many(self, time_ns: int, samples: Sequence[tuple[str, float | None, int, int]]) -> None:
        """Writes (metric, value, node, partition) at one time."""
        if not samples:
            return
        metrics, values, nodes, partitions = zip(*samples, strict=True)
        count = len(samples)
        self._recorder.extend(
            "metrics",
            {
                "time_ns": np.full(count, time_ns),
                "value_micro": np.array([_micro(value) for value in values], dtype=np.int64),
                "metric": np.array([self._code(metric) for metric in metrics]),
                "node": np.array(nodes),
                "partition": np.array(partitions),
                "absent": np.array([int(value is None) for value in values]),
            },
        )

    def observe(self, rows: Sequence[tuple[int, int, int, int, int, int]]) -> None:
        """Writes high watermarks and log starts as leaders reported them (time, offset, partition, node, leader epoch,
        kind) into `observations`."""
        if not rows:
            return
        times, offsets, partitions, nodes, epochs, kinds = (
            np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)
        )
        self._recorder.extend(
            "observations",
            {
                "time_ns": times,
                "value": offsets,
                "partition": partitions,
                "node": nodes,
                "leader_epoch": epochs,
                "kind": kinds,
            },
        )

    def _code(self, metric: str) -> int:
        return code_of(metric) if metric in BY_NAME else self._recorder.code("metric", metric)


def _micro(value: float | None) -> int:
    return 0 if value is None else max(-VALUE_MAX, min(VALUE_MAX, round(value * MICRO)))


class JmxOfNode:
    """Samples one node's JMX."""

    def __init__(self, observer: MetricsObserver, node: int, rows: MetricRows) -> None:
        self._observer, self._node, self._rows = observer, node, rows

    def sample(self) -> None:
        """Writes every expected metric, known or absent, and the counters of errors that happened, all at one time."""
        clock = self._rows.clock
        asked_ns = clock.monotonic_ns()
        answer: Mapping[str, float | None] | None = None
        with suppress(HarnessFailed):
            answer = self._observer.jmx(self._node, timeout_s=ANSWER_TIMEOUT_S)
        if answer is None:
            absent = [(metric, None) for metric in ("jmx_answer", *self._observer.expected(self._node))]
            self._rows.write(self._rows.absent_ns(asked_ns), absent, node=self._node)
            return
        now_ns = clock.monotonic_ns()
        took = ("jmx_answer", (now_ns - asked_ns) / 1e6)
        self._rows.write(now_ns, [took, *answer.items()], node=self._node)


_OF_TRANSACTION = (
    "oldest_transaction_idle",
    "oldest_transaction_offset",
    "oldest_transaction_producer",
    "oldest_transaction_epoch",
    "oldest_transaction_coordinator_epoch",
)
_OF_LEADER = ("isr_size", "high_watermark", "last_stable_offset", "last_stable_offset_lag", *_OF_TRANSACTION)


_ANSWERED = {"watermark": ObservationKind.LEADER_HIGH_WATERMARK, "start": ObservationKind.LEADER_LOG_START}


class LeaderSampler:
    """Samples the leaders' reports about their partitions. A row is written when a value changes, and periodically."""

    def __init__(self, observer: MetricsObserver, partitions: Mapping[tuple[str, int], int], rows: MetricRows) -> None:
        self._observer, self._partitions, self._rows = observer, partitions, rows
        self._topics = sorted({topic for topic, _ in partitions})
        self._leader: dict[int, tuple[int, int]] = {}
        """Partition → (epoch, node) of the newest leader that answered."""
        self._changes, self._answers = Changes(), Changes()
        self._lock = threading.Lock()

    def sample(self, node: int) -> None:
        """Asks one broker. The partitions that it led last are absent if it says nothing about them."""
        clock = self._rows.clock
        asked_ns = clock.monotonic_ns()
        led: Mapping[tuple[str, int], LeaderState] | None = None
        transactions: int | None = None
        with suppress(HarnessFailed):
            led = self._observer.led_by(node, self._topics, timeout_s=ANSWER_TIMEOUT_S)
            if led is not None:
                transactions = self._observer.open_transactions(node, timeout_s=ANSWER_TIMEOUT_S)
        time_ns = self._rows.absent_ns(asked_ns) if led is None else clock.monotonic_ns()
        self._rows.write(time_ns, [("open_transactions", transactions)], node=node)
        with self._lock:
            self._note(node, time_ns, led or {})

    def _note(self, node: int, time_ns: int, led: Mapping[tuple[str, int], LeaderState]) -> None:
        found: dict[int, tuple[float | None, ...]] = {}
        seen, clock = [], self._rows.clock
        for key, state in led.items():
            partition = self._partitions.get(key)
            if partition is not None and state.high_watermark is not None and state.watermark_epoch >= 0:
                # Deposed leaders are included: their reports are facts of their own.
                for kind, value in (("watermark", state.high_watermark), ("start", state.log_start)):
                    answer = (value, partition, node, state.watermark_epoch)
                    if value is not None and self._answers.accepts((f"{kind} {node}", partition), answer, time_ns):
                        seen.append((time_ns, value, *answer[1:], int(_ANSWERED[kind])))
            if partition is None or self._leader.get(partition, (-1, NONE)) > (state.leader_epoch, node):
                continue
            self._leader[partition] = (state.leader_epoch, node)
            found[partition] = (*_numbers(state), *_oldest(state.transactions, clock.wall_ns()))
        self._rows.observe(seen)
        lost = [p for p, (_, leader) in self._leader.items() if leader == node and p not in found]
        found |= dict.fromkeys(lost, (None,) * len(_OF_LEADER))
        self._rows.write_many(
            time_ns,
            [
                (metric, value, node, partition)
                for partition, values in found.items()
                for metric, value in zip(_OF_LEADER, values, strict=True)
                if self._changes.accepts((metric, partition), value, time_ns)
            ],
        )


def _numbers(state: LeaderState) -> tuple[float | None, ...]:
    high, stable = state.high_watermark, state.last_stable_offset
    # The two were asked one after the other, in this order.
    lag = None if high is None or stable is None else max(0, high - stable)
    return (state.isr_size, high, stable, lag)


def _oldest(transactions: Sequence[OpenTransaction] | None, wall_ns: int) -> tuple[float | None, ...]:
    """Returns the metrics of the transaction that began first. A hanging one stays the first, and names its producer."""
    if transactions is None:
        return (None,) * len(_OF_TRANSACTION)
    if not transactions:
        return (0.0, NONE, NONE, NONE, NONE)
    first = transactions[0]
    idle_s = max(0.0, wall_ns / NS_PER_S - first.last_timestamp_ms / 1000)
    return (idle_s, first.start_offset, first.producer_id, first.producer_epoch, first.coordinator_epoch)


class Quorum:
    """Samples the controllers' reports about the quorum, and the replicas that may lead besides the ISR."""

    def __init__(self, observer: MetricsObserver, partitions: Mapping[tuple[str, int], int], rows: MetricRows) -> None:
        self._observer, self._partitions, self._rows = observer, partitions, rows
        self._topics = sorted({topic for topic, _ in partitions})
        self._changes = Changes()
        self._rounds = 0

    def sample(self) -> None:
        """Asks every controller in turn, and every few rounds for every partition's eligible leader replicas."""
        for node in self._observer.controllers:
            asked_ns = self._rows.clock.monotonic_ns()
            seen: tuple[int, int] | None = None
            with suppress(HarnessFailed):
                seen = self._observer.quorum(node, timeout_s=ANSWER_TIMEOUT_S)
            leader = float(seen[0]) if seen is not None and seen[0] >= 0 else None
            samples = [("quorum_leader", leader), ("quorum_epoch", None if seen is None else float(seen[1]))]
            self._rows.write(self._rows.absent_ns(asked_ns), samples, node=node)
        if self._rounds % ELR_EVERY == 0:
            self._sample_elr()
        self._rounds += 1

    def _sample_elr(self) -> None:
        sizes: Mapping[tuple[str, int], int] | None = None
        with suppress(HarnessFailed):
            sizes = self._observer.elr_sizes(self._topics, timeout_s=ANSWER_TIMEOUT_S)
        now_ns = self._rows.clock.monotonic_ns()
        found = sizes or {}
        self._rows.write_many(
            now_ns,
            [
                ("elr_size", found.get(key), NONE, partition)
                for key, partition in self._partitions.items()
                if self._changes.accepts(("elr_size", partition), found.get(key), now_ns)
            ],
        )


class Changes:
    """Decides which samples are worth a row: those that differ from the last one written, or come REFRESH_S after it."""

    def __init__(self) -> None:
        self._last: dict[tuple[str | int, int], tuple[int, object]] = {}

    def accepts(self, series: tuple[str | int, int], value: object, time_ns: int) -> bool:
        """Returns whether to write the sample. If so, it is remembered as the last one written."""
        before = self._last.get(series)
        if before is not None and before[1] == value and time_ns - before[0] < REFRESH_S * NS_PER_S:
            return False
        self._last[series] = (time_ns, value)
        return True
