"""This module says what is gone by design: producers, records and tombstones after a time, and topics that were deleted
and made again."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from prozess.harness.guarantees.evidence.envelope import DEPOSED_NS, Envelope, or_never
from prozess.harness.guarantees.evidence.ground_truth import FOREVER
from prozess.harness.guarantees.facts.server_logs import times_are_known
from prozess.harness.guarantees.logic import FALSE, UNKNOWN, Truth, all_true, any_true, as_truth, constant, doubt_unless
from prozess.harness.interfaces.witnesses import SnapshotCase
from prozess.harness.schema import MISSING, NONE, Tristate


def forgot(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The producer's state had expired before the send ended, so a retry was taken for new. Where nobody was informed of
    its end, it may have been when the log was read, at the latest. [KIP-854 producer.id.expiration.ms]"""
    if envelope.producer_expiry_ns is None:
        return constant(UNKNOWN, len(witnesses))
    read_ns = FOREVER if envelope.audited_ns is None else envelope.audited_ns
    ended = witnesses["end_ns"] != MISSING
    lived_ns = np.where(ended, witnesses["end_ns"], read_ns) - envelope.begun_ns(witnesses)
    return doubt_unless(as_truth(lived_ns + envelope.error_ns >= envelope.producer_expiry_ns), known=ended)


def may_have_expired(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A snapshot does not know a producer, and from the first send to the reading it was as long as producer ids are
    kept. [KIP-854 producer.id.expiration.ms]"""
    unknown_there = as_truth(witnesses["case"] == SnapshotCase.UNKNOWN_THERE)
    return all_true(unknown_there, forgot(envelope, witnesses))


def offsets_may_have_expired(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Between the witness's earlier event (`other_ns`) and this one it was as long as committed offsets of a group without
    members are kept, and no commit of a member was accepted meanwhile. Nothing records when a group was without members, so
    it is never certain. [KIP-211: offsets.retention.minutes]"""
    if envelope.offsets_retention_ns is None:
        return constant(UNKNOWN, len(witnesses))
    long_ns = envelope.offsets_retention_ns - envelope.error_ns
    until_ns = witnesses["begin_ns"]
    since_ns = np.where(witnesses["other_ns"] == MISSING, -FOREVER, witnesses["other_ns"])
    long = until_ns - since_ns >= long_ns
    invoked_ns, completed_ns = envelope.group_commits()
    count = len(invoked_ns)
    if count and times_are_known(envelope):  # a broker whose clock is set forward forgets early
        # Each was accepted between its two times, and the group had a member then. Example, of 60 s: commits at 10, 50 and
        # 90 s leave no silence of that length from 0 to 100 s; those at 10 and 90 s do.
        first = np.searchsorted(invoked_ns, since_ns)
        last = np.searchsorted(np.maximum.accumulate(completed_ns), until_ns, side="right") - 1
        one, other = np.minimum(first, count - 1), np.maximum(last, 0)
        silences = np.concatenate([[0], np.cumsum(completed_ns[1:] - invoked_ns[:-1] >= long_ns)])
        silent = (completed_ns[one] - since_ns >= long_ns) | (until_ns - invoked_ns[other] >= long_ns)
        long &= (first > last) | silent | (silences[other] > silences[one])
    return doubt_unless(as_truth(long), known=False)


def log_start_passed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The log start had been seen beyond the position when the reader was given the next record: what it jumped over had been
    deleted. Seen only later: when it was deleted is not known. Not seen = no."""
    times, values = envelope.log_starts
    if not len(times):
        return constant(FALSE, len(witnesses))
    position = np.where(
        witnesses["other_offset"] == NONE,
        witnesses["log_offset"],
        np.minimum(witnesses["log_offset"], witnesses["other_offset"]),
    )
    passed = (position != NONE) & (int(values.max()) > position)
    assert len(times) == len(values), "a value for each time"
    # Example: log starts 0 40 30 were seen at 1, 5 and 9 s; a start that fell was an old answer. At 6 s
    # it had reached 40.
    reached = np.maximum.accumulate(values)
    last = np.searchsorted(times, or_never(witnesses["end_ns"]) + envelope.error_ns, side="right") - 1
    by_then = (last >= 0) & (reached[np.maximum(last, 0)] > position)
    return doubt_unless(as_truth(passed), known=by_then)


def read_beyond_retention(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """From the older record (`other_*`) to the end the audit took as long as tombstones are kept, so the one behind it
    may have expired meanwhile."""
    if envelope.delete_retention_ns is None or envelope.audited_ns is None:
        return constant(UNKNOWN, len(witnesses))
    began_ns = np.where(witnesses["other_ns"] == MISSING, -FOREVER, witnesses["other_ns"])
    return as_truth(envelope.audited_ns - began_ns >= envelope.delete_retention_ns)


def audit_beyond_retention(envelope: Envelope) -> Tristate:
    """Did the audit as a whole, from its first look at the log start, take that long?"""
    times, _ = envelope.log_starts
    if envelope.delete_retention_ns is None or envelope.audited_ns is None or not len(times):
        return Tristate.UNKNOWN
    return Tristate.YES if envelope.audited_ns - int(times.min()) >= envelope.delete_retention_ns else Tristate.NO


def away_beyond_retention(envelope: Envelope) -> Tristate:
    """Did a broker lead that a fault had kept away for as long as tombstones are kept?"""
    if envelope.delete_retention_ns is None:
        return Tristate.UNKNOWN if envelope.faults else Tristate.NO
    long = [f for f in envelope.faults if f.end_ns - f.begin_ns + envelope.error_ns >= envelope.delete_retention_ns]
    if long and not envelope.timeline.known:
        return Tristate.UNKNOWN
    led = (
        any_true(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts")))
        for f in long
        for e in envelope.timeline.elections
        if e.leader in f.nodes and e.time_ns + envelope.error_ns >= f.begin_ns
    )
    return Tristate(int(any_true(np.int8(FALSE), *led)))


def replica_away(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A broker that a fault kept away led once the tombstone had expired: the fault had begun before that was acknowledged,
    and so the broker may not have it."""
    retention_ns = envelope.delete_retention_ns
    ever = away_beyond_retention(envelope)
    if retention_ns is None or ever is not Tristate.YES:
        return constant(int(ever), len(witnesses))
    begun_ns, existed_ns = envelope.begun_ns(witnesses), envelope.existed_ns(witnesses)
    parts = [
        all_true(
            as_truth(
                (f.begin_ns - envelope.error_ns <= existed_ns)
                & (e.time_ns + envelope.error_ns >= begun_ns + retention_ns)
            ),
            any_true(*(np.int8(f.may(what)) for what in ("stops", "freezes", "cuts"))),
        )
        for f in envelope.faults
        for e in envelope.timeline.elections
        if e.leader in f.nodes
        and e.time_ns + envelope.error_ns >= f.begin_ns
        and f.end_ns - f.begin_ns + envelope.error_ns >= retention_ns
    ]
    return any_true(constant(FALSE, len(witnesses)), *parts)


# Which of several topics that had one name a witness speaks of. A topic is its id: made again under its name it is
# another one, with a log of its own, and what was acknowledged into the deleted one is gone with it. Only the
# controllers' log proves a deletion. Loops run over topics, never over witnesses. [KIP-516]


def of_each_life(envelope: Envelope, witnesses: np.ndarray, fact: Callable[[Envelope, np.ndarray], Truth]) -> Truth:
    """A fact of each witness in the life of the topic that it speaks of; unknown where several are possible and differ."""
    if len(envelope.lives) == 1:
        return fact(envelope, witnesses)
    # One row for each topic of the name, one column for each witness: what holds in all topics that it may be of is certain.
    may = _may_be_of(envelope, witnesses)
    found = np.stack([np.broadcast_to(fact(life, witnesses), len(witnesses)) for life in envelope.lives])
    some_so, some_not = (may & (found != FALSE)).any(axis=0), (may & (found != 1)).any(axis=0)
    return np.where(some_so & ~some_not, 1, np.where(some_not & ~some_so, FALSE, UNKNOWN)).astype(np.int8)


def topic_deleted(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The record can be in the log of a topic alone that was deleted, by the controllers' log: its send began before the
    deletion, and it was acknowledged or seen before a topic of that name was there again. Not so if its send began after
    that; unknown where it may have been either."""
    lives = envelope.timeline.lives
    if not lives and envelope.topics_may_go:
        return constant(UNKNOWN, len(witnesses))
    if not lives or not any(life.ended for life in lives):
        return constant(FALSE, len(witnesses))
    may = _may_be_of(envelope, witnesses)
    ended = np.array([life.ended for life in lives])[:, np.newaxis]
    proven = np.array([life.deleted_ns is not None for life in lives])[:, np.newaxis]
    some_gone, some_not = (may & ended).any(axis=0), (may & ~proven).any(axis=0)
    return np.where(some_gone & ~some_not, 1, np.where(some_not & ~some_gone, FALSE, UNKNOWN)).astype(np.int8)


def topic_deleted_before_read(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """What was given out (`seen_ns`) was in the log of a topic that was deleted, as `topic_deleted` has it of a send."""
    reads = witnesses.copy()
    reads["begin_ns"], reads["end_ns"] = witnesses["seen_ns"], witnesses["seen_ns"]
    return topic_deleted(envelope, reads)


def deleted_of_either(envelope: Envelope, witnesses: np.ndarray, in_log: np.ndarray) -> Truth:
    """Returns, for two records with one offset: that one was in the log of a topic that was deleted, and the other in
    that of a later one. `in_log`: the other is the one that stands, so the last."""
    gone = topic_deleted(envelope, witnesses)
    first_ns = np.minimum(envelope.existed_ns(witnesses), or_never(witnesses["other_ns"]))
    second_ns = np.maximum(envelope.existed_ns(witnesses), or_never(witnesses["other_ns"]))
    # What is acknowledged just after the new topic was made may have been appended before.
    apart = _made_between(envelope, first_ns, second_ns - DEPOSED_NS)
    possibly = _made_between(envelope, first_ns, second_ns)
    return np.where(in_log, gone, np.where(apart == possibly, apart, UNKNOWN)).astype(np.int8)


def made_anew_between(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The topic was deleted, and made again, between the witness's two events (`begin_ns`, `end_ns`)."""
    return _made_between(envelope, witnesses["begin_ns"], or_never(witnesses["end_ns"]))


def made_anew_since_the_other(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The topic was deleted, and made again, between the witness's two events `other_ns` and `begin_ns`."""
    return _made_between(envelope, witnesses["other_ns"], witnesses["begin_ns"])


def led_elsewhere_below(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """When the wait began, the topic had been made again, and its leader was another one than the last of the topic before,
    in a lower epoch. A client that compares epochs takes it for an old one."""
    timeline = envelope.timeline
    if len(timeline.lives) < 2:
        return constant(FALSE, len(witnesses))
    epoch_before, leader_before = np.full(len(timeline.time_ns), NONE), np.full(len(timeline.time_ns), NONE)
    for life, following in pairwise(timeline.lives):
        own = slice(following.first, following.stop)
        epoch_before[own] = max(int(timeline.leader_epoch[: life.stop].max()), NONE)
        leader_before[own] = life.last_leader
    at_ns = np.maximum(witnesses["begin_ns"], timeline.lives[-1].created_ns)
    row = np.maximum(timeline.index_at(at_ns), 0)
    led = (timeline.leader[row] != NONE) & (timeline.leader[row] != leader_before[row])
    return as_truth(led & (timeline.leader_epoch[row] < epoch_before[row]))


def name_stood_for_several(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Offsets of a deleted topic may have been taken for those of the next one: nothing says which."""
    mixed = len(envelope.lives) > 1 and not envelope.topics_apart
    return constant(UNKNOWN if mixed else FALSE, len(witnesses))


def _made_between(envelope: Envelope, first_ns: np.ndarray, second_ns: np.ndarray) -> Truth:
    """A topic ended, proven deleted, and the next was made between the two; unknown where the first came so soon after
    that it may be about the old one still, or where nothing proves the deletion."""
    if not envelope.timeline.known and envelope.topics_may_go:
        return constant(UNKNOWN, len(first_ns))
    parts, error_ns = [], envelope.error_ns
    for life, following in pairwise(envelope.timeline.lives):
        made_ns = following.created_ns
        soon = np.where(
            first_ns <= made_ns + error_ns, 1, np.where(first_ns <= _until_answered_ns(envelope, made_ns), UNKNOWN, 0)
        )
        proven = np.int8(1 if life.deleted_ns is not None else UNKNOWN)
        parts.append(all_true(proven, as_truth(second_ns >= made_ns - error_ns), soon.astype(np.int8)))
    return any_true(constant(FALSE, len(first_ns)), *parts)


def _may_be_of(envelope: Envelope, witnesses: np.ndarray) -> np.ndarray:
    """Returns bool[lives, n]: by its times, may the record (or event) belong to the topic? Perhaps to none: then
    nothing is known."""
    begun_ns = envelope.begun_ns(witnesses)
    # A send that was not acknowledged may have been appended at any time after; what is no send is over when it ended.
    ended_ns = np.where(witnesses["outcome"] == NONE, or_never(witnesses["end_ns"]), FOREVER)
    by_ns = np.minimum(envelope.existed_ns(witnesses), ended_ns)
    lives, rows = envelope.timeline.lives, []
    for number, life in enumerate(lives):
        following_ns = lives[number + 1].created_ns if number + 1 < len(lives) else FOREVER
        until_ns = _answered_until_ns(envelope, number, following_ns)
        rows.append((by_ns >= life.created_ns - envelope.error_ns) & (begun_ns <= until_ns))
    return np.stack(rows)


def _answered_until_ns(envelope: Envelope, number: int, following_ns: int) -> int:
    """Until when a send may have begun that the topic took: brokers are informed of the deletion soon, but never later
    than that there is a new topic; one that was cut off or frozen then may go on until it is back."""
    life = envelope.timeline.lives[number]
    if not life.ended:
        return FOREVER
    gone_ns = following_ns if life.deleted_ns is None else life.deleted_ns
    cut_off = [
        f.end_ns
        for f in envelope.faults
        if life.last_leader in f.nodes
        and f.begin_ns <= gone_ns + envelope.error_ns <= f.end_ns + 2 * envelope.error_ns
        and (f.nature is None or f.nature.freezes or f.nature.cuts)
    ]
    until_ns = min(_until_answered_ns(envelope, gone_ns), following_ns + envelope.error_ns)
    return max([until_ns, *(end_ns + envelope.error_ns for end_ns in cut_off)])


def _until_answered_ns(envelope: Envelope, since_ns: int) -> int:
    return since_ns + DEPOSED_NS + envelope.error_ns
