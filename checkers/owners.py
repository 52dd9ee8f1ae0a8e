"""What Kafka promises consumer groups of ownership: each partition has an owner, and one alone. Stage check."""

import numpy as np

from checkers.group_commits import Commits
from checkers.ownership import CLOSE, Found, Members, Ownership, one_instance_may_be_two, over_partitions, session_ns
from harness.group_cases import GroupCase
from harness.protocols import CellHistory, KernelResult, PartitionHistory
from harness.schema import ObservationKind
from harness.witnesses import make_witnesses, no_witnesses


def two_owners(history: CellHistory) -> KernelResult:
    """No two members own one partition at once.

    Source: KafkaConsumer, "Consumer Groups and Topic Subscriptions" ("each partition is assigned to exactly one consumer in
    the group"); KIP-429 and KIP-848 (freed before it is given). Ownership as in `checkers.ownership`: what a member that may
    have been evicted still believes is no ownership. Counts intervals that begin within another member's. Witness: `reader`
    from `begin_ns` on, while `other_client` owned it since `other_ns` and until `end_ns`; `case`: BOTH_COMMITTED where
    both had commits accepted that they made meanwhile, SAME_INSTANCE where both have one group.instance.id. O(n log n).
    """
    return over_partitions(history, _two_owners)


def _two_owners(history: CellHistory, partition: PartitionHistory, members: Members) -> Found:
    owned = Ownership(history, members, partition.partition)
    overlaps = _overlaps(owned.client, owned.begin_ns, owned.end_ns)
    believed = _overlaps(owned.client, owned.begin_ns, owned.known_end_ns)
    commits = Commits(history, partition.partition)
    both = [(i, j) for i, j in believed if (i, j) not in set(overlaps) and _both_committed(owned, commits, i, j)]
    pairs = np.array([*overlaps, *both], dtype=np.intp).reshape(-1, 2)
    later, earlier = pairs[:, 0], pairs[:, 1]
    case = np.full(len(pairs), GroupCase.BOTH_COMMITTED, dtype=np.int32)
    twins = members.twins if one_instance_may_be_two(history) else {}
    case[: len(overlaps)] = [
        _both_committed(owned, commits, i, j)
        or (GroupCase.SAME_INSTANCE if twins.get(int(owned.client[i])) == twins.get(int(owned.client[j]), -1) else 0)
        for i, j in overlaps
    ]
    witnesses = make_witnesses(
        len(pairs),
        {
            "partition": partition.partition,
            "reader": owned.client[later],
            "begin_ns": owned.begin_ns[later],
            "end_ns": np.minimum(owned.known_end_ns[earlier], owned.known_end_ns[later]),
            "other_client": owned.client[earlier],
            "other_ns": owned.begin_ns[earlier],
            "case": case,
        },
    )
    return witnesses, len(owned.client), None


def _both_committed(owned: Ownership, commits: Commits, later: int, earlier: int) -> int:
    """BOTH_COMMITTED if both had commits accepted that they made after the later one had begun, and before the earlier one
    knew; else NO_CAUSE."""
    from_ns, until_ns = int(owned.begin_ns[later]), int(owned.known_end_ns[earlier])
    both = all(commits.accepted_within(int(owned.client[i]), from_ns, until_ns) for i in (earlier, later))
    return GroupCase.BOTH_COMMITTED if both else GroupCase.NO_CAUSE


def _overlaps(client: np.ndarray, begin_ns: np.ndarray, end_ns: np.ndarray) -> list[tuple[int, int]]:
    """(later, earlier) of intervals, ascending by begin, that begin within another client's that lasts longest. As many as
    there are overlaps: normally none."""
    if len(client) < 2:
        return []
    reach = np.maximum.accumulate(end_ns)
    found = []
    for later in (np.flatnonzero(begin_ns[1:] < reach[:-1]) + 1).tolist():
        if end_ns[later] <= begin_ns[later]:  # it may have been over before it began
            continue
        others = np.flatnonzero((client[:later] != client[later]) & (end_ns[:later] > begin_ns[later]))
        found += [(later, int(earlier)) for earlier in others[:1]]
    return found


def orphaned(history: CellHistory) -> KernelResult:
    """After healing every partition of a subscribed topic has an owner within the stated time.

    Source: KafkaConsumer, "Consumer Groups and Topic Subscriptions"; KIP-848. Judged while members drain: from when they were
    told to until the first of them left, as long as they were ready to wait (`observations`, DRAIN_BEGUN). Witness: a
    partition without an owner at the end of that; `begin_ns` since when, `end_ns` until when, `other_client` its last owner,
    if it had one; `case`: WITHIN_SESSION where that one died and its session was not over, so that nobody could know.
    """
    return over_partitions(history, _orphaned)


def _orphaned(history: CellHistory, partition: PartitionHistory, members: Members) -> Found:
    seen, assignments = history.tables["observations"], history.tables["assignments"]
    begun = np.flatnonzero((seen["kind"] == ObservationKind.DRAIN_BEGUN) & (seen["partition"] == partition.partition))
    if not len(begun):
        return no_witnesses(), 0, f"the members of partition {partition.partition} never drained"
    begin_ns = int(seen["time_ns"][begun].max())
    closes = assignments["started_ns"][(assignments["event"] == CLOSE) & (assignments["started_ns"] > begin_ns)]
    drained = members.ended_ns[members.ended_ns > begin_ns]
    end_ns = int(min([*closes.tolist(), *drained.tolist()], default=begin_ns))
    owned = Ownership(history, members, partition.partition)
    if ((owned.begin_ns <= end_ns) & (owned.known_end_ns >= end_ns)).any():
        return no_witnesses(), 1, None
    last = int(np.argmax(owned.known_end_ns)) if len(owned.client) else -1
    since_ns = max(begin_ns, int(owned.known_end_ns[last])) if last >= 0 else begin_ns
    died = last >= 0 and bool(members.crashed(owned.client[[last]])[0])
    assert history.cell.group is not None
    within = died and end_ns - int(owned.known_end_ns[last]) < session_ns(history.cell)
    witnesses = make_witnesses(
        1,
        {
            "partition": partition.partition,
            "begin_ns": since_ns,
            "end_ns": end_ns,
            "other_client": int(owned.client[last]) if last >= 0 else -1,
            "case": GroupCase.WITHIN_SESSION if within else GroupCase.NO_CAUSE,
        },
    )
    return witnesses, 1, None
