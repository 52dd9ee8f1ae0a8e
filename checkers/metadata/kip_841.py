"""KIP-841: a fenced broker comes into no ISR, and is elected by nobody."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges, TransitionRule, elects, has
from prozess.harness.interfaces.witnesses import TransitionCase


def _fenced_broker_joins(changes: PartitionChanges) -> NDArray[np.bool_]:
    """{1, 2} in sync, then {1, 2, 3}, while 3 is fenced."""
    came = changes.after.isr & ~changes.before.isr
    return np.asarray(changes.follows & ~changes.after.ended & (came & changes.fenced != 0))


def _fenced_broker_elected(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Broker 2 becomes the leader while it is fenced."""
    return np.asarray(elects(changes) & has(changes.fenced, changes.after.leader))


RULES = (
    TransitionRule(
        TransitionCase.FENCED_BROKER_JOINS,
        "KIP-841: fenced replicas may not join the ISR; AlterPartition answers INELIGIBLE_REPLICA",
        _fenced_broker_joins,
    ),
    TransitionRule(
        TransitionCase.FENCED_BROKER_ELECTED,
        "KIP-841: only a broker that is not fenced may be elected; ReplicationControlManager, isAcceptableLeader",
        _fenced_broker_elected,
    ),
)
