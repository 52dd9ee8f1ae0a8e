"""A transaction that hangs, made as late or forgotten ones look to a leader: a transactional batch of a producer id that no
coordinator knows. Brokers take it where transaction.partition.verification.enable=false (KIP-890)."""

import struct

from prozess.clusters.files.segments import crc32c
from prozess.clusters.protocol.client import Cursor, Request, WireClient, string, varint
from prozess.harness.clock import SystemClock

TRANSACTIONAL = 0x10
PRODUCER_ID, EPOCH = 424_242, 5


def write_forgotten(servers, leader, topic, number):
    """The base offset of the batch; AssertionError with the error code if the leader refuses it."""
    client = WireClient(lambda: servers, name="broker", clock=SystemClock())
    answers = client.ask(leader, produce_request(topic, number, one_record()), timeout_s=30)
    client.close()
    assert answers is not None, f"broker {leader} did not answer"
    error, offset = answers[0]
    assert error == 0, f"broker {leader} answered error {error}"
    return offset


def one_record():
    """A batch (magic 2) of one record without a key."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(1) + b"x" + varint(0)
    body = struct.pack(">hiqqqhii", TRANSACTIONAL, 0, 0, 0, PRODUCER_ID, EPOCH, 0, 1) + varint(len(record)) + record
    rest = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return struct.pack(">qi", 0, len(rest)) + rest


def produce_request(topic, number, batch):
    """Produce v7, acks=all: (error code, base offset)."""
    partition = struct.pack(">ii", number, len(batch)) + batch
    topics = struct.pack(">i", 1) + string(topic) + struct.pack(">i", 1) + partition
    return Request(0, 7, string("forgotten") + struct.pack(">hi", -1, 30_000) + topics, produced)


def produced(cursor: Cursor):
    cursor.int32()  # topics
    cursor.string()
    cursor.int32()  # partitions
    cursor.int32()  # number
    return cursor.int16(), cursor.int64()
