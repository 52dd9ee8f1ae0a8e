"""The log workload: pipelined producers and tailing readers on every cell."""

from collections.abc import Sequence
from itertools import groupby

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Producers, then a reader per isolation level over all cells."""
    return [*plan_producers(workload, cells, partitions), *plan_readers(workload, cells, prefix)]


def plan_producers(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], *, role: str = "producer"
) -> list[PlannedClient]:
    """One producer (or `traffic.producers` alike) per configuration and fate: it serves every cell that shares both. Fate is
    what may keep a partition from taking records: where its copies are, and what the topic asks of them; not when it is
    flushed."""

    def fate(cell: Cell) -> str:
        placement = [partitions[p].assignment for p in cell.written]
        asked = cell.topic.model_dump_json(exclude={"flush_messages"})
        return f"{cell.producer.model_dump_json()} {asked} {placement}"

    producers = []
    for _, group in groupby(sorted(cells, key=fate), key=fate):
        served = tuple(group)
        producers += [
            PlannedClient(
                client=0,
                role=role,
                name=f"producer-{served[0].name}" + (f"-{number}" if number > 1 else ""),
                partitions=tuple(sorted(p for cell in served for p in cell.written)),
                traffic=workload.traffic,
                producer=served[0].producer,
                number=number,
            )
            for number in range(1, workload.traffic.producers + 1)
        ]
    return producers


def plan_sources(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition]
) -> list[PlannedClient]:
    """The producers of the written topics, by where identity is to travel."""
    clients: list[PlannedClient] = []
    for carrier, role in (("value", "producer"), ("header", "text-producer")):
        chosen = [cell for cell in cells if cell.carriers[0] == carrier]
        clients += plan_producers(workload, chosen, partitions, role=role)
    return clients


def plan_readers(workload: WorkloadSpec, cells: Sequence[Cell], prefix: str) -> list[PlannedClient]:
    """One tailing reader at each isolation level of the workload, of the partitions that are there from the start."""
    mine = tuple(p for cell in cells for p in cell.partitions if p not in cell.late_partitions)
    return [
        PlannedClient(client=0, role="reader", name=f"reader-{prefix}{level}", partitions=mine, isolation_level=level)
        for level in workload.isolation_levels
    ]
