"""The verifiable workload: in each cell one verifiable producer and one verifiable consumer, Kafka's own or ours, and tailing
readers over all of them. Records carry a foreign identity, `prefix.n`."""

from collections.abc import Sequence

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec
from harness.workload_plans.log import plan_readers


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Producers, consumers, then a reader per isolation level over all cells. Both of a cell are of `producer.client`."""
    producers = _producers(workload, cells)
    consumers = [
        client.model_copy(
            update={
                "role": "verifiable-consumer",
                "name": client.name.replace("producer-", "consumer-", 1),
                "isolation_level": "read_committed",
                "group_id": f"prozess-{partitions[client.partitions[0]].topic_name}",
            }
        )
        for client in producers
    ]
    return [*producers, *consumers, *plan_readers(workload, cells, prefix)]


SHARE_CONSUMERS = 2
"""Per cell: they share its partitions."""


def plan_share_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Producers as above; in each cell a share group of Kafka's own consumers; a reader per isolation level."""
    producers = _producers(workload, cells)
    consumers = [
        client.model_copy(
            update={
                "role": "verifiable-share-consumer",
                "name": f"{client.name.replace('producer-', 'sharer-', 1)}-{instance}",
                "isolation_level": "read_uncommitted",
                "group_id": f"prozess-share-{partitions[client.partitions[0]].topic_name}",
                "instance": instance,
            }
        )
        for client in producers
        for instance in range(SHARE_CONSUMERS)
    ]
    return [*producers, *consumers, *plan_readers(workload, cells, prefix)]


def _producers(workload: WorkloadSpec, cells: Sequence[Cell]) -> list[PlannedClient]:
    return [
        PlannedClient(
            client=0,
            role="verifiable-producer",
            name=f"producer-{cell.name}",
            partitions=cell.partitions,
            traffic=workload.traffic,
            producer=cell.producer,
            cell=cell.cell,
        )
        for cell in cells
    ]
