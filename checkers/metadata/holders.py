"""What somebody has until it says otherwise: partitions of the members of a group, log directories of brokers."""

import numpy as np

from prozess.checkers.lookup import differs_from_previous


def slots_of(held: np.ndarray, own: np.ndarray, holder: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rows `own` by holder, of each the row that ends it, and of each row of `held` which of them it belongs to.

    `own`: rows, ascending, in which a holder begins to say all that it has; `held`: what it has, behind each. What it has, it
    has until its next own row, or the end."""
    own = own[np.lexsort((own, holder[own]))]
    until = np.append(own[1:], len(holder))
    until[np.append(holder[own][1:] != holder[own][:-1], True)[: len(own)]] = len(holder)
    # Rows ascend by offset: within a record the holder's own row comes first.
    key = holder[own].astype(np.int64) * (len(holder) + 1) + own
    at = np.searchsorted(key, holder[held].astype(np.int64) * (len(holder) + 1) + held) - 1
    return own, until, at


def held_twice(held: np.ndarray, ends: np.ndarray, holder: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Returns rows in which a holder gets a thing that another one still has, each beside the row that gave it to that one.

    `ends`, `thing`: of each row of `held`. Example: a has p from the record 5, b from 9, and the next record of a is 12:
    that of b is found, beside 5. Had the next record of a been 8, without p, nobody had it at 9."""
    order = np.lexsort((held, thing))
    held, ends = held[order], ends[order]
    begins = np.flatnonzero(differs_from_previous(thing[order]))
    found: list[tuple[int, int]] = []
    for first, last in zip(begins.tolist(), np.append(begins[1:], len(held))[: len(begins)].tolist(), strict=True):
        found += _overlaps(held[first:last], ends[first:last], holder)
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)


def _overlaps(begin: np.ndarray, end: np.ndarray, holder: np.ndarray) -> list[tuple[int, int]]:
    """Returns which of these stretches of one thing begin within one of another holder, and the first such one."""
    found = []
    reach = np.maximum.accumulate(end)
    # Stretches of one holder never overlap: one that begins within the reach of those before it is within another's.
    for index in (np.flatnonzero(begin[1:] < reach[:-1]) + 1).tolist():
        others = np.flatnonzero((end[:index] > begin[index]) & (holder[begin[:index]] != holder[begin[index]]))
        if len(others):
            found.append((int(begin[index]), int(begin[others[0]])))
    return found
