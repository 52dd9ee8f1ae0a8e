"""The log, compaction, errors and transactions workloads: producers write the topic of each cell, and tailing readers read
all topics."""

from collections.abc import Sequence
from itertools import groupby

from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.work import CompactionWork, ErrorsWork, TransactionsWork, work_as


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, then one reader per isolation level over all cells."""
    return [*plan_producers(workload, cells, partitions), *plan_readers(workload, cells, prefix)]


def plan_producers(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], *, role: str = "producer"
) -> list[PlannedClient]:
    """Plans one producer (or `traffic.producers` of them) per configuration and fate. It serves every cell that shares
    both.

    The fate is what may keep a partition from taking records: where its replicas are, and what the topic asks of them.
    When the topic is flushed is not part of it.
    """

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
    """Plans the producers of the written topics, by where their records carry their identity."""
    clients: list[PlannedClient] = []
    for carrier, role in (("value", "producer"), ("header", "text-producer")):
        chosen = [cell for cell in cells if cell.carriers[0] == carrier]
        clients += plan_producers(workload, chosen, partitions, role=role)
    return clients


def plan_readers(workload: WorkloadSpec, cells: Sequence[Cell], prefix: str) -> list[PlannedClient]:
    """Plans one tailing reader at each isolation level of the workload. It reads the partitions that are there from the
    start."""
    mine = tuple(p for cell in cells for p in cell.partitions if p not in cell.late_partitions)
    return [
        PlannedClient(client=0, role="reader", name=f"reader-{prefix}{level}", partitions=mine, isolation_level=level)
        for level in workload.isolation_levels
    ]


def plan_compaction_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans a producer of keyed records per configuration and fate, then one reader per isolation level over all
    cells."""

    def fate(cell: Cell) -> str:
        placement = [partitions[p].assignment for p in cell.partitions]
        mine = (cell.producer, cell.topic, work_as(CompactionWork, cell.work))
        return f"{' '.join(part.model_dump_json() for part in mine)} {placement}"

    producers = []
    for _, group in groupby(sorted(cells, key=fate), key=fate):
        served = tuple(group)
        producers.append(
            PlannedClient(
                client=0,
                role="keyed-producer",
                name=f"producer-{served[0].name}",
                partitions=tuple(sorted(p for cell in served for p in cell.partitions)),
                traffic=workload.traffic,
                producer=served[0].producer,
                work=work_as(CompactionWork, served[0].work),
            )
        )
    return [*producers, *plan_readers(workload, cells, prefix)]


def plan_errors_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans one producer per cell, then one reader per isolation level over all cells."""
    producers = [
        PlannedClient(
            client=0,
            role="errors-producer",
            name=f"producer-{cell.name}",
            partitions=cell.partitions,
            traffic=workload.traffic,
            producer=cell.producer,
            cell=cell.cell,
            work=work_as(ErrorsWork, cell.work),
        )
        for cell in cells
    ]
    return [*producers, *plan_readers(workload, cells, prefix)]


def plan_transactions_clients(
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
    work = work_as(TransactionsWork, cell.work)
    transaction = work.configuration
    return [
        PlannedClient(
            client=0,
            role="transactor",
            name=f"{'standby' if instance else 'transactor'}-{cell.name}-{number}",
            partitions=cell.partitions,
            traffic=workload.traffic,
            producer=cell.producer,
            cell=cell.cell,
            isolation_level=None if transaction.reads == "none" else transaction.reads,
            work=work,
            transactional_id=f"{cell.topic_name}-{number}",
            instance=instance,
            number=number + 1,
        )
        for number in range(transaction.transactional_ids)
        for instance in range(1 + transaction.standby)
    ]
