"""KIP-778: metadata.version does not fall below a version from which on there are other records."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.feature_changes import FeatureChanges
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import METADATA_VERSION

CHANGED = np.array([8, 11, 13, 14, 15, 17, 23, 30, 32, 33])
"""The levels of metadata.version from 3.4-IV0 to 4.4 that brought other records. [MetadataVersion.didMetadataChange]"""


def _metadata_version_lowered(features: FeatureChanges) -> NDArray[np.bool_]:
    """From 25 (4.0-IV3) to 22: 23 brought ELR. From 25 to 23 nothing is lost."""
    mine = features.feature == METADATA_VERSION
    # Levels with other records that are above the level now, and not above the one before.
    lost = np.searchsorted(CHANGED, features.before, side="right") > np.searchsorted(
        CHANGED, features.level, side="right"
    )
    return np.asarray(mine & (features.level < features.before) & lost)


FEATURE_RULES = (
    KipRule(
        TransitionCase.METADATA_VERSION_LOWERED,
        "KIP-778: a downgrade that loses metadata is unsafe, and no release permits it (KAFKA-13896); "
        "FeatureControlManager.updateMetadataVersion",
        _metadata_version_lowered,
    ),
)
