"""A running cluster as the place where brokers' and a topic's settings are read: `prozess validate --cluster`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import catalogue
from harness.configuration import LAST_WITH_ZOOKEEPER, Variant
from harness.validation.known import Setting, Settings, properties_of, versions

DEFAULT_VERSION = Variant().kafka_version
_LOGGING_IN = ("security.", "sasl.", "ssl.", "enable.ssl.", "https.")
"""librdkafka's properties that say how a client logs in."""


@dataclass(frozen=True, slots=True)
class Live:
    """What was read."""

    version: str
    """That trials run: of the release that the brokers tell."""
    brokers: int
    broker: Settings
    topic: Settings | None
    notes: tuple[str, ...]


def read_cluster(servers: str, topic: str | None, clients: Mapping[str, Setting], version: str | None) -> Live:
    """Ask the cluster at `servers`. `clients`: settings of librdkafka's clients, of which how to log in is taken; `version`:
    what was asked for, which counts. ClusterFailed if it does not answer."""
    connection = {name: setting.value for name, setting in clients.items() if name.startswith(_LOGGING_IN)}
    told: Any = catalogue.service("live-settings")(servers, topic, connection)
    run = version or version_to_run(told.release, zookeeper="zookeeper.connect" in told.broker)
    known = {**properties_of("broker", "java", run), **properties_of("topic", "java", run)}
    of_broker = {name: value for name, value in told.broker.items() if name in known}
    notes = [f"{told.brokers} brokers at {servers}, Kafka {told.release or 'of an unknown release'}: trials run {run}"]
    if passed_over := sorted(set(told.broker) - set(of_broker)):
        notes.append(f"not known to Apache Kafka {run}, and passed over: {', '.join(passed_over)}")
    return Live(
        run,
        told.brokers,
        _settings(of_broker, f"{servers}, broker"),
        None if topic is None else _settings(told.topic, f"{servers}, topic {topic}"),
        (*notes, *told.notes),
    )


def version_to_run(release: str | None, *, zookeeper: bool) -> str:
    """A version of this release: one whose properties are known, else its first."""
    if release is None:
        return LAST_WITH_ZOOKEEPER if zookeeper else DEFAULT_VERSION
    return next((version for version in versions() if version.startswith(f"{release}.")), f"{release}.0")


def _settings(values: Mapping[str, str], origin: str) -> Settings:
    return {name: Setting(value, origin) for name, value in values.items()}
