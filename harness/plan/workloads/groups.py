"""The group, exactly-once and application workloads: producers write one topic of each cell, and a consumer group processes
what they write, or copies it to another topic.

The members of a copying group are copiers of prozess or of Kafka, or instances of your own application.
"""

from collections.abc import Sequence

from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.work import ApplicationWork, CopierWork, GroupWork, work_as
from prozess.harness.plan.workloads.log import plan_readers, plan_sources


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, tailing readers, the members of each cell's group, and the client that looks up the committed
    offsets in the end."""
    return [
        *plan_sources(workload, cells, partitions),
        *plan_readers(workload, cells, prefix),
        *(member for cell in cells for member in _members(cell)),
        plan_observer(cells, prefix),
    ]


def _members(cell: Cell) -> list[PlannedClient]:
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


def plan_copying_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, tailing readers of both topics, the copiers of each cell, and the clients that fence them and
    look up what they committed."""
    clients = [*plan_sources(workload, cells, partitions), *plan_readers(workload, cells, prefix)]
    for cell in cells:
        clients += _copiers(cell)
    if any(client.transactional_id for client in clients):
        every = tuple(p for cell in cells for p in cell.partitions)
        clients.append(PlannedClient(client=0, role="fencer", name=f"{prefix}fencer", partitions=every))
    return [*clients, plan_observer(cells, prefix)]


def plan_observer(cells: Sequence[Cell], prefix: str) -> PlannedClient:
    """Plans the client that looks up what the groups have committed in the end. It follows copying groups until they are
    done."""
    every = tuple(p for cell in cells for p in cell.partitions)
    return PlannedClient(client=0, role="observer", name=f"observer-{prefix}committed", partitions=every)


def _copiers(cell: Cell) -> list[PlannedClient]:
    """Plans the members of one cell's copying group. `instance` numbers them, and each transactional.id belongs to one
    place."""
    work = work_as(CopierWork, cell.work)
    copier = work.configuration
    return [
        PlannedClient(
            client=0,
            role="copier" if copier.client == "librdkafka" else "java-copier",
            name=f"copier-{cell.name}-{instance}",
            partitions=cell.partitions,
            producer=cell.producer,
            isolation_level="read_committed",
            cell=cell.cell,
            group_id=group_id_of(cell),
            transactional_id=f"{cell.topic_name}-copier-{instance}" if copier.transactional else None,
            work=work,
            instance=instance,
        )
        for instance in range(copier.members)
    ]


def plan_application_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, tailing readers of both topics, the instances of each cell's application, and the client that
    looks up what it committed."""
    instances = [client for cell in cells for client in _instances(cell)]
    return [
        *plan_sources(workload, cells, partitions),
        *plan_readers(workload, cells, prefix),
        *instances,
        plan_observer(cells, prefix),
    ]


def _instances(cell: Cell) -> list[PlannedClient]:
    work = work_as(ApplicationWork, cell.work)
    return [
        PlannedClient(
            client=0,
            role="application",
            name=f"application-{cell.name}-{instance}",
            partitions=cell.partitions,
            cell=cell.cell,
            group_id=group_id_of(cell),
            work=work,
            instance=instance,
        )
        for instance in range(work.configuration.instances)
    ]
