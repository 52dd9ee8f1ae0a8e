"""Tests of the rules for consumer groups in `__consumer_offsets`: each by a log that breaks it, all by a second model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.metadata.illegal_group_state import RULES, illegal_group_state
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import GroupStateCase as Case
from prozess.harness.schema import NONE, GroupRecord
from tests.support.cells.partitions import CELL, PARTITION, history, table

P, Q = PARTITION, PARTITION + 1
A, B = 0, 1
Row = dict[str, int]


def judged(rows: Sequence[Row], cell=CELL) -> KernelResult:
    partitions = {p: replace(history(), partition=p) for p in (P, Q)}
    cell = cell.model_copy(update={"partitions": (P, Q)})
    tables = {"group_states": table("group_states", rows)}
    result = illegal_group_state(CellHistory(cell=cell, partitions=partitions, tables=tables, clients=()))
    assert result.count == len(result.witnesses)
    return result


def broken(*records: Sequence[Row]) -> list[tuple[Case, int]]:
    """The rules that records break, each with the offset of the record. Record n is at offset n."""
    rows = [row | {"log_offset": n} for n, record in enumerate(records) for row in record]
    return sorted((Case(int(w["case"])), int(w["log_offset"])) for w in judged(rows).witnesses)


def row(kind: GroupRecord, epoch: int = NONE, **more: int) -> Row:
    return {
        "group": CELL.cell,
        "kind": int(kind),
        "epoch": epoch,
        "member": NONE,
        "partition": NONE,
        "name": NONE,
        "number": 2,
    } | more


def group(epoch: int) -> list[Row]:
    return [row(GroupRecord.GROUP_EPOCH, epoch)]


def target(epoch: int) -> list[Row]:
    return [row(GroupRecord.TARGET_EPOCH, epoch)]


def member(name: int, epoch: int, *owned: int, releasing: Sequence[int] = ()) -> list[Row]:
    rows = [row(GroupRecord.OWNED, epoch, member=name, partition=p) for p in owned]
    rows += [row(GroupRecord.RELEASING, epoch, member=name, partition=p) for p in releasing]
    return [row(GroupRecord.MEMBER, epoch, member=name), *rows]


def gone(name: int) -> list[Row]:
    return [row(GroupRecord.MEMBER_GONE, member=name)]


ENDED = [row(GroupRecord.GROUP_GONE)]
BEGUN = (group(5), target(5))


def test_a_partition_goes_from_member_to_member_once_it_was_given_up():
    moved = (member(A, 5, P, Q), group(6), target(6), member(A, 5, P, releasing=[Q]), member(B, 6), member(A, 6, P))
    assert broken(*BEGUN, *moved, member(B, 6, Q)) == []
    assert broken(*BEGUN, *moved[:-1], member(B, 6, Q)) == [(Case.OWNED_TWICE, 7)], (
        "A was asked for it, and has it still"
    )
    assert broken(*BEGUN, member(A, 5, P), gone(A), member(B, 5, P)) == []
    assert broken(*BEGUN, member(A, 5, P), member(B, 5, P, Q)) == [(Case.OWNED_TWICE, 3)]
    assert broken(*BEGUN, member(A, 5, P), member(A, 5, P)) == []


def test_each_record_that_takes_from_the_same_member_is_one():
    found = broken(*BEGUN, member(A, 5, P), member(B, 5, P), member(2, 5, P))
    assert found == [(Case.OWNED_TWICE, 3), (Case.OWNED_TWICE, 4)]


@pytest.mark.parametrize(
    ("rule", "before", "breaks", "keeps"),
    [
        (Case.GROUP_EPOCH_FELL, [], group(4), group(6)),
        (Case.GROUP_EPOCH_FELL, [], group(4), group(5)),
        (Case.TARGET_EPOCH_FELL, [], target(4), target(5)),
        (Case.TARGET_BEYOND_GROUP, [], target(6), target(5)),
        (Case.MEMBER_EPOCH_FELL, [member(A, 5)], member(A, 4), member(B, 4)),
        (Case.MEMBER_EPOCH_FELL, [member(A, 5)], member(A, 0), member(A, -2)),
        (Case.MEMBER_BEYOND_TARGET, [group(6)], member(A, 6), member(A, 5)),
    ],
)
def test_a_rule_forbids_a_record_and_not_the_one_beside_it(rule, before, breaks, keeps):
    begun = [*BEGUN, *before]
    assert broken(*begun, breaks) == [(rule, len(begun))]
    assert broken(*begun, keeps) == []


def test_what_is_gone_begins_anew():
    assert broken(*BEGUN, member(A, 5), gone(A), member(A, 2)) == []
    assert broken(*BEGUN, ENDED, group(1), target(1), member(A, 1)) == []
    assert broken(*BEGUN, member(A, 5), member(A, -2), member(A, 4)) == [], "a static member that comes back"


def test_what_other_groups_do_is_nothing_to_this_one():
    others = [one | {"group": CELL.cell + 1} for one in (*group(9), *member(B, 9, P))]
    assert broken(*BEGUN, member(A, 5, P), others, group(5)) == []


def test_a_partition_of_a_topic_that_is_gone_has_one_owner_too():
    gone, another = NONE - 1, NONE - 2
    assert broken(*BEGUN, member(A, 5, gone), member(B, 5, another)) == []
    found = judged([one | {"log_offset": n} for n in (A, B) for one in member(n, 5, gone)]).witnesses
    assert [(int(w["case"]), int(w["partition"])) for w in found] == [(Case.OWNED_TWICE, P)]


@pytest.mark.parametrize(
    "change", [{"member": B}, {"log_offset": 3}, {"kind": int(GroupRecord.MEMBER)}, {"partition": NONE}]
)
def test_rows_that_belong_to_no_record_make_it_incomplete(change):
    rows = [one | {"log_offset": 0} for one in member(A, 5, P)]
    assert judged(rows).incomplete is None
    assert (
        judged([rows[0], rows[1] | change]).incomplete == "rows of its records are missing, or say what no record does"
    )
    assert judged(rows[1:]).incomplete == "rows of its records are missing, or say what no record does"


def test_a_witness_names_record_member_and_what_it_contradicts():
    begun = (group(5), target(5), member(A, 5, P))
    rows = [one | {"log_offset": n, "time_ns": 7} for n, record in enumerate(begun) for one in record]
    rows += [one | {"log_offset": 9, "time_ns": 8} for one in member(B, 4, P)]
    (witness,) = judged(rows).witnesses
    names = ("partition", "log_offset", "begin_ns", "reader", "sequence", "other_sequence", "other_client")
    assert [int(witness[name]) for name in names] == [P, 9, 8, B, 4, 5, 2]


def test_every_rule_names_a_kip_or_what_kafka_does_and_has_a_case_of_its_own():
    known = ("KIP-", "GroupMetadata", "ClassicGroup.")
    assert all(rule.source.startswith(known) for rule in RULES)
    assert {rule.case for rule in RULES} == set(Case)


# --- a second model, which goes through the log record by record


def naive(records: Sequence[Sequence[Row]]) -> list[tuple[Case, int]]:
    found = list[tuple[Case, int]]()
    group_epoch, target_epoch = NONE, NONE
    epochs, has = dict[int, int](), dict[int, set[int]]()
    for at, record in enumerate(records):
        first = record[0]
        kind, epoch, name = GroupRecord(first["kind"]), first["epoch"], first["member"]
        if kind == GroupRecord.GROUP_GONE:
            group_epoch = target_epoch = NONE
        elif kind == GroupRecord.GROUP_EPOCH:
            found += [(Case.GROUP_EPOCH_FELL, at)] if epoch < group_epoch else []
            group_epoch = epoch
        elif kind == GroupRecord.TARGET_EPOCH:
            found += [(Case.TARGET_EPOCH_FELL, at)] if epoch < target_epoch else []
            found += [(Case.TARGET_BEYOND_GROUP, at)] if NONE != group_epoch < epoch else []
            target_epoch = epoch
        elif kind == GroupRecord.MEMBER_GONE:
            epochs[name] = NONE
            has[name] = set()
        else:
            found += [(Case.MEMBER_EPOCH_FELL, at)] if 0 <= epoch < epochs.get(name, NONE) else []
            found += [(Case.MEMBER_BEYOND_TARGET, at)] if NONE != target_epoch < epoch else []
            epochs[name] = epoch
            mine = [one["partition"] for one in record[1:]]
            for partition in mine:
                taken = any(partition in held for other, held in has.items() if other != name)
                found += [(Case.OWNED_TWICE, at)] if taken else []
            has[name] = set(mine)
    return sorted(found)


members = st.builds(
    lambda name, epoch, owned, releasing: member(
        name, epoch, *owned, releasing=sorted({P, Q} - set(owned))[:releasing]
    ),
    st.integers(0, 2),
    st.integers(-2, 4).filter(lambda epoch: epoch != NONE),
    st.sets(st.sampled_from([P, Q])),
    st.integers(0, 1),
)
records = st.lists(
    st.one_of(
        members,
        members,
        st.integers(0, 4).map(group),
        st.integers(0, 4).map(target),
        st.integers(0, 2).map(gone),
        st.just(ENDED),
    ),
    max_size=12,
)


@given(records)
def test_the_rules_agree_with_a_model_that_goes_record_by_record(log):
    assert broken(*log) == naive(log)
    assert np.all(judged([]).count == 0)
