"""Makes the remote store of a generated cell with tiered storage: a segment for each stretch of a partition's log, but for
what was planted.

The first third of the log is in the store and in the first broker's own log, the second in the store and in those of two
brokers, and the last third in all of them. The last segment has no copy yet. What is planted as a gap is in the
second third, where one broker alone needs the store; twins are in the first, where one broker alone has a log of its own.
"""

from collections.abc import Iterator

import numpy as np

from prozess.exchange.synthetic.cells import (
    NODES,
    Columns,
    GeneratedCell,
    copies_read_ns,
    replicas,
    spots_of,
)
from prozess.exchange.synthetic.log import BATCH, GeneratedPartition
from prozess.exchange.synthetic.plants import NO_POSITIONS
from prozess.harness.errors import BadInput
from prozess.harness.schema import NONE, REMOTE_STORE, ObservationKind, RemoteState

SEGMENTS_MAX = 4096
BATCHES_MIN = 4
"""A segment has so many batches at least, so that one of them can be damaged."""
RECORD_BYTES = 100
"""What a record takes in a batch."""
GAPS = ("GONE", "DAMAGED", "UNFINISHED", "NEVER_COPIED", "TAKEN")
"""The cases of `remote-gap` in the order in which they are planted."""
TWIN_OFFSET = BATCH
"""The second batch of its segment has a twin, or is damaged."""


def segment_length(length: int) -> int:
    """Returns the number of positions of a segment of a log with so many."""
    return BATCH * max(BATCHES_MIN, -(-(length // BATCH) // SEGMENTS_MAX))


def local_from(log_length: int) -> dict[int, int]:
    """Returns node → the position with which its own log begins."""
    length = segment_length(log_length)
    third = log_length // length // 3 * length
    return dict(zip(NODES, (0, third, 2 * third), strict=True))


def plant_tiers(cell: GeneratedCell, rng: np.random.Generator) -> None:
    """Chooses the segments of what is planted: every other one of its third, so that no two gaps become one. BadInput if
    there is no room."""
    first = cell.partitions[0]
    length, begins = segment_length(first.length), local_from(first.length)
    for name, low, high in (
        ("remote-gap", begins[NODES[1]], begins[NODES[2]]),
        ("remote-conflict", 0, begins[NODES[1]]),
    ):
        room = np.arange(low, high - length + 1, 2 * length)
        count = cell.planted.get(name, 0)
        if count > len(room) * len(cell.partitions):
            raise BadInput(
                f"--plant {name}={count}: there are {len(room) * len(cell.partitions):,} segments for it. Plant fewer, or "
                "give more --rows."
            )
        where = np.sort(rng.choice(len(room) * len(cell.partitions), count, replace=False)) if count else NO_POSITIONS
        cell.spots[name] = [room[where[where // len(room) == rank] % len(room)] for rank in range(len(cell.partitions))]
    # Where a full segment is planted as not copied, the one before it stays whole: its end says what is missing.
    before = (first.length - 1) // length * length - 2 * length
    free = np.flatnonzero([before not in spots for spots in cell.spots["remote-gap"]])
    count = cell.planted.get("uncopied", 0)
    if count > len(free):
        raise BadInput(f"--plant uncopied={count}: there are {len(free)} partitions for it. Plant fewer.")
    cell.counts["uncopied"] = np.bincount(rng.choice(free, count, replace=False), minlength=len(cell.partitions))
    where = rng.integers(0, len(cell.partitions), cell.planted.get("remote-left", 0))
    cell.counts["remote-left"] = np.bincount(where, minlength=len(cell.partitions))


def gap_cases(cell: GeneratedCell, partition: GeneratedPartition) -> np.ndarray:
    """Returns int64: of each gap of this partition which of GAPS it is. They take turns over all partitions of the cell."""
    before = sum(len(spots) for spots in cell.spots["remote-gap"][: partition.rank])
    return (before + np.arange(len(spots_of(cell, "remote-gap", partition)))) % len(GAPS)


def gaps(cell: GeneratedCell, partition: GeneratedPartition) -> np.ndarray:
    """Returns the first position of each planted gap: of a damaged object what stands before the damage is there."""
    damaged = gap_cases(cell, partition) == GAPS.index("DAMAGED")
    return np.asarray(spots_of(cell, "remote-gap", partition) + np.where(damaged, TWIN_OFFSET, 0))


def twins(cell: GeneratedCell, partition: GeneratedPartition) -> tuple[np.ndarray, np.ndarray]:
    """Returns the position of each batch that has a twin, and bool: is the other one in the store, too? They take turns over
    all partitions of the cell."""
    spots = spots_of(cell, "remote-conflict", partition)
    before = sum(len(spots) for spots in cell.spots["remote-conflict"][: partition.rank])
    return spots + TWIN_OFFSET, (before + np.arange(len(spots))) % 2 == 0


def segments(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `remote_segments` of one partition."""
    length = segment_length(partition.length)
    first = np.arange(0, copied_to(cell, partition), length)
    state, whole = np.full(len(first), RemoteState.COPIED), first + length
    spots, cases = spots_of(cell, "remote-gap", partition), gap_cases(cell, partition)
    at = {name: np.searchsorted(first, spots[cases == number]) for number, name in enumerate(GAPS)}
    state[at["UNFINISHED"]], state[at["TAKEN"]] = RemoteState.COPYING, RemoteState.DELETED
    whole[at["DAMAGED"]] = first[at["DAMAGED"]] + TWIN_OFFSET
    for name in ("GONE", "UNFINISHED", "TAKEN"):
        whole[at[name]] = NONE
    damaged = np.zeros(len(first), dtype=np.int64)
    damaged[at["DAMAGED"]] = 1
    # What has a twin in the store was copied twice.
    position, twice = twins(cell, partition)
    again = np.searchsorted(first, position[twice] - TWIN_OFFSET)
    rows = np.concatenate([np.delete(np.arange(len(first)), at["NEVER_COPIED"]), again])
    return {
        "client": np.full(len(rows), NONE),
        "read_ns": copies_read_ns(cell),
        "segment_high": partition.partition,
        "segment_low": np.arange(len(rows)),
        "topic_id_high": 1,
        "topic_id_low": cell.cell,
        "first_offset": first[rows],
        "last_offset": first[rows] + length - 1,
        "whole_to": whole[rows],
        "size": length * RECORD_BYTES,
        "stored_size": np.where(whole[rows] == NONE, NONE, length * RECORD_BYTES),
        "copied_ms": np.arange(len(rows)),
        "changed_ms": np.arange(len(rows)),
        "partition": partition.partition,
        "node": NODES[0],
        "step": NONE,
        "state": state[rows],
        "current": 1,
        "damaged": damaged[rows],
    }


def copied_to(cell: GeneratedCell, partition: GeneratedPartition) -> int:
    """Returns the position behind the last segment that was copied: the last one is active, and the one before it may have
    been planted as not copied."""
    length = segment_length(partition.length)
    return (partition.length - 1) // length * length - length * int(cell.counts["uncopied"][partition.rank])


def leftover(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `remote_segments` of objects of a topic that had the name before."""
    count = int(cell.counts["remote-left"][partition.rank])
    length, number = segment_length(partition.length), np.arange(count)
    return {
        "client": np.full(count, NONE),
        "read_ns": copies_read_ns(cell),
        "segment_high": NONE,
        "segment_low": number,
        "topic_id_high": NONE - 1,
        "topic_id_low": cell.cell,
        "first_offset": number * length,
        "last_offset": (number + 1) * length - 1,
        "whole_to": (number + 1) * length,
        "size": length * RECORD_BYTES,
        "stored_size": length * RECORD_BYTES,
        "partition": partition.partition,
        "node": NODES[0],
        "state": RemoteState.COPIED,
        "current": 0,
        "damaged": 0,
    }


def store_read(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Yields the row of `observations` that says that the store was read to its end."""
    yield {
        "client": np.array([NONE]),
        "time_ns": copies_read_ns(cell),
        "value": copied_to(cell, partition),
        "partition": partition.partition,
        "kind": ObservationKind.REMOTE_STORE_READ,
        "step": NONE,
    }


def remote_batches(cell: GeneratedCell, partition: GeneratedPartition, first: int, last: int) -> Columns:
    """Returns rows of `replicas` of the store between two positions that begin batches."""
    length = segment_length(partition.length)
    rows = dict(replicas(cell, partition, REMOTE_STORE, first, last))
    base = np.asarray(rows["base_offset"])
    spots, damaged = spots_of(cell, "remote-gap", partition), gap_cases(cell, partition) == GAPS.index("DAMAGED")
    missing = np.isin(base // length, spots[~damaged] // length) | np.isin(base, spots[damaged] + TWIN_OFFSET)
    there = np.flatnonzero(~missing & (base < copied_to(cell, partition)))
    position, twice = twins(cell, partition)
    # The broker of the first third has the log as it was sent. Where both twins are in the store, one of them is right.
    again = np.flatnonzero(np.isin(base, position[twice]))
    changed = np.isin(base[there], position[~twice])
    checksum = np.asarray(rows["checksum"])
    at = np.concatenate([there, again])
    made = {name: values[at] if isinstance(values, np.ndarray) else values for name, values in rows.items()}
    made["checksum"] = np.concatenate([np.where(changed, checksum[there] ^ 1, checksum[there]), checksum[again] ^ 1])
    order = np.lexsort((made["checksum"], made["base_offset"]))
    return {name: values[order] if isinstance(values, np.ndarray) else values for name, values in made.items()}
