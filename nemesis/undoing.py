"""Faults taken back: whatever the journal has open, newest first, from any state, and seen to be gone.

A fault that is held by two steps at once (two partitions sharing a link) stays until both are healed, and is recorded as
undone for both at that moment.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from harness import catalogue
from harness.clock import Clock
from harness.errors import ClusterFailed, HarnessFailed
from harness.protocols import Effect, Scene, Undo, UndoAction
from harness.schema import FaultPhase, Tristate
from nemesis.effects import OBSERVE_S, Watch, observe
from nemesis.fault_rows import FaultRows
from nemesis.journal import Journal, JournalEntry, UndoState

KAFKA_UNDO_S = 60.0
"""Limit for seeing that Kafka took something back: copies that moved have to move again."""
LOG = logging.getLogger(__name__)


class Undoing:
    """What of one run's journal is open. `scene`: of now."""

    def __init__(self, journal: Journal, rows: FaultRows, scene: Callable[[], Scene], clock: Clock) -> None:
        self._journal, self._rows, self._scene, self._clock = journal, rows, scene, clock
        self._released: set[int] = set()
        """Ids of open entries whose healing was asked for, but which another step still holds."""

    def heal(self, step_name: str | None) -> list[Effect]:
        """Undo the fault of that step; None = every fault. Newest first; safe to repeat; verified by observation.

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
            some = {undo: entries for undo, entries in due.items() if _of_kafka(undo) is of_kafka}
            effects += self._undo(some, failures, timeout_s=timeout_s)
        if failures:
            raise ClusterFailed(f"{len(failures)} of {len(due)} undos did not work: {'; '.join(failures)}.")
        return effects

    def unhealed(self) -> Collection[int]:
        """Ids of the nodes that faults hold now: killed and not back, standing still, or aimed at by a cut. Of a shape, which
        cuts its targets from one another, those that are left without a majority of them."""
        names: set[str] = set()
        shapes: dict[int, list[JournalEntry]] = {}
        for entry in self._journal.open:
            undo = entry.undo
            if not _action(undo).holds(undo, self._scene()):
                continue
            ends: set[str] = {undo.node} if undo.peer is None else {undo.node, undo.peer}
            aimed_at = ends.intersection(entry.targets)
            if undo.peer is not None and ends <= aimed_at:
                shapes.setdefault(entry.number, []).append(entry)
            else:
                names |= aimed_at or {undo.node}
        for entries in shapes.values():
            names |= _without_majority(entries)
        nodes = self._scene().cluster.nodes if names else ()
        return frozenset(node.node_id for node in nodes if node.name in names)

    def _undo(self, due: Mapping[Undo, list[JournalEntry]], failures: list[str], *, timeout_s: float) -> list[Effect]:
        """Carry out, observe within the limit, record. What did not work is added to `failures`."""
        done, failed = self._carry_out(due)
        failures += failed
        verified = observe([self._watch_undone(undo) for undo in done], clock=self._clock, timeout_s=timeout_s)
        for undo, effect in zip(done, verified, strict=True):
            self._conclude(due[undo], effect)
            if effect.effect is Tristate.NO:
                failures.append(f"{_text(undo)}: {effect.detail}")
        return verified

    def _watch_undone(self, undo: Undo) -> Watch:
        action = _action(undo)
        return Watch(undo.node, undo.peer, lambda: action.undone(undo, self._scene()))

    def _by_holder(
        self, asked: Sequence[JournalEntry]
    ) -> tuple[list[tuple[Undo, str]], dict[Undo, list[JournalEntry]]]:
        """What of `asked` other steps still hold (with the step's name), and what is due: undo → every open entry of it,
        newest first."""
        holders: dict[Undo, list[JournalEntry]] = {}
        for entry in reversed(self._journal.open):
            holders.setdefault(entry.undo, []).append(entry)
        wanted = {entry.undo for entry in asked}
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
        """Carry out every undo, whatever one of them raises; which were done, and the errors of the others."""
        done: dict[Undo, int] = {}
        failures: list[str] = []
        for undo in due:
            try:
                _action(undo).carry_out(undo, self._scene())
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
        """Record what was seen of an undo, for every fault it undid."""
        for entry in entries:
            self._rows.write_effect(self._rows.row_of(entry), effect, FaultPhase.UNDO_VERIFIED)
        if effect.effect is Tristate.YES:
            self._journal.mark(entries, UndoState.UNDONE)


def _without_majority(entries: Sequence[JournalEntry]) -> set[str]:
    """Who of the targets hears at most half of them, itself included. `entries`: cuts among the targets of one fault."""
    targets = set(entries[0].targets)
    unheard: dict[str, set[str]] = {}
    for entry in entries:
        assert entry.undo.peer is not None, entry
        unheard.setdefault(entry.undo.node, set()).add(entry.undo.peer)
    return {name for name, peers in unheard.items() if 2 * (len(targets) - len(peers)) <= len(targets)}


def _action(undo: Undo) -> UndoAction:
    if undo.action not in catalogue.UNDO_ACTIONS:
        raise HarnessFailed(f"The journal names the undo {undo.action!r}, which this version does not know.")
    action: UndoAction = catalogue.resolve(catalogue.UNDO_ACTIONS, undo.action, what="undo")()
    return action


def _of_kafka(undo: Undo) -> bool:
    """Is it Kafka that undoes it, when asked?"""
    return bool(getattr(_action(undo), "of_kafka", False)) if undo.action in catalogue.UNDO_ACTIONS else False


def _text(undo: Undo) -> str:
    link = f" from {undo.peer}" if undo.peer else ""
    return f"{undo.action} {undo.node}{link}" + (f" ({undo.details})" if undo.details else "")
