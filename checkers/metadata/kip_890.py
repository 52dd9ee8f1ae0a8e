"""KIP-890: from transaction.version 2 on, each transaction has an epoch of its own, which its end raises."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.kip_98 import BUMPED_VERSION
from prozess.checkers.metadata.rule import KipRule
from prozess.checkers.metadata.transaction_changes import TransactionChanges, state_is
from prozess.harness.interfaces.witnesses import TransactionCase
from prozess.harness.schema import TransactionState as State

EPOCH_MAX = 2**15 - 1
"""The last epoch of a producer id. Its end cannot raise it."""


def _not_raised(changes: TransactionChanges) -> NDArray[np.bool_]:
    """A decision in the epoch of its transaction: a record that comes late is taken into the next one."""
    before, after = changes.before, changes.after
    decided = state_is(before, State.ONGOING) & state_is(after, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    decided &= changes.same_producer & (after.client_version >= BUMPED_VERSION)
    same = after.producer_epoch == before.producer_epoch
    return np.asarray(decided & same & (before.producer_epoch < EPOCH_MAX))


RULES = (
    KipRule(
        TransactionCase.EPOCH_NOT_RAISED,
        "KIP-890, 'Bump epoch on each transaction': EndTxn raises the epoch; TransactionMetadata.prepareAbortOrCommit",
        _not_raised,
    ),
)
