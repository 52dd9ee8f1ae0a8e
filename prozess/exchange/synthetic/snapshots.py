"""Makes the producer snapshots of generated copies: what each broker remembers of the producer of a log's first batch.

Each copy has a snapshot behind that batch, which is right. What is planted has its offset within the batch, so that it
describes the same batch: one in each copy for each offset, wrong in each of the ways that there are, in turn.
"""

import numpy as np

from prozess.exchange.synthetic.cells import NODES, Columns, GeneratedCell, base_sequences, copies_read_ns
from prozess.exchange.synthetic.log import BATCH, GeneratedPartition
from prozess.harness.schema import NONE, ObservationKind

_WRONG = ("producer_epoch", "last_sequence", "transaction_offset", "timestamp_ms")
"""Columns that are greater by one than the batch says, in turn; and then the snapshot has no entry of its producer."""


def planted_at(cell: GeneratedCell, partition: GeneratedPartition) -> tuple[np.ndarray, np.ndarray]:
    """Returns offset and node of each planted snapshot of a partition."""
    number = np.arange(cell.counts["snapshot-conflict"][partition.rank])
    assert len(number) <= (BATCH - 1) * len(NODES), "each copy has one at each offset within the batch"
    return 1 + number // len(NODES), np.array(NODES)[number % len(NODES)]


def remembered_sequences(cell: GeneratedCell, partition: GeneratedPartition) -> np.ndarray:
    """Returns what each planted snapshot says is the last sequence of the producer; NONE: it does not know the producer."""
    case = np.arange(cell.counts["snapshot-conflict"][partition.rank]) % (len(_WRONG) + 1)
    right = base_sequences(cell, partition, np.array([0]))[0] + BATCH - 1
    return np.where(case == len(_WRONG), NONE, right + (case == _WRONG.index("last_sequence")))


def entries(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `snapshots`: what all snapshots of a partition say of the first batch's producer."""
    offset, node = planted_at(cell, partition)
    case = np.arange(len(offset)) % (len(_WRONG) + 1)
    known = np.flatnonzero(case < len(_WRONG))
    case = np.concatenate([np.full(len(NODES), NONE), case[known]])
    right = {
        "producer_epoch": 0,
        "last_sequence": base_sequences(cell, partition, np.array([0]))[0] + BATCH - 1,
        "transaction_offset": NONE,
        "timestamp_ms": BATCH // 1000,
    }
    return {
        "client": np.full(len(case), NONE),
        "read_ns": copies_read_ns(cell),
        "snapshot_offset": np.concatenate([np.full(len(NODES), BATCH), offset[known]]),
        "producer_id": partition.producers[0],
        "last_offset": BATCH - 1,
        "partition": partition.partition,
        "node": np.concatenate([NODES, node[known]]),
        "offset_delta": BATCH - 1,
        "coordinator_epoch": NONE,
        **{name: right[name] + (case == number) for number, name in enumerate(_WRONG)},
    }


def observed(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `observations`: which snapshots the copies have."""
    offset, node = planted_at(cell, partition)
    return {
        "client": np.full(len(NODES) + len(node), NONE),
        "time_ns": copies_read_ns(cell),
        "value": np.concatenate([np.full(len(NODES), BATCH), offset]),
        "partition": partition.partition,
        "kind": ObservationKind.REPLICA_SNAPSHOT,
        "node": np.concatenate([NODES, node]),
    }
