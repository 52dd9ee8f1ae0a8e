"""Reads the configuration of Kafka's own frameworks: Connect's workers and connectors, and Kafka Streams.

Connect: a worker's file sets the clients of all its connectors with `producer.…` and `consumer.…`. A connector's own
configuration counts more (`producer.override.…`, `consumer.override.…`), so both files are needed. What a worker sets for its
clients is from Worker (baseProducerConfigs, exactlyOnceSourceTaskProducerConfigs, baseConsumerConfigs): acks=all, one request
in flight, and no limit of time, but no idempotence. A sink reads topics and has `topics` or `topics.regex`
(SinkConnectorConfig.validate); a source writes them.

Streams: `producer.`, `consumer.` and `main.consumer.` are for its clients. A client's name without a prefix is for every
client, and one with a prefix counts more. What Streams sets for its clients is from StreamsConfig
(PRODUCER_DEFAULT_OVERRIDES, PRODUCER_EOS_OVERRIDES, CONSUMER_…, getProducerConfigs, getMainConsumerConfigs,
NON_CONFIGURABLE_…). Streams commits what it has processed, and flushes its producer before (KIP-129, KIP-447)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prozess.harness.app.validation.reading import (
    SCOPES,
    FileValue,
    OfReleases,
    Reading,
    Scope,
    entries,
    placeholder_in,
)
from prozess.harness.config.known_properties import Setting, properties_of, versions
from prozess.harness.errors import BadInput

_CLIENTS: tuple[Scope, ...] = ("producer", "consumer")
_WORKER_SIGNS = re.compile(
    r"(offset|config|status)\.storage\..+|exactly\.once\.source\.support|connector\.client\.config\..+"
)
_WORKER = re.compile(
    r"(key|value|header|internal\.key|internal\.value)\.converter(\..+)?|offset\.(flush\..+|storage\.(topic|partitions|file\..+))|"
    r"(config|status)\.storage\.(topic|partitions)|plugin\.(path|discovery)|config\.providers(\..+)?|topic\.tracking\..+|"
    r"topic\.creation\.enable|connect\.protocol|scheduled\.rebalance\.max\.delay\.ms|inter\.worker\..+|"
    r"worker\.(sync|unsync)\..+|task\.shutdown\..+|listeners(\.https\..+)?|rest\..+|admin\..+|access\.control\..+|"
    r"response\.http\..+|group\.id|bootstrap\.servers|client\.(id|rack)|metrics?\..+|(ssl|sasl)\..+|security\.(protocol|providers)|"
    r"metadata\.max\.age\.ms|metadata\.recovery\..+|(send|receive)\.buffer\.bytes|reconnect\..+|retry\.backoff\..+|"
    r"request\.timeout\.ms|heartbeat\.interval\.ms|(session|rebalance)\.timeout\.ms|connections\.max\.idle\.ms|"
    r"socket\.connection\..+|auto\.include\.jmx\.reporter|connector\.client\.config\.override\.policy|"
    r"exactly\.once\.source\.support"
)
"""Names of a worker that change nothing of what its connectors' clients promise (WorkerConfig, DistributedConfig)."""
_POLICY = "connector.client.config.override.policy"
_EXACTLY_ONCE_SOURCE = "exactly.once.source.support"
_WORDS = {_EXACTLY_ONCE_SOURCE: ("disabled", "preparing", "enabled"), _POLICY: ("all", "none", "principal")}
_MIRRORS = re.compile(r".*\.connect\.mirror\.Mirror\w+Connector")
_DEFAULTS: Mapping[Scope, Mapping[str, str]] = {
    "producer": {
        "max.block.ms": str(2**63 - 1),
        "enable.idempotence": "false",
        "acks": "all",
        "max.in.flight.requests.per.connection": "1",
        "delivery.timeout.ms": str(2**31 - 1),
    },
    "consumer": {"enable.auto.commit": "false", "auto.offset.reset": "earliest"},
}


class Worker:
    """The properties of a Kafka Connect worker."""

    name = "Kafka Connect, a worker"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has names of a worker, and none of a connector."""
        names = [name for name, _ in entries(document, path)]
        return "connector.class" not in names and any(_WORKER_SIGNS.fullmatch(name) for name in names)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file, and refuses nothing."""
        reading = Reading(path, "a Kafka Connect worker", "java", family="Kafka Connect", finish=_finish)
        for scope in _CLIENTS:
            if scope in wanted:
                reading.scopes[scope] = {}
                reading.defaults[scope] = _defaults(scope)
        for name, setting in entries(document, path):
            reading.notes += [setting.note] if setting.note else []
            if (own := re.fullmatch(r"(producer|consumer)\.(.+)", name)) is not None:
                _put(reading, own[1], own[2], name, setting)
            elif re.fullmatch(r"(offset|config|status)\.storage\.(replication\.factor|.*min\.insync\.replicas)", name):
                reading.internal[name] = setting
            elif name == _POLICY and setting.value.lower() in ("none", "principal"):
                reading.own[name] = setting
                reading.notes.append(
                    f"{setting.origin}: {name}={setting.value} forbids connectors to set their clients"
                )
            elif name == _EXACTLY_ONCE_SOURCE and setting.value.lower() == "enabled" and "producer" in reading.scopes:
                reading.own[name] = setting
                reading.defaults["producer"] |= _transactional(setting)
            elif (words := _WORDS.get(name)) is not None and setting.value.lower() not in words:
                reading.doubt(name, setting.origin, f"is {setting.value!r}, none of {', '.join(words)}")
            elif _WORKER.fullmatch(name):
                reading.aside.append(name)
            else:
                _unknown(reading, name, setting, "a worker")
        return reading


class Connector:
    """The configuration of a Kafka Connect connector: `{"name": …, "config": {…}}`, or the configuration alone."""

    name = "Kafka Connect, a connector"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has a connector.class."""
        return "connector.class" in dict(entries(_configuration(document), path))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file, and refuses nothing."""
        found = entries(_configuration(document), path)
        parts = _parts_of(dict(found))
        reading = Reading(
            path,
            f"a Kafka Connect {_kind(parts)}",
            "java",
            family="Kafka Connect",
            rank=1,
            narrows=True,
            finish=_finish,
        )
        named = tuple(wanted) != SCOPES
        for scope in parts:
            if scope in wanted:
                reading.scopes[scope] = {}
                reading.defaults[scope] = {}
        if named and not reading.scopes:
            return reading  # given as what it is not: whoever reads the files says so
        for name, setting in found:
            reading.notes += [setting.note] if setting.note else []
            _take_connector(reading, name, setting)
        return reading


def _configuration(document: FileValue) -> FileValue:
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if isinstance(document, Mapping) and isinstance(document.get("config"), Mapping):
        return document["config"]
    return document


def _parts_of(settings: Mapping[str, Setting]) -> tuple[Scope, ...]:
    """A source has a producer, a sink a consumer; both where it cannot be told."""
    short = settings["connector.class"].value.rpartition(".")[2]
    reads = "topics" in settings or "topics.regex" in settings
    if "Sink" in short:
        return ("consumer",)
    if "Source" in short or not reads:
        return ("producer",)
    return _CLIENTS


def _kind(parts: Sequence[Scope]) -> str:
    return "connector" if len(parts) > 1 else "sink" if parts[0] == "consumer" else "source"


def _take_connector(reading: Reading, name: str, setting: Setting) -> None:
    own = re.fullmatch(r"(producer|consumer)\.override\.(.+)", name)
    plain = re.fullmatch(r"(producer|consumer)\.(.+)", name)
    if own is not None:
        _put(reading, own[1], own[2], name, setting)
    elif plain is not None:
        why = f"is read by no connector: what it may set is {plain[1]}.override.{plain[2]} (KIP-458)"
        reading.doubt(name, setting.origin, why)
    elif name == "errors.tolerance" and setting.value.lower() != "none":
        what = "could not be converted or sent (KIP-779)" if "producer" in reading.scopes else "could not be converted"
        reading.doubt(name, setting.origin, f"is {setting.value}: with all, a record that {what} is skipped")
    elif name == "connector.class" and placeholder_in(setting.value):
        reading.doubt(name, setting.origin, "is a placeholder: whether it is a source or a sink is not in the file")
    elif name == "connector.class" and _MIRRORS.fullmatch(setting.value):
        reading.doubt(name, setting.origin, "is MirrorMaker's, which has clients of its own for each cluster")
    elif name == "exactly.once.support":
        reading.aside.append(name)
    elif re.fullmatch(r".*\b(producer|consumer)\b.*", name) and not name.startswith("admin.override."):
        reading.doubt(
            name, setting.origin, "belongs to a client that the connector itself makes, which prozess does not judge"
        )
    else:
        reading.aside.append(name)


def _put(reading: Reading, part: str, key: str, name: str, setting: Setting) -> None:
    scope: Scope = "producer" if part == "producer" else "consumer"
    if scope in reading.scopes:
        reading.put(scope, key, setting.value, setting.origin)
    else:
        reading.aside.append(name)


def _unknown(reading: Reading, name: str, setting: Setting, whose: str) -> None:
    """A client's name without a prefix is that of the clients with which a worker keeps its own topics."""
    known = any(name in properties_of(scope, "java", version) for scope in _CLIENTS for version in versions())
    why = f"is no property of {whose} that prozess knows"
    if known:
        why = f"is for the worker's own topics; for connectors' clients write producer.{name} or consumer.{name}"
    reading.doubt(name, setting.origin, why, f"unknown-property:{name}")


def _defaults(scope: Scope) -> dict[str, Setting]:
    where = "Connect's default (Worker.baseProducerConfigs)" if scope == "producer" else "Connect's default"
    return {name: Setting(value, where) for name, value in _DEFAULTS[scope].items()}


def _transactional(setting: Setting) -> dict[str, Setting]:
    """Returns the settings that exactlyOnceSourceTaskProducerConfigs gives a producer: idempotent unless somebody says
    otherwise, with an own id."""
    origin = f"{setting.origin}, {_EXACTLY_ONCE_SOURCE}"
    return {"enable.idempotence": Setting("true", origin), "transactional.id": Setting("Connect's own", origin)}


def _finish(reading: Reading) -> None:
    """A connector without its worker is half of what counts, and one that its worker's policy forbids does not start."""
    if reading.narrows and not reading.over:
        why = (
            "is run by a worker, whose producer.… and consumer.… count where the connector says nothing: give "
            "the worker's file, too"
        )
        reading.doubt("connector.class", str(reading.path), f"{why} (--application)")
        for scope in reading.scopes:
            reading.defaults[scope] = _defaults(scope)
    if not reading.narrows:
        reading.notes.append(
            "Connect: this holds for connectors that set nothing for their clients. A connector's "
            "producer.override.… and consumer.override.… count more: give its configuration, too"
        )
    forbids = [note for note in reading.notes if "forbids connectors" in note]
    overrides = [
        n for s, settings in reading.scopes.items() for n, each in settings.items() if str(reading.path) in each.origin
    ]
    if reading.narrows and forbids and overrides:
        reading.doubt(
            overrides[0], str(reading.path), f"is set by the connector, which the worker forbids ({forbids[0]})"
        )
    if "consumer" in reading.scopes:
        reading.notes.append(
            "Connect: the sink connector's own code decides what it has written when its worker commits (preCommit)"
        )


_STREAMS_SIGNS = (
    "application.id",
    "processing.guarantee",
    "num.stream.threads",
    "num.standby.replicas",
    "default.key.serde",
)
_STREAMS_ASIDE = re.compile(
    r"acceptable\.recovery\.lag|application\.(id|server)|buffered\.records\.per\.partition|built\.in\.metrics\.version|"
    r"cache\.max\.bytes\.buffering|commit\.interval\.ms|default\.(dsl\.store|key\.serde|value\.serde|timestamp\.extractor)|"
    r"default\.list\.(key|value)\.serde\.(inner|type)|dsl\.store\.(suppliers\.class|format)|log\.summary\.interval\.ms|"
    r"max\.task\.idle\.ms|max\.warmup\.replicas|num\.(standby\.replicas|stream\.threads)|poll\.ms|"
    r"probing\.rebalance\.interval\.ms|repartition\.purge\.interval\.ms|rack\.aware\.assignment\..+|rocksdb\.config\.setter|"
    r"state\.(cleanup\.delay\.ms|cleanup\.dir\.max\.age\.ms|dir)|statestore\.cache\.max\.bytes|task\.assignor\.class|"
    r"task\.timeout\.ms|upgrade\.from|topology\.optimization|window(ed\.inner\.class\.serde|\.size\.ms)|"
    r"windowstore\.changelog\.additional\.retention\.ms|ensure\.explicit\.internal\.resource\.naming|"
    r"(admin|client\.tag)\..+|config\.providers|config\.providers\..+"
)
"""Names of Streams' own that change nothing of what its clients promise (StreamsConfig)."""
_HANDLERS = re.compile(r"(default\.)?(deserialization|processing)\.exception\.handler")
_OF_SENDS = re.compile(r"(default\.)?production\.exception\.handler")
_KEEP_OUR_OWN = {
    "consumer": ("enable.auto.commit",),
    "eos consumer": ("enable.auto.commit", "isolation.level"),
    "eos producer": ("enable.idempotence", "transactional.id"),
}
"""What Streams sets itself whatever the file says, and logs a warning."""
_EXACTLY_ONCE = "exactly_once_v2"
_EXACTLY_ONCE_BEFORE = ("exactly_once", "exactly_once_beta")
"""Its names until they were removed: a producer for each task (KIP-129), and one for each thread (KIP-447)."""
_REMOVED = (4, 0)
_STREAMS_PROTOCOL = (4, 1)
"""The first release whose Streams has `group.protocol` of its own: classic or streams (KIP-1071)."""
_NEVER = (10**6,)


class Streams:
    """The configuration of a Kafka Streams application."""

    name = "Kafka Streams"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has a name that only Streams applications have."""
        return any(name in _STREAMS_SIGNS for name, _ in entries(document, path))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file. BadInput for a processing.guarantee that Streams does not have."""
        wanted = tuple(wanted)
        reading = Reading(path, "a Kafka Streams application", "java")
        found = entries(document, path)
        guarantee = _guarantee(found, reading)
        for scope in ("producer", "consumer"):
            if scope in wanted:
                reading.scopes[scope] = {}
        for name, setting in sorted(found, key=lambda pair: _weight(pair[0])):
            reading.notes += [setting.note] if setting.note else []
            _take_streams(name, setting, reading)
        exactly_once = guarantee is not None and guarantee.value in (_EXACTLY_ONCE, *_EXACTLY_ONCE_BEFORE)
        _set_as_streams_does(reading, guarantee if exactly_once else None)
        reading.commits = Setting("sync-after", "Kafka Streams, which commits what it has processed")
        return reading


def _guarantee(found: Sequence[tuple[str, Setting]], reading: Reading) -> Setting | None:
    setting = dict(found).get("processing.guarantee")
    if setting is None or setting.value == "at_least_once":
        return setting
    if placeholder_in(setting.value):
        why = f"is a placeholder: what {placeholder_in(setting.value)} stands for is not in the file"
        reading.doubt("processing.guarantee", setting.origin, why)
        return None
    if setting.value in _EXACTLY_ONCE_BEFORE:
        why = f"is {setting.value}, which Kafka 4.0 removed (KIP-732): write {_EXACTLY_ONCE}"
        reading.of_releases.append(OfReleases("processing.guarantee", setting, (0,), _REMOVED, why))
    elif setting.value != _EXACTLY_ONCE:
        raise BadInput(
            f"{setting.origin}: processing.guarantee = {setting.value!r} must be at_least_once or {_EXACTLY_ONCE}: "
            "the application refuses to start."
        )
    return setting


def _weight(name: str) -> int:
    return 2 if name.startswith("main.consumer.") else 1 if name.startswith(("producer.", "consumer.")) else 0


def _take_streams(name: str, setting: Setting, reading: Reading) -> None:
    prefix = re.match(r"(main\.consumer|producer|consumer)\.", name)
    if prefix is not None:
        _take_prefixed(name, prefix, setting, reading)
    elif name == "processing.guarantee":
        if not any(each.name == name for each in reading.unclear):
            reading.own[name] = setting
    elif name == "replication.factor" or name.startswith("topic."):
        reading.internal[name] = setting
    elif name.startswith(("restore.consumer.", "global.consumer.")):
        reading.doubt(name, setting.origin, "is of a consumer of Streams that prozess does not judge")
    elif name == "default.client.supplier":
        reading.doubt(name, setting.origin, "makes the clients by the application's own code")
    elif _HANDLERS.fullmatch(name) or _OF_SENDS.fullmatch(name):
        _take_handler(name, setting, reading)
    elif _STREAMS_ASIDE.fullmatch(name):
        reading.aside.append(name)
    elif name == "group.protocol" and setting.value.lower() == "streams":
        _take_protocol(name, setting, reading)
    else:
        _take_unprefixed(name, setting, reading)


def _take_prefixed(name: str, prefix: re.Match[str], setting: Setting, reading: Reading) -> None:
    scope: Scope = "producer" if prefix[1] == "producer" else "consumer"
    if scope in reading.scopes:
        reading.scopes[scope][name.removeprefix(prefix[0])] = Setting(setting.value, setting.origin)
    else:
        reading.aside.append(name)


def _take_protocol(name: str, setting: Setting, reading: Reading) -> None:
    """Notes that brokers assign the tasks of the application, as no consumer group of a trial has it."""
    reading.own[name] = setting
    reading.notes.append(
        "Streams: group.protocol=streams has the brokers assign tasks (KIP-1071): the trials' members are of a consumer "
        "group, not of a streams group"
    )
    why = "is streams, which Kafka's Streams has from 4.1 on (KIP-1071)"
    reading.of_releases.append(OfReleases(name, setting, _STREAMS_PROTOCOL, _NEVER, why))


def _take_handler(name: str, setting: Setting, reading: Reading) -> None:
    """Notes what happens to a record that fails. Streams' own handlers fail, or go on."""
    short = setting.value.rpartition(".")[2]
    fails = ("LogAndFailExceptionHandler", "LogAndFailProcessingExceptionHandler", "DefaultProductionExceptionHandler")
    if short in fails:
        reading.aside.append(name)
    elif short in ("LogAndContinueExceptionHandler", "LogAndContinueProcessingExceptionHandler"):
        reading.aside.append(name)
        reading.notes.append(f"Streams: a record that fails is logged and skipped ({name}={short})")
    else:
        what = "sent" if _OF_SENDS.fullmatch(name) else "processed"
        why = f"is the application's own code, which may skip a record that could not be {what}"
        reading.doubt(name, setting.origin, why)


def _take_unprefixed(name: str, setting: Setting, reading: Reading) -> None:
    """A client's name without a prefix is every client's that knows it."""
    taken = False
    for scope in ("producer", "consumer"):
        if any(name in properties_of(scope, "java", version) for version in versions()):
            taken = True
            if scope in reading.scopes:
                reading.put(scope, name, setting.value, setting.origin)
            else:
                reading.aside.append(f"{scope}.{name}")
    if not taken:
        why = "is no property of Kafka Streams or its clients that prozess knows"
        reading.doubt(name, setting.origin, why, f"unknown-property:{name}")


def _set_as_streams_does(reading: Reading, exactly_once: Setting | None) -> None:
    origin = "Streams' default (StreamsConfig)"
    producer = {"linger.ms": "100"}
    consumer = {"auto.offset.reset": "earliest", "max.poll.records": "1000", "enable.auto.commit": "false"}
    own: dict[Scope, tuple[str, ...]] = {"consumer": _KEEP_OUR_OWN["consumer"], "producer": ()}
    if exactly_once is not None:
        origin = f"{exactly_once.origin}, processing.guarantee"
        producer |= {
            "delivery.timeout.ms": str(2**31 - 1),
            "enable.idempotence": "true",
            "transactional.id": "Streams' own",
            "transaction.timeout.ms": "10000",
        }
        consumer["isolation.level"] = "read_committed"
        own = {"consumer": _KEEP_OUR_OWN["eos consumer"], "producer": _KEEP_OUR_OWN["eos producer"]}
        if "consumer" in reading.scopes:
            why = (
                "commits a consumer's positions in the producer's transactions, and prozess does not predict "
                "this for a consumer"
            )
            reading.doubt("processing.guarantee", exactly_once.origin, why)
    defaults: dict[Scope, dict[str, str]] = {"producer": producer, "consumer": consumer}
    for scope, values in defaults.items():
        settings = reading.scopes.get(scope)
        if settings is None:
            continue
        for name in own[scope]:
            dropped = settings.pop(name, None)
            if dropped is not None:
                reading.aside.append(name)
                reading.notes.append(
                    f"{dropped.origin}: Streams sets {name}={values[name]} itself, whatever the file says"
                )
        reading.defaults[scope] = {name: Setting(value, origin) for name, value in values.items()}
