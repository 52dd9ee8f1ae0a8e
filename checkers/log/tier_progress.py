"""These kernels check that tiered storage goes on: what is full is copied, and what was let go leaves the remote store."""

from collections.abc import Mapping

import numpy as np

from prozess.checkers.log.leadership import ground_truth
from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, LeftCase, make_witnesses, no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, REMOTE_STORE, MetadataKind, ObservationKind, Outcome, RemoteState

_NOTHING = KernelResult(no_witnesses(), count=0, judged=0)
TRANSACTIONAL = 0x10
"""Bit of the attributes of a batch."""
TAKEN_DOWN_NS = 20 * NS_PER_S
"""How long before the store is read the brokers may have been shut down."""


def uncopied(history: PartitionHistory) -> KernelResult:
    """A segment that is full is copied to the remote store in time.

    Source: KIP-405: the leader copies segments that are not active and end below the last stable offset; RemoteLogManager,
    RLMCopyTask, every remote.log.manager.task.interval.ms, and again after a failure. A segment has no more than
    segment.bytes (LogSegment.shouldRoll), so that of a log which has more than that behind what was copied some segment is
    full. The kernel asks for its copy `tier_within_ns` after the log had as much, while brokers still ran, which the
    sentinel's acknowledgement shows.

    Counts partitions: `log_offset` and `other_offset` are the first offset that was not copied, and the last one of as many
    bytes; `reader` is the broker whose log reaches furthest; `begin_ns` is when the log had reached further, `other_ns` when
    the copy was due, `end_ns` when the sentinel was acknowledged. Judged: segments that were copied, and one that was due.
    Not judged: transactional batches, since one that is open holds the last stable offset. O(n log n).

    Example: segment.bytes is 1000, and 0–9 were copied. The broker has 10–14 with 600 bytes and 15–19 with 600: a segment
    that begins at 10 was full when 15 was appended. If that was longer ago than `tier_within_ns`, it is a finding, 10–14.
    """
    limit, remote = history.segment_bytes, history.remote
    if not history.tiered or limit is None or not history.copies:
        return _NOTHING
    if not history.remote_read:
        return KernelResult(no_witnesses(), 0, 0, f"the remote store was not read, for partition {history.partition}")
    done = (remote["step"] == NONE) & (remote["current"] == 1) & (remote["state"] >= RemoteState.COPIED)
    node, rows = _furthest(history)
    begin = max(int(remote["last_offset"][done].max(initial=-1)) + 1, history.log_start, history.copies[node].log_start)
    table = history.replicas
    rows = rows[table["last_offset"][rows] >= begin]
    rows = rows[np.argsort(table["base_offset"][rows], kind="stable")]
    over = np.flatnonzero(np.cumsum(table["size"][rows].astype(np.int64)) > limit)
    full_ns, alive_ns = MISSING, _alive_ns(history)
    if len(over) and not (table["attributes"][rows[: over[0] + 1]] & TRANSACTIONAL).any():
        full_ns = _reached_ns(history, int(table["base_offset"][rows[over[0]]]))
    due = full_ns != MISSING and full_ns + history.tier_within_ns <= alive_ns
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "log_offset": begin,
        "other_offset": int(table["base_offset"][rows[over[0]]]) - 1 if due else NONE,
        "reader": node,
        "begin_ns": full_ns,
        "other_ns": full_ns + history.tier_within_ns if due else MISSING,
        "end_ns": alive_ns,
    }
    return KernelResult(make_witnesses(int(due), columns), int(due), int(np.count_nonzero(done)) + due)


def _furthest(history: PartitionHistory) -> tuple[int, np.ndarray]:
    """Returns the broker whose log reaches furthest at the end, of several the lowest, and the rows of its batches."""
    node = min(history.copies, key=lambda one: (-history.copies[one].log_end, one))
    table = history.replicas
    return node, np.flatnonzero((table["step"] == NONE) & (table["node"] == node))


def _alive_ns(history: PartitionHistory) -> int:
    """Returns when the sentinel was acknowledged: brokers still ran. -1 if none was."""
    sends = history.sends
    mine = (sends["client"] == SENTINEL_CLIENT) & (sends["outcome"] == Outcome.OK)
    return int(sends["completed_ns"][mine].max(initial=-1))


def _reached_ns(history: PartitionHistory, offset: int) -> int:
    """Returns when a record at this offset or behind it was acknowledged for the first time; MISSING if none was."""
    sends = history.sends
    mine = (sends["outcome"] == Outcome.OK) & (sends["log_offset"] >= offset)
    return int(sends["completed_ns"][mine].min()) if mine.any() else MISSING


def remote_left(history: PartitionHistory) -> KernelResult:
    """What retention or DeleteRecords has taken, and what a deleted topic had, goes from the remote store.

    Source: KIP-405: the leader deletes remote segments that are wholly below the log start or beyond retention
    (RemoteLogManager, RLMExpirationTask), and all segments of a topic that is deleted (RemoteLogManager.stopPartitions with
    deleteRemoteLog). Asked is `tier_within_ns` after the log start had passed a segment, by an answer of a leader, or after
    the deletion of the topic in the controllers' log.

    Counts objects that are still there: `log_offset` and `other_offset` are the first and last offset, `case` is a LeftCase;
    `begin_ns` is when it was let go, `other_ns` when it had to be gone, `end_ns` until when that could happen. Judged:
    segments that were due, there or not. O(n log n).

    Example: the log start was 20 at 30 s, and the brokers ran until 60 s. An object with 0–9 is a finding, one with 15–24 is
    none, since 20–24 are still asked for.
    """
    if not history.tiered:
        return _NOTHING
    if not history.remote_read:
        return KernelResult(no_witnesses(), 0, 0, f"the remote store was not read, for partition {history.partition}")
    every = history.remote
    remote = {name: values[every["step"] == NONE] for name, values in every.items()}
    passed_ns, gone_ns = _passed_ns(history, remote), _deleted_ns(history, remote)
    own, within = remote["current"] == 1, history.tier_within_ns
    let_go = np.where(own, passed_ns, gone_ns)
    # A topic is deleted once, and nobody asks again: there the time until it had to be over is all that counts.
    until = np.where(own, _alive_ns(history), let_go + within)
    late = np.where(own, let_go + within <= until, let_go + within + TAKEN_DOWN_NS <= remote["read_ns"])
    known = remote["last_offset"] != NONE
    due = known & (let_go != MISSING) & late
    left = np.flatnonzero(due & (remote["stored_size"] != NONE))
    left = left[np.lexsort((remote["last_offset"][left], remote["first_offset"][left]))]
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "log_offset": remote["first_offset"][left],
        "other_offset": remote["last_offset"][left],
        "reader": REMOTE_STORE,
        "begin_ns": let_go[left],
        "other_ns": let_go[left] + within,
        "end_ns": until[left],
        "case": np.where(own[left], int(LeftCase.BELOW_START), int(LeftCase.TOPIC_DELETED)),
    }
    witnesses = make_witnesses(len(left), columns)
    return KernelResult(witnesses[:WITNESSES_MAX], len(left), int(np.count_nonzero(due)))


def _passed_ns(history: PartitionHistory, remote: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns int64[segments]: when a leader first answered a log start behind the segment; MISSING = never."""
    seen = history.observations
    rows = np.flatnonzero(seen["kind"] == ObservationKind.LEADER_LOG_START)
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
    reached = np.maximum.accumulate(seen["value"][rows])
    at = np.searchsorted(reached, remote["last_offset"], side="right")
    return np.append(seen["time_ns"][rows], MISSING)[at]


def _deleted_ns(history: PartitionHistory, remote: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns int64[segments]: when the segment's topic was deleted: by the controllers' log, or at the latest when the topic
    that has the name now was made; MISSING = nobody knows. The loop runs over deletions of this topic, at most one."""
    table = history.metadata
    truth = ground_truth(table)
    made = truth[table["kind"][truth] == MetadataKind.PARTITION]
    deletions = truth[table["kind"][truth] == MetadataKind.DELETED]

    def of_topic(row: int) -> np.ndarray:
        ids = ("topic_id_high", "topic_id_low")
        return np.asarray((remote[ids[0]] == table[ids[0]][row]) & (remote[ids[1]] == table[ids[1]][row]))

    found = np.full(len(remote["step"]), MISSING, dtype=np.int64)
    if len(made):
        first = made[np.argmin(table["time_ns"][made])]
        found[~of_topic(int(first))] = table["time_ns"][first]
    for row in deletions.tolist():
        found[of_topic(row)] = table["time_ns"][row]
    return found
