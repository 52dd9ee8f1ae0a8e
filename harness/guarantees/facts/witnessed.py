"""Asks facts about events of witnesses: for each witness, does the fact hold?

Each name is one of `prozess.harness.guarantees.facts.registry.FACTS`, which says what it means.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum

import numpy as np

from prozess.harness.guarantees.evidence.envelope import Envelope, answered_by_deposed_coordinator
from prozess.harness.guarantees.facts.happened import Happened, yes_if
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.facts.replicas_in_sync import (
    cut_by_the_leader_that_acknowledged_it,
    cut_though_its_leader_had_it_then_led_without_it,
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
    led_elsewhere_below,
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
from prozess.harness.guarantees.facts.settling import (
    controller_cut_off,
    fault_meanwhile,
    quorum_was_out,
    store_harmed,
    troubled,
    within_fetch_timeout,
)
from prozess.harness.guarantees.facts.stale_leaders import (
    a_clock_may_have_been_ahead,
    a_clock_may_have_ended_it,
    an_expired_send_had_gone_there,
    an_open_one_ended_by_a_late_request,
    behind_its_own_end,
    broker_may_have_been_out,
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
    out_of_reach_for_long,
    out_of_sync_at_the_end,
    owner_since_before_the_loss,
    send_took_long,
    session_may_have_ended,
    unmeasured,
    without_producer_id,
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
    wiped_after_it_was_there,
    wiped_after_read,
    wiped_before,
    wiped_of_either,
    wiped_since_the_other,
)
from prozess.harness.guarantees.facts.undisturbed import call_held_up, held_up, held_up_there, unsettled
from prozess.harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth, any_true, as_truth, constant, doubt_unless
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.interfaces.witnesses import (
    STALLED_NS,
    AdminCase,
    CopyCase,
    EpochCase,
    GapCase,
    GroupCase,
    KeyCase,
    ProgressCase,
    RealTimeCase,
    ShareCase,
    StallCase,
)
from prozess.harness.schema import MISSING, NONE, Outcome, Tristate

AskedOfWitnesses = Callable[[Envelope, np.ndarray], Truth]
"""Returns for each witness (array of WITNESS) whether a fact holds: 1, 0, or -1 for unknown."""

READ_UNCOMMITTED_CASE = 1
"""`case` of witnesses of `aborted-read` and `early-read`: a read_uncommitted consumer."""
LOST_OR_BEFORE_CASE = 2
"""`case` of witnesses of `lost`: or every consumer began behind it."""
REORDERED_OR_COPY_CASE = 1
"""`case` of witnesses of `reordered`: or a second copy, whose first was cleaned away."""
BY_WRITES_CASES = (2, 3)
"""`case` of witnesses of `write-cycle`: with what was read, and by writes alone."""


def explained_by(*cases: IntEnum) -> AskedOfWitnesses:
    """Returns a fact that holds if the kernel gave one of these explanations for a witness."""
    wanted = [int(case) for case in cases]
    return lambda _, witnesses: as_truth(np.isin(witnesses["case"], wanted))


def perhaps_explained_by(*cases: IntEnum) -> AskedOfWitnesses:
    """Returns a fact that is unknown where the kernel gave one of these explanations, and else does not hold."""
    wanted = [int(case) for case in cases]
    return lambda _, witnesses: np.where(np.isin(witnesses["case"], wanted), UNKNOWN, FALSE).astype(np.int8)


def _partitions_were_added(_: Envelope, witnesses: np.ndarray) -> Truth:
    added = as_truth(witnesses["case"] == int(KeyCase.ADDED))
    return np.where(witnesses["case"] == int(KeyCase.PERHAPS_ADDED), UNKNOWN, added).astype(np.int8)


_MEMBER_WAS_GONE = explained_by(GroupCase.CRASHED, GroupCase.RELEASED, GroupCase.EVICTED)
OF_WITNESSES: Mapping[str, AskedOfWitnesses] = {
    "no copy": explained_by(CopyCase.MISSING),
    "a copy too many": explained_by(CopyCase.REPEATED),
    "a partition of the cell was elected unclean": unclean_since,
    "one beyond": lambda _, witnesses: as_truth(witnesses["log_offset"] == witnesses["other_offset"] + 1),
    "committed one beyond it": committed_one_beyond_it,
    "left behind": explained_by(GroupCase.LEFT_BEHIND),
    "sent again": explained_by(GroupCase.SENT_AGAIN),
    "member was gone": _MEMBER_WAS_GONE,
    "was given to nobody, or its member was gone": lambda context, witnesses: any_true(
        as_truth(witnesses["reader"] == NONE), _MEMBER_WAS_GONE(context, witnesses)
    ),
    "commits of one alone": lambda _, witnesses: as_truth(witnesses["case"] != GroupCase.BOTH_COMMITTED),
    "coordinator out": coordinator_out,
    "one instance id twice": explained_by(GroupCase.SAME_INSTANCE),
    "position was sought": explained_by(GroupCase.SOUGHT),
    "position was reset": explained_by(GroupCase.RESET),
    "stands twice": explained_by(GroupCase.DUPLICATE),
    "group was troubled": troubled,
    "start was beyond it": explained_by(ShareCase.BEFORE_START),
    "count was in memory alone": explained_by(ShareCase.NOT_RAISED),
    "delivered as often as the limit allows": explained_by(ShareCase.AT_LIMIT),
    "one delivery short of the limit": explained_by(ShareCase.ONE_SHORT),
    "leader changed while it was held": leader_changed_during_the_send,
    "share session may have ended": session_may_have_ended,
    "dead-letter queue may have been out of reach": out_of_reach_for_long,
    "offset given away by an election": lambda envelope, witnesses: constant(
        int(elected_unclean(envelope)), len(witnesses)
    ),
    "within a session": explained_by(GroupCase.WITHIN_SESSION),
    "a gone member may be waited for": explained_by(GroupCase.WAITED_FOR),
    "an old id may be waited for": perhaps_explained_by(GroupCase.GAVE_UP),
    "topic deleted": topic_deleted,
    "topic deleted after the read": topic_deleted_before_read,
    "topic of either deleted": lambda envelope, witnesses: deleted_of_either(
        envelope, witnesses, np.isin(witnesses["case"], IN_LOG_CASES)
    ),
    "partitions were added": _partitions_were_added,
    "sent by two producers": explained_by(KeyCase.TWO_PRODUCERS),
    "topic made anew in between": made_anew_between,
    "topic made anew since the other": made_anew_since_the_other,
    "its reader uses librdkafka": lambda envelope, witnesses: envelope.of_librdkafka(witnesses["reader"]),
    "led elsewhere below the epochs before": led_elsewhere_below,
    "name stood for several topics": name_stood_for_several,
    "unclean election asked for": unclean_asked_for,
    "leader was hampered": leader_hampered,
    "committed": committed,
    "still unreplicated": in_uncommitted_tail,
    # Tools of Kafka name no partition in their errors: a record whose send is not known here may be one of those.
    "given up": lambda _, witnesses: any_true(
        as_truth(witnesses["outcome"] == Outcome.INFO),
        doubt_unless(as_truth((witnesses["outcome"] == NONE) & (witnesses["begin_ns"] == MISSING)), known=False),
    ),
    "leader changed": leader_changed,
    "leader changed during the send": leader_changed_during_the_send,
    "leader may have refused": leader_may_have_refused,
    "cutoff": cutoff,
    "cutoff of a missing record": cutoff_of_missing_record,
    "cutoff after the read": cutoff_after_read,
    "cutoff of either": cutoff_of_either,
    "unclean between the answers": unclean_between,
    "unclean after the step": unclean_after_the_step,
    "unclean since the other": unclean_since_the_other,
    "wiped since the other": wiped_since_the_other,
    "unclean before": unclean_before,
    "wiped": wiped,
    "wiped of either": wiped_of_either,
    "wiped after the read": wiped_after_read,
    "wiped after it was there": wiped_after_it_was_there,
    "wiped before": wiped_before,
    "sent later": sent_later,
    "bumped": bumped,
    "without a producer id": without_producer_id,
    "an expired send had gone there": an_expired_send_had_gone_there,
    "acknowledged without an offset": lambda _, witnesses: as_truth(
        (witnesses["log_offset"] == NONE) & (witnesses["outcome"] == Outcome.OK)
    ),
    "log begins with a later sequence": never_written_before_the_first_batch,
    "forgot": forgot,
    "may have expired": may_have_expired,
    "offsets may have expired": offsets_may_have_expired,
    "log start passed": log_start_passed,
    "taken": explained_by(GapCase.TAKEN),
    "fault since it was let go": fault_meanwhile,
    "remote store harmed": store_harmed,
    "read beyond delete.retention.ms": read_beyond_retention,
    "a replica away beyond delete.retention.ms": replica_away,
    "sent before it was read": lambda _, witnesses: as_truth(witnesses["case"] != RealTimeCase.READ_UNSENT),
    "found along the log": lambda _, witnesses: as_truth(witnesses["case"] != EpochCase.ANSWERED),
    "found by a consumer": lambda _, witnesses: as_truth(witnesses["case"] == EpochCase.READ),
    "read_uncommitted": lambda _, witnesses: as_truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
    "read_uncommitted inside": lambda _, witnesses: as_truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
    "may have begun behind it": lambda _, witnesses: doubt_unless(
        as_truth(witnesses["case"] == LOST_OR_BEFORE_CASE), known=False
    ),
    "may be a second copy": lambda _, witnesses: doubt_unless(
        as_truth(witnesses["case"] == REORDERED_OR_COPY_CASE), known=False
    ),
    "order of writes": lambda _, witnesses: as_truth(np.isin(witnesses["case"], BY_WRITES_CASES)),
    "unsettled": lambda envelope, witnesses: unsettled(envelope, witnesses, STALLED_NS),
    "held up": held_up,
    "call held up": call_held_up,
    "partition held up": held_up_there,
    "committed for the topic before": explained_by(GroupCase.OF_ANOTHER_TOPIC),
    "may have been carried out later": explained_by(AdminCase.AGAIN),
    "whoever waited stood still": lambda _, witnesses: doubt_unless(
        as_truth(witnesses["case"] == ProgressCase.STOOD_STILL), known=False
    ),
    "the consumer's seeks are not recorded": lambda envelope, witnesses: doubt_unless(
        as_truth(np.isin(witnesses["reader"], list(envelope.seeks_unrecorded))), known=False
    ),
    "reader stood still": lambda _, witnesses: doubt_unless(
        as_truth(witnesses["case"] == StallCase.STARVED), known=False
    ),
    "last stable offset stood still": lambda _, witnesses: as_truth(witnesses["case"] == StallCase.STABLE_OFFSET),
    "no majority of controllers": quorum_was_out,
    "the machine stood still": lambda _, witnesses: doubt_unless(
        as_truth(witnesses["case"] == ProgressCase.STOOD_STILL), known=False
    ),
    "within the quorum's fetch timeout": within_fetch_timeout,
    "controller was cut off": controller_cut_off,
    "that election was unclean": that_election_unclean,
    "unclean before it was read": unclean_before_read,
    "transaction state lost": coordinator_state_lost,
    "transaction decision lost": decision_lost,
    "group state lost": coordinator_state_lost,
    "share state lost": coordinator_state_lost,
    "group lost by every broker": lambda envelope, witnesses: as_truth(
        coordinator_state_lost(envelope, witnesses) == TRUE
    ),
    "owner since before the loss": owner_since_before_the_loss,
    "ended by a late request": ended_by_a_late_request,
    "an open one was ended by a late request": an_open_one_ended_by_a_late_request,
    "that broker may have been out": broker_may_have_been_out,
    "a clock may have been ahead": a_clock_may_have_been_ahead,
    "a clock may have ended it": a_clock_may_have_ended_it,
    "behind its own end": behind_its_own_end,
    "reported by a deposed coordinator": lambda envelope, witnesses: as_truth(
        answered_by_deposed_coordinator(envelope.stale_answers(), witnesses)
    ),
    "followed a change of leader, then led without it": followed_a_change_then_led_without_it,
    "followed its new leader, then led without it": followed_its_new_leader_then_led_without_it,
    "cut by the leader that acknowledged it": cut_by_the_leader_that_acknowledged_it,
    "cut though its leader had it, then led without it": cut_though_its_leader_had_it_then_led_without_it,
    "markers refused": markers_refused,
    "registered anew, then led without it": registered_anew_then_led_without_it,
    "rejoined with nothing, then led without it": rejoined_with_nothing_then_led_without_it,
    "older epoch behind a newer": older_epoch_behind_a_newer,
    "given after its leader was replaced": given_after_its_leader_was_replaced,
    "left open": left_open,
    "delayed": delayed,
    "an earlier end took long": earlier_end_took_long,
    "its send took long": send_took_long,
    "fault at work": fault_at_work,
    "unmeasured": lambda envelope, witnesses: doubt_unless(unmeasured(envelope, witnesses), known=False),
    "out of sync at the end": out_of_sync_at_the_end,
}
assert OF_WITNESSES.keys() == {name for name, fact in FACTS.items() if fact.could is not None}

ACROSS_TOPICS = frozenset(
    {
        "topic deleted",
        "topic deleted after the read",
        "topic of either deleted",
        "topic made anew in between",
        "topic made anew since the other",
        "led elsewhere below the epochs before",
        "name stood for several topics",
        "held up",
        "call held up",
        "partition held up",
    }
)
"""Facts about the several topics that a name may stand for; others are asked of each by itself."""


def of_witnesses(name: str, configuration: CellConfiguration, envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Does the fact hold for each witness?"""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return constant(int(fact.of_configuration(configuration)), len(witnesses))
    if name in ACROSS_TOPICS:
        return OF_WITNESSES[name](envelope, witnesses)
    return of_each_life(envelope, witnesses, OF_WITNESSES[name])


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
        store_harmed=Tristate(int(any_true(np.int8(Tristate.NO), *(np.int8(f.may("harms_store")) for f in faults)))),
        asked=Tristate(int(any_true(np.int8(Tristate.NO), *(np.int8(f.may("elects_unclean")) for f in faults)))),
        several_releases=Tristate.UNKNOWN,
        topic_deleted=yes_if(not envelope.topics_apart and any(life.ended for life in timeline.lives)),
    )


def _offsets_expired(envelope: Envelope) -> Tristate:
    long_ns, audited_ns = envelope.offsets_retention_ns, envelope.audited_ns
    if long_ns is None:
        return Tristate.UNKNOWN
    return Tristate.UNKNOWN if audited_ns is not None and audited_ns >= long_ns else Tristate.NO
