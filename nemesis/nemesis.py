"""The nemesis makes faults and undoes them.

Each fault is written to the journal before it is made, its effect is observed, and it can be undone from any state
(`prozess.nemesis.healing`).
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

from prozess.harness.clock import Clock
from prozess.harness.errors import ClusterFailed, HarnessFailed, NotReady, TargetMissing
from prozess.harness.interfaces import AdminProtocol, AnyFault, Effect, FaultContext, Node, Targets, Undo
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.run_directory import RunDirectory, read_json, write_json
from prozess.harness.schema import FaultPhase, Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.end_of_healing import EndOfHealing
from prozess.nemesis.healing import Healing
from prozess.nemesis.journal import FaultRows, Journal, JournalEntry, RecorderProtocol, UndoState
from prozess.nemesis.registry import UNDO_ACTIONS, fault_named
from prozess.nemesis.roles import Roles

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StruckFault:
    """A fault that was made. `effects` holds what was observed of it, per node (and peer)."""

    number: int
    step: str
    fault: str
    nodes: tuple[str, ...]
    effects: tuple[Effect, ...]

    @property
    def effective(self) -> Tristate:
        """Says whether the fault took effect. YES: it was seen everywhere. NO: somewhere it was seen to have no
        effect. UNKNOWN otherwise."""
        seen = {effect.effect for effect in self.effects}
        if Tristate.NO in seen:
            return Tristate.NO
        return Tristate.YES if seen == {Tristate.YES} else Tristate.UNKNOWN


@runtime_checkable
class _Seeded(Protocol):
    """Parameters of a fault that draws something."""

    @property
    def seed(self) -> str | int | None: ...


@dataclass(frozen=True, slots=True)
class _Aim:
    """A fault that is about to be made, with its roles resolved to nodes."""

    fault: AnyFault
    context: FaultContext
    """The cluster and the targets: the nodes that the roles mean now."""
    parameters: Frozen
    resolved: tuple[tuple[str, tuple[str, ...]], ...]
    """(role, names of nodes) for each role of the step."""
    undos: tuple[Undo, ...]


class Nemesis:
    """Makes and undoes the faults of one run. Only one thread may use it at a time.

    A second Nemesis on the same run directory continues the journal of the first: `heal(None)` undoes what that one
    left.
    """

    def __init__(
        self,
        run: RunDirectory,
        cluster: Targets,
        admin: AdminProtocol,
        recorder: RecorderProtocol,
        clock: Clock,
        report: Callable[[str], None] = LOG.warning,
    ) -> None:
        """`report` is called with each thing that had to be mended after the last undo, as a sentence."""
        self._run, self._cluster, self._admin, self._clock = run, cluster, admin, clock
        self._journal = Journal(run.journal)
        self._rows = FaultRows(recorder, cluster, clock)
        self._healing = Healing(self._journal, self._rows, lambda: self._context, clock, UNDO_ACTIONS)
        self._end = EndOfHealing(self._journal, self._rows, lambda: self._context, clock, UNDO_ACTIONS, report)
        self._next_number = self._journal.next_number
        self._unproven: list[tuple[str, _Aim, Mapping[str, int]]] = []
        """(step, fault, its row) for each fault whose effect is observed when it is healed."""
        self._roles = Roles(
            cluster,
            admin,
            lambda: self._plan.names.partitions,
            clock,
            lambda: self._plan.names.groups,
            lambda: self._plan.names.transactional_ids,
            lambda: self._plan.shares,
            lambda broker: self._plan.variant.rack_of(broker),
        )

    @cached_property
    def _plan(self) -> Plan:
        return parse_plan(self._run.plan.read_text(encoding="utf-8"), source=str(self._run.plan))

    @property
    def _racks(self) -> dict[str, str]:
        variant = self._plan.variant
        numbered = enumerate(self._plan.broker_ids, 1)
        return {f"broker-{b}": rack for index, b in numbered if (rack := variant.rack_of(index)) is not None}

    def reread_plan(self) -> None:
        """Reads the plan again, which has grown: topics and groups of a test come while it runs."""
        for name in ("_plan", "_context"):
            self.__dict__.pop(name, None)

    def strike(self, step_number: int, step: Step) -> StruckFault:
        """Makes the fault of a step, and observes whether it took effect.

        ClusterFailed if a target does not exist now, or the fault could not be made: then nothing is left of it (what had
        been broken is undone; if even that fails, `heal` still knows it). TargetMissing, and nothing recorded, if the step
        may miss and does.
        """
        action = step.do
        assert isinstance(action, FaultAction), step
        assert step_number >= 0, (
            f"step {step.name!r} has the number {step_number}: a fault belongs to a step of the plan"
        )
        number, self._next_number = self._next_number, self._next_number + 1
        row = self._rows.row(number, action.fault, step_number)
        try:
            aim = self._aim(action, step.name)
        except (ClusterFailed, NotReady) as error:
            if step.may_miss and isinstance(error, TargetMissing):
                raise
            self._rows.write(row, FaultPhase.FAILED, detail=str(error))
            raise ClusterFailed(f"Step {step.name!r}: {error}") from error
        self._end.begin()
        names = [node.name for node in aim.context.targets]
        entries = self._journal.plan(
            aim.undos, number=number, step_number=step_number, step=step.name, fault=action.fault, targets=names
        )
        assert [entry.undo for entry in entries] == list(aim.undos), "the journal has other undos than the fault"
        self._rows.write_undos(row, aim.undos, FaultPhase.JOURNALED)
        self._apply(aim, row, entries, step)
        self._journal.mark(entries, UndoState.APPLIED)
        self._rows.write_undos(row, aim.undos, FaultPhase.APPLIED)
        self._remember(step_number, step, aim)
        if aim.fault.proven_at_the_end:
            self._unproven.append((step.name, aim, row))
            return StruckFault(number, step.name, action.fault, tuple(names), ())
        effects = self._prove(aim, row)
        if aim.fault.ends_itself:
            self.heal(step.name)
        return StruckFault(number, step.name, action.fault, tuple(names), effects)

    def _prove(self, aim: _Aim, row: Mapping[str, int]) -> tuple[Effect, ...]:
        """Observes whether a fault took effect, and records what was seen."""
        effects = tuple(aim.fault.verify(aim.context, aim.parameters))
        for effect in effects:
            self._rows.write_effect(row, effect, FaultPhase.VERIFIED)
        return effects

    def heal(self, step_name: str | None) -> list[Effect]:
        """Undoes faults, as `Healing.heal` says. The effect of a fault that waits for something is observed just before.

        After the last undo everything is verified to be what it was before the first fault, and mended if it is not:
        with None everything (`EndOfHealing.verify`), else the processes of the servers that faults hit.
        """
        due = [one for one in self._unproven if step_name in (None, one[0])]
        self._unproven = [one for one in self._unproven if one not in due]
        for _, aim, row in due:
            self._prove(aim, row)
        if step_name is None:
            return self._heal_all()
        effects = self._healing.heal(step_name)
        if not self._journal.open and (left := self._end.bring_up({e.undo.node for e in self._journal.entries})):
            raise ClusterFailed(f"{'; '.join(left)}.")
        return effects

    def _heal_all(self) -> list[Effect]:
        """Undoes every fault and verifies the end. What did not work may work once the servers are up: it is tried twice."""
        try:
            effects = self._healing.heal(None)
        except ClusterFailed:
            LOG.exception("undos failed; they are tried again after the servers are up")
            effects = []
        left = self._end.verify()
        if self._journal.open:
            effects += self._healing.heal(None)
        if left:
            raise ClusterFailed(f"Not everything is as before the first fault: {'; '.join(left)}.")
        return effects

    def keep_up(self) -> None:
        """Brings up servers that have ended since they were healed. Safe to call again and again: it is bounded."""
        if self._journal.open:
            return
        for text in self._end.bring_up():
            LOG.warning("%s", text)

    def unhealed(self) -> Collection[int]:
        """Returns the nodes that faults hold now, as `Healing.unhealed` says."""
        return self._healing.unhealed()

    @cached_property
    def _context(self) -> FaultContext:
        names = self._plan.names
        return FaultContext(
            self._cluster, self._admin, self._clock, partitions=names.partitions, racks=self._racks, names=names
        )

    def _aim(self, action: FaultAction, step_name: str) -> _Aim:
        """Resolves roles to nodes as they are now, and plans what will undo the fault. It changes nothing yet."""
        fault = fault_named(action.fault)()
        found: dict[str, Node] = {}
        resolved: list[tuple[str, tuple[str, ...]]] = []
        for role in action.targets:
            nodes = self._roles.resolve(role, of_partition=fault.of_partitions)
            resolved.append((role, tuple(node.name for node in nodes)))
            found |= {node.name: node for node in nodes}
        targets = tuple(found.values())
        context = replace(
            self._context,
            targets=targets,
            roles=tuple(action.targets),
            step=step_name,
            cut_off=self._healing.cut_off(),
        )
        parameters: Frozen = fault.parameters_model.model_validate(action.parameters)
        if (
            isinstance(parameters, _Seeded) and parameters.seed is None
        ):  # the plan's, so that the same plan does the same
            parameters = parameters.model_copy(update={"seed": f"{self._plan.seed} {step_name}"})
        for name, others in dict(parameters).items():
            if name in fault.role_parameters and others is not None:
                side = self._roles.side(others, targets=targets, roles=action.targets)
                parameters = parameters.model_copy(update={name: side})
                resolved.append((name, side))
        undos = tuple(fault.undos(context, parameters))
        resolved += fault.drawn(context, parameters).items()  # what a seed decided beside the roles
        return _Aim(fault, context, parameters, tuple(resolved), undos)

    def _apply(self, aim: _Aim, row: Mapping[str, int], entries: Sequence[JournalEntry], step: Step) -> None:
        try:
            aim.fault.apply(aim.context, aim.parameters)
        except BaseException as error:
            self._take_back(entries)
            self._rows.write_undos(row, aim.undos, FaultPhase.FAILED, detail=f"{type(error).__name__}: {error}")
            if isinstance(error, HarnessFailed | OSError):
                raise ClusterFailed(f"Step {step.name!r}: {aim.fault.name} failed: {error}") from error
            raise

    def _take_back(self, entries: Sequence[JournalEntry]) -> None:
        """Undoes a fault that was made only in part. What cannot be undone now stays open in the journal."""
        try:
            self.heal(entries[0].step)
        except Exception:
            # It must not replace the error of the fault, and the entries stay open for `heal(None)`.
            LOG.exception("taking back the fault of step %r failed", entries[0].step)

    def _remember(self, step_number: int, step: Step, aim: _Aim) -> None:
        """Appends to resolved.json what each role meant, and the parameters as they were used."""
        before = read_json(self._run.resolved) if self._run.resolved.exists() else []
        now_ns = self._clock.monotonic_ns()
        entries = [
            {
                "step_number": step_number,
                "step": step.name,
                "role": role,
                "nodes": list(nodes),
                "parameters": aim.parameters.model_dump(),
                "time_ns": now_ns,
            }
            for role, nodes in aim.resolved
        ]
        write_json(self._run.resolved, before + entries)
