"""The compaction workload: keyed upserts and tombstones on compacted topics, and tailing readers."""

from collections.abc import Sequence
from itertools import groupby

from harness.plan import Cell, PlannedClient, PlannedPartition
from harness.trial import WorkloadSpec
from harness.workload_plans.log import plan_readers


def plan_clients(
    workload: WorkloadSpec, cells: Sequence[Cell], partitions: Sequence[PlannedPartition], prefix: str
) -> list[PlannedClient]:
    """A keyed producer per configuration and fate, then a reader per isolation level over all cells."""

    def fate(cell: Cell) -> str:
        assert cell.compaction is not None, cell
        placement = [partitions[p].assignment for p in cell.partitions]
        mine = (cell.producer, cell.topic, cell.compaction)
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
                compaction=served[0].compaction,
            )
        )
    return [*producers, *plan_readers(workload, cells, prefix)]
