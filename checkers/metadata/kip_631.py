"""KIP-631: a broker that does not send heartbeats is fenced, and leads nothing from the same moment on."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges, TransitionRule
from prozess.harness.interfaces.witnesses import TransitionCase


def _fenced_broker_leads(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Broker 1 leads from 5 s on, is fenced at 8 s, and the next record about the partition is of 9 s: one of 8 s would
    be right."""
    return np.asarray(~changes.after.ended & changes.led_fenced)


RULES = (
    TransitionRule(
        TransitionCase.FENCED_BROKER_LEADS,
        "KIP-631: 'Brokers which are fenced … will not be in any ISR and will not lead'; "
        "ReplicationControlManager.handleBrokerFenced changes its partitions in the same batch of records",
        _fenced_broker_leads,
    ),
)
