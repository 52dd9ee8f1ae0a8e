"""Counts of records in windows of the time of sending, and the latencies of their deliveries."""

from dataclasses import dataclass
from enum import IntEnum, unique

import numpy as np

from prozess.checkers.alignment import rows_where
from prozess.checkers.lookup import Lookup, differs_from_previous, distinct
from prozess.checkers.reading.receipts import NEVER
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.interfaces.witnesses import bin_latencies, make_windows, no_windows, percentiles
from prozess.harness.schema import MISSING


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

    @staticmethod
    def in_time(rows: np.ndarray, invoked_ns: np.ndarray, given_ns: np.ndarray) -> "SentRecords":
        """Returns records that were owed, and given to each recipient within the bound."""
        none = np.empty(0, dtype=np.intp)
        owed, state = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=np.int8)
        return SentRecords(rows, invoked_ns, owed, given_ns, state, beyond=none, reader=none)


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


def windows_of(sent: SentRecords, bound: DeliveryBound) -> tuple[np.ndarray, np.ndarray]:
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
