"""Finding things in arrays: values, records by their identity, and values that differ from the one before.

Everything works on whole arrays. Nothing loops over records, and nothing uses `numpy.unique` or `isin`, which are slow and
hash-based on large int64 since numpy 2.3.
"""

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from prozess.harness.schema import ORIGIN_SEQUENCE_BITS

T = TypeVar("T")
_SEQUENCE_BITS = ORIGIN_SEQUENCE_BITS
CLIENT_BITS = 22
UNREADABLE = -1
"""The identity key of a record whose identity could not be read. It equals no other key, and not even itself."""
_STRANGE = -2
_BLOCK = 1 << 16
"""How many keys are made at a time, so that what they are made of is read once, and stays in the processor's cache."""


class lazy(Generic[T]):
    """A property that is computed once. It is not functools.cached_property, which before Python 3.12 holds one lock for
    all instances: threads that check different partitions would wait for one another."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> T:
        # Python looks into the instance first: once the value is there, this is not called again.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def differs_from_previous(values: np.ndarray) -> np.ndarray:
    """Returns bool[n]: does each value differ from the value before it? True for the first value."""
    # Example [4 4 7 7 7 2]: True False True False False True. `cumsum` of it numbers the runs: 1 1 2 2 2 3.
    changed = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def differs_from_next(values: np.ndarray) -> np.ndarray:
    """Returns bool[n]: does each value differ from the value after it? True for the last value."""
    # Example [4 4 7 7 7 2]: False True False False True True. It chooses the last of each key's rows, sorted by key.
    return differs_from_previous(values[::-1])[::-1]


def distinct(values: np.ndarray) -> np.ndarray:
    """Returns the different values, ascending. O(k log k); O(k) if they ascend already."""
    ordered: np.ndarray = values if ascends(values) else np.sort(values)
    ordered = ordered[differs_from_previous(ordered)]
    return ordered


def ascends(values: np.ndarray) -> bool:
    """Returns whether no value is less than the value before it."""
    return bool((values[1:] >= values[:-1]).all())


def identity_keys(client: np.ndarray, sequence: np.ndarray, unreadable: np.ndarray | None = None) -> np.ndarray:
    """Returns int64[n]: one number for each (client, sequence). Two numbers are equal exactly where client and sequence
    are, and they ascend in that order.

    Identities outside 0 ≤ client < 2^22, 0 ≤ sequence < 2^40 (no client of ours) get numbers below -1 that hold within
    one call; rows where `unreadable` is true get UNREADABLE. O(n), and O(k log k) for k of the former.
    """
    assert len(client) == len(sequence), f"{len(client)} clients, {len(sequence)} sequences"
    key = ordinary_keys(client, sequence)
    # Example: (3, 7) is 3 · 2^40 + 7, so all of client 3 come before all of client 4, each by sequence.
    if key is None:
        # The shift mixes up identities outside of the bounds: those are ranked among themselves, and get -3, -4, … (below
        # -2). Example: a record of client -5, and one of client 2^30 twice: ranks 1 2 2, so -3 -4 -4.
        key = client.astype(np.int64) << _SEQUENCE_BITS | sequence
        outside = (client < 0) | (client >= 1 << CLIENT_BITS) | (sequence < 0) | (sequence >= 1 << _SEQUENCE_BITS)
        rows = np.flatnonzero(outside)
        rows = rows[np.lexsort((sequence[rows], client[rows]))]
        new = differs_from_previous(client[rows]) | differs_from_previous(sequence[rows])
        key[rows] = _STRANGE - np.cumsum(new)
    if unreadable is not None:
        key[unreadable] = UNREADABLE
    return key


def ordinary_keys(client: np.ndarray, sequence: np.ndarray) -> np.ndarray | None:
    """Returns what `identity_keys` does. None: there is an identity that no client of ours has, whose number is not known
    without all others."""
    key = np.empty(len(client), dtype=np.int64)
    # Written into `made`, which is a slice of the result, step by step: no array as long as the column stands beside it.
    for first in range(0, len(client), _BLOCK):
        few, its, made = (array[first : first + _BLOCK] for array in (client, sequence, key))
        # What is below 0 has its highest bit set, and so has all of them together.
        if int(np.bitwise_or.reduce(few)) >> CLIENT_BITS or int(np.bitwise_or.reduce(its)) >> _SEQUENCE_BITS:
            return None
        made[:] = few
        made <<= _SEQUENCE_BITS
        made |= its
    return key


def any_set(values: np.ndarray) -> bool:
    """Returns whether any of these numbers is not 0. If a column has one value for all rows, it looks at that alone."""
    return bool(values[:1].any() if values.strides == (0,) else values.any())


class Lookup:
    """Finds values in a strictly increasing int64 array. It addresses them directly where the array is dense enough, and
    searches otherwise. A query costs O(1) or O(log n). The table is built by the first query that is worth it."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._base = int(values[0]) if len(values) else 0
        self._span = int(values[-1]) - self._base + 1 if len(values) else 0
        self._table: np.ndarray | None = None

    def find(self, queries: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the index of each query in the array, -1 where the array does not have it."""
        length = len(self.values)
        if not length or not len(queries):
            return np.full(len(queries), -1, dtype=np.intp)
        # Three ways: without a gap a query less the base is its index; with a few gaps a table has it, once there are enough
        # queries to pay for the table; else a search.
        if self._span == length or (self._dense and (self._table is not None or len(queries) * 8 >= length)):
            # Modular arithmetic: what lies below the base wraps to a huge unsigned number. Any int64 is safe here.
            # Example: base 5, span 3. Queries 4 5 8 become 2^64-1 0 3: only 0 is less than 3.
            slot: np.ndarray = queries - np.int64(self._base)
            outside = slot.view(np.uint64) >= self._span
            if self._span != length:
                slot[outside] = 0  # any index that the table has; the answer is -1 in the end
                slot = self._addresses()[slot]
            slot[outside] = -1
            return slot
        # Too sparse for a table: a binary search. What would be behind the last value is compared with the first one, and
        # differs.
        slot = np.searchsorted(self.values, queries)
        slot[slot == length] = 0
        slot[self.values[slot] != queries] = -1
        return slot

    @property
    def is_dense(self) -> bool:
        """Returns whether no value is left out between the first and the last."""
        return self._span == len(self.values)

    @property
    def _dense(self) -> bool:
        return self._span <= 4 * len(self.values) + 1024

    def _addresses(self) -> np.ndarray:
        if self._table is None:
            # Example, values 5 6 8: base 5, span 4, and the table is [0 1 -1 2]. A query 8 reads slot 3, and 7 finds -1.
            self._table = np.full(self._span, -1, dtype=np.intp)
            self._table[self.values - np.int64(self._base)] = np.arange(len(self.values))
        return self._table


# An index of a history is made once, shared by all kernels that look at that history, and gone with it.


class Indexed:
    """The base class of an index that is computed from one history. It must not keep the history, because the cache
    would keep that alive."""

    _known: ClassVar[dict[int, tuple["weakref.ref[Any]", Any]]]

    def __init_subclass__(cls) -> None:
        cls._known = {}

    @classmethod
    def of(cls, history: object) -> Self:
        """Returns the index of this very history object. It is made on the first call."""
        # The key is `id`, because histories hold arrays and are not hashable. An id is given away again once its object is
        # gone: the weak reference removes the entry then, and the comparison notices whoever came sooner.
        name, known = id(history), cls._known
        entry = known.get(name)
        if entry is None or entry[0]() is not history:
            entry = (weakref.ref(history, lambda _: known.pop(name, None)), cls(history))  # type: ignore[call-arg]
            known[name] = entry
        found: Self = entry[1]
        return found
