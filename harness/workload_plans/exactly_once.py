"""The exactly-once workload: producers write one topic of each cell, and a copying group derives the other from it."""

from collections.abc import Sequence

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec
from harness.workload_plans.group import group_id_of
from harness.workload_plans.log import plan_producers, plan_readers


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


def plan_sources(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition]
) -> list[PlannedClient]:
    """The producers of the written topics, by where identity is to travel."""
    clients: list[PlannedClient] = []
    for carrier, role in (("value", "producer"), ("header", "text-producer")):
        chosen = [cell for cell in cells if cell.carriers[0] == carrier]
        clients += plan_producers(workload, chosen, partitions, role=role)
    return clients


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
