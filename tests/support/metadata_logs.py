"""Logs of controllers, put where a decoder looks for them: of real clusters, and of records made by hand."""

import base64
import gzip
import json
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from prozess.clusters.files.metadata_log import LOG_DIRECTORY, decode_metadata_log
from prozess.clusters.files.segments import crc32c
from prozess.clusters.protocol.client import compact_string, unsigned_varint, varint
from prozess.harness.schema import NONE, ClusterRecord, MetadataKind
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
    return decode_metadata_log(directories, partition_ids=ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns).metadata


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


# --- what Kafka says of the same log


def mask(brokers) -> int:
    return sum(1 << broker for broker in brokers)


class MetadataOracle:
    """Rows from the JSON of DumpLogSegments, by other means: dictionaries of field names, merged."""

    def __init__(self, records: Iterable[dict], ids=IDS) -> None:
        self.ids = ids
        self.rows: list[dict[str, int]] = []
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], dict] = {}
        for record in records:
            self.now = {"log_position": record["offset"], "time_ms": record["time_ms"]}
            getattr(self, record["type"].lower(), lambda *_: None)(record["data"], record)

    @staticmethod
    def stored(name: str) -> "MetadataOracle":
        """Of a file that has one JSON object for each record."""
        return MetadataOracle(json.loads(line) for line in unzipped(name).decode().splitlines())

    def row(self, kind, **columns):
        self.rows.append(self.now | {"kind": int(kind)} | columns)

    def leader_change(self, data, record):
        # 3.9's dump does not print the leader; that cluster has one controller, 3001.
        self.row(MetadataKind.CONTROLLER, node=data.get("leaderId", 3001), leader_epoch=record["epoch"])

    def register_broker_record(self, data, _):
        self.row(MetadataKind.BROKER_REGISTERED, node=data["brokerId"])
        fenced = data.get("fenced", True)
        self.row(MetadataKind.BROKER_FENCED if fenced else MetadataKind.BROKER_UNFENCED, node=data["brokerId"])

    def broker_registration_change_record(self, data, _):
        if change := data.get("fenced", 0):
            kind = MetadataKind.BROKER_FENCED if change == 1 else MetadataKind.BROKER_UNFENCED
            self.row(kind, node=data["brokerId"])

    def topic_record(self, data, _):
        self.topics[data["topicId"]] = data["name"]

    def remove_topic_record(self, data, _):
        for key, state in self.partitions.items():
            if key[0] == data["topicId"]:
                gone = {"leader": -1, "leaderEpoch": state["leaderEpoch"]}
                self.partition_row(key, gone, MetadataKind.DELETED)

    def partition_record(self, data, _):
        self.update(data, data)

    def partition_change_record(self, data, _):
        old = self.partitions[data["topicId"], data["partitionId"]]
        self.update(data, old | data | {"leaderEpoch": old["leaderEpoch"] + ("leader" in data)})

    def clear_elr_record(self, data, _):
        for key, state in self.partitions.items():
            if data["topicName"] in ("", self.topics[key[0]]) and (
                state.get("eligibleLeaderReplicas") or state.get("lastKnownElr")
            ):
                self.partitions[key] = state | {"eligibleLeaderReplicas": [], "lastKnownElr": []}
                self.partition_row(key, self.partitions[key])

    def update(self, data, state):
        key = (data["topicId"], data["partitionId"])
        self.partitions[key] = state
        self.partition_row(key, state)

    def partition_row(self, key, state, kind=MetadataKind.PARTITION):
        if (self.topics[key[0]], key[1]) not in self.ids:
            return
        self.row(
            kind,
            **{f"topic_{name}": value for name, value in id_columns(key[0]).items()},
            partition=self.ids[self.topics[key[0]], key[1]],
            leader=state["leader"],
            leader_epoch=state["leaderEpoch"],
            isr=mask(state.get("isr", ())),
            replicas=mask(state.get("replicas", ())),
            elr=mask(state.get("eligibleLeaderReplicas", ())),
            last_known_elr=mask(state.get("lastKnownElr", ())),
            recovering=state.get("leaderRecoveryState", 0),
        )


_DUMPED_BATCH = re.compile(r"^baseOffset: .* partitionLeaderEpoch: (\d+) ")
_DUMPED_RECORD = re.compile(
    r"^\| offset: (\d+) \w+: (\d+) .* (?:payload: (\{.*\})|LeaderChange: (\{.*\})|controlType: (\w+).*)$"
)


def dumped_records(text: str) -> Iterator[dict]:
    """The records of what DumpLogSegments prints of a metadata log (--cluster-metadata-decoder), without those that say
    nothing. Before 4.0 it does not print which leader a quorum elected."""
    epoch = 0
    for line in text.splitlines():
        if batch_of := _DUMPED_BATCH.match(line):
            epoch = int(batch_of[1])
        elif line.startswith("| offset: "):
            found = _DUMPED_RECORD.match(line)
            assert found is not None, line
            offset, time_ms, payload, elected, control = found.groups()
            record = (
                json.loads(payload)
                if payload
                else {"type": control or "LEADER_CHANGE", "data": json.loads(elected or "{}")}
            )
            yield {"offset": int(offset), "time_ms": int(time_ms), "epoch": epoch} | record


def assert_same_rows(
    columns, oracle: MetadataOracle, *, at_least: int, wall_minus_monotonic_ns: int = WALL_MINUS_MONOTONIC_NS
) -> None:
    assert len(oracle.rows) == len(columns["kind"]) >= at_least
    for index, expected in enumerate(oracle.rows):
        seen = {name: int(columns[name][index]) for name in expected if name != "time_ms"}
        seen["time_ms"] = (int(columns["time_ns"][index]) + wall_minus_monotonic_ns) // 1_000_000
        assert seen == expected, f"row {index}"


# Logs of internal topics: records with keys and values, in files as a broker has them.


def put(topic, directory, number, *segments, first_offsets=(0,)):
    log = directory / f"{topic}-{number}"
    log.mkdir(parents=True)
    for data, first in zip(segments, first_offsets, strict=True):
        (log / f"{first:020d}.log").write_bytes(data)
    return directory


def keyed_batch(base, *records, epoch=0, time_ms=5_000):
    """A batch of (key, value), uncompressed. Its checksum is not tested by the reader."""
    payload = b"".join(_keyed_record(delta, key, value) for delta, (key, value) in enumerate(records))
    numbers = ((2, 1), (0, 4), (0, 2), (len(records) - 1, 4), (time_ms, 8), (time_ms, 8), (-1, 8), (-1, 2), (-1, 4))
    head = b"".join(number.to_bytes(size, "big", signed=True) for number, size in (*numbers, (len(records), 4)))
    body = epoch.to_bytes(4, "big") + head + payload
    return base.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


def _keyed_record(delta, key, value):
    def part(data):
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(0) + varint(delta) + part(key) + part(value) + varint(0)
    return varint(len(body)) + body


class ClusterOracle:
    """Rows of `cluster_states` from the JSON of DumpLogSegments, by other means. Each is what the record says, by name."""

    def __init__(self, name: str) -> None:
        self.rows: list[dict[str, int]] = []
        self.features = ["metadata.version", "eligible.leader.replicas.version"]
        self.topics: dict[str, str] = {}
        for line in unzipped(name).decode().splitlines():
            record = json.loads(line)
            self.now = {"log_offset": record["offset"], "time_ms": record["time_ms"]}
            getattr(self, record["type"].lower(), lambda _: None)(record["data"])

    def row(self, kind, **columns):
        nothing = dict.fromkeys(
            ("broker_epoch", "id_high", "id_low", "node", "fenced", "feature", "lowest", "level"), NONE
        )
        self.rows.append(self.now | nothing | {"kind": int(kind), "shutting_down": 0} | columns)

    def number(self, feature):
        self.features += [] if feature in self.features else [feature]
        return self.features.index(feature)

    def feature_level_record(self, data):
        self.row(ClusterRecord.FEATURE, feature=self.number(data["name"]), level=data["featureLevel"])

    def topic_record(self, data):
        self.topics[data["name"]] = data["topicId"]

    def config_record(self, data):
        if data["resourceType"] == 2:
            self.row(ClusterRecord.CONFIGURED, **id_columns(self.topics[data["resourceName"]]))

    def register_broker_record(self, data):
        broker = {"node": data["brokerId"], "broker_epoch": data["brokerEpoch"]}
        state = {"fenced": int(data.get("fenced", True)), "shutting_down": int(data.get("inControlledShutdown", False))}
        self.row(ClusterRecord.REGISTERED, **broker, **state, **id_columns(data["incarnationId"]))
        self.directories(broker, data)
        for feature in data["features"]:
            levels = {"lowest": feature["minSupportedVersion"], "level": feature["maxSupportedVersion"]}
            self.row(ClusterRecord.SUPPORTED, **broker, feature=self.number(feature["name"]), **levels)

    def broker_registration_change_record(self, data):
        broker = {"node": data["brokerId"], "broker_epoch": data["brokerEpoch"]}
        state = {"fenced": {1: 1, 0: NONE, -1: 0}[data.get("fenced", 0)]}
        self.row(ClusterRecord.CHANGED, **broker, **state, shutting_down=data.get("inControlledShutdown", 0))
        self.directories(broker, data)

    def directories(self, broker, data):
        for directory in data.get("logDirs", ()):
            self.row(ClusterRecord.DIRECTORY, **broker, **id_columns(directory))


def id_columns(text: str) -> dict[str, int]:
    """The two columns of an id as Kafka prints it."""
    value = base64.urlsafe_b64decode(text + "==")
    return {"id_high": int.from_bytes(value[:8], signed=True), "id_low": int.from_bytes(value[8:], signed=True)}
