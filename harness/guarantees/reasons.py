"""What else may explain a witness: a leader or coordinator that was deposed, out, or lost what it knew. Loops run over
elections and faults, never over witnesses."""

from collections.abc import Iterator

import numpy as np

from harness.clock import NS_PER_S
from harness.configuration import FIRST_CONTROLLER_ID
from harness.guarantees.envelope import Envelope, or_never
from harness.guarantees.faults import FOREVER
from harness.guarantees.logic import FALSE, UNKNOWN, Truth, both, constant, either, truth
from harness.schema import MISSING, Tristate


def leader_changed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    begun_ns = envelope.begun_ns(witnesses)
    # A client learns of it from a leader that knows it was deposed.
    changes = (truth(envelope.known_ns(e) >= begun_ns) for e in envelope.timeline.elections)
    return either(constant(FALSE, len(witnesses)), *changes)


def leader_may_have_refused(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Whoever leads may not have known it when the send began, or was deposed after: it refuses what comes before it knows,
    and takes what comes after. The first leader too, and one that a fault stopped and that leads again in the same epoch."""
    timeline = envelope.timeline
    if not timeline.known:
        return constant(UNKNOWN, len(witnesses))
    begun_ns = envelope.begun_ns(witnesses)
    began = [
        (int(timeline.leader_epoch[0]), int(timeline.time_ns[0])),
        *((e.epoch, e.time_ns) for e in timeline.elections),
        *_returned_leaders(envelope),
    ]
    unaware = (truth(begun_ns <= envelope.led_by_ns(epoch, since_ns)) for epoch, since_ns in began)
    return either(leader_changed(envelope, witnesses), *unaware)


def _returned_leaders(envelope: Envelope) -> Iterator[tuple[int, int]]:
    """(leader epoch, when it was started again) of leaders that a fault stopped."""
    timeline = envelope.timeline
    for fault in envelope.faults:
        row = int(timeline.index_at(np.asarray(fault.begin_ns)))
        if fault.may("stops") is not Tristate.NO and row >= 0 and int(timeline.leader[row]) in fault.hit:
            yield int(timeline.leader_epoch[row]), fault.end_ns


BEFORE_NS = 10 * NS_PER_S
"""A request that a fault delayed may arrive this much after it: clients wait so long for an answer here
(socket.timeout.ms)."""


MARKERS_NS = 10 * NS_PER_S
"""A decision's markers may be this late, while brokers sync every record: commit returns before they are written. Until then
__transaction_state alone has the decision. [KIP-98; seen: 0.2 s]"""


def decision_lost(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """As `coordinator_state_lost`, of a decision that was made shortly before the fault, too."""
    return coordinator_state_lost(envelope, witnesses, late_ns=MARKERS_NS)


def coordinator_state_lost(envelope: Envelope, witnesses: np.ndarray, *, late_ns: int = 0) -> Truth:
    """Partitions of internal topics are not sampled: not lost if nothing could destroy or cut them; lost, from then on, and
    for what ended `late_ns` before, if one fault destroyed what every broker had; else not known."""
    ways = _ways_to_lose(envelope)
    harm = either(*(np.int8(f.may(what)) for f in envelope.faults for what in ways))
    everybody = set(range(1, envelope.brokers + 1))
    certain = [
        truth(f.begin_ns - envelope.error_ns - late_ns <= _or_forever(witnesses["end_ns"]))
        for f in envelope.faults
        if everybody and everybody <= set(f.hit) and any(f.may(what) is Tristate.YES for what in ways)
    ]
    return either(constant(FALSE if harm == FALSE else UNKNOWN, len(witnesses)), *certain)


def owner_since_before_the_loss(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """Whoever became an owner after the fault was told so by a coordinator that has the group, as it is now."""
    parts = [
        both(truth(witnesses["other_ns"] <= f.end_ns + envelope.error_ns), np.int8(f.may(what)))
        for f in envelope.faults
        for what in _ways_to_lose(envelope)
    ]
    return either(constant(FALSE, len(witnesses)), *parts)


def _ways_to_lose(envelope: Envelope) -> list[str]:
    """How a fault takes away what brokers keep for themselves."""
    return ["destroys", "elects_unclean"] + ([] if envelope.brokers_flush else ["loses_unflushed"])


def _or_forever(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns == MISSING, FOREVER, times_ns)


def delayed(envelope: Envelope, witnesses: np.ndarray) -> Truth:
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


def coordinator_out(envelope: Envelope, witnesses: np.ndarray) -> Truth:
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


def bumped(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    batches = envelope.batches()
    return constant(UNKNOWN, len(witnesses)) if batches is None else batches.bumped(witnesses)


def out_of_sync_at_the_end(envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """One of the two replicas compared (brokers `reader` and `other_client`) was not in the last ISR there was."""
    if not envelope.timeline.known:
        return constant(UNKNOWN, len(witnesses))
    in_sync = (
        int(envelope.timeline.isr[-1]) >> witnesses["reader"]
        & int(envelope.timeline.isr[-1]) >> witnesses["other_client"]
    )
    return truth(in_sync & 1 == 0)


def reply_endangered(envelope: Envelope, witnesses: np.ndarray) -> np.ndarray:
    """bool: a fault or a change of leader overlapped the send, so a reply may have been lost. Names a cause, permits
    nothing."""
    begun_ns, end_ns = (
        envelope.begun_ns(witnesses) - envelope.error_ns,
        or_never(witnesses["end_ns"]) + envelope.error_ns,
    )
    moments = [(e.time_ns, e.time_ns) for e in envelope.timeline.elections]
    moments += [(f.begin_ns, f.end_ns) for f in envelope.faults]
    overlaps = [(begin <= end_ns) & (end >= begun_ns) for begin, end in moments]
    return np.logical_or.reduce(overlaps) if overlaps else np.zeros(len(witnesses), dtype=bool)
