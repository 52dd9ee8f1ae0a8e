"""Reads the configuration of clusters that somebody else operates: Strimzi's resources, and Amazon MSK's configurations."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prozess.harness.config.client_settings import Unclear
from prozess.harness.errors import BadInput
from prozess.validation.formats.filing import (
    Filing,
    Topic,
    documents_of,
    file_topic,
    leaf_values,
    mapping_in,
    properties_in,
    value_below,
)
from prozess.validation.reading import FileMapping, FileValue, Format, Reading, Scope

_GROUP = "kafka.strimzi.io/"
_SAFE_KINDS = frozenset({"KafkaUser", "KafkaRebalance"})
_KUBERNETES = """
    Namespace Secret ConfigMap Service ServiceAccount Role RoleBinding ClusterRole ClusterRoleBinding Ingress Route
    NetworkPolicy PodMonitor ServiceMonitor PrometheusRule StorageClass PodDisruptionBudget
"""
_OF_KUBERNETES = frozenset(_KUBERNETES.split())
"""What says nothing of brokers' settings: Strimzi takes them from its own resources alone."""
_OF_SPEC = """
    entityOperator clusterCa clientsCa cruiseControl jmxTrans kafkaExporter maintenanceTimeWindows
"""
_BESIDE_KAFKA = frozenset(_OF_SPEC.split())
_OF_KAFKA = """
    image listeners authorization rack brokerRackInitImage livenessProbe readinessProbe jvmOptions jmxOptions
    resources metricsConfig logging template quotas
"""
_BESIDE_CONFIG = frozenset(_OF_KAFKA.split())
"""For `spec.kafka`: where brokers run and how they are reached."""
_OF_ZOOKEEPER = """
    image livenessProbe readinessProbe jvmOptions jmxOptions resources metricsConfig logging template
"""
_BESIDE_ZOOKEEPER = frozenset(_OF_ZOOKEEPER.split())
_HARMLESS = re.compile(
    r"(initLimit|syncLimit|maxClientCnxns|snapCount|preAllocSize|autopurge\..+|admin\..+|metricsProvider\..+)"
)
"""For `spec.zookeeper.config`: what changes neither what is on disk nor how long sessions last (ZooKeeper's own guide)."""
_SESSIONS = frozenset({"tickTime", "minSessionTimeout", "maxSessionTimeout"})
_PREFIXES = """
    listeners advertised. broker. listener. host.name port inter.broker.listener.name sasl. ssl. security. password.
    log.dir zookeeper.connect zookeeper.set.acl zookeeper.ssl zookeeper.clientCnxnSocket authorizer. super.user
    node.id process.roles controller. metadata.log.dir
"""
_FORBIDDEN = tuple(_PREFIXES.split())
"""What Strimzi ignores in `config`, whatever it is set to (KafkaClusterSpec.FORBIDDEN_PREFIXES)."""
_EPHEMERAL = "is ephemeral: a server whose pod is deleted loses its disk, which no promise here takes into account"
_NO_WORKER = "is a connector without its worker: its KafkaConnect decides how its clients are set"


def _strimzi(document: FileValue) -> bool:
    return isinstance(document, Mapping) and str(document.get("apiVersion", "")).startswith(_GROUP)


def _resources(document: FileValue) -> list[FileValue]:
    """Returns the resources of a file, with the items of a `List` in its place."""
    found: list[FileValue] = []
    for each in documents_of(document):
        items = value_below(each, "items")
        found += items if value_below(each, "kind") == "List" and isinstance(items, list) else [each]
    return found


@dataclass(frozen=True, slots=True)
class Strimzi:
    """Resources for the Strimzi operator, one or several in a file."""

    topic_name: str | None = None
    """Which KafkaTopic of several is meant."""
    name = "Strimzi"

    def of_topic(self, topic_name: str) -> Format:
        """Returns the format that reads the topic of this name."""
        return replace(self, topic_name=topic_name)

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether any document is of Strimzi's API group."""
        return any(_strimzi(each) for each in _resources(document))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the broker settings of a Kafka resource, those of one KafkaTopic, and the overrides of a KafkaConnector."""
        resources = _resources(document)
        kinds = dict.fromkeys(str(value_below(each, "kind")) for each in resources if _strimzi(each))
        filing = Filing(path, f"resources of Strimzi ({', '.join(kinds)})", library="java")
        pools, topics = [], []
        clusters: list[str] = []
        for each in resources:
            kind, spelt = (
                str(value_below(each, "kind")),
                f"{value_below(each, 'kind')}/{value_below(each, 'metadata', 'name')}",
            )
            if not _strimzi(each) or kind in _SAFE_KINDS:
                _whole(filing, spelt, each, kind)
            elif kind == "Kafka" and clusters:
                filing.unclear(spelt, f"is a second cluster beside {clusters[0]}: give a file of one")
            elif kind == "Kafka":
                clusters.append(spelt)
                _kafka(filing, spelt, each)
            elif kind == "KafkaNodePool":
                pools.append((spelt, each))
            elif kind == "KafkaTopic":
                topics.append(_topic(spelt, each))
            elif kind == "KafkaConnector":
                _connector(filing, spelt, each)
            else:
                filing.unclear(spelt, f"is a {kind}, whose settings are not read")
        _pools(filing, pools, clusters)
        file_topic(filing, topics, self.topic_name, "topic" in set(wanted))
        return filing.reading


def _whole(filing: Filing, spelt: str, document: FileValue, kind: str) -> None:
    if kind in _SAFE_KINDS | _OF_KUBERNETES:
        filing.aside(spelt)
    else:
        filing.unclear(spelt, "is no resource of Strimzi's, and is not read")


def _about(filing: Filing, spelt: str, document: FileValue) -> None:
    """Takes what every resource has beside its `spec`."""
    resource = mapping_in(document)
    for key in resource:
        if key in ("apiVersion", "kind", "metadata", "status"):
            filing.aside(f"{spelt}.{key}")
        elif key != "spec":
            filing.unclear(f"{spelt}.{key}", "is no part of a resource")
    if not isinstance(resource.get("spec", {}), Mapping):
        filing.unclear(f"{spelt}.spec", "is no mapping")


def _spec(document: FileValue) -> FileMapping:
    return mapping_in(value_below(document, "spec"))


def _kafka(filing: Filing, spelt: str, document: FileValue) -> None:
    _about(filing, spelt, document)
    spec = _spec(document)
    for key, value in spec.items():
        if key == "kafka" and isinstance(value, Mapping):
            if "version" not in value:
                why = "is not set, and which version the operator takes by itself is not in the file: give --kafka-version"
                where = str(filing.reading.path)
                filing.reading.no_version.append(Unclear(f"{spelt}.spec.kafka.version", where, why))
            _brokers(filing, f"{spelt}.spec.kafka", value)
        elif key == "zookeeper" and isinstance(value, Mapping):
            _zookeeper(filing, f"{spelt}.spec.zookeeper", value)
        elif key in _BESIDE_KAFKA:
            filing.aside(f"{spelt}.spec.{key}")
        else:
            filing.unclear(f"{spelt}.spec.{key}", "is not understood")
    annotations = value_below(document, "metadata", "annotations")
    if value_below(spec, "zookeeper") is not None and value_below(annotations, "strimzi.io/kraft") != "enabled":
        filing.default("broker", "zookeeper.connect", "of Strimzi", f"{filing.reading.path}, {spelt}.spec.zookeeper")


def _brokers(filing: Filing, spelt: str, kafka: FileMapping) -> None:
    for key, value in kafka.items():
        name = f"{spelt}.{key}"
        if key == "config" and isinstance(value, Mapping):
            for setting, each in value.items():
                if str(setting).startswith(_FORBIDDEN):
                    filing.aside(f"{name}.{setting}")
                else:
                    filing.setting("broker", str(setting), f"{name}.{setting}", each)
        elif key == "replicas":
            _replicas(filing, name, value)
        elif key == "version" and re.fullmatch(r"\d+\.\d+\.\d+", str(value)):
            filing.reading.kafka_version = str(value)
            filing.aside(name)
        elif key == "metadataVersion":
            _metadata_version(filing, name, str(value), str(kafka.get("version", "")))
        elif key == "storage":
            _storage(filing, name, value)
        elif key in _BESIDE_CONFIG:
            filing.aside(name)
        else:
            filing.unclear(name, "is not understood")


def _zookeeper(filing: Filing, spelt: str, zookeeper: FileMapping) -> None:
    """Takes what the servers of ZooKeeper have (ZookeeperClusterSpec; up to Strimzi 0.45)."""
    for key, value in zookeeper.items():
        name = f"{spelt}.{key}"
        if key == "config" and isinstance(value, Mapping):
            for setting in map(str, value):
                if _HARMLESS.fullmatch(setting):
                    filing.aside(f"{name}.{setting}")
                else:
                    bounds = "bounds how long brokers' sessions last, and is not read"
                    filing.unclear(f"{name}.{setting}", bounds if setting in _SESSIONS else "is not understood")
        elif key == "storage":
            _storage(filing, name, value)
        elif key in _BESIDE_ZOOKEEPER or (key == "replicas" and type(value) is int and value > 0):
            filing.aside(name)
        else:
            filing.unclear(name, "is not understood")


def _replicas(filing: Filing, spelt: str, value: object, *, more: int = 0) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        filing.reading.brokers = value + more
        filing.aside(spelt)
    else:
        filing.unclear(spelt, "is no number of brokers")


def _metadata_version(filing: Filing, spelt: str, value: str, version: str) -> None:
    """An older metadata version than the brokers' leaves features out that the promises of the version rest on (KIP-584)."""
    found = re.match(r"(\d+\.\d+)(?:$|[-.])", value)
    if found and version.startswith(found[1] + "."):
        filing.aside(spelt)
    else:
        filing.unclear(
            spelt, f"is {value}, which is not that of spec.kafka.version: what the brokers may do depends on it"
        )


def _storage(filing: Filing, spelt: str, value: FileValue) -> None:
    kinds = [str(each) for name, each in leaf_values(value) if name.rpartition(".")[2] == "type"]
    volumes = value_below(value, "volumes")
    kinds += [str(value_below(each, "type")) for each in volumes] if isinstance(volumes, list) else []
    if "ephemeral" in kinds:
        filing.unclear(spelt, _EPHEMERAL)
    elif kinds and set(kinds) <= {"jbod", "persistent-claim"}:
        filing.aside(spelt)
    else:
        filing.unclear(spelt, "is a kind of storage that is not understood")


def _pools(filing: Filing, pools: list[tuple[str, FileValue]], of: list[str]) -> None:
    """Counts the node pools with the role `broker`; where there are some, `spec.kafka.replicas` is ignored (Strimzi's API
    reference, KafkaNodePool)."""
    brokers, combined = 0, []
    clusters = {str(value_below(each, "metadata", "labels", "strimzi.io/cluster")) for _, each in pools}
    clusters |= {spelt.removeprefix("Kafka/") for spelt in of if pools}
    if len(clusters) > 1:
        for spelt, _ in pools:
            filing.unclear(spelt, f"is not of one cluster with the rest of the file ({', '.join(sorted(clusters))})")
        return
    for spelt, document in pools:
        _about(filing, spelt, document)
        number, is_combined = _pool(filing, spelt, _spec(document))
        brokers += number
        combined += [is_combined] if number else []
    if brokers:
        filing.reading.brokers = brokers
    if combined and all(combined):
        filing.default(
            "broker", "process.roles", "broker,controller", f"{filing.reading.path}, {pools[0][0]}.spec.roles"
        )


def _pool(filing: Filing, spelt: str, spec: FileMapping) -> tuple[int, bool]:
    """Returns how many brokers it has, and whether they are controllers, too."""
    found = spec.get("roles")
    roles = set(map(str, found)) if isinstance(found, list) else set()
    known = bool(roles) and roles <= {"broker", "controller"}
    replicas = spec.get("replicas")
    counted = replicas if isinstance(replicas, int) and not isinstance(replicas, bool) and replicas >= 0 else None
    for key, value in spec.items():
        name = f"{spelt}.spec.{key}"
        if key == "storage":
            _storage(filing, name, value)
        elif (
            (key == "roles" and known)
            or (key == "replicas" and counted is not None)
            or key in ("resources", "template", "jvmOptions")
        ):
            filing.aside(name)
        else:
            filing.unclear(name, "is not understood")
    return (counted or 0) if known and "broker" in roles else 0, "controller" in roles


def _topic(spelt: str, document: FileValue) -> Topic:
    resource, spec = mapping_in(document), _spec(document)
    name = str(spec.get("topicName") or value_below(document, "metadata", "name"))
    others = [f"{spelt}.{key}" for key in resource if key != "spec"]
    others += [f"{spelt}.spec.{key}" for key in ("partitions", "topicName") if key in spec]
    unknown = [f"{spelt}.spec.{key}" for key in spec if key not in ("partitions", "topicName", "replicas", "config")]
    if not isinstance(resource.get("spec", {}), Mapping):
        unknown.append(f"{spelt}.spec")
    if value_below(document, "metadata", "annotations", "strimzi.io/managed") in ("false", False):
        unknown.append(f"{spelt}.metadata.annotations.strimzi.io/managed")  # the operator leaves the topic as it is
        others.remove(f"{spelt}.metadata")
    replicas: tuple[str, object] | None = None
    if spec.get("replicas") in (-1, "-1"):  # the brokers' default.replication.factor
        others.append(f"{spelt}.spec.replicas")
    elif "replicas" in spec:
        replicas = f"{spelt}.spec.replicas", spec["replicas"]
    config = (f"{spelt}.spec.config", spec["config"]) if "config" in spec else None
    return Topic(name, spelt, replicas, config, others, unknown)


def _connector(filing: Filing, spelt: str, document: FileValue) -> None:
    """`producer.override.` and `consumer.override.` are what a connector says of its clients (KIP-458)."""
    _about(filing, spelt, document)
    for key, value in _spec(document).items():
        name = f"{spelt}.spec.{key}"
        if key == "config" and isinstance(value, Mapping):
            for setting, each in value.items():
                _of_connector(filing, f"{name}.{setting}", str(setting), each)
        elif key in ("class", "tasksMax", "autoRestart", "pause", "state", "version"):
            filing.aside(name)
        else:
            filing.unclear(name, "is not understood")
    filing.unclear(f"{spelt}", _NO_WORKER)


def _of_connector(filing: Filing, spelt: str, setting: str, value: object) -> None:
    for scope in ("producer", "consumer"):
        if setting.startswith(f"{scope}.override."):
            filing.setting("producer" if scope == "producer" else "consumer", setting.split(".", 2)[2], spelt, value)
            return
    if setting.startswith(("exactly.once.", "transaction.boundary", "errors.", "offsets.storage.topic")):
        filing.unclear(spelt, "decides what a connector promises, and is not read here")
    else:
        filing.aside(spelt)


_KEY = "ServerProperties"
_ABOUT = frozenset(
    {"Arn", "CreationTime", "Description", "Revision", "Name", "LatestRevision", "State", "KafkaVersions"}
)
_DEPENDS = {
    "default.replication.factor": "3 in three Availability Zones, 2 in two",
    "min.insync.replicas": "2 in three Availability Zones, 1 in two",
    "unclean.leader.election.enable": "true without tiered storage, false with it",
}
"""MSK's own defaults, which are not Kafka's and depend on the cluster (Amazon MSK Developer Guide, default Amazon MSK
configuration). Whether a custom configuration that leaves one out has MSK's default or Kafka's, the guide does not say."""


class Msk:
    """A custom configuration of a cluster; its `ServerProperties` are in base 64, as the AWS CLI prints blobs, or plain."""

    name = "Amazon MSK"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has `ServerProperties`."""
        return isinstance(document, Mapping) and isinstance(document.get(_KEY), str)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the broker settings. What MSK decides by the cluster, and the file leaves out, is not understood."""
        filing = Filing(path, "a configuration of Amazon MSK", library="java")
        why = "is set where the cluster is made, and not here: give --kafka-version"
        filing.reading.no_version.append(Unclear("the version of Kafka", str(path), why))
        for key, value in mapping_in(document).items():
            if key == _KEY and isinstance(value, str):
                for name, each in properties_in(_decoded(value, path), f"{path}, {_KEY},").items():
                    filing.setting("broker", name, f"{_KEY}.{name}", each)
            elif key in _ABOUT:
                filing.aside(str(key))
            else:
                filing.unclear(str(key), "is no part of a configuration of MSK that is known")
        for name, values in _DEPENDS.items():
            if not filing.is_given("broker", name):
                filing.unclear(
                    f"{_KEY}.{name}", f"is not set, and MSK's default depends on the cluster ({values}): set it"
                )
        return filing.reading


def _decoded(text: str, path: Path) -> str:
    if "=" in text.strip().rstrip("="):
        return text
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise BadInput(
            f"{path}: {_KEY} is neither text with name=value in its lines nor base 64 of it. "
            "Give the file as `aws kafka describe-configuration-revision` prints it."
        ) from error
