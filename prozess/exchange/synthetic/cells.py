"""Makes the cells of a generated history: the positions of planted anomalies in their partitions, and all tables besides
sends and reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from prozess.exchange.synthetic.log import (
    ABORTED_EVERY,
    BATCH,
    COMMIT_AFTER_NS,
    EPOCH,
    FALLEN_EPOCH,
    LATENCY_MIN_NS,
    READ_AFTER_NS,
    STEP_NS,
    GeneratedPartition,
)
from prozess.exchange.synthetic.plants import NO_POSITIONS, PLANT_CODES, PLANTS, inserted
from prozess.harness.errors import BadInput
from prozess.harness.schema import NONE, Isolation, MetadataKind, MetadataSource, ObservationKind, Outcome

COMMIT, ABORT = 1, 2
PHANTOM_CLIENT = (1 << 22) - 1
SPOT = 3
"""The position within a batch at which an anomaly is planted. It touches positions SPOT - 1 … SPOT + 3."""
SHORT_AFTER_NS = 10_000_000_000
"""The ISR is too small so long after the last record, for twice that time."""
WAIT_NS = 60_000_000_000
"""The time from one unanswered wait to the next."""
STALLED_FOR_NS = 30_000_000_000
"""How long a reader is not given what it could read, and a last stable offset stays below the high watermark: more than
`STALLED_NS` of the kernel."""
LEADERLESS_NS = 30_000_000_000
"""The time without a leader: more than `Bounds.new_leader_ns`."""
STALE_APART_NS = 10_000_000_000
"""The time from one controller that does not give way to the next."""
SETTLED_AFTER_NS = 30_000_000_000
"""A group has settled so long after the last member came: more than it may take."""
MOVES_NS = 12_000_000_000
"""All moves of partitions that were planted take so long at most."""
EARLY_NS = STEP_NS // 2
"""What is planted as an early read is read so much before its commit is invoked: what stands behind it is read later."""
BEHIND_OPEN_SOONER_NS, BEHIND_OPEN_COMMIT_NS = 30_000_000, 2_000_000
"""In turn it is read so much sooner than all else, when its own commit was invoked so long after its begin, and that of the
record in front of it is not invoked before COMMIT_AFTER_NS."""
TURNS = 1 << 16
"""The number of rows of `transactions` that are made at a time."""
Rows = Mapping[str, np.ndarray | int]


@dataclass
class GeneratedCell:
    """A cell of a generated history: its partitions, the clients that planted records come from, and what to plant."""

    kind: str
    cell: int
    partitions: list[GeneratedPartition]
    readers: Sequence[int]
    """Tailing readers, or members of its group."""
    planter: int
    """The client id of the producer of inserted records."""
    zombie: int
    successor: int
    """Instance of the zombie's transactional.id that came later."""
    audit: int
    """Client id of the audit at read_uncommitted."""
    waiter: int
    """The client whose waits are not answered: for acknowledgements, or by a transaction coordinator."""
    newcomer: int
    """Member of its group that gets no partition, and leaves as soon as it knows that, unless it is planted to starve; NONE
    if there is no group."""
    planted: Mapping[str, int]
    turn_ns: int
    """What its group takes to settle, and a session."""
    issued: dict[int, int] = field(default_factory=dict)
    """For `planter`, `zombie` and `waiter`."""
    spots: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Anomaly → per partition the positions that it was planted at, ascending."""
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    """Anomaly → the number per partition, for anomalies without a position."""

    @property
    def length(self) -> int:
        return self.partitions[0].length

    @property
    def end_ns(self) -> int:
        """Returns when the last record was sent."""
        return self.length * self.partitions[0].layout.step_ns

    @property
    def audited_from_ns(self) -> int:
        """Returns when the audits begin to read."""
        return self.audit_ns + SHORT_AFTER_NS

    def waited_ns(self, turn: np.ndarray) -> np.ndarray:
        """Returns the begin of the unanswered wait in each of these turns."""
        return np.asarray(self.end_ns + 4 * SHORT_AFTER_NS + turn * WAIT_NS)

    @property
    def newcomer_ns(self) -> int:
        """Returns when the group's newcomer was assigned no partition."""
        return self.end_ns + SECOND_NS

    def starved_ns(self, turn: np.ndarray | int) -> np.ndarray:
        """Returns when the newcomer had no partition for as long as a group takes to settle, in each of these turns. It was
        silent before it came, and may have been evicted for a session."""
        return np.asarray(self.newcomer_ns + (turn + 1) * self.turn_ns)

    @property
    def calm_ns(self) -> int:
        """Returns when the newcomer left the group. From then on the membership does not change."""
        starved = self.planted.get("starved", 0)
        return int(self.starved_ns(starved - 1)) + SECOND_NS if starved else self.newcomer_ns

    @property
    def calm_end_ns(self) -> int:
        """Returns when the newcomer's process ends."""
        return self.calm_ns + SETTLED_AFTER_NS + (1 + self.planted.get("unstable", 0)) * self.move_ns

    @property
    def move_ns(self) -> int:
        """Returns the time from one planted move of a partition to the next: all are over before a member that they leave
        without a partition would count as starved."""
        return min(SECOND_NS, MOVES_NS // (1 + self.planted.get("unstable", 0)))

    @property
    def drain_ns(self) -> int:
        """Returns when members began to drain."""
        return self.calm_end_ns + SECOND_NS

    @property
    def close_ns(self) -> int:
        """Returns when members closed."""
        return self.drain_ns + SECOND_NS

    @property
    def ended_ns(self) -> int:
        """Returns when members ended, which is also the last heartbeat of producers."""
        return self.close_ns + SECOND_NS if self.kind == "group" else self.audit_ns + 4 * SHORT_AFTER_NS

    @property
    def audit_ns(self) -> int:
        """Returns when the sentinels were sent."""
        waits = max(self.planted.get(name, 0) for name in ("stuck", "stalled", "leaderless", "hanging"))
        stale = -(-self.planted.get("stale-controller", 0) * STALE_APART_NS // WAIT_NS)
        in_turn_ns = max(waits, stale, self.planted.get("unanswered", 0) and 1) * WAIT_NS
        settled_ns = self.close_ns + SECOND_NS - self.end_ns if self.kind == "group" else 0
        return self.end_ns + 4 * SHORT_AFTER_NS + max(in_turn_ns, settled_ns)

    def plant(self, rng: np.random.Generator) -> None:
        """Chooses where the anomalies go, and puts them into the partitions. BadInput if there is no room."""
        if self.kind == "compaction":
            self._plant_compaction(rng)
            return
        chosen = self._choose_spots(rng)
        put_in: list[list[np.ndarray]] = [[] for _ in self.partitions]
        for name, spots in chosen.items():
            self.spots[name] = spots
            first = 0
            for rank, position in enumerate(spots):
                turn = first + np.arange(len(position))
                self._edit(name, self.partitions[rank], (position, turn), put_in[rank])
                first += len(position)
        for name in _COUNTED:
            where = rng.integers(0, len(self.partitions), self.planted.get(name, 0))
            self.counts[name] = np.bincount(where, minlength=len(self.partitions))
        self._plant_orphans(rng)
        self._plant_moves(rng)
        apart = rng.spawn(1)[0]  # what is planted elsewhere stays where it is
        self._plant_stalls(apart)
        self._plant_snapshots(apart)
        self._plant_unreported(apart)
        if self.planted.get("starved") and len(self.partitions) <= len(self.readers):
            raise BadInput(
                f"--plant starved: {len(self.partitions)} partitions are too few for one of {len(self.readers)} members to "
                f"have two. Give more --partitions, at least {len(self.readers) + 1}."
            )
        for rank, partition in enumerate(self.partitions):
            partition.edits.inserted = self._numbered(partition, put_in[rank])

    def _choose_spots(self, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
        placed = {n: c for n, c in self.planted.items() if n in _IN_BATCHES[self.kind]}
        total = sum(placed.values())
        each = self._batches(self.length // BATCH - 1)
        # Where transactions share positions, no two of the spots may be of one.
        room = each if self.partitions[0].spread else each * len(self.partitions)
        if total > room:
            raise BadInput(
                f"--plant: {total:,} anomalies need as many batches of {BATCH} records in the {self.kind} cell, which has "
                f"{room:,}. Give more --rows."
            )
        spots = rng.choice(room, total, replace=False)
        if self.partitions[0].spread:
            spots += rng.integers(0, len(self.partitions), total) * each
        found, first = {}, 0
        for name, count in placed.items():
            mine = np.sort(spots[first : first + count])
            first += count
            rank, number = mine // each, mine % each
            position = (self._batch(number) + 1) * BATCH + SPOT
            found[name] = [position[rank == r] for r in range(len(self.partitions))]
        return found

    def _batches(self, batches: int) -> int:
        """Returns the number of batches that anomalies can be planted in, without the aborted ones."""
        if self.kind != "transactions":
            return batches
        # Batch 0 is left out, so that numbers here are one less than those of batches.
        return int(np.count_nonzero(~self.partitions[0].aborted(np.arange(1, batches + 1) * BATCH)))

    def _batch(self, number: np.ndarray) -> np.ndarray:
        if self.kind != "transactions":
            return number
        batches = np.arange(1, self.length // BATCH)
        chosen: np.ndarray = np.flatnonzero(~self.partitions[0].aborted(batches * BATCH))[number]
        return chosen

    def _edit(
        self, name: str, partition: GeneratedPartition, at: tuple[np.ndarray, np.ndarray], put_in: list[np.ndarray]
    ) -> None:
        """Makes one anomaly at some positions of one partition. `at`: the positions, and the number of each among all of this
        anomaly in the cell."""
        (spot, turn), edits = at, partition.edits
        for view in _UNSEEN.get(name, ()):
            edits.missing[view] = np.sort(np.concatenate([edits.missing[view], spot]))
        if name in _FIELDS:
            fields = _FIELDS[name]
            for number, attribute in enumerate(fields):
                setattr(edits, attribute, spot[turn % len(fields) == number])
        elif name in _PUT_IN:
            put_in.append(self._put_in(name, partition, spot))

    def _put_in(self, name: str, partition: GeneratedPartition, spot: np.ndarray) -> np.ndarray:
        if self.kind == "transactions":  # between two transactions, not inside one: they would be in no order
            batch = partition.layout.batch
            spot = spot // batch * batch + batch - 1
        columns: dict[str, np.ndarray | int | bool] = {f"in_{view}": True for view in _PUT_IN[name]}
        columns["invoked_ns"] = partition.layout.sent_ns(spot)
        match name:
            case "duplicate":
                columns["client"], columns["sequence"] = partition.identities(spot)
            case "phantom":
                columns |= {"client": PHANTOM_CLIENT, "sequence": spot}
            case "misplaced":
                other = self.partitions[(partition.rank + 1) % len(self.partitions)]
                columns["client"], columns["sequence"] = other.identities(spot)
                columns["sent_partition"] = other.partition
            case _:
                columns["client"] = self.zombie if name == "zombie-write" else self.planter
                columns["outcome"] = Outcome.FAIL if name in _FAILED else Outcome.OK
                columns["transaction"] = 0 if self.kind == "transactions" else NONE  # numbered as the sequences are
                if name == "early-read":
                    columns["sooner_ns"] = np.arange(len(spot)) % 2 * BEHIND_OPEN_SOONER_NS
        return inserted(name, spot, **columns)

    def _numbered(self, partition: GeneratedPartition, put_in: list[np.ndarray]) -> np.ndarray:
        """Returns the inserted records, in order, with sequences of their own; the positions that are acknowledged while the
        ISR is too small; and those that are not acknowledged for too long."""
        short, stuck, stalled, unreported = (
            int(self.counts[name][partition.rank]) for name in ("under-acknowledged", "stuck", "stalled", "unreported")
        )
        last = partition.length - 1
        late = inserted(
            "under-acknowledged",
            np.full(short, last),
            client=self.planter,
            outcome=Outcome.OK,
            invoked_ns=self.end_ns + 2 * SHORT_AFTER_NS + np.arange(short) * STEP_NS,
            in_tail=True,
            in_log=True,
            in_visible=True,
        )
        vain = inserted(
            "stuck",
            np.full(stuck, last),
            client=self.waiter,
            outcome=Outcome.FAIL,
            invoked_ns=self.waited_ns(np.arange(stuck)),
        )
        unread = inserted(
            "stalled",
            np.full(stalled, last),
            client=self.planter,
            outcome=Outcome.OK,
            invoked_ns=self.waited_ns(np.arange(stalled)),
            sooner_ns=-STALLED_FOR_NS,
            in_tail=True,
            in_log=True,
            in_visible=True,
        )
        vanished = inserted(
            "unreported",
            np.full(unreported, last),
            client=self.planter,
            outcome=Outcome.INFO,
            invoked_ns=self.end_ns + np.arange(unreported) * STEP_NS,
        )
        rows = np.concatenate([*put_in, late, vain, unread, vanished])
        rows = rows[np.argsort(rows["after"], kind="stable")]
        for client in (self.planter, self.zombie, self.waiter):
            mine = np.flatnonzero((rows["client"] == client) & (rows["outcome"] != NONE))
            first = self.issued.get(client, 0)
            rows["sequence"][mine] = first + np.arange(len(mine))
            numbered = mine[rows["transaction"][mine] != NONE]
            rows["transaction"][numbered] = rows["sequence"][numbered]
            self.issued[client] = first + len(mine)
        return rows

    def _plant_orphans(self, rng: np.random.Generator) -> None:
        count = self.planted.get("orphaned", 0)
        if count > len(self.partitions):
            raise BadInput(
                f"--plant orphaned={count}: there are {len(self.partitions)} partitions to orphan. Plant fewer."
            )
        chosen = rng.choice(len(self.partitions), count, replace=False)
        self.counts["orphaned"] = np.bincount(chosen, minlength=len(self.partitions))

    def _plant_moves(self, rng: np.random.Generator) -> None:
        """Chooses which partitions of a group have no owner, each at most once, and which ones move: half of both. The only
        partition moves."""
        count, partitions = self.planted.get("unstable", 0), len(self.partitions)
        chosen = rng.permutation(partitions)
        unowned = min(count // 2, partitions - 1)
        self.counts["unowned"] = np.bincount(chosen[:unowned], minlength=partitions)
        moved = chosen[unowned + rng.integers(0, partitions - unowned, count - unowned)]
        self.counts["moved"] = np.bincount(moved, minlength=partitions)

    def _plant_stalls(self, rng: np.random.Generator) -> None:
        """Chooses in which partitions a reader stalls, and in which the last stable offset does: in turn."""
        count, partitions = self.planted.get("stalled", 0), len(self.partitions)
        for name, stalls in (("stalled", -(-count // 2)), ("unstable-offset", count // 2)):
            self.counts[name] = np.bincount(rng.integers(0, partitions, stalls), minlength=partitions)

    def _plant_snapshots(self, rng: np.random.Generator) -> None:
        count, partitions = self.planted.get("snapshot-conflict", 0), len(self.partitions)
        each = PLANTS["snapshot-conflict"].per_partition or 0
        if count > each * partitions:
            raise BadInput(
                f"--plant snapshot-conflict={count}: the copies of {partitions} partitions have room for {each * partitions} "
                "wrong producer snapshots. Plant fewer."
            )
        chosen = rng.choice(each * partitions, count, replace=False) // each
        self.counts["snapshot-conflict"] = np.bincount(chosen, minlength=partitions)

    def _plant_unreported(self, rng: np.random.Generator) -> None:
        """Chooses the partitions of sends of which nobody hears again. A record that nobody can read might be any of them: it
        is in another partition."""
        count = self.planted.get("unreported", 0)
        readable = np.array([p.rank for p in self.partitions if not len(p.edits.corrupt)], dtype=np.intp)
        if count and not len(readable):
            raise BadInput(
                f"--plant unreported: each of the {len(self.partitions)} partitions has an unreadable record (corrupt), "
                "which might be the one that was not reported. Give more --partitions, or plant fewer that are corrupt."
            )
        chosen = readable[rng.integers(0, max(1, len(readable)), count)]
        self.counts["unreported"] = np.bincount(chosen, minlength=len(self.partitions))

    def _plant_compaction(self, rng: np.random.Generator) -> None:
        """Plants anomalies of compaction at keys: their last record is gone although the one before it is there."""
        first = self.partitions[0]
        keys = np.arange(first.keys)
        deleted = keys % first.tombstones == first.tombstones - 1
        for name, pool in (("compacted-away", keys[~deleted]), ("tombstone-lost", keys[deleted])):
            count = self.planted.get(name, 0)
            if count > len(pool) * len(self.partitions):
                room = len(pool) * len(self.partitions)
                raise BadInput(
                    f"--plant {name}={count}: there are {room:,} keys for it. Plant fewer, or give more --rows."
                )
            where = np.sort(rng.choice(len(pool) * len(self.partitions), count, replace=False))
            self.spots[name] = []
            for rank, partition in enumerate(self.partitions):
                spot = first.length - first.keys + pool[where[where // len(pool) == rank] % len(pool)]
                self.spots[name].append(spot)
                for view, gone in partition.edits.missing.items():
                    partition.edits.missing[view] = np.sort(np.concatenate([gone, spot]))

    # Tables of transactions.

    def transactions(self) -> Iterator[dict[str, np.ndarray | int]]:
        """Rows of `transactions`: of the producers, of whoever planted, and the instances."""
        first = self.partitions[0]
        ids = [*first.producers.tolist(), self.zombie, self.planter]
        instances: dict[str, np.ndarray | int] = {
            "client": np.array([*ids, self.successor]),
            "transactional_id": np.array([*ids, self.zombie]),
            "begun_ns": np.array([-2_000_000] * len(ids) + [-500_000]),
            "initialised_ns": np.array([-1_000_000] * len(ids) + [-400_000]),
            "completed_ns": np.array([-1_000_000] * len(ids) + [-400_000]),
            "outcome": Outcome.OK,
        }
        yield instances
        for number, client in enumerate(first.producers.tolist()):
            turns = first.length // first.layout.batch // (1 if first.spread else len(first.producers))
            for begin in range(0, turns, TURNS):
                turn = np.repeat(np.arange(begin, min(begin + TURNS, turns)), first.layout.per_turn)
                numbers = begin * first.layout.per_turn + np.arange(len(turn))
                aborted = turn % ABORTED_EVERY == ABORTED_EVERY - 1
                yield self._ended(client, numbers, first.layout.begun_ns(number, numbers), aborted=aborted)
        for partition in self.partitions:
            rows = partition.edits.inserted
            mine = rows[rows["transaction"] != NONE]
            early, sooner = mine["plant"] == PLANT_CODES["early-read"], mine["sooner_ns"] > 0
            aborted = mine["outcome"] == Outcome.FAIL
            begun_ns = partition.layout.sent_ns(mine["after"])
            after_ns = np.where(early, READ_AFTER_NS + EARLY_NS, BATCH * STEP_NS + COMMIT_AFTER_NS)
            after_ns[sooner] = BEHIND_OPEN_COMMIT_NS
            yield self._ended(mine["client"], mine["transaction"], begun_ns, aborted=aborted, after_ns=after_ns)

    @staticmethod
    def _ended(
        client: np.ndarray | int,
        number: np.ndarray,
        begun_ns: np.ndarray,
        *,
        aborted: np.ndarray,
        after_ns: np.ndarray | int = BATCH * STEP_NS + COMMIT_AFTER_NS,
    ) -> dict[str, np.ndarray | int]:
        invoked = begun_ns + after_ns
        return {
            "client": np.broadcast_to(client, len(number)),
            "transactional_id": client,
            "transaction": number,
            "begun_ns": begun_ns,
            "end_invoked_ns": invoked,
            "completed_ns": invoked + LATENCY_MIN_NS,
            "initialised_ns": -1_000_000,
            "ended_by": np.where(aborted, ABORT, COMMIT),
            "outcome": np.where(aborted, Outcome.FAIL, Outcome.OK),
        }


_UNSEEN: Mapping[str, tuple[str, ...]] = {
    "lost": ("tail", "log", "visible"),
    "skipped": ("tail",),
    "invisible": ("visible",),
    "torn": ("tail", "visible"),
    "undelivered": ("tail",),
}
"""Anomaly → the views that lack the record at its spot."""
_FIELDS = {
    "reordered": ("swapped",),
    "offset-conflict": ("misreported",),
    "corrupt": ("corrupt", "rekeyed"),
    "rewound": ("repeated",),
    "time-travel": ("early", "unsent"),
    "late": ("late",),
    "epoch-regression": ("fallen_in_replica", "answered", "fallen_in_log", "fallen_in_tail"),
}
"""Anomaly → the fields of `Edits` that take its spots, in turn."""
_PUT_IN: Mapping[str, tuple[str, ...]] = {
    "duplicate": ("tail", "log", "visible"),
    "phantom": ("tail", "log", "visible"),
    "misplaced": ("tail", "log", "visible"),
    "resurrected": ("tail", "log", "visible"),
    "dirty-read": ("tail",),
    "lost-transaction": ("log",),
    "zombie-write": ("tail", "log", "visible"),
    "aborted-read": ("tail", "log"),
    "early-read": ("tail", "log", "visible"),
}
"""Anomaly → the views that show the record that is put in behind its spot."""
_FAILED = frozenset({"resurrected", "dirty-read", "aborted-read"})
_COUNTED = (
    *(
        "watermark-regression",
        "log-start-regression",
        "mistimed",
        "under-acknowledged",
        "unclean",
        "stuck",
        "leaderless",
        "illegal-transition",
    ),
    "share-start-regression",
)
"""Anomalies that are counted by partition, and have no position."""
_OF_CELLS = (
    *("two-controllers", "stale-controller", "unanswered", "not-linearizable", "hanging", "orphaned", "unstable"),
    *("illegal-transaction-state", "illegal-group-state", "illegal-share-state"),
    *("starved", "stalled", "snapshot-conflict", "unreported"),
)
_UNPLACED = frozenset((*_COUNTED, *_OF_CELLS))
_IN_BATCHES = {
    kind: frozenset(name for name, plant in PLANTS.items() if plant.kind == kind and name not in _UNPLACED)
    for kind in ("log", "transactions", "group", "share")
} | {"tiered": frozenset[str]()}


# The tables of generated cells beside sends and reads: groups, controllers' log, samples, replicas. A few rows each,
# or one per batch.


Columns = dict[str, np.ndarray | int]
NODES = (1, 2, 3)
FALLEN_NODE = NODES[1]
"""Brokers whose answers and copies have a leader epoch that was planted to fall."""
CONTROLLERS = (3001, 3002)
ASSIGNED, SYNC = 1, 1
ALL = sum(1 << node for node in NODES)
TRANSACTIONAL = 0x10
"""Bit of the attributes of a batch."""
FIRST_NS = -3_000_000
BEFORE_NS = -4_000_000
"""The time at which brokers registered."""
SECOND_NS = 1_000_000_000
HEARTBEAT_NS = 100_000_000
STARTED_AFTER_NS = 100
"""Members begin to process a record so long after they were given it."""
CALLBACK_NS = 10
"""A callback about an assignment takes so long."""
FAR_MS = 1 << 42
"""A time after all records: who finds one is wrong."""
WATERMARKS_APART = 100
"""Leader answers that were planted to go back: the k-th pair is this times k, and one less."""


def owner_of(cell: GeneratedCell, partition: GeneratedPartition) -> int:
    """Returns the member that owns a partition."""
    return int(cell.readers[partition.rank % len(cell.readers)])


def second_owner_of(cell: GeneratedCell, partition: GeneratedPartition) -> int:
    """The member that owns a partition as well, where that was planted."""
    return int(cell.readers[(partition.rank + 1) % len(cell.readers)])


def spots_of(cell: GeneratedCell, name: str, partition: GeneratedPartition) -> np.ndarray:
    """The positions of a partition that an anomaly was planted at, ascending."""
    return cell.spots.get(name, [NO_POSITIONS] * len(cell.partitions))[partition.rank]


def processed(cell: GeneratedCell, partition: GeneratedPartition, first: int, last: int) -> Columns:
    """Rows of `processed` of the records between two positions. What is planted as unprocessed is, in turn, not processed, or
    another record in its place."""
    position, spots = np.arange(first, last), spots_of(cell, "unprocessed", partition)
    position = position[~np.isin(position, spots[::2])]
    again = spots_of(cell, "reprocessed", partition)
    again = again[(again >= first) & (again < last)]
    position = np.sort(np.concatenate([position, again]))
    sender, sequence = partition.identities(position)
    mistaken = np.isin(position, spots[1::2])
    sender, sequence = np.where(mistaken, PHANTOM_CLIENT, sender), np.where(mistaken, position, sequence)
    started = partition.read_ns(position) + STARTED_AFTER_NS
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
    ahead = np.isin(last, _ends(spots_of(cell, "commit-ahead", partition)))
    yield _commit(cell, partition, last, position_behind=ahead.astype(np.int64))
    yield fallen_commits(cell, partition)


def commits_ahead(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `commits` that were planted ahead of the position."""
    last = _ends(spots_of(cell, "commit-ahead", partition))
    return _commit(cell, partition, last, position_behind=np.ones(len(last), dtype=np.int64))


def fallen_commits(cell: GeneratedCell, partition: GeneratedPartition) -> Columns:
    """Rows of `commits` that were planted below the commit in front of them."""
    last = _ends(spots_of(cell, "commit-regression", partition))
    none = np.zeros(len(last), dtype=np.int64)
    planted = _commit(cell, partition, last, position_behind=none, behind=BATCH // 2, later_ns=LATENCY_MIN_NS + 1)
    # Done before the next batch's commit is: one that may be written later would explain the next that falls.
    return planted | {"completed_ns": planted["invoked_ns"] + STEP_NS}


def _ends(spot: np.ndarray) -> np.ndarray:
    """Returns the last positions of the batches of these."""
    return np.asarray(spot // BATCH * BATCH + BATCH - 1)


def _commit(
    cell: GeneratedCell,
    partition: GeneratedPartition,
    last: np.ndarray,
    *,
    position_behind: np.ndarray,
    behind: int = 0,
    later_ns: int = 0,
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


def heartbeats(cell: GeneratedCell) -> Columns:
    """Rows of `heartbeats`: every producer, whoever waits in vain, every reader of a log and every member of a group is heard
    of until all have ended. Nobody knows whether a member that was silent for longer than its session still owned a
    partition, nor for how long a client waited of which nothing was heard. The newcomer of a group is silent until it comes,
    so that nothing is concluded from what it does not have before."""
    time_ns = np.arange(FIRST_NS, cell.ended_ns + 1, HEARTBEAT_NS)
    others = {
        "log": [cell.waiter, *cell.readers],
        "transactions": [cell.zombie, cell.successor, cell.waiter],
        "group": list(cell.readers),
        "share": list(cell.readers),
    }
    clients = np.unique([*cell.partitions[0].producers.tolist(), *others.get(cell.kind, [])])
    late_ns = np.arange(cell.newcomer_ns, cell.calm_end_ns + 1, HEARTBEAT_NS) if cell.kind == "group" else time_ns[:0]
    late_ns = np.concatenate([time_ns[: len(late_ns[:1])], late_ns])
    return {
        "client": np.concatenate([np.repeat(clients, len(time_ns)), np.full(len(late_ns), cell.newcomer)]),
        "time_ns": np.concatenate([np.tile(time_ns, len(clients)), late_ns]),
    }


def positions(cell: GeneratedCell, partition: GeneratedPartition, audits: Iterable[int]) -> Columns:
    """Returns the first position of the group, or of the reader, and of each audit. Members of share groups have none."""
    clients = np.array([*([] if cell.kind == "share" else [owner_of(cell, partition)]), *audits])
    return {
        "client": clients,
        "time_ns": np.where(np.isin(clients, list(cell.readers)), FIRST_NS + 10, cell.audit_ns),
        "log_offset": 0,
        "partition": partition.partition,
        "event": ASSIGNED,
        "span": 0,
    }


def observations(cell: GeneratedCell, partition: GeneratedPartition, audits: dict[Isolation, int]) -> Iterator[Columns]:
    """Yields the rows that say that the audits were complete and that members drained, and planted answers of leaders."""
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
            "time_ns": cell.drain_ns,
            "value": 1000,
            "partition": number,
            "kind": ObservationKind.DRAIN_BEGUN,
        }
        return
    if cell.kind == "log":
        fallen = int(cell.counts["watermark-regression"][partition.rank])
        answer = np.arange(1, fallen + 1)
        value = np.stack([answer * WATERMARKS_APART, answer * WATERMARKS_APART - 1], axis=1).ravel()
        yield {
            "client": np.full(len(value), NONE),
            "time_ns": np.arange(len(value)) * STEP_NS,
            "value": value,
            "partition": number,
            "kind": ObservationKind.LEADER_HIGH_WATERMARK,
            "node": NODES[0],
            "leader_epoch": EPOCH,
        }
        fallen = int(cell.counts["log-start-regression"][partition.rank])
        yield {
            "client": np.full(2 * fallen, NONE),
            "time_ns": np.arange(2 * fallen) * STEP_NS,
            "value": np.tile([1, 0], fallen),
            "partition": number,
            "kind": ObservationKind.LEADER_LOG_START,
            "node": NODES[0],
            "leader_epoch": EPOCH,
            "step": NONE,
        }
        # Each look-up by time is two rows: what was asked for, and what was found. The first record is right for time 0.
        wrong = int(cell.counts["mistimed"][partition.rank])
        wanted_ms = np.append(0, np.full(wrong, FAR_MS))
        yield {
            "client": np.full(2 * len(wanted_ms), NONE),
            "time_ns": np.repeat(asked_at_ns(np.arange(-1, wrong)), 2),
            "value": np.stack([wanted_ms, np.zeros(len(wanted_ms), dtype=np.int64)], axis=1).ravel(),
            "partition": number,
            "kind": np.tile([ObservationKind.TIME_ASKED, ObservationKind.TIME_FOUND], len(wanted_ms)),
            "node": NODES[0],
            "step": NONE,
        }


def asked_at_ns(turn: np.ndarray) -> np.ndarray:
    """Returns when a leader was asked by time: in these turns it answers wrongly, and in turn -1 rightly."""
    return np.asarray((turn + 1) * STEP_NS + 1)


def copies(cell: GeneratedCell, partition: GeneratedPartition, begins: Mapping[int, int]) -> Iterator[Columns]:
    """Yields the rows of `observations` about the copies of a partition at the end. `begins`: node → where its log begins."""
    for kind, value in (
        (ObservationKind.REPLICA_LOG_START, np.array([begins.get(node, 0) for node in NODES])),
        (ObservationKind.REPLICA_LOG_END, partition.end + 1),
        (ObservationKind.REPLICA_HIGH_WATERMARK, partition.end + 1),
    ):
        yield {
            "client": np.full(len(NODES), NONE),
            "time_ns": copies_read_ns(cell),
            "value": value,
            "partition": partition.partition,
            "kind": kind,
            "node": np.array(NODES),
        }


def copies_read_ns(cell: GeneratedCell) -> int:
    """Returns when the segments of the copies are read."""
    return cell.audit_ns + 3 * SHORT_AFTER_NS


def replicas(cell: GeneratedCell, partition: GeneratedPartition, node: int, first: int, last: int) -> Columns:
    """Rows of `replicas` of one copy between two positions that begin batches. What was put in has a batch of its own,
    without a producer id. A batch of which a record is gone from the log is two, and one in which sequences, or the leader
    epoch of one copy, do not go on."""
    size, inserted = partition.layout.batch, partition.edits.inserted
    low, high = np.searchsorted(inserted["after"], [first, last])
    gone = partition.edits.missing["log"]
    gone = gone[(gone >= first) & (gone < last)]
    fallen = partition.edits.fallen_in_replica
    cut = np.sort(np.concatenate([spots_of(cell, "out-of-sequence", partition), fallen, fallen + 1]))
    cut = cut[(cut >= first) & (cut < last)]
    if len(gone) or len(cut) or high > low:
        begin, end, put_in = _stretches(partition, first, last, gone, cut, inserted[low:high])
    else:
        begin = np.arange(first, last, size)
        end, put_in = begin + size, np.empty(0, dtype=np.int64)
    checksum = begin * 1_000_003 % (1 << 31)
    if node == NODES[-1]:
        checksum = np.where(
            np.isin(begin // BATCH, spots_of(cell, "diverged", partition) // BATCH), checksum ^ 1, checksum
        )
    epoch = np.full(len(begin), EPOCH)
    if node == FALLEN_NODE:
        epoch[np.isin(begin, fallen)] = FALLEN_EPOCH
    base = np.concatenate([partition.offsets(begin), put_in])
    order, none = np.argsort(base, kind="stable"), np.full(len(put_in), NONE)
    columns = {
        "base_offset": base,
        "last_offset": np.concatenate([partition.offsets(end - 1), put_in]),
        "producer_id": np.concatenate([partition.producers[partition.layout.producer(begin)], none]),
        "producer_epoch": np.concatenate([np.zeros(len(begin), dtype=np.int64), none]),
        "base_sequence": np.concatenate([base_sequences(cell, partition, begin), none]),
        "checksum": np.concatenate([checksum, put_in]),
        "base_timestamp_ms": np.concatenate([begin // 1000, none + 1]),
        "max_timestamp_ms": np.concatenate([(begin + size) // 1000, none + 1]),
        "records": np.concatenate([end - begin, none + 2]),
        "leader_epoch": np.concatenate([epoch, np.full(len(put_in), EPOCH)]),
    }
    rows: Columns = {name: values[order] for name, values in columns.items()}
    return rows | {
        "client": np.full(len(base), NONE),
        "read_ns": copies_read_ns(cell),
        "partition": partition.partition,
        "node": node,
        "size": 100 * rows["records"],
        "attributes": TRANSACTIONAL if partition.transactional else 0,
    }


def _stretches(
    partition: GeneratedPartition, first: int, last: int, gone: np.ndarray, cut: np.ndarray, inserted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the first position, and that behind the last one, of each batch of which no record is gone, in which nothing
    was put in, and that is not cut in front of a position; and the offsets of what was put into the log, which stands behind
    its position."""
    size, position = partition.layout.batch, np.arange(first, last)
    starts = (position % size == 0) | np.isin(position - 1, gone) | np.isin(position - 1, inserted["after"])
    starts |= np.isin(position, cut)
    starts &= ~np.isin(position, gone)
    begin = position[starts]
    ends = np.sort(np.concatenate([position[position % size == 0] + size, gone, cut, inserted["after"] + 1]))
    end = ends[np.searchsorted(ends, begin, side="right")]
    low = int(np.searchsorted(partition.edits.inserted["after"], first))
    offsets = partition.inserted_offsets(low, low + len(inserted))
    return begin, end, offsets[inserted["in_log"]]


def base_sequences(cell: GeneratedCell, partition: GeneratedPartition, begin: np.ndarray) -> np.ndarray:
    """Returns the sequence number of the records at these positions, as their producer numbered them for the brokers. From a
    position on at which it was planted, a producer has left out one more number."""
    layout, number = partition.layout, partition.layout.number(begin)
    spot = spots_of(cell, "out-of-sequence", partition)
    if len(spot):
        whose, producer = layout.producer(spot), layout.producer(begin)
        for one in range(layout.producers):
            mine = np.flatnonzero(producer == one)
            number[mine] += np.searchsorted(spot[whose == one], begin[mine], side="right")
    return np.asarray(number % (1 << 31))


def metadata(cell: GeneratedCell, partition: GeneratedPartition) -> Iterator[Columns]:
    """Yields who led and who was in sync; and what brokers reported, where that was planted to go back."""
    counts = {n: int(c[partition.rank]) for n, c in cell.counts.items()}
    # Planted first: a leader that is not in sync. It goes on to lead.
    wrong = range(FIRST_NS - 1 - counts.get("illegal-transition", 0), FIRST_NS - 1)
    begun = [(now_ns, NODES[1], ALL & ~(1 << NODES[1])) for now_ns in wrong]
    begun += [(FIRST_NS - 1, NODES[1], ALL), (FIRST_NS, NODES[0], ALL)]
    yield _states(partition, [*begun, *_elections(cell, counts)])
    answers = len(partition.edits.answered)
    yield {
        "client": np.full(2 * answers, NONE),
        "time_ns": np.arange(2 * answers) * STEP_NS,
        "kind": MetadataKind.PARTITION,
        "source": MetadataSource.SAMPLE,
        "partition": partition.partition,
        "node": FALLEN_NODE,
        "leader": NODES[0],
        "leader_epoch": np.tile([EPOCH, FALLEN_EPOCH], answers),
        "isr": ALL,
        "replicas": ALL,
        "elr": 0,
        "last_known_elr": 0,
        "recovering": 0,
    }


def _elections(cell: GeneratedCell, counts: dict[str, int]) -> Iterator[tuple[int, int, int]]:
    """(when, leader, ISR): leaders from outside the ISR in turn, then an ISR of the leader alone for a while, then at times
    nobody leads."""
    leader, now_ns = NODES[0], cell.end_ns
    for _ in range(counts.get("unclean", 0)):
        other = NODES[0] + NODES[1] - leader
        yield now_ns + 1, leader, ALL & ~(1 << other)
        yield now_ns + 2, other, ALL
        leader, now_ns = other, now_ns + STEP_NS
    if counts.get("under-acknowledged", 0):
        yield cell.end_ns + SHORT_AFTER_NS, leader, 1 << leader
        yield cell.end_ns + 3 * SHORT_AFTER_NS, leader, ALL
    for since_ns in cell.waited_ns(np.arange(counts.get("leaderless", 0))).tolist():
        yield since_ns, NONE, ALL
        yield since_ns + LEADERLESS_NS, leader, ALL


def log_positions(time_ns: np.ndarray) -> np.ndarray:
    """Returns where the controllers' log has what happened at these times: in their order."""
    return np.asarray(time_ns - BEFORE_NS)


def _states(partition: GeneratedPartition, states: list[tuple[int, int, int]]) -> Columns:
    time_ns, leader, isr = np.array(states, dtype=np.int64).T
    return {
        "client": np.full(len(states), NONE),
        "time_ns": time_ns,
        "kind": MetadataKind.PARTITION,
        "source": MetadataSource.CONTROLLER_LOG,
        "log_position": log_positions(time_ns),
        "partition": partition.partition,
        "node": leader,
        "leader": leader,
        "leader_epoch": FALLEN_EPOCH + np.cumsum(np.diff(leader, prepend=leader[0]) != 0),
        "isr": isr,
        "replicas": ALL,
        "elr": 0,
        "last_known_elr": 0,
        "recovering": 0,
    }
