"""The application workload: producers write one topic of each cell, and a process of the user's derives the other from it."""

from collections.abc import Sequence

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec
from harness.workload_plans.exactly_once import plan_observer
from harness.workload_plans.group import group_id_of
from harness.workload_plans.log import plan_readers, plan_sources


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Producers, tailing readers of both topics, the instances of each cell's application, and who looks up what it
    committed."""
    instances = [client for cell in cells for client in _instances(cell)]
    return [
        *plan_sources(workload, cells, partitions),
        *plan_readers(workload, cells, prefix),
        *instances,
        plan_observer(cells, prefix),
    ]


def _instances(cell: Cell) -> list[PlannedClient]:
    application = cell.application
    assert application is not None, cell
    return [
        PlannedClient(
            client=0,
            role="application",
            name=f"application-{cell.name}-{instance}",
            partitions=cell.partitions,
            cell=cell.cell,
            group_id=group_id_of(cell),
            application=application,
            instance=instance,
        )
        for instance in range(application.instances)
    ]
