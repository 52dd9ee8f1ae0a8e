"""Delta debugging: a smallest part of a list that still has a property. Pure.

[Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002]
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """A part of `items`, in their order, that fails, and of which no single one can be left out (where `fails` always says
    the same). `items` as a whole is known to fail and is not asked again; the empty part is asked last."""
    left, pieces = tuple(items), 2
    while len(left) >= 2:
        cut = _cut(left, pieces)
        found = next((part for part in cut if fails(part)), None)
        if found is not None:
            left, pieces = found, 2
            continue
        # Of two halves each is the other's complement.
        complements = [_without(cut, index) for index in range(len(cut))] if len(cut) > 2 else []
        found = next((part for part in complements if fails(part)), None)
        if found is not None:
            left, pieces = found, max(2, len(cut) - 1)
        elif len(cut) == len(left):
            break
        else:
            pieces = min(len(left), 2 * len(cut))
    return () if len(left) == 1 and fails(()) else left


def _cut(items: tuple[T, ...], pieces: int) -> list[tuple[T, ...]]:
    """Into so many parts of nearly the same length, none empty."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(ends) if b > a]


def _without(parts: Sequence[tuple[T, ...]], index: int) -> tuple[T, ...]:
    return tuple(item for number, part in enumerate(parts) if number != index for item in part)
