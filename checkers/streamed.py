"""Kernels over a cell, on a partition in pieces: what is found of records that are left out, while they are in memory, and
whether a reader may have waited for something.

`late` looks at one record at a time, with everybody who was given it. Of a record that is left out, every row is in its piece
(`checkers.pieces`), so that pieces and what is left of the partition can be counted apart, and put together.
`stalled` needs the rows only where a reader was given nothing for long enough, although there was more: then it gets all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from checkers.delivery import late, late_of, put_together
from checkers.lookup import differs_from_previous
from checkers.pieces import Piece
from checkers.stalls import lives_of, stalled
from harness.pieces import Source
from harness.plan import SENTINEL_CLIENT
from harness.protocols import CellHistory, KernelResult, PartitionHistory
from harness.schema import NONE, Role
from harness.stalls import STALLED_NS
from harness.witnesses import WITNESSES_MAX

LATE, STALLED = "late", "stalled"
STREAMED = (LATE, STALLED)
"""Kernels over a cell that need not be given the whole partition."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one client was given one after the other, in a stretch of `reads`."""

    client: int
    begin_ns: int
    end_ns: int
    reached: int
    """The greatest offset."""
    records_reached: int
    """The same without sentinels; NONE = there are only those."""
    silences: tuple[tuple[int, int, int], ...]
    """(since when, until when, the greatest offset before) of each time it was given nothing for STALLED_NS."""


def runs_of(reads: Mapping[str, np.ndarray]) -> list[Run]:
    """Of consecutive rows."""
    client, times_ns, offset = reads["client"], reads["read_ns"], reads["log_offset"]
    record = np.where(reads["sender"] != SENTINEL_CLIENT, offset, NONE)
    starts = np.flatnonzero(differs_from_previous(client)).tolist()
    runs = []
    for first, last in zip(starts, [*starts[1:], len(client)] if starts else (), strict=True):
        silent = first + np.flatnonzero(np.diff(times_ns[first:last]) >= STALLED_NS)
        silences = [(int(times_ns[n]), int(times_ns[n + 1]), int(offset[first : n + 1].max())) for n in silent.tolist()]
        reached, records = int(offset[first:last].max()), int(record[first:last].max())
        runs.append(
            Run(int(client[first]), int(times_ns[first]), int(times_ns[last - 1]), reached, records, tuple(silences))
        )
    return runs


def together(runs: Sequence[Run]) -> list[Run]:
    """The runs of stretches that follow one another: those of one client that meet are one."""
    found: list[Run] = []
    for run in runs:
        if not found or found[-1].client != run.client:
            found.append(run)
            continue
        before = found[-1]
        edge = ((before.end_ns, run.begin_ns, before.reached),) if run.begin_ns - before.end_ns >= STALLED_NS else ()
        later = tuple((begin, end, max(reached, before.reached)) for begin, end, reached in run.silences)
        found[-1] = Run(
            run.client,
            before.begin_ns,
            run.end_ns,
            max(before.reached, run.reached),
            max(before.records_reached, run.records_reached),
            before.silences + edge + later,
        )
    return found


def may_have_waited(history: CellHistory, partition: PartitionHistory, runs: Sequence[Run]) -> bool:
    """Was a reader given nothing for STALLED_NS although the log has more than it had been given?"""
    roles = partition.client_role
    audits = [r for r in runs if 0 <= r.client < len(roles) and roles[r.client] == Role.AUDIT]
    highest = max((run.records_reached for run in audits), default=NONE)
    first: dict[int, Run] = {}
    for run in runs:
        first.setdefault(run.client, run)
    for life in lives_of(history):
        since_ns = life.assigned_ns.get(partition.partition)
        if since_ns is None:
            continue
        silences = [(since_ns, life.end_ns, NONE)]
        if (mine := first.get(life.client)) is not None:
            silences = [(since_ns, mine.begin_ns, NONE), *mine.silences, (mine.end_ns, life.end_ns, mine.reached)]
        if any(end - begin >= STALLED_NS and reached < highest for begin, end, reached in silences):
            return True
    return False


def late_in(cell: CellHistory, piece: Piece, left_out: np.ndarray) -> KernelResult:
    """`late`, of the plain records of a piece that are left out (bool[L(p)])."""
    there = piece.send_place >= 0
    among = np.zeros(len(piece.send_place), dtype=bool)
    among[there] = left_out[piece.send_place[there]]
    return late_of(cell, piece.history, among)


def find_late(source: Source, left: PartitionHistory, parts: Sequence[KernelResult]) -> KernelResult:
    """`late` in the whole partition, given what is left of it, and what it is in the pieces."""
    assert source.cell is not None, "late is judged in cells"
    cell = source.cell()
    every = [late(replace(cell, partitions={left.partition: left})), *parts]
    witnesses = np.concatenate([part.witnesses for part in every])
    order = np.lexsort((witnesses["sequence"], witnesses["client"]))[:WITNESSES_MAX]
    return replace(put_together(every), witnesses=witnesses[order])


def find_stalled(source: Source, runs: Sequence[Run]) -> KernelResult:
    """`stalled` in the whole partition."""
    assert source.cell is not None, "stalled is judged in cells"
    cell = source.cell()
    one = source.history
    if not may_have_waited(cell, one, runs):
        one = replace(one, reads=Source.empty("reads"))
    return stalled(replace(cell, partitions={one.partition: one}))
