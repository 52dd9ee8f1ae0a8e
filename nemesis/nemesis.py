"""The nemesis: carries faults out, and takes them back.

Journaled before made, verified by observation, undone newest first from any state. A fault that is held by two steps at once
(two partitions sharing a link) stays until both are healed, and is recorded as undone for both at that moment.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from harness import catalogue
from harness.clock import Clock
from harness.errors import ClusterFailed, HarnessFailed, NotReady, TargetMissing
from harness.impairments import CLIENTS
from harness.plan import Plan, parse_plan
from harness.protocols import ALL_CLIENTS_NODE, AdminProtocol, Cluster, Effect, Node, Scene, Undo, UndoAction
from harness.run_directory import RunDirectory, read_json, write_json
from harness.schedule import FaultAction, Step
from harness.schema import NONE, FaultPhase, Tristate
from nemesis.effects import OBSERVE_S, Watch, observe
from nemesis.journal import Journal, JournalEntry, UndoState
from nemesis.parameters import PlannedFault
from nemesis.targets import Roles

KAFKA_UNDO_S = 60.0
"""Limit for seeing that Kafka took something back: copies that moved have to move again."""
LOG = logging.getLogger(__name__)


class RecorderProtocol(Protocol):
    """What the nemesis needs of `harness.recorder.Recorder`."""

    def write(self, table: str, **columns: int) -> object:
        """One row; missing columns are unset."""
        ...

    def code(self, dictionary: str, text: str) -> int:
        """The dictionary code of a text."""
        ...


@dataclass(frozen=True, slots=True)
class StruckFault:
    """A fault that was made. `effects`: what was observed of it, per node (and peer)."""

    number: int
    step: str
    fault: str
    nodes: tuple[str, ...]
    effects: tuple[Effect, ...]

    @property
    def effective(self) -> Tristate:
        """YES: seen everywhere. NO: seen to be without effect somewhere. Else UNKNOWN."""
        seen = {effect.effect for effect in self.effects}
        if Tristate.NO in seen:
            return Tristate.NO
        return Tristate.YES if seen == {Tristate.YES} else Tristate.UNKNOWN


@dataclass(frozen=True, slots=True)
class _Aim:
    """A fault about to be made: roles resolved."""

    fault: PlannedFault
    scene: Scene
    """Its targets are the nodes that the roles are now."""
    parameters: Mapping[str, Any]
    resolved: tuple[tuple[str, tuple[str, ...]], ...]
    """(role, names of nodes)"""
    undos: tuple[Undo, ...]


class Nemesis:
    """Faults of one run. One thread uses it at a time.

    A second Nemesis on the same run directory goes on with the journal of the first: `heal(None)` undoes what that left.
    """

    def __init__(
        self,
        run: RunDirectory,
        cluster: Cluster,
        admin: AdminProtocol,
        recorder: RecorderProtocol,
        clock: Clock,
    ) -> None:
        self._run, self._cluster, self._recorder, self._clock = run, cluster, recorder, clock
        self._admin = admin
        self._journal = Journal(run.journal)
        self._next_number = self._journal.next_number
        self._roles = Roles(
            cluster,
            admin,
            lambda: self._partitions,
            clock,
            lambda: self._groups,
            lambda: self._transactional_ids,
            lambda broker: self._plan.variant.rack_of(broker),
        )
        self._released: set[int] = set()
        """Ids of open entries whose healing was asked for, but which another step still holds."""

    @cached_property
    def _plan(self) -> Plan:
        return parse_plan(self._run.plan.read_text(encoding="utf-8"), source=str(self._run.plan))

    @property
    def _partitions(self) -> dict[int, tuple[str, int]]:
        return {p.partition: (p.topic_name, p.number) for p in self._plan.partitions}

    @property
    def _racks(self) -> dict[str, str]:
        variant = self._plan.variant
        return {f"broker-{b}": rack for b in range(1, variant.brokers + 1) if (rack := variant.rack_of(b)) is not None}

    @property
    def _groups(self) -> dict[int, str]:
        return {c.cell: c.group_id for c in self._plan.clients if c.group_id is not None and c.cell is not None}

    @property
    def _transactional_ids(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for client in self._plan.clients:
            if client.transactional_id is not None and client.cell is not None:
                found.setdefault(client.cell, client.transactional_id)
        return found

    def reread_plan(self) -> None:
        """The plan has grown: topics and groups of a test come as it goes on."""
        for name in ("_plan", "_scene"):
            self.__dict__.pop(name, None)

    def strike(self, step_number: int, step: Step) -> StruckFault:
        """Make the step's fault, and look whether it took effect.

        ClusterFailed if a target does not exist now, or the fault could not be made: then nothing is left of it (what had
        been broken is undone; if even that fails, `heal` still knows it). TargetMissing, and nothing recorded, if the step
        may miss and does.
        """
        action = step.do
        assert isinstance(action, FaultAction), step
        number, self._next_number = self._next_number, self._next_number + 1
        row = {"fault": number, "kind": self._recorder.code("fault", action.fault), "step": step_number}
        try:
            aim = self._aim(action, step.name)
        except (ClusterFailed, NotReady) as error:
            if step.may_miss and isinstance(error, TargetMissing):
                raise
            self._record(row, FaultPhase.FAILED, detail=str(error))
            raise ClusterFailed(f"Step {step.name!r}: {error}") from error
        names = [node.name for node in aim.scene.targets]
        entries = self._journal.plan(
            aim.undos, number=number, step_number=step_number, step=step.name, fault=action.fault, targets=names
        )
        self._record_undos(row, aim.undos, FaultPhase.JOURNALED)
        self._apply(aim, row, entries, step)
        self._journal.mark(entries, UndoState.APPLIED)
        self._record_undos(row, aim.undos, FaultPhase.APPLIED)
        self._remember(step_number, step, aim)
        effects = tuple(aim.fault.verify(aim.scene, aim.parameters))
        for effect in effects:
            self._record_effect(row, effect, FaultPhase.VERIFIED)
        if getattr(aim.fault, "ends_itself", False):
            self.heal(step.name)
        return StruckFault(number, step.name, action.fault, tuple(names), effects)

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
            if not _action(undo).holds(undo, self._scene):
                continue
            ends: set[str] = {undo.node} if undo.peer is None else {undo.node, undo.peer}
            aimed_at = ends.intersection(entry.targets)
            if undo.peer is not None and ends <= aimed_at:
                shapes.setdefault(entry.number, []).append(entry)
            else:
                names |= aimed_at or {undo.node}
        for entries in shapes.values():
            names |= _without_majority(entries)
        return frozenset(node.node_id for node in self._cluster.nodes if node.name in names)

    @cached_property
    def _scene(self) -> Scene:
        return Scene(self._cluster, self._admin, self._clock, partitions=self._partitions, racks=self._racks)

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
        return Watch(undo.node, undo.peer, lambda: action.undone(undo, self._scene))

    # --- striking -----------------------------------------------------------------------------------------------------

    def _aim(self, action: FaultAction, step_name: str) -> _Aim:
        """Roles resolved to nodes at this moment, and what will undo it. Nothing is touched yet."""
        fault: PlannedFault = catalogue.resolve(catalogue.FAULTS, action.fault, what="fault")()
        found: dict[str, Node] = {}
        resolved: list[tuple[str, tuple[str, ...]]] = []
        for role in action.targets:
            nodes = self._roles.resolve(role)
            resolved.append((role, tuple(node.name for node in nodes)))
            found |= {node.name: node for node in nodes}
        targets = tuple(found.values())
        scene = replace(self._scene, targets=targets, roles=tuple(action.targets))
        parameters = fault.parameters_model.model_validate(action.parameters).model_dump()
        if "seed" in parameters and parameters["seed"] is None:  # the plan's, so that the same plan does the same
            parameters["seed"] = f"{self._plan.seed} {step_name}"
        for name in sorted(fault.role_parameters):
            if parameters[name] is not None:
                parameters[name] = self._roles.side(parameters[name], targets=targets, roles=action.targets)
                resolved.append((name, parameters[name]))
        undos = tuple(fault.undos(scene, parameters))
        if drawn := getattr(fault, "drawn", None):  # what a seed decided beside the roles
            resolved += drawn(scene, parameters).items()
        return _Aim(fault, scene, parameters, tuple(resolved), undos)

    def _apply(self, aim: _Aim, row: Mapping[str, int], entries: Sequence[JournalEntry], step: Step) -> None:
        try:
            aim.fault.apply(aim.scene, aim.parameters)
        except BaseException as error:
            self._take_back(entries)
            self._record_undos(row, aim.undos, FaultPhase.FAILED, detail=f"{type(error).__name__}: {error}")
            if isinstance(error, HarnessFailed | OSError):
                raise ClusterFailed(f"Step {step.name!r}: {aim.fault.name} failed: {error}") from error
            raise

    def _take_back(self, entries: Sequence[JournalEntry]) -> None:
        """Undo a fault that was made half-way. What cannot be undone now stays open in the journal."""
        try:
            self.heal(entries[0].step)
        except Exception:
            # It must not replace the error of the fault, and the entries stay open for `heal(None)`.
            LOG.exception("taking back the fault of step %r failed", entries[0].step)

    def _remember(self, step_number: int, step: Step, aim: _Aim) -> None:
        """Append to resolved.json what each role was, and the parameters as they were used."""
        before = read_json(self._run.resolved) if self._run.resolved.exists() else []
        now_ns = self._clock.monotonic_ns()
        entries = [
            {
                "step_number": step_number,
                "step": step.name,
                "role": role,
                "nodes": list(nodes),
                "parameters": dict(aim.parameters),
                "time_ns": now_ns,
            }
            for role, nodes in aim.resolved
        ]
        write_json(self._run.resolved, before + entries)

    # --- healing ------------------------------------------------------------------------------------------------------

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
                _action(undo).carry_out(undo, self._scene)
            except Exception as error:
                # The rest must be undone all the same; `heal` raises at the end.
                LOG.exception("undo failed: %s", _text(undo))
                failures.append(f"{_text(undo)}: {error}")
                continue
            done[undo] = self._clock.monotonic_ns()
        for undo, done_ns in done.items():  # Only now: a history that cannot be written must not keep a fault in place.
            for entry in due[undo]:
                self._record(self._row(entry), FaultPhase.UNDONE, node=undo.node, peer=undo.peer, time_ns=done_ns)
        return list(done), failures

    def _conclude(self, entries: Sequence[JournalEntry], effect: Effect) -> None:
        """Record what was seen of an undo, for every fault it undid."""
        for entry in entries:
            self._record_effect(self._row(entry), effect, FaultPhase.UNDO_VERIFIED)
        if effect.effect is Tristate.YES:
            self._journal.mark(entries, UndoState.UNDONE)

    # --- recording ----------------------------------------------------------------------------------------------------

    def _row(self, entry: JournalEntry) -> dict[str, int]:
        return {"fault": entry.number, "kind": self._recorder.code("fault", entry.fault), "step": entry.step_number}

    def _record_undos(
        self, row: Mapping[str, int], undos: Sequence[Undo], phase: FaultPhase, *, detail: str = ""
    ) -> None:
        for undo in undos:
            self._record(row, phase, node=undo.node, peer=undo.peer, detail=detail)

    def _record_effect(self, row: Mapping[str, int], effect: Effect, phase: FaultPhase) -> None:
        self._record(row, phase, node=effect.node, peer=effect.peer, effect=effect.effect, detail=effect.detail)

    def _record(
        self,
        row: Mapping[str, int],
        phase: FaultPhase,
        *,
        node: str | None = None,
        peer: str | None = None,
        effect: Tristate = Tristate.UNKNOWN,
        detail: str = "",
        time_ns: int | None = None,
    ) -> None:
        """One row of `faults`. Of a cut, `node` receives and `peer` sends."""
        ids = {CLIENTS: ALL_CLIENTS_NODE} | {n.name: n.node_id for n in self._cluster.nodes}
        self._recorder.write(
            "faults",
            **row,
            time_ns=self._clock.monotonic_ns() if time_ns is None else time_ns,
            phase=int(phase),
            node=NONE if node is None else ids.get(node, NONE),
            peer=NONE if peer is None else ids.get(peer, NONE),
            effect=int(effect),
            detail=self._recorder.code("detail", detail) if detail else NONE,
        )


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
