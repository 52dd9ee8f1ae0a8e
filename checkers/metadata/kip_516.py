"""KIP-516: a topic has an id, which no other topic gets, and what was deleted does not come back under it."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase


def _changed_after_its_end(changes: PartitionChanges) -> NDArray[np.bool_]:
    """A topic is deleted, and a later record of the same id names a leader."""
    return np.asarray(changes.follows & changes.before.ended)


RULES = (
    KipRule(
        TransitionCase.CHANGED_AFTER_ITS_END,
        "KIP-516: topic ids are unique, and a topic that is made again has another one",
        _changed_after_its_end,
    ),
)
