"""Reads resources of Confluent for Kubernetes: Kafka and KafkaTopic of the API group platform.confluent.io."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prozess.validation.formats.container_setup import lies_over_properties
from prozess.validation.formats.containers import version_of_images
from prozess.validation.formats.filing import (
    Filing,
    Topic,
    documents_of,
    file_topic,
    mapping_in,
    properties_in,
    value_below,
)
from prozess.validation.reading import FileMapping, FileValue, Format, Reading, Scope

_GROUP = "platform.confluent.io/"
_OF_SPEC = """
    dataVolumeCapacity listeners authorization authentication tls license metrics podTemplate rackAssignment dependencies
    telemetry internalTopicReplicatorFactor storageClass k8sClusterDomain mountedSecrets mountedVolumes services
    metricReporter passwordEncoder identityProvider injectAnnotations injectLabels headlessService
"""
_ASIDE = frozenset(_OF_SPEC.split())
"""For a Kafka's `spec`: where brokers run and how they are reached. Its volumes always outlive a pod (dataVolumeCapacity)."""
_OF_OPERATOR = ("default.replication.factor", "min.insync.replicas", "unclean.leader.election.enable")
"""What the operator may set by itself."""


def _of_group(document: FileValue) -> bool:
    return isinstance(document, Mapping) and str(document.get("apiVersion", "")).startswith(_GROUP)


@dataclass(frozen=True, slots=True)
class ConfluentForKubernetes:
    """Resources for Confluent's operator, one or several in a file."""

    topic_name: str | None = None
    name = "Confluent for Kubernetes"

    def of_topic(self, topic_name: str) -> Format:
        """Returns the format that reads the topic of this name."""
        return replace(self, topic_name=topic_name)

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether any document is of Confluent's API group."""
        return any(_of_group(each) for each in documents_of(document))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the overrides of one Kafka, the number and the version of its brokers, and one KafkaTopic."""
        filing = Filing(path, "resources of Confluent for Kubernetes", library="java")
        topics: list[Topic] = []
        clusters: list[str] = []
        for each in documents_of(document):
            kind, spelt = (
                value_below(each, "kind"),
                f"{value_below(each, 'kind')}/{value_below(each, 'metadata', 'name')}",
            )
            spec = mapping_in(value_below(each, "spec"))
            if not _of_group(each):
                filing.aside(spelt)
            elif kind == "Kafka" and not clusters:
                clusters.append(spelt)
                _kafka(filing, f"{spelt}.spec", spec)
            elif kind == "KafkaTopic":
                topics.append(_topic(spelt, spec, each))
            elif kind == "KRaftController" and not value_below(spec, "configOverrides", "server"):
                filing.aside(spelt)
            else:
                filing.unclear(spelt, f"is a {kind}, whose settings are not read")
        file_topic(filing, topics, self.topic_name, "topic" in set(wanted))
        return filing.reading


def _kafka(filing: Filing, spelt: str, spec: FileMapping) -> None:
    for key, value in spec.items():
        name = f"{spelt}.{key}"
        if key == "replicas" and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            filing.reading.brokers = value
            filing.aside(name)
        elif key == "image":
            filing.aside(name)
        elif key == "configOverrides":
            _overrides(filing, name, value)
        elif (
            key == "mountedVolumes" and (target := lies_over_properties(value_below(value, "volumeMounts"))) is not None
        ):
            filing.unclear(name, f"lies over {target}, which may set properties")
        elif key in _ASIDE:
            filing.aside(name)
        else:
            filing.unclear(name, "is not understood")
    version_of_images(
        filing.reading, {f"{spelt}.image.application": str(value_below(spec, "image", "application") or "")}
    )
    for name in _OF_OPERATOR:
        if not filing.is_given("broker", name):
            why = "is not set, and what the operator sets by itself is not in the file: set it"
            filing.unclear(f"{spelt}.configOverrides.server.{name}", why)


def _overrides(filing: Filing, spelt: str, value: FileValue) -> None:
    for part, lines in mapping_in(value).items():
        if part == "server" and isinstance(lines, list):
            text = "\n".join(str(line) for line in lines)
            for name, each in properties_in(text, f"{filing.reading.path}, {spelt}.server").items():
                filing.setting("broker", name, f"{spelt}.server.{name}", each)
        elif part in ("jvm", "log4j"):
            filing.aside(f"{spelt}.{part}")
        else:
            filing.unclear(f"{spelt}.{part}", "is not understood")


def _topic(spelt: str, spec: FileMapping, document: FileValue) -> Topic:
    name = str(spec.get("name") or value_below(document, "metadata", "name"))
    replicas = (f"{spelt}.spec.replicas", spec["replicas"]) if "replicas" in spec else None
    config = (f"{spelt}.spec.configs", spec["configs"]) if "configs" in spec else None
    others = [
        f"{spelt}.spec.{key}"
        for key in spec
        if key in ("name", "partitionCount", "kafkaRest", "kafkaClusterRef", "kafkaRestClassRef")
    ]
    known = ("name", "partitionCount", "kafkaRest", "kafkaClusterRef", "kafkaRestClassRef", "replicas", "configs")
    unknown = [f"{spelt}.spec.{key}" for key in spec if key not in known]
    return Topic(name, spelt, replicas, config, others, unknown)
