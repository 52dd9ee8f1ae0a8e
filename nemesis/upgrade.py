"""upgrade: each server in turn is shut down and started again with another version of Kafka, which stays.

As Kafka's documentation has it ("Upgrading"): one server after the other, waiting until its copies are in sync again. Data
and properties are those that it had. What the new version can do besides is for `finalize-features`, once all have it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.impairments import Install
from harness.protocols import Capability, Effect, Node, Scene
from nemesis.rolling_restart import RollingRestart, RollingRestartParameters


class UpgradeParameters(RollingRestartParameters):
    """`version`: of Kafka, such as 4.3.1; the rest as for a rolling restart."""

    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    timeout_s: float = Field(default=120.0, gt=0)


class Upgrade(RollingRestart):
    """The effect is that every node has a new process, started from that version, and that it runs."""

    name = "upgrade"
    needs = frozenset({Capability.KILL, Capability.STOP, Capability.INSTALL})
    parameters_model = UpgradeParameters

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[str, str] = {}

    def start_again(self, node: Node, parameters: Mapping[str, Any]) -> None:
        self._done[node.name] = node.harm(Install(version=parameters["version"]))

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        seen = super().verify(scene, parameters)
        return [
            e.model_copy(update={"detail": f"{e.detail}; {self._done.get(e.node, 'no version seen')}"}) for e in seen
        ]
