"""Compares the prediction with what trials showed: which schedules a trial is given, what became of each weakness, and
prediction against observation by guarantee. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.guarantees.table import TABLE
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.printable import first_of_many, number_of
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, FaultShown, TrialVerdict, WitnessShown
from prozess.validation.availability import RULES
from prozess.validation.prediction import Prediction, Weakness, missing_part
from prozess.validation.schedules import (
    COMMITS_WITHIN_S,
    INTERNAL_DOWN,
    SCHEDULES,
    UNAVAILABLE,
    ScheduleInputs,
    WeaknessSchedule,
    lasting_s,
    schedule_of,
    why_none,
)

if TYPE_CHECKING:
    from prozess.harness.impact.cost import WindowShown
    from prozess.validation.stalled_commits import Standstill


AROUND_S = 60.0
"""For a trial, beside its schedule: the cluster's start, the warm-up, the audit, the check."""

DYING_S = 5.0
"""Within that after a broker was killed a partition that needs it takes nothing any more."""
_DIED = "one broker down: a broker dies"


@unique
class WeaknessState(StrEnum):
    """Says whether trials showed a weakness."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class WeaknessAttempt:
    """Describes what one trial tried and showed of the weaknesses."""

    tried: frozenset[str] = frozenset()
    """Schedules that were carried out whole: every step done, and every fault seen to work."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The others that it had → why they do not count, as a clause."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rule → how often it was seen to permit something in the user's cells."""
    witnesses: Mapping[str, str] = field(default_factory=dict)
    """Rule → a witness of it, in words."""
    report: str = ""
    """The path of its report."""


@dataclass(frozen=True, slots=True)
class Provoked:
    """Describes what became of one weakness."""

    rule: str
    anomaly: str
    state: WeaknessState
    tries: int = 0
    count: int = 0
    why: str = ""
    """Why the weakness was not tried, as a clause."""
    witness: str = ""
    report: str = ""
    """The path of the report of the first trial that shows it."""

    def sentence(self) -> str:
        """Returns a sentence for a person: "shown 362 times in 2 tries, such as …"."""
        match self.state:
            case WeaknessState.SHOWN:
                such = f", such as {self.witness}" if self.witness else ""
                return f"shown, {number_of(self.count, 'time')}{such}; {self.report}"
            case WeaknessState.NOT_SHOWN:
                return f"not shown, although tried {number_of(self.tries, 'time')}"
            case _:
                return f"not tried, because {self.why}"


@dataclass(frozen=True, slots=True)
class WeaknessProvocation:
    """Says which schedules there are for the weaknesses of a prediction, here."""

    weaknesses: tuple[tuple[str, str], ...]
    """(rule, anomaly), each rule once; what no anomaly reports has none."""
    inputs: ScheduleInputs
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Schedule → why this machine, or the backend, cannot carry it out."""
    asked: frozenset[str] = frozenset()
    """The rules that alone are provoked; none: all."""

    @classmethod
    def of(cls, prediction: Prediction, others: Sequence[str] = ()) -> "WeaknessProvocation":
        """Makes the provocations for a prediction. `others`: rules of weaknesses that no anomaly says."""
        every = (*named(prediction.weaknesses), *((rule, "") for rule in dict.fromkeys(others)))
        return cls(every, ScheduleInputs.of(prediction.plan))

    def only(self, rules: Sequence[str]) -> "WeaknessProvocation":
        """Returns the provocations of these weaknesses alone; of all, if none is named. BadInput for one that the prediction
        has not, or that nothing can show."""
        there = [rule for rule, _ in self.weaknesses]
        for rule in rules:
            if rule not in there:
                raise BadInput(
                    f"--provoke {rule!r}: the prediction has no such weakness. It has: {', '.join(there) or 'none'}."
                )
            if (why := self.why_not(rule)) is not None:
                raise BadInput(f"--provoke {rule!r}: no trial can show it, because {why}. Leave it out.")
        return replace(self, asked=frozenset(rules))

    def why_not(self, rule: str) -> str | None:
        """Returns why nothing can show what this rule permits, as a clause; None = something can."""
        schedule = schedule_of(rule, self.inputs)
        if schedule is None:
            return why_none(rule) or "there is no schedule for it"
        if (refused := schedule.refusal(self.inputs)) is not None:
            return refused
        if (why := self.lacking.get(schedule.name)) is not None:
            return f"{schedule.does} is impossible here: {why}"
        return None

    def wanted(self, attempts: Sequence[WeaknessAttempt]) -> tuple[WeaknessSchedule, ...]:
        """Returns the schedules for weaknesses that were not shown yet, each once: those first that were tried least, and of
        them those that may show most."""
        shown = {rule for attempt in attempts for rule, count in attempt.counts.items() if count}
        asked = [rule for rule, _ in self.weaknesses if not self.asked or rule in self.asked]
        open_ = [rule for rule in asked if rule not in shown and self.why_not(rule) is None]
        may_show = Counter(schedule.name for rule in open_ if (schedule := schedule_of(rule, self.inputs)) is not None)
        there = (schedule for schedule in SCHEDULES.values() if schedule.name in may_show)
        return tuple(sorted(there, key=lambda schedule: (_had(attempts, schedule.name), -may_show[schedule.name])))

    def chosen(self, attempts: Sequence[WeaknessAttempt], seconds: float) -> tuple[WeaknessSchedule, ...]:
        """Returns as many of those schedules as fit into the time, at least one of them in the first trial; in the order in
        which they are carried out."""
        chosen: list[str] = []
        for schedule in self.wanted(attempts):
            lasts_s = schedule.lasts_s(self.inputs)
            if lasts_s <= seconds or not (chosen or attempts):
                chosen.append(schedule.name)
                seconds -= lasts_s
        return tuple(schedule for name, schedule in SCHEDULES.items() if name in chosen)

    def outcome(self, attempts: Sequence[WeaknessAttempt]) -> tuple[Provoked, ...]:
        """Returns what became of each weakness."""
        return tuple(self._outcome(rule, anomaly, attempts) for rule, anomaly in self.weaknesses)

    def _outcome(self, rule: str, anomaly: str, attempts: Sequence[WeaknessAttempt]) -> Provoked:
        schedule = schedule_of(rule, self.inputs)
        tries = sum(schedule is not None and schedule.name in attempt.tried for attempt in attempts)
        count = sum(attempt.counts.get(rule, 0) for attempt in attempts)
        if count:
            first = next(attempt for attempt in attempts if attempt.counts.get(rule))
            witness = next((attempt.witnesses[rule] for attempt in attempts if rule in attempt.witnesses), "")
            return Provoked(rule, anomaly, WeaknessState.SHOWN, tries, count, witness=witness, report=first.report)
        if tries:
            return Provoked(rule, anomaly, WeaknessState.NOT_SHOWN, tries)
        why = self.why_not(rule)
        if why is None and self.asked and rule not in self.asked:
            why = "others alone were asked for (--provoke)"
        alone = "" if why is not None or schedule is None else self._alone(rule, schedule)
        return Provoked(rule, anomaly, WeaknessState.NOT_TRIED, why=(why or _why_open(schedule, attempts)) + alone)

    def _alone(self, rule: str, schedule: WeaknessSchedule) -> str:
        """Returns how to provoke it alone, as the end of a sentence."""
        minutes = ceil((schedule.lasts_s(self.inputs) + AROUND_S) / 60)
        return f"; to try it alone: --provoke {rule} --minutes {minutes}"


def named(weaknesses: Sequence[Weakness]) -> tuple[tuple[str, str], ...]:
    """(rule, anomaly) of each."""
    return tuple(dict.fromkeys((weakness.rule.id, weakness.guarantee.anomaly) for weakness in weaknesses))


def _had(attempts: Sequence[WeaknessAttempt], name: str) -> int:
    return sum(name in attempt.tried or name in attempt.failed for attempt in attempts)


def _why_open(schedule: WeaknessSchedule | None, attempts: Sequence[WeaknessAttempt]) -> str:
    assert schedule is not None, "what has no schedule has a reason"
    failed = next((a.failed[schedule.name] for a in reversed(attempts) if schedule.name in a.failed), None)
    return failed or "there was no time left (--minutes)"


# One trial.


Faults = tuple[Sequence[Sequence[Step]], Sequence[Step]]
"""Each fault with its healing, and what is looked at in the end: see `Parts.faults`."""


@dataclass(frozen=True, slots=True)
class ScheduleSteps:
    """The steps of one trial: schedules for weaknesses, then faults."""

    steps: tuple[Step, ...]
    schedules: tuple[WeaknessSchedule, ...]
    faults: tuple[str, ...]
    """First steps of the faults that it has besides."""


def with_loss(faults: Faults, inputs: ScheduleInputs) -> Faults:
    """Returns these faults, and before them what makes the control lose, without which no promise about losses is proven."""
    loses = SCHEDULES["unreplicated"]
    if loses.refusal(inputs) is not None:
        return faults
    blocks, closing = faults
    return (loses.steps(inputs), *blocks), closing


def names_of(faults: Faults) -> tuple[str, ...]:
    """First steps of those that break something: what is seen to take effect."""
    return tuple(block[0].name for block in faults[0] if isinstance(block[0].do, FaultAction))


def steps_of(
    schedules: Sequence[WeaknessSchedule], inputs: ScheduleInputs, faults: Faults, seconds: float
) -> ScheduleSteps:
    """First what shows weaknesses, then as many of the faults, each with its healing, as the seconds allow, then a look
    whether it goes on. A fault that is one of the schedules strikes once."""
    had = {schedule.steps(inputs)[0].name for schedule in schedules}
    blocks, closing = [block for block in faults[0] if block[0].name not in had], faults[1]
    steps = [step for schedule in schedules for step in schedule.steps(inputs)]
    left_s = seconds - lasting_s(steps) - lasting_s(closing)
    taken: list[str] = []
    for block in blocks:
        if (lasts_s := lasting_s(block)) > left_s and (steps or taken):
            break
        left_s -= lasts_s
        taken.append(block[0].name)
        steps += block
    return ScheduleSteps((*steps, *closing), tuple(schedules), tuple(taken))


def attempt_of(
    verdict: TrialVerdict | None,
    made: ScheduleSteps,
    inputs: ScheduleInputs,
    *,
    cells: Collection[int],
    done: Mapping[str, str],
    report: str,
    windows: "Sequence[WindowShown]" = (),
    standstills: "Sequence[Standstill]" = (),
) -> WeaknessAttempt:
    """Returns what a trial tried and showed of the weaknesses. `cells`: the user's; `done`: step → what became of it, as its
    events say; `windows`: when a partition of the user's took no records; `standstills`: when nothing was committed."""
    if verdict is None:
        return WeaknessAttempt(
            failed={s.name: "the trial could not be run to its end" for s in made.schedules}, report=report
        )
    unseen = {fault.step for fault in verdict.faults if not fault.effective}
    effective = {fault.step: fault.step not in unseen for fault in verdict.faults}
    failed = {}
    for schedule in made.schedules:
        whys = (_why_undone(step, done, effective) for step in schedule.steps(inputs))
        if why := next((why for why in whys if why is not None), None):
            failed[schedule.name] = why
    counts, witnesses = _permitted(verdict, cells)
    if waited := _until_back(windows, verdict.faults):
        counts |= dict.fromkeys(UNAVAILABLE, len(waited))
        witnesses |= dict.fromkeys(UNAVAILABLE, _took_nothing(waited[0]))
    for of, stood in _stood_still(standstills, verdict.faults).items():
        rules = [f"{of}/{rule}" for rule in RULES]
        counts |= dict.fromkeys(rules, len(stood))
        witnesses |= dict.fromkeys(rules, stood[0].sentence())
    tried = frozenset(schedule.name for schedule in made.schedules if schedule.name not in failed)
    return WeaknessAttempt(tried, failed, counts, witnesses, report)


def _permitted(verdict: TrialVerdict, cells: Collection[int]) -> tuple[dict[str, int], dict[str, str]]:
    """Rule → how often it permitted something in these cells, and → a witness of it, in words."""
    counts: dict[str, int] = {}
    witnesses: dict[str, str] = {}
    for cell in verdict.cells:
        for judged in cell.anomalies.values() if cell.cell in cells else ():
            for rule, count in judged.by_rule.items():
                counts[rule] = counts.get(rule, 0) + count
            for witness in judged.witnesses:
                if witness.effect == "permitted":
                    witnesses.setdefault(witness.rule, _in_words(witness))
    return counts, witnesses


def _until_back(windows: "Sequence[WindowShown]", faults: Sequence[FaultShown]) -> "list[WindowShown]":
    """Those that lasted from when the broker died until it was back, or longer."""
    away = [fault for fault in faults if fault.step == _DIED and fault.effective and fault.end_s is not None]
    return [
        window
        for window in windows
        for fault in away
        if fault.end_s is not None
        and window.begin_s <= fault.begin_s + DYING_S
        and (window.end_s is None or window.end_s >= fault.end_s)
    ]


def _stood_still(standstills: "Sequence[Standstill]", faults: Sequence[FaultShown]) -> "dict[str, list[Standstill]]":
    """Topic of the brokers' own → when nobody could commit from when its broker died until it was back, or longer, and had
    committed just before."""
    found: dict[str, list[Standstill]] = {}
    for fault in faults:
        of = INTERNAL_DOWN.get(fault.step)
        if of is None or not fault.effective or fault.end_s is None:
            continue
        lasting = [
            stood
            for stood in standstills
            if stood.of == of
            and fault.begin_s - COMMITS_WITHIN_S <= stood.begin_s <= fault.begin_s + DYING_S
            and (stood.end_s is None or stood.end_s >= fault.end_s)
            and stood.wanted_before(fault.end_s)
        ]
        if lasting:
            found.setdefault(of, []).extend(lasting)
    return found


def _took_nothing(window: "WindowShown") -> str:
    until = "the end" if window.end_s is None else f"{window.end_s:.1f} s"
    return f"partition {window.partition} accepted no records from {window.begin_s:.1f} s to {until}"


def _in_words(witness: WitnessShown) -> str:
    """Returns in words where to find a witness."""
    where = f"{witness.topic}-{witness.number}"
    if witness.client < 0:  # of the partition, and no record of a client's
        return where if witness.begin_s is None else f"{where} after {witness.begin_s:.1f} s"
    at = "" if witness.log_offset is None else f" at offset {witness.log_offset}"
    return f"record {witness.sequence} of client {witness.client} in {where}{at}"


def _why_undone(step: Step, done: Mapping[str, str], effective: Mapping[str, bool]) -> str | None:
    """Returns why a step does not count as carried out; None if it does."""
    became = done.get(step.name)
    if became is None:
        return f"the trial did not come to its step {step.name!r}"
    if became != "done" and not (step.may_miss and became.startswith("left out")):
        return f"its step {step.name!r} {became}"
    if isinstance(step.do, FaultAction) and became == "done" and not effective.get(step.name):
        return f"its step {step.name!r} was not seen to take effect"
    return None


# Prediction against observation, guarantee by guarantee. Pure.


_ORDER = (
    AnomalyOutcome.VIOLATED,
    AnomalyOutcome.UNKNOWN,
    AnomalyOutcome.PERMITTED,
    AnomalyOutcome.POSSIBLE,
    AnomalyOutcome.HELD,
    AnomalyOutcome.NOT_JUDGED,
)


@dataclass(frozen=True, slots=True)
class AnomalySummary:
    """Describes what was seen of one anomaly, over some cells or some runs."""

    outcome: AnomalyOutcome
    count: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """Describes what was seen in one run. `judged` is false where it gave no verdict: nothing was observed then."""

    anomalies: dict[str, AnomalySummary] = field(default_factory=dict)
    judged: bool = True
    unknown_reasons: tuple[str, ...] = ()
    not_proven: frozenset[str] = frozenset()
    """Anomalies that a control was to show, and did not: that they could have been seen is not proven."""
    faults: tuple[str, ...] = ()
    """Those of the general faults that it had."""


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """One anomaly in the table that compares prediction and observation."""

    anomaly: str
    weaknesses: tuple[Weakness, ...]
    """Rules that permit it with the clients of the trial. Empty: it cannot happen there."""
    seen: AnomalySummary
    missing: str | None = None
    """The part of the configuration that the anomaly depends on, and that nobody gave. The trial ran one of its own, so
    what it showed decides nothing."""

    @property
    def decides(self) -> AnomalyOutcome:
        """Returns the outcome that counts for the configuration."""
        return self.seen.outcome if self.missing is None else AnomalyOutcome.NOT_JUDGED

    @property
    def surprising(self) -> bool:
        """Returns the anomalies that were seen although nothing permits them."""
        return self.decides is AnomalyOutcome.VIOLATED


def observe(verdict: TrialVerdict | None, cells: Collection[int], faults: Sequence[str] = ()) -> Observed:
    """Returns what a verdict says of these cells. `faults`: names of steps of the plan; those that took effect are kept."""
    if verdict is None:
        return Observed(judged=False, unknown_reasons=("the trial could not be run to its end",))
    found: dict[str, AnomalySummary] = {}
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values() if cell.cell in cells else ():
            seen = AnomalySummary(anomaly.outcome, _counted(anomaly), anomaly.reason)
            found[anomaly.anomaly] = _worse(found.get(anomaly.anomaly), seen)
    fired = {control.anomaly for control in verdict.controls if control.fired}
    effective = {fault.step for fault in verdict.faults if fault.effective}
    return Observed(
        found,
        unknown_reasons=tuple(verdict.unknown_reasons),
        not_proven=frozenset(control.anomaly for control in verdict.controls) - fired,
        faults=tuple(name for name in faults if name in effective),
    )


def _counted(anomaly: CellAnomaly) -> int:
    """Returns how often it was seen, without what another guarantee judges (a duplicate that was processed twice);
    where there is nothing else, that."""
    return anomaly.forbidden + anomaly.permitted + anomaly.unknown or anomaly.count


@dataclass(frozen=True)
class Comparison:
    """The prediction for one configuration, compared with what its trials showed."""

    prediction: Prediction
    runs: tuple[Observed, ...]
    provoked: tuple[Provoked, ...] = ()
    """Returns what became of each weakness."""
    wanted: tuple[str, ...] = ()
    """Every general fault that applies."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Those of them that cannot be made here → why."""

    def lines(self) -> Iterator[ComparisonLine]:
        """Returns the lines in the order of the guarantee table, without what applies to no cell."""
        for name in TABLE:
            if name in self.prediction.judged:
                weak = tuple(w for w in self.prediction.of_trial if w.guarantee.anomaly == name)
                yield ComparisonLine(name, weak, self.seen(name), missing_part(name, self.prediction.parts))

    def seen(self, anomaly: str) -> AnomalySummary:
        """Returns the worst outcome over all runs, with the sum of the counts."""
        found: AnomalySummary | None = None
        for run in self.runs:
            found = _worse(
                found, run.anomalies.get(anomaly, AnomalySummary(AnomalyOutcome.UNKNOWN, reason="not judged"))
            )
        return found or AnomalySummary(AnomalyOutcome.NOT_JUDGED)

    @property
    def exit_code(self) -> ExitCode:
        """Returns 1: seen although nothing permits it; 2: a run whose answer is not known, or files that were not
        understood as a whole; else 0. What was run at all counts."""
        outcomes = {line.decides for line in self.lines()} if self.runs else set()
        if AnomalyOutcome.VIOLATED in outcomes:
            return ExitCode.VIOLATED
        judged = all(run.judged for run in self.runs)
        if (
            AnomalyOutcome.UNKNOWN in outcomes
            or not judged
            or self.prediction.doubts
            or self.prediction.missing_settings
        ):
            return ExitCode.UNKNOWN
        return ExitCode.HELD


def closing_line(comparison: Comparison) -> str:
    """Returns the last line of the output, without its sign: what became of the promises, and how many weaknesses were shown.
    A promise is reported as held only under the faults that really happened."""
    return f"{_of_promises(comparison)}; {_of_weaknesses(comparison.provoked)}"


def _of_promises(comparison: Comparison) -> str:
    lines = list(comparison.lines())
    if broken := [line.anomaly for line in lines if line.surprising]:
        return f"violated: {', '.join(broken)} seen although nothing permits it"
    if comparison.exit_code is ExitCode.UNKNOWN:
        return f"unknown: {_why_unknown(comparison)}"
    promises = {guarantee.anomaly for guarantee in comparison.prediction.promised}
    held = [line.anomaly for line in lines if line.anomaly in promises and line.decides is AnomalyOutcome.HELD]
    if not held:
        return "nothing that was promised could be judged" if promises else "nothing is promised"
    had = {fault for run in comparison.runs for fault in run.faults}
    under = (
        f"{len(had)} of {number_of(len(comparison.wanted), 'fault')}" if had else "only the faults that show weaknesses"
    )
    unproven = frozenset.intersection(*(run.not_proven for run in comparison.runs)) & set(held)
    doubt = f", but no control shows that prozess would have seen {', '.join(sorted(unproven))}" if unproven else ""
    return f"held: {len(held)} of {number_of(len(promises), 'promise')}, under {under}{doubt}"


def _why_unknown(comparison: Comparison) -> str:
    unknown = [line.anomaly for line in comparison.lines() if line.decides is AnomalyOutcome.UNKNOWN]
    if not all(run.judged for run in comparison.runs):
        return "a trial has no verdict"
    if unknown:
        return f"prozess could not say whether {first_of_many(unknown)} happened"
    resting = [guarantee.anomaly for guarantee in comparison.prediction.unknown]
    settings = "settings that nobody gave, or that prozess did not understand"
    return f"whether {first_of_many(resting)} can happen depends on {settings}"


def _of_weaknesses(provoked: Sequence[Provoked]) -> str:
    if not provoked:
        return "no weakness is known that could be shown"
    counts = Counter(of.state for of in provoked)
    seen = (
        f"{counts[WeaknessState.SHOWN]} of {len(provoked)} {'weakness' if len(provoked) == 1 else 'weaknesses'} shown"
    )
    rest = [f"{counts[state]} {state}" for state in (WeaknessState.NOT_SHOWN, WeaknessState.NOT_TRIED) if counts[state]]
    return ", ".join([seen, *rest])


def _worse(one: AnomalySummary | None, other: AnomalySummary) -> AnomalySummary:
    if one is None:
        return other
    worst = min(one, other, key=lambda seen: _ORDER.index(seen.outcome))
    return AnomalySummary(worst.outcome, one.count + other.count, worst.reason)


@dataclass(frozen=True, slots=True)
class Budget:
    """Says how long the trials may take, and how. `seconds`: trials are made so long that they end by then, and none
    begins that cannot; the first one is run whatever it takes; 0 = predict only."""

    seconds: float
    trials: int = 10
    seed: int = 1
    backend: str = "local"
    strict: bool = False
    """A weakness that a change of settings would rule out is a failure."""
    provoke: tuple[str, ...] = ()
    """The rules of the weaknesses that are provoked; none: all that were predicted."""


@dataclass(slots=True)
class Done:
    """Describes what the trials of one validation showed."""

    runs: list[Path] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    attempts: list[WeaknessAttempt] = field(default_factory=list)
    provocation: WeaknessProvocation | None = None
    wanted: tuple[str, ...] = ()
    """The general faults, by the names of their first steps."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Those of them that cannot be made here → why."""

    def comparison(self, prediction: Prediction) -> Comparison:
        """Compares what was seen with the prediction. Without a run, nothing was tried."""
        provoked = () if self.provocation is None else self.provocation.outcome(self.attempts)
        return Comparison(prediction, tuple(self.observed), provoked, self.wanted, self.left_out)
