"""Observation: what `verify` and `heal` share. A fault and its undo are what was seen, not what was called."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.clock import NS_PER_S, Clock
from harness.errors import HarnessFailed
from harness.protocols import Effect, Node, NodeState
from harness.schema import Tristate

OBSERVE_S = 10.0
"""Limit of every observation: a signal or a rule acts in milliseconds, a starved machine needs seconds."""
INTERVAL_S = 0.05
THREADS_MAX = 8

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
        effects |= zip(waiting, _look_at([watches[index] for index in waiting]), strict=True)
        waiting = [index for index in waiting if effects[index].effect is not Tristate.YES]
        if not waiting or late:
            return [effects[index] for index in range(len(watches))]
        clock.sleep(INTERVAL_S)


def _look_at(watches: Sequence[Watch]) -> list[Effect]:
    """Side by side: what does not arrive takes its time to be missed, on each of many links."""
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
    """Is the node in the `wanted` state? `seen`: what that shows."""

    def probe() -> Seen:
        state = node.state()
        return (Tristate.YES, seen) if state is wanted else (Tristate.NO, f"the process is {state}")

    return Watch(node.name, None, probe)
