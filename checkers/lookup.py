"""Finding things in arrays: values by direct addressing or binary search, identities as single numbers, values that differ.

Everything works on whole arrays. Nothing loops over records, and nothing uses `numpy.unique` or `isin`, which are slow and
hash-based on large int64 since numpy 2.3.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from harness.schema import ORIGIN_SEQUENCE_BITS

T = TypeVar("T")
_SEQUENCE_BITS = ORIGIN_SEQUENCE_BITS
CLIENT_BITS = 22
UNREADABLE = -1
"""Identity key of a record whose identity could not be read. Equal to nothing, itself included."""
_STRANGE = -2


class lazy(Generic[T]):
    """A property computed once. Not functools.cached_property: before Python 3.12 that holds one lock for all instances,
    which would make threads that check different partitions wait for one another."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> T:  # noqa: ANN401 - of any class
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def differs_from_previous(values: np.ndarray) -> np.ndarray:
    """bool[n]: is this value another than the one before? The first one is."""
    changed = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def distinct(values: np.ndarray) -> np.ndarray:
    """The different values, ascending. O(k log k); O(k) if they ascend already."""
    ordered: np.ndarray = values if ascends(values) else np.sort(values)
    ordered = ordered[differs_from_previous(ordered)]
    return ordered


def ascends(values: np.ndarray) -> bool:
    """Is none less than the one before it?"""
    return bool((values[1:] >= values[:-1]).all())


def identity_keys(client: np.ndarray, sequence: np.ndarray, unreadable: np.ndarray | None = None) -> np.ndarray:
    """int64[n]: one number per (client, sequence), equal where and only where both are, ascending in that order.

    Identities outside 0 ≤ client < 2^22, 0 ≤ sequence < 2^40 (no client of ours) get numbers below -1 that hold within
    one call; rows where `unreadable` is true get UNREADABLE. O(n), and O(k log k) for k of the former.
    """
    key = client.astype(np.int64)
    key <<= _SEQUENCE_BITS
    key |= sequence
    if len(key) and (_outside(client, 1 << CLIENT_BITS) or _outside(sequence, 1 << _SEQUENCE_BITS)):
        strange = (client < 0) | (client >= 1 << CLIENT_BITS) | (sequence < 0) | (sequence >= 1 << _SEQUENCE_BITS)
        rows = np.flatnonzero(strange)
        rows = rows[np.lexsort((sequence[rows], client[rows]))]
        new = differs_from_previous(client[rows]) | differs_from_previous(sequence[rows])
        key[rows] = _STRANGE - np.cumsum(new)
    if unreadable is not None:
        key[unreadable] = UNREADABLE
    return key


def _outside(values: np.ndarray, limit: int) -> bool:
    return bool(values.min() < 0 or values.max() >= limit)


class Lookup:
    """Finds values in a strictly increasing int64 array: by direct addressing where it is dense enough, else by binary
    search. A query costs O(1) or O(log n); the table is built on the first query that is worth it."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._base = int(values[0]) if len(values) else 0
        self._span = int(values[-1]) - self._base + 1 if len(values) else 0
        self._table: np.ndarray | None = None

    def find(self, queries: np.ndarray) -> np.ndarray:
        """intp[k]: index of each query in the array, -1 where it is not there."""
        length = len(self.values)
        if not length or not len(queries):
            return np.full(len(queries), -1, dtype=np.intp)
        if self._span == length or (self._dense and (self._table is not None or len(queries) * 8 >= length)):
            # Modular arithmetic: what lies below the base wraps to a huge unsigned number. Any int64 is safe here.
            place: np.ndarray = queries - np.int64(self._base)
            outside = place.view(np.uint64) >= self._span
            if self._span != length:
                place[outside] = 0
                place = self._addresses()[place]
            place[outside] = -1
            return place
        place = np.searchsorted(self.values, queries)
        place[place == length] = 0
        place[self.values[place] != queries] = -1
        return place

    @property
    def _dense(self) -> bool:
        return self._span <= 4 * len(self.values) + 1024

    def _addresses(self) -> np.ndarray:
        if self._table is None:
            self._table = np.full(self._span, -1, dtype=np.intp)
            self._table[self.values - np.int64(self._base)] = np.arange(len(self.values))
        return self._table
