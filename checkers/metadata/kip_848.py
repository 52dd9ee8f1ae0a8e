"""KIP-848: epochs of a consumer group never fall, and a partition is a member's only after all others have given it up."""

import numpy as np

from prozess.checkers.lookup import differs_from_previous
from prozess.checkers.metadata.group_records import Columns, GroupRule, classic_records, last_before, rows_of_kind
from prozess.checkers.metadata.holders import held_twice, slots_of
from prozess.harness.interfaces.witnesses import GroupStateCase
from prozess.harness.schema import NONE, GroupRecord


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
    """Returns rows in which a member gets a partition that another one still has, and the rows that gave it to that one."""
    held = rows_of_kind(rows, GroupRecord.OWNED, GroupRecord.RELEASING)
    held = held[rows["partition"][held] != NONE]
    if not len(held):
        return held, held
    own = rows_of_kind(rows, GroupRecord.MEMBER, GroupRecord.MEMBER_GONE)
    _, until, at = slots_of(held, own, rows["member"])
    pairs = held_twice(held, until[at], rows["member"], rows["partition"][held])
    return pairs[:, 0], pairs[:, 1]


def _two_protocols(rows: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of one protocol while the group is one of the other, and the last row that says so. A group without
    members and generation only keeps committed offsets, and may become one of either protocol."""
    records = classic_records(rows)
    epochs = rows_of_kind(rows, GroupRecord.GROUP_EPOCH)
    other = last_before(rows, records.rows, GroupRecord.GROUP_EPOCH, GroupRecord.GROUP_GONE)
    bad = np.isin(other, epochs)
    real = (records.members > 0) | (records.generation > 0)
    classic = last_before(rows, epochs, GroupRecord.CLASSIC, GroupRecord.CLASSIC_GONE)
    both = np.isin(classic, records.rows[real])
    mine = np.concatenate([records.rows[bad], epochs[both]])
    order = np.argsort(mine)
    return mine[order], np.concatenate([other[bad], classic[both]])[order]


def _generation_lost(rows: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Returns records in which a consumer group goes on as a classic one, of a generation below its epoch, and that epoch.
    Conversion writes both in one batch. What was deleted, and then got committed offsets, is new, and begins at 1."""
    records = classic_records(rows)
    gone, epoch = (last_before(rows, records.rows, kind) for kind in (GroupRecord.GROUP_GONE, GroupRecord.GROUP_EPOCH))
    since = last_before(rows, records.rows, GroupRecord.CLASSIC, GroupRecord.CLASSIC_GONE, GroupRecord.GROUP_EPOCH)
    goes_on = (gone > since) & (epoch != NONE) & (records.members > 0)
    goes_on &= rows["log_offset"][gone] + 1 == rows["log_offset"][records.rows]
    bad = goes_on & (records.generation < rows["epoch"][epoch])
    return records.rows[bad], epoch[bad]


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
    GroupRule(
        GroupStateCase.TWO_PROTOCOLS,
        "KIP-848, 'Upgrade and Downgrade': the group is converted; GroupMetadataManager.convertToConsumerGroup and "
        "convertToClassicGroup write tombstones of what it was",
        _two_protocols,
    ),
    GroupRule(
        GroupStateCase.GENERATION_LOST,
        "ClassicGroup.fromConsumerGroup: the generation is the epoch of the consumer group; a new group has no members",
        _generation_lost,
    ),
)
