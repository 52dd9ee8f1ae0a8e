"""Tests of the rules for groups of the classic protocols: each by a log that breaks it, all by a second model."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.group_log import read_group_log
from prozess.harness.interfaces.witnesses import GroupStateCase as Case
from prozess.harness.schema import NONE, GroupRecord
from tests.support.metadata_logs import put, unzipped
from tests.unit.checkers.metadata.test_illegal_group_state import Row, broken, group, judged, row

A, B, C = 0, 1, 2
CONSUMER, RANGE, CONNECT, COMPATIBLE, FIRST, SECOND = range(6)
Member = int | tuple[int, int]
"""A member's id, of a static member with the number of its group.instance.id."""
DELETED = [row(GroupRecord.CLASSIC_GONE)]
ENDED = [row(GroupRecord.GROUP_GONE)]
NEW = [row(GroupRecord.CLASSIC, 0)]
"""What ClassicGroup stores of a group that is new, before anybody has joined."""

COMMIT: list[Row] = []
"""A committed offset, which is no record of a group, and stands at an offset."""


def classic(
    generation: int,
    *members: Member,
    leader: int | None = None,
    protocol_type: int = CONSUMER,
    protocol: int | None = RANGE,
) -> list[Row]:
    """A record of a classic group. Its first member leads unless another one is named, and an empty group has no protocol."""
    of = [one if isinstance(one, tuple) else (one, NONE) for one in members]
    leads = leader if leader is not None else (of[0][0] if of else NONE)
    rows = [row(GroupRecord.CLASSIC, generation, member=leads, name=protocol_type)]
    if protocol is not None and members:
        rows.append(row(GroupRecord.CLASSIC_PROTOCOL, generation, name=protocol))
    return rows + [row(GroupRecord.CLASSIC_MEMBER, generation, member=member, name=instance) for member, instance in of]


@pytest.mark.parametrize(
    ("rule", "before", "breaks", "keeps"),
    [
        (Case.GENERATION_FELL, [classic(5, A)], classic(4, A), classic(6, A)),
        (Case.GENERATION_FELL, [classic(5, A)], classic(4), classic(5, A)),
        (Case.GENERATION_FELL, [classic(5)], NEW, classic(9, B)),
        (Case.GENERATION_REUSED, [classic(5, A, B)], classic(5, A), classic(6, A)),
        (Case.GENERATION_REUSED, [classic(5, A)], classic(5, A, B), classic(5, A)),
        (Case.GENERATION_REUSED, [classic(5, A)], classic(5, B), classic(6, B)),
        (Case.GENERATION_REUSED, [classic(5, A)], classic(5), classic(6)),
        (Case.GENERATION_REUSED, [classic(5, A, B)], classic(5, A, B, leader=B), classic(6, A, B, leader=B)),
        (
            Case.GENERATION_REUSED,
            [classic(5, A)],
            classic(5, A, protocol=COMPATIBLE),
            classic(6, A, protocol=COMPATIBLE),
        ),
        (Case.GENERATION_REUSED, [classic(5, (A, FIRST))], classic(5, (A, SECOND)), classic(5, (B, FIRST))),
        (Case.GENERATION_REUSED, [classic(5, (A, FIRST))], classic(5, A), classic(5, (C, FIRST))),
        (
            Case.TYPE_CHANGED,
            [classic(5, A)],
            classic(6, B, protocol_type=CONNECT),
            classic(7, B, protocol_type=CONNECT),
        ),
        (Case.TYPE_CHANGED, [classic(5, A)], classic(6, protocol_type=CONNECT), classic(6)),
        (Case.LEADER_NOT_MEMBER, [], classic(1, A, leader=B), classic(1, A, B, leader=B)),
        (Case.LEADER_NOT_MEMBER, [], classic(1, A, leader=NONE), classic(1, A)),
        (Case.NOTHING_CHOSEN, [], classic(1, A, protocol=None), classic(1, A)),
        (Case.NOTHING_CHOSEN, [], classic(1, A, protocol_type=NONE), classic(1)),
        (Case.NOTHING_CHOSEN, [], classic(0, A), NEW),
        (Case.LEFT_BEHIND, [], classic(1, leader=A), classic(1)),
        (Case.LEFT_BEHIND, [], [*classic(1), row(GroupRecord.CLASSIC_PROTOCOL, 1, name=RANGE)], classic(1)),
        (Case.MEMBER_TWICE, [], classic(1, A, A), classic(1, A, B)),
        (Case.MEMBER_TWICE, [], classic(1, (A, FIRST), (B, FIRST)), classic(1, (A, FIRST), (B, SECOND))),
        (Case.TWO_PROTOCOLS, [group(5)], classic(6, A), group(6)),
        (Case.TWO_PROTOCOLS, [classic(5, A)], group(6), classic(6, A)),
        (Case.TWO_PROTOCOLS, [classic(5)], group(6), DELETED),
        (Case.GENERATION_LOST, [group(5), ENDED], classic(4, A), classic(5, A)),
    ],
)
def test_a_rule_forbids_a_record_and_not_the_one_beside_it(rule, before, breaks, keeps):
    assert broken(*before, breaks) == [(rule, len(before))]
    assert broken(*before, keeps) == []


def test_a_group_goes_from_the_classic_protocol_to_the_other_and_back():
    upgraded = (NEW, classic(1, A), classic(2, A, B), DELETED, group(2), group(3))
    assert broken(*upgraded, ENDED, classic(3, A, B), classic(4, A)) == []
    assert broken(NEW, group(1)) == [], "a group that only keeps committed offsets is of either protocol"


def test_a_deleted_group_begins_anew():
    assert broken(classic(5, A), DELETED, classic(1, B, protocol_type=CONNECT)) == []
    assert broken(classic(5, A), DELETED, NEW, classic(1, A)) == []
    assert broken(group(5), ENDED, NEW, classic(1, A)) == [], "it is not converted, but new"


def test_a_deleted_consumer_group_that_got_committed_offsets_begins_anew_without_a_record_of_its_own():
    """GroupMetadataManager.classicGroupJoinToClassicGroup stores an empty group only if there was none."""
    assert broken(group(5), ENDED, COMMIT, classic(1, A)) == []
    assert broken(group(5), COMMIT, ENDED, classic(1, A)) == [(Case.GENERATION_LOST, 3)]


def test_the_type_may_change_while_the_group_is_empty():
    assert broken(classic(5), classic(6, A, protocol_type=CONNECT)) == []
    assert broken(classic(5), classic(6, protocol_type=CONNECT)) == [], "somebody joined, and left before an assignment"


def test_a_static_leader_leads_under_its_new_id():
    assert broken(classic(5, (A, FIRST), B), classic(5, (C, FIRST), B)) == []
    assert broken(classic(5, (A, FIRST), B), classic(5, (C, FIRST), B, leader=B)) == [(Case.GENERATION_REUSED, 1)]


@pytest.mark.parametrize(
    "change",
    [{"log_offset": 3}, {"epoch": 6}, {"kind": int(GroupRecord.CLASSIC)}, {"kind": int(GroupRecord.CLASSIC_PROTOCOL)}],
)
def test_rows_that_belong_to_no_record_make_it_incomplete(change):
    rows = [one | {"log_offset": 0} for one in classic(5, A, B)]
    assert judged(rows).incomplete is None
    assert judged([*rows[:-1], rows[-1] | change]).incomplete is not None
    assert judged(rows[1:]).incomplete == "rows of its records are missing, or say what no record does"


def test_a_member_without_an_id_makes_it_incomplete():
    rows = [one | {"log_offset": 0} for one in classic(5, A, B)]
    assert judged([*rows[:-1], rows[-1] | {"member": NONE}]).incomplete is not None


def test_a_witness_names_record_leader_and_both_generations():
    rows = [one | {"log_offset": 7} for one in classic(5, A)]
    rows += [one | {"log_offset": 9, "time_ns": 8} for one in classic(4, B)]
    (witness,) = judged(rows).witnesses
    names = ("log_offset", "begin_ns", "reader", "sequence", "other_sequence", "other_client")
    assert [int(witness[name]) for name in names] == [9, 8, B, 4, 5, 2]


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("classic-3.9.2", {"prozess-cell-002": 7, "prozess-cell-008": 9, "prozess-cell-005": 5}),
        ("migrations-4.4.0", {"g1": 31, "g2": 51, "g3": 23}),
    ],
)
def test_real_groups_break_no_rule(tmp_path, name, records):
    """Members came and went, a static one under another id; groups of 4.4.0 went from protocol to protocol and back."""
    (log,) = read_group_log({1: put("__consumer_offsets", tmp_path, 0, unzipped(f"{name}.log.gz"))}, on_problem=print)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(log.members + log.names))} | {"": NONE}
    partitions = {one: NONE - 1 - number for number, one in enumerate(dict.fromkeys(log.partitions))} | {None: NONE}
    for group_id, number in records.items():
        rows = [
            row(GroupRecord(kind), epoch)
            | {
                "log_offset": offset,
                "member": numbers[member],
                "name": numbers[named],
                "partition": partitions[partition],
            }
            for kind, epoch, offset, group_of, member, named, partition in zip(
                *(log.columns[column].tolist() for column in ("kind", "epoch", "log_offset")),
                *(log.groups, log.members, log.names, log.partitions),
                strict=True,
            )
            if group_of == group_id
        ]
        assert (len({one["log_offset"] for one in rows}), judged(rows).count, judged(rows).incomplete) == (
            number,
            0,
            None,
        )


# --- a second model, which goes through the log record by record


def naive(records: Sequence[Sequence[Row]]) -> list[tuple[Case, int]]:
    found = list[tuple[Case, int]]()
    last: dict[str, object] | None = None
    lived, epoch, gone = False, NONE, None
    for at, record in enumerate(records):
        if not record:
            continue
        kind = GroupRecord(record[0]["kind"])
        if kind == GroupRecord.GROUP_EPOCH:
            if lived and record[0]["epoch"] < epoch:
                found.append((Case.GROUP_EPOCH_FELL, at))
            if last is not None and (last["people"] or last["generation"] != 0):
                found.append((Case.TWO_PROTOCOLS, at))
            lived, epoch = True, record[0]["epoch"]
        elif kind == GroupRecord.GROUP_GONE:
            lived = False
        elif kind == GroupRecord.CLASSIC_GONE:
            last = None
        else:
            this = read(record)
            found += [(case, at) for case in alone(this)]
            found += [] if last is None else [(case, at) for case in follows(last, this)]
            if lived:
                found.append((Case.TWO_PROTOCOLS, at))
            if gone == at - 1 and epoch != NONE and this["people"] and this["generation"] < epoch:
                found.append((Case.GENERATION_LOST, at))
            last = this
        gone = at if kind == GroupRecord.GROUP_GONE else None
    return sorted(found)


def read(record):
    people = [
        ("static", one["name"]) if one["name"] != NONE else ("dynamic", one["member"])
        for one in record
        if one["kind"] == GroupRecord.CLASSIC_MEMBER
    ]
    ids = [one["member"] for one in record if one["kind"] == GroupRecord.CLASSIC_MEMBER]
    return {
        "generation": record[0]["epoch"],
        "type": record[0]["name"],
        "leader": record[0]["member"],
        "protocol": next((one["name"] for one in record if one["kind"] == GroupRecord.CLASSIC_PROTOCOL), None),
        "people": people,
        "leading": dict(zip(ids, people, strict=True)).get(record[0]["member"]),
    }


def alone(this):
    if this["people"]:
        if this["leading"] is None:
            yield Case.LEADER_NOT_MEMBER
        if this["protocol"] is None or this["type"] == NONE or this["generation"] == 0:
            yield Case.NOTHING_CHOSEN
    elif this["leader"] != NONE or this["protocol"] is not None:
        yield Case.LEFT_BEHIND
    if len(set(this["people"])) < len(this["people"]):
        yield Case.MEMBER_TWICE


def follows(last, this):
    grown = this["generation"] - last["generation"]
    if grown < 0:
        yield Case.GENERATION_FELL
    same = all(this[name] == last[name] for name in ("type", "protocol", "leading"))
    if grown == 0 and not (same and set(this["people"]) == set(last["people"])):
        yield Case.GENERATION_REUSED
    if grown <= 1 and last["people"] and this["type"] != last["type"]:
        yield Case.TYPE_CHANGED


people = st.one_of(st.integers(A, C), st.tuples(st.integers(A, C), st.sampled_from([FIRST, SECOND])))
generations = st.builds(
    lambda generation, members, more: classic(generation, *members, **more),
    st.integers(0, 4),
    st.lists(people, max_size=3, unique_by=lambda one: one[0] if isinstance(one, tuple) else one),
    st.fixed_dictionaries(
        {},
        optional={
            "leader": st.sampled_from([A, B, C, NONE]),
            "protocol_type": st.sampled_from([CONSUMER, CONNECT, NONE]),
            "protocol": st.sampled_from([RANGE, COMPATIBLE, None]),
        },
    ),
)
records = st.lists(
    st.one_of(
        generations,
        generations,
        generations,
        st.integers(0, 4).map(group),
        st.sampled_from([DELETED, ENDED, NEW, COMMIT]),
    ),
    max_size=12,
)


@given(records)
def test_the_rules_agree_with_a_model_that_goes_record_by_record(log):
    assert broken(*log) == naive(log)
    assert np.all(judged([]).count == 0)
