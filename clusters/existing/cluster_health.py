"""What a watch asks of the whole cluster: its brokers, its controller, and how many partitions lack replicas or a leader."""

from collections.abc import Mapping
from dataclasses import dataclass

from prozess.clusters.protocol.admin import Admin
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import PartitionView
from prozess.harness.schema import NONE


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """What one broker stated of the cluster, and who the active controller is."""

    node: int
    """The broker that answered."""
    took_s: float
    addresses: Mapping[int, tuple[str, int]]
    """Where the brokers are that it takes for alive."""
    absent: frozenset[int]
    """The brokers that have replicas, and that it does not take for alive."""
    controller: int
    """The node id of the active controller; NONE if nobody says."""
    partitions: int
    """How many partitions it has, of the topics that we may describe."""
    under_replicated: int
    """Partitions in whose ISR a replica lacks."""
    offline: int
    """Partitions without a leader."""


def health_of(
    node: int,
    addresses: Mapping[int, tuple[str, int]],
    partitions: Mapping[tuple[str, int], PartitionView],
    *,
    controller: int,
    took_s: float,
) -> ClusterHealth:
    """Counts what a broker says of all partitions."""
    replicas = {replica for view in partitions.values() for replica in view.replicas}
    return ClusterHealth(
        node=node,
        took_s=took_s,
        addresses=addresses,
        absent=frozenset(replicas - addresses.keys()),
        controller=controller,
        partitions=len(partitions),
        under_replicated=sum(len(view.isr) < len(view.replicas) for view in partitions.values()),
        offline=sum(view.leader < 0 for view in partitions.values()),
    )


def ask_health(
    admin: Admin, brokers: Mapping[int, tuple[str, int]], *, clock: Clock, timeout_s: float
) -> ClusterHealth | None:
    """Asks the brokers one after the other until one answers; None if none does. Each may take `timeout_s`.

    One that hung answers of what was. The next time it knows better."""
    for node in brokers:
        began_ns = clock.monotonic_ns()
        try:
            answer = admin.everything(node, timeout_s=timeout_s)
            if answer is None or (kraft := admin.is_kraft(node, timeout_s=timeout_s)) is None:
                continue
            controller = admin.active_controller(timeout_s=timeout_s) if kraft else answer.controller
        except ClusterFailed:  # it may refuse a login while it starts
            continue
        took_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
        return health_of(
            node,
            answer.addresses,
            answer.partitions,
            controller=NONE if controller is None else controller,
            took_s=took_s,
        )
    return None
