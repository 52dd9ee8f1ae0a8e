"""late-connections: connections that are open are late all at once, those that are made instead are not. So a request that
its client has given up, and sent again, arrives after the second one has long been answered.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import CLIENTS, DelayOpen
from harness.protocols import Capability, Effect, Scene, Undo
from harness.schema import Tristate
from nemesis.sides import Side, names_of

BEYOND_S = 1.0
"""So much longer than they are late connections stay late, that what was sent at first may arrive."""


class LateConnectionsParameters(Frozen):
    """`latency_ms`: each way, without variation. `others`: whose connections to the targets. `times`, and `every_s` between
    them: each time connections are made anew first."""

    latency_ms: int = Field(gt=0, le=60_000)
    others: Side = CLIENTS
    times: int = Field(default=1, ge=1, le=100)
    every_s: float = Field(default=1.0, ge=0, le=60)


class LateConnections:
    """The effect is that an answer on one of them comes as late as it must. It is over when it returns."""

    name = "late-connections"
    needs = frozenset({Capability.DELAY})
    parameters_model = LateConnectionsParameters
    role_parameters = frozenset({"others"})
    ends_itself = True

    def __init__(self) -> None:
        self._done: dict[tuple[str, str], list[str]] = {}

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """There is nothing left to undo: whoever makes connections late takes that back."""
        return [Undo(action="nothing", node=node, peer=peer) for node, peer in _links(scene, parameters)]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        checked = LateConnectionsParameters.model_validate(dict(parameters))
        lasts_s = checked.latency_ms / 1000 + BEYOND_S
        for number in range(checked.times):
            if number:
                scene.clock.sleep(checked.every_s)
            for node, peer in _links(scene, parameters):
                harm = DelayOpen(peer=peer, latency_ms=checked.latency_ms, lasts_s=lasts_s)
                self._done.setdefault((node, peer), []).append(scene.node(node).harm(harm))

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return [self._seen(node, peer) for node, peer in _links(scene, parameters)]

    def _seen(self, node: str, peer: str) -> Effect:
        done = self._done.get((node, peer), [])
        detail = f"{len(done)} times, the last: {done[-1]}" if done else "nothing was late"
        return Effect(node=node, peer=peer, effect=Tristate.YES if done else Tristate.NO, detail=detail)


def _links(scene: Scene, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(who is called, who calls), each once."""
    others = names_of(LateConnectionsParameters.model_validate(dict(parameters)).others)
    return [(node.name, other) for node in scene.targets for other in others if other != node.name]
