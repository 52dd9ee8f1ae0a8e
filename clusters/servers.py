"""What is started on each node of a local cluster: its files, and its command. Kafka servers and ZooKeeper's."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusters.archives import archive_flags, class_data_archive
from clusters.cache import make_cache
from clusters.jars import class_path, ensure_jars
from clusters.java import JavaRuntime, find_java
from clusters.properties import (
    BROKER,
    CONTROLLER,
    HEAP,
    JVM_FLAGS,
    SCRATCH,
    ZOOKEEPER,
    Placement,
    Stage,
    logging_properties,
    properties_text,
    server_properties,
)
from clusters.storage_format import bootstrap_checkpoint, feature_levels, format_directory, new_kafka_uuid
from clusters.zookeeper import JVM_FLAGS as ZOOKEEPER_FLAGS
from clusters.zookeeper import MAIN_CLASS as ZOOKEEPER_MAIN
from clusters.zookeeper import prepare_directory, zookeeper_properties
from harness.configuration import Variant
from harness.jolokia import agent_flags

KAFKA_MAIN = "kafka.Kafka"


class Servers:
    """The servers of one variant. `directory`: below it, a directory per node."""

    def __init__(
        self,
        variant: Variant,
        placements: Sequence[Placement],
        directory: Path,
        *,
        own_networks: bool,
        agent: Path | None,
        later: Sequence[str] = (),
    ) -> None:
        """`own_networks`: each node has a network namespace of its own. `agent`: of metrics; None = none. `later`: versions
        that may be installed while the cluster runs."""
        self._variant, self._placements, self._directory = variant, tuple(placements), directory
        self._own_networks, self._agent = own_networks, agent
        self._later = tuple(later)
        self._installed: dict[str, str] = {}
        self._jars: dict[str, tuple[Path, ...]] = {}
        self._archives: dict[tuple[str, str], Path | None] = {}
        self._cluster_id = ""
        self.java: JavaRuntime | None = None
        """None until `format`."""
        self.features: Mapping[str, int] = {}
        """Levels that the format promises; none with ZooKeeper, which finalizes no features."""

    @property
    def archives(self) -> Mapping[str, bool]:
        """By role, and by version where there are several: is there an archive that makes the start faster?"""
        several = len(self._variant.kafka_versions) > 1
        return {f"{r} {v}" if several else r: path is not None for (r, v), path in self._archives.items()}

    @property
    def cluster_id(self) -> str:
        """With ZooKeeper, brokers make one up when they first start; "" = not yet."""
        if not self._cluster_id:
            for placement in self._placements:
                self._cluster_id = self._cluster_id or cluster_id_in(placement.data_directory / "meta.properties")
        return self._cluster_id

    def format(self) -> None:
        """Fresh directories and files of every node; no data survives from an earlier run."""
        self.java = find_java()
        self._installed = {}
        self._jars = {version: ensure_jars(version) for version in (*self._variant.kafka_versions, *self._later)}
        with_zookeeper = self._variant.metadata_mode == "zookeeper"
        checkpoint = None if with_zookeeper else self._checkpoint(self.java)
        self.features = {} if checkpoint is None else feature_levels(checkpoint)
        self._cluster_id = "" if checkpoint is None else new_kafka_uuid()
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
                    checkpoint=checkpoint,
                )
            self._write_files(placement, directory)
            self._find_archive(placement)

    def version_of(self, name: str) -> str:
        """The version that the node of this name is started with now."""
        return self._installed.get(name, self._variant.version_of(name))

    def install(self, placement: Placement, version: str) -> None:
        """From its next start on the server is of this version, with the data and the properties that it has."""
        assert version in self._jars, f"{version} was not said to be needed later"
        self._installed[placement.name] = version
        self._write_logging(placement, self._directory / placement.name)
        self._find_archive(placement)

    def migrate(self, placement: Placement, stage: Stage) -> None:
        """From its next start on the server is at that stage of the way from ZooKeeper to KRaft. A controller that never ran
        is formatted for the cluster that there is."""
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

    def _find_archive(self, placement: Placement) -> None:
        assert self.java is not None, "not formatted"
        version, role = self.version_of(placement.name), main_role(placement)
        self._archives[role, version] = class_data_archive(version, role, self.java, self._jars[version])

    def command(self, placement: Placement) -> list[str]:
        """Starts that server."""
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
            f"{option}{directory / file_name}",
            "-cp",
            class_path(self._jars[version]),
            ZOOKEEPER_MAIN if role == ZOOKEEPER else KAFKA_MAIN,
            str(directory / _file_name(placement)),
        ]

    def _checkpoint(self, java: JavaRuntime) -> bytes:
        """Every server must understand it, so it is the oldest one's."""
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
        (directory / _file_name(placement)).write_text(properties_text(properties), encoding="utf-8")

    def _write_logging(self, placement: Placement, directory: Path) -> None:
        file_name, text, _ = logging_properties(self.version_of(placement.name))
        (directory / file_name).write_text(text, encoding="utf-8")


def main_role(placement: Placement) -> str:
    """As heaps and archives are named: a combined node is a broker."""
    return next(role for role in (BROKER, CONTROLLER, ZOOKEEPER) if role in placement.roles)


def _file_name(placement: Placement) -> str:
    return "zoo.cfg" if ZOOKEEPER in placement.roles else "server.properties"


def cluster_id_in(meta_properties: Path) -> str:
    """ "" = it is not there yet."""
    try:
        lines = meta_properties.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), "")
