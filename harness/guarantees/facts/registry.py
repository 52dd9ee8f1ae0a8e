"""The facts that rules are made of, by name, and what happened to a cell at all. Each fact is asked of a cell's configuration
or of the envelope of a partition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import Envelope, answered_by_deposed_coordinator
from prozess.harness.guarantees.facts.peace import call_held_up, held_up, held_up_there, unsettled
from prozess.harness.guarantees.facts.replicas_in_sync import (
    cut_by_the_leader_that_acknowledged_it,
    followed_a_change_then_led_without_it,
    followed_its_new_leader_then_led_without_it,
    registered_anew_then_led_without_it,
    rejoined_with_nothing_then_led_without_it,
)
from prozess.harness.guarantees.facts.retention import (
    audit_beyond_retention,
    away_beyond_retention,
    deleted_of_either,
    forgot,
    log_start_passed,
    made_anew_between,
    made_anew_since_the_other,
    may_have_expired,
    name_stood_for_several,
    of_each_life,
    offsets_may_have_expired,
    read_beyond_retention,
    replica_away,
    topic_deleted,
    topic_deleted_before_read,
)
from prozess.harness.guarantees.facts.server_logs import markers_refused
from prozess.harness.guarantees.facts.settling import controller_cut_off, quorum_was_out, troubled, within_fetch_timeout
from prozess.harness.guarantees.facts.stale_leaders import (
    a_clock_may_have_ended_it,
    an_open_one_ended_by_a_late_request,
    behind_its_own_end,
    bumped,
    committed_one_beyond_it,
    coordinator_out,
    coordinator_state_lost,
    decision_lost,
    delayed,
    earlier_end_took_long,
    ended_by_a_late_request,
    fault_at_work,
    given_after_its_leader_was_replaced,
    leader_changed,
    leader_changed_during_the_send,
    leader_hampered,
    leader_may_have_refused,
    left_open,
    never_written_before_the_first_batch,
    older_epoch_behind_a_newer,
    out_of_sync_at_the_end,
    owner_since_before_the_loss,
    send_took_long,
    unmeasured,
)
from prozess.harness.guarantees.facts.truncation import (
    IN_LOG_CASES,
    committed,
    cutoff,
    cutoff_after_read,
    cutoff_of_either,
    cutoff_of_missing_record,
    elected_unclean,
    in_uncommitted_tail,
    sent_later,
    that_election_unclean,
    unclean_after_the_step,
    unclean_asked_for,
    unclean_before,
    unclean_before_read,
    unclean_between,
    unclean_since,
    unclean_since_the_other,
    wiped,
    wiped_after_read,
    wiped_before,
    wiped_of_either,
    wiped_since_the_other,
)
from prozess.harness.guarantees.logic import TRUE, Truth, any_true, as_truth, constant, doubt_unless
from prozess.harness.guarantees.table.rules import CellConfiguration, Version
from prozess.harness.interfaces.witnesses import (
    STALLED_NS,
    CopyCase,
    EpochCase,
    GroupCase,
    ProgressCase,
    RealTimeCase,
    StallCase,
)
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.schema import NONE, Outcome, Tristate


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Describes what happened to a cell's partitions at all, or could happen under given faults. It tells "permitted,
    not seen" from "held"."""

    moved: Tristate
    """The leader of one of the partitions changed or died."""
    unclean: Tristate
    """A leader from outside ISR and ELR was elected."""
    destroyed: Tristate
    """Copies were destroyed."""
    deleted: Tristate = Tristate.NO
    """Retention moved the log start past some record."""
    audited_slowly: Tristate = Tristate.NO
    """The audit took as long as tombstones are kept (delete.retention.ms)."""
    long_away: Tristate = Tristate.NO
    """A broker led that had been away as long as tombstones are kept."""
    rebalanced: Tristate = Tristate.NO
    """Members of groups died, or partitions changed hands."""
    forgotten: Tristate = Tristate.NO
    """A send outlived the broker's memory of its producer."""
    offsets_expired: Tristate = Tristate.NO
    """It took as long as the offsets of a group without members are kept (offsets.retention.minutes)."""
    read_uncommitted: Tristate = Tristate.NO
    """Consumers read them at read_uncommitted."""
    read_uncommitted_inside: Tristate = Tristate.NO
    """Transactions read them at read_uncommitted."""
    cell_unclean: Tristate = Tristate.NO
    """`unclean`, of any partition of the cell."""
    faulted: Tristate = Tristate.NO
    """There was a fault, of any kind."""
    asked: Tristate = Tristate.NO
    """Somebody asked for an unclean election."""
    several_releases: Tristate = Tristate.NO
    """Brokers of several releases ran side by side."""
    topic_deleted: Tristate = Tristate.NO
    """By the controllers' log a topic of its name was deleted, or made again."""


def could_happen(
    natures: Mapping[str, FaultNature | None], *, unclean_enabled: bool, flushed: bool = False
) -> Happened:
    """Returns what faults of these kinds could cause; None = a kind that nobody described, so anything. `flushed`: every
    record is synced before it is acknowledged."""
    if not natures:
        return Happened(moved=Tristate.NO, unclean=Tristate.NO, destroyed=Tristate.NO)
    known = [n for n in natures.values() if n is not None]
    anything = len(known) < len(natures)
    destroyed = anything or any(n.destroys or (n.loses_unflushed and not flushed) for n in known)
    out = destroyed or any(n.stops or n.freezes or n.cuts for n in known)
    asked = anything or any(n.elects_unclean for n in known)
    unclean = asked or (out and unclean_enabled)
    return Happened(
        moved=Tristate.UNKNOWN if out or unclean or any(n.moves for n in known) else Tristate.NO,
        unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        cell_unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        rebalanced=Tristate.UNKNOWN if out else Tristate.NO,
        destroyed=Tristate.UNKNOWN if destroyed else Tristate.NO,
        faulted=Tristate.UNKNOWN,
        asked=Tristate.UNKNOWN if asked else Tristate.NO,
    )


def what_happened(envelope: Envelope, *, sends_lived_ns: int) -> Happened:
    """Returns what did happen to one partition. `sends_lived_ns`: no send could take longer (delivery.timeout.ms)."""
    timeline, faults = envelope.timeline, envelope.faults
    destroyed = any_true(*(np.int8(f.may("destroys")) for f in faults))
    died = any(
        f.may("stops") is Tristate.YES and int(timeline.leader_at(np.array([f.begin_ns - 1]))[0]) in f.hit
        for f in faults
    )
    moved = Tristate.YES if timeline.elections or died else Tristate.NO
    expiry_ns = envelope.producer_expiry_ns
    forgotten = Tristate.UNKNOWN if expiry_ns is None else yes_if(sends_lived_ns >= expiry_ns)
    return Happened(
        moved=moved if timeline.known else Tristate.UNKNOWN,
        unclean=elected_unclean(envelope, stated_alone=True),  # nothing says so: it would not be expected
        cell_unclean=envelope.cell_unclean,
        destroyed=Tristate(int(destroyed)),
        deleted=yes_if(bool(len(envelope.log_starts[1])) and int(envelope.log_starts[1].max()) > 0),
        forgotten=forgotten,
        offsets_expired=_offsets_expired(envelope),
        rebalanced=Tristate.UNKNOWN,  # joining is a rebalance
        audited_slowly=audit_beyond_retention(envelope),
        long_away=away_beyond_retention(envelope),
        faulted=Tristate.YES if faults else Tristate.NO,
        asked=Tristate(int(any_true(np.int8(Tristate.NO), *(np.int8(f.may("elects_unclean")) for f in faults)))),
        several_releases=Tristate.UNKNOWN,
        topic_deleted=yes_if(any(life.ended for life in timeline.lives)),
    )


def _offsets_expired(envelope: Envelope) -> Tristate:
    long_ns, audited_ns = envelope.offsets_retention_ns, envelope.audited_ns
    if long_ns is None:
        return Tristate.UNKNOWN
    return Tristate.UNKNOWN if audited_ns is not None and audited_ns >= long_ns else Tristate.NO


def with_readers(happened: Happened, plan: Plan, cell: Cell) -> Happened:
    """Adds to `happened` whether some client of the plan reads the cell at read_uncommitted."""
    return replace(
        happened,
        read_uncommitted=_read_uncommitted(plan, cell, ("reader", "transactor")),
        read_uncommitted_inside=_read_uncommitted(plan, cell, ("transactor",)),
    )


def _read_uncommitted(plan: Plan, cell: Cell, roles: Sequence[str]) -> Tristate:
    """Is there a consumer among clients of these roles that asks for no more?"""
    mine = frozenset(cell.partitions)
    asking = (c for c in plan.clients if c.isolation_level == "read_uncommitted" and c.role in roles)
    return Tristate.YES if any(not mine.isdisjoint(c.partitions) for c in asking) else Tristate.NO


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that a rule may ask for. Exactly one of `of_configuration` and (`of_witnesses`, `could`) is given."""

    meaning: str
    of_configuration: Callable[[CellConfiguration], Tristate] | None = None
    of_witnesses: Callable[[Envelope, np.ndarray], Truth] | None = None
    could: Callable[[Happened], Tristate] | None = None
    across_topics: bool = False
    """It is about the several topics that a name may stand for; others are asked of each by itself."""


def yes_if(condition: bool) -> Tristate:
    return Tristate.YES if condition else Tristate.NO


_RELEASE = ("major", "minor")
_PATCHES = range(10)
"""Patch numbers that a release may have; more than any release has had."""


def version_fact(meaning: str, holds: Callable[[Version], bool]) -> Fact:
    """Makes a fact about the broker version. Of a release without its patch (4.3) only what all of its patches share is
    known."""

    def of(configuration: CellConfiguration) -> Tristate:
        version = configuration.version
        if version is None:
            return Tristate.UNKNOWN
        possible = [version] if len(version) > len(_RELEASE) else [(*version, patch) for patch in _PATCHES]
        found = {holds(v) for v in possible}
        return yes_if(found.pop()) if len(found) == 1 else Tristate.UNKNOWN

    return Fact(meaning, of)


def possibly(*causes: Tristate) -> Tristate:
    """Could a fact with these causes hold? NO if none of them happened, else UNKNOWN."""
    return Tristate.NO if all(c is Tristate.NO for c in causes) else Tristate.UNKNOWN


# Facts about groups and copiers: what they promise, and what their kernels found to explain a witness.


def of_case(meaning: str, *cases: GroupCase) -> Fact:
    """Makes a fact that holds if the checker of the group gave one of these explanations for a witness."""
    wanted = [int(case) for case in cases]
    return Fact(
        meaning,
        of_witnesses=lambda _, witnesses: as_truth(np.isin(witnesses["case"], wanted)),
        could=lambda h: h.rebalanced,
    )


def of_copy(meaning: str, case: CopyCase) -> Fact:
    """Makes a fact that holds if this is what is wrong with the copy of a record."""
    return Fact(
        meaning,
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] == int(case)),
        could=lambda h: h.rebalanced,
    )


GROUP_FACTS: Mapping[str, Fact] = {
    "copies at most once": Fact(
        "the copiers commit offsets before they produce the copies, or promise no more than that",
        lambda c: yes_if(c.delivery == "at-most-once"),
    ),
    "copies at least once": Fact(
        "the copiers commit offsets after they have produced the copies, or promise no more than that",
        lambda c: yes_if(c.delivery == "at-least-once"),
    ),
    "offsets outside the transaction": Fact(
        "the copiers commit their offsets after the transaction that holds the copies",
        lambda c: yes_if(c.delivery == "transaction-alone"),
    ),
    "no copy": of_copy("the record has no copy in the output topic", CopyCase.MISSING),
    "a copy too many": of_copy("the record already has a copy in the output topic", CopyCase.REPEATED),
    "a partition of the cell was elected unclean": Fact(
        "after the record was sent there was an unclean election of some partition of the cell, in either topic",
        of_witnesses=unclean_since,
        could=lambda h: possibly(h.cell_unclean),
    ),
    "commits first": Fact(
        "the group commits offsets before it processes the records", lambda c: yes_if(c.commits_first)
    ),
    "ends of partitions are stored": Fact(
        "members set enable.partition.eof, and commit by themselves what the batch API of librdkafka 2.2.0 to 2.13.1 stored, "
        "which takes the end of a partition for a record",
        lambda c: yes_if(c.ends_are_stored),
    ),
    "one beyond": Fact(
        "the committed offset is the one behind the member's position",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["log_offset"] == witnesses["other_offset"] + 1),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "committed one beyond it": Fact(
        "a member whose position was this record committed the offset behind it",
        of_witnesses=committed_one_beyond_it,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "hands on": Fact(
        "the group sends records that it could not process to a retry topic", lambda c: yes_if(c.hands_on)
    ),
    "hands on without waiting": Fact(
        "the group commits past a record that it sent to the retry topic, without waiting for the acknowledgement",
        lambda c: yes_if(c.hands_on_unawaited),
    ),
    "left behind": of_case(
        "the record was sent to the retry topic, and was never acknowledged or seen there", GroupCase.LEFT_BEHIND
    ),
    "sent again": of_case(
        "the record was sent to the retry topic again, because the first send was never acknowledged",
        GroupCase.SENT_AGAIN,
    ),
    "crcs are not checked": Fact("check.crcs=false", lambda c: yes_if(c.crcs_unchecked)),
    "resets to latest": Fact("auto.offset.reset=latest", lambda c: yes_if(c.resets_to_latest)),
    "member was gone": of_case(
        "in between, the member that had the record died, gave up the partition or lost it",
        GroupCase.CRASHED,
        GroupCase.RELEASED,
        GroupCase.EVICTED,
    ),
    "commits of one alone": Fact(
        "while the partition had two owners, at most one of them had a commit accepted",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] != GroupCase.BOTH_COMMITTED),
        could=lambda h: h.rebalanced,
    ),
    "coordinator out": Fact(
        "when the second owner began, or shortly before, a fault that was aimed at the group's coordinator or that "
        "hit every broker killed, froze or cut off the coordinator: it may have been replaced, and its members "
        "evicted, without their knowing; unknown for a fault on other brokers",
        of_witnesses=coordinator_out,
        could=lambda h: possibly(h.moved),
    ),
    "one instance id twice": of_case(
        "both owners have the same group.instance.id, in the classic protocol", GroupCase.SAME_INSTANCE
    ),
    "position was sought": of_case("the member had called seek", GroupCase.SOUGHT),
    "position was reset": of_case("auto.offset.reset put the member's position beyond the record", GroupCase.RESET),
    "stands twice": of_case("the record is in the log more than once", GroupCase.DUPLICATE),
    "group was troubled": Fact(
        "so shortly before that members may still have learnt of it, there was a fault of any kind, a change of the leader "
        "of the partition or of a partition of __consumer_offsets, or a replica out of sync",
        of_witnesses=troubled,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "within a session": of_case("the last owner died, and its session had not timed out yet", GroupCase.WITHIN_SESSION),
}


# Facts about topics that were deleted, and made again under their names.


def _fact(meaning: str, of_witnesses: Callable[[Envelope, np.ndarray], Truth]) -> Fact:
    return Fact(meaning, of_witnesses=of_witnesses, could=lambda h: possibly(h.topic_deleted), across_topics=True)


LIFE_FACTS: Mapping[str, Fact] = {
    "topic deleted": _fact(
        "the controllers' log says that the topic (by its id) was deleted after the send of the record began, and "
        "the record was acknowledged or seen before a topic of that name existed again",
        topic_deleted,
    ),
    "topic deleted after the read": _fact(
        "the controllers' log says that the topic (by its id) from which the record was read was deleted after the "
        "read",
        topic_deleted_before_read,
    ),
    "topic of either deleted": _fact(
        "one of the two records was in a topic (by its id) that was deleted, and the other is in a later topic of "
        "that name",
        lambda envelope, witnesses: deleted_of_either(envelope, witnesses, np.isin(witnesses["case"], IN_LOG_CASES)),
    ),
    "topic made anew in between": _fact(
        "the controllers' log says that the topic was deleted and created again, with another id, between the two "
        "events",
        made_anew_between,
    ),
    "topic made anew since the other": _fact(
        "the controllers' log says that the topic was deleted and created again, with another id, between the "
        "earlier event and this one",
        made_anew_since_the_other,
    ),
    "name stood for several topics": _fact(
        "the topic was deleted and created again, and it is not known to which of the two an offset of the group "
        "belongs",
        name_stood_for_several,
    ),
}


# The facts that rules are made of: by name, from a cell's configuration or from the envelope of a partition.
#
# A fact of the envelope is asked in two ways: of witnesses (is it so?), and of what happened at all (could it be so?):
# the second tells "permitted, not seen" from "held", and predicts before anything ran.


READ_UNCOMMITTED_CASE = 1
"""`case` of witnesses of `aborted-read` and `early-read`: a read_uncommitted consumer."""
LOST_OR_BEFORE_CASE = 2
"""`case` of witnesses of `lost`: or every consumer began behind it."""
REORDERED_OR_COPY_CASE = 1
"""`case` of witnesses of `reordered`: or a second copy, whose first was cleaned away."""
BY_WRITES_CASES = (2, 3)
"""`case` of witnesses of `write-cycle`: with what was read, and by writes alone."""


FACTS: Mapping[str, Fact] = {
    **GROUP_FACTS,
    **LIFE_FACTS,
    "acks=0": Fact("the producer waits for no reply", lambda c: yes_if(c.acks == "0")),
    "acks=1": Fact("the producer waits for the leader only", lambda c: yes_if(c.acks == "1")),
    "idempotent": Fact("enable.idempotence is in effect", lambda c: yes_if(c.idempotent)),
    "retries": Fact("the producer sends a record again if the send failed", lambda c: yes_if(c.retries)),
    "several in flight": Fact("max.in.flight.requests.per.connection > 1", lambda c: yes_if(c.several_in_flight)),
    "several per batch": Fact("the producer sends several records in a batch", lambda c: yes_if(c.several_per_batch)),
    "refused by brokers": Fact(
        "the brokers, not the client, refuse the records that the trial makes wrong",
        lambda c: yes_if(c.refused_by_brokers),
    ),
    "librdkafka": Fact(
        "the producer uses librdkafka", lambda c: Tristate.UNKNOWN if c.other_library else yes_if(c.librdkafka)
    ),
    "transactions before version 2": Fact(
        "there are transactions, and they are not of version 2 (KIP-890)", lambda c: yes_if(c.transactions_before_v2)
    ),
    "lifo": Fact("queuing.strategy=lifo (librdkafka)", lambda c: yes_if(c.lifo)),
    "unclean enabled": Fact("unclean.leader.election.enable=true", lambda c: yes_if(c.unclean_enabled)),
    "unclean election asked for": Fact(
        "a fault asked for an unclean election of the partition, and this election was the result",
        of_witnesses=unclean_asked_for,
        could=lambda h: possibly(h.asked),
    ),
    "leader was hampered": Fact(
        "during a part of the send the partition's leader was cut off, frozen or dead, or it was fenced and did not "
        "know that",
        of_witnesses=leader_hampered,
        could=lambda h: possibly(h.moved),
    ),
    "brokers to 3.9.0 or 4.0.0": version_fact(
        "a broker is 3.9.0 or older, or 4.0.0", lambda v: v[:3] <= (3, 9, 0) or v[:3] == (4, 0, 0)
    ),
    "brokers to 3.4": version_fact("a broker is 3.4 or older", lambda v: v[:2] <= (3, 4)),
    "brokers 2.7.0 to 2.8.0": version_fact(
        "a broker is 2.7.0, 2.7.1 or 2.8.0", lambda v: v[:3] in ((2, 7, 0), (2, 7, 1), (2, 8, 0))
    ),
    "brokers to 3.4.0": version_fact("a broker is 3.4.0 or older", lambda v: v[:3] <= (3, 4, 0)),
    "committed": Fact(
        "the record was acknowledged with acks=all, a consumer read it, or the high watermark was seen above it",
        of_witnesses=committed,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "tail": Fact(
        "the record was not committed, and a later leader never had it, or the leader that acknowledged it lost its "
        "data",
        of_witnesses=in_uncommitted_tail,
        could=lambda h: possibly(h.moved, h.destroyed),
    ),
    "given up": Fact(
        "the client did not learn how the send ended",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["outcome"] == Outcome.INFO),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "leader changed": Fact(
        "the partition's leader changed after the send began, or so shortly before that the client may not have "
        "known it",
        of_witnesses=leader_changed,
        could=lambda h: possibly(h.moved),
    ),
    "leader changed during the send": Fact(
        "the partition's leader changed after the send began, or shortly before, and not after the client had "
        "learnt how the send ended",
        of_witnesses=leader_changed_during_the_send,
        could=lambda h: possibly(h.moved),
    ),
    "leader may have refused": Fact(
        "the partition's leader changed during the send; or the leader (also the first one, or one that came back "
        "from a fault) had not answered anybody as leader yet when the send began, so it may have refused this send "
        "and taken a later one",
        of_witnesses=leader_may_have_refused,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "cutoff": Fact(
        "there was an unclean election after the record was written, and the record's offset is not below the start "
        "of the new leader epoch",
        of_witnesses=cutoff,
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff of a missing record": Fact(
        "the record is in no log, and a later unclean election began a leader epoch without it: later than the "
        "epoch in which a consumer read the record, or, if none did, than that of every leader that may have "
        "acknowledged it",
        of_witnesses=cutoff_of_missing_record,
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff after the read": Fact(
        "the log lacks the record, and an unclean election began a later leader epoch than the one in which a "
        "consumer read it; if that epoch is not known: there was an unclean election after the read, and the "
        "record's offset is not below the start of the new epoch",
        of_witnesses=cutoff_after_read,
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff of either": Fact(
        "there was an unclean election after the first of the two records was sent or seen; if one of the two is in "
        "the log, the election must have removed the other one",
        of_witnesses=cutoff_of_either,
        could=lambda h: possibly(h.unclean),
    ),
    "unclean between the answers": Fact(
        "an unclean election began a leader epoch that is later than the epoch of the earlier answer, and not later "
        "than that of the later answer",
        of_witnesses=unclean_between,
        could=lambda h: possibly(h.unclean),
    ),
    "unclean after the step": Fact(
        "a member processed another record at this offset, and there was an unclean election after that",
        of_witnesses=unclean_after_the_step,
        could=lambda h: possibly(h.unclean),
    ),
    "unclean since the other": Fact(
        "there was an unclean election between the earlier event and this one; unknown if it was well before the earlier one",
        of_witnesses=unclean_since_the_other,
        could=lambda h: possibly(h.unclean),
    ),
    "wiped since the other": Fact(
        "every replica that could become leader lost its data between the earlier event and this one",
        of_witnesses=wiped_since_the_other,
        could=lambda h: possibly(h.destroyed),
    ),
    "unclean before": Fact(
        "there was an unclean election between the two reads; unknown if it was well before the first one",
        of_witnesses=unclean_before,
        could=lambda h: possibly(h.unclean),
    ),
    "wiped": Fact(
        "every replica that could become leader lost its data after the send began",
        of_witnesses=wiped,
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped of either": Fact(
        "every replica that could become leader lost its data after the first of the two records was sent or seen; "
        "if one of the two is in the log, this is asked of the other one",
        of_witnesses=wiped_of_either,
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped after the read": Fact(
        "every replica that could become leader lost its data after a consumer had read the record",
        of_witnesses=wiped_after_read,
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped before": Fact(
        "every replica that could become leader lost its data between the two reads",
        of_witnesses=wiped_before,
        could=lambda h: possibly(h.destroyed),
    ),
    "sent later": Fact(
        "the record was sent after the later of the two reads",
        of_witnesses=sent_later,
        could=lambda h: possibly(h.unclean, h.destroyed),
    ),
    "bumped": Fact(
        "the two records are in batches with the same producer id and different producer epochs, outside transactions",
        of_witnesses=bumped,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "acknowledged without an offset": Fact(
        "the record was acknowledged, and nobody was told an offset of it",
        of_witnesses=lambda _, witnesses: as_truth(
            (witnesses["log_offset"] == NONE) & (witnesses["outcome"] == Outcome.OK)
        ),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "log begins with a later sequence": Fact(
        "the first batch of some producer in the partition's log has a first sequence above 0, and nobody was told an offset "
        "of the record",
        of_witnesses=never_written_before_the_first_batch,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "forgot": Fact(
        "the send took longer than producer.id.expiration.ms",
        of_witnesses=forgot,
        could=lambda h: possibly(h.forgotten),
    ),
    "may have expired": Fact(
        "the snapshot lacks a producer whose sends began longer ago than producer.id.expiration.ms",
        of_witnesses=may_have_expired,
        could=lambda h: possibly(h.forgotten),
    ),
    "offsets may have expired": Fact(
        "from the earlier event to this one it was as long as the offsets of a group without members are kept "
        "(offsets.retention.minutes); when a group was without members is not recorded",
        of_witnesses=offsets_may_have_expired,
        could=lambda h: possibly(h.offsets_expired),
    ),
    "log start passed": Fact(
        "by then the log start had been seen beyond the consumer's position; unknown if it was seen there only later",
        of_witnesses=log_start_passed,
        could=lambda h: possibly(h.deleted),
    ),
    "read beyond delete.retention.ms": Fact(
        "from the older record to its end, the audit took as long as tombstones are kept (delete.retention.ms)",
        of_witnesses=read_beyond_retention,
        could=lambda h: possibly(h.audited_slowly),
    ),
    "a replica away beyond delete.retention.ms": Fact(
        "a broker became leader that a fault had kept away from before the tombstone was written until after it had "
        "expired (delete.retention.ms)",
        of_witnesses=replica_away,
        could=lambda h: possibly(h.long_away),
    ),
    "sent before it was read": Fact(
        "the record was sent before anybody read it: what is wrong is where another record stands",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] != RealTimeCase.READ_UNSENT),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "found along the log": Fact(
        "the leader epoch falls along a log, or along what a reader got of it, and not in a broker's answers",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] != EpochCase.ANSWERED),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "found by a consumer": Fact(
        "the leader epoch falls along what a consumer got, which may be of two states of the log",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] == EpochCase.READ),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "read_uncommitted": Fact(
        "the consumer that read the record uses read_uncommitted",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
        could=lambda h: possibly(h.read_uncommitted),
    ),
    "read_uncommitted inside": Fact(
        "the transaction that read the record uses read_uncommitted",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
        could=lambda h: possibly(h.read_uncommitted_inside),
    ),
    "may have begun behind it": Fact(
        "no consumer is known to have come by: each may have begun behind the record",
        of_witnesses=lambda _, witnesses: doubt_unless(as_truth(witnesses["case"] == LOST_OR_BEFORE_CASE), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "may be a second copy": Fact(
        "the log was compacted, so the record may be a second copy whose first copy is gone",
        of_witnesses=lambda _, witnesses: doubt_unless(
            as_truth(witnesses["case"] == REORDERED_OR_COPY_CASE), known=False
        ),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "order of writes": Fact(
        "a step of the circle is the order of two writes",
        of_witnesses=lambda _, witnesses: as_truth(np.isin(witnesses["case"], BY_WRITES_CASES)),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "unsettled": Fact(
        "no 20 s of that time were free of faults, leader changes and replicas out of sync",
        of_witnesses=lambda envelope, witnesses: unsettled(envelope, witnesses, STALLED_NS),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "held up": Fact(
        "between the beginning and the end of the wait there was no stretch, as long as its bound, that was free of faults, "
        "and in which every partition of the cell had the same leader all the time and every replica in sync",
        of_witnesses=held_up,
        could=lambda _: Tristate.UNKNOWN,
        across_topics=True,
    ),
    "call held up": Fact(
        "the same; or the broker that was asked is in sync in no partition of the cell, so nothing shows that it was well",
        of_witnesses=call_held_up,
        could=lambda _: Tristate.UNKNOWN,
        across_topics=True,
    ),
    "partition held up": Fact(
        "between the beginning and the end of the wait there was no stretch, as long as its bound, that was free of faults, "
        "and in which the partition was there, and had the same leader all the time and every replica in sync",
        of_witnesses=held_up_there,
        could=lambda _: Tristate.UNKNOWN,
        across_topics=True,
    ),
    "whoever waited stood still": Fact(
        "the process of the client that waited stood still in between, so it may not have noticed that the wait was over",
        of_witnesses=lambda _, witnesses: doubt_unless(
            as_truth(witnesses["case"] == ProgressCase.STOOD_STILL), known=False
        ),
        could=lambda _: Tristate.NO,
    ),
    "the consumer tells no seeks": Fact(
        "the consumer is a program of yours (`consumer.command`), so it is not known whether it sought or reset its position",
        of_witnesses=lambda envelope, witnesses: doubt_unless(
            as_truth(np.isin(witnesses["reader"], list(envelope.seeks_unrecorded))), known=False
        ),
        could=lambda _: Tristate.NO,  # what it printed shows all the same that nothing of the kind was seen
    ),
    "reader stood still": Fact(
        "the consumer's own process stood still in between, so it is not known what it asked for",
        of_witnesses=lambda _, witnesses: doubt_unless(as_truth(witnesses["case"] == StallCase.STARVED), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "last stable offset stood still": Fact(
        "the leaders reported the same last stable offset all the time",
        of_witnesses=lambda _, witnesses: as_truth(witnesses["case"] == StallCase.STABLE_OFFSET),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "no majority of controllers": Fact(
        "some time in between, faults hit so many of those that keep the cluster's metadata at once that the others may have "
        "been no majority",
        of_witnesses=quorum_was_out,
        could=lambda h: possibly(h.faulted),
    ),
    "the machine stood still": Fact(
        "no process of the trial was heard of for more than 1 s in between, so the machine stood still",
        of_witnesses=lambda _, witnesses: doubt_unless(
            as_truth(witnesses["case"] == ProgressCase.STOOD_STILL), known=False
        ),
        could=lambda _: Tristate.NO,
    ),
    "within the quorum's fetch timeout": Fact(
        "the controller went on for no longer than 1.5 times controller.quorum.fetch.timeout.ms, and 2 s in which it was not "
        "asked",
        of_witnesses=within_fetch_timeout,
        could=lambda h: possibly(h.faulted),
    ),
    "controller was cut off": Fact(
        "a fault cut the controller that went on off from somebody",
        of_witnesses=controller_cut_off,
        could=lambda h: possibly(h.faulted),
    ),
    "brokers to 3.6": version_fact("a broker is 3.6 or older", lambda v: v[:2] <= (3, 6)),
    "brokers to 4.4": version_fact("a broker is 4.4 or older", lambda v: v[:2] <= (4, 4)),
    "brokers to 3.5": version_fact("a broker is 3.5 or older", lambda v: v[:2] <= (3, 5)),
    "that election was unclean": Fact(
        "the controllers' log says that the leader of this epoch came from outside the ISR and the ELR",
        of_witnesses=that_election_unclean,
        could=lambda h: possibly(h.unclean),
    ),
    "unclean before it was read": Fact(
        "there was an unclean election of the partition after the record was sent and before it was read, so "
        "markers of its transaction may be gone",
        of_witnesses=unclean_before_read,
        could=lambda h: possibly(h.unclean),
    ),
    "transaction state lost": Fact(
        "one fault destroyed the data of every broker, and with it __transaction_state; unknown if only some "
        "replicas lost data, or if an unclean election was asked for",
        of_witnesses=coordinator_state_lost,
        could=lambda h: possibly(h.destroyed),
    ),
    "transaction decision lost": Fact(
        "as `transaction state lost`, and also up to 10 s after the transaction ended, because its markers may not "
        "have been written yet",
        of_witnesses=decision_lost,
        could=lambda h: possibly(h.destroyed),
    ),
    "group state lost": Fact(
        "one fault destroyed the data of every broker, and with it __consumer_offsets; unknown if only some "
        "replicas lost data, or if an unclean election was asked for",
        of_witnesses=coordinator_state_lost,
        could=lambda h: possibly(h.destroyed),
    ),
    "group lost by every broker": Fact(
        "one fault destroyed the data of every broker, and with it __consumer_offsets",
        of_witnesses=lambda envelope, witnesses: as_truth(coordinator_state_lost(envelope, witnesses) == TRUE),
        could=lambda h: possibly(h.destroyed),
    ),
    "owner since before the loss": Fact(
        "the other owner had the partition since before the fault that may have destroyed __consumer_offsets",
        of_witnesses=owner_since_before_the_loss,
        could=lambda h: possibly(h.destroyed),
    ),
    "ended by a late request": Fact(
        "a transaction marker of the record's producer id and epoch was written before the client had asked for any "
        "end of this transaction",
        of_witnesses=ended_by_a_late_request,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "an open one was ended by a late request": Fact(
        "the same of the record, or of the one of an open transaction in front of it",
        of_witnesses=an_open_one_ended_by_a_late_request,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "a clock may have ended it": Fact(
        "a fault may have moved the wall clock by which the coordinator of an aborted transaction in front of the record "
        "counts its timeout",
        of_witnesses=a_clock_may_have_ended_it,
        could=lambda h: possibly(h.faulted),
    ),
    "behind its own end": Fact(
        "the record stands behind a transaction marker of its producer id and epoch that was written after the client had "
        "asked for the end of the record's own transaction",
        of_witnesses=behind_its_own_end,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "told by a deposed coordinator": Fact(
        "the copier's last request for its group's committed offset was answered with an older one, by a broker "
        "that no longer led the group's partition of __consumer_offsets",
        of_witnesses=lambda envelope, witnesses: as_truth(
            answered_by_deposed_coordinator(envelope.stale_answers(), witnesses)
        ),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "followed a change of leader, then led without it": Fact(
        "a replica that was in sync from the acknowledgement on followed another new leader, and then led in an epoch that "
        "began without the record; where its own log was read, it says that the replica cut the record off meanwhile, under "
        "a later leader than the one that acknowledged it",
        of_witnesses=followed_a_change_then_led_without_it,
        could=lambda h: possibly(h.moved),
    ),
    "followed its new leader, then led without it": Fact(
        "a replica that was in sync from the acknowledgement on followed the leader that gave it, which was new then, and "
        "then led in an epoch that began without the record; where its own log was read, it says that the replica cut the "
        "record off under that very leader",
        of_witnesses=followed_its_new_leader_then_led_without_it,
        could=lambda h: possibly(h.moved),
    ),
    "cut by the leader that acknowledged it": Fact(
        "a replica says in its own log that it cut the record off after the acknowledgement, under the leader that gave it, "
        "and then it led in an epoch that began without the record",
        of_witnesses=cut_by_the_leader_that_acknowledged_it,
        could=lambda h: possibly(h.moved),
    ),
    "markers refused": Fact(
        "a broker says in its own log that it refused WriteTxnMarkers meanwhile, because it does not know the version",
        of_witnesses=markers_refused,
        could=lambda h: possibly(h.several_releases),
    ),
    "registered anew, then led without it": Fact(
        "a broker that was started again after the acknowledgement led in an epoch that began without the record",
        of_witnesses=registered_anew_then_led_without_it,
        could=lambda h: possibly(h.moved),
    ),
    "rejoined with nothing, then led without it": Fact(
        "a replica whose copy was destroyed after the acknowledgement came back into the ISR, and led in an epoch that "
        "began without the record",
        of_witnesses=rejoined_with_nothing_then_led_without_it,
        could=lambda h: possibly(h.destroyed),
    ),
    "older epoch behind a newer": Fact(
        "some replica has a batch of an older leader epoch behind the start of a newer epoch, at the record's "
        "offset or before it",
        of_witnesses=older_epoch_behind_a_newer,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "given after its leader was replaced": Fact(
        "a consumer read the record in the leader epoch of a leader that had already been replaced",
        of_witnesses=given_after_its_leader_was_replaced,
        could=lambda h: possibly(h.moved),
    ),
    "left open": Fact(
        "at the end of the run no marker ends the transaction that begins where the last stable offset stood still",
        of_witnesses=left_open,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "delayed": Fact(
        "a node was frozen or cut off during the record's transaction or the one before it",
        of_witnesses=delayed,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "an earlier end took long": Fact(
        "the record's client had asked for the end of an earlier transaction, and was answered after a second or never",
        of_witnesses=earlier_end_took_long,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "its send took long": Fact(
        "the send of the record took a second or more, failed or never ended",
        of_witnesses=send_took_long,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "faults are excepted": Fact(
        "the trial's delivery bound does not count what a fault may have delayed", lambda c: yes_if(c.faults_excepted)
    ),
    "fault at work": Fact(
        "a fault of any kind was active between the send of the record and its deadline, or had been undone less "
        "than the stated recovery time before the send; a fault that hit only the measuring consumers does not count",
        of_witnesses=fault_at_work,
        could=lambda h: possibly(h.faulted),
    ),
    "unmeasured": Fact(
        "the record's producer, or a consumer that should have read it, stood still or was dead long enough to "
        "explain the delay, or the record is missing and the audit did not end: so it is not known whether it was "
        "late",
        of_witnesses=lambda envelope, witnesses: doubt_unless(unmeasured(envelope, witnesses), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "out of sync at the end": Fact(
        "one of the two replicas was not in the ISR at the end of the run",
        of_witnesses=out_of_sync_at_the_end,
        could=lambda _: Tristate.UNKNOWN,
    ),
}


def of_witnesses(name: str, configuration: CellConfiguration, envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Does the fact hold for each witness?"""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return constant(int(fact.of_configuration(configuration)), len(witnesses))
    assert fact.of_witnesses is not None, name
    if fact.across_topics:
        return fact.of_witnesses(envelope, witnesses)
    return of_each_life(envelope, witnesses, fact.of_witnesses)


def could_hold(name: str, configuration: CellConfiguration, happened: Happened) -> Truth:
    """Could the fact hold of any witness there might have been? Scalar."""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return np.asarray(np.int8(fact.of_configuration(configuration)))
    assert fact.could is not None, name
    return np.asarray(np.int8(fact.could(happened)))
