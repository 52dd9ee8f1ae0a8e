"""migrate: servers go one stage further on the way from ZooKeeper to KRaft (KIP-866), each in turn.

The documented order ("ZooKeeper to KRaft Migration"): the controllers are started, at the stage `migrating`; then brokers are
restarted at that stage, upon which the controllers take over and copy the metadata; then brokers at the stage `kraft`; and
last the controllers, which finalizes it. Until then the controllers write everything to ZooKeeper besides.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harness.clock import wait_until
from harness.impairments import Migrate as MigrateHarm
from harness.protocols import Capability, Effect, Node, NodeState, Scene, Undo
from nemesis.rolling_restart import RollingRestart, RollingRestartParameters, await_back, identity_of


class MigrateParameters(RollingRestartParameters):
    """`stage`: of the targets from then on; the rest as for a rolling restart."""

    stage: Literal["migrating", "kraft"]
    timeout_s: float = 120.0


class Migrate(RollingRestart):
    """The effect is that every node has a new process, that runs; and once all brokers migrate, that a controller has taken
    over in ZooKeeper."""

    name = "migrate"
    needs = frozenset({Capability.KILL, Capability.STOP, Capability.INSTALL})
    parameters_model = MigrateParameters

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[str, str] = {}

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """As for a rolling restart; controllers that never ran are started by it."""
        if _fresh(scene.targets):
            return [Undo(action="nothing", node=node.name) for node in scene.targets]
        return super().undos(scene, parameters)

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        if not _fresh(scene.targets):
            super().apply(scene, parameters)
        else:  # a quorum needs a majority: all of them, then each is awaited
            self._before = {node.name: identity_of(node) for node in scene.targets}
            for node in scene.targets:
                self.start_again(node, parameters)
            for node in scene.targets:
                await_back(node, scene, {**parameters, "wait": "unfenced"})
        if parameters["stage"] == "migrating" and all("broker" in node.roles for node in scene.targets):
            _await_takeover(scene, timeout_s=parameters["timeout_s"])

    def start_again(self, node: Node, parameters: Mapping[str, Any]) -> None:
        self._done[node.name] = node.harm(MigrateHarm(stage=parameters["stage"]))

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        seen = super().verify(scene, parameters)
        return [e.model_copy(update={"detail": f"{e.detail}; {self._done.get(e.node, 'nothing done')}"}) for e in seen]


def _fresh(nodes: Sequence[Node]) -> bool:
    """Controllers that wait for the migration?"""
    return all("controller" in node.roles and node.state() is NodeState.STOPPED for node in nodes)


def _await_takeover(scene: Scene, *, timeout_s: float) -> None:
    controllers = {node.node_id for node in scene.cluster.nodes if "controller" in node.roles}
    wait_until(
        lambda: scene.admin.active_controller() in controllers,
        awaited="a controller of the quorum to be named in ZooKeeper",
        timeout_s=timeout_s,
        clock=scene.clock,
        last_seen=lambda: f"it names {scene.admin.active_controller()}",
    )
