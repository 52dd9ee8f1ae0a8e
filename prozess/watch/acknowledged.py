"""Counts lost records, each once: acknowledged records of a partition are compared with what its log has now. Pure.

The window forgets a record 15 s after it was read. A leader may lose what is older: an unclean one lacks the end of the log,
and a replica that came back empty lacks all of it. Therefore the number and the offset of every acknowledged record are
kept here for as long as the topic keeps the record. When another leader leads, the partition is read again from its start:

    acknowledged, as sequence@offset    0@0  1@1  2@2  3@3  4@4
    read under the new leader           0@0  1@1  5@2             the log ends at 3
    lost                                2, 3 and 4; the old log and the new one differ from offset 2 on

Record 5 was sent to the new leader. It makes the log as long as before, so its length alone says nothing of the number.
"""

from dataclasses import dataclass

import numpy as np

from prozess.harness.schema import NONE, ReadFlag

ROWS_MAX = 500_000
"""How many records are kept. Half an hour of 100 records a second is 180,000."""
_DTYPE = np.dtype([("sequence", "<i8"), ("log_offset", "<i8"), ("completed_ns", "<i8")])


@dataclass(frozen=True, slots=True)
class LostRecords:
    """The acknowledged records that a log does not have any more."""

    sequences: np.ndarray
    log_offsets: np.ndarray
    """The offsets at which they were acknowledged, ascending."""

    @property
    def count(self) -> int:
        """Returns how many there are."""
        return len(self.sequences)

    @property
    def span(self) -> str:
        """Returns which offsets they had, and which records they are."""
        offsets, sequences = self.log_offsets, np.sort(self.sequences)
        if self.count == 1:
            return f"offset {offsets[0]}, record {sequences[0]}"
        return f"offsets {offsets[0]} to {offsets[-1]}, records {sequences[0]} to {sequences[-1]}"

    @property
    def first_offset(self) -> int:
        """Returns the first offset from which on the log is another one; NONE if nothing is lost."""
        return int(self.log_offsets[0]) if self.count else NONE


class AcknowledgedRecords:
    """The acknowledged records of one partition that its log ought to have, and how many of them were lost so far."""

    def __init__(self) -> None:
        self._held = np.empty(256, dtype=_DTYPE)
        self._count = 0
        self._lost: set[int] = set()
        self.lost = 0
        """How many records were lost, each counted once."""

    def __len__(self) -> int:
        return self._count

    def acknowledged(self, sequence: int, log_offset: int, completed_ns: int) -> None:
        """Notes an acknowledgement. One that has no offset (NONE) is not followed here."""
        if log_offset < 0:
            return
        if self._count == len(self._held):
            grown = np.empty(2 * self._count, dtype=_DTYPE)
            grown[: self._count] = self._held
            self._held = grown
        self._held[self._count] = (sequence, log_offset, completed_ns)
        self._count += 1
        if self._count > ROWS_MAX:
            self._keep(np.arange(self._count) >= self._count - ROWS_MAX // 2)

    def removed(self, log_start: int) -> None:
        """Forgets records in front of the log's start: retention, or somebody, removed them."""
        rows = self._held[: self._count]
        if self._count and int(rows["log_offset"].min()) < log_start:
            self._keep(rows["log_offset"] >= log_start)

    def passed_by(self, sequences: np.ndarray) -> int:
        """Notes records that the reader was not given although it was given later ones. Returns how many were not counted
        before."""
        return self._lose(np.unique(sequences))

    def compare(
        self, log_offsets: np.ndarray, sequences: np.ndarray, flags: np.ndarray, *, before_ns: int
    ) -> LostRecords:
        """Counts and returns the acknowledged records that a read of the whole log did not find.

        `before_ns`: when the leader was asked for the log's end. Later acknowledgements may be of records behind that end."""
        rows = self._held[: self._count]
        unreadable = log_offsets[(flags & ReadFlag.CORRUPT) != 0]  # the record is there: another checker names it
        gone = (rows["completed_ns"] < before_ns) & ~np.isin(rows["sequence"], sequences)
        gone &= ~np.isin(rows["log_offset"], unreadable)
        lost = np.sort(rows[gone], order="log_offset")
        self._lose(lost["sequence"])
        return LostRecords(lost["sequence"].copy(), lost["log_offset"].copy())

    def _lose(self, sequences: np.ndarray) -> int:
        new = [sequence for sequence in sequences.tolist() if sequence not in self._lost]
        self._lost.update(new)
        self.lost += len(new)
        self._keep(~np.isin(self._held[: self._count]["sequence"], sequences))
        return len(new)

    def _keep(self, chosen: np.ndarray) -> None:
        kept = self._held[: self._count][chosen]
        self._held[: len(kept)], self._count = kept, len(kept)
