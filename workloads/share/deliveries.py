"""The rows of a share group's member: what it was given, what it acknowledged, and what it was answered."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import DELIVERIES, MISSING, NONE, READS, Acknowledgement, Outcome
from prozess.workloads.record.identity import decode, key_ids

ACCEPT, RELEASE, REJECT = Acknowledgement


class Given:
    """The records that one poll gave, column by column. All have one length."""

    def __init__(self) -> None:
        self.partition: list[int] = []
        self.offset: list[int] = []
        self.count: list[int] = []
        """How often each was delivered, as the broker says; NONE: it does not say."""
        self.key: list[bytes | None] = []
        self.value: list[bytes | None] = []

    def add(self, partition: int, offset: int, count: int, key: bytes | None, value: bytes | None) -> None:
        """Adds a record that the poll gave."""
        self.partition.append(partition)
        self.offset.append(offset)
        self.count.append(count)
        self.key.append(key)
        self.value.append(value)

    @property
    def records(self) -> list[tuple[int, int]]:
        """Returns (dense partition, offset) of each record."""
        return list(zip(self.partition, self.offset, strict=True))


class DeliveryRows:
    """Writes rows of `reads` and of `deliveries`, and completes the latter. A delivery is known by partition and offset:
    a member that is given a record again has a new row."""

    def __init__(self, rows: Path, client: int, group: int) -> None:
        self._reads, self._deliveries = RowWriter(rows, READS, client), RowWriter(rows, DELIVERIES, client)
        self._group = group
        self._row: dict[tuple[int, int], int] = {}
        """The newest row of each record that is not finished: (dense partition, offset) → its index."""

    @property
    def count(self) -> int:
        """Returns how many records were given."""
        return self._deliveries.count

    def given(self, given: Given, *, absent_ns: int, acquired_ns: int) -> None:
        """Writes the rows of what a poll gave. `absent_ns`: when nothing of it had come yet."""
        length, first = len(given.offset), self._deliveries.count
        identities = decode(given.value)
        same: dict[str, np.ndarray] = {
            "log_offset": np.array(given.offset, dtype=np.int64),
            "partition": np.array(given.partition, dtype=np.int32),
            "sequence": identities.sequence,
            "sender": identities.sender,
        }

        def all_(value: int) -> np.ndarray:
            return np.full(length, value, dtype=np.int64)

        self._reads.extend(
            {
                **same,
                "read_ns": all_(acquired_ns),
                "key": key_ids(given.key),
                "origin": all_(NONE),
                "sent_partition": identities.sent_partition,
                "span": np.arange(first, first + length),
                "flags": identities.flags,
                "leader_epoch": all_(NONE),
            }
        )
        self._deliveries.extend(
            {
                **same,
                "absent_ns": all_(absent_ns),
                "acquired_ns": all_(acquired_ns),
                **{name: all_(MISSING) for name in ("acknowledged_ns", "answered_ns", "renewed_ns")},
                "group": all_(self._group),
                "delivery_count": np.array(given.count, dtype=np.int64),
                "acknowledgement": all_(NONE),
                "outcome": all_(Outcome.INFO),
                "code": all_(0),
            }
        )
        for number, record in enumerate(given.records):
            self._row[record] = first + number

    def acknowledged(self, records: Sequence[tuple[int, int]], kinds: Sequence[int], now_ns: int) -> None:
        """Notes what the member is about to acknowledge."""
        self._deliveries.complete(
            self._rows_of(records), {"acknowledged_ns": now_ns, "acknowledgement": np.array(kinds, dtype=np.int32)}
        )

    def answered(self, records: Collection[tuple[int, int]], code: int, now_ns: int) -> None:
        """Notes the answer to acknowledgements; `code` 0: they took effect. A refusal stays INFO: the client may have
        sent them more than once."""
        rows = self._rows_of([record for record in records if record in self._row])
        outcome = Outcome.INFO if code else Outcome.OK
        self._deliveries.complete(rows, {"code": code, "outcome": int(outcome), "answered_ns": now_ns})
        for record in records:
            self._row.pop(record, None)

    def renewed(self, renewed_ns: Mapping[tuple[int, int], int]) -> None:
        """Notes renewals that took effect: record → when the renewal was sent."""
        known = {record: sent_ns for record, sent_ns in renewed_ns.items() if record in self._row}
        sent_ns = np.array(list(known.values()), dtype=np.int64)
        self._deliveries.complete(self._rows_of(list(known)), {"renewed_ns": sent_ns})

    def close(self) -> None:
        """Writes the rows to their end."""
        self._reads.close()
        self._deliveries.close()

    def _rows_of(self, records: Sequence[tuple[int, int]]) -> np.ndarray:
        return np.array([self._row[record] for record in records], dtype=np.int64)
