"""Every minor release of Kafka: what prozess reads of its files is what that release's own DumpLogSegments says of them.

The files are of a run of the trial `transactions`: topics of transactions, of groups and of the coordinators, and the
controllers' log, with a broker killed and another one frozen."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from prozess.clusters.files.metadata_log import LOG_DIRECTORY, decode_ground_truth
from prozess.clusters.files.segments import parse_snapshot, read_batches, read_headers
from prozess.clusters.install.kafka_jars import class_path, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.releases import NEWEST_PATCHES
from prozess.harness.history.convert import History
from prozess.harness.schema import MetadataKind, MetadataSource
from prozess.harness.verdict import Verdict
from tests.support.metadata_logs import MetadataOracle, assert_same_rows, dumped_records, mask

pytestmark = [pytest.mark.cluster, pytest.mark.long]
# Cheaper: test_every_workload.py does the same with the newest release, test_variants_on_local.py with ZooKeeper.

DUMP_TIMEOUT_S = 120
TRIAL = """
name = "files"
title = "Transactions are taken over, and a broker that coordinates and leads is killed"
workload = "transactions"

[variant]
kafka_version = "{version}"
metadata_mode = "{mode}"

[variant.properties]
"broker.session.timeout.ms" = 4000
"broker.heartbeat.interval.ms" = 500
"zookeeper.session.timeout.ms" = 4000

[topics]
partitions = 6

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2
"transaction.reads" = "read_committed"
"transaction.records" = 12
"transaction.abort_share" = 0.25
"transaction.transactional_ids" = 2
"transaction.standby" = true

[[steps]]
name = "steady transactions"
after = {{ condition = "acked", count = 30 }}

[[steps]]
name = "every id is taken over from a producer with an open transaction"
do = {{ kind = "take_over" }}

[[steps]]
name = "kill a leader and coordinator"
after = {{ condition = "acked", count = 20 }}
do = {{ kind = "fault", fault = "kill", targets = ["transaction-coordinator(0)"] }}

[[steps]]
name = "new leaders"
after = {{ condition = "leader-moved" }}
timeout_s = 30

[[steps]]
name = "the killed one returns"
after = {{ condition = "acked", count = 20 }}
timeout_s = 60
do = {{ kind = "heal" }}

[[steps]]
name = "every replica in sync"
after = {{ condition = "isr" }}
timeout_s = 60
"""
"""What writes every sort of file that is read: aborted and taken-over transactions, snapshots of producers, new leaders."""


def has_kraft(version: str) -> bool:
    return version_numbers(version) >= (3, 3)


class FilesOfRun:
    """A finished run of one version, of which nothing is removed."""

    def __init__(self, version, done) -> None:
        self.version, self.run, self.verdict = version, done.run, done.verdict
        self.history = History.open(done.run)
        self.plan = self.history.plan
        clock = json.loads(done.run.clock.read_text())
        self.wall_minus_monotonic_ns = int(clock["wall_minus_monotonic_ns"])

    def dump(self, files: list[Path], *options: str) -> str:
        """What Kafka's own tool prints of these files."""
        tool = "org.apache.kafka.tools" if version_numbers(self.version) >= (4, 3) else "kafka.tools"
        return self.java(f"{tool}.DumpLogSegments", *options, "--files", ",".join(map(str, files)))

    def java(self, *words: str) -> str:
        command = [str(find_java().executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", class_path(ensure_jars(self.version)), *words]
        done = subprocess.run(command, capture_output=True, timeout=DUMP_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.decode(errors="replace")


@pytest.fixture(scope="module", params=NEWEST_PATCHES)
def finished(request, run_trial, need):
    need("java")
    need("namespaces")
    mode = "kraft-isolated" if has_kraft(request.param) else "zookeeper"
    done = run_trial(TRIAL.format(version=request.param, mode=mode), "--engine", "local", timeout_s=600)
    return FilesOfRun(request.param, done)


def test_it_held_and_the_ground_truth_was_understood(finished):
    assert finished.verdict.verdict is Verdict.HELD
    assert finished.verdict.unknown_reasons == ()
    sources = set(finished.history.table("metadata")["source"].tolist())
    assert MetadataSource.CONTROLLER_LOG in sources


_BATCH = re.compile(
    r"^baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<records>\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: -?\d+ producerId: (?P<producer_id>-?\d+) "
    r"producerEpoch: (?P<producer_epoch>-?\d+) partitionLeaderEpoch: (?P<leader_epoch>-?\d+) "
    r"isTransactional: (?P<transactional>\w+) isControl: (?P<control>\w+) .*"
    r"CreateTime: (?P<max_timestamp_ms>-?\d+) size: (?P<size>\d+) magic: 2 compresscodec: \w+ "
    r"crc: (?P<checksum>\d+) isvalid: true",
    re.MULTILINE,
)
_SAME = (
    "base_offset", "records", "base_sequence", "producer_id", "producer_epoch", "leader_epoch", "max_timestamp_ms",
    "checksum",
)  # fmt: skip


def test_batches_of_data_of_groups_and_of_transactions_are_read_as_dump_log_segments_reads_them(finished):
    data = finished.run.nodes / "broker-1" / "data"
    topics = ("cell-*", "__transaction_state", "__consumer_offsets")
    files = sorted(file for topic in topics for file in data.glob(f"{topic}-*/*.log"))
    read = [header for file in files for header in read_headers(file)[0]]
    said = [match.groupdict() for match in _BATCH.finditer(finished.dump(files))]
    assert len(read) == len(said) > 100
    for name in _SAME:
        assert [int(one[name]) for one in read] == [int(one[name]) for one in said], name
    assert [bool(one["attributes"] & 0x10) for one in read] == [one["transactional"] == "true" for one in said]
    assert [bool(one["attributes"] & 0x20) for one in read] == [one["control"] == "true" for one in said]
    assert {one["control"] for one in said} == {"true", "false"}
    ends = [int(one["base_offset"]) + int(one["last_offset_delta"]) for one in read]
    assert ends == [int(one["last_offset"]) for one in said]


_ENTRY = re.compile(
    r"producerId: (?P<producer_id>\d+) producerEpoch: (?P<producer_epoch>\d+) "
    r"coordinatorEpoch: (?P<coordinator_epoch>-?\d+) [^\n]*?"
    r"(?:lastSequence: (?P<last_sequence>\d+) lastOffset: (?P<last_offset>\d+) offsetDelta: (?P<offset_delta>\d+)|\n)"
)
"""An entry. A producer whose epoch was raised, and that has written nothing since, has no sequence there."""


def test_producer_snapshots_are_read_as_dump_log_segments_reads_them(finished):
    every = sorted(finished.run.nodes.glob("broker-*/data/cell-*/*.snapshot"))
    parsed = {file: parse_snapshot(file.read_bytes(), int(file.stem)) for file in every}
    files = [file for file, snapshot in parsed.items() if not snapshot.damage]  # a broker was killed
    read = [parsed[file] for file in files]
    entries = [entry for snapshot in read for entry in snapshot.entries]
    said = [match.groupdict() for match in _ENTRY.finditer(finished.dump(files))]
    assert len(said) == len(entries) > 0
    for name in ("producer_id", "producer_epoch", "coordinator_epoch"):
        assert [int(entry[name]) for entry in entries] == [int(one[name]) for one in said], name
    for entry, one in zip(entries, said, strict=True):
        assert int(entry["last_sequence"]) == int(one["last_sequence"] or -1)
        if one["last_sequence"] is not None:
            assert [int(entry[name]) for name in ("last_offset", "offset_delta")] == [
                int(one[name]) for name in ("last_offset", "offset_delta")
            ]


def test_the_metadata_log_is_decoded_as_dump_log_segments_decodes_it(finished):
    if not has_kraft(finished.version):
        return the_zookeeper_log_is_read_as_zookeepers_own_tool_reads_it(finished)
    directory = finished.run.nodes / "controller-3001" / "data"
    files = sorted((directory / LOG_DIRECTORY).glob("*.log"))
    ids = {(p.topic_name, p.number): p.partition for p in finished.plan.partitions}
    wall = finished.wall_minus_monotonic_ns
    columns = decode_ground_truth([directory], partition_ids=ids, wall_minus_monotonic_ns=wall).metadata
    oracle = MetadataOracle(dumped_records(finished.dump(files, "--cluster-metadata-decoder")), ids)
    assert_same_rows(columns, oracle, at_least=20, wall_minus_monotonic_ns=wall)
    batches = [batch for file in files for batch in read_batches(file.read_bytes()).batches]
    assert all(after.base_offset == before.last_offset + 1 for before, after in pairwise(batches))


# --- ZooKeeper's log

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state[^{/]*(\{[^}]*\})")
_STATE_IN_HEX = re.compile(f"{b'/brokers/topics/'.hex()}(?:[2-7][0-9a-f])+?{b'/state'.hex()}")
State = tuple[int, str, int, int, int, int]
"""A state that was written: transaction, topic, number, leader, leader epoch, ISR as a mask."""


def state_of(zxid: str, topic: str, number: str, text: str) -> State:
    state = json.loads(text)
    return int(zxid, 16), topic, int(number), state["leader"], state["leader_epoch"], mask(state["isr"])


def states_told(finished: FilesOfRun, log: Path) -> list[State]:
    """Every state of a partition in ZooKeeper's log, from the text of ZooKeeper's own tool.

    That of 3.5 (Kafka 2.8) prints the parts of a transaction as hexadecimal digits, one where a byte is below 16: text is
    always two each."""
    if version_numbers(finished.version) >= (3, 0):
        text = finished.java("org.apache.zookeeper.server.persistence.TxnLogToolkit", "-d", "-v", str(log))
        entries = re.split(r"\n(?=\d+/\d+/\d+, )", text)
        return [
            state_of(head[1], *found)
            for entry in entries
            if (head := re.search(r"zxid (0x[0-9a-f]+) multi", entry)) is not None and "error:" not in entry
            for found in _STATE.findall(entry)
        ]
    told = []
    for line in finished.java("org.apache.zookeeper.server.LogFormatter", str(log)).splitlines():
        head = re.search(r"zxid (0x[0-9a-f]+) multi", line)
        if head is None or "{-1,#" in line:
            continue
        for path in _STATE_IN_HEX.finditer(line):
            _, topic, _, number, _ = bytes.fromhex(path[0]).decode().removeprefix("/brokers").split("/")[1:]
            begin = line.index(b'{"'.hex(), path.end())
            end = next(at for at in range(begin, len(line), 2) if line[at : at + 2] == b"}".hex()) + 2
            told.append(state_of(head[1], topic, number, bytes.fromhex(line[begin:end]).decode()))
    return told


def the_zookeeper_log_is_read_as_zookeepers_own_tool_reads_it(finished: FilesOfRun) -> None:
    """One ZooKeeper server, so that all of its log is committed."""
    directory = finished.run.nodes / "zookeeper-1" / "data"
    (log,) = (directory / "version-2").glob("log.*")
    names = {p.partition: (p.topic_name, p.number) for p in finished.plan.partitions}
    columns = decode_ground_truth(
        [directory],
        partition_ids={name: partition for partition, name in names.items()},
        wall_minus_monotonic_ns=finished.wall_minus_monotonic_ns,
        metadata_mode="zookeeper",
    ).metadata
    read = [
        (zxid, *names[partition], leader, epoch, isr)
        for kind, zxid, partition, leader, epoch, isr in zip(
            *(columns[c].tolist() for c in ("kind", "log_position", "partition", "leader", "leader_epoch", "isr")),
            strict=True,
        )
        if kind == MetadataKind.PARTITION
    ]
    told = [state for state in states_told(finished, log) if state[1:3] in names.values()]
    assert len(told) > 12
    assert read == told
    assert not columns["recovering"].any(), "nobody was elected uncleanly"
