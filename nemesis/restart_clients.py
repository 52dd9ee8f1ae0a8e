"""restart-clients: a rolling restart of consumers or producers, each in turn: it ends, its successor starts and is at work,
then the next. Groups are restarted side by side, and so are the producers."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from harness.configuration import Frozen
from harness.protocols import ClientNode, Effect, Scene
from nemesis.client_places import ClientFault, await_work, verify_successors


class RestartParameters(Frozen):
    """`how`: "stop" in order (a member leaves its group, a producer flushes), or "kill". `away_s`: until the successor
    starts. `timeout_s`: for the end of one, and again for its successor to be at work."""

    how: Literal["stop", "kill"] = "stop"
    away_s: NonNegativeFloat = 0.0
    timeout_s: PositiveFloat = 45.0


class RestartClients(ClientFault):
    """The effect is that every place has a new client that was seen at work."""

    name = "restart-clients"
    parameters_model = RestartParameters
    ends_itself = True

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        places = self._places(scene.targets)
        self._before = {place.name: place.client for place in places}
        for turn in rounds(places):
            for place in turn:
                if parameters["how"] == "kill":
                    place.kill()
                else:
                    place.stop(timeout_s=parameters["timeout_s"])
            if parameters["away_s"]:
                scene.clock.sleep(parameters["away_s"])
            for place in turn:
                place.start()
            await_work(turn, clock=scene.clock, timeout_s=parameters["timeout_s"])

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        return verify_successors(self._places(scene.targets), self._before, scene.clock)


def rounds(places: Sequence[ClientNode]) -> list[list[ClientNode]]:
    """Who is restarted together: the first of every group, then the second, …; whoever is in no group is on its own."""
    together: dict[object, list[ClientNode]] = {}
    for place in places:
        grouped = place.client_role in ("member", "java-member")
        together.setdefault((place.client_role, place.cell if grouped else None), []).append(place)
    return [[place for place in turn if place is not None] for turn in zip_longest(*together.values())]
