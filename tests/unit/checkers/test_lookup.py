"""Transactions and sends are found by array accesses where that is possible: the same as by looking for each."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.checkers.groups.processing import _in_order
from prozess.checkers.lookup import UNREADABLE, ascends, differs_from_next, differs_from_previous, distinct
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.transactions.index import CellIndex, Transactions
from prozess.harness.columns import SharedRows, rows_of, taken
from prozess.harness.schema import NONE
from tests.support.examples import examples
from tests.unit.checkers.chunked.test_cell_parts import of_groups, of_transactions

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
CLIENTS = st.integers(1, 4)
NUMBERS = st.one_of(st.integers(0, 40), st.sampled_from([NONE, 1 << 35]))


@settings(QUICK, max_examples=examples(300))
@given(
    st.sets(st.tuples(CLIENTS, NUMBERS), max_size=40),
    st.lists(st.tuples(CLIENTS, st.lists(NUMBERS, min_size=1, max_size=50)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_a_transaction_is_found_wherever_its_row_is(rows, stretches, rng):
    written = rng.sample(sorted(rows), len(rows))
    table = {"client": np.array([c for c, _ in written], "i4"), "transaction": np.array([n for _, n in written], "i8")}
    transactions = Transactions(table)
    asked = [(client, number) for client, numbers in stretches for number in numbers]
    found = transactions.find(np.array([c for c, _ in asked], "i4"), np.array([n for _, n in asked], "i8"))
    expected = {row: place for place, row in enumerate(sorted(row for row in rows if row[1] != NONE))}
    assert found.tolist() == [expected.get(one, -1) for one in asked]


@given(st.sets(st.integers(0, 12)))
def test_rows_are_taken_and_those_that_follow_one_another_are_not_copied(rows):
    values, chosen = np.arange(100, 113), np.array(sorted(rows), dtype=np.intp)
    found = taken(values, chosen)
    assert found.tolist() == [100 + row for row in sorted(rows)]
    assert np.shares_memory(found, values) == (bool(rows) and max(rows) - min(rows) == len(rows) - 1)


def test_the_send_of_each_read_is_found_whatever_the_log_shows():
    where = {"as acknowledged": 0, "elsewhere": 0, "nowhere": 0}

    @settings(QUICK, max_examples=examples(200))
    @given(st.integers(0, 2**32))
    def check(seed):
        rng = random.Random(seed)
        history = rng.choice([of_groups, of_transactions])(rng)
        for partition in history.partitions.values():
            kept = np.array([rng.random() < 0.9 for _ in partition.sends["client"]], dtype=bool)
            sends = {name: values[kept] for name, values in partition.sends.items()}
            index = PartitionIndex(replace(partition, sends=sends))
            rows = np.array(
                sorted(rng.sample(range(len(index.read_key)), rng.randint(0, len(index.read_key)))), dtype=np.intp
            )
            found = index.send_of_read[rows]
            keys = {int(key): row for row, key in enumerate(index.send_key)}
            keys.pop(UNREADABLE, None)
            assert found.tolist() == [keys.get(int(key), -1) for key in index.read_key[rows]]
            there = found >= 0
            as_told = index.sends["log_offset"][found[there]] == index.reads["log_offset"][rows[there]]
            where["as acknowledged"] += int(np.count_nonzero(as_told))
            where["elsewhere"] += int(np.count_nonzero(~as_told))
            where["nowhere"] += int(np.count_nonzero(~there))

    check()
    assert min(where.values()) > 50, where


@settings(QUICK, max_examples=examples(100))
@given(st.integers(0, 2**32))
def test_where_v_shows_a_record_is_where_its_first_copy_stands(seed):
    history = of_transactions(random.Random(seed))
    index = CellIndex.of(history)
    for place, at in enumerate(index.visible_at.tolist()):
        partition = index.partitions[index.which[place]]
        key = partition.send_key[index.row[place]]
        assert at == next(iter(np.flatnonzero(partition.visible.key == key).tolist()), -1)


# ----------------------------------------------------------------------------------------------------------------------
# Rows of one partition, and finished steps in the order of the log, are found without sorting what is in order: the
# same rows as by sorting everything.


MANY = settings(deadline=None, max_examples=examples(300))


@MANY
@given(st.lists(st.sampled_from([-1, 0, 1, 2, 7, 1 << 16, 1 << 20]), max_size=40))
def test_rows_of_a_partition_are_the_same_whether_they_are_clustered_once_or_looked_for(partitions):
    rows = {"partition": np.array(partitions, dtype=np.int32)}
    shared = SharedRows(rows)
    for partition in {*partitions, 3}:
        assert rows_of(shared, partition).tolist() == rows_of(rows, partition).tolist()


@MANY
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=40), st.booleans(), st.data())
def test_steps_are_in_the_order_of_offsets_and_then_of_time_as_written_where_both_are_equal(steps, in_order, data):
    steps = sorted(steps) if in_order else steps
    table = {
        name: np.array([step[i] for step in steps], dtype=np.int64) for i, name in enumerate(("log_offset", "done_ns"))
    }
    table |= {
        name: np.full(len(steps), NONE) for name in ("sender", "sequence")
    }  # nothing distinguishes two records of an offset
    chosen = sorted(data.draw(st.sets(st.integers(0, len(steps) - 1)))) if steps else []
    rows = np.array(chosen, dtype=np.intp)
    expected = rows[np.lexsort((table["done_ns"][rows], table["log_offset"][rows]))]
    assert _in_order(table, rows).tolist() == expected.tolist()


@MANY
@given(st.lists(st.integers(-3, 9), max_size=30), st.booleans())
def test_different_values_ascend_whether_they_did_before_or_not(values, sort_first):
    array = np.array(sorted(values) if sort_first else values, dtype=np.int64)
    before = array.copy()
    assert distinct(array).tolist() == sorted(set(values))
    assert array.tolist() == before.tolist()
    assert ascends(np.sort(array))


@MANY
@given(st.lists(st.integers(0, 3), max_size=30))
def test_runs_of_one_value_begin_and_end_where_it_changes(values):
    array = np.array(values, dtype=np.int64)
    rows = range(len(values))
    assert differs_from_previous(array).tolist() == [i == 0 or values[i - 1] != values[i] for i in rows]
    assert differs_from_next(array).tolist() == [i == rows[-1] or values[i + 1] != values[i] for i in rows]
