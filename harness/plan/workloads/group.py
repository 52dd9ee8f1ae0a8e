"""The group workload: producers as in the log workload, and in each cell a consumer group that processes what they
write."""

from collections.abc import Sequence

from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.work import GroupWork, work_as
from prozess.harness.plan.workloads.log import plan_readers, plan_sources


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, tailing readers, the members of each cell's group, and the client that looks up the committed
    offsets in the end."""
    observer = PlannedClient(
        client=0,
        role="observer",
        name=f"observer-{prefix}committed",
        partitions=tuple(p for cell in cells for p in cell.partitions),
    )
    return [
        *plan_sources(workload, cells, partitions),
        *plan_readers(workload, cells, prefix),
        *(member for cell in cells for member in plan_members(cell)),
        observer,
    ]


def plan_members(cell: Cell) -> list[PlannedClient]:
    """Plans the members of one cell's group. `instance` numbers them."""
    work = work_as(GroupWork, cell.work)
    group = work.configuration
    return [
        PlannedClient(
            client=0,
            role="member" if group.client == "librdkafka" else "java-member",
            name=f"member-{cell.name}-{instance}",
            partitions=cell.partitions,
            producer=cell.producer if group.hands_on else None,
            isolation_level=group.isolation_level,
            cell=cell.cell,
            work=work,
            group_id=group_id_of(cell),
            instance=instance,
            late=instance >= group.members - group.late_members,
        )
        for instance in range(group.members)
    ]


def group_id_of(cell: Cell) -> str:
    """Returns the group.id of a cell's group."""
    return f"prozess-{cell.topic_name}"
