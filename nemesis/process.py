"""Faults of a node's process: signals kill, stop or pause it, and its wall clock is moved."""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import ClockShift, Impairment
from prozess.harness.interfaces import Capability, Effect, Fault, FaultContext, Node, NodeState, Undo, end_in_order
from prozess.harness.values import Frozen
from prozess.nemesis.faults import ImpairingFault, NoParameters, observe, watch_state
from prozess.nemesis.roles import TargetMissing


class Kill(Fault[NoParameters]):
    """Kills the process of a node at once, with SIGKILL. Its files stay as the kernel has them, so nothing that was
    written is lost.

    The effect is that the process is gone. What Kafka makes of that (fencing, a new leader) is not part of this fault.
    """

    name = "kill"
    nature = FaultNature(stops=True)
    needs = frozenset({Capability.KILL})
    parameters_model = NoParameters

    def undos(self, context: FaultContext, parameters: NoParameters) -> Sequence[Undo]:
        """Plans to start each target again. TargetMissing if one has no process, because this fault must not start the
        target of another one."""
        for node in context.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"{node.name} cannot be killed: it has no process now.")
        return [Undo(action="start", node=node.name) for node in context.targets]

    def apply(self, context: FaultContext, parameters: NoParameters) -> None:
        for node in context.targets:
            node.kill()

    def verify(self, context: FaultContext, parameters: NoParameters) -> Sequence[Effect]:
        return observe(
            [watch_state(node, NodeState.STOPPED, seen="the process is gone") for node in context.targets],
            clock=context.clock,
        )


class StopParameters(Frozen):
    """`timeout_s`: how long a node may take to end, before it is killed. A broker that cannot move its leaders keeps trying
    for some seconds (controlled.shutdown.max.retries). `cut_off`: what becomes of a target whose links to other nodes
    another fault holds. It is stopped all the same ("stop"), though a broker that reaches no controller may not end; or it
    is left alone ("spare"), and there is nothing to hit. In a mix "spare" is the default."""

    timeout_s: float = Field(default=30.0, gt=0, le=600)
    cut_off: Literal["stop", "spare"] = "stop"


class Stop(Fault[StopParameters]):
    """Stops a node in an orderly way, with SIGTERM. A broker hands its leaderships over first, and writes its
    snapshots.

    A node that is not gone in time is killed, and the effect says so: it did not end in order then.

    The effect is that the process is gone.
    """

    name = "stop"
    nature = FaultNature(stops=True)
    needs = frozenset({Capability.KILL, Capability.STOP})
    parameters_model = StopParameters
    in_a_mix: Mapping[str, object] = {"cut_off": "spare"}

    def __init__(self) -> None:
        self._killed: dict[str, str] = {}

    def undos(self, context: FaultContext, parameters: StopParameters) -> Sequence[Undo]:
        """Plans to start each target again. TargetMissing if one does not run, because it could not shut down."""
        for node in context.targets:
            if parameters.cut_off == "spare" and node.name in context.cut_off:
                raise TargetMissing(f"{node.name} is cut off, and might not be able to shut down: it is spared.")
            state = node.state()
            if state is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be shut down: its process is {state}.")
        return [Undo(action="start", node=node.name) for node in context.targets]

    def apply(self, context: FaultContext, parameters: StopParameters) -> None:
        for node in context.targets:
            self._killed[node.name] = end_in_order(node, timeout_s=parameters.timeout_s)

    def verify(self, context: FaultContext, parameters: StopParameters) -> Sequence[Effect]:
        gone = {name: f"the process is gone: {killed}" for name, killed in self._killed.items() if killed}
        return observe(
            [
                watch_state(node, NodeState.STOPPED, seen=gone.get(node.name, "the process is gone"))
                for node in context.targets
            ],
            clock=context.clock,
        )


class Pause(Fault[NoParameters]):
    """Pauses the process of a node with SIGSTOP. Its connections stay open, and its socket buffers keep filling.
    SIGCONT ends the pause.

    A pause longer than `broker.session.timeout.ms` (KRaft, default 9 s, KIP-631) gets a broker fenced. One longer than
    `replica.lag.time.max.ms` (default 30 s) takes a follower out of the ISR. This is Kafka's answer and not part of
    this fault.

    The effect is that the process is observed stopped. The signal, and the look at every thread, are `pause` of the
    backend's node (for processes of this machine `prozess.clusters.local.cluster`).
    """

    name = "pause"
    nature = FaultNature(freezes=True)
    needs = frozenset({Capability.PAUSE})
    parameters_model = NoParameters

    def undos(self, context: FaultContext, parameters: NoParameters) -> Sequence[Undo]:
        """Plans to resume each target. TargetMissing if one is not running, because it could not be paused."""
        for node in context.targets:
            if (state := node.state()) is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be paused: it is {state} already.")
        return [Undo(action="resume", node=node.name) for node in context.targets]

    def apply(self, context: FaultContext, parameters: NoParameters) -> None:
        for node in context.targets:
            node.pause()

    def verify(self, context: FaultContext, parameters: NoParameters) -> Sequence[Effect]:
        return observe(
            [watch_state(node, NodeState.PAUSED, seen="the process stands still") for node in context.targets],
            clock=context.clock,
        )


OFFSET_MAX_MS = 3.2e12
"""The largest offset of a clock: a hundred years."""
DRIFT_MAX_PPM = 500_000
DRIFT_LEAST_PPM = 1000
"""The smallest drift of a clock: a millisecond per second, which a probe can see within its limit."""
CONTROLLER_LEAST_MS = 600_000
"""The smallest offset of a controller's clock. It is more than such a fault lasts, so that the controller's times can
be distinguished (`prozess.clusters.files.metadata_log`)."""
OFFSET_LEAST_MS = 1500
"""The smallest offset of a clock. A controller says what time it is in whole seconds."""


class ClockParameters(Frozen):
    """`offset_ms`: how far the clock is off at once; a negative value sets it back. `drift_ppm`: what it gains from
    then on, in microseconds per second; a negative value makes it lose. Give at least one of them, and enough to be
    seen."""

    offset_ms: float = Field(default=0.0, ge=-OFFSET_MAX_MS, le=OFFSET_MAX_MS)
    drift_ppm: float = Field(default=0.0, ge=-DRIFT_MAX_PPM, le=DRIFT_MAX_PPM)

    @model_validator(mode="after")
    def _is_seen(self) -> "ClockParameters":
        if abs(self.offset_ms) < OFFSET_LEAST_MS and abs(self.drift_ppm) < DRIFT_LEAST_PPM:
            raise ValueError(
                f"a clock must be off by at least {OFFSET_LEAST_MS} ms, or drift by {DRIFT_LEAST_PPM} ppm, to be seen to be"
            )
        return self


class ClockSkew(ImpairingFault[ClockParameters]):
    """The wall clock of a node jumps, stays off, or drifts, while the node runs.

    Kafka uses its wall clock for record timestamps (LogAppendTime), for retention, for the age of transactions and
    producer ids, for how long a follower has lagged (Partition.isFollowerOutOfSync), and to check the timestamps of
    clients. Sessions of brokers and groups go by the monotonic clock (System.nanoTime), which stays untouched.
    Histories are in CLOCK_MONOTONIC, too.

    The effect is that the JVM itself says another time.
    """

    name = "clock"
    nature = FaultNature(shifts_clock=True)
    needs = frozenset({Capability.SHIFT_CLOCK})
    parameters_model = ClockParameters
    observe_s = 20.0

    def impairments(self, context: FaultContext, parameters: ClockParameters) -> Sequence[tuple[Node, Impairment]]:
        for node in context.targets:
            if "zookeeper" in node.roles:
                raise TargetMissing(
                    f"{node.name} is a ZooKeeper server, and the recorded times go by its clock. Name brokers."
                )
            if "controller" in node.roles and (parameters.drift_ppm or abs(parameters.offset_ms) < CONTROLLER_LEAST_MS):
                raise TargetMissing(
                    f"{node.name} is a controller, and the times of leaders and replicas come from its clock. Move it by "
                    f"{CONTROLLER_LEAST_MS} ms or more and without drift, so that prozess can distinguish these times."
                )
        shift = ClockShift(offset_ms=parameters.offset_ms, drift_ppm=parameters.drift_ppm)
        return [(node, shift) for node in context.targets]
