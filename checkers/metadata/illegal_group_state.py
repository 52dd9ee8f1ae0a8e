"""This kernel holds what group coordinators wrote down of a group against the rules of the KIPs."""

from collections.abc import Mapping

import numpy as np

from prozess.checkers.metadata import kip_345, kip_848
from prozess.checkers.metadata.group_records import rows_of_kind
from prozess.harness.columns import SharedRows, empty_rows
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses, make_witnesses
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.schema import GROUP_STATES, NONE, GroupRecord

RULES = (*kip_345.RULES, *kip_848.RULES)
"""Every rule, in the order of the KIPs."""
assert len({rule.case for rule in RULES}) == len(RULES), "a case says which rule was broken"


def illegal_group_state(history: CellHistory) -> KernelResult:
    """What `__consumer_offsets` states of a consumer group follows from what it stated before, by the rules of the KIPs.

    Source: the words of each rule (`prozess.checkers.metadata.kip_345`, `kip_848`). Counts records that break a rule, and
    rows of partitions that two members have, once for each rule (`case`, GroupStateCase). A coordinator goes on from what it
    has written, whoever acknowledged it. Incomplete for a group of which the log says nothing. A group whose topic was made
    again is judged in the cell of the last one.

    Example: the log says that a owns p in epoch 5, then that b owns p in epoch 6, and a was not asked for p: OWNED_TWICE.
    Where the log is sound, and both clients report p (`two-owners`), it is the clients' fault.
    Example of a classic group: generation 5 of a and b, then generation 5 of a alone: GENERATION_REUSED.

    Witness: the record at `log_offset` of the partition `other_client` of `__consumer_offsets`, of `begin_ns`; `sequence` its
    epoch or generation, `other_sequence` that of the record that it contradicts, or its own; `reader`: number of the member,
    of a classic group that of its leader, NONE: the group.
    O(n log n) for n rows; the loop runs over rules and over partitions.
    """
    table = history.tables.get("group_states", empty_rows(GROUP_STATES))
    mine = np.flatnonzero(table["group"] == history.cell.cell)
    mine = mine[np.lexsort((mine, table["log_offset"][mine]))]
    rows = SharedRows({name: values[mine] for name, values in table.items()})
    first, found = history.cell.partitions[0], []
    for rule in RULES:
        bad, before = rule.broken(rows)
        partition = rows["partition"][bad]
        columns: dict[str, np.ndarray | int] = {
            "partition": np.where(partition < 0, first, partition),
            "case": int(rule.case),
            "log_offset": rows["log_offset"][bad],
            "other_client": rows["number"][bad],
            "begin_ns": rows["time_ns"][bad],
            "reader": rows["member"][bad],
            "sequence": rows["epoch"][bad],
            "other_sequence": rows["epoch"][before],
        }
        found.append(make_witnesses(len(bad), columns))
    witnesses = join_witnesses(found)
    reasons = []
    if isinstance(history.cell.work, GroupWork) and history.cell.life == 0 and not len(mine):
        reasons.append("no coordinator's log says anything about the group")
    if _torn(rows):
        reasons.append("rows of its records are missing, or say what no record does")
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), len(mine), incomplete="; ".join(reasons) or None)


def _torn(rows: Mapping[str, np.ndarray]) -> bool:
    """Returns whether a row belongs to no record of its group, or a record has another number of rows than it must."""
    held, own = rows_of_kind(rows, GroupRecord.OWNED, GroupRecord.RELEASING), rows_of_kind(rows, GroupRecord.MEMBER)
    classic, chosen = rows_of_kind(rows, GroupRecord.CLASSIC), rows_of_kind(rows, GroupRecord.CLASSIC_PROTOCOL)
    members = rows_of_kind(rows, GroupRecord.CLASSIC_MEMBER)
    if (rows["partition"][held] == NONE).any() or (rows["member"][members] == NONE).any():
        return True
    # A record has one row for its member or group; those of its partitions or members have the same offset, and epoch.
    for first, more, whose in ((own, held, "member"), (classic, np.append(chosen, members), "epoch")):
        records, count = np.unique([rows["log_offset"][first], rows[whose][first]], axis=1, return_counts=True)
        both = np.concatenate([records, [rows["log_offset"][more], rows[whose][more]]], axis=1)
        if (count > 1).any() or np.unique(both, axis=1).shape[1] > records.shape[1]:
            return True
    return len(np.unique(rows["log_offset"][chosen])) < len(chosen)
