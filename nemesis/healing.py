"""Healing undoes every fault that the journal has as open, the newest first. Each kind of undo is a class here.

Two steps may hold one thing. "cut A" and "cut B" both block the link from broker-2 to broker-1:

    journal                                  heal("cut A")                  heal("cut B")
    0  cut A  unblock broker-1 from 2        held by B: stays open          undone together with 1
    1  cut B  unblock broker-1 from 2        -                              carried out once, observed once
    2  cut A  unblock broker-3 from 2        carried out, observed          -

The link is unblocked when the last step that holds it is healed. It is recorded as undone for both faults at that moment.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from prozess.harness.clock import Clock
from prozess.harness.config.impairments import IMPAIRMENT, DropCheckpoint
from prozess.harness.errors import ClusterFailed, HarnessFailed
from prozess.harness.interfaces import Effect, FaultContext, Node, NodeState, Undo, UndoAction, await_end
from prozess.harness.schema import FaultPhase, Tristate
from prozess.nemesis.faults import OBSERVE_S, Observation, Watch, observe
from prozess.nemesis.journal import FaultRows, Journal, JournalEntry, UndoState

KAFKA_UNDO_S = 60.0
"""How long Kafka may take until it is seen to have taken a change back. Replicas that were moved have to move again."""
SHUTDOWN_S = 15.0
"""How long a server that is found shutting down may take before it is killed. A broker that reaches its controllers needs
less than a second of it for a few partitions."""
LOG = logging.getLogger(__name__)


class Healing:
    """Undoes the faults that the journal of a run has open. `context` returns the cluster as it is now."""

    def __init__(
        self,
        journal: Journal,
        rows: FaultRows,
        context: Callable[[], FaultContext],
        clock: Clock,
        actions: Mapping[str, type[UndoAction]],
    ) -> None:
        """`actions` maps the name of an undo in the journal to the class that carries it out."""
        self._journal, self._rows, self._context, self._clock = journal, rows, context, clock
        self._actions = actions
        self._released: set[int] = set()
        """The ids of open entries that were to be healed, but which another step still holds."""

    def heal(self, step_name: str | None) -> list[Effect]:
        """Undoes the fault of that step, or every fault if it is None. It goes from the newest to the oldest, observes
        that each is undone, and is safe to repeat.

        One Effect per node (and peer): YES = seen to be healed; NO with the reason = another step still holds it. Whatever
        an undo raises, the others are done; ClusterFailed at the end names each that failed or was seen not to work, and
        they stay open for the next `heal`.
        """
        asked = [entry for entry in self._journal.open if step_name in (None, entry.step)]
        self._released |= {entry.id for entry in asked}
        held, due = self._by_holder(asked)
        effects = [
            Effect(node=undo.node, peer=undo.peer, effect=Tristate.NO, detail=f"step {step!r} still holds it")
            for undo, step in held
        ]
        failures: list[str] = []
        # Nodes first: Kafka needs them to take anything back, and may take longer than they do.
        for of_kafka, timeout_s in ((False, OBSERVE_S), (True, KAFKA_UNDO_S)):
            some = {undo: entries for undo, entries in due.items() if self._of_kafka(undo) is of_kafka}
            effects += self._undo(some, failures, timeout_s=timeout_s)
        if failures:
            raise ClusterFailed(f"{len(failures)} of {len(due)} undos did not work: {'; '.join(failures)}.")
        return effects

    def unhealed(self) -> Collection[int]:
        """Returns the ids of the nodes that faults hold now: killed and not back, paused, or the target of a cut.

        For a shape, which cuts its targets from one another, these are the nodes that hear no majority of them.
        """
        names = self._held(self._journal.open)
        nodes = self._context().cluster.nodes if names else ()
        return frozenset(node.node_id for node in nodes if node.name in names)

    def cut_off(self) -> frozenset[str]:
        """Returns the names of the nodes whose links to other nodes faults hold now, as `unhealed` counts them."""
        servers = {node.name for node in self._context().cluster.nodes if node.roles}
        return frozenset(self._held([entry for entry in self._journal.open if entry.undo.peer in servers]))

    def _held(self, entries: Sequence[JournalEntry]) -> set[str]:
        names: set[str] = set()
        shapes: dict[int, list[JournalEntry]] = {}
        for entry in entries:
            undo = entry.undo
            if not self._action(undo).holds(undo, self._context()):
                continue
            ends: set[str] = {undo.node} if undo.peer is None else {undo.node, undo.peer}
            aimed_at = ends.intersection(entry.targets)
            if undo.peer is not None and ends <= aimed_at:
                shapes.setdefault(entry.number, []).append(entry)
            else:
                names |= aimed_at or {undo.node}
        for of_shape in shapes.values():
            names |= _without_majority(of_shape)
        return names

    def _undo(self, due: Mapping[Undo, list[JournalEntry]], failures: list[str], *, timeout_s: float) -> list[Effect]:
        """Carries the undos out, observes them within the limit, and records what was seen. Those that did not work are
        added to `failures`."""
        done, failed = self._carry_out(due)
        failures += failed
        verified = observe([self._watch_undone(undo) for undo in done], clock=self._clock, timeout_s=timeout_s)
        for undo, effect in zip(done, verified, strict=True):
            self._conclude(due[undo], effect)
            if effect.effect is Tristate.NO:
                failures.append(f"{_text(undo)}: {effect.detail}")
        return verified

    def _watch_undone(self, undo: Undo) -> Watch:
        action = self._action(undo)
        if not action.of_kafka:
            return Watch(undo.node, undo.peer, lambda: action.undone(undo, self._context()))

        def probe() -> Observation:
            seen = [action.undone(part, self._context()) for part in self._now_due(undo)]
            worst = next((one for one in seen if one[0] is not Tristate.YES), None)
            return worst or (Tristate.YES, "; ".join(text for _, text in seen) or "a later fault holds it still")

        return Watch(undo.node, undo.peer, probe)

    def _now_due(self, undo: Undo) -> list[Undo]:
        """Returns what there is to put back of what Kafka keeps, now that the fault of that undo is healed.

        Several faults may have changed one thing. One that is held by a later fault stays as it is. Else it goes to what
        it was when the oldest of those faults came that are newer than any that still holds it. Three faults make it
        a → b → c → d. The second is healed first: nothing is done, as the third holds it. Then the third: back to b, as
        the first one made it.
        """
        things = self._action(undo).things(undo)
        open_ids = {entry.id for entry in self._journal.open if entry.id not in self._released}
        due: dict[str, Undo] = {}
        for entry in self._journal.entries:
            if entry.undo.action != undo.action:
                continue
            for key, part in self._action(entry.undo).things(entry.undo).items():
                if key not in things:
                    continue
                if entry.id in open_ids:
                    due.pop(key, None)
                else:
                    due.setdefault(key, part)
        # A thing that no fault has changed since the newest one that holds it was put back before.
        return list(due.values())

    def _action(self, undo: Undo) -> UndoAction:
        if undo.action not in self._actions:
            raise HarnessFailed(f"The journal names the undo {undo.action!r}, which this version does not know.")
        return self._actions[undo.action]()

    def _of_kafka(self, undo: Undo) -> bool:
        """Says whether Kafka is asked to undo it."""
        return undo.action in self._actions and self._actions[undo.action].of_kafka

    def _by_holder(
        self, asked: Sequence[JournalEntry]
    ) -> tuple[list[tuple[Undo, str]], dict[Undo, list[JournalEntry]]]:
        """Divides what is to be undone. Returns what other steps still hold (with the name of the step), and what is
        due now: undo → every open entry of it, newest first."""
        holders: dict[Undo, list[JournalEntry]] = {}
        for entry in reversed(self._journal.open):
            holders.setdefault(entry.undo, []).append(entry)
        wanted = {entry.undo for entry in asked}
        assert wanted <= holders.keys(), "an entry that is to be healed is not open"
        held: list[tuple[Undo, str]] = []
        due: dict[Undo, list[JournalEntry]] = {}
        for undo, entries in holders.items():
            if undo not in wanted:
                continue
            if keeper := next((e for e in entries if e.id not in self._released), None):
                held.append((undo, keeper.step))
            else:
                due[undo] = entries
        return held, due

    def _carry_out(self, due: Mapping[Undo, Sequence[JournalEntry]]) -> tuple[list[Undo], list[str]]:
        """Carries out every undo, even if one of them raises. Returns those that were done, and the errors of the
        others."""
        done: dict[Undo, int] = {}
        failures: list[str] = []
        asked: set[Undo] = set()
        for undo in due:
            try:
                action = self._action(undo)
                for part in self._now_due(undo) if action.of_kafka else [undo]:
                    if action.of_kafka and part in asked:
                        continue  # two faults changed one thing, and Kafka is at it
                    action.carry_out(part, self._context())
                    asked.add(part)
            except Exception as error:
                # The rest must be undone all the same; `heal` raises at the end.
                LOG.exception("undo failed: %s", _text(undo))
                failures.append(f"{_text(undo)}: {error}")
                continue
            done[undo] = self._clock.monotonic_ns()
        for undo, done_ns in done.items():  # Only now: a history that cannot be written must not keep a fault in place.
            for entry in due[undo]:
                self._rows.write(
                    self._rows.row_of(entry), FaultPhase.UNDONE, node=undo.node, peer=undo.peer, time_ns=done_ns
                )
        return list(done), failures

    def _conclude(self, entries: Sequence[JournalEntry], effect: Effect) -> None:
        """Records what was seen of an undo, for every fault that it undid."""
        assert len({entry.undo for entry in entries}) == 1, f"entries of several undos were observed as one: {entries}"
        for entry in entries:
            self._rows.write_effect(self._rows.row_of(entry), effect, FaultPhase.UNDO_VERIFIED)
        if effect.effect is Tristate.YES:
            self._journal.mark(entries, UndoState.UNDONE)


def _without_majority(entries: Sequence[JournalEntry]) -> set[str]:
    """Returns the targets that hear at most half of all targets, themselves included. `entries`: cuts among the targets
    of one fault."""
    targets = set(entries[0].targets)
    unheard: dict[str, set[str]] = {}
    for entry in entries:
        assert entry.undo.peer is not None, entry
        unheard.setdefault(entry.undo.node, set()).add(entry.undo.peer)
    return {name for name, peers in unheard.items() if 2 * (len(targets) - len(peers)) <= len(targets)}


def _text(undo: Undo) -> str:
    link = f" from {undo.peer}" if undo.peer else ""
    return f"{undo.action} {undo.node}{link}" + (f" ({undo.details})" if undo.details else "")


# How faults are undone: one class per action of `prozess.nemesis.registry.UNDO_ACTIONS`.
#
# Each class looks at what a restart of the node has undone already, and remembers nothing: a paused process that was killed
# since needs no resume, and a killed node that somebody restarted needs no start. A restart leaves, or puts back, what
# belongs to the node and not to its process (blocks, impairments): this is always taken away.


DOWN = (NodeState.STOPPING, NodeState.STOPPED)


class Start(UndoAction):
    """Starts the process of a node that was stopped. One that is still shutting down is awaited, then killed."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        node = context.node(undo.node)
        await_end(node, timeout_s=SHUTDOWN_S, clock=context.clock)
        if node.state() is NodeState.STOPPED:
            node.start()

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        state = context.node(undo.node).state()
        return Tristate(int(state not in DOWN)), f"the process is {state}"

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        return {}  # the state of every server is verified anyway, and a client may have ended by itself since

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return context.node(undo.node).state() in DOWN


class Resume(UndoAction):
    """Resumes the process of a node that was paused."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        node = context.node(undo.node)
        if node.state() is NodeState.PAUSED:
            node.resume()

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        state = context.node(undo.node).state()
        return Tristate(int(state is not NodeState.PAUSED)), f"the process is {state}"

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        return {}  # for the same reasons as `Start`

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return context.node(undo.node).state() is NodeState.PAUSED


class Nothing(UndoAction):
    """Undoes nothing, because the fault was done once and is over."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        pass

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        return Tristate.YES, "there is nothing to undo"

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        return {}

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return False


class Unblock(UndoAction):
    """Unblocks a link, so that what the peer sends arrives again."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        context.node(undo.node).unblock(_peer(undo, context))

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        arrives = context.node(undo.node).receives_from(_peer(undo, context))
        return arrives, {
            Tristate.YES: "datagrams arrive again",
            Tristate.NO: "datagrams still do not arrive",
            Tristate.UNKNOWN: "whether datagrams arrive could not be seen",
        }[arrives]

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return True


class Repair(UndoAction):
    """Repairs a node, so that it is no longer impaired."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        context.node(undo.node).repair(IMPAIRMENT.validate_python(undo.given))

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        impaired, seen = context.node(undo.node).impaired(IMPAIRMENT.validate_python(undo.given))
        return {
            Tristate.YES: (Tristate.NO, f"still: {seen}"),
            Tristate.NO: (Tristate.YES, seen),
            Tristate.UNKNOWN: (Tristate.UNKNOWN, seen),
        }[impaired]

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        """Says whether the node is impaired. One to whose messages, calls or remote store something is done works as ever,
        and can be asked."""
        return undo.given.get("kind") not in ("message", "method", "store-away", "harmed-object")


CHECKPOINT_NAME = "recovery-point-offset-checkpoint"


class WithoutCheckpoint(UndoAction):
    """Removes the broker's recovery-point-offset-checkpoint. A broker that still runs is killed first: it ends over
    this file, now or at its next start."""

    def carry_out(self, undo: Undo, context: FaultContext) -> None:
        node = context.node(undo.node)
        node.kill()
        node.harm(DropCheckpoint())

    def undone(self, undo: Undo, context: FaultContext) -> Observation:
        node = context.node(undo.node)
        if node.state() is not NodeState.STOPPED:
            return Tristate.YES, "the process runs, with a file of its own"
        left = (node.data_directory / CHECKPOINT_NAME).exists()  # another fault keeps the node down
        return Tristate(int(not left)), "the file is still there" if left else "the file is gone"

    def things(self, undo: Undo) -> Mapping[str, Undo]:
        return {}  # a broker that ended in order since has written a file of its own, which is whole

    def holds(self, undo: Undo, context: FaultContext) -> bool:
        return True


def _peer(undo: Undo, context: FaultContext) -> Node:
    assert undo.peer is not None, undo
    return context.node(undo.peer)
