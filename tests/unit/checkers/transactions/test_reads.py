"""What transactions read inside themselves: each kernel finds its anomaly, and not the near miss; cycles agree with brute
force on small graphs."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.transactions.index import CellIndex
from prozess.checkers.transactions.isolation import (
    AT_READ_COMMITTED,
    AT_READ_UNCOMMITTED,
    BY_WRITES,
    BY_WRITES_ALONE,
    information_cycle,
    own_read,
    write_cycle,
)
from prozess.harness.guarantees.facts.witnessed import BY_WRITES_CASES
from prozess.harness.schema import Isolation
from tests.support.cells.partitions import CRASHED, FAIL, INFO, OK, PRODUCER, PRODUCER_2
from tests.support.cells.transactions import ABORT, COMMIT, A, cell_of, ended
from tests.support.examples import examples

ONE, TWO = PRODUCER, PRODUCER_2


def cell(a, b, transactions, *, level=Isolation.READ_COMMITTED):
    """As `cell_of`; producers are consumers of this level too."""
    made = cell_of(a, b, transactions)
    for partition in made.partitions.values():
        partition.client_isolation[[ONE, TWO, CRASHED]] = level
    return made


def at(reader, offset, client, sequence, time_ns):
    """A read by `reader` of a record, at a time."""
    return (reader, offset, client, sequence, {"read_ns": time_ns})


def both(first_reads=470, second_reads=490, outcome=OK, **columns):
    """Two transactions, open from 400 to 500; each reads the other's record."""
    a = {"sends": [(ONE, 0, OK, 0, 0)], "log": [(0, ONE, 0)], "reads": [at(TWO, 0, ONE, 0, second_reads)]}
    b = {"sends": [(TWO, 0, OK, 0, 0)], "log": [(0, TWO, 0)], "reads": [at(ONE, 0, TWO, 0, first_reads)]}
    return a, b, [ended(ONE, 0, OK), ended(TWO, 0, outcome, **columns)]


@pytest.mark.parametrize(
    ("level", "case"),
    [(Isolation.READ_COMMITTED, AT_READ_COMMITTED), (Isolation.READ_UNCOMMITTED, AT_READ_UNCOMMITTED)],
)
def test_a_transaction_that_is_given_its_own_record_is_found(level, case):
    a = {"sends": [(ONE, 0, OK, 0, 0)], "log": [(0, ONE, 0)], "reads": [at(ONE, 0, ONE, 0, 450)]}
    result = own_read(cell(a, {"sends": []}, [ended(ONE, 0, OK)], level=level))
    assert result.count == 1
    assert (result.witnesses["case"], result.witnesses["reader"], result.witnesses["log_offset"]) == (case, ONE, 0)


def test_to_read_ones_own_record_in_the_next_transaction_is_right():
    a = {"sends": [(ONE, 0, OK, 0, 0)], "log": [(0, ONE, 0)], "reads": [at(ONE, 0, ONE, 0, 650)]}
    result = own_read(cell(a, {"sends": []}, [ended(ONE, 0, OK), ended(ONE, 1, OK, at=700)]))
    assert (result.count, result.judged) == (0, 1)


def test_another_reader_of_it_is_no_own_read():
    a = {"sends": [(ONE, 0, OK, 0, 0)], "log": [(0, ONE, 0)], "reads": [at(TWO, 0, ONE, 0, 450)]}
    assert own_read(cell(a, {"sends": []}, [ended(ONE, 0, OK), ended(TWO, 0, OK)])).count == 0


def test_two_transactions_that_read_from_each_other_are_a_cycle():
    result = information_cycle(cell(*both(at=550)))
    assert (result.count, result.judged) == (1, 2)
    witness = result.witnesses[0]
    assert (witness["partition"], witness["client"], witness["reader"]) == (A, ONE, TWO)
    assert (witness["other_client"], witness["seen_ns"], witness["other_ns"]) == (TWO, 490, 470)
    assert witness["case"] == AT_READ_COMMITTED


def test_a_cycle_at_read_uncommitted_is_a_case_of_its_own():
    result = information_cycle(cell(*both(), level=Isolation.READ_UNCOMMITTED))
    assert result.witnesses["case"].tolist() == [AT_READ_UNCOMMITTED]


@pytest.mark.parametrize(("outcome", "by"), [(FAIL, ABORT), (INFO, COMMIT)], ids=["aborted", "in doubt, nowhere shown"])
def test_a_transaction_that_was_not_committed_is_in_no_cycle(outcome, by):
    a, b, transactions = both(outcome=outcome, by=by)
    made = cell(a, b | {"visible": []}, transactions, level=Isolation.READ_UNCOMMITTED)
    assert information_cycle(made).count == 0


def test_reads_one_after_the_other_are_no_cycle():
    a, b, transactions = both(second_reads=700, at=800)
    # The second transaction reads what the first had committed; the first read nothing of it.
    assert information_cycle(cell(a, b | {"reads": []}, transactions)).count == 0


def test_a_read_after_the_commit_was_asked_for_belongs_to_no_transaction():
    a, b, transactions = both(first_reads=550)
    result = information_cycle(cell(a, b, transactions))
    assert (result.count, result.judged) == (0, 1)


def test_interleaved_writes_are_a_cycle_of_writes_and_no_other():
    sends = [(ONE, 0, OK, 0, 0), (TWO, 0, OK, 1, 0), (ONE, 1, OK, 2, 0)]
    a = {"sends": sends, "log": [(0, ONE, 0), (1, TWO, 0), (2, ONE, 1)]}
    made = cell(a, {"sends": []}, [ended(ONE, 0, OK), ended(TWO, 0, OK)])
    found = write_cycle(made)
    assert (BY_WRITES, BY_WRITES_ALONE) == BY_WRITES_CASES
    assert (found.count, found.witnesses["case"].tolist()) == (1, [BY_WRITES_ALONE])
    assert information_cycle(made).count == 0


def test_writes_in_the_same_order_everywhere_are_none():
    a = {"sends": [(ONE, 0, OK, 0, 0), (TWO, 0, OK, 1, 0)], "log": [(0, ONE, 0), (1, TWO, 0)]}
    b = {"sends": [(ONE, 1, OK, 0, 0), (TWO, 1, OK, 5, 0)], "log": [(0, ONE, 1), (5, TWO, 1)]}
    made = cell(a, b, [ended(ONE, 0, OK), ended(TWO, 0, OK)])
    assert write_cycle(made).count == 0
    assert write_cycle(made).judged == 2


def test_nothing_recorded_is_nothing_judged():
    made = cell({"sends": []}, {"sends": []}, [])
    for kernel in (own_read, information_cycle, write_cycle):
        assert (kernel(made).count, kernel(made).judged) == (0, 0)


EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25)


@given(EDGES)
@settings(max_examples=examples(200), deadline=None)
def test_cycles_are_those_of_brute_force(pairs):
    """Transaction i is client ONE's number i, open all the time; an edge (i, j): j was given i's record."""
    writers = 7
    transactions = [ended(ONE, i, OK, at=1_000 * i + 500, begun_ns=1_000 * i) for i in range(writers)]
    sends = [(ONE, i, OK, i, i) for i in range(writers)]
    reads = sorted((at(ONE, w, ONE, w, 1_000 * r + 10) for w, r in pairs), key=lambda row: row[4]["read_ns"])
    made = cell(
        {"sends": sends, "log": [(i, ONE, i) for i in range(writers)], "reads": reads}, {"sends": []}, transactions
    )
    graph = nx.DiGraph([(w, r) for w, r in pairs if w != r])
    cyclic = [members for members in nx.strongly_connected_components(graph) if len(members) > 1]
    result = information_cycle(made)
    assert result.count == len(cyclic)
    assert own_read(made).count == len({w for w, r in pairs if w == r})
    for witness in result.witnesses:
        assert any({int(witness["sequence"]), int(witness["other_sequence"])} <= members for members in cyclic)
    assert len(CellIndex.of(made).transactions) == writers
