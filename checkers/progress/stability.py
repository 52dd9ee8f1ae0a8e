"""This kernel checks that a group settles: once no member comes or goes, each partition has one owner, and keeps it."""

from dataclasses import dataclass

import numpy as np

from prozess.checkers.groups.assignments import (
    ASSIGN,
    BACKLOG_NS,
    CLOSE,
    NS_PER_MS,
    Members,
    Ownership,
    OwnershipResult,
    group_of,
    over_partitions,
    polls_of_members,
)
from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import once
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import GroupCase, join_witnesses, make_witnesses, no_witnesses
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE

NEVER_NS = 2**62
GAP_NS = NS_PER_S
"""A member whose heartbeats stop for longer than this stood still, and may have been evicted."""
AT_WORK_NS = 10 * NS_PER_S
"""What a rebalance may take besides heartbeats, and besides the time for which the first one waits for members that start
together (group.initial.rebalance.delay.ms): a member may be at work for so long before it polls again."""
HEARTBEATS = 4
"""A member learns by a heartbeat that it must give partitions up, says with the next one that it has, and another is given
them with one of its own; the one more is for a member that asks just before. [KIP-848; KIP-429: two rebalances in a row]"""


def unstable(history: CellHistory) -> KernelResult:
    """Once no member has come or gone for a while, each partition has an owner, and the same one.

    Source: KafkaConsumer, "Consumer Groups and Topic Subscriptions": partitions move when a member fails or joins, or when
    the topics change; KIP-848. Judged are calms: stretches in which nobody of the group began (until its first callback),
    ended, stood still, or may have polled too rarely. After a calm has lasted `settle_ns`, no member may be assigned a
    partition, and none may be without an owner. A death, or a static member's end, counts until its session is over.
    Members learn of a partition that was added only when they ask for metadata again. A group whose topics grow is not calm
    before each added partition has had its first owner. If one was created and never had any, it is not known when the
    group learned of it, and nothing is judged.

    Example: members start at 0 s and 1 s, the last one ends at 90 s, and `settle_ns` is 20 s. An assignment at 19 s is
    theirs to settle; one at 60 s is a witness. Witness: `reader` was assigned the partition at `end_ns` (case REASSIGNED;
    before, `other_client` had it), or nobody had it until `end_ns` (case UNOWNED). The last member came or went at
    `other_ns`; what happened since `begin_ns` may explain it. O(n log n).
    """
    return over_partitions(history, _unstable)


def settle_ns(cell: Cell, delay_ns: int) -> int:
    """Returns how long a group may take to settle after the last member came or went, and the coordinator knows it.
    `delay_ns`: for how long it waits for the first members (`Bounds.rebalance_delay_ns`)."""
    return HEARTBEATS * group_of(cell).session.heartbeat_ms * NS_PER_MS + AT_WORK_NS + delay_ns


def _unstable(history: CellHistory, partition: PartitionHistory, members: Members) -> OwnershipResult:
    silent = [int(one) for one in members.ids if not len(members.beats[int(one)])]
    if silent or not len(members.ids):
        return no_witnesses(), 0, "nothing shows when the members of the group lived" if silent else None
    if _unlearned(history, partition):
        return no_witnesses(), 0, f"partition {partition.partition} was added, and never had an owner"
    settle = settle_ns(history.cell, history.bounds.rebalance_delay_ns)
    session = group_of(history.cell).session.timeout_ms * NS_PER_MS
    calms = once(history.tables["clients"], "calms", lambda: calms_of(history, members))
    owned = Ownership(history, members, partition.partition)
    settled_ns, until_ns = calms.begin_ns + settle, calms.end_ns
    long = settled_ns < until_ns
    settled_ns, until_ns = settled_ns[long], until_ns[long]
    calm = np.searchsorted(settled_ns, owned.begin_ns, side="left") - 1
    late = np.flatnonzero((calm >= 0) & (owned.begin_ns < np.append(until_ns, 0)[calm]))
    before = np.where(late > 0, owned.client[late - 1], NONE)
    reassigned = make_witnesses(
        len(late),
        {
            "partition": partition.partition,
            "reader": owned.client[late],
            "other_client": before,
            "begin_ns": owned.begin_ns[late] - settle - session,
            "end_ns": owned.begin_ns[late],
            "other_ns": settled_ns[calm[late]] - settle,
            "case": int(GroupCase.REASSIGNED),
        },
    )
    parts = [reassigned]
    for begin_ns, end_ns in zip(settled_ns.tolist(), until_ns.tolist(), strict=True):  # a few calms each
        if ((owned.begin_ns < end_ns) & (owned.known_end_ns > begin_ns)).any():
            continue
        earlier = np.flatnonzero(owned.begin_ns < end_ns)
        columns = {
            "partition": partition.partition,
            "other_client": int(owned.client[earlier[-1]]) if len(earlier) else NONE,
            "begin_ns": end_ns - settle - session,
            "end_ns": end_ns,
            "other_ns": begin_ns - settle,
            "case": int(GroupCase.UNOWNED),
        }
        parts.append(make_witnesses(1, columns))
    return join_witnesses(parts), len(until_ns), None


@dataclass(frozen=True, slots=True)
class Calms:
    """The stretches in which no member came or went and one lived, ascending."""

    begin_ns: np.ndarray
    end_ns: np.ndarray


def calms_of(history: CellHistory, members: Members, *, joined_within_ns: int = NEVER_NS) -> Calms:
    """Returns the calms of a group. `joined_within_ns`: a member has come after so long, with or without a callback."""
    begin_ns, end_ns = _comings_and_goings(history, members, joined_within_ns)
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, reached = begin_ns[order], np.maximum.accumulate(end_ns[order])
    free = np.flatnonzero(begin_ns[1:] > reached[:-1])
    since, until = reached[free], begin_ns[free + 1]
    lived = np.array(
        [
            bool(((members.started_ns <= a) & (members.ended_ns >= b)).any())
            for a, b in zip(since.tolist(), until.tolist(), strict=True)
        ],
        dtype=bool,
    )
    return Calms(since[lived], until[lived])


def _unlearned(history: CellHistory, partition: PartitionHistory) -> bool:
    """Returns whether this partition was added, and no member was ever assigned it."""
    late = partition.partition in history.cell.late_partitions
    created = bool(len(partition.metadata["time_ns"]) or len(partition.sends["client"]))
    return late and created and not len(_first_owned_ns(history, partition.partition))


def _learned_ns(history: CellHistory) -> int:
    """Returns when each partition that was added has had an owner; long after everything, if one never had."""
    first = [_first_owned_ns(history, number) for number in history.cell.late_partitions]
    return max(int(times.min()) if len(times) else NEVER_NS for times in first)


def _first_owned_ns(history: CellHistory, partition: int) -> np.ndarray:
    """Returns when members were assigned a partition."""
    assignments = history.tables["assignments"]
    done_ns = assignments["done_ns"][(assignments["partition"] == partition) & (assignments["event"] == ASSIGN)]
    return np.asarray(done_ns[done_ns != MISSING])


def _comings_and_goings(history: CellHistory, members: Members, joined_within_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (begin_ns, end_ns) of each time in which members may have come or gone. The loop runs over members."""
    assignments, group = history.tables["assignments"], group_of(history.cell)
    session, limit = group.session.timeout_ms * NS_PER_MS, group.configuration.max_poll_interval_ms * NS_PER_MS
    polls = polls_of_members(history)
    spans: list[tuple[int, int]] = []
    for slot, one in enumerate(members.ids.tolist()):
        mine = assignments["client"] == one
        started, ended = int(members.started_ns[slot]), int(members.ended_ns[slot])
        callbacks = np.sort(assignments["started_ns"][mine])
        joined = int(callbacks[0]) if len(callbacks) else ended
        spans.append((started, min(joined, started + joined_within_ns)))
        noticed = session if group.configuration.static_membership or not members.complete[slot] else 0
        spans.append((ended, ended + noticed))
        for row in np.flatnonzero(mine & (assignments["event"] == CLOSE)).tolist():  # one for each partition
            left = int(assignments["done_ns"][row])
            spans.append((int(assignments["started_ns"][row]), (ended if left == MISSING else left) + noticed))
        beats = members.beats[one]
        gaps = np.flatnonzero(np.diff(beats) > GAP_NS)
        spans += [(int(a), int(b) + session) for a, b in zip(beats[gaps], beats[gaps + 1], strict=True)]
        polled = np.concatenate([[started], polls.get(one, beats[:0]), [ended]])
        rare = np.flatnonzero(np.diff(polled) >= limit)
        spans += [(int(a) + limit, int(b) + BACKLOG_NS) for a, b in zip(polled[rare], polled[rare + 1], strict=True)]
    if history.cell.late_partitions:
        spans.append((int(members.started_ns.min()), _learned_ns(history)))
    assert all(begin != MISSING for begin, _ in spans), "a member of which nothing shows when it lived"
    return np.array([a for a, _ in spans], dtype=np.int64), np.array([b for _, b in spans], dtype=np.int64)
