"""Two results of a matrix compared, configuration by configuration: what got worse is named. Pure but for printing."""

from collections.abc import Iterator

from harness.configuration import Frozen
from harness.console import console
from harness.matrices.results import Configuration, Results, Tally
from harness.verdict import AnomalyOutcome

_WORSE = (
    AnomalyOutcome.VIOLATED,
    AnomalyOutcome.UNKNOWN,
    AnomalyOutcome.SHOWN,
    AnomalyOutcome.PERMITTED,
    AnomalyOutcome.HELD,
    AnomalyOutcome.NOT_JUDGED,
)
_MUCH = 10
"""Times as many records as before that are permitted and seen are told, as a change."""


class Change(Frozen):
    """One guarantee of one configuration, or of the whole, that is no longer what it was."""

    what: str
    anomaly: str
    before: str
    after: str


class Difference(Frozen):
    """What changed. A regression: violated or unknown now and not before, a control that no longer fires, a configuration
    or a verdict that is gone."""

    regressions: tuple[Change, ...]
    changes: tuple[Change, ...]
    """Neither better nor worse: losses that are permitted come and go."""
    improvements: tuple[Change, ...]


def compare(before: Results, after: Results) -> Difference:
    """Everything that is told of either."""
    regressions: list[Change] = []
    changes: list[Change] = []
    improvements: list[Change] = []
    old, new = ({c.key: c for c in results.configurations} for results in (before, after))
    for key, configuration in old.items():
        now = new.get(key)
        if now is None:
            regressions.append(Change(what=key, anomaly="", before="judged", after="not there"))
            continue
        for rank, change in _changes(key, configuration, now):
            (regressions if rank > 0 else improvements if rank < 0 else changes).append(change)
    regressions += _controls(before, after)
    regressions += _verdicts(before, after)
    return Difference(regressions=tuple(regressions), changes=tuple(changes), improvements=tuple(improvements))


def _changes(key: str, before: Configuration, after: Configuration) -> Iterator[tuple[int, Change]]:
    for anomaly in {**before.tallies, **after.tallies}:
        was, now = before.tallies.get(anomaly, Tally()), after.tallies.get(anomaly, Tally())
        change = Change(what=key, anomaly=anomaly, before=_words(was), after=_words(now))
        bad_before, bad_after = (_WORSE.index(tally.worst) for tally in (was, now))
        gone = was.worst is not AnomalyOutcome.NOT_JUDGED and now.worst is AnomalyOutcome.NOT_JUDGED
        if gone or (bad_after <= 1 and bad_after < bad_before):
            yield 1, change
        elif bad_before <= 1 and bad_after > bad_before:
            yield -1, change
        elif bad_before != bad_after or now.witnesses_permitted > _MUCH * max(1, was.witnesses_permitted):
            yield 0, change


def _words(tally: Tally) -> str:
    if tally.worst is AnomalyOutcome.VIOLATED:
        known = f" ({'; '.join(tally.defects)})" if tally.defects else ""
        return f"violated in {tally.violated}, {tally.witnesses_forbidden:,} records{known}"
    if tally.worst is AnomalyOutcome.UNKNOWN:
        return f"unknown in {tally.unknown}"
    if tally.worst is AnomalyOutcome.SHOWN:
        return f"seen {tally.witnesses_permitted:,} times, permitted"
    return str(tally.worst)


def _controls(before: Results, after: Results) -> Iterator[Change]:
    now = {trial.number: trial for trial in after.trials}
    for trial in before.trials:
        there = now.get(trial.number)
        if there is None or there.row != trial.row or there.verdict is None:
            continue
        for anomaly in trial.controls_fired:
            if anomaly in there.controls_silent and anomaly not in there.controls_fired:
                what = f"control of trial {trial.number}, {' '.join(trial.row.values())}"
                yield Change(what=what, anomaly=anomaly, before="fired", after="silent")


def _verdicts(before: Results, after: Results) -> Iterator[Change]:
    now = {(tuple(sorted(t.row.items())), t.seed, t.part): t for t in after.trials}
    for trial in before.trials:
        there = now.get((tuple(sorted(trial.row.items())), trial.seed, trial.part))
        if trial.verdict is not None and (there is None or there.verdict is None):
            what = f"trial {' '.join(trial.row.values())}"
            yield Change(what=what, anomaly="", before=trial.verdict, after="no verdict")


def show_difference(difference: Difference) -> None:
    """Regressions first."""
    out = console()
    for title, changes in (
        ("Regressions", difference.regressions),
        ("Other changes", difference.changes),
        ("Improvements", difference.improvements),
    ):
        out.print(f"{title}: {len(changes):,}")
        for change in changes:
            named = f"{change.anomaly}, " if change.anomaly else ""
            out.print(f"  {named}{change.what}: {change.before} → {change.after}", markup=False, soft_wrap=True)
