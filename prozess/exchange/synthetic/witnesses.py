"""Lists the witnesses that a check must find in a generated history: the record, its position and its time for each planted
anomaly.

It follows from what was planted alone, and never from what a check finds, so that a test can compare the two.

planted.parquet    one row per witness, ordered by anomaly and partition. The columns mean what those of the same names do
                   in `findings/witnesses.parquet` (WITNESS), and have the same types:

    anomaly        what a check finds there. What a plant implies has rows of its own: a lost record is `late`, too
    partition
    client         the record's producer; NONE = it is not about one record, or nobody can read whose it is
    sequence       the record's; or the first of a batch, the epoch of a leader or of a controller; NONE = there is none
    log_offset     where it was acknowledged or seen, or what was committed or answered; NONE = nowhere
    reader         the client or node that saw it, or whom it is about; NONE = nobody
    begin_ns       when it was sent or seen; MISSING = at no moment: copies were compared
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from prozess.exchange.synthetic import coordinators, shares, snapshots, tiers, waits
from prozess.exchange.synthetic.cells import (
    CALLBACK_NS,
    CONTROLLERS,
    FALLEN_NODE,
    FIRST_NS,
    NODES,
    STARTED_AFTER_NS,
    WATERMARKS_APART,
    GeneratedCell,
    asked_at_ns,
    base_sequences,
    commits_ahead,
    copies_read_ns,
    fallen_commits,
    log_positions,
    owner_of,
    second_owner_of,
    spots_of,
)
from prozess.exchange.synthetic.cluster_states import illegal_in_cluster
from prozess.exchange.synthetic.log import (
    BATCH,
    EARLIER_NS,
    EPOCH,
    FALLEN_EPOCH,
    LATENCY_MIN_NS,
    MISREPORTED_BY,
    STEP_NS,
    GeneratedPartition,
    audit_read_ns,
    latencies,
)
from prozess.exchange.synthetic.members import MAY_EXPLAIN_NS, moved_ns, movers
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.checking.findings import write_whole
from prozess.harness.history.parquet import from_numpy, from_strings
from prozess.harness.interfaces.witnesses import WITNESS, join_witnesses, make_witnesses
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import MISSING, NONE, REMOTE_STORE

_COLUMNS = ("partition", "client", "sequence", "log_offset", "reader", "begin_ns")
PLANTED = pa.schema(
    [
        pa.field("anomaly", pa.string(), nullable=False),
        *(pa.field(name, pa.from_numpy_dtype(WITNESS[name]), nullable=False) for name in _COLUMNS),
    ]
)
"""The schema of planted.parquet."""
_UNSENT = frozenset({"phantom", "misplaced"})
"""Records that nobody sent there: they begin when they are read."""
_UNREAD = frozenset({"lost-transaction", "under-acknowledged", "unreported"})
"""Anomalies of records that no reader gets, or whose send alone is wrong."""
FOREVER_NS = np.iinfo(np.int64).max
FIRST_SEND_NS = 0
"""When the first record of each partition is sent. Nothing is planted at it."""
Named = tuple[str, np.ndarray]
"""An anomaly, and array of WITNESS in which only columns of planted.parquet are set."""


def write_planted(run: RunDirectory, cells: Sequence[GeneratedCell], planted: Mapping[str, int]) -> None:
    """Writes planted.parquet of cells in which everything was planted. What is the cluster's is found in every cell.
    StorageFull if there is no room."""
    two, stale, unanswered = (planted.get(name, 0) for name in ("two-controllers", "stale-controller", "unanswered"))
    found: dict[str, list[np.ndarray]] = {name: [] for name in sorted(PLANTS)}
    for cell in cells:
        found["two-controllers"].append(_two_controllers(cell, two))
        found["stale-controller"].append(waits.stale_controllers(cell, two, stale))
        found["unanswered"].append(waits.late_calls(cell, unanswered))
        found["illegal-transition"].append(illegal_in_cluster(cell, planted.get("illegal-transition", 0)))
        found["not-linearizable"].append(waits.contradictions(cell, planted.get("not-linearizable", 0)))
        if cell.kind == "transactions":
            found["hanging"].append(waits.hung(cell))
            found["illegal-transaction-state"].append(coordinators.illegal_transaction_states(cell))
        if cell.kind == "share":
            found["illegal-share-state"].append(coordinators.illegal_share_states(cell))
        if cell.kind == "group":
            found["illegal-group-state"].append(coordinators.illegal_group_states(cell))
        for partition in cell.partitions:
            for name, witnesses in (*_IN_CELLS[cell.kind](cell, partition), *_put_in(cell, partition)):
                witnesses["partition"] = partition.partition
                found[name].append(witnesses)
    lengths = np.array([sum(map(len, parts)) for parts in found.values()])
    stacked = join_witnesses(part for parts in found.values() for part in parts if len(part))
    names = from_strings(list(found)).take(from_numpy(np.repeat(np.arange(len(found)), lengths)))
    write_whole(run.planted, pa.table([names, *(from_numpy(stacked[name]) for name in _COLUMNS)], schema=PLANTED))


def _of_log(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    def at(name: str) -> np.ndarray:
        return spots_of(cell, name, partition)

    owner = owner_of(cell, partition)
    lost, skipped, corrupt = at("lost"), at("skipped"), partition.edits.corrupt
    yield "lost", _sent(partition, lost)
    # Seen when the reader is given the record in front of the one that it skips.
    yield "skipped", _sent(partition, skipped, reader=owner, begin_ns=partition.read_ns(skipped - 1))
    yield "late", _sent(partition, np.sort(np.concatenate([at("late"), lost, skipped, corrupt])), reader=owner)
    # The batch that goes on behind the lost record.
    begin = np.sort(np.concatenate([lost + 1, at("out-of-sequence")]))
    sequence, offsets = base_sequences(cell, partition, begin), partition.offsets(begin)
    yield (
        "out-of-sequence",
        _witnesses(len(begin), sequence=sequence, log_offset=offsets, reader=NODES[0], begin_ns=FIRST_SEND_NS),
    )
    yield "invisible", _sent(partition, at("invisible"), reader=owner)
    offsets, read_ns = partition.offsets(corrupt), partition.read_ns(corrupt)
    yield "corrupt", _witnesses(len(corrupt), log_offset=offsets, reader=owner, begin_ns=read_ns)
    yield "corrupt", _sent(partition, partition.edits.rekeyed, reader=owner)
    swapped = at("reordered")
    # The record that was sent for the spot stands one further on, behind the one that was sent after it.
    yield "reordered", _sent(partition, swapped + 1, reader=owner, begin_ns=partition.layout.sent_ns(swapped))
    misreported = at("offset-conflict")
    yield "offset-conflict", _sent(partition, misreported, log_offset=partition.offsets(misreported) + MISREPORTED_BY)
    spot = at("time-travel")
    sent_ns = partition.layout.sent_ns(spot) - EARLIER_NS * np.isin(spot, partition.edits.early)
    yield "time-travel", _sent(partition, spot, reader=owner, begin_ns=sent_ns)
    again = at("rewound")
    yield "rewound", _sent(partition, again, reader=owner, begin_ns=partition.read_ns(again))
    for batch, node in (
        (at("diverged") // BATCH * BATCH, NODES[-1]),
        (partition.edits.fallen_in_replica, FALLEN_NODE),  # a batch of its own
    ):
        sequence, offsets = base_sequences(cell, partition, batch), partition.offsets(batch)
        yield "diverged", _witnesses(len(batch), sequence=sequence, log_offset=offsets, reader=node)
    yield from _of_brokers(cell, partition)


def _of_brokers(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    """Yields the witnesses of impossible answers of brokers and controllers. They have a number, and no position."""

    def numbers(name: str) -> np.ndarray:
        return np.arange(cell.counts[name][partition.rank])

    # Two answers each, of which the second one is wrong.
    number = numbers("watermark-regression")
    watermark, begin_ns = (number + 1) * WATERMARKS_APART - 1, 2 * number * STEP_NS
    fallen = _witnesses(len(number), sequence=EPOCH, log_offset=watermark, reader=NODES[0], begin_ns=begin_ns)
    yield "watermark-regression", fallen
    number = numbers("log-start-regression")
    begun = _witnesses(len(number), sequence=EPOCH, log_offset=0, reader=NODES[0], begin_ns=0)
    yield "log-start-regression", begun
    number = numbers("mistimed")
    yield "mistimed", _witnesses(len(number), log_offset=0, reader=NODES[0], begin_ns=asked_at_ns(number))
    yield from (("epoch-regression", fallen) for fallen in _fallen_epochs(cell, partition))
    # The first two nodes are elected in turn, and the first one led before.
    number = numbers("unclean")
    leader, begin_ns = np.where(number % 2 == 0, NODES[1], NODES[0]), cell.end_ns + 2 + number * STEP_NS
    yield "unclean", _witnesses(len(number), sequence=EPOCH + 1 + number, reader=leader, begin_ns=begin_ns)
    offset, node = snapshots.planted_at(cell, partition)
    sequence = snapshots.remembered_sequences(cell, partition)
    wrong = _witnesses(len(offset), sequence=sequence, log_offset=offset, reader=node, begin_ns=FIRST_SEND_NS)
    yield "snapshot-conflict", wrong
    turn = numbers("unstable-offset")
    yield "stalled", _witnesses(len(turn), log_offset=turn, begin_ns=cell.waited_ns(turn))
    # Then nobody leads in every other epoch, although the first node could.
    turn = numbers("leaderless")
    epochs = EPOCH + 1 + len(number) + 2 * turn
    yield "leaderless", _witnesses(len(turn), sequence=epochs, reader=NODES[0], begin_ns=cell.waited_ns(turn))
    number = numbers("illegal-transition")
    begin_ns = FIRST_NS - 1 - len(number) + number
    positions = log_positions(begin_ns)
    yield (
        "illegal-transition",
        _witnesses(len(number), sequence=FALLEN_EPOCH, log_offset=positions, reader=NODES[1], begin_ns=begin_ns),
    )


def _fallen_epochs(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[np.ndarray]:
    """Yields where leader epochs fall: in answers by number, and else at a position, since the record in front was read."""
    edits = partition.edits
    number = np.arange(len(edits.answered))
    yield _witnesses(len(number), sequence=FALLEN_EPOCH, reader=FALLEN_NODE, begin_ns=2 * number * STEP_NS)
    audited, tailed = edits.fallen_in_log, edits.fallen_in_tail
    for spot, reader, begin_ns in (
        (edits.fallen_in_replica, FALLEN_NODE, copies_read_ns(cell)),
        (audited, cell.audit, audit_read_ns(cell.audited_from_ns, partition.offsets(audited - 1))),
        (tailed, owner_of(cell, partition), partition.read_ns(tailed - 1)),
    ):
        offset = partition.offsets(spot)
        yield _witnesses(len(spot), sequence=FALLEN_EPOCH, log_offset=offset, reader=reader, begin_ns=begin_ns)


def _of_transactions(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    yield "torn", _sent(partition, spots_of(cell, "torn", partition))


def _of_group(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    owner = owner_of(cell, partition)
    spot = spots_of(cell, "unprocessed", partition)
    yield "unprocessed", _sent(partition, spot, reader=owner, begin_ns=partition.read_ns(spot))
    spot = spots_of(cell, "reprocessed", partition)
    yield "reprocessed", _sent(partition, spot, reader=owner, begin_ns=partition.read_ns(spot) + STARTED_AFTER_NS)
    for name, rows in (
        ("commit-ahead", commits_ahead(cell, partition)),
        ("commit-regression", fallen_commits(cell, partition)),
    ):
        offset = np.asarray(rows["log_offset"])
        yield name, _witnesses(len(offset), log_offset=offset, reader=owner, begin_ns=rows["invoked_ns"])
    spot = spots_of(cell, "two-owners", partition)
    begin_ns = partition.layout.sent_ns(spot) + CALLBACK_NS
    yield "two-owners", _witnesses(len(spot), reader=second_owner_of(cell, partition), begin_ns=begin_ns)
    orphaned = int(cell.counts["orphaned"][partition.rank])
    yield "orphaned", _witnesses(orphaned, begin_ns=cell.drain_ns)
    moved = moved_ns(cell, partition) + CALLBACK_NS - MAY_EXPLAIN_NS
    yield "unstable", _witnesses(len(moved), reader=movers(cell, partition), begin_ns=moved)
    unowned = int(cell.counts["unowned"][partition.rank])
    yield "unstable", _witnesses(unowned, begin_ns=cell.calm_end_ns - MAY_EXPLAIN_NS)
    # The first member has most partitions, and the last of them is named.
    named = partition.rank == (len(cell.partitions) - 1) // len(cell.readers) * len(cell.readers)
    turn = np.arange(cell.planted.get("starved", 0) if named else 0)
    yield "starved", _witnesses(len(turn), reader=cell.newcomer, begin_ns=cell.starved_ns(turn - 1))


def _of_share(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    def at(name: str) -> np.ndarray:
        return spots_of(cell, name, partition)

    owner, second = owner_of(cell, partition), second_owner_of(cell, partition)
    yield "undelivered", _sent(partition, at("undelivered"), begin_ns=MISSING)
    for name in ("accepted-again", "rejected-again"):
        begin_ns = shares.since_ns(shares.again_ns(cell, partition, at(name)))
        yield name, _sent(partition, at(name), reader=second, begin_ns=begin_ns)
    begin_ns = shares.since_ns(partition.read_ns(at("two-holders")))
    yield "two-holders", _sent(partition, at("two-holders"), reader=second, begin_ns=begin_ns)
    forgotten, beyond = at("miscounted")[::2], at("miscounted")[1::2]
    begin_ns = shares.since_ns(partition.read_ns(forgotten))
    yield "miscounted", _sent(partition, forgotten, reader=second, begin_ns=begin_ns)
    begin_ns = shares.since_ns(shares.again_ns(cell, partition, beyond))
    yield "miscounted", _sent(partition, beyond, reader=second, begin_ns=begin_ns)
    for name in ("given-up", "dead-letter-missing", "dead-letter-extra"):
        begin_ns = shares.since_ns(partition.read_ns(at(name)))
        yield name, _sent(partition, at(name), reader=owner, begin_ns=begin_ns)
    fallen = np.arange(1, 1 + int(cell.counts["share-start-regression"][partition.rank]))
    answered_ns = shares.start_answered_ns(1 + 2 * len(fallen))[1::2]
    offset = fallen * WATERMARKS_APART - 1
    yield (
        "share-start-regression",
        _witnesses(len(fallen), log_offset=offset, reader=owner, begin_ns=answered_ns[: len(fallen)]),
    )


def _of_compaction(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    gone = _sent(partition, spots_of(cell, "compacted-away", partition))
    yield "compacted-away", gone
    yield "lost", gone.copy()
    yield "tombstone-lost", _sent(partition, spots_of(cell, "tombstone-lost", partition))


def _of_tiered(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    gaps = tiers.gaps(cell, partition)
    yield "remote-gap", _witnesses(len(gaps), log_offset=gaps, reader=NODES[-1], begin_ns=FIRST_SEND_NS)
    position, twice = tiers.twins(cell, partition)
    holder = np.where(twice, REMOTE_STORE, NODES[0])
    yield "remote-conflict", _witnesses(len(position), log_offset=position, reader=holder, begin_ns=FIRST_SEND_NS)
    left = np.asarray(tiers.leftover(cell, partition)["first_offset"])
    yield "remote-left", _witnesses(len(left), log_offset=left, reader=REMOTE_STORE, begin_ns=FIRST_NS - 1)
    # What was sent in the last segment shows that the one before it was full.
    begin = tiers.copied_to(cell, partition)
    later = np.arange(begin + tiers.segment_length(partition.length), partition.length)
    full_ns = np.min(partition.layout.sent_ns(later) + latencies(later), initial=FOREVER_NS)
    number = int(cell.counts["uncopied"][partition.rank])
    yield "uncopied", _witnesses(number, log_offset=begin, reader=NODES[0], begin_ns=full_ns)


_IN_CELLS: Mapping[str, Callable[[GeneratedCell, GeneratedPartition], Iterator[Named]]] = {
    "log": _of_log,
    "transactions": _of_transactions,
    "group": _of_group,
    "share": _of_share,
    "compaction": _of_compaction,
    "tiered": _of_tiered,
}
"""Kind of cell → the witnesses of one of its partitions, but for records that were put in."""


def _put_in(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Named]:
    inserted = partition.edits.inserted
    offsets = partition.inserted_offsets(0, len(inserted))
    for code in np.unique(inserted["plant"]).tolist():
        name, mine = tuple(PLANTS)[code], inserted["plant"] == code
        rows = inserted[mine]
        if name == "stalled":  # waited for since it was acknowledged
            columns = {column: rows[column] for column in ("client", "sequence")} | {"log_offset": offsets[mine]}
            columns["reader"] = owner_of(cell, partition)
            for also, since_ns in (("late", rows["invoked_ns"]), (name, rows["invoked_ns"] + LATENCY_MIN_NS)):
                yield also, _witnesses(len(rows), begin_ns=since_ns, **columns)
            continue
        if name == "stuck":  # no record of it was ever there
            columns = {column: rows[column] for column in ("client", "sequence")}
            yield name, _witnesses(len(rows), begin_ns=rows["invoked_ns"], **columns)
            continue
        yield (
            name,
            _witnesses(
                len(rows),
                client=rows["client"],
                sequence=rows["sequence"],
                log_offset=offsets[mine] if name != "unreported" else NONE,  # nobody knows where it would be
                reader=NONE if name in _UNREAD else owner_of(cell, partition),
                begin_ns=partition.inserted_read_ns(rows) if name in _UNSENT else rows["invoked_ns"],
            ),
        )


def _two_controllers(cell: GeneratedCell, count: int) -> np.ndarray:
    """Returns the planted second controllers, each right behind the first of its epoch."""
    number = np.arange(count)
    return _witnesses(
        count,
        partition=cell.partitions[0].partition,
        sequence=number + 2,
        reader=CONTROLLERS[1],
        begin_ns=FIRST_NS + 2 + 2 * number,
    )


def _sent(partition: GeneratedPartition, position: np.ndarray, **columns: np.ndarray | int) -> np.ndarray:
    """Returns the records that stand at these positions. `columns`: what else is known of them, or is different."""
    client, sequence = partition.identities(position)
    record: dict[str, np.ndarray | int] = {
        "client": client,
        "sequence": sequence,
        "log_offset": partition.offsets(position),
        "begin_ns": partition.layout.sent_ns(position),
    }
    return _witnesses(len(position), **(record | columns))


def _witnesses(length: int, **columns: np.ndarray | int) -> np.ndarray:
    return make_witnesses(length, columns)
