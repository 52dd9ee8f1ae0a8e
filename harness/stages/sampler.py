"""What the run stage notes beside the schedule: its own heartbeat, and what each broker says about leaders and ISR.

Samples are for display only (`MetadataSource.SAMPLE`): a broker may be a zombie. The ground truth is the controllers' log.
"""

from functools import partial

from harness import catalogue
from harness.broker_masks import broker_mask
from harness.clock import NS_PER_S, Clock
from harness.plan import Plan
from harness.protocols import AdminProtocol, BrokerView, Cluster, PartitionView
from harness.recorder import Recorder
from harness.schema import NONE, MetadataKind, MetadataSource
from harness.stages.threads import Beside

HEARTBEAT_S = 0.1
SAMPLE_S = 0.2
"""Between two looks at one broker; more where an answer takes long, because it is of hundreds of topics."""
RESTS, REST_MAX_S = 9, 1.0
"""So many times as long as the last look took, and no longer than this."""
ANSWER_TIMEOUT_S = 1.0
"""A broker that is busy answers late; one that is dead, paused or gone holds up nobody else's samples."""


class Sampler(Beside):
    """A context: while it is open a thread beats, and one for each broker asks it what it sees."""

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__()
        self._plan, self._recorder, self._clock = plan, recorder, clock
        self._admin: AdminProtocol = catalogue.service("admin")(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = {(p.topic_name, p.number): p.partition for p in plan.partitions}
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
