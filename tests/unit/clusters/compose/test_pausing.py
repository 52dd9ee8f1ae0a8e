"""A container that the engine's runtime cannot freeze at once is frozen in the end, or the error says what was refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import APIError

from prozess.clusters.compose.containers import SIGNAL_TIMEOUT_S, ComposeNode, ContainerSetting
from prozess.clusters.impairers import Parts
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.interfaces import NodeState
from tests.support.clock import FakeClock

BUSY = "OCI runtime pause failed: unable to freeze: unknown"


class BusyEngine:
    """An engine whose runtime refuses to pause a container for some times; what it answers is what Docker answers."""

    def __init__(self, refusals: int, explanation: str = BUSY) -> None:
        self.refusals, self.explanation, self.asked, self.paused = refusals, explanation, 0, False

    def inspect_container(self, container: str) -> dict[str, object]:
        return {"State": {"Running": True, "Paused": self.paused, "Pid": 0, "Status": "running"}}

    def start(self, container: str) -> None:
        raise AssertionError("nobody asks for it")

    unpause = start

    def pause(self, container: str) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise APIError("500 Server Error", explanation=self.explanation)
        self.paused = True


def node(engine: BusyEngine) -> ComposeNode:
    setting = ContainerSetting("broker-1", 1, frozenset({"broker"}), Path(), "one", "one")
    return ComposeNode(
        setting,
        address=lambda: "127.0.0.1",
        client=lambda: SimpleNamespace(api=engine),
        parts=Parts(),
        clock=FakeClock(),
    )


def test_a_container_that_could_not_be_frozen_is_asked_for_again():
    engine = BusyEngine(refusals=2)
    one = node(engine)
    one.pause()
    assert (engine.asked, one.state()) == (3, NodeState.PAUSED)
    one.pause()
    assert engine.asked == 3, "it is paused already"


def test_one_that_cannot_be_frozen_at_all_ends_in_an_error_that_says_what_was_last_seen():
    with pytest.raises(NotReady, match=rf"(?s){SIGNAL_TIMEOUT_S:.0f}.*unable to freeze the container"):
        node(BusyEngine(refusals=10**6)).pause()


def test_another_refusal_is_final():
    engine = BusyEngine(refusals=1, explanation="no such container")
    with pytest.raises(ClusterFailed, match="could not pause broker-1: no such container"):
        node(engine).pause()
    assert engine.asked == 1
