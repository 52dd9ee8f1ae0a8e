"""Errors that no retry can heal, as the errors workload provokes them: what each is, and what it takes. Pure.

An error is either one record's (every n-th record is bad by itself: too large, without key, …) or a state of the cluster or
of the client (a denied topic, a full queue, brokers that are away), which whatever is sent meanwhile runs into.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Error = Literal[
    "too-large-for-client",
    "too-large-for-broker",
    "list-too-large",
    "not-authorised",
    "invalid-record",
    "invalid-timestamp",
    "serialization",
    "full-queue",
    "timeout",
    "bad-configuration",
]
AUTHORIZER_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Of the brokers: what `not-authorised` needs."""
OLDEST_TIMESTAMP_MS = 3_600_000
DAY_MS = 86_400_000
_INVALID_RECORD, _INVALID_DIFFERENT_RECORD = 87, -138
"""What librdkafka tells of records in a batch that a broker refused: of those to blame the first, of their neighbours the
second, the first or the code of the whole batch (seen: it does not tell them apart)."""
_SEGMENT_BYTES = 1 << 20
"""The least that brokers take from 4.0 on (KIP-1030)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provocation:
    """One error."""

    code: int
    """What the caller is told: a code of the protocol, or (negative) of librdkafka."""
    by_broker: bool
    """A broker refuses it; else the client does, before anything was sent."""
    of_record: bool
    """Bad records bring it about; else a state does."""
    value_bytes: int | None = None
    """Of a bad record; None = as of the others."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """`scope.key` = value of the cell, unless the trial says otherwise."""

    @property
    def codes(self) -> tuple[int, ...]:
        """All that the caller may be told."""
        in_batch = (_INVALID_RECORD, _INVALID_DIFFERENT_RECORD) if self.by_broker and self.of_record else ()
        return tuple(dict.fromkeys((self.code, *in_batch)))


PROVOCATIONS: Mapping[Error, Provocation] = {
    "too-large-for-client": Provocation(
        code=10,
        by_broker=False,
        of_record=True,
        value_bytes=20_000,
        implied={"producer.properties.message.max.bytes": 10_000},
    ),
    "too-large-for-broker": Provocation(
        code=10,
        by_broker=True,
        of_record=True,
        value_bytes=200_000,
        # A batch of good records must stay below the limit, however long the brokers were away.
        implied={"topic.properties.max.message.bytes": 100_000, "producer.properties.batch.size": 50_000},
    ),
    "list-too-large": Provocation(
        code=18,
        by_broker=True,
        of_record=True,
        value_bytes=_SEGMENT_BYTES + 100_000,
        implied={
            "topic.properties.segment.bytes": _SEGMENT_BYTES,
            "topic.properties.max.message.bytes": 4 * _SEGMENT_BYTES,
            "producer.properties.message.max.bytes": 4 * _SEGMENT_BYTES,
            "producer.properties.batch.size": 50_000,
        },
    ),
    "not-authorised": Provocation(code=29, by_broker=True, of_record=False),
    "invalid-record": Provocation(code=87, by_broker=True, of_record=True, implied={"topic.cleanup_policy": "compact"}),
    "invalid-timestamp": Provocation(
        code=32,
        by_broker=True,
        of_record=True,
        implied={"topic.properties.message.timestamp.before.max.ms": OLDEST_TIMESTAMP_MS},
    ),
    "serialization": Provocation(code=-161, by_broker=False, of_record=True),
    "full-queue": Provocation(
        code=-184, by_broker=False, of_record=False, implied={"producer.properties.queue.buffering.max.messages": 20}
    ),
    "timeout": Provocation(
        code=-192, by_broker=False, of_record=False, implied={"producer.delivery_timeout_ms": 2_000}
    ),
    "bad-configuration": Provocation(code=-186, by_broker=False, of_record=True),
}


def is_bad(sequence: np.ndarray, *, every: int) -> np.ndarray:
    """bool[n]: which sequences of a client that provokes by bad records are bad: every `every`-th, the last of each."""
    return np.asarray(sequence % every == every - 1)
