"""Carries out a schedule: it waits for each step's condition, performs the step, and records what really happened."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prozess.app.run.cluster_state import Inspector
from prozess.app.run.trial_topics import ScheduledClients, TrialTopics
from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.config.messages.match import awaited_rule
from prozess.harness.errors import ClusterFailed, NotReady, TargetMissing
from prozess.harness.interfaces import AdminProtocol, BrokerView, MessageWatch, PartitionView, Progress
from prozess.harness.plan.plan import Cell, Plan, PlannedPartition
from prozess.harness.plan.schedule import (
    Acked,
    AddPartitions,
    AlterTopics,
    Behind,
    Condition,
    DeleteRecords,
    DeleteTopics,
    Each,
    Elapsed,
    FaultAction,
    HealAction,
    Inspect,
    IsrIs,
    LeaderMoved,
    MakeTopics,
    MessagePassed,
    Mix,
    Offline,
    Selector,
    Settled,
    Step,
    Unfenced,
)
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import MISSING, NONE, StepOutcome
from prozess.nemesis.nemesis import Nemesis

# The conditions of a schedule, whose meaning is in `prozess.harness.plan.schedule`. Every living broker is asked who leads
# and who is in sync, because a broker that is cut off from the controllers goes on reporting what it last knew.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at the moment when the previous step was done: conditions count from it."""

    time_ns: int
    progress: Mapping[int, Progress]


@dataclass(frozen=True, slots=True)
class Context:
    """The state of the trial that conditions read: acknowledged records, leaders, active faults."""

    plan: Plan
    admin: AdminProtocol
    progress: Callable[[], Mapping[int, Progress]]
    unhealed: Callable[[], Collection[int]]
    """Returns the ids of the nodes that were hit by faults that are not healed."""
    now_ns: Callable[[], int]
    log_ends: Callable[[Sequence[int]], Mapping[tuple[int, int], int]] = lambda _: {}
    """Dense ids → (node id, dense id) → the end of that copy, by its own files. A copy that cannot be read is missing.
    """
    absent: Callable[[], Collection[int]] = tuple
    """Returns the dense ids of the planned partitions that do not exist yet."""
    messages: MessageWatch | None = None
    """The watcher of single messages; None if no step is about messages."""

    def partitions_of(self, cells: Selector) -> list[int]:
        """Returns the dense ids of those partitions of the selected cells that exist and that prozess's own clients
        write to."""
        absent = self.absent()
        return [p for cell in self.plan.cells_matching(cells) for p in cell.written if p not in absent]


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a condition: whether it holds, and what was seen, for the error message of a wait that ends."""

    holds: bool
    seen: str


def evaluate(condition: Condition, context: Context, since: Snapshot) -> Answer:
    """Returns whether `condition` holds now."""
    match condition:
        case Elapsed():
            assert isinstance(condition.seconds, int | float), "the plan draws every number"
            passed_s = (context.now_ns() - since.time_ns) / NS_PER_S
            return Answer(passed_s >= condition.seconds, f"{passed_s:.2f} s passed")
        case Acked():
            return _acked(condition, context, since)
        case Settled():
            return _settled(condition.cells, context)
        case LeaderMoved():
            return _leader_moved(condition, context)
        case Offline():
            return _every_view(
                context, condition, lambda seen: seen.leader >= 0, avoid=set(context.unhealed()), what="with a leader"
            )
        case IsrIs():
            return _isr_is(condition, context)
        case Unfenced():
            return _unfenced(condition, context)
        case Behind():
            return _behind(condition, context)
        case MessagePassed():
            raise AssertionError("a message is awaited by the rule that is armed for its step")


def _acked(condition: Acked, context: Context, since: Snapshot) -> Answer:
    now, behind = context.progress(), []
    partitions = context.partitions_of(condition.cells)
    for partition in partitions:
        gained = now[partition].ok - since.progress[partition].ok
        if gained < condition.count:
            behind.append((gained, partition))
    if not behind:
        return Answer(True, f"{len(partitions)} partitions acknowledged {condition.count}")
    least, which = min(behind)
    return Answer(
        False,
        f"{len(behind)} of {len(partitions)} partitions have fewer; partition {which} has {least} of {condition.count}",
    )


def _settled(cells: Selector, context: Context) -> Answer:
    now = context.progress()
    flying = {p: _in_flight(now[p]) for p in context.partitions_of(cells) if _in_flight(now[p])}
    return Answer(not flying, f"{sum(flying.values())} records in flight to {len(flying)} partitions")


def _in_flight(progress: Progress) -> int:
    return progress.issued - progress.ok - progress.failed - progress.info


def _leader_moved(condition: LeaderMoved, context: Context) -> Answer:
    hit = set(context.unhealed())

    def wrong(partition: PartitionView) -> bool:
        return partition.leader < 0 or partition.leader in hit

    return _every_view(
        context, condition, wrong, avoid=hit, what="without a leader, or led by a node that a fault has hit"
    )


def _isr_is(condition: IsrIs, context: Context) -> Answer:
    wanted = None if condition.brokers is None else set(condition.brokers)

    def wrong(partition: PartitionView) -> bool:
        in_sync = set(partition.isr) == (set(partition.replicas) if wanted is None else wanted)
        return partition.leader < 0 or not in_sync

    expected = "all replicas" if wanted is None else str(sorted(wanted))
    return _every_view(context, condition, wrong, avoid=set(context.unhealed()), what=f"whose ISR is not {expected}")


def _every_view(
    context: Context,
    condition: LeaderMoved | Offline | IsrIs,
    wrong: Callable[[PartitionView], bool],
    *,
    avoid: set[int],
    what: str,
) -> Answer:
    """Holds if every broker that no fault has hit answers, and none of them sees a wrong partition."""
    wanted = _meant(context, condition)
    topics = sorted({p.topic_name for p in wanted})
    # A node that a fault holds is not asked: it may be frozen, and would cost the whole limit of a look.
    brokers = [node for node in context.plan.broker_ids if node not in avoid]
    views = {node: context.admin.view(node, topics) for node in brokers}
    silent = sorted(node for node, view in views.items() if view is None)
    if silent:
        return Answer(False, f"no answer from broker {', '.join(map(str, silent))}")
    keys = [(p.topic_name, p.number) for p in wanted]
    for node, view in sorted(views.items()):
        if view is not None and (bad := _wrong_in(view, keys, wrong)):
            return Answer(False, f"broker {node} sees {len(bad)} of {len(keys)} partitions {what}, such as {bad[0]}")
    return Answer(bool(views), f"{len(views)} brokers agree")


def _meant(context: Context, condition: LeaderMoved | Offline | IsrIs) -> list[PlannedPartition]:
    absent, cells = context.absent(), {cell.cell for cell in context.plan.cells_matching(condition.cells)}
    every = (p for p in context.plan.partitions if p.partition not in absent and p.cell in cells)
    return [p for p in every if condition.partition in (None, p.partition)]


def _wrong_in(view: BrokerView, keys: Sequence[tuple[str, int]], wrong: Callable[[PartitionView], bool]) -> list[str]:
    bad = []
    for topic, number in keys:
        partition = view.get((topic, number))
        # For a partition without a leader a broker answers LEADER_NOT_AVAILABLE, which `wrong` judges.
        if partition is None or (partition.error and partition.leader >= 0) or wrong(partition):
            shown = "unknown" if partition is None else f"leader {partition.leader}, ISR {list(partition.isr)}"
            bad.append(f"{topic}-{number}: {shown}")
    return bad


def _unfenced(condition: Unfenced, context: Context) -> Answer:
    node = _node_id(condition.node)
    topics = sorted({p.topic_name for p in context.plan.partitions})
    own = context.admin.view(node, topics)
    if own is None:
        return Answer(False, f"{condition.node} does not answer")
    absent = [p for p in own.values() if node in p.replicas and node not in p.isr and p.leader < 0]
    return Answer(not absent, f"{condition.node} answers; {len(absent)} of its partitions have no leader")


def _behind(condition: Behind, context: Context) -> Answer:
    partitions = context.partitions_of(condition.cells)
    ends = context.log_ends(partitions)
    ahead = _node_id(condition.node)
    for partition in partitions:
        own = ends.get((ahead, partition))
        if own is None:
            return Answer(False, f"{condition.node} has no copy of partition {partition} that can be read")
        for name, wanted in condition.records.items():
            end = ends.get((_node_id(name), partition))
            if end is None or own - end != wanted:
                seen = "cannot be read" if end is None else f"ends at {end}"
                return Answer(
                    False,
                    f"partition {partition}: {condition.node} ends at {own}, {name} {seen}; it should be {wanted} behind",
                )
    return Answer(True, f"{len(partitions)} partitions end as they should")


def _node_id(name: str) -> int:
    return int(name.rpartition("-")[2])


# A step that times out or fails ends the schedule. The other steps are recorded as skipped, and verdicts that depend on them
# become unknown. Healing is not done here: the run stage heals however it ends.

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Actors:
    """The parts of the harness that carry out steps."""

    workload: ScheduledClients
    nemesis: Nemesis
    inspector: Inspector
    topics: TrialTopics


class ScheduleRunner:
    """Runs the steps of one plan. `start_ns`: the zero of the trial's clock, on the monotonic clock."""

    def __init__(
        self,
        context: Context,
        actors: Actors,
        *,
        recorder: Recorder,
        clock: Clock,
        start_ns: int,
        announce: Callable[[int, Step, str], None],
    ) -> None:
        self._context, self._actors = context, actors
        self._nemesis = actors.nemesis
        self._recorder, self._clock, self._start_ns = recorder, clock, start_ns
        self._announce = announce
        self._since: Snapshot | None = None

    def run(self) -> bool:
        """Runs every step. Returns whether all were done."""
        steps = self._context.plan.steps
        for number, step in enumerate(steps):
            if not self.carry_out(number, step):
                for skipped in range(number + 1, len(steps)):
                    self._record(skipped, MISSING, MISSING, StepOutcome.SKIPPED, f"after {step.name!r} was not done")
                return False
        return True

    def carry_out(self, number: int, step: Step) -> bool:
        """Carries out one step, and records and announces its result. Returns whether it was done."""
        awaited_ns = self._clock.monotonic_ns()
        since = self._since = self._since or self._snapshot()
        with self._watching(step):
            return self._await_and_do(number, step, since, awaited_ns)

    def _await_and_do(self, number: int, step: Step, since: Snapshot, awaited_ns: int) -> bool:
        try:
            self._await(step, since)
        except NotReady as error:
            if not step.may_miss:
                self._record(number, awaited_ns, MISSING, StepOutcome.TIMED_OUT, str(error))
                self._announce(number, step, f"timed out: {error}")
                return False
            return self._left_out(number, step, error, awaited_ns, MISSING)
        fired_ns = self._clock.monotonic_ns()
        before_action = self._snapshot()
        try:
            self._do(number, step)
        except TargetMissing as error:
            if not step.may_miss:
                return self._failed(number, step, error, awaited_ns, fired_ns)
            return self._left_out(number, step, error, awaited_ns, fired_ns)
        except (NotReady, ClusterFailed) as error:
            return self._failed(number, step, error, awaited_ns, fired_ns)
        # Counts from before the action, time from after it: acknowledgements may come while it is carried out.
        self._since = Snapshot(self._clock.monotonic_ns(), before_action.progress)
        self._record(number, awaited_ns, fired_ns, StepOutcome.DONE, "")
        self._announce(number, step, "done")
        return True

    def _left_out(self, number: int, step: Step, error: Exception, awaited_ns: int, fired_ns: int) -> bool:
        """Skips a step that is allowed to miss. The next step counts from here."""
        self._since = self._snapshot()
        self._record(number, awaited_ns, fired_ns, StepOutcome.MISSED, str(error))
        self._announce(number, step, f"left out: {error}")
        return True

    @contextmanager
    def _watching(self, step: Step) -> Iterator[None]:
        """Watches for the message that the step waits for. A message that is held is released when the step ends, done or
        not.
        """
        condition = step.after
        if not isinstance(condition, MessagePassed):
            yield
            return
        messages, rule, match = self._watch, awaited_rule(step.name), condition.match
        if match.nth is None:  # exactly one message is held
            match = match.model_copy(update={"nth": 1, "every": None, "until": None})
        meant = self._context.plan.names.meant(match, self._context.admin.topic_ids)
        messages.arm(rule, meant.wanted, {"do": "wait" if condition.hold else "record"}, link=None)
        try:
            yield
        finally:
            messages.disarm(rule, link=None, deliver=True)

    @property
    def _watch(self) -> MessageWatch:
        assert self._context.messages is not None, "a plan with such a step has what watches messages"
        return self._context.messages

    def _failed(self, number: int, step: Step, error: Exception, awaited_ns: int, fired_ns: int) -> bool:
        self._record(number, awaited_ns, fired_ns, StepOutcome.FAILED, str(error))
        self._announce(number, step, f"failed: {error}")
        return False

    def _await(self, step: Step, since: Snapshot) -> None:
        answer = Answer(False, "nothing")

        def holds() -> bool:
            nonlocal answer
            if step.at_s is not None and self._clock.monotonic_ns() < self._start_ns + int(step.at_s * NS_PER_S):
                answer = Answer(False, f"the trial's clock is not at {step.at_s:g} s yet")
                return False
            if step.after is None:
                return True
            if isinstance(step.after, MessagePassed):
                found = self._watch.look(awaited_rule(step.name))
                answer = Answer(
                    found["acted"] > 0, f"{found['matched']} such messages, {found['connections']} connections"
                )
                return answer.holds
            answer = evaluate(step.after, self._context, since)
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
        """Returns the time that the step itself wants to wait, which does not count towards its limit."""
        wait_s = 0.0
        if step.at_s is not None:
            wait_s = max(0.0, step.at_s - (self._clock.monotonic_ns() - self._start_ns) / NS_PER_S)
        seconds = step.after.seconds if isinstance(step.after, Elapsed) else 0.0
        return wait_s + (seconds if isinstance(seconds, int | float) else 0.0)

    def _change_topics(
        self, number: int, action: AddPartitions | DeleteRecords | DeleteTopics | MakeTopics | AlterTopics
    ) -> None:
        topics, cells, clock = self._actors.topics, self._cells(action.cells), self._clock
        match action:
            case AddPartitions():
                topics.add_partitions(cells)
            case DeleteRecords():
                topics.delete_records(cells, keep=action.keep, step=number, clock=clock)
            case DeleteTopics():
                topics.delete(cells, avoid=self._context.unhealed(), clock=clock)
            case MakeTopics():
                topics.make(cells, by_clients=action.by == "clients", clock=clock)
            case AlterTopics():
                topics.alter(cells, action.properties, clock=clock)

    def _do(self, number: int, step: Step) -> None:
        match step.do:
            case None:
                pass
            case FaultAction():
                self._nemesis.strike(number, step)
            case HealAction():
                self._nemesis.heal(step.do.step)
            case Inspect():
                self._actors.inspector.inspect(self._context.partitions_of(step.do.cells), step=number)
            case AddPartitions() | DeleteRecords() | DeleteTopics() | MakeTopics() | AlterTopics():
                self._change_topics(number, step.do)
            case Mix() | Each():
                raise AssertionError("the plan has made steps of every mix and list")
            case _:
                self._actors.workload.command(step.do)

    def _cells(self, selector: Selector) -> tuple[Cell, ...]:
        return self._context.plan.cells_matching(selector)

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._clock.monotonic_ns(), self._context.progress())

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


# If the cluster does not recover from its faults, the run goes on to its audit all the same. Its verdict cannot be "held".


KEEP_UP_S = 5.0
"""How often the servers are looked at while replicas are awaited: one may have ended just after it was healed."""


def wait_whole(context: Context, *, timeout_s: float, clock: Clock, keep_up: Callable[[], None]) -> None:
    """Waits until every ISR has all replicas, on every broker's own view. NotReady with what is missing. `keep_up` brings
    up servers that have ended."""
    last = "nothing"
    next_ns = clock.monotonic_ns() + int(KEEP_UP_S * NS_PER_S)

    def whole() -> bool:
        nonlocal last, next_ns
        if clock.monotonic_ns() >= next_ns:
            keep_up()
            next_ns = clock.monotonic_ns() + int(KEEP_UP_S * NS_PER_S)
        answer = evaluate(IsrIs(condition="isr"), context, Snapshot(clock.monotonic_ns(), {}))
        last = answer.seen
        return answer.holds

    wait_until(
        whole,
        awaited="every replica to be in sync, on every broker's own view",
        timeout_s=timeout_s,
        clock=clock,
        last_seen=lambda: last,
        interval_s=0.1,
    )


class Recovery:
    """Records in a run's `recovery.json` the failures from which the cluster did not recover. `emit` writes an event."""

    def __init__(self, run: RunDirectory, emit: Callable[..., None]) -> None:
        self._run, self._emit = run, emit
        self._lacking: list[str] = []

    @property
    def failed(self) -> bool:
        """Returns whether the cluster did not recover in some way."""
        return bool(self._lacking)

    def attempt(self, work: Callable[[], object]) -> None:
        """Does a part of the healing. A failure is noted at once, and nothing is raised."""
        try:
            work()
        except (NotReady, ClusterFailed) as error:
            if str(error) not in self._lacking:
                self._lacking.append(str(error))
                self._emit("not-whole", text=str(error))
        write_json(self._run.recovery, self._lacking)
