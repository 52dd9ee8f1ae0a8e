"""A small model of one Kafka partition that writes valid histories, for hypothesis. `kafka_anomalies` spoils them.

It knows offsets with marker holes, a high watermark, failovers that cut only what is uncommitted (and retries of what was
cut), replies that are lost, successes without offset, sends that certainly fail, aborted records, a producer that crashed
before it could record everything, leaders that move and replicas that leave the ISR, what brokers answer, readers at both
isolation levels with seeks, an earlier sentinel in mid-log and a straggler behind the last one, and what the brokers' disks
hold in the end. Retries that put a record in twice happen only if `duplicates` is allowed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from hypothesis import strategies as st

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Isolation
from tests.support.cells.partitions import (
    ACKS,
    AUDIT,
    AUDIT_COMMITTED,
    COMMITTED_LEVEL,
    CRASHED,
    FAIL,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_2,
    PRODUCER_ACKS_0,
    PRODUCER_ACKS_1,
    READER,
    READER_2,
    READER_COMMITTED,
    READER_COMMITTED_2,
    make,
    read_row,
    send_row,
)
from tests.support.kafka_model.disks import Disks, write_disks
from tests.support.kafka_model.leaders import MIN_INSYNC, Leaders

PRODUCERS = (PRODUCER, PRODUCER_ACKS_1, PRODUCER_ACKS_0, CRASHED)
"""PRODUCER_2 is left for those who spoil a history."""
READERS = (READER, READER_2, READER_COMMITTED, READER_COMMITTED_2)
FATES = ("acknowledged", "mute", "vanished", "blind", "failed", "aborted", "repeated")
ISSUED_BY_SPOILER = 10**7
TICK_NS = 50_000_000
"""Every event is so much later than the one before."""


def epoch_at(offset: int) -> int:
    """The leader epoch of the record at an offset, as readers are reported: it never falls along the log."""
    return offset % 10**6 // 7


@dataclass
class Entry:
    """A record in the log. `overrides`: columns of its reads that are not as usual."""

    offset: int
    client: int
    sequence: int
    visible: bool = True
    hidden: bool = False
    """From the audit at read_committed, although no transaction wrote it."""
    overrides: dict[str, int] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[int, int]:
        return self.client, self.sequence


@dataclass
class Facts:
    """What happened to one partition, as rows that can still be changed."""

    sends: dict[tuple[int, int], dict[str, int]]
    log: list[Entry]
    """What stands there in the end, ascending by offset; sentinels too, but for the last one."""
    beyond: list[Entry]
    reads: dict[int, list[dict[str, int]]]
    """Of each reader, in the order of reading."""
    base: int
    sentinel: int
    sentinel_ns: int
    issued: dict[int, int]
    copies: int
    """How many records were put in once more."""
    metadata: list[dict[str, int]]
    observations: list[dict[str, int]]
    write: Callable[[list[Entry]], Disks]
    """Writes down what stands in the log."""
    compacted: bool = False
    removed: list[Entry] = field(default_factory=list)
    """By the cleaner."""

    @cached_property
    def disks(self) -> Disks:
        """What is on the brokers' disks. Nobody changes the log once it was asked for."""
        return self.write([*self.log, Entry(self.sentinel, SENTINEL_CLIENT, 10**6), *self.beyond])

    @property
    def written(self) -> bool:
        return "disks" in self.__dict__

    def rows(self) -> list[dict[str, int]]:
        """Every row of every reader."""
        return [row for rows in self.reads.values() for row in rows]

    def history(self) -> PartitionHistory:
        """The arrays."""
        last = send_row(SENTINEL_CLIENT, 10**6, OK, self.sentinel, self.sentinel_ns)
        sends = sorted([*self.sends.values(), last], key=lambda row: (row["client"], row["sequence"]))
        reads = [row for reader in sorted(self.reads) for row in self.reads[reader]]
        sentinel = Entry(self.sentinel, SENTINEL_CLIENT, 10**6)
        for client in (AUDIT, AUDIT_COMMITTED):
            shown = [e for e in self.log if (e.visible and not e.hidden) or client == AUDIT]
            for number, e in enumerate([*shown, sentinel, *self.beyond]):
                row = read_row(client, e.offset, e.client, e.sequence, self.sentinel_ns + 100 + number)
                reads.append(row | e.overrides)
        ends = {Isolation.READ_UNCOMMITTED: self.sentinel, Isolation.READ_COMMITTED: self.sentinel}
        return make(
            sends,
            reads,
            ends=ends,
            issued=self.issued | {PRODUCER_2: ISSUED_BY_SPOILER},
            compacted=self.compacted,
            metadata=self.metadata,
            observations=self.observations + self.disks.noted,
            copies=self.disks.copies,
            replicas=self.disks.batches,
            snapshots=self.disks.snapshots,
        )


class Partition:
    """The partition while it lives. Each operation takes some time."""

    def __init__(self, base: int, rng: random.Random, *, duplicates: bool) -> None:
        self.base, self.rng, self.duplicates = base, rng, duplicates
        self.next_offset, self.now_ns, self.committed = base, 0, 0
        self.log: list[Entry] = []
        self.sends: dict[tuple[int, int], dict[str, int]] = {}
        self.fates: dict[tuple[int, int], str] = {}
        self.next_sequence = dict.fromkeys((*PRODUCERS, SENTINEL_CLIENT), 0)
        self.reads: dict[int, list[dict[str, int]]] = {reader: [] for reader in READERS}
        self.positions, self.spans = dict.fromkeys(READERS, base), dict.fromkeys(READERS, 0)
        self.copies = 0
        self.leaders = Leaders(rng)

    def send(self, client: int, fate: str) -> None:
        """Send one record; sequences in between went to other partitions."""
        sequence = self.next_sequence[client] + self.rng.choice((0, 0, 1, 3))
        self.next_sequence[client] = sequence + 1
        row = send_row(client, sequence, INFO, NONE, self._tick()) | {"completed_ns": MISSING}
        if fate == "repeated" and not self.duplicates:
            fate = "acknowledged"
        if fate in ("failed", "aborted"):
            row |= {"outcome": FAIL, "completed_ns": self._tick()}
        if fate == "aborted":
            row["transaction"] = sequence
        self.sends[client, sequence], self.fates[client, sequence] = row, fate
        if fate not in ("vanished", "failed"):
            self._append(client, sequence, visible=fate != "aborted")

    def hole(self) -> None:
        """A transaction marker takes an offset."""
        self.next_offset += self.rng.choice((1, 1, 2, 5))

    def commit(self) -> None:
        """Every replica in sync has everything: the replies go out, the high watermark moves to the end. Not while there are
        fewer than min.insync.replicas (strict, KIP-966)."""
        if len(self.leaders.isr) < MIN_INSYNC:
            return
        for entry in self.log[self.committed :]:
            fate = self.fates.get(entry.identity)
            if fate == "repeated":
                self.fates[entry.identity] = "acknowledged"
                self._append(*entry.identity)  # the reply was lost, the retry is acknowledged
                self.copies += 1
        for entry in self.log[self.committed :]:
            if self.fates.get(entry.identity) in ("acknowledged", "blind"):
                known = self.fates[entry.identity] == "acknowledged" and ACKS[entry.client] != 0
                self.sends[entry.identity] |= {
                    "outcome": OK,
                    "completed_ns": self._tick(),
                    "log_offset": entry.offset if known else NONE,
                }
        self.committed = len(self.log)

    def failover(self, kept: int) -> None:
        """A new leader that has `kept` of the uncommitted records; of the others some are sent again."""
        self.leaders.elect(self._tick())
        cut = self.log[self.committed + kept :]
        del self.log[self.committed + kept :]
        self.next_offset = self.log[-1].offset + 1 if self.log else self.base
        for entry in cut:
            if self.rng.random() < 0.5:
                self._append(*entry.identity, visible=entry.visible)
            else:
                self.fates[entry.identity] = "vanished"

    def read(self, reader: int, count: int) -> None:
        """A poll: committed records from the reader's position, as far as its level shows them."""
        for entry in self.log[: self.committed]:
            if entry.offset >= self.positions[reader] and count > 0:
                self.positions[reader] = entry.offset + 1
                if entry.visible or reader not in COMMITTED_LEVEL:
                    self._give(reader, entry)
                    count -= 1

    def shrink(self) -> None:
        """A follower leaves the ISR; how long it stays away decides what may be acknowledged."""
        self.leaders.shrink(self._tick())
        self.now_ns += self.rng.choice((0, 2 * NS_PER_S))

    def whole(self) -> None:
        """Everybody is in sync again."""
        self.now_ns += self.rng.choice((0, 2 * NS_PER_S))
        self.leaders.whole(self._tick())

    def ask(self, node: int) -> None:
        """A broker is asked for its view, and, where it leads, for the high watermark."""
        committed = self.log[self.committed - 1].offset + 1 if self.committed else self.base
        self.leaders.ask(node, self._tick(), committed)

    def seek(self, reader: int, place: int) -> None:
        """To any offset so far; a new span begins."""
        self.spans[reader] += 1
        self.positions[reader] = self.base + place % (self.next_offset - self.base + 1)

    def early_sentinel(self) -> None:
        """An audit that did not get through."""
        self.whole()
        self.commit()
        sequence = self.next_sequence[SENTINEL_CLIENT]
        self.next_sequence[SENTINEL_CLIENT] += 1
        self.sends[SENTINEL_CLIENT, sequence] = send_row(SENTINEL_CLIENT, sequence, OK, self.next_offset, self._tick())
        self._append(SENTINEL_CLIENT, sequence)
        self.committed = len(self.log)

    def end(self) -> Facts:
        """The cluster is whole again; the last sentinel is sent; the crashed producer's last rows are missing."""
        self.whole()
        self.commit()
        self.next_offset += 4
        sentinel, sentinel_ns = self.next_offset, self._tick()
        last = Entry(sentinel, SENTINEL_CLIENT, 10**6)
        beyond = self._straggler(sentinel + 1)
        for reader in self.rng.sample(READERS, 2):
            self.read(reader, len(self.log))
            for entry in (last, *beyond):
                self._give(reader, entry)
        unrecorded = [key for key in self.sends if key[0] == CRASHED][-self.rng.randrange(3) or 10**6 :]
        for key in unrecorded:
            del self.sends[key]
        issued = {client: self.next_sequence[client] for client in PRODUCERS if client != CRASHED}

        def write(log: list[Entry]) -> Disks:
            records = [(e.offset, e.client, not e.visible) for e in log]
            return write_disks(records, (PRODUCER, CRASHED), sentinel + 1, self.rng)

        return Facts(
            sends=self.sends,
            log=self.log,
            beyond=beyond,
            reads=self.reads,
            base=self.base,
            sentinel=sentinel,
            sentinel_ns=sentinel_ns,
            issued=issued,
            copies=self.copies,
            metadata=self.leaders.metadata,
            observations=self.leaders.observations,
            write=write,
        )

    def _straggler(self, offset: int) -> list[Entry]:
        """A send nobody heard of lands behind the sentinel after all, and may even be acknowledged."""
        late = [key for key, fate in self.fates.items() if fate == "vanished"]
        if not late or self.rng.random() < 0.5:
            return []
        client, sequence = self.rng.choice(late)
        if self.rng.random() < 0.5:
            told = NONE if ACKS[client] == 0 else offset
            self.sends[client, sequence] |= {"outcome": OK, "completed_ns": self._tick(), "log_offset": told}
        return [Entry(offset, client, sequence)]

    def _append(self, client: int, sequence: int, *, visible: bool = True) -> None:
        self.log.append(Entry(self.next_offset, client, sequence, visible))
        self.next_offset += 1

    def _give(self, reader: int, entry: Entry) -> None:
        row = read_row(reader, entry.offset, entry.client, entry.sequence, self._tick())
        self.reads[reader].append(row | {"span": self.spans[reader], "leader_epoch": epoch_at(entry.offset)})

    def _tick(self) -> int:
        self.now_ns += TICK_NS
        return self.now_ns


_OPERATIONS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), st.just("acknowledged")),
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), st.sampled_from(FATES)),
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), st.sampled_from(FATES)),
    st.tuples(st.just("read"), st.sampled_from(READERS), st.integers(1, 9)),
    st.tuples(st.just("commit")),
    st.tuples(st.sampled_from(("hole", "commit", "early_sentinel"))),
    st.tuples(st.just("failover"), st.integers(0, 2)),
    st.tuples(st.sampled_from(("shrink", "whole", "commit"))),
    st.tuples(st.just("ask"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("seek"), st.sampled_from(READERS), st.integers(0, 50)),
)


def drawn_facts(seed: int, *, duplicates: bool = False) -> tuple[Facts, random.Random]:
    """As `facts`, without hypothesis: the same seed gives the same history, longer ones on the average."""
    rng = random.Random(seed)
    partition = Partition(rng.choice((0, 5, 10**12)), rng, duplicates=duplicates)
    chances = {
        "send": lambda: partition.send(rng.choice(PRODUCERS), rng.choice(("acknowledged", *FATES))),
        "read": lambda: partition.read(rng.choice(READERS), rng.randint(1, 9)),
        "failover": lambda: partition.failover(rng.randrange(3)),
        "ask": lambda: partition.ask(rng.choice((1, 2, 3))),
        "seek": lambda: partition.seek(rng.choice(READERS), rng.randrange(50)),
        **{name: getattr(partition, name) for name in ("commit", "hole", "early_sentinel", "shrink", "whole")},
    }
    weights = (8, 5, 1, 3, 1, 4, 1, 0.3, 1, 1)
    for name in rng.choices(list(chances), weights, k=rng.randrange(10, 80)):
        chances[name]()
    return partition.end(), rng


@st.composite
def facts(draw: st.DrawFn, *, duplicates: bool = False) -> tuple[Facts, random.Random]:
    """A valid history, and chance for whoever goes on with it."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    partition = Partition(draw(st.sampled_from((0, 5, 10**12))), rng, duplicates=duplicates)
    for name, *arguments in draw(st.lists(_OPERATIONS, min_size=5, max_size=60)):
        getattr(partition, name)(*arguments)
    return partition.end(), rng
