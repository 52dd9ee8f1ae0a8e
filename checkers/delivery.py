"""Is what was produced consumed, in time? Kernel over a cell that states a bound, a partition at a time; stage check.

Counts and latencies per window of the time of sending, and the records that broke the bound. Faults are not looked at here:
the guarantee table asks the envelope whether one excuses a record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.awake import Place, Stillness, stillness_of
from checkers.groups import group_start
from checkers.lookup import Lookup, differs_from_previous, distinct
from harness.configuration import DeliveryBound
from harness.plan import SENTINEL_CLIENT
from harness.protocols import CellHistory, KernelResult, PartitionHistory
from harness.schema import MISSING, NONE, Outcome
from harness.windows import LateCase, bin_latencies, make_windows, merge_windows, no_windows, percentiles
from harness.witnesses import WITNESSES_MAX, make_witnesses, no_witnesses

NEVER = np.iinfo(np.int64).max


class State(IntEnum):
    """What became of a record at one place; at several, the greatest counts."""

    IN_TIME = 0
    OPEN = 1
    """Not given, and the place ended in order before the bound had passed."""
    UNMEASURED = 2
    LATE = 3
    MISSING = 4


@dataclass(frozen=True, slots=True)
class Sent:
    """Records that were handed to producers since the trial's clock started; arrays of one length."""

    rows: np.ndarray
    """intp: rows of `sends`."""
    invoked_ns: np.ndarray
    owed: np.ndarray
    """bool: acknowledged, and to be given to every place."""
    given_ns: np.ndarray
    """When the last place was first given it; NEVER = one never was."""
    state: np.ndarray
    """int8, State."""
    reader: np.ndarray
    """Client that the state is of; NONE."""


def late(history: CellHistory) -> KernelResult:
    """Every acknowledged record reaches whoever is to be given it within the bound that the trial states.

    Source: the trial. Consumed is what every tailing reader of its partition was given (of transactions those at
    read_committed); of a group, what one of its members was given. Latency: from before produce() was called, since what the
    sender waits for, retries and batching among them, is part of it, to the first poll that gave the record, of whoever was
    last. Counts records: late, and never given. Judged: acknowledged records, sent since the trial's clock started, but for
    what cleaning may have removed, what a group did not owe, and what was sent within the bound before its readers ended.
    Witness: the record; `other_ns` is its deadline, `reader` was given it at `seen_ns`, or never; `case`: LateCase.
    `windows`: counts per window, and percentiles of latencies to 0.8 % (`harness.windows`). O(n); loops run over partitions,
    readers and producers.
    """
    assert history.cell.delivery_bound is not None, history.cell
    return put_together(
        [late_of(history, history.partitions[n]) for n in history.cell.written if n in history.partitions]
    )


def late_of(history: CellHistory, partition: PartitionHistory, among: np.ndarray | None = None) -> KernelResult:
    """Of one partition of a cell. `among`: bool[sends]: of only these records, if everything about them is there."""
    bound, index = history.cell.delivery_bound, PartitionIndex.of(partition)
    mine = [place for place in _places(history) if index.partition in place.partitions]
    if bound is None or not mine or index.partition not in history.cell.written:
        # A late partition, which readers leave out, or one that producers do not write.
        return KernelResult(no_witnesses(), count=0, judged=0)
    sent = _sent(history, index, mine, bound, among)
    beyond = np.flatnonzero(sent.owed & (sent.state >= State.UNMEASURED))
    windows, latencies = _windows(sent, bound)
    return KernelResult(
        _witnesses(index, sent, beyond[:WITNESSES_MAX], bound),
        count=len(beyond),
        judged=int(np.count_nonzero(sent.owed & (sent.state != State.OPEN))),
        incomplete=index.incomplete() or _clocks_differ(index, partition.client_clock, mine),
        windows=windows,
        latencies=latencies,
    )


def put_together(parts: Sequence[KernelResult]) -> KernelResult:
    """What `late` found, of several parts of a cell, in their order."""
    windows, latencies = merge_windows([part.windows for part in parts], [part.latencies for part in parts])
    return KernelResult(
        np.concatenate([no_witnesses(), *(part.witnesses for part in parts)])[:WITNESSES_MAX],
        count=sum(part.count for part in parts),
        judged=sum(part.judged for part in parts),
        incomplete="; ".join(dict.fromkeys(part.incomplete for part in parts if part.incomplete)) or None,
        windows=windows,
        latencies=latencies,
    )


def _places(history: CellHistory) -> list[Place]:
    """Who is to be given the cell's records: every tailing reader, or the group."""
    clients, hearts, cell = history.tables["clients"], history.tables["heartbeats"], history.cell
    if cell.group is not None:
        members = [c.client for c in history.clients if c.role == "member" and c.cell == cell.cell]
        return [Place(clients, hearts, members, cell.written)]
    committed = "transactions" in cell.traits
    return [
        Place(clients, hearts, [c.client], c.partitions)
        for c in history.clients
        if c.role == "reader" and (c.isolation_level == "read_committed" or not committed)
    ]


def _clocks_differ(index: PartitionIndex, clocks: np.ndarray, places: Sequence[Place]) -> str | None:
    """Why times of those who sent and of those who were given cannot be compared; None = they can."""
    senders = index.sends["client"]
    whose = np.concatenate([senders[differs_from_previous(senders)], *(place.clients for place in places)])
    told = index.fact(clocks, whose, unknown=NONE)
    if len(told) and (told[0] == NONE or (told != told[0]).any()):
        return (
            f"those who wrote partition {index.partition} and those who were given its records were on different clocks"
        )
    return None


# --- one partition --------------------------------------------------------------------------------------------------


def _sent(
    history: CellHistory,
    index: PartitionIndex,
    places: Sequence[Place],
    bound: DeliveryBound,
    among: np.ndarray | None,
) -> Sent:
    sends = index.sends
    chosen = (sends["client"] != SENTINEL_CLIENT) & (sends["invoked_ns"] >= 0)
    rows = np.flatnonzero(chosen if among is None else chosen & among)
    invoked_ns, owed = sends["invoked_ns"][rows], sends["outcome"][rows] == Outcome.OK
    if history.cell.group is not None:
        offset = sends["log_offset"][rows]
        owed &= (offset == NONE) | (offset >= group_start(history, index.partition))
    given_ns = np.full(len(rows), MISSING)
    state, reader = np.zeros(len(rows), dtype=np.int8), np.full(len(rows), NONE, dtype=np.int64)
    its_ns = given_ns.copy()  # when the place that the state is of was given it
    for place in places:
        first = _first_given(index, place)[rows]
        there = first >= 0
        seen_ns = np.full(len(rows), NEVER)
        seen_ns[there] = index.reads["read_ns"][first[there]]
        became = _became(history, index, rows, seen_ns, place, bound)
        worse = (became > state) | ((became == state) & (seen_ns > its_ns))
        who = np.full(len(rows), int(place.clients[-1]) if len(place.clients) else NONE, dtype=np.int64)
        who[there] = index.reads["client"][first[there]]
        reader[worse], its_ns[worse], state[worse] = who[worse], seen_ns[worse], became[worse]
        given_ns = np.maximum(given_ns, seen_ns)
    gone = np.flatnonzero(owed & (given_ns == NEVER))
    owed[gone[_cleaned(index, rows[gone])]] = False
    return Sent(rows, invoked_ns, owed, given_ns, state, reader)


def _first_given(index: PartitionIndex, place: Place) -> np.ndarray:
    """intp[sends]: the row of `reads` by which a place was first given each record, -1 = never."""
    runs = [np.arange(a, b) for a, b, client in index.reader_runs if (place.clients == client).any()]
    rows = np.concatenate([np.empty(0, dtype=np.intp), *runs])
    if len(runs) > 1:
        rows = rows[np.argsort(index.reads["read_ns"][rows], kind="stable")]
    send = index.send_rows(index.read_key[rows])
    rows, send = rows[send >= 0][::-1], send[send >= 0][::-1]
    first = np.full(len(index.sends["client"]), -1, dtype=np.intp)
    first[send] = rows  # of several numpy keeps the last, which is the earliest
    return first


def _became(
    history: CellHistory,
    index: PartitionIndex,
    rows: np.ndarray,
    seen_ns: np.ndarray,
    place: Place,
    bound: DeliveryBound,
) -> np.ndarray:
    """int8[rows], State at one place. Whoever slept through most of the wait measured nothing: only the time counts in which
    both the producer and the place were awake."""
    sends = index.sends
    invoked_ns, producer = sends["invoked_ns"][rows], sends["client"][rows]
    state = np.zeros(len(rows), dtype=np.int8)
    beyond = np.flatnonzero(seen_ns - bound.latency_ns > invoked_ns)
    for client in distinct(producer[beyond]).tolist():
        still = place.still | stillness_of(history.tables["heartbeats"], client)
        mine = beyond[producer[beyond] == client]
        begin_ns, missing = invoked_ns[mine], seen_ns[mine] == NEVER
        state[mine] = np.where(missing, State.MISSING, State.LATE)
        state[mine[_awake_ns(still, begin_ns, np.minimum(seen_ns[mine], place.end_ns)) <= bound.latency_ns]] = (
            State.UNMEASURED
        )
        cut = missing & (begin_ns <= place.end_ns) & (begin_ns > place.end_ns - bound.latency_ns)
        if place.orderly:
            state[mine[cut]] = State.OPEN
    return state


def _awake_ns(still: Stillness, begin_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    return np.asarray(end_ns - begin_ns - still.within(begin_ns, end_ns))


def _cleaned(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """bool[k]: may retention or compaction have removed these rows of `sends` before anybody could be given them?"""
    sends = index.sends
    return index.may_be_cleaned(
        record_key=sends["key"][rows], offset=sends["log_offset"][rows], tombstone=sends["size"][rows] == NONE
    )


def _witnesses(index: PartitionIndex, sent: Sent, chosen: np.ndarray, bound: DeliveryBound) -> np.ndarray:
    """One for each of these records, which are late or missing."""
    rows, state, given_ns = sent.rows[chosen], sent.state[chosen], sent.given_ns[chosen]
    case = np.full(len(rows), LateCase.LATE, dtype=np.int32)
    case[state == State.UNMEASURED] = LateCase.STOOD_STILL
    case[state == State.MISSING] = LateCase.UNAUDITED if index.incomplete() else LateCase.MISSING
    columns = {
        "partition": index.partition,
        "client": index.sends["client"][rows],
        "sequence": index.sends["sequence"][rows],
        "log_offset": index.sends["log_offset"][rows],
        "reader": sent.reader[chosen],
        "seen_ns": np.where(given_ns == NEVER, MISSING, given_ns),
        "other_ns": sent.invoked_ns[chosen] + bound.latency_ns,
        "case": case,
        **index.sent(rows),
    }
    return make_witnesses(len(rows), columns)


# --- windows --------------------------------------------------------------------------------------------------------


def _windows(sent: Sent, bound: DeliveryBound) -> tuple[np.ndarray, np.ndarray]:
    """Counts per window, and latencies in bins. A window in which nothing was sent has no row."""
    if not len(sent.rows):
        return no_windows(), bin_latencies(sent.rows, sent.rows, sent.rows)
    owed, state, latency_ns = sent.owed, sent.state, sent.given_ns - sent.invoked_ns
    number = sent.invoked_ns // bound.window_ns
    numbers = distinct(number[differs_from_previous(number)])
    window = Lookup(numbers).find(number)
    delivered, is_open = sent.given_ns != NEVER, state == State.OPEN
    chosen = {
        "sent": np.ones(len(window), dtype=bool),
        "acknowledged": owed,
        "delivered": owed & delivered,
        "late": owed & delivered & (latency_ns > bound.latency_ns),
        "missing": owed & ~delivered & ~is_open,
        "open": owed & is_open,
        "unmeasured": owed & (state == State.UNMEASURED),
        "unacknowledged": ~owed & delivered,
    }
    counts = {name: np.bincount(window[rows], minlength=len(numbers)) for name, rows in chosen.items()}
    rows = np.flatnonzero(chosen["delivered"])
    binned = bin_latencies(numbers, window[rows], latency_ns[rows])
    max_ns = np.full(len(numbers), MISSING)
    np.maximum.at(max_ns, window[rows], latency_ns[rows])
    latencies = percentiles(numbers, binned, max_ns)
    return make_windows({"number": numbers, **counts, **latencies, "max_ns": max_ns}), binned
