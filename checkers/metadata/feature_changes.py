"""Each level of a feature in the controllers' log beside the one before it: what rules for features look at."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.lookup import differs_from_previous
from prozess.checkers.metadata.broker_changes import BrokerChanges, Columns
from prozess.checkers.metadata.holders import slots_of
from prozess.harness.schema import ClusterRecord


@dataclass(frozen=True, slots=True)
class FeatureChanges:
    """Levels of features, of one feature after the other, in the order of the log."""

    table: Columns
    """All rows of `cluster_states`, in the order of the log."""
    rows: NDArray[np.int64]
    """Those of the records themselves."""
    feature: NDArray[np.int64]
    level: NDArray[np.int64]
    before: NDArray[np.int64]
    """0: it had none."""
    supported: NDArray[np.int64]
    """The rows in which brokers say which levels they support."""
    begins: NDArray[np.int64]
    """The rows of registrations."""
    ends: NDArray[np.int64]
    """The row that ends each registration, or that registers the broker anew."""
    registration: NDArray[np.int64]
    """The registration of each row of `supported`: an index of `begins`."""


def feature_changes_of(brokers: BrokerChanges) -> FeatureChanges:
    """Returns the levels of features in the same log.

    Example: group.version is 0, then 1. Broker 1 has registered in front of it, and is unregistered behind: it was there."""
    table = brokers.table
    rows = np.flatnonzero(table["kind"] == ClusterRecord.FEATURE)
    rows = rows[np.argsort(table["feature"][rows], kind="stable")]
    feature, level = table["feature"][rows], table["level"][rows].astype(np.int64)
    before = np.append(0, level[:-1])[: len(rows)]
    before[differs_from_previous(feature)] = 0
    supported = np.flatnonzero(table["kind"] == ClusterRecord.SUPPORTED)
    own = np.flatnonzero(np.isin(table["kind"], (ClusterRecord.REGISTERED, ClusterRecord.UNREGISTERED)))
    begins, ends, at = slots_of(supported, own, table["node"])
    return FeatureChanges(table, rows, feature.astype(np.int64), level, before, supported, begins, ends, at)


def level_of(features: FeatureChanges, feature: np.ndarray, row: np.ndarray) -> NDArray[np.int64]:
    """Returns the level that each of these features has in front of a row, 0: none."""
    width = len(features.table["kind"]) + 1
    key = features.feature * width + features.rows
    slot = np.searchsorted(key, feature.astype(np.int64) * width + row) - 1
    known = slot >= 0
    known[known] = features.feature[slot[known]] == feature[known]
    found = np.zeros(len(row), dtype=np.int64)
    found[known] = features.level[slot[known]]
    return found
