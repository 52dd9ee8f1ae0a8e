"""Makes the log of a partition of a generated history by formula: the record at each position, its producer, its time of
sending, and the planted anomalies."""

from dataclasses import dataclass, field

import numpy as np

from prozess.exchange.synthetic.plants import INSERTED, NO_POSITIONS, PLANT_CODES
from prozess.harness.schema import MISSING, NONE, Outcome, ReadFlag

BATCH = 16
STEP_NS = 1_000
"""The time between two records of a partition."""
ABORTED_EVERY = 16
COMMIT_AFTER_NS = 21_000_000
"""A transaction's commit is invoked so long after its last record was sent."""
TRANSACTION_NS = 23_000_000
"""From the begin of a transaction to that of the next of the same producer, where each has few records."""


@dataclass(frozen=True, slots=True)
class LogLayout:
    """Computes the record at each position of one partition, `rank` of `partitions` in its cell. Producers take turns by the
    batch, at the same positions of every partition. A transaction is a batch in each of them."""

    rank: int
    partitions: int
    producers: int

    @property
    def batch(self) -> int:
        """Returns how many positions that follow one another belong to one producer, and to one transaction."""
        return BATCH

    @property
    def step_ns(self) -> int:
        """Returns the average time between two positions."""
        return STEP_NS

    @property
    def per_turn(self) -> int:
        """Transactions of each producer in a turn of all of them."""
        return 1

    @property
    def period(self) -> int:
        """Returns the number of positions in which every producer has as many as every other."""
        return BATCH * self.producers

    def sent_ns(self, position: np.ndarray) -> np.ndarray:
        """Returns when the record at each position was sent."""
        return np.asarray(position * STEP_NS)

    def turn(self, position: np.ndarray) -> np.ndarray:
        """Returns how often every producer had had its turn before."""
        return np.asarray(position // BATCH // self.producers)

    def producer(self, position: np.ndarray) -> np.ndarray:
        """Returns the number of the producer at each position."""
        return np.asarray(position // BATCH % self.producers)

    def sequence(self, position: np.ndarray) -> np.ndarray:
        """Returns the number of the record among its producer's, over all partitions."""
        return np.asarray((self.turn(position) * BATCH + position % BATCH) * self.partitions + self.rank)

    def transaction(self, position: np.ndarray) -> np.ndarray:
        """Returns the number of the transaction among those of its producer."""
        return self.turn(position)

    def positions_of(self, producer: int, first: int, last: int) -> np.ndarray:
        """Positions of the records number first … last - 1 that a producer sent to this partition."""
        own = np.arange(first, last)
        return (own // BATCH * self.producers + producer) * BATCH + own % BATCH

    def number(self, position: np.ndarray) -> np.ndarray:
        """Returns the number of the record among those that its producer sent to this partition."""
        return np.asarray(self.turn(position) * BATCH + position % BATCH)

    def begun_ns(self, producer: int, number: np.ndarray) -> np.ndarray:
        """Returns when a producer began its transactions of these numbers."""
        return np.asarray((number * self.producers + producer) * BATCH * STEP_NS)


@dataclass(frozen=True, slots=True)
class SpreadLayout(LogLayout):
    """Transactions of `records` records, each in another partition, `producers` of them at a time, and other partitions
    together each time: position i of all partitions holds the records of partitions / records transactions, shared out to
    partitions that are turned by one from position to position."""

    records: int

    @property
    def batch(self) -> int:
        """Returns the same as `LogLayout.batch`."""
        return 1

    @property
    def step_ns(self) -> int:
        """Returns the same as `LogLayout.step_ns`."""
        return self.per_turn * TRANSACTION_NS

    @property
    def per_turn(self) -> int:
        """Returns the same as `LogLayout.per_turn`: a turn is one position of all partitions."""
        return self.partitions // self.records // self.producers

    @property
    def period(self) -> int:
        """Returns the same as `LogLayout.period`."""
        return self.partitions

    def _slot(self, position: np.ndarray) -> np.ndarray:
        """Returns which of the transactions that share this position."""
        return np.asarray((position + self.rank) % self.partitions // self.records)

    def sent_ns(self, position: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.sent_ns`."""
        return np.asarray(self.transaction(position) * TRANSACTION_NS)

    def turn(self, position: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.turn`."""
        return position

    def producer(self, position: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.producer`."""
        return self._slot(position) % self.producers

    def sequence(self, position: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.sequence`."""
        within = (position + self.rank) % self.partitions % self.records
        return np.asarray(self.transaction(position) * self.records + within)

    def transaction(self, position: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.transaction`."""
        return np.asarray(position * self.per_turn + self._slot(position) // self.producers)

    def positions_of(self, producer: int, first: int, last: int) -> np.ndarray:
        """Returns the same as `LogLayout.positions_of`."""
        mine = np.flatnonzero(self.producer(np.arange(self.period)) == producer)
        own = np.arange(first, last)
        return np.asarray(own // len(mine) * self.period + mine[own % len(mine)])

    def number(self, position: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.number`."""
        producer = self.producer(np.arange(self.period))
        own = producer == np.arange(self.producers)[:, None]
        within = own.cumsum(axis=1)[producer, np.arange(self.period)] - 1
        each = own.sum(axis=1)[producer]
        slot = position % self.period
        return np.asarray(position // self.period * each[slot] + within[slot])

    def begun_ns(self, producer: int, number: np.ndarray) -> np.ndarray:
        """Returns the same as `LogLayout.begun_ns`: all of them begin at the same times."""
        return np.asarray(number * TRANSACTION_NS)


# One partition of a generated history: its log by formula, and what was planted in it. Any stretch of it can be made
# alone, so that a partition of any length needs the memory of one chunk.
#
# Which record belongs at a position the formulas above say. What is planted changes positions, or puts a record in
# behind one, each in a batch of its own, so that no two touch.


LATENCY_MIN_NS, LATENCY_SPREAD_NS = 1_000_000, 19_000_000
READ_AFTER_NS = 40_000_000
"""Tailing readers read so long after a record was sent."""
VAIN_NS = 55_000_000_000
"""What is waited for in vain is over after so long: more than any of the bounds (`Bounds`)."""
LATE_S = 0.1
"""Within so long after its sending every record is promised to be delivered; what is planted as late takes so much longer."""
MISREPORTED_BY = 2
"""Offsets. What is planted as an offset conflict is acknowledged so much further on."""
EARLIER_NS = STEP_NS + 2
"""What is planted as time travel is sent so much earlier: before the record in front of it."""
UNSENT_NS = 1
VIEWS = ("tail", "log", "visible")
EPOCH, FALLEN_EPOCH = 1, 0
"""Leader epochs of the log; and of a record at which it was planted to fall. In both of them somebody led."""
OTHER_KEY = 1
"""Key with which records are read that were planted to have another one than they were sent with."""
SENTINEL = 0


@dataclass
class Edits:
    """Describes what was planted in one partition: positions, ascending."""

    missing: dict[str, np.ndarray] = field(default_factory=lambda: dict.fromkeys(VIEWS, NO_POSITIONS))
    """View → positions that it does not show."""
    swapped: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """With the next one."""
    corrupt: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    rekeyed: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """Read with another key than they were sent with."""
    misreported: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """Acknowledged MISREPORTED_BY further on."""
    early: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """Acknowledged just before the record in front of it was sent."""
    unsent: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """Given to the tailing reader UNSENT_NS before they are sent."""
    repeated: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """Given to the tailing reader twice."""
    late: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """Given to the tailing reader beyond the bound."""
    answered: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """One for each time that a broker answers with a lower leader epoch than before."""
    fallen_in_replica: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """One replica has them with a lower leader epoch than the record in front."""
    fallen_in_log: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """The audit is given them so."""
    fallen_in_tail: np.ndarray = field(default_factory=lambda: NO_POSITIONS)
    """The tailing reader is given them so."""
    inserted: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=INSERTED))
    """INSERTED, ascending by `after`; records of clients of their own, and copies."""


@dataclass
class GeneratedPartition:
    """`rank` of `partitions` in its cell; `producers`: client ids; `length` positions."""

    partition: int
    rank: int
    partitions: int
    producers: np.ndarray
    length: int
    transactional: bool = False
    edits: Edits = field(default_factory=Edits)
    keys: int = 0
    """Compacted: so many keys in turn; 0 = records have none."""
    tombstones: int = 0
    """For the keys, every nth ends with a tombstone."""
    kept_from: int = 0
    """Compaction removed what stands before."""
    spread: int = 0
    """Transactions have so many records, each in another partition; 0 = a batch in each."""

    def __post_init__(self) -> None:
        sizes = (self.rank, self.partitions, len(self.producers))
        self.layout: LogLayout = SpreadLayout(*sizes, self.spread) if self.spread else LogLayout(*sizes)

    @property
    def end(self) -> int:
        """Returns the offset of the sentinel."""
        return int(self.offsets(np.array([self.length - 1]))[0]) + len(self._tail_end()) + 1 + int(self.transactional)

    def _tail_end(self) -> np.ndarray:
        rows: np.ndarray = self.edits.inserted
        return np.asarray(rows[rows["after"] == self.length - 1])

    def offsets(self, position: np.ndarray) -> np.ndarray:
        """Offsets of positions: markers of transactions and inserted records take some."""
        shifted = np.searchsorted(self.edits.inserted["after"], position, side="left")
        return np.asarray(position + shifted + (position // self.layout.batch if self.transactional else 0))

    def inserted_offsets(self, first: int, last: int) -> np.ndarray:
        """Returns the offsets of the inserted records number first … last - 1."""
        after = self.edits.inserted["after"][first:last]
        markers = after // self.layout.batch if self.transactional else 0
        return np.asarray(after + 1 + np.arange(first, last) + markers)

    def read_ns(self, position: np.ndarray) -> np.ndarray:
        """Returns when a tailing reader is given the record at each position."""
        return np.asarray(self.layout.sent_ns(position) + READ_AFTER_NS)

    def inserted_read_ns(self, rows: np.ndarray) -> np.ndarray:
        """Returns when a tailing reader is given inserted records (INSERTED)."""
        sent_ns = np.maximum(self.layout.sent_ns(rows["after"]), rows["invoked_ns"])
        return np.asarray(sent_ns + READ_AFTER_NS - rows["sooner_ns"])

    def identities(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (client, sequence) of the records that stand there."""
        position = self._standing(position)
        sender: np.ndarray = self.producers[self.layout.producer(position)]
        return sender, self.layout.sequence(position)

    def _standing(self, position: np.ndarray) -> np.ndarray:
        """Returns which position's record stands at each, after swaps."""
        swapped = self.edits.swapped
        if not _touches(swapped, position) and not _touches(swapped + 1, position):
            return position
        return np.asarray(position + np.isin(position, swapped) - np.isin(position, swapped + 1))

    def aborted(self, position: np.ndarray) -> np.ndarray:
        """Returns bool: in a transaction that is aborted."""
        if not self.transactional:
            return np.zeros(len(position), dtype=bool)
        aborted: np.ndarray = self.layout.turn(position) % ABORTED_EVERY == ABORTED_EVERY - 1
        return aborted

    # Sends.

    def sends(self, producer: int, first: int, last: int) -> dict[str, np.ndarray]:
        """Rows of `sends` of one producer: its records number first … last - 1 of this partition."""
        position = self.layout.positions_of(producer, first, last)
        invoked = self.layout.sent_ns(position)
        completed = invoked + latencies(position)
        stands = self._standing(position)
        offset = self.offsets(stands)
        edits = self.edits
        if _touches(edits.misreported, position):
            offset = np.where(np.isin(position, edits.misreported), offset + MISREPORTED_BY, offset)
        if _touches(edits.early, position):
            early = np.isin(position, edits.early)
            completed = np.where(early, invoked - EARLIER_NS + 1, completed)
            invoked = np.where(early, invoked - EARLIER_NS, invoked)
        aborted = self.aborted(position)
        rows = np.full(len(position), self.producers[producer], dtype=np.int32)
        columns: dict[str, np.ndarray | int] = {
            "client": rows,
            "invoked_ns": invoked,
            "completed_ns": completed,
            "log_offset": offset,
            "sequence": self.layout.sequence(position),
            "partition": self.partition,
            "outcome": np.where(aborted, Outcome.FAIL, Outcome.OK),
            "code": 0,
            "size": 100,
        }
        if self.transactional:
            columns["transaction"] = self.layout.transaction(position)
        if self.keys:
            columns["key"] = position % self.keys
            columns["size"] = np.where(self._are_tombstones(position), NONE, 100)
        return columns  # type: ignore[return-value] # whoever writes them fills in what is one for all

    def _are_tombstones(self, position: np.ndarray) -> np.ndarray:
        last_round = position >= self.length - self.keys
        return np.asarray(last_round & (position % self.keys % self.tombstones == self.tombstones - 1))

    def planted_sends(self) -> dict[str, np.ndarray]:
        """Rows of `sends` of the clients whose records were put in, ascending by (client, sequence)."""
        rows = self.edits.inserted
        chosen = np.flatnonzero(rows["outcome"] != NONE)
        chosen = chosen[np.lexsort((rows["sequence"][chosen], rows["client"][chosen]))]
        offset = self.inserted_offsets(0, len(rows))[chosen]
        rows = rows[chosen]
        invoked = rows["invoked_ns"]
        ok = rows["outcome"] == Outcome.OK
        after_ns = np.where(rows["plant"] == PLANT_CODES["stuck"], VAIN_NS, LATENCY_MIN_NS)
        columns: dict[str, np.ndarray | int] = {
            "client": rows["client"],
            "invoked_ns": invoked,
            "completed_ns": np.where(rows["outcome"] == Outcome.INFO, MISSING, invoked + after_ns),
            "log_offset": np.where(ok, offset, NONE),
            "sequence": rows["sequence"],
            "transaction": rows["transaction"],
            "partition": self.partition,
            "outcome": rows["outcome"],
            "code": np.where(ok, 0, -1),
            "size": 100,
        }
        return columns  # type: ignore[return-value]

    def sentinel_send(self, sent_ns: int) -> dict[str, np.ndarray]:
        """Returns the row of the sentinel."""
        columns = {
            "client": np.array([SENTINEL]),
            "invoked_ns": sent_ns,
            "completed_ns": sent_ns + LATENCY_MIN_NS,
            "log_offset": self.end,
            "sequence": self.partition,
            "partition": self.partition,
            "outcome": Outcome.OK,
            "code": 0,
            "size": 100,
        }
        return columns  # type: ignore[return-value]

    # Reads.

    def reads(self, view: str, client: int, first: int, last: int, *, from_ns: int | None) -> dict[str, np.ndarray]:
        """Rows of `reads` of one client between two positions: what a view shows. `from_ns`: when an audit began; None = a
        tailing reader."""
        position = np.arange(max(first, self.kept_from) if view != "tail" else first, last)
        gone = self.edits.missing[view]
        keep = ~np.isin(position, gone) if _touches(gone, position) else None
        if self.transactional and view != "log":
            shown = ~self.aborted(position)
            keep = shown if keep is None else keep & shown
        if keep is not None:
            position = position[keep]
        if view == "tail" and len(self.edits.repeated):
            position = np.sort(np.concatenate([position, _within(self.edits.repeated, first, last)]))
        sender, sequence = self.identities(position)
        columns = {
            "log_offset": self.offsets(position),
            "sequence": sequence,
            "sender": sender.astype(np.int32),
            "sent_partition": np.full(len(position), self.partition, dtype=np.int32),
            "flags": np.zeros(len(position), dtype=np.int32),
            "key": position % self.keys if self.keys else np.full(len(position), NONE),
            "read_ns": self.read_ns(position),
            "leader_epoch": self._epochs(view, position),
        }
        if _touches(self.edits.rekeyed, position):
            columns["key"] = np.where(np.isin(position, self.edits.rekeyed), OTHER_KEY, columns["key"])
        if view == "tail" and _touches(self.edits.late, position):
            columns["read_ns"] = columns["read_ns"] + np.isin(position, self.edits.late) * round(LATE_S * 1e9)
        if view == "tail" and _touches(self.edits.unsent, position):
            unsent_ns = self.layout.sent_ns(position) - UNSENT_NS
            columns["read_ns"] = np.where(np.isin(position, self.edits.unsent), unsent_ns, columns["read_ns"])
        if len(_within(self.edits.corrupt, first, last)):
            spoiled = np.isin(position, self.edits.corrupt)
            columns["flags"][spoiled] = ReadFlag.CORRUPT
            for name in ("sequence", "sender", "sent_partition", "key"):
                columns[name] = np.where(spoiled, NONE, columns[name]).astype(columns[name].dtype)
        columns = self._with_inserted(columns, view, first, last)
        length = len(columns["sequence"])
        if from_ns is not None:
            columns["read_ns"] = audit_read_ns(from_ns, columns["log_offset"])
        return columns | {
            "client": np.full(length, client, dtype=np.int32),
            "partition": np.full(length, self.partition, dtype=np.int32),
            "span": np.zeros(length, dtype=np.int32),
        }

    def _epochs(self, view: str, position: np.ndarray) -> np.ndarray:
        epoch = np.full(len(position), EPOCH, dtype=np.int32)
        fallen = {"tail": self.edits.fallen_in_tail, "log": self.edits.fallen_in_log}.get(view, NO_POSITIONS)
        if _touches(fallen, position):
            epoch[np.isin(position, fallen)] = FALLEN_EPOCH
        return epoch

    def _with_inserted(self, columns: dict[str, np.ndarray], view: str, first: int, last: int) -> dict[str, np.ndarray]:
        low, high = np.searchsorted(self.edits.inserted["after"], [first, last])
        rows = self.edits.inserted[low:high]
        shown = rows[f"in_{view}"]
        if not shown.any():
            return columns
        offset, rows = self.inserted_offsets(int(low), int(high))[shown], rows[shown]
        own = np.where(rows["sent_partition"] == NONE, self.partition, rows["sent_partition"])
        more = {
            "log_offset": offset,
            "sequence": rows["sequence"],
            "sender": rows["client"],
            "sent_partition": own,
            "flags": np.zeros(len(rows), dtype=np.int32),
            "key": np.full(len(rows), NONE),
            "read_ns": self.inserted_read_ns(rows),
            "leader_epoch": np.full(len(rows), EPOCH),
        }
        merged = {name: np.concatenate([values, more[name].astype(values.dtype)]) for name, values in columns.items()}
        order = np.argsort(merged["log_offset"], kind="stable")
        return {name: values[order] for name, values in merged.items()}

    def sentinel_read(self, client: int, read_ns: int) -> dict[str, np.ndarray]:
        """Returns the row by which an audit reaches the end."""
        columns = {
            "client": np.array([client]),
            "read_ns": read_ns,
            "log_offset": self.end,
            "sequence": self.partition,
            "sender": SENTINEL,
            "partition": self.partition,
            "sent_partition": self.partition,
            "span": 0,
            "flags": 0,
            "leader_epoch": EPOCH,
        }
        return columns  # type: ignore[return-value]


def audit_read_ns(from_ns: int, offset: np.ndarray) -> np.ndarray:
    """Returns when an audit that begins at `from_ns` is given the records at these offsets."""
    return np.asarray(from_ns + offset // 4)


def latencies(position: np.ndarray) -> np.ndarray:
    """Returns int64: how long each send takes: the same for the same position, and as good as random (splitmix64)."""
    mixed = position.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(LATENCY_MIN_NS + (mixed >> np.uint64(40)).astype(np.int64) % LATENCY_SPREAD_NS)


def _touches(positions: np.ndarray, those: np.ndarray) -> bool:
    """Returns whether one of `positions` is between the first and the last of `those`. Both are ascending."""
    return bool(len(positions) and len(those) and len(_within(positions, int(those[0]), int(those[-1]) + 1)))


def _within(positions: np.ndarray, first: int, last: int) -> np.ndarray:
    low, high = np.searchsorted(positions, [first, last])
    return np.asarray(positions[low:high])
