"""This kernel holds what the controllers' log says of partitions, brokers, features and settings against rules of KIPs."""

from collections.abc import Collection, Mapping

import numpy as np

from prozess.checkers.metadata import (
    kip_101,
    kip_133,
    kip_497,
    kip_516,
    kip_584,
    kip_631,
    kip_704,
    kip_778,
    kip_841,
    kip_858,
    kip_966,
    kip_1022,
)
from prozess.checkers.metadata.broker_changes import broker_changes_of, is_torn
from prozess.checkers.metadata.changes import changes_of
from prozess.checkers.metadata.feature_changes import feature_changes_of
from prozess.harness.columns import empty_rows, joined, once
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, TransitionCase, join_witnesses, make_witnesses
from prozess.harness.schema import CLUSTER_STATES, METADATA, NONE, ClusterRecord

RULES = tuple(rule for kip in (kip_101, kip_497, kip_516, kip_631, kip_704, kip_841, kip_966) for rule in kip.RULES)
"""Every rule for partitions, in the order of the KIPs."""
BROKER_RULES = tuple(rule for kip in (kip_584, kip_631, kip_841, kip_858) for rule in kip.BROKER_RULES)
"""Every rule for brokers."""
FEATURE_RULES = (*kip_584.FEATURE_RULES, *kip_778.FEATURE_RULES, *kip_1022.FEATURE_RULES)
"""Every rule for features."""
SETTING_RULES = kip_133.SETTING_RULES
"""Every rule for settings of topics."""
_CASES = [rule.case for rule in (*RULES, *BROKER_RULES, *FEATURE_RULES, *SETTING_RULES)]
assert len(set(_CASES)) == len(_CASES), "a case says which rule was broken"


def illegal_transition(history: CellHistory) -> KernelResult:
    """What the controllers' log says of partitions, brokers, features and settings follows from what it stated before.

    Source: the words of each rule (`prozess.checkers.metadata`). Counts changes that a rule forbids, once for each such rule
    (`case`, TransitionCase). These but partitions are the cluster's: every cell shows what is wrong with them, in its first
    partition. Incomplete without the controllers' log.

    Example: leader 1 in epoch 3 with {1, 2} in sync, then leader 3 in epoch 4 with {3}. KIP-101 permits it: the epoch grew by
    one. KIP-704 does not, unless the record says that 3 recovers: 3 was not in sync.

    Witness: the record at `log_offset` of the controllers' log, of `begin_ns`: `reader` leads in epoch `sequence`; before,
    `other_client` led in epoch `other_sequence`. For brokers: the record is about `reader` in broker epoch `sequence`, and
    before, its epoch was `other_sequence`; for features these are levels. O(n log n) for n changes, times brokers.
    """
    brokers = history.tables.get("metadata", empty_rows(METADATA))
    odd, judged = _not_legal(history.partitions, brokers)
    found, reasons = list[np.ndarray](), list[str]()
    first = min(history.cell.partitions, default=NONE)
    if first in history.partitions:
        states = history.tables.get("cluster_states", empty_rows(CLUSTER_STATES))
        of_cluster, records, torn = once(states, _of_cluster, lambda: _of_cluster(states))
        found.append(of_cluster.copy())
        found[0]["partition"] = first
        judged += records
        if torn:
            reasons.append("rows about brokers are missing, or say what no record does")
    for number in odd:
        table = history.partitions[number].metadata
        changes = changes_of(table, brokers)
        judged += len(changes.rows)
        if not len(changes.rows):
            reasons.append(f"the controllers' log says nothing about partition {number}")
        for rule in RULES:
            bad = np.flatnonzero(rule.forbids(changes))
            columns: dict[str, np.ndarray | int] = {
                "partition": number,
                "case": int(rule.case),
                "log_offset": table["log_position"][changes.rows[bad]],
                "begin_ns": changes.time_ns[bad],
                "reader": changes.after.leader[bad],
                "other_client": changes.before.leader[bad],
                "sequence": changes.after.epoch[bad],
                "other_sequence": changes.before.epoch[bad],
            }
            found.append(make_witnesses(len(bad), columns))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, incomplete="; ".join(reasons) or None)


def _of_cluster(states: Mapping[str, np.ndarray]) -> tuple[np.ndarray, int, bool]:
    """Returns the witnesses of all but partitions, how many records there are, and whether rows are missing."""
    brokers = broker_changes_of(states)
    features = feature_changes_of(brokers)
    epoch = np.where(brokers.before.there, brokers.before.epoch, NONE)
    found = [
        _witnesses(brokers.table, brokers.rows, rule.forbids(brokers), rule.case, brokers.after.epoch, epoch)
        for rule in BROKER_RULES
    ]
    found += [
        _witnesses(features.table, features.rows, rule.forbids(features), rule.case, features.level, features.before)
        for rule in FEATURE_RULES
    ]
    rows = np.flatnonzero(brokers.table["kind"] == ClusterRecord.CONFIGURED)
    settings, none = {name: column[rows] for name, column in brokers.table.items()}, np.full(len(rows), NONE)
    found += [_witnesses(brokers.table, rows, rule.forbids(settings), rule.case, none, none) for rule in SETTING_RULES]
    return join_witnesses(found), len(brokers.rows) + len(features.rows) + len(rows), is_torn(brokers)


def _witnesses(
    table: Mapping[str, np.ndarray],
    rows: np.ndarray,
    forbidden: np.ndarray,
    case: TransitionCase,
    sequence: np.ndarray,
    before: np.ndarray,
) -> np.ndarray:
    bad = np.flatnonzero(forbidden)
    columns: dict[str, np.ndarray | int] = {
        "case": int(case),
        "log_offset": table["log_offset"][rows[bad]],
        "begin_ns": table["time_ns"][rows[bad]],
        "reader": table["node"][rows[bad]],
        "sequence": sequence[bad],
        "other_sequence": before[bad],
    }
    return make_witnesses(len(bad), columns)


def _not_legal(
    partitions: Mapping[int, PartitionHistory], brokers: Mapping[str, np.ndarray]
) -> tuple[Collection[int], int]:
    """Returns the partitions that must be looked at one by one, and how many changes the others have, all of them legal."""
    if len(partitions) == 1:
        return partitions.keys(), 0
    numbers = np.array(list(partitions))
    table, owner = joined([one.metadata for one in partitions.values()], METADATA.column_names)
    changes = changes_of(table, brokers, owner)
    owner = owner[changes.rows]
    if not np.array_equal(changes.time_ns, table["time_ns"][changes.rows]):
        return (
            partitions.keys(),
            0,
        )  # clocks go back in the log: times of one partition would depend on the rows of others
    odd = np.bincount(owner, minlength=len(numbers)) == 0
    for rule in RULES:
        odd[owner[rule.forbids(changes)]] = True
    return numbers[odd].tolist(), int(np.count_nonzero(~odd[owner]))
