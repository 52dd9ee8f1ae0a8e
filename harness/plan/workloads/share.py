"""Plans the clients of the share workload: producers, tailing readers, and the members of a share group in each cell."""

from collections.abc import Sequence

from prozess.harness.plan.cell_work import ShareWork, work_as
from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.workloads.clients import (
    group_id_of,
    plan_fencer,
    plan_producers,
    plan_readers,
    plan_transactors,
)


def plan_sharing_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, transactional where transactions are to abort, tailing readers at each isolation level, and the
    members of each cell's share group (KIP-932)."""
    transactional = [cell for cell in cells if cell.transaction is not None]
    return [
        *plan_producers(workload, [cell for cell in cells if cell.transaction is None], partitions),
        *(client for cell in transactional for client in plan_transactors(workload, cell)),
        *([plan_fencer(transactional, prefix)] if transactional else []),
        *plan_readers(workload, cells, prefix),
        *(member for cell in cells for member in _members(cell)),
    ]


def _members(cell: Cell) -> list[PlannedClient]:
    """Plans the members of one cell's share group. `instance` numbers them."""
    work = work_as(ShareWork, cell.work)
    share = work.configuration
    return [
        PlannedClient(
            client=0,
            role="share-member",
            name=f"sharer-{cell.name}-{instance}",
            partitions=cell.partitions,
            isolation_level=share.isolation_level,
            cell=cell.cell,
            work=work,
            group_id=group_id_of(cell),
            instance=instance,
            late=instance >= share.members - share.late_members,
        )
        for instance in range(share.members)
    ]
