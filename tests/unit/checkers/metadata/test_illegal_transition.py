"""Tests of `prozess.checkers.metadata`: each rule by a log that breaks it and one that nearly does, all by a second model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.metadata.illegal import BROKER_RULES, FEATURE_RULES, RULES, SETTING_RULES, illegal_transition
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import TransitionCase as Case
from prozess.harness.schema import NONE, MetadataKind, MetadataSource
from tests.support.cells.partitions import CELL, PARTITION, history, mask, state_row, table

Row = dict[str, int]


def of_broker(position: int, node: int, kind: MetadataKind) -> Row:
    row = {"kind": int(kind), "source": int(MetadataSource.CONTROLLER_LOG), "time_ns": position}
    return row | {"log_position": position, "node": node}


def registered(position: int, *nodes: int) -> list[Row]:
    """KRaft registers a broker as a fenced one, in one record."""
    kinds = (MetadataKind.BROKER_REGISTERED, MetadataKind.BROKER_FENCED)
    return [of_broker(position, node, kind) for node in nodes for kind in kinds]


def unfenced(position: int, *nodes: int) -> list[Row]:
    return [of_broker(position, node, MetadataKind.BROKER_UNFENCED) for node in nodes]


def fenced(position: int, *nodes: int) -> list[Row]:
    return [of_broker(position, node, MetadataKind.BROKER_FENCED) for node in nodes]


UP = [*registered(-20, 1, 2, 3), *unfenced(-10, 1, 2, 3)]


def deleted(position: int, *, epoch: int) -> Row:
    row = state_row(position, leader=NONE, epoch=epoch, isr=()) | {"replicas": 0}
    return row | {"kind": int(MetadataKind.DELETED)}


def broken(rows: Iterable[Mapping[str, int]], brokers: Sequence[Mapping[str, int]] = UP) -> list[tuple[Case, int]]:
    """The rules that a log breaks, each with the position of the record."""
    partition = replace(history(), metadata=table("metadata", list(rows)))
    tables = {"metadata": table("metadata", brokers)}
    result = illegal_transition(CellHistory(cell=CELL, partitions={PARTITION: partition}, tables=tables, clients=()))
    assert result.count == len(result.witnesses)
    return [(Case(int(w["case"])), int(w["log_offset"])) for w in result.witnesses]


FIRST = state_row(0, leader=1, epoch=3, isr=(1, 2))


def then(position: int = 10, **changed: Any) -> Row:
    return state_row(position, **({"leader": 1, "epoch": 3, "isr": (1, 2)} | changed))


@pytest.mark.parametrize(
    ("rule", "breaks", "keeps"),
    [
        (Case.EPOCH_IS_NOT_NEXT, then(epoch=5), then(epoch=4)),
        (Case.EPOCH_IS_NOT_NEXT, then(epoch=2), then(epoch=3)),
        (Case.LEADER_WITHOUT_EPOCH, then(leader=2), then(leader=2, epoch=4)),
        (Case.LEADER_WITHOUT_EPOCH, then(leader=NONE), then(leader=NONE, epoch=4)),
        (Case.LEADER_NOT_IN_SYNC, then(isr=(2,)), then(isr=(1,))),
        (
            Case.IN_SYNC_WITHOUT_REPLICA,
            then(isr=(1, 2)) | {"replicas": mask((1, 3))},
            then(isr=(1, 2)) | {"replicas": 0},
        ),
        (Case.ELIGIBLE_AND_IN_SYNC, then(isr=(1, 2), elr=(2,)), then(isr=(1,), elr=(2,))),
        (Case.ELIGIBLE_FROM_NOWHERE, then(isr=(1,), elr=(3,)), then(isr=(1,), elr=(2,))),
        (Case.RECOVERS_AMONG_OTHERS, then() | {"recovering": 1}, then(isr=(1,)) | {"recovering": 1}),
    ],
)
def test_a_rule_forbids_a_change_and_not_the_one_beside_it(rule, breaks, keeps):
    assert broken([FIRST, breaks]) == [(rule, 10)]
    assert broken([FIRST, keeps]) == []


def test_a_leader_that_was_not_in_sync_recovers_or_is_a_finding():
    third = then(leader=3, epoch=4, isr=(3,))
    assert broken([FIRST, third]) == [(Case.UNCLEAN_AND_UNRECORDED, 10)]
    assert broken([FIRST, third | {"recovering": 1}]) == []
    assert broken([state_row(0, leader=1, epoch=3, isr=(1,), elr=(3,)), third]) == [], "it was eligible"
    assert broken([FIRST, third], brokers=[]) == [], "ZooKeeper's controllers do not write it down"


def test_the_end_of_a_reassignment_may_bring_its_leader_into_sync():
    moving = state_row(0, leader=1, epoch=3, isr=(1, 2)) | {"replicas": mask((1, 2, 3))}
    ended = state_row(10, leader=3, epoch=4, isr=(2, 3)) | {"replicas": mask((2, 3))}
    assert broken([moving, ended]) == []
    assert broken([moving, ended | {"replicas": moving["replicas"]}]) == [(Case.UNCLEAN_AND_UNRECORDED, 10)]


def test_only_the_leader_that_recovers_has_recovered():
    recovering = state_row(0, leader=1, epoch=3, isr=(1,)) | {"recovering": 1}
    assert broken([recovering, then(isr=(1,))]) == []
    both = {case for case, _ in broken([recovering, then(leader=2, epoch=4, isr=(2,))])}
    assert both == {Case.RECOVERED_BY_ANOTHER, Case.UNCLEAN_AND_UNRECORDED}


def test_nothing_comes_after_a_deleted_topic_but_another_topic():
    ended, later = deleted(10, epoch=3), then(20, leader=2, epoch=3)
    assert (Case.CHANGED_AFTER_ITS_END, 20) in broken([FIRST, ended, later])
    another = state_row(20, leader=2, epoch=0, isr=(2,)) | {"topic_id_low": 7}
    assert broken([FIRST, ended, another]) == []


def test_a_fenced_broker_comes_into_no_isr_and_is_elected_by_nobody():
    brokers = [*UP, *fenced(5, 3)]
    joins, leads = then(isr=(1, 2, 3)), then(leader=3, epoch=4, isr=(1, 3))
    assert broken([FIRST, joins], brokers) == [(Case.FENCED_BROKER_JOINS, 10)]
    assert broken([FIRST, joins], [*brokers, *unfenced(8, 3)]) == []
    assert broken([FIRST, joins], [*brokers, *unfenced(10, 3)]) == [], "what one decision writes has one time"
    found = {case for case, _ in broken([state_row(0, leader=1, epoch=3, isr=(1, 3)), leads], brokers)}
    assert found == {Case.FENCED_BROKER_ELECTED}


def test_a_broker_that_is_fenced_leads_nothing_from_then_on():
    handed_over = then(leader=2, epoch=4, isr=(2,))
    assert broken([FIRST, handed_over], [*UP, *fenced(10, 1)]) == []
    assert broken([FIRST, handed_over], [*UP, *fenced(9, 1)]) == [(Case.FENCED_BROKER_LEADS, 0)]
    assert broken([FIRST], [*UP, *fenced(9, 1)]) == [(Case.FENCED_BROKER_LEADS, 0)]
    assert broken([FIRST], [*UP, *fenced(9, 2)]) == []


def test_without_the_controllers_log_nothing_was_looked_at():
    partition = replace(history(), metadata=table("metadata", []))
    tables = {"metadata": table("metadata", [])}
    result = illegal_transition(CellHistory(cell=CELL, partitions={PARTITION: partition}, tables=tables, clients=()))
    assert (result.count, result.judged) == (0, 0)
    assert "the controllers' log says nothing about partition" in (result.incomplete or "")


def test_every_rule_names_a_kip_and_has_a_case_of_its_own():
    rules = (*RULES, *BROKER_RULES, *FEATURE_RULES, *SETTING_RULES)
    assert all(rule.source.startswith("KIP-") for rule in rules)
    assert {rule.case for rule in rules} == set(Case)


# --- a second model, which goes through the log record by record


def naive(rows: Sequence[Row], brokers: Sequence[Row]) -> list[tuple[Case, int]]:
    """The same rules, of one record after the other. All positions differ, or stand for one decision with one time."""
    kraft = {row["node"] for row in brokers if row["kind"] == MetadataKind.BROKER_REGISTERED}
    state: dict[int, Row] = {}
    found = list[tuple[Case, int]]()
    for row in rows:
        at, before = row["log_position"], state.get(row["topic_id_low"])
        earlier = [b for b in brokers if b["log_position"] < at]
        now = [b["node"] for b in brokers if b["log_position"] == at and b["kind"] == MetadataKind.BROKER_UNFENCED]
        out = {node for node in kraft if not was_free(earlier, node) and node not in now}
        found += [(case, at) for case in naive_state(row)]
        if before is not None:
            found += [
                (case, at) for case in (*naive_change(before, row, out), *naive_election(before, row, out, bool(kraft)))
            ]
        state[row["topic_id_low"]] = row
    # Who led when it was fenced: each state stands until the next of its topic, and the moment of that one is not part of it.
    fences = [
        (b["node"], b["log_position"])
        for k, b in enumerate(brokers)
        if b["kind"] == MetadataKind.BROKER_FENCED and was_free(brokers[:k], b["node"])
    ]
    for k, row in enumerate(rows):
        later = [r["log_position"] for r in rows[k + 1 :] if r["topic_id_low"] == row["topic_id_low"]]
        at, until = row["log_position"], min(later, default=1_000_000)
        fell = any(node == row["leader"] and at < when < until for node, when in fences)
        if fell and row["kind"] == MetadataKind.PARTITION:
            found.append((Case.FENCED_BROKER_LEADS, at))
    return sorted(found)


def was_free(earlier: Sequence[Row], node: int) -> bool:
    """What the record before says of the broker; a registration is no word of its fencing by itself."""
    own = [row for row in earlier if row["node"] == node]
    return bool(own) and own[-1]["kind"] == MetadataKind.BROKER_UNFENCED


def bits(value: int) -> set[int]:
    return {n for n in range(8) if value >> n & 1}


def naive_state(row: Row) -> Iterator[Case]:
    isr, elr = bits(row["isr"]), bits(row["elr"])
    if row["kind"] == MetadataKind.DELETED:
        return
    if row["leader"] != NONE and row["leader"] not in isr:
        yield Case.LEADER_NOT_IN_SYNC
    if row["replicas"] and not (isr | elr) <= bits(row["replicas"]):
        yield Case.IN_SYNC_WITHOUT_REPLICA
    if isr & elr:
        yield Case.ELIGIBLE_AND_IN_SYNC
    if row["recovering"] and len(isr) > 1:
        yield Case.RECOVERS_AMONG_OTHERS


def naive_change(before: Row, after: Row, out: set[int]) -> Iterator[Case]:
    if before["kind"] == MetadataKind.DELETED:
        yield Case.CHANGED_AFTER_ITS_END
    if after["kind"] == MetadataKind.DELETED:
        return
    if after["leader_epoch"] - before["leader_epoch"] not in (0, 1):
        yield Case.EPOCH_IS_NOT_NEXT
    if after["leader"] != before["leader"] and after["leader_epoch"] == before["leader_epoch"]:
        yield Case.LEADER_WITHOUT_EPOCH
    if not bits(after["elr"]) <= bits(before["isr"]) | bits(before["elr"]):
        yield Case.ELIGIBLE_FROM_NOWHERE
    if (bits(after["isr"]) - bits(before["isr"])) & out:
        yield Case.FENCED_BROKER_JOINS


def naive_election(before: Row, after: Row, out: set[int], kraft: bool) -> Iterator[Case]:
    leader = after["leader"]
    if leader in (NONE, before["leader"]):
        return
    moved = bits(after["isr"]) if bits(before["replicas"]) - bits(after["replicas"]) else set()
    if kraft and leader not in bits(before["isr"]) | bits(before["elr"]) | moved and not after["recovering"]:
        yield Case.UNCLEAN_AND_UNRECORDED
    if before["recovering"] and not after["recovering"]:
        yield Case.RECOVERED_BY_ANOTHER
    if leader in out:
        yield Case.FENCED_BROKER_ELECTED


nodes = st.integers(1, 3)
sets = st.lists(nodes, max_size=3)


@st.composite
def logs(draw):
    """Partition records and broker records at random positions; some share one, as what one decision writes does."""
    rows, brokers, at = list[Row](), list[Row](), 0
    if draw(st.booleans()):
        brokers += registered(-20, *draw(st.sets(nodes)))
    known = sorted({row["node"] for row in brokers})
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.integers(0, 1)) if brokers and brokers[-1]["log_position"] == at else 1
        if known and draw(st.booleans()):
            kind = draw(st.sampled_from([fenced, unfenced]))
            brokers += kind(at, draw(st.sampled_from(known)))
            continue
        if rows and rows[-1]["log_position"] == at:
            at += 1
        made = state_row(
            at,
            leader=draw(st.sampled_from([NONE, 1, 2, 3])),
            epoch=draw(st.integers(0, 3)),
            isr=draw(sets),
            elr=draw(sets),
        )
        made |= {
            "replicas": mask(draw(sets)),
            "recovering": draw(st.integers(0, 1)),
            "topic_id_low": draw(st.integers(7, 8)),
        }
        made |= {"topic_id_high": 0}
        if draw(st.integers(0, 5)) == 0:
            made |= {"kind": int(MetadataKind.DELETED)}
        rows.append(made)
    return rows, brokers


@given(logs())
def test_the_rules_agree_with_a_model_that_goes_record_by_record(log):
    rows, brokers = log
    assert sorted(broken(rows, brokers)) == naive(rows, brokers)
