"""Verifies at the end of healing that everything is what it was before the first fault, and mends what is not."""

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from prozess.harness.clock import Clock
from prozess.harness.interfaces import Effect, FaultContext, Node, NodeState, Undo, UndoAction, await_end
from prozess.harness.schema import FaultPhase, Tristate
from prozess.nemesis.faults import OBSERVE_S, THREADS_MAX, Watch, observe, watch_state
from prozess.nemesis.healing import KAFKA_UNDO_S, SHUTDOWN_S
from prozess.nemesis.journal import FaultRows, Journal, JournalEntry

# An undo is seen to work at its own moment, and a later one may take it back. Two examples, each seen:
#
# - A broker that is cut off is asked to stop, and cannot. "start" finds its process and does nothing, "unblock" lets it
#   reach its controller, and now its shutdown ends. Every undo worked, and the broker is down.
# - min.insync.replicas is set to 2, then to 3 by another fault, whose undo is "back to 2". The first fault is healed
#   first: it goes back to 1, and then the second one to 2.
#
# Hence the end is compared with the beginning. The journal has the state of each server before the first fault. For each
# thing that faults changed, the first of its undos has the value from before:
#
#     journal                                     first undo of the thing    at the end
#     0  min.insync.replicas 1 → 2, back to 1     back to 1                  2 is seen: "back to 1" is carried out again
#     1  min.insync.replicas 2 → 3, back to 2     -

LOG = logging.getLogger(__name__)
STARTS_MAX = 3
"""How often a server is started again since the last fault. One that ends each time has a reason, which its log says."""


class EndOfHealing:
    """Compares a run's servers, links, disks, clocks and configuration with what they were before the first fault.

    `context` returns the cluster as it is now. `report` is called with each thing that was mended, as a sentence.
    """

    def __init__(
        self,
        journal: Journal,
        rows: FaultRows,
        context: Callable[[], FaultContext],
        clock: Clock,
        actions: Mapping[str, type[UndoAction]],
        report: Callable[[str], None],
    ) -> None:
        self._journal, self._rows, self._context, self._clock = journal, rows, context, clock
        self._actions, self._report = actions, report
        self._starts: dict[str, int] = {}
        """The name of a server → how often it was started again since the last fault."""
        self._verified = False

    def begin(self) -> None:
        """Notes that a fault is about to be made. Before the first one the journal gets what each server is now."""
        self._starts.clear()
        self._verified = False
        if not self._journal.before:
            servers = [node for node in self._context().cluster.nodes if node.roles]
            with ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="before") as pool:
                states = list(pool.map(lambda node: node.state(), servers))
            self._journal.note_before({node.name: str(state) for node, state in zip(servers, states, strict=True)})

    def verify(self) -> list[str]:
        """Verifies everything, and mends what is not as before. Returns what could not be mended. It is safe to repeat: what
        was seen to be right is not looked at again until the next fault, but for the processes."""
        if not self._journal.before and not self._journal.entries:
            return []
        whole = not self._verified
        failures = self._verify_things(of_kafka=False) if whole else []
        failures += self.bring_up()  # Kafka needs its servers to take anything back
        failures += self._verify_things(of_kafka=True) if whole else []
        self._verified = not failures
        return failures

    def bring_up(self, among: Collection[str] | None = None) -> list[str]:
        """Brings up every server that was up before the first fault: it ends what is shutting down, resumes what stands
        still and starts what is down. Returns what could not be brought up.

        `among`: the names of the servers to look at; None means all.
        """
        nodes = {node.name: node for node in self._context().cluster.nodes}
        meant = [
            nodes[name]
            for name, before in self._journal.before.items()
            if before == NodeState.RUNNING and name in nodes and (among is None or name in among)
        ]
        failures: dict[str, str] = {}
        while down := [n for n in meant if n.name not in failures and n.state() is not NodeState.RUNNING]:
            for node in down:
                assert self._journal.before[node.name] == NodeState.RUNNING, (
                    f"{node.name} did not run before the first fault"
                )
                if self._starts.get(node.name, 0) == STARTS_MAX:
                    failures[node.name] = (
                        f"{node.name} is {node.state()}, though it was started again {STARTS_MAX} times; see its log"
                    )
                    continue
                self._starts[node.name] = self._starts.get(node.name, 0) + 1
                try:
                    self._report(f"after the last undo: {bring_up(node, self._clock)}")
                except Exception as error:
                    # The others must be brought up all the same; the caller raises at the end.
                    LOG.exception("bringing up %s failed", node.name)
                    failures[node.name] = f"{node.name} could not be brought up again: {error}"
            observe(
                [watch_state(n, NodeState.RUNNING, seen="") for n in down if n.name not in failures], clock=self._clock
            )
        return list(failures.values())

    def _verify_things(self, *, of_kafka: bool) -> list[str]:
        """Looks once at each thing that some fault changed, and carries out its undo again where it is not as before."""
        things = self._first_undos(of_kafka=of_kafka)
        wrong = self._wrong({key: undo for key, (undo, _) in things.items()}, timeout_s=0)
        failures = []
        # What was changed last is put back first, as in all healing.
        for key in reversed(wrong):
            undo, entry = things[key]
            try:
                self._actions[undo.action]().carry_out(undo, self._context())
            except Exception as error:
                LOG.exception("undo failed at the end: %s", undo)
                failures.append(f"{undo.action} {undo.node}, at the end: {error}")
                continue
            self._rows.write(self._rows.row_of(entry), FaultPhase.UNDONE, node=undo.node, peer=undo.peer)
            self._report(
                f"after the last undo: {undo.action} {undo.node} was done again, since {wrong[key].detail}"
                f" (step {entry.step!r})"
            )
        again = {key: things[key][0] for key in wrong}
        still = self._wrong(again, timeout_s=KAFKA_UNDO_S if of_kafka else OBSERVE_S)
        for key, seen in still.items():
            failures.append(f"{things[key][0].action} {seen.node}, at the end: {seen.detail}")
        for key in again.keys() - still.keys():
            undo, entry = things[key]
            effect = Effect(
                node=undo.node, peer=undo.peer, effect=Tristate.YES, detail="it is as before the first fault"
            )
            self._rows.write_effect(self._rows.row_of(entry), effect, FaultPhase.UNDO_VERIFIED)
        return failures

    def _first_undos(self, *, of_kafka: bool) -> dict[str, tuple[Undo, JournalEntry]]:
        """Returns each thing that faults changed → the undo of the first of them, which has the value from before. Things
        whose undo is still open are left out, because `Healing.heal` has reported them."""
        known = {node.name for node in self._context().cluster.nodes}
        first: dict[str, tuple[Undo, JournalEntry]] = {}
        for entry in self._journal.entries:
            undo = entry.undo
            action = self._actions.get(undo.action)
            if action is None or action.of_kafka is not of_kafka or undo.node not in known:
                continue
            for key, part in action().things(undo).items():
                first.setdefault(key, (part, entry))
        opened = {entry.id for entry in self._journal.open}
        return {key: (undo, entry) for key, (undo, entry) in first.items() if entry.id not in opened}

    def _wrong(self, undos: Mapping[str, Undo], *, timeout_s: float) -> dict[str, Effect]:
        """Returns the things that are seen not to be as before. A thing that cannot be observed is no evidence."""
        watches = [
            Watch(undo.node, undo.peer, lambda undo=undo: self._actions[undo.action]().undone(undo, self._context()))  # type: ignore[misc]
            for undo in undos.values()
        ]
        effects = observe(watches, clock=self._clock, timeout_s=timeout_s)
        return {key: seen for key, seen in zip(undos, effects, strict=True) if seen.effect is Tristate.NO}


def bring_up(node: Node, clock: Clock) -> str:
    """Makes a server run that is down, stands still or is shutting down. Returns what it was and what was done."""
    ended = await_end(node, timeout_s=SHUTDOWN_S, clock=clock)
    state = node.state()
    if state is NodeState.PAUSED:
        node.resume()
        return f"{node.name} stood still, and was resumed"
    node.start()
    return f"{ended or f'{node.name} was {state}'}, and was started again"
