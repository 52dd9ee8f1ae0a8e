"""Logs of controllers, put where a decoder looks for them: of real clusters, and of records made by hand."""

import gzip
import struct
from pathlib import Path

import pytest

from prozess.clusters.files.metadata_log import LOG_DIRECTORY, decode_metadata_log
from prozess.clusters.files.segments import crc32c
from prozess.clusters.protocol.client import compact_string, unsigned_varint, varint
from tests.support.paths import DATA

IDS = {("alpha", 0): 0, ("alpha", 1): 1, ("beta", 0): 2, ("gone", 0): 3}
WALL_MINUS_MONOTONIC_NS = 1_795_170_000_000_000_123


def unzipped(name: str) -> bytes:
    return gzip.decompress((DATA / name).read_bytes())


def controller(directory: Path, *segments: bytes, first_offsets: tuple[int, ...] = (0,)) -> Path:
    """A controller's data directory with these segments."""
    log = directory / LOG_DIRECTORY
    log.mkdir(parents=True)
    for segment, first in zip(segments, first_offsets, strict=True):
        (log / f"{first:020d}.log").write_bytes(segment)
    return directory


def decode(*directories: Path, ids=IDS, wall_minus_monotonic_ns=WALL_MINUS_MONOTONIC_NS):
    return decode_metadata_log(directories, partition_ids=ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)


def rows(columns, *names):
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


@pytest.fixture(scope="module", params=["3.9.2", "4.3.1"])
def version(request):
    return request.param


@pytest.fixture
def decoded(version, tmp_path):
    return decode(controller(tmp_path, unzipped(f"metadata-{version}.log.gz")))


# --- what the story of those clusters was


def of_partition(columns, partition):
    chosen = columns["partition"] == partition
    return {name: values[chosen] for name, values in columns.items()}


# --- several controllers, snapshots, damage


def quorum(directory: Path) -> list[Path]:
    return [
        controller(directory / str(node), unzipped(f"metadata-quorum-4.3.1.{node}.log.gz"))
        for node in (3001, 3002, 3003)
    ]


# --- records made by hand: what no captured log has


def record_value(key: int, version: int, body: bytes) -> bytes:
    return b"\x01" + unsigned_varint(key) + unsigned_varint(version) + body


def fence(broker: int) -> bytes:
    return record_value(7, 0, struct.pack(">iq", broker, 1) + b"\0")


def topic(name: str, topic_id: bytes) -> bytes:
    return record_value(2, 0, compact_string(name) + topic_id + b"\0")


def partition(topic_id: bytes, *, leader: int) -> bytes:
    three = b"\x04" + struct.pack(">3i", 1, 2, 3)
    return record_value(
        3, 0, struct.pack(">i", 0) + topic_id + three * 2 + b"\x01\x01" + struct.pack(">3i", leader, 0, 0) + b"\0"
    )


def change(topic_id: bytes, *, leader: int) -> bytes:
    return record_value(5, 0, struct.pack(">i", 0) + topic_id + b"\x01\x01\x04" + struct.pack(">i", leader))


BEGIN, END, ABORT = (record_value(key, 0, b"\0") for key in (23, 24, 25))
TOPIC_ID = bytes(range(16))


def batch(base_offset: int, values: list[bytes], *, epoch: int = 1, time_ms: int = 1_795_170_000_000) -> bytes:
    """One record batch as Kafka lays it out."""
    payload = b""
    for index, value in enumerate(values):
        record = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
        payload += varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values)) + payload
    return struct.pack(">qiibI", base_offset, len(checked) + 9, epoch, 2, crc32c(checked)) + checked


def by_hand(directory: Path, *values: bytes):
    return decode(controller(directory, batch(0, list(values))))


def leaders(columns):
    return rows(columns, "leader", "leader_epoch", "log_position")
