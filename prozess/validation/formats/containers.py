"""Reads the settings of brokers that run in containers: from their environment variables, and from Kubernetes manifests."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.known_properties import Setting
from prozess.validation.formats.container_setup import (
    MAKES_TOPICS,
    Mount,
    changes_settings,
    doubts_of_mounts,
    doubts_of_start,
    is_tool,
    makes_topics,
    words_of,
)
from prozess.validation.formats.filing import (
    Filing,
    documents_of,
    mapping_in,
    names_of,
    value_below,
    word_of,
)
from prozess.validation.formats.images import image_named
from prozess.validation.reading import FileMapping, FileValue, Reading, Scope

Image = Literal["bitnami", "kafka"]
"""The image whose rules the variables follow; `kafka`: Apache's and Confluent's, which are the same."""
BITNAMI = "KAFKA_CFG_"
_OF_IMAGES = re.compile(
    r"KAFKA_(OPTS|HEAP_OPTS?|JMX_(OPTS|PORT|HOSTNAME)|GC_LOG_OPTS|JVM_PERFORMANCE_OPTS|DEBUG|LOG4J_\w+|HOME|USER|VERSION|"
    r"TOOLS_LOG4J_LOGLEVEL)"
)
"""Apache's KafkaDockerWrapper.scala (ExcludeServerPropsEnv), Confluent's kafka.properties.template, kafka-run-class.sh."""
_OF_BITNAMI = re.compile(
    r"KAFKA_(KRAFT_CLUSTER_ID|ENABLE_KRAFT|CLUSTER_ID|INITIAL_CONTROLLERS|SKIP_KRAFT_STORAGE_INIT|VOLUME_DIR|BASE_DIR|"
    r"CONF_DIR|CERTS_DIR|MOUNTED_CONF_DIR|CERTIFICATE_PASSWORD|TLS_\w+|ZOOKEEPER_(MAX_RETRIES|SLEEP_TIME)|"
    r"(CLIENT|INTER_BROKER|CONTROLLER|ZOOKEEPER)_(USERS?|PASSWORDS?|LISTENER_NAME|PROTOCOL|BOOTSTRAP_TIMEOUT|TLS_\w+|"
    r"CLIENT_ID|CLIENT_SECRET))"
)
"""The README of bitnami/containers, kafka: what the image learns that is no property of the broker."""
_SASL = re.compile(r"sasl\.(ssl|plaintext)")


def image_of(variables: Mapping[str, object], image: str = "") -> Image:
    """Returns whose rules the variables follow: by the image's name where its maker is known, else by variables that only
    Bitnami's image takes."""
    if (maker := image_named(image).maker) != "another":
        return "bitnami" if maker == "bitnami" else "kafka"
    return "bitnami" if "bitnami" in image or any(name.startswith(BITNAMI) for name in variables) else "kafka"


def property_of(variable: str, image: Image) -> str | None:
    """Returns the property of a variable: KAFKA_MIN_INSYNC_REPLICAS → min.insync.replicas; None:
    KAFKA_MIN_INSYNC_REPLICAS → min.insync.replicas; None: the image makes no property of this variable.

    Apache's and Confluent's: `___` is `-`, `__` is `_`, `_` is `.` (KafkaDockerWrapper.scala; env_to_props of
    confluent-docker-utils). Bitnami's: of KAFKA_CFG_ alone, and every `_` is `.` (libkafka.sh,
    kafka_configure_from_environment_variables, with its exceptions)."""
    if image == "bitnami":
        if not variable.startswith(BITNAMI):
            return None
        name = variable.removeprefix(BITNAMI).replace("_", ".").lower()
        return "zookeeper.clientCnxnSocket" if name == "zookeeper.clientcnxnsocket" else _SASL.sub(r"sasl_\1", name)
    if not variable.startswith("KAFKA_") or variable.startswith(BITNAMI) or _OF_IMAGES.fullmatch(variable):
        return None
    name = variable.removeprefix("KAFKA_").lower()
    return name.replace("___", "\0").replace("__", "\1").replace("_", ".").replace("\1", "_").replace("\0", "-")


def not_read(variable: str, image: Image) -> str | None:
    """Returns why a variable that looks like a property is none; None: it is none, and nobody would take it for one."""
    if image != "bitnami" and variable.startswith(BITNAMI):
        return (
            f"is not read by Apache's or Confluent's image, where it becomes a property that Kafka does not know: write "
            f"KAFKA_{variable.removeprefix(BITNAMI)}"
        )
    if image != "bitnami" or variable.startswith(BITNAMI) or not variable.startswith("KAFKA_"):
        return None
    if _OF_IMAGES.fullmatch(variable) or _OF_BITNAMI.fullmatch(variable):
        return None
    return (
        f"is not read by Bitnami's image, which takes properties from {BITNAMI}… alone: "
        f"write {BITNAMI}{variable.removeprefix('KAFKA_')}"
    )


def read_environment(filing: Filing, variables: Mapping[str, object], image: Image, above: str = "") -> None:
    """Files each variable of the environment. `above`: where the variables stand in the file."""
    for variable, value in variables.items():
        spelt = f"{above}.{variable}" if above else variable
        name = property_of(variable, image)
        if name is not None:
            filing.setting("broker", name, spelt, value)
        elif why := not_read(variable, image):
            filing.unclear(spelt, why)
        else:
            filing.aside(spelt)


def version_of_images(reading: Reading, images: Mapping[str, str]) -> None:
    """Takes Kafka's version from the images of brokers: the oldest counts, and a missing one is unclear. `images`:
    where an image stands in the file → its name."""
    versions: dict[str, str] = {}
    for spelt, name in images.items():
        image = image_named(name)
        what = name or "the image"
        if image.version is None:
            why = f"{image.why} ({what}): give --kafka-version" if name else f"{image.why}: give --kafka-version"
            reading.no_version.append(Unclear(spelt, str(reading.path), why))
        else:
            versions.setdefault(image.version, spelt)
            reading.notes += [f"{what} {image.why}"] if image.why else []
    if versions:
        reading.kafka_version = min(versions, key=version_numbers)
    if len(versions) > 1:
        listed = ", ".join(f"{version} ({spelt})" for version, spelt in versions.items())
        reading.notes.append(f"brokers have different versions: {listed}. The oldest decides")
    reading.notes[:] = list(dict.fromkeys(reading.notes))


_INTERNAL = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)


def left_at_one_copy(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields the variables that Bitnami's image should have been given and was not, each with the reason.

    The image starts from Kafka's own config/server.properties, an example in which the internal topics have one copy
    (Kafka's defaults are 3 copies, and 2 for transaction.state.log.min.isr).
    """
    for name in _INTERNAL:
        if name not in names:
            variable = BITNAMI + name.upper().replace(".", "_")
            yield (
                variable,
                f"is not set, and config/server.properties, which Bitnami's image starts from, has {name}=1: set it",
            )


def internal_topics_of_bitnami(filing: Filing, above: str) -> None:
    """Notes what the image was not given for internal topics as not understood."""
    given = [name for name in _INTERNAL if filing.is_given("broker", name)]
    for variable, why in left_at_one_copy(given):
        filing.unclear(f"{above}.{variable}" if above else variable, why)


class EnvironmentFile:
    """A file of variables (.env, `env_file` of Compose) for a container of Kafka's."""

    name = "variables of a Kafka container"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether there are variables of which an image makes properties."""
        return (
            isinstance(document, Mapping)
            and bool(document)
            and all(isinstance(value, Setting) for value in document.values())
            and all(re.fullmatch(r"[A-Za-z_]\w*", str(name)) for name in document)
            and any(property_of(name, image_of(document)) in names_of("broker", "java") for name in document)
        )

    def read(self, document: FileValue, path: Path, wanted: object) -> Reading:
        """Reads the broker properties."""
        variables = mapping_in(document)
        image = image_of(variables)
        whose = "Bitnami's" if image == "bitnami" else "Apache's or Confluent's"
        filing = Filing(path, f"an environment of {whose} image of Kafka", library="java")
        read_environment(filing, variables, image)
        if image == "bitnami":
            internal_topics_of_bitnami(filing, "")
        return filing.reading


_WORKLOADS = ("StatefulSet", "Deployment", "DaemonSet", "ReplicaSet", "Pod")
_LASTING = ("persistentVolumeClaim", "csi", "nfs")
"""Volumes that follow a pod to another node. A hostPath does so for a DaemonSet alone, which has a pod for each node."""
_OF_ONE_NODE = re.compile(r"node\.id|broker\.id|broker\.rack|advertised\.|listeners|log\.dirs?$|controller\.quorum")


@dataclass(slots=True)
class _Container:
    """A container that runs a broker."""

    spelt: str
    image: str
    replicas: int
    variables: dict[str, object] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    """Its command and arguments; none: the image's own."""
    mounts: list[Mount] = field(default_factory=list)
    shares: str = ""
    """The claim that all of its pods mount; empty: none."""
    unclear: dict[str, str] = field(default_factory=dict)
    """Names that were not understood → why."""

    def properties(self) -> dict[str, str | None]:
        """Those in which nodes of one cluster should not differ."""
        image = image_of(self.variables, self.image)
        found = {property_of(name, image): word_of(value) for name, value in self.variables.items()}
        return {name: value for name, value in found.items() if name is not None and not _OF_ONE_NODE.match(name)}

    @property
    def only_controls(self) -> bool:
        """A controller holds no partitions of users."""
        return self.properties().get("process.roles") == "controller"


class Kubernetes:
    """StatefulSets, Deployments and Pods, with the ConfigMaps of the same file that they take variables from."""

    name = "Kubernetes"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether a container has a variable that is a broker property."""
        resources = list(_resources(document))
        return any(True for each in resources for _ in _brokers(each, _maps(resources)))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the broker settings and the number of brokers."""
        filing = Filing(path, "manifests of Kubernetes", library="java")
        resources = list(_resources(document))
        maps = _maps(resources)
        found: list[_Container] = []
        for index, each in enumerate(resources):
            here = list(_brokers(each, maps))
            found += here
            _note_commands(filing, each)
            if not here:
                _other(filing, _spelt(each, index), each)
        nodes = [each for each in found if not each.only_controls] or found
        for container in found:
            if container in nodes and container.properties() != nodes[0].properties():
                why = f"is not set as {nodes[0].spelt} is, and prozess judges one set of brokers: make them alike"
                filing.unclear(container.spelt, why)
            elif container is not nodes[0]:
                filing.aside(container.spelt)
        _read(filing, nodes[0])
        filing.reading.brokers = sum(each.replicas for each in nodes)
        version_of_images(filing.reading, {f"{each.spelt}.image": each.image for each in nodes})
        return filing.reading


def _read(filing: Filing, container: _Container) -> None:
    image = image_of(container.variables, container.image)
    read_environment(filing, container.variables, image, container.spelt)
    settings = {
        name: Setting(word_of(value) or "", container.spelt)
        for variable, value in container.variables.items()
        if (name := property_of(variable, image)) is not None
    }
    container.unclear |= dict(doubts_of_start(container.words))
    container.unclear |= dict(doubts_of_mounts(container.mounts, image_named(container.image), settings))
    if container.shares:
        container.unclear["volumes"] = (
            f"keep the log of each pod on the claim {container.shares!r}, and all copies end with one volume: "
            f"let volumeClaimTemplates make one for each"
        )
    for name, why in container.unclear.items():
        filing.unclear(f"{container.spelt}.{name}", why)
    if image == "bitnami":
        internal_topics_of_bitnami(filing, container.spelt)


def _note_commands(filing: Filing, document: FileValue) -> None:
    """Notes containers that change settings of a running cluster, or make topics."""
    for pod in (_pod(document), value_below(document, "spec", "jobTemplate", "spec", "template", "spec")):
        for each in (*_mappings(value_below(pod, "initContainers")), *_mappings(value_below(pod, "containers"))):
            words = words_of(each.get("command"), each.get("args"))
            spelt = f"{_spelt(document)}.{each.get('name')}.command"
            if why := changes_settings(words):
                filing.unclear(spelt, why)
            elif makes_topics(words):
                filing.reading.makes_topics.append(Unclear(spelt, str(filing.reading.path), MAKES_TOPICS))


def _pod(document: FileValue) -> FileValue:
    pod = value_below(document, "kind") == "Pod"
    return value_below(document, "spec") if pod else value_below(document, "spec", "template", "spec")


def _other(filing: Filing, spelt: str, document: FileValue) -> None:
    if isinstance(document, Mapping) and document.get("kind") and document.get("apiVersion"):
        filing.aside(spelt)
    else:
        filing.unclear(spelt, "is no resource of Kubernetes")


def _resources(document: FileValue) -> Iterator[FileValue]:
    for each in documents_of(document):
        items = value_below(each, "items")
        if value_below(each, "kind") == "List" and isinstance(items, list):
            yield from items
        else:
            yield each


def _spelt(document: FileValue, index: int = 0) -> str:
    kind = value_below(document, "kind")
    return f"{kind}/{value_below(document, 'metadata', 'name')}" if kind else f"document {index + 1}"


def _maps(resources: Iterable[FileValue]) -> dict[str, FileMapping]:
    """Name → data of the file's ConfigMaps."""
    return {
        str(value_below(each, "metadata", "name")): data
        for each in resources
        if value_below(each, "kind") == "ConfigMap" and isinstance(data := value_below(each, "data"), Mapping)
    }


def _brokers(document: FileValue, maps: Mapping[str, FileMapping]) -> Iterator[_Container]:
    kind = value_below(document, "kind")
    if kind not in _WORKLOADS:
        return
    pod = _pod(document)
    containers = value_below(pod, "containers")
    replicas = value_below(document, "spec", "replicas") if kind in ("StatefulSet", "Deployment", "ReplicaSet") else 1
    for each in containers if isinstance(containers, list) else []:
        if not isinstance(each, Mapping):
            continue
        container = _Container(
            f"{_spelt(document)}.{each.get('name')}",
            str(each.get("image", "")),
            replicas if isinstance(replicas, int) and replicas > 0 else 1,
        )
        _variables(container, each, maps)
        _of_pod(container, each, document, pod)
        image = image_of(container.variables, container.image)
        names = {property_of(name, image) for name in (*container.variables, *container.unclear)}
        if names & names_of("broker", "java") and not is_tool(container.words):
            yield container


def _of_pod(container: _Container, each: FileMapping, document: FileValue, pod: FileValue) -> None:
    """Takes what the container runs, and what lies over its directories."""
    container.words = words_of(each.get("command"), each.get("args"))
    if value_below(each, "lifecycle", "postStart") is not None:
        container.unclear["lifecycle"] = "runs something after each start, which may change what the broker is set to"
    claimed = {
        str(value_below(claim, "metadata", "name"))
        for claim in _mappings(value_below(document, "spec", "volumeClaimTemplates"))
    }
    volumes = {str(volume.get("name")): volume for volume in _mappings(value_below(pod, "volumes"))}
    for mount in _mappings(each.get("volumeMounts")):
        name, target = str(mount.get("name")), str(mount.get("mountPath", ""))
        volume = volumes.get(name, {})
        if "hostPath" in volume:
            path = str(value_below(volume, "hostPath", "path"))
            lasts = value_below(document, "kind") == "DaemonSet"
            container.mounts.append(Mount.of_host(target, path, lasts=lasts))
            continue
        lasts = name in claimed or any(key in volume for key in _LASTING)
        read_only = mount.get("readOnly") is True
        container.mounts.append(Mount(target, name, lasts, fresh=lasts, read_only=read_only))
        claim = value_below(volume, "persistentVolumeClaim", "claimName")
        if claim is not None and name not in claimed and container.replicas > 1:
            container.shares = str(claim)


def _variables(container: _Container, document: FileMapping, maps: Mapping[str, FileMapping]) -> None:
    """Collects a container's variables as Kubernetes does: `envFrom` first, `env` over it."""
    for source in _mappings(document.get("envFrom")):
        name = value_below(source, "configMapRef", "name")
        if isinstance(name, str) and name in maps and not source.get("prefix"):
            container.variables |= {str(key): value for key, value in maps[name].items()}
        else:
            what = "a Secret" if "secretRef" in source else f"ConfigMap {name!r}, which is not in this file"
            container.unclear[f"envFrom[{len(container.unclear)}]"] = f"takes variables from {what}"
    for variable in _mappings(document.get("env")):
        name = str(variable.get("name"))
        container.variables.pop(name, None)
        entry = variable.get("valueFrom")
        key = value_below(entry, "configMapKeyRef")
        data = maps.get(str(value_below(key, "name")), {})
        if entry is None:
            container.variables[name] = variable.get("value", "")
        elif value_below(key, "key") in data:
            container.variables[name] = data[value_below(key, "key")]
        elif property_of(name, image_of({name: ""}, container.image)) or not_read(name, "bitnami"):
            container.unclear[name] = "has its value from elsewhere (valueFrom), which is not in this file"
        else:
            container.variables[name] = ""


def _mappings(value: object) -> list[FileMapping]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
