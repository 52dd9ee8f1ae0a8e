"""This kernel checks that a group shares its partitions: nobody is left without one beside a member that has several."""

import numpy as np

from prozess.checkers.groups.assignments import CLOSE, NS_PER_MS, Members, Ownership, group_of
from prozess.checkers.progress.stability import Calms, calms_of, settle_ns
from prozess.harness.columns import once
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, GroupCase, join_witnesses, make_witnesses

Columns = dict[str, np.ndarray | int]
ENOUGH = 2
"""A member with so many partitions of one topic has one that another could have."""


def starved(history: CellHistory) -> KernelResult:
    """Once no member has come or gone for a while, none is without a partition while another has several of one topic.

    Source: every assignor of Kafka's own shares a topic among those that subscribe to it so that their numbers differ by one
    at most: RangeAssignor, RoundRobinAssignor (where all subscribe alike), StickyAssignor, CooperativeStickyAssignor; the
    uniform and the range assignor of KIP-848. The members of a group here subscribe alike. Judged are the calms of
    `unstable`, with one difference: a member of which no callback is known has come after `settle_ns`, since the one that is
    never given anything may have none. A calm is looked at once it has lasted `settle_ns`, and again after each further
    `settle_ns` and session, so that trouble in one of these turns explains that turn alone.

    Example: A has partitions 0 and 1, B none, and both live from 0 to 60 s. `settle_ns` is 20 s and the session 10 s: turns
    end at 20 s and at 50 s, and B is a witness at each. Witness: `reader` had no partition since `settle_ns` before
    `end_ns` (case IDLE; UNASSIGNED if it was never assigned anything by then, not even nothing), and at `end_ns`
    `other_client` had `partition` and another one of its topic. A partition that was added may be of another topic that
    matches the group's pattern, so it counts for whoever has nothing else, and not for who has several. The last member
    came or went at `other_ns`; what happened since `begin_ns` may explain it. O(turns · assignments).
    """
    members = Members.of(history)
    silent = [one for one in members.ids.tolist() if not len(members.beats[one])]
    if silent or len(members.ids) < ENOUGH:
        return KernelResult(
            join_witnesses([]),
            count=0,
            judged=0,
            incomplete="nothing shows when the members of the group lived" if silent else None,
        )
    settle = settle_ns(history.cell, history.bounds.rebalance_delay_ns)
    turn = settle + group_of(history.cell).session.timeout_ms * NS_PER_MS
    calms: Calms = once(
        history.tables["clients"], "fair calms", lambda: calms_of(history, members, joined_within_ns=settle)
    )
    owned = _Owned(history, members)
    parts, judged = [], 0
    for begin_ns, end_ns in zip(calms.begin_ns.tolist(), calms.end_ns.tolist(), strict=True):  # a few calms each
        alive = members.ids[(members.started_ns <= begin_ns) & (members.ended_ns >= end_ns)]
        for at_ns in range(begin_ns + settle, end_ns, turn):
            judged += len(alive) >= ENOUGH
            reader, columns = owned.starved(alive, at_ns=at_ns, since_ns=at_ns - settle)
            same = {"reader": reader, "begin_ns": at_ns - turn, "end_ns": at_ns, "other_ns": begin_ns}
            parts.append(make_witnesses(len(reader), columns | same))
    found = join_witnesses(parts)
    return KernelResult(found[:WITNESSES_MAX], count=len(found), judged=judged)


class _Owned:
    """The intervals in which members owned partitions of the cell: those of `Ownership`, of all partitions."""

    def __init__(self, history: CellHistory, members: Members) -> None:
        cell = history.cell
        owned = [Ownership(history, members, partition) for partition in cell.partitions]
        lengths = [len(one.client) for one in owned]
        self._partition = np.repeat(np.array(cell.partitions, dtype=np.int64), lengths)
        self._derived = np.isin(self._partition, cell.derived)
        self._late = np.isin(self._partition, cell.late_partitions)
        self._client = np.concatenate([one.client for one in owned])
        self._begin_ns = np.concatenate([one.begin_ns for one in owned])
        self._end_ns = np.concatenate([one.known_end_ns for one in owned])
        assignments = history.tables["assignments"]
        self._called, self._called_ns = assignments["client"], assignments["started_ns"]
        self._closed = assignments["event"] == CLOSE

    def starved(self, alive: np.ndarray, *, at_ns: int, since_ns: int) -> tuple[np.ndarray, Columns]:
        """Returns which of these members had not left the group and owned nothing since `since_ns`, and who owned most of one
        topic at `at_ns`. They are nobody if nobody owned enough."""
        called = self._called_ns <= at_ns
        alive = alive[~np.isin(alive, self._called[called & self._closed])]
        begun = self._begin_ns <= at_ns
        held = np.flatnonzero(begun & (self._end_ns > at_ns) & ~self._late & np.isin(self._client, alive))
        # Example: rows of (member, topic) A 0, A 0, B 0 are two holders, of 2 and 1 partitions. The first of the greatest is
        # taken: holders ascend by member and topic.
        holders, of_holder, count = np.unique(
            np.stack([self._client[held], self._derived[held]]), axis=1, return_inverse=True, return_counts=True
        )
        without = alive[~np.isin(alive, self._client[begun & (self._end_ns > since_ns)])]
        if not len(count) or count.max() < ENOUGH or not len(without):
            return alive[:0], {}
        most = int(np.argmax(count))
        informed = np.isin(without, self._called[called])
        return without, {
            "other_client": int(holders[0, most]),
            "partition": int(self._partition[held[of_holder.ravel() == most]].max()),
            "case": np.where(informed, int(GroupCase.IDLE), int(GroupCase.UNASSIGNED)),
        }
