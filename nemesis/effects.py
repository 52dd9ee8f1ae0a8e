"""Observation, and the undos: what `verify` and `heal` share. A fault and its undo are what was seen, not what was called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.clock import NS_PER_S, Clock
from harness.errors import HarnessFailed
from harness.protocols import Cluster, Effect, Node, NodeState, Undo
from harness.schema import Tristate
from nemesis.targets import node_named

OBSERVE_S = 10.0
"""Limit of every observation: a signal or a rule acts in milliseconds, a starved machine needs seconds."""
INTERVAL_S = 0.05

Seen = tuple[Tristate, str]
"""Was it observed, and what exactly was seen."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One thing to observe on one node (or between two): `probe` looks once."""

    node: str
    peer: str | None
    probe: Callable[[], Seen]


def observe(watches: Sequence[Watch], *, clock: Clock, timeout_s: float = OBSERVE_S) -> list[Effect]:
    """Look until each probe has said YES, or the limit is over; one Effect per watch, in order, as last seen.

    A probe that fails is UNKNOWN, with its error as the detail: never evidence, either way. Each probe runs at least once,
    and once more after the limit, so that a starved machine is not taken for a fault without effect.
    """
    deadline_ns = clock.monotonic_ns() + int(timeout_s * NS_PER_S)
    effects: dict[int, Effect] = {}
    waiting = list(range(len(watches)))
    while True:
        late = clock.monotonic_ns() >= deadline_ns
        for index in waiting:
            effects[index] = _look(watches[index])
        waiting = [index for index in waiting if effects[index].effect is not Tristate.YES]
        if not waiting or late:
            return [effects[index] for index in range(len(watches))]
        clock.sleep(INTERVAL_S)


def _look(watch: Watch) -> Effect:
    try:
        effect, detail = watch.probe()
    except (HarnessFailed, OSError) as error:
        effect, detail = Tristate.UNKNOWN, f"could not be observed: {error}"
    return Effect(node=watch.node, peer=watch.peer, effect=effect, detail=detail)


def watch_state(node: Node, wanted: NodeState, *, seen: str) -> Watch:
    """Is the node in the `wanted` state? `seen`: what that shows."""

    def probe() -> Seen:
        state = node.state()
        return (Tristate.YES, seen) if state is wanted else (Tristate.NO, f"the process is {state}")

    return Watch(node.name, None, probe)


def undo_now(undo: Undo, cluster: Cluster) -> None:
    """Carry out one undo, as far as the present state still needs it. Safe to repeat.

    What a restart of the node has undone already is seen, not remembered: a paused process that was killed since needs no
    resume, a killed node that somebody restarted no start. Blocks belong to the node's network, not to its process, and a
    restart leaves (or puts back) every one: they are always taken away.
    """
    node = node_named(cluster, undo.node)
    match undo.action:
        case "start":
            if node.state() is NodeState.STOPPED:
                node.start()
        case "resume":
            if node.state() is NodeState.PAUSED:
                node.resume()
        case "unblock":
            node.unblock(_peer(undo, cluster))
        case _:
            raise HarnessFailed(f"The journal names the undo {undo.action!r}, which this version does not know.")


def watch_undone(undo: Undo, cluster: Cluster) -> Watch:
    """Has the undo worked? Observed: the process is there, does not stand still, datagrams arrive."""
    node = node_named(cluster, undo.node)

    def probe() -> Seen:
        if undo.action == "unblock":
            arrives = node.receives_from(_peer(undo, cluster))
            return arrives, {
                Tristate.YES: "datagrams arrive again",
                Tristate.NO: "datagrams still do not arrive",
                Tristate.UNKNOWN: "whether datagrams arrive could not be seen",
            }[arrives]
        state = node.state()
        broken = NodeState.STOPPED if undo.action == "start" else NodeState.PAUSED
        return Tristate(int(state is not broken)), f"the process is {state}"

    return Watch(undo.node, undo.peer, probe)


def still_holds(undo: Undo, cluster: Cluster) -> bool:
    """Is the node still broken in the way that `undo` undoes? Seen where it costs nothing; a cut holds until unblocked."""
    match undo.action:
        case "start":
            return node_named(cluster, undo.node).state() is NodeState.STOPPED
        case "resume":
            return node_named(cluster, undo.node).state() is NodeState.PAUSED
        case _:
            return True


def _peer(undo: Undo, cluster: Cluster) -> Node:
    assert undo.peer is not None, undo
    return node_named(cluster, undo.peer)
