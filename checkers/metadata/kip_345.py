"""KIP-345, and the classic protocols that it extends: what a group coordinator keeps of each generation of a group.

A generation is stored once its leader has assigned partitions, or nobody is left, so that not each one is in the log. What a
coordinator cannot store it forgets only as the members of that generation, and never as its number: after a failover
the last generation in the log goes on. A tombstone may follow any record, since the empty generation in front of it
may not have been stored.
"""

from collections.abc import Callable

import numpy as np

from prozess.checkers.metadata.group_records import ClassicRecords, Columns, GroupRule, classic_records
from prozess.harness.interfaces.witnesses import GroupStateCase
from prozess.harness.schema import NONE


def _each(forbids: Callable[[ClassicRecords], np.ndarray]) -> Callable[[Columns], tuple[np.ndarray, np.ndarray]]:
    """Returns the rows that break a rule for each record, beside the record before it, or itself. `forbids` → bool[n]."""

    def broken(rows: Columns) -> tuple[np.ndarray, np.ndarray]:
        records = classic_records(rows)
        bad = np.flatnonzero(forbids(records))
        return records.rows[bad], records.rows[bad - records.follows[bad]]

    return broken


def _grown(records: ClassicRecords) -> np.ndarray:
    return np.asarray(np.diff(records.generation, prepend=0))


def _is_other(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.diff(values, prepend=NONE) != 0)


def _fell(records: ClassicRecords) -> np.ndarray:
    """Generation 5, then 4."""
    return np.asarray(records.follows & (_grown(records) < 0))


def _reused(records: ClassicRecords) -> np.ndarray:
    """Generation 5, then 5 again with another member, leader or protocol. A static member may have got another id."""
    other = _is_other(records.protocol_type) | _is_other(records.protocol) | _is_other(records.leading)
    record, person = np.unique(records.member, axis=0).T
    goes_on = np.append(records.follows[1:], False)[record]
    # Members of this one and of the one before: a member that is there once is in one of the two.
    both = np.concatenate([[record, person], [record[goes_on] + 1, person[goes_on]]], axis=1)
    found, count = np.unique(both, axis=1, return_counts=True)
    other[found[0, count == 1]] = True
    return np.asarray(records.follows & (_grown(records) == 0) & other)


def _type_changed(records: ClassicRecords) -> np.ndarray:
    """Members of the type `consumer`, and those of the next generation are of `connect`: no generation between was empty."""
    had_members = np.append(0, records.members[:-1])[: len(records.members)] > 0
    return np.asarray(records.follows & (_grown(records) <= 1) & _is_other(records.protocol_type) & had_members)


def _leader_unknown(records: ClassicRecords) -> np.ndarray:
    return np.asarray((records.members > 0) & (records.leading == NONE))


def _not_chosen(records: ClassicRecords) -> np.ndarray:
    nothing = (records.protocol == NONE) | (records.protocol_type == NONE) | (records.generation < 1)
    return np.asarray((records.members > 0) & nothing)


def _left_behind(records: ClassicRecords) -> np.ndarray:
    return np.asarray((records.members == 0) & ((records.leader != NONE) | (records.protocol != NONE)))


def _member_twice(records: ClassicRecords) -> np.ndarray:
    people = np.unique(records.member, axis=0)[:, 0]
    return np.bincount(people, minlength=len(records.rows)) < records.members


RULES = (
    GroupRule(
        GroupStateCase.GENERATION_FELL,
        "GroupMetadata.initNextGeneration, ClassicGroup.initNextGeneration: generationId grows, and is loaded as stored",
        _each(_fell),
    ),
    GroupRule(
        GroupStateCase.GENERATION_REUSED,
        "KIP-345: a static member that comes back under another member.id needs no rebalance; anybody else who joins or "
        "leaves does",
        _each(_reused),
    ),
    GroupRule(
        GroupStateCase.TYPE_CHANGED,
        "GroupMetadata.supportsProtocols, ClassicGroup.supportsProtocols: until the group is empty, who joins has its type",
        _each(_type_changed),
    ),
    GroupRule(
        GroupStateCase.LEADER_NOT_MEMBER,
        "GroupMetadata.add, remove and replaceStaticMember, and those of ClassicGroup: the leader is one of the members",
        _each(_leader_unknown),
    ),
    GroupRule(
        GroupStateCase.NOTHING_CHOSEN,
        "GroupMetadataManager.groupMetadataValue, GroupCoordinatorRecordHelpers.newGroupMetadataRecord: with members "
        "a group is not written without a protocol",
        _each(_not_chosen),
    ),
    GroupRule(
        GroupStateCase.LEFT_BEHIND,
        "GroupMetadata and ClassicGroup, initNextGeneration and remove: an empty group has neither protocol nor leader",
        _each(_left_behind),
    ),
    GroupRule(
        GroupStateCase.MEMBER_TWICE,
        "KIP-345: group.instance.id is unique within a group; GroupMetadata.add, ClassicGroup.add",
        _each(_member_twice),
    ),
)
