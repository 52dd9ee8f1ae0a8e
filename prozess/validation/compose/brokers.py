"""Finds the brokers of a Compose file: which services they are, what each is set to, and whether its disk lasts.

For brokers that differ the weakest decides (`formats.weakest`). What sets properties and is not read is not understood."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.configuration import Variant
from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation import reading as documents
from prozess.validation.compose.resolution import refuse_no_service, resolve
from prozess.validation.formats.containers import (
    image_of,
    left_at_one_copy,
    not_read,
    property_of,
    version_of_images,
)
from prozess.validation.formats.differing_brokers import OF_CONTROLLERS, weakest
from prozess.validation.formats.filing import names_of
from prozess.validation.formats.images import KafkaImage, image_named
from prozess.validation.reading import Reading, placeholder_in

_LOG_DIRECTORIES = {
    "apache": "/tmp/kafka-logs",
    "confluent": "/var/lib/kafka/data",
    "bitnami": "/bitnami/kafka/data",
    "another": "/tmp/kafka-logs",
    "strimzi": "/tmp/kafka-logs",
}
"""Where each image keeps its log if nothing says it: Kafka's default; `configure` of cp-kafka; libkafka.sh of Bitnami."""
_GONE = re.compile(r"/(dev/shm|run|tmp)(/|$)")
"""Directories of a host that a restart of it may empty."""
_MOUNTED_CONFIG = "/mnt/shared/config"
"""For Apache's image: its server.properties counts, with the variables added at its end. [KafkaDockerWrapper.scala]"""
_CONFIG = re.compile(
    r"/(mnt/shared/config|opt/(bitnami/)?kafka/config|bitnami/kafka/config|etc/kafka(?!/secrets)|etc/confluent/docker)(/.*)?|"
    r".*/(server|broker|controller|kafka)\.properties"
)
_STARTS = re.compile(r"kafka-server-start|/run(\.sh)?$|start-kafka|entrypoint|configure")
_TOOLS = re.compile(r"kafka-(?!server-start)[a-z]+(-[a-z]+)*(\.sh)?\b|\bcub\b|\bkcat\b|\bkaf\b")
_IGNORED = "ignored"
"""What Confluent's examples give a container that only runs tools."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that lies over a directory of the container."""

    target: str
    source: str
    """A path of the host, or a volume's name; empty: neither."""
    lasts: bool
    """It outlives the container."""


@dataclass(frozen=True)
class Service:
    """A service of the file that may be a broker."""

    name: str
    document: Mapping[str, Any]
    path: Path
    volumes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def image(self) -> KafkaImage:
        """Returns what its image's name says. One that is built here has a name only to be stored by."""
        built = self.document.get("build") is not None
        return image_named("" if built else str(self.document.get("image") or ""))

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """Returns the properties of its variables, as its image makes them. A variable that looks like a property and is none
        to the image keeps its name, so that nobody takes it for understood."""
        environment: Mapping[str, Setting] = self.document.get("environment") or {}
        image = image_of(environment, str(self.document.get("image") or ""))
        return {
            property_of(key, image) or key: Setting(each.value, self._where(key, each.origin))
            for key, each in environment.items()
            if property_of(key, image) is not None or not_read(key, image)
        }

    def _where(self, variable: str, origin: str) -> str:
        """ "compose.yml:12, service k1, KAFKA_NODE_ID" """
        return f"{origin.partition(', ')[0]}, service {self.name}, {variable}"

    @cached_property
    def command(self) -> str:
        """Returns its entrypoint and command as one line; empty: the image's own."""
        parts = [self.document.get(key) for key in ("entrypoint", "command")]
        return " ".join(" ".join(map(str, each)) if isinstance(each, list) else str(each) for each in parts if each)

    @property
    def is_broker(self) -> bool:
        """Returns whether it runs a server of Kafka: a broker, a controller or both."""
        known = set(self.settings) & names_of("broker", "java")
        if self.image.runs_broker is False or not known:
            return False
        ignored = any(setting.value == _IGNORED for setting in self.settings.values())
        return not (self.command and _TOOLS.search(self.command) and not _STARTS.search(self.command)) and not ignored

    @property
    def roles(self) -> set[str]:
        """Returns its roles; without process.roles it is a broker."""
        setting = self.settings.get("process.roles")
        return {"broker"} if setting is None else {role.strip() for role in setting.value.split(",")}

    @property
    def cluster(self) -> frozenset[str]:
        """Returns by what it finds its cluster: voters or ZooKeeper's servers; empty: it does not say."""
        names = ("controller.quorum.voters", "controller.quorum.bootstrap.servers", "zookeeper.connect")
        listed = next((self.settings[name].value for name in names if name in self.settings), "")
        return frozenset(part.strip() for part in listed.split(",") if part.strip())

    @property
    def replicas(self) -> int:
        """Returns how many containers there are of it."""
        deploy = self.document.get("deploy")
        replicas = self.document.get("scale", deploy.get("replicas") if isinstance(deploy, Mapping) else None)
        return replicas if isinstance(replicas, int) and replicas > 1 else 1

    @property
    def mounts(self) -> Iterator[Mount]:
        """Yields what lies over directories of its container."""
        for each in _list(self.document.get("volumes")):
            if isinstance(each, Mapping):
                kind, source = str(each.get("type", "volume")), str(each.get("source") or "")
                yield self._mount(str(each.get("target", "")), source, kind)
            else:
                parts = str(each).split(":")
                yield self._mount(parts[1] if len(parts) > 1 else parts[0], parts[0] if len(parts) > 1 else "", "")
        for each in _list(self.document.get("tmpfs")):
            yield Mount(str(each).partition(":")[0], "", lasts=False)
        for each in _list(self.document.get("configs")):
            source = str(each.get("source", "") if isinstance(each, Mapping) else each)
            target = str(each.get("target", f"/{source}") if isinstance(each, Mapping) else f"/{source}")
            yield Mount(target, f"config {source}", lasts=True)

    def _mount(self, target: str, source: str, kind: str) -> Mount:
        host = source.startswith(("/", ".", "~"))
        options = (self.volumes.get(source) or {}) if not host else {}
        of_memory = isinstance(options, Mapping) and "tmpfs" in str(options.get("driver_opts", ""))
        lasts = bool(source) and kind != "tmpfs" and not of_memory and not (host and _GONE.match(source))
        return Mount(target, source, lasts)

    # What is not understood of it.

    def doubts(self) -> Iterator[tuple[str, str]]:
        """Yields what may set properties and is not read, and what ends with the container: a name and why."""
        yield from self._of_disk()
        if self.command and not set(_overrides(self.command)) and _sets_properties(self.command):
            yield "command", "sets properties of the broker, or variables, by itself: write them into the environment"
        elif self.command and not _STARTS.search(self.command) and not _overrides(self.command):
            yield (
                "command",
                f"runs {self.command[:60]!r}, and whether this starts a broker with these settings is not known",
            )
        for mount in self.mounts:
            if _CONFIG.fullmatch(mount.target) and not self._reads(mount):
                why = f"lies over {mount.target}, which may set properties: give that file as --broker, or write them here"
                yield f"volumes {mount.source or mount.target}", why
        for key in ("volumes_from", "develop", "provider"):
            if self.document.get(key):
                yield key, "may change what the broker reads, and is not read"
        if self.document.get("profiles"):
            yield "profiles", "start this broker only where one of them is active, and no file says whether it is"
        if self.replicas > 1 and {"node.id", "broker.id"} & set(self.settings):
            yield "scale", f"asks for {self.replicas} containers with one node id"

    def _of_disk(self) -> Iterator[tuple[str, str]]:
        name = next((name for name in ("log.dirs", "log.dir") if name in self.settings), None)
        directories = _LOG_DIRECTORIES[self.image.maker] if name is None else self.settings[name].value
        if placeholder_in(directories):
            yield "log.dirs", f"is {directories}: whether it outlives the container is not known"
            return
        for directory in filter(None, (each.strip() for each in directories.split(","))):
            over = [mount for mount in self.mounts if PurePosixPath(directory).is_relative_to(mount.target)]
            mount = max(over, key=lambda each: len(each.target), default=None)
            if mount is None or not mount.lasts:
                what = "no volume lies over it" if mount is None else "what lies over it ends with the container"
                yield (
                    "volumes",
                    f"do not keep the log: {directory} is where the broker writes, and {what}. Then the end of a container "
                    f"is a wiped disk, which no promise takes into account: put a named volume over {directory}",
                )

    # Further properties: a file that Apache's image takes, and a command line.

    def _reads(self, mount: Mount) -> bool:
        return self._mounted(mount) is not None or PurePosixPath(mount.target) in (PurePosixPath("/etc/kafka/secrets"),)

    def _mounted(self, mount: Mount) -> Path | None:
        """The server.properties that Apache's image takes, where it lies in the Compose file's own directory."""
        if self.image.maker != "apache" or not mount.source or mount.source.startswith("config "):
            return None
        source = Path(mount.source) if Path(mount.source).is_absolute() else self.path.parent / mount.source
        if mount.target.rstrip("/") == _MOUNTED_CONFIG:
            source = source / "server.properties"
        elif mount.target != f"{_MOUNTED_CONFIG}/server.properties":
            return None
        try:
            real = source.resolve()
            plain = real.is_file() and real.is_relative_to(self.path.parent.resolve())
        except (OSError, RuntimeError, ValueError):
            return None
        return self.path.parent / real.relative_to(self.path.parent.resolve()) if plain else None

    def all_settings(self) -> dict[str, Setting]:
        """Returns its properties from a mounted file, then its variables, then its command line, each over the one before."""
        found: dict[str, Setting] = {}
        for mount in self.mounts:
            if (file := self._mounted(mount)) is not None:
                loaded = documents.load(file)
                found |= dict(documents.entries(loaded, file))
        found |= self.settings
        where = f"{self.path}, service {self.name}, command"
        return found | {name: Setting(value, where) for name, value in _overrides(self.command).items()}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _overrides(command: str) -> dict[str, str]:
    """Returns what `--override name=value` sets. [kafka.Kafka.getPropsFromArgs]"""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    words = [part for word in words for part in (shlex.split(word) if " --override " in f" {word} " else [word])]
    found = {}
    for index, word in enumerate(words):
        override = word.removeprefix("--override=") if word.startswith("--override=") else None
        if word == "--override" and index + 1 < len(words):
            override = words[index + 1]
        if override is not None:
            name, _, value = override.partition("=")
            found[name] = value
    return found


def _sets_properties(command: str) -> bool:
    return bool(re.search(r"KAFKA_\w+=|--override|\.properties|\bexport\b|\bsed\b|>>", command))


# The file as a whole.


def read_compose(path: Path, service: str | None = None) -> Reading:
    """Reads the brokers of a Compose file. `service`: a broker of the cluster that is meant. BadInput for a file without
    brokers, and for a service that is none."""
    found = resolve(path)
    servers = [
        each
        for name, document in found.services.items()
        if (each := Service(name, document, path, found.volumes)).is_broker
    ]
    if not servers:
        if found.unclear:
            reasons = "; ".join(each.sentence() for each in found.unclear[:3])
            raise BadInput(f"{refuse_no_service(path)} Not understood: {reasons}.")
        raise refuse_no_service(path)
    names = [each.name for each in servers]
    if service is not None and service not in names:
        raise BadInput(f"{path} has no broker {service!r}. It has: {', '.join(names)}.")
    reading = Reading(path, "a Compose file", brokers=0, notes=list(found.notes))
    reading.unclear += found.unclear
    meant = _one_cluster(servers, service, reading)
    _fill(reading, meant, found.origins)
    brokers = [each.name for each in meant]
    if beside := [name for name in found.services if name not in brokers]:
        reading.notes.append(f"{path}: Kafka runs in {', '.join(brokers)}; passed over: {', '.join(beside)}")
    return reading


def _one_cluster(servers: Sequence[Service], service: str | None, reading: Reading) -> list[Service]:
    """The servers of one cluster: those that name the same controllers."""
    chosen = next((each for each in servers if each.name == service), servers[0])
    same = [each for each in servers if each.cluster == chosen.cluster]
    if service is None and len(same) < len(servers):
        others = ", ".join(each.name for each in servers if each not in same)
        why = f"have other controllers than {chosen.name}: say with --service which cluster is meant, by one of its brokers"
        reading.doubt(f"services {others}", str(reading.path), why)
    return same


def _fill(reading: Reading, servers: Sequence[Service], origins: Mapping[str, str]) -> None:
    brokers = [each for each in servers if "broker" in each.roles] or list(servers)
    for each in servers:
        for name, why in each.doubts():
            reading.doubt(f"{each.name}.{name}", origins.get(each.name, str(reading.path)), why)
    version_of_images(reading, {f"{each.name}.image": each.image.name for each in brokers})
    controllers = {each.name: each.all_settings() for each in servers if each not in brokers}
    together = weakest(
        {each.name: each.all_settings() for each in brokers},
        reading.kafka_version or Variant().kafka_version,
        {
            name: {key: settings[key] for key in OF_CONTROLLERS if key in settings}
            for name, settings in controllers.items()
        },
    )
    reading.scopes["broker"] = together.settings
    reading.notes += together.notes
    reading.unclear += [Unclear(name, origin, why) for name, origin, why in together.doubts]
    reading.brokers = sum(each.replicas for each in brokers)
    if any(image_of(each.document.get("environment") or {}, each.image.name) == "bitnami" for each in brokers):
        for variable, why in left_at_one_copy(together.settings):
            reading.doubt(variable, str(reading.path), why)
