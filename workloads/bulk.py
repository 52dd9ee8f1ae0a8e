"""What a producer does by the batch instead of by the record: rows and values before the calls, rows completed after a poll.

Per record there is left: produce(), and one short call per delivery report. A few records are cheaper one by one
(`send_rows.completer`); `FEW` is where numpy begins to pay.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import cast

import numpy as np
from confluent_kafka import KafkaError, Message

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, Outcome
from workloads.carrier import encoder_of_many, identities_of
from workloads.client import NowNs

FEW = 32
_DENSE = itemgetter(0)
PartitionName = tuple[int, str, int]
"""Dense id, topic, number within the topic."""


class Issuing:
    """Rows and values of many sends at once."""

    def __init__(self, sends: RowWriter, now_ns: NowNs, *, sender: int, value_bytes: int, most: int) -> None:
        """`most`: records at once, at most."""
        self._sends, self._now_ns = sends, now_ns
        self._encode = encoder_of_many(sender=sender, value_bytes=value_bytes)
        alike = {"completed_ns": MISSING, "log_offset": NONE, "transaction": NONE, "key": NONE}
        alike |= {"outcome": int(Outcome.INFO), "code": 0, "size": value_bytes}
        kinds = {column.name: column.kind for column in sends.table.columns}
        self._alike = {name: np.full(most, value, dtype=kinds[name]) for name, value in alike.items()}

    def invoke(self, turns: Sequence[PartitionName]) -> list[bytes]:
        """Write the row of each, before any of them is attempted, and return their values. The first has the sequence that
        was `sends.count`. One time for all: rows say "not before"."""
        count, first = len(turns), self._sends.count
        partitions = np.fromiter(map(_DENSE, turns), dtype=np.int32, count=count)
        sequences = np.arange(first, first + count)
        own: dict[str, np.ndarray] = {
            "invoked_ns": np.full(count, self._now_ns(), dtype=np.int64),
            "sequence": sequences,
            "partition": partitions,
        }
        self._sends.extend(own | {name: values[:count] for name, values in self._alike.items()})
        return self._encode(partitions, sequences)


class Reports:
    """Delivery reports, completed together after each poll. An error is completed at once, by `complete_one`."""

    def __init__(
        self,
        sends: RowWriter,
        now_ns: NowNs,
        *,
        complete_one: Callable[[KafkaError | None, Message], None],
        acknowledged: Callable[[Mapping[int, int]], None],
        offsets_told: bool = True,
    ) -> None:
        """`acknowledged`: told how many of each partition (dense id) were completed without error, but for those that went
        to `complete_one`. `offsets_told`: see `properties.offsets_are_told`."""
        self._sends, self._now_ns = sends, now_ns
        self._complete_one, self._acknowledged = complete_one, acknowledged
        self._offsets_told = offsets_told
        self._waiting: list[Message] = []

    def reported(self, error: KafkaError | None, message: Message) -> None:
        """The delivery callback."""
        if error is None:
            self._waiting.append(message)
        else:
            self._complete_one(error, message)

    def complete(self) -> None:
        """Complete the rows of all that was reported since the last call; to be called after every poll. `completed_ns` is
        an upper bound, so the time of this call is right for all of them."""
        if not self._waiting:
            return
        messages, self._waiting = self._waiting, []
        if len(messages) < FEW:
            for message in messages:
                self._complete_one(None, message)
            return
        partitions, sequences = identities_of(cast(list[bytes], list(map(Message.value, messages))))
        offsets = _offsets(messages) if self._offsets_told else NONE
        columns: dict[str, np.ndarray | int] = {
            "outcome": int(Outcome.OK),
            "log_offset": offsets,
            "completed_ns": self._now_ns(),
        }
        self._sends.complete(sequences.astype(np.int64), columns)
        self._acknowledged(Counter(partitions.tolist()))


def _offsets(messages: Sequence[Message]) -> np.ndarray:
    """int64; NONE where it is not told: for a duplicate sequence, which is a success all the same."""
    told = list(map(Message.offset, messages))
    try:
        offsets = np.array(told, dtype=np.int64)
    except TypeError:
        offsets = np.array([NONE if offset is None else offset for offset in told], dtype=np.int64)
    return np.maximum(offsets, NONE)
