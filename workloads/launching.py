"""What starts the client of a plan: its role's settings and the cluster's listeners, as `workloads.client` takes them."""

from collections.abc import Mapping
from typing import Protocol

from harness import catalogue
from harness.plan import Plan, PlannedClient
from harness.protocols import ClientSpec
from harness.run_directory import RunDirectory
from harness.schema import SENDING, Isolation
from workloads.client import Launch
from workloads.properties import LaunchContext, Settings
from workloads.statistics import INTERVAL_MS, INTERVAL_PROPERTY

OF_THE_AUDIT = ("sentinel", "audit", "fencer", "observer")
"""Roles that are started after healing, over the observer's listeners."""
_GROWING = ("producer", "text-producer")
"""Roles that write late partitions from when they are told of them."""
ISOLATION = {
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}


class Servers(Protocol):
    """What this workload needs of a cluster."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]: ...


class Launching:
    """Of the clients of one plan."""

    def __init__(self, plan: Plan, run: RunDirectory, *, cluster: Servers) -> None:
        self._plan, self._run, self._cluster = plan, run, cluster
        self.absent = {p.partition for p in plan.partitions if p.late}
        """Late partitions that nobody was told of yet."""

    @property
    def observer_servers(self) -> str:
        """The observer's listeners, which no fault touches, as `bootstrap.servers`."""
        return ",".join(f"{host}:{port}" for host, port in self._cluster.observer_servers.values())

    def launch(self, planned: PlannedClient) -> Launch:
        """Over the listeners that every client uses."""
        return self._launch(planned, self._cluster.bootstrap_servers)

    def launch_observing(self, planned: PlannedClient, *, limit_s: float = 0.0) -> Launch:
        """Over the observer's listeners."""
        return self._launch(planned, self.observer_servers, limit_s=limit_s)

    def relaunch(self, planned: PlannedClient, client: int, name: str) -> Launch:
        """A new client in the place of a planned one."""
        # What it writes names the new one; what it is known by to Kafka stays: the instance of a group, a client.id.
        launch = self.launch(planned.model_copy(update={"client": client}))
        return launch.model_copy(
            update={"spec": launch.spec.model_copy(update={"name": name}), "planned": planned.client}
        )

    def _launch(self, planned: PlannedClient, servers: str, *, limit_s: float = 0.0) -> Launch:
        partitions = self._plan.partitions
        make = catalogue.resolve(catalogue.LAUNCHES, planned.role, what="role")
        settings: Settings = make(LaunchContext(plan=self._plan, planned=planned, servers=servers, limit_s=limit_s))
        late = sorted(self.absent.intersection(planned.partitions)) if planned.role in _GROWING else []
        spec = ClientSpec(
            client=planned.client,
            role=planned.role,
            name=planned.name,
            bootstrap_servers=servers,
            properties=settings.properties | self._statistics(planned),
            partitions=tuple((p, partitions[p].topic_name, partitions[p].number) for p in planned.partitions),
            rate_hz=planned.traffic.rate_hz if planned.role in SENDING else 0,
            value_bytes=planned.traffic.value_bytes,
            unacknowledged_max=planned.traffic.unacknowledged_max,
            options=settings.options | ({"late": late} if late else {}),
        )
        isolation = ISOLATION[planned.isolation_level] if planned.isolation_level else Isolation.NOT_A_READER
        return Launch(spec=spec, rows=self._run.rows, planned=planned.client, isolation=int(isolation))

    def _statistics(self, planned: PlannedClient) -> dict[str, int]:
        wanted = self._plan.metrics and planned.role not in OF_THE_AUDIT
        return {INTERVAL_PROPERTY: INTERVAL_MS} if wanted else {}
