"""The exactly-once workload: producers write one topic of each cell, and a copying group derives the other from it."""

from collections.abc import Sequence

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec
from harness.workload_plans.group import group_id_of
from harness.workload_plans.log import plan_readers, plan_sources


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Producers, tailing readers of both topics, the copiers of each cell; who fences them and looks up what they
    committed."""
    clients = [*plan_sources(workload, cells, partitions), *plan_readers(workload, cells, prefix)]
    for cell in cells:
        clients += _copiers(cell)
    if any(client.transactional_id for client in clients):
        every = tuple(p for cell in cells for p in cell.partitions)
        clients.append(PlannedClient(client=0, role="fencer", name=f"{prefix}fencer", partitions=every))
    return [*clients, plan_observer(cells, prefix)]


def plan_observer(cells: Sequence[Cell], prefix: str) -> PlannedClient:
    """Who follows the copying groups until they are done, and looks up what they have committed in the end."""
    every = tuple(p for cell in cells for p in cell.partitions)
    return PlannedClient(client=0, role="observer", name=f"observer-{prefix}committed", partitions=every)


def _copiers(cell: Cell) -> list[PlannedClient]:
    """The members of one cell's copying group; `instance` numbers them. A transactional.id is bound to its place."""
    copier = cell.copier
    assert copier is not None, cell
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
            copier=copier,
            instance=instance,
        )
        for instance in range(copier.members)
    ]
