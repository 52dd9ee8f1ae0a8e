"""What faults share that impair nodes for a time: a fault of this kind says which impairment each target gets."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from harness.impairments import Impairment
from harness.protocols import Capability, Effect, Node, Scene, Undo
from nemesis.effects import OBSERVE_S, Watch, observe


class ImpairingFault:
    """A fault whose targets are impaired until it is healed; `name`, `needs`, `parameters_model` and `impairments` are its
    own."""

    name: str
    needs: frozenset[Capability]
    role_parameters: frozenset[str] = frozenset()
    observe_s: float = OBSERVE_S
    """How long the effect may take to be seen."""

    def impairments(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[tuple[Node, Impairment]]:
        """(node, how it is impaired). TargetMissing if one cannot be now. Touches nothing."""
        raise NotImplementedError

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        return [
            Undo.of("repair", node.name, peer_of(impairment), **impairment.model_dump(mode="json"))
            for node, impairment in self.impairments(scene, parameters)
        ]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for node, impairment in self.impairments(scene, parameters):
            node.impair(impairment)

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        watches = [
            Watch(node.name, peer_of(impairment), partial(node.impaired, impairment))
            for node, impairment in self.impairments(scene, parameters)
        ]
        return observe(watches, clock=scene.clock, timeout_s=self.observe_s)


def peer_of(impairment: Impairment) -> str | None:
    """The other end of the link, if it is about one."""
    found = getattr(impairment, "peer", None) or getattr(impairment, "source", None)
    return str(found) if found else None
