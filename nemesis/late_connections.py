"""late-connections: connections that are open are late all at once, those that are made instead are not. So a request that
its client has given up, and sent again, arrives after the second one has long been answered.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from harness.configuration import Frozen
from harness.impairments import CLIENTS, DelayOpen, Harm
from harness.protocols import Capability, Effect, Scene
from harness.schema import Tristate
from nemesis.repeated_harm import Link, RepeatedHarm
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


class LateConnections(RepeatedHarm):
    """The effect is that an answer on one of them comes as late as it must. It is over when it returns."""

    name = "late-connections"
    needs = frozenset({Capability.DELAY})
    parameters_model = LateConnectionsParameters

    def links(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Link]:
        """(who is called, who calls)"""
        others = names_of(parameters["others"])
        return [(node.name, other) for node in scene.targets for other in others if other != node.name]

    def harm(self, peer: str | None, parameters: Mapping[str, Any]) -> Harm:
        assert peer is not None
        latency_ms = parameters["latency_ms"]
        return DelayOpen(peer=peer, latency_ms=latency_ms, lasts_s=latency_ms / 1000 + BEYOND_S)

    def seen(self, node: str, peer: str | None, done: Sequence[str]) -> Effect:
        detail = f"{len(done)} times, the last: {done[-1]}" if done else "nothing was late"
        return Effect(node=node, peer=peer, effect=Tristate.YES if done else Tristate.NO, detail=detail)
