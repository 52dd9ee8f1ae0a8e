"""This kernel holds what group coordinators wrote down of a consumer group against the rules of KIP-848."""

import numpy as np

from prozess.checkers.metadata.kip_848 import RULES, rows_of_kind
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses, make_witnesses
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.schema import GROUP_STATES, NONE, GroupRecord

assert len({rule.case for rule in RULES}) == len(RULES), "a case says which rule was broken"


def illegal_group_state(history: CellHistory) -> KernelResult:
    """What `__consumer_offsets` states of a consumer group follows from what it stated before, by the rules of KIP-848.

    Source: the words of each rule (`prozess.checkers.metadata.kip_848`). Counts records that break a rule, and rows of
    partitions that two members have, once for each rule (`case`, GroupStateCase). A coordinator goes on from what it has
    written, whoever acknowledged it. Incomplete for a group of this protocol of which the log says nothing. A group of the
    classic protocols has no such records. A group whose topic was made again is judged in the cell of the last one.

    Example: the log says that a owns p in epoch 5, then that b owns p in epoch 6, and a was not asked for p: OWNED_TWICE.
    Where the log is sound, and both clients report p (`two-owners`), it is the clients' fault.

    Witness: the record at `log_offset` of the partition `other_client` of `__consumer_offsets`, of `begin_ns`; `sequence` its
    epoch, `other_sequence` the epoch of the record that it contradicts; `reader`: number of the member, NONE: the group.
    O(n log n) for n rows; the loop runs over rules and over partitions.
    """
    table = history.tables.get("group_states", empty_rows(GROUP_STATES))
    mine = np.flatnonzero(table["group"] == history.cell.cell)
    mine = mine[np.lexsort((mine, table["log_offset"][mine]))]
    rows = {name: values[mine] for name, values in table.items()}
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
    if _has_protocol(history) and history.cell.life == 0 and not len(mine):
        reasons.append("no coordinator's log says anything about the group")
    held = rows_of_kind(rows, GroupRecord.OWNED, GroupRecord.RELEASING)
    own = rows_of_kind(rows, GroupRecord.MEMBER)
    # A record has one row for its member, and those of its partitions have the same offset.
    keys = [np.stack([rows["log_offset"][some], rows["member"][some]], axis=1) for some in (own, held)]
    records, count = np.unique(keys[0], axis=0, return_counts=True)
    strange = (count > 1).any() or (rows["partition"][held] == NONE).any()
    if strange or len(np.unique(np.concatenate([records, keys[1]]), axis=0)) > len(records):
        reasons.append("rows of its records are missing, or say what no record does")
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), len(mine), incomplete="; ".join(reasons) or None)


def _has_protocol(history: CellHistory) -> bool:
    work = history.cell.work
    return isinstance(work, GroupWork) and work.configuration.protocol == "consumer"
