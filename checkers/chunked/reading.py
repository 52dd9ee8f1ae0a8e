"""What clients of a large partition received, and when, is checked in pieces: late records, readers that stalled, and
producers that were stuck."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prozess.checkers.chunked.pieces import Piece
from prozess.checkers.lookup import differs_from_previous
from prozess.checkers.progress.acknowledgements import SendWaits, join_waits, stuck_in
from prozess.checkers.reading.lateness import join_late, late, late_of
from prozess.checkers.reading.positions import lives_of, stalled
from prozess.checkers.reading.silences import asked_readers, stretches_of
from prozess.harness.checking.checker import Source
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import STALLED_NS, WITNESSES_MAX, join_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE, Role

# Kernels over a cell, on a partition in pieces. `late` looks at one record at a time, with everybody who received it.
# All rows of a record that is left out are in one piece (`prozess.checkers.chunked.pieces`). Pieces and what is left
# of the partition are counted apart, and put together. `stalled` needs the rows only where a reader received nothing
# for long enough although there was more to read. Then it gets all rows. `stuck` needs of each block of sends only when
# acknowledgements came, and which sends waited. What a group processed is looked for in whole
# pieces (`prozess.checkers.chunked.groups`).


LATE, STALLED, STUCK = "late", "stalled", "stuck"


@dataclass(frozen=True, slots=True)
class Run:
    """Holds what one client received in sequence, in a block of `reads`."""

    client: int
    begin_ns: int
    end_ns: int
    reached: int
    """The greatest offset."""
    records_reached: int
    """The greatest offset of a record that is no sentinel. NONE: there are only sentinels."""
    silences: tuple[tuple[int, int, int], ...]
    """(begin, end, greatest offset before) of each time in which it received nothing for STALLED_NS."""


def runs_of(reads: Mapping[str, np.ndarray]) -> list[Run]:
    """Returns the runs of consecutive rows of `reads`."""
    client, times_ns, offset = reads["client"], reads["read_ns"], reads["log_offset"]
    # NONE is below every offset: a maximum over some rows is that of their records, or NONE.
    record = np.where(reads["sender"] != SENTINEL_CLIENT, offset, NONE)
    starts = np.flatnonzero(differs_from_previous(client)).tolist()
    runs = []
    for first, last in zip(starts, [*starts[1:], len(client)] if starts else (), strict=True):
        assert last > first, (first, last)
        silent = first + np.flatnonzero(np.diff(times_ns[first:last]) >= STALLED_NS)
        silences = [(int(times_ns[n]), int(times_ns[n + 1]), int(offset[first : n + 1].max())) for n in silent.tolist()]
        reached, records = int(offset[first:last].max()), int(record[first:last].max())
        runs.append(
            Run(int(client[first]), int(times_ns[first]), int(times_ns[last - 1]), reached, records, tuple(silences))
        )
    return runs


def join_runs(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs of blocks that follow one another. Two runs of one client that meet become one."""
    found: list[Run] = []
    for run in runs:
        if not found or found[-1].client != run.client:
            found.append(run)
            continue
        before = found[-1]
        # Example: a block ends with a record of client 7 at 10 s, and the next one begins with one of client 7 at 40 s.
        # Between them it was silent, and had reached what the first run reached.
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
    """Returns whether a reader received nothing for STALLED_NS, although the log has more than it had received."""
    roles = partition.client_role
    audits = [r for r in runs if 0 <= r.client < len(roles) and roles[r.client] == Role.AUDIT.value]
    highest = max((run.records_reached for run in audits), default=NONE)
    if not partition.audited and (lives_of(history) or next(asked_readers(history), None) is not None):
        return True  # only all rows together reveal how far the log goes
    first: dict[int, Run] = {}
    for run in runs:
        first.setdefault(run.client, run)
    number = partition.partition
    lives = [life for life in lives_of(history) if number in life.assigned_ns]
    held = [(life.client, life.assigned_ns[number], life.end_ns) for life in lives]
    for reader in asked_readers(history):
        if number not in reader.planned.partitions:
            continue
        if not reader.is_ours:
            return True  # what they were assigned, and when, is looked at with all rows
        held += [(reader.client, one.begin_ns, one.end_ns) for one in stretches_of(history, reader, number)]
    for client, since_ns, until_ns in held:
        silences = [(since_ns, until_ns, NONE)]
        if (mine := first.get(client)) is not None:
            silences = [(since_ns, mine.begin_ns, NONE), *mine.silences, (mine.end_ns, until_ns, mine.reached)]
        within = ((max(begin, since_ns), min(end, until_ns), reached) for begin, end, reached in silences)
        if any(end - begin >= STALLED_NS and reached < highest for begin, end, reached in within):
            return True
    return False


def late_in(cell: CellHistory, piece: Piece, left_out: np.ndarray) -> KernelResult:
    """Returns what `late` finds of the plain records of a piece that are left out (bool[L(p)])."""
    # Position in L(p) becomes row of `sends`: is the record left out that stands where this send was acknowledged?
    there = piece.send_position >= 0
    among = np.zeros(len(piece.send_position), dtype=bool)
    assert len(left_out) == len(piece.plain), "one entry for each record of the piece's log"
    among[there] = left_out[piece.send_position[there]]
    return late_of(cell, piece.history, among)


def find_late(source: Source, left: PartitionHistory, parts: Sequence[KernelResult]) -> KernelResult:
    """Returns what `late` finds in the whole partition, from what is left of the partition and from what `late` found in
    its pieces."""
    assert source.cell is not None, "late is judged in cells"
    cell = source.cell()
    every = [late(replace(cell, partitions={left.partition: left})), *parts]
    witnesses = join_witnesses(part.witnesses for part in every)
    order = np.lexsort((witnesses["sequence"], witnesses["client"]))[:WITNESSES_MAX]
    return replace(join_late(every), witnesses=witnesses[order])


def find_stalled(source: Source, runs: Sequence[Run]) -> KernelResult:
    """Returns what `stalled` finds in the whole partition."""
    assert source.cell is not None, "stalled is judged in cells"
    cell = source.cell()
    one = source.history
    if not may_have_waited(cell, one, runs):
        one = replace(one, reads=Source.empty("reads"), copies={})  # without reads, no audit agrees with replicas
    return stalled(replace(cell, partitions={one.partition: one}))


def find_stuck(source: Source, waits: Sequence[SendWaits]) -> KernelResult:
    """Returns what `stuck` finds in the whole partition, from what is known of blocks of its sends."""
    assert source.cell is not None, "stuck is judged in cells"
    cell = source.cell()
    return stuck_in(cell, source.history.partition, join_waits(waits, cell.bounds.acknowledgement_ns))
