"""Three-valued logic on arrays: 1 true, 0 false, -1 unknown (Kleene). Scalars are arrays of shape ()."""

from functools import reduce

import numpy as np

TRUE, FALSE, UNKNOWN = np.int8(1), np.int8(0), np.int8(-1)
Truth = np.ndarray
"""int8 array of 1, 0, -1."""


def as_truth(value: np.ndarray | bool) -> Truth:
    """Turns what is certainly so or not into 1 and 0."""
    return np.asarray(value, dtype=bool).astype(np.int8)


def constant(value: int | np.int8, length: int) -> Truth:
    """Returns one truth value for every witness."""
    return np.full(length, value, dtype=np.int8)


def all_true(*parts: Truth | np.int8) -> Truth:
    """Returns true if all are, false if any is, else unknown. For nothing: true."""
    return reduce(_and, parts, np.asarray(TRUE))


def any_true(*parts: Truth | np.int8) -> Truth:
    """Returns true if any is, false if all are, else unknown. For nothing: false."""
    return reduce(_or, parts, np.asarray(FALSE))


def negate(part: Truth | np.int8) -> Truth:
    """Swaps true and false; unknown stays unknown."""
    return np.asarray(_NOT[np.asarray(part, dtype=np.int8)])


def doubt_unless(part: Truth, known: np.ndarray | bool) -> Truth:
    """Keeps `part` where `known` holds; elsewhere true becomes unknown, because the cause is in doubt, and false stays."""
    return np.where(np.logical_or(known, part == FALSE), part, UNKNOWN).astype(np.int8)


_NOT = np.array([TRUE, FALSE, UNKNOWN], dtype=np.int8)
"""What `negate` makes of 0, 1 and -1, which is the last place."""
_AND = np.array([[FALSE, FALSE, FALSE], [FALSE, TRUE, UNKNOWN], [FALSE, UNKNOWN, UNKNOWN]], dtype=np.int8)
_OR = np.array([[FALSE, TRUE, UNKNOWN], [TRUE, TRUE, TRUE], [UNKNOWN, TRUE, UNKNOWN]], dtype=np.int8)


def _and(left: Truth | np.int8, right: Truth | np.int8) -> Truth:
    # Index -1 is the last row, or column, of the table: that of unknown.
    return np.asarray(_AND[np.asarray(left, dtype=np.int8), np.asarray(right, dtype=np.int8)])


def _or(left: Truth | np.int8, right: Truth | np.int8) -> Truth:
    return np.asarray(_OR[np.asarray(left, dtype=np.int8), np.asarray(right, dtype=np.int8)])
