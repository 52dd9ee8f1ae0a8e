"""Makes a plan from a trial and a seed: cells with topics of their own, clients, and steps, in which every number is
drawn.

This is stage one of plan → run → check → report. It is pure: it reads no clock, file or cluster.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from prozess.harness.config.configuration import (
    ApplicationConfiguration,
    CopierConfiguration,
    GroupConfiguration,
    Variant,
)
from prozess.harness.errors import BadInput, UnsupportedFault
from prozess.harness.plan import catalogue
from prozess.harness.plan.axes import expand
from prozess.harness.plan.cell_work import work_with
from prozess.harness.plan.checks import check_administrators, check_steps, why_nobody
from prozess.harness.plan.plan import (
    ISOLATION_LEVELS,
    SENTINEL_CLIENT,
    Cell,
    Control,
    Exclusion,
    Plan,
    PlannedClient,
    PlannedPartition,
)
from prozess.harness.plan.schedule import (
    Each,
    Elapsed,
    FaultAction,
    HealAction,
    IsrIs,
    Mix,
    MixFault,
    Range,
    Step,
    Target,
    alternatives,
    draw,
    parse_target,
    selects,
)
from prozess.harness.plan.topic_lives import check_altered, check_lives, topics_made_again, with_later_topics
from prozess.harness.plan.trial import Trial, WorkloadSpec
from prozess.harness.plan.validity import Combination
from prozess.harness.plan.workloads.registry import KINDS


def make_plan(trial: Trial, *, seed: int, lacking: Mapping[str, str] | None = None) -> Plan:
    """Returns the plan of a trial. The same trial and seed give the same plan, to the letter.

    `lacking`: labels of faults that cannot be made where it is to run, each with the reason. Mixes and lists leave them
    out.
    """
    rng = random.Random(seed)
    lacking = _aimed_at_nobody(trial) | dict(lacking or {})
    layout = _Layout()
    for workload, label in zip(trial.workloads, _labels(trial), strict=True):
        layout.add(trial, workload, label)
    plan = Plan(
        trial=trial.name,
        title=trial.title,
        scenarios=trial.scenarios,
        seed=seed,
        backend=trial.backend,
        variant=trial.variant,
        limits=trial.limits,
        settle_s=trial.settle_s,
        cells=tuple(layout.cells),
        excluded=tuple(layout.excluded),
        partitions=tuple(layout.partitions),
        clients=_clients(trial, layout),
        steps=_steps(trial, rng, lacking),
        left_out=_left_out(trial, lacking),
        controls=_controls(trial, layout.cells),
        metrics=trial.metrics,
        time_lookups=trial.time_lookups,
        administrators=trial.administrators,
        alerts=trial.alerts,
        compose=trial.compose,
        ssh=trial.ssh,
        attach=trial.attach,
        decide=trial.decide,
    )
    check_steps(plan)
    check_lives(plan)
    check_altered(plan)
    check_administrators(plan)
    return plan


def _steps(trial: Trial, rng: random.Random, lacking: Mapping[str, str]) -> tuple[Step, ...]:
    """Returns the steps with every number drawn. Mixes and lists become ordinary steps."""
    drawn = draw(trial.steps, rng)
    expanded = ([s] if not isinstance(s.do, Mix | Each) else expand_mix(s, s.do, rng, lacking=lacking) for s in drawn)
    return tuple(step for steps in expanded for step in steps)


def _left_out(trial: Trial, lacking: Mapping[str, str]) -> dict[str, str]:
    labels = [fault.label for fault in mixed_faults(trial)]
    return {label: lacking[label] for label in dict.fromkeys(labels) if label in lacking}


def _aimed_at_nobody(trial: Trial) -> dict[str, str]:
    """Returns label → why, for the faults of mixes and lists with a role that means none of the variant's servers."""
    return {f.label: why for f in mixed_faults(trial) if (why := _nobody(f, trial.variant)) is not None}


def _nobody(mixed: MixFault, variant: Variant) -> str | None:
    """Returns why a role that the fault names means none of the variant's servers, or None if each can mean some."""
    for text in (*mixed.targets, *mixed.one_of):
        if why := why_nobody(parse_target(text), variant):
            return f"{text} {why}"
    for value in alternatives(mixed.parameters.get("others")):
        if value in ("controllers", "zookeepers") and (why := why_nobody(Target(role=value), variant)):
            return f"others = {value} {why}"
    return _means_nothing(mixed, variant)


def _means_nothing(mixed: MixFault, variant: Variant) -> str | None:
    """Returns why the fault has no meaning on such a cluster, tried with the first of the parameters that may be drawn.

    What is wrong with these parameters is reported when they are drawn.
    """
    fault = catalogue.FAULTS.named(mixed.fault)
    first = {name: alternatives(value)[0] for name, value in mixed.parameters.items()}
    try:
        checked = fault.parameters_model.model_validate(first)
    except ValidationError:
        return None
    return fault.means_nothing(variant, checked)


def mixed_faults(trial: Trial) -> list[MixFault]:
    """Returns the faults of all mixes and lists of a trial."""
    return [fault for step in trial.steps if isinstance(step.do, Mix | Each) for fault in step.do.faults]


def _labels(trial: Trial) -> list[str]:
    """Returns how the names of each workload's cells and clients begin: with its kind, numbered where several workloads
    are of one kind, and with nothing where it is the only workload."""
    if len(trial.workloads) == 1:
        return [""]
    alike: Counter[str] = Counter()
    labels = []
    for workload in trial.workloads:
        alike[workload.kind] += 1
        labels.append(f"{workload.kind}-{n}" if (n := alike[workload.kind]) > 1 else workload.kind)
    return labels


CELL_NAME_MAX = 200
"""A cell of many axes is named by its number beyond so many characters: names of files have 255 at most, and a client's log
is named after its cell."""


class _Layout:
    """Numbers the cells and partitions of all workloads of a trial, from 0 on."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.partitions: list[PlannedPartition] = []
        self.excluded: list[Exclusion] = []
        self.cells_of: list[list[Cell]] = []
        """The cells of each workload of the trial."""

    def add(self, trial: Trial, workload: WorkloadSpec, label: str) -> None:
        """Adds the cells of one workload, each with a topic of its own. Their names begin with `label`."""
        combinations, excluded = expand(trial, workload)
        varying = [axis for axis, values in workload.axes.items() if len(values) > 1]
        self.excluded += excluded
        self.cells_of.append([self._add(trial, workload, c, [label] if label else [], varying) for c in combinations])

    def _add(
        self,
        trial: Trial,
        workload: WorkloadSpec,
        combination: Combination,
        words: Sequence[str],
        varying: Sequence[str],
    ) -> Cell:
        number, first = len(self.cells), len(self.partitions)
        topic_name = f"cell-{number:03d}"
        derived_topic_name = _derived(trial, workload, combination, topic_name)
        count = _partition_count(workload, combination)
        own = _partitions(trial, workload, topic_name, count)
        derived = _partitions(trial, workload, derived_topic_name, count) if derived_topic_name else []
        for index, (name, of_topic, late) in [*enumerate(own), *enumerate(derived)]:
            self.partitions.append(
                PlannedPartition(
                    partition=len(self.partitions),
                    topic_name=name,
                    number=of_topic,
                    cell=number,
                    assignment=_assignment(trial, workload, combination.topic.replication_factor, index),
                    late=late,
                )
            )
        values = [f"{axis.partition('.')[2]}_{combination.axes[axis]}" for axis in varying]
        name = "-".join([*words, *values]) or trial.name
        if len(name) > CELL_NAME_MAX:
            name = f"{words[0] if words else workload.kind}-cell-{number}"
        cell = Cell(
            cell=number,
            name=name,
            workload=workload.kind,
            topic_name=topic_name,
            axes=combination.axes,
            topic=combination.topic,
            producer=combination.producer,
            work=work_with(combination.own, trial.variant),
            partitions=tuple(range(first, len(self.partitions))),
            late_partitions=tuple(p.partition for p in self.partitions[first:] if p.late),
            derived_topic_name=derived_topic_name,
            derived=tuple(p.partition for p in self.partitions[first:] if p.topic_name == derived_topic_name),
            delivery_bound=combination.delivery,
            keyed=KINDS[workload.kind].library_partitions,
        )
        self.cells.append(cell)
        self._add_later(trial, workload, combination, cell)
        return cell

    def _add_later(self, trial: Trial, workload: WorkloadSpec, combination: Combination, first: Cell) -> None:
        """Adds a cell for each topic that steps make again under the name of a cell's first topic."""
        first_count = _partition_count(workload, combination)
        later = topics_made_again(trial.steps, combination, partitions=first_count, variant=trial.variant)
        for life, (topic, count) in enumerate(later, start=1):
            dense = range(len(self.partitions), len(self.partitions) + count)
            self.partitions += [
                PlannedPartition(
                    partition=partition,
                    topic_name=first.topic_name,
                    number=number,
                    cell=len(self.cells),
                    assignment=_assignment(trial, workload, topic.replication_factor, number),
                    late=True,
                )
                for number, partition in enumerate(dense)
            ]
            changes = {"cell": len(self.cells), "name": f"{first.name}-life-{life + 1}", "topic": topic, "life": life}
            numbers = tuple(dense)
            self.cells.append(first.model_copy(update=changes | {"partitions": numbers, "late_partitions": numbers}))


def _derived(trial: Trial, workload: WorkloadSpec, combination: Combination, topic_name: str) -> str | None:
    """Returns the name of the cell's second topic, to which it copies or sends records again. None if it has none."""
    match combination.own:
        case CopierConfiguration() | ApplicationConfiguration():
            return f"{topic_name}-copy"
        case GroupConfiguration(hands_on=True):
            pass
        case _:
            return None
    if workload.topics.late_partitions or workload.topics.late_topic_partitions:
        raise BadInput(
            f"Trial {trial.name!r}: a retry topic has as many partitions as the topic, which therefore cannot grow; remove "
            'topics.late_partitions and topics.late_topic_partitions, or set "group.on_failure" = "pause".'
        )
    return f"{topic_name}-retry"


def _partition_count(workload: WorkloadSpec, combination: Combination) -> int:
    """Returns how many partitions the topic of a cell has when the trial begins."""
    return combination.topic.partitions or workload.topics.partitions


def _partitions(trial: Trial, workload: WorkloadSpec, topic_name: str, count: int) -> list[tuple[str, int, bool]]:
    """Returns (topic, number, is it late?) for each partition of a cell whose topic begins with `count` of them."""
    topics = workload.topics
    if topics.late_topic_partitions and not KINDS[workload.kind].topics_may_join:
        raise BadInput(
            f"Trial {trial.name!r}: a {workload.kind} workload has one topic a cell; remove topics.late_topic_partitions."
        )
    if topics.late_partitions and not KINDS[workload.kind].topics_may_grow:
        growing = [name for name, kind in KINDS.items() if kind.topics_may_grow]
        raise BadInput(
            f"Trial {trial.name!r}: topics of a {workload.kind} workload cannot grow; remove topics.late_partitions. "
            f"Kinds that can: {', '.join(growing)}."
        )
    first = [(topic_name, number, number >= count) for number in range(count + topics.late_partitions)]
    return [*first, *((f"{topic_name}-late", number, True) for number in range(topics.late_topic_partitions))]


def _assignment(trial: Trial, workload: WorkloadSpec, replication_factor: int, index: int) -> tuple[int, ...]:
    brokers, placement = trial.variant.brokers, workload.topics.placement
    if not placement:
        return tuple((index + shift) % brokers + 1 for shift in range(replication_factor))
    placed = placement[index % len(placement)]
    if len(placed) < replication_factor or len(set(placed)) < len(placed) or max(placed) > brokers:
        raise BadInput(
            f"topics.placement {list(placed)} must name at least replication.factor={replication_factor} different "
            f"brokers out of 1…{brokers}."
        )
    return placed[:replication_factor]


def _clients(trial: Trial, layout: _Layout) -> tuple[PlannedClient, ...]:
    """Returns the clients of a trial with their ids: the sentinel, then the clients of each workload, then the
    audit."""
    every = tuple(p.partition for p in layout.partitions)
    clients = [PlannedClient(client=SENTINEL_CLIENT, role="sentinel", name="sentinel", partitions=every)]
    for workload, cells, label in zip(trial.workloads, layout.cells_of, _labels(trial), strict=True):
        plan_clients = KINDS[workload.kind].plan_clients
        prefix = f"{label}-" if label else ""
        planned = with_later_topics(
            plan_clients(workload, cells, layout.partitions, prefix), layout.cells, layout.partitions
        )
        clients += _numbered(planned, first=len(clients))
    for level in ISOLATION_LEVELS:
        audit = PlannedClient(client=0, role="audit", name=f"audit-{level}", partitions=every, isolation_level=level)
        clients += _numbered([audit], first=len(clients))
    return tuple(clients)


def _numbered(clients: Sequence[PlannedClient], *, first: int) -> list[PlannedClient]:
    return [client.model_copy(update={"client": first + index}) for index, client in enumerate(clients)]


def _controls(trial: Trial, cells: Sequence[Cell]) -> tuple[Control, ...]:
    controls = []
    for spec in trial.controls:
        matching = tuple(cell.cell for cell in cells if selects(spec.cells, cell.axes))
        if not matching:
            raise BadInput(f"controls: no cell matches {spec.cells} for {spec.anomaly!r}. Use values of `axes`.")
        controls.append(Control(anomaly=spec.anomaly, cells=matching, required=trial.control == "required"))
    if trial.control == "required" and not controls:
        raise BadInput(f'Trial {trial.name!r} requires controls (control = "required") but names none in [[controls]].')
    return tuple(controls)


# Mixes, and lists of faults of which each strikes once: with a seed they become ordinary steps, when the trial is
# planned. Pure.
#
# Which fault, when, for how long and with which parameters is drawn; whom it hits is a role, resolved when it strikes.
# What is not there to be hit at that moment is left out of a mix (`Step.may_miss`); of a list everything must strike.
# Everything is healed, and whole ISRs are awaited whenever nothing is broken, in the end too.


_LEAST_S = 0.001
"""How long a fault lasts at least, so that it is healed after it has struck."""
STRIKES_MAX = 10_000
"""The greatest number of faults that a mix may make: a day of faults, one after the other, and few enough to be planned
in a second."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault of a mix, as it was drawn. Times are in seconds from the beginning of the mix."""

    number: int
    fault: MixFault
    targets: tuple[str, ...]
    parameters: Mapping[str, Any]
    begin_s: float
    end_s: float


def expand_mix(step: Step, action: Mix | Each, rng: random.Random, *, lacking: Mapping[str, str]) -> list[Step]:
    """Returns the steps that a mix or list becomes. UnsupportedFault if no fault is left.

    `lacking`: labels of faults that cannot be made here, each with the reason. They are left out before anything is
    drawn.
    """
    able = [fault for fault in action.faults if fault.label not in lacking]
    if not able:
        why = lacking[action.faults[0].label]
        raise UnsupportedFault(f"Step {step.name!r}: none of its faults can be made here, such as: {why}.")
    first = step.model_copy(update={"name": f"{step.name}: begins", "do": None})
    strikes = draw_strikes(action, able, rng) if isinstance(action, Mix) else draw_each(action, able, rng)
    return [first, *_mixed_steps(step.name, action, strikes)]


def draw_each(each: Each, able: Sequence[MixFault], rng: random.Random) -> list[Strike]:
    """Draws each fault of a list once, one after the other."""
    strikes: list[Strike] = []
    end_s = 0.0
    for fault in rng.sample(able, len(able)):
        targets, parameters = _aimed(fault, rng)
        begin_s = round(end_s + _within(each.quiet_s, rng), 3)
        end_s = _end_s(begin_s, fault, rng)
        strikes.append(Strike(len(strikes) + 1, fault, targets, parameters, begin_s, end_s))
    return strikes


def draw_strikes(mix: Mix, able: Sequence[MixFault], rng: random.Random) -> list[Strike]:
    """Draws the faults of a mix, in the order in which they begin.

    Never are more than `overlap` active at once, and one that is `alone` is never active with another. All of them are
    over within `length_s`. There is at least one, however short the mix is: if the first lasts longer, it is the only
    one.
    """
    strikes: list[Strike] = []
    active: list[Strike] = []
    begin_s = 0.0
    while True:
        fault = rng.choices(able, [fault.weight for fault in able])[0]
        targets, parameters = _aimed(fault, rng)
        quiet_s = _within(mix.quiet_s, rng)
        active = [strike for strike in active if strike.end_s > begin_s]
        begin_s = max(begin_s, _free_from(begin_s + quiet_s, fault, active, mix.overlap)) + quiet_s
        begin_s = round(begin_s, 3)
        end_s = _end_s(begin_s, fault, rng)
        strike = Strike(len(strikes) + 1, fault, targets, parameters, begin_s, end_s)
        if end_s > mix.length_s:
            return strikes or [strike]
        if len(strikes) == STRIKES_MAX:
            raise BadInput(
                f"A mix of length_s = {mix.length_s:g}, quiet_s = {list(mix.quiet_s)} and overlap = {mix.overlap} comes to "
                f"more than {STRIKES_MAX:,} faults. Give a shorter length_s, or a longer quiet_s."
            )
        strikes.append(strike)
        active.append(strike)


def _aimed(fault: MixFault, rng: random.Random) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns the targets and the parameters that were drawn for a fault."""
    targets = (rng.choice(fault.one_of),) if fault.one_of else fault.targets
    drawn = {key: _drawn(value, rng) for key, value in fault.parameters.items()}
    return targets, {**catalogue.FAULTS.named(fault.fault).in_a_mix, **drawn}


def _end_s(begin_s: float, fault: MixFault, rng: random.Random) -> float:
    return round(begin_s + max(_within(fault.lasts_s, rng), _LEAST_S), 3)


def _free_from(begin_s: float, fault: MixFault, strikes: Sequence[Strike], overlap: int) -> float:
    """Returns the time at which this fault may begin because enough of those active at `begin_s` are over. 0 means that
    it may begin then."""
    ends = sorted(strike.end_s for strike in strikes if strike.end_s > begin_s)
    alone = fault.alone or any(strike.fault.alone for strike in strikes if strike.end_s > begin_s)
    most = 1 if alone else overlap
    return 0.0 if len(ends) < most else ends[len(ends) - most]


def _within(span: Range, rng: random.Random) -> float:
    return rng.uniform(*span)


def _drawn(value: object, rng: random.Random) -> object:
    if isinstance(value, Mapping) and value.keys() == {"between"}:
        return round(rng.uniform(*value["between"]), 3)
    if isinstance(value, Mapping) and value.keys() == {"one_of"}:
        return rng.choice(list(value["one_of"]))
    return value


def _mixed_steps(name: str, action: Mix | Each, strikes: Sequence[Strike]) -> list[Step]:
    """Strikes and heals in the order of time, each so long after the one before; a wait for whole ISRs after each heal that
    leaves nothing broken."""
    events = [(strike.begin_s, True, strike) for strike in strikes] + [
        (strike.end_s, False, strike) for strike in strikes
    ]
    events.sort(key=lambda event: (event[0], event[1], event[2].number))
    steps: list[Step] = []
    active, before_s = 0, 0.0
    for at_s, begins, strike in events:
        after = Elapsed(condition="elapsed", seconds=round(at_s - before_s, 3))
        if begins:
            steps.append(_strike(name, strike, after, may_miss=isinstance(action, Mix)))
        else:
            steps.append(_heal(name, strike, after))
        active, before_s = active + (1 if begins else -1), at_s
        if not active:
            whole = f"{name} {strike.number}: whole again"
            steps.append(Step(name=whole, after=IsrIs(condition="isr"), timeout_s=action.whole_s))
    return steps


def _title(name: str, strike: Strike) -> str:
    return f"{name} {strike.number}: {strike.fault.fault} {', '.join(strike.targets)}"


def _strike(name: str, strike: Strike, after: Elapsed, *, may_miss: bool) -> Step:
    action = FaultAction(
        kind="fault", fault=strike.fault.fault, targets=strike.targets, parameters=dict(strike.parameters)
    )
    return Step(name=_title(name, strike), after=after, do=action, may_miss=may_miss)


def _heal(name: str, strike: Strike, after: Elapsed) -> Step:
    heal = HealAction(kind="heal", step=_title(name, strike))
    return Step(name=f"{name} {strike.number}: over", after=after, do=heal)
