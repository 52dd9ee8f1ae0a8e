"""Three-valued logic on arrays: 1 true, 0 false, -1 unknown (Kleene). Scalars are arrays of shape ()."""

from functools import reduce

import numpy as np

TRUE, FALSE, UNKNOWN = np.int8(1), np.int8(0), np.int8(-1)
Truth = np.ndarray
"""int8 array of 1, 0, -1."""


def truth(value: np.ndarray | bool) -> Truth:
    """What is known to be so or not."""
    return np.asarray(value, dtype=bool).astype(np.int8)


def constant(value: int | np.int8, length: int) -> Truth:
    """The same for every witness."""
    return np.full(length, value, dtype=np.int8)


def both(*parts: Truth | np.int8) -> Truth:
    """True if all are, false if any is, else unknown. Of nothing: true."""
    return reduce(_and, parts, np.asarray(TRUE))


def either(*parts: Truth | np.int8) -> Truth:
    """True if any is, false if all are, else unknown. Of nothing: false."""
    return negate(both(*(negate(part) for part in parts)))


def negate(part: Truth | np.int8) -> Truth:
    """Unknown stays unknown."""
    return np.where(np.asarray(part) == UNKNOWN, UNKNOWN, 1 - np.asarray(part)).astype(np.int8)


def doubted(part: Truth, known: np.ndarray | bool) -> Truth:
    """`part` where `known`; elsewhere true becomes unknown (a cause that is itself in doubt), false stays."""
    return np.where(np.logical_or(known, part == FALSE), part, UNKNOWN).astype(np.int8)


def _and(left: Truth | np.int8, right: Truth | np.int8) -> Truth:
    a, b = np.broadcast_arrays(left, right)
    return np.where((a == FALSE) | (b == FALSE), FALSE, np.where((a == TRUE) & (b == TRUE), TRUE, UNKNOWN))
