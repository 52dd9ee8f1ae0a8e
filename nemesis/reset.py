"""reset: open connections of the targets end with an RST, as by a firewall that restarted. Clients and brokers open new ones;
what was under way on the old ones may have been carried out or not."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.errors import HarnessFailed
from harness.impairments import ResetConnections
from harness.protocols import Capability, Effect, Scene, Undo
from harness.schema import Tristate
from nemesis.sides import AnySide, names_of


class ResetParameters(Frozen):
    """How often, and with whom."""

    others: AnySide = None
    """Connections with whom; None: with everybody, clients too."""
    times: int = Field(default=1, ge=1, le=1000)
    every_s: float = Field(default=1.0, gt=0, le=60)
    """Between one round and the next."""


class Reset:
    """The effect is that connections which were open are gone at both ends. It is over at once."""

    name = "reset"
    needs = frozenset({Capability.RESET})
    parameters_model = ResetParameters
    role_parameters = frozenset({"others"})
    ends_itself = True

    def __init__(self) -> None:
        self._done: dict[tuple[str, str | None], list[str]] = {}

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        return [Undo(action="nothing", node=node, peer=peer) for node, peer in self._links(scene, parameters)]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        """HarnessFailed if there is nothing to reset in the first round; later the next connection may not be there yet."""
        checked = ResetParameters.model_validate(parameters)
        for number in range(checked.times):
            if number:
                scene.clock.sleep(checked.every_s)
            for node, peer in self._links(scene, parameters):
                try:
                    done = scene.node(node).harm(ResetConnections(peer=peer))
                except HarnessFailed:
                    if not number:
                        raise
                    continue
                self._done.setdefault((node, peer), []).append(done)

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return [self._seen(node, peer) for node, peer in self._links(scene, parameters)]

    def _seen(self, node: str, peer: str | None) -> Effect:
        rounds = self._done.get((node, peer), [])
        detail = f"{rounds[0]}; {len(rounds)} rounds" if rounds else "nothing was seen of it"
        return Effect(node=node, peer=peer, effect=Tristate(int(bool(rounds)) or -1), detail=detail)

    def _links(self, scene: Scene, parameters: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        others = names_of(ResetParameters.model_validate(parameters).others) or (None,)
        return [(node.name, peer) for node in scene.targets for peer in others]
