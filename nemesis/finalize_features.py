"""finalize-features: what brokers of a new version can do besides is switched on for the whole cluster, as `kafka-features
upgrade` does once every server has that version (KIP-584, KIP-1022). It is not undone.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from harness.clock import wait_until
from harness.configuration import Frozen
from harness.protocols import Capability, Effect, Scene, Undo
from harness.schema import Tristate

SEEN_TIMEOUT_S = 30.0
"""Brokers learn of it by the metadata log."""


class FinalizeFeaturesParameters(Frozen):
    """`features`: name → level, or "latest", the highest that the brokers tell; raised one after the other, in this order.
    `timeout_s`: how long Kafka may take to accept each."""

    features: dict[str, Annotated[int, Field(ge=0)] | Literal["latest"]] = Field(
        default={"metadata.version": "latest"}, min_length=1
    )
    timeout_s: PositiveFloat = 30.0


class FinalizeFeatures:
    """The effect is that the brokers tell these levels. The target is only named: any broker hands it on."""

    name = "finalize-features"
    needs: frozenset[Capability] = frozenset()
    parameters_model = FinalizeFeaturesParameters
    role_parameters: frozenset[str] = frozenset()
    ends_itself = True

    def __init__(self) -> None:
        self._wanted: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """There is nothing to undo."""
        return [Undo(action="nothing", node=node.name) for node in scene.targets]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        checked = FinalizeFeaturesParameters.model_validate(dict(parameters))
        self._before = dict(scene.admin.features())
        highest = scene.admin.supported_features()
        for feature, level in checked.features.items():
            self._wanted[feature] = highest.get(feature, 0) if level == "latest" else level
            scene.admin.update_feature(feature, self._wanted[feature], timeout_s=checked.timeout_s)

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        def told() -> bool:
            now = scene.admin.features()
            return all(now.get(feature, 0) == level for feature, level in self._wanted.items())

        wait_until(
            told,
            awaited=f"brokers to tell the feature levels {self._wanted}",
            timeout_s=SEEN_TIMEOUT_S,
            clock=scene.clock,
            last_seen=lambda: str(dict(scene.admin.features())),
        )
        changes = ", ".join(f"{f} {self._before.get(f, 0)} → {level}" for f, level in self._wanted.items())
        return [Effect(node=node.name, effect=Tristate.YES, detail=changes) for node in scene.targets]
