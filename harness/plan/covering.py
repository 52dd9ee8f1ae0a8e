"""Covering arrays: a few rows of a table that together have every combination of t values which some row has.

What is valid is enumerated beforehand, so a constraint is a row that is missing: what cannot occur together is known
exactly, and no row that is chosen can break a rule.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, product

Values = Mapping[str, Sequence[str]]
"""Axis → every value that it may have."""
Row = Mapping[str, str]
"""Axis → value, with one value for each axis."""
Combination = tuple[tuple[str, str], ...]
"""Some axes, each with its value."""


def cover(rows: Sequence[Row], axes: Sequence[str], strength: int) -> list[int]:
    """Returns the ascending numbers of rows that together have every combination of `strength` values which any row
    has. The same rows give the same answer.

    It always takes the row that brings most new combinations; of several, the first. For example with two axes, strength
    1, and the rows `xa`, `xb`, `ya`, `yb`: each row brings two values, and row 0 is taken. Then row 1 brings only b, and
    row 2 only y, but row 3 still brings two. Rows 0 and 3 have all values.
    """
    assert strength > 0, strength
    new = [combinations_of(row, axes, strength) for row in rows]
    # Each row's count of new combinations only ever falls. An old count is therefore at least the true one: if the row
    # with the greatest old count still brings as many, no other row brings more, and none of the others is counted.
    heap = [(-len(found), number) for number, found in enumerate(new)]
    heapify(heap)
    chosen: list[int] = []
    covered_so_far: set[Combination] = set()
    while heap:
        # In the example: row 0 is taken with 2 new values. Row 1 was counted with 2 as well, has 1 by now, and goes back; so
        # does row 2; row 3 still has 2, and is taken. Rows 1 and 2 have nothing new any more, and are dropped.
        count, number = heappop(heap)
        new[number] -= covered_so_far
        if len(new[number]) < -count:
            heappush(heap, (-len(new[number]), number))
        elif new[number]:
            chosen.append(number)
            covered_so_far |= new[number]
    assert len(set(chosen)) == len(chosen), "a row is taken once"
    return sorted(chosen)


def combinations_of(row: Row, axes: Sequence[str], strength: int) -> set[Combination]:
    """Returns the combinations of `strength` values that a row has."""
    return set(combinations([(axis, row[axis]) for axis in axes], min(strength, len(axes))))


def covered(rows: Sequence[Row], axes: Sequence[str], strength: int) -> set[Combination]:
    """Returns every combination of `strength` values that some row has."""
    return set().union(*(combinations_of(row, axes, strength) for row in rows))


def impossible(rows: Sequence[Row], values: Values, strength: int) -> list[dict[str, str]]:
    """Returns the combinations of values that no row has, in the order of the axes."""
    there = covered(rows, list(values), strength)
    return [
        dict(zip(choice, picked, strict=True))
        for choice in combinations(values, min(strength, len(values)))
        for picked in product(*(values[axis] for axis in choice))
        if tuple(zip(choice, picked, strict=True)) not in there
    ]
