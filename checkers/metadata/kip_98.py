"""KIP-98: a transaction is open, then decided, then complete, and a decision is never taken back."""

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.rule import KipRule
from prozess.checkers.metadata.transaction_changes import TransactionChanges, state_is
from prozess.harness.interfaces.witnesses import TransactionCase
from prozess.harness.schema import TransactionState as State

BUMPED_VERSION = 2
"""The transaction.version from which on each transaction has a new epoch (KIP-890)."""
_AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


def _taken_back(changes: TransactionChanges) -> NDArray[np.bool_]:
    """PREPARE_COMMIT, and then anything but COMPLETE_COMMIT; the same of an abort."""
    before, after = changes.before, changes.after
    commit = state_is(before, State.PREPARE_COMMIT) & ~state_is(after, State.COMPLETE_COMMIT)
    abort = state_is(before, State.PREPARE_ABORT) & ~state_is(after, State.COMPLETE_ABORT)
    return np.asarray((commit | abort) & ~changes.repeated)


def _undecided(changes: TransactionChanges) -> NDArray[np.bool_]:
    """COMPLETE_COMMIT, and PREPARE_COMMIT did not come before; the same of an abort."""
    before, after = changes.before, changes.after
    commit = state_is(after, State.COMPLETE_COMMIT) & ~state_is(before, State.PREPARE_COMMIT)
    abort = state_is(after, State.COMPLETE_ABORT) & ~state_is(before, State.PREPARE_ABORT)
    return np.asarray((commit | abort) & ~changes.repeated)


def _decided_nothing(changes: TransactionChanges) -> NDArray[np.bool_]:
    """A decision where no transaction is open. With KIP-890 an abort of nothing raises the epoch."""
    before, after = changes.before, changes.after
    abort = state_is(after, State.PREPARE_ABORT)
    bumps = abort & (after.client_version >= BUMPED_VERSION) & state_is(before, *_AT_REST)
    nothing = state_is(before, *_AT_REST, State.FORGOTTEN)
    return np.asarray(nothing & (abort | state_is(after, State.PREPARE_COMMIT)) & ~bumps)


def _dropped(changes: TransactionChanges) -> NDArray[np.bool_]:
    """An open transaction, and then EMPTY, or nothing: it was neither committed nor aborted."""
    open_before = state_is(changes.before, State.ONGOING)
    return np.asarray(open_before & state_is(changes.after, State.EMPTY, State.FORGOTTEN))


def _never_initialised(changes: TransactionChanges) -> NDArray[np.bool_]:
    """A transaction begins of an id that nobody initialised."""
    return np.asarray(state_is(changes.before, State.FORGOTTEN) & state_is(changes.after, State.ONGOING))


def _epoch_fell(changes: TransactionChanges) -> NDArray[np.bool_]:
    """Epoch 4 of a producer, then 3: a producer that was fenced may write again."""
    return np.asarray(changes.same_producer & (changes.after.producer_epoch < changes.before.producer_epoch))


def _epoch_in_transaction(changes: TransactionChanges) -> NDArray[np.bool_]:
    """Another epoch while a transaction begins, grows or is completed. Only an initialisation, or what fences, raises it."""
    after = changes.after
    kept = state_is(after, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    kept |= state_is(after, State.PREPARE_COMMIT) & (after.client_version < BUMPED_VERSION)
    return np.asarray(changes.same_producer & kept & (after.producer_epoch != changes.before.producer_epoch))


def _producer_changed(changes: TransactionChanges) -> NDArray[np.bool_]:
    """Another producer id, and no initialisation. With KIP-890 the end of a transaction may use the next id."""
    before, after = changes.before, changes.after
    ended = state_is(after, State.COMPLETE_COMMIT, State.COMPLETE_ABORT) & (after.client_version >= BUMPED_VERSION)
    known = ~state_is(before, State.FORGOTTEN) & ~state_is(after, State.FORGOTTEN, State.EMPTY)
    return np.asarray(known & ~ended & (before.producer_id != after.producer_id))


def _partitions_changed(changes: TransactionChanges) -> NDArray[np.bool_]:
    """An open transaction has fewer partitions than before, or others are decided than it has: those get no marker."""
    before, after = changes.before, changes.after
    shrunk = state_is(after, State.ONGOING) & (after.partitions < before.partitions)
    decided = state_is(after, State.PREPARE_COMMIT, State.PREPARE_ABORT) & (after.partitions != before.partitions)
    return np.asarray(state_is(before, State.ONGOING) & (shrunk | decided))


def _partitions_left(changes: TransactionChanges) -> NDArray[np.bool_]:
    """No transaction is open, and it has partitions."""
    return np.asarray(state_is(changes.after, *_AT_REST) & (changes.after.partitions > 0))


RULES = (
    KipRule(
        TransactionCase.TAKEN_BACK,
        "KIP-98, 4.2: once PREPARE_COMMIT or PREPARE_ABORT is in the log, the transaction is guaranteed to end so",
        _taken_back,
    ),
    KipRule(
        TransactionCase.UNDECIDED,
        "KIP-98, 4.3: after the markers are written, the coordinator writes the COMPLETE_ of the decision before it",
        _undecided,
    ),
    KipRule(
        TransactionCase.DECIDED_NOTHING,
        "KIP-98, EndTxnRequest: only an ongoing transaction can be committed or aborted; "
        "TransactionState.VALID_PREVIOUS_STATES",
        _decided_nothing,
    ),
    KipRule(
        TransactionCase.DROPPED,
        "KIP-98, InitPidRequest: a transaction that is open is aborted before a new producer gets its epoch",
        _dropped,
    ),
    KipRule(
        TransactionCase.NEVER_INITIALISED,
        "KIP-98, AddPartitionsToTxnRequest: an id that the coordinator does not know is answered INVALID_PRODUCER_ID_MAPPING",
        _never_initialised,
    ),
    KipRule(TransactionCase.EPOCH_FELL, "KIP-98: the epoch of a producer grows, to fence zombies", _epoch_fell),
    KipRule(
        TransactionCase.EPOCH_IN_TRANSACTION,
        "KIP-98, InitPidRequest: an initialisation raises the epoch; TransactionMetadata.prepareAddPartitions keeps it",
        _epoch_in_transaction,
    ),
    KipRule(
        TransactionCase.PRODUCER_CHANGED,
        "KIP-98: a transactional.id keeps its producer id; KIP-360 and KIP-890: it gets another one when epochs run out",
        _producer_changed,
    ),
    KipRule(
        TransactionCase.PARTITIONS_CHANGED,
        "KIP-98, 4.3: markers are written to every partition that was added to the transaction",
        _partitions_changed,
    ),
    KipRule(
        TransactionCase.PARTITIONS_LEFT,
        "KIP-98: what is complete has no partitions any more; TransactionMetadata.prepareComplete",
        _partitions_left,
    ),
)
