"""reset: open connections of the targets end with an RST, as by a firewall that restarted. Clients and brokers open new ones;
what was under way on the old ones may have been carried out or not."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import Harm, ResetConnections
from harness.protocols import Capability, Effect, Scene
from harness.schema import Tristate
from nemesis.repeated_harm import Link, RepeatedHarm
from nemesis.sides import AnySide, names_of


class ResetParameters(Frozen):
    """How often, and with whom."""

    others: AnySide = None
    """Connections with whom; None: with everybody, clients too."""
    times: int = Field(default=1, ge=1, le=1000)
    every_s: float = Field(default=1.0, gt=0, le=60)
    """Between one round and the next."""


class Reset(RepeatedHarm):
    """The effect is that connections which were open are gone at both ends. It is over at once."""

    name = "reset"
    needs = frozenset({Capability.RESET})
    parameters_model = ResetParameters
    later_may_fail = True
    """The next connection may not be there yet."""

    def links(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Link]:
        others = names_of(parameters["others"]) or (None,)
        return [(node.name, peer) for node in scene.targets for peer in others]

    def harm(self, peer: str | None, parameters: Mapping[str, Any]) -> Harm:
        return ResetConnections(peer=peer)

    def seen(self, node: str, peer: str | None, done: Sequence[str]) -> Effect:
        detail = f"{done[0]}; {len(done)} rounds" if done else "nothing was seen of it"
        return Effect(node=node, peer=peer, effect=Tristate.YES if done else Tristate.UNKNOWN, detail=detail)
