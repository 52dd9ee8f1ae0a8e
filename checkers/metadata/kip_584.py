"""KIP-584: the level of a feature is one that every registered broker supports."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.broker_changes import BrokerChanges, records_of
from prozess.checkers.metadata.feature_changes import FeatureChanges, feature_changes_of, level_of
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import ClusterRecord


def _level_beyond_broker(features: FeatureChanges) -> NDArray[np.bool_]:
    """Broker 1 supports 0 to 1 of group.version, or names no such feature, and the feature gets level 2.

    Features times registrations: a cluster has some ten of the first."""
    table, rows = features.table, features.rows[:, None]
    there = table["kind"][features.begins] == ClusterRecord.REGISTERED
    there = there & (features.begins < rows) & (features.ends[: len(there)] > rows)
    own = {name: table[name][features.supported] for name in ("feature", "lowest", "level")}
    level = features.level[:, None]
    fits = (own["feature"] == features.feature[:, None]) & (own["lowest"] <= level) & (own["level"] >= level)
    fits &= features.registration >= 0
    supports = np.zeros(there.shape, dtype=np.bool_)
    record, row = np.nonzero(fits)
    supports[record, features.registration[row]] = True
    return np.asarray((features.level > 0) & np.any(there & ~supports, axis=1))


def _broker_beyond_level(brokers: BrokerChanges) -> NDArray[np.bool_]:
    """group.version has level 1, and a broker registers that supports 2 to 3."""
    features = feature_changes_of(brokers)
    rows = features.supported
    own = {name: features.table[name][rows] for name in ("feature", "lowest", "level")}
    level = level_of(features, own["feature"], rows)
    return records_of(brokers, rows[(level > 0) & ((level < own["lowest"]) | (level > own["level"]))])


BROKER_RULES = (
    KipRule(
        TransitionCase.BROKER_BEYOND_LEVEL,
        "KIP-584: a broker that does not support a finalized level may not register; "
        "ClusterControlManager.processRegistrationFeature",
        _broker_beyond_level,
    ),
)
FEATURE_RULES = (
    KipRule(
        TransitionCase.LEVEL_BEYOND_BROKER,
        "KIP-584: a finalized level is within what every broker supports; FeatureControlManager.reasonNotSupported",
        _level_beyond_broker,
    ),
)
