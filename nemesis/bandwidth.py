"""bandwidth: what the targets send goes out at a low rate, to everybody or to each of some others."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from harness.configuration import Frozen
from harness.impairments import Bandwidth, Impairment
from harness.protocols import Capability, Node, Scene
from nemesis.impair import ImpairingFault
from nemesis.sides import AnySide, capabilities_for, names_of


class BandwidthParameters(Frozen):
    """The limit."""

    bytes_per_s: int = Field(ge=10_000, le=10_000_000)
    """Above, the machine is the limit; below, one packet takes a second."""
    others: AnySide = None
    """To whom, each at that rate; None: to everybody together."""
    back_bytes_per_s: int | None = Field(default=None, ge=10_000, le=10_000_000)
    """Of each of the others, to each target; None: no limit. What clients send has none."""

    @model_validator(mode="after")
    def _others_are_nodes(self) -> "BandwidthParameters":
        if self.back_bytes_per_s is not None and (self.others is None or capabilities_for(self.others)):
            raise ValueError(
                f"back_bytes_per_s = {self.back_bytes_per_s} limits what other nodes send: give `others`, without clients"
            )
        return self


class LimitBandwidth(ImpairingFault):
    """The effect is that a transfer of known size takes as long as it must."""

    name = "bandwidth"
    needs = frozenset({Capability.SHAPE})
    parameters_model = BandwidthParameters
    role_parameters = frozenset({"others"})
    observe_s = 20.0

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        checked = BandwidthParameters.model_validate(parameters)
        peers = names_of(checked.others) or (None,)
        found = [(n, Bandwidth(bytes_per_s=checked.bytes_per_s, peer=p)) for n in scene.targets for p in peers]
        if (back := checked.back_bytes_per_s) is not None:
            named = (peer for peer in peers if peer is not None)
            found += [(scene.node(p), Bandwidth(bytes_per_s=back, peer=n.name)) for p in named for n in scene.targets]
        return found
