"""The decoder of the controllers' log, against logs of real clusters and what Kafka's own decoder says of them."""

import json

import numpy as np

from harness.schema import METADATA, NONE, MetadataKind, MetadataSource
from tests.unit.metadata_logs import (
    IDS,
    WALL_MINUS_MONOTONIC_NS,
    controller,
    decode,
    of_partition,
    quorum,
    rows,
    unzipped,
)
from tests.unit.metadata_logs import decoded as decoded
from tests.unit.metadata_logs import version as version


def mask(brokers) -> int:
    return sum(1 << broker for broker in brokers)


class Oracle:
    """Rows from the JSON of DumpLogSegments, by other means: dictionaries of field names, merged."""

    def __init__(self, name: str) -> None:
        self.rows: list[dict[str, int]] = []
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], dict] = {}
        for line in unzipped(name).decode().splitlines():
            record = json.loads(line)
            self.now = {"log_position": record["offset"], "time_ms": record["time_ms"]}
            getattr(self, record["type"].lower(), lambda *_: None)(record["data"], record)

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
                self.partition_row(key, {"leader": -1, "leaderEpoch": state["leaderEpoch"]})

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

    def partition_row(self, key, state):
        self.row(
            MetadataKind.PARTITION,
            partition=IDS[self.topics[key[0]], key[1]],
            leader=state["leader"],
            leader_epoch=state["leaderEpoch"],
            isr=mask(state.get("isr", ())),
            replicas=mask(state.get("replicas", ())),
            elr=mask(state.get("eligibleLeaderReplicas", ())),
            last_known_elr=mask(state.get("lastKnownElr", ())),
            recovering=state.get("leaderRecoveryState", 0),
        )


def assert_same_rows(columns, oracle: Oracle, *, at_least: int) -> None:
    assert len(oracle.rows) == len(columns["kind"]) >= at_least
    for index, expected in enumerate(oracle.rows):
        seen = {name: int(columns[name][index]) for name in expected if name != "time_ms"}
        seen["time_ms"] = (int(columns["time_ns"][index]) + WALL_MINUS_MONOTONIC_NS) // 1_000_000
        assert seen == expected, f"row {index}"


def test_every_row_is_what_kafkas_own_decoder_says(decoded, version):
    assert_same_rows(decoded, Oracle(f"metadata-{version}.dump.jsonl.gz"), at_least=50)


def test_three_controllers_give_what_kafkas_own_decoder_says_of_the_committed_log(tmp_path):
    columns = decode(*quorum(tmp_path))
    assert_same_rows(columns, Oracle("metadata-quorum-4.3.1.dump.jsonl.gz"), at_least=25)
    controllers = [r[1:] for r in rows(columns, "kind", "node", "leader_epoch") if r[0] == MetadataKind.CONTROLLER]
    assert [node for node, _ in controllers][-1] == 3001
    assert sorted(epoch for _, epoch in controllers) == [epoch for _, epoch in controllers]


def test_the_columns_are_those_of_the_schema(decoded):
    assert {name: values.dtype.str for name, values in decoded.items()} == {
        c.name: "<" + c.kind for c in METADATA.columns
    }
    assert set(decoded["source"]) == {MetadataSource.CONTROLLER_LOG}


def test_times_are_monotonic_nanoseconds(tmp_path, decoded, version):
    other = decode(controller(tmp_path / "b", unzipped(f"metadata-{version}.log.gz")), wall_minus_monotonic_ns=0)
    assert (other["time_ns"] - decoded["time_ns"] == WALL_MINUS_MONOTONIC_NS).all()
    assert (np.diff(decoded["time_ns"]) >= 0).all()


def test_an_unclean_election_shows_as_a_leader_outside_isr_and_elr(decoded):
    beta = of_partition(decoded, IDS["beta", 0])
    eligible = (beta["isr"] | beta["elr"])[:-1]
    leader = beta["leader"][1:]
    unclean = (leader >= 0) & ((eligible >> np.maximum(leader, 0)) & 1 == 0)
    assert unclean.sum() == 1
    assert beta["leader"][1:][unclean] == [2]
    assert beta["recovering"][1:][unclean] == [1]
    assert beta["recovering"][-1] == 0


def test_with_elr_the_last_known_leader_is_kept_and_elected(tmp_path):
    alpha = of_partition(decode(controller(tmp_path, unzipped("metadata-4.3.1.log.gz"))), IDS["alpha", 0])
    states = rows(alpha, "leader", "isr", "elr", "last_known_elr", "recovering")
    assert (NONE, 0, mask([1, 2]), mask([1]), 0) in states, (
        "the last one in sync dies: ISR empty, ELR and last known kept"
    )
    assert (1, mask([1]), 0, 0, 1) in states, "the last known leader is elected although it is in neither"


def test_a_deleted_topics_partition_has_no_replicas(decoded):
    gone = of_partition(decoded, IDS["gone", 0])
    assert rows(gone, "leader", "isr", "replicas") == [(3, mask([3]), mask([3])), (NONE, 0, 0)]


def test_partitions_that_were_not_asked_for_are_left_out(tmp_path, version):
    directory = controller(tmp_path, unzipped(f"metadata-{version}.log.gz"))
    assert set(decode(directory, ids={("beta", 0): 17})["partition"]) == {NONE, 17}
