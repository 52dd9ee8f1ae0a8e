"""Checking a partition in pieces: who looks at which rows, and what is put together. The rules are in `checkers.pieces`.

Twice over the pieces: what is not plain; then what must be kept although it is plain, which only all of them together know.
A third time only if a further copy of a record stands in the log before the one that was acknowledged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from checkers.lookup import distinct
from checkers.pieces import JUDGED_OF_PLAIN, Context, Piece, Residue, Sent, context_of, open_keys, uneven_offsets
from harness.kernels import Each, check_partition
from harness.pieces import Cuts, Job, Source
from harness.protocols import Finding, Kernel, PartitionHistory

_SURVEY, _SURVEY_ROWS, _KEEP = "survey", "survey rows", "keep"


def perform(source: Source, job: Job) -> Any:  # noqa: ANN401 - each stage has its own result
    """One job of `remainders`, on the rows that it names."""
    return _STAGES[job.stage](source, *job.arguments)


def remainders(cuts: Mapping[int, Cuts], each: Each) -> dict[int, "Remainder"]:
    """What is left of each partition, given where it is cut."""
    surveyed: dict[int, list[Residue]] = {partition: [] for partition in cuts}
    uneven: dict[int, list[np.ndarray]] = {partition: [] for partition in cuts}
    jobs = [job for partition, cut in cuts.items() for job in _surveys(partition, cut)]
    for job, (residue, offsets) in zip(jobs, each(jobs), strict=True):
        surveyed[job.partition].append(residue)
        uneven[job.partition].append(offsets)
    found = {p: Remainder.of(surveyed[p], distinct(np.concatenate(uneven[p]))) for p in cuts}
    asking = {p: open_keys(found[p].residues, []) for p in cuts}
    while asking:
        jobs = [job for partition in asking for job in _keeps(partition, cuts[partition], found[partition])]
        kept: dict[int, list[tuple[np.ndarray, np.ndarray, Sent]]] = {partition: [] for partition in asking}
        for job, result in zip(jobs, each(jobs), strict=True):
            kept[job.partition].append(result)
        found |= {partition: found[partition].with_kept(parts) for partition, parts in kept.items()}
        # Whose send has been found now may be late, or make others late: look once more.
        still = {p: open_keys(found[p].residues, found[p].sent) for p in asking}
        asking = {p: still[p] for p in asking if len(still[p]) < len(asking[p])}
    return found


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of a partition: numbers of rows, ascending; and what must be known of the plain records left out."""

    sends: np.ndarray
    reads: np.ndarray
    residues: list[Residue]
    offsets: np.ndarray
    sent: list[Sent]

    @staticmethod
    def of(residues: list[Residue], offsets: np.ndarray) -> "Remainder":
        """Of what is not plain."""
        sends, reads = (np.concatenate([getattr(one, name) for one in residues]) for name in ("sends", "reads"))
        return Remainder(distinct(sends), distinct(reads), residues, offsets, [])

    def with_kept(self, parts: Sequence[tuple[np.ndarray, np.ndarray, Sent]]) -> "Remainder":
        """With plain records that must be kept."""
        sends = distinct(np.concatenate([self.sends, *(sends for sends, _, _ in parts)]))
        reads = distinct(np.concatenate([self.reads, *(reads for _, reads, _ in parts)]))
        return replace(self, sends=sends, reads=reads, sent=[sent for _, _, sent in parts])

    def rows_only(self) -> "Remainder":
        """Only what `check` needs: little to send about."""
        counts = [replace(_EMPTY, counts=residue.counts) for residue in self.residues]
        return Remainder(self.sends, self.reads, counts, self.offsets[:0], [])

    def check(self, source: Source, kernels: Mapping[str, Kernel]) -> list[Finding]:
        """The findings of these kernels, which are all of JUDGED_OF_PLAIN, in the whole partition."""
        left = replace(source.history, sends=source.sends.take(self.sends), reads=source.reads.take(self.reads))
        still = Piece(left, self.sends, self.reads).residue().counts
        missing = {name: sum(one.counts.get(name, 0) for one in self.residues) - still[name] for name in still}
        findings = check_partition(left, kernels)
        return [_with_judged(f, sum(missing[name] for name in JUDGED_OF_PLAIN[f.anomaly])) for f in findings]


def _with_judged(finding: Finding, more: int) -> Finding:
    failed = (
        finding.result.judged == 0 and finding.result.incomplete is not None and "failed:" in finding.result.incomplete
    )
    return finding if failed else replace(finding, result=replace(finding.result, judged=finding.result.judged + more))


_NOTHING = np.empty(0, dtype=np.int64)
_EMPTY = Residue(_NOTHING, _NOTHING, Sent(), _NOTHING, _NOTHING, _NOTHING, _NOTHING)


def _surveys(partition: int, cuts: Cuts) -> list[Job]:
    by_offset = [Job(partition, _SURVEY, bounds, cuts.rows_per_range) for bounds in pairwise(cuts.offsets)]
    stretches = [("sends", *bounds) for bounds in pairwise(cuts.sends)] + [
        ("reads", *bounds) for bounds in pairwise(cuts.reads)
    ]
    return by_offset + [Job(partition, _SURVEY_ROWS, bounds, bounds[2] - bounds[1]) for bounds in stretches]


def _keeps(partition: int, cuts: Cuts, left: Remainder) -> list[Job]:
    return [
        Job(partition, _KEEP, (*bounds, context_of(left.residues, left.sent, left.offsets, piece)), cuts.rows_per_range)
        for piece, bounds in enumerate(pairwise(cuts.offsets))
    ]


def _piece(source: Source, low: int, high: int) -> Piece:
    sends, sends_rows = source.sends.by_offset(low, high)
    reads, reads_rows = source.reads.by_offset(low, high)
    return Piece(replace(source.history, sends=sends, reads=reads), sends_rows, reads_rows)


def _survey(source: Source, low: int, high: int) -> tuple[Residue, np.ndarray]:
    return _piece(source, low, high).residue(), _NOTHING


def _survey_rows(source: Source, table: str, first: int, last: int) -> tuple[Residue, np.ndarray]:
    """What stands nowhere, and where readers stepped unevenly."""
    rows = source.sends if table == "sends" else source.reads
    columns, numbers = rows.by_row(first, last)
    nowhere = np.flatnonzero(columns["log_offset"] < 0)
    chosen = {name: values[nowhere] for name, values in columns.items()} if len(nowhere) else source.empty(table)
    numbers = numbers[nowhere]
    if table == "sends":
        history = replace(source.history, sends=chosen, reads=source.empty("reads"))
        return Piece(history, numbers, _NOTHING, whole=True).residue(), _NOTHING
    history = replace(source.history, sends=source.empty("sends"), reads=chosen)
    return Piece(history, _NOTHING, numbers, whole=True).residue(), uneven_offsets(columns)


def _keep(source: Source, low: int, high: int, context: Context) -> tuple[np.ndarray, np.ndarray, Sent]:
    return _piece(source, low, high).kept(context)


_STAGES: Mapping[str, Callable[..., Any]] = {_SURVEY: _survey, _SURVEY_ROWS: _survey_rows, _KEEP: _keep}


def may_be_split(history: PartitionHistory) -> bool:
    """Not what nobody audited, nor what is compacted: there the rest of a key's records decides about each."""
    return history.audited and not history.compacted
