"""This kernel checks what leaders answer who are asked for the first record since a time (ListOffsets, offsetsForTimes)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.checkers.lookup import differs_from_next
from prozess.harness.columns import joined
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, LookupCase, make_witnesses, no_witnesses
from prozess.harness.schema import MISSING, NONE, REMOTE_STORE, ObservationKind

LOG_APPEND_TIME = 0x8
"""Bit of a batch's attributes: all of its records have the time at which the leader appended it, its greatest."""


_COLUMNS = ("node", "step", "base_offset", "last_offset", "base_timestamp_ms", "max_timestamp_ms", "attributes")


def mistimed(history: PartitionHistory) -> KernelResult:
    """A look-up by time gives the first record whose timestamp is not before the time asked for.

    Source: KafkaConsumer.offsetsForTimes ("the earliest offset whose timestamp is greater than or equal to the given
    timestamp"; null if there is none); KIP-79. Compared are the answers of leaders, whatever had happened to their time
    indexes, with the headers of the batches in the longest copy of the log. The first batch whose greatest timestamp is not
    before the time asked for must hold the answer. Where its first record's timestamp is late enough, that record is the
    answer; which other record of it is, no header says. Nothing may be found only if no such batch is below a high
    watermark that the same broker had answered before. Judged: answers about what is in that copy. Compacted topics are
    left out, because cleaning takes records away.

    Example: batches at 0–4, 5–9 and 10–14 have greatest timestamps of 100, 90 and 200. For 95 the answer must be in 0–4, and
    for 101 in 10–14: offset 5 (EARLIER), and nothing (NOTHING) if the high watermark was 15, are witnesses. Witness: broker
    `reader`, asked at `begin_ns`, answered `log_offset` (NONE: nothing); the first batch late enough begins at
    `other_offset`. What happened until `end_ns`, when the copies were read, may explain it. O(n log n).
    """
    asked = _answers(history.observations, np.zeros(len(history.observations["kind"]), dtype=np.int64))
    if not len(asked["time_ns"]) or history.compacted:
        return KernelResult(no_witnesses(), count=0, judged=0)
    log = _LoggedTimes.of(history)
    if log is None:
        return KernelResult(no_witnesses(), count=0, judged=0, incomplete="no copy of its log was read")
    answer, count = asked["found"], len(log.base)
    # `first`: the first batch whose greatest timestamp is late enough, by a running maximum; `holder`: the answer's.
    first = np.searchsorted(np.maximum.accumulate(log.greatest_ms), asked["wanted_ms"], side="left")
    holder = np.minimum(np.searchsorted(log.last, answer, side="left"), count - 1)
    found = (answer != NONE) & (answer >= log.base[holder]) & (answer <= log.last[holder])
    due = np.minimum(first, count - 1)
    there = (first < count) & (log.last[due] < _watermarks(history, asked))
    early = found & (holder < first)
    whole = log.base[due] >= history.log_start
    past = found & (first < count) & (
        (holder > first)
        | ((holder == first) & whole & (log.first_ms[due] >= asked["wanted_ms"]) & (answer != log.base[due]))
    )  # fmt: skip
    nothing = (answer == NONE) & there
    rows = np.flatnonzero(early | past | nothing)
    case = np.select(
        [early[rows], past[rows]], [int(LookupCase.EARLIER), int(LookupCase.PAST)], int(LookupCase.NOTHING)
    )
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "log_offset": answer[rows],
        "other_offset": np.where(first < count, log.base[due], NONE)[rows],
        "reader": asked["node"][rows],
        "begin_ns": asked["time_ns"][rows],
        "end_ns": log.read_ns,
        "case": case,
    }
    judged = int(np.count_nonzero(found | (answer == NONE)))
    return KernelResult(make_witnesses(len(rows), columns)[:WITNESSES_MAX], count=len(rows), judged=judged)


def mistimed_of_each(histories: Sequence[PartitionHistory]) -> list[KernelResult]:
    """Returns what `mistimed` finds in each of these small partitions. A partition is looked at alone where an answer may
    be wrong, or a remote store has batches."""
    count = len(histories)
    asked = _answers(*joined([one.observations for one in histories], ("kind", "time_ns", "node", "value")))
    owner, wanted, answer = asked["owner"], asked["wanted_ms"], asked["found"]
    alone = np.zeros(count, dtype=bool)
    alone[owner] = True  # until the batches of its copy are known
    base, last, first_ms, greatest_ms, its = (np.empty(0, dtype=np.int64) for _ in range(5))
    if held := [i for i, one in enumerate(histories) if one.replicas]:
        table, its = joined([histories[i].replicas for i in held], _COLUMNS)
        its = np.array(held)[its]
        log_start = np.array([one.log_start for one in histories])
        rows = np.flatnonzero((table["step"] == NONE) & (table["last_offset"] >= log_start[its]))
        alone[its[rows]] = False
        alone[its[rows[table["node"][rows] == REMOTE_STORE]]] = True
        # If several are as long, it is the one of the lowest node.
        order = rows[np.lexsort((-table["node"][rows], table["last_offset"][rows], its[rows]))]
        longest = order[differs_from_next(its[order])]
        node = np.full(count, NONE, dtype=np.int64)
        node[its[longest]] = table["node"][longest]
        rows = rows[table["node"][rows] == node[its[rows]]]
        rows = rows[np.lexsort((table["base_offset"][rows], its[rows]))]
        base, last, greatest_ms = (table[name][rows] for name in ("base_offset", "last_offset", "max_timestamp_ms"))
        its = its[rows]
        appended = (table["attributes"][rows] & LOG_APPEND_TIME) != 0
        first_ms = np.where(appended, greatest_ms, table["base_timestamp_ms"][rows])
        alone[its[1:][(its[1:] == its[:-1]) & (last[1:] <= last[:-1])]] = True
    # Index -1 stands for no batch: behind the last one of the partition, or of no partition that has any.
    first = _first_at_least(its, greatest_ms, owner, wanted, count)
    holder = _first_at_least(its, last, owner, answer, count)
    found = (answer != NONE) & (holder >= 0) & (answer >= np.append(base, 0)[holder])
    right = (first == holder) & ((np.append(first_ms, 0)[first] < wanted) | (answer == np.append(base, 0)[first]))
    alone[owner[(found & ~right) | ((answer == NONE) & (first >= 0))]] = True
    judged = np.bincount(owner[found | (answer == NONE)], minlength=count)
    return [
        mistimed(one) if alone[i] and not one.compacted else KernelResult(
            no_witnesses(), 0, 0 if one.compacted else int(judged[i])
        )
        for i, one in enumerate(histories)
    ]  # fmt: skip


def _first_at_least(
    its: np.ndarray, values: np.ndarray, owner: np.ndarray, wanted: np.ndarray, count: int
) -> np.ndarray:
    """Returns, for each wanted value, the index of the first value of the same partition that is no less; -1: there is none.
    `its` and `owner` are the partitions of both, and the former ascend."""
    if not len(values) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.intp)
    least = min(int(values.min()), int(wanted.min()))
    length = max(int(values.max()), int(wanted.max())) - least + 1
    if length > (1 << 62) // count:
        raise OverflowError("the values are too far apart to be looked at together")
    # Example: partition 0 has 5 9, and 1 has 2. With the least 2 and the length 8 they are 3 7 | 8, and of partition 0 the
    # value 9 is looked for as 7, 10 as 8: that one is in partition 1, and so there is none.
    reached = np.maximum.accumulate(its * length + (values - least))
    slot = np.searchsorted(reached, owner * length + (wanted - least), side="left")
    return np.where((slot < len(its)) & (np.append(its, -1)[slot] == owner), slot, -1)


def _answers(seen: Mapping[str, np.ndarray], owner: np.ndarray) -> Mapping[str, np.ndarray]:
    """Returns each look-up: when which broker was asked for which time, and what it found. A look-up is two rows of one
    partition (`owner`)."""
    asked, answered = (seen["kind"] == one.value for one in (ObservationKind.TIME_ASKED, ObservationKind.TIME_FOUND))
    rows = np.flatnonzero(asked | answered)
    rows = rows[np.lexsort((seen["kind"][rows], seen["time_ns"][rows], seen["node"][rows], owner[rows]))]
    wanted, found = rows[:-1], rows[1:]
    pair = asked[wanted] & answered[found] & (owner[found] == owner[wanted])
    pair &= (seen["time_ns"][found] == seen["time_ns"][wanted]) & (seen["node"][found] == seen["node"][wanted])
    wanted, found = wanted[pair], found[pair]
    return {
        "owner": owner[wanted],
        "time_ns": seen["time_ns"][wanted],
        "node": seen["node"][wanted],
        "wanted_ms": seen["value"][wanted],
        "found": seen["value"][found],
    }


def _watermarks(history: PartitionHistory, asked: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns int64[n]: the greatest high watermark that the same broker had answered before each question; NONE: none. The
    loop runs over brokers."""
    seen, reached = history.observations, np.full(len(asked["node"]), NONE, dtype=np.int64)
    for node in np.unique(asked["node"]).tolist():
        rows = np.flatnonzero((seen["kind"] == ObservationKind.LEADER_HIGH_WATERMARK.value) & (seen["node"] == node))
        rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
        mine = np.flatnonzero(asked["node"] == node)
        known = np.searchsorted(seen["time_ns"][rows], asked["time_ns"][mine], side="right")
        greatest = np.append(NONE, np.maximum.accumulate(seen["value"][rows]))
        reached[mine] = greatest[known]
    return reached


@dataclass(frozen=True, slots=True)
class _LoggedTimes:
    """The batches of one copy of the log, in its order."""

    base: np.ndarray
    last: np.ndarray
    first_ms: np.ndarray
    """The timestamp of the first record."""
    greatest_ms: np.ndarray
    read_ns: int

    @staticmethod
    def of(history: PartitionHistory) -> "_LoggedTimes | None":
        """Returns those of the longest copy that was read at the end, and in front of it those that the remote store has,
        without what is below the log start. None: there is none."""
        table = history.replicas
        if not table or not len(table["node"]):
            return None
        rows = np.flatnonzero((table["step"] == NONE) & (table["last_offset"] >= history.log_start))
        if not len(rows):
            return None
        # If several are as long, it is the one of the lowest node.
        longest = rows[np.lexsort((-table["node"][rows], table["last_offset"][rows]))[-1]]
        node = table["node"][rows]
        own = rows[node == table["node"][longest]]
        # Example: a broker's own log begins at 20, and the store has 0–9, 10–19 and 20–29: 0–19 are the store's.
        remote = rows[(node == REMOTE_STORE) & (table["last_offset"][rows] < table["base_offset"][own].min())]
        rows = np.concatenate([remote, own]) if table["node"][longest] != REMOTE_STORE else own
        rows = rows[np.argsort(table["base_offset"][rows], kind="stable")]
        greatest = table["max_timestamp_ms"][rows]
        appended = (table["attributes"][rows] & LOG_APPEND_TIME) != 0
        return _LoggedTimes(
            table["base_offset"][rows],
            table["last_offset"][rows],
            np.where(appended, greatest, table["base_timestamp_ms"][rows]),
            greatest,
            int(table["read_ns"][rows].max()) if len(rows) else MISSING,
        )
