"""Each record of the transaction log beside the one before it: what the rules of the KIPs look at."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.lookup import differs_from_next, differs_from_previous
from prozess.harness.interfaces.witnesses import GIVEN_UP_NS
from prozess.harness.schema import NONE, TransactionState

_COLUMNS = ("state", "producer_id", "producer_epoch", "partitions", "client_version")


@dataclass(frozen=True, slots=True)
class TransactionStates:
    """What the log says of transactional.ids, one entry for each record. int64[n] each."""

    state: NDArray[np.int64]
    """TransactionState."""
    producer_id: NDArray[np.int64]
    producer_epoch: NDArray[np.int64]
    partitions: NDArray[np.int64]
    """How many partitions are in the transaction."""
    client_version: NDArray[np.int64]
    """transaction.version as the client has it: from 2 on, each transaction has an epoch of its own (KIP-890)."""

    def taken(self, rows: np.ndarray) -> "TransactionStates":
        """Returns the states of these rows. NONE: nothing came before, as if the transactional.id had been forgotten."""
        columns = (getattr(self, name) for name in _COLUMNS)
        return TransactionStates(*(np.where(rows == NONE, NONE, column[rows]) for column in columns))


@dataclass(frozen=True, slots=True)
class TransactionChanges:
    """Records beside those before them."""

    after: TransactionStates
    before: TransactionStates

    @property
    def same_producer(self) -> NDArray[np.bool_]:
        """Whether the producer id stays, of a transactional.id that is known before and after."""
        return np.asarray((self.before.producer_id == self.after.producer_id) & (self.after.producer_id != NONE))

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """Whether the same is written again, as after an append that failed."""
        before, after = self.before, self.after
        same = (before.state == after.state) & (before.producer_epoch == after.producer_epoch)
        return np.asarray(same & self.same_producer)


def state_is(states: TransactionStates, *wanted: TransactionState) -> NDArray[np.bool_]:
    """Returns which records have one of these states."""
    return np.isin(states.state, wanted)


@dataclass(frozen=True, slots=True)
class TransactionRecords:
    """The records of all planned transactional.ids, those of one id after the other, in the order of the log."""

    rows: NDArray[np.int64]
    """Their rows of `transaction_states`."""
    client: NDArray[np.int64]
    """The first planned client that has the transactional.id."""
    states: TransactionStates
    previous: NDArray[np.int64]
    """The entry of the record before it; NONE: it is the first one of its id."""
    seen: NDArray[np.bool_]
    """bool: no record of the log is missing between it and the one before, or the begin of the log."""
    given_up: NDArray[np.bool_]
    """bool: its append may have failed, since the next record came late, from the same leader."""

    def changes(self, entries: np.ndarray, previous: np.ndarray) -> TransactionChanges:
        """Returns these entries beside others, as if those came before."""
        return TransactionChanges(self.states.taken(entries), self.states.taken(previous))


def records_of(table: Mapping[str, np.ndarray]) -> TransactionRecords:
    """Returns what `transaction_states` says.

    Example: offsets 0 to 5 of one partition are of the ids a, b, a, nobody's, b and a. The records of a are 0, 2, 5, those
    of b 1 and 4. Without the record at 3, the last one of each is not seen: what was between may have been of its id."""
    order = np.lexsort((table["log_offset"], table["number"]))
    number, offset = table["number"][order], table["log_offset"][order]
    begins = differs_from_previous(number)
    follows = np.append(-1, offset[:-1]) + 1 if len(offset) else offset
    holes = np.cumsum(np.where(begins, offset != 0, offset != follows))
    # How many holes there are in front of the partition of each row.
    in_front = (holes - (begins & (offset != 0)))[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    mine = np.flatnonzero(table["transactional_id"][order] != NONE)
    mine = mine[np.argsort(table["transactional_id"][order[mine]], kind="stable")]
    rows, holes, in_front = order[mine], holes[mine], in_front[mine]
    client = table["transactional_id"][rows].astype(np.int64)
    first, last = differs_from_previous(client), differs_from_next(client)
    previous = np.where(first, NONE, np.arange(len(rows)) - 1)
    waited_ns = np.append(np.diff(table["time_ns"][rows]), 0)[: len(rows)]
    epoch = table["leader_epoch"][rows]
    same_leader = np.append(epoch[1:] == epoch[:-1], False)[: len(rows)]
    # A clock that was set back says nothing about how long it took.
    late = (waited_ns >= GIVEN_UP_NS) | (waited_ns < 0)
    return TransactionRecords(
        rows=rows,
        client=client,
        states=TransactionStates(*(table[name][rows].astype(np.int64) for name in _COLUMNS)),
        previous=previous,
        seen=holes == np.where(first, in_front, np.append(0, holes[:-1])[: len(holes)]),
        given_up=~last & same_leader & late,
    )
