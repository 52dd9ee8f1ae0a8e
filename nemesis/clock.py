"""clock: the wall clock of a node jumps, stays off, or drifts, while it runs.

Kafka takes its wall clock for record timestamps (LogAppendTime), for retention, for how old transactions and producer ids
are, for how long a follower has lagged (Partition.isFollowerOutOfSync) and for checking clients' timestamps; sessions of
brokers and groups go by the monotonic clock (System.nanoTime), which is not touched. Histories are in CLOCK_MONOTONIC too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from harness.configuration import Frozen
from harness.impairments import ClockShift, Impairment
from harness.protocols import Capability, Node, Scene
from nemesis.impair import ImpairingFault
from nemesis.targets import TargetMissing

OFFSET_MAX_MS = 3.2e12
"""A hundred years."""
DRIFT_MAX_PPM = 500_000
DRIFT_LEAST_PPM = 1000
"""A millisecond per second: what a probe sees within its limit."""
CONTROLLER_LEAST_MS = 600_000
"""More than such a fault lasts (`clusters.stamps`)."""
OFFSET_LEAST_MS = 1500
"""A controller says what time it is in seconds."""


class ClockParameters(Frozen):
    """`offset_ms`: by how much it is off at once (negative: behind). `drift_ppm`: what it gains from then on, microseconds
    per second (negative: loses). At least one of them, and big enough to be seen."""

    offset_ms: float = Field(default=0.0, ge=-OFFSET_MAX_MS, le=OFFSET_MAX_MS)
    drift_ppm: float = Field(default=0.0, ge=-DRIFT_MAX_PPM, le=DRIFT_MAX_PPM)

    @model_validator(mode="after")
    def _is_seen(self) -> "ClockParameters":
        if abs(self.offset_ms) < OFFSET_LEAST_MS and abs(self.drift_ppm) < DRIFT_LEAST_PPM:
            raise ValueError(
                f"a clock must be off by at least {OFFSET_LEAST_MS} ms, or drift by {DRIFT_LEAST_PPM} ppm, to be seen to be"
            )
        return self


class Clock(ImpairingFault):
    """The effect is that the JVM itself says another time."""

    name = "clock"
    needs = frozenset({Capability.SHIFT_CLOCK})
    parameters_model = ClockParameters
    observe_s = 20.0

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        for node in scene.targets:
            if "zookeeper" in node.roles:
                raise TargetMissing(
                    f"{node.name} is a ZooKeeper server: the times of all that is known go by its clock."
                )
            if "controller" in node.roles and (
                parameters["drift_ppm"] or abs(parameters["offset_ms"]) < CONTROLLER_LEAST_MS
            ):
                raise TargetMissing(
                    f"{node.name} is a controller, which stamps what is known of leaders and replicas: for these times to be "
                    f"told apart its clock may be off by {CONTROLLER_LEAST_MS} ms or more, and not drift."
                )
        shift = ClockShift(offset_ms=parameters["offset_ms"], drift_ppm=parameters["drift_ppm"])
        return [(node, shift) for node in scene.targets]
