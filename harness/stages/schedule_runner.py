"""Carries out a schedule: waits for each step's condition, then does what it says, and records what really happened.

A step that times out or fails ends the schedule: the rest is recorded as skipped, and judgement makes what depended on it
unknown. Healing is not this module's duty; the run stage heals in every exit path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.clock import NS_PER_S, Clock, wait_until
from harness.conditions import Answer, Snapshot, World, evaluate
from harness.errors import ClusterFailed, NotReady, TargetMissing
from harness.plan import Cell
from harness.protocols import Workload
from harness.schedule import (
    AddPartitions,
    ClientAction,
    DeleteRecords,
    Each,
    FaultAction,
    HealAction,
    Inspect,
    Mix,
    PauseSends,
    ResumeSends,
    Selector,
    Send,
    Step,
    TakeOver,
)
from harness.schema import MISSING, NONE, StepOutcome

POLL_S = 0.02


class NemesisProtocol(Protocol):
    """What the runner needs of the nemesis."""

    def strike(self, step_number: int, step: Step) -> object:
        """Carry out the step's fault. ClusterFailed or NotReady if it could not be done."""
        ...

    def heal(self, step_name: str | None) -> object:
        """Undo the fault of that step, or every one."""
        ...


class InspectorProtocol(Protocol):
    """What the runner needs to look into the replicas' own files."""

    def inspect(self, partitions: Sequence[int], *, step: int) -> object:
        """Write what the copies of these partitions hold into the history."""
        ...


class TopicsProtocol(Protocol):
    """What the runner needs to change topics under load."""

    def add_partitions(self, cells: Sequence[Cell]) -> object:
        """Create the late partitions of these cells, and let producers write to them."""
        ...

    def delete_records(self, cells: Sequence[Cell], *, keep: int, step: int, now_ns: int) -> object:
        """Delete all but the last `keep` records of each partition of these cells."""
        ...


class RecorderProtocol(Protocol):
    """What the runner needs of the recorder."""

    def write(self, table: str, **columns: int) -> None:
        """One row; missing columns are unset."""
        ...

    def code(self, dictionary: str, text: str) -> int:
        """The dictionary code of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Hands:
    """Who does what steps say."""

    workload: Workload
    nemesis: NemesisProtocol
    inspector: InspectorProtocol
    topics: TopicsProtocol


class ScheduleRunner:
    """Runs the steps of one plan. `start_ns`: the trial's clock's zero, monotonic."""

    def __init__(
        self,
        world: World,
        hands: Hands,
        *,
        recorder: RecorderProtocol,
        clock: Clock,
        start_ns: int,
        announce: Callable[[int, Step, str], None],
    ) -> None:
        self._world, self._hands = world, hands
        self._workload, self._nemesis = hands.workload, hands.nemesis
        self._recorder, self._clock, self._start_ns = recorder, clock, start_ns
        self._announce = announce
        self._since: Snapshot | None = None

    def run(self) -> bool:
        """True if every step was done."""
        steps = self._world.plan.steps
        for number, step in enumerate(steps):
            if not self.carry_out(number, step):
                for skipped in range(number + 1, len(steps)):
                    self._record(skipped, MISSING, MISSING, StepOutcome.SKIPPED, f"after {step.name!r} was not done")
                return False
        return True

    def carry_out(self, number: int, step: Step) -> bool:
        """One step; False if it was not done. What became of it is recorded, and announced."""
        awaited_ns = self._clock.monotonic_ns()
        since = self._since = self._since or self._snapshot()
        try:
            self._await(step, since)
        except NotReady as error:
            self._record(number, awaited_ns, MISSING, StepOutcome.TIMED_OUT, str(error))
            self._announce(number, step, f"timed out: {error}")
            return False
        fired_ns = self._clock.monotonic_ns()
        before_action = self._snapshot()
        outcome, detail = StepOutcome.DONE, ""
        try:
            self._do(number, step)
        except TargetMissing as error:
            if not step.may_miss:
                return self._failed(number, step, error, awaited_ns, fired_ns)
            outcome, detail = StepOutcome.MISSED, str(error)
        except (NotReady, ClusterFailed) as error:
            return self._failed(number, step, error, awaited_ns, fired_ns)
        # Counts from before the action, time from after it: acknowledgements may come while it is carried out.
        self._since = Snapshot(self._clock.monotonic_ns(), before_action.progress)
        self._record(number, awaited_ns, fired_ns, outcome, detail)
        self._announce(number, step, f"left out: {detail}" if detail else "done")
        return True

    def _failed(self, number: int, step: Step, error: Exception, awaited_ns: int, fired_ns: int) -> bool:
        self._record(number, awaited_ns, fired_ns, StepOutcome.FAILED, str(error))
        self._announce(number, step, f"failed: {error}")
        return False

    def _await(self, step: Step, since: Snapshot) -> None:
        answer = Answer(False, "nothing")

        def holds() -> bool:
            nonlocal answer
            if step.at_s is not None and self._clock.monotonic_ns() < self._start_ns + int(step.at_s * NS_PER_S):
                answer = Answer(False, f"not yet {step.at_s:g} s on the trial's clock")
                return False
            if step.after is None:
                return True
            answer = evaluate(step.after, self._world, since)
            return answer.holds

        wait_until(
            holds,
            awaited=f"step {step.name!r}",
            timeout_s=step.timeout_s + self._planned_wait_s(step),
            clock=self._clock,
            last_seen=lambda: answer.seen,
            interval_s=POLL_S,
        )

    def _planned_wait_s(self, step: Step) -> float:
        """What the step itself asks to wait is not part of its limit."""
        wait_s = 0.0
        if step.at_s is not None:
            wait_s = max(0.0, step.at_s - (self._clock.monotonic_ns() - self._start_ns) / NS_PER_S)
        seconds = getattr(step.after, "seconds", 0.0)
        return wait_s + (seconds if isinstance(seconds, int | float) else 0.0)

    def _do(self, number: int, step: Step) -> None:
        match step.do:
            case None:
                pass
            case FaultAction():
                self._nemesis.strike(number, step)
            case HealAction():
                self._nemesis.heal(step.do.step)
            case Inspect():
                self._hands.inspector.inspect(self._world.partitions_of(step.do.cells), step=number)
            case AddPartitions():
                self._hands.topics.add_partitions(self._cells(step.do.cells))
            case DeleteRecords():
                now_ns = self._clock.monotonic_ns()
                self._hands.topics.delete_records(
                    self._cells(step.do.cells), keep=step.do.keep, step=number, now_ns=now_ns
                )
            case Mix() | Each():
                raise AssertionError("the plan has made steps of every mix and list")
            case _:
                self._command(step.do)

    def _command(self, action: PauseSends | ResumeSends | Send | ClientAction | TakeOver) -> None:
        """What clients are told."""
        match action:
            case PauseSends():
                self._workload.command("pause_sends")
            case ResumeSends():
                self._workload.command("resume_sends")
            case Send():
                cells = tuple(cell.cell for cell in self._cells(action.cells))
                only = {} if action.producer is None else {"producer": action.producer}
                self._workload.command("send", cells=cells, count=action.count, **only)
            case ClientAction():
                more = {} if action.seconds is None else {"seconds": action.seconds}
                for name in action.client:
                    self._workload.command(f"{action.do}_client", client=name, **more)
            case TakeOver():
                cells = tuple(cell.cell for cell in self._cells(action.cells))
                self._workload.command("take_over", cells=cells, hold=action.hold)

    def _cells(self, selector: Selector) -> tuple[Cell, ...]:
        return self._world.plan.cells_matching(selector)

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._clock.monotonic_ns(), self._world.progress())

    def _record(self, number: int, awaited_ns: int, fired_ns: int, outcome: StepOutcome, detail: str) -> None:
        self._recorder.write(
            "steps",
            awaited_ns=awaited_ns,
            fired_ns=fired_ns,
            done_ns=self._clock.monotonic_ns() if outcome is not StepOutcome.SKIPPED else MISSING,
            step=number,
            outcome=int(outcome),
            detail=self._recorder.code("detail", detail) if detail else NONE,
        )
