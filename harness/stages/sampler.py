"""What the run stage notes beside the schedule: its own heartbeat, and what each broker says about leaders and ISR.

Samples are for display only (`MetadataSource.SAMPLE`): a broker may be a zombie. The ground truth is the controllers' log.
"""

import threading
from types import TracebackType

from harness import catalogue
from harness.clock import Clock
from harness.plan import Plan
from harness.protocols import AdminProtocol, BrokerView, Cluster, PartitionView
from harness.recorder import Recorder
from harness.schema import NONE, MetadataKind, MetadataSource

HEARTBEAT_S = 0.1
SAMPLE_EVERY = 5
"""Heartbeats between two samples: 2 Hz."""


class Sampler:
    """A context: a thread that beats and samples while it is open."""

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        self._plan, self._recorder, self._clock = plan, recorder, clock
        self._admin: AdminProtocol = catalogue.service("admin")(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = {(p.topic_name, p.number): p.partition for p in plan.partitions}
        self._last: dict[tuple[int, int], PartitionView] = {}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._beat, "heartbeat"), (self._sample, "sampler"))
        ]

    def __enter__(self) -> "Sampler":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            self._recorder.write("heartbeats", time_ns=self._clock.monotonic_ns())

    def _sample(self) -> None:
        while not self._stop.wait(HEARTBEAT_S * SAMPLE_EVERY):
            for node, view in self._admin.views(self._topics, timeout_s=0.4).items():
                if view is not None:
                    self._note(node, view)

    def _note(self, node: int, view: BrokerView) -> None:
        """Write what changed in this broker's view."""
        now_ns = self._clock.monotonic_ns()
        for key, seen in view.items():
            partition = self._ids.get(key)
            if partition is None or self._last.get((node, partition)) == seen:
                continue
            self._last[node, partition] = seen
            self._recorder.write(
                "metadata",
                time_ns=now_ns,
                isr=mask(seen.isr),
                elr=0,
                last_known_elr=0,
                replicas=mask(seen.replicas),
                kind=int(MetadataKind.PARTITION),
                source=int(MetadataSource.SAMPLE),
                partition=partition,
                node=node,
                leader=seen.leader,
                leader_epoch=seen.leader_epoch,
                recovering=NONE,
            )


def mask(brokers: tuple[int, ...]) -> int:
    """Bit n set for broker n."""
    return sum(1 << broker for broker in set(brokers))
