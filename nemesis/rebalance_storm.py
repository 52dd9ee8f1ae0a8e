"""rebalance-storm: members of groups leave and join, one at a time, at moments and in an order that a seed fixes."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import PositiveFloat

from harness.clock import NS_PER_S, Clock
from harness.configuration import Frozen
from harness.protocols import ClientNode, Effect, NodeState, Scene
from harness.schema import Tristate
from nemesis.client_places import ClientFault, await_work, verify_successors


class StormParameters(Frozen):
    """`rate_hz`: joins and leaves per second at most, over all targets; who leaves ends in order ("stop"), is killed, or
    either by chance ("both"). `seed`: None = the plan's. `timeout_s`: for one to end, for all to be at work again."""

    duration_s: PositiveFloat
    rate_hz: PositiveFloat = 1.0
    how: Literal["stop", "kill", "both"] = "both"
    seed: str | int | None = None
    timeout_s: PositiveFloat = 45.0


class RebalanceStorm(ClientFault):
    """The effect is that members left and new ones were assigned partitions in their places."""

    name = "rebalance-storm"
    parameters_model = StormParameters
    ends_itself = True

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        places = self._places(scene.targets)
        self._before = {place.name: place.client for place in places}
        rng = random.Random(str(parameters["seed"]))
        until_ns = scene.clock.monotonic_ns() + int(parameters["duration_s"] * NS_PER_S)
        while True:
            scene.clock.sleep(min(rng.expovariate(parameters["rate_hz"]), _left_s(until_ns, scene.clock)))
            if scene.clock.monotonic_ns() >= until_ns:
                break
            _leave_or_join(rng.choice(places), rng, parameters)
        for place in places:
            place.start()
        await_work(places, clock=scene.clock, timeout_s=parameters["timeout_s"])

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        """Of the places that changed hands; a storm in which none did had no effect."""
        places = self._places(scene.targets)
        changed = [place for place in places if place.client != self._before[place.name]]
        if not changed:
            return [Effect(node=p.name, effect=Tristate.NO, detail="nobody left and joined") for p in places]
        return verify_successors(changed, self._before, scene.clock)


def _left_s(until_ns: int, clock: Clock) -> float:
    return max(0.0, (until_ns - clock.monotonic_ns()) / NS_PER_S)


def _leave_or_join(place: ClientNode, rng: random.Random, parameters: Mapping[str, Any]) -> None:
    crash = {"stop": False, "kill": True, "both": rng.random() < 0.5}[parameters["how"]]  # drawn in any case
    if place.state() is NodeState.STOPPED:
        place.start()
    elif crash:
        place.kill()
    else:
        place.stop(timeout_s=parameters["timeout_s"])
