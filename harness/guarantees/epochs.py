"""Which leader epoch cut a record off: told by the epochs themselves, not by elapsed time. Loops run over leaderships and
elections, never over records.

A leader appends under its own epoch alone, a log holds its epochs in ascending order, and two logs that have a record of one
epoch at one offset are the same up to there. So a record of epoch e is gone from a log that has another epoch, or nothing,
where it stood; and the first epoch above e in that log began without it. [KIP-101; KIP-279; KIP-320]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.guarantees.deposed import answered_until_ns
from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import FOREVER
from harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth, both, constant, either, truth
from harness.guarantees.timeline import Election
from harness.schema import NONE

Unclean = Sequence[tuple[Election, Truth]]
"""Elections that may have been unclean, and whether they were (a scalar)."""


@dataclass(frozen=True, slots=True)
class _Logged:
    """Epochs of the log as it was at the end, ascending, and where each begins; the last stands for whatever is behind the
    end."""

    epoch: np.ndarray
    start: np.ndarray

    @staticmethod
    def of(envelope: Envelope) -> "_Logged | None":
        """None = no logs were read."""
        if envelope.epoch_starts is None:
            return None
        epoch, start = np.array(sorted(envelope.epoch_starts.items()), dtype=np.int64).reshape(-1, 2).T
        # No epoch begins behind a later one: some copy was told of it late.
        return _Logged(epoch, np.minimum.accumulate(start[::-1])[::-1])

    def at(self, offset: np.ndarray) -> np.ndarray:
        """The epoch that holds each offset; NONE = before all of them."""
        place = np.searchsorted(self.start, offset, side="right") - 1
        return np.where(place >= 0, self.epoch[np.maximum(place, 0)], NONE)

    def above(self, epoch: np.ndarray) -> np.ndarray:
        """The first epoch in the log above each; FOREVER = none."""
        return np.append(self.epoch, FOREVER)[np.searchsorted(self.epoch, epoch, side="right")]

    def start_of(self, epoch: int) -> int:
        """Its first offset; -FOREVER if it is not in the log."""
        place = int(np.searchsorted(self.epoch, epoch))
        known = place < len(self.epoch) and self.epoch[place] == epoch
        return int(self.start[place]) if known else -FOREVER


def cut_from_epoch(envelope: Envelope, unclean: Unclean, epoch: np.ndarray, offset: np.ndarray) -> Truth:
    """A record of this epoch at this offset is not in the log, and of the elections from its epoch to the first that began
    without it, one was unclean. Where no logs were read: any after its epoch."""
    return _cut(_Logged.of(envelope), unclean, epoch, offset)


def _cut(logged: _Logged | None, unclean: Unclean, epoch: np.ndarray, offset: np.ndarray) -> Truth:
    if logged is None:
        gone, began_without = np.ones(len(epoch), dtype=bool), np.full(len(epoch), FOREVER)
    else:
        gone, began_without = (offset == NONE) | (logged.at(offset) != epoch), logged.above(epoch)
    parts = [both(was, truth(gone & (epoch < e.epoch) & (e.epoch <= began_without))) for e, was in unclean]
    return either(constant(FALSE, len(epoch)), *parts)


def cut_from_any_epoch(
    envelope: Envelope, unclean: Unclean, begun_ns: np.ndarray, acknowledged_ns: np.ndarray, offset: np.ndarray
) -> Truth:
    """The same of a record that is in no log any more and of which nobody was told the epoch, in the epoch of every leader
    that may have acknowledged it at this offset; unknown if it is so in some of them. No leader gave the offset who gave it
    to another record, began behind it, or led to the end: a leader gives an offset once, and keeps what it has."""
    logged = _Logged.of(envelope)
    if logged is None:
        return constant(UNKNOWN, len(offset))
    some_cut, some_not = np.zeros(len(offset), dtype=bool), np.zeros(len(offset), dtype=bool)
    holder = logged.at(offset)
    for epoch, began_ns, until_ns in _ended_leaderships(envelope):
        may = (began_ns - envelope.error_ns <= acknowledged_ns) & (begun_ns <= until_ns)
        may &= (holder != epoch) & (logged.start_of(epoch) <= offset)
        cut = _cut(logged, unclean, np.full(len(offset), epoch), offset)
        some_cut |= may & (cut != FALSE)
        some_not |= may & (cut != TRUE)
    known = offset != NONE
    return np.where(known & ~some_cut, FALSE, np.where(known & ~some_not, TRUE, UNKNOWN)).astype(np.int8)


def _ended_leaderships(envelope: Envelope) -> Iterator[tuple[int, int, int]]:
    """Of every epoch that another leader ended: its number, when it began, and until when a send could still begin that its
    leader took."""
    timeline = envelope.timeline
    begins = np.flatnonzero((timeline.leader != NONE) & (np.diff(timeline.leader_epoch, prepend=NONE) != 0))
    for row in begins.tolist():
        epoch = int(timeline.leader_epoch[row])
        ended = next((e for e in timeline.elections if e.epoch > epoch), None)
        if ended is not None:
            yield epoch, int(timeline.time_ns[row]), answered_until_ns(envelope, ended)
