"""This kernel checks that consumers receive what was produced within the bound that the trial states."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from prozess.checkers.groups.processing import group_start
from prozess.checkers.lookup import Lookup, differs_from_previous, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.interfaces import CellHistory, KernelResult, PartitionHistory
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
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Outcome, of_clients, taken

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
        order = np.argsort(begin_ns, kind="stable")
        begin, reach = begin_ns[order], np.maximum.accumulate(end_ns[order])
        first = np.flatnonzero(np.concatenate([[True], begin[1:] > reach[:-1]])[: len(begin)])
        self.begin_ns = begin[first]
        self.end_ns = reach[np.append(first[1:], len(reach)) - 1] if len(reach) else reach
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
        """Whether the client that ended last ended by itself, when it was told to."""
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
    since = np.concatenate([[BEFORE], reach[:-1]])[: len(began)]
    gone = began > since
    return Stillness(since[gone].astype(np.int64), began[gone].astype(np.int64))


def _beats(heartbeats: Columns, client: int) -> np.ndarray:
    return np.sort(heartbeats["time_ns"][heartbeats["client"] == client])


# Do consumers receive in time what was produced? The kernel counts records and latencies in each window of the time of
# sending, and finds the records that broke the bound. It does not look at faults: the guarantee table asks the envelope
# whether one excuses a record.


NEVER = np.iinfo(np.int64).max


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
    reader: np.ndarray
    """intp: the row of `reads` by which the recipient that the state belongs to received it. Below 0: it never did, and is
    recipient number -1 - `reader`."""


def late(history: CellHistory) -> KernelResult:
    """Every acknowledged record reaches each of its consumers within the bound that the trial states.

    Source: the trial. A record is consumed when every tailing reader of its partition received it (records of
    transactions: every reader at read_committed); in a group, when one of its members received it. The latency goes from
    before produce() was called to the first poll that returned the record, of the last consumer. So it includes what the
    producer waits for, such as retries and batching. Counts records that were late or never received. Judged are
    acknowledged records that were sent since the trial's clock started, except what cleaning may have removed, what a
    group did not owe, and what was sent within the bound before its readers ended. Witness: the record; `other_ns` is
    its deadline; `reader` received it at `seen_ns`, or never; `case`: LateCase. `windows` has counts for each window,
    and percentiles of latencies to 0.8 % (`prozess.harness.interfaces.witnesses`). O(n); loops run over partitions,
    readers and producers.
    """
    assert history.cell.delivery_bound is not None, history.cell
    return join_late([late_of(history, history.partitions[n]) for n in history.cell.written if n in history.partitions])


def late_of(history: CellHistory, partition: PartitionHistory, among: np.ndarray | None = None) -> KernelResult:
    """Returns what `late` finds in one partition of a cell. `among` (bool[sends]) restricts it to some records, if
    everything about those is there."""
    bound, index = history.cell.delivery_bound, PartitionIndex.of(partition)
    mine = [place for place in _places(history) if index.partition in place.partitions]
    if bound is None or not mine or index.partition not in history.cell.written:
        # A late partition, which readers leave out, or one that producers do not write.
        return KernelResult(no_witnesses(), count=0, judged=0)
    sent = _sent(history, index, mine, bound, among)
    beyond = np.flatnonzero(sent.owed & (sent.state >= DeliveryState.UNMEASURED))
    windows, latencies = _windows(sent, bound)
    return KernelResult(
        _witnesses(index, sent, mine, beyond[:WITNESSES_MAX], bound),
        count=len(beyond),
        judged=int(np.count_nonzero(sent.owed & (sent.state != DeliveryState.OPEN))),
        incomplete=index.incomplete() or _clocks_differ(index, partition.client_clock, mine),
        windows=windows,
        latencies=latencies,
    )


def join_late(parts: Sequence[KernelResult]) -> KernelResult:
    """Returns what `late` finds in a cell, from what it found in parts of it, in their order."""
    windows, latencies = merge_windows([part.windows for part in parts], [part.latencies for part in parts])
    return KernelResult(
        join_witnesses(part.witnesses for part in parts)[:WITNESSES_MAX],
        count=sum(part.count for part in parts),
        judged=sum(part.judged for part in parts),
        incomplete="; ".join(dict.fromkeys(part.incomplete for part in parts if part.incomplete)) or None,
        windows=windows,
        latencies=latencies,
    )


def _places(history: CellHistory) -> list[Recipient]:
    """Returns who should receive the cell's records: every tailing reader, or the group."""
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


def _clocks_differ(index: PartitionIndex, clocks: np.ndarray, places: Sequence[Recipient]) -> str | None:
    """Returns why the times of producers and of consumers cannot be compared. None: they can."""
    whose = np.concatenate([index.senders, *(place.clients for place in places)])
    told = of_clients(clocks, whose, unknown=NONE)
    if len(told) and (told[0] == NONE or (told != told[0]).any()):
        return f"the producers and the consumers of partition {index.partition} used different clocks"
    return None


# One partition.


def _sent(
    history: CellHistory,
    index: PartitionIndex,
    places: Sequence[Recipient],
    bound: DeliveryBound,
    among: np.ndarray | None,
) -> SentRecords:
    sends = index.sends
    chosen = (sends["client"] != SENTINEL_CLIENT) & (sends["invoked_ns"] >= 0)
    rows = np.flatnonzero(chosen if among is None else chosen & among)
    invoked_ns, owed = taken(sends["invoked_ns"], rows), taken(sends["outcome"], rows) == Outcome.OK.value
    if history.cell.group is not None:
        offset = sends["log_offset"][rows]
        owed &= (offset == NONE) | (offset >= group_start(history, index.partition))
    for number, place in enumerate(places):
        first = taken(_first_given(index, place), rows)
        there = first >= 0
        if there.all():
            seen_ns = index.reads["read_ns"][first]
        else:
            seen_ns = np.full(len(rows), NEVER)
            seen_ns[there] = index.reads["read_ns"][first[there]]
        became = _became(history, index, rows, seen_ns, place, bound)
        first[first < 0] = -1 - number
        if not number:
            state, reader, given_ns, its_ns = became, first, seen_ns, seen_ns
            continue
        given_ns = np.maximum(given_ns, seen_ns)
        worse = (became > state) | ((became == state) & (seen_ns > its_ns))
        reader[worse], its_ns[worse], state[worse] = first[worse], seen_ns[worse], became[worse]
    gone = np.flatnonzero(owed & (given_ns == NEVER))
    owed[gone[_cleaned(index, rows[gone])]] = False
    return SentRecords(rows, invoked_ns, owed, given_ns, state, reader)


def _first_given(index: PartitionIndex, place: Recipient) -> np.ndarray:
    """Returns intp[sends]: the row of `reads` by which a recipient first received each record, -1 if it never did."""
    runs = [np.arange(a, b) for a, b, client in index.reader_runs if (place.clients == client).any()]
    rows = np.concatenate([np.empty(0, dtype=np.intp), *runs])
    send = index.sends_of_reads(rows)
    if len(runs) > 1:
        order = np.argsort(index.reads["read_ns"][rows], kind="stable")
        rows, send = rows[order], send[order]
    given = send >= 0
    if not given.all():
        rows, send = rows[given], send[given]
    rows, send = rows[::-1], send[::-1]
    first = np.full(len(index.sends["client"]), -1, dtype=np.intp)
    first[send] = rows  # of several numpy keeps the last, which is the earliest
    return first


def _became(
    history: CellHistory,
    index: PartitionIndex,
    rows: np.ndarray,
    seen_ns: np.ndarray,
    place: Recipient,
    bound: DeliveryBound,
) -> np.ndarray:
    """Returns int8[rows]: the DeliveryState of each record at one recipient. A client that stood still for most of the
    wait has measured nothing. So only that time counts in which both producer and recipient were running."""
    sends = index.sends
    invoked_ns, producer = taken(sends["invoked_ns"], rows), taken(sends["client"], rows)
    state = np.zeros(len(rows), dtype=np.int8)
    beyond = np.flatnonzero(seen_ns - bound.latency_ns > invoked_ns)
    for client in distinct(producer[beyond]).tolist():
        still = place.still | stillness_of(history.tables["heartbeats"], client)
        mine = beyond[producer[beyond] == client]
        begin_ns, missing = invoked_ns[mine], seen_ns[mine] == NEVER
        state[mine] = np.where(missing, DeliveryState.MISSING, DeliveryState.LATE)
        state[mine[_awake_ns(still, begin_ns, np.minimum(seen_ns[mine], place.end_ns)) <= bound.latency_ns]] = (
            DeliveryState.UNMEASURED
        )
        cut = missing & (begin_ns <= place.end_ns) & (begin_ns > place.end_ns - bound.latency_ns)
        if place.orderly:
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
    index: PartitionIndex, sent: SentRecords, places: Sequence[Recipient], chosen: np.ndarray, bound: DeliveryBound
) -> np.ndarray:
    """Returns one witness for each of these records, which are late or missing."""
    rows, state, given_ns, reader = sent.rows[chosen], sent.state[chosen], sent.given_ns[chosen], sent.reader[chosen]
    last = np.array([place.clients[-1] if len(place.clients) else NONE for place in places], dtype=np.int64)
    never = reader < 0
    who = np.empty(len(reader), dtype=np.int64)
    who[never], who[~never] = last[-1 - reader[never]], index.reads["client"][reader[~never]]
    case = np.full(len(rows), LateCase.LATE, dtype=np.int32)
    case[state == DeliveryState.UNMEASURED] = LateCase.STOOD_STILL
    case[state == DeliveryState.MISSING] = LateCase.UNAUDITED if index.incomplete() else LateCase.MISSING
    columns = {
        "partition": index.partition,
        **index.records_sent(rows),
        "reader": who,
        "seen_ns": np.where(given_ns == NEVER, MISSING, given_ns),
        "other_ns": sent.invoked_ns[chosen] + bound.latency_ns,
        "case": case,
        **index.sent(rows),
    }
    return make_witnesses(len(rows), columns)


# Windows.


def _windows(sent: SentRecords, bound: DeliveryBound) -> tuple[np.ndarray, np.ndarray]:
    """Returns counts for each window, and latencies in bins. A window in which nothing was sent has no row."""
    if not len(sent.rows):
        return no_windows(), bin_latencies(sent.rows, sent.rows, sent.rows)
    latency_ns = sent.given_ns - sent.invoked_ns
    number = sent.invoked_ns // bound.window_ns
    numbers = distinct(number[differs_from_previous(number)])
    window = Lookup(numbers).find(number)
    facts = (
        sent.owed,
        sent.given_ns != NEVER,
        latency_ns > bound.latency_ns,
        sent.state == DeliveryState.OPEN,
        sent.state == DeliveryState.UNMEASURED,
    )
    # Records of which the same is true are counted at once.
    kinds = 1 << len(facts)
    kind = sum(fact.view(np.uint8) << place for place, fact in enumerate(facts))
    of_kind = np.bincount(window * kinds + kind, minlength=len(numbers) * kinds).reshape(-1, kinds)
    owed, delivered, late, is_open, unmeasured = (np.arange(kinds) >> place & 1 == 1 for place in range(len(facts)))
    counted = {
        "sent": np.ones(kinds, dtype=bool),
        "acknowledged": owed,
        "delivered": owed & delivered,
        "late": owed & delivered & late,
        "missing": owed & ~delivered & ~is_open,
        "open": owed & is_open,
        "unmeasured": owed & unmeasured,
        "unacknowledged": ~owed & delivered,
    }
    counts = {name: of_kind[:, chosen].sum(axis=1) for name, chosen in counted.items()}
    rows = np.flatnonzero(facts[0] & facts[1])
    window, latency_ns = taken(window, rows), taken(latency_ns, rows)
    binned = bin_latencies(numbers, window, latency_ns)
    max_ns = np.full(len(numbers), MISSING)
    starts = np.flatnonzero(differs_from_previous(window))
    if len(starts):
        np.maximum.at(max_ns, window[starts], np.maximum.reduceat(latency_ns, starts))
    latencies = percentiles(numbers, binned, max_ns)
    return make_windows({"number": numbers, **counts, **latencies, "max_ns": max_ns}), binned
