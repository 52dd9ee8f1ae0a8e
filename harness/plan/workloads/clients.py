"""Plans the clients of each kind of workload that comes with prozess.

`WorkloadKind` says what a kind of workload is. Then come the log, compaction, errors and transactions workloads: producers
write the topic of each cell, and tailing readers read all topics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from prozess.harness.config.configuration import Variant, version_numbers
from prozess.harness.config.partitioners import second_producer
from prozess.harness.plan.cell_work import (
    ApplicationWork,
    CompactionWork,
    ConsumerWork,
    CopierWork,
    ErrorsWork,
    GroupWork,
    TransactionsWork,
    work_as,
)
from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec

ClientPlanner = Callable[[WorkloadSpec, Sequence[Cell], Sequence[PlannedPartition], str], Sequence[PlannedClient]]
"""Plans the clients of a workload: (workload, its cells, all partitions of the trial, prefix of names) → clients. Their
ids are given afterwards."""
OwnScope = Literal[
    "group", "share_group", "transaction", "compaction", "provocation", "consumer", "copier", "application"
]
"""The scopes of `prozess.harness.plan.axes.SCOPES` of which a kind of workload has one at most."""


def _anywhere(variant: Variant) -> str | None:
    """Returns None: most kinds of workload run on every cluster."""
    return None


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload: which clients it has, and which settings its cells have."""

    plan_clients: ClientPlanner
    own: OwnScope | None = None
    """The configuration that each cell has besides topic and producer, as `base` and `axes` of a trial name it."""
    topics_may_grow: bool = False
    """A step may add partitions to its topics."""
    library_partitions: bool = False
    """Its producers send keys, and leave the choice of a partition to their library."""
    topics_may_join: bool = False
    """A step may give its clients a second topic, which they find by themselves."""
    topics_may_end: bool = False
    """A step may delete its topics and make them again."""
    why_not_here: Callable[[Variant], str | None] = _anywhere
    """Returns why this kind of workload cannot run on a cluster of that variant; None if it can."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """Returns the configurations of each cell, as `base` and `axes` of a trial name them."""
        return ("topic", "producer") if self.own is None else ("topic", "producer", self.own)


def plan_log_clients(
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
    transactors = [client for cell in cells for client in plan_transactors(workload, cell)]
    return [*transactors, *plan_readers(workload, cells, prefix), plan_fencer(cells, prefix)]


def plan_fencer(cells: Sequence[Cell], prefix: str) -> PlannedClient:
    """Plans the client that fences every transactional.id of these cells in the end."""
    partitions = tuple(p for cell in cells for p in cell.partitions)
    return PlannedClient(client=0, role="fencer", name=f"{prefix}fencer", partitions=partitions)


def plan_transactors(workload: WorkloadSpec, cell: Cell) -> list[PlannedClient]:
    """Plans the transactional producers of one cell. `instance` 0 works from the start; 1 stands by. A transactional.id
    belongs to its cell."""
    assert cell.transaction is not None, cell
    transaction = cell.transaction
    work = TransactionsWork(configuration=transaction)
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


# The group, exactly-once and application workloads: producers write one topic of each cell, and a consumer group
# processes what they write, or copies it to another topic. The members of a copying group are copiers of prozess or of
# Kafka, or instances of your own application.


def plan_group_clients(
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


# The verifiable workload: in each cell one verifiable producer and one verifiable consumer, Kafka's own or ours, and
# tailing readers over all of them. Records carry the identity that Kafka's tool gives them, `prefix.n`.


def plan_verifiable_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """Plans producers, consumers, then one reader per isolation level over all cells. Both clients of a cell are of the
    kind `producer.client`, unless one of them is a program of yours."""
    works = {cell.cell: work_as(ConsumerWork, cell.work) for cell in cells}
    producers = _verifiable_producers(workload, cells)
    consumers = [
        client.model_copy(
            update={
                "role": "verifiable-consumer",
                "name": client.name.replace("producer-", "consumer-", 1),
                "isolation_level": "read_committed",
                "group_id": f"prozess-{partitions[client.partitions[0]].topic_name}",
                "work": works[client.cell],
            }
        )
        for client in producers
        if client.cell is not None and not client.instance
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
    """Plans verifiable producers, a share group of Kafka's own consumers in each cell, and one reader per isolation
    level."""
    producers = _verifiable_producers(workload, cells)
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
        if not client.instance
        for instance in range(SHARE_CONSUMERS)
    ]
    return [*producers, *consumers, *plan_readers(workload, cells, prefix)]


def _verifiable_producers(workload: WorkloadSpec, cells: Sequence[Cell]) -> list[PlannedClient]:
    return [
        PlannedClient(
            client=0,
            role="verifiable-producer",
            name=f"producer-{cell.name}{'-beside' if instance else ''}",
            partitions=cell.partitions,
            traffic=workload.traffic,
            producer=producer,
            cell=cell.cell,
            instance=instance,
        )
        for cell in cells
        for instance, producer in enumerate((cell.producer, second_producer(cell.producer)))
        if producer is not None
    ]
