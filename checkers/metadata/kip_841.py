"""KIP-841: a fenced broker comes into no ISR, is elected by nobody, and needs no controlled shutdown."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.broker_changes import BrokerChanges
from prozess.checkers.metadata.changes import PartitionChanges, elects, has
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import ClusterRecord


def _fenced_broker_joins(changes: PartitionChanges) -> NDArray[np.bool_]:
    """{1, 2} in sync, then {1, 2, 3}, while 3 is fenced."""
    came = changes.after.isr & ~changes.before.isr
    return np.asarray(changes.follows & ~changes.after.ended & (came & changes.fenced != 0))


def _fenced_broker_elected(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Broker 2 becomes the leader while it is fenced."""
    return np.asarray(elects(changes) & has(changes.fenced, changes.after.leader))


def _shutdown_of_fenced(changes: BrokerChanges) -> NDArray[np.bool_]:
    """Broker 1 is fenced, and its controlled shutdown begins: it leads nothing that others could take over."""
    begins = changes.is_kind(ClusterRecord.CHANGED) & changes.after.shutting_down
    return np.asarray(begins & changes.before.fenced)


RULES = (
    KipRule(
        TransitionCase.FENCED_BROKER_JOINS,
        "KIP-841: fenced replicas may not join the ISR; AlterPartition answers INELIGIBLE_REPLICA",
        _fenced_broker_joins,
    ),
    KipRule(
        TransitionCase.FENCED_BROKER_ELECTED,
        "KIP-841: only a broker that is not fenced may be elected; ReplicationControlManager, isAcceptableLeader",
        _fenced_broker_elected,
    ),
)
BROKER_RULES = (
    KipRule(
        TransitionCase.SHUTDOWN_OF_FENCED,
        "KIP-841: an active broker enters the controlled shutdown; BrokerHeartbeatManager.calculateNextBrokerState "
        "lets a fenced one go at once",
        _shutdown_of_fenced,
    ),
)
