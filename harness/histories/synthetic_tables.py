"""The tables of generated cells beside sends and reads: groups, controllers' log, samples, replicas. A few rows each, or one
per batch."""

from collections.abc import Iterator

import numpy as np

from harness.histories.synthetic_cells import SHORT_AFTER_NS, GeneratedCell
from harness.histories.synthetic_layout import BATCH, STEP_NS
from harness.histories.synthetic_log import LATENCY_MIN_NS, READ_AFTER_NS, GeneratedPartition
from harness.histories.synthetic_plants import NO_POSITIONS
from harness.schema import NONE, Isolation, MetadataKind, MetadataSource, ObservationKind, Outcome

Columns = dict[str, np.ndarray | int]
NODES = (1, 2, 3)
CONTROLLERS = (3001, 3002)
ASSIGN, REVOKE, CLOSE = 1, 2, 4
ASSIGNED, SYNC = 1, 1
ALL = sum(1 << node for node in NODES)
FIRST_NS = -3_000_000
SECOND_NS = 1_000_000_000


def owner_of(cell: GeneratedCell, partition: GeneratedPartition) -> int:
    """The member that owns a partition."""
    return int(cell.readers[partition.rank % len(cell.readers)])


def _spots(cell: GeneratedCell, name: str, partition: GeneratedPartition) -> np.ndarray:
    return cell.spots.get(name, [NO_POSITIONS] * len(cell.partitions))[partition.rank]


def processed(cell: GeneratedCell, partition: GeneratedPartition, first: int, last: int) -> Columns:
    """Rows of `processed` of the records between two positions."""
    position = np.arange(first, last)
    position = position[~np.isin(position, _spots(cell, "unprocessed", partition))]
    again = _spots(cell, "reprocessed", partition)
    again = again[(again >= first) & (again < last)]
    position = np.sort(np.concatenate([position, again]))
    sender, sequence = partition.identities(position)
    started = position * STEP_NS + READ_AFTER_NS + 100
    return {
        "client": np.full(len(position), owner_of(cell, partition)),
        "started_ns": started,
        "done_ns": started + 100,
        "log_offset": partition.offsets(position),
        "sequence": sequence,
        "sender": sender,
        "partition": partition.partition,
        "group": cell.cell,
        "span": 0,
    }


def commits(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Rows of `commits`: one behind each batch, and what was planted."""
    last = np.arange(BATCH - 1, partition.length, BATCH)
    batch = last // BATCH
    ahead = np.isin(batch, _spots(cell, "commit-ahead", partition) // BATCH)
    yield _commit(cell, partition, last, behind=0, position_behind=ahead.astype(np.int64), later_ns=0)
    fell = _spots(cell, "commit-regression", partition) // BATCH * BATCH + BATCH - 1
    planted = _commit(
        cell, partition, fell, behind=BATCH // 2, position_behind=np.zeros(len(fell), "i8"), later_ns=LATENCY_MIN_NS + 1
    )
    # Done before the next batch's commit is: one that may be written later would explain the next that falls.
    yield planted | {"completed_ns": planted["invoked_ns"] + STEP_NS}


def _commit(
    cell: GeneratedCell,
    partition: GeneratedPartition,
    last: np.ndarray,
    *,
    behind: int,
    position_behind: np.ndarray,
    later_ns: int,
) -> Columns:
    offset = partition.offsets(last) + 1
    invoked = last * STEP_NS + READ_AFTER_NS + 1_000_000 + later_ns
    return {
        "client": np.full(len(last), owner_of(cell, partition)),
        "invoked_ns": invoked,
        "completed_ns": invoked + LATENCY_MIN_NS,
        "log_offset": offset - behind,
        "position": offset - position_behind,
        "partition": partition.partition,
        "group": cell.cell,
        "outcome": Outcome.OK,
        "code": 0,
        "mode": SYNC,
    }


def assignments(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Rows of `assignments`: its owner's, and those of a second one where that was planted."""
    drain_ns, orphaned = cell.end_ns + SECOND_NS, bool(cell.counts["orphaned"][partition.rank])
    ends_ns, event = (drain_ns - SECOND_NS // 2, REVOKE) if orphaned else (drain_ns + SECOND_NS, CLOSE)
    yield _callbacks(cell, partition, owner_of(cell, partition), np.array([[FIRST_NS, ASSIGN], [ends_ns, event]]))
    other = int(cell.readers[(partition.rank + 1) % len(cell.readers)])
    begin = _spots(cell, "two-owners", partition) * STEP_NS
    events = np.concatenate([np.stack([begin, np.full_like(begin, ASSIGN)], axis=1)] * 2)
    events[len(begin) :, 0] += 2 * STEP_NS
    events[len(begin) :, 1] = REVOKE
    yield _callbacks(cell, partition, other, events[np.argsort(events[:, 0], kind="stable")])


def _callbacks(cell: GeneratedCell, partition: GeneratedPartition, client: int, events: np.ndarray) -> Columns:
    return {
        "client": np.full(len(events), client),
        "started_ns": events[:, 0],
        "done_ns": events[:, 0] + 10,
        "partition": partition.partition,
        "group": cell.cell,
        "event": events[:, 1],
        "incremental": 0,
    }


def positions(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """The first position of the group."""
    return {
        "client": np.array([owner_of(cell, partition)]),
        "time_ns": FIRST_NS + 10,
        "log_offset": 0,
        "partition": partition.partition,
        "event": ASSIGNED,
        "span": 0,
    }


def observations(cell: GeneratedCell, partition: GeneratedPartition, audits: dict[Isolation, int]) -> Iterator[Columns]:
    """That the audits were complete, that members drained, and planted answers of leaders."""
    number = partition.partition
    for isolation, client in audits.items():
        yield {
            "client": np.array([client]),
            "time_ns": cell.audit_ns + 2 * SHORT_AFTER_NS + partition.end,
            "value": partition.end,
            "partition": number,
            "kind": ObservationKind.AUDIT_COMPLETE,
            "isolation": isolation,
        }
    if cell.kind == "group":
        yield {
            "client": np.array([owner_of(cell, partition)]),
            "time_ns": cell.end_ns + SECOND_NS,
            "value": 1000,
            "partition": number,
            "kind": ObservationKind.DRAIN_BEGUN,
        }
        return
    if cell.kind == "log":
        fallen = int(cell.counts["watermark-regression"][partition.rank])
        answer = np.arange(1, fallen + 1)
        value = np.stack([answer * 100, answer * 100 - 1], axis=1).ravel()
        yield {
            "client": np.full(len(value), NONE),
            "time_ns": np.arange(len(value)) * STEP_NS,
            "value": value,
            "partition": number,
            "kind": ObservationKind.LEADER_HIGH_WATERMARK,
            "node": NODES[0],
            "leader_epoch": 0,
        }


def copies(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """What the copies of a partition said of themselves at the end."""
    for kind, value in (
        (ObservationKind.REPLICA_LOG_START, 0),
        (ObservationKind.REPLICA_LOG_END, partition.end + 1),
        (ObservationKind.REPLICA_HIGH_WATERMARK, partition.end + 1),
    ):
        yield {
            "client": np.full(len(NODES), NONE),
            "time_ns": cell.audit_ns + 3 * SHORT_AFTER_NS,
            "value": value,
            "partition": partition.partition,
            "kind": kind,
            "node": np.array(NODES),
        }


def replicas(cell: GeneratedCell, partition: GeneratedPartition, node: int, first: int, last: int) -> Columns:
    """Rows of `replicas` of one copy between two positions that begin batches."""
    size = partition.layout.batch
    begin = np.arange(first, last, size)
    producer = partition.producers[partition.layout.producer(begin)]
    checksum = begin * 1_000_003 % (1 << 31)
    if node == NODES[-1]:
        checksum = np.where(
            np.isin(begin // BATCH, _spots(cell, "diverged", partition) // BATCH), checksum ^ 1, checksum
        )
    return {
        "client": np.full(len(begin), NONE),
        "read_ns": cell.audit_ns + 3 * SHORT_AFTER_NS,
        "base_offset": partition.offsets(begin),
        "last_offset": partition.offsets(begin + size - 1),
        "producer_id": producer,
        "checksum": checksum,
        "base_timestamp_ms": begin // 1000,
        "max_timestamp_ms": (begin + size) // 1000,
        "partition": partition.partition,
        "node": node,
        "leader_epoch": 0,
        "producer_epoch": 0,
        "base_sequence": begin % (1 << 31),
        "records": size,
        "size": 100 * size,
        "attributes": 0,
    }


def metadata(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Who led and who was in sync; and what brokers told, where that was planted to go back."""
    counts = {n: int(c[partition.rank]) for n, c in cell.counts.items()}
    yield _states(partition, [(FIRST_NS, NODES[0], ALL), *_elections(cell, counts)])
    told = counts.get("epoch-regression", 0)
    yield {
        "client": np.full(2 * told, NONE),
        "time_ns": np.arange(2 * told) * STEP_NS,
        "kind": MetadataKind.PARTITION,
        "source": MetadataSource.SAMPLE,
        "partition": partition.partition,
        "node": NODES[1],
        "leader": NODES[0],
        "leader_epoch": np.tile([8, 7], told),
        "isr": ALL,
        "replicas": ALL,
        "elr": 0,
        "last_known_elr": 0,
        "recovering": 0,
    }


def _elections(cell: GeneratedCell, counts: dict[str, int]) -> Iterator[tuple[int, int, int]]:
    """(when, leader, ISR): leaders from outside the ISR in turn, then an ISR of the leader alone for a while."""
    leader, now_ns = NODES[0], cell.end_ns
    for _ in range(counts.get("unclean", 0)):
        other = NODES[0] + NODES[1] - leader
        yield now_ns + 1, leader, ALL & ~(1 << other)
        yield now_ns + 2, other, ALL
        leader, now_ns = other, now_ns + STEP_NS
    if counts.get("under-acknowledged", 0):
        yield cell.end_ns + SHORT_AFTER_NS, leader, 1 << leader
        yield cell.end_ns + 3 * SHORT_AFTER_NS, leader, ALL


def _states(partition: GeneratedPartition, states: list[tuple[int, int, int]]) -> Columns:
    time_ns, leader, isr = np.array(states, dtype=np.int64).T
    return {
        "client": np.full(len(states), NONE),
        "time_ns": time_ns,
        "kind": MetadataKind.PARTITION,
        "source": MetadataSource.CONTROLLER_LOG,
        "log_position": partition.partition + np.arange(len(states)) * (1 << 20),
        "partition": partition.partition,
        "node": leader,
        "leader": leader,
        "leader_epoch": np.cumsum(np.diff(leader, prepend=leader[0]) != 0),
        "isr": isr,
        "replicas": ALL,
        "elr": 0,
        "last_known_elr": 0,
        "recovering": 0,
    }


def controllers(planted: int) -> Columns:
    """Who became the active controller: one in epoch 1, and two in each epoch that was planted so."""
    epochs = np.concatenate([[1], np.repeat(np.arange(2, planted + 2), 2)])
    node = np.concatenate([[CONTROLLERS[0]], np.tile(CONTROLLERS, planted)])
    return {
        "client": np.full(len(node), NONE),
        "time_ns": FIRST_NS + np.arange(len(node)),
        "log_position": np.arange(len(node)),
        "kind": MetadataKind.CONTROLLER,
        "source": MetadataSource.CONTROLLER_LOG,
        "node": node,
        "leader_epoch": epochs,
    }
