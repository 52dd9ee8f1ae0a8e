"""Ground truth of a cluster, wherever its metadata is kept: who led and who was in sync, over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clusters.metadata_log import decode_metadata_log
from clusters.zookeeper_metadata import decode_zookeeper_logs
from harness.configuration import MetadataMode


def decode_ground_truth(
    directories: Sequence[Path],
    *,
    partition_ids: Mapping[tuple[str, int], int],
    wall_minus_monotonic_ns: int,
    metadata_mode: MetadataMode = "kraft-isolated",
) -> dict[str, np.ndarray]:
    """Columns of `harness.schema.METADATA`, from the data directory of *each* node that keeps metadata: KRaft's controllers
    (`clusters.metadata_log`), or ZooKeeper's servers (`clusters.zookeeper_metadata`)."""
    decode = decode_zookeeper_logs if metadata_mode == "zookeeper" else decode_metadata_log
    return decode(directories, partition_ids=partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
