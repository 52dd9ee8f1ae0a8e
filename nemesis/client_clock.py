"""client-clock: the wall clock of a producer's process jumps, stays off, or drifts, while it runs.

A client takes its wall clock for CreateTime, by which Kafka retains, rolls and looks up by time; librdkafka's timeouts
and retries go by the monotonic clock, and so does the history. What is far ahead is refused
(`message.timestamp.after.max.ms`, one hour), so a clock may be off by less than that, and retention by default, a week,
does not see it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from harness import catalogue
from harness.configuration import Frozen
from harness.impairments import ClockShift, Impairment
from harness.protocols import Capability, Node, Scene
from nemesis.client_places import places_of
from nemesis.impair import ImpairingFault
from nemesis.targets import TargetMissing

OFFSET_MAX_MS = 3_000_000
OFFSET_LEAST_MS = 10_000
"""A record may be seconds old when it is seen."""
DRIFT_MAX_PPM = 500_000
DRIFT_LEAST_PPM = 200_000
STAMPING = ("producer", "keyed-producer", "text-producer", "transactor")


class ClientClockParameters(Frozen):
    """`offset_ms`: by how much it is off at once (negative: behind). `drift_ppm`: what it gains from then on, microseconds
    per second (negative: loses). At least one of them, and big enough to be seen in records."""

    offset_ms: float = Field(default=0.0, ge=-OFFSET_MAX_MS, le=OFFSET_MAX_MS)
    drift_ppm: float = Field(default=0.0, ge=-DRIFT_MAX_PPM, le=DRIFT_MAX_PPM)

    @model_validator(mode="after")
    def _is_seen(self) -> "ClientClockParameters":
        if abs(self.offset_ms) < OFFSET_LEAST_MS and abs(self.drift_ppm) < DRIFT_LEAST_PPM:
            raise ValueError(
                f"a client's clock must be off by at least {OFFSET_LEAST_MS} ms, or drift by {DRIFT_LEAST_PPM} ppm, for its "
                "records to show it"
            )
        return self


class ClientClock(ImpairingFault):
    """The effect is that records which it writes from now on are stamped with another time."""

    name = "client-clock"
    needs: frozenset[Capability] = frozenset()
    of_clients = True
    parameters_model = ClientClockParameters
    observe_s = 30.0

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Sequence[str]) -> str | None:
        """Why it cannot be made here; None if it can."""
        support = catalogue.service("client-shim")()
        return None if support.path is not None else f"clocks of clients cannot be moved here: {support.reason}"

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        places = places_of(scene.targets, fault=self.name)
        for place in places:
            if place.client_role not in STAMPING:
                raise TargetMissing(f"{place.name} stamps no records of its own: nobody could see its clock.")
        shift = ClockShift(offset_ms=parameters["offset_ms"], drift_ppm=parameters["drift_ppm"])
        return [(place, shift) for place in places]
