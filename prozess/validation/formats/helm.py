"""Reads values of Bitnami's Helm chart of Kafka."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prozess.harness.config.client_settings import Unclear
from prozess.validation.formats.container_setup import lies_over_properties
from prozess.validation.formats.containers import BITNAMI
from prozess.validation.formats.filing import (
    Filing,
    Topic,
    documents_of,
    file_topic,
    mapping_in,
    properties_in,
    value_below,
)
from prozess.validation.reading import FileMapping, FileValue, Format, Reading, Scope, placeholder_in

_SETTINGS = ("config", "extraConfig", "extraConfigYaml", "secretConfig", "overrideConfiguration")
"""What holds brokers' properties, as text or as a mapping, of all nodes or below `controller` and `broker`."""
_TO_CHART_31 = ("extraConfig", "extraConfigYaml")
_SINCE_CHART_32 = "overrideConfiguration"
_APPENDED = (*_TO_CHART_31, _SINCE_CHART_32)
"""What is added to the configuration that the chart writes."""
_OLD: Mapping[str, str] = {
    "defaultReplicationFactor": "default.replication.factor",
    "offsetsTopicReplicationFactor": "offsets.topic.replication.factor",
    "transactionStateLogReplicationFactor": "transaction.state.log.replication.factor",
    "transactionStateLogMinIsr": "transaction.state.log.min.isr",
    "deleteTopicEnable": "delete.topic.enable",
    "autoCreateTopicsEnable": "auto.create.topics.enable",
    "logFlushIntervalMessages": "log.flush.interval.messages",
    "logFlushIntervalMs": "log.flush.interval.ms",
    "logRetentionBytes": "log.retention.bytes",
    "logRetentionCheckIntervalMs": "log.retention.check.interval.ms",
    "logRetentionHours": "log.retention.hours",
    "logSegmentBytes": "log.segment.bytes",
    "maxMessageBytes": "message.max.bytes",
    "numIoThreads": "num.io.threads",
    "numNetworkThreads": "num.network.threads",
    "numPartitions": "num.partitions",
    "numRecoveryThreadsPerDataDir": "num.recovery.threads.per.data.dir",
    "socketReceiveBufferBytes": "socket.receive.buffer.bytes",
    "socketRequestMaxBytes": "socket.request.max.bytes",
    "socketSendBufferBytes": "socket.send.buffer.bytes",
    "zookeeperConnectionTimeoutMs": "zookeeper.connection.timeout.ms",
}
"""Values of charts up to 22, which have a value for each property."""
_READ_ELSEWHERE = (
    "existingConfigmap", "existingSecretConfig", "extraEnvVarsCM", "extraEnvVarsSecret", "extraInit", "command", "args",
    "interBrokerProtocolVersion", "diagnosticMode.enabled", "extraDeploy", "initContainers", "sidecars",
    "lifecycleHooks",
)  # fmt: skip
"""Empty in the chart's own values; anything in them may set properties that this file does not show."""
_NAMES_ASIDE = """
    global kubeVersion nameOverride fullnameOverride namespaceOverride apiVersions clusterDomain commonLabels
    commonAnnotations serviceBindings diagnosticMode image log4j log4j2 existingLog4jConfigMap existingLog4j2ConfigMap
    heapOpts listeners sasl tls auth usePasswordFiles clusterId existingKraftSecret extraVolumes extraVolumeMounts
    dnsPolicy dnsConfig defaultInitContainers service externalAccess networkPolicy volumePermissions serviceAccount
    rbac metrics zookeeper externalZookeeper kraft logPersistence resources resourcesPreset podLabels podAnnotations
    podAffinityPreset podAntiAffinityPreset nodeAffinityPreset affinity nodeSelector tolerations
    topologySpreadConstraints terminationGracePeriodSeconds podManagementPolicy priorityClassName schedulerName
    runtimeClassName enableServiceLinks updateStrategy minReadySeconds hostAliases hostNetwork hostIPC pdb autoscaling
    podSecurityContext containerSecurityContext livenessProbe readinessProbe startupProbe
    customLivenessProbe customReadinessProbe customStartupProbe persistentVolumeClaimRetentionPolicy containerPorts
    extraContainerPorts minId brokerRackAssignment
"""
_ASIDE = frozenset(_NAMES_ASIDE.split())
"""Where pods run and how they are reached."""
_SETTING = re.compile(r"\s*[\w.]+\s*[=:]")
"""A line with a name of its own; another one with a template in it may be anything."""
_OF_THIS_CHART = {*_SETTINGS[1:], *_OLD, "provisioning", "kraft", "heapOpts", "externalZookeeper", "controllerOnly"}


def _values(document: FileValue) -> tuple[str, FileMapping] | None:
    """Returns where the chart's values begin: at the top, or below `kafka` where it is a part of another chart."""
    documents = documents_of(document)
    if len(documents) != 1 or value_below(documents[0], "apiVersion") or value_below(documents[0], "services"):
        return None
    for above, values in (("", documents[0]), ("kafka", value_below(documents[0], "kafka"))):
        if isinstance(values, Mapping) and (
            any(key in values for key in _OF_THIS_CHART)
            or any(value_below(values, role, "replicaCount") is not None for role in ("controller", "broker"))
        ):
            return above, values
    return None


@dataclass(frozen=True, slots=True)
class Helm:
    """A values.yaml; what a template fills in (`{{ … }}`) is not understood."""

    topic_name: str | None = None
    """Which of several topics in `provisioning.topics` is meant."""
    name = "Helm values"

    def of_topic(self, topic_name: str) -> Format:
        """Returns the format that reads the topic of this name."""
        return replace(self, topic_name=topic_name)

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has values of the chart that a list of plain settings does not have."""
        return _values(document) is not None

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the broker settings, the number of brokers, and the topic that the chart creates."""
        filing = Filing(path, "values of Bitnami's Helm chart of Kafka", library="java")
        above, values = _values(document) or ("", {})
        if above:
            for key in mapping_in(documents_of(document)[0]):
                if key != above:
                    filing.aside(str(key))
        chart = _Chart(filing, values, f"{above}." if above else "")
        chart.read()
        chart.topics(self.topic_name, "topic" in set(wanted))
        return filing.reading


@dataclass(frozen=True, slots=True)
class _Chart:
    filing: Filing
    values: FileMapping
    above: str

    def read(self) -> None:
        """Reads everything but the topics."""
        for key, value in self.values.items():
            if key in ("controller", "broker") and isinstance(value, Mapping):
                for inner, each in value.items():
                    self._one(f"{key}.{inner}", str(inner), each, role=str(key))
            elif key != "provisioning":
                self._one(str(key), str(key), value)
        tag = re.match(r"\d+\.\d+\.\d+", str(value_below(self.values, "image", "tag") or ""))
        if tag:
            self.filing.reading.kafka_version = tag[0]
        else:
            why = "is not set to a version of Kafka, and which one the chart takes by itself is not in the file"
            where = str(self.filing.reading.path)
            self.filing.reading.no_version.append(
                Unclear(f"{self.above}image.tag", where, f"{why}: give --kafka-version")
            )
        self._count()

    def _one(self, spelt: str, key: str, value: object, role: str = "") -> None:
        name = self.above + spelt
        if key in _SETTINGS:
            self._settings(name, key, value, role)
        elif key in _OLD and not role:
            text = (
                value.removeprefix("_") if isinstance(value, str) else value
            )  # "_10000" keeps Helm from writing 1e+04
            self.filing.setting("broker", _OLD[key], name, text)
        elif key in ("replicaCount", "controllerOnly"):
            self._number(name, value)
        elif key == "persistence":
            self._persistence(name, value)
        elif key == "extraEnvVars":
            self._variables(name, value)
        elif key in _READ_ELSEWHERE:
            if value:
                self.filing.unclear(name, "may set properties that this file does not show")
            else:
                self.filing.aside(name)
        elif key == "extraVolumeMounts" and (target := lies_over_properties(value)) is not None:
            self.filing.unclear(name, f"lies over {target}, which may set properties")
        elif key in _ASIDE:
            self.filing.aside(name)
        else:
            self.filing.unclear(
                name, "is no value of the chart that is known (Helm ignores such values without a word)"
            )

    def _settings(self, name: str, key: str, value: object, role: str) -> None:
        if isinstance(value, str):
            if any("{{" in line and not _SETTING.match(line) for line in value.splitlines()):
                self.filing.unclear(name, "is a template ({{ … }}): write the values that it will have")
                return
            value = properties_in(value, f"{self.filing.reading.path}, {name},")
        if value in ({}, None) or (role and role not in self._roles()):
            self.filing.aside(name)
        elif not isinstance(value, Mapping):
            self.filing.unclear(name, "holds no properties")
        elif why := self._doubt(key, role):
            self.filing.unclear(name, why)
        else:
            charts = "since 32" if key == _SINCE_CHART_32 else "up to 31" if key in _TO_CHART_31 else ""
            if charts:
                note = f"{name} is read by charts {charts} alone: others ignore it without a word"
                self.filing.reading.notes.append(note)
            for setting, each in value.items():
                self.filing.setting("broker", str(setting), f"{name}.{setting}", each)

    def _doubt(self, key: str, role: str) -> str | None:
        """Returns why it is uncertain whether these properties are those of the brokers."""
        replaced = any(value_below(self.values, *above, "config") for above in ((), ("controller",), ("broker",)))
        if key in _APPENDED and replaced:
            return "stands beside config, which replaces what the chart writes: write it into config"
        if role and len(self._roles()) > 1:
            return "is for some brokers only, and prozess judges one set of brokers"
        if key == _SINCE_CHART_32 and any(self.values.get(other) for other in _TO_CHART_31):
            return f"is read only by charts from 32 on, and {' and '.join(_TO_CHART_31)} only by older ones"
        return None

    def _roles(self) -> tuple[str, ...]:
        """Returns the kinds of nodes that hold partitions. A controller is a broker, too, unless it is only a
        controller; there are no other brokers unless broker.replicaCount says so (the chart's own values)."""
        if "replicaCount" in self.values:
            return ("",)
        controllers = (
            not value_below(self.values, "controller", "controllerOnly")
            and value_below(self.values, "kraft", "enabled") is not False
        )
        return (("controller",) if controllers else ()) + (
            ("broker",) if value_below(self.values, "broker", "replicaCount") else ()
        )

    def _number(self, name: str, value: object) -> None:
        if placeholder_in(str(value)):
            self.filing.unclear(name, "is a placeholder: write the value that it will have")
        elif isinstance(value, int):
            self.filing.aside(name)
        else:
            self.filing.unclear(name, "is no number")

    def _count(self) -> None:
        """The chart's own controller.replicaCount is 3."""
        roles = self._roles()
        counts = [
            value_below(self.values, role, "replicaCount") if role else self.values.get("replicaCount")
            for role in roles
        ]
        counts = [
            3 if role == "controller" and count is None else count for role, count in zip(roles, counts, strict=True)
        ]
        numbers = [int(count) for count in counts if isinstance(count, int) and not isinstance(count, bool)]
        total = sum(numbers)
        if total and len(numbers) == len(counts):
            self.filing.reading.brokers = total
        if value_below(self.values, "kraft", "enabled") is False:
            origin = f"{self.filing.reading.path}, kraft.enabled"
            self.filing.default("broker", "zookeeper.connect", "of the chart", origin)
        elif roles == ("controller",):
            origin = f"{self.filing.reading.path}, controller.controllerOnly"
            self.filing.default("broker", "process.roles", "controller,broker", origin)

    def _persistence(self, name: str, value: object) -> None:
        if value_below(value, "enabled") is False:
            self.filing.unclear(
                name, "is off: a broker whose pod is deleted loses its disk, which no promise takes into account"
            )
        else:
            self.filing.aside(name)

    def _variables(self, name: str, value: object) -> None:
        """Bitnami's image reads no variables where a configuration file is mounted, as this chart does since 23."""
        for index, each in enumerate(value if isinstance(value, list) else [value] if value else []):
            variable = str(value_below(each, "name"))
            if variable.startswith(BITNAMI) or not isinstance(each, Mapping):
                self.filing.unclear(
                    f"{name}[{index}].{variable}", "is read by charts up to 22 alone: write it into the configuration"
                )
            else:
                self.filing.aside(f"{name}[{index}].{variable}")
        if not value:
            self.filing.aside(name)

    def topics(self, wanted: str | None, needed: bool) -> None:
        """Takes the topics that `provisioning` creates: of its own accord nothing, and with one copy (the chart's own
        values)."""
        if "provisioning" not in self.values:
            return
        provisioning, name = self.values["provisioning"], f"{self.above}provisioning"
        listed = value_below(provisioning, "topics")
        if not listed:
            self.filing.aside(name)
            return
        for key in mapping_in(provisioning):
            if key != "topics":
                self.filing.aside(f"{name}.{key}")
        if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
            self.filing.unclear(f"{name}.topics", "is no list of topics")
        elif value_below(provisioning, "enabled") is not True:
            self.filing.unclear(f"{name}.topics", "are not created: provisioning.enabled is not true")
        else:
            default = value_below(provisioning, "replicationFactor")
            topics = [_topic(f"{name}.topics[{index}]", mapping_in(each), default) for index, each in enumerate(listed)]
            file_topic(self.filing, topics, wanted, needed)


def _topic(spelt: str, document: FileMapping, default: object) -> Topic:
    replicas = (f"{spelt}.replicationFactor", document.get("replicationFactor", 1 if default is None else default))
    config = (f"{spelt}.config", document["config"]) if document.get("config") is not None else None
    others = [f"{spelt}.{key}" for key in ("name", "partitions") if key in document]
    unknown = [f"{spelt}.{key}" for key in document if key not in ("name", "partitions", "replicationFactor", "config")]
    return Topic(str(document.get("name")), spelt, replicas, config, others, unknown)
