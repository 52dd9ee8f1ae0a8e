"""This kernel holds what share coordinators wrote down of a share group's partitions against the rules of KIP-932."""

import numpy as np

from prozess.checkers.lookup import differs_from_previous
from prozess.harness.columns import empty_rows, rows_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, ShareStateCase, join_witnesses, make_witnesses
from prozess.harness.schema import NONE, SHARE_STATES, ShareRecord, ShareState

OFFSETS_MAX = 20_000_000
"""A partition with more states of records is not compared: they take 100 bytes each."""
_FINAL = (ShareState.ACKNOWLEDGED, ShareState.ARCHIVED)
Found = tuple[ShareStateCase, np.ndarray, np.ndarray, np.ndarray]
"""A rule; and for each row that breaks it the row, the offset of the record, and the row that it contradicts."""


def illegal_share_state(history: CellHistory) -> KernelResult:
    """What `__share_group_state` states of a partition follows from what it stated before, by the rules of KIP-932.

    Source: KIP-932, 'In-flight records' (acknowledged and archived are final, the delivery count grows), 'Managing the SPSO
    and SPEO' (the start offset goes forward), 'Persisting share-group state' (the state epoch fences). Counts states of
    records, and records of the log, that break a rule (`case`, ShareStateCase). A new state epoch begins anew, as an
    administrator's reset does. Incomplete where the log says nothing about the partition.

    Example: the record 63 is archived with the count 2. 0.4 s later it is available with the count 1: FINAL_TAKEN_BACK, and
    COUNT_FELL. The next leader delivers it again. (Seen on 4.4.0: a write that was tried again came after a newer one.)

    Witness: the record at `log_offset` of the partition, or the start offset; `begin_ns` when it was written; `sequence` and
    `other_sequence` its delivery count now and before, or the start offsets or epochs. O(n log n) for n states of records;
    the loop runs over partitions.
    """
    table = history.tables.get("share_states", empty_rows(SHARE_STATES))
    parts, judged, reasons = list[np.ndarray](), 0, list[str]()
    for number in history.partitions:
        mine = rows_of(table, number)
        mine = mine[table["group"][mine] != NONE]
        mine = mine[np.lexsort((mine, table["log_offset"][mine]))]
        rows = {name: values[mine] for name, values in table.items()}
        judged += len(mine)
        if not len(mine):
            reasons.append(f"no share coordinator's log says anything about partition {number}")
            continue
        if _is_torn(rows):
            reasons.append(f"rows of records about partition {number} are missing, or say what no record does")
        life = _lives(rows)
        found = [_start(rows, life), *_epochs(rows)]
        ranges = np.flatnonzero(rows["kind"] == ShareRecord.RANGE)
        if int((rows["last_offset"][ranges] - rows["first_offset"][ranges] + 1).sum()) > OFFSETS_MAX:
            reasons.append(f"partition {number} has more than {OFFSETS_MAX:,} states of records")
        else:
            found += _records(rows, life, ranges)
        parts += [_witnesses(rows, number, *one) for one in found]
    witnesses = join_witnesses(parts)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, incomplete="; ".join(reasons) or None)


def _is_torn(rows: dict[str, np.ndarray]) -> bool:
    """Returns whether a range has no record, or a row says what no record does."""
    kind, ranges = rows["kind"], rows["kind"] == ShareRecord.RANGE
    records = np.isin(kind, (ShareRecord.SNAPSHOT, ShareRecord.UPDATE))
    strange = ~np.isin(rows["log_offset"][ranges], rows["log_offset"][records])
    strange |= (rows["last_offset"] < rows["first_offset"])[ranges] | (rows["state"] < 0)[ranges]
    return bool(strange.any() or ((kind == ShareRecord.SNAPSHOT) & (rows["state_epoch"] < 0)).any())


def _lives(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the life of each row: a state epoch ends one, and so does its end."""
    epoch = np.where(rows["kind"] == ShareRecord.SNAPSHOT, rows["state_epoch"], NONE)
    stated = np.flatnonzero(epoch != NONE)
    slot = np.searchsorted(stated, np.arange(len(epoch)), side="right") - 1
    now = np.where(slot >= 0, epoch[stated[np.maximum(slot, 0)]] if len(stated) else NONE, NONE)
    begins = differs_from_previous(now) | (rows["kind"] == ShareRecord.GONE)
    return np.cumsum(begins)


def _start(rows: dict[str, np.ndarray], life: np.ndarray) -> Found:
    """Returns where the start offset falls, within one state epoch."""
    own = np.flatnonzero(
        np.isin(rows["kind"], (ShareRecord.SNAPSHOT, ShareRecord.UPDATE)) & (rows["first_offset"] >= 0)
    )
    start = rows["first_offset"][own]
    bad = np.flatnonzero((start[1:] < start[:-1]) & (life[own][1:] == life[own][:-1])) + 1
    return ShareStateCase.START_FELL, own[bad], start[bad], own[bad - 1]


def _epochs(rows: dict[str, np.ndarray]) -> list[Found]:
    """Returns where a state epoch falls, or the epoch of the partition's leader."""
    found: list[Found] = []
    for case, name, kinds in (
        (ShareStateCase.STATE_EPOCH_FELL, "state_epoch", (ShareRecord.SNAPSHOT,)),
        (ShareStateCase.LEADER_EPOCH_FELL, "partition_epoch", (ShareRecord.SNAPSHOT, ShareRecord.UPDATE)),
    ):
        own = np.flatnonzero(np.isin(rows["kind"], (*kinds, ShareRecord.GONE)))
        epoch = rows[name][own]
        bad = np.flatnonzero((epoch[1:] < epoch[:-1]) & (epoch[1:] >= 0)) + 1
        found.append((case, own[bad], np.full(len(bad), NONE), own[bad - 1]))
    return found


def _records(rows: dict[str, np.ndarray], life: np.ndarray, ranges: np.ndarray) -> list[Found]:
    """Returns where a final state is taken back, or a delivery count falls.

    Ranges are spread over their offsets: 5 to 7, then 6 to 6, are the states 5, 6, 7, 6. Sorted by offset, and those of one
    offset as they came, each state stands behind the one before: 5, 6, 6, 7."""
    first, last = rows["first_offset"][ranges], rows["last_offset"][ranges]
    length = np.maximum(last - first + 1, 0)
    row = np.repeat(ranges, length)
    offset = np.repeat(first - (np.cumsum(length) - length), length) + np.arange(int(length.sum()))
    order = np.lexsort((row, offset, life[row]))
    row, offset = row[order], offset[order]
    follows = np.append(False, (offset[1:] == offset[:-1]) & (life[row][1:] == life[row][:-1]))[: len(row)]
    at = np.flatnonzero(follows)
    now, before = row[at], row[at - 1]
    state, was = rows["state"][now], rows["state"][before]
    final = np.isin(was, _FINAL) & (state != was)
    leaving = (was == ShareState.ARCHIVING) & ~np.isin(state, (ShareState.ARCHIVING, ShareState.ARCHIVED))
    fell = rows["delivery_count"][now] < rows["delivery_count"][before]
    return [
        (case, now[bad], offset[at][bad], before[bad])
        for case, bad in ((ShareStateCase.FINAL_TAKEN_BACK, final | leaving), (ShareStateCase.COUNT_FELL, fell))
    ]


def _witnesses(
    rows: dict[str, np.ndarray],
    partition: int,
    case: ShareStateCase,
    now: np.ndarray,
    offset: np.ndarray,
    before: np.ndarray,
) -> np.ndarray:
    shown = {
        ShareStateCase.START_FELL: "first_offset",
        ShareStateCase.STATE_EPOCH_FELL: "state_epoch",
        ShareStateCase.LEADER_EPOCH_FELL: "partition_epoch",
    }.get(case, "delivery_count")
    columns: dict[str, np.ndarray | int] = {
        "partition": partition,
        "case": int(case),
        "log_offset": offset,
        "begin_ns": rows["time_ns"][now],
        "sequence": rows[shown][now],
        "other_sequence": rows[shown][before],
    }
    return make_witnesses(len(now), columns)
