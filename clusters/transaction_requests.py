"""What is asked of leaders and coordinators about transactions, and the marker that ends one by hand (KIP-664). Pure: bodies
out, answers in.

Layouts: `DescribeProducers` and `ListTransactions` version 0, `WriteTxnMarkers` version 1 (0 is gone since 4.0; 2 is for
coordinators, KIP-1228), of every `kafka-clients` jar.
"""

import struct
from collections.abc import Mapping, Sequence

from clusters.wire import NO_TAGS, Cursor, Request, compact_string, unsigned_varint
from harness.open_transactions import CoordinatedTransaction, OpenTransaction

PartitionKey = tuple[str, int]
OpenTransactions = Mapping[PartitionKey, tuple[OpenTransaction, ...]]

_INT32 = struct.Struct(">i")
_PRODUCER = struct.Struct(">qiiqiq")  # id, epoch, last sequence, last timestamp, coordinator epoch, transaction's start
_MARKER_HEAD = struct.Struct(">qhb")  # producer id, producer epoch, 0 = abort
_MARKED = struct.Struct(">ih")  # number, error


def list_transactions_request(states: Sequence[str] = ()) -> Request[tuple[CoordinatedTransaction, ...] | None]:
    """ListTransactions v0 (KIP-664; brokers since 3.0): what this coordinator knows, of these states only, if any are given.
    None: it is still loading, or must not tell."""
    wanted = unsigned_varint(len(states) + 1) + b"".join(map(compact_string, states))
    body = wanted + b"\x01" + NO_TAGS
    return Request(66, 0, body, _list_transactions_answer, flexible=True, flexible_response=True)


def _list_transactions_answer(cursor: Cursor) -> tuple[CoordinatedTransaction, ...] | None:
    cursor.int32()  # throttle time
    if cursor.int16():
        return None
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.compact_string()  # states it does not know
    found = []
    for _ in range(cursor.unsigned_varint() - 1):
        name, producer_id, state = cursor.compact_string() or "", cursor.int64(), cursor.compact_string() or ""
        cursor.tagged_fields()
        found.append(CoordinatedTransaction(name, producer_id, state))
    return tuple(found)


def describe_producers_request(partitions: Mapping[str, Sequence[int]]) -> Request[OpenTransactions]:
    """DescribeProducers v0 (KIP-664; brokers since 2.8): the open transactions of each partition, by where they begin.
    Partitions that the broker does not tell of (not leader) are not there."""
    body = [unsigned_varint(len(partitions) + 1)]
    for topic, numbers in partitions.items():
        body += [compact_string(topic), unsigned_varint(len(numbers) + 1), *map(_INT32.pack, numbers), NO_TAGS]
    return Request(61, 0, b"".join(body) + NO_TAGS, _describe_producers_answer, flexible=True, flexible_response=True)


def _describe_producers_answer(cursor: Cursor) -> OpenTransactions:
    cursor.int32()  # throttle time
    found = {}
    for _ in range(cursor.unsigned_varint() - 1):
        topic = cursor.compact_string() or ""
        for _ in range(cursor.unsigned_varint() - 1):
            number, error = cursor.int32(), cursor.int16()
            cursor.compact_string()  # error message
            opened = []
            for _ in range(cursor.unsigned_varint() - 1):
                producer, epoch, _sequence, last_ms, coordinator_epoch, start = cursor.numbers(_PRODUCER)
                cursor.tagged_fields()
                if start >= 0:
                    opened.append(OpenTransaction(start, producer, epoch, last_ms, coordinator_epoch))
            cursor.tagged_fields()
            if error == 0:
                found[topic, number] = tuple(sorted(opened, key=lambda one: one.start_offset))
        cursor.tagged_fields()
    return found


def abort_marker_request(partition: PartitionKey, transaction: OpenTransaction) -> Request[Mapping[PartitionKey, int]]:
    """WriteTxnMarkers v1 of one abort, to the leader: (topic, number) → error code. With the epochs that the leader told; 0
    for a producer that was never given a marker, which is below every coordinator's. [KIP-664; TransactionsCommand of
    Kafka's tools]"""
    topic, number = partition
    head = _MARKER_HEAD.pack(transaction.producer_id, transaction.producer_epoch, 0)
    where = b"\x02" + compact_string(topic) + b"\x02" + _INT32.pack(number) + NO_TAGS
    marker = head + where + _INT32.pack(max(transaction.coordinator_epoch, 0)) + NO_TAGS
    return Request(27, 1, b"\x02" + marker + NO_TAGS, _markers_answer, flexible=True, flexible_response=True)


def _markers_answer(cursor: Cursor) -> Mapping[PartitionKey, int]:
    found = {}
    for _ in range(cursor.unsigned_varint() - 1):
        cursor.int64()  # producer id
        for _ in range(cursor.unsigned_varint() - 1):
            topic = cursor.compact_string() or ""
            for _ in range(cursor.unsigned_varint() - 1):
                number, error = cursor.numbers(_MARKED)
                cursor.tagged_fields()
                found[topic, number] = error
            cursor.tagged_fields()
        cursor.tagged_fields()
    return found
