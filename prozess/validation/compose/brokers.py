"""Finds the brokers of a Compose file: which services they are, what each is set to, and whether its disk lasts.

For brokers that differ the weakest decides (`formats.weakest`). What sets properties and is not read is not understood."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.configuration import Variant
from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation import reading as documents
from prozess.validation.compose.resolution import Resolved, refuse_no_service, resolve
from prozess.validation.formats.container_setup import (
    MAKES_TOPICS,
    Mount,
    changes_settings,
    doubts_of_mounts,
    doubts_of_start,
    is_tool,
    log_directories,
    makes_topics,
    mount_over,
    overrides,
    starts_broker,
    words_of,
)
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
from prozess.validation.reading import Reading

_MOUNTED_CONFIG = "/mnt/shared/config"
"""For Apache's image: its server.properties counts, with the variables added at its end. [KafkaDockerWrapper.scala]"""
_IGNORED = "ignored"
"""What Confluent's examples give a container that only runs tools."""


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
    def words(self) -> list[str]:
        """Returns its entrypoint and command as words; none: the image's own."""
        return words_of(self.document.get("entrypoint"), self.document.get("command"))

    @property
    def is_broker(self) -> bool:
        """Returns whether it runs a server of Kafka: a broker, a controller or both."""
        known = set(self.settings) & names_of("broker", "java")
        if self.image.runs_broker is False or is_tool(self.words):
            return False
        if any(setting.value == _IGNORED for setting in self.settings.values()):
            return False
        return bool(known) or (self.image.runs_broker is True and starts_broker(self.words))

    @property
    def roles(self) -> set[str]:
        """Returns its roles; without process.roles it is a broker."""
        setting = self.all_settings.get("process.roles")
        return {"broker"} if setting is None else {role.strip() for role in setting.value.split(",")}

    @property
    def cluster(self) -> frozenset[str]:
        """Returns by what it finds its cluster: voters or ZooKeeper's servers; empty: it does not say."""
        names = ("controller.quorum.voters", "controller.quorum.bootstrap.servers", "zookeeper.connect")
        listed = next((self.all_settings[name].value for name in names if name in self.all_settings), "")
        return frozenset(part.strip() for part in listed.split(",") if part.strip())

    @property
    def replicas(self) -> int:
        """Returns how many containers there are of it."""
        deploy = self.document.get("deploy")
        replicas = self.document.get("scale", deploy.get("replicas") if isinstance(deploy, Mapping) else None)
        return replicas if isinstance(replicas, int) and replicas > 1 else 1

    @cached_property
    def mounts(self) -> list[Mount]:
        """Returns what lies over directories of its container."""
        found = []
        for each in _list(self.document.get("volumes")):
            if isinstance(each, Mapping):
                kind, source = str(each.get("type", "volume")), str(each.get("source") or "")
                mount = self._mount(str(each.get("target", "")), source, kind)
                found.append(replace(mount, read_only=each.get("read_only") is True))
            else:
                source, colon, rest = str(each).partition(":")
                target, _, options = rest.partition(":") if colon else (source, "", "")
                mount = self._mount(target, source if colon else "", "")
                found.append(replace(mount, read_only="ro" in options.split(",")))
        found += [Mount(str(each).partition(":")[0], "", lasts=False) for each in _list(self.document.get("tmpfs"))]
        for key, above in (("configs", ""), ("secrets", "/run/secrets")):
            for each in _list(self.document.get(key)):
                source = str(each.get("source", "") if isinstance(each, Mapping) else each)
                target = str(each.get("target") or source) if isinstance(each, Mapping) else source
                found.append(Mount(str(PurePosixPath(above or "/", target)), f"{key[:-1]} {source}", lasts=True))
        return found

    def _mount(self, target: str, source: str, kind: str) -> Mount:
        if source.startswith(("/", ".", "~")):
            kept = ("config", "kafka/config")
            fresh = not any((self.path.parent / Path(source).expanduser() / each).exists() for each in kept)
            return replace(Mount.of_host(target, source, lasts=kind != "tmpfs"), fresh=fresh)
        options = self.volumes.get(source) or {}
        of_memory = isinstance(options, Mapping) and "tmpfs" in str(options.get("driver_opts", ""))
        external = isinstance(options, Mapping) and bool(options.get("external"))
        return Mount(target, source, bool(source) and kind != "tmpfs" and not of_memory, fresh=not external)

    # What is not understood of it.

    def doubts(self) -> Iterator[tuple[str, str]]:
        """Yields what may set properties and is not read, and what ends with the container: a name and why."""
        yield from doubts_of_start(self.words)
        read = [mount for mount in self.mounts if self._mounted(mount) is None]
        yield from doubts_of_mounts(read, self.image, self.all_settings)
        for key in ("volumes_from", "develop", "provider", "post_start"):
            if self.document.get(key):
                yield key, "may change what the broker reads, and is not read"
        if self.document.get("profiles"):
            yield "profiles", "start this broker only where one of them is active, and no file says whether it is"
        if self.numbered_alike:
            yield "scale", f"asks for {self.replicas} containers with one node id"

    def doubt_of_zookeeper(self) -> str | None:
        """Returns why the log of a ZooKeeper server may end with its container; None: it lasts, or this is none."""
        sign = re.fullmatch(r"(?:.*/)?(cp-zookeeper|zookeeper)", self.image.name.partition("@")[0].partition(":")[0])
        if sign is None:
            return None
        bitnami = "bitnami" in self.image.name
        cp = sign[1] == "cp-zookeeper"
        directories = ("/var/lib/zookeeper/data", "/var/lib/zookeeper/log") if cp else ("/data", "/datalog")
        for directory in ("/bitnami/zookeeper",) if bitnami else directories:
            over = mount_over(self.mounts, directory)
            if over is None or not over.lasts:
                why = "is where ZooKeeper keeps what topics there are, and no volume that lasts lies over it"
                return f"do not keep the log: {directory} {why}"
        return None

    @property
    def numbered_alike(self) -> bool:
        """Returns whether several containers of it have one node id."""
        return self.replicas > 1 and bool({"node.id", "broker.id"} & set(self.settings))

    @property
    def volumes_of_logs(self) -> set[str]:
        """Returns the volumes and paths of the host that its logs are on."""
        over = (mount_over(self.mounts, each) for each in log_directories(self.image, self.all_settings))
        return {mount.source for mount in over if mount is not None and mount.source}

    # Further properties: a file that Apache's image takes, and a command line.

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

    @cached_property
    def all_settings(self) -> dict[str, Setting]:
        """Returns its properties from a mounted file, then its variables, then its command line, each over the one before."""
        found: dict[str, Setting] = {}
        for mount in self.mounts:
            if (file := self._mounted(mount)) is not None:
                loaded = documents.load(file)
                found |= dict(documents.entries(loaded, file))
        found |= self.settings
        where = f"{self.path}, service {self.name}, command"
        return found | {name: Setting(value, where) for name, value in overrides(self.words).items()}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


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
    _note_services_beside(found, servers, reading)
    meant = _one_cluster(servers, service, reading)
    _fill(reading, meant, found.origins)
    brokers = [each.name for each in meant]
    if beside := [name for name in found.services if name not in brokers]:
        reading.notes.append(f"{path}: Kafka runs in {', '.join(brokers)}; passed over: {', '.join(beside)}")
    return reading


def _note_services_beside(found: Resolved, servers: Sequence[Service], reading: Reading) -> None:
    """Notes services that keep, or change, what brokers and topics are set to."""
    with_zookeeper = any("zookeeper.connect" in each.settings for each in servers)
    for name, document in found.services.items():
        each = Service(name, document, found.path, found.volumes)
        where = found.origins.get(name, str(found.path))
        if with_zookeeper and (why := each.doubt_of_zookeeper()):
            reading.doubt(f"{name}.volumes", where, why)
        if why := changes_settings(each.words):
            reading.doubt(f"{name}.command", where, why)
        elif makes_topics(each.words):
            reading.makes_topics.append(Unclear(f"{name}.command", where, MAKES_TOPICS))


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
    _doubt_what_is_shared(reading, servers, origins)
    version_of_images(reading, {f"{each.name}.image": each.image.name for each in brokers})
    controllers = {each.name: each.all_settings for each in servers if each not in brokers}
    together = weakest(
        {each.name: each.all_settings for each in brokers},
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


def _doubt_what_is_shared(reading: Reading, servers: Sequence[Service], origins: Mapping[str, str]) -> None:
    """Notes logs of several servers on one volume: all copies end with it, and Kafka locks a directory for one of them."""
    for number, each in enumerate(servers):
        others = [other.name for other in servers[:number] if other.volumes_of_logs & each.volumes_of_logs]
        if others or (each.replicas > 1 and each.volumes_of_logs and not each.numbered_alike):
            sharing = f"as {others[0]} does" if others else f"in each of its {each.replicas} containers"
            why = f"keep the log on {', '.join(sorted(each.volumes_of_logs))} {sharing}, and all copies end with one volume"
            reading.doubt(
                f"{each.name}.volumes", origins.get(each.name, str(reading.path)), f"{why}: give each its own"
            )
