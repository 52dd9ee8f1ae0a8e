"""Reads files with Kafka's or librdkafka's own names, and knows the formats that prozess does not read.

A plain file is no framework's: `acks=all`, `{"linger": {"ms": 5}}`, or documents with a mapping for each part
(`producer: {acks: all}`). librdkafka's names are also those of what is built on it: confluent-kafka for Python, Go and .NET,
and node-rdkafka."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation.formats.filing import (
    CLIENT_SCOPES,
    ClientScope,
    Filing,
    leaf_values,
    names_of,
    unwrapped_document,
)
from prozess.validation.reading import (
    ENDINGS_YAML,
    SCOPES,
    FileMapping,
    FileValue,
    Reading,
    Scope,
    entries,
    flat,
    origin,
)


class Plain:
    """Files with Kafka's own names. Every name is a setting: which of them Kafka has is found once client and version are
    known."""

    name = "plain"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns True: this format is for every file that no other format recognises."""
        return True

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file. BadInput if it is no mapping, or does not say whose settings it has."""
        wanted = tuple(wanted)
        mapping = _one_mapping(document, path)
        reading = Reading(path, _words(path))
        parts = {scope: part for scope in SCOPES if isinstance(part := mapping.get(scope), Mapping)}
        if parts:
            for scope, part in parts.items():
                if scope in wanted:
                    reading.scopes[scope] = dict(flat(part, path))
                else:
                    reading.aside += [f"{scope}.{name}" for name, _ in flat(part, path)]
            for name, setting in flat({key: each for key, each in mapping.items() if key not in parts}, path):
                reading.doubt(
                    name,
                    setting.origin,
                    f"is beside the file's {' and '.join(parts)}: prozess cannot say which of them it belongs to",
                )
            return reading
        settings = _settings(mapping, path)
        owner = wanted[0] if len(wanted) == 1 else _owner(settings, wanted)
        if owner is None:
            raise BadInput(
                f"Say whose settings these are: --producer {path}, or --consumer, --topic or --broker. "
                "Its names are those of none of them alone, nor of an application that prozess knows."
            )
        reading.scopes[owner] = settings
        return reading


def _owner(names: Iterable[str], wanted: Iterable[Scope]) -> Scope | None:
    """The one part that has all of these names that Kafka knows at all: `acks` is a producer's, `bootstrap.servers` is not
    the producer's alone. None: no part, or several."""
    of = {scope: names_of(scope) for scope in SCOPES}
    known = set(names) & frozenset.union(*of.values())
    fits = [scope for scope in wanted if known and known <= of[scope]]
    return fits[0] if len(fits) == 1 else None


def _one_mapping(document: FileValue, path: Path) -> FileMapping:
    if isinstance(document, list) and path.suffix.lower() in ENDINGS_YAML:
        if len(document) > 1:
            raise BadInput(
                f"{path} holds {len(document)} YAML documents, and is of no format that says which counts. "
                "Give a file with one."
            )
        document = document[0] if document else {}
    if not isinstance(document, Mapping):
        raise BadInput(f"{path}: it must be a mapping of property names to values, not {type(document).__name__}.")
    return document


def _settings(mapping: FileMapping, path: Path) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, each in mapping.items():
        if isinstance(each, Setting):
            found[str(name)] = each
        else:
            for flat_name, setting in flat({name: each}, path):
                if flat_name in found:
                    raise BadInput(
                        f"{origin(path, name)}: {flat_name!r} is there twice, and only one can be meant: remove the other."
                    )
                found[flat_name] = setting
    return found


def _words(path: Path) -> str:
    return {".json": "JSON", ".yaml": "YAML", ".yml": "YAML"}.get(
        path.suffix.lower(), "properties"
    ) + " with Kafka's names"


# Files whose format is known by sight, which prozess does not read: no name of theirs is a setting. The format is
# named.


_IN_PROPERTIES = (
    "Write its producer's and its consumer's settings with Kafka's names in .properties files (--producer, --consumer)"
)
_SEEN: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("Micronaut's configuration", re.compile(r"kafka\.(producers|consumers|streams)\..+|micronaut\..+"), ""),
    ("Camel's configuration", re.compile(r"camel\.(component|kamelet|main|sink|source)\..+"), ""),
    ("Akka's or Pekko's configuration", re.compile(r"(akka|pekko)(\..+)?"), ""),
    ("Flink's configuration", re.compile(r"(jobmanager|taskmanager)\..+|'?properties\.bootstrap\.servers'?"), ""),
    ("MirrorMaker 2's configuration", re.compile(r"\S+->\S+\.(enabled|topics|groups)"), ""),
    ("Spark's configuration", re.compile(r"spark\.\S+|kafka\.bootstrap\.servers"), ""),
    (
        "Logstash's or Beats' configuration",
        re.compile(
            r"(input|output)\.kafka\..+|(input|output|filter) \{.*|"
            r"filebeat\..+|topic_id|decorate_events|consumer_threads|topics_pattern"
        ),
        "",
    ),
    (
        "Vector's or Fluent Bit's configuration",
        re.compile(r"(sinks|sources|pipeline)\..+|\[(INPUT|OUTPUT|SERVICE)\]"),
        "",
    ),
    ("the OpenTelemetry Collector's configuration", re.compile(r"(exporters|receivers)\.kafka(/[^.]+)?\..+"), ""),
    ("Telegraf's configuration", re.compile(r"(inputs|outputs)\.kafka(_consumer)?(\[\d+\])?\..+"), ""),
    (
        "Terraform's configuration",
        re.compile(r"resource\.\w*(kafka_topic|msk_configuration)\..+"),
        "Write the config of its topic into a .properties file (--topic), with replication.factor",
    ),
    (
        "a Compose file",
        re.compile(r"services\.[^.]+\.(image|environment|build|extends)(\..+|\[.+)?"),
        "Give it with --compose",
    ),
    ("AsyncAPI", re.compile(r"asyncapi"), ""),
    (
        "kafka-node's configuration",
        re.compile(r"(.+\.)?(kafkaHost|requireAcks|ackTimeoutMs|partitionerType|fromOffset|autoCommitIntervalMs)"),
        "requireAcks is acks, and the producer is never idempotent (enable.idempotence=false). " + _IN_PROPERTIES,
    ),
    (
        "ksqlDB's configuration",
        re.compile(r"ksql\..+|KSQL_.+"),
        "Write what follows ksql.streams. into a .properties file, as the settings of a Streams application (--application)",
    ),
    (
        "the REST Proxy's configuration",
        re.compile(
            r"kafka\.rest\..+|KAFKA_REST_.+|(producer|consumer)\.threads|api\.v[23]\.enable|consumer\.request\.timeout\.ms|fetch\.min\.bytes\.rest"
        ),
        "Write what follows producer. and consumer. into .properties files (--producer, --consumer)",
    ),
    (
        "an inventory of cp-ansible",
        re.compile(r"(.+\.)?kafka_(broker|controller)_custom_properties(\..+)?|(.+\.)?confluent_package_version"),
        "Write kafka_broker_custom_properties into a .properties file (--broker), or give the server.properties that it made",
    ),
)
"""What the file is, the name by which it is known, and what a person takes out of it."""


class Others:
    """A configuration file of no known application format."""

    name = "others"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has a format that prozess knows only by name."""
        return self._format(document, path) is not None

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Raises BadInput, which names the format and what to take out of the file."""
        named, takes_out = self._format(document, path) or ("a file", "")
        raise BadInput(f"{path} is {named}, which prozess does not read. {takes_out or _IN_PROPERTIES}.")

    def _format(self, document: FileValue, path: Path) -> tuple[str, str] | None:
        found = entries(document, path)
        kind = next((setting.value for name, setting in found if name == "kind"), None)
        if kind is not None and any(name == "apiVersion" for name, _ in found):
            return f"a {kind} of Kubernetes", ""
        return next(
            (
                (named, out)
                for named, sign, out in _SEEN
                if any(sign.fullmatch(name) or sign.fullmatch(f"{name} {each.value}") for name, each in found)
            ),
            None,
        )


_WRAPPERS = ("librdkafka", "rdkafka", "confluent_kafka", "confluent-kafka")
_TOPICS = "default.topic.config"
"""Where older files have the properties of topics; librdkafka takes them at the top, too (CONFIGURATION.md)."""
_OF_BINDINGS = (
    "go.", "dotnet.", "error_cb", "stats_cb", "throttle_cb", "log_cb", "oauth_cb", "on_delivery", "on_commit", "logger",
    "dr_cb", "dr_msg_cb", "event_cb", "rebalance_cb", "offset_commit_cb",
)  # fmt: skip
"""What the bindings take for themselves; none of it changes what is sent."""


def _only_librdkafka() -> frozenset[str]:
    java = names_of("producer", "java") | names_of("consumer", "java")
    return (names_of("producer", "librdkafka") | names_of("consumer", "librdkafka")) - java


def _is_named(names: set[str]) -> bool:
    """Returns whether these names are librdkafka's. Three of them brokers have, too (message.max.bytes and the sizes of
    sockets' buffers): they say nothing in a file that has names of brokers alone."""
    of_servers = names_of("broker") | names_of("topic")
    signs = names & _only_librdkafka()
    of_clients = names_of("producer", "librdkafka") | names_of("consumer", "librdkafka")
    return bool(signs - of_servers) or bool(signs and not names & (of_servers - of_clients))


def _flat(options: FileMapping, above: str) -> dict[str, tuple[str, FileValue]]:
    found = {}
    for name, value in leaf_values(options):
        short = name.removeprefix(f"{_TOPICS}.")
        found[name if short in found else short] = above + name, value
    return found


class Librdkafka:
    """Flat, or below `producer` and `consumer`, or below the library's name; `default.topic.config` as if it stood above."""

    name = "librdkafka"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is librdkafka's, or has properties that only librdkafka has."""
        found = unwrapped_document(document, *_WRAPPERS)
        if found is None:
            return False
        above, options = found
        if above:
            return True
        names = set(_flat(options, ""))
        names |= {name.partition(".")[2] for name in names if name.startswith(("producer.", "consumer."))}
        return _is_named(names) or any(name.startswith(f"{_TOPICS}.") for name, _ in leaf_values(options))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, as they are: librdkafka itself is run."""
        above, options = unwrapped_document(document, *_WRAPPERS) or ("", {})
        filing = Filing(path, "properties of librdkafka", "librdkafka")
        both: dict[Any, Any] = {}
        parts: dict[ClientScope, dict[str, tuple[str, FileValue]]] = {}
        for key, value in options.items():
            scope = next((each for each in CLIENT_SCOPES if key == each), None)
            if scope is not None and isinstance(value, Mapping):
                parts[scope] = _flat(value, f"{above}{key}.")
            else:
                both[key] = value
        for scope, found in parts.items():
            for name, (spelt, value) in found.items():
                _file(filing, (scope,), name, spelt, value)
        common = _flat(both, above)
        scopes = tuple(parts) or _scopes(common, wanted)
        for name, (spelt, value) in common.items():
            left = tuple(scope for scope in scopes if not filing.is_given(scope, name))
            if scopes and not left:
                filing.aside(spelt)
            else:
                _file(filing, left, name, spelt, value)
        return filing.reading


def _scopes(names: Iterable[str], wanted: Iterable[Scope]) -> tuple[ClientScope, ...]:
    """The part that a flat file is of: the one it was given for, else the one that its names say."""
    asked = [scope for scope in CLIENT_SCOPES if scope in set(wanted)]
    if len(asked) == 1:
        return (asked[0],)
    producer, consumer = names_of("producer", "librdkafka"), names_of("consumer", "librdkafka")
    found = set(names)
    scopes: list[ClientScope] = ["producer"] if found & (producer - consumer) else []
    scopes += ["consumer"] if found & (consumer - producer) else []
    return tuple(scopes) or CLIENT_SCOPES


def _file(filing: Filing, scopes: tuple[ClientScope, ...], name: str, spelt: str, value: object) -> None:
    if name.startswith(_OF_BINDINGS) or not name:
        filing.aside(spelt)
        return
    known = [scope for scope in scopes if name in names_of(scope, "librdkafka")]
    if not known and (others := [scope for scope in CLIENT_SCOPES if name in names_of(scope, "librdkafka")]):
        filing.aside(spelt)  # librdkafka takes properties of either kind for either client, and does nothing with them
        assert others
        return
    understood = True
    for scope in known or scopes[:1]:
        if understood:
            understood = filing.setting(scope, name, spelt, value)
        else:
            filing.touch(scope, name, spelt)
