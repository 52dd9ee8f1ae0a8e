"""Ask the cluster while the trial runs, beside it: brokers' views of partitions, and the quorum."""

import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self
from uuid import UUID

from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.requests import DescribedPartition
from prozess.clusters.registry import backend_named
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.interfaces import BrokerView, Cluster, PartitionView
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.codes import broker_mask
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, MetadataKind, MetadataSource

JOIN_TIMEOUT_S = 10.0


class Beside:
    """A context that runs threads beside a stage. It sets `stopping` when it closes, and waits for the threads to end."""

    def __init__(self, *, join_timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """`join_timeout_s`: how long each thread may take to end."""
        self.stopping, self._join_timeout_s = threading.Event(), join_timeout_s
        self._threads: list[threading.Thread] = []

    def run_beside(self, work: Callable[[], None], name: str) -> None:
        """Does `work` in a thread of its own as soon as the context is opened."""
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self.closing()
        for thread in self._threads:
            thread.join(timeout=self._join_timeout_s)
        self.closed()

    def closing(self) -> None:
        """Is called before the threads have ended, to keep their unfinished work."""

    def closed(self) -> None:
        """Is called once the threads have ended, to close their resources."""


HEARTBEAT_S = 0.1
SAMPLE_S = 0.2
"""How long the sampler waits between two looks at one broker. It waits longer if an answer took long."""


ANSWER_TIMEOUT_S = 1.0
"""How long a broker may take to answer. Each broker has a thread, so a dead one delays no other."""
RESTS, REST_MAX_S = 9, 1.0
"""After a look, the sampler waits so many times as long as the look took, but no longer than this."""


class Sampler(Beside):
    """A context in which one thread writes heartbeats, and one for each broker asks it who leads and who is in sync.

    These samples are for display only (`MetadataSource.SAMPLE`), because a broker may be a zombie. The ground truth is
    the controllers' log.
    """

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__()
        self._plan, self._recorder, self._clock = plan, recorder, clock
        self._admin = Admin(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = plan.recorded
        self._last: dict[tuple[int, int], PartitionView] = {}
        self.run_beside(self._beat, "heartbeat")
        for broker in cluster.observer_servers:
            self.run_beside(partial(self._sample, broker), f"sampler-{broker}")

    def _beat(self) -> None:
        while not self.stopping.wait(HEARTBEAT_S):
            self._recorder.write("heartbeats", time_ns=self._clock.monotonic_ns())

    def _sample(self, broker: int) -> None:
        rest_s = SAMPLE_S
        while not self.stopping.wait(rest_s):
            asked_ns = self._clock.monotonic_ns()
            view = self._admin.view(broker, self._topics, timeout_s=ANSWER_TIMEOUT_S)
            if view is not None:
                self._note(broker, view)
            took_s = (self._clock.monotonic_ns() - asked_ns) / NS_PER_S
            rest_s = max(SAMPLE_S, min(RESTS * took_s, REST_MAX_S))

    def _note(self, node: int, view: BrokerView) -> None:
        """Writes the partitions that changed in this broker's view."""
        now_ns = self._clock.monotonic_ns()
        for key, seen in view.items():
            partition = self._ids.get(key)
            if partition is None or self._last.get((node, partition)) == seen:
                continue
            self._last[node, partition] = seen
            self._recorder.write(
                "metadata", time_ns=now_ns, source=int(MetadataSource.SAMPLE), **_stated(node, partition, seen)
            )


def _stated(node: int, partition: int, seen: PartitionView | DescribedPartition) -> dict[str, int]:
    """Returns what a broker states of a partition, as columns of `metadata`."""
    return {
        "isr": broker_mask(seen.isr),
        "elr": 0,
        "last_known_elr": 0,
        "replicas": broker_mask(seen.replicas),
        "kind": int(MetadataKind.PARTITION),
        "partition": partition,
        "node": node,
        "leader": seen.leader,
        "leader_epoch": seen.leader_epoch,
        "recovering": NONE,
    }


DESCRIBED_SAMPLE_S = 0.3
"""The time between two looks at one broker. A partition that nobody may lead has no leader for at least a session
timeout, so none is missed."""


QUORUM_S = 1.0


DESCRIBED_TIMEOUT_S = 2.0


class MetadataSamples(Beside):
    """A context in which brokers are asked for their copy of the metadata, where the controllers' log cannot be read.

    One thread per broker asks about partitions, and one asks about the quorum. The rows have the source DESCRIBED: they
    show what was there when somebody looked, and never that something was not there.
    """

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__()
        if cluster.controller_servers or not backend_named(plan.backend).protocol_only:
            return
        self._recorder, self._clock = recorder, clock
        self._admin = Admin(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = plan.recorded
        self._topic_ids: dict[str, UUID] = {}
        self._last: dict[tuple[int, int], DescribedPartition] = {}
        self._controller: tuple[int, int] | None = None
        for broker in cluster.observer_servers:
            self.run_beside(partial(self._sample, broker), f"metadata-samples-{broker}")
        self.run_beside(self._sample_quorum, "quorum-samples")

    def _sample(self, broker: int) -> None:
        while not self.stopping.wait(DESCRIBED_SAMPLE_S):
            described = self._admin.described(broker, self._topics, timeout_s=DESCRIBED_TIMEOUT_S)
            now_ns = self._clock.monotonic_ns()
            for (topic, number), seen in (described or {}).items():
                partition = self._ids.get((topic, number))
                # A topic that was deleted and created again has new epochs: it is another topic of the same name.
                if partition is None or self._topic_ids.setdefault(topic, seen.topic_id) != seen.topic_id:
                    continue
                if self._last.get((broker, partition)) != seen:
                    self._last[broker, partition] = seen
                    self._write(now_ns, broker, partition, seen)

    def _write(self, now_ns: int, broker: int, partition: int, seen: DescribedPartition) -> None:
        eligible = {
            "elr": broker_mask(seen.eligible.elr),
            "last_known_elr": broker_mask(seen.eligible.last_known_elr),
        }
        stated = _stated(broker, partition, seen) | eligible
        self._recorder.write("metadata", time_ns=now_ns, source=int(MetadataSource.DESCRIBED), **stated)

    def _sample_quorum(self) -> None:
        while not self.stopping.wait(QUORUM_S):
            leader = self._admin.quorum_leader(timeout_s=DESCRIBED_TIMEOUT_S)
            if leader is None or leader == self._controller:
                continue
            self._controller = leader
            self._recorder.write(
                "metadata",
                time_ns=self._clock.monotonic_ns(),
                isr=0,
                elr=0,
                last_known_elr=0,
                replicas=0,
                kind=int(MetadataKind.CONTROLLER),
                source=int(MetadataSource.DESCRIBED),
                partition=NONE,
                node=leader[0],
                leader=NONE,
                leader_epoch=leader[1],
                recovering=NONE,
            )
