"""Rows of one partition, and finished steps in the order of the log, are found without sorting what is in order: the same
rows as by sorting everything."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.groups import _in_order
from checkers.lookup import ascends, distinct
from harness.columns import SharedRows, rows_of

QUICK = settings(deadline=None, derandomize=True, database=None, max_examples=300)


@QUICK
@given(st.lists(st.sampled_from([-1, 0, 1, 2, 7, 1 << 16, 1 << 20]), max_size=40))
def test_rows_of_a_partition_are_the_same_whether_they_are_clustered_once_or_looked_for(partitions):
    rows = {"partition": np.array(partitions, dtype=np.int32)}
    shared = SharedRows(rows)
    for partition in {*partitions, 3}:
        assert rows_of(shared, partition).tolist() == rows_of(rows, partition).tolist()


@QUICK
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=40), st.booleans(), st.data())
def test_steps_are_in_the_order_of_offsets_and_then_of_time_as_written_where_both_are_equal(steps, in_order, data):
    steps = sorted(steps) if in_order else steps
    table = {
        name: np.array([step[i] for step in steps], dtype=np.int64) for i, name in enumerate(("log_offset", "done_ns"))
    }
    chosen = sorted(data.draw(st.sets(st.integers(0, len(steps) - 1)))) if steps else []
    rows = np.array(chosen, dtype=np.intp)
    expected = rows[np.lexsort((table["done_ns"][rows], table["log_offset"][rows]))]
    assert _in_order(table, rows).tolist() == expected.tolist()


@QUICK
@given(st.lists(st.integers(-3, 9), max_size=30), st.booleans())
def test_different_values_ascend_whether_they_did_before_or_not(values, sort_first):
    array = np.array(sorted(values) if sort_first else values, dtype=np.int64)
    before = array.copy()
    assert distinct(array).tolist() == sorted(set(values))
    assert array.tolist() == before.tolist()
    assert ascends(np.sort(array))
