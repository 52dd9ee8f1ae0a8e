"""Trends over many runs, as values, and what got worse: each night's verdicts and anomalies, and what recovery took.

`prozess.campaigns.comparing.trends` makes the values of the tables over many runs, and shows them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

NIGHTS_MIN = 3
"""The number of earlier nights that a number must be compared with before it counts as worse."""
WORSE_BY = 1.5
"""Beyond the median of the earlier nights by this factor, and beyond the worst of them, is worse."""


@dataclass(frozen=True, slots=True)
class NightOfTrial:
    """All runs of one trial in one night. A night is named by the day on which it began: noon to noon, UTC."""

    trial: str
    night: str
    held: int = 0
    violated: int = 0
    unknown: int = 0
    """Unknown verdicts of runs that nobody stopped."""
    findings: tuple[tuple[str, int], ...] = ()
    """(anomaly, how many), of those that were found."""
    interrupted: int = 0
    """Unknown because somebody stopped them: that says nothing of Kafka."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of one trial in one night, over its runs."""

    trial: str
    night: str
    name: str
    """ "recovery after kill", "longest gap in pause", "throughput" """
    value: float
    unit: str
    runs: int
    higher_is_worse: bool = True


@dataclass(frozen=True, slots=True)
class Trends:
    """The trends of all runs that were found."""

    nights: tuple[NightOfTrial, ...]
    measures: tuple[Measure, ...]
    runs: int
    without_verdict: int


@dataclass(frozen=True, slots=True)
class Regression:
    """Describes what the last night of a trial had worse than the nights before."""

    trial: str
    night: str
    what: str


def regressions(trends: Trends) -> list[Regression]:
    """Verdicts that no earlier night of the trial had, anomalies that are new, numbers that are worse than ever."""
    found = list(_worse_verdicts(trends.nights))
    for (trial, name), measures in _series(trends.measures).items():
        if (why := _worse(measures)) is not None:
            found.append(Regression(trial, measures[-1].night, f"{name} {why}"))
    return sorted(found, key=lambda regression: (regression.trial, regression.what))


def _worse_verdicts(nights: Sequence[NightOfTrial]) -> Iterator[Regression]:
    by_trial: dict[str, list[NightOfTrial]] = defaultdict(list)
    for night in sorted(nights, key=lambda n: n.night):
        by_trial[night.trial].append(night)
    for trial, (*earlier, last) in by_trial.items():
        if not earlier:
            continue
        for verdict in ("violated", "unknown"):
            count, before = getattr(last, verdict), sum(getattr(n, verdict) for n in earlier)
            if count and not before:
                yield Regression(trial, last.night, f"{count} {verdict}, never before")
        known = {name for night in earlier for name, _ in night.findings}
        for name, count in last.findings:
            if name not in known:
                yield Regression(trial, last.night, f"{name} was found {count:,} times, never before")


def _series(measures: Sequence[Measure]) -> Mapping[tuple[str, str], list[Measure]]:
    found: dict[tuple[str, str], list[Measure]] = defaultdict(list)
    for measure in sorted(measures, key=lambda m: m.night):
        found[measure.trial, measure.name].append(measure)
    return found


def _worse(series: Sequence[Measure]) -> str | None:
    """Returns how the last is worse than all before; None = it is not, or there are too few to say."""
    *earlier, last = series
    values = [measure.value for measure in earlier]
    if len(values) < NIGHTS_MIN:
        return None
    usual = median(values)
    if last.higher_is_worse:
        worse = last.value > usual * WORSE_BY and last.value > max(values)
    else:
        worse = last.value < usual / WORSE_BY and last.value < min(values)
    return (
        f"was {last.value:,.1f} {last.unit}; the median of {len(values)} nights before was {usual:,.1f}"
        if worse
        else None
    )
