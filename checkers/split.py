"""Checking a partition in pieces: who looks at which rows, and what is put together. The rules are in `checkers.pieces`.

Once over the pieces: what is not plain, and what must be kept although it is plain. Only all of them together know the latter
for certain; a piece to which the others make a difference is looked at again, and those alone. A third time only if a further
copy of a record stands in the log before the one that was acknowledged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from checkers.lookup import distinct
from checkers.pieces import (
    JUDGED_OF_PLAIN,
    Context,
    Edge,
    Piece,
    Residue,
    Sent,
    context_of,
    edges_of,
    nothing_known,
    open_keys,
    uneven_edges,
    uneven_offsets,
)
from checkers.streamed import LATE, STALLED, Run, find_late, find_stalled, late_in, runs_of, together
from harness.kernels import Each, check_partition, failed
from harness.pieces import UNBOUNDED, Cuts, Failed, Job, Source
from harness.protocols import Finding, Kernel, KernelResult, PartitionHistory
from harness.schema import MISSING

_SURVEY, _SURVEY_ROWS, _KEEP = "survey", "survey rows", "keep"


@dataclass(frozen=True, slots=True)
class Kept:
    """Of a piece: rows of plain records that must be kept, and their sends; `late`: what it is of those that are left out."""

    sends: np.ndarray
    reads: np.ndarray
    sent: Sent
    late: KernelResult | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What is seen at the first look. `kept`: of a range of offsets, as far as it knows by itself; `offsets`, `edges` and
    `runs`: of rows of `reads`."""

    residue: Residue
    kept: Kept | None = None
    done_ns: Mapping[int, int] = field(default_factory=dict)
    offsets: np.ndarray = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    edges: Sequence[Edge] = ()
    runs: Sequence[Run] = ()


def perform(source: Source, job: Job) -> Any:  # noqa: ANN401 - each stage has its own result
    """One job of `remainders`, on the rows that it names."""
    return _STAGES[job.stage](source, *job.arguments)


def remainders(
    cuts: Mapping[int, Cuts], each: Each, asked: Mapping[int, Sequence[str]]
) -> dict[int, "Remainder | Unreadable"]:
    """What is left of each partition, given where it is cut. `asked`: partition → kernels over its cell, of STREAMED."""
    found: dict[int, Remainder | Unreadable] = {}
    surveyed: dict[int, list[Surveyed]] = {partition: [] for partition in cuts}
    jobs = [
        job for partition, cut in cuts.items() for job in _surveys(partition, cut, LATE in asked.get(partition, ()))
    ]
    for job, result in zip(jobs, each(jobs), strict=True):
        if isinstance(result, Failed):
            found[job.partition] = Unreadable(result.reason)
        else:
            surveyed[job.partition].append(result)
    left = {p: Remainder.of(surveyed[p]) for p in cuts if p not in found}
    asking = {p: open_keys(one.residues, []) for p, one in left.items()}
    while asking:
        jobs = [job for p in asking for job in _again(p, cuts[p], left[p], surveyed[p], LATE in asked.get(p, ()))]
        for job, result in zip(jobs, each(jobs), strict=True):
            if isinstance(result, Failed):
                found[job.partition] = Unreadable(result.reason)
            else:
                left[job.partition].pieces[job.arguments[0]] = result
        # Whose send has been found now may be late, or make others late: look once more.
        still = {
            p: open_keys(left[p].residues, [kept.sent for kept in left[p].pieces]) for p in asking if p not in found
        }
        asking = {p: still[p] for p in still if len(still[p]) < len(asking[p])}
    return {p: found.get(p) or left[p].together() for p in cuts}


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of a partition: numbers of rows, ascending; and what must be known of the plain records left out."""

    sends: np.ndarray
    reads: np.ndarray
    residues: list[Residue]
    offsets: np.ndarray
    pieces: list[Kept]
    runs: Sequence[Run]

    @staticmethod
    def of(surveyed: Sequence[Surveyed]) -> "Remainder":
        """Of what was seen at the first look."""
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
            together([r for one in surveyed for r in one.runs]),
        )

    def together(self) -> "Remainder":
        """With the rows that were kept, and only what `check` needs: little to send about."""
        sends = distinct(np.concatenate([self.sends, *(kept.sends for kept in self.pieces)]))
        reads = distinct(np.concatenate([self.reads, *(kept.reads for kept in self.pieces)]))
        counts = [replace(_EMPTY, counts=residue.counts) for residue in self.residues]
        pieces = [Kept(_NOTHING, _NOTHING, Sent(), kept.late) for kept in self.pieces]
        return replace(self, sends=sends, reads=reads, residues=counts, offsets=self.offsets[:0], pieces=pieces)

    def check(self, source: Source, kernels: Mapping[str, Kernel]) -> list[Finding]:
        """The findings of these kernels, which are all of JUDGED_OF_PLAIN, in the whole partition."""
        left = self._left(source)
        still = Piece(left, self.sends, self.reads).residue().counts
        missing = {name: sum(one.counts.get(name, 0) for one in self.residues) - still[name] for name in still}
        findings = check_partition(left, kernels)
        return [_with_judged(f, sum(missing[name] for name in JUDGED_OF_PLAIN[f.anomaly])) for f in findings]

    def check_cell(self, source: Source, anomalies: Sequence[str]) -> list[Finding]:
        """The findings of these kernels over the partition's cell, which are all of STREAMED, in the whole partition."""
        find: Mapping[str, Callable[[PartitionHistory], KernelResult]] = {
            LATE: lambda _: find_late(source, self._left(source), [kept.late for kept in self.pieces if kept.late]),
            STALLED: lambda _: find_stalled(source, self.runs),
        }
        return check_partition(source.history, {name: find[name] for name in anomalies})

    def _left(self, source: Source) -> PartitionHistory:
        return replace(source.history, sends=source.sends.take(self.sends), reads=source.reads.take(self.reads))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A partition of which a piece could not be looked at: everything that needs all of them is unknown, with the reason."""

    reason: str

    def check(self, source: Source, kernels: Mapping[str, Kernel]) -> list[Finding]:
        """As `Remainder`."""
        return self.check_cell(source, list(kernels))

    def check_cell(self, source: Source, anomalies: Sequence[str]) -> list[Finding]:
        """As `Remainder`."""
        return [Finding(name, source.history.partition, failed(name, self.reason)) for name in anomalies]


def _with_judged(finding: Finding, more: int) -> Finding:
    failed = (
        finding.result.judged == 0 and finding.result.incomplete is not None and "failed:" in finding.result.incomplete
    )
    return finding if failed else replace(finding, result=replace(finding.result, judged=finding.result.judged + more))


_NOTHING = np.empty(0, dtype=np.int64)
_EMPTY = Residue(_NOTHING, _NOTHING, Sent(), _NOTHING, _NOTHING, _NOTHING, _NOTHING)


def _surveys(partition: int, cuts: Cuts, with_late: bool) -> list[Job]:
    by_offset = [
        Job(partition, _SURVEY, (*bounds, with_late), cuts.rows_per_range) for bounds in pairwise(cuts.offsets)
    ]
    stretches = [("sends", *bounds) for bounds in pairwise(cuts.sends)] + [
        ("reads", *bounds) for bounds in pairwise(cuts.reads)
    ]
    return by_offset + [Job(partition, _SURVEY_ROWS, bounds, bounds[2] - bounds[1]) for bounds in stretches]


def _again(partition: int, cuts: Cuts, left: Remainder, surveyed: Sequence[Surveyed], with_late: bool) -> list[Job]:
    """Second looks, at the pieces to which the others make a difference. `surveyed`: the pieces come first."""
    sent = [kept.sent for kept in left.pieces]
    jobs = []
    for number, (low, high) in enumerate(pairwise(cuts.offsets)):
        context = context_of(left.residues, sent, left.offsets, number)
        if _concerns(context, low, high, surveyed[number].done_ns):
            jobs.append(Job(partition, _KEEP, (number, low, high, context, with_late), cuts.rows_per_range))
    return jobs


def _concerns(context: Context, low: int, high: int, done_ns: Mapping[int, int]) -> bool:
    """May a piece of these offsets have to keep more than it knows by itself? `done_ns`: `Piece.least_done_ns`."""
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


def _kept(source: Source, piece: Piece, context: Context, with_late: bool) -> Kept:
    keep = piece.keep(context)
    rows = piece.kept(keep)
    if not with_late or source.cell is None:
        return Kept(*rows)
    return Kept(*rows, late_in(source.cell(), piece, piece.plain & ~keep))


def _survey(source: Source, low: int, high: int, with_late: bool) -> Surveyed:
    piece = _piece(source, low, high)
    kept = _kept(source, piece, nothing_known(), with_late)
    return Surveyed(piece.residue(), kept, piece.least_done_ns())


def _survey_rows(source: Source, table: str, first: int, last: int) -> Surveyed:
    """What stands nowhere; where readers stepped unevenly, and what they were given in a row."""
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


def _keep(source: Source, number: int, low: int, high: int, context: Context, with_late: bool) -> Kept:
    return _kept(source, _piece(source, low, high), context, with_late)


_STAGES: Mapping[str, Callable[..., Any]] = {_SURVEY: _survey, _SURVEY_ROWS: _survey_rows, _KEEP: _keep}


def may_be_split(history: PartitionHistory) -> bool:
    """Not what nobody audited, nor what is compacted: there the rest of a key's records decides about each."""
    return history.audited and not history.compacted
