"""partition: what one side sends no longer reaches the other, both ways or one way; or a shape of several cuts.

An idle partition's ISR does not shrink, however long its replicas are cut apart: with equal log ends a follower is in sync.
Traffic makes a cut visible to Kafka.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.configuration import Frozen
from harness.impairments import CLIENTS, ClientCut
from harness.protocols import Capability, Effect, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import Seen, Watch, observe
from nemesis.shapes import SHAPES, Cut, Shape, halves, isolated, open_ways
from nemesis.sides import AnySide, capabilities_for, names_of
from nemesis.targets import TargetMissing

Direction = Literal["both", "to-targets", "from-targets"]


class PartitionParameters(Frozen):
    """Of the step's `targets` on one side, `others` on the other; or of the targets among themselves."""

    shape: Literal["sides", "isolate", "halves", "bridge", "ring"] = "sides"
    """`sides`: targets and others; `isolate`: each target from every other node; the rest are of the targets among
    themselves, drawn by the seed (`nemesis.shapes`), and leave everybody else connected to all of them."""
    others: AnySide = None
    """Of `sides`: `all` other nodes (the default), or what `nemesis.sides.Side` says."""
    direction: Direction = Field(default="both")
    """Of `sides`: `both`; `to-targets`: nothing the others send reaches the targets; `from-targets`: the reverse."""
    by: Literal["count", "rack"] = "count"
    """Of `halves`: of equal size, or of whole racks."""
    seed: str | int | None = None
    """Of what is drawn; None: the plan's and the step's name."""

    @model_validator(mode="before")
    @classmethod
    def _consistent(cls, given: Any) -> Any:  # noqa: ANN401 - whatever a trial says
        if not isinstance(given, Mapping):
            return given
        shape, others = given.get("shape", "sides"), given.get("others")
        if shape == "sides":
            return {**given, "others": "all" if others is None else others}
        if others is not None or given.get("direction", "both") != "both":
            raise ValueError(
                f'shape = "{shape}" is of the targets alone, both ways; others and direction are for "sides"'
            )
        return given


def cuts(targets: Sequence[str], others: Sequence[str], direction: Direction) -> list[Cut]:
    """(receiver, source) of every one-way cut between two sides: nothing that source sends reaches receiver."""
    inward = [(target, other) for target in targets for other in others]
    outward = [(other, target) for target in targets for other in others]
    return {"both": inward + outward, "to-targets": inward, "from-targets": outward}[direction]


class Partition:
    """Drops packets between nodes. Parameters: `PartitionParameters`, with `others` resolved to names of nodes.

    The effect, per cut direction, is that a datagram really does not arrive. What is to stay open (the other way of a one-way
    cut, the rest of a drawn shape) must be open: where it is not, the fault was not the one asked for, and its effect is not
    known.
    """

    name = "partition"
    needs = frozenset({Capability.BLOCK})
    parameters_model = PartitionParameters
    role_parameters = frozenset({"others"})

    def spares(self, parameters: Mapping[str, Any]) -> frozenset[Capability]:
        """What it needs otherwise, but not with these parameters: only links of clients are cut."""
        only_clients = parameters.get("others") in (CLIENTS, [CLIENTS], (CLIENTS,))
        return frozenset({Capability.BLOCK}) if only_clients else frozenset()

    def needs_for(self, parameters: Mapping[str, Any]) -> frozenset[Capability]:
        """What else it needs with these parameters."""
        return capabilities_for(PartitionParameters.model_validate(dict(parameters)).others)

    def drawn(self, scene: Scene, parameters: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
        """What the seed decides, for the record of the run: part of the shape → nodes."""
        return self._shape(scene, parameters).parts

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        return [
            Undo.of("repair", node, CLIENTS, **client_cut.model_dump(mode="json"))
            if client_cut is not None
            else Undo(action="unblock", node=node, peer=source)
            for node, source, client_cut in map(_placed, self._shape(scene, parameters).cuts)
        ]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        for node, source, client_cut in map(_placed, self._shape(scene, parameters).cuts):
            if client_cut is not None:
                scene.node(node).impair(client_cut)
            else:
                scene.node(node).block(scene.node(source))

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        edges = self._shape(scene, parameters).cuts
        effects = observe([_watch_cut(scene, *edge) for edge in edges], clock=scene.clock)
        checked = PartitionParameters.model_validate(parameters)
        if checked.shape == "sides" and checked.direction != "both":
            ways = [(source, receiver) for receiver, source in edges]
            open_effects = observe([_watch_open(scene, *way) for way in ways], clock=scene.clock)
            return [_one_way(cut, way) for cut, way in zip(effects, open_effects, strict=True)]
        if checked.shape in SHAPES:
            ways = open_ways([node.name for node in scene.targets], edges)
            open_effects = observe([_watch_open(scene, *way) for way in ways], clock=scene.clock)
            return _whole_shape(effects, open_effects)
        return effects

    def _shape(self, scene: Scene, parameters: Mapping[str, Any]) -> Shape:
        checked = PartitionParameters.model_validate(parameters)
        targets = [node.name for node in scene.targets]
        if checked.shape == "sides":
            return Shape(tuple(cuts(targets, names_of(checked.others), checked.direction)), {})
        if checked.shape == "isolate":
            return Shape(tuple(isolated(targets, [n.name for n in scene.cluster.nodes if n.roles])), {})
        rng = random.Random(str(checked.seed))
        try:
            if checked.by == "rack":
                return halves(targets, rng, scene.racks)
            return SHAPES[checked.shape](targets, rng)
        except ValueError as error:
            raise TargetMissing(f"{error}.") from error


def _placed(cut: Cut) -> tuple[str, str, ClientCut | None]:
    """(node that is told, source, how its clients are cut off): clients are no node, so what they do not hear is cut at the
    node they would hear."""
    receiver, source = cut
    if source == CLIENTS:
        return receiver, source, ClientCut(way="to-node")
    if receiver == CLIENTS:
        return source, receiver, ClientCut(way="from-node")
    return receiver, source, None


def _watch_cut(scene: Scene, receiver: str, source: str) -> Watch:
    node, peer, client_cut = _placed((receiver, source))

    def probe() -> Seen:
        if client_cut is not None:
            return scene.node(node).impaired(client_cut)
        arrives = scene.node(receiver).receives_from(scene.node(source))
        return {
            Tristate.NO: (Tristate.YES, "datagrams do not arrive"),
            Tristate.YES: (Tristate.NO, "datagrams still arrive"),
            Tristate.UNKNOWN: (Tristate.UNKNOWN, "whether datagrams arrive could not be seen"),
        }[arrives]

    return Watch(node, peer, probe)


def _watch_open(scene: Scene, receiver: str, source: str) -> Watch:
    node, peer, client_cut = _placed((receiver, source))

    def probe() -> Seen:
        if client_cut is None:
            return scene.node(receiver).receives_from(scene.node(source)), ""
        closed, seen = scene.node(node).impaired(client_cut)
        return {Tristate.YES: Tristate.NO, Tristate.NO: Tristate.YES}.get(closed, closed), seen

    return Watch(node, peer, probe)


def _one_way(cut: Effect, other_way: Effect) -> Effect:
    if cut.effect is not Tristate.YES or other_way.effect is Tristate.YES:
        return cut
    seen = "is cut as well" if other_way.effect is Tristate.NO else "could not be seen"
    return _doubted(cut, f"but the other way {seen}: not a one-way cut")


def _whole_shape(cut_effects: Sequence[Effect], open_effects: Sequence[Effect]) -> list[Effect]:
    closed = [f"{e.peer} to {e.node}" for e in open_effects if e.effect is not Tristate.YES]
    if not closed:
        return list(cut_effects)
    return [
        _doubted(cut, f"but the way from {closed[0]} is not open: another shape") if cut.effect is Tristate.YES else cut
        for cut in cut_effects
    ]


def _doubted(effect: Effect, why: str) -> Effect:
    return effect.model_copy(update={"effect": Tristate.UNKNOWN, "detail": f"{effect.detail}, {why}"})
