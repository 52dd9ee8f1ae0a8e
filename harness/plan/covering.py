"""Covering arrays: a few rows of a table that together have every combination of t values which some row has.

`cover`: what is valid is enumerated beforehand, so a constraint is a row that is missing. What cannot occur together is
known exactly, and no row that is chosen can break a rule. `cover_wide`: a table with too many rows for that is searched.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import combinations, product
from math import prod
from typing import Literal

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


# A covering array of a table that is too large to enumerate.


TRIES_MAX = 200
"""How many rows are tried in search of a valid one with some values, before they count as never seen together."""


@dataclass(frozen=True, slots=True)
class WideCover:
    """Rows of a table that was not enumerated, which together have every combination of t values that any tried row had."""

    rows: tuple[dict[str, str], ...]
    covered: int
    """How many combinations of t values the rows have."""
    not_seen: tuple[Combination, ...]
    """Combinations of t values that no valid row had: impossible, as far as TRIES_MAX rows for each can say."""


def cover_wide(
    values: Values, strength: int, valid: Callable[[Mapping[str, str]], bool], *, seed: str
) -> WideCover | None:
    """Returns valid rows that together have every combination of `strength` values which a valid row was found for. None:
    no valid row was found at all. The same arguments give the same answer.

    Each combination first gets a valid row that has it, its witness: a known valid row with these values put in, and if that
    is not valid, with some of its other values drawn anew. For example acks ∈ {1, all}, idempotence ∈ {false, true}, and true
    needs all. From the row (1, false) the pair (all, true) is put in at once; for (1, true) every row that is tried is
    invalid, and the pair is never seen.

    Then the first combination that is not covered takes its witness, and each other axis of it the value that covers most
    new combinations and leaves the row valid. The row is kept, and what it has is covered.
    """
    assert strength > 0, strength
    search = _WitnessSearch(values, min(strength, len(values)), valid, random.Random(seed))
    if not search.witnesses:
        return None
    rows: list[dict[str, str]] = []
    left = dict.fromkeys(search.witnesses)  # ordered, so that the same arguments give the same answer
    while left:
        row = search.enriched(next(iter(left)), left)
        found = combinations_of(row, list(values), search.strength)
        assert not found.isdisjoint(left), "a row has at least the combination that it was made for"
        rows.append(row)
        for combination in found:
            left.pop(combination, None)
    return WideCover(tuple(rows), len(search.witnesses), tuple(search.not_seen))


class _WitnessSearch:
    """Finds a valid row for each combination of values, and improves rows."""

    def __init__(
        self, values: Values, strength: int, valid: Callable[[Mapping[str, str]], bool], draw: random.Random
    ) -> None:
        self.strength = strength
        self._values, self._valid, self._draw = values, valid, draw
        self._known: list[dict[str, str]] = []
        """Valid rows, the newest last."""
        self.witnesses: dict[Combination, dict[str, str]] = {}
        self.not_seen: list[Combination] = []
        if (first := self._first()) is None:
            return
        self._known.append(first)
        for axes in combinations(values, strength):
            for picked in product(*(values[axis] for axis in axes)):
                self._look_for(tuple(zip(axes, picked, strict=True)))

    def _first(self) -> dict[str, str] | None:
        row = {axis: some[0] for axis, some in self._values.items()}
        for _ in range(TRIES_MAX):
            if self._valid(row):
                return row
            row = {axis: self._draw.choice(some) for axis, some in self._values.items()}
        return None

    def _look_for(self, wanted: Combination) -> None:
        put = dict(wanted)
        for number in range(TRIES_MAX):
            # The first tries are the last rows that were found; then any of them, with more and more values drawn anew.
            back = number if number < min(8, len(self._known)) else self._draw.randrange(len(self._known))
            row = self._known[-1 - back] | put
            if number >= 8:
                for axis in self._draw.sample(list(self._values), k=min(1 + number // 20, len(self._values))):
                    row[axis] = self._draw.choice(self._values[axis])
                row |= put
            if self._valid(row):
                self.witnesses[wanted] = row
                if row not in self._known:
                    self._known.append(row)
                return
        self.not_seen.append(wanted)

    def enriched(self, wanted: Combination, left: Mapping[Combination, object]) -> dict[str, str]:
        """Returns a valid row with these values, and with as many combinations of `left` as one pass over its axes finds."""
        row, fixed = dict(self.witnesses[wanted]), {axis for axis, _ in wanted}
        others = [axis for axis in self._values if axis not in fixed]
        self._draw.shuffle(others)
        for axis in others:
            rest = [other for other in self._values if other != axis]

            def brings(value: str, axis: str = axis, rest: list[str] = rest) -> int:
                # Only combinations with this axis change with its value.
                pairs = combinations([(other, row[other]) for other in rest], self.strength - 1)
                return sum(self._ordered((*some, (axis, value))) in left for some in pairs)

            ranked = sorted(self._values[axis], key=lambda value: (-brings(value), value != row[axis]))
            row[axis] = next(value for value in ranked if value == row[axis] or self._valid(row | {axis: value}))
        return row

    def _ordered(self, combination: Combination) -> Combination:
        """Returns it in the order of the axes, as the keys of `witnesses` are."""
        return tuple(sorted(combination, key=lambda pair: self._number[pair[0]]))

    @cached_property
    def _number(self) -> dict[str, int]:
        return {axis: number for number, axis in enumerate(self._values)}


# Which rows of a table are run: all valid ones, or a cover of them.


ENUMERATED_MAX = 20_000
"""A table with more rows than this is searched, and not enumerated, unless all of its rows are wanted."""


@dataclass(frozen=True)
class ChosenRows:
    """The rows of a table that are run, and what is known of the others."""

    values: Values
    size: int
    """Coverage is counted in combinations of so many values."""
    rows: tuple[dict[str, str], ...]
    excluded: tuple[tuple[dict[str, str], str], ...]
    """Invalid rows, each with the reason: all of them, or those that a search met."""
    valid: tuple[dict[str, str], ...] | None
    """Every valid row. None: the table was searched, and they were not counted."""
    not_seen: tuple[Combination, ...] = ()
    """The combinations that a search found no valid row with."""

    @property
    def raw(self) -> int:
        """Returns how many rows the table has."""
        return prod(map(len, self.values.values()))

    @cached_property
    def covered(self) -> int:
        """Returns how many combinations of values the rows have."""
        return len(covered(self.rows, list(self.values), self.size))

    @cached_property
    def possible(self) -> int:
        """Returns how many combinations of values some valid row has, as far as is known."""
        return self.covered if self.valid is None else len(covered(self.valid, list(self.values), self.size))

    @cached_property
    def impossible(self) -> list[dict[str, str]]:
        """Returns the combinations that no valid row has; in a table that was searched, that none was found with."""
        if self.valid is None:
            return list(map(dict, self.not_seen))
        return impossible(self.valid, self.values, self.size)

    def reasons(self) -> Iterator[str]:
        """Yields the reason of each invalid row; of a table that was searched, of each combination that no row has."""
        if self.valid is None:
            yield from map(self.why_impossible, self.impossible)
        else:
            yield from (why for _, why in self.excluded)

    def why_none(self) -> str:
        """Returns how many rows each reason excludes, the most frequent reason first; for a table without a valid row."""
        reasons = Counter(why for _, why in self.excluded).most_common()
        return "; ".join(f"{count} because {why}" for why, count in reasons)

    def beyond(self) -> tuple[int, int]:
        """Returns how many combinations of one value more the rows have, and how many there are, valid or not."""
        size = self.size + 1
        there = (prod(len(self.values[axis]) for axis in axes) for axes in combinations(self.values, size))
        return len(covered(self.rows, list(self.values), size)) if len(self.values) >= size else 0, sum(there)

    def why_impossible(self, values: Mapping[str, str]) -> str:
        """Returns the reason that most often keeps these values apart."""
        reasons = Counter(why for row, why in self.excluded if values.items() <= row.items())
        return reasons.most_common(1)[0][0]


def choose(
    values: Values, strength: Literal["full", 2, 3], why_not: Callable[[Mapping[str, str]], str | None], *, seed: str
) -> ChosenRows:
    """Returns the rows that are run: every valid row, or few that have every valid combination of `strength` values.
    `why_not` returns why a row is invalid. Coverage of full tables is counted in pairs."""
    if strength != "full" and not is_enumerated(values, strength):
        return _searched(values, strength, why_not, seed=seed)
    every = rows_of(values)
    return chosen_of(values, strength, every, tuple(map(why_not, every)))


def is_enumerated(values: Values, strength: Literal["full", 2, 3]) -> bool:
    """Returns whether every row of the table is looked at; else it is searched."""
    return strength == "full" or prod(map(len, values.values())) <= ENUMERATED_MAX


def rows_of(values: Values) -> tuple[dict[str, str], ...]:
    """Returns every row of the table, in the order of its axes."""
    return tuple(dict(zip(values, picked, strict=True)) for picked in product(*values.values()))


def chosen_of(
    values: Values, strength: Literal["full", 2, 3], every: Sequence[dict[str, str]], whys: Sequence[str | None]
) -> ChosenRows:
    """Returns the rows that are run of a table that is enumerated. `whys`: of each row why it is invalid; None = it is
    valid."""
    size = min(2 if strength == "full" else strength, len(values))
    known = list(zip(every, whys, strict=True))
    valid = tuple(row for row, why in known if why is None)
    excluded = tuple((row, why) for row, why in known if why is not None)
    rows = valid if strength == "full" else tuple(valid[n] for n in cover(valid, list(values), strength))
    return ChosenRows(values, size, rows, excluded, valid)


def _searched(
    values: Values, strength: int, why_not: Callable[[Mapping[str, str]], str | None], *, seed: str
) -> ChosenRows:
    met: dict[tuple[str, ...], str | None] = {}

    def valid(row: Mapping[str, str]) -> bool:
        key = tuple(row[axis] for axis in values)
        if key not in met:
            met[key] = why_not(row)
        return met[key] is None

    found = cover_wide(values, strength, valid, seed=seed)
    excluded = tuple((dict(zip(values, key, strict=True)), why) for key, why in met.items() if why is not None)
    rows, not_seen = ((), ()) if found is None else (found.rows, found.not_seen)
    return ChosenRows(values, min(strength, len(values)), rows, excluded, None, not_seen)
