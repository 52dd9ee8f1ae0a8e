"""Facts about how long a cluster was without faults, so that what waits in it should have gone on.

Functions return one truth value for each witness. They are vectorised over witnesses; loops run over faults and changes of
leaders.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, FaultRecord, Timeline
from prozess.harness.guarantees.logic import TRUE, UNKNOWN, Truth, all_true, any_true, as_truth, constant, doubt_unless
from prozess.harness.schema import MISSING, NONE, Tristate


def unsettled(envelope: Envelope, witnesses: np.ndarray, lasting_ns: int) -> Truth:
    """No stretch of `lasting_ns` (or, if the witness says so, from `begin_ns` to `other_ns`) between `begin_ns` and
    `end_ns` was free of faults (of any kind, clients' too), changes of leader and gaps in the ISR. Unknown without ground
    truth, and where it is so only by a fault that was not seen to work."""
    own_ns = witnesses["other_ns"] - witnesses["begin_ns"]
    lasting = np.where(witnesses["other_ns"] == MISSING, lasting_ns, own_ns)
    return _troubled([envelope.timeline], envelope, witnesses, lasting)


def held_up(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """No stretch as long as the witness's own bound (from `begin_ns` to `other_ns`) was free of faults and changes in any
    partition of the cell, as `unsettled` has it of one."""
    known = [timeline for timeline in envelope.cell_timelines or (envelope.timeline,) if timeline.known]
    return _troubled(known, envelope, witnesses, witnesses["other_ns"] - witnesses["begin_ns"])


def call_held_up(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """An administrator's call may have waited for faults or changes, as `held_up` has it. The broker that was asked
    (`reader`; NONE: any, for the active controller) must be among those that are in sync without faults, because nothing
    shows of another one that it was there."""
    known = [timeline for timeline in envelope.cell_timelines or (envelope.timeline,) if timeline.known]
    members = 0
    for timeline in known:
        members |= int(np.bitwise_or.reduce(timeline.isr))
    in_sync = [node for node in range(members.bit_length()) if members >> node & 1]
    stranger = as_truth((witnesses["reader"] != NONE) & ~np.isin(witnesses["reader"], in_sync))
    if not known:
        return constant(UNKNOWN, len(witnesses))
    return any_true(stranger, held_up(envelope, witnesses))


def held_up_there(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """The witness's own partition was held up, as `held_up` has it of the cell. It was no place to send to before its topic
    was made, nor after that topic was deleted: another topic of that name is another place."""
    lives, timeline = envelope.timeline.lives, envelope.timeline
    parts = [_troubled([timeline], envelope, witnesses, witnesses["other_ns"] - witnesses["begin_ns"])]
    if len(lives) > 1 or any(life.ended for life in lives):
        following = [*(life.created_ns for life in lives[1:]), FOREVER]
        parts = []
        for number, life in enumerate(lives):
            gone_ns = FOREVER if not life.ended else following[number] if life.deleted_ns is None else life.deleted_ns
            there = witnesses.copy()
            there["begin_ns"] = np.maximum(witnesses["begin_ns"], life.created_ns + envelope.error_ns)
            there["end_ns"] = np.minimum(witnesses["end_ns"], gone_ns - envelope.error_ns)
            lasting_ns = witnesses["other_ns"] - witnesses["begin_ns"]
            parts.append(_troubled([timeline.of_life(number)], envelope, there, lasting_ns))
    return all_true(*parts)


def _troubled(
    timelines: Sequence[Timeline], envelope: Envelope, witnesses: np.ndarray, lasting_ns: np.ndarray
) -> Truth:
    if not timelines or not all(timeline.known for timeline in timelines):
        return constant(UNKNOWN, len(witnesses))
    proven = [fault for fault in envelope.faults if fault.effective is Tristate.YES]
    by_proven, by_any = (
        as_truth(_longest_peace(timelines, faults, envelope.error_ns, witnesses) < lasting_ns)
        for faults in (proven, envelope.faults)
    )
    return doubt_unless(by_any, known=by_proven == TRUE)


def _longest_peace(
    timelines: Sequence[Timeline], faults: Sequence[FaultRecord], error_ns: int, witnesses: np.ndarray
) -> np.ndarray:
    """Returns int64[k]: how long the longest stretch of peace was between `begin_ns` and `end_ns`."""
    troubles = disturbances(timelines, faults, error_ns)
    longest, since_ns = np.zeros(len(witnesses), dtype=np.int64), -FOREVER
    # Example: troubles 2–5, 3–9 and 12–13, and a witness from 4 to 20: peace from 9 to 12 and from 13 to 20, at most 7.
    # FOREVER ends the last peace.
    for begin_ns, end_ns in [*sorted(troubles), (FOREVER, FOREVER)]:
        if begin_ns > since_ns:
            peace_ns = np.minimum(witnesses["end_ns"], begin_ns) - np.maximum(witnesses["begin_ns"], since_ns)
            longest = np.maximum(longest, peace_ns)
        since_ns = max(since_ns, end_ns)
    return longest


def disturbances(
    timelines: Sequence[Timeline], faults: Sequence[FaultRecord], error_ns: int
) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of each fault, of any kind, and of each time in which one of the partitions had no leader, or
    lacked replicas in its ISR; a change of leader is a moment. Widened by the clock error."""
    yield from ((fault.begin_ns - error_ns, fault.end_ns + error_ns) for fault in faults)
    for timeline in timelines:
        whole = int(np.bitwise_or.reduce(timeline.isr)) if timeline.known else 0
        ends = [*timeline.time_ns[1:].tolist(), FOREVER]
        states = zip(timeline.time_ns.tolist(), ends, timeline.leader.tolist(), timeline.isr.tolist(), strict=True)
        for time_ns, end_ns, leader, isr in states:
            yield time_ns - error_ns, (end_ns if leader == NONE or isr != whole else time_ns) + error_ns
