"""Tests of `prozess.checkers.metadata.graph`: what a log went through, and what the rules permit."""

import pytest

from prozess.checkers.metadata.changes import changes_of
from prozess.checkers.metadata.graph import NAMES, permitted, table_of, taken
from prozess.checkers.metadata.transaction_changes import records_of
from prozess.checkers.metadata.transaction_graph import name_of, states_permitted, states_taken
from prozess.harness.schema import NONE, TRANSACTION_STATES, MetadataKind, TransactionState
from tests.support.cells.partitions import mask, state_row, table
from tests.support.cells.transactions import columns_of

ALL = mask((1, 2, 3))
LOG = [
    state_row(0, leader=1, epoch=0, isr=(1, 2, 3)),
    state_row(1, leader=1, epoch=0, isr=(1, 2)),
    state_row(2, leader=1, epoch=0, isr=(1,)),
    state_row(3, leader=NONE, epoch=1, isr=(1,)),
    state_row(4, leader=2, epoch=2, isr=(2,)) | {"recovering": 1},
    state_row(5, leader=2, epoch=2, isr=(2,), elr=(3,)),
    state_row(6, leader=NONE, epoch=3, isr=(), elr=(2, 3)),
    state_row(7, leader=NONE, epoch=3, isr=()),
    state_row(8, leader=NONE, epoch=3, isr=()) | {"kind": int(MetadataKind.DELETED)},
]


def test_each_state_has_its_name_and_each_change_is_counted():
    edges = taken(changes_of(table("metadata", LOG), table("metadata", [])))
    assert list(edges.values()) == [1] * 8
    followed = {before: after for before, after in edges}
    path = ["all in sync"]
    while (after := followed.get(path[-1])) is not None:
        path.append(after)
    assert path == [
        "all in sync", "some in sync", "leader alone", "nobody leads, some in sync", "recovering", "others eligible",
        "nobody leads, some eligible", "nobody leads, nobody eligible", "deleted",
    ]  # fmt: skip
    assert set(path) == set(NAMES)


def test_the_graph_of_the_rules_lacks_what_a_rule_forbids():
    graph = permitted()
    assert list(graph) == list(NAMES)
    assert not list(graph.out_edges("deleted")), "KIP-516"
    assert not graph.has_edge("leader alone", "others eligible"), "KIP-966: they were in sync before, or eligible"
    assert graph.has_edge("some in sync", "others eligible")
    assert not graph.has_edge("nobody leads, nobody eligible", "leader alone"), "KIP-704: that leader recovers"
    assert graph.has_edge("nobody leads, nobody eligible", "recovering")


def test_the_table_tells_what_was_never_taken_from_what_is_forbidden():
    graph = permitted()
    rows = table_of(graph, {("all in sync", "some in sync"): 1234}).splitlines()
    assert len(rows) == 2 + len(NAMES)
    assert rows[2].startswith("| all in sync | 0 | 1,234 | 0 |")
    assert rows[-1] == "| deleted |" + "  |" * len(NAMES)


@pytest.mark.parametrize("replicas", [mask((1, 2)), ALL])
def test_a_leader_is_alone_or_has_all_in_sync_by_the_replicas_that_there_are(replicas):
    rows = [
        row | {"replicas": replicas} for row in (state_row(0, leader=1, epoch=0, isr=(1, 2)), LOG[2] | {"time_ns": 2})
    ]
    (edge,) = taken(changes_of(table("metadata", rows), table("metadata", [])))
    assert edge == ("all in sync" if replicas != ALL else "some in sync", "leader alone")


def test_the_graph_of_transactions_has_a_decision_between_open_and_complete():
    graph = states_permitted()
    assert list(graph) == [name_of(state) for state in TransactionState]
    for end in ("commit", "abort"):
        assert set(graph.successors(f"prepare {end}")) == {f"prepare {end}", f"complete {end}"}
        assert not graph.has_edge("ongoing", f"complete {end}")
    assert set(graph.predecessors("ongoing")) == {"empty", "ongoing", "complete commit", "complete abort"}
    assert graph.has_edge("complete commit", "prepare abort"), "KIP-890: an abort of nothing raises the epoch"
    assert not graph.has_edge("complete commit", "prepare commit")
    assert not graph.has_edge("forgotten", "prepare abort")


def test_each_record_of_a_planned_id_is_counted_behind_the_one_before_it():
    path = [TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_COMMIT]
    rows = [{"log_offset": n, "transactional_id": 1, "state": int(state)} for n, state in enumerate(path)]
    rows.append({"log_offset": 3, "transactional_id": NONE})
    counts = states_taken(records_of(columns_of(TRANSACTION_STATES, rows)))
    assert counts == {("forgotten", "empty"): 1, ("empty", "ongoing"): 1, ("ongoing", "prepare commit"): 1}
