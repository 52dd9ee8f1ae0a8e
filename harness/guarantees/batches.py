"""Who appended what, by the headers of the batches in the replicas' own segments: producer ids and their epochs.

Source: https://kafka.apache.org/documentation/#recordbatch (producerId, producerEpoch, attributes); KIP-360 (an idempotent
producer goes on under a higher epoch of the same id, and its sequences begin at 0 again).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.guarantees.logic import UNKNOWN, Truth
from harness.schema import NONE

TRANSACTIONAL = 0x10
"""Bit of a batch's attributes."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of one copy of a partition, ascending by offset: arrays of one length."""

    base_offset: np.ndarray
    last_offset: np.ndarray
    producer_id: np.ndarray
    producer_epoch: np.ndarray
    attributes: np.ndarray

    def at(self, offset: np.ndarray) -> np.ndarray:
        """intp[k]: the batch that holds each offset, -1 where none does."""
        place = np.searchsorted(self.base_offset, offset, side="right") - 1
        if not len(self.base_offset):
            return np.full(len(offset), -1, dtype=np.intp)
        inside = (place >= 0) & (self.last_offset[place] >= offset)
        return np.asarray(np.where(inside, place, -1))

    def bumped(self, witnesses: np.ndarray) -> Truth:
        """Were the witness's two offsets written under different epochs of one producer id, outside transactions? Unknown
        where one of them stands in no batch that was read."""
        one, other = self.at(witnesses["log_offset"]), self.at(witnesses["other_offset"])
        known = (one >= 0) & (other >= 0)
        if not known.any():
            return np.full(len(witnesses), UNKNOWN, dtype=np.int8)
        same_id = (self.producer_id[one] == self.producer_id[other]) & (self.producer_id[one] != NONE)
        plain = ((self.attributes[one] | self.attributes[other]) & TRANSACTIONAL) == 0
        bumped = same_id & plain & (self.producer_epoch[one] != self.producer_epoch[other])
        return np.asarray(np.where(known, bumped, UNKNOWN), dtype=np.int8)


def batches_by_partition(replicas: Mapping[str, np.ndarray]) -> Mapping[int, Batches]:
    """Of each partition the copy that reaches furthest, as read at the end. `replicas`: columns of the table."""
    rows = np.flatnonzero(replicas["step"] == NONE)
    order = np.lexsort((replicas["base_offset"][rows], replicas["node"][rows], replicas["partition"][rows]))
    rows = rows[order]
    partition, node, last = (replicas[name][rows] for name in ("partition", "node", "last_offset"))
    starts = np.flatnonzero(np.r_[True, (partition[1:] != partition[:-1]) | (node[1:] != node[:-1])][: len(rows)])
    ends = np.append(starts[1:], len(rows))
    furthest: dict[int, tuple[int, int, int]] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=False):  # as many as there are copies
        copy = (int(last[end - 1]), start, end)
        furthest[int(partition[start])] = max(copy, furthest.get(int(partition[start]), copy))
    names = ("base_offset", "last_offset", "producer_id", "producer_epoch", "attributes")
    return {
        number: Batches(**{name: replicas[name][rows[start:end]] for name in names})
        for number, (_, start, end) in furthest.items()
    }
