"""These kernels compare the two tiers of a partition with tiered storage: its remote store, and its brokers' own logs."""

from collections.abc import Mapping

import numpy as np

from prozess.checkers.log.replicas import COMPARED, unread_copies
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    GapCase,
    RemoteCase,
    join_witnesses,
    make_witnesses,
    no_witnesses,
)
from prozess.harness.schema import NONE, REMOTE_STORE, RemoteState

Columns = Mapping[str, np.ndarray]
_NOTHING = KernelResult(no_witnesses(), count=0, judged=0)


def remote_gap(history: PartitionHistory) -> KernelResult:
    """From the log start on, every offset is in a broker's own log, or in an object of the remote store that is whole.

    Source: KIP-405, "Local segment is deleted only after it is copied to remote storage"; RemoteLogManager and UnifiedLog,
    `deletableSegments`: a broker deletes a segment of its own only if the highest offset in remote storage has passed it.
    Whoever becomes leader has to serve every offset from the log start on, so this is asked of each broker's log by itself.

    An object is whole up to the first batch that is cut off, does not follow, or has another checksum than its bytes. The log
    start is the greatest that anybody reported: what stands below it retention has taken.

    Counts stretches between the ends of segments, for each broker: `log_offset` and `other_offset` are their first and last
    offset, `reader` is the broker, `case` a GapCase. Judged are all such stretches below a broker's own first segment.
    From `begin_ns`, the start of the trial's clock, to `end_ns`, when the files were read. O(n log n) in segments.

    Example: segments 0–9 and 10–19 were copied, the object of the second is gone, and the broker's own log begins at 20: one
    finding, 10–19, GONE. If its log begins at 15, the finding is 10–14.
    """
    if not history.tiered:
        return _NOTHING
    chosen = (history.remote["step"] == NONE) & (history.remote["current"] == 1)
    remote = {name: values[chosen] for name, values in history.remote.items()}
    found, judged = [], 0
    for node, copy in sorted(history.copies.items()):
        if copy.log_start > history.log_start:
            stretches = _stretches(remote, max(0, history.log_start), copy.log_start)
            judged += len(stretches["case"])
            wrong = stretches["case"] != 0
            columns: dict[str, np.ndarray | int] = {name: values[wrong] for name, values in stretches.items()}
            columns |= {
                "partition": history.partition,
                "reader": node,
                "begin_ns": 0,
                "end_ns": int(remote["read_ns"].max(initial=0)),
            }
            found.append(make_witnesses(int(wrong.sum()), columns))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, _incomplete(history))


def _incomplete(history: PartitionHistory) -> str | None:
    """Returns why it cannot be concluded that both tiers agree. None: both were read."""
    if not history.remote_read:
        return f"the remote store was not read to its end, for partition {history.partition}"
    return unread_copies(history)


def _stretches(remote: Columns, low: int, high: int) -> dict[str, np.ndarray]:
    """Divides the offsets in [low, high) where segments begin and end. Returns for each stretch its first and last offset,
    and its case, 0 if all of it is there."""
    state, first, whole_to = remote["state"], remote["first_offset"], remote["whole_to"]
    last = np.maximum(remote["last_offset"], np.maximum(whole_to - 1, first))
    copied = state == RemoteState.COPIED
    ends = np.concatenate([first, last + 1, whole_to[whole_to != NONE], [low, high]])
    edges = np.unique(ends[(ends >= low) & (ends <= high)])
    assert len(edges) >= 2, "there is something between the log start and the broker's first segment"

    def covered(chosen: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Returns bool[stretches]: does one of these segments, up to there, have it?"""
        # Example: edges 0 10 20, one segment 0–19: +1 at 0, -1 at 20, summed up 1 1 0. Both stretches have it.
        change = np.zeros(len(edges) + 1, dtype=np.int64)
        begins, stops = np.clip(first[chosen], low, high), np.clip(until[chosen], low, high)
        np.add.at(change, np.searchsorted(edges, begins), 1)
        np.add.at(change, np.searchsorted(edges, np.maximum(begins, stops)), -1)
        return np.asarray(np.cumsum(change)[: len(edges) - 1] > 0)

    case = np.select(
        [
            covered(copied & (whole_to != NONE), whole_to),
            covered((state == RemoteState.DELETING) | (state == RemoteState.DELETED), last + 1),
            covered(copied & (whole_to == NONE), last + 1),
            covered(copied & (whole_to != NONE), last + 1),
            covered(state == RemoteState.COPYING, last + 1),
        ],
        [0, GapCase.TAKEN, GapCase.GONE, GapCase.DAMAGED, GapCase.UNFINISHED],
        GapCase.NEVER_COPIED,
    )
    return {"log_offset": edges[:-1], "other_offset": edges[1:] - 1, "case": case}


def remote_conflict(history: PartitionHistory) -> KernelResult:
    """No two batches have one offset, in the remote store and in it together with a broker's log; and leader epochs do not
    fall from one to the other.

    Source: KIP-405: an object is a copy of a segment, byte for byte, of which all records are below the last stable offset;
    KIP-101: leader epochs only rise along a log. One batch may be in several objects: after a change of leaders another
    broker begins anew in the middle of a segment, and what both copied is the same.

    Counts batches. `log_offset` is the base offset of one, `other_offset` that of the batch before it, `reader` the broker,
    or REMOTE_STORE if both are there; `leader_epoch` is its own; `case` is a RemoteCase; `end_ns`: when the files were read.
    Judged are the batches in the remote store. Not judged: batches below the log start. O(n log n).

    Example: the store has the batches 0–4 and 5–9, and a broker's log 5–9 with other bytes and 10–14: one finding, at 5,
    TWIN.
    """
    if not history.tiered:
        return _NOTHING
    rows = history.replicas
    at_end = (rows["step"] == NONE) & (rows["last_offset"] >= history.log_start)
    remote = _distinct(rows, at_end & (rows["node"] == REMOTE_STORE))
    alone = _conflicts(rows, remote, rows["node"][remote])
    found = [_witnesses(history, rows, REMOTE_STORE, *alone)]
    for node in sorted(history.copies) if len(remote) else ():
        both = _distinct(rows, at_end & ((rows["node"] == REMOTE_STORE) | (rows["node"] == node)))
        before, after, case = _conflicts(rows, both, rows["node"][both])
        new = ~np.isin(after, alone[1])
        found.append(_witnesses(history, rows, node, before[new], after[new], case[new]))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), len(remote), _incomplete(history))


def _distinct(rows: Columns, chosen: np.ndarray) -> np.ndarray:
    """Returns intp[n]: of the chosen batches each once, those of the remote store first, in the order of their offsets."""
    index = np.flatnonzero(chosen)
    index = index[
        np.lexsort((rows["node"][index], *(rows[name][index] for name in COMPARED), rows["base_offset"][index]))
    ]
    again = np.ones(max(0, len(index) - 1), dtype=bool)
    for name in ("base_offset", *COMPARED):
        again &= rows[name][index[1:]] == rows[name][index[:-1]]
    return index[np.append(True, ~again)] if len(index) else index


def _conflicts(rows: Columns, index: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns pairs of batches that cannot both be: rows of those before and behind, and their cases."""
    if len(index) < 2:
        return index[:0], index[:0], np.empty(0, dtype=np.int32)
    base, last, epoch = (rows[name][index] for name in ("base_offset", "last_offset", "leader_epoch"))
    furthest = np.maximum.accumulate(last)
    slot = np.arange(len(index))
    # For each batch, the one before it that reaches furthest. Example: batches 0–9, 3–4, 5–9: 3–4 and 5–9 both follow 0–9.
    reaching = np.maximum.accumulate(np.where(np.append(True, last[1:] > furthest[:-1]), slot, 0))
    twin = base[1:] <= furthest[:-1]
    fell = ~twin & (epoch[1:] < epoch[:-1]) & (node[1:] != node[:-1])
    after = np.flatnonzero(twin | fell) + 1
    case = np.where(twin[after - 1], int(RemoteCase.TWIN), int(RemoteCase.EPOCH_FELL))
    before = np.where(twin[after - 1], reaching[after - 1], after - 1)
    return index[before], index[after], case


def _witnesses(
    history: PartitionHistory, rows: Columns, node: int, before: np.ndarray, after: np.ndarray, case: np.ndarray
) -> np.ndarray:
    columns: dict[str, np.ndarray | int] = {
        "partition": history.partition,
        "log_offset": rows["base_offset"][after],
        "other_offset": rows["base_offset"][before],
        "leader_epoch": rows["leader_epoch"][after],
        "reader": node,
        "begin_ns": 0,
        "end_ns": rows["read_ns"][after],
        "case": case,
    }
    return make_witnesses(len(after), columns)
