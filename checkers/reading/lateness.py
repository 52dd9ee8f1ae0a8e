"""This kernel checks that consumers receive what was produced within the bound that the trial states."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from prozess.checkers.agreement import Agreement
from prozess.checkers.alignment import rows_where
from prozess.checkers.groups.processing import group_start
from prozess.checkers.lookup import distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import slots_of
from prozess.checkers.reading.receipts import NEVER, Receipts
from prozess.checkers.reading.windows import DeliveryState, SentRecords, windows_of
from prozess.harness.columns import of_clients, once, taken
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    LateCase,
    join_witnesses,
    make_witnesses,
    merge_windows,
    no_witnesses,
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
    in_time, together = _in_time(history, Agreement.of(history)) if len(history.partitions) > 1 else ((), [])
    alone = [late_of(history, one) for one in history.partitions.values() if one.partition not in in_time]
    return join_late([*alone, *together])


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
    windows, latencies = windows_of(sent, bound)
    return KernelResult(
        _witnesses(index, sent, mine, found[:WITNESSES_MAX], bound),
        count=len(found),
        judged=int(np.count_nonzero(sent.owed)) - int(np.count_nonzero(owed & (state == DeliveryState.OPEN))),
        incomplete=index.incomplete() or _clocks_differ(index, partition.client_clock, mine),
        windows=windows,
        latencies=latencies,
    )


def _in_time(history: CellHistory, all_: Agreement) -> tuple[Collection[int], list[KernelResult]]:
    """Returns the partitions on which everybody agrees, and all of whose records came in time by one clock; and what `late`
    finds in all of these together, as `late_of` does in each."""
    bound, recipients = history.cell.delivery_bound, _recipients(history)
    owners = np.concatenate([np.empty(0, dtype=np.int64), *(recipient.clients for recipient in recipients)])
    clocks = of_clients(all_.client_clock, owners, unknown=NONE)
    if bound is None or history.cell.group is not None or not all_.agreed.any() or not len(clocks):
        return (), []  # of a group it depends on the partition which records are owed
    chosen = all_.agreed & ~np.isin(all_.partition, list(history.cell.derived)) & (clocks == clocks[0]).all()
    used = of_clients(all_.client_clock, all_.sends["client"], unknown=NONE)
    chosen[all_.send_owner[(used != clocks[0]) | (used == NONE)]] = False
    given_ns, somebody = np.full(len(used), BEFORE), np.zeros(len(chosen), dtype=bool)
    for recipient in recipients:
        mine = np.isin(all_.partition, list(recipient.partitions))
        somebody |= mine
        own = np.isin(all_.reads["client"][all_.shown], recipient.clients)
        its_ns = np.full(len(used), NEVER)
        np.minimum.at(its_ns, all_.send_of_shown[own], all_.reads["read_ns"][all_.shown[own]])
        its_ns[~mine[all_.send_owner]] = BEFORE
        given_ns = np.maximum(given_ns, its_ns)
    rows, invoked_ns = all_.rows, all_.sends["invoked_ns"]
    chosen &= somebody
    chosen[all_.send_owner[rows[given_ns[rows] - bound.latency_ns > invoked_ns[rows]]]] = False
    rows = rows[chosen[all_.send_owner[rows]] & (invoked_ns[rows] >= 0)]
    sent = SentRecords.in_time(rows, invoked_ns[rows], given_ns[rows])
    windows, latencies = windows_of(sent, bound)
    nothing = KernelResult(no_witnesses(), 0, judged=len(rows), windows=windows, latencies=latencies)
    return frozenset(all_.partition[chosen].tolist()), [nothing] if chosen.any() else []


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
