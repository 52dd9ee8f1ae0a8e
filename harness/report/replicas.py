"""What each replica had at each `inspect` of a schedule, as tables for a person: from the replicas' own files."""

from collections.abc import Mapping

import numpy as np

from harness.history import History
from harness.plan import Plan
from harness.schedule import Inspect
from harness.schema import NONE, ObservationKind

PARTITIONS_SHOWN = 16
_AT_THE_END = "at the end, after the audit"
Columns = Mapping[str, np.ndarray]


def replica_lines(plan: Plan, history: History) -> list[str]:
    """Markdown; empty for a schedule that inspects nothing."""
    looks = {number: step.name for number, step in enumerate(plan.steps) if isinstance(step.do, Inspect)}
    if not looks:
        return []
    observations, replicas = history.table("observations"), history.table("replicas")
    out = ["", "## What each replica had", "", "By its own segments and `leader-epoch-checkpoint`.", ""]
    brokers = plan.broker_ids
    for step, name in {**looks, NONE: _AT_THE_END}.items():
        out += [f"**{name}**", "", "| partition | " + " | ".join(f"broker-{b}" for b in brokers) + " |"]
        out += ["|" + "---|" * (len(brokers) + 1)]
        for planned in plan.partitions[:PARTITIONS_SHOWN]:
            had = [_copy(observations, replicas, step, planned.partition, broker) for broker in brokers]
            out.append(f"| {planned.topic_name}-{planned.number} | " + " | ".join(had) + " |")
        out.append("")
    left_out = len(plan.partitions) - PARTITIONS_SHOWN
    return [*out, f"{left_out} more partitions are in the table `replicas`."] if left_out > 0 else out[:-1]


def _copy(observations: Columns, replicas: Columns, step: int, partition: int, node: int) -> str:
    """One copy in a few words."""
    mine = _rows(observations, step, partition, node)
    kinds, values = observations["kind"][mine], observations["value"][mine]
    ends = values[kinds == ObservationKind.REPLICA_LOG_END]
    if not len(ends):
        return "not read"
    starts = kinds == ObservationKind.REPLICA_EPOCH_START
    epochs = sorted(zip(observations["leader_epoch"][mine][starts].tolist(), values[starts].tolist(), strict=True))
    batches = _rows(replicas, step, partition, node)
    last = f"last batch {_batch(replicas, int(batches[-1]))}, " if len(batches) else ""
    told = ", ".join(f"{epoch} from {start}" for epoch, start in epochs)
    return f"ends at {int(ends[0])}, {last}epochs {told or 'none'}"


def _batch(replicas: Columns, row: int) -> str:
    checksum = int(replicas["checksum"][row])
    return f"{int(replicas['base_offset'][row])} of epoch {int(replicas['leader_epoch'][row])} (crc {checksum:08x})"


def _rows(table: Columns, step: int, partition: int, node: int) -> np.ndarray:
    return np.flatnonzero((table["step"] == step) & (table["partition"] == partition) & (table["node"] == node))
