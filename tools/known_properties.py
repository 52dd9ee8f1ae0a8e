"""`harness/config/known_properties.json`, from the programs themselves: `python -m
tools.known_properties` writes it anew.

Kafka's own configuration classes are asked for their `ConfigDef`; librdkafka prints its CONFIGURATION.md. From both: name,
default, type and what a value may be of every property, so that a misspelt one is noticed, an unset one has its true
default, and a value that the program would refuse is refused.

For several versions of Kafka the oldest is written whole, and of each later one what differs from the one before it.
"""

import ctypes
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import confluent_kafka
import py4j.java_gateway
import py4j.protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from prozess.clusters.install.kafka_jars import class_path, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.harness import installation
from prozess.harness.config.releases import NEWEST_PATCHES
from prozess.harness.errors import HarnessFailed, MissingTool

DATA = installation.PACKAGE / "harness" / "config" / "known_properties.json"
CLASSES = {
    "producer": ("org.apache.kafka.clients.producer.ProducerConfig",),
    "consumer": ("org.apache.kafka.clients.consumer.ConsumerConfig",),
    "topic": ("org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig$", "kafka.log.LogConfig"),
    "broker": ("kafka.server.KafkaConfig$", "kafka.server.KafkaConfig"),
}
"""Scope → where its `ConfigDef` is, newest first: topics' moved to Java in 3.5 (KAFKA-14488)."""
UPDATE_MODES = ("org.apache.kafka.server.config.DynamicBrokerConfig", "kafka.server.DynamicBrokerConfig$")
"""The classes of Kafka that name the broker properties which can be changed at run time, newest first."""
Properties = dict[str, dict[str, Any]]
"""Name → `type`, `default`, of topics' `server` (the broker's property that is its default), of brokers'
`update` (how it can be changed while they run), of librdkafka's `alias`,
and what a value may be (`prozess.harness.config.known_properties`): `range`, `beside` (one number more), `values`,
`values_of_any_case`, `or_by_duration`, `members`, `members_most`, `distinct`, `not_empty`, `one_word`,
`no_control_characters`; and `other`: a validator's own words, which nobody here reads."""


# --- Kafka -----------------------------------------------------------------------------------------------------------------


def of_kafka(version: str) -> dict[str, Properties]:
    """Scope → properties. HarnessFailed if a class has none."""
    with kafka_classes(version) as jvm:
        found = {scope: _properties(jvm, definition_of(jvm, scope)) for scope in CLASSES}
        for name, mode in update_modes(jvm).items():
            if name in found["broker"]:
                found["broker"][name]["update"] = mode
        return found


def update_modes(jvm: Any) -> dict[str, str]:
    """The brokers' properties that can be changed while they run, and of what: "per-broker" (one broker, or all), or
    "cluster-wide" (all). Any other one is read when a broker starts (KIP-226)."""
    for name in UPDATE_MODES:
        try:
            kind = jvm.java.lang.Class.forName(name)
        except Py4JError:
            continue
        owner = kind.getField("MODULE$").get(None) if name.endswith("$") else None
        for method in kind.getDeclaredMethods():
            if str(method.getName()) == "dynamicConfigUpdateModes":
                modes = method.invoke(owner, _nothing(jvm))
                return {str(key): str(value) for key, value in modes.items()}
    raise HarnessFailed(f"No class of {', '.join(UPDATE_MODES)} says what brokers can be set to while they run.")


def _nothing(jvm: Any) -> Any:
    """No arguments, for a method that is called by reflection."""
    return jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.lang.Object"), 0)


def definition_of(jvm: Any, scope: str) -> Any:
    """The `ConfigDef` of producers, consumers, topics or brokers."""
    wanted = jvm.java.lang.Class.forName("org.apache.kafka.common.config.ConfigDef")
    for name in CLASSES[scope]:
        try:
            kind = jvm.java.lang.Class.forName(name)
        except Py4JError:
            continue
        found = [
            field for field in kind.getDeclaredFields() if wanted.isAssignableFrom(field.getType()) and _fits(field)
        ]
        for field in found:
            field.setAccessible(True)
            owner = kind.getField("MODULE$").get(None) if name.endswith("$") else None
            return field.get(owner)
    raise HarnessFailed(f"No class of {', '.join(CLASSES[scope])} has the {scope} properties of this version of Kafka.")


def _fits(field: Any) -> bool:
    name = str(field.getName())
    return name == "CONFIG" or name.endswith("configDef")  # in Scala behind the name of its class


def _properties(jvm: Any, definition: Any) -> Properties:
    keys = definition.configKeys()
    to_text = jvm.org.apache.kafka.common.config.ConfigDef.convertToString
    found = {}
    for name in sorted(str(name) for name in keys):
        key = keys[name]
        entry: dict[str, Any] = {"type": str(key.type.toString()).lower()}
        if key.hasDefault() and key.defaultValue is not None:
            entry["default"] = str(to_text(key.defaultValue, key.type))
        if server := _server(definition, key):
            entry["server"] = server
        if key.validator is not None:
            _add_rules(entry, key.validator)
        found[name] = entry
    return found


def _server(definition: Any, key: Any) -> str:
    """The broker's property that is the default of a topic's, as its documentation reports it."""
    if not str(definition.getClass().getName()).endswith("LogConfigDef"):
        return ""
    for method in definition.getClass().getDeclaredMethods():
        if method.getName() == "getConfigValue":
            return _server_value(definition.getConfigValue(key, "Server Default Property"))
    return ""


def _server_value(found: Any) -> str:
    return "" if found is None or str(found) in ("null", "None") else str(found)


def _add_rules(entry: dict[str, Any], validator: Any) -> None:
    """What a validator of `ConfigDef` demands, in the words of `prozess.harness.config.known_properties`."""
    kind = str(validator.getClass().getName()).rpartition("$")[2]
    if kind == "CompositeValidator":
        for part in _field(validator, "validators"):
            _add_rules(entry, part)
    elif kind in _RULES:
        entry |= _RULES[kind](validator)
    else:
        _add_property(entry, str(validator.toString()))


def _members(validator: Any) -> dict[str, Any]:
    allowed = [str(value) for value in _field(_field(validator, "validString"), "validStrings")]
    rules: dict[str, Any] = {"members": allowed} if allowed else {}
    if _field(validator, "isEmptyAllowed", None) is None:
        return rules
    return rules | {"distinct": True, "not_empty": not _field(validator, "isEmptyAllowed")}  # since KIP-1161


_RULES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "Range": lambda it: {"range": [_field(it, "min"), _field(it, "max")]},
    "ValidString": lambda it: {"values": [str(value) for value in _field(it, "validStrings")]},
    "CaseInsensitiveValidString": lambda it: {
        "values_of_any_case": sorted(str(value) for value in _field(it, "validStrings"))
    },
    "ValidList": _members,
    "ListSize": lambda it: {"members_most": _field(it, "maxSize")},
    "NonEmptyString": lambda _: {"not_empty": True},
    "NonEmptyStringWithoutControlChars": lambda _: {"not_empty": True, "no_control_characters": True},
    "NonNullValidator": lambda _: {},  # a file has no null
}


def _add_property(entry: dict[str, Any], text: str) -> None:
    """What a validator that is no class of `ConfigDef`'s says of itself, where that is plain."""
    if between := re.fullmatch(r"\[(-?\d+),\.\.\.,(-?\d+)\] or (-?\d+)", text):  # of gzip's level
        entry["range"], entry["beside"] = [int(between[1]), int(between[2])], int(between[3])
    elif text == "[latest, earliest, none, by_duration:PnDTnHnMn.nS]":  # AutoOffsetResetStrategy.Validator (KIP-1106)
        entry["values"], entry["or_by_duration"] = ["latest", "earliest", "none"], True
    elif re.fullmatch(r"\[[a-z_]+(, [a-z_]+)*\]", text):  # of share consumers' modes
        entry["values_of_any_case"] = text[1:-1].split(", ")
    else:
        entry["other"] = [*entry.get("other", ()), text]


def _field(owner: Any, name: str, *default: Any) -> Any:
    for field in owner.getClass().getDeclaredFields():
        if field.getName() == name:
            field.setAccessible(True)
            return field.get(owner)
    if default:
        return default[0]
    raise HarnessFailed(f"{owner.getClass().getName()} has no field {name}: Kafka's ConfigDef has changed.")


# --- librdkafka --------------------------------------------------------------------------------------------------------


def of_librdkafka() -> dict[str, Properties]:
    """`producer` and `consumer`, global and topic properties together, as its clients take them."""
    library = librdkafka()
    with tempfile.NamedTemporaryFile() as file:
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        text = Path(file.name).read_text(encoding="utf-8")
    found: dict[str, Properties] = {"producer": {}, "consumer": {}}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) < 6 or cells[1] not in ("*", "C", "P"):
            continue
        name, whose, allowed, default, _, description = cells[:6]
        kind = re.search(r"\*Type: ([^*]+)\*", description)
        entry = {"default": default, "type": kind[1] if kind else "string"}
        if alias := re.match(r"Alias for `([^`]+)`", description):
            entry["alias"] = alias[1]
        entry |= _rules_of_librdkafka(library, name, entry, allowed, description)
        for scope, letter in (("producer", "P"), ("consumer", "C")):
            if whose in ("*", letter):
                found[scope].setdefault(name, entry)  # of global and topic properties of one name, the global one
    return {scope: dict(sorted(entries.items())) for scope, entries in found.items()}


def _rules_of_librdkafka(
    library: ctypes.CDLL, name: str, entry: Mapping[str, Any], allowed: str, description: str
) -> dict[str, Any]:
    """What a value may be: as the table has it and, where that says nothing, as the library answers."""
    kind, words = entry["type"], list[str]()
    rules: dict[str, Any] = {}
    if kind in ("integer", "float"):
        rules["range"] = [float(end) if "." in end else int(end) for end in allowed.split(" .. ")]
        words = ["all"]  # where strtol finds no number, acks has this word
    elif kind == "CSV flags" and not allowed:  # of what this library was built with
        words = [word.strip() for word in entry["default"].split(",")]
    elif kind != "boolean" and allowed:
        words = [word.strip() for word in allowed.split(",")]
    elif named := re.findall(r"`(\w+)` - ", description):  # of partitioner, whose range is nowhere else
        rules["values"] = named
    elif kind == "string" and answer(library, name, "a") is None:
        rules |= {"not_empty": True} if answer(library, name, "") else {}
        rules |= {"one_word": True} if answer(library, name, "a,b") and answer(library, name, "a b") else {}
    taken = [word for word in words if answer(library, name, word) is None]
    return rules | ({"values_of_any_case": taken} if taken else {})


def librdkafka() -> ctypes.CDLL:
    """The library that the package confluent-kafka brings along."""
    (library,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    found = ctypes.CDLL(str(library))
    found.rd_kafka_conf_new.restype = ctypes.c_void_p
    found.rd_kafka_conf_destroy.argtypes = [ctypes.c_void_p]
    found.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    return found


def answer(library: ctypes.CDLL, name: str, value: str) -> str | None:
    """What librdkafka says to a value of a property: why it refuses it; None = it takes it."""
    configuration, buffer = library.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    try:
        code = library.rd_kafka_conf_set(configuration, name.encode(), value.encode(), buffer, len(buffer))
    finally:
        library.rd_kafka_conf_destroy(configuration)
    return None if code == 0 else buffer.value.decode(errors="replace")


# --- the file ----------------------------------------------------------------------------------------------------------


def differences(older: dict[str, Properties], newer: dict[str, Properties]) -> dict[str, dict[str, Any]]:
    """Scope → name → what is known of it in the newer version; None: it has no such property any more."""
    found = {}
    for scope, properties in newer.items():
        before = older.get(scope, {})
        changed: dict[str, Any] = {name: entry for name, entry in properties.items() if before.get(name) != entry}
        found[scope] = changed | dict.fromkeys(before.keys() - properties.keys())
    return found


def collect() -> dict[str, Any]:
    """Everything that the file holds."""
    kafka, before = {}, dict[str, Properties]()
    for version in NEWEST_PATCHES:  # minor releases alone change properties
        document = of_kafka(version)
        kafka[version], before = differences(before, document), document
        sys.stdout.write(f"Kafka {version}: {', '.join(f'{len(document[scope])} {scope}' for scope in document)}\n")
    return {"kafka": kafka, "librdkafka": {"version": confluent_kafka.libversion()[0], **of_librdkafka()}}


def main() -> None:
    """Writes the file of the properties that Kafka and librdkafka know."""
    DATA.parent.mkdir(exist_ok=True)
    written = json.dumps(collect(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    DATA.write_text(written.replace('},"', '},\n"') + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {DATA}\n")


# ----------------------------------------------------------------------------------------------------------------------
# Kafka's own classes, asked from Python: a Java with the jars of one version that answers on loopback.


@contextmanager
def kafka_classes(version: str) -> Iterator[Any]:
    """`jvm.org.apache.kafka.…` of that version. MissingTool if there is no Java, or no jar of pyspark's py4j."""
    java = find_java()
    port, token = launch_gateway(
        port=0,
        jarpath=str(_py4j()),
        classpath=class_path(ensure_jars(version)),
        java_path=str(java.executable),
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=DEVNULL,
        redirect_stderr=DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_field=True))
    # Where Spark has been in this process, py4j asks Spark's Java what an error of this one means.
    of_spark, py4j.java_gateway.get_return_value = py4j.java_gateway.get_return_value, py4j.protocol.get_return_value
    try:
        yield gateway.jvm
    finally:
        py4j.java_gateway.get_return_value = of_spark
        gateway.shutdown()
        gateway.java_process = None


def _py4j() -> Path:
    """The half of py4j that runs in Java. pyspark has it among its jars."""
    spec = find_spec("pyspark")
    folders = [] if spec is None else [Path(where) / "jars" for where in spec.submodule_search_locations or ()]
    found = next((jar for folder in folders for jar in sorted(folder.glob("py4j-*.jar"))), None)
    if found is None:
        raise MissingTool("There is no py4j-*.jar among pyspark's jars. Install the package pyspark anew.")
    return found


if __name__ == "__main__":
    main()
