"""Requests and answers written by hand, against kio, which is made from Kafka's own message schemas: a second opinion on
every layout. (Why kio does not read the answers in a trial: docs/decisions.md.)"""

from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest

from prozess.clusters.protocol.administrator import (
    Described,
    MadeTopic,
    alter_request,
    describe_request,
    make_request,
)
from prozess.clusters.protocol.client import CLIENT_ID, Request
from prozess.clusters.protocol.login import authenticate_request, handshake_request
from prozess.clusters.protocol.readiness import FoundCoordinator, find_coordinator_request, offset_fetch_request
from prozess.clusters.protocol.requests import (
    DescribedPartition,
    EligibleReplicas,
    FeatureAnswer,
    ListAnswer,
    MetadataAnswer,
    OffsetAnswer,
    PartitionAnswers,
    QuorumAnswer,
    Reassignment,
    Refusal,
    TopicAnswers,
    TopicPartitionsAnswer,
    VersionsAnswer,
    abort_marker_request,
    alter_reassignments_request,
    api_versions_request,
    delete_topics_request,
    describe_producers_request,
    describe_quorum_request,
    describe_topic_partitions_request,
    elect_leaders_request,
    list_offsets_request,
    list_reassignments_request,
    list_transactions_request,
    metadata_request,
    topic_ids_request,
    update_feature_request,
)
from prozess.harness.interfaces import PartitionView
from prozess.harness.interfaces.cluster import CoordinatedTransaction, OpenTransaction
from prozess.harness.schema import Isolation

serial = pytest.importorskip("kio.serial", reason="kio (extra dev) is not installed")
ErrorCode = import_module("kio.schema.errors").ErrorCode

TOPIC_ID = UUID(int=7)
OPEN = OpenTransaction(5, 11, 2, 1_700_000, 4)
AT_ONCE = timedelta(0)

CASES: dict[str, tuple[Request[Any], dict[str, Any], Any]] = {
    "metadata.v7": (
        metadata_request(["a", "ü"]),
        {
            "throttle_time": AT_ONCE,
            "brokers": [{"node_id": 1, "host": "h", "port": 9, "rack": None}, {"node_id": 2, "host": "i", "port": 9}],
            "cluster_id": None,
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0,
                    "name": "a",
                    "partitions": [
                        {
                            "error_code": 5,
                            "partition_index": 3,
                            "leader_id": -1,
                            "leader_epoch": 6,
                            "replica_nodes": [1, 2],
                            "isr_nodes": [2],
                            "offline_replicas": [1],
                        }
                    ],
                }
            ],
        },
        MetadataAnswer(
            frozenset({1, 2}), {("a", 3): PartitionView(-1, 6, (1, 2), (2,), 5)}, {1: ("h", 9), 2: ("i", 9)}, 1
        ),
    ),
    "metadata.v10": (
        topic_ids_request(["a", "ü"]),
        {
            "throttle_time": AT_ONCE,
            "brokers": [{"node_id": 1, "host": "h", "port": 9, "rack": None}],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0,
                    "name": "a",
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "error_code": 5,
                            "partition_index": 3,
                            "leader_id": -1,
                            "leader_epoch": 6,
                            "replica_nodes": [1, 2],
                            "isr_nodes": [2],
                            "offline_replicas": [],
                        }
                    ],
                },
                {"error_code": 3, "name": "ü", "topic_id": None, "partitions": []},
            ],
        },
        {"a": TOPIC_ID},
    ),
    "describe_quorum.v0": (
        describe_quorum_request(),
        {
            "error_code": 0,
            "topics": [
                {
                    "topic_name": "__cluster_metadata",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "error_code": 0,
                            "leader_id": 7,
                            "leader_epoch": 8,
                            "high_watermark": 9,
                            "current_voters": [{"replica_id": 7, "log_end_offset": 10}],
                            "observers": [{"replica_id": 1, "log_end_offset": 9}],
                        }
                    ],
                }
            ],
        },
        QuorumAnswer(0, 7, 8, 9, {7: 10}),
    ),
    "api_versions.v3": (
        api_versions_request(),
        {
            "error_code": 0,
            "api_keys": [{"api_key": 3, "min_version": 0, "max_version": 13}],
            "throttle_time": AT_ONCE,
            "supported_features": [{"name": "kraft.version", "min_version": 0, "max_version": 1}],
            "finalized_features_epoch": 12,
            "finalized_features": [{"name": "metadata.version", "max_version_level": 25, "min_version_level": 7}],
        },
        VersionsAnswer({3: (0, 13)}, {"metadata.version": 25}, {"kraft.version": 1}),
    ),
    "describe_topic_partitions.v0": (
        describe_topic_partitions_request(["a", "b"], page=("a", 2)),
        {
            "throttle_time": AT_ONCE,
            "topics": [
                {
                    "error_code": 0,
                    "name": "a",
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": 2,
                            "leader_id": 1,
                            "leader_epoch": 3,
                            "replica_nodes": [1, 2],
                            "isr_nodes": [1],
                            "eligible_leader_replicas": [2],
                            "last_known_elr": None,
                            "offline_replicas": [2],
                        }
                    ],
                }
            ],
            "next_cursor": {"topic_name": "b", "partition_index": 4},
        },
        TopicPartitionsAnswer(
            {("a", 2): DescribedPartition(TOPIC_ID, 1, 3, (1, 2), (1,), EligibleReplicas((2,), ()))}, ("b", 4)
        ),
    ),
    "list_offsets.v5": (
        list_offsets_request({"a": [0, 3]}, timestamp=-1, isolation=Isolation.READ_COMMITTED),
        {
            "throttle_time": AT_ONCE,
            "topics": [
                {
                    "name": "a",
                    "partitions": [
                        {"partition_index": 3, "error_code": 6, "timestamp": -1, "offset": 1 << 40, "leader_epoch": 2}
                    ],
                }
            ],
        },
        {("a", 3): OffsetAnswer(6, 1 << 40, 2)},
    ),
    "list_transactions.v0": (
        list_transactions_request(["Ongoing"]),
        {
            "throttle_time": AT_ONCE,
            "error_code": 0,
            "unknown_state_filters": ["x"],
            "transaction_states": [{"transactional_id": "t", "producer_id": 4, "transaction_state": "Ongoing"}],
        },
        (CoordinatedTransaction("t", 4, "Ongoing"),),
    ),
    "describe_producers.v0": (
        describe_producers_request({"a": [0, 3]}),
        {
            "throttle_time": AT_ONCE,
            "topics": [
                {
                    "name": "a",
                    "partitions": [
                        {
                            "partition_index": 3,
                            "error_code": 0,
                            "error_message": None,
                            "active_producers": [
                                {
                                    "producer_id": 11,
                                    "producer_epoch": 2,
                                    "last_sequence": 8,
                                    "last_timestamp": 1_700_000,
                                    "coordinator_epoch": 4,
                                    "current_txn_start_offset": 5,
                                }
                            ],
                        }
                    ],
                }
            ],
        },
        {("a", 3): (OPEN,)},
    ),
    "write_txn_markers.v1": (
        abort_marker_request(("a", 3), OPEN),
        {
            "markers": [
                {
                    "producer_id": 11,
                    "topics": [{"name": "a", "partitions": [{"partition_index": 3, "error_code": 31}]}],
                }
            ]
        },
        {("a", 3): 31},
    ),
    "alter_partition_reassignments.v0": (
        alter_reassignments_request({("a", 0): (3, 1), ("a", 1): None}, timeout_ms=5000),
        {
            "throttle_time": AT_ONCE,
            "error_code": 0,
            "error_message": None,
            "responses": [
                {
                    "name": "a",
                    "partitions": [{"partition_index": 1, "error_code": 85, "error_message": "no"}],
                }
            ],
        },
        PartitionAnswers(Refusal(0), {("a", 1): Refusal(85, "no")}),
    ),
    "list_partition_reassignments.v0": (
        list_reassignments_request(timeout_ms=5000),
        {
            "throttle_time": AT_ONCE,
            "error_code": 0,
            "error_message": None,
            "topics": [
                {
                    "name": "a",
                    "partitions": [
                        {
                            "partition_index": 1,
                            "replicas": [1, 2, 3],
                            "adding_replicas": [3],
                            "removing_replicas": [1],
                        }
                    ],
                }
            ],
        },
        ListAnswer(Refusal(0), {("a", 1): Reassignment((1, 2, 3), (3,), (1,))}),
    ),
    "delete_topics.v6": (
        delete_topics_request([TOPIC_ID, UUID(int=8)], timeout_ms=5000),
        {
            "throttle_time": AT_ONCE,
            "responses": [
                {"name": "a", "topic_id": TOPIC_ID, "error_code": ErrorCode.none, "error_message": None},
                {"name": None, "topic_id": UUID(int=8), "error_code": ErrorCode.unknown_topic_id, "error_message": "?"},
                {
                    "name": None,
                    "topic_id": UUID(int=9),
                    "error_code": ErrorCode.topic_authorization_failed,
                    "error_message": "no",
                },
            ],
        },
        TopicAnswers(Refusal(0), {UUID(int=9): Refusal(29, "no")}),
    ),
    "update_features.v1": (
        update_feature_request("metadata.version", 25, timeout_ms=5000),
        {
            "throttle_time": AT_ONCE,
            "error_code": 0,
            "error_message": None,
            "results": [{"feature": "metadata.version", "error_code": 42, "error_message": "no"}],
        },
        FeatureAnswer(Refusal(42, "no")),
    ),
    "elect_leaders.v1": (
        elect_leaders_request([("a", 0), ("b", 1), ("a", 2)], unclean=True, timeout_ms=5000),
        {
            "throttle_time": AT_ONCE,
            "error_code": 0,
            "replica_election_results": [
                {
                    "topic": "a",
                    "partition_result": [{"partition_id": 2, "error_code": 84, "error_message": None}],
                }
            ],
        },
        PartitionAnswers(Refusal(0), {("a", 2): Refusal(84)}),
    ),
    "create_topics.v7": (
        make_request("ü", 3_600_001, only_try=True),
        {
            "throttle_time": AT_ONCE,
            "topics": [
                {
                    "name": "ü",
                    "topic_id": TOPIC_ID,
                    "error_code": 36,
                    "error_message": "there",
                    "topic_config_error_code": 0,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [],
                }
            ],
        },
        MadeTopic(36, TOPIC_ID),
    ),
    "incremental_alter_configs.v1": (
        alter_request("ü", {"retention.ms": "3600001"}),
        {
            "throttle_time": AT_ONCE,
            "responses": [{"error_code": 41, "error_message": None, "resource_type": 2, "resource_name": "ü"}],
        },
        41,
    ),
    "describe_configs.v4": (
        describe_request("ü", "retention.ms"),
        {
            "throttle_time": AT_ONCE,
            "results": [
                {
                    "error_code": 0,
                    "error_message": None,
                    "resource_type": 2,
                    "resource_name": "ü",
                    "configs": [
                        {
                            "name": "retention.ms",
                            "value": "3600001",
                            "read_only": False,
                            "config_source": 1,
                            "is_sensitive": False,
                            "synonyms": [],
                            "config_type": 5,
                            "documentation": None,
                        }
                    ],
                }
            ],
        },
        Described(0, 3_600_001),
    ),
    "find_coordinator.v1": (
        find_coordinator_request("g"),
        {
            "throttle_time": AT_ONCE,
            "error_code": 0,
            "error_message": None,
            "node_id": 3,
            "host": "h",
            "port": 9,
        },
        FoundCoordinator(0, 3),
    ),
    "offset_fetch.v5": (
        offset_fetch_request("g"),
        {
            "throttle_time": AT_ONCE,
            "topics": [
                {
                    "name": "a",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 7,
                            "committed_leader_epoch": 1,
                            "metadata": "m",
                            "error_code": 0,
                        }
                    ],
                }
            ],
            "error_code": 16,
        },
        16,
    ),
    "sasl_handshake.v1": (handshake_request("PLAIN"), {"error_code": 33, "mechanisms": ["A", "B"]}, (33, "A, B", b"")),
    "sasl_authenticate.v0": (
        authenticate_request(b"\0me\0secret"),
        {"error_code": 58, "error_message": "no", "auth_bytes": b"r"},
        (58, "no", b"r"),
    ),
}


def entity(kind: Any, fields: dict[str, Any]) -> Any:
    """One of kio's values, from plain ones; what is left out is as the schema has it."""
    filled = {}
    for name, value in fields.items():
        annotation = kind.__annotations__[name]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = tuple(entity(annotation.__args__[0], one) for one in value)
        elif isinstance(value, dict):
            value = entity(next(part for part in annotation.__args__ if part is not type(None)), value)
        elif isinstance(value, list):
            value = tuple(value)
        elif name == "error_code":
            value = ErrorCode(value)
        filled[name] = value
    return kind(**filled)


def encoded(value: Any) -> bytes:
    buffer = BytesIO()
    serial.entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def schema(api: str, part: str) -> Any:
    """kio's class of a whole request or response."""
    name, version = api.split(".")
    module = import_module(f"kio.schema.{name}.{version}.{part}")
    return next(kind for kind in vars(module).values() if getattr(getattr(kind, "__type__", None), "name", "") == part)


@pytest.mark.parametrize("api", CASES)
def test_a_request_is_one_of_kafkas_schema_to_its_last_byte(api: str) -> None:
    request, kind = CASES[api][0], schema(api, "request")
    payload = request.frame(77)[4:]
    header, size = serial.entity_reader(kind.__header_schema__)(payload, 0)
    told = (header.request_api_key, header.request_api_version, header.correlation_id, header.client_id)
    assert told == (kind.__api_key__, kind.__version__, 77, CLIENT_ID)
    value, end = serial.entity_reader(kind)(payload, size)
    assert end == len(payload) - size
    assert encoded(header) + encoded(value) == payload


@pytest.mark.parametrize("api", CASES)
def test_an_answer_of_kafkas_schema_is_read_as_it_is_meant(api: str) -> None:
    request, fields, meant = CASES[api]
    kind = schema(api, "response")
    header = entity(kind.__header_schema__, {"correlation_id": 77})
    assert request.answer(encoded(header) + encoded(entity(kind, fields)), 77) == meant
