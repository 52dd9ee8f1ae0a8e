"""What faults share that do a harm to links in rounds, and are over when they return."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import HarnessFailed
from harness.impairments import Harm
from harness.protocols import Capability, Effect, Scene, Undo

Link = tuple[str, str | None]
"""(node, peer); None: every peer."""


class RepeatedHarm:
    """A fault with the parameters `times`, and `every_s` between one round and the next; `name`, `needs`, `parameters_model`,
    `links`, `harm` and `seen` are its own."""

    name: str
    needs: frozenset[Capability]
    role_parameters = frozenset({"others"})
    ends_itself = True
    later_may_fail = False
    """May there be nothing to harm in a round after the first?"""

    def __init__(self) -> None:
        self._done: dict[Link, list[str]] = {}

    def links(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Link]:
        """Which are harmed, each once a round."""
        raise NotImplementedError

    def harm(self, peer: str | None, parameters: Mapping[str, Any]) -> Harm:
        """What is done to the link with that peer."""
        raise NotImplementedError

    def seen(self, node: str, peer: str | None, done: Sequence[str]) -> Effect:
        """The effect; `done`: what the node said of each round that did not fail."""
        raise NotImplementedError

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """There is nothing left to undo: whoever does the harm takes it back."""
        return [Undo(action="nothing", node=node, peer=peer) for node, peer in self.links(scene, parameters)]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        """HarnessFailed if there is nothing to harm: in the first round always, in another unless `later_may_fail`."""
        for number in range(parameters["times"]):
            if number:
                scene.clock.sleep(parameters["every_s"])
            for node, peer in self.links(scene, parameters):
                try:
                    done = scene.node(node).harm(self.harm(peer, parameters))
                except HarnessFailed:
                    if number and self.later_may_fail:
                        continue
                    raise
                self._done.setdefault((node, peer), []).append(done)

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return [self.seen(node, peer, self._done.get((node, peer), [])) for node, peer in self.links(scene, parameters)]
