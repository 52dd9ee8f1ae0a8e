"""This kernel checks that consumers receive what was produced within the bound that the trial states."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique

import numpy as np

from prozess.checkers.alignment import rows_where
from prozess.checkers.groups.processing import group_start
from prozess.checkers.lookup import Lookup, differs_from_previous, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import slots_of
from prozess.checkers.reading.receipts import NEVER, Receipts
from prozess.harness.columns import of_clients, once, taken
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    LateCase,
    bin_latencies,
    join_witnesses,
    make_windows,
    make_witnesses,
    merge_windows,
    no_windows,
    no_witnesses,
    percentiles,
)
from prozess.harness.schema import MISSING, NONE

# When clients stood still, by the gaps between their heartbeats. What is late because its observer stood still proves
# nothing.


STILL_NS = 500_000_000
"""A process that is silent for longer than five heartbeats (100 ms each) stood still."""
BEFORE = -(2**62)
"""A time before every time of a history. It is half of what an int64 holds, so differences fit in as well."""
Columns = Mapping[str, np.ndarray]


class Stillness:
    """The times in which some client stood still. Stretches that overlap count once."""

    def __init__(self, begin_ns: np.ndarray, end_ns: np.ndarray) -> None:
        assert len(begin_ns) == len(end_ns), "one end for each begin"
        order = np.argsort(begin_ns, kind="stable")
        # Keyed by begin, with the greatest end so far: a span begins anew where it begins behind all ends before it.
        begin, reach = begin_ns[order], np.maximum.accumulate(end_ns[order])
        # Example: 0–5, 2–9, 12–14 by begin. The greatest ends so far are 5 9 14: 2 is not behind 5, and 12 is behind 9. The
        # spans are 0–9 and 12–14, and the sums of stillness 0 9 11: until 13 it is 9 + 1.
        first = np.flatnonzero(np.concatenate([[True], begin[1:] > reach[:-1]])[: len(begin)])
        self.begin_ns = begin[first]
        self.end_ns = reach[np.append(first[1:], len(reach)) - 1] if len(reach) else reach
        # How much time was spent still before each span: two look-ups then say how much of any interval was.
        # Example: spans 0–9 and 12–14. From 5 to 13 it is 10 - 5: of 10 in all until 13, 5 were before 5.
        self._before = np.concatenate([[0], np.cumsum(self.end_ns - self.begin_ns)])

    def __or__(self, other: "Stillness") -> "Stillness":
        return Stillness(np.concatenate([self.begin_ns, other.begin_ns]), np.concatenate([self.end_ns, other.end_ns]))

    def within(self, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
        """Returns int64[n]: how much of each [begin, end] the clients stood still, in ns."""
        return np.asarray(self._until(np.maximum(begin_ns, end_ns)) - self._until(begin_ns))

    def _until(self, time_ns: np.ndarray) -> np.ndarray:
        if not len(self.begin_ns):
            return np.zeros(len(time_ns), dtype=np.int64)
        last = np.searchsorted(self.begin_ns, time_ns, side="right") - 1
        at = np.maximum(last, 0)
        assert len(self._before) == len(self.begin_ns) + 1, "a sum before each span, and one of all"
        # How much of the last span that began has passed: all of it, if it has ended.
        inside = np.clip(time_ns - self.begin_ns[at], 0, self.end_ns[at] - self.begin_ns[at])
        return np.where(last >= 0, self._before[at] + inside, 0)


class Recipient:
    """Somebody who should receive the records of some partitions: a reader and the clients that took its place, or all
    members of a group, of whom any one will do."""

    def __init__(
        self, clients: Columns, heartbeats: Columns, planned: Iterable[int], partitions: Iterable[int]
    ) -> None:
        """`clients` and `heartbeats` are those tables. `planned` are the planned clients whose place this is."""
        rows = np.flatnonzero(np.isin(clients["planned"], list(planned)) & (clients["started_ns"] != MISSING))
        self.clients = clients["client"][rows].astype(np.int64)
        """The ids of all clients that had this place."""
        self.partitions = frozenset(partitions)
        beats = [_beats(heartbeats, int(client)) for client in self.clients]
        started, ended = clients["started_ns"][rows], clients["ended_ns"][rows]
        last = np.array([b[-1] if len(b) else s for b, s in zip(beats, started, strict=True)], dtype=np.int64)
        ended = np.where(ended != MISSING, ended, last)
        self.end_ns = int(ended.max(initial=BEFORE))
        """When the last of them ended, or was last known to live. BEFORE: none of them ever lived."""
        orderly = (clients["complete"][rows] == 1) & (clients["exit_code"][rows] == 0)
        self.orderly = bool(orderly[np.argmax(ended)]) if len(rows) else False
        """Whether the client that ended last ended by itself, when it was asked to."""
        self.still = stillness(beats) | _nobody(started, ended)


def stillness_of(heartbeats: Columns, client: int) -> Stillness:
    """Returns when one client stood still while it lived."""
    return stillness([_beats(heartbeats, client)])


def stillness(beats: Sequence[np.ndarray]) -> Stillness:
    """Returns when at least one of several clients stood still, by the heartbeats of each, ascending."""
    gaps = [np.flatnonzero(np.diff(times) > STILL_NS) for times in beats]
    none = np.empty(0, dtype=np.int64)
    begin = np.concatenate([none, *(times[gap] for times, gap in zip(beats, gaps, strict=True))])
    end = np.concatenate([none, *(times[gap + 1] for times, gap in zip(beats, gaps, strict=True))])
    return Stillness(begin, end)


def _nobody(started_ns: np.ndarray, ended_ns: np.ndarray) -> Stillness:
    """Returns the times in which no client lived: before the first of these lives, and between them."""
    order = np.argsort(started_ns, kind="stable")
    began, reach = started_ns[order], np.maximum.accumulate(ended_ns[order])
    # Lives by begin: nobody lived from the greatest end so far to the next begin.
    assert len(started_ns) == len(ended_ns), "a life has a begin and an end"
    since = np.concatenate([[BEFORE], reach[:-1]])[: len(began)]
    gone = began > since
    return Stillness(since[gone].astype(np.int64), began[gone].astype(np.int64))


def _beats(heartbeats: Columns, client: int) -> np.ndarray:
    return np.sort(heartbeats["time_ns"][heartbeats["client"] == client])


# Do consumers receive in time what was produced? The kernel counts records and latencies in each window of the time of
# sending, and finds the records that broke the bound. It does not look at faults: the guarantee table asks the envelope
# whether one excuses a record.


@unique
class DeliveryState(IntEnum):
    """Describes what became of a record at one recipient. With several recipients the greatest state counts."""

    IN_TIME = 0
    OPEN = 1
    """The record was not received, and the recipient ended in order before the bound had passed."""
    UNMEASURED = 2
    LATE = 3
    MISSING = 4


@dataclass(frozen=True, slots=True)
class SentRecords:
    """The records that producers were given to send since the trial's clock started. All arrays have the same length."""

    rows: np.ndarray
    """intp: the rows of `sends`."""
    invoked_ns: np.ndarray
    owed: np.ndarray
    """bool: was the record acknowledged, so that every recipient should receive it?"""
    given_ns: np.ndarray
    """When the last recipient first received it. NEVER: one of them never did."""
    state: np.ndarray
    """int8: the DeliveryState of each record."""
    beyond: np.ndarray
    """intp[k]: at which of these indices is a record that a recipient did not receive within the bound, ascending. No other
    has a state but IN_TIME."""
    reader: np.ndarray
    """intp[k]: of these, the row of `reads` by which the recipient that the state belongs to received it. Below 0: it never
    did, and is recipient number -1 - `reader`."""


def late(history: CellHistory) -> KernelResult:
    """Every acknowledged record reaches each of its consumers within the bound that the trial states.

    Source: the trial. A record is consumed when every tailing reader of its partition received it (records of
    transactions: every reader at read_committed); in a group, when one of its members received it. The latency goes from
    before produce() was called to the first poll that returned the record, of the last consumer. It includes what the
    producer waits for, such as retries and batching. Counts records that were late or never received. Judged are
    acknowledged records that were sent since the trial's clock started, except what cleaning may have removed, what a
    group did not owe, and what was sent within the bound before its readers ended. Witness: the record; `other_ns` is
    its deadline; `reader` received it at `seen_ns`, or never; `case`: LateCase. `windows` has counts for each window,
    and percentiles of latencies to 0.8 % (`prozess.harness.interfaces.witnesses`). O(n); loops run over partitions,
    readers and producers.

    Example: the bound is 5 s. A record was sent at 10 s, one reader got it at 12 s, the other one at 16 s: it was late by
    the second reader. If that reader stood still from 11 s to 14 s, only 3 s of its wait count: UNMEASURED.
    """
    assert history.cell.delivery_bound is not None, history.cell
    return join_late([late_of(history, partition) for partition in history.partitions.values()])


def late_of(history: CellHistory, partition: PartitionHistory, among: np.ndarray | None = None) -> KernelResult:
    """Returns what `late` finds in one partition of a cell. `among` (bool[sends]) restricts it to some records, if
    everything about those is there."""
    bound, index = history.cell.delivery_bound, PartitionIndex.of(partition)
    assert among is None or len(among) == len(index.sends["client"]), "`among` has an entry for each send"
    mine = [recipient for recipient in _recipients(history) if index.partition in recipient.partitions]
    if bound is None or not mine or index.partition in history.cell.derived:
        # A late partition, which readers leave out, or one that producers do not write.
        return KernelResult(no_witnesses(), count=0, judged=0)
    sent = _sent(history, index, mine, bound, among)
    owed, state = sent.owed[sent.beyond], sent.state[sent.beyond]
    found = np.flatnonzero(owed & (state >= DeliveryState.UNMEASURED))
    windows, latencies = _windows(sent, bound)
    return KernelResult(
        _witnesses(index, sent, mine, found[:WITNESSES_MAX], bound),
        count=len(found),
        judged=int(np.count_nonzero(sent.owed)) - int(np.count_nonzero(owed & (state == DeliveryState.OPEN))),
        incomplete=index.incomplete() or _clocks_differ(index, partition.client_clock, mine),
        windows=windows,
        latencies=latencies,
    )


def join_late(parts: Sequence[KernelResult]) -> KernelResult:
    """Returns what `late` finds in a cell, from what it found in parts of it, in their order."""
    if len(parts) == 1:
        return parts[0]
    windows, latencies = merge_windows([part.windows for part in parts], [part.latencies for part in parts])
    return KernelResult(
        join_witnesses(part.witnesses for part in parts)[:WITNESSES_MAX],
        count=sum(part.count for part in parts),
        judged=sum(part.judged for part in parts),
        incomplete="; ".join(dict.fromkeys(part.incomplete for part in parts if part.incomplete)) or None,
        windows=windows,
        latencies=latencies,
    )


def _recipients(history: CellHistory) -> list[Recipient]:
    """Returns who should receive the cell's records, which is the same for each of its partitions."""
    return once(history.tables["clients"], Recipient, lambda: _find_recipients(history))


def _find_recipients(history: CellHistory) -> list[Recipient]:
    """Returns every tailing reader, or the group."""
    clients, hearts, cell = history.tables["clients"], history.tables["heartbeats"], history.cell
    if cell.group is not None:
        members = [c.client for c in history.clients if c.role == "member" and c.cell == cell.cell]
        return [Recipient(clients, hearts, members, cell.written)]
    committed = "transactions" in cell.traits
    return [
        Recipient(clients, hearts, [c.client], c.partitions)
        for c in history.clients
        if c.role == "reader" and (c.isolation_level == "read_committed" or not committed)
    ]


def _clocks_differ(index: PartitionIndex, clocks: np.ndarray, recipients: Sequence[Recipient]) -> str | None:
    """Returns why the times of producers and of consumers cannot be compared. None: they can."""
    clients = np.concatenate([index.senders, *(recipient.clients for recipient in recipients)])
    used = of_clients(clocks, clients, unknown=NONE)
    if len(used) and (used[0] == NONE or (used != used[0]).any()):
        return f"the producers and the consumers of partition {index.partition} used different clocks"
    return None


# One partition.


def _sent(
    history: CellHistory,
    index: PartitionIndex,
    recipients: Sequence[Recipient],
    bound: DeliveryBound,
    among: np.ndarray | None,
) -> SentRecords:
    sends = index.sends
    chosen = sends["invoked_ns"] >= 0
    chosen[: index.sentinel_sends] = False
    rows = np.flatnonzero(chosen if among is None else chosen & among)
    invoked_ns, owed = taken(sends["invoked_ns"], rows), taken(index.acknowledged, rows).copy()
    if history.cell.group is not None:
        offset = sends["log_offset"][rows]
        owed &= (offset == NONE) | (offset >= group_start(history, index.partition))
    receipts = [Receipts(index, recipient.clients) for recipient in recipients]
    given_ns = _last_given(index, receipts, rows)
    # Nearly all were given in time to the last recipient, and so to all. Only of the others each recipient is asked.
    # The bound is subtracted, because NEVER is the greatest number and nothing may be added to it.
    beyond = rows_where(len(rows), lambda some: given_ns[some] - bound.latency_ns > invoked_ns[some])
    state, reader = np.zeros(len(rows), dtype=np.int8), np.full(len(beyond), -1, dtype=np.intp)
    worst, its_ns = state[beyond], np.full(len(beyond), BEFORE)
    for number, (recipient, receipt) in enumerate(zip(recipients, receipts, strict=True) if len(beyond) else ()):
        late_rows = rows[beyond]
        first, seen_ns = receipt.first(late_rows), receipt.given_ns(late_rows)
        became = _became(history, index, late_rows, seen_ns, recipient, bound)
        # Example: recipients 0 and 1 never received it: -1 and -2. The witness finds the recipient by it.
        first[first < 0] = -1 - number
        # Over all recipients the worst state counts, and of equal states the latest read.
        worse = (became > worst) | ((became == worst) & (seen_ns > its_ns))
        reader[worse], its_ns[worse], worst[worse] = first[worse], seen_ns[worse], became[worse]
    state[beyond] = worst
    assert len(worst) == len(reader) == len(beyond), "a state for each record that is beyond the bound"
    gone = beyond[owed[beyond] & (given_ns[beyond] == NEVER)]
    owed[gone[_cleaned(index, rows[gone])]] = False
    assert len(rows) == len(owed) == len(given_ns) == len(state), "one entry for each send"
    return SentRecords(rows, invoked_ns, owed, given_ns, state, beyond, reader)


def _last_given(index: PartitionIndex, receipts: Sequence[Receipts], rows: np.ndarray) -> np.ndarray:
    """Returns int64[rows]: when the last recipient first received each of these rows of `sends`, which strictly ascend.
    NEVER: one of them never did."""
    given_at = receipts[0].given_at
    for receipt in receipts[1:]:
        given_at = np.maximum(given_at, receipt.given_at)
    # Odd are records that stand elsewhere than they were acknowledged, or that a recipient got elsewhere.
    odd = ~taken(index.send_confirmed, rows)
    for receipt in receipts:
        odd[slots_of(receipt.others, rows)] = True
    # Position -1 takes the last record's time: such a send is not confirmed, and so it is odd.
    given_ns = given_at[taken(index.send_position, rows)] if len(given_at) else np.full(len(rows), NEVER)
    some = np.flatnonzero(odd)  # of these, what was taken is of another record
    if len(some):
        given_ns[some] = np.stack([receipt.given_ns(rows[some]) for receipt in receipts]).max(axis=0)
    return np.asarray(given_ns)


def _became(
    history: CellHistory,
    index: PartitionIndex,
    rows: np.ndarray,
    seen_ns: np.ndarray,
    recipient: Recipient,
    bound: DeliveryBound,
) -> np.ndarray:
    """Returns int8[rows]: the DeliveryState of each record at one recipient. A client that stood still for most of the
    wait has measured nothing. Only the time counts in which both producer and recipient were running."""
    sends = index.sends
    invoked_ns, producer = taken(sends["invoked_ns"], rows), taken(sends["client"], rows)
    state = np.zeros(len(rows), dtype=np.int8)
    beyond = np.flatnonzero(seen_ns - bound.latency_ns > invoked_ns)
    for client in distinct(producer[beyond]).tolist():
        still = recipient.still | stillness_of(history.tables["heartbeats"], client)
        mine = beyond[producer[beyond] == client]
        # The later of these lines wins: missing or late; unless a client stood still for most of the wait; or the reader
        # ended.
        begin_ns, missing = invoked_ns[mine], seen_ns[mine] == NEVER
        state[mine] = np.where(missing, DeliveryState.MISSING, DeliveryState.LATE)
        state[mine[_awake_ns(still, begin_ns, np.minimum(seen_ns[mine], recipient.end_ns)) <= bound.latency_ns]] = (
            DeliveryState.UNMEASURED
        )
        cut = missing & (begin_ns <= recipient.end_ns) & (begin_ns > recipient.end_ns - bound.latency_ns)
        if recipient.orderly:
            state[mine[cut]] = DeliveryState.OPEN
    return state


def _awake_ns(still: Stillness, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    return np.asarray(end_ns - begin_ns - still.within(begin_ns, end_ns))


def _cleaned(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """Returns bool[k]: may retention or compaction have removed these rows of `sends` before anybody could receive them?"""
    sends = index.sends
    return index.may_be_cleaned(
        record_key=sends["key"][rows], offset=sends["log_offset"][rows], tombstone=sends["size"][rows] == NONE
    )


def _witnesses(
    index: PartitionIndex, sent: SentRecords, recipients: Sequence[Recipient], chosen: np.ndarray, bound: DeliveryBound
) -> np.ndarray:
    """Returns one witness for each of these of the records that are `beyond`, which are late or missing."""
    if not len(chosen):
        return no_witnesses()
    slot = sent.beyond[chosen]
    rows, state, given_ns, reader = sent.rows[slot], sent.state[slot], sent.given_ns[slot], sent.reader[chosen]
    last = np.array([slot.clients[-1] if len(slot.clients) else NONE for slot in recipients], dtype=np.int64)
    never = reader < 0
    reader_of = np.empty(len(reader), dtype=np.int64)
    reader_of[never], reader_of[~never] = last[-1 - reader[never]], index.reads["client"][reader[~never]]
    assert len(rows) == len(state) == len(reader_of), "a witness for each record"
    case = np.full(len(rows), LateCase.LATE, dtype=np.int32)
    case[state == DeliveryState.UNMEASURED] = LateCase.STOOD_STILL
    case[state == DeliveryState.MISSING] = LateCase.UNAUDITED if index.incomplete() else LateCase.MISSING
    columns = {
        "partition": index.partition,
        **index.records_sent(rows),
        "reader": reader_of,
        "seen_ns": np.where(given_ns == NEVER, MISSING, given_ns),
        "other_ns": sent.invoked_ns[slot] + bound.latency_ns,
        "case": case,
        **index.sent(rows),
    }
    return make_witnesses(len(rows), columns)


# Windows.


_FACTS = 5
"""How many facts about a record decide where it is counted: owed, delivered, late, open, unmeasured."""
_ORDINARY = 0b11
"""The facts about a record that was owed, and delivered in time."""


def _kinds_counted() -> dict[str, np.ndarray]:
    """Returns the counts of a window, and for each of the 32 kinds of a record whether it is in that count."""
    owed, delivered, late, is_open, unmeasured = (np.arange(1 << _FACTS) >> slot & 1 == 1 for slot in range(_FACTS))
    return {
        "sent": owed | ~owed,
        "acknowledged": owed,
        "delivered": owed & delivered,
        "late": owed & delivered & late,
        "missing": owed & ~delivered & ~is_open,
        "open": owed & is_open,
        "unmeasured": owed & unmeasured,
        "unacknowledged": ~owed & delivered,
    }


_COUNTED = _kinds_counted()
_COUNTS = np.stack(list(_COUNTED.values()), axis=1).astype(np.int64)


def _windows(sent: SentRecords, bound: DeliveryBound) -> tuple[np.ndarray, np.ndarray]:
    """Returns counts for each window, and latencies in bins. A window in which nothing was sent has no row."""
    if not len(sent.rows):
        return no_windows(), bin_latencies(sent.rows, sent.rows, sent.rows)
    # Stretches of records that were sent in the same window.
    invoked_ns, length = sent.invoked_ns, bound.window_ns
    changes = rows_where(
        len(invoked_ns) - 1, lambda rows: np.diff(invoked_ns[rows.start : rows.stop + 1] // length) != 0
    )
    # Sends of one client come in the order of time: a window is a few stretches, not as many as it has records.
    starts = np.append(0, changes + 1)
    number = invoked_ns[starts] // length
    numbers = distinct(number)
    # Example: sent at 1 2 7 8 3 s, and windows of 5 s: stretches begin at 0, 2, 4, in the windows 0, 1, 0, of length 2, 2, 1.
    window, lengths = Lookup(numbers).find(number), np.diff(starts, append=len(invoked_ns))
    # Records of which the same is true are counted at once: nearly all were acknowledged, and received in time.
    kinds = 1 << _FACTS
    of_kind = np.zeros((len(numbers), kinds), dtype=np.int64)
    # First count all records as ordinary, and then move the few that are not.
    # `add.at` adds again where a window occurs twice, which an assignment would not.
    np.add.at(of_kind[:, _ORDINARY], window, lengths)
    odd = ~sent.owed
    odd[sent.beyond] = True
    odd_rows = np.flatnonzero(odd)
    if len(odd_rows):
        its_window = window[np.searchsorted(starts, odd_rows, side="right") - 1]
        # Example: a record of window 0 was late. One less is ordinary there, and one more is owed, delivered and late: 0b111.
        np.subtract.at(of_kind[:, _ORDINARY], its_window, 1)
        np.add.at(of_kind, (its_window, _kind(sent, bound, odd_rows)), 1)
    # A count is the sum over the kinds that it is about.
    counts = dict(zip(_COUNTED, (of_kind @ _COUNTS).T, strict=True))
    latency_ns, slot = sent.given_ns - invoked_ns, np.repeat(window, lengths)
    if len(odd_rows):
        # Latencies are of records that were owed and came, late ones included. Stretches are counted anew among those.
        kept = sent.owed & (sent.given_ns != NEVER)
        latency_ns, slot = latency_ns[kept], slot[kept]
        assert len(latency_ns) == len(slot), "a window for each latency"
        starts = np.flatnonzero(differs_from_previous(slot))
        window = slot[starts]
    binned = bin_latencies(numbers, slot, latency_ns)
    max_ns = np.full(len(numbers), MISSING)
    if len(starts):
        np.maximum.at(max_ns, window, np.maximum.reduceat(latency_ns, starts))
    latencies = percentiles(numbers, binned, max_ns)
    assert all(len(count) == len(numbers) for count in counts.values()), "a count for each window"
    return make_windows({"number": numbers, **counts, **latencies, "max_ns": max_ns}), binned


def _kind(sent: SentRecords, bound: DeliveryBound, rows: np.ndarray) -> np.ndarray:
    """Returns int64[k]: the facts about each of these records, as the bits of a number."""
    given_ns, state = sent.given_ns[rows], sent.state[rows]
    facts = (
        sent.owed[rows],
        given_ns != NEVER,
        given_ns - sent.invoked_ns[rows] > bound.latency_ns,
        state == DeliveryState.OPEN,
        state == DeliveryState.UNMEASURED,
    )
    assert len(facts) == _FACTS, facts
    return np.asarray(sum(fact.astype(np.int64) << slot for slot, fact in enumerate(facts)))
