"""The ground truth of a run: what each fault really did and when, and who led each partition and was in sync.

Faults come from the `faults` table; a fault that no VERIFIED row proves is not a fact, and what is derived from it is
unknown. Leaders come from the controllers' own log or, as weaker evidence, from samples of the brokers' metadata.

Rows of any other source (samples by clients or single brokers) are never used: one may come from a zombie. A name may
stand for several topics, one after the other (`prozess.harness.recording.codes`): nobody is elected, and nothing is in
sync, across them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prozess.harness.columns import Clustered
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.recording.topic_lives import lives_of
from prozess.harness.schema import NONE, FaultPhase, MetadataKind, MetadataSource, Tristate

UNSTATED = "unstated"
"""Name of the fault that stands for anything that may have struck a cluster whose faults nobody stated."""
OF_UNKNOWN_EFFECT = ", effect not stated"
"""Suffix of the name of a fault that another program made and nobody described: it may have done anything."""
NO_COPY_DESTROYED = ", no copy destroyed"
"""Suffix of the name of such a fault if somebody states that it destroyed no replica and asked for no unclean election."""
FOREVER = 2**62
"""A time after every time of a history (ns); -FOREVER is before every one."""
Columns = Mapping[str, np.ndarray]

_HARMLESS_TO_COPIES = FaultNature(stops=True, freezes=True, cuts=True, moves=True, reconfigures=True, shifts_clock=True)
"""What another program may have done if it is stated that it destroyed nothing."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault as it happened. Times in ns on the trial's clock."""

    number: int
    kind: str
    step: int
    nodes: tuple[int, ...]
    """Every node that the fault touched, with the other ends of cut links."""
    hit: tuple[int, ...]
    begin_ns: int
    proven_ns: int
    """From here on it certainly held; FOREVER = never proven."""
    undone_ns: int | None
    end_ns: int
    """From here on it is certainly over; FOREVER = not seen to end."""
    effective: Tristate
    nature: FaultNature | None
    """None = nobody described what this kind of fault does."""
    detail: str = ""
    made_ns: int | None = None
    """When the fault had been made completely; None = it never was."""
    seen: tuple[int, ...] = ()
    """The nodes of `hit` on which the effect was observed."""
    kept_ns: int | None = None
    """If all that it did was to make messages wait: for how long those of one sender waited at most without a pause, together
    with those of such faults at the same time."""

    def may(self, what: str) -> Tristate:
        """Does it do `what` (a field of FaultNature) to its nodes? NO if its nature does not, or it did not work."""
        if self.nature is None:
            return Tristate.UNKNOWN
        return self.effective if getattr(self.nature, what) else Tristate.NO

    @property
    def leaves_down(self) -> Tristate:
        """Are its nodes down from `proven_ns` on, until it is undone?"""
        return Tristate.NO if self.nature is not None and self.nature.restarts else self.may("stops")

    def of_topic(self, *, flushed: bool) -> "FaultRecord":
        """Returns the fault as it concerns one topic: losing unflushed data destroys a replica unless every record is
        flushed."""
        if self.nature is None or not self.nature.loses_unflushed or flushed:
            return self
        return replace(self, nature=replace(self.nature, destroys=True))


def fault_records(
    faults: Columns, dictionaries: Mapping[str, Sequence[str]], natures: Mapping[str, FaultNature] = NATURES
) -> tuple[FaultRecord, ...]:
    """Returns every fault of the table, in the order of its number. A few rows each: loops are fine."""
    return tuple(_record(rows, dictionaries, natures) for rows in _by_fault(faults))


def _by_fault(faults: Columns) -> Iterator[dict[str, np.ndarray]]:
    for number in np.unique(faults["fault"]):
        rows = np.flatnonzero(faults["fault"] == number)
        rows = rows[np.argsort(faults["time_ns"][rows], kind="stable")]
        yield {name: column[rows] for name, column in faults.items()}


def _record(
    rows: Columns, dictionaries: Mapping[str, Sequence[str]], natures: Mapping[str, FaultNature]
) -> FaultRecord:
    phase, time_ns, effect = rows["phase"], rows["time_ns"], rows["effect"]
    kind = text_of(dictionaries, "fault", int(rows["kind"][0]))
    verified, undone = phase == FaultPhase.VERIFIED, time_ns[phase == FaultPhase.UNDONE]
    healed = (phase == FaultPhase.UNDO_VERIFIED) & (effect == Tristate.YES)
    effective = _all_of(effect[verified])
    detail = rows["detail"][verified | (phase == FaultPhase.FAILED)]
    details = (text_of(dictionaries, "detail", code) for code in np.unique(detail).tolist())
    return FaultRecord(
        number=int(rows["fault"][0]),
        kind=kind,
        step=int(rows["step"][0]),
        nodes=tuple(n for n in np.unique([rows["node"], rows["peer"]]).tolist() if n != NONE),
        hit=tuple(n for n in np.unique(rows["node"]).tolist() if n != NONE),
        # Journaled before it is applied: a fault acts from there on at the earliest, and intervals only widen.
        begin_ns=int(time_ns.min()),
        proven_ns=int(time_ns[verified].max()) if effective is Tristate.YES else FOREVER,
        undone_ns=int(undone.max()) if len(undone) else None,
        end_ns=int(time_ns[healed].max()) if _healed(rows, healed) else FOREVER,
        effective=effective,
        nature=_HARMLESS_TO_COPIES if kind.endswith(NO_COPY_DESTROYED) else natures.get(kind),
        detail="; ".join(filter(None, details)),
        seen=tuple(n for n in np.unique(rows["node"][verified & (effect == Tristate.YES)]).tolist() if n != NONE),
        made_ns=int(time_ns[applied].max()) if (applied := phase == FaultPhase.APPLIED).any() else None,
    )


def _healed(rows: Columns, healed: np.ndarray) -> bool:
    """Was every (node, peer) that was hit also observed to be healed?"""
    hit = np.isin(rows["phase"], (FaultPhase.JOURNALED, FaultPhase.APPLIED))
    pairs = set(zip(rows["node"][hit].tolist(), rows["peer"][hit].tolist(), strict=True))
    return bool(pairs) and pairs <= set(zip(rows["node"][healed].tolist(), rows["peer"][healed].tolist(), strict=True))


def _all_of(effects: np.ndarray) -> Tristate:
    if not len(effects):
        return Tristate.UNKNOWN
    if (effects == Tristate.NO).any():
        return Tristate.NO
    return Tristate.YES if (effects == Tristate.YES).all() else Tristate.UNKNOWN


def text_of(dictionaries: Mapping[str, Sequence[str]], name: str, code: int) -> str:
    """The text of a dictionary code; empty for NONE; the bare code if the dictionary does not know it."""
    texts = dictionaries.get(name, ())
    return "" if code == NONE else texts[code] if 0 <= code < len(texts) else f"{name} {code}"


_COLUMNS = ("time_ns", "leader", "leader_epoch", "isr", "elr", "last_known_elr", "replicas")


@dataclass(frozen=True, slots=True)
class Election:
    """A node began to lead in a new epoch."""

    time_ns: int
    epoch: int
    leader: int
    previous: int
    """The last node that led before it; NONE = nobody ever."""
    previous_since_ns: int
    """When the previous leader began to lead."""
    eligible: int
    """Mask: ISR ∪ ELR just before; and the ISR of a change that ends a reassignment, which puts a copy in sync, takes one
    away and moves the lead, all at once. [KIP-455; PartitionReassignmentReplicas.maybeCompleteReassignment]"""
    last_known: int
    """Mask: LastKnownElr just before (KIP-966)."""
    in_sync: int = 0
    """Mask: the ISR just before."""
    deposed_fenced: bool = False
    """The leader before is not in the new ISR."""

    @property
    def last_leader_standing(self) -> bool:
        """Nobody was in sync and the last known leader came back: complete as long as its data was not destroyed. A
        replica that was still eligible is dropped in the same change, if it comes back after a crash."""
        return self.in_sync == 0 and bool(self.last_known >> self.leader & 1)

    @property
    def from_outside(self) -> bool:
        """The new leader was in neither ISR nor ELR. [KIP-966; PartitionChangeBuilder.electAnyLeader]"""
        return not self.eligible >> self.leader & 1 and not self.last_leader_standing


@dataclass(frozen=True, slots=True)
class TopicLife:
    """One topic of the name, from its creation to its deletion: rows `first` to before `stop` of the timeline."""

    first: int
    stop: int
    created_ns: int
    """-FOREVER = it was there from the beginning."""
    deleted_ns: int | None
    """Taken from the controllers' log; None = it says nothing of a deletion."""
    ended: bool
    """It was deleted, or another topic has its name by now."""
    last_leader: int
    topic_id: tuple[int, int]
    """The two halves of the topic id (`prozess.harness.schema`)."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Holds who led a partition and who was in sync over time: entry i holds from `time_ns[i]` on (int64 arrays of one
    length)."""

    time_ns: np.ndarray
    leader: np.ndarray
    leader_epoch: np.ndarray
    isr: np.ndarray
    elr: np.ndarray
    last_known_elr: np.ndarray
    replicas: np.ndarray
    elections: tuple[Election, ...] = ()
    lives: tuple[TopicLife, ...] = ()
    """The topics that the name stood for, in order. Elections are of each by itself."""

    def of_life(self, number: int) -> "Timeline":
        """Returns the timeline of one of these topics alone."""
        life = self.lives[number]
        rows = {name: getattr(self, name)[life.first : life.stop] for name in _COLUMNS}
        own = replace(life, first=0, stop=life.stop - life.first)
        return Timeline(**rows, elections=_elections(rows), lives=(own,))

    @property
    def known(self) -> bool:
        """Is there any ground truth?"""
        return len(self.time_ns) > 0

    def index_at(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns which row holds at these times; -1 = before the first."""
        return np.asarray(np.searchsorted(self.time_ns, time_ns, side="right") - 1)

    def leader_at(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns the leader's node id; NONE = no leader, or before the first row."""
        if not self.known:
            return np.full(np.shape(time_ns), NONE)
        index = self.index_at(time_ns)
        return np.where(index >= 0, self.leader[index], NONE)

    def last_leader_at(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns who leads, or led last: while nobody leads, the last leader may not know that it leads no more. NONE =
        before the first row, or nobody ever led."""
        if not self.known:
            return np.full(np.shape(time_ns), NONE)
        # The row of the last leader up to each row. Example: leaders 1, none, 2 → rows 0 0 2.
        led = np.maximum.accumulate(np.where(self.leader != NONE, np.arange(len(self.leader)), 0))
        index = self.index_at(time_ns)
        return np.where(index >= 0, self.leader[led[index]], NONE)

    def in_sync_until(self, node: int, time_ns: np.ndarray) -> np.ndarray:
        """Returns until when `node` stays in the ISR without a break from these times on (ns); -FOREVER where it was
        not in it then, FOREVER where it never leaves."""
        inside = (self.isr >> node & 1).astype(bool)
        leaves = np.append(np.where(inside, FOREVER, self.time_ns), FOREVER)
        # Example: the ISR has the node from 0 s, not from 10 s, and again from 20 s on. It leaves at FOREVER, 10 s, FOREVER,
        # and the next time from each row on is 10 s, 10 s, FOREVER. From 5 s on it stays until 10 s; at 12 s it is not in it.
        next_leave = np.minimum.accumulate(leaves[::-1])[::-1]
        index = self.index_at(time_ns)
        return np.where((index >= 0) & inside[index], next_leave[index], -FOREVER)

    def joined_ns(self, node: int, before_ns: int) -> int:
        """Returns when `node` entered the ISR for the last time before; -FOREVER = it was there from the beginning, or
        never."""
        rows = np.flatnonzero(self.time_ns < before_ns)
        inside = (self.isr[rows] >> node & 1).astype(bool)
        # Example: in, out, in, in: it entered at the third row, the first change from out to in.
        entered = np.flatnonzero(inside[1:] & ~inside[:-1]) + 1
        return int(self.time_ns[rows[entered[-1]]]) if len(entered) else -FOREVER

    def rejoined_ns(self, node: int, after_ns: int) -> int:
        """Returns the first moment at or after which the ISR holds `node` again; FOREVER = never."""
        rows = np.flatnonzero((self.time_ns >= after_ns) & (self.isr >> node & 1 == 1))
        return int(self.time_ns[rows[0]]) if len(rows) else FOREVER


def timelines(metadata: Columns, *, kind: MetadataKind = MetadataKind.PARTITION) -> Mapping[int, Timeline]:
    """Returns the timeline of each dense partition id; partitions without ground truth are absent."""
    kinds = (kind, MetadataKind.DELETED) if kind is MetadataKind.PARTITION else (kind,)
    truth = (metadata["source"] == MetadataSource.CONTROLLER_LOG) & np.isin(metadata["kind"], kinds)
    rows = np.flatnonzero(truth & (metadata["partition"] != NONE))
    keys = (metadata["time_ns"], metadata["log_position"], metadata["partition"])
    rows = rows[np.lexsort(tuple(key[rows] for key in keys))]
    if not len(rows):
        return {}
    partition = metadata["partition"][rows]
    # Rows are sorted by partition: each begins at its first index, and `split` cuts there.
    ids, starts = np.unique(partition, return_index=True)
    return {
        int(p): _timeline({name: column[part].astype(np.int64) for name, column in metadata.items()})
        for p, part in zip(ids, np.split(rows, starts[1:]), strict=True)
    }


def joined_timelines(timelines: Sequence[Timeline]) -> Timeline:
    """Returns one timeline of several topics that had one name, in order. The last one counts as one that goes on."""
    rows = {name: np.concatenate([getattr(one, name) for one in timelines]) for name in _COLUMNS}
    lives: list[TopicLife] = []
    first = 0
    for number, one in enumerate(timelines):
        last, stop = number == len(timelines) - 1, first + len(one.time_ns)
        (life,) = one.lives
        created_ns = int(one.time_ns[0]) if number else life.created_ns
        life = replace(life, first=first, stop=stop, created_ns=created_ns)
        lives.append(replace(life, deleted_ns=None, ended=False) if last else replace(life, ended=True))
        first = stop
    elections = tuple(election for one in timelines for election in one.elections)
    return Timeline(**rows, elections=elections, lives=tuple(lives))


def no_timeline() -> Timeline:
    """Returns the timeline of a partition of which nothing is known."""
    nothing = np.empty(0, dtype=np.int64)
    return Timeline(nothing, nothing, nothing, nothing, nothing, nothing, nothing)


def _timeline(rows: dict[str, np.ndarray]) -> Timeline:
    # The log's order is the truth; the clock of a new controller may be behind the old one's.
    rows["time_ns"] = np.maximum.accumulate(rows["time_ns"])
    lives = _lives(rows)
    states = {name: rows[name] for name in _COLUMNS}
    elections = (
        election
        for life in lives
        for election in _elections({name: column[life.first : life.stop] for name, column in states.items()})
    )
    return Timeline(**states, elections=tuple(elections), lives=lives)


def _lives(rows: Mapping[str, np.ndarray]) -> tuple[TopicLife, ...]:
    """Returns the topics that had the name, one after the other. They have a few rows each, so loops are fine."""
    number = lives_of(rows)
    begins = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
    found = []
    for first, stop in zip(begins, [*begins[1:], len(number)], strict=True):
        deleted = np.flatnonzero(rows["kind"][first:stop] == MetadataKind.DELETED)
        led = rows["leader"][first:stop][rows["leader"][first:stop] != NONE]
        found.append(
            TopicLife(
                first,
                stop,
                created_ns=int(rows["time_ns"][first]) if first else -FOREVER,
                deleted_ns=int(rows["time_ns"][first + deleted[0]]) if len(deleted) else None,
                ended=bool(len(deleted)) or stop < len(number),
                last_leader=int(led[-1]) if len(led) else NONE,
                topic_id=(int(rows["topic_id_high"][stop - 1]), int(rows["topic_id_low"][stop - 1])),
            )
        )
    return tuple(found)


def _elections(rows: Mapping[str, np.ndarray]) -> tuple[Election, ...]:
    time_ns, leader, epoch, isr, elr, last, replicas = (rows[name].tolist() for name in _COLUMNS)
    found: list[Election] = []
    previous, since_ns = leader[0], time_ns[0]
    for i in range(1, len(leader)):
        # An epoch bumped under the same leader (an ISR shrink before metadata version 3.6) moves nothing.
        if leader[i] != NONE and leader[i] != leader[i - 1]:
            found.append(
                Election(
                    time_ns[i],
                    epoch[i],
                    leader[i],
                    previous,
                    since_ns,
                    # A change that takes a copy away ends a reassignment, which may have put the new leader in sync.
                    isr[i - 1] | elr[i - 1] | (isr[i] if replicas[i - 1] & ~replicas[i] else 0),
                    last[i - 1],
                    in_sync=isr[i - 1],
                    deposed_fenced=previous >= 0 and not isr[i] >> previous & 1,
                )
            )
            previous, since_ns = leader[i], time_ns[i]
    return tuple(found)


# Weaker evidence of who led: samples of the brokers' metadata, where the controllers' log was not read. Pure.
#
# A sample shows what was there when somebody looked. What was there in between nobody saw: so samples prove that
# something happened, and never that nothing did, and they say not at which offset a leader began.
#
# One thing they do prove. A partition changes its leader by one leader epoch at a time, and while it has none, nobody
# can put a copy in sync: ISR and ELR only lose members then. Therefore if somebody was seen to lead in the epoch after one in
# which nobody led, and was in a sample of that epoch in neither ISR nor ELR, it was elected from outside.
# [PartitionRegistration.merge; PartitionChangeBuilder; KIP-966. A broker answers that nobody leads also of a leader
# that is not registered: KRaftMetadataCache.getPartitionMetadataForDescribeTopicResponse. Such an epoch has no leader
# who could change the ISR, either.]


SOURCE = "samples"
HOW = "as samples of the brokers' metadata show; the controllers' log was not read"


@dataclass(frozen=True, slots=True)
class SampledElection:
    """A leader that samples prove to be elected from outside ISR and ELR."""

    epoch: int
    leader: int
    leaderless_ns: int
    """When nobody was seen to lead: it happened after that."""
    led_ns: int
    """When it was first seen to lead."""

    def __str__(self) -> str:
        return f"broker {self.leader} was elected from outside the ISR and the ELR in leader epoch {self.epoch} ({HOW})"


def samples(metadata: Columns) -> Columns:
    """The rows of `metadata` that are samples of partitions, by time."""
    chosen = (metadata["source"] == MetadataSource.DESCRIBED) & (metadata["kind"] == MetadataKind.PARTITION)
    rows = np.flatnonzero(chosen & (metadata["partition"] != NONE))
    rows = rows[np.argsort(metadata["time_ns"][rows], kind="stable")]
    return {name: np.asarray(column)[rows] for name, column in metadata.items()}


def sampled_elections(metadata: Columns) -> Mapping[int, tuple[SampledElection, ...]]:
    """Returns, for each dense partition id, the elections from outside that samples prove. Absent: none is proven,
    which says nothing."""
    rows = samples(metadata)
    found: dict[int, tuple[SampledElection, ...]] = {}
    clustered = Clustered(rows["partition"])  # sorted once: there may be thousands of partitions
    for partition in np.unique(rows["partition"]).tolist():
        mine = clustered.rows_of(partition)
        proven = _proven({name: column[mine] for name, column in rows.items()})
        if proven:
            found[partition] = proven
    return found


def _proven(rows: Columns) -> tuple[SampledElection, ...]:
    """The loop runs over elections that were seen, never over samples."""
    leader, epoch = rows["leader"].astype(np.int64), rows["leader_epoch"].astype(np.int64)
    eligible = rows["isr"] | rows["elr"]
    led = leader != NONE
    proven = []
    for new, first in zip(*np.unique(epoch[led], return_index=True), strict=True):
        who, when_ns = int(leader[led][first]), int(rows["time_ns"][led][first])
        before = (epoch == new - 1) & ~led
        if np.any((epoch == new - 1) & led) or np.any(led & (epoch == new) & (leader != who)):
            continue  # brokers do not agree on whether it had one, or who it is: nothing is proven
        # The ISR and ELR under the epoch before, when nobody led: whoever was in neither could be elected only uncleanly.
        outside = np.flatnonzero(before & (eligible >> who & 1 == 0))
        if len(outside):
            proven.append(SampledElection(int(new), who, int(rows["time_ns"][outside[0]]), when_ns))
    return tuple(proven)
