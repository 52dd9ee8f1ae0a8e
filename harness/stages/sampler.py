"""What the run stage notes beside the schedule: its own heartbeat, and what each broker says about leaders and ISR.

Samples are for display only (`MetadataSource.SAMPLE`): a broker may be a zombie. The ground truth is the controllers' log.
"""

from harness import catalogue
from harness.broker_masks import broker_mask
from harness.clock import Clock
from harness.plan import Plan
from harness.protocols import AdminProtocol, BrokerView, Cluster, PartitionView
from harness.recorder import Recorder
from harness.schema import NONE, MetadataKind, MetadataSource
from harness.stages.threads import Beside

HEARTBEAT_S = 0.1
SAMPLE_EVERY = 5
"""Heartbeats between two samples: 2 Hz."""


class Sampler(Beside):
    """A context: a thread that beats and samples while it is open."""

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__()
        self._plan, self._recorder, self._clock = plan, recorder, clock
        self._admin: AdminProtocol = catalogue.service("admin")(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = {(p.topic_name, p.number): p.partition for p in plan.partitions}
        self._last: dict[tuple[int, int], PartitionView] = {}
        self.run_beside(self._beat, "heartbeat")
        self.run_beside(self._sample, "sampler")

    def _beat(self) -> None:
        while not self.stopping.wait(HEARTBEAT_S):
            self._recorder.write("heartbeats", time_ns=self._clock.monotonic_ns())

    def _sample(self) -> None:
        while not self.stopping.wait(HEARTBEAT_S * SAMPLE_EVERY):
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
                isr=broker_mask(seen.isr),
                elr=0,
                last_known_elr=0,
                replicas=broker_mask(seen.replicas),
                kind=int(MetadataKind.PARTITION),
                source=int(MetadataSource.SAMPLE),
                partition=partition,
                node=node,
                leader=seen.leader,
                leader_epoch=seen.leader_epoch,
                recovering=NONE,
            )
