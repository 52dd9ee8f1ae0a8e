"""Circles among transactions, as the second opinion finds them, against reachability by brute force."""

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from prozess.spark_checkers.oracle.circles import BY_WRITES, BY_WRITES_ALONE, circles_in, connected
from tests.unit.checkers.transactions.test_cycles_by_brute_force import circles

COLUMNS = ("somewhere", "client", "transaction", "on_client", "on_transaction", "kind")
NODES = st.tuples(st.integers(0, 3), st.integers(0, 4))


@given(st.lists(st.tuples(NODES, NODES).filter(lambda edge: edge[0] != edge[1]), max_size=40))
def test_sets_of_transactions_that_reach_one_another_are_those_of_brute_force(edges):
    found = connected(edges)
    assert {frozenset(members) for members in found} == circles(set(edges))
    assert sum(map(len, found)) == len(set().union(*found)), "no transaction is in two sets"


def edges(*rows):
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)})


def test_a_long_way_round_is_a_circle_and_a_way_there_is_none():
    length = 5_000
    there = [(7, 1, n, 1, n + 1, BY_WRITES_ALONE) for n in range(length)]
    assert circles_in("write-cycle", edges(*there)) == Counter()
    assert circles_in("write-cycle", edges(*there, (7, 1, length, 1, 0, BY_WRITES_ALONE))) == Counter(
        {(7, BY_WRITES_ALONE): 1}
    )


def test_the_order_of_writes_and_what_was_read_are_told_apart_and_so_are_levels_and_cells():
    written, read, uncommitted = (0, 1, 1, 2, 1, BY_WRITES_ALONE), (0, 2, 1, 1, 1, 0), (0, 2, 1, 1, 1, 1)
    assert circles_in("write-cycle", edges(written, read)) == Counter({(0, BY_WRITES): 1})
    assert circles_in("information-cycle", edges(read, (0, 1, 1, 2, 1, 1))) == Counter()
    back = (0, 1, 1, 2, 1, 1)
    assert circles_in("information-cycle", edges(uncommitted, back)) == Counter({(0, 1): 1})
    elsewhere = (9, *written[1:])
    assert circles_in("write-cycle", edges(elsewhere, read)) == Counter()
