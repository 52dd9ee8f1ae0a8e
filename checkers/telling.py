"""Is every sender told what became of its records, and is what must be refused refused, alone? Stage check: arrays in,
findings out.

An error is the caller's to handle, so it has to reach the caller; and what one record did must not be another's fate.
"""

from collections.abc import Iterable

import numpy as np

from checkers.arrays import PartitionIndex
from harness.plan import SENTINEL_CLIENT
from harness.protocols import CellHistory, KernelResult, PartitionHistory
from harness.provocations import PROVOCATIONS, Provocation, is_bad
from harness.schema import MISSING, NONE, Outcome, Role
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses


def untold(history: PartitionHistory) -> KernelResult:
    """Who sent a record that is not in the log was told of an error.

    Source: https://kafka.apache.org/documentation/#producerconfigs_delivery.timeout.ms ("An upper bound on the time to report
    success or failure after a call to send() returns"). Counts records outside transactions that are not in the log, and of
    which their sender, alive and with its delivery timeout over, never heard again; or, with acks=0, heard that they were
    delivered. (With other acks that is `lost`.) Judged: sends that were told of an error, and those. O(n).
    """
    index = PartitionIndex.of(history)
    sends = index.sends
    silent, told = _silent(index, history.client_told_ns)
    reported = _reported_unseen(index)
    rows = np.concatenate([silent, reported])
    if reason := index.incomplete():
        return KernelResult(no_witnesses(), count=0, judged=len(rows) + told, incomplete=reason)
    rows = rows[(sends["transaction"][rows] == NONE) & (index.identities.find(index.send_key[rows]) < 0)]
    if index.sentinel_ns is not None:  # what was completed later may stand behind the sentinel
        rows = rows[sends["completed_ns"][rows] < index.sentinel_ns]
    maybe = index.may_be_cleaned(
        record_key=sends["key"][rows],
        offset=np.full(len(rows), NONE, dtype=np.int64),
        tombstone=sends["size"][rows] == NONE,
    )
    if index.unreadable_positions:
        maybe[:] = True
    unknown = int(np.count_nonzero(maybe))
    why = f"{unknown} records that are not in the log may have been removed by cleaning, or be the unreadable ones"
    rows = rows[~maybe]
    return KernelResult(_witnesses(index, rows), len(rows), len(rows) + told, incomplete=why if unknown else None)


def unenforced(history: CellHistory) -> KernelResult:
    """No record that breaks a limit of its topic or its client is in the log.

    Source: https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes and the other limits of `PROVOCATIONS`.
    Counts records. Judged: bad records that were refused, whether the sender was told (by the code of the error) or, with
    acks=0, was not; and those counted. Errors that are a state count as refused by their code alone. O(n).
    """
    made = _provocation(history)
    found, judged, reason = [], 0, None
    for index, rows in _own_sends(history):
        reason = reason or index.incomplete()
        told, bad = np.isin(index.sends["code"][rows], made.codes), _bad(history, index, rows)
        refused = told & (bad | (not made.of_record))
        inside = index.identities.find(index.send_key[rows]) >= 0
        if made.by_broker:
            acks = index.fact(index.client_acks, index.sends["client"][rows], unknown=NONE)
            handed_over = (acks == 0) & (index.sends["outcome"][rows] == Outcome.OK)
            refused |= handed_over & ~inside & (bad | (not made.of_record))
        accepted = bad & inside
        found.append((index, rows[accepted]))
        judged += int(np.count_nonzero(refused | accepted))
    return _of_cell(found, judged, reason)


def collateral(history: CellHistory) -> KernelResult:
    """A record that nothing was wrong with is not refused beside one that something was wrong with.

    Source: KIP-467 (https://cwiki.apache.org/confluence/x/ug9jBg): a broker refuses a batch whole and names the records to
    blame; the others "may be retried". Counts good records that were told the bad one's error, or that another record of
    their batch was invalid. Judged: all good records, where errors are of records and one was provoked. O(n).
    """
    made = _provocation(history)
    if not made.of_record:
        return KernelResult(no_witnesses(), count=0, judged=0)
    found, judged, provoked = [], 0, 0
    for index, rows in _own_sends(history):
        told, bad = np.isin(index.sends["code"][rows], made.codes), _bad(history, index, rows)
        found.append((index, rows[told & ~bad]))
        judged += int(np.count_nonzero(~bad))
        provoked += int(np.count_nonzero(told & bad))
    return _of_cell(found, judged if provoked else 0, None)


def _silent(index: PartitionIndex, told_ns: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows of `sends` that nobody completed although their client lived long enough to be told; and how many sends of such
    clients were told of an error."""
    sends = index.sends
    open_rows = np.flatnonzero(sends["completed_ns"] == MISSING)
    due_ns = index.fact(told_ns, sends["client"][open_rows], unknown=MISSING)
    silent = open_rows[(sends["invoked_ns"][open_rows] < due_ns) & (sends["client"][open_rows] != SENTINEL_CLIENT)]
    failed = np.flatnonzero((sends["code"] != 0) & (sends["client"] != SENTINEL_CLIENT))
    lived = index.fact(told_ns, sends["client"][failed], unknown=MISSING) != MISSING
    return silent, int(np.count_nonzero(lived))


def _reported_unseen(index: PartitionIndex) -> np.ndarray:
    """Rows of `sends` that acks=0 reported as delivered. Senders are in order: a partition without such is done at once."""
    sends = index.sends
    without_reply = np.flatnonzero((index.client_acks == 0) & (index.client_role == Role.PRODUCER))
    begin = np.searchsorted(sends["client"], without_reply, side="left").tolist()
    end = np.searchsorted(sends["client"], without_reply, side="right").tolist()
    parts = [np.arange(a, b) for a, b in zip(begin, end, strict=True) if b > a]
    rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)
    reported: np.ndarray = rows[sends["outcome"][rows] == Outcome.OK]
    return reported


def _provocation(history: CellHistory) -> Provocation:
    assert history.cell.provocation is not None, history.cell
    return PROVOCATIONS[history.cell.provocation.error]


def _own_sends(history: CellHistory) -> Iterable[tuple[PartitionIndex, np.ndarray]]:
    """Per partition: its index, and the rows of `sends` that are not the sentinel's."""
    for partition in history.partitions.values():
        index = PartitionIndex.of(partition)
        yield index, np.flatnonzero(index.sends["client"] != SENTINEL_CLIENT)


def _bad(history: CellHistory, index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """bool[rows]: is the record itself to blame?"""
    assert history.cell.provocation is not None, history.cell
    if not _provocation(history).of_record:
        return np.zeros(len(rows), dtype=bool)
    return is_bad(index.sends["sequence"][rows], every=history.cell.provocation.every)


def _of_cell(found: list[tuple[PartitionIndex, np.ndarray]], judged: int, incomplete: str | None) -> KernelResult:
    witnesses = [_witnesses(index, rows) for index, rows in found if len(rows)]
    together = np.concatenate(witnesses)[:WITNESSES_MAX] if witnesses else no_witnesses()
    return KernelResult(together, sum(len(rows) for _, rows in found), judged, incomplete=incomplete)


def _witnesses(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """One per row of `sends`, the first WITNESSES_MAX."""
    rows = rows[:WITNESSES_MAX]
    if not len(rows):
        return no_witnesses()
    columns = {
        "partition": index.partition,
        "client": index.sends["client"][rows],
        "sequence": index.sends["sequence"][rows],
        "log_offset": index.sends["log_offset"][rows],
        **index.sent(rows),
    }
    return make_witnesses(len(rows), columns)
