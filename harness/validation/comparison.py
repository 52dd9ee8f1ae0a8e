"""Prediction against observation, guarantee by guarantee. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from harness.errors import ExitCode
from harness.guarantees.table import TABLE
from harness.validation.predict import Prediction, Weakness
from harness.verdict import AnomalyOutcome, TrialVerdict

_ORDER = (
    AnomalyOutcome.VIOLATED,
    AnomalyOutcome.UNKNOWN,
    AnomalyOutcome.SHOWN,
    AnomalyOutcome.PERMITTED,
    AnomalyOutcome.HELD,
    AnomalyOutcome.NOT_JUDGED,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One anomaly over some cells, or some runs."""

    outcome: AnomalyOutcome
    count: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """One run. `judged` is false where it gave no verdict: nothing was observed then."""

    anomalies: dict[str, Seen] = field(default_factory=dict)
    judged: bool = True
    unknown_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the comparison."""

    anomaly: str
    weaknesses: tuple[Weakness, ...]
    """Empty: it was predicted that it cannot happen."""
    seen: Seen

    @property
    def surprising(self) -> bool:
        """Seen although nothing permits it."""
        return self.seen.outcome is AnomalyOutcome.VIOLATED


def observe(verdict: TrialVerdict | None, cells: Collection[int]) -> Observed:
    """What was seen in these cells."""
    if verdict is None:
        return Observed(judged=False, unknown_reasons=("the trial could not be run to its end",))
    found: dict[str, Seen] = {}
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values() if cell.cell in cells else ():
            seen = Seen(anomaly.outcome, anomaly.count, anomaly.reason)
            found[anomaly.anomaly] = _worse(found.get(anomaly.anomaly), seen)
    return Observed(found, unknown_reasons=tuple(verdict.unknown_reasons))


@dataclass(frozen=True)
class Comparison:
    """Of one configuration."""

    prediction: Prediction
    runs: tuple[Observed, ...]

    def lines(self) -> Iterator[Line]:
        """In the order of the guarantee table; what applies to none of the cells is left out."""
        promised = {guarantee.anomaly for guarantee in self.prediction.promised}
        for name in TABLE:
            weak = tuple(w for w in self.prediction.weaknesses if w.guarantee.anomaly == name)
            if weak or name in promised:
                yield Line(name, weak, self.seen(name))

    def seen(self, anomaly: str) -> Seen:
        """Over all runs: the worst, with the counts of all."""
        found: Seen | None = None
        for run in self.runs:
            found = _worse(found, run.anomalies.get(anomaly, Seen(AnomalyOutcome.UNKNOWN, reason="not judged")))
        return found or Seen(AnomalyOutcome.NOT_JUDGED)

    @property
    def exit_code(self) -> ExitCode:
        """1: seen although nothing permits it; 2: a run whose answer is not known; else 0. What was run at all counts."""
        outcomes = {line.seen.outcome for line in self.lines()} if self.runs else set()
        if AnomalyOutcome.VIOLATED in outcomes:
            return ExitCode.VIOLATED
        if AnomalyOutcome.UNKNOWN in outcomes or not all(run.judged for run in self.runs):
            return ExitCode.UNKNOWN
        return ExitCode.HELD


def _worse(one: Seen | None, other: Seen) -> Seen:
    if one is None:
        return other
    worst = min(one, other, key=lambda seen: _ORDER.index(seen.outcome))
    return Seen(worst.outcome, one.count + other.count, worst.reason)
