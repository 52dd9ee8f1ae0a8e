"""partition: what one side sends no longer reaches the other, both ways or one way.

An idle partition's ISR does not shrink, however long its replicas are cut apart: with equal log ends a follower is in sync.
Traffic makes a cut visible to Kafka.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from harness.configuration import Frozen
from harness.protocols import Capability, Effect, Scene, Undo
from harness.schedule import parse_target
from harness.schema import Tristate
from nemesis.effects import Seen, Watch, observe
from nemesis.targets import is_role

SIDES = ("all", "brokers", "controllers", "zookeepers", "followers")
Direction = Literal["both", "to-targets", "from-targets"]


def _side(value: object) -> object:
    if isinstance(value, str):
        if value not in SIDES:
            raise ValueError(f"it must be one of {', '.join(SIDES)}, or a list of roles and names of nodes")
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError(f"it must be one of {', '.join(SIDES)}, or a list, not empty, of roles and names of nodes")
    for text in value:
        if is_role(text):
            parse_target(text)
    return tuple(value)


class PartitionParameters(Frozen):
    """Of the step's `targets` on one side, `others` on the other."""

    others: Annotated[str | tuple[str, ...], BeforeValidator(_side)] = "all"
    """`all` other nodes, `brokers`, `controllers`, `zookeepers`, `followers` (of the partitions the targets name), or a list
    of roles and names of nodes. Targets are never on the other side."""
    direction: Direction = Field(default="both")
    """`both`; `to-targets`: nothing the others send reaches the targets; `from-targets`: the reverse."""


def cuts(targets: Sequence[str], others: Sequence[str], direction: Direction) -> list[tuple[str, str]]:
    """(receiver, source) of every one-way cut between two sides: nothing that source sends reaches receiver."""
    inward = [(target, other) for target in targets for other in others]
    outward = [(other, target) for target in targets for other in others]
    return {"both": inward + outward, "to-targets": inward, "from-targets": outward}[direction]


class Partition:
    """Drops packets between two sides. Parameters: `PartitionParameters`, with `others` resolved to names of nodes.

    The effect, per cut direction, is that a datagram really does not arrive. A one-way cut must also leave the other way
    open: where it does not, the fault was not the one asked for, and its effect is not known.
    """

    name = "partition"
    needs = frozenset({Capability.BLOCK})
    parameters_model = PartitionParameters
    role_parameters = frozenset({"others"})

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        return [
            Undo(action="unblock", node=receiver, peer=source) for receiver, source in self._cuts(scene, parameters)
        ]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for receiver, source in self._cuts(scene, parameters):
            scene.node(receiver).block(scene.node(source))

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        edges = self._cuts(scene, parameters)
        effects = observe([_watch_cut(scene, *edge) for edge in edges], clock=scene.clock)
        if PartitionParameters.model_validate(parameters).direction == "both":
            return effects
        open_ways = observe([_watch_open(scene, source, receiver) for receiver, source in edges], clock=scene.clock)
        return [_one_way(cut, way) for cut, way in zip(effects, open_ways, strict=True)]

    def _cuts(self, scene: Scene, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        checked = PartitionParameters.model_validate(parameters)
        assert not isinstance(checked.others, str), "the nemesis resolves `others` to names before it strikes"
        return cuts([node.name for node in scene.targets], checked.others, checked.direction)


def _watch_cut(scene: Scene, receiver: str, source: str) -> Watch:
    def probe() -> Seen:
        arrives = scene.node(receiver).receives_from(scene.node(source))
        return {
            Tristate.NO: (Tristate.YES, "datagrams do not arrive"),
            Tristate.YES: (Tristate.NO, "datagrams still arrive"),
            Tristate.UNKNOWN: (Tristate.UNKNOWN, "whether datagrams arrive could not be seen"),
        }[arrives]

    return Watch(receiver, source, probe)


def _watch_open(scene: Scene, receiver: str, source: str) -> Watch:
    def probe() -> Seen:
        return scene.node(receiver).receives_from(scene.node(source)), ""

    return Watch(receiver, source, probe)


def _one_way(cut: Effect, other_way: Effect) -> Effect:
    if cut.effect is not Tristate.YES or other_way.effect is Tristate.YES:
        return cut
    seen = "is cut as well" if other_way.effect is Tristate.NO else "could not be seen"
    return cut.model_copy(
        update={"effect": Tristate.UNKNOWN, "detail": f"{cut.detail}, but the other way {seen}: not a one-way cut"}
    )
