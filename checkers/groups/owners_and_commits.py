"""These kernels check what a group coordinator promises: each partition has one owner, and committed offsets do not fall."""

import numpy as np

from prozess.checkers.groups.assignments import (
    CLOSE,
    END_OF_TIME_NS,
    LOST,
    SOUGHT,
    MemberEvents,
    Members,
    Ownership,
    OwnershipResult,
    missed_at,
    one_instance_may_be_two,
    over_partitions,
    session_ns,
)
from prozess.checkers.lookup import Lookup, differs_from_previous
from prozess.harness.columns import rows_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, GroupCase, join_witnesses, make_witnesses, no_witnesses
from prozess.harness.schema import MISSING, ObservationKind, Outcome

_BEFORE_ALL = -1


class Commits:
    """The accepted commits of one partition, in the order in which they were acknowledged."""

    def __init__(self, history: CellHistory, partition: int) -> None:
        self.table, self._seen, self.partition = history.tables["commits"], history.tables["observations"], partition
        mine = rows_of(self.table, partition)
        outcome = self.table["outcome"][mine]
        self.tried = mine[outcome != Outcome.FAIL.value]
        """The rows of `commits` that may have taken effect."""
        rows = mine[(outcome == Outcome.OK.value) & (self.table["completed_ns"][mine] != MISSING)]
        self.rows = rows[np.argsort(self.table["completed_ns"][rows], kind="stable")]
        self.completed_ns = self.table["completed_ns"][self.rows]
        self.offset = self.table["log_offset"][self.rows]
        self.reached = np.maximum.accumulate(self.offset) if len(self.rows) else self.offset
        """The greatest offset that was acknowledged so far, at each commit."""

    def observed(self) -> np.ndarray:
        """Returns the rows of `observations` that show the committed offset of this partition."""
        return np.flatnonzero(
            (self._seen["kind"] == ObservationKind.COMMITTED.value) & (self._seen["partition"] == self.partition)
        )

    def greatest(self) -> int:
        """Returns the greatest committed offset that was acknowledged or observed. -1: none was."""
        seen = self._seen["value"][self.observed()]
        return int(max([_BEFORE_ALL, *self.reached[-1:].tolist(), *([seen.max()] if len(seen) else [])]))

    def last_before(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns intp[n]: the index of the last commit that was acknowledged before each time, -1 for none."""
        return np.asarray(np.searchsorted(self.completed_ns, time_ns, side="left") - 1)

    def greatest_before(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns int64[n]: the greatest offset that was acknowledged before each time, -1 for none."""
        # Example: offsets 3, 7, 5 were acknowledged at 1, 2 and 4 s, so `reached` is 3, 7, 7. Before 3 s the last commit is
        # the second one, and the greatest offset 7; before 1 s there is none.
        last = self.last_before(time_ns)
        if not len(self.reached):
            return np.full(len(time_ns), _BEFORE_ALL, dtype=np.int64)
        return np.asarray(np.where(last >= 0, self.reached[last], _BEFORE_ALL))

    def covered(self, offset: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """Returns bool[n]: was a commit beyond each offset acknowledged before that time, while no lower commit was
        under way that may have taken effect after it? (librdkafka has several automatic commits under way at once, and
        sends again what timed out.)"""
        covered = self.greatest_before(time_ns) > offset
        assert len(offset) == len(time_ns), "a time for each offset"
        # The first commit beyond each offset. Example: reached 3 7 7, and offset 3 is covered from the second one on.
        # Where none is beyond, the last one is taken, and `covered` is false already.
        first = np.minimum(np.searchsorted(self.reached, offset, side="right"), max(0, len(self.rows) - 1))
        tried = self.tried
        for moment in np.unique(time_ns[covered]).tolist():  # beginnings of spans: few
            mine = np.flatnonzero(covered & (time_ns == moment))
            # Commits that were tried before the span began: one that is not beyond the offset, and may have ended after the
            # one that is, may have overwritten that.
            then = tried[self.table["invoked_ns"][tried] < moment]
            lowest = _lowest_after(self._ends(then), self.table["log_offset"][then], self.completed_ns[first[mine]])
            covered[mine] = lowest > offset[mine]
        return np.asarray(covered)

    def lowest_after(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns int64[n]: the least offset of all commits that may have taken effect after each time. FOREVER: there
        is none."""
        return _lowest_after(self._ends(self.tried), self.table["log_offset"][self.tried], time_ns)

    def lowest_between(self, after_ns: np.ndarray, before_ns: np.ndarray) -> np.ndarray:
        """Returns int64[n]: the least offset of the commits that were tried before each `before_ns` and may have taken
        effect after `after_ns`. FOREVER: there is none. The loop runs over different `after_ns`, which are few."""
        found = np.full(len(after_ns), END_OF_TIME_NS, dtype=np.int64)
        tried = self.tried[np.argsort(self.table["invoked_ns"][self.tried], kind="stable")]
        ends_ns, invoked_ns = self._ends(tried), self.table["invoked_ns"][tried]
        # Example: commits of 9, 4, 6 were tried at 1, 2, 3 s, and ended late. Before 2.5 s the least was 4, before 1.5 s 9.
        for moment in np.unique(after_ns).tolist():
            mine, later = np.flatnonzero(after_ns == moment), np.flatnonzero(ends_ns > moment)
            # Commits in the order in which they were tried: the running minimum up to `before_ns` answers for all of them.
            lowest = np.minimum.accumulate(self.table["log_offset"][tried[later]])
            index = np.searchsorted(invoked_ns[later], before_ns[mine], side="left") - 1
            found[mine[index >= 0]] = lowest[index[index >= 0]]
        return found

    def _ends(self, rows: np.ndarray) -> np.ndarray:
        """Returns until when each commit may have taken effect."""
        known = self.table["outcome"][rows] == Outcome.OK.value
        return np.asarray(np.where(known, self.table["completed_ns"][rows], END_OF_TIME_NS))

    def accepted_within(self, client: int, begin_ns: int, end_ns: int) -> bool:
        """Returns whether a commit of this client was accepted that it invoked, and that was acknowledged, between these
        times."""
        invoked = self.table["invoked_ns"][self.rows]
        mine = self.table["client"][self.rows] == client
        return bool((mine & (invoked >= begin_ns) & (self.completed_ns <= end_ns)).any())


def commit_regression(history: CellHistory) -> KernelResult:
    """A group's committed offset does not fall: no lower commit is accepted after a greater one was acknowledged, and no
    look-up shows a lower offset.

    Source: Kafka documentation, design, "Consumer Position"; generations and member epochs refuse commits of members that
    lost the partition (KIP-848, KIP-1251). A commit counts if it was *invoked* after the greater one had been acknowledged,
    and none as low was tried in between: who goes on from where another one went back to does not go back himself.
    A look-up (asked after that acknowledgement) counts if no commit that may have been written since is that low.
    Witness: `reader` committed `log_offset` from `begin_ns` to `end_ns` (or it was looked up at `begin_ns`, `case` OBSERVED),
    after `other_offset` of `other_client` had been acknowledged at `other_ns`; `case` SOUGHT where the member had sought,
    OF_ANOTHER_TOPIC where `other_client` had never been given `other_offset` - 1 of a topic that was made again. O(n log n).

    Example: a commit of offset 5 was acknowledged at 10 s. One of offset 3 that was invoked at 12 s and accepted counts.
    One that was invoked at 9 s overlaps the other, and may have been written first.
    """
    found, judged = list[np.ndarray](), 0
    for partition in history.partitions:
        commits = Commits(history, partition)
        judged += len(commits.rows)
        if len(commits.rows):
            found += [_regressing(history, partition, commits), _seen_regressed(history, partition, commits)]
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged)


def _regressing(history: CellHistory, partition: int, commits: Commits) -> np.ndarray:
    table = commits.table
    invoked_ns = table["invoked_ns"][commits.rows]
    # Three steps: which commits are lower than what was acknowledged before they were made; which commit had reached that
    # first; and whether nothing as low was tried between the two, so that this is the one that went back.
    fell = np.flatnonzero(commits.greatest_before(invoked_ns) > commits.offset)
    greater = _first_reaching(commits, commits.last_before(invoked_ns[fell]))
    first = commits.lowest_between(commits.completed_ns[greater], invoked_ns[fell]) > commits.offset[fell]
    rows, greater = commits.rows[fell[first]], greater[first]
    sought = _sought_between(history, partition, table["client"][rows], table["invoked_ns"][rows])
    return make_witnesses(
        len(rows),
        {
            "partition": partition,
            "log_offset": table["log_offset"][rows],
            "reader": table["client"][rows],
            "begin_ns": table["invoked_ns"][rows],
            "end_ns": table["completed_ns"][rows],
            **_of_greater(commits, greater),
            "case": np.where(
                sought, GroupCase.SOUGHT, _or_of_another_topic(history, partition, commits, greater, GroupCase.NO_CAUSE)
            ),
        },
    )


def _seen_regressed(history: CellHistory, partition: int, commits: Commits) -> np.ndarray:
    seen, rows = history.tables["observations"], commits.observed()
    value, asked_ns = seen["value"][rows], seen["time_ns"][rows]
    fell = np.flatnonzero(commits.greatest_before(asked_ns) > value)
    greater = _first_reaching(commits, commits.last_before(asked_ns[fell]))
    # What may have been written after the greater one, and is as low as what was seen, explains it.
    unexplained = commits.lowest_after(commits.completed_ns[greater]) > value[fell]
    fell, greater = fell[unexplained], greater[unexplained]
    return make_witnesses(
        len(fell),
        {
            "partition": partition,
            "log_offset": value[fell],
            "reader": seen["client"][rows[fell]],
            "begin_ns": asked_ns[fell],
            **_of_greater(commits, greater),
            "case": _or_of_another_topic(history, partition, commits, greater, GroupCase.OBSERVED),
        },
    )


def _or_of_another_topic(
    history: CellHistory, partition: int, commits: Commits, greater: np.ndarray, case: GroupCase
) -> np.ndarray:
    """Returns the case of each commit, OF_ANOTHER_TOPIC where its member had never been given the record in front of it, in a
    topic that was made again.

    Example: a member processed 436 records of the topic before, and its commit of 436 ends when the next one is there.
    It has been given 0 to 10 of that one. The commit of 11 that follows is lower than what was committed for another one."""
    found = np.full(len(greater), int(case))
    if not history.cell.life:
        return found
    reads = history.partitions[partition].reads
    client = commits.table["client"][commits.rows[greater]]
    for one in np.unique(client).tolist():  # a few members
        mine = np.flatnonzero(reads["client"] == one)
        mine = mine[np.argsort(reads["read_ns"][mine], kind="stable")]
        reached = np.maximum.accumulate(np.concatenate([[-1], reads["log_offset"][mine]]))
        own = np.flatnonzero(client == one)
        seen = np.searchsorted(reads["read_ns"][mine], commits.completed_ns[greater[own]], side="right")
        found[own[reached[seen] < commits.offset[greater[own]] - 1]] = int(GroupCase.OF_ANOTHER_TOPIC)
    return found


def _first_reaching(commits: Commits, last: np.ndarray) -> np.ndarray:
    """Returns the index of the commit that first reached the offset that the commits up to `last` had reached."""
    return np.asarray(np.searchsorted(commits.reached, commits.reached[last], side="left"))


def _of_greater(commits: Commits, greater: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "other_offset": commits.offset[greater],
        "other_client": commits.table["client"][commits.rows[greater]],
        "other_ns": commits.completed_ns[greater],
    }


def _lowest_after(ends_ns: np.ndarray, offset: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """Returns int64[n]: the least offset of all commits that ended, or may have ended, after each time. FOREVER: there
    is none."""
    order = np.argsort(ends_ns, kind="stable")
    # Sorted by end, with the least offset from here to the last commit.
    assert len(ends_ns) == len(offset), "each commit has an end"
    lowest = np.minimum.accumulate(offset[order][::-1])[::-1] if len(order) else offset
    index = np.searchsorted(ends_ns[order], time_ns, side="right")
    found = np.full(len(time_ns), END_OF_TIME_NS, dtype=np.int64)
    # Example: commits of 9, 4, 6 ended at 1, 2, 3 s, so `lowest` is 4, 4, 6. After 2 s only the 6 may still take effect.
    found[index < len(lowest)] = lowest[index[index < len(lowest)]]
    return found


def _sought_between(history: CellHistory, partition: int, client: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """Returns bool[n]: had this client sought in this partition before?"""
    positions = history.tables["positions"]
    rows = rows_of(positions, partition)
    rows = rows[positions["event"][rows] == SOUGHT]
    rows = rows[np.lexsort((positions["time_ns"][rows], positions["client"][rows]))]
    # The first seek of each client answers: if that was not before, none was.
    rows = rows[differs_from_previous(positions["client"][rows])]
    slot = Lookup(positions["client"][rows].astype(np.int64)).find(client.astype(np.int64))
    found = slot >= 0
    found[found] = positions["time_ns"][rows[slot[found]]] < time_ns[found]
    return found


def commit_ahead(history: CellHistory) -> KernelResult:
    """No member commits beyond its own position.

    Source: KafkaConsumer.commitSync ("the committed offset should be the next message your application will consume").
    Counts commits that were not refused. Witness: `reader` committed `log_offset` at `begin_ns`, its position being
    `other_offset`. Members that do not know their position yet are not judged. O(n).

    Example: a member whose next record stands at 7 commits 7, and then, without another poll, 9: the second commit counts.
    """
    table, members = history.tables["commits"], Members.of(history)
    rows = np.concatenate([np.empty(0, dtype=np.intp), *(rows_of(table, p) for p in sorted(history.partitions))])
    by_member = members.row(table["client"][rows]) >= 0
    rows = rows[by_member & (table["outcome"][rows] != Outcome.FAIL.value) & (table["position"][rows] >= 0)]
    ahead = rows[table["log_offset"][rows] > table["position"][rows]]
    witnesses = make_witnesses(
        len(ahead),
        {
            "partition": table["partition"][ahead],
            "log_offset": table["log_offset"][ahead],
            "reader": table["client"][ahead],
            "begin_ns": table["invoked_ns"][ahead],
            "end_ns": table["completed_ns"][ahead],
            "other_offset": table["position"][ahead],
        },
    )
    return KernelResult(witnesses[:WITNESSES_MAX], len(ahead), len(rows))


def two_owners(history: CellHistory) -> KernelResult:
    """No two members own one partition at once.

    Source: KafkaConsumer, "Consumer Groups and Topic Subscriptions" ("each partition is assigned to exactly one
    consumer in the group"); KIP-429 and KIP-848 (freed before it is given). Ownership as in
    `prozess.checkers.groups.assignments`: what a member that may have been evicted still believes is no ownership.
    Counts intervals that begin within another member's. Witness: `reader` from `begin_ns` on, while `other_client`
    owned it since `other_ns` and until `end_ns`; `case`: BOTH_COMMITTED where both had commits accepted that they made
    meanwhile, SAME_INSTANCE where both have one group.instance.id. O(n log n).

    Example: member 1 owns the partition from 10 s to 30 s, and on_assign of member 2 returns at 20 s: one witness, from 20
    s on. If member 1 was silent from 11 s on, and sessions last 5 s, it may have been evicted at 16 s: no witness.
    """
    return over_partitions(history, _two_owners)


def _two_owners(history: CellHistory, partition: PartitionHistory, members: Members) -> OwnershipResult:
    owned = Ownership(history, members, partition.partition)
    # Two sets of pairs: those of ownerships that certainly overlapped, and those in which the earlier owner may have been
    # evicted meanwhile without knowing. The latter count only if the coordinator accepted commits of both.
    overlaps = _overlaps(owned.client, owned.begin_ns, owned.end_ns)
    believed = _overlaps(owned.client, owned.begin_ns, owned.known_end_ns)
    commits, certain = Commits(history, partition.partition), set(overlaps)
    both = [pair for pair in believed if pair not in certain and _both_committed(owned, commits, *pair)]
    pairs = np.array([*overlaps, *both], dtype=np.intp).reshape(-1, 2)
    assert pairs.shape == (len(overlaps) + len(both), 2), pairs.shape
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
    """Returns BOTH_COMMITTED if both members had commits accepted that they made after the later one had begun, and
    before the earlier one knew. Returns NO_CAUSE otherwise."""
    from_ns, until_ns = int(owned.begin_ns[later]), int(owned.known_end_ns[earlier])
    both = all(commits.accepted_within(int(owned.client[i]), from_ns, until_ns) for i in (earlier, later))
    return GroupCase.BOTH_COMMITTED if both else GroupCase.NO_CAUSE


def _overlaps(client: np.ndarray, begin_ns: np.ndarray, end_ns: np.ndarray) -> list[tuple[int, int]]:
    """Returns (later, earlier) for each interval, ascending by begin, that begins within one of another client. If there
    are several of these, the first that began is named. Normally there is none."""
    if len(client) < 2:
        return []
    assert (begin_ns[1:] >= begin_ns[:-1]).all(), "intervals ascend by begin"
    # Intervals by begin: one that begins before the greatest end so far lies within another one.
    reach = np.maximum.accumulate(end_ns)
    found = []
    for later in (np.flatnonzero(begin_ns[1:] < reach[:-1]) + 1).tolist():
        if end_ns[later] <= begin_ns[later]:  # it may have been over before it began
            continue
        # Example: intervals 0–9 of member 1, 2–3 of member 2, 5–6 of member 1. The third lies within the greatest end so far,
        # 9, which is its own member's: no pair. The second one lies in the first, of another member: the pair (1, 0).
        others = np.flatnonzero((client[:later] != client[later]) & (end_ns[:later] > begin_ns[later]))
        if len(others):  # one pair for each interval, however many others there are
            found.append((later, int(others[0])))
    return found


def orphaned(history: CellHistory) -> KernelResult:
    """After healing, every partition of a subscribed topic has an owner within the stated time.

    Source: KafkaConsumer, "Consumer Groups and Topic Subscriptions"; KIP-848. Judged while members drain: from when they were
    asked to until the first of them left, as long as they were ready to wait (`observations`, DRAIN_BEGUN). Witness: a
    partition without an owner at the end of that; `begin_ns` since when, `end_ns` until when, `other_client` its last owner,
    if it had one; `case`: WITHIN_SESSION where that one died and its session was not over, so that nobody could know;
    WAITED_FOR where it lives, and another member had gone in this way (`missed_at`); GAVE_UP where it lives and had lost the
    partition less than a session before.

    Example: members are asked to drain at 100 s, and the first of them leaves at 130 s. The last owner of the partition
    lost it at 90 s, and nobody got it: an orphan from 100 s to 130 s.
    """
    return over_partitions(history, _orphaned)


def _orphaned(history: CellHistory, partition: PartitionHistory, members: Members) -> OwnershipResult:
    seen, assignments = history.tables["observations"], history.tables["assignments"]
    begun = np.flatnonzero(
        (seen["kind"] == ObservationKind.DRAIN_BEGUN.value) & (seen["partition"] == partition.partition)
    )
    if not len(begun):
        return no_witnesses(), 0, f"the members of the group were never asked to finish partition {partition.partition}"
    begin_ns = int(seen["time_ns"][begun].max())
    closes = assignments["started_ns"][(assignments["event"] == CLOSE) & (assignments["started_ns"] > begin_ns)]
    drained = members.ended_ns[members.ended_ns > begin_ns]
    end_ns = int(min([*closes.tolist(), *drained.tolist()], default=begin_ns))
    owned = Ownership(history, members, partition.partition)
    if ((owned.begin_ns <= end_ns) & (owned.known_end_ns >= end_ns)).any():
        return no_witnesses(), 1, None
    # Nobody owned it at the end: who had it last, and since when it had been without an owner?
    last = int(np.argmax(owned.known_end_ns)) if len(owned.client) else -1
    since_ns = max(begin_ns, int(owned.known_end_ns[last])) if last >= 0 else begin_ns
    case = GroupCase.NO_CAUSE
    if last >= 0 and end_ns - int(owned.known_end_ns[last]) < session_ns(history.cell):
        one, ended_ns = owned.client[[last]], owned.known_end_ns[[last]]
        if members.crashed(one)[0]:
            case = GroupCase.WITHIN_SESSION
        elif missed_at(history, members, end_ns):
            case = GroupCase.WAITED_FOR
        elif MemberEvents(assignments, partition.partition, (LOST,)).next_after(one, ended_ns)[0] == ended_ns[0]:
            case = GroupCase.GAVE_UP
    witnesses = make_witnesses(
        1,
        {
            "partition": partition.partition,
            "begin_ns": since_ns,
            "end_ns": end_ns,
            "other_client": int(owned.client[last]) if last >= 0 else -1,
            "case": int(case),
        },
    )
    return witnesses, 1, None
