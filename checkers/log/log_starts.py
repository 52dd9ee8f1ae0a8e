"""These kernels check where logs begin: what was deleted does not come back, and retention takes nothing too early."""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.checkers.log.leadership import of_lives, previous_of_node, truth_of_each
from prozess.checkers.lookup import differs_from_next
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.columns import joined
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import METADATA, NONE, REMOTE_STORE, ObservationKind, Outcome

BELOW_DELETED, SAME_EPOCH_START = 0, 1
"""Cases of `log-start-regression`: the log start is below where an acknowledged DeleteRecords put it; or below what the same
leader had answered in the same leader epoch."""
_STARTS = (ObservationKind.LEADER_LOG_START.value, ObservationKind.LOG_START.value)


def log_start_regression(history: PartitionHistory) -> KernelResult:
    """The log start that leaders answer is never below where an acknowledged DeleteRecords put it, nor below what the same
    leader had answered in the same leader epoch.

    Source: KIP-107 (DeleteRecords is answered once every replica that is alive has moved its log start); KIP-101. A new
    leader may begin further back than the last one answered: retention of the old one need not have reached it. Counts
    answers. An answer counts against a deletion only if its node had answered before, after the deletion was acknowledged:
    it was asked later. Each of several topics that had one name is judged alone. Witness: `reader` (a broker, NONE: the
    audit asked) answered `log_offset` at `end_ns`, and `other_offset` had been reached at `begin_ns`; `sequence` is the
    leader epoch. O(n log n).

    Example: DeleteRecords to 50 is acknowledged. Broker 1 answers 50, and then 0: one finding, BELOW_DELETED. Broker 2, which
    leads in a later epoch, answers 40 twice: the second counts.
    """
    seen = history.observations
    rows = np.flatnonzero(np.isin(seen["kind"], _STARTS))
    if not len(rows):
        return KernelResult(no_witnesses(), count=0, judged=0)
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
    rows, life = of_lives(history, rows)
    time_ns, value, node, epoch = (seen[name][rows] for name in ("time_ns", "value", "node", "leader_epoch"))
    deletion = seen["step"][rows] != NONE
    answer = np.flatnonzero(~deletion)
    asked_after = previous_of_node(node[answer])
    before = np.full(len(rows), -1, dtype=np.intp)
    case = np.full(len(rows), BELOW_DELETED)
    for of in np.unique(life).tolist():  # as many as the name stood for topics: one, mostly
        deleted = np.flatnonzero(deletion & (life == of))
        mine = np.flatnonzero(life[answer] == of)
        for one in deleted.tolist():  # as many as there were steps
            asked = asked_after[mine]
            later = (asked >= 0) & (time_ns[answer[asked]] >= time_ns[one]) & (value[answer[mine]] < value[one])
            before[answer[mine[later]]] = one
        same = np.unique(np.stack([node[answer[mine]], epoch[answer[mine]]]), axis=1).T
        for who, number in same.tolist():
            own = answer[mine[(node[answer[mine]] == who) & (epoch[answer[mine]] == number)]]
            if number == NONE or not len(own):
                continue
            reached = np.maximum.accumulate(value[own])
            fell = (reached > value[own]) & (before[own] < 0)
            before[own[fell]] = own[np.searchsorted(reached, reached[fell], side="left")]
            case[own[fell]] = SAME_EPOCH_START
    later = np.flatnonzero(before >= 0)
    count, later = len(later), later[:WITNESSES_MAX]
    earlier = before[later]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "log_offset": value[later],
        "other_offset": value[earlier],
        "reader": node[later],
        "sequence": epoch[later],
        "begin_ns": time_ns[earlier],
        "end_ns": time_ns[later],
        "seen_ns": time_ns[earlier],
        "case": case[later],
    }
    return KernelResult(make_witnesses(len(later), columns), count, judged=len(answer))


def log_start_regression_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `log_start_regression` finds in each of these small partitions. A partition is looked at alone where an
    answer is lower than one before it, something was deleted, or there were several topics of its name."""
    count = len(histories)
    seen, owner = joined([one.observations for one in histories], ("kind", "time_ns", "value", "step"))
    rows = np.flatnonzero((seen["kind"] == _STARTS[0]) | (seen["kind"] == _STARTS[1]))
    rows = rows[np.lexsort((seen["time_ns"][rows], owner[rows]))]
    its, value = owner[rows], seen["value"][rows]
    table, of = joined([one.metadata for one in histories], METADATA.column_names)
    truth, other_topic = truth_of_each(table, of)
    alone = np.zeros(count, dtype=bool)
    alone[of[truth[other_topic]]] = True
    alone[its[seen["step"][rows] != NONE]] = True
    alone[its[1:][(its[1:] == its[:-1]) & (value[1:] < value[:-1])]] = True
    judged = np.bincount(its, minlength=count).tolist()
    return [
        log_start_regression(one) if alone[i] else KernelResult(no_witnesses(), 0, judged[i])
        for i, one in enumerate(histories)
    ]


def expired_early(history: PartitionHistory) -> KernelResult:
    """Retention removes no acknowledged record that is younger than retention.ms, unless the log is larger than
    retention.bytes.

    Source: https://kafka.apache.org/documentation/#topicconfigs_retention.ms; UnifiedLog.deleteRetentionMsBreachedSegments: a
    segment goes once its *greatest* timestamp is older than that, so each of its records is. A record is removed by the time
    at which somebody first saw the log start beyond it. What DeleteRecords took is not judged. With retention.bytes only the
    last removal is judged, and only if less than that is left in the furthest copy at the end: the log was no larger then.
    Counts records. Judged: acknowledged records below the greatest log start; of a compacted log the last one of each key, of
    which no send is open: the others need not have been there. Times of producers and of the observer are of one clock.
    O(n log n).

    Example: retention.ms is 10 s. A record was sent at 5 s, and the log start was seen beyond it at 12 s: it was at most 7 s
    old. Another one was sent at 1 s, and may have been 11 s old: no finding.
    """
    rule = history.retention
    if rule is None:
        return KernelResult(no_witnesses(), count=0, judged=0)
    starts = history.observations
    rows = np.flatnonzero(np.isin(starts["kind"], _STARTS) & (starts["value"] > 0))
    if not len(rows):
        return KernelResult(no_witnesses(), count=0, judged=0)
    rows = rows[np.argsort(starts["time_ns"][rows], kind="stable")]
    rows, _ = of_lives(history, rows)
    rows = rows[np.lexsort((starts["value"][rows], starts["time_ns"][rows]))]
    if not len(rows):
        return KernelResult(no_witnesses(), count=0, judged=0)
    by_step = rows[starts["step"][rows] != NONE]
    deleted = int(starts["value"][by_step].max(initial=0))
    value = np.maximum.accumulate(starts["value"][rows])
    end, low = int(value[-1]), deleted
    if rule.size_bytes is not None:
        low = max(low, int(value[value < end].max(initial=0)))  # where the last removal begins
        left = _bytes_left(history, end)
        # 0: of a topic that was deleted nobody read what was left, and it may have been too large all the time.
        if left == 0 or left >= rule.size_bytes:
            low = end
    sends = PartitionIndex.of(history).sends
    offset = sends["log_offset"]
    mine = np.flatnonzero(
        (sends["outcome"] == Outcome.OK.value)
        & (offset != NONE)
        & (offset < end)
        & (sends["client"] != SENTINEL_CLIENT)
    )
    if history.compacted:
        mine = mine[np.isin(mine, _last_of_keys(sends))]
    judged = mine[offset[mine] >= low]
    seen = rows[np.searchsorted(value, offset[judged], side="right")]
    seen_ns = starts["time_ns"][seen]
    # Invoked before the timestamp was taken, so a record is no older than since then.
    young = seen_ns - sends["invoked_ns"][judged] < rule.time_ns - TIMESTAMP_NS
    found, seen = judged[young], seen[young]
    count, found, seen = len(found), found[:WITNESSES_MAX], seen[:WITNESSES_MAX]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "client": sends["client"][found],
        "sequence": sends["sequence"][found],
        "log_offset": offset[found],
        "other_offset": starts["value"][seen],
        "begin_ns": sends["invoked_ns"][found],
        "end_ns": sends["completed_ns"][found],
        "outcome": sends["outcome"][found],
        "seen_ns": starts["time_ns"][seen],
    }
    return KernelResult(make_witnesses(len(found), columns), count, judged=len(judged))


TIMESTAMP_NS = 1_000_000
"""Timestamps of records carry milliseconds."""


def _last_of_keys(sends: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the row of the last send of each key; one that is open, or whose offset is not known, may be the last."""
    rows = np.flatnonzero(sends["outcome"] != Outcome.FAIL.value)
    known = (sends["outcome"][rows] == Outcome.OK.value) & (sends["log_offset"][rows] != NONE)
    offset = np.where(known, sends["log_offset"][rows], np.iinfo(np.int64).max)
    rows = rows[np.lexsort((offset, sends["key"][rows]))]
    return np.asarray(rows[differs_from_next(sends["key"][rows])])


def _bytes_left(history: PartitionHistory, log_start: int) -> int:
    """Returns how many bytes of batches from the log start on the copy has that holds most of them, at the end, and with
    tiered storage the remote store besides. What both have counts twice: that is more, and retention may take more then."""
    batches = history.replicas
    if not batches:
        return 0
    rows = np.flatnonzero((batches["step"] == NONE) & (batches["last_offset"] >= log_start))
    nodes, of = np.unique(batches["node"][rows], return_inverse=True)
    total = np.zeros(len(nodes), dtype=np.int64)
    np.add.at(total, of.reshape(-1), batches["size"][rows])
    remote = nodes == REMOTE_STORE
    return int(total[~remote].max(initial=0) + total[remote].sum())
