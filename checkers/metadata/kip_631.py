"""KIP-631: a process of a broker is registered as fenced, in an epoch of its own, and a fenced broker leads nothing."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.broker_changes import BrokerChanges, same_incarnation
from prozess.checkers.metadata.changes import PartitionChanges
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import ClusterRecord


def _fenced_broker_leads(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Broker 1 leads from 5 s on, is fenced at 8 s, and the next record about the partition is of 9 s: one of 8 s would
    be right."""
    return np.asarray(~changes.after.ended & changes.led_fenced)


def _broker_epoch_not_new(changes: BrokerChanges) -> NDArray[np.bool_]:
    """Records about brokers stand at 4 and 7, and the next one at 9 registers a broker in epoch 7. 8 or 9 would be right:
    records in front of it, of the same decision, take the broker out of ISRs (KIP-966)."""
    before, after = changes.before, changes.after
    kept = before.there & (after.epoch == before.epoch)
    outside = (after.epoch <= changes.seen) | (after.epoch > changes.offset)
    return np.asarray(changes.is_kind(ClusterRecord.REGISTERED) & changes.in_log & ~kept & outside)


def _epoch_of_another(changes: BrokerChanges) -> NDArray[np.bool_]:
    """A process registers in epoch 5, and then another one in epoch 5; or the same one, and now it is not fenced."""
    before, after = changes.before, changes.after
    again = changes.is_kind(ClusterRecord.REGISTERED) & before.there & (after.epoch == before.epoch)
    other = (after.fenced != before.fenced) | (after.shutting_down != before.shutting_down)
    return np.asarray(again & (other | ~same_incarnation(changes)))


def _registered_unfenced(changes: BrokerChanges) -> NDArray[np.bool_]:
    """A process that nobody knew is registered, and is not fenced: nobody knows whether it has caught up."""
    new = changes.is_kind(ClusterRecord.REGISTERED) & changes.in_log & ~same_incarnation(changes)
    return np.asarray(new & (~changes.after.fenced | changes.after.shutting_down))


def _broker_not_registered(changes: BrokerChanges) -> NDArray[np.bool_]:
    """Broker 1 is unregistered, and then unfenced."""
    return np.asarray(~changes.is_kind(ClusterRecord.REGISTERED) & ~changes.before.there)


def _broker_epoch_stale(changes: BrokerChanges) -> NDArray[np.bool_]:
    """Broker 1 is registered in epoch 9, and then epoch 5 of it is unfenced: that process may be dead."""
    other = changes.after.epoch != changes.before.epoch
    return np.asarray(~changes.is_kind(ClusterRecord.REGISTERED) & changes.before.there & other)


RULES = (
    KipRule(
        TransitionCase.FENCED_BROKER_LEADS,
        "KIP-631: 'Brokers which are fenced … will not be in any ISR and will not lead'; "
        "ReplicationControlManager.handleBrokerFenced changes its partitions in the same batch of records",
        _fenced_broker_leads,
    ),
)
BROKER_RULES = (
    KipRule(
        TransitionCase.BROKER_EPOCH_NOT_NEW,
        "KIP-631: the controller assigns a new broker epoch to each registration; QuorumController.registerBroker takes the "
        "offset of the next record",
        _broker_epoch_not_new,
    ),
    KipRule(
        TransitionCase.EPOCH_OF_ANOTHER,
        "KIP-631: the incarnation id is another one whenever the process is; ClusterControlManager.registerBroker keeps the "
        "epoch of the same one, and what state it is in (KAFKA-16757)",
        _epoch_of_another,
    ),
    KipRule(
        TransitionCase.REGISTERED_UNFENCED,
        "KIP-631: a broker is fenced when it registers, until it has caught up; ClusterControlManager.registerBroker",
        _registered_unfenced,
    ),
    KipRule(
        TransitionCase.BROKER_NOT_REGISTERED,
        "KIP-631: fencing changes a registration; ClusterControlManager.replayRegistrationChange refuses any other record",
        _broker_not_registered,
    ),
    KipRule(
        TransitionCase.BROKER_EPOCH_STALE,
        "KIP-631: a heartbeat with another broker epoch is answered STALE_BROKER_EPOCH; "
        "ClusterControlManager.replayRegistrationChange refuses such a record",
        _broker_epoch_stale,
    ),
)
