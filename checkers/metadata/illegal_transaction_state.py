"""This kernel holds each record of the transaction log against the rules of the KIPs."""

import numpy as np

from prozess.checkers.metadata import kip_98, kip_890
from prozess.checkers.metadata.transaction_changes import TransactionChanges, TransactionRecords, records_of
from prozess.harness.columns import empty_rows, once
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses, make_witnesses
from prozess.harness.schema import MISSING, NONE, TRANSACTION_STATES

RULES = (*kip_98.RULES, *kip_890.RULES)
"""Every rule, in the order of the KIPs."""
assert len({rule.case for rule in RULES}) == len(RULES), "a case says which rule was broken"


def illegal_transaction_state(history: CellHistory) -> KernelResult:
    """What the transaction log says of a transactional.id follows from what it stated before, by the rules of the KIPs.

    Source: the words of each rule (`prozess.checkers.metadata`). Counts records that a rule forbids, once for each such rule
    (`case`, TransactionCase). A record that follows from an earlier one by every rule is none of them, if the appends
    between may have failed: a coordinator that cannot append goes on from its last decision, while the record stays in the
    log. Incomplete where an id was initialised, and the log has no record of it, or has a hole.

    Example: PREPARE_COMMIT, then PREPARE_ABORT 30 ms later: TAKEN_BACK. With 4 s between them, and ONGOING in front, the
    commit may have failed: no finding. Behind it COMPLETE_COMMIT: UNDECIDED, and TAKEN_BACK.

    Witness: the record at `log_offset` of the partition `reader` of `__transaction_state`, of `begin_ns`: `client` is the
    first that has the transactional.id; `sequence` and `other_sequence` are the producer epochs of it, and before it.
    O(n log n) for n records; the loop runs over rules and over appends in a row that failed.
    """
    table = history.tables.get("transaction_states", empty_rows(TRANSACTION_STATES))
    records = once(table, TransactionRecords, lambda: records_of(table))
    own = history.tables["clients"]["client"]
    mine = np.flatnonzero(np.isin(records.client, own))
    found = []
    changes = records.changes(mine, records.previous[mine])
    forbids = [rule.forbids(changes) for rule in RULES]
    unexplained = records.seen[mine] & ~_follows(records, mine, ~np.any(forbids, axis=0))
    for rule, forbidden_by_it in zip(RULES, forbids, strict=True):
        bad = np.flatnonzero(unexplained & forbidden_by_it)
        rows = records.rows[mine[bad]]
        columns: dict[str, np.ndarray | int] = {
            "partition": history.cell.partitions[0],
            "case": int(rule.case),
            "client": records.client[mine[bad]],
            "log_offset": table["log_offset"][rows],
            "begin_ns": table["time_ns"][rows],
            "reader": table["number"][rows],
            "sequence": changes.after.producer_epoch[bad],
            "other_sequence": changes.before.producer_epoch[bad],
        }
        found.append(make_witnesses(len(bad), columns))
    witnesses = join_witnesses(found)
    return KernelResult(
        witnesses[:WITNESSES_MAX],
        len(witnesses),
        judged=int(records.seen[mine].sum()),
        incomplete=_incomplete(history, own, records, mine),
    )


def _follows(records: TransactionRecords, mine: np.ndarray, at_once: np.ndarray) -> np.ndarray:
    """Returns whether each entry follows from the record before it (`at_once`), or from one in front of appends that may have
    failed."""
    follows = at_once.copy()
    left = np.flatnonzero(~follows)
    before = records.previous[mine[left]]
    while len(left):
        may = (before != NONE) & records.given_up[before]
        left, before = left[may], records.previous[before[may]]
        explained = ~forbidden(records.changes(mine[left], before))
        follows[left[explained]] = True
        left, before = left[~explained], before[~explained]
    return follows


def forbidden(changes: TransactionChanges) -> np.ndarray:
    """Returns whether any rule forbids each of these changes (bool)."""
    return np.asarray(np.any([rule.forbids(changes) for rule in RULES], axis=0))


def _incomplete(history: CellHistory, own: np.ndarray, records: TransactionRecords, mine: np.ndarray) -> str | None:
    calls = history.tables["transactions"]
    there = (calls["transaction"] == NONE) & (calls["initialised_ns"] != MISSING)
    # One fencer serves all cells, and initialises the ids of each.
    silent = np.setdiff1d(np.intersect1d(calls["transactional_id"][there], own), records.client[mine])
    reasons = []
    if len(silent):
        reasons.append(f"the transaction log says nothing of {len(silent)} transactional.ids that were initialised")
    if unseen := int((~records.seen[mine]).sum()):
        reasons.append(f"records of the transaction log are missing in front of {unseen} others")
    return "; ".join(reasons) or None
