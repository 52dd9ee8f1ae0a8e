"""The servers of a local cluster, Kafka's and ZooKeeper's: their files, their commands and their addresses."""

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from prozess.clusters.files.segments import read_batches, read_records
from prozess.clusters.install.kafka_jars import class_path, ensure_extra, ensure_jars, remote_store
from prozess.clusters.install.tools import JavaRuntime, find_java
from prozess.clusters.machine.archives import archive_flags, class_data_archive
from prozess.clusters.machine.node_network import DATA, OBSERVER, address_of
from prozess.clusters.machine.server_properties import (
    BROKER,
    CONTROLLER,
    HEAP,
    JVM_FLAGS,
    SCRATCH,
    ZOOKEEPER,
    Placement,
    Stage,
    logging_properties,
    node_name,
    node_roles,
    prepare_directory,
    properties_text,
    server_properties,
    zookeeper_properties,
)
from prozess.clusters.machine.server_properties import MAIN_CLASS as ZOOKEEPER_MAIN
from prozess.clusters.machine.server_properties import ZOOKEEPER_JVM_FLAGS as ZOOKEEPER_FLAGS
from prozess.clusters.machine.tiered import make_store, store_beside, store_properties
from prozess.clusters.protocol.client import Cursor, Malformed
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID, Variant, version_numbers
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.installation import make_cache
from prozess.harness.recording.jolokia import agent_flags

KAFKA_MAIN = "kafka.Kafka"


class NodeServers:
    """The servers of one variant. Each node has a directory below `directory`."""

    def __init__(
        self,
        variant: Variant,
        placements: Sequence[Placement],
        directory: Path,
        *,
        own_networks: bool,
        agent: Path | None,
        later: Sequence[str] = (),
        options: Callable[[str], Sequence[str]] = lambda name: (),
    ) -> None:
        """Touches nothing before `format`.

        `own_networks`: each node has a network namespace of its own. `agent`: the jar of the metrics agent, if there is one.
        `later`: versions that may be installed while the cluster runs. `options`: gives what other options the JVM of a
        node gets, at each start."""
        self._variant, self._placements, self._directory = variant, tuple(placements), directory
        self._own_networks, self._agent = own_networks, agent
        self._later, self._options = tuple(later), options
        self._installed: dict[str, str] = {}
        self._jars: dict[str, tuple[Path, ...]] = {}
        self._archives: dict[tuple[str, str], Path | None] = {}
        self._cluster_id = ""
        self.java: JavaRuntime | None = None
        """The Java that runs the servers; None until `format`."""
        self.features: Mapping[str, int] = {}
        """The feature levels that the format promises; none with ZooKeeper, which finalizes no features."""

    @property
    def archives(self) -> Mapping[str, bool]:
        """Says for each role (and version, where there are several) whether an archive makes the start faster."""
        several = len(self._variant.kafka_versions) > 1
        return {f"{r} {v}" if several else r: path is not None for (r, v), path in self._archives.items()}

    @property
    def cluster_id(self) -> str:
        """Returns the id of the cluster. With ZooKeeper, brokers make it up when they first start; "" before that."""
        if not self._cluster_id:
            for placement in self._placements:
                self._cluster_id = self._cluster_id or cluster_id_in(placement.data_directory / "meta.properties")
        return self._cluster_id

    def format(self) -> None:
        """Makes fresh directories and files for every node. No data survives from an earlier run."""
        self.java = find_java()
        self._installed = {}
        self._jars = {version: ensure_jars(version) for version in (*self._variant.kafka_versions, *self._later)}
        with_zookeeper = self._variant.metadata_mode == "zookeeper"
        checkpoint = None if with_zookeeper else self._checkpoint(self.java)
        self.features = {} if checkpoint is None else feature_levels(checkpoint.content)
        self._cluster_id = "" if checkpoint is None else new_kafka_uuid()
        if self._variant.tiered_storage:
            make_store(self._directory)
        for placement in self._placements:
            directory = self._directory / placement.name
            shutil.rmtree(directory, ignore_errors=True)
            (directory / SCRATCH).mkdir(parents=True)
            if with_zookeeper and CONTROLLER in placement.roles:
                continue  # until the migration
            if ZOOKEEPER in placement.roles:
                prepare_directory(placement.data_directory, placement)
            elif checkpoint is not None:
                format_directory(
                    placement.data_directory,
                    node_id=placement.node_id,
                    cluster_id=self._cluster_id,
                    checkpoint=checkpoint if checkpoint.belongs_to(placement.roles) else None,
                )
            self._write_files(placement, directory)
            self._find_archive(placement)

    def version_of(self, name: str) -> str:
        """The version that the node of this name is started with now."""
        return self._installed.get(name, self._variant.version_of(name))

    def jars_of(self, name: str) -> tuple[Path, ...]:
        """The jars that the node of this name is started with now."""
        return self._jars[self.version_of(name)]

    def plugins_of(self, name: str) -> tuple[Path, ...]:
        """The jars that the node of this name loads besides, with a class loader of their own: that of the remote store."""
        return (ensure_extra(remote_store(self.version_of(name))),) if self._variant.tiered_storage else ()

    def install(self, placement: Placement, version: str) -> None:
        """Gives a server another version from its next start on, with the data and the properties that it has."""
        assert version in self._jars, f"{version} was not announced as needed later"
        self._installed[placement.name] = version
        if self._variant.tiered_storage:  # its plugin is another
            self._write_files(placement, self._directory / placement.name)
        self._write_logging(placement, self._directory / placement.name)
        self._find_archive(placement)

    def migrate(self, placement: Placement, stage: Stage) -> None:
        """Brings a server to a stage of the migration from ZooKeeper to KRaft, from its next start on.

        A controller that never ran is formatted for the cluster that there is."""
        assert self.java is not None, "not formatted"
        directory = self._directory / placement.name
        if CONTROLLER in placement.roles and not (placement.data_directory / "meta.properties").exists():
            format_directory(
                placement.data_directory,
                node_id=placement.node_id,
                cluster_id=self.cluster_id,
                checkpoint=self._checkpoint(self.java),
            )
        self._write_logging(placement, directory)
        properties = server_properties(self._variant, placement, self._placements, stage=stage)
        (directory / _file_name(placement)).write_text(properties_text(properties), encoding="utf-8")
        self._find_archive(placement)

    def _store_properties(self, placement: Placement) -> dict[str, str]:
        """The settings of a broker for the remote store, if there is one. Its plugin is that of the version that it runs."""
        if not self._variant.tiered_storage or BROKER not in placement.roles:
            return {}
        (plugin,) = self.plugins_of(placement.name)
        return store_properties(store_beside(placement.data_directory), plugin)

    def _find_archive(self, placement: Placement) -> None:
        assert self.java is not None, "not formatted"
        version, role = self.version_of(placement.name), main_role(placement)
        self._archives[role, version] = class_data_archive(version, role, self.java, self._jars[version])

    def command(self, placement: Placement) -> list[str]:
        """The command that starts a server."""
        assert self.java is not None, "not formatted"
        role, version = main_role(placement), self.version_of(placement.name)
        directory = self._directory / placement.name
        file_name, _, option = logging_properties(version)
        agent = None if role == ZOOKEEPER else self._agent
        return [
            str(self.java.executable),
            *HEAP[role],
            *JVM_FLAGS,
            *(ZOOKEEPER_FLAGS if role == ZOOKEEPER else ()),
            f"-Djava.io.tmpdir={directory / SCRATCH}",
            *archive_flags(self._archives.get((role, version))),
            *agent_flags(agent, host=placement.observer_address, port=placement.metrics_port),
            *(() if role == ZOOKEEPER else self._options(placement.name)),
            f"{option}{directory / file_name}",
            "-cp",
            class_path(self._jars[version]),
            ZOOKEEPER_MAIN if role == ZOOKEEPER else KAFKA_MAIN,
            str(directory / _file_name(placement)),
        ]

    def _checkpoint(self, java: JavaRuntime) -> "Checkpoint":
        """The bootstrap checkpoint of the oldest version, since every server must understand it."""
        version = self._variant.oldest_version
        return bootstrap_checkpoint(
            version,
            java=java.executable,
            jars=self._jars[version],
            cache=make_cache("formats"),
            features=self._variant.features,
        )

    def _write_files(self, placement: Placement, directory: Path) -> None:
        self._write_logging(placement, directory)
        if ZOOKEEPER in placement.roles:
            properties = zookeeper_properties(placement, self._placements, own_network=self._own_networks)
        else:
            properties = server_properties(self._variant, placement, self._placements)
            properties |= self._store_properties(placement)
        (directory / _file_name(placement)).write_text(properties_text(properties), encoding="utf-8")

    def _write_logging(self, placement: Placement, directory: Path) -> None:
        file_name, text, _ = logging_properties(self.version_of(placement.name))
        (directory / file_name).write_text(text, encoding="utf-8")


def main_role(placement: Placement) -> str:
    """The role by which heaps and archives are named: a combined node is a broker."""
    return next(role for role in (BROKER, CONTROLLER, ZOOKEEPER) if role in placement.roles)


def _file_name(placement: Placement) -> str:
    return "zoo.cfg" if ZOOKEEPER in placement.roles else "server.properties"


def cluster_id_in(meta_properties: Path) -> str:
    """The cluster id in a meta.properties file; "" if it is not there yet."""
    try:
        lines = meta_properties.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), "")


# Where each node of a local cluster is: pure, but for finding free ports where nodes share the host's network.


PORTS = (9092, 9093, 9094, 9095, 9096, 9097, 9098)
"""The ports of DATA, OBSERVER, CLIENT, CONTROLLER, CONTROLLEROBSERVER, the metrics agent, and the agent for method faults
in a sandbox.

They are the same for all nodes, since each has addresses of its own."""
SHARED_PORTS = range(20_000, 32_000)
"""The ports that nodes use on the host's own network.

They are below the ephemeral range (32768 on), whose ports any outgoing connection may hold."""
_FIRST_CONTROLLER_HOST, _FIRST_ZOOKEEPER_HOST = 11, 21


def host_number(node_id: int) -> int:
    """Returns the last number of a node's addresses: brokers 1…9, isolated controllers 11…, ZooKeeper servers 21…"""
    if node_id >= FIRST_ZOOKEEPER_ID:
        return node_id - FIRST_ZOOKEEPER_ID + _FIRST_ZOOKEEPER_HOST
    return node_id if node_id < FIRST_CONTROLLER_ID else node_id - FIRST_CONTROLLER_ID + _FIRST_CONTROLLER_HOST


def put_into_namespaces(
    variant: Variant, directory: Path, *, shared_host: bool, relay_ports: Mapping[int, int]
) -> tuple[Placement, ...]:
    """Places every node of the variant, brokers last. `shared_host`: no namespaces, so 127.0.0.1, .2, … and free ports.

    ClusterFailed if no free ports are found. BadInput for a variant this backend does not run.
    """
    roles = node_roles(variant)
    hosts = {node_id: host_number(node_id) for node_id in roles}
    ports: Sequence[int] = PORTS
    if shared_host:
        ports = free_ports([f"127.0.0.{host}" for host in hosts.values()], len(PORTS), first=first_port())
    data, observer, client, controller, controller_observer, metrics, methods = ports
    placements = []
    for node_id, of_node in sorted(roles.items(), key=lambda item: (BROKER in item[1], item[0])):
        host = hosts[node_id]
        relayed = relay_ports.get(node_id, 0) if BROKER in of_node else 0
        placements.append(
            Placement(
                node_id=node_id,
                roles=of_node,
                data_address=f"127.0.0.{host}" if shared_host else address_of(host, DATA),
                observer_address=f"127.0.0.{host}" if shared_host else address_of(host, OBSERVER),
                data_port=data,
                observer_port=data if ZOOKEEPER in of_node else observer,
                controller_port=controller,
                controller_observer_port=controller_observer,
                data_directory=directory / node_name(node_id, of_node) / "data",
                client_port=client if relayed else 0,
                relay_port=relayed,
                metrics_port=metrics,
                methods_port=methods,
                rack=variant.rack_of(node_id) if BROKER in of_node else None,
            )
        )
    return tuple(placements)


def first_port() -> int:
    """Returns where this process starts to search for free ports. Each process starts elsewhere."""
    return SHARED_PORTS.start + (os.getpid() * 37) % len(SHARED_PORTS)


def free_ports(addresses: Iterable[str], count: int, *, first: int) -> list[int]:
    """Finds `count` ports on which nobody listens at any of the addresses. The search begins at `first`, and goes on from the
    range's start after its end."""
    addresses = list(addresses)
    found: list[int] = []
    for shift in range(len(SHARED_PORTS)):
        port = SHARED_PORTS.start + (first - SHARED_PORTS.start + shift) % len(SHARED_PORTS)
        if all(_free(address, port) for address in addresses):
            found.append(port)
            if len(found) == count:
                return found
    raise ClusterFailed(
        f"prozess needs {count} free ports on {', '.join(addresses)} between {SHARED_PORTS.start} and {SHARED_PORTS.stop}, "
        f"and found {len(found)}. Stop the programs that listen there."
    )


def _free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


# Where the servers of a cluster are reached whose nodes prozess has placed itself: by link, and by role.


class PlacedServers(ABC):
    """The addresses of a cluster whose nodes prozess has placed itself.

    They follow from `_placements`, which may change until the cluster is up."""

    _placements: Sequence[Placement]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{p.data_address}:{p.data_port}" for p in self._having(BROKER))

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        return {p.node_id: (p.observer_address, p.observer_port) for p in self._having(BROKER)}

    @property
    def controller_servers(self) -> Mapping[int, tuple[str, int]]:
        return {p.node_id: (p.observer_address, p.controller_observer_port) for p in self._having(CONTROLLER)}

    @property
    def zookeeper_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns the host and port at which the observer reaches each ZooKeeper server, by node id; empty in KRaft."""
        return {p.node_id: (p.observer_address, p.data_port) for p in self._having(ZOOKEEPER)}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """The host and port of each metrics agent on the observer's link, by node id; empty if there are none."""
        if not self._has_agents:
            return {}
        kafka = (p for p in self._placements if ZOOKEEPER not in p.roles)
        return {p.node_id: (p.observer_address, p.metrics_port) for p in kafka}

    @property
    @abstractmethod
    def _has_agents(self) -> bool:
        """Says whether each Kafka server has a metrics agent."""

    def _having(self, role: str) -> list[Placement]:
        return [p for p in self._placements if role in p.roles]


# Formatting a KRaft data directory without a JVM: meta.properties and the bootstrap checkpoint.
#
# What `StorageTool format` writes. The checkpoint holds no cluster id, only the feature levels of a version, so it is
# made once per version by StorageTool itself and copied to every node. Without it a node starts all the same, with the
# newest metadata.version but every other feature at level 0 (no ELR, no TV2, no KIP-848); so the levels it promises
# are read back from it and asserted after the start.


CHECKPOINT_NAME = "bootstrap.checkpoint"
"""The file that has the feature levels up to 4.3, in every directory. Newer controllers read it, too."""
FIRST_CHECKPOINT_NAME = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
"""The file that has them from 4.4 on: a snapshot before the log's first record, of controllers alone (KAFKA-19648)."""
FIRST_CHECKPOINT_SINCE = (4, 4)
STORAGE_TOOL_TIMEOUT_S = 90.0
_A_CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9095",
    "listeners": "CONTROLLER://127.0.0.1:9095",
    "controller.listener.names": "CONTROLLER",
}
"""The controller whose directory StorageTool formats for us."""
FEATURE_LEVEL_RECORD = 12
"""The apiKey of FeatureLevelRecord (Kafka source, metadata/src/main/resources/common/metadata/FeatureLevelRecord.json)."""


def new_kafka_uuid() -> str:
    """Makes a new id as Kafka does: 22 characters of URL-safe base64.

    It never begins with `-`, which command lines would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The feature levels with which a cluster begins. `name`: of its file, in a data directory."""

    name: str
    content: bytes

    def belongs_to(self, roles: frozenset[str]) -> bool:
        """Says whether a node of these roles has such a file."""
        return self.name == CHECKPOINT_NAME or CONTROLLER in roles


def format_directory(directory: Path, *, node_id: int, cluster_id: str, checkpoint: Checkpoint | None) -> None:
    """Makes `directory` a freshly formatted, otherwise empty log directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if checkpoint is not None:
        path = directory / checkpoint.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(checkpoint.content)
    meta = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_kafka_uuid()}
    (directory / "meta.properties").write_text(properties_text(meta), encoding="utf-8")


def bootstrap_checkpoint(
    version: str, *, java: Path, jars: Sequence[Path], cache: Path, features: Mapping[str, int] | None = None
) -> Checkpoint:
    """Returns the bootstrap checkpoint of `version`, from the cache or made there by StorageTool (about a second).

    `features`: levels other than those of the version (KIP-1022).

    ClusterFailed with the tool's words if it refuses; NotReady if another process holds the cache for too long.
    """
    chosen = sorted((features or {}).items())
    name = FIRST_CHECKPOINT_NAME if version_numbers(version) >= FIRST_CHECKPOINT_SINCE else CHECKPOINT_NAME
    cached = cache / ".".join([version, *(f"{name}={level}" for name, level in chosen), CHECKPOINT_NAME])
    if cached.is_file():
        return Checkpoint(name, cached.read_bytes())
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{cached}.lock", timeout=STORAGE_TOOL_TIMEOUT_S):
            if not cached.is_file():
                made = _run_storage_tool(version, name, java=java, jars=jars, features=chosen)
                part = cached.with_name(f"{cached.name}.{os.getpid()}.part")
                part.write_bytes(made)
                part.replace(cached)
    except Timeout as error:
        raise NotReady(
            awaited=f"the lock {cached}.lock", timeout_s=STORAGE_TOOL_TIMEOUT_S, last_seen="held by another process"
        ) from error
    return Checkpoint(name, cached.read_bytes())


def _run_storage_tool(
    version: str, name: str, *, java: Path, jars: Sequence[Path], features: Sequence[tuple[str, int]]
) -> bytes:
    with tempfile.TemporaryDirectory(prefix="prozess-format-") as scratch:
        data = Path(scratch) / "data"
        properties = Path(scratch) / "server.properties"
        properties.write_text(properties_text({**_A_CONTROLLER, "log.dirs": str(data)}), encoding="utf-8")
        command = [
            str(java),
            "-Xmx96m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]
        command += ["kafka.tools.StorageTool", "format", "-t", new_kafka_uuid(), "-c", str(properties)]
        for feature, level in features:
            command += ["--feature", f"{feature}={level}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=STORAGE_TOOL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotReady(
                awaited=f"StorageTool of Kafka {version}",
                timeout_s=STORAGE_TOOL_TIMEOUT_S,
                last_seen=str(error.stdout or "no output")[-500:],
            ) from error
        checkpoint = data / name
        if done.returncode or not checkpoint.is_file():
            words = (done.stderr + done.stdout).strip()[-1500:]
            raise ClusterFailed(f"StorageTool of Kafka {version} could not format (exit {done.returncode}): {words}")
        return checkpoint.read_bytes()


def feature_levels(checkpoint: bytes) -> dict[str, int]:
    """Reads the feature levels that a bootstrap checkpoint promises. Raises ClusterFailed if the file is no
    checkpoint."""
    try:
        found = dict(_feature_records(checkpoint))
    except Malformed as error:
        raise ClusterFailed(f"The bootstrap checkpoint {error}. Remove it from the cache.") from error
    if "metadata.version" not in found:
        raise ClusterFailed("The bootstrap checkpoint names no metadata.version. Remove it from the cache.")
    return found


def _feature_records(checkpoint: bytes) -> Iterator[tuple[str, int]]:
    found = read_batches(checkpoint)
    if found.torn_at is not None:
        raise Malformed(f"is torn at byte {found.torn_at}: {found.torn_reason}")
    for batch in found.batches:
        if batch.control:
            continue  # snapshot header and footer
        for record in read_records(batch):
            yield from _feature_record(record.value or b"")


def _feature_record(value: bytes) -> Iterator[tuple[str, int]]:
    """Reads a FeatureLevelRecord: frame version, type and version (KIP-595's metadata framing), then name and level."""
    cursor = Cursor(value)
    cursor.unsigned_varint()
    kind = cursor.unsigned_varint()
    cursor.unsigned_varint()
    if kind == FEATURE_LEVEL_RECORD:
        yield cursor.compact_string() or "", cursor.int16()
