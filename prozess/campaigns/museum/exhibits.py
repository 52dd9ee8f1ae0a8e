"""The exhibits of the museum, and what their runs showed.

An exhibit counts where three things came together, with one seed:

    old   4.2.0   violated   hanging 5, all with the signature of KAFKA-20322
    new   4.2.1   held       the same steps, every one of their expectations met

A run that is unknown, because its situation was not reached, counts for neither. What the old release showed beyond the
ticket is named beside it.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path

from prozess.campaigns.engine import TrialAttempt, TrialJob
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.plan.exhibit import Exhibit
from prozess.harness.plan.schedule import selects
from prozess.harness.plan.trial import Trial
from prozess.harness.plan.trial_files import known_exhibits, load_trial
from prozess.harness.suggestions import did_you_mean
from prozess.harness.verdict import SERVER_ERRORS, CellVerdict, TrialVerdict, Verdict


@unique
class Release(StrEnum):
    """Names one of the two releases that an exhibit runs on."""

    AFFECTED = "affected"
    MENDED = "mended"


@dataclass(frozen=True)
class MuseumTrial:
    """A trial of the museum, and its file."""

    path: Path
    trial: Trial
    exhibit: Exhibit
    digest: str
    """The beginning of the SHA-256 of its file: a run of an older text does not count."""

    def jobs(self, seeds: Sequence[int]) -> list[TrialJob]:
        """Returns the runs that the exhibit needs: one for each seed, or one for each seed and release."""
        releases = [Release.AFFECTED] if self.exhibit.in_one_run else [*Release]
        return [
            TrialJob(
                number=number,
                trial=str(self.path),
                seed=seed,
                settings=dict(self.exhibit.mended_by) if release is Release.MENDED else {},
                key=f"{self.trial.name} {release} {self.digest}",
            )
            for number, (seed, release) in enumerate((seed, release) for seed in seeds for release in releases)
        ]


def chosen_exhibits(names: Sequence[str]) -> list[MuseumTrial]:
    """Returns the exhibits of these tickets (a ticket may have several) or names; all without names. BadInput for others."""
    exhibits = [museum_trial(path) for path in known_exhibits().values()]
    named = {one.path: {one.trial.name.lower(), one.exhibit.ticket.lower()} for one in exhibits}
    for name in names:
        if not any(name.lower() in own for own in named.values()):
            known = sorted(one.exhibit.ticket for one in exhibits)
            hint = did_you_mean(name, known, otherwise="give one of these:")
            raise BadInput(f"The museum does not have {name!r}; {hint} Known: {', '.join(known)}.")
    wanted = {name.lower() for name in names}
    return [one for one in exhibits if not names or wanted & named[one.path]]


def museum_trial(path: Path) -> MuseumTrial:
    """Returns the exhibit in a trial file. BadInput if the file says nothing of an exhibit."""
    trial = load_trial(str(path))
    if trial.exhibit is None:
        raise BadInput(f"{path} is no exhibit: it has no table [exhibit] with the ticket, and both releases.")
    return MuseumTrial(path, trial, trial.exhibit, hashlib.sha256(path.read_bytes()).hexdigest()[:12])


@dataclass(frozen=True)
class ReleaseResult:
    """What one run showed of one release of an exhibit."""

    release: Release
    seed: int
    verdict: Verdict
    of_ticket: dict[str, int]
    """Anomaly of the exhibit → how many witnesses are the ticket's."""
    others: dict[str, int]
    """Anomaly → how many forbidden witnesses are not."""
    why: str
    """Why it is unknown; empty otherwise."""
    took_s: float
    run: str
    """The name of the run directory."""

    @property
    def shown(self) -> bool:
        """Returns whether the release showed the defect: violated, by the ticket's own anomaly."""
        return self.verdict is Verdict.VIOLATED and bool(self.of_ticket)


def results_of(exhibit: Exhibit, attempt: TrialAttempt, verdict: TrialVerdict | None) -> list[ReleaseResult]:
    """Returns what an attempt showed, for each release that it ran. Without a verdict both are unknown."""
    of_run = Release.MENDED if attempt.job.settings else Release.AFFECTED
    releases = [*Release] if exhibit.in_one_run else [of_run]
    return [_result(exhibit, release, attempt, verdict) for release in releases]


def _result(exhibit: Exhibit, release: Release, attempt: TrialAttempt, verdict: TrialVerdict | None) -> ReleaseResult:
    of_ticket: Counter[str] = Counter()
    others: Counter[str] = Counter()
    cells = [] if verdict is None else [cell for cell in verdict.cells if _has(exhibit, cell, release)]
    for anomaly in (anomaly for cell in cells for anomaly in cell.anomalies.values()):
        own = _of_ticket(exhibit, anomaly.known, anomaly.forbidden) if anomaly.anomaly in exhibit.anomalies else 0
        of_ticket[anomaly.anomaly] += own
        others[anomaly.anomaly] += anomaly.forbidden - own
    if verdict is not None and SERVER_ERRORS in exhibit.anomalies:
        for example, count in verdict.complaints.items():
            (of_ticket if exhibit.complaint in example else others)[SERVER_ERRORS] += count
    judged, why = _verdict(cells, verdict, attempt)
    return ReleaseResult(
        release, attempt.job.seed, judged, dict(+of_ticket), dict(+others), why, attempt.took_s, attempt.run or ""
    )


def _has(exhibit: Exhibit, cell: CellVerdict, release: Release) -> bool:
    """Returns whether a cell has that release."""
    return not exhibit.in_one_run or selects(exhibit.mended_cells, cell.axes) is (release is Release.MENDED)


def _of_ticket(exhibit: Exhibit, known: dict[str, int], forbidden: int) -> int:
    """Returns how many witnesses are the ticket's: where the guarantee table knows its signature, those that have it."""
    return known.get(exhibit.ticket, 0) if exhibit.ticket in DEFECTS else forbidden


def _verdict(cells: Sequence[CellVerdict], verdict: TrialVerdict | None, attempt: TrialAttempt) -> tuple[Verdict, str]:
    """Returns the worst verdict of these cells, and why it is unknown. A run that is unknown as a whole makes it so, and so
    does an expectation that was not met, which is of no cell."""
    if verdict is None:
        return Verdict.UNKNOWN, f"no verdict: {attempt.why}"
    if verdict.verdict is Verdict.UNKNOWN:
        return Verdict.UNKNOWN, next(iter(verdict.unknown_reasons), verdict.sentence)
    if missed := [one for one in verdict.expectations if not one.reached]:
        return Verdict.UNKNOWN, f"the situation was not reached: step {missed[0].step!r}: {missed[0].seen}"
    found = {cell.verdict for cell in cells} | {verdict.server_errors or Verdict.HELD}
    if not cells:
        return Verdict.UNKNOWN, "the run has no cell of this release"
    worst = next(each for each in (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HELD) if each in found)
    return worst, "a cell is unknown" if worst is Verdict.UNKNOWN else ""


@dataclass(frozen=True)
class ExhibitResult:
    """All runs of an exhibit."""

    trial: MuseumTrial
    results: Sequence[ReleaseResult]

    def of(self, release: Release) -> list[ReleaseResult]:
        """Returns the results of one release, by seed."""
        return sorted((one for one in self.results if one.release is release), key=lambda one: one.seed)

    @property
    def shown(self) -> int:
        """Returns how many runs of the old release showed the defect."""
        return sum(one.shown for one in self.of(Release.AFFECTED))

    @property
    def held(self) -> int:
        """Returns how many runs of the new release held."""
        return sum(one.verdict is Verdict.HELD for one in self.of(Release.MENDED))

    @property
    def unknown(self) -> int:
        """Returns how many results are unknown."""
        return sum(one.verdict is Verdict.UNKNOWN for one in self.results)

    @property
    def counts(self) -> bool:
        """Returns whether the exhibit counts: the old release showed the defect, and the new one always held."""
        mended = self.of(Release.MENDED)
        return self.shown > 0 and len(mended) > 0 and self.held == len(mended)

    @property
    def refuted(self) -> bool:
        """Returns whether the new release was violated."""
        return any(one.verdict is Verdict.VIOLATED for one in self.of(Release.MENDED))

    @property
    def verdict(self) -> Verdict:
        """Returns the verdict on the exhibit: violated if it is refuted, held if it counts, else unknown."""
        if self.refuted:
            return Verdict.VIOLATED
        return Verdict.HELD if self.counts else Verdict.UNKNOWN

    @property
    def anomalies(self) -> dict[str, int]:
        """Returns anomaly → witnesses of the ticket, over all runs of the old release."""
        found: Counter[str] = Counter()
        for one in self.of(Release.AFFECTED):
            found.update(one.of_ticket)
        return dict(found)

    @property
    def took_s(self) -> float:
        """Returns the seconds of all runs together."""
        return sum({one.run: one.took_s for one in self.results}.values())
