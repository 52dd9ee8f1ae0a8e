"""The part of the model of Kafka that knows what lies on the brokers' disks: batches of each copy, and producer snapshots.

Copies are written alike, batch by batch; each may have lost its beginning to retention, and lack what is above the high
watermark. A broker keeps the state of each producer as ProducerStateManager does, and writes it down now and then.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from prozess.harness.interfaces.checking import CopyFacts
from prozess.harness.schema import NONE, ObservationKind
from tests.support.cells.partitions import PARTITION

NODES = (1, 2, 3)
TRANSACTIONAL, MARKER = 0x10, 0x30
BATCH_MAX = 3
Row = dict[str, int]
Record = tuple[int, int, bool]
"""Offset, client, is it a transaction's?"""
_PLAIN = {"producer_id": NONE, "producer_epoch": NONE, "base_sequence": NONE, "attributes": 0}
_STATE = {
    "last_sequence": NONE,
    "last_offset": NONE,
    "offset_delta": 0,
    "transaction_offset": NONE,
    "coordinator_epoch": NONE,
}


@dataclass
class Disks:
    """What was read of them at the end, as rows that can still be changed."""

    copies: dict[int, CopyFacts]
    batches: list[Row]
    snapshots: list[Row]
    noted: list[Row]
    """Rows of `observations`: which snapshots there are."""
    below: int
    """Copies are the same below this offset."""
    touched: set[int] = field(default_factory=set)
    """Base offsets of batches that somebody has changed."""
    spoiled: set[int] = field(default_factory=set)
    """Nodes whose copies somebody has changed."""
    renumbered: bool = False
    """A producer's sequence has a gap."""


def write_disks(records: Sequence[Record], idempotent: Iterable[int], high_watermark: int, rng: random.Random) -> Disks:
    """The copies of a log. `idempotent`: clients whose batches carry a producer id, which is theirs. Offsets without a
    record may hold markers of transactions."""
    batches = _batches(records, set(idempotent), rng)
    snapshots = _snapshots(batches, rng)
    disks = Disks({}, [], [], [], below=high_watermark)
    for node in NODES:
        beyond = sum(b["base_offset"] >= high_watermark for b in batches)
        kept = batches[: len(batches) - rng.randrange(beyond + 1)]
        gone = rng.choice((0, 0, rng.randrange(len(batches) + 1)))
        log_start = kept[gone]["base_offset"] if 0 < gone < len(kept) else 0
        end = max([high_watermark, *(b["last_offset"] + 1 for b in kept)])
        disks.copies[node] = CopyFacts(log_start, end, high_watermark)
        where = {"node": node, "step": NONE, "partition": PARTITION, "read_ns": 9}
        disks.batches += [b | where for b in kept if b["base_offset"] >= log_start]
        for offset, states in snapshots.items():
            disks.noted.append(where | {"kind": int(ObservationKind.REPLICA_SNAPSHOT), "value": offset, "time_ns": 9})
            disks.snapshots += [state | where | {"snapshot_offset": offset} for state in states]
    return disks


def _batches(records: Sequence[Record], idempotent: set[int], rng: random.Random) -> list[Row]:
    """Of neighbours by one client. Between batches there may be markers: of the client whose transaction is open."""
    found: list[Row] = []
    sequences: dict[int, int] = {}
    epochs: dict[int, int] = {}
    open_transaction = NONE
    for (client, transactional), group in groupby(records, key=lambda record: record[1:]):
        offsets = [offset for offset, _, _ in group]
        while offsets:
            hole = found[-1]["last_offset"] + 1 if found else 0
            if open_transaction != NONE and hole < offsets[0]:
                found.append(_batch(hole, 1) | _of_producer(open_transaction, epochs, NONE, MARKER))
                open_transaction = NONE
            size = 1
            while size < min(len(offsets), BATCH_MAX) and offsets[size] == offsets[0] + size and rng.random() < 0.5:
                size += 1
            batch, offsets = _batch(offsets[0], size), offsets[size:]
            if client in idempotent:
                if rng.random() < 0.05:  # the client bumped its epoch
                    epochs[client], sequences[client] = epochs.get(client, 0) + 1, 0
                attributes = TRANSACTIONAL if transactional else 0
                batch |= _of_producer(client, epochs, sequences.get(client, 0), attributes)
                sequences[client] = sequences.get(client, 0) + size
                open_transaction = client if transactional else open_transaction
            found.append(batch)
    return found


def _batch(base: int, records: int) -> Row:
    times = {"base_timestamp_ms": base % 10**6, "max_timestamp_ms": base % 10**6 + records}
    where = {"base_offset": base, "last_offset": base + records - 1, "leader_epoch": 5, "checksum": base * 7919 % 2**32}
    return _PLAIN | times | where | {"records": records, "size": 60 + 100 * records}


def _of_producer(producer: int, epochs: dict[int, int], sequence: int, attributes: int) -> Row:
    epoch = epochs.get(producer, 0)
    return {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, "attributes": attributes}


def _snapshots(batches: Sequence[Row], rng: random.Random) -> dict[int, list[Row]]:
    """Offset → the states of all producers there, kept batch by batch."""
    states: dict[int, Row] = {}
    found = {}
    for batch in batches:
        if rng.random() < 0.2:
            found[batch["base_offset"]] = [dict(state) for state in states.values()]
        producer = batch["producer_id"]
        if producer == NONE:
            continue
        state = states.setdefault(
            producer, _STATE | {"producer_id": producer, "producer_epoch": batch["producer_epoch"]}
        )
        if state["producer_epoch"] != batch["producer_epoch"]:
            state |= {"producer_epoch": batch["producer_epoch"], "last_sequence": NONE, "last_offset": NONE}
            state["offset_delta"] = 0
        state["timestamp_ms"] = batch["max_timestamp_ms"]
        if batch["attributes"] == MARKER:
            state["transaction_offset"] = NONE
            continue
        delta = batch["last_offset"] - batch["base_offset"]
        state |= {"last_sequence": batch["base_sequence"] + delta, "last_offset": batch["last_offset"]}
        state["offset_delta"] = delta
        if batch["attributes"] == TRANSACTIONAL and state["transaction_offset"] == NONE:
            state["transaction_offset"] = batch["base_offset"]
    return found


# --- what spoils them -----------------------------------------------------------------------------------------------


def differ(disks: Disks, rng: random.Random) -> bool:
    """One copy has something else than the others, below the high watermark and above all log starts. One copy at least stays
    what it was: were each of them changed, nobody could say which are the changes, and there would be more differences."""
    low = max(copy.log_start for copy in disks.copies.values())
    judged = [
        b
        for b in disks.batches
        if low <= b["base_offset"] < disks.below
        and b["base_offset"] not in disks.touched
        and disks.copies.keys() - disks.spoiled - {b["node"]}
    ]
    if not judged:
        return False
    batch = rng.choice(judged)
    disks.touched.add(batch["base_offset"])
    disks.spoiled.add(batch["node"])
    if batch["producer_id"] == NONE and rng.random() < 0.5:
        disks.batches.remove(batch)
    else:
        name = rng.choice(("checksum", "leader_epoch", "size", "records", "base_timestamp_ms"))
        batch[name] += 1
    return True


def leave_out(disks: Disks, rng: random.Random) -> bool:
    """From some batch on a producer's sequence numbers under one epoch are one higher, in every copy and every snapshot."""
    if disks.renumbered:
        return False
    places = []
    for node in NODES:
        mine = [
            b for b in disks.batches if b["node"] == node and b["producer_id"] != NONE and b["base_sequence"] != NONE
        ]
        of = {(b["producer_id"], b["producer_epoch"]) for b in mine}
        for who in sorted(of):
            line = [b for b in mine if (b["producer_id"], b["producer_epoch"]) == who]
            places += [(*who, b["base_offset"]) for b in line[1:]]
    if not places:
        return False
    producer, epoch, first = rng.choice(sorted(set(places)))
    disks.renumbered = True
    for row in disks.batches:
        if (row["producer_id"], row["producer_epoch"]) == (producer, epoch) and row["base_sequence"] != NONE:
            row["base_sequence"] += row["base_offset"] >= first
    for row in disks.snapshots:
        if (row["producer_id"], row["producer_epoch"]) == (producer, epoch) and row["last_sequence"] != NONE:
            row["last_sequence"] += row["last_offset"] >= first
    return True


def forget(disks: Disks, rng: random.Random) -> bool:
    """A snapshot says something else of one producer than the batches of its copy do; nothing was deleted there."""
    whole = [node for node, copy in disks.copies.items() if copy.log_start == 0]
    told = [row for row in disks.snapshots if row["node"] in whole and "spoiled" not in row]
    if not told:
        return False
    row = rng.choice(told)
    row["spoiled"] = 1
    how = rng.choice(
        ("producer_epoch", "last_sequence", "last_offset", "transaction_offset", "timestamp_ms", "gone", "new")
    )
    if how == "gone":
        disks.snapshots.remove(row)
    elif how == "new":
        disks.snapshots.append(row | {"producer_id": 900 + len(disks.snapshots)})
        del row["spoiled"]
    else:
        row[how] += 1
    return True
