"""Runs trials of exactly the configuration that was predicted, one seed after the other, and says what each showed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from prozess.app.conduct import conduct_trial
from prozess.app.run.outside_sandbox import lacking_faults
from prozess.app.run_options import RunOptions
from prozess.clusters.registry import backend_named
from prozess.harness.clock import NS_PER_S, SystemClock
from prozess.harness.history.reader import History
from prozess.harness.impact.cost import ImpactShown, WindowShown
from prozess.harness.plan.schedule import Each, FaultAction, MixFault, Step
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.validation.comparison import (
    AROUND_S,
    Budget,
    Done,
    WeaknessProvocation,
    attempt_of,
    names_of,
    observe,
    steps_of,
    with_loss,
)
from prozess.validation.prediction import Prediction
from prozess.validation.schedules import lasting_s
from prozess.validation.stalled_commits import Standstill, of_group, of_transactions
from prozess.validation.terminal import (
    print_begin,
)
from prozess.validation.trial import ConfigurationParts

WORTH_S = 10.0
"""A further trial whose schedule had less time is not begun."""
AROUND_LEAST_S = 20.0
"""How long a trial takes beside its schedule, however fast the machine was."""


def carry_out(prediction: Prediction, budget: Budget, options: RunOptions) -> Done:
    """Runs trials of the same configuration, with one seed after the other. At least one; what was not shown is tried
    again."""
    clock, parts = SystemClock(), prediction.parts
    begun_ns = clock.monotonic_ns()
    deadline_ns = begun_ns + int(budget.seconds * NS_PER_S)
    provocation = WeaknessProvocation.of(prediction, [concern.rule for concern in prediction.concerns])
    provocation = provocation.only(budget.provoke)
    here = provocation.inputs
    blocks, closing = with_loss(parts.faults, here)
    groups = {schedule.name: schedule.steps(here) for schedule in provocation.wanted(())}
    groups |= {block[0].name: tuple(block) for block in blocks}
    cannot = lacking(parts, groups, backend=budget.backend, isolation=options.isolation)
    provocation = replace(provocation, lacking=cannot)
    left_out = {block[0].name: cannot[block[0].name] for block in blocks if block[0].name in cannot}
    done = Done(provocation=provocation, wanted=names_of((blocks, closing)), left_out=left_out)
    faults = [block for block in blocks if block[0].name not in left_out and not budget.provoke], closing
    own = frozenset(cell.cell for cell in prediction.plan.cells)  # the control comes last
    around_s = AROUND_S
    for number in range(budget.trials):
        began_ns = clock.monotonic_ns()
        seconds = (deadline_ns - began_ns) / NS_PER_S - around_s
        if number and seconds < WORTH_S:
            break
        schedules = provocation.chosen(done.attempts, seconds)
        made = steps_of(schedules, here, faults, seconds)
        plan = parts.plan(seed=budget.seed + number, backend=budget.backend, steps=made.steps)
        if not options.quiet:
            spent_s = (clock.monotonic_ns() - begun_ns) / NS_PER_S
            print_begin(number, budget.trials, spent_s=spent_s, limit_s=budget.seconds)
        conducted = conduct_trial(plan, replace(options, print_verdict=options.print_verdict and not options.as_json))
        done.runs.append(conducted.run.path)
        done.observed.append(observe(conducted.verdict, own, done.wanted))
        done.attempts.append(
            attempt_of(
                conducted.verdict,
                made,
                here,
                cells=own,
                done=steps_done(conducted.run),
                report=str(conducted.run.path / "report.html"),
                windows=_windows(conducted.run, prediction),
                standstills=[] if conducted.verdict is None else list(_standstills(conducted.run, prediction)),
            )
        )
        if conducted.interrupted:
            break
        took_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
        around_s = max(AROUND_LEAST_S, took_s - lasting_s(made.steps))  # as this machine needs it
    return done


def lacking(
    parts: ConfigurationParts, groups: Mapping[str, Sequence[Step]], *, backend: str, isolation: str
) -> Mapping[str, str]:
    """Returns the groups of steps with a fault that is impossible here → why."""
    if backend_named(backend).lasts:  # what they can do is found out when the run begins
        return {}
    faults = {name: [fault for step in steps if (fault := _mixed(step))] for name, steps in groups.items()}
    every = {fault.label: fault for of_group in faults.values() for fault in of_group}
    if not every:
        return {}
    each = Step(name="every fault", do=Each(kind="each", faults=tuple(every.values())))
    whys = lacking_faults(parts.trial(backend=backend, steps=(each,)), isolation=isolation)
    found = {
        name: [whys[fault.label] for fault in of_group if fault.label in whys] for name, of_group in faults.items()
    }
    return {name: reasons[0] for name, reasons in found.items() if reasons}


def _mixed(step: Step) -> MixFault | None:
    """The fault of a step, as lists have it."""
    if not isinstance(step.do, FaultAction):
        return None
    return MixFault(fault=step.do.fault, targets=step.do.targets, parameters=step.do.parameters)


def _windows(run: RunDirectory, prediction: Prediction) -> list[WindowShown]:
    """Returns when partitions of the user's cells accepted no records, as far as that was measured."""
    own = {partition for cell in prediction.plan.cells for partition in cell.partitions}
    if not run.impact.exists():
        return []
    measured = ImpactShown.model_validate(read_object(run.impact))
    return [] if measured.incomplete else [window for window in measured.windows if window.partition in own]


def _standstills(run: RunDirectory, prediction: Prediction) -> Iterator[Standstill]:
    """Yields when the user's group, and transactions, could commit nothing."""
    history = History.open(run)
    for cell in prediction.plan.cells:
        tables = history.cell_history(cell.cell).tables
        if cell.group is not None:
            yield from of_group(tables["commits"], tables["processed"]["done_ns"])
        if cell.transaction is not None:
            yield from of_transactions(tables["transactions"])


def steps_done(run: RunDirectory) -> Mapping[str, str]:
    """Returns for each step what became of it, as the run's events say; a line that was cut off when the run died says
    nothing."""
    if not run.events.exists():
        return {}
    done = {}
    for line in run.events.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "step":
            done[str(event.get("name"))] = str(event.get("what"))
    return done
