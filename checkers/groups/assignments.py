"""Finds out which member of a group owned which partition, and when, by the callbacks and polls of its members."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from prozess.checkers.lookup import ascends, differs_from_previous, distinct, lazy
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.checking.checker import CellShare, Look
from prozess.harness.columns import once, rows_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE, ObservationKind, Role

# Which member owned which partition of a group, and when, by the callbacks that members recorded.


ASSIGN, REVOKE, LOST, CLOSE = 1, 2, 3, 4
"""The values of `assignments.event`."""
AT_ASSIGNMENT, SOUGHT, RESET, RESUMED = 1, 2, 3, 5
"""Values of `positions.event`: a position was decided on assignment, by a seek, or by a reset because there was none; and a
partition was resumed."""
END_OF_TIME_NS = np.iinfo(np.int64).max
NS_PER_MS = 1_000_000
BACKLOG_NS = 2_000_000_000
"""What a member learns soon after it returned from a silence may be older than the silence, because callbacks wait
for its next poll."""
_KEY = 1 << 32
Polls = dict[int, np.ndarray]
"""For each client, the times of its polls, ascending."""


class Members:
    """Facts about the members of one cell's group, by client id."""

    @staticmethod
    def of(history: CellHistory) -> "Members":
        """Returns the members of this history, made once if several kernels share its tables."""
        return once(history.tables["clients"], Members, lambda: Members(history))

    def __init__(self, history: CellHistory) -> None:
        clients = history.tables["clients"]
        rows = np.flatnonzero(clients["role"] == Role.MEMBER.value)
        rows = rows[np.argsort(clients["client"][rows], kind="stable")]
        self.ids = clients["client"][rows].astype(np.int64)
        """The client ids of the members, ascending."""
        self.complete = (clients["complete"][rows] == 1) & np.isin(clients["exit_code"][rows], (0, NONE))
        """Whether the member ended by itself and in order, with every row written. A member that was fenced did not."""
        assert not len(self.ids) or (self.ids[1:] >= self.ids[:-1]).all(), "members ascend by their ids"
        self.twins = dict(zip(self.ids.tolist(), clients["planned"][rows].tolist(), strict=True))
        """For each member the planned client whose place, and group.instance.id, it has."""
        beats = history.tables["heartbeats"]
        self.beats = {int(c): np.sort(beats["time_ns"][beats["client"] == c]) for c in self.ids}
        last = np.array(
            [self.beats[int(c)][-1] if len(self.beats[int(c)]) else MISSING for c in self.ids], dtype=np.int64
        )
        self.started_ns = clients["started_ns"][rows].astype(np.int64)
        ended = clients["ended_ns"][rows]
        self.ended_ns = np.where(ended != MISSING, ended, last)
        """When it ended; for a member that was killed, when it was last known to live."""

    def row(self, client: np.ndarray) -> np.ndarray:
        """Returns intp[n]: the index of each client among the members, -1 if it is none of them."""
        if not len(self.ids):
            return np.full(len(client), -1, dtype=np.intp)
        # The first id that is not less, which is the client itself if it is a member; behind the last id the last one
        # differs.
        slot = np.minimum(np.searchsorted(self.ids, client), len(self.ids) - 1)
        return np.asarray(np.where(self.ids[slot] == client, slot, -1))

    def crashed(self, client: np.ndarray) -> np.ndarray:
        """Returns bool[n]: is it a member that did not end by itself?"""
        slot = self.row(client)
        return np.asarray((slot >= 0) & ~self.complete[slot]) if len(self.ids) else np.zeros(len(client), dtype=bool)


class MemberEvents:
    """The times at which members gave partitions up, or lost them."""

    def __init__(self, assignments: Mapping[str, np.ndarray], partition: int, kinds: tuple[int, ...]) -> None:
        rows = rows_of(assignments, partition)
        rows = rows[np.isin(assignments["event"][rows], kinds)]
        client, time_ns = assignments["client"][rows], assignments["started_ns"][rows]
        self._times = {int(c): np.sort(time_ns[client == c]) for c in np.unique(client)}

    def next_after(self, client: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """Returns int64[n]: when each client's next such event began, at or after its time. FOREVER: never."""
        found = np.full(len(client), END_OF_TIME_NS, dtype=np.int64)
        for one, times in self._times.items():
            mine = np.flatnonzero(client == one)
            assert len(time_ns) == len(client), "a time for each client"
            # The first event that is not before the time; behind the last one there is none.
            index = np.searchsorted(times, time_ns[mine])
            there = index < len(times)
            found[mine[there]] = times[index[there]]
        return found


def group_of(cell: Cell) -> GroupWork:
    """Returns the group of a cell that is checked because it has one. AssertionError: it has none."""
    group = cell.group
    assert group is not None, cell
    return group


def session_ns(cell: Cell) -> int:
    """Returns how long a member that was just heard of certainly keeps its place: its session timeout, less what may
    have passed since its last heartbeat to the coordinator."""
    session = group_of(cell).session
    return max(0, session.timeout_ms - session.heartbeat_ms) * NS_PER_MS


class Ownership:
    """The intervals in which members owned one partition, ascending by their begin. `end_ns` is the *start* of
    on_revoke, on_lost or close, the last sign of life of a member that died, or `cut_ns`, whichever was first.
    `known_end_ns` is the same without the cut: until then the member believed that it owned the partition."""

    def __init__(self, history: CellHistory, members: Members, partition: int) -> None:
        table = history.tables["assignments"]
        rows = rows_of(table, partition)
        rows = rows[members.row(table["client"][rows]) >= 0]
        # Sorted by member, then by time; events of one time in the order in which they were written.
        order = np.lexsort((rows, table["started_ns"][rows], table["client"][rows]))
        rows = rows[order]
        client, event = table["client"][rows].astype(np.int64), table["event"][rows]
        # Does an event of the same member come next? It ends what this one began; else the member's own end does.
        followed = np.zeros(len(rows), dtype=bool)
        followed[:-1] = client[1:] == client[:-1]
        end_ns = members.ended_ns[members.row(client)] if len(rows) else np.empty(0, dtype=np.int64)
        # Example: one member's events are ASSIGN at 10 s, REVOKE at 30 s. The ASSIGN ends where the next event begins, at 30
        # s; the REVOKE has none behind it, and would end with the member. Only ASSIGN rows are kept below.
        end_ns[followed] = table["started_ns"][rows[1:]][followed[:-1]]
        begin_ns = table["done_ns"][rows]
        kept = (event == ASSIGN) & (begin_ns != MISSING) & (end_ns > begin_ns)
        self.client, self.begin_ns, self.known_end_ns = client[kept], begin_ns[kept], end_ns[kept]
        by_begin = np.argsort(self.begin_ns, kind="stable")
        for name in ("client", "begin_ns", "known_end_ns"):
            setattr(self, name, getattr(self, name)[by_begin])
        self._history, self._members = history, members

    @lazy
    def cut_ns(self) -> np.ndarray:
        """Returns when the member may have been evicted without knowing. It is before `begin_ns` if the member heard so
        late of this assignment that it may have been evicted before."""
        return _cuts(self._history, self._members, self.client, self.begin_ns)

    @lazy
    def end_ns(self) -> np.ndarray:
        """Returns when the ownership certainly held no longer: `known_end_ns` or `cut_ns`, whichever was first."""
        return np.asarray(np.minimum(self.known_end_ns, self.cut_ns))


def _cuts(history: CellHistory, members: Members, client: np.ndarray, begin_ns: np.ndarray) -> np.ndarray:
    """Returns when each member may have been evicted without knowing: a session after it was last heard of, or
    max.poll.interval.ms after it was last seen to poll. FOREVER: never."""
    group = group_of(history.cell).configuration
    polls = polls_of_members(history)
    cut_ns = np.full(len(client), END_OF_TIME_NS, dtype=np.int64)
    for one in np.unique(client).tolist():
        mine = np.flatnonzero(client == one)
        nothing = np.empty(0, dtype=np.int64)
        beats, polled = members.beats.get(one, nothing), polls.get(one, nothing)
        # Callbacks are signs of life, too: one that thawed, was given the partition and froze again has beaten in between
        # only if it had the time. A silence counts by either measure: that hides, and never invents.
        limits = (
            (beats, session_ns(history.cell)),
            (np.union1d(beats, polled), session_ns(history.cell)),
            (polled, group.max_poll_interval_ms * NS_PER_MS),
        )
        for seen, limit_ns in limits:
            # Example: heartbeats at 0, 1, 9, 10 s, and a session of 5 s. From 1 to 9 it was silent: it may have been evicted
            # at 6 s.
            longest = np.diff(seen) >= limit_ns
            silent, back = seen[:-1][longest], seen[1:][longest]
            # The first silence that ended after the assignment began, less what may have waited in the backlog.
            index = np.searchsorted(back, begin_ns[mine] - BACKLOG_NS)
            there = index < len(silent)
            cut_ns[mine[there]] = np.minimum(cut_ns[mine[there]], silent[index[there]] + limit_ns)
    return cut_ns


def silence_ns(cell: Cell) -> int:
    """Returns the longest silence that is certainly harmless: a member that is heard of, and polls, more often than that
    is never evicted."""
    return min(session_ns(cell), group_of(cell).configuration.max_poll_interval_ms * NS_PER_MS)


def polls_of_members(history: CellHistory) -> Polls:
    """Returns, for each member, when it was seen to poll: it received records, a callback ran, or its heart beat while rows
    say that it asked for records without a pause. Without such rows, as in imports, a long idle time counts as if the member
    did not poll. This can hide an anomaly, and never makes one up."""
    table = history.tables["assignments"]
    of_reads: Polls = history.known["polls"] if "polls" in history.known else polls_of_reads(history)
    of_callbacks = once(table, "polls", lambda: _times_of([(table["client"], table["started_ns"])]))
    idle = once(table, "idle polls", lambda: _polls_while_asked(history))
    parts = [(one, times) for polls in (of_callbacks, of_reads, idle) for one, times in polls.items()]
    found: dict[int, list[np.ndarray]] = {}
    for one, times in parts:
        found.setdefault(one, []).append(times)
    return {one: np.unique(np.concatenate(times)) for one, times in found.items()}


def _polls_while_asked(history: CellHistory) -> Polls:
    """Returns the heartbeats of each member within the times in which it asked for records without a pause: who stands still
    has none."""
    asked, silence = history.tables["asked"], silence_ns(history.cell)
    found: dict[int, list[np.ndarray]] = {}
    for row in np.flatnonzero(asked["kind"] == ObservationKind.POLLED.value).tolist():  # one for each such time
        one, begin_ns, lasted_ns = (int(asked[name][row]) for name in ("client", "time_ns", "value"))
        beats = Members.of(history).beats.get(one, asked["time_ns"][:0])
        first, end = np.searchsorted(beats, [begin_ns, END_OF_TIME_NS if lasted_ns == NONE else begin_ns + lasted_ns])
        found.setdefault(one, []).append(thinned(beats[first:end], silence))
    return {one: np.unique(np.concatenate(times)) for one, times in found.items()}


def polls_of_reads(history: CellHistory) -> Polls:
    """Returns, for each member, when it received records of the partitions that are here. The times are thinned out,
    because only long silences are asked for."""
    members, silence = Members.of(history), silence_ns(history.cell)
    found: dict[int, list[np.ndarray]] = {}
    for partition in history.partitions.values():
        for first, last, client in PartitionIndex.of(partition).reader_runs:
            if client in members.beats:
                times = partition.reads["read_ns"][first:last]
                found.setdefault(client, []).append(thinned(times if ascends(times) else np.sort(times), silence))
    return {one: distinct(np.concatenate(times)) for one, times in found.items()}


def thinned(times: np.ndarray, silence: int) -> np.ndarray:
    """Returns, of ascending times, the first and the last within each stretch of that length. Silences that are at least
    so long stay as they are, and none is added, whatever other times come between: each time that is dropped stands
    between two that are nearer to one another than that."""
    if silence <= 0 or len(times) < 3:
        return times
    first, last = int(times[0]) // silence, int(times[-1]) // silence
    if last - first >= len(times):  # more stretches than times
        return times
    # Where each stretch of that length begins among the times; the time before it is the last one of the stretch before.
    # Example: times 1 2 4 13 19, and stretches of 10. One begins at 10, so `begins` is 3, and the indices 0 2 3 4 stay.
    begins = np.searchsorted(times, np.arange(first + 1, last + 1) * silence)
    kept: np.ndarray = times[distinct(np.concatenate([[0], begins - 1, begins, [len(times) - 1]]))]
    return kept


def _times_of(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> Polls:
    """Returns, for each client, its times, ascending, each once."""
    times: dict[int, list[np.ndarray]] = {}
    for client, time_ns in parts:
        for one in np.unique(client).tolist():
            times.setdefault(one, []).append(np.unique(time_ns[client == one]))
    return {one: np.unique(np.concatenate(found)) for one, found in times.items()}


def spans_of(positions: Mapping[str, np.ndarray], partition: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns, for one partition, (keys ascending, when the span began, whether a seek began it), with one entry for
    each (client, span)."""
    rows = rows_of(positions, partition)
    key = span_keys(positions["client"][rows], positions["span"][rows])
    order = np.lexsort((positions["time_ns"][rows], key))
    rows, key = rows[order], key[order]
    # Sorted by span, then by time: the first row of each span is how it began.
    first = differs_from_previous(key)
    sought = positions["event"][rows][first] == SOUGHT
    assert len(sought) == int(np.count_nonzero(first)), "an entry for each span"
    return key[first], positions["time_ns"][rows][first], sought


def span_keys(client: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Returns int64[n]: one number for each (client, span)."""
    # An unknown span (NONE) counts as the first, 0: below 0 it would be the last number of the client before.
    key: np.ndarray = client.astype(np.int64) * _KEY + np.maximum(span, NONE + 1)
    return key


def one_instance_may_be_two(history: CellHistory) -> bool:
    """Returns whether one group.instance.id may be two members for a while. In the classic protocol a second process
    with it takes over at once, and the first learns this with its next heartbeat (KIP-345). The consumer protocol
    refuses the second (KIP-848)."""
    group = group_of(history.cell).configuration
    return group.static_membership and group.protocol != "consumer"


def missed_at(history: CellHistory, members: Members, time_ns: int) -> bool:
    """Returns whether the group may wait for a member then that had gone without a word: one that died, or a static one. In
    the classic protocols nobody is assigned anything before all members have joined again, and one that is gone is a member
    until its session is over (KIP-62, KIP-345). The consumer protocol waits for nobody but the owner (KIP-848).

    Example: A dies at 54 s, with a session of 45 s. C takes its place at 60 s, B gives its partitions up, and both wait for
    A until 99 s.
    """
    group = group_of(history.cell).configuration
    ago_ns = time_ns - members.ended_ns
    gone = (ago_ns >= 0) & (ago_ns < session_ns(history.cell)) & (~members.complete | group.static_membership)
    return group.protocol != "consumer" and bool(gone.any())


OwnershipResult = tuple[np.ndarray, int, str | None]
"""The witnesses of one partition, how much was judged, and why absence cannot be concluded."""


def over_partitions(
    history: CellHistory, one: Callable[[CellHistory, PartitionHistory, Members], OwnershipResult]
) -> KernelResult:
    """Returns what a kernel finds in each partition of the cell, put together."""
    members = Members.of(history)
    return put_together([one(history, partition, members) for partition in history.partitions.values()])


def put_together(found: Sequence[OwnershipResult]) -> KernelResult:
    """Returns what was found in the partitions of a cell as one result. Each reason is named once."""
    witnesses = join_witnesses(w for w, _, _ in found)
    reasons = list(dict.fromkeys(reason for _, _, reason in found if reason))
    return KernelResult(
        witnesses[:WITNESSES_MAX],
        count=len(witnesses),
        judged=sum(judged for _, judged, _ in found),
        incomplete="; ".join(reasons) or None,
    )


# When members of a group were seen to poll, over all partitions of a cell. Ownership must know this of all of them
# together.


FACTS = "polls"


def gather(
    cells: Mapping[int, Sequence[CellShare]], each: Callable[[Sequence[Look]], Sequence[Any]], anomalies: Sequence[str]
) -> Mapping[int, Polls]:
    """Returns the polls of the members of these cells, by one look at each share of a cell. The result does not depend on
    `anomalies`."""
    looks = [share.look(cell, FACTS, "", ()) for cell, shares in cells.items() for share in shares]
    found: dict[int, dict[int, list[np.ndarray]]] = {cell: {} for cell in cells}
    for one, times in zip(looks, each(looks), strict=True):
        for member, part in times.items():
            found[one.cell].setdefault(member, []).append(part)
    return {
        cell: {member: np.unique(np.concatenate(parts)) for member, parts in members.items()}
        for cell, members in found.items()
    }


def look(history: CellHistory, _stage: str) -> Polls:
    """Returns the polls that the one partition of this cell, or a part of it, shows."""
    return polls_of_reads(history)
