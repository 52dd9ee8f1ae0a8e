"""Ground truth: the controllers' own log (`__cluster_metadata`) decoded into who led and who was in sync, over time.

KRaft's controllers write every change of every partition into one replicated log; what is committed there is what was true
(https://cwiki.apache.org/confluence/display/KAFKA/KIP-631). Layouts of the records: the schemas that every `kafka-metadata`
jar carries (`common/metadata/*.json`); they are the same from 3.9 to 4.3 for all that is decoded here, and a version that
is not known is refused rather than guessed.

What follows from a row and the one before (the judge does it, not this module): a leader outside the ISR and ELR of the
row before was elected uncleanly; `recovering` = 1 says the same in the controller's own words (KIP-704).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clusters.metadata_records import Replay
from clusters.record_batches import Batch, read_batches, read_records
from clusters.stamps import Stamps
from clusters.wire import Malformed
from harness.errors import HistoryUnreadable
from harness.schema import METADATA

LOG_DIRECTORY = "__cluster_metadata-0"
_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def decode_metadata_log(
    metadata_directories: Sequence[Path],
    *,
    partition_ids: Mapping[tuple[str, int], int],
    wall_minus_monotonic_ns: int,
) -> dict[str, np.ndarray]:
    """The committed metadata log as columns of `harness.schema.METADATA` (without `client`), in log order.

    `metadata_directories`: the data directory of *each* controller (or its `__cluster_metadata-0`), missing ones too: they
    count. With several, only what a majority of them holds is committed and decoded; an unfinished tail of a deposed
    controller is left out.
    `partition_ids`: (topic, number) → dense id of the partitions of interest; others are left out. Brokers and controllers
    are all there. `wall_minus_monotonic_ns`: turns the records' wall clock, cut to ms, into CLOCK_MONOTONIC ns; where
    a fault moved the clock of a controller, as `clusters.stamps` says.

    A row states what holds from its time on. A deleted topic's partition has no replicas. Where the log begins with a
    snapshot, its content is stated at the time of the last record it contains.

    HistoryUnreadable: no committed log, damaged in the middle, or of a version that is not known. A torn last batch is
    normal after SIGKILL and left out: it was never acknowledged to anyone.
    """
    log, committed_end = _committed(metadata_directories)
    replay = Replay(partition_ids, Stamps.of(metadata_directories, wall_minus_monotonic_ns=wall_minus_monotonic_ns))
    try:
        start = log.batches[0].base_offset
        if start > 0:
            snapshot_end, batches = _snapshot(log.directory, start)
            replay.snapshot(batches, last_contained=snapshot_end - 1)
            start = snapshot_end
        for batch in log.batches:
            if start <= batch.last_offset < committed_end:
                for record in read_records(batch):
                    if record.log_offset >= start:
                        replay.record(record, batch)
    except Malformed as error:
        raise HistoryUnreadable(f"The metadata log in {log.directory} {error}.") from error
    except OSError as error:
        raise HistoryUnreadable(f"A snapshot in {log.directory} cannot be read: {error.strerror}.") from error
    try:
        rows = np.array(replay.finish(), dtype=np.int64).reshape(-1, len(METADATA.columns))
    except OverflowError as error:
        raise HistoryUnreadable(f"The metadata log in {log.directory} holds a number of more than 64 bits.") from error
    return {column.name: rows[:, i].astype(column.kind) for i, column in enumerate(METADATA.columns)}


@dataclass(frozen=True, slots=True)
class _Log:
    """One controller's log. `batches` is not empty, and without gaps."""

    directory: Path
    batches: list[Batch]

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1

    def shared_end(self, other: "_Log") -> int:
        """Up to where both are the same: two Raft logs with the same epoch at one offset are the same up to it."""
        mine = {(b.last_offset, b.leader_epoch, b.checksum) for b in self.batches}
        shared = (b.last_offset for b in reversed(other.batches) if (b.last_offset, b.leader_epoch, b.checksum) in mine)
        return next(shared, -1) + 1


def _committed(directories: Sequence[Path]) -> tuple[_Log, int]:
    """The most complete log (by Raft's rule: last epoch, then length), and the end of what a majority holds."""
    logs, problems = [], []
    for directory in directories:
        try:
            logs.append(_read_log(directory))
        except HistoryUnreadable as error:
            problems.append(str(error))
    majority = len(directories) // 2 + 1
    if len(logs) < majority:
        raise HistoryUnreadable(
            f"The committed metadata log needs {majority} of {len(directories)} controllers' logs; readable: {len(logs)}. "
            + " ".join(problems)
        )
    best = max(logs, key=lambda log: (log.batches[-1].leader_epoch, log.end))
    ends = sorted((best.shared_end(log) for log in logs), reverse=True)
    return best, ends[majority - 1]


def _read_log(directory: Path) -> _Log:
    inner = directory / LOG_DIRECTORY
    directory = inner if inner.is_dir() else directory
    segments = sorted(p for p in directory.glob("*.log") if _SEGMENT.fullmatch(p.name))
    batches: list[Batch] = []
    for path in segments:
        try:
            read = read_batches(path.read_bytes())
        except OSError as error:
            raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
        if read.torn_at is not None and path != segments[-1]:
            raise HistoryUnreadable(f"{path} is torn at byte {read.torn_at} ({read.torn_reason}), yet the log goes on.")
        for batch in read.batches:
            if batches and batch.base_offset != batches[-1].last_offset + 1:
                raise HistoryUnreadable(
                    f"{path}: offset {batch.base_offset} follows {batches[-1].last_offset}: records between are missing."
                )
            batches.append(batch)
    if not batches:
        raise HistoryUnreadable(f"{directory} holds no metadata log (no record in any segment).")
    return _Log(directory, batches)


def _snapshot(directory: Path, log_start: int) -> tuple[int, list[Batch]]:
    """The oldest whole snapshot from which the log goes on without a gap: its end offset, and its batches."""
    for path in sorted(directory.glob("*.checkpoint")):
        match = _SNAPSHOT.fullmatch(path.name)
        if match is None or (end := int(match[1])) < log_start:
            continue
        read = read_batches(path.read_bytes())
        if read.torn_at is None:
            return end, read.batches
    raise HistoryUnreadable(
        f"The metadata log in {directory} begins at offset {log_start}, and no snapshot there holds what was before."
    )
