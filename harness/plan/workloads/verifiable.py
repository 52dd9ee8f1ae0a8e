"""The verifiable workload: in each cell one verifiable producer and one verifiable consumer, Kafka's own or ours, and
tailing readers over all of them.

Records carry the identity that Kafka's tool gives them, `prefix.n`.
"""

from collections.abc import Sequence

from prozess.harness.config.configuration import Variant, version_numbers
from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.workloads.log import plan_readers


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, consumers, then one reader per isolation level over all cells. Both clients of a cell are of the
    kind `producer.client`."""
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


def why_no_share_groups(variant: Variant) -> str | None:
    """Returns why brokers of this variant have no share groups; None if they have."""
    if version_numbers(variant.oldest_version) >= (4, 2):
        return None
    return f"share groups need brokers of 4.2 or later, not {variant.oldest_version} (KIP-932)"


SHARE_CONSUMERS = 2
"""How many consumers of a cell share its partitions."""


def plan_share_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers as above, a share group of Kafka's own consumers in each cell, and one reader per isolation
    level."""
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
