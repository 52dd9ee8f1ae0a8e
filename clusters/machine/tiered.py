"""Tiered storage (KIP-405) of a local cluster: the remote store of a run, and the properties of its brokers.

The remote store is LocalTieredStorage of Kafka's own tests: a directory that all brokers of the run share.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from prozess.clusters.files.remote_segments import STORE_DIRECTORY
from prozess.harness.config.configuration import TIER_INTERVAL_MS, Variant
from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import Plan

STORE_NAME = "remote-store"
"""The directory of the store, beside those of the nodes."""
PLUGIN = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def remote_properties(variant: Variant) -> dict[str, str]:
    """Returns what every server of a cluster with tiered storage has set, unless the trial sets it. Empty without.

    A controller refuses topics with remote.storage.enable unless it has tiered storage itself
    (ConfigurationControlManager, LogConfig.validateRemoteStorageOnlyIfSystemEnabled)."""
    if not variant.tiered_storage:
        return {}
    replicas = min(3, variant.brokers)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "DATA",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(replicas),
        "rlmm.config.remote.log.metadata.topic.min.isr": str(min(2, replicas)),
        "remote.log.manager.task.interval.ms": str(TIER_INTERVAL_MS),
        "log.retention.check.interval.ms": str(TIER_INTERVAL_MS),
        "log.initial.task.delay.ms": str(TIER_INTERVAL_MS),
    }


def store_properties(store: Path, plugin: Path) -> dict[str, str]:
    """Returns what says to a broker where the store is, and which jar has the class that reads and writes it."""
    return {
        "remote.log.storage.manager.class.name": PLUGIN,
        "remote.log.storage.manager.class.path": str(plugin),
        "rsm.config.dir": str(store),
    }


def make_store(directory: Path) -> Path:
    """Makes the store of a run anew, empty, below the directory of all nodes, and returns its directory."""
    store = directory / STORE_NAME
    shutil.rmtree(store, ignore_errors=True)
    (store / STORE_DIRECTORY).mkdir(parents=True)
    return store


def store_beside(data_directory: Path) -> Path:
    """Returns the directory of the store of the run to which a node with this data directory belongs."""
    return data_directory.parent.parent / STORE_NAME


def check_topics(plan: Plan) -> None:
    """Raises BadInput for topics with tiered storage that Kafka does not make: without a remote store, or compacted."""
    for topic in (cell.topic for cell in plan.cells if cell.topic.is_tiered):
        if not plan.variant.tiered_storage:
            raise BadInput(
                "topic.properties sets remote.storage.enable=true, and the brokers have no remote store. Set "
                "variant.tiered_storage = true."
            )
        if topic.cleanup_policy != "delete":
            raise BadInput(
                f'topic.cleanup_policy = "{topic.cleanup_policy}": Kafka has no compacted topics with tiered storage '
                "(LogConfig.validateRemoteStorageRequiresDeleteCleanupPolicy; KIP-405, 'Limitations'). Set \"delete\", or "
                "remove remote.storage.enable."
            )


def check_tiered(variant: Variant, jar_of: Callable[[str], object]) -> None:
    """Raises BadInput for a variant that cannot have tiered storage here. `jar_of`: the version of a broker → its plugin;
    BadInput if there is none."""
    if not variant.tiered_storage:
        return
    if variant.metadata_mode == "zookeeper":
        raise BadInput(
            "variant.tiered_storage needs KRaft here: with ZooKeeper it ended with Kafka 3.9 and is not tried. Set "
            'variant.metadata_mode = "kraft-isolated".'
        )
    for version in variant.kafka_versions:
        jar_of(version)
