"""How a plan is made of a trial and a seed: cells with topics of their own, clients, steps with every number drawn.

Stage one of plan → run → check → report. Pure: no clock, no file, no cluster.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from harness import catalogue
from harness.configuration import Variant
from harness.errors import BadInput
from harness.matrix import Combination, Exclusion, expand, selects
from harness.mix import expand as expand_mix
from harness.plan import (
    ISOLATION_LEVELS,
    SENTINEL_CLIENT,
    Cell,
    Control,
    Plan,
    PlannedClient,
    PlannedPartition,
    group_session,
)
from harness.plan_checks import check_steps, why_nobody
from harness.schedule import Each, Mix, MixFault, Step, alternatives, draw
from harness.targets import Target, parse_target
from harness.trial import Trial, WorkloadSpec


def make_plan(trial: Trial, *, seed: int, lacking: Mapping[str, str] | None = None) -> Plan:
    """The plan of a trial. The same trial and seed give the same plan, to the letter. `lacking`: labels of faults that cannot
    be made where it is to run, with why: mixes and lists do without them."""
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
        alerts=trial.alerts,
        compose=trial.compose,
        ssh=trial.ssh,
        attach=trial.attach,
    )
    check_steps(plan)
    return plan


def _steps(trial: Trial, rng: random.Random, lacking: Mapping[str, str]) -> tuple[Step, ...]:
    """With every number drawn, and mixes and lists as the steps that they become."""
    drawn = draw(trial.steps, rng)
    expanded = ([s] if not isinstance(s.do, Mix | Each) else expand_mix(s, s.do, rng, lacking=lacking) for s in drawn)
    return tuple(step for steps in expanded for step in steps)


def _left_out(trial: Trial, lacking: Mapping[str, str]) -> dict[str, str]:
    labels = [fault.label for fault in mixed_faults(trial)]
    return {label: lacking[label] for label in dict.fromkeys(labels) if label in lacking}


def _aimed_at_nobody(trial: Trial) -> dict[str, str]:
    """Faults of mixes and lists with a role that means none of the variant's servers: label → why."""
    return {f.label: why for f in mixed_faults(trial) if (why := _nobody(f, trial.variant)) is not None}


def _nobody(mixed: MixFault, variant: Variant) -> str | None:
    """Why a role that it names can mean none of the variant's servers; None = each can mean some."""
    for text in (*mixed.targets, *mixed.one_of):
        if why := why_nobody(parse_target(text), variant):
            return f"{text} {why}"
    for value in alternatives(mixed.parameters.get("others")):
        if value in ("controllers", "zookeepers") and (why := why_nobody(Target(role=value), variant)):
            return f"others = {value} {why}"
    return None


def mixed_faults(trial: Trial) -> list[MixFault]:
    """Of all its mixes and lists."""
    return [fault for step in trial.steps if isinstance(step.do, Mix | Each) for fault in step.do.faults]


ClientPlanner = Callable[[WorkloadSpec, Sequence[Cell], Sequence[PlannedPartition], str], Sequence[PlannedClient]]
"""(workload, its cells, all partitions, prefix of names) → its clients; their ids are given afterwards."""


def _labels(trial: Trial) -> list[str]:
    """What the names of each workload's cells and clients begin with: its kind, numbered where there are several of one
    kind; nothing where it is the only one."""
    if len(trial.workloads) == 1:
        return [""]
    alike: Counter[str] = Counter()
    labels = []
    for workload in trial.workloads:
        alike[workload.kind] += 1
        labels.append(f"{workload.kind}-{n}" if (n := alike[workload.kind]) > 1 else workload.kind)
    return labels


class _Layout:
    """Cells and partitions as they are numbered through, over all workloads of a trial."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.partitions: list[PlannedPartition] = []
        self.excluded: list[Exclusion] = []
        self.cells_of: list[list[Cell]] = []
        """Per workload of the trial."""

    def add(self, trial: Trial, workload: WorkloadSpec, label: str) -> None:
        """The cells of one workload, each with a topic of its own. `label` begins their names."""
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
        own = _partitions(trial, workload, topic_name)
        derived = _partitions(trial, workload, derived_topic_name) if derived_topic_name else []
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
        words = [*words, *(f"{axis.partition('.')[2]}_{combination.axes[axis]}" for axis in varying)]
        cell = Cell(
            cell=number,
            name="-".join(words) or trial.name,
            workload=workload.kind,
            topic_name=topic_name,
            axes=combination.axes,
            topic=combination.topic,
            producer=combination.producer,
            group=combination.group,
            transaction=combination.transaction,
            compaction=combination.compaction,
            provocation=combination.provocation,
            copier=combination.copier,
            application=combination.application,
            partitions=tuple(range(first, len(self.partitions))),
            late_partitions=tuple(p.partition for p in self.partitions[first:] if p.late),
            session=None if combination.group is None else group_session(combination.group, trial.variant),
            derived_topic_name=derived_topic_name,
            derived=tuple(p.partition for p in self.partitions[first:] if p.topic_name == derived_topic_name),
            delivery_bound=combination.delivery,
        )
        self.cells.append(cell)
        return cell


def _derived(trial: Trial, workload: WorkloadSpec, combination: Combination, topic_name: str) -> str | None:
    """The cell's second topic."""
    if combination.copier is not None or combination.application is not None:
        return f"{topic_name}-copy"
    if combination.group is None or not combination.group.hands_on:
        return None
    if workload.topics.late_partitions or workload.topics.late_topic_partitions:
        raise BadInput(
            f"Trial {trial.name!r}: a retry topic has as many partitions as the topic, which therefore cannot grow; remove "
            'topics.late_partitions and topics.late_topic_partitions, or set "group.on_failure" = "pause".'
        )
    return f"{topic_name}-retry"


GROWING = ("log", "group")
"""Kinds of workload whose topics may grow."""


def _partitions(trial: Trial, workload: WorkloadSpec, topic_name: str) -> list[tuple[str, int, bool]]:
    """(topic, number, is it late?) of each partition of a cell."""
    topics = workload.topics
    if (topics.late_partitions or topics.late_topic_partitions) and workload.kind not in GROWING:
        raise BadInput(
            f"Trial {trial.name!r}: topics of a {workload.kind} workload cannot grow; remove topics.late_partitions and "
            f"topics.late_topic_partitions. Kinds that can: {', '.join(GROWING)}."
        )
    every = topics.partitions + topics.late_partitions
    first = [(topic_name, number, number >= topics.partitions) for number in range(every)]
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
    """The sentinel, then the clients of each workload, then the audit; numbered through."""
    every = tuple(p.partition for p in layout.partitions)
    clients = [PlannedClient(client=SENTINEL_CLIENT, role="sentinel", name="sentinel", partitions=every)]
    for workload, cells, label in zip(trial.workloads, layout.cells_of, _labels(trial), strict=True):
        plan_clients: ClientPlanner = catalogue.resolve(catalogue.WORKLOADS, workload.kind, what="workload")
        prefix = f"{label}-" if label else ""
        clients += _numbered(plan_clients(workload, cells, layout.partitions, prefix), first=len(clients))
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
