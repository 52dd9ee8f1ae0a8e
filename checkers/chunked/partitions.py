"""A large partition is checked in pieces. This module says which task looks at which rows, and puts the results
together."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np

from prozess.checkers.chunked.pieces import (
    Edge,
    Piece,
    PieceContext,
    PieceSends,
    Residue,
    context_of,
    edges_of,
    nothing_known,
    open_keys,
    uneven_edges,
    uneven_offsets,
)
from prozess.checkers.lookup import differs_from_previous, distinct
from prozess.checkers.reading.lateness import join_late, late, late_of
from prozess.checkers.reading.positions import lives_of, stalled
from prozess.harness.checking.checker import Cuts, Failed, Job, PartitionChecker, Source
from prozess.harness.checking.kernels import check_partition, failed
from prozess.harness.history.parquet import UNBOUNDED
from prozess.harness.interfaces import CellHistory, Finding, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import STALLED_NS, WITNESSES_MAX, join_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Role

# Kernels over a cell, on a partition in pieces. `late` looks at one record at a time, with everybody who received it.
# All rows of a record that is left out are in one piece (`prozess.checkers.chunked.pieces`). So pieces and what is left
# of the partition are counted apart, and put together. `stalled` needs the rows only where a reader received nothing
# for long enough although there was more to read. Then it gets all rows.


LATE, STALLED = "late", "stalled"


@dataclass(frozen=True, slots=True)
class Run:
    """Holds what one client received in sequence, in a stretch of `reads`."""

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


def join_runs(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs of stretches that follow one another. Two runs of one client that meet become one."""
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
    """Returns whether a reader received nothing for STALLED_NS, although the log has more than it had received."""
    roles = partition.client_role
    audits = [r for r in runs if 0 <= r.client < len(roles) and roles[r.client] == Role.AUDIT.value]
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
    """Returns what `late` finds of the plain records of a piece that are left out (bool[L(p)])."""
    there = piece.send_place >= 0
    among = np.zeros(len(piece.send_place), dtype=bool)
    among[there] = left_out[piece.send_place[there]]
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
        one = replace(one, reads=Source.empty("reads"))
    return stalled(replace(cell, partitions={one.partition: one}))


# Checking a partition in pieces: which task looks at which rows, and what is put together. The rules are in
# `prozess.checkers.chunked.pieces`.
#
# The first look at each piece finds what is not plain, and what must be kept although it is plain. Only all pieces
# together know the latter for certain. So a piece that something in another piece concerns is looked at again, and only
# such a piece. There is a third look only if a further copy of a record stands in the log before the copy that was
# acknowledged.


_SURVEY, _SURVEY_ROWS, _KEEP = "survey", "survey rows", "keep"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of plain records of a piece that must be kept, and their sends. `late` is what that kernel finds of the
    records that are left out."""

    sends: np.ndarray
    reads: np.ndarray
    sent: PieceSends
    late: KernelResult | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Describes what the first look at a piece shows. `kept` belongs to a range of offsets, as far as the piece knows
    by itself. `offsets`, `edges` and `runs` belong to rows of `reads`."""

    residue: Residue
    kept: KeptRows | None = None
    done_ns: Mapping[int, int] = field(default_factory=dict)
    offsets: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    edges: Sequence[Edge] = ()
    runs: Sequence[Run] = ()


def perform(source: Source, job: Job) -> Surveyed | KeptRows:
    """Does one job of `remainders`, on the rows that it names."""
    return _STAGES[job.stage](source, *job.arguments)


def remainders(
    cuts: Mapping[int, Cuts],
    each: Callable[[Sequence[Job]], Sequence[object]],
    asked: Mapping[int, Collection[str]],
) -> dict[int, "Remainder | Unreadable"]:
    """Returns what is left of each partition after it was looked at in pieces. `asked` maps a partition to the anomalies
    of its cell that are asked for, LATE or STALLED."""
    found: dict[int, Remainder | Unreadable] = {}
    surveyed: dict[int, list[Surveyed]] = {partition: [] for partition in cuts}
    jobs = [
        job for partition, cut in cuts.items() for job in _surveys(partition, cut, LATE in asked.get(partition, ()))
    ]
    for job, result in zip(jobs, each(jobs), strict=True):
        if isinstance(result, Failed):
            found[job.partition] = Unreadable(result.reason)
        else:
            assert isinstance(result, Surveyed), result
            surveyed[job.partition].append(result)
    left = {p: Remainder.of(surveyed[p]) for p in cuts if p not in found}
    asking = {p: open_keys(one.residues, []) for p, one in left.items()}
    while asking:
        jobs = [job for p in asking for job in _again(p, cuts[p], left[p], surveyed[p], LATE in asked.get(p, ()))]
        for job, result in zip(jobs, each(jobs), strict=True):
            if isinstance(result, Failed):
                found[job.partition] = Unreadable(result.reason)
            else:
                assert isinstance(result, KeptRows), result
                left[job.partition].pieces[job.arguments[0]] = result
        # Whose send has been found now may be late, or make others late: look once more.
        still = {
            p: open_keys(left[p].residues, [kept.sent for kept in left[p].pieces]) for p in asking if p not in found
        }
        asking = {p: still[p] for p in still if len(still[p]) < len(asking[p])}
    return {p: found.get(p) or left[p].together() for p in cuts}


@dataclass(frozen=True, slots=True)
class Remainder:
    """Describes what is left of a partition: the numbers of its rows, ascending, and what must be known of the plain
    records that were left out."""

    sends: np.ndarray
    reads: np.ndarray
    residues: list[Residue]
    offsets: np.ndarray
    pieces: list[KeptRows]
    runs: Sequence[Run]

    @staticmethod
    def of(surveyed: Sequence[Surveyed]) -> "Remainder":
        """Returns what is left after the first looks."""
        residues = [one.residue for one in surveyed]
        sends, reads = (np.concatenate([getattr(one, name) for one in residues]) for name in ("sends", "reads"))
        edges = uneven_edges([one.edges for one in surveyed])
        offsets = distinct(np.concatenate([edges, *(one.offsets for one in surveyed)]))
        pieces = [one.kept for one in surveyed if one.kept is not None]
        return Remainder(
            distinct(sends),
            distinct(reads),
            residues,
            offsets,
            pieces,
            join_runs([r for one in surveyed for r in one.runs]),
        )

    def together(self) -> "Remainder":
        """Returns what is left with the rows that were kept, and nothing that `check` does not need, so that there is
        little to send between tasks."""
        sends = distinct(np.concatenate([self.sends, *(kept.sends for kept in self.pieces)]))
        reads = distinct(np.concatenate([self.reads, *(kept.reads for kept in self.pieces)]))
        counts = [replace(_EMPTY, counts=residue.counts) for residue in self.residues]
        pieces = [KeptRows(_NOTHING, _NOTHING, PieceSends(), kept.late) for kept in self.pieces]
        return replace(self, sends=sends, reads=reads, residues=counts, offsets=self.offsets[:0], pieces=pieces)

    def check(self, source: Source, checkers: Mapping[str, PartitionChecker]) -> list[Finding]:
        """Returns what these checkers find in the whole partition. All of them may be given partitions in pieces."""
        left = self._left(source)
        still = Piece(left, self.sends, self.reads).residue().counts
        missing = {name: sum(one.counts.get(name, 0) for one in self.residues) - still[name] for name in still}
        findings = check_partition(left, {name: checker.kernel for name, checker in checkers.items()})
        counts = {name: checker.counts_of_plain or () for name, checker in checkers.items()}
        return [_with_judged(f, sum(missing[name] for name in counts[f.anomaly])) for f in findings]

    def check_cell(self, source: Source, anomalies: Sequence[str]) -> list[Finding]:
        """Returns what these kernels over the partition's cell, LATE or STALLED, find in the whole partition."""
        find: Mapping[str, Callable[[PartitionHistory], KernelResult]] = {
            LATE: lambda _: find_late(source, self._left(source), [kept.late for kept in self.pieces if kept.late]),
            STALLED: lambda _: find_stalled(source, self.runs),
        }
        return check_partition(source.history, {name: find[name] for name in anomalies})

    def _left(self, source: Source) -> PartitionHistory:
        return replace(source.history, sends=source.sends.take(self.sends), reads=source.reads.take(self.reads))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition of which a piece could not be read. Everything that needs all pieces is unknown, with the reason."""

    reason: str

    def check(self, source: Source, checkers: Mapping[str, PartitionChecker]) -> list[Finding]:
        """Returns a failed finding for each of these checkers."""
        return self.check_cell(source, list(checkers))

    def check_cell(self, source: Source, anomalies: Sequence[str]) -> list[Finding]:
        """Returns a failed finding for each of these anomalies."""
        return [Finding(name, source.history.partition, failed(name, self.reason)) for name in anomalies]


def _with_judged(finding: Finding, more: int) -> Finding:
    failed = (
        finding.result.judged == 0 and finding.result.incomplete is not None and "failed:" in finding.result.incomplete
    )
    return finding if failed else replace(finding, result=replace(finding.result, judged=finding.result.judged + more))


_NOTHING = np.empty(0, dtype=np.int64)
_EMPTY = Residue(_NOTHING, _NOTHING, PieceSends(), _NOTHING, _NOTHING, _NOTHING, _NOTHING)


def _surveys(partition: int, cuts: Cuts, with_late: bool) -> list[Job]:
    by_offset = [
        Job(partition, _SURVEY, (*bounds, with_late), cuts.rows_per_range) for bounds in pairwise(cuts.offsets)
    ]
    stretches = [("sends", *bounds) for bounds in pairwise(cuts.sends)] + [
        ("reads", *bounds) for bounds in pairwise(cuts.reads)
    ]
    return by_offset + [Job(partition, _SURVEY_ROWS, bounds, bounds[2] - bounds[1]) for bounds in stretches]


def _again(partition: int, cuts: Cuts, left: Remainder, surveyed: Sequence[Surveyed], with_late: bool) -> list[Job]:
    """Returns jobs for the second look, at the pieces that something in another piece concerns. In `surveyed` the pieces
    come first."""
    sent = [kept.sent for kept in left.pieces]
    jobs = []
    for number, (low, high) in enumerate(pairwise(cuts.offsets)):
        context = context_of(left.residues, sent, left.offsets, number)
        if _concerns(context, low, high, surveyed[number].done_ns):
            jobs.append(Job(partition, _KEEP, (number, low, high, context, with_late), cuts.rows_per_range))
    return jobs


def _concerns(context: PieceContext, low: int, high: int, done_ns: Mapping[int, int]) -> bool:
    """Returns whether a piece with these offsets may have to keep more than it knows by itself. `done_ns` is what
    `Piece.least_done_ns` returns."""
    if len(context.keys) or len(context.doubtful):
        return True
    for offsets in (context.offsets, context.log_offset):
        inside = np.searchsorted(offsets, [low, high])
        if inside[1] > inside[0] or (high == UNBOUNDED and len(offsets) and offsets[-1] >= low):
            return True
    for clock, least_ns in done_ns.items():
        before = context.invoked_ns[(context.log_offset < low) & (context.clock == clock)]
        if max(int(before.max(initial=MISSING)), context.newest.get(clock, MISSING)) > least_ns:
            return True
    return False


def _piece(source: Source, low: int, high: int) -> Piece:
    sends, sends_rows = source.sends.by_offset(low, high)
    reads, reads_rows = source.reads.by_offset(low, high)
    return Piece(replace(source.history, sends=sends, reads=reads), sends_rows, reads_rows)


def _kept(source: Source, piece: Piece, context: PieceContext, with_late: bool) -> KeptRows:
    keep = piece.keep(context)
    rows = piece.kept(keep)
    if not with_late or source.cell is None:
        return KeptRows(*rows)
    return KeptRows(*rows, late_in(source.cell(), piece, piece.plain & ~keep))


def _survey(source: Source, low: int, high: int, with_late: bool) -> Surveyed:
    piece = _piece(source, low, high)
    kept = _kept(source, piece, nothing_known(), with_late)
    return Surveyed(piece.residue(), kept, piece.least_done_ns())


def _survey_rows(source: Source, table: str, first: int, last: int) -> Surveyed:
    """Looks at rows in the order of writing: which have no offset, where readers stepped unevenly, and what they
    received in sequence."""
    rows = source.sends if table == "sends" else source.reads
    columns, numbers = rows.by_row(first, last)
    nowhere = np.flatnonzero(columns["log_offset"] < 0)
    chosen = {name: values[nowhere] for name, values in columns.items()} if len(nowhere) else source.empty(table)
    numbers = numbers[nowhere]
    if table == "sends":
        history = replace(source.history, sends=chosen, reads=source.empty("reads"))
        return Surveyed(Piece(history, numbers, _NOTHING, whole=True).residue())
    history = replace(source.history, sends=source.empty("sends"), reads=chosen)
    residue = Piece(history, _NOTHING, numbers, whole=True).residue()
    runs = runs_of(columns)
    return Surveyed(residue, offsets=uneven_offsets(columns), edges=edges_of(columns), runs=runs)


def _keep(source: Source, number: int, low: int, high: int, context: PieceContext, with_late: bool) -> KeptRows:
    return _kept(source, _piece(source, low, high), context, with_late)


_STAGES: Mapping[str, Callable[..., Surveyed | KeptRows]] = {_SURVEY: _survey, _SURVEY_ROWS: _survey_rows, _KEEP: _keep}


def may_be_split(history: PartitionHistory) -> bool:
    """Returns whether a partition may be checked in pieces. A partition that nobody audited may not, nor may a compacted
    one, in which the other records of a key decide about each record."""
    return history.audited and not history.compacted
