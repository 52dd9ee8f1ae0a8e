"""Producer snapshots: reading them, damage, and from a broker's directory into the history and out of it for the kernel."""

import struct

import pytest

from prozess.checkers.log.producer_snapshots import snapshot_conflict
from prozess.clusters.files.segments import crc32c, parse_snapshot, read_snapshots
from prozess.harness.interfaces.witnesses import SnapshotCase
from prozess.harness.schema import NONE, ObservationKind
from tests.unit.clusters.files.test_segments import batch
from tests.unit.prozess.app.run.test_inspector import Brokers

_ENTRY = struct.Struct(">qhiqiqiq")
"""Written out once more, so that the reader's layout is not tested against itself."""


def entry(producer=1000, epoch=0, sequence=0, offset=0, delta=0, time_ms=1005, coordinator=-1, transaction=-1):
    return producer, epoch, sequence, offset, delta, time_ms, coordinator, transaction


def snapshot(*entries, version=1, checksum=None):
    body = struct.pack(">i", len(entries)) + b"".join(_ENTRY.pack(*one) for one in entries)
    return struct.pack(">hI", version, crc32c(body) if checksum is None else checksum) + body


def test_every_field_of_every_entry_is_read():
    read = parse_snapshot(snapshot(entry(7, 3, 40, 50, 2, 99, 5, 48), entry(8)), 51)
    assert (read.offset, read.damage) == (51, "")
    assert read.entries.tolist() == [(7, 3, 40, 50, 2, 99, 5, 48), (8, 0, 0, 0, 0, 1005, -1, -1)]
    assert len(parse_snapshot(snapshot(), 1).entries) == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (snapshot(entry())[:9], "9 bytes are no whole header"),
        (snapshot(entry())[:-1], "55 bytes, where 1 entries make 56"),
        (snapshot(entry()) + b"x", "57 bytes, where 1 entries make 56"),
        (snapshot(version=2), "version 2; version 1 is known"),
        (snapshot(entry(), checksum=77), "its checksum is not 77"),
        (b"", "0 bytes are no whole header"),
    ],
)
def test_damage_is_told_and_nothing_of_it_believed(data, why):
    read = parse_snapshot(data, 3)
    assert (read.damage, len(read.entries)) == (why, 0)


def test_every_flipped_bit_of_a_snapshot_is_noticed():
    whole = snapshot(entry(7, 3, 40, 50, 2, 99, 5, 48))
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        assert parse_snapshot(bytes(changed), 0).damage


def test_what_kafka_put_aside_is_no_snapshot_and_the_rest_comes_by_offset(tmp_path):
    for name in (f"{30:020d}.snapshot", f"{4:020d}.snapshot", f"{9:020d}.snapshot.deleted", "partition.snapshot"):
        (tmp_path / name).write_bytes(snapshot())
    assert [read.offset for read in read_snapshots(tmp_path)] == [4, 30]


# --- into the history and out of it -----------------------------------------------------------------------------------

LOG = (batch(0, 3, producer=(1000, 0, 0)), batch(3, 2, producer=(1000, 0, 3)), batch(5, 1, producer=(1001, 4, 0)))
RIGHT = (entry(1000, 0, 4, 4, 1), entry(1001, 4, 0, 5, 0))


def brokers_with(tmp_path, snapshots):
    """Three brokers with the same log; `snapshots` of broker 2 by offset."""
    brokers = Brokers(tmp_path)
    for node in (1, 2, 3):
        brokers.holds(node, *LOG)
    for offset, data in snapshots.items():
        (brokers.directories[2] / "cell-000-0" / f"{offset:020d}.snapshot").write_bytes(data)
    brokers.inspector.inspect([0])
    return brokers.history()


def test_a_snapshot_that_says_what_the_batches_say_reaches_the_kernel_and_agrees(tmp_path):
    history = brokers_with(tmp_path, {5: snapshot(RIGHT[0]), 6: snapshot(*RIGHT)})
    told = history.partition_history(0)
    assert told.snapshots["snapshot_offset"].tolist() == [5, 6, 6]
    assert (told.snapshots["node"].tolist(), told.snapshots["step"].tolist()) == ([2] * 3, [NONE] * 3)
    result = snapshot_conflict(told)
    assert (result.count, result.judged, result.incomplete) == (0, 3, None)


def test_a_retry_that_would_be_taken_for_new_is_found(tmp_path):
    told = brokers_with(tmp_path, {6: snapshot(entry(1000, 0, 2, 2, 2), RIGHT[1])}).partition_history(0)
    (witness,) = snapshot_conflict(told).witnesses
    assert (witness["case"], witness["reader"], witness["log_offset"]) == (SnapshotCase.LAST_BATCH, 2, 6)
    assert (witness["sequence"], witness["other_sequence"], witness["other_offset"]) == (2, 4, 4)


def test_a_damaged_snapshot_leaves_it_open_and_one_without_producers_is_judged_all_the_same(tmp_path):
    told = brokers_with(tmp_path, {5: snapshot(), 6: snapshot(*RIGHT)[:-1]}).partition_history(0)
    kinds = told.observations["kind"].tolist()
    assert kinds.count(ObservationKind.REPLICA_SNAPSHOT) == 1
    result = snapshot_conflict(told)
    assert [int(w["case"]) for w in result.witnesses] == [SnapshotCase.UNKNOWN_THERE]
    assert result.incomplete == "the snapshot 6 of partition 0 on broker 2 cannot be read"
