"""Reads the settings of kafkajs, kafka-python and aiokafka."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from prozess.harness.errors import BadInput
from prozess.validation.formats.filing import (
    ClientScope,
    Default,
    Filing,
    Library,
    Option,
    Sections,
    acks_of,
    number,
    one_of,
    read_library,
    stand_in_sentence,
    true_or_false,
    unwrapped_document,
)
from prozess.validation.reading import FileValue, Reading, Scope

_KAFKAJS = "kafkajs 2.2.4"
_KAFKAJS_PRODUCER = f"{_KAFKAJS}, src/producer/index.js"
_KAFKAJS_CONSUMER = f"{_KAFKAJS}, src/consumer/index.js"

_KAFKAJS_COMPRESSION = one_of(
    none="none", gzip="gzip", snappy="snappy", lz4="lz4", zstd="zstd",
    **{"0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "4": "zstd"},
)  # fmt: skip
_KAFKAJS_ASIDE = """
    brokers clientId ssl ssl. sasl sasl. connectionTimeout authenticationTimeout reauthenticationThreshold
    requestTimeout enforceRequestTimeout socketFactory logLevel logCreator metadataMaxAge allowAutoTopicCreation
    createPartitioner retry.maxRetryTime retry.initialRetryTime retry.factor retry.multiplier retry.restartOnFailure
    maxBytesPerPartition minBytes maxBytes maxWaitTimeInMs rackId topic topics partitionsConsumedConcurrently
"""
KAFKAJS = Library(
    name="kafkajs",
    article="options of kafkajs",
    stands_in=stand_in_sentence("kafkajs"),
    options={
        "producer": {
            "acks": Option("acks", acks_of),
            "idempotent": Option("enable.idempotence", true_or_false),
            "transactionalId": Option("transactional.id"),
            "transactionTimeout": Option("transaction.timeout.ms", number),
            "maxInFlightRequests": Option("max.in.flight.requests.per.connection", number),
            "retry.retries": Option("retries", number),
            "timeout": Option("request.timeout.ms", number),
            "compression": Option("compression.type", _KAFKAJS_COMPRESSION),
        },
        "consumer": {
            "groupId": Option("group.id"),
            "fromBeginning": Option("auto.offset.reset", one_of(true="earliest", false="latest")),
            "readUncommitted": Option("isolation.level", one_of(true="read_uncommitted", false="read_committed")),
            "sessionTimeout": Option("session.timeout.ms", number),
            "rebalanceTimeout": Option("max.poll.interval.ms", number),
            "heartbeatInterval": Option("heartbeat.interval.ms", number),
            "autoCommit": Option("enable.auto.commit", true_or_false),
            "autoCommitInterval": Option("auto.commit.interval.ms", number),
        },
    },
    defaults={
        "producer": {
            "acks": Default("all", f"{_KAFKAJS}, src/producer/messageProducer.js: acks = -1"),
            "enable.idempotence": Default("false", f"{_KAFKAJS_PRODUCER}: idempotent = false"),
            # src/index.js hands every producer an object for `retry`: the larger default of idempotent ones is never taken
            "retries": Default("5", f"{_KAFKAJS}, src/retry/defaults.js, of idempotent producers, too: src/index.js"),
        },
        "consumer": {
            "auto.offset.reset": Default("latest", f"{_KAFKAJS_CONSUMER}: fromBeginning = false"),
            "isolation.level": Default("read_committed", f"{_KAFKAJS}, src/index.js: readUncommitted = false"),
            "session.timeout.ms": Default("30000", f"{_KAFKAJS_CONSUMER}: sessionTimeout"),
            "max.poll.interval.ms": Default("60000", f"{_KAFKAJS_CONSUMER}: rebalanceTimeout"),
            "enable.auto.commit": Default("true", f"{_KAFKAJS_CONSUMER}: autoCommit = true"),
            "enable.auto.offset.store": Default("false", f"{_KAFKAJS}, src/consumer/runner.js: resolved after processing"),
        },
    },
    aside=frozenset(_KAFKAJS_ASIDE.split()),
    unclear={
        "autoCommitThreshold": "commits after so many messages, which librdkafka, which the trial runs instead, cannot do",
        "eachBatchAutoResolve": "decides in the application what is committed",
        "partitionAssigners": "is code of the application",
    },
    harmless={"eachBatchAutoResolve": "true"},
)  # fmt: skip
_KAFKAJS_NAMES = """
    idempotent maxInFlightRequests transactionalId transactionTimeout fromBeginning readUncommitted sessionTimeout
    rebalanceTimeout heartbeatInterval autoCommitInterval autoCommitThreshold retry.retries retry.initialRetryTime
    allowAutoTopicCreation metadataMaxAge maxWaitTimeInMs connectionTimeout authenticationTimeout
"""
_ONLY_KAFKAJS = frozenset(_KAFKAJS_NAMES.split())
"""What no other library calls so."""
_CALLS: Mapping[str, ClientScope] = {
    "send": "producer",
    "sendBatch": "producer",
    "run": "consumer",
    "subscribe": "consumer",
}
"""Calls whose options are a part's: `producer.send({acks})`, `consumer.run({autoCommit})`."""
_KAFKA_NODE = frozenset(
    ("kafkaHost", "requireAcks", "ackTimeoutMs", "partitionerType", "fromOffset", "autoCommitIntervalMs")
)
"""Options of kafka-node, another library, which shares some names with kafkajs."""


class Kafkajs:
    """Options in a JSON or YAML file: flat, or below `producer` and `consumer`."""

    name = "kafkajs"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is kafkajs', or has names that only kafkajs has."""
        found = unwrapped_document(document, "kafkajs")
        if found is None:
            return False
        above, options = found
        names = Sections(options, above, KAFKAJS, more=_CALLS).names()
        return bool(above) or bool(names & _ONLY_KAFKAJS and not names & _KAFKA_NODE)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with what kafkajs takes by default."""
        above, options = unwrapped_document(document, "kafkajs") or ("", {})
        filing = read_library(KAFKAJS, Sections(options, above, KAFKAJS, more=_CALLS), path, wanted)
        return filing.reading


_COMPRESSION = one_of(none="none", gzip="gzip", snappy="snappy", lz4="lz4", zstd="zstd", **{"": "none"})
_RESET = one_of(earliest="earliest", latest="latest", none="error", smallest="earliest", largest="latest")
_ASSIGNORS = one_of(
    range="range", roundrobin="roundrobin", rangepartitionassignor="range", roundrobinpartitionassignor="roundrobin",
)  # fmt: skip
_PRODUCER: Mapping[str, Option] = {
    "acks": Option("acks", acks_of),
    "enable_idempotence": Option("enable.idempotence", true_or_false),
    "transactional_id": Option("transactional.id"),
    "transaction_timeout_ms": Option("transaction.timeout.ms", number),
    "compression_type": Option("compression.type", _COMPRESSION),
    "linger_ms": Option("linger.ms", number),
}
_CONSUMER: Mapping[str, Option] = {
    "group_id": Option("group.id"),
    "group_instance_id": Option("group.instance.id"),
    "auto_offset_reset": Option("auto.offset.reset", _RESET),
    "enable_auto_commit": Option("enable.auto.commit", true_or_false),
    "auto_commit_interval_ms": Option("auto.commit.interval.ms", number),
    "isolation_level": Option(
        "isolation.level", one_of(read_committed="read_committed", read_uncommitted="read_uncommitted")
    ),
    "session_timeout_ms": Option("session.timeout.ms", number),
    "heartbeat_interval_ms": Option("heartbeat.interval.ms", number),
    "max_poll_interval_ms": Option("max.poll.interval.ms", number),
    "partition_assignment_strategy": Option("partition.assignment.strategy", _ASSIGNORS),
}
_ASIDE = """
    bootstrap_servers client_id client_rack security_protocol ssl_context ssl_check_hostname ssl_cafile ssl_certfile
    ssl_keyfile ssl_crlfile ssl_password ssl_ciphers sasl_mechanism sasl_plain_username sasl_plain_password
    sasl_kerberos_name sasl_kerberos_service_name sasl_kerberos_domain_name sasl_oauth_token_provider key_serializer
    value_serializer key_deserializer value_deserializer metadata_max_age_ms connections_max_idle_ms retry_backoff_ms
    max_request_size partitioner fetch_max_wait_ms fetch_max_bytes fetch_min_bytes max_partition_fetch_bytes
    max_poll_records consumer_timeout_ms check_crcs exclude_internal_topics topic topics
"""

_ASIDE_OF_KAFKA_PYTHON = """
    api_version api_version_auto_timeout_ms bootstrap_timeout_ms batch_size buffer_memory max_block_ms
    request_timeout_ms allow_auto_create_topics client_dns_lookup receive_message_max_bytes receive_buffer_bytes
    send_buffer_bytes socket_options reconnect_backoff_ms reconnect_backoff_max_ms metric_reporters metrics_enabled
    metrics_num_samples metric_group_prefix metrics_sample_window_ms selector proxy_url socks5_proxy kafka_client
    sock_chunk_buffer_count sock_chunk_bytes enable_incremental_fetch_sessions wakeup_timeout_ms
"""

_KAFKA_PYTHON_ONLY: Mapping[ClientScope, Mapping[str, Option]] = {
    "producer": {
        "retries": Option("retries", one_of(inf="2147483647", infinity="2147483647")),
        "max_in_flight_requests_per_connection": Option("max.in.flight.requests.per.connection", number),
        "delivery_timeout_ms": Option("delivery.timeout.ms", number),
    },
    "consumer": {},
}
_KP = "kafka-python 3.0.12"
_KP_CONSUMER = f"{_KP}, kafka/consumer/group.py"
_DEPENDS = {
    "acks": ("producer", "acks", "1 up to 2.3 and all since 3.0"),
    "enable_idempotence": ("producer", "enable.idempotence", "false up to 2.3 and true since 3.0"),
    "retries": ("producer", "retries", "0 up to 2.1 and without limit since 2.2"),
}
"""What kafka-python's releases take differently, by their kafka/producer/kafka.py (2.0.2, 2.1.5, 2.2.15, 2.3.0, 3.0.0)."""


def _retries(value: str) -> str | None:
    return number(value) or _KAFKA_PYTHON_ONLY["producer"]["retries"].convert(value.strip("."))


KAFKA_PYTHON = Library(
    name="kafka-python",
    article="arguments of kafka-python",
    stands_in=stand_in_sentence("kafka-python"),
    options={
        "producer": {**_PRODUCER, **_KAFKA_PYTHON_ONLY["producer"], "retries": Option("retries", _retries)},
        "consumer": {**_CONSUMER},
    },
    defaults={
        "producer": {"max.in.flight.requests.per.connection": Default("5", f"{_KP}, kafka/producer/kafka.py")},
        "consumer": {
            "auto.offset.reset": Default("latest", _KP_CONSUMER),
            "enable.auto.commit": Default("true", _KP_CONSUMER),
            "enable.auto.offset.store": Default(
                "false", f"{_KP}, coordinator/consumer.py: poll() commits what came before"
            ),
            "auto.commit.interval.ms": Default("5000", _KP_CONSUMER),
            "isolation.level": Default("read_uncommitted", _KP_CONSUMER),
            "session.timeout.ms": Default("10000", f"{_KP_CONSUMER}, 45000 since 3.0"),
            "max.poll.interval.ms": Default("300000", _KP_CONSUMER),
            "partition.assignment.strategy": Default("range,roundrobin", _KP_CONSUMER),
        },
    },
    aside=frozenset(f"{_ASIDE} {_ASIDE_OF_KAFKA_PYTHON}".split()),
    unclear={
        "default_offset_commit_callback": "is code of the application",
        "legacy_iterator": "is another way of committing, which librdkafka, which the trial runs instead, does not have",
    },
)

_AIO = "aiokafka 0.14.0"
_AIO_PRODUCER = f"{_AIO}, producer/producer.py"
_AIO_CONSUMER = f"{_AIO}, consumer/consumer.py"
AIOKAFKA = Library(
    name="aiokafka",
    article="arguments of aiokafka",
    stands_in=stand_in_sentence("aiokafka"),
    options={
        # request_timeout_ms is also how long a batch may wait and be sent again (message_accumulator.py, batch ttl)
        "producer": {**_PRODUCER, "request_timeout_ms": Option("delivery.timeout.ms", number)},
        "consumer": {**_CONSUMER},
    },
    defaults={
        "producer": {
            "enable.idempotence": Default("false", _AIO_PRODUCER),
            "max.in.flight.requests.per.connection": Default("1", f"{_AIO}, producer/sender.py: one to a broker at a time"),
            "delivery.timeout.ms": Default("40000", f"request_timeout_ms, {_AIO_PRODUCER}"),
        },
        "consumer": {
            "auto.offset.reset": Default("latest", _AIO_CONSUMER),
            "enable.auto.commit": Default("true", _AIO_CONSUMER),
            "auto.commit.interval.ms": Default("5000", _AIO_CONSUMER),
            "isolation.level": Default("read_uncommitted", _AIO_CONSUMER),
            "session.timeout.ms": Default("10000", _AIO_CONSUMER),
            "max.poll.interval.ms": Default("300000", _AIO_CONSUMER),
            "partition.assignment.strategy": Default("roundrobin", _AIO_CONSUMER),
        },
    },
    aside=frozenset(f"{_ASIDE} loop api_version max_batch_size request_timeout_ms rebalance_timeout_ms".split()),
    unclear={},
)  # fmt: skip

_EITHER = replace(
    KAFKA_PYTHON,
    name="kafka-python or aiokafka",
    article="arguments of kafka-python or of aiokafka",
    stands_in=stand_in_sentence("kafka-python's or aiokafka"),
    options={"producer": dict(_PRODUCER), "consumer": dict(_CONSUMER)},
    defaults={
        "producer": {},
        "consumer": {
            name: default
            for name, default in KAFKA_PYTHON.defaults["consumer"].items()
            if name in AIOKAFKA.defaults["consumer"] and default.value == AIOKAFKA.defaults["consumer"][name].value
        },
    },
    aside=KAFKA_PYTHON.aside | AIOKAFKA.aside,
)
_ONLY_KAFKA_PYTHON = frozenset(
    {*_KAFKA_PYTHON_ONLY["producer"], *(KAFKA_PYTHON.aside - AIOKAFKA.aside), *KAFKA_PYTHON.unclear}
)
_ONLY_AIOKAFKA = AIOKAFKA.aside - KAFKA_PYTHON.aside


_LOGSTASH = frozenset(
    ("topic_id", "codec", "decorate_events", "consumer_threads", "topics_pattern", "jaas_path", "message_key")
)
"""Options of Logstash's Kafka plugins, whose other names are those of kafka-python."""


def _library(document: FileValue) -> tuple[Library, Sections] | None:
    found = unwrapped_document(document, "kafka-python", "kafka_python", "aiokafka")
    if found is None:
        return None
    above, options = found
    if above:
        library = AIOKAFKA if above == "aiokafka." else KAFKA_PYTHON
        return library, Sections(options, above, library)
    sections = Sections(options, above, KAFKA_PYTHON)
    names = sections.names()
    if not any("_" in name and (KAFKA_PYTHON.knows(name) or AIOKAFKA.knows(name)) for name in names):
        return None  # acks and retries are Kafka's own names, too
    if names & _ONLY_AIOKAFKA and not names & _ONLY_KAFKA_PYTHON:
        return AIOKAFKA, sections
    if names & _ONLY_KAFKA_PYTHON and not names & _ONLY_AIOKAFKA:
        return KAFKA_PYTHON, sections
    return _EITHER, sections


class PythonClients:
    """Keyword arguments in JSON or YAML: flat, or below `producer` and `consumer`, or below the library's name."""

    name = "kafka-python, aiokafka"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has names with underscores that these libraries have, and is not Logstash's."""
        found = _library(document)
        return found is not None and not found[1].names() & _LOGSTASH

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with the library's defaults; where these depend on its release, they are not
        understood."""
        library, sections = _library(document) or (_EITHER, Sections({}, "", _EITHER))
        filing = read_library(library, sections, path, wanted)
        producer = filing.reading.scopes.get("producer")
        is_producer = producer is not None or any(name in sections.names() for name in _PRODUCER)
        if library is AIOKAFKA and producer is not None:
            _aiokafka_acks(filing)
        elif is_producer:
            _undecided(filing, library)
        if library is _EITHER and any(name in sections.names() for name in _CONSUMER):
            filing.unclear(
                "partition_assignment_strategy, enable_auto_commit",
                "are taken differently by kafka-python and by aiokafka: put the arguments below the library's name",
            )
        return filing.reading


def _aiokafka_acks(filing: Filing) -> None:
    """acks=1 unless idempotence is asked for, by itself or by a transactional id; acks other than all is refused then."""
    asked = filing.value("producer", "enable.idempotence")
    transactional = filing.is_given("producer", "transactional.id")
    if transactional:
        filing.default("producer", "enable.idempotence", "true", f"aiokafka's, of a transactional_id ({_AIO_PRODUCER})")
    if asked is None and not transactional:
        return
    idempotent = transactional or (asked is not None and asked.value == "true")
    filing.default("producer", "acks", "all" if idempotent else "1", f"aiokafka's default ({_AIO_PRODUCER})")
    acks_ = filing.value("producer", "acks")
    if idempotent and acks_ is not None and acks_.value != "all":
        raise BadInput(
            f"{acks_.origin}: aiokafka refuses acks={acks_.value} with enable_idempotence or a transactional_id "
            f"({_AIO_PRODUCER}). Leave acks out."
        )


def _undecided(filing: Filing, library: Library) -> None:
    for spelt, (scope, name, values) in _DEPENDS.items():
        assert scope == "producer"
        settled = name != "acks" and filing.is_given("producer", "transactional.id") and name == "enable.idempotence"
        if filing.is_given("producer", name) or settled or (spelt == "retries" and library is _EITHER):
            continue
        why = f"is not set, and kafka-python's default depends on its release ({values})"
        if library is _EITHER:
            why += ", aiokafka's is another: put the arguments below the library's name"
        filing.unclear(spelt, f"{why}: set it" if library is not _EITHER else why)
