"""This module says what faults have in common: how an effect is observed, and base classes for faults that impair nodes
or harm them."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.impairments import Bandwidth, ClientCut, Harm, Impairment, Latency, Loss, MessageRule
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Effect, Fault, FaultContext, Node, NodeState, Undo
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen

OBSERVE_S = 10.0
"""The time limit of every observation. A signal or a rule acts within milliseconds; a machine without a free processor
needs seconds."""
INTERVAL_S = 0.05
THREADS_MAX = 8

Observation = tuple[Tristate, str]
"""The answer to whether something was observed, and what exactly was seen."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One thing to observe on one node, or between two nodes. `probe` looks once."""

    node: str
    peer: str | None
    probe: Callable[[], Observation]


def observe(watches: Sequence[Watch], *, clock: Clock, timeout_s: float = OBSERVE_S) -> list[Effect]:
    """Observes until each probe has returned YES, or until the limit. Returns one Effect per watch, in order, as it was last
    seen.

    A probe that fails is UNKNOWN, with its error as the detail: this is never evidence, either way. Each probe runs at
    least once, and once more after the limit, so that a slow machine is not taken for a fault without effect.
    """
    deadline_ns = clock.monotonic_ns() + int(timeout_s * NS_PER_S)
    effects: dict[int, Effect] = {}
    waiting = list(range(len(watches)))
    while True:
        late = clock.monotonic_ns() >= deadline_ns
        effects |= zip(waiting, _look_at([watches[index] for index in waiting]), strict=True)
        waiting = [index for index in waiting if effects[index].effect is not Tristate.YES]
        if not waiting or late:
            return [effects[index] for index in range(len(watches))]
        clock.sleep(INTERVAL_S)


def _look_at(watches: Sequence[Watch]) -> list[Effect]:
    """Asks all probes side by side. It takes time to see that something does not arrive, and there may be many
    links."""
    if len(watches) < 2:
        return [_look(watch) for watch in watches]
    with ThreadPoolExecutor(min(len(watches), THREADS_MAX), thread_name_prefix="look") as pool:
        return list(pool.map(_look, watches))


def _look(watch: Watch) -> Effect:
    try:
        effect, detail = watch.probe()
    except (HarnessFailed, OSError) as error:
        effect, detail = Tristate.UNKNOWN, f"could not be observed: {error}"
    return Effect(node=watch.node, peer=watch.peer, effect=effect, detail=detail)


def watch_state(node: Node, wanted: NodeState, *, seen: str) -> Watch:
    """Watches whether the node is in the `wanted` state. `seen` is what the state shows."""

    def probe() -> Observation:
        state = node.state()
        return (Tristate.YES, seen) if state is wanted else (Tristate.NO, f"the process is {state}")

    return Watch(node.name, None, probe)


# Parameters of faults, checked when a trial is planned, long before the fault strikes.


P = TypeVar("P", bound=Frozen)


class NoParameters(Frozen):
    """The parameters of a fault that takes none."""


# What faults share that impair nodes for a time: a fault of this kind says which impairment each target gets.


class ImpairingFault(Fault[P]):
    """A fault that impairs its targets until it is healed. A subclass has its own `name`, `needs`, `parameters_model`
    and `impairments`."""

    observe_s: float = OBSERVE_S
    """The effect must be seen within this time."""

    @abstractmethod
    def impairments(self, context: FaultContext, parameters: P) -> Sequence[tuple[Node, Impairment]]:
        """Returns (node, how it is impaired) for each target. TargetMissing if one cannot be impaired now. It changes
        nothing."""

    def undos(self, context: FaultContext, parameters: P) -> Sequence[Undo]:
        return [
            Undo.of("repair", node.name, peer_of(impairment), **impairment.model_dump(mode="json"))
            for node, impairment in self.impairments(context, parameters)
        ]

    def apply(self, context: FaultContext, parameters: P) -> None:
        for node, impairment in self.impairments(context, parameters):
            node.impair(impairment)

    def verify(self, context: FaultContext, parameters: P) -> Sequence[Effect]:
        watches = [
            Watch(node.name, peer_of(impairment), partial(node.impaired, impairment))
            for node, impairment in self.impairments(context, parameters)
        ]
        return observe(watches, clock=context.clock, timeout_s=self.observe_s)


def peer_of(impairment: Impairment) -> str | None:
    """Returns the other end of the link that an impairment is about; None if it is about no link."""
    match impairment:
        case ClientCut() | Bandwidth() | Latency() | MessageRule():
            return impairment.peer
        case Loss():
            return impairment.source
        case _:
            return None


# What faults share that harm nodes once: there is nothing to take back but a process that ended.
#
# What was done is seen by whoever does it (`Node.harm`), at the only moment at which it can be.


class HarmingFault(Fault[P]):
    """A fault that harms all its targets at the same time; they are down until it is healed. A subclass has its own
    `name`, `needs`, `parameters_model`, `check` and `harm`."""

    kills_first: bool = True
    """True means that the harm needs nodes that are down, so they are killed first."""

    def __init__(self) -> None:
        self._done: dict[str, str] = {}

    @abstractmethod
    def harm(self, context: FaultContext, node: Node, parameters: P) -> Harm:
        """Returns the harm that is done to that node."""

    def starts(self, parameters: P) -> bool:
        """Says whether the node is started again at once, to see how it copes with the harm."""
        return False

    def check(self, context: FaultContext, node: Node) -> None:
        """Raises TargetMissing if the harm cannot be done to that node now. It changes nothing."""

    def undos(self, context: FaultContext, parameters: P) -> Sequence[Undo]:
        for node in context.targets:
            self.check(context, node)
        return [Undo(action="start", node=node.name) for node in context.targets]

    def apply(self, context: FaultContext, parameters: P) -> None:
        def strike(node: Node) -> str:
            if self.kills_first:
                node.kill()
            detail = node.harm(self.harm(context, node, parameters))
            if self.starts(parameters):
                node.start()
            return detail

        with ThreadPoolExecutor(len(context.targets), thread_name_prefix=self.name) as pool:
            done = [(node.name, pool.submit(strike, node)) for node in context.targets]
        self._done = {name: future.result() for name, future in done}

    def verify(self, context: FaultContext, parameters: P) -> Sequence[Effect]:
        if self.starts(parameters):
            return [Effect(node=name, effect=Tristate.YES, detail=detail) for name, detail in self._done.items()]
        watches = [watch_state(node, NodeState.STOPPED, seen=self._done.get(node.name, "")) for node in context.targets]
        return [
            effect if effect.detail or effect.effect is not Tristate.YES else _unseen(effect)
            for effect in observe(watches, clock=context.clock)
        ]


def _unseen(effect: Effect) -> Effect:
    return effect.model_copy(
        update={"effect": Tristate.UNKNOWN, "detail": "the process is gone, and nothing else seen"}
    )
