"""KIP-704: an unclean election is written down, and its leader is alone in sync until it has recovered."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges, elects, has, nobody
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase


def _unclean_and_unrecorded(changes: PartitionChanges) -> NDArray[np.bool_]:
    """{1, 2} were in sync, 3 leads, and the record does not say that it recovers.

    The end of a reassignment may bring its new leader into sync, and takes a copy away (KIP-455): replicas 1, 2, 3 and 4,
    of which 1, 2 and 3 are in sync, then 2, 3 and 4, all in sync, led by 4."""
    if not changes.kraft:
        return nobody(changes)
    before, after = changes.before, changes.after
    removed = before.replicas & ~after.replicas != 0
    eligible = before.isr | before.elr | np.where(removed, after.isr, 0)
    return np.asarray(elects(changes) & ~has(eligible, after.leader) & ~after.recovering)


def _recovers_among_others(changes: PartitionChanges) -> NDArray[np.bool_]:
    """A leader that recovers, with {1, 2} in sync. A mask with one bit has nothing in common with itself less one."""
    after = changes.after
    return np.asarray(~after.ended & after.recovering & (after.isr & (after.isr - 1) != 0))


def _recovered_by_another(changes: PartitionChanges) -> NDArray[np.bool_]:
    """Leader 1 recovers, then 2 leads and nobody recovers: only the leader that was elected uncleanly can have recovered."""
    over = changes.before.recovering & ~changes.after.recovering
    return np.asarray(elects(changes) & over)


RULES = (
    KipRule(
        TransitionCase.UNCLEAN_AND_UNRECORDED,
        "KIP-704: the controller marks an unclean election with the leader recovery state RECOVERING; "
        "PartitionChangeBuilder.tryElection",
        _unclean_and_unrecorded,
    ),
    KipRule(
        TransitionCase.RECOVERS_AMONG_OTHERS,
        "KIP-704: while it recovers, a leader may not have others in the ISR; AlterPartition is refused with "
        "INVALID_REQUEST",
        _recovers_among_others,
    ),
    KipRule(
        TransitionCase.RECOVERED_BY_ANOTHER,
        "KIP-704: the leader that recovers says with AlterPartition that it has recovered",
        _recovered_by_another,
    ),
)
