"""Reads the settings of the Go clients sarama, franz-go and kafka-go."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from prozess.harness.errors import BadInput
from prozess.validation.formats.filing import (
    ClientScope,
    Default,
    Filing,
    Library,
    Option,
    Sections,
    documents_of,
    go_duration_ms,
    negated,
    number,
    one_of,
    read_library,
    stand_in_sentence,
    true_or_false,
    unwrapped_document,
)
from prozess.validation.reading import FileMapping, FileValue, Reading, Scope

_SARAMA = "config.go, sarama 1.61.1"
_COMPRESSION = one_of(
    none="none", gzip="gzip", snappy="snappy", lz4="lz4", zstd="zstd", compressionnone="none", compressiongzip="gzip",
    compressionsnappy="snappy", compressionlz4="lz4", compressionzstd="zstd",
    **{"0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "4": "zstd"},
)  # fmt: skip

_SARAMA_ASIDE = """
    addrs brokers clientid rackid channelbuffersize apiversionsrequest version metricregistry admin. metadata.
    net.dialtimeout net.readtimeout net.writetimeout net.resolvecanonicalbootstrapservers net.keepalive net.localaddr
    net.tls. net.sasl. net.proxy. producer.maxmessagebytes producer.compressionlevel producer.partitioner
    producer.return.successes producer.return.errors producer.flush.bytes producer.flush.messages
    producer.flush.maxmessages producer.retry.backoff producer.transaction.retry.max
    producer.transaction.retry.backoff consumer.fetch. consumer.retry. consumer.maxwaittime consumer.maxprocessingtime
    consumer.return.errors consumer.offsets.retry.max consumer.group.rebalance.retry. consumer.group.member.userdata
"""
SARAMA = Library(
    name="sarama",
    article="a Config of sarama",
    stands_in=stand_in_sentence("sarama"),
    spell=str.lower,
    options={
        "producer": {
            "producer.requiredacks": Option(
                "acks",
                one_of(waitforall="all", waitforlocal="1", noresponse="0", all="all", **{"-1": "all", "1": "1", "0": "0"}),
            ),
            "producer.idempotent": Option("enable.idempotence", true_or_false),
            "producer.retry.max": Option("retries", number),
            "producer.transaction.id": Option("transactional.id"),
            "producer.transaction.timeout": Option("transaction.timeout.ms", go_duration_ms),
            "producer.timeout": Option("request.timeout.ms", go_duration_ms),
            "producer.compression": Option("compression.type", _COMPRESSION),
            "producer.flush.frequency": Option("linger.ms", go_duration_ms),
            "net.maxopenrequests": Option("max.in.flight.requests.per.connection", number),
        },
        "consumer": {
            "consumer.offsets.initial": Option(
                "auto.offset.reset",
                one_of(
                    offsetnewest="latest", newest="latest", offsetoldest="earliest", oldest="earliest",
                    **{"-1": "latest", "-2": "earliest"},
                ),
            ),
            "consumer.isolationlevel": Option(
                "isolation.level",
                one_of(
                    readuncommitted="read_uncommitted", readcommitted="read_committed",
                    **{"0": "read_uncommitted", "1": "read_committed"},
                ),
            ),
            "consumer.offsets.autocommit.enable": Option("enable.auto.commit", true_or_false),
            "consumer.offsets.autocommit.interval": Option("auto.commit.interval.ms", go_duration_ms),
            "consumer.offsets.commitinterval": Option("auto.commit.interval.ms", go_duration_ms),
            "consumer.group.session.timeout": Option("session.timeout.ms", go_duration_ms),
            "consumer.group.heartbeat.interval": Option("heartbeat.interval.ms", go_duration_ms),
            "consumer.group.rebalance.timeout": Option("max.poll.interval.ms", go_duration_ms),
            "consumer.group.instanceid": Option("group.instance.id"),
            "consumer.group.rebalance.strategy": Option(
                "partition.assignment.strategy", one_of(range="range", roundrobin="roundrobin")
            ),
            "consumer.group.rebalance.groupstrategies": Option(
                "partition.assignment.strategy", one_of(range="range", roundrobin="roundrobin")
            ),
        },
    },
    defaults={
        "producer": {
            "acks": Default("1", f"WaitForLocal, {_SARAMA}"),
            "enable.idempotence": Default("false", _SARAMA),
            "retries": Default("3", f"Producer.Retry.Max, {_SARAMA}"),
            "max.in.flight.requests.per.connection": Default("5", f"Net.MaxOpenRequests, {_SARAMA}"),
        },
        "consumer": {
            "auto.offset.reset": Default("latest", f"OffsetNewest, {_SARAMA}"),
            "isolation.level": Default("read_uncommitted", _SARAMA),
            "enable.auto.commit": Default("true", _SARAMA),
            "auto.commit.interval.ms": Default("1000", _SARAMA),
            "enable.auto.offset.store": Default("false", "what MarkMessage marked is committed, sarama 1.61.1"),
            "session.timeout.ms": Default("10000", _SARAMA),
            "max.poll.interval.ms": Default("60000", f"Consumer.Group.Rebalance.Timeout, {_SARAMA}"),
            "partition.assignment.strategy": Default("range", _SARAMA),
        },
    },
    aside=frozenset(_SARAMA_ASIDE.split()),
    unclear={
        "producer.interceptors": "is code of the application",
        "consumer.interceptors": "is code of the application",
        "producer.transaction.retry.backofffunc": "is code of the application",
        "producer.retry.backofffunc": "is code of the application",
        "producer.retry.maxbufferlength": "lets messages fail that wait to be sent again; librdkafka has no such setting",
        "producer.retry.maxbufferbytes": "lets messages fail that wait to be sent again; librdkafka has no such setting",
        "consumer.offsets.retention": "lets committed offsets expire, for which librdkafka has no setting",
        "consumer.group.resetinvalidoffsets": "decides what happens to offsets that are gone: librdkafka has no such setting",
    },
)  # fmt: skip
_ONLY_SARAMA = (
    "requiredacks",
    "maxopenrequests",
    "isolationlevel",
    "autocommit.enable",
    "offsets.initial",
    "retry.max",
    "instanceid",
)


class Sarama:
    """Fields of the struct, nested or in dotted names, whatever their case (encoding/json takes any)."""

    name = "sarama"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is sarama's, or has fields that only sarama's Config has."""
        found = unwrapped_document(document, "sarama")
        if found is None:
            return False
        above, options = found
        names = Sections(options, above, SARAMA, parts=False).names()
        own = any(name.endswith(_ONLY_SARAMA) and SARAMA.knows(name) for name in names)
        pascal = any(key in options for key in ("Producer", "Consumer", "Net")) and any(map(SARAMA.knows, names))
        return bool(above) or own or pascal

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with what NewConfig sets."""
        above, options = unwrapped_document(document, "sarama") or ("", {})
        filing = read_library(SARAMA, Sections(options, above, SARAMA, parts=False), path, wanted)
        _refuse(filing)
        return filing.reading


def _refuse(filing: Filing) -> None:
    """Refuses what Config.Validate refuses beyond what any client does: idempotence with more than one request in
    flight."""
    idempotent = filing.value("producer", "enable.idempotence")
    in_flight = filing.value("producer", "max.in.flight.requests.per.connection")
    if idempotent is not None and in_flight is not None and idempotent.value == "true" and in_flight.value != "1":
        raise BadInput(
            f"{idempotent.origin}: sarama refuses Producer.Idempotent with Net.MaxOpenRequests={in_flight.value} "
            f"({in_flight.origin}): an idempotent producer needs 1 ({_SARAMA}, Validate). Set Net.MaxOpenRequests to 1."
        )
    transactional = filing.value("producer", "transactional.id")
    if transactional is not None and (idempotent is None or idempotent.value != "true"):
        raise BadInput(
            f"{transactional.origin}: sarama refuses Producer.Transaction.ID without Producer.Idempotent ({_SARAMA}, "
            "Validate). Set Producer.Idempotent to true."
        )


_FRANZ_GO = "pkg/kgo/config.go, franz-go 1.22.2"
_OFFSETS = one_of(
    atstart="earliest", atend="latest", atcommitted="error", noresetoffset="error",
    **{"newoffset.atstart": "earliest", "newoffset.atend": "latest", "newoffset.atcommitted": "error"},
)  # fmt: skip


def _word(value: str) -> str:
    """ "kgo.NewOffset().AtStart()" → "NewOffset.AtStart" """
    return value.replace("()", "").removeprefix("kgo.")


_ASIDE_OF_FRANZ_GO = """
    SeedBrokers ClientID SoftwareNameAndVersion WithLogger WithContext WithHooks WithPools Dialer DialTimeout DialTLS
    DialTLSConfig SASL RequestTimeoutOverhead ConnIdleTimeout MaxVersions MinVersions RetryBackoffFn RequestRetries
    RetryTimeout RetryTimeoutFn AllowAutoTopicCreation BrokerMaxWriteBytes BrokerMaxReadBytes MetadataMaxAge
    MetadataMinAge MaxDecompressBatchBytes DisableClientMetrics UserMetricsFn ConcurrentTransactionsBackoff
    DefaultProduceTopic DefaultProduceTopicAlways ProducerBatchCompression WithCompressor ProducerBatchMaxBytes
    ProducerBatchMaxBytesFn MaxBufferedRecords MaxBufferedBytes RecordPartitioner RackAwarePartitioning ManualFlushing
    StreamingCompression FetchMaxWait FetchMaxBytes FetchMinBytes FetchMaxPartitionBytes MaxConcurrentFetches Rack
    BalanceRacks ConsumeTopics ConsumeRegex ConsumeExcludeTopics DisableFetchSessions WithDecompressor
    RecheckPreferredReplicaInterval RequireStableFetchOffsets BlockRebalanceOnPoll OnOffsetsFetched AutoCommitCallback
    AutoCommitMarks
"""
FRANZ_GO = Library(
    name="franz-go",
    article="options of franz-go",
    stands_in=stand_in_sentence("franz-go"),
    options={
        "producer": {
            "RequiredAcks": Option("acks", lambda value: one_of(allisracks="all", leaderack="1", noack="0")(_word(value))),
            "DisableIdempotentWrite": Option("enable.idempotence", negated),
            "MaxProduceRequestsInflightPerBroker": Option("max.in.flight.requests.per.connection", number),
            "RecordRetries": Option("retries", number),
            "RecordDeliveryTimeout": Option("delivery.timeout.ms", go_duration_ms),
            "ProduceRequestTimeout": Option("request.timeout.ms", go_duration_ms),
            "ProducerLinger": Option("linger.ms", go_duration_ms),
            "TransactionalID": Option("transactional.id"),
            "TransactionTimeout": Option("transaction.timeout.ms", go_duration_ms),
        },
        "consumer": {
            "ConsumerGroup": Option("group.id"),
            "ConsumeResetOffset": Option("auto.offset.reset", lambda value: _OFFSETS(_word(value))),
            "FetchIsolationLevel": Option(
                "isolation.level",
                lambda value: one_of(readcommitted="read_committed", readuncommitted="read_uncommitted")(_word(value)),
            ),
            "DisableAutoCommit": Option("enable.auto.commit", negated),
            "GreedyAutoCommit": Option("enable.auto.offset.store", true_or_false),
            "AutoCommitInterval": Option("auto.commit.interval.ms", go_duration_ms),
            "SessionTimeout": Option("session.timeout.ms", go_duration_ms),
            "RebalanceTimeout": Option("max.poll.interval.ms", go_duration_ms),
            "HeartbeatInterval": Option("heartbeat.interval.ms", go_duration_ms),
            "InstanceID": Option("group.instance.id"),
            "Balancers": Option(
                "partition.assignment.strategy",
                lambda value: one_of(
                    cooperativestickybalancer="cooperative-sticky", rangebalancer="range", roundrobinbalancer="roundrobin"
                )(_word(value)),
            ),
        },
    },
    defaults={
        "producer": {
            "acks": Default("all", f"AllISRAcks, {_FRANZ_GO}"),
            "enable.idempotence": Default("true", _FRANZ_GO),
            "linger.ms": Default("10", _FRANZ_GO),
        },
        "consumer": {
            "auto.offset.reset": Default("earliest", f"startOffset, {_FRANZ_GO}"),
            "isolation.level": Default("read_uncommitted", _FRANZ_GO),
            "enable.auto.commit": Default("true", _FRANZ_GO),
            "enable.auto.offset.store": Default("false", f"commits what the poll before the last gave, {_FRANZ_GO}"),
            "auto.commit.interval.ms": Default("5000", _FRANZ_GO),
            "session.timeout.ms": Default("45000", _FRANZ_GO),
            "max.poll.interval.ms": Default("60000", f"rebalanceTimeout, {_FRANZ_GO}"),
            "partition.assignment.strategy": Default("cooperative-sticky", _FRANZ_GO),
        },
    },
    aside=frozenset(_ASIDE_OF_FRANZ_GO.split()),
    unclear={
        "AllowIdempotentProduceCancellation": "gives up what idempotence rules out, for which librdkafka has no setting",
        "StopProducerOnDataLossDetected": "is a setting that librdkafka does not have",
        "ConsumeStartOffset": "sets where a group begins, not where it goes on after a loss: librdkafka has one for both",
        "ServerSideBalancer": "is the new group protocol with franz-go's own client, which prozess does not run",
        "ShareGroup": "is a share group, of which nothing is promised here",
        "OnPartitionsRevoked": "is code of the application",
        "OnPartitionsLost": "is code of the application",
        "OnPartitionsAssigned": "is code of the application",
        "AdjustFetchOffsetsFn": "is code of the application",
    },
)  # fmt: skip


def _options(document: FileValue) -> tuple[str, FileMapping] | None:
    """A mapping of names to values, or a list of calls in a file of one document: `["RequiredAcks(AllISRAcks())", …]`."""
    documents = documents_of(document)
    if documents and all(isinstance(each, str) for each in documents):  # a JSON file that is a list
        return "", _calls(documents)
    if len(documents) == 1 and isinstance(documents[0], list) and all(isinstance(each, str) for each in documents[0]):
        return "", _calls(documents[0])
    found = unwrapped_document(document, "franz-go", "franz_go", "kgo")
    if found is None:
        return None
    return found[0], {str(key).removeprefix("kgo."): value for key, value in found[1].items()}


def _calls(calls: Iterable[FileValue]) -> FileMapping:
    found: dict[str, FileValue] = {}
    for call in map(str, calls):
        name, _, arguments = call.strip().removeprefix("kgo.").partition("(")
        value = arguments.removesuffix(")")
        if name in found:
            raise BadInput(f"franz-go's option {name} is there twice, and only one can be meant: remove the other.")
        found[name] = True if value == "" else value.strip('"')
    return found


class FranzGo:
    """Options by name in JSON or YAML: a mapping, or a list of calls as they are in the code."""

    name = "franz-go"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is franz-go's, or has only names of franz-go's options."""
        try:
            found = _options(document)
        except BadInput:
            return True
        if found is None:
            return False
        above, options = found
        names = Sections(options, above, FRANZ_GO).names()
        return bool(above) or any(re.match(r"[A-Z]", name) and FRANZ_GO.knows(name) for name in names)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with what franz-go takes by default."""
        above, options = _options(document) or ("", {})
        filing = read_library(FRANZ_GO, Sections(options, above, FRANZ_GO), path, wanted)
        _in_flight(filing)
        return filing.reading


def _in_flight(filing: Filing) -> None:
    """Five with idempotence, whatever is set; one without, unless it is set (MaxProduceRequestsInflightPerBroker). An option
    to the contrary, or acks other than all, is refused by franz-go with idempotence (cfg.validate)."""
    idempotent = filing.value("producer", "enable.idempotence")
    if idempotent is None:
        return
    number_ = "max.in.flight.requests.per.connection"
    if idempotent.value == "false":
        filing.default("producer", number_, "1", f"franz-go's default without idempotence ({_FRANZ_GO})")
        return
    acks, in_flight = filing.value("producer", "acks"), filing.value("producer", number_)
    if in_flight is not None and in_flight.value != "1":
        raise BadInput(
            f"{in_flight.origin}: franz-go refuses MaxProduceRequestsInflightPerBroker with idempotence "
            f"({_FRANZ_GO}, validate). Leave it out, or set DisableIdempotentWrite."
        )
    if acks is not None and acks.value != "all":
        raise BadInput(
            f"{acks.origin}: franz-go refuses RequiredAcks other than AllISRAcks with idempotence ({_FRANZ_GO}, validate). "
            "Set RequiredAcks to AllISRAcks, or DisableIdempotentWrite."
        )
    filing.default("producer", number_, "5", f"franz-go's default with idempotence ({_FRANZ_GO})")


_KAFKA_GO = "kafka-go 0.4"
_ASIDE_OF_KAFKA_GO = """
    brokers addr topic grouptopics partition balancer batchsize batchbytes readtimeout writetimeout dialer transport logger
    errorlogger queuecapacity minbytes maxbytes maxwait readbatchtimeout readlaginterval watchpartitionchanges
    partitionwatchinterval rebalancetimeout jointimeout writebackoffmin writebackoffmax readbackoffmin readbackoffmax
    allowautotopiccreation
"""
KAFKA_GO = Library(
    name="kafka-go",
    article="a Writer or Reader of kafka-go (segmentio)",
    stands_in=stand_in_sentence("kafka-go"),
    spell=str.lower,
    options={
        "producer": {
            "requiredacks": Option("acks", one_of(
                all="all", requireall="all", one="1", requireone="1", none="0", requirenone="0",
                **{"-1": "all", "1": "1", "0": "0"},
            )),
            "maxattempts": Option("retries", lambda value: str(max(0, int(value) - 1)) if number(value) else None),
            "batchtimeout": Option("linger.ms", go_duration_ms),
            "compression": Option("compression.type", _COMPRESSION),
        },
        "consumer": {
            "groupid": Option("group.id"),
            "startoffset": Option("auto.offset.reset", one_of(
                firstoffset="earliest", lastoffset="latest", first="earliest", last="latest",
                **{"-2": "earliest", "-1": "latest"},
            )),
            "isolationlevel": Option("isolation.level", one_of(
                readuncommitted="read_uncommitted", readcommitted="read_committed",
                **{"0": "read_uncommitted", "1": "read_committed"},
            )),
            "sessiontimeout": Option("session.timeout.ms", go_duration_ms),
            "heartbeatinterval": Option("heartbeat.interval.ms", go_duration_ms),
        },
    },
    defaults={
        "producer": {
            "acks": Default("0", f"Writer.RequiredAcks is RequireNone where nobody sets it, {_KAFKA_GO}, writer.go"),
            "enable.idempotence": Default("false", f"{_KAFKA_GO} has no idempotent producer"),
            "retries": Default("9", f"Writer.MaxAttempts is 10, {_KAFKA_GO}, writer.go"),
        },
        "consumer": {
            "auto.offset.reset": Default("earliest", f"StartOffset is FirstOffset, {_KAFKA_GO}, reader.go"),
            "isolation.level": Default("read_uncommitted", f"{_KAFKA_GO}, reader.go"),
            "session.timeout.ms": Default("30000", f"{_KAFKA_GO}, reader.go"),
        },
    },
    aside=frozenset(_ASIDE_OF_KAFKA_GO.split()),
    unclear={
        "async": "lets WriteMessages return before anything is sent, and its errors are ignored",
        "completion": "is code of the application",
        "commitinterval": "commits in the background what the application has marked, as no client of a trial does",
        "retentiontime": "lets committed offsets expire, for which librdkafka has no setting",
        "groupbalancers": "is code of the application",
    },
)  # fmt: skip
_ONLY_KAFKA_GO = ("writebackoffmin", "writebackoffmax", "readbackoffmin", "readbackoffmax", "batchtimeout", "maxattempts",
                  "queuecapacity", "startoffset", "readlaginterval", "watchpartitionchanges")  # fmt: skip
_WRITER: Mapping[str, ClientScope] = {"Writer": "producer", "WriterConfig": "producer", "writer": "producer",
                                      "Reader": "consumer", "ReaderConfig": "consumer", "reader": "consumer"}  # fmt: skip


class KafkaGo:
    """Fields of a Writer and a Reader in JSON or YAML: flat, below `writer` and `reader`, or below the library's name."""

    name = "kafka-go"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is kafka-go's, or has fields that only kafka-go has."""
        found = unwrapped_document(document, "kafka-go", "kafka_go", "segmentio")
        if found is None:
            return False
        above, options = found
        names = Sections(options, above, KAFKA_GO, more=_WRITER).names()
        return bool(above) or any(name in _ONLY_KAFKA_GO for name in names)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with what kafka-go takes by default."""
        above, options = unwrapped_document(document, "kafka-go", "kafka_go", "segmentio") or ("", {})
        sections = Sections(options, above, KAFKA_GO, more=_WRITER)
        filing = read_library(KAFKA_GO, sections, path, wanted)
        if "producer" in filing.reading.defaults and not filing.is_given("producer", "acks"):
            _acks_of_writer(filing, sections)
        return filing.reading


def _acks_of_writer(filing: Filing, sections: Sections) -> None:
    """A Writer whose RequiredAcks nobody sets waits for nobody. NewWriter makes RequireAll of it, from a WriterConfig, which
    has Brokers in place of Addr (writer.go)."""
    names = {*sections.of.get("producer", ()), *sections.both}
    if "addr" in names:
        return
    if "brokers" in names:
        origin = f"NewWriter takes RequireAll where nobody sets RequiredAcks, {_KAFKA_GO}, writer.go"
        filing.default("producer", "acks", "all", origin)
    else:
        filing.unclear(
            "RequiredAcks", "is not set: a Writer then waits for nobody, and NewWriter for all replicas: set it"
        )
