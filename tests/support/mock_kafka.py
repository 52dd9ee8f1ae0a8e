"""librdkafka's own mock cluster as a fixture's value: brokers without Java, with faults on demand.

Driven through the shared library that confluent_kafka brings (rdkafka_mock.h, an experimental interface: a symbol that is
missing is an error here, and not a skip).
"""

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

PRODUCE_API, FETCH_API, INIT_PRODUCER_ID_API, CONSUMER_GROUP_HEARTBEAT_API = 0, 1, 22, 68
"""Kafka's api keys, as in the protocol's documentation."""
GROUP_REBALANCE_DELAY_MS = 200
"""The mock's default, as brokers', is 3 s."""
_PRODUCER = 0


@functools.cache
def _library() -> ctypes.CDLL:
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", ctypes.c_int, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [ctypes.c_int, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, ctypes.c_int]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", ctypes.c_int, [pointer, text, ctypes.c_int, ctypes.c_int]),
        ("rd_kafka_mock_broker_set_rtt", ctypes.c_int, [pointer, ctypes.c_int32, ctypes.c_int]),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, [pointer, ctypes.c_int32]),
        (
            "rd_kafka_mock_partition_delete_records",
            ctypes.c_int,
            [pointer, text, ctypes.c_int32, ctypes.c_int64],
        ),
        (
            "rd_kafka_mock_push_request_errors_array",
            None,
            [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)],
        ),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_set_group_consumer_heartbeat_interval_ms", None, [pointer, ctypes.c_int]),
        ("rd_kafka_mock_set_group_consumer_session_timeout_ms", None, [pointer, ctypes.c_int]),
        ("rd_kafka_test_fatal_error", ctypes.c_int, [pointer, ctypes.c_int, text]),
        ("rd_kafka_mock_clear_request_errors", None, [pointer, ctypes.c_int16]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def end_by_fatal_error(client: object, code: int, reason: str) -> None:
    """Sets off a fatal error in a client of the binding, as librdkafka does itself (rd_kafka_test_fatal_error).

    The binding keeps its handle as the first field of the object (`Handle` in confluent_kafka.h)."""
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value
    assert _library().rd_kafka_test_fatal_error(handle, code, reason.encode()) == 0


class MockKafka:
    """A running mock cluster; what `Clients` needs of a cluster, and faults."""

    client_prefix = ()

    def __init__(self, cluster: int, brokers: int) -> None:
        self._cluster, self._brokers = cluster, range(1, brokers + 1)
        self.bootstrap_servers: str = _library().rd_kafka_mock_cluster_bootstraps(cluster).decode()
        addresses = [server.rsplit(":", 1) for server in self.bootstrap_servers.split(",")]
        self.observer_servers = {node: (host, int(port)) for node, (host, port) in enumerate(addresses, start=1)}

    def create(self, topic: str, *, partitions: int) -> None:
        assert _library().rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def slow(self, rtt_ms: int) -> None:
        """Every answer of every broker takes this long."""
        for broker in self._brokers:
            assert _library().rd_kafka_mock_broker_set_rtt(self._cluster, broker, rtt_ms) == 0

    def down(self) -> None:
        for broker in self._brokers:
            assert _library().rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def up(self) -> None:
        for broker in self._brokers:
            assert _library().rd_kafka_mock_broker_set_up(self._cluster, broker) == 0

    def refuse(self, api_key: int, codes: Sequence[int]) -> None:
        """The next requests of this kind are answered with these codes, one each."""
        array = (ctypes.c_int * len(codes))(*codes)
        _library().rd_kafka_mock_push_request_errors_array(self._cluster, api_key, len(codes), array)

    def accept(self, api_key: int) -> None:
        """No further request of this kind is refused."""
        _library().rd_kafka_mock_clear_request_errors(self._cluster, api_key)

    def group_heartbeats(self, *, every_ms: int, session_ms: int) -> None:
        """Of groups of the consumer protocol (KIP-848) that are made from now on; the mock's defaults are 3 s and 45 s."""
        _library().rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(self._cluster, every_ms)
        _library().rd_kafka_mock_set_group_consumer_session_timeout_ms(self._cluster, session_ms)

    def delete_records(self, topic: str, number: int, *, before: int) -> None:
        code = _library().rd_kafka_mock_partition_delete_records(self._cluster, topic.encode(), number, before)
        assert code == 0


@contextmanager
def mock_kafka(*, brokers: int = 1) -> Iterator[MockKafka]:
    """A mock cluster for the duration of a block."""
    library = _library()
    error = ctypes.create_string_buffer(256)
    configuration = library.rd_kafka_conf_new()
    library.rd_kafka_conf_set(configuration, b"log_level", b"0", error, len(error))
    owner = library.rd_kafka_new(_PRODUCER, configuration, error, len(error))
    assert owner, error.value
    cluster = library.rd_kafka_mock_cluster_new(owner, brokers)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, GROUP_REBALANCE_DELAY_MS)
    try:
        yield MockKafka(cluster, brokers)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(owner)
