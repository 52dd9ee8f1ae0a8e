"""What faults share that harm nodes once: there is nothing to take back but a process that ended.

What was done is seen by whoever does it (`Node.harm`), at the only moment at which it can be.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.impairments import Harm
from harness.protocols import Capability, Effect, Node, NodeState, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import observe, watch_state


class HarmingFault:
    """A fault whose targets are harmed at once, all of them at one time, and are down until it is healed. `name`, `needs`,
    `parameters_model`, `check` and `harm` are its own."""

    name: str
    needs: frozenset[Capability]
    role_parameters: frozenset[str] = frozenset()
    kills_first: bool = True
    """The harm is for nodes that are down."""

    def __init__(self) -> None:
        self._done: dict[str, str] = {}

    def harm(self, scene: Scene, node: Node, parameters: Mapping[str, Any]) -> Harm:
        """What is done to that node."""
        raise NotImplementedError

    def starts(self, parameters: Mapping[str, Any]) -> bool:
        """Is the node started again at once, to see what it makes of it?"""
        return False

    def check(self, scene: Scene, node: Node) -> None:
        """TargetMissing if it cannot be done to that node now. Touches nothing."""

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        for node in scene.targets:
            self.check(scene, node)
        return [Undo(action="start", node=node.name) for node in scene.targets]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        def strike(node: Node) -> str:
            if self.kills_first:
                node.kill()
            said = node.harm(self.harm(scene, node, parameters))
            if self.starts(parameters):
                node.start()
            return said

        with ThreadPoolExecutor(len(scene.targets), thread_name_prefix=self.name) as pool:
            done = [(node.name, pool.submit(strike, node)) for node in scene.targets]
        self._done = {name: future.result() for name, future in done}

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        if self.starts(parameters):
            return [Effect(node=name, effect=Tristate.YES, detail=said) for name, said in self._done.items()]
        watches = [watch_state(node, NodeState.STOPPED, seen=self._done.get(node.name, "")) for node in scene.targets]
        return [
            effect if effect.detail or effect.effect is not Tristate.YES else _unseen(effect)
            for effect in observe(watches, clock=scene.clock)
        ]


def _unseen(effect: Effect) -> Effect:
    return effect.model_copy(
        update={"effect": Tristate.UNKNOWN, "detail": "the process is gone, and nothing else seen"}
    )
