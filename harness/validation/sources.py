"""Configuration as people have it, as settings: .properties, JSON, YAML; the environment of a Compose file's services."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import yaml

from harness.errors import BadInput
from harness.validation.known import Setting, Settings

SCOPES = ("producer", "consumer", "topic", "broker")


def read_settings(path: Path, scope: str) -> Settings:
    """Name → setting. By the file's ending: .json, .yaml, .yml, else Java's .properties format, which librdkafka's own
    files share. A JSON or YAML file with a mapping named like the scope (`producer:`) is taken to mean that part.
    BadInput for a file that is not there, or not what its ending says."""
    text = _text(path)
    if path.suffix == ".json":
        return _from_document(_parsed(path, lambda: json.loads(text), "JSON"), path, scope)
    if path.suffix in (".yaml", ".yml"):
        return _from_document(_parsed(path, lambda: yaml.safe_load(text), "YAML"), path, scope)
    return dict(_properties(text, path))


def _properties(text: str, path: Path) -> Iterator[tuple[str, Setting]]:
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                yield element.key, Setting(element.value.strip(), f"{path}:{line}")
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError as error:
        raise BadInput(
            f"{path}:{line}: {error}. Write the character itself, or \\u and four hexadecimal digits."
        ) from error


def _from_document(document: Any, path: Path, scope: str) -> Settings:  # noqa: ANN401 - what the file holds
    if isinstance(document, Mapping) and isinstance(document.get(scope), Mapping):
        document = document[scope]
    if not isinstance(document, Mapping):
        raise BadInput(f"{path}: it must be a mapping of property names to values, not {type(document).__name__}.")
    return dict(_flat(document, path, ()))


def _flat(document: Mapping[Any, Any], path: Path, above: tuple[str, ...]) -> Iterator[tuple[str, Setting]]:
    """Nested mappings are names in parts: {"linger": {"ms": 5}}."""
    for key, value in document.items():
        name = (*above, str(key))
        if isinstance(value, Mapping):
            yield from _flat(value, path, name)
        elif isinstance(value, list):
            yield ".".join(name), Setting(",".join(_word(part) for part in value), str(path))
        else:
            yield ".".join(name), Setting(_word(value), str(path))


def _word(value: object) -> str:
    """As Kafka spells it."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


# --- Compose files ------------------------------------------------------------------------------------------------------

_OF_IMAGES = re.compile(
    r"KAFKA_(OPTS|HEAP_OPTS|JMX_(OPTS|PORT|HOSTNAME)|GC_LOG_OPTS|JVM_PERFORMANCE_OPTS|DEBUG|LOG4J_.*|HOME|USER|VERSION|"
    r"TOOLS_LOG4J_LOGLEVEL|CFG_.*|KRAFT_CLUSTER_ID|ENABLE_KRAFT)"
)
"""Variables of the images that are no broker properties."""


def compose_services(path: Path) -> dict[str, Settings]:
    """Service → broker properties, of every service of a Compose file that has KAFKA_* variables. Names are spelt as
    the apache/kafka image does: `___` is `-`, `__` is `_`, `_` is `.`. BadInput if there is no such service."""
    document = _parsed(path, lambda: yaml.safe_load(_text(path)), "YAML")
    services = document.get("services") if isinstance(document, Mapping) else None
    found: dict[str, Settings] = {}
    for name, service in (services or {}).items() if isinstance(services, Mapping) else ():
        environment = _environment(service.get("environment")) if isinstance(service, Mapping) else {}
        settings = {
            broker_property(key): Setting(_without_defaults(value), f"{path}, service {name}, {key}")
            for key, value in environment.items()
            if key.startswith("KAFKA_") and not _OF_IMAGES.fullmatch(key)
        }
        if settings:
            found[str(name)] = settings
    if not found:
        raise BadInput(
            f"{path}: no service has an environment with KAFKA_* variables. Give the Compose file of the brokers."
        )
    return found


def broker_property(variable: str) -> str:
    """KAFKA_MIN_INSYNC_REPLICAS → min.insync.replicas"""
    name = variable.removeprefix("KAFKA_").lower()
    return name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\1", "_").replace("\0", "-")


def _environment(value: object) -> dict[str, str]:
    """Compose takes a mapping, or a list of NAME=VALUE."""
    if isinstance(value, Mapping):
        return {str(key): _word(each) for key, each in value.items()}
    if isinstance(value, list):
        return dict(str(each).split("=", 1) for each in value if "=" in str(each))
    return {}


def _without_defaults(value: str) -> str:
    """`${NAME:-3}` → `3`: what Compose takes where the variable is not set."""
    return re.sub(r"\$\{[^}:?-]+:?-([^}]*)\}", r"\1", value)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} does not exist. Give a .properties, .json or .yaml file.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error}.") from error


def _parsed(path: Path, parse: Any, what: str) -> Any:  # noqa: ANN401 - what the file holds
    try:
        return parse()
    except (ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{path} is not {what}: {' '.join(str(error).split())}.") from error
