"""The transactions workload: transactional producers on every cell, readers at both isolation levels, and a client that
fences."""

from collections.abc import Sequence

from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.workloads.log import plan_readers


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans a transactional producer for each transactional.id of a cell and, where asked for, another that may take it
    over; then one reader per isolation level, and the client that fences all these ids."""
    transactors = [client for cell in cells for client in _transactors(workload, cell)]
    fencer = PlannedClient(
        client=0,
        role="fencer",
        name=f"{prefix}fencer",
        partitions=tuple(p for cell in cells for p in cell.partitions),
    )
    return [*transactors, *plan_readers(workload, cells, prefix), fencer]


def _transactors(workload: WorkloadSpec, cell: Cell) -> list[PlannedClient]:
    """Plans the transactional producers of one cell. `instance` 0 works from the start; 1 stands by. A transactional.id
    belongs to its cell."""
    assert cell.transaction is not None, cell
    return [
        PlannedClient(
            client=0,
            role="transactor",
            name=f"{'standby' if instance else 'transactor'}-{cell.name}-{number}",
            partitions=cell.partitions,
            traffic=workload.traffic,
            producer=cell.producer,
            cell=cell.cell,
            isolation_level=None if cell.transaction.reads == "none" else cell.transaction.reads,
            transaction=cell.transaction,
            transactional_id=f"{cell.topic_name}-{number}",
            instance=instance,
            number=number + 1,
        )
        for number in range(cell.transaction.transactional_ids)
        for instance in range(1 + cell.transaction.standby)
    ]
