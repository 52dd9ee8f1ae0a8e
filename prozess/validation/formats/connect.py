"""Reads the configuration of Kafka Connect: workers and connectors.

A worker's file sets the clients of all its connectors with `producer.…` and `consumer.…`. A connector's own
configuration counts more (`producer.override.…`, `consumer.override.…`), so both files are needed. What a worker sets
for its clients is from Worker (baseProducerConfigs, exactlyOnceSourceTaskProducerConfigs, baseConsumerConfigs):
acks=all, one request in flight, and no limit of time, but no idempotence. A sink reads topics and has `topics` or
`topics.regex` (SinkConnectorConfig.validate); a source writes them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prozess.harness.config.known_properties import Setting, properties_of, versions
from prozess.validation.reading import (
    SCOPES,
    FileValue,
    Reading,
    Scope,
    entries,
    placeholder_in,
)

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


_VARIABLE = "CONNECT_"
_OF_THE_IMAGE = re.compile(r"CONNECT_(LOG4J_.+|OPTS|HEAP_OPTS|JMX_.+|REST_ADVERTISED_HOST_NAME|PLUGIN_PATH|CUB_.+)")


def _entries(document: FileValue, path: Path) -> list[tuple[str, Setting]]:
    """A worker's settings. Those of a container are variables CONNECT_…, of which the image makes properties as that of
    brokers does (confluent-docker-utils: `___` is `-`, `__` is `_`, `_` is `.`)."""
    found = entries(document, path)
    if not any(name.startswith(_VARIABLE) for name, _ in found):
        return found
    made = []
    for name, setting in found:
        if name.startswith(_VARIABLE) and not _OF_THE_IMAGE.fullmatch(name):
            plain = name.removeprefix(_VARIABLE).lower().replace("___", "\0").replace("__", "\1").replace("_", ".")
            made.append((plain.replace("\1", "_").replace("\0", "-"), setting))
    return made


class Worker:
    """The properties of a Kafka Connect worker."""

    name = "Kafka Connect, a worker"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has names of a worker, and none of a connector."""
        names = [name for name, _ in _entries(document, path)]
        return "connector.class" not in names and any(_WORKER_SIGNS.fullmatch(name) for name in names)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file, and refuses nothing."""
        reading = Reading(path, "a Kafka Connect worker", "java", family="Kafka Connect", finish=_finish)
        for scope in _CLIENTS:
            if scope in wanted:
                reading.scopes[scope] = {}
                reading.defaults[scope] = _defaults(scope)
        for name, setting in _entries(document, path):
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
            _take_connector(reading, name, setting, dict(found))
        return reading


def _configuration(document: FileValue) -> FileValue:
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if isinstance(document, Mapping) and isinstance(document.get("config"), Mapping):
        return document["config"]
    return document


def _parts_of(settings: Mapping[str, Setting]) -> tuple[Scope, ...]:
    """A source has a producer, a sink a consumer; both where it cannot be known."""
    short = settings["connector.class"].value.rpartition(".")[2]
    reads = "topics" in settings or "topics.regex" in settings
    if "Sink" in short:
        return ("consumer",)
    if "Source" in short or not reads:
        return ("producer",)
    return _CLIENTS


def _kind(parts: Sequence[Scope]) -> str:
    return "connector" if len(parts) > 1 else "sink" if parts[0] == "consumer" else "source"


def _take_connector(reading: Reading, name: str, setting: Setting, found: Mapping[str, Setting]) -> None:
    own = re.fullmatch(r"(producer|consumer)\.override\.(.+)", name)
    plain = re.fullmatch(r"(producer|consumer)\.(.+)", name)
    if own is not None:
        _override(reading, name, setting, own, found)
    elif plain is not None:
        why = f"is read by no connector: what it may set is {plain[1]}.override.{plain[2]} (KIP-458)"
        reading.doubt(name, setting.origin, why)
    elif re.fullmatch(r"(.+\.)?errors\.tolerance", name) and setting.value.lower() != "none":
        what = "could not be converted or sent (KIP-779)" if "producer" in reading.scopes else "could not be converted"
        reading.doubt(name, setting.origin, f"is {setting.value}: with all, a record that {what} is skipped")
    elif (skips := _skips(name, setting.value)) is not None:
        reading.doubt(name, setting.origin, f"is {setting.value}: {skips}")
    elif name.startswith("topic.creation."):
        _creation(reading, name, setting)
    elif name == "connector.class":
        _class(reading, name, setting)
    elif name == "exactly.once.support":
        reading.aside.append(name)
    elif re.fullmatch(r".*\b(producer|consumer)\b.*", name) and not name.startswith("admin.override."):
        reading.doubt(
            name, setting.origin, "belongs to a client that the connector itself makes, which prozess does not judge"
        )
    else:
        reading.aside.append(name)


def _override(reading: Reading, name: str, setting: Setting, own: re.Match[str], found: Mapping[str, Setting]) -> None:
    direction = re.search("Sink|Source", found["connector.class"].value)
    if own[1] not in _parts_of(found) and not direction:
        why = f"sets a {own[1]}, and whether the connector has one its class does not say"
        reading.doubt(name, setting.origin, why)
    else:
        _put(reading, own[1], own[2], name, setting)


def _class(reading: Reading, name: str, setting: Setting) -> None:
    if placeholder_in(setting.value):
        reading.doubt(name, setting.origin, "is a placeholder: whether it is a source or a sink is not in the file")
    elif _MIRRORS.fullmatch(setting.value):
        reading.doubt(name, setting.origin, "is MirrorMaker's, which has clients of its own for each cluster")
    else:
        reading.aside.append(name)


_SKIPPING = re.compile(
    r"(.*\.)?(event\.processing\.failure\.handling\.mode|event\.deserialization\.failure\.handling\.mode|"
    r"inconsistent\.schema\.handling\.mode|event\.converting\.failure\.handling\.mode|behavior\.on\.(malformed|invalid|error)\S*|"
    r"errors?\.(behavior|action|mode|policy)|connect\.\w+\.error\.policy|(on|fail)\.\w*error\S*)"
)
_SKIP_WORDS = frozenset(("skip", "warn", "ignore", "log", "noop", "drop", "continue"))
_DROPPING = re.compile(
    r"(drop|skip|ignore)\.(invalid|malformed|error|failed|unparseable)\S*|database\.history\.skip\.unparseable\.ddl|"
    r"schema\.history\.internal\.skip\.unparseable\.ddl"
)


def _skips(name: str, value: str) -> str | None:
    """Returns what a connector passes over by this setting, as Debezium and many sinks do; None: nothing."""
    if _SKIPPING.fullmatch(name) and value.strip().lower() in _SKIP_WORDS:
        return "what fails is passed over, and the connector goes on behind it"
    if _DROPPING.fullmatch(name) and value.strip().lower() == "true":
        return "what cannot be read is dropped, and the connector goes on behind it"
    return None


def _creation(reading: Reading, name: str, setting: Setting) -> None:
    """Takes what a source's topics are made with (KIP-158). Which topics a group besides the default has no file says."""
    group, _, rest = name.removeprefix("topic.creation.").partition(".")
    if group == "default" and rest in ("replication.factor", "partitions"):
        if rest == "replication.factor":
            reading.creates[rest] = setting
        else:
            reading.aside.append(name)
    elif group == "default" and rest and "producer" in reading.scopes:
        reading.creates[rest] = setting
    elif rest in ("include", "exclude", "partitions") or name in ("topic.creation.enable", "topic.creation.groups"):
        reading.aside.append(name)
    else:
        reading.doubt(name, setting.origin, "is for some of the connector's topics, and which they are is not reported")


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
