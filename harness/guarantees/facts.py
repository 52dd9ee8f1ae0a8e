"""The facts that rules are made of: by name, from a cell's configuration or from the envelope of a partition.

A fact of the envelope is asked in two ways: of witnesses (is it so?), and of what happened at all (could it be so?): the
second tells "permitted, not seen" from "held", and predicts before anything ran.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.clock import NS_PER_S
from harness.configuration import FIRST_CONTROLLER_ID, Acks, GroupConfiguration, ProducerConfiguration
from harness.copy_cases import CopyCase
from harness.group_cases import GroupCase
from harness.guarantees.delays import fault_at_work, unmeasured
from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import FOREVER, FaultNature
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, doubted, either, truth
from harness.guarantees.settled import unsettled
from harness.plan import Cell
from harness.provocations import PROVOCATIONS
from harness.schema import MISSING, Outcome, Tristate
from harness.stalls import STALLED_NS, StallCase

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What of a cell's configuration the table asks for."""

    acks: Acks
    idempotent: bool
    retries: bool
    several_in_flight: bool
    lifo: bool = False
    several_per_batch: bool = False
    refused_by_brokers: bool = False
    """The errors that its records provoke are the brokers'."""
    librdkafka: bool = True
    """The producer is librdkafka's; else Java's."""
    transactions_before_v2: bool = False
    """Transactions, and none of version 2 (KIP-890): a client that has no such version, or brokers that do not allow it."""
    delivery: str | None = None
    """How a copier keeps its progress (`CopierConfiguration.delivery`), or what an application promises; None = no copier."""
    unclean_enabled: bool = False
    """unclean.leader.election.enable of the topic."""
    commits_first: bool = False
    """The group commits what its members may not have processed yet."""
    resets_to_latest: bool = False
    hands_on: bool = False
    """The group sends what failed to a retry topic."""
    hands_on_unawaited: bool = False
    """And commits past it without waiting for the acknowledgement."""
    faults_excepted: bool = False
    """The trial's delivery bound leaves out what a fault may have delayed."""
    version: Version | None = None
    """Of the oldest broker; None = not known."""


TRANSACTION_VERSION_2 = 2
"""Level of the feature transaction.version from which on the epoch changes with every transaction (KIP-890 part 2)."""


def configuration_of(cell: Cell, kafka_version: str | None, *, transaction_version: int = 0) -> Configuration:
    """Derived from a cell, the version the cluster really runs, and its level of the feature transaction.version."""
    producer = cell.producer
    return Configuration(
        acks=producer.acks,
        idempotent=is_idempotent(producer),
        retries=producer.retries != "0",
        several_in_flight=producer.max_in_flight > 1,
        lifo=producer.properties.get("queuing.strategy", "fifo") == "lifo",
        several_per_batch=producer.properties.get("batch.num.messages") != "1",
        refused_by_brokers=cell.provocation is not None and PROVOCATIONS[cell.provocation.error].by_broker,
        librdkafka=producer.client == "librdkafka",
        transactions_before_v2=_before_v2(cell, transaction_version),
        delivery=cell.delivery,
        unclean_enabled=cell.topic.unclean_leader_election_enable,
        commits_first=cell.group is not None and commits_first(cell.group),
        resets_to_latest=cell.group is not None and cell.group.auto_offset_reset == "latest",
        hands_on=cell.group is not None and cell.group.hands_on,
        hands_on_unawaited=cell.group is not None and cell.group.on_failure == "retry-topic-unawaited",
        faults_excepted=cell.delivery_bound is not None and cell.delivery_bound.except_during_faults,
        version=parse_version(kafka_version),
    )


def _before_v2(cell: Cell, transaction_version: int) -> bool:
    """Has it transactions of version 0 or 1? librdkafka's always are, whatever the brokers allow (librdkafka#5423)."""
    if cell.copier is None:
        return cell.transaction is not None
    older = cell.copier.client == "librdkafka" or transaction_version < TRANSACTION_VERSION_2
    return cell.copier.transactional and older


def is_idempotent(producer: ProducerConfiguration) -> bool:
    """librdkafka: exactly when set; Java: silently off when acks, retries or requests in flight contradict a default.
    [KIP-679; librdkafka CONFIGURATION]"""
    fits = producer.acks == "all" and producer.retries != "0" and producer.max_in_flight <= 5
    return producer.enable_idempotence and (fits or producer.client == "librdkafka")


def commits_first(group: GroupConfiguration) -> bool:
    """librdkafka stores what it has delivered, processed or not, unless told otherwise; a Java consumer commits what the last
    poll returned. [librdkafka CONFIGURATION, enable.auto.offset.store; KafkaConsumer, "Automatic Offset Committing"]"""
    return group.commit == "sync-before" or (group.commit == "auto" and group.client == "librdkafka")


def parse_version(text: str | None) -> Version | None:
    """ "4.3.1" → (4, 3, 1); None if it is no release's number."""
    parts = (text or "").split("-")[0].split(".")
    return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What happened to a cell's partitions at all, or could under given faults."""

    moved: Tristate
    """The leader of one of them changed or died."""
    unclean: Tristate
    """A leader from outside ISR and ELR was elected."""
    destroyed: Tristate
    """Copies were destroyed."""
    deleted: Tristate = Tristate.NO
    """The log start passed some record."""
    audited_slowly: Tristate = Tristate.NO
    """The audit took as long as tombstones are kept (delete.retention.ms)."""
    long_away: Tristate = Tristate.NO
    """A broker led that had been away as long as tombstones are kept."""
    rebalanced: Tristate = Tristate.NO
    """Members of groups died, or partitions changed hands."""
    forgotten: Tristate = Tristate.NO
    """A send outlived the broker's memory of its producer."""
    read_uncommitted: Tristate = Tristate.NO
    """Consumers read them at read_uncommitted."""
    read_uncommitted_inside: Tristate = Tristate.NO
    """Transactions read them at read_uncommitted."""
    cell_unclean: Tristate = Tristate.NO
    """`unclean`, of any partition of the cell."""
    faulted: Tristate = Tristate.NO
    """There was a fault, of any kind."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact. Exactly one of `of_configuration` and (`of_witnesses`, `could`) is given."""

    meaning: str
    of_configuration: Callable[[Configuration], Tristate] | None = None
    of_witnesses: Callable[[Envelope, np.ndarray], Truth] | None = None
    could: Callable[[Happened], Tristate] | None = None


def _is(condition: bool) -> Tristate:
    return Tristate.YES if condition else Tristate.NO


def _version_fact(meaning: str, holds: Callable[[Version], bool]) -> Fact:
    return Fact(meaning, lambda c: Tristate.UNKNOWN if c.version is None else _is(holds(c.version)))


def _leader_changed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    begun_ns = envelope.begun_ns(witnesses)
    # A client learns of it from a leader that knows it was deposed.
    changes = (truth(envelope.known_ns(e) >= begun_ns) for e in envelope.timeline.elections)
    return either(constant(FALSE, len(witnesses)), *changes)


READ_UNCOMMITTED_CASE = 1
"""`case` of witnesses of `aborted-read` and `early-read`: a read_uncommitted consumer."""
BY_WRITES_CASES = (2, 3)
"""`case` of witnesses of `write-cycle`: with what was read, and by writes alone."""
BEFORE_NS = 10 * NS_PER_S
"""A request that a fault delayed may arrive this much after it: clients wait so long for an answer here
(socket.timeout.ms)."""


def _coordinator_state_lost(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Partitions of internal topics are not sampled: not lost if nothing could destroy or cut them; lost, from then on, if
    one fault destroyed what every broker had; else not known."""
    ways = ["destroys", "elects_unclean"] + ([] if envelope.brokers_flush else ["loses_unflushed"])
    harm = either(*(np.int8(f.may(what)) for f in envelope.faults for what in ways))
    everybody = set(range(1, envelope.brokers + 1))
    certain = [
        truth(f.begin_ns - envelope.error_ns <= _or_forever(witnesses["end_ns"]))
        for f in envelope.faults
        if everybody and everybody <= set(f.hit) and any(f.may(what) is Tristate.YES for what in ways)
    ]
    return either(constant(FALSE if harm == FALSE else UNKNOWN, len(witnesses)), *certain)


def _or_forever(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns == MISSING, FOREVER, times_ns)


def _delayed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Any node: it may have coordinated the transaction."""
    begun_ns = envelope.begun_ns(witnesses) - BEFORE_NS - envelope.error_ns
    end_ns = np.where(witnesses["end_ns"] == MISSING, FOREVER, witnesses["end_ns"]) + envelope.error_ns
    parts = [
        both(
            truth((f.begin_ns <= end_ns) & (f.end_ns >= begun_ns)),
            either(np.int8(f.may("freezes")), np.int8(f.may("cuts"))),
        )
        for f in envelope.faults
    ]
    return either(constant(FALSE, len(witnesses)), *parts)


def _coordinator_out(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Any broker: it may have coordinated the group. Clients frozen or dead are no reason here: kernels know of them."""
    begin_ns = witnesses["begin_ns"]
    parts = [
        both(
            truth(
                (f.begin_ns <= begin_ns + envelope.error_ns) & (f.end_ns >= begin_ns - BEFORE_NS - envelope.error_ns)
            ),
            either(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts"))),
        )
        for f in envelope.faults
        if any(node < FIRST_CONTROLLER_ID for node in f.nodes)
    ]
    return either(constant(FALSE, len(witnesses)), *parts)


def _bumped(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    batches = envelope.batches()
    return constant(UNKNOWN, len(witnesses)) if batches is None else batches.bumped(witnesses)


def _of_case(meaning: str, *cases: GroupCase) -> Fact:
    """What the kernels of groups found to explain a witness."""
    wanted = [int(case) for case in cases]
    return Fact(
        meaning,
        of_witnesses=lambda _, witnesses: truth(np.isin(witnesses["case"], wanted)),
        could=lambda h: h.rebalanced,
    )


def _of_copy(meaning: str, case: CopyCase) -> Fact:
    """What is wrong with a copy."""
    return Fact(
        meaning,
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == int(case)),
        could=lambda h: h.rebalanced,
    )


FACTS: Mapping[str, Fact] = {
    "copies at most once": Fact(
        "the copiers commit before they produce, or promise no more", lambda c: _is(c.delivery == "at-most-once")
    ),
    "copies at least once": Fact(
        "the copiers commit after they have produced, or promise no more", lambda c: _is(c.delivery == "at-least-once")
    ),
    "offsets outside the transaction": Fact(
        "the copiers commit their offsets after the transaction of the copies",
        lambda c: _is(c.delivery == "transaction-alone"),
    ),
    "no copy": _of_copy("the record has no copy", CopyCase.MISSING),
    "a copy too many": _of_copy("the record has a copy already", CopyCase.REPEATED),
    "a partition of the cell was elected unclean": Fact(
        "an unclean election of a partition of the cell, of either topic, whenever",
        of_witnesses=lambda envelope, witnesses: constant(int(envelope.cell_unclean), len(witnesses)),
        could=lambda h: _possibly(h.cell_unclean),
    ),
    "commits first": Fact("the group commits before processing", lambda c: _is(c.commits_first)),
    "hands on": Fact("the group sends what failed to a retry topic", lambda c: _is(c.hands_on)),
    "hands on without waiting": Fact(
        "the group commits past what it sent to the retry topic without waiting for the acknowledgement",
        lambda c: _is(c.hands_on_unawaited),
    ),
    "left behind": _of_case(
        "it was sent to the retry topic, and never acknowledged or seen there", GroupCase.LEFT_BEHIND
    ),
    "sent again": _of_case(
        "it was sent to the retry topic again, since the first send was never acknowledged", GroupCase.SENT_AGAIN
    ),
    "resets to latest": Fact("auto.offset.reset=latest", lambda c: _is(c.resets_to_latest)),
    "member was gone": _of_case(
        "the member that had the record died, gave the partition up or had lost it, in between",
        GroupCase.CRASHED,
        GroupCase.RELEASED,
        GroupCase.EVICTED,
    ),
    "commits of one alone": Fact(
        "of the two owners at most one had a commit accepted meanwhile",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] != GroupCase.BOTH_COMMITTED),
        could=lambda h: h.rebalanced,
    ),
    "coordinator out": Fact(
        "a broker was dead, frozen or cut off when the second owner began, or shortly before: the group's coordinator may "
        "have been deposed without knowing, and its members with it",
        of_witnesses=_coordinator_out,
        could=lambda h: _possibly(h.moved),
    ),
    "one instance id twice": _of_case(
        "both owners have one group.instance.id, in the classic protocol", GroupCase.SAME_INSTANCE
    ),
    "position was sought": _of_case("the member had sought to a position", GroupCase.SOUGHT),
    "position was reset": _of_case("auto.offset.reset decided a position beyond it", GroupCase.RESET),
    "stands twice": _of_case("the record stands in the log more than once", GroupCase.DUPLICATE),
    "within a session": _of_case("the last owner died, and its session was not over", GroupCase.WITHIN_SESSION),
    "acks=0": Fact("the producer waits for no reply", lambda c: _is(c.acks == "0")),
    "acks=1": Fact("the producer waits for the leader alone", lambda c: _is(c.acks == "1")),
    "idempotent": Fact("enable.idempotence is in effect", lambda c: _is(c.idempotent)),
    "retries": Fact("the producer sends again what failed", lambda c: _is(c.retries)),
    "several in flight": Fact("max.in.flight.requests.per.connection > 1", lambda c: _is(c.several_in_flight)),
    "several per batch": Fact("the producer sends several records in a batch", lambda c: _is(c.several_per_batch)),
    "refused by brokers": Fact("brokers refuse what is wrong with its records", lambda c: _is(c.refused_by_brokers)),
    "librdkafka": Fact("the producer is librdkafka's", lambda c: _is(c.librdkafka)),
    "transactions before version 2": Fact(
        "transactions, and none of version 2 (KIP-890)", lambda c: _is(c.transactions_before_v2)
    ),
    "lifo": Fact("queuing.strategy=lifo (librdkafka)", lambda c: _is(c.lifo)),
    "unclean enabled": Fact("unclean.leader.election.enable=true", lambda c: _is(c.unclean_enabled)),
    "unclean election asked for": Fact(
        "a fault asked for an unclean election",
        of_witnesses=lambda envelope, witnesses: constant(
            int(either(np.int8(FALSE), *(np.int8(f.may("elects_unclean")) for f in envelope.faults))), len(witnesses)
        ),
        could=lambda h: _possibly(h.unclean),
    ),
    "leader was hampered": Fact(
        "the partition's leader was cut off, frozen or dead for a part of the send",
        of_witnesses=Envelope.leader_hampered,
        could=lambda h: _possibly(h.moved),
    ),
    "brokers to 3.9.0 or 4.0.0": _version_fact(
        "a broker is 3.9.0 or older, or 4.0.0", lambda v: v[:3] <= (3, 9, 0) or v[:3] == (4, 0, 0)
    ),
    "brokers to 3.4.0": _version_fact("a broker is 3.4.0 or older", lambda v: v[:3] <= (3, 4, 0)),
    "committed": Fact(
        "acks=all acknowledged it, a consumer was given it, or the high watermark was seen above it",
        of_witnesses=Envelope.committed,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "tail": Fact(
        "not committed, and a later leader never had it, or the leader that acknowledged it was destroyed",
        of_witnesses=Envelope.tail,
        could=lambda h: _possibly(h.moved, h.destroyed),
    ),
    "given up": Fact(
        "the client did not learn what became of the send",
        of_witnesses=lambda _, witnesses: truth(witnesses["outcome"] == Outcome.INFO),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "leader changed": Fact(
        "the partition's leader changed after the send began, or shortly before, as far as its client could know",
        of_witnesses=_leader_changed,
        could=lambda h: _possibly(h.moved),
    ),
    "cutoff": Fact(
        "an unclean election later than the record, and its offset not below that epoch's start",
        of_witnesses=Envelope.cutoff,
        could=lambda h: _possibly(h.unclean),
    ),
    "cutoff after the read": Fact(
        "an unclean election after a consumer was given the record, its offset not below that epoch's start",
        of_witnesses=Envelope.cutoff_after_read,
        could=lambda h: _possibly(h.unclean),
    ),
    "cutoff of either": Fact(
        "an unclean election after the first of the two records was sent or seen",
        of_witnesses=Envelope.cutoff_of_either,
        could=lambda h: _possibly(h.unclean),
    ),
    "unclean before": Fact(
        "an unclean election before the later of the two reads",
        of_witnesses=Envelope.unclean_before,
        could=lambda h: _possibly(h.unclean),
    ),
    "wiped": Fact(
        "every copy that could lead was destroyed after the send began",
        of_witnesses=Envelope.wiped,
        could=lambda h: _possibly(h.destroyed),
    ),
    "wiped after the read": Fact(
        "every copy that could lead was destroyed after a consumer was given the record",
        of_witnesses=Envelope.wiped_after_read,
        could=lambda h: _possibly(h.destroyed),
    ),
    "wiped before": Fact(
        "every copy that could lead was destroyed before the later of the two reads",
        of_witnesses=Envelope.wiped_before,
        could=lambda h: _possibly(h.destroyed),
    ),
    "bumped": Fact(
        "the two stand in batches of one producer id under different epochs, outside transactions",
        of_witnesses=_bumped,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "forgot": Fact(
        "the send took longer than producer.id.expiration.ms",
        of_witnesses=Envelope.forgot,
        could=lambda h: _possibly(h.forgotten),
    ),
    "may have expired": Fact(
        "a snapshot does not know a producer, and the sends began longer ago than producer.id.expiration.ms",
        of_witnesses=Envelope.may_have_expired,
        could=lambda h: _possibly(h.forgotten),
    ),
    "log start passed": Fact(
        "the log start was seen beyond the reader's position",
        of_witnesses=Envelope.log_start_passed,
        could=lambda h: _possibly(h.deleted),
    ),
    "read beyond delete.retention.ms": Fact(
        "the audit took as long from the older record to the end as tombstones are kept",
        of_witnesses=Envelope.read_beyond_retention,
        could=lambda h: _possibly(h.audited_slowly),
    ),
    "a replica away beyond delete.retention.ms": Fact(
        "a broker led that a fault had kept away as long as tombstones are kept",
        of_witnesses=Envelope.replica_away,
        could=lambda h: _possibly(h.long_away),
    ),
    "read_uncommitted": Fact(
        "who was given the record reads at read_uncommitted",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
        could=lambda h: _possibly(h.read_uncommitted),
    ),
    "read_uncommitted inside": Fact(
        "the transaction that was given the record reads at read_uncommitted",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
        could=lambda h: _possibly(h.read_uncommitted_inside),
    ),
    "order of writes": Fact(
        "an edge of the cycle is the order of two writes",
        of_witnesses=lambda _, witnesses: truth(np.isin(witnesses["case"], BY_WRITES_CASES)),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "unsettled": Fact(
        "no stretch of the stated time within it was free of faults, changes of leader and gaps in the ISR",
        of_witnesses=lambda envelope, witnesses: unsettled(envelope, witnesses, STALLED_NS),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "reader stood still": Fact(
        "the reader's own heart stood still in between: what it asked for is not known",
        of_witnesses=lambda _, witnesses: doubted(truth(witnesses["case"] == StallCase.STARVED), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "last stable offset stood still": Fact(
        "leaders said the same last stable offset all the time",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == StallCase.STABLE_OFFSET),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "brokers to 3.5": _version_fact("a broker is 3.5 or older", lambda v: v[:2] <= (3, 5)),
    "unclean ever": Fact(
        "an unclean election of the partition, whenever: markers of transactions may be gone",
        of_witnesses=lambda envelope, witnesses: constant(int(envelope.elected_unclean()), len(witnesses)),
        could=lambda h: _possibly(h.unclean),
    ),
    "transaction state lost": Fact(
        "copies were destroyed, or a leader elected unclean by request: __transaction_state may be among them",
        of_witnesses=_coordinator_state_lost,
        could=lambda h: _possibly(h.destroyed),
    ),
    "group state lost": Fact(
        "copies were destroyed, or a leader elected unclean by request: __consumer_offsets may be among them",
        of_witnesses=_coordinator_state_lost,
        could=lambda h: _possibly(h.destroyed),
    ),
    "delayed": Fact(
        "a node was frozen or cut off while the record's transaction, or the one before it, was under way",
        of_witnesses=_delayed,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "faults are excepted": Fact(
        "the trial's delivery bound leaves out what a fault may have delayed", lambda c: _is(c.faults_excepted)
    ),
    "fault at work": Fact(
        "a fault, of whatever kind, not only on those who measure, held between the sending of the record and its deadline, "
        "or had been undone for less than the stated recovery when it was sent",
        of_witnesses=fault_at_work,
        could=lambda h: _possibly(h.faulted),
    ),
    "unmeasured": Fact(
        "the record's producer, or who was to be given it, stood still or was dead for as long as would explain it, or the "
        "record is missing and the audit did not end: whether it was late is not known",
        of_witnesses=lambda envelope, witnesses: doubted(unmeasured(envelope, witnesses), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "out of sync at the end": Fact(
        "one of the two replicas was not in the ISR at the end",
        of_witnesses=Envelope.out_of_sync_at_the_end,
        could=lambda _: Tristate.UNKNOWN,
    ),
}


def _possibly(*causes: Tristate) -> Tristate:
    """A fact that has such causes: impossible if none of them happened, else open."""
    return Tristate.NO if all(c is Tristate.NO for c in causes) else Tristate.UNKNOWN


def of_witnesses(name: str, configuration: Configuration, envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A fact of each witness."""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return constant(int(fact.of_configuration(configuration)), len(witnesses))
    assert fact.of_witnesses is not None, name
    return fact.of_witnesses(envelope, witnesses)


def could_be(name: str, configuration: Configuration, happened: Happened) -> Truth:
    """Could the fact hold of any witness there might have been? Scalar."""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return np.asarray(np.int8(fact.of_configuration(configuration)))
    assert fact.could is not None, name
    return np.asarray(np.int8(fact.could(happened)))


def could_happen(
    natures: Mapping[str, FaultNature | None], *, unclean_enabled: bool, flushed: bool = False
) -> Happened:
    """What faults of these kinds could bring about; None = a kind nobody described: anything. `flushed`: every record is
    synced before it is acknowledged."""
    if not natures:
        return Happened(moved=Tristate.NO, unclean=Tristate.NO, destroyed=Tristate.NO)
    known = [n for n in natures.values() if n is not None]
    anything = len(known) < len(natures)
    destroyed = anything or any(n.destroys or (n.loses_unflushed and not flushed) for n in known)
    out = destroyed or any(n.stops or n.freezes or n.cuts for n in known)
    unclean = anything or any(n.elects_unclean for n in known) or (out and unclean_enabled)
    return Happened(
        moved=Tristate.UNKNOWN if out or unclean or any(n.moves for n in known) else Tristate.NO,
        unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        cell_unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        rebalanced=Tristate.UNKNOWN if out else Tristate.NO,
        destroyed=Tristate.UNKNOWN if destroyed else Tristate.NO,
        faulted=Tristate.UNKNOWN,
    )


def what_happened(envelope: Envelope, *, sends_lived_ns: int) -> Happened:
    """What did happen to one partition. `sends_lived_ns`: no send could take longer (delivery.timeout.ms)."""
    timeline, faults = envelope.timeline, envelope.faults
    destroyed = either(*(np.int8(f.may("destroys")) for f in faults))
    died = any(
        f.may("stops") is Tristate.YES and int(timeline.leader_at(np.array([f.begin_ns - 1]))[0]) in f.hit
        for f in faults
    )
    moved = Tristate.YES if timeline.elections or died else Tristate.NO
    expiry_ns = envelope.producer_expiry_ns
    forgotten = Tristate.UNKNOWN if expiry_ns is None else _is(sends_lived_ns >= expiry_ns)
    return Happened(
        moved=moved if timeline.known else Tristate.UNKNOWN,
        unclean=envelope.elected_unclean(),
        cell_unclean=envelope.cell_unclean,
        destroyed=Tristate(int(destroyed)),
        deleted=_is(bool(len(envelope.log_starts[1])) and int(envelope.log_starts[1].max()) > 0),
        forgotten=forgotten,
        rebalanced=Tristate.UNKNOWN,  # joining is a rebalance
        audited_slowly=envelope.audit_beyond_retention(),
        long_away=envelope.away_beyond_retention(),
        faulted=Tristate.YES if faults else Tristate.NO,
    )
