"""Conditions of a schedule, evaluated against the running trial. What they mean is in `harness.schedule`.

Who leads and who is in sync is asked of every living broker itself, never of one: a broker cut off from the controllers goes
on reporting what it last knew.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.clock import NS_PER_S
from harness.plan import Plan, PlannedPartition
from harness.protocols import AdminProtocol, BrokerView, PartitionView, Progress
from harness.schedule import Acked, Behind, Condition, Elapsed, IsrIs, LeaderMoved, Offline, Selector, Settled, Unfenced


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The moment the previous step was done: what "since then" refers to."""

    time_ns: int
    progress: Mapping[int, Progress]


@dataclass(frozen=True, slots=True)
class World:
    """What conditions may look at."""

    plan: Plan
    admin: AdminProtocol
    progress: Callable[[], Mapping[int, Progress]]
    unhealed: Callable[[], Collection[int]]
    """Node ids hit by faults that are not healed."""
    now_ns: Callable[[], int]
    log_ends: Callable[[Sequence[int]], Mapping[tuple[int, int], int]] = lambda _: {}
    """Dense ids → (node id, dense id) → the end of that copy by its own files; one that cannot be read is not there."""
    absent: Callable[[], Collection[int]] = tuple
    """Dense ids of planned partitions that do not exist yet."""

    def partitions_of(self, cells: Selector) -> list[int]:
        """Dense ids of the partitions of the selected cells that our own clients write and that are there."""
        absent = self.absent()
        return [p for cell in self.plan.cells_matching(cells) for p in cell.written if p not in absent]


@dataclass(frozen=True, slots=True)
class Answer:
    """Does it hold, and what was seen (for the error of a wait that ends)?"""

    holds: bool
    seen: str


def evaluate(condition: Condition, world: World, since: Snapshot) -> Answer:
    """Does `condition` hold now?"""
    match condition:
        case Elapsed():
            assert isinstance(condition.seconds, int | float), "the plan draws every number"
            passed_s = (world.now_ns() - since.time_ns) / NS_PER_S
            return Answer(passed_s >= condition.seconds, f"{passed_s:.2f} s passed")
        case Acked():
            return _acked(condition, world, since)
        case Settled():
            return _settled(condition.cells, world)
        case LeaderMoved():
            return _leader_moved(condition, world)
        case Offline():
            return _every_view(
                world, condition, lambda seen: seen.leader >= 0, avoid=set(world.unhealed()), what="with a leader"
            )
        case IsrIs():
            return _isr_is(condition, world)
        case Unfenced():
            return _unfenced(condition, world)
        case Behind():
            return _behind(condition, world)


def _acked(condition: Acked, world: World, since: Snapshot) -> Answer:
    now, behind = world.progress(), []
    partitions = world.partitions_of(condition.cells)
    for partition in partitions:
        gained = now[partition].ok - since.progress[partition].ok
        if gained < condition.count:
            behind.append((gained, partition))
    if not behind:
        return Answer(True, f"{len(partitions)} partitions acknowledged {condition.count}")
    least, which = min(behind)
    return Answer(
        False,
        f"{len(behind)} of {len(partitions)} partitions behind, partition {which} at {least} of {condition.count}",
    )


def _settled(cells: Selector, world: World) -> Answer:
    now = world.progress()
    flying = {p: _in_flight(now[p]) for p in world.partitions_of(cells) if _in_flight(now[p])}
    return Answer(not flying, f"{sum(flying.values())} records in flight to {len(flying)} partitions")


def _in_flight(progress: Progress) -> int:
    return progress.issued - progress.ok - progress.failed - progress.info


def _leader_moved(condition: LeaderMoved, world: World) -> Answer:
    hit = set(world.unhealed())

    def wrong(partition: PartitionView) -> bool:
        return partition.leader < 0 or partition.leader in hit

    return _every_view(world, condition, wrong, avoid=hit, what="without a leader, or led by a node that was hit")


def _isr_is(condition: IsrIs, world: World) -> Answer:
    wanted = None if condition.brokers is None else set(condition.brokers)

    def wrong(partition: PartitionView) -> bool:
        in_sync = set(partition.isr) == (set(partition.replicas) if wanted is None else wanted)
        return partition.leader < 0 or not in_sync

    expected = "all replicas" if wanted is None else str(sorted(wanted))
    return _every_view(world, condition, wrong, avoid=set(world.unhealed()), what=f"whose ISR is not {expected}")


def _every_view(
    world: World,
    condition: LeaderMoved | Offline | IsrIs,
    wrong: Callable[[PartitionView], bool],
    *,
    avoid: set[int],
    what: str,
) -> Answer:
    """Every broker that no fault holds must answer, and none may see a wrong partition."""
    wanted = _meant(world, condition)
    topics = sorted({p.topic_name for p in wanted})
    # A node that a fault holds is not asked: it may be frozen, and would cost the whole limit of a look.
    brokers = [node for node in world.plan.broker_ids if node not in avoid]
    views = {node: world.admin.view(node, topics) for node in brokers}
    silent = sorted(node for node, view in views.items() if view is None)
    if silent:
        return Answer(False, f"no answer from broker {', '.join(map(str, silent))}")
    keys = [(p.topic_name, p.number) for p in wanted]
    for node, view in sorted(views.items()):
        if view is not None and (bad := _wrong_in(view, keys, wrong)):
            return Answer(False, f"broker {node} sees {len(bad)} of {len(keys)} partitions {what}, such as {bad[0]}")
    return Answer(bool(views), f"{len(views)} brokers agree")


def _meant(world: World, condition: LeaderMoved | Offline | IsrIs) -> list[PlannedPartition]:
    absent, cells = world.absent(), {cell.cell for cell in world.plan.cells_matching(condition.cells)}
    every = (p for p in world.plan.partitions if p.partition not in absent and p.cell in cells)
    return [p for p in every if condition.partition in (None, p.partition)]


def _wrong_in(view: BrokerView, keys: Sequence[tuple[str, int]], wrong: Callable[[PartitionView], bool]) -> list[str]:
    bad = []
    for topic, number in keys:
        partition = view.get((topic, number))
        # Of a partition that nobody leads a broker says LEADER_NOT_AVAILABLE: that is for `wrong` to judge.
        if partition is None or (partition.error and partition.leader >= 0) or wrong(partition):
            shown = "unknown" if partition is None else f"leader {partition.leader}, ISR {list(partition.isr)}"
            bad.append(f"{topic}-{number}: {shown}")
    return bad


def _unfenced(condition: Unfenced, world: World) -> Answer:
    node = _node_id(condition.node)
    topics = sorted({p.topic_name for p in world.plan.partitions})
    own = world.admin.view(node, topics)
    if own is None:
        return Answer(False, f"{condition.node} does not answer")
    absent = [p for p in own.values() if node in p.replicas and node not in p.isr and p.leader < 0]
    return Answer(not absent, f"{condition.node} answers; {len(absent)} of its partitions have no leader")


def _behind(condition: Behind, world: World) -> Answer:
    partitions = world.partitions_of(condition.cells)
    ends = world.log_ends(partitions)
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
