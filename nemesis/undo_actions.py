"""How faults are undone: one class per action of `catalogue.UNDO_ACTIONS`.

What a restart of the node has undone already is seen, not remembered: a paused process that was killed since needs no resume,
a killed node that somebody restarted no start. What belongs to the node and not to its process (blocks, impairments), a
restart leaves or puts back: it is always taken away.
"""

from harness.impairments import IMPAIRMENT, DropCheckpoint
from harness.protocols import Node, NodeState, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import Seen


class Start:
    """The process runs again."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        node = scene.node(undo.node)
        if node.state() is NodeState.STOPPED:
            node.start()

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        state = scene.node(undo.node).state()
        return Tristate(int(state is not NodeState.STOPPED)), f"the process is {state}"

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return scene.node(undo.node).state() is NodeState.STOPPED


class Resume:
    """The process goes on."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        node = scene.node(undo.node)
        if node.state() is NodeState.PAUSED:
            node.resume()

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        state = scene.node(undo.node).state()
        return Tristate(int(state is not NodeState.PAUSED)), f"the process is {state}"

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return scene.node(undo.node).state() is NodeState.PAUSED


class Nothing:
    """Of what was done once and is over: there is nothing to undo."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        pass

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        return Tristate.YES, "there is nothing to undo"

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return False


class Unblock:
    """What the peer sends arrives again."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        scene.node(undo.node).unblock(_peer(undo, scene))

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        arrives = scene.node(undo.node).receives_from(_peer(undo, scene))
        return arrives, {
            Tristate.YES: "datagrams arrive again",
            Tristate.NO: "datagrams still do not arrive",
            Tristate.UNKNOWN: "whether datagrams arrive could not be seen",
        }[arrives]

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return True


class Repair:
    """The node is impaired no more."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        scene.node(undo.node).repair(IMPAIRMENT.validate_python(undo.given))

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        impaired, seen = scene.node(undo.node).impaired(IMPAIRMENT.validate_python(undo.given))
        return {
            Tristate.YES: (Tristate.NO, f"still: {seen}"),
            Tristate.NO: (Tristate.YES, seen),
            Tristate.UNKNOWN: (Tristate.UNKNOWN, seen),
        }[impaired]

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return True


CHECKPOINT_NAME = "recovery-point-offset-checkpoint"


class WithoutCheckpoint:
    """The broker's recovery-point-offset-checkpoint is gone. One that still runs is killed first: it ends over the file,
    now or at its next start."""

    def carry_out(self, undo: Undo, scene: Scene) -> None:
        node = scene.node(undo.node)
        node.kill()
        node.harm(DropCheckpoint())

    def undone(self, undo: Undo, scene: Scene) -> Seen:
        node = scene.node(undo.node)
        if node.state() is not NodeState.STOPPED:
            return Tristate.YES, "the process runs, with a file of its own"
        left = (node.data_directory / CHECKPOINT_NAME).exists()  # another fault keeps the node down
        return Tristate(int(not left)), "the file is still there" if left else "the file is gone"

    def holds(self, undo: Undo, scene: Scene) -> bool:
        return True


def _peer(undo: Undo, scene: Scene) -> Node:
    assert undo.peer is not None, undo
    return scene.node(undo.peer)
