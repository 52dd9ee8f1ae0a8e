"""Covering arrays against their definition."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.plan.covering import choose, cover, cover_wide, covered, impossible


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


@st.composite
def forbidding_tables(draw):
    """(values of each axis, pairs of values that no valid row has)."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=6))
    values = {f"axis-{n}": [f"{n}{v}" for v in range(size)] for n, size in enumerate(sizes)}
    pairs = [pair for a, b in combinations(values, 2) for pair in product(values[a], values[b])]
    return values, draw(st.lists(st.sampled_from(pairs), max_size=4, unique=True))


@given(forbidding_tables(), st.integers(1, 3))
def test_a_table_that_is_not_enumerated_is_covered_by_valid_rows_and_the_rest_is_named(table, strength):
    values, forbidden = table

    def valid(row):
        return not any(set(pair) <= set(row.values()) for pair in forbidden)

    every = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    found = cover_wide(values, strength, valid, seed="any")
    if found is None:
        assert not any(map(valid, every))
        return
    strength = min(strength, len(values))
    assert all(valid(row) and row.keys() == values.keys() for row in found.rows)
    covered_by_rows = combinations_of(found.rows, values, strength)
    assert found.covered == len(covered_by_rows)
    # With few constraints the search misses nothing that is there.
    assert covered_by_rows == combinations_of([row for row in every if valid(row)], values, strength)
    named = {frozenset(combination) for combination in found.not_seen}
    assert named.isdisjoint(covered_by_rows)
    choices = combinations(values, strength)
    assert len(named) + found.covered == sum(len(list(product(*(values[a] for a in c)))) for c in choices)
    assert cover_wide(values, strength, valid, seed="any") == found


@pytest.mark.parametrize(("strength", "most"), [(2, 24), (3, 110)])
def test_twenty_axes_are_covered_by_a_few_rows_of_billions(strength, most):
    axes = {f"axis-{n}": [str(v) for v in range(3)] for n in range(20 if strength == 2 else 10)}
    found = cover_wide(axes, strength, lambda row: True, seed="any")
    assert not found.not_seen
    assert found.covered == len(list(combinations(axes, strength))) * 3**strength
    assert len(found.rows) <= most


def test_a_table_is_searched_only_if_it_is_large_and_not_wanted_whole_and_says_what_is_beyond_its_strength():
    values = {f"axis-{n}": [str(v) for v in range(3)] for n in range(10)}  # 59,049 rows

    def why_not(row):
        return "the first is 0, or the second is not" if row["axis-0"] != "0" and row["axis-1"] == "0" else None

    found = choose(values, 2, why_not, seed="any")
    assert (found.raw, found.valid) == (3**10, None)
    assert found.impossible == [{"axis-0": v, "axis-1": "0"} for v in ("1", "2")]
    assert {found.why_impossible(apart) for apart in found.impossible} == {"the first is 0, or the second is not"}
    assert found.covered == found.possible == 45 * 9 - 2
    done, there = found.beyond()
    assert there == 120 * 27
    assert len(found.rows) * 8 < done < there
    small = choose({axis: values[axis] for axis in list(values)[:4]}, 2, why_not, seed="any")
    assert small.valid is not None
    assert (len(small.valid), small.impossible) == (63, found.impossible)
    assert len(choose({axis: values[axis] for axis in list(values)[:4]}, "full", why_not, seed="any").rows) == 63
