"""Covering arrays against their definition."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.plan.covering import cover, covered, impossible


@st.composite
def tables(draw):
    """(values of each axis, the rows that a random set of constraints leaves of their product)."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    values = {f"axis-{n}": [f"{n}{v}" for v in range(size)] for n, size in enumerate(sizes)}
    every = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    kept = draw(st.lists(st.booleans(), min_size=len(every), max_size=len(every)))
    return values, [row for row, keep in zip(every, kept, strict=True) if keep]


def combinations_of(rows, axes, strength):
    """By the definition: the values that a row has of each choice of axes."""
    return {frozenset((a, row[a]) for a in choice) for row in rows for choice in combinations(axes, strength)}


@given(tables(), st.integers(1, 3))
def test_every_combination_that_a_valid_row_has_is_covered_by_valid_rows(table, strength):
    values, rows = table
    chosen = cover(rows, list(values), strength)
    strength = min(strength, len(values))
    of_chosen = combinations_of([rows[n] for n in chosen], values, strength)
    assert of_chosen == combinations_of(rows, values, strength)
    assert len(set(chosen)) == len(chosen) <= len(rows)


@given(tables(), st.integers(1, 3))
def test_what_is_impossible_is_exactly_what_no_valid_row_has(table, strength):
    values, rows = table
    listed = [frozenset(found.items()) for found in impossible(rows, values, strength)]
    strength = min(strength, len(values))
    there = combinations_of(rows, values, strength)
    assert len(set(listed)) == len(listed)
    assert set(listed).isdisjoint(there)
    choices = combinations(values, strength)
    assert len(listed) + len(there) == sum(len(list(product(*(values[a] for a in c)))) for c in choices)


@pytest.mark.parametrize(("strength", "most"), [(2, 16), (3, 60)])
def test_a_cover_is_much_smaller_than_the_product(strength, most):
    axes = {f"axis-{n}": [str(v) for v in range(3)] for n in range(6)}
    rows = [dict(zip(axes, row, strict=True)) for row in product(*axes.values())]
    chosen = [rows[n] for n in cover(rows, list(axes), strength)]
    assert len(covered(chosen, list(axes), strength)) == len(list(combinations(axes, strength))) * 3**strength
    assert len(chosen) <= most
