"""Covering arrays: few rows of a table in which every combination of t values that some row has occurs. Pure.

What is valid is enumerated beforehand, so that a constraint is nothing but a row that is missing: what cannot occur together
is known exactly, and no row that is chosen can break a rule. Greedy: always the row with most combinations that are new.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from math import prod

import numpy as np

Values = Mapping[str, Sequence[str]]
"""Axis → every value that it may have."""
Row = Mapping[str, str]
"""Axis → value: one of each axis."""


def cover(rows: Sequence[Row], axes: Sequence[str], strength: int) -> list[int]:
    """Numbers of rows, ascending, that have every combination of `strength` values which any row has. The same rows give
    the same answer."""
    if not rows:
        return []
    codes = _combinations_of(rows, axes, strength)
    open_ = np.ones(int(codes.max()) + 1, dtype=bool)
    open_[np.setdiff1d(np.arange(len(open_)), codes)] = False
    chosen: list[int] = []
    while open_.any():
        best = int(open_[codes].sum(axis=1).argmax())
        chosen.append(best)
        open_[codes[best]] = False
    return sorted(chosen)


def _combinations_of(rows: Sequence[Row], axes: Sequence[str], strength: int) -> np.ndarray:
    """[row, choice of axes] → the number of the values that the row has there; different choices share no number."""
    seen = {axis: {value: n for n, value in enumerate(sorted({row[axis] for row in rows}))} for axis in axes}
    columns = {axis: np.array([seen[axis][row[axis]] for row in rows], dtype=np.int64) for axis in axes}
    parts, first = [], 0
    for choice in combinations(axes, min(strength, len(axes))):
        code = np.zeros(len(rows), dtype=np.int64)
        for axis in choice:
            code = code * len(seen[axis]) + columns[axis]
        parts.append(code + first)
        first += prod(len(seen[axis]) for axis in choice)
    return np.stack(parts, axis=1)


def covered(rows: Sequence[Row], axes: Sequence[str], strength: int) -> set[tuple[tuple[str, str], ...]]:
    """Every combination of `strength` values that some row has."""
    choices = list(combinations(axes, min(strength, len(axes))))
    return {tuple((axis, row[axis]) for axis in choice) for row in rows for choice in choices}


def impossible(rows: Sequence[Row], values: Values, strength: int) -> list[dict[str, str]]:
    """The combinations of values that no row has, in the order of the axes."""
    there = covered(rows, list(values), strength)
    return [
        dict(zip(choice, picked, strict=True))
        for choice in combinations(values, min(strength, len(values)))
        for picked in product(*(values[axis] for axis in choice))
        if tuple(zip(choice, picked, strict=True)) not in there
    ]
