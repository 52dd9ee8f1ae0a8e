"""Each record about a broker in the controllers' log beside its registration before it: what rules for brokers look at."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.lookup import differs_from_previous
from prozess.harness.schema import NONE, ClusterRecord

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class BrokerStates:
    """What the log says of a broker, one entry for each record."""

    there: NDArray[np.bool_]
    """bool: it is registered."""
    epoch: NDArray[np.int64]
    incarnation: tuple[NDArray[np.int64], NDArray[np.int64]]
    """The id of its process, in two halves."""
    fenced: NDArray[np.bool_]
    shutting_down: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BrokerChanges:
    """Records about brokers, of one broker after the other, in the order of the log."""

    table: Columns
    """All rows of `cluster_states`, in the order of the log."""
    rows: NDArray[np.int64]
    """Those of the records themselves."""
    kind: NDArray[np.int64]
    offset: NDArray[np.int64]
    after: BrokerStates
    """What the record itself states."""
    before: BrokerStates
    """What the last registration states, and what changed it. Where none is, values are the record's own, or False."""
    seen: NDArray[np.int64]
    """The offset of the last record about any broker in front of this one, NONE: there is none."""
    in_log: NDArray[np.bool_]
    """bool: the record stands in the log, and not in the snapshot with which the log begins."""

    def is_kind(self, kind: ClusterRecord) -> NDArray[np.bool_]:
        """Returns whether each record is of this kind."""
        return np.asarray(self.kind == kind)


def broker_changes_of(states: Columns) -> BrokerChanges:
    """Returns the records about brokers among rows of `cluster_states`.

    Example: 1 registers in epoch 5, is unfenced, and registers in epoch 9. Before the last record it is there in epoch 5, and
    not fenced."""
    order = np.argsort(states["log_offset"], kind="stable")
    table = {name: column[order] for name, column in states.items()}
    kinds = (ClusterRecord.REGISTERED, ClusterRecord.CHANGED, ClusterRecord.UNREGISTERED)
    rows = np.flatnonzero(np.isin(table["kind"], kinds))
    rows = rows[np.argsort(table["node"][rows], kind="stable")]
    own = {name: column[rows] for name, column in table.items()}
    kind, offset, index = own["kind"], own["log_offset"], np.arange(len(rows))
    first = np.maximum.accumulate(np.where(differs_from_previous(own["node"]), index, 0)) if len(rows) else index

    def last(where: np.ndarray) -> np.ndarray:
        """Returns the last entry of the same broker in front of each at which this holds, NONE: there is none."""
        found = np.append(NONE, np.maximum.accumulate(np.where(where, index, NONE))[:-1])[: len(rows)]
        return np.where(found >= first, found, NONE)

    registered = last(kind != ClusterRecord.CHANGED)
    there = (registered != NONE) & (kind[registered] == ClusterRecord.REGISTERED)
    known = np.where(there, registered, index)
    fence = last(own["fenced"] != NONE)
    shut = last((own["shutting_down"] == 1) | (kind == ClusterRecord.REGISTERED))
    epoch, high, low = own["broker_epoch"], own["id_high"], own["id_low"]
    is_fenced, shuts = own["fenced"] == 1, own["shutting_down"] == 1
    offsets = np.append(NONE, np.unique(offset))
    return BrokerChanges(
        table=table,
        rows=rows,
        kind=kind,
        offset=offset,
        after=BrokerStates(np.ones(len(rows), dtype=np.bool_), epoch, (high, low), is_fenced, shuts),
        before=BrokerStates(
            there,
            epoch[known],
            (high[known], low[known]),
            there & (fence != NONE) & is_fenced[fence],
            there & (shut != NONE) & shuts[shut],
        ),
        seen=offsets[np.searchsorted(offsets[1:], offset)],
        in_log=~np.isin(offset, table["log_offset"][table["kind"] == ClusterRecord.SNAPSHOT]),
    )


def same_incarnation(changes: BrokerChanges) -> NDArray[np.bool_]:
    """Returns whether each record is about the process that was registered before."""
    before, after = changes.before, changes.after
    same = [a == b for a, b in zip(before.incarnation, after.incarnation, strict=True)]
    return np.asarray(before.there & same[0] & same[1])


def records_of(changes: BrokerChanges, rows: np.ndarray) -> NDArray[np.bool_]:
    """Returns whether each record is one of those that these rows of directories or features belong to."""
    ordered = np.argsort(changes.rows)
    found = np.zeros(len(changes.rows), dtype=np.bool_)
    found[ordered[np.searchsorted(changes.rows[ordered], rows) - 1]] = True
    return found


def is_torn(changes: BrokerChanges) -> bool:
    """Returns whether rows have no record in front of them, or say what no record does."""
    table, rows = changes.table, np.sort(changes.rows)
    parts = np.flatnonzero(np.isin(table["kind"], (ClusterRecord.DIRECTORY, ClusterRecord.SUPPORTED)))
    of = np.searchsorted(rows, parts) - 1
    strange = ~np.isin(table["kind"], list(ClusterRecord))
    strange |= np.isin(table["kind"], (ClusterRecord.SUPPORTED, ClusterRecord.FEATURE)) & (
        (table["feature"] < 0) | (table["level"] < 0)
    )
    if strange.any() or (of < 0).any():
        return True
    others = [(table[name][parts] != table[name][rows[of]]).any() for name in ("log_offset", "node", "broker_epoch")]
    unstated = changes.is_kind(ClusterRecord.REGISTERED) & (table["fenced"][changes.rows] == NONE)
    return bool(any(others) or unstated.any())
