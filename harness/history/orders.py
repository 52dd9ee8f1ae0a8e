"""What follows what in the tables that prozess writes: the phases of a fault, the controllers' log, the epochs of leaders
(`prozess.harness.history.contradictions`)."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from prozess.harness.history.client_lives import Columns, among, run_starts
from prozess.harness.schema import NONE, FaultPhase, MetadataKind, MetadataSource, Tristate

_SHOW_EFFECTS = (FaultPhase.VERIFIED.value, FaultPhase.UNDO_VERIFIED.value)
_STRIKE = (FaultPhase.JOURNALED.value, FaultPhase.APPLIED.value)
_BEGINS_AT = (1, 2, 3)
"""The events of `positions` that say from where a span is read: an assignment, a seek, a reset."""


def doubtful_faults(rows: Columns) -> Mapping[str, np.ndarray]:
    """Returns, by what is wrong, which rows of `faults` cannot be: bool[rows]. The loop runs over faults.

    Example: a fault is journaled at 1 s and applied at 2 s. If a row says that it was undone at 1.5 s, the fault is in doubt
    with all of its rows.
    """
    length = len(rows["fault"])
    found = {name: np.zeros(length, dtype=bool) for name in ("order", "kind", "effect", "node")}
    for number in np.unique(rows["fault"]).tolist():
        mine = np.flatnonzero(rows["fault"] == number)
        of = {name: values[mine] for name, values in rows.items()}
        found["kind"][mine] = any(len(np.unique(of[name])) > 1 for name in ("kind", "step"))
        found["order"][mine] = not _in_order(of["phase"], of["time_ns"])
        struck = np.isin(of["phase"], _STRIKE)
        for name in ("node", "peer"):
            hit = np.unique(np.append(of[name][struck], NONE))
            found["node"][mine] |= bool(struck.any()) & ~np.isin(of[name], hit)
    silent = ~np.isin(rows["phase"], _SHOW_EFFECTS) & (rows["phase"] != FaultPhase.FAILED.value)
    found["effect"] = silent & (rows["effect"] != Tristate.UNKNOWN.value)
    return found


def _in_order(phase: np.ndarray, time_ns: np.ndarray) -> bool:
    """Returns whether a fault was journaled, applied and seen to work in this order, and undone after it was applied."""

    def least_and_most(one: FaultPhase) -> tuple[int, int] | None:
        times = time_ns[phase == one.value]
        return (int(times.min()), int(times.max())) if len(times) else None

    there = [t for one in (FaultPhase.JOURNALED, FaultPhase.APPLIED, FaultPhase.VERIFIED) if (t := least_and_most(one))]
    applied, undone = least_and_most(FaultPhase.APPLIED), least_and_most(FaultPhase.UNDONE)
    healed = least_and_most(FaultPhase.UNDO_VERIFIED)
    assert len(phase) == len(time_ns), "a time for each phase"
    fine = all(before[0] <= after[0] and before[1] <= after[1] for before, after in pairwise(there))
    fine &= applied is None or undone is None or applied[1] <= undone[0]
    return fine and (undone is None or healed is None or (undone[0] <= healed[0] and undone[1] <= healed[1]))


def behind_in_log(rows: Columns) -> np.ndarray:
    """Returns which rows of `metadata` stand in the controllers' log before one of the same partition that comes before them:
    bool[rows]."""
    of_log = np.flatnonzero(rows["source"] == MetadataSource.CONTROLLER_LOG.value)
    # Each partition's rows side by side, in the order in which they stand in the table. Example: positions 4 9 7 fall once,
    # and the row with 7 is the one that is behind.
    order = of_log[np.argsort(rows["partition"][of_log], kind="stable")]
    partition, position = rows["partition"][order], rows["log_position"][order]
    falls = (partition[1:] == partition[:-1]) & (position[1:] < position[:-1])
    found = np.zeros(len(rows["source"]), dtype=bool)
    found[order[1:][falls]] = True
    return found


class KnownEpochs:
    """The epochs that the controllers' log gave to leaders of each partition."""

    def __init__(self, metadata: Columns) -> None:
        of_log = metadata["source"] == MetadataSource.CONTROLLER_LOG.value
        of_log &= (metadata["kind"] == MetadataKind.PARTITION.value) & (metadata["partition"] >= 0)
        self._partitions = np.unique(metadata["partition"][of_log].astype(np.int64))
        self._pairs = np.unique(_pairs(metadata["partition"][of_log], metadata["leader_epoch"][of_log]))

    def unknown(self, rows: Columns) -> np.ndarray:
        """Returns which rows name an epoch, of a partition whose leaders are known, that none of these had: bool[rows]."""
        starts = run_starts(rows, ("partition", "leader_epoch"))
        partition, epoch = rows["partition"][starts], rows["leader_epoch"][starts]
        wrong = (epoch != NONE) & among(partition.astype(np.int64), self._partitions)
        wrong &= ~among(_pairs(partition, epoch), self._pairs)
        # Each run of equal rows is asked about once, and its answer is repeated for all of them.
        return np.repeat(wrong, np.diff(np.append(starts, len(rows["partition"]))))


def _pairs(partition: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    # Added, and not or-ed: an epoch below 0 must not set all bits.
    return np.asarray((partition.astype(np.int64) << 32) + epoch)


def span_begins(positions: Columns) -> Mapping[tuple[int, int, int], int]:
    """Returns, by client, partition and span, the least offset from which the span is read. What is not known is left out.

    Example: a span is read from 20 on, the log is cut at 10, and a reset makes the reader go on from there: it begins at 10.
    """
    begins = np.isin(positions["event"], _BEGINS_AT) & (positions["log_offset"] != NONE)
    names = ("client", "partition", "span", "log_offset")
    columns = [positions[name][begins].tolist() for name in names]
    # The offsets fall, and a dictionary keeps the last of several, which is the least.
    rows = sorted(zip(*columns, strict=True), key=lambda row: -row[-1])
    return {(client, partition, span): offset for client, partition, span, offset in rows}
