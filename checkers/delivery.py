"""Is what was produced consumed, in time? Kernel over a whole cell that states a delivery bound; stage check.

Counts and latencies per window of the time of sending, and the records that broke the bound. Faults are not looked at here:
the guarantee table asks the envelope whether one excuses a record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from checkers.arrays import PartitionIndex
from checkers.awake import Place, Stillness, stillness_of
from checkers.groups import group_start
from checkers.lookup import Lookup, differs_from_previous, distinct
from harness.configuration import DeliveryBound
from harness.plan import SENTINEL_CLIENT
from harness.protocols import CellHistory, KernelResult
from harness.schema import MISSING, NONE, Outcome
from harness.windows import LateCase, make_windows, no_windows
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
    `windows`: counts per window. O(n log n); loops run over partitions, readers and producers.
    """
    bound = history.cell.delivery_bound
    assert bound is not None, history.cell
    places, reasons = _places(history), []
    found, together = [no_witnesses()], []
    for number in history.cell.written:
        partition = history.partitions[number]
        index, mine = PartitionIndex.of(partition), [p for p in places if number in p.partitions]
        if not mine:  # a late partition, which readers leave out
            continue
        if why := index.incomplete() or _clocks_differ(index, partition.client_clock, mine):
            reasons.append(why)
        sent = _sent(history, index, mine, bound)
        found.append(_witnesses(index, sent, bound))
        together.append(sent)  # not the index: a cell may have more rows than memory holds
    witnesses = np.concatenate(found)
    return KernelResult(
        witnesses[:WITNESSES_MAX],
        count=len(witnesses),
        judged=sum(int(np.count_nonzero(s.owed & (s.state != State.OPEN))) for s in together),
        incomplete="; ".join(dict.fromkeys(reasons)) or None,
        windows=_windows(together, bound),
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


def _sent(history: CellHistory, index: PartitionIndex, places: Sequence[Place], bound: DeliveryBound) -> Sent:
    sends = index.sends
    rows = np.flatnonzero((sends["client"] != SENTINEL_CLIENT) & (sends["invoked_ns"] >= 0))
    invoked_ns, owed = sends["invoked_ns"][rows], sends["outcome"][rows] == Outcome.OK
    if history.cell.group is not None:
        offset = sends["log_offset"][rows]
        owed &= (offset == NONE) | (offset >= group_start(history, index.partition))
    given_ns = np.full(len(rows), MISSING)
    state, reader = np.zeros(len(rows), dtype=np.int8), np.full(len(rows), NONE, dtype=np.int64)
    for place in places:
        first = _first_given(index, place)[rows]
        there = first >= 0
        seen_ns = np.full(len(rows), NEVER)
        seen_ns[there] = index.reads["read_ns"][first[there]]
        became = _became(history, index, rows, seen_ns, place, bound)
        worse = (became > state) | ((became == state) & (seen_ns > given_ns))
        who = np.full(len(rows), int(place.clients[-1]) if len(place.clients) else NONE, dtype=np.int64)
        who[there] = index.reads["client"][first[there]]
        reader[worse], state = who[worse], np.maximum(state, became)
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


def _witnesses(index: PartitionIndex, sent: Sent, bound: DeliveryBound) -> np.ndarray:
    """One for each record that is late or missing."""
    chosen = np.flatnonzero(sent.owed & (sent.state >= State.UNMEASURED))
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


def _windows(parts: Sequence[Sent], bound: DeliveryBound) -> np.ndarray:
    """Counts and latencies over all partitions. A window in which nothing was sent has no row."""
    if not any(len(sent.rows) for sent in parts):
        return no_windows()

    def every(column: Callable[[Sent], np.ndarray]) -> np.ndarray:
        return np.concatenate([column(sent) for sent in parts])

    invoked_ns, given_ns = every(lambda s: s.invoked_ns), every(lambda s: s.given_ns)
    owed, state = every(lambda s: s.owed), every(lambda s: s.state)
    numbers = distinct(invoked_ns // bound.window_ns)
    window = Lookup(numbers).find(invoked_ns // bound.window_ns)
    delivered, is_open = given_ns != NEVER, state == State.OPEN
    chosen = {
        "sent": np.ones(len(window), dtype=bool),
        "acknowledged": owed,
        "delivered": owed & delivered,
        "late": owed & delivered & (given_ns - invoked_ns > bound.latency_ns),
        "missing": owed & ~delivered & ~is_open,
        "open": owed & is_open,
        "unmeasured": owed & (state == State.UNMEASURED),
        "unacknowledged": ~owed & delivered,
    }
    counts = {name: np.bincount(window[rows], minlength=len(numbers)) for name, rows in chosen.items()}
    rows = np.flatnonzero(owed & delivered)
    return make_windows(
        {"number": numbers, **counts, **_latencies(window[rows], (given_ns - invoked_ns)[rows], counts["delivered"])}
    )


def _latencies(window: np.ndarray, latency_ns: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    """Percentiles of each window's deliveries: the least value that so many of them do not exceed."""
    ordered = latency_ns[np.lexsort((latency_ns, window))]
    first = np.cumsum(counts) - counts

    def quantile(share: float) -> np.ndarray:
        rank = np.maximum(np.ceil(counts * share).astype(np.int64), 1) - 1
        place = np.minimum(first + rank, max(len(ordered) - 1, 0))
        return np.where(counts > 0, ordered[place], MISSING) if len(ordered) else np.full(len(counts), MISSING)

    return {"p50_ns": quantile(0.5), "p99_ns": quantile(0.99), "max_ns": quantile(1.0)}
