"""KIP-101: a leader epoch stands for one leader, and grows by one with each."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase


def _epoch_is_not_next(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Epochs 3, 3, 4 follow from one another. 3, 5 and 3, 2 do not."""
    grown = changes.after.epoch - changes.before.epoch
    return np.asarray(changes.follows & ~changes.after.ended & ((grown < 0) | (grown > 1)))


def _leader_without_epoch(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Leader 1 in epoch 3, then leader 2 in epoch 3: two leaders of one epoch. To have no leader is a change as well."""
    other = changes.after.leader != changes.before.leader
    return np.asarray(changes.follows & ~changes.after.ended & other & (changes.after.epoch == changes.before.epoch))


RULES = (
    KipRule(
        TransitionCase.EPOCH_IS_NOT_NEXT,
        "KIP-101: the controller increments the leader epoch with each new leader; PartitionRegistration.merge, by one",
        _epoch_is_not_next,
    ),
    KipRule(
        TransitionCase.LEADER_WITHOUT_EPOCH,
        "KIP-101: a leader epoch has one leader",
        _leader_without_epoch,
    ),
)
