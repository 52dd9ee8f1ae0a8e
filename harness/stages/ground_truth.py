"""Who led and who was in sync, from the controllers' own log (or ZooKeeper's), and the clock by which its times are told."""

from typing import Any

import numpy as np

from harness import catalogue
from harness.clock import Clock
from harness.plan import Plan
from harness.protocols import Cluster
from harness.recorder import Recorder


def decode(plan: Plan, cluster: Cluster, wall_minus_monotonic_ns: int) -> dict[str, np.ndarray]:
    """Rows of `metadata`. Of each keeper, missing ones too: only what a majority of them holds is committed."""
    mode = plan.variant.metadata_mode
    keeper = "zookeeper" if mode == "zookeeper" else "controller"
    decoded: dict[str, Any] = catalogue.service("metadata-log")(
        [node.data_directory for node in cluster.nodes if keeper in node.roles],
        partition_ids={(p.topic_name, p.number): p.partition for p in plan.partitions},
        wall_minus_monotonic_ns=wall_minus_monotonic_ns,
        metadata_mode=mode,
        migrated=[n.data_directory for n in cluster.nodes if mode == "zookeeper" and "controller" in n.roles],
    )
    return decoded


def keep_ground_truth(plan: Plan, cluster: Cluster, recorder: Recorder, wall_minus_monotonic_ns: int) -> int:
    """Decode it into the history; how many rows. HarnessFailed if it cannot be read."""
    rows = decode(plan, cluster, wall_minus_monotonic_ns)
    recorder.extend("metadata", rows)
    return len(rows["time_ns"])


def measure_wall_offset(clock: Clock, *, tries: int = 50) -> tuple[int, int]:
    """(CLOCK_REALTIME − CLOCK_MONOTONIC, half the width of the tightest of `tries` measurements), nanoseconds."""
    best = (0, 2**62)
    for _ in range(tries):
        before, wall, after = clock.monotonic_ns(), clock.wall_ns(), clock.monotonic_ns()
        if after - before < 2 * best[1]:
            best = (wall - (before + after) // 2, (after - before + 1) // 2)
    return best
