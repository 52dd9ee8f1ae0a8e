"""Where the servers of a cluster are reached whose nodes prozess has placed itself: by link, and by role."""

from collections.abc import Mapping, Sequence

from clusters.properties import BROKER, CONTROLLER, ZOOKEEPER, Placement


class PlacedServers:
    """The part of `harness.protocols.Cluster` that follows from `_placements`, which may change until the cluster is up."""

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
        """Per ZooKeeper server's node id: (host, port) as the observer reaches it; empty in KRaft."""
        return {p.node_id: (p.observer_address, p.data_port) for p in self._having(ZOOKEEPER)}

    @property
    def metrics_servers(self) -> Mapping[int, tuple[str, int]]:
        """Per node id: (host, port) of its metrics agent, on the observer's link; empty if there is none here."""
        if not self._has_agents:
            return {}
        kafka = (p for p in self._placements if ZOOKEEPER not in p.roles)
        return {p.node_id: (p.observer_address, p.metrics_port) for p in kafka}

    @property
    def _has_agents(self) -> bool:
        """Does each Kafka server have a metrics agent?"""
        raise NotImplementedError

    def _having(self, role: str) -> list[Placement]:
        return [p for p in self._placements if role in p.roles]
