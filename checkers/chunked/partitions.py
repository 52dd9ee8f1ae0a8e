"""A large partition is checked in pieces. This module says which task looks at which rows, and puts the results
together."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np

from prozess.checkers.chunked.groups import (
    PROCESSING,
    REPROCESSED,
    ProcessedPiece,
    copied_steps,
    find_processed,
    meets,
    shared_ranges,
    shared_steps,
    survey_processed,
)
from prozess.checkers.chunked.pieces import (
    BlockEnd,
    Piece,
    PieceContext,
    PieceSends,
    Residue,
    block_ends,
    contexts_of,
    nothing_known,
    open_keys,
    uneven_ends,
    uneven_offsets,
)
from prozess.checkers.chunked.reading import (
    LATE,
    STALLED,
    STUCK,
    Run,
    find_late,
    find_stalled,
    find_stuck,
    join_runs,
    late_in,
    runs_of,
)
from prozess.checkers.lookup import distinct
from prozess.checkers.progress.acknowledgements import SendWaits, waits_of
from prozess.harness.checking.checker import Cuts, Failed, Job, PartitionChecker, PartitionPart, Source
from prozess.harness.checking.kernels import check_partition, failed
from prozess.harness.history.parquet import UNBOUNDED
from prozess.harness.interfaces.checking import Finding, KernelResult, PartitionHistory
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING

# The package's docstring draws how a partition is cut. The rules are in `prozess.checkers.chunked.pieces`.
#
# The first look at each piece finds what is not plain, and what must be kept although it is plain. Only all pieces
# together know the latter for certain. A piece that something in another piece concerns is looked at again, and only such a
# piece. There is a third look only if a further copy of a record stands in the log before the copy that was
# acknowledged.


_SURVEY, _SURVEY_BLOCK, _KEEP, _STEPS = "survey", "survey block", "keep", "steps"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of plain records of a piece that must be kept, and their sends. `late` is what that kernel finds of the
    records that are left out, `left_out_ns` is what `Piece.left_out_ns` returns of a piece that nobody audited, and `given`
    what `Piece.left_out_given` returns."""

    sends: np.ndarray
    reads: np.ndarray
    sent: PieceSends
    late: KernelResult | None = None
    left_out_ns: tuple[int, int] | None = None
    given: np.ndarray = field(default_factory=partial(np.empty, (0, 4), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Describes what the first look at a piece, or at a block, shows. `kept` is of a piece, as far as it knows by itself.
    `offsets`, `ends` and `runs` are of a block of `reads`, and `waits` of a block of `sends`."""

    residue: Residue
    kept: KeptRows | None = None
    done_ns: Mapping[int, int] = field(default_factory=dict)
    offsets: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    ends: Sequence[BlockEnd] = ()
    runs: Sequence[Run] = ()
    waits: SendWaits | None = None
    """Which sends of the block waited, if that was asked for."""
    processed: ProcessedPiece | None = None
    """What a group did with the records of a range of offsets, if that was asked for."""


def perform(source: Source, job: Job) -> object:
    """Does one job of `remainders`, on the rows that it names."""
    assert job.stage in _STAGES, job
    return _STAGES[job.stage](source, *job.arguments)


def remainders(
    cuts: Mapping[int, Cuts],
    each: Callable[[Sequence[Job]], Sequence[object]],
    asked: Mapping[int, Collection[str]],
) -> dict[int, "Remainder | Unreadable"]:
    """Returns what is left of each partition after it was looked at in pieces. `asked` maps a partition to the anomalies
    of its cell that are asked for: LATE, STALLED, STUCK or of PROCESSING."""
    found: dict[int, Remainder | Unreadable] = {}
    surveyed: dict[int, list[Surveyed]] = {partition: [] for partition in cuts}
    wanted = {partition: frozenset(asked.get(partition, ())) for partition in cuts}
    jobs = [job for partition, cut in cuts.items() for job in _surveys(partition, cut, wanted[partition])]
    for job, result in zip(jobs, each(jobs), strict=True):
        if isinstance(result, Failed):
            found[job.partition] = Unreadable(result.reason)
        else:
            assert isinstance(result, Surveyed), result
            surveyed[job.partition].append(result)
    left = {p: Remainder.of(surveyed[p]) for p in cuts if p not in found}
    # The first round looks at every partition, whether a key is open or not: steps and times concern pieces, too.
    asking = {p: open_keys(one.residues, []) for p, one in left.items()}
    while asking:
        jobs = [job for p in asking for job in _again(p, cuts[p], left[p], surveyed[p], LATE in wanted[p])]
        for job, result in zip(jobs, each(jobs), strict=True):
            if isinstance(result, Failed):
                found[job.partition] = Unreadable(result.reason)
            else:
                assert isinstance(result, KeptRows), result
                left[job.partition].kept[job.arguments[0]] = result
        # A record whose send has been found now may be late, or make others late: look once more.
        # Example: the log of piece 0 has a further copy of a, whose send was acknowledged in piece 2. The second look at
        # piece 2 keeps that send; then when a was sent is known, and a third look at piece 0 finds whether its copy is out of
        # time.
        still = {p: open_keys(left[p].residues, [kept.sent for kept in left[p].kept]) for p in asking if p not in found}
        # Only as long as a look finds sends: each round has fewer keys than the one before, and so it ends.
        asking = {p: still[p] for p in still if len(still[p]) < len(asking[p])}
    steps = {p: left[p].processed for p in left if p not in found and REPROCESSED in wanted[p]}
    copied, unreadable = _copied(cuts, steps, each)
    found |= unreadable
    return {p: found.get(p) or left[p].together(cuts[p], copied.get(p, _NOTHING)) for p in cuts}


def _copied(
    cuts: Mapping[int, Cuts],
    pieces: Mapping[int, Sequence[ProcessedPiece]],
    each: Callable[[Sequence[Job]], Sequence[object]],
) -> tuple[dict[int, np.ndarray], dict[int, "Remainder | Unreadable"]]:
    """Returns, for each partition, the rows of `processed` that may be of records with several copies; and the partitions
    of which a piece could not be read."""
    shared = {p: shared_ranges([piece.records.ranges for piece in pieces[p]]) for p in pieces}
    jobs = [
        Job(p, _STEPS, (low, high, shared[p]), cuts[p].rows_per_range)
        for p in pieces
        for (low, high), piece in zip(pairwise(cuts[p].offsets), pieces[p], strict=True)
        if meets(piece.records.ranges, shared[p])
    ]
    unreadable: dict[int, Remainder | Unreadable] = {}
    steps: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {p: [] for p in pieces}
    for job, result in zip(jobs, each(jobs) if jobs else (), strict=True):
        if isinstance(result, Failed):
            unreadable[job.partition] = Unreadable(result.reason)
        else:
            assert isinstance(result, tuple), result
            steps[job.partition].append(result)
    assert all(len(cuts[p].offsets) == len(pieces[p]) + 1 for p in pieces), "a piece between two cuts"
    copied = {p: copied_steps(steps[p], [piece.records.copied for piece in pieces[p]]) for p in pieces}
    return copied, unreadable


@dataclass(frozen=True, slots=True)
class Remainder:
    """Describes what is left of a partition: the numbers of its rows, ascending, and what must be known of the plain
    records that were left out."""

    sends: np.ndarray
    reads: np.ndarray
    residues: list[Residue]
    """Those of every piece, and behind these those of every block."""
    offsets: np.ndarray
    kept: list[KeptRows]
    """One for every piece, in their order."""
    runs: Sequence[Run]
    waits: Sequence[SendWaits] = ()
    processed: Sequence[ProcessedPiece] = ()
    copied: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    """Rows of `processed` that may be of records with several copies."""
    parts: Sequence[PartitionPart] = ()

    @staticmethod
    def of(surveyed: Sequence[Surveyed]) -> "Remainder":
        """Returns what is left after the first looks."""
        residues = [one.residue for one in surveyed]
        sends, reads = (np.concatenate([getattr(one, name) for one in residues]) for name in ("sends", "reads"))
        uneven = uneven_ends([one.ends for one in surveyed])
        offsets = distinct(np.concatenate([uneven, *(one.offsets for one in surveyed)]))
        kept = [one.kept for one in surveyed if one.kept is not None]
        return Remainder(
            distinct(sends),
            distinct(reads),
            residues,
            offsets,
            kept,
            join_runs([r for one in surveyed for r in one.runs]),
            [one.waits for one in surveyed if one.waits is not None],
            [one.processed for one in surveyed if one.processed is not None],
        )

    def together(self, cuts: Cuts, copied: np.ndarray) -> "Remainder":
        """Returns what is left with the rows that were kept, and nothing that `check` does not need, so that there is
        little to send between tasks."""
        sends = distinct(np.concatenate([self.sends, *(kept.sends for kept in self.kept)]))
        reads = distinct(np.concatenate([self.reads, *(kept.reads for kept in self.kept)]))
        counts = [replace(_EMPTY, counts=residue.counts) for residue in self.residues]
        small = [replace(kept, sends=_NOTHING, reads=_NOTHING, sent=PieceSends()) for kept in self.kept]
        return replace(
            self,
            sends=sends,
            reads=reads,
            residues=counts,
            offsets=self.offsets[:0],
            kept=small,
            copied=copied,
            parts=self._parts(cuts, sends, reads),
        )

    def _parts(self, cuts: Cuts, sends: np.ndarray, reads: np.ndarray) -> list[PartitionPart]:
        """Returns each piece without what is left of it, and as the last part the remainder. In `residues` the pieces come
        first, and blocks behind them."""
        assert len(self.kept) == len(cuts.offsets) - 1 <= len(self.residues), "one entry for each piece"
        parts = [
            PartitionPart(
                number,
                bounds,
                distinct(np.concatenate([residue.sends, kept.sends])),
                distinct(np.concatenate([residue.reads, kept.reads])),
                cuts.rows_per_range,
            )
            for number, (bounds, residue, kept) in enumerate(
                zip(pairwise(cuts.offsets), self.residues, self.kept, strict=False)
            )
        ]
        return [*parts, PartitionPart(len(parts), None, sends, reads, len(sends) + len(reads))]

    def check(self, source: Source, checkers: Mapping[str, PartitionChecker]) -> list[Finding]:
        """Returns what these checkers find in the whole partition. All of them may be given partitions in pieces."""
        left = self._left(source)
        # What the plain records of the remainder add, its kernels count themselves: only the others are added.
        # Example: pieces counted 900 plain records, and 30 of these are in the remainder: 870 were left out.
        still = Piece(left, self.sends, self.reads).residue().counts
        missing = {name: sum(one.counts.get(name, 0) for one in self.residues) - still[name] for name in still}
        times = [kept.left_out_ns for kept in self.kept if kept.left_out_ns is not None]
        left_out_ns = (max(done_ns for done_ns, _ in times), min(given_ns for _, given_ns in times)) if times else None
        given = np.concatenate([kept.given for kept in self.kept])
        left = replace(left, left_out=missing["from_start"], left_out_ns=left_out_ns, left_out_given=given)
        findings = check_partition(left, {name: checker.kernel for name, checker in checkers.items()})
        counts = {name: checker.judged_when_plain or () for name, checker in checkers.items()}
        return [_with_judged(f, sum(missing[name] for name in counts[f.anomaly])) for f in findings]

    def check_cell(self, source: Source, anomalies: Sequence[str]) -> list[Finding]:
        """Returns what these kernels over the partition's cell (LATE, STALLED, STUCK, PROCESSING) find in the whole
        partition."""
        find: Mapping[str, Callable[[PartitionHistory], KernelResult]] = {
            LATE: lambda _: find_late(source, self._left(source), [kept.late for kept in self.kept if kept.late]),
            STALLED: lambda _: find_stalled(source, self.runs),
            STUCK: lambda _: find_stuck(source, self.waits),
            **{name: partial(self._find_processed, source, name) for name in PROCESSING},
        }
        return check_partition(source.history, {name: find[name] for name in anomalies})

    def _find_processed(self, source: Source, anomaly: str, _: PartitionHistory) -> KernelResult:
        return find_processed(source, self.processed, self.copied, anomaly)

    def _left(self, source: Source) -> PartitionHistory:
        return source.of_rows(source.sends.take(self.sends), source.reads.take(self.reads))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition of which a piece could not be read. Everything that needs all pieces is unknown, with the reason."""

    reason: str

    @property
    def parts(self) -> Failed:
        """Returns why there are none."""
        return Failed(self.reason)

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


def _surveys(partition: int, cuts: Cuts, asked: frozenset[str]) -> list[Job]:
    """Returns jobs for the first look at each piece, and behind these at each block."""
    by_offset = [Job(partition, _SURVEY, (*bounds, asked), cuts.rows_per_range) for bounds in pairwise(cuts.offsets)]
    blocks = [("sends", *bounds) for bounds in pairwise(cuts.sends)] + [
        ("reads", *bounds) for bounds in pairwise(cuts.reads)
    ]
    return by_offset + [
        Job(partition, _SURVEY_BLOCK, (*bounds, cuts.offsets[:-1], STUCK in asked), bounds[2] - bounds[1])
        for bounds in blocks
    ]


def _again(partition: int, cuts: Cuts, left: Remainder, surveyed: Sequence[Surveyed], with_late: bool) -> list[Job]:
    """Returns jobs for the second look, at the pieces that something in another piece concerns. In `surveyed` the pieces
    come first."""
    sent = [kept.sent for kept in left.kept]
    jobs = []
    contexts = contexts_of(left.residues, sent, left.offsets)
    for number, ((low, high), context) in enumerate(zip(pairwise(cuts.offsets), contexts, strict=False)):
        if _concerns(context, low, high, surveyed[number].done_ns):
            jobs.append(Job(partition, _KEEP, (number, low, high, context, with_late), cuts.rows_per_range))
    return jobs


def _concerns(context: PieceContext, low: int, high: int, done_ns: Mapping[int, int]) -> bool:
    """Returns whether a piece with these offsets may have to keep more than it knows by itself. `done_ns` is what
    `Piece.least_done_ns` returns."""
    if len(context.keys) or len(context.doubtful):
        return True
    for offsets in (context.offsets, context.log_offset):
        assert low < high, (low, high)
        # Does one of the offsets lie in [low, high)? UNBOUNDED is no offset: the last piece has all from `low` on.
        inside = np.searchsorted(offsets, [low, high])
        if inside[1] > inside[0] or (high == UNBOUNDED and len(offsets) and offsets[-1] >= low):
            return True
    for clock, least_ns in done_ns.items():
        # Was something in front of the piece sent after the first of its own records was done? MISSING is before all times.
        before = context.invoked_ns[(context.log_offset < low) & (context.clock == clock)]
        if max(int(before.max(initial=MISSING)), context.newest.get(clock, MISSING)) > least_ns:
            return True
    return False


def _piece(source: Source, low: int, high: int) -> Piece:
    sends, sends_rows = source.sends.by_offset(low, high)
    reads, reads_rows = source.reads.by_offset(low, high)
    return Piece(source.of_rows(sends, reads), sends_rows, reads_rows)


def _kept(source: Source, piece: Piece, context: PieceContext, with_late: bool) -> KeptRows:
    keep = piece.keep(context)
    rows = KeptRows(*piece.kept(keep), given=piece.left_out_given(keep))
    if not piece.history.audited:
        rows = replace(rows, left_out_ns=piece.left_out_ns(keep))
    if not with_late or source.cell is None:
        return rows
    return replace(rows, late=late_in(source.cell(), piece, piece.plain & ~keep))


def _survey(source: Source, low: int, high: int, asked: frozenset[str]) -> Surveyed:
    piece = _piece(source, low, high)
    kept = _kept(source, piece, nothing_known(), LATE in asked)
    processed = survey_processed(source, piece.history, low, high, asked) if asked & PROCESSING else None
    return Surveyed(piece.residue(), kept, piece.least_done_ns(), processed=processed)


def _survey_block(
    source: Source, table: str, first: int, last: int, bounds: Sequence[int], with_stuck: bool
) -> Surveyed:
    """Looks at a block: which rows have no offset, which sends waited, where readers stepped unevenly from piece to piece,
    and what they received in sequence. `bounds` are the first offsets of pieces."""
    rows = source.sends if table == "sends" else source.reads
    columns, numbers = rows.by_row(first, last)
    assert len(numbers) == len(columns["log_offset"]), "each row has its number"
    nowhere = np.flatnonzero(columns["log_offset"] < 0)
    chosen = {name: values[nowhere] for name, values in columns.items()} if len(nowhere) else source.empty(table)
    numbers = numbers[nowhere]
    if table == "sends":
        history = source.of_rows(chosen, source.empty("reads"))
        waits = None
        if with_stuck and source.cell is not None:
            waits = waits_of(columns, source.cell().bounds.acknowledgement_ns)
        return Surveyed(Piece(history, numbers, _NOTHING, whole=True).residue(), waits=waits)
    history = source.of_rows(source.empty("sends"), chosen)
    residue = Piece(history, _NOTHING, numbers, whole=True).residue()
    runs = runs_of(columns)
    return Surveyed(residue, offsets=uneven_offsets(columns, bounds), ends=block_ends(columns), runs=runs)


def _keep(source: Source, number: int, low: int, high: int, context: PieceContext, with_late: bool) -> KeptRows:
    return _kept(source, _piece(source, low, high), context, with_late)


_STAGES: Mapping[str, Callable[..., object]] = {
    _SURVEY: _survey,
    _SURVEY_BLOCK: _survey_block,
    _KEEP: _keep,
    _STEPS: shared_steps,
}


_REVEALED_TRAITS = frozenset({"log", "verifiable"})


def may_be_split(history: PartitionHistory, cell: Cell | None) -> bool:
    """Returns whether a partition may be checked in pieces. A compacted one may not, in which the other records of a key
    decide about each record. One that nobody audited may if its cell judges nothing but single partitions and their readers:
    edges between transactions would name revealed reads, which have no numbers."""
    if history.compacted:
        return False
    return history.audited or (cell is not None and cell.traits <= _REVEALED_TRAITS)
