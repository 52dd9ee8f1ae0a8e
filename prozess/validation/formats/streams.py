"""Reads the configuration of Kafka Streams applications.

`producer.`, `consumer.` and `main.consumer.` are for its clients. A client's name without a prefix is for every
client, and one with a prefix counts more. What Streams sets for its clients is from StreamsConfig
(PRODUCER_DEFAULT_OVERRIDES, PRODUCER_EOS_OVERRIDES, CONSUMER_…, getProducerConfigs, getMainConsumerConfigs,
NON_CONFIGURABLE_…). Streams commits what it has processed, and flushes its producer before (KIP-129, KIP-447)."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from prozess.harness.config.known_properties import Setting, properties_of, versions
from prozess.harness.errors import BadInput
from prozess.validation.reading import (
    FileValue,
    OfReleases,
    Reading,
    Scope,
    entries,
    placeholder_in,
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
        reading.doubt(
            name, setting.origin, f"is {short}: a record that fails is logged and skipped, and then committed"
        )
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
