"""KIP-966: a replica that leaves an ISR which becomes too small stays eligible, and is nothing else."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.changes import PartitionChanges
from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase


def _eligible_and_in_sync(changes: PartitionChanges) -> NDArray[np.bool_]:
    """{1, 2} in sync, and {2} eligible."""
    after = changes.after
    return np.asarray(~after.ended & (after.isr & after.elr != 0))


def _eligible_from_nowhere(changes: PartitionChanges) -> NDArray[np.bool_]:
    """{1} in sync and {2} eligible, then {3} eligible: 3 was in neither set."""
    before, after = changes.before, changes.after
    return np.asarray(changes.follows & ~after.ended & (after.elr & ~(before.isr | before.elr) != 0))


RULES = (
    KipRule(
        TransitionCase.ELIGIBLE_AND_IN_SYNC,
        "KIP-966: the ELR has no member of the ISR",
        _eligible_and_in_sync,
    ),
    KipRule(
        TransitionCase.ELIGIBLE_FROM_NOWHERE,
        "KIP-966: a member of the ELR was in the ISR before; PartitionChangeBuilder.populateTargetElr",
        _eligible_from_nowhere,
    ),
)
