"""KIP-497: the controller decides who is in sync, about the replicas of the partition, and its leader is one of them."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges, has
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import NONE


def _leader_not_in_sync(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Leader 3, and {1, 2} in sync."""
    after = changes.after
    return np.asarray(~after.ended & (after.leader != NONE) & ~has(after.isr, after.leader))


def _in_sync_without_replica(changes: PartitionChanges) -> NDArray[np.bool_]:
    """{1, 4} in sync or eligible, and replicas on {1, 2, 3}."""
    after = changes.after
    return np.asarray(~after.ended & (after.replicas != 0) & ((after.isr | after.elr) & ~after.replicas != 0))


RULES = (
    KipRule(
        TransitionCase.LEADER_NOT_IN_SYNC,
        "KIP-497: the leader is in the ISR that it proposes; ReplicationControlManager.validateAlterPartitionData refuses "
        "any other",
        _leader_not_in_sync,
    ),
    KipRule(
        TransitionCase.IN_SYNC_WITHOUT_REPLICA,
        "KIP-497: the ISR is a subset of the replicas; Replicas.validateIsr",
        _in_sync_without_replica,
    ),
)
