"""Scenario E1–E3 on real Kafka: who had M1…M4 at each step, what became of them; and the reader of segments against
Kafka's own DumpLogSegments on the logs this leaves behind (rolled, compressed, idempotent, cut by SIGKILL)."""

import re
import subprocess

import numpy as np
import pytest

from prozess.clusters.files.segments import parse_snapshot, read_headers, read_replicas
from prozess.clusters.install.kafka_jars import class_path, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.harness.history.convert import History
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, ObservationKind, Outcome
from prozess.harness.verdict import AnomalyOutcome, TrialVerdict, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]
# Cheaper: test_every_workload.py looks at replicas and compares files, test_documentation.py loses what acks=1 loses.

X, Y, Z = 1, 2, 3
DUMPS = {"4.4.0": "org.apache.kafka.tools.DumpLogSegments", "3.9.2": "kafka.tools.DumpLogSegments"}
M2_EVERYWHERE, M3_AT_X_AND_Y, M4_AT_X, X_DEAD, X_BACK = range(5)


class Recovery:
    """A finished run of the trial."""

    def __init__(self, version: str, path: RunDirectory, verdict: TrialVerdict) -> None:
        self.version, self.run, self.verdict = version, path, verdict
        self.history = History.open(path)
        self.replicas, self.observations = self.history.table("replicas"), self.history.table("observations")
        looks = [n for n, step in enumerate(self.history.plan.steps) if step.name.startswith("look")]
        self.looks = [*looks, NONE]

    def log(self, look: int, partition: int, node: int) -> list[tuple[int, int, int]]:
        """(base offset, leader epoch, checksum) of each batch, as read at that look; -1 = at the end."""
        t = self.replicas
        rows = (t["step"] == self.looks[look]) & (t["partition"] == partition) & (t["node"] == node)
        return list(zip(*(t[c][rows].tolist() for c in ("base_offset", "leader_epoch", "checksum")), strict=True))

    def epochs(self, look: int, partition: int, node: int) -> dict[int, int]:
        t = self.observations
        rows = (t["step"] == self.looks[look]) & (t["partition"] == partition) & (t["node"] == node)
        rows &= t["kind"] == ObservationKind.REPLICA_EPOCH_START
        return dict(zip(t["leader_epoch"][rows].tolist(), t["value"][rows].tolist(), strict=True))

    @property
    def partitions(self) -> range:
        return range(len(self.history.plan.partitions))


@pytest.fixture(scope="module", params=DUMPS)
def recovery(request, run_trial, need):
    need("java")
    need("namespaces")
    settings = [
        f'variant.kafka_version="{request.param}"',
        'base.topic.properties.segment.ms="1500"',
        'axes.producer.compression_type=["none", "zstd"]',
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    done = run_trial("replica-recovery", "--engine", "local", *words, timeout_s=300)
    return Recovery(request.param, done.run, done.verdict)


def test_it_held_and_every_acks_1_cell_lost_exactly_m4(recovery):
    assert recovery.verdict.verdict is Verdict.HELD
    assert recovery.verdict.unknown_reasons == ()
    for cell in recovery.verdict.cells:
        lost, diverged = cell.anomalies["lost"], cell.anomalies["diverged"]
        assert diverged.outcome is AnomalyOutcome.HELD, cell.name
        if cell.axes["producer.acks"] == "1":
            (witness,) = lost.witnesses
            assert (lost.outcome, lost.count) == (AnomalyOutcome.PERMITTED, 1)
            assert witness.log_offset == recovery.log(M4_AT_X, cell.cell, X)[-1][0]
        else:
            assert (lost.outcome, lost.proven) == (AnomalyOutcome.HELD, True), cell.name


def test_x_had_m4_y_had_m3_and_z_had_m2(recovery):
    for partition in recovery.partitions:
        everywhere = recovery.log(M2_EVERYWHERE, partition, X)
        assert everywhere == recovery.log(M2_EVERYWHERE, partition, Y) == recovery.log(M2_EVERYWHERE, partition, Z)
        x, y, z = (recovery.log(M4_AT_X, partition, node) for node in (X, Y, Z))
        assert (len(x), y, z) == (len(everywhere) + 2, x[:-1], everywhere)
        assert recovery.log(M3_AT_X_AND_Y, partition, X) == recovery.log(M3_AT_X_AND_Y, partition, Y) == y
        assert recovery.log(X_DEAD, partition, X) == x, "a dead broker's log does not change"
        assert recovery.log(X_DEAD, partition, Y)[: len(y)] == y
        assert recovery.log(X_DEAD, partition, Z)[: len(y)] == y, "Z got M3 from Y"


def test_x_cut_off_what_it_had_beyond_the_new_epochs_start_and_has_the_same_log_and_history_of_epochs(recovery):
    for partition in recovery.partitions:
        m4 = recovery.log(M4_AT_X, partition, X)[-1]
        logs = [recovery.log(X_BACK, partition, node) for node in (X, Y, Z)]
        assert logs[0] == logs[1] == logs[2]
        assert m4 not in logs[0]
        at_m4 = next(batch for batch in logs[0] if batch[0] == m4[0])
        assert at_m4[1] > m4[1], "its offset was given to a record of a later epoch"
        before, (x, y, z) = (
            recovery.epochs(X_DEAD, partition, X),
            (recovery.epochs(X_BACK, partition, n) for n in (X, Y, Z)),
        )
        assert x == y == z == before | {at_m4[1]: m4[0]}
        assert recovery.epochs(NONE, partition, X) == y, "the controller moved nothing else"


def test_m3_was_committed_though_never_acknowledged_where_nobody_sends_again(recovery):
    cells = [c for c in recovery.history.plan.cells if (c.producer.acks, c.producer.retries) == ("all", "0")]
    assert cells
    for cell in cells:
        m3, m4 = recovery.log(M4_AT_X, cell.cell, X)[-2:]
        told = recovery.history.partition_history(cell.cell)
        open_rows = told.sends["outcome"] == Outcome.INFO
        sent = set(
            zip(told.sends["client"][open_rows].tolist(), told.sends["sequence"][open_rows].tolist(), strict=True)
        )
        rows = told.reads["log_offset"] == m3[0]
        read = set(zip(told.reads["sender"][rows].tolist(), told.reads["sequence"][rows].tolist(), strict=True))
        assert len(sent) == 2, "M3 and M4"
        assert len(read) == 1, "both readers and both audits were given the same record"
        assert read < sent
        gone = sent - read
        given = set(zip(told.reads["sender"].tolist(), told.reads["sequence"].tolist(), strict=True))
        assert not gone & given, "M4 was never committed: no reader was given it"
        assert m4[0] > m3[0]


# --- the reader against Kafka's own tool -----------------------------------------------------------------------------

_BATCH = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<records>\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: -?\d+ producerId: (?P<producer_id>-?\d+) "
    r"producerEpoch: (?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>-?\d+) "
    r"isTransactional: (?P<transactional>\w+) isControl: (?P<control>\w+) .*"
    r"CreateTime: (?P<max_timestamp_ms>\d+) size: (?P<size>\d+) magic: 2 compresscodec: (?P<compression>\w+) "
    r"crc: (?P<checksum>\d+) isvalid: true",
    re.MULTILINE,
)
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_NUMBERS = (
    "base_offset", "last_offset", "records", "base_sequence", "producer_id", "producer_epoch", "leader_epoch",
    "max_timestamp_ms", "size", "checksum",
)  # fmt: skip


def test_the_reader_says_of_every_batch_what_dump_log_segments_says(recovery):
    plan = recovery.history.plan
    directories = {node: recovery.run.nodes / f"broker-{node}" / "data" for node in (X, Y, Z)}
    named = [(p.partition, p.topic_name, p.number) for p in plan.partitions]
    problems: list[str] = []
    read = list(read_replicas(directories, named, on_problem=problems.append))
    assert problems == []
    assert len(read) == 3 * len(named)
    chosen = [replica for replica in read if replica.partition in (0, named[-1][0])]
    segments = 0
    for replica in chosen:
        _, topic, number = named[replica.partition]
        files = sorted((directories[replica.node] / f"{topic}-{number}").glob("*.log"))
        segments += len(files)
        said = [match.groupdict() for match in _BATCH.finditer(dump(recovery.version, files))]
        for name in _NUMBERS:
            assert replica.batches[name].tolist() == [int(batch[name]) for batch in said], name
        attributes = replica.batches["attributes"]
        assert (attributes & 7).tolist() == [_CODECS[batch["compression"]] for batch in said]
        assert (attributes & 0x10 != 0).tolist() == [batch["transactional"] == "true" for batch in said]
        assert (attributes & 0x20 != 0).tolist() == [batch["control"] == "true" for batch in said]
        assert sum(len(read_headers(file)[0]) for file in files) == len(said) > 100
    assert segments > 2 * len(chosen), "logs were rolled"
    assert {int(a) & 7 for r in read for a in np.unique(r.batches["attributes"])} == {0, 4}


_ENTRY = re.compile(
    r"^producerId: (?P<producer_id>\d+) producerEpoch: (?P<producer_epoch>\d+) "
    r"coordinatorEpoch: (?P<coordinator_epoch>-?\d+) currentTxnFirstOffset: \w+(?:\.empty|\[\d+\]) "
    r"lastTimestamp: (?P<timestamp_ms>\d+) firstSequence: \d+ lastSequence: (?P<last_sequence>\d+) "
    r"lastOffset: (?P<last_offset>\d+) offsetDelta: (?P<offset_delta>\d+) ",
    re.MULTILINE,
)


def test_producer_snapshots_are_read_as_dump_log_segments_reads_them_and_agree_with_the_batches(recovery):
    files = sorted(recovery.run.nodes.glob("broker-*/data/cell-*/*.snapshot"))
    read = [parse_snapshot(file.read_bytes(), int(file.stem)) for file in files]
    assert [snapshot.damage for snapshot in read] == [""] * len(files)
    entries = [entry for snapshot in read for entry in snapshot.entries]
    said = [match.groupdict() for match in _ENTRY.finditer(dump(recovery.version, files))]
    assert len(said) == len(entries) > 20
    for name in said[0]:
        assert [int(entry[name]) for entry in entries] == [int(one[name]) for one in said], name
    told = recovery.history.table("snapshots")
    assert int((told["step"] == NONE).sum()) == len(entries), "all of them are in the history"
    for cell in recovery.verdict.cells:
        idempotent = cell.axes["producer.enable_idempotence"] == "true"
        expected = AnomalyOutcome.HELD if idempotent else AnomalyOutcome.NOT_JUDGED
        assert cell.anomalies["snapshot-conflict"].outcome is expected, cell.name


FILES_MAX = 300


def dump(version: str, files: list) -> str:
    """What Kafka's own tool prints of these files. They are one argument to it, of which Linux takes 128 KiB."""
    if len(files) > FILES_MAX:
        return dump(version, files[:FILES_MAX]) + dump(version, files[FILES_MAX:])
    command = [
        str(find_java().executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-cp", class_path(ensure_jars(version)), DUMPS[version], "--files", ",".join(map(str, files)),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
