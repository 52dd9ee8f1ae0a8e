"""The errors workload: in each cell a producer that provokes one error, beside records that are well, and tailing readers."""

from collections.abc import Sequence

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec
from harness.workload_plans.log import plan_readers


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """A producer per cell, then a reader per isolation level over all cells."""
    producers = [
        PlannedClient(
            client=0,
            role="errors-producer",
            name=f"producer-{cell.name}",
            partitions=cell.partitions,
            traffic=workload.traffic,
            producer=cell.producer,
            cell=cell.cell,
            provocation=cell.provocation,
        )
        for cell in cells
    ]
    return [*producers, *plan_readers(workload, cells, prefix)]
