"""What the nemesis can hit: the nodes of the cluster, and the processes of clients."""

from collections.abc import Sequence
from typing import Any

from harness.protocols import Cluster, Node, Workload


class WithClients:
    """A cluster as the nemesis sees it: `harness.protocols.Cluster` whose `nodes` are the places of clients too."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload

    @property
    def nodes(self) -> Sequence[Node]:
        """The cluster's first."""
        return [*self._cluster.nodes, *self._workload.nodes()]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the cluster has
        return getattr(self._cluster, name)
