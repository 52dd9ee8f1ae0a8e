"""KIP-848: epochs of a consumer group never fall, and a partition is a member's only after all others have given it up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.lookup import differs_from_previous
from prozess.harness.interfaces.witnesses import GroupStateCase
from prozess.harness.schema import NONE, GroupRecord

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class GroupRule:
    """A rule that the records of one consumer group must keep."""

    case: GroupStateCase
    source: str
    """The KIP with the words that say it."""
    broken: Callable[[Columns], tuple[NDArray[np.int64], NDArray[np.int64]]]
    """Returns the rows that break it, ascending, and of each the row that it contradicts."""


def rows_of_kind(rows: Columns, *kinds: GroupRecord) -> NDArray[np.int64]:
    """Returns the rows that state one of these, ascending."""
    return np.flatnonzero(np.isin(rows["kind"], kinds))


def _fell(rows: Columns, kind: GroupRecord, gone: GroupRecord | None, by: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows whose epoch is below that of the last one of the same group or member, and those last ones."""
    mine = rows_of_kind(rows, kind, *(() if gone is None else (gone,)))
    mine = mine[np.argsort(rows[by][mine], kind="stable")]
    epoch = rows["epoch"][mine]
    follows = np.append(False, ~differs_from_previous(rows[by][mine])[1:])[: len(mine)]
    before = np.append(NONE, epoch[:-1])[: len(mine)]
    # NONE: it was gone. -2: a static member is away (KIP-345).
    bad = np.flatnonzero(follows & (before >= 0) & (epoch >= 0) & (epoch < before))
    return mine[bad], mine[bad - 1]


def _beyond(
    rows: Columns, kind: GroupRecord, bound: GroupRecord, gone: GroupRecord | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows whose epoch is beyond that of the last row of the kind `bound`, and those rows."""
    bounds = rows_of_kind(rows, bound, *(() if gone is None else (gone,)))
    mine = rows_of_kind(rows, kind)
    last = np.searchsorted(bounds, mine) - 1
    mine, last = mine[last >= 0], bounds[last[last >= 0]] if len(bounds) else mine[:0]
    bad = (rows["epoch"][last] >= 0) & (rows["epoch"][mine] > rows["epoch"][last])
    return mine[bad], last[bad]


def _owned_twice(rows: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows in which a member gets a partition that another one still has, and the rows that gave it to that one.

    Example: a owns p from the record 5, b from the record 9, and a's next record is 12: b's at 9 is a witness, and a's at 5.
    Had a's next record been 8, without p, nobody had it at 9.
    """
    held = rows_of_kind(rows, GroupRecord.OWNED, GroupRecord.RELEASING)
    held = held[rows["partition"][held] != NONE]
    if not len(held):
        return held, held
    # What a member has, it has until its next record.
    own = rows_of_kind(rows, GroupRecord.MEMBER, GroupRecord.MEMBER_GONE)
    own = own[np.lexsort((own, rows["member"][own]))]
    until = np.append(own[1:], len(rows["kind"]))
    until[np.append(rows["member"][own][1:] != rows["member"][own][:-1], True)[: len(own)]] = len(rows["kind"])
    # Rows ascend by offset: within a record the member's own row comes first.
    key = rows["member"][own].astype(np.int64) * (len(rows["kind"]) + 1) + own
    at = np.searchsorted(key, rows["member"][held].astype(np.int64) * (len(rows["kind"]) + 1) + held) - 1
    ends = until[at]
    order = np.lexsort((held, rows["partition"][held]))
    held, ends = held[order], ends[order]
    found: list[tuple[int, int]] = []
    begins = np.flatnonzero(differs_from_previous(rows["partition"][held]))
    for first, last in zip(begins.tolist(), np.append(begins[1:], len(held)).tolist(), strict=True):
        found += _overlaps(held[first:last], ends[first:last], rows["member"])
    found.sort()
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _overlaps(begin: np.ndarray, end: np.ndarray, member: np.ndarray) -> list[tuple[int, int]]:
    """Returns which of these stretches of one partition begin within one of another member, and the first such one."""
    found = []
    reach = np.maximum.accumulate(end)
    # Stretches of one member never overlap: one that begins within the reach of those before it is within another member's.
    for index in (np.flatnonzero(begin[1:] < reach[:-1]) + 1).tolist():
        others = np.flatnonzero((end[:index] > begin[index]) & (member[begin[:index]] != member[begin[index]]))
        if len(others):
            found.append((int(begin[index]), int(begin[others[0]])))
    return found


RULES = (
    GroupRule(
        GroupStateCase.GROUP_EPOCH_FELL,
        "KIP-848, 'Group Epoch - Trigger a rebalance': the group epoch is incremented",
        lambda rows: _fell(rows, GroupRecord.GROUP_EPOCH, GroupRecord.GROUP_GONE, "group"),
    ),
    GroupRule(
        GroupStateCase.TARGET_EPOCH_FELL,
        "KIP-848, 'Assignment Epoch - Compute the group assignment': the target assignment has the epoch of its group",
        lambda rows: _fell(rows, GroupRecord.TARGET_EPOCH, GroupRecord.GROUP_GONE, "group"),
    ),
    GroupRule(
        GroupStateCase.MEMBER_EPOCH_FELL,
        "KIP-848, 'Member Epoch - Reconciliation of the group': a member goes on to the epoch of the target assignment",
        lambda rows: _fell(rows, GroupRecord.MEMBER, GroupRecord.MEMBER_GONE, "member"),
    ),
    GroupRule(
        GroupStateCase.TARGET_BEYOND_GROUP,
        "KIP-848, 'Assignment Epoch': the target assignment is computed for an epoch that the group has",
        lambda rows: _beyond(rows, GroupRecord.TARGET_EPOCH, GroupRecord.GROUP_EPOCH, GroupRecord.GROUP_GONE),
    ),
    GroupRule(
        GroupStateCase.MEMBER_BEYOND_TARGET,
        "KIP-848, 'Member Epoch': members converge to the target assignment, and not beyond",
        lambda rows: _beyond(rows, GroupRecord.MEMBER, GroupRecord.TARGET_EPOCH, GroupRecord.GROUP_GONE),
    ),
    GroupRule(
        GroupStateCase.OWNED_TWICE,
        "KIP-848, 'Reconciliation of the group': a partition is assigned once its old owner has revoked it",
        _owned_twice,
    ),
)
