"""latency: what passes between the targets and others is late, on every connection, whoever opened it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field, model_validator

from harness.configuration import Frozen
from harness.impairments import CLIENTS, Impairment, Latency
from harness.protocols import Capability, Node, Scene
from nemesis.impair import ImpairingFault
from nemesis.sides import Side, names_of


class LatencyParameters(Frozen):
    """How late, each way: an answer is late by twice that."""

    latency_ms: int = Field(gt=0, le=300_000)
    jitter_ms: int = Field(default=0, ge=0, le=300_000)
    """Drawn for every piece of a stream, uniformly from ± this, and no more than it is late."""
    back_ms: int | None = Field(default=None, ge=0, le=300_000)
    """How late what the targets send is, if that differs from what is sent to them."""
    others: Side = "all"
    """Who is at the other end of the links."""

    @model_validator(mode="after")
    def _positive(self) -> "LatencyParameters":
        if self.jitter_ms >= self.latency_ms:
            raise ValueError(f"jitter_ms = {self.jitter_ms} must be less than latency_ms = {self.latency_ms}")
        return self


class DelayLinks(ImpairingFault):
    """The effect is that a server's answer takes as long as it must. Connections that were open are made again."""

    name = "latency"
    needs = frozenset({Capability.DELAY})
    parameters_model = LatencyParameters
    role_parameters = frozenset({"others"})
    observe_s = 60.0

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        checked = LatencyParameters.model_validate(parameters)

        there, back = checked.latency_ms, checked.back_ms
        late = partial(Latency, jitter_ms=checked.jitter_ms)

        found: list[tuple[Node, Impairment]] = []
        for node in scene.targets:
            for other in names_of(checked.others):
                found.append((node, late(peer=other, latency_ms=there, back_ms=back)))
                if other != CLIENTS:  # who open connections, and take none
                    mirrored = (there, None) if back is None else (back, there)
                    found.append((scene.node(other), late(peer=node.name, latency_ms=mirrored[0], back_ms=mirrored[1])))
        return found
