"""KIP-858: a log directory is of one broker, and one that failed does not come back but by a registration."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.broker_changes import BrokerChanges, records_of
from prozess.checkers.metadata.holders import held_twice, slots_of
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import ClusterRecord


def _directory_of_two(changes: BrokerChanges) -> NDArray[np.bool_]:
    """Broker 1 has the directory d, and 2 registers with d before 1 has registered without it."""
    _, held, directory, until, at = _directories(changes)
    pairs = held_twice(held, until[at], changes.table["node"], directory)
    return records_of(changes, pairs[:, 0])


def _directory_came_back(changes: BrokerChanges) -> NDArray[np.bool_]:
    """A broker registers with d and e, a change leaves it d, and the next change d and e."""
    own, held, directory, _, at = _directories(changes)
    length = len(own) + 1
    known = directory * length + at
    # The record in front of it, of the same broker, has the directory as well.
    kept = np.isin(known - 1, known) & (at > 0)
    kept &= changes.table["node"][own[at - 1]] == changes.table["node"][held] if len(own) else False
    return records_of(changes, held[(changes.table["kind"][own[at]] == ClusterRecord.CHANGED) & ~kept])


def _directories(changes: BrokerChanges) -> tuple[np.ndarray, ...]:
    """Returns the records that say what a broker has; the rows of directories, and the number of each; of each such record
    the row that ends it; and of each directory its record. A change without directories leaves them as they are."""
    table = changes.table
    held = np.flatnonzero(table["kind"] == ClusterRecord.DIRECTORY)
    rows = np.sort(changes.rows)
    held = held[held > rows[0]] if len(rows) else held[:0]
    # The records of directories: the last one in front of each.
    says = table["kind"][rows] != ClusterRecord.CHANGED
    says[np.searchsorted(rows, held) - 1] = True
    ids = np.stack([table["id_high"][held], table["id_low"][held]], axis=1)
    _, directory = np.unique(ids, axis=0, return_inverse=True)
    own, until, at = slots_of(held, rows[says], table["node"])
    return own, held, directory.reshape(-1).astype(np.int64), until, at


BROKER_RULES = (
    KipRule(
        TransitionCase.DIRECTORY_OF_TWO,
        "KIP-858: the id of a log directory is unique in the cluster; ClusterControlManager.registerBroker refuses a broker "
        "with a directory of another one",
        _directory_of_two,
    ),
    KipRule(
        TransitionCase.DIRECTORY_CAME_BACK,
        "KIP-858: a broker reports failed directories until it is restarted; "
        "ReplicationControlManager.handleDirectoriesOffline writes down those that are left",
        _directory_came_back,
    ),
)
