"""Committed offsets of a group: what was accepted, in which order, and what was seen of it."""

import numpy as np

from checkers.ownership import FOREVER, Members
from harness.columns import rows_of
from harness.group_cases import GroupCase
from harness.protocols import CellHistory, KernelResult
from harness.schema import MISSING, ObservationKind, Outcome
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

_BEFORE_ALL = -1


class Commits:
    """The accepted commits of one partition, in the order in which they were acknowledged."""

    def __init__(self, history: CellHistory, partition: int) -> None:
        self.table, self._seen, self.partition = history.tables["commits"], history.tables["observations"], partition
        mine = rows_of(self.table, partition)
        outcome = self.table["outcome"][mine]
        self.tried = mine[outcome != Outcome.FAIL]
        """Rows of `commits` that may have been written."""
        rows = mine[(outcome == Outcome.OK) & (self.table["completed_ns"][mine] != MISSING)]
        self.rows = rows[np.argsort(self.table["completed_ns"][rows], kind="stable")]
        self.completed_ns = self.table["completed_ns"][self.rows]
        self.offset = self.table["log_offset"][self.rows]
        self.reached = np.maximum.accumulate(self.offset) if len(self.rows) else self.offset
        """The greatest of those acknowledged so far."""

    def observed(self) -> np.ndarray:
        """Rows of `observations` that show the committed offset of this partition."""
        return np.flatnonzero(
            (self._seen["kind"] == ObservationKind.COMMITTED) & (self._seen["partition"] == self.partition)
        )

    def greatest(self) -> int:
        """The greatest committed offset that was acknowledged or seen; -1 = none."""
        seen = self._seen["value"][self.observed()]
        return int(max([_BEFORE_ALL, *self.reached[-1:].tolist(), *([seen.max()] if len(seen) else [])]))

    def last_before(self, time_ns: np.ndarray) -> np.ndarray:
        """intp[n]: index of the last commit acknowledged before each time, -1 = none."""
        return np.asarray(np.searchsorted(self.completed_ns, time_ns, side="left") - 1)

    def greatest_before(self, time_ns: np.ndarray) -> np.ndarray:
        """int64[n]: the greatest offset acknowledged before each time; -1 = none."""
        last = self.last_before(time_ns)
        if not len(self.reached):
            return np.full(len(time_ns), _BEFORE_ALL, dtype=np.int64)
        return np.asarray(np.where(last >= 0, self.reached[last], _BEFORE_ALL))

    def covered(self, offset: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        """bool[n]: had a commit beyond each offset been acknowledged before that time, and was none as low as the offset
        under way since, which may have been written after it? (librdkafka has several automatic commits under way at once,
        and sends what timed out again.)"""
        covered = self.greatest_before(time_ns) > offset
        first = np.minimum(np.searchsorted(self.reached, offset, side="right"), max(0, len(self.rows) - 1))
        tried = self.tried
        for moment in np.unique(time_ns[covered]).tolist():  # beginnings of spans: few
            mine = np.flatnonzero(covered & (time_ns == moment))
            then = tried[self.table["invoked_ns"][tried] < moment]
            lowest = _lowest_after(self._ends(then), self.table["log_offset"][then], self.completed_ns[first[mine]])
            covered[mine] = lowest > offset[mine]
        return np.asarray(covered)

    def lowest_after(self, time_ns: np.ndarray) -> np.ndarray:
        """int64[n]: the least offset of all commits that may have been written after each time; FOREVER = there is none."""
        return _lowest_after(self._ends(self.tried), self.table["log_offset"][self.tried], time_ns)

    def lowest_between(self, after_ns: np.ndarray, before_ns: np.ndarray) -> np.ndarray:
        """int64[n]: the least offset of the commits that were tried before each of the latter times and may have been written
        after the former; FOREVER = there is none. A loop over the different former ones: falls are few."""
        found = np.full(len(after_ns), FOREVER, dtype=np.int64)
        tried = self.tried[np.argsort(self.table["invoked_ns"][self.tried], kind="stable")]
        ends_ns, invoked_ns = self._ends(tried), self.table["invoked_ns"][tried]
        for moment in np.unique(after_ns).tolist():
            mine, later = np.flatnonzero(after_ns == moment), np.flatnonzero(ends_ns > moment)
            lowest = np.minimum.accumulate(self.table["log_offset"][tried[later]])
            index = np.searchsorted(invoked_ns[later], before_ns[mine], side="left") - 1
            found[mine[index >= 0]] = lowest[index[index >= 0]]
        return found

    def _ends(self, rows: np.ndarray) -> np.ndarray:
        """Until when each may have been written."""
        known = self.table["outcome"][rows] == Outcome.OK
        return np.asarray(np.where(known, self.table["completed_ns"][rows], FOREVER))

    def accepted_within(self, client: int, begin_ns: int, end_ns: int) -> bool:
        """Was a commit of this client, invoked and acknowledged between these times, accepted?"""
        invoked = self.table["invoked_ns"][self.rows]
        mine = self.table["client"][self.rows] == client
        return bool((mine & (invoked >= begin_ns) & (self.completed_ns <= end_ns)).any())


def commit_regression(history: CellHistory) -> KernelResult:
    """A group's committed offset does not fall: neither by a commit that is accepted after a greater one was acknowledged,
    nor as anybody sees it.

    Source: Kafka documentation, design, "Consumer Position"; generations and member epochs refuse commits of members that
    lost the partition (KIP-848, KIP-1251). A commit counts if it was *invoked* after the greater one had been acknowledged,
    and none as low was tried in between: who goes on from where another one went back to does not go back himself.
    Of a look-up (asked after that acknowledgement) it counts if no commit that may have been written since is that low.
    Witness: `reader` committed `log_offset` from `begin_ns` to `end_ns` (or it was looked up at `begin_ns`, `case` OBSERVED),
    after `other_offset` of `other_client` had been acknowledged at `other_ns`; `case` SOUGHT where the member had sought.
    O(n log n).
    """
    found, judged = [no_witnesses()], 0
    for partition in history.partitions:
        commits = Commits(history, partition)
        judged += len(commits.rows)
        if len(commits.rows):
            found += [_regressing(history, partition, commits), _seen_regressed(history, partition, commits)]
    witnesses = np.concatenate(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged)


def _regressing(history: CellHistory, partition: int, commits: Commits) -> np.ndarray:
    table = commits.table
    invoked_ns = table["invoked_ns"][commits.rows]
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
            "case": np.where(sought, GroupCase.SOUGHT, GroupCase.NO_CAUSE),
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
            "case": int(GroupCase.OBSERVED),
        },
    )


def _first_reaching(commits: Commits, last: np.ndarray) -> np.ndarray:
    """Index of the commit that first reached what the last one before had reached."""
    return np.asarray(np.searchsorted(commits.reached, commits.reached[last], side="left"))


def _of_greater(commits: Commits, greater: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "other_offset": commits.offset[greater],
        "other_client": commits.table["client"][commits.rows[greater]],
        "other_ns": commits.completed_ns[greater],
    }


def _lowest_after(ends_ns: np.ndarray, offset: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """int64[n]: the least offset of all commits that ended (or may have) after each time; FOREVER = there is none."""
    order = np.argsort(ends_ns, kind="stable")
    lowest = np.minimum.accumulate(offset[order][::-1])[::-1] if len(order) else offset
    index = np.searchsorted(ends_ns[order], time_ns, side="right")
    found = np.full(len(time_ns), FOREVER, dtype=np.int64)
    found[index < len(lowest)] = lowest[index[index < len(lowest)]]
    return found


def _sought_between(history: CellHistory, partition: int, client: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """bool[n]: had this client sought in this partition before?"""
    positions = history.tables["positions"]
    rows = rows_of(positions, partition)
    rows = rows[positions["event"][rows] == 2]
    found = np.zeros(len(client), dtype=bool)
    for row in rows.tolist():  # seeks are rare
        found |= (client == positions["client"][row]) & (positions["time_ns"][row] < time_ns)
    return found


def commit_ahead(history: CellHistory) -> KernelResult:
    """No member commits beyond its own position.

    Source: KafkaConsumer.commitSync ("the committed offset should be the next message your application will consume").
    Counts commits that were not refused. Witness: `reader` committed `log_offset` at `begin_ns`, its position being
    `other_offset`. Members that do not know their position yet are not judged. O(n).
    """
    table, members = history.tables["commits"], Members.of(history)
    rows = np.concatenate([np.empty(0, dtype=np.intp), *(rows_of(table, p) for p in sorted(history.partitions))])
    by_member = members.place(table["client"][rows]) >= 0
    rows = rows[by_member & (table["outcome"][rows] != Outcome.FAIL) & (table["position"][rows] >= 0)]
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
