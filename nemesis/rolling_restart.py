"""rolling-restart: each server in turn ends and starts again, as when a new version or configuration is rolled out.

With `wait = "isr"` the next one ends only when all replicas are in sync again, as Kafka's documentation asks of a rolling
upgrade; without, a partition loses one copy after the other faster than they come back.
"""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from harness.configuration import Frozen
from harness.processes import ProcessIdentity, identify
from harness.protocols import Capability, Effect, Node, NodeState, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import Seen, Watch, observe
from nemesis.recovery import await_unfenced, await_whole_isr
from nemesis.targets import TargetMissing

Identity = tuple[int | None, ProcessIdentity | None]


class RollingRestartParameters(Frozen):
    """`how`: "stop" in order (SIGTERM), or "kill". `away_s`: from the end of a process until its successor starts. `wait`:
    what is awaited before the next one's turn: "isr" (unfenced, and every ISR whole), "unfenced", or "none". `order`:
    "seed" draws it (`seed`: None = the plan's), "named" is that of the targets. `timeout_s`: of the end of one, and of each
    wait."""

    how: Literal["stop", "kill"] = "stop"
    away_s: NonNegativeFloat = 0.0
    wait: Literal["isr", "unfenced", "none"] = "isr"
    order: Literal["seed", "named"] = "seed"
    seed: str | int | None = None
    timeout_s: PositiveFloat = 60.0


class RollingRestart:
    """The effect is that every node has a new process (another pid or start time), and that it runs."""

    name = "rolling-restart"
    needs = frozenset({Capability.KILL, Capability.STOP})
    parameters_model: type[RollingRestartParameters] = RollingRestartParameters
    role_parameters: frozenset[str] = frozenset()
    ends_itself = True

    def __init__(self) -> None:
        self._before: dict[str, Identity] = {}

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """Start whoever is down. TargetMissing if one does not run: another fault holds it."""
        for node in scene.targets:
            if (state := node.state()) is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be restarted: its process is {state}.")
        return [Undo(action="start", node=node.name) for node in scene.targets]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        self._before = {node.name: identity_of(node) for node in scene.targets}
        for node in in_order(scene.targets, parameters):
            if parameters["how"] == "kill":
                node.kill()
            else:
                node.stop(timeout_s=parameters["timeout_s"])
            if parameters["away_s"]:
                scene.clock.sleep(parameters["away_s"])
            self.start_again(node, parameters)
            await_back(node, scene, parameters)

    def start_again(self, node: Node, parameters: Mapping[str, Any]) -> None:
        """What is done with a node that is down."""
        node.start()

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return observe(
            [Watch(node.name, None, partial(_restarted, node, self._before[node.name])) for node in scene.targets],
            clock=scene.clock,
        )


def in_order(nodes: Sequence[Node], parameters: Mapping[str, Any]) -> list[Node]:
    """Whose turn it is, first to last."""
    named = list(nodes)
    if parameters["order"] == "seed":
        random.Random(str(parameters["seed"])).shuffle(named)
    return named


def identity_of(node: Node) -> Identity:
    """What tells a process from its successor: where the pid can be looked up here, its start time too."""
    pid = node.os_pid
    return pid, None if pid is None else identify(pid)


def await_back(node: Node, scene: Scene, parameters: Mapping[str, Any]) -> None:
    """As `wait` of the parameters says."""
    if parameters["wait"] != "none":
        await_unfenced(scene, node, timeout_s=parameters["timeout_s"])
    if parameters["wait"] == "isr":
        await_whole_isr(scene, timeout_s=parameters["timeout_s"])


def _restarted(node: Node, before: Identity) -> Seen:
    now = identity_of(node)
    if (state := node.state()) is not NodeState.RUNNING:
        return Tristate.NO, f"its process is {state}"
    if now == before:
        return Tristate.NO, f"it is the same process still, pid {now[0]}"
    return Tristate.YES, f"process {before[0]} gave way to {now[0]}"
