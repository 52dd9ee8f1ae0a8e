"""KIP-1022: a feature that needs a metadata.version is not there without it."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.feature_changes import FeatureChanges, level_of
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import ELR_VERSION, METADATA_VERSION

NEEDED = 23
"""4.0-IV1, the metadata.version that eligible.leader.replicas.version 1 needs. [EligibleLeaderReplicasVersion.dependencies]
In 4.0 to 4.4 no other feature of production has such a need."""


def _without_metadata_version(features: FeatureChanges) -> NDArray[np.bool_]:
    """metadata.version is 22, and eligible.leader.replicas.version gets 1. One request may raise both, in either order: its
    records have one time."""
    rows, time_ns = features.rows, features.table["time_ns"][features.rows]
    before = level_of(features, np.full(len(rows), METADATA_VERSION), rows)
    raised = (features.feature == METADATA_VERSION) & (features.level >= NEEDED)
    needs = (features.feature == ELR_VERSION) & (features.level > 0)
    return np.asarray(needs & (before < NEEDED) & ~np.isin(time_ns, time_ns[raised]))


FEATURE_RULES = (
    KipRule(
        TransitionCase.FEATURE_BEYOND_METADATA,
        "KIP-1022: an update to a level whose dependencies are not there is refused; FeatureControlManager.updateFeature, "
        "Features.validateVersion",
        _without_metadata_version,
    ),
)
