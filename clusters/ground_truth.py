"""Ground truth of a cluster, wherever its metadata is kept: who led and who was in sync, over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clusters.metadata_log import decode_metadata_log
from clusters.zookeeper_metadata import decode_zookeeper_logs
from harness.configuration import MetadataMode
from harness.schema import NONE

LOG_NAME = "__cluster_metadata-0"


def decode_ground_truth(
    directories: Sequence[Path],
    *,
    partition_ids: Mapping[tuple[str, int], int],
    wall_minus_monotonic_ns: int,
    metadata_mode: MetadataMode = "kraft-isolated",
    migrated: Sequence[Path] = (),
) -> dict[str, np.ndarray]:
    """Columns of `harness.schema.METADATA`, from the data directory of *each* node that keeps metadata: KRaft's controllers
    (`clusters.metadata_log`), or ZooKeeper's servers (`clusters.zookeeper_metadata`). `migrated`: of each controller
    that took over from ZooKeeper, if any did (KIP-866)."""
    decode = decode_zookeeper_logs if metadata_mode == "zookeeper" else decode_metadata_log
    told = decode(directories, partition_ids=partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
    if not any((directory / LOG_NAME).is_dir() for directory in migrated):
        return told
    later = decode_metadata_log(migrated, partition_ids=partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
    return taken_over(told, later)


def taken_over(zookeeper: Mapping[str, np.ndarray], controllers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ZooKeeper's rows until the controllers' log first speaks of a partition, then the log's: from there on it decides, and
    what is written to ZooKeeper besides follows it (KIP-866, dual write). Its positions come behind all of ZooKeeper's."""
    of_partitions = controllers["time_ns"][controllers["partition"] != NONE]
    if not len(of_partitions):
        return dict(zookeeper)
    begins_ns = of_partitions.min()
    first, then = zookeeper["time_ns"] < begins_ns, controllers["time_ns"] >= begins_ns
    behind = int(zookeeper["log_position"].max(initial=0)) + 1
    shifted = {**controllers, "log_position": controllers["log_position"] + behind}
    return {name: np.concatenate([column[first], shifted[name][then]]) for name, column in zookeeper.items()}
