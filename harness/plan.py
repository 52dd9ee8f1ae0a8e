"""The plan: a trial and a seed made concrete. One frozen value; `plan.json` is enough to run it again.

Stage one of plan → run → check → report. Pure: no clock, no file, no cluster.
"""

import random
from collections.abc import Sequence
from itertools import groupby

from pydantic import ValidationError

from harness.configuration import Frozen, IsolationLevel, ProducerConfiguration, TopicConfiguration, Variant
from harness.errors import BadInput
from harness.matrix import Combination, Exclusion, expand, selects
from harness.schedule import FaultAction, Step, draw, parse_target
from harness.schema import FORMAT_VERSION
from harness.trial import Limits, Traffic, Trial

FIRST_CONTROLLER_ID = 3001
"""Isolated controllers are numbered from here, as Kafka's own system tests do; brokers from 1."""
SENTINEL_CLIENT = 0


class Cell(Frozen):
    """One combination of configurations, with its own topic inside the trial."""

    cell: int
    name: str
    topic_name: str
    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    partitions: tuple[int, ...]
    """Dense ids."""


class PlannedPartition(Frozen):
    """A Kafka partition under trial. `assignment`: broker ids, preferred leader first."""

    partition: int
    topic_name: str
    number: int
    cell: int
    assignment: tuple[int, ...]


class PlannedClient(Frozen):
    """A client to be: one process. Producers serve every cell with the same configuration and the same fate."""

    client: int
    role: str
    """producer, reader, audit, sentinel."""
    name: str
    partitions: tuple[int, ...]
    producer: ProducerConfiguration | None = None
    isolation_level: IsolationLevel | None = None


class Control(Frozen):
    """Cells expected to show `anomaly` under the trial's faults. A silent required control makes it unknown."""

    anomaly: str
    cells: tuple[int, ...]
    required: bool


class Plan(Frozen):
    """Everything a run needs."""

    format_version: int = FORMAT_VERSION
    trial: str
    title: str
    scenarios: tuple[str, ...]
    seed: int
    backend: str
    workload: str
    variant: Variant
    traffic: Traffic
    limits: Limits
    settle_s: float
    cells: tuple[Cell, ...]
    excluded: tuple[Exclusion, ...]
    partitions: tuple[PlannedPartition, ...]
    clients: tuple[PlannedClient, ...]
    steps: tuple[Step, ...]
    controls: tuple[Control, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults the schedule makes, each once, in order."""
        return tuple(dict.fromkeys(s.do.fault for s in self.steps if isinstance(s.do, FaultAction)))

    def cells_matching(self, selector: dict[str, str | tuple[str, ...]]) -> tuple[Cell, ...]:
        """The cells a selector of the trial file means."""
        return tuple(cell for cell in self.cells if selects(selector, cell.axes))


def make_plan(trial: Trial, *, seed: int) -> Plan:
    """The plan of a trial. The same trial and seed give the same plan, to the letter."""
    combinations, excluded = expand(trial)
    rng = random.Random(seed)
    cells, partitions = _lay_out(trial, combinations)
    plan = Plan(
        trial=trial.name,
        title=trial.title,
        scenarios=trial.scenarios,
        seed=seed,
        backend=trial.backend,
        workload=trial.workload,
        variant=trial.variant,
        traffic=trial.traffic,
        limits=trial.limits,
        settle_s=trial.settle_s,
        cells=cells,
        excluded=excluded,
        partitions=partitions,
        clients=_clients(trial, cells, partitions),
        steps=draw(trial.steps, rng),
        controls=_controls(trial, cells),
    )
    _check_steps(plan)
    return plan


def parse_plan(text: str, *, source: str) -> Plan:
    """A plan from `plan.json`. BadInput if it is not one of this version."""
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise BadInput(f"{source} is not a plan of this version: {where}: {problem['msg']}.") from error
    if plan.format_version != FORMAT_VERSION:
        raise BadInput(f"{source} has format version {plan.format_version}; this prozess reads {FORMAT_VERSION}.")
    return plan


def _lay_out(
    trial: Trial, combinations: Sequence[Combination]
) -> tuple[tuple[Cell, ...], tuple[PlannedPartition, ...]]:
    varying = [axis for axis, values in trial.axes.items() if len(values) > 1]
    cells: list[Cell] = []
    partitions: list[PlannedPartition] = []
    for number, combination in enumerate(combinations):
        topic_name = f"cell-{number:03d}"
        ids = tuple(range(len(partitions), len(partitions) + trial.topics.partitions))
        for index, partition in enumerate(ids):
            assignment = _assignment(trial, combination.topic.replication_factor, index)
            partitions.append(
                PlannedPartition(
                    partition=partition,
                    topic_name=topic_name,
                    number=index,
                    cell=number,
                    assignment=assignment,
                )
            )
        name = "-".join(f"{axis.partition('.')[2]}_{combination.axes[axis]}" for axis in varying) or trial.name
        cells.append(
            Cell(
                cell=number,
                name=name,
                topic_name=topic_name,
                axes=combination.axes,
                topic=combination.topic,
                producer=combination.producer,
                partitions=ids,
            )
        )
    return tuple(cells), tuple(partitions)


def _assignment(trial: Trial, replication_factor: int, index: int) -> tuple[int, ...]:
    brokers = trial.variant.brokers
    if not trial.topics.placement:
        return tuple((index + shift) % brokers + 1 for shift in range(replication_factor))
    placed = trial.topics.placement[index % len(trial.topics.placement)]
    if len(placed) < replication_factor or len(set(placed)) < len(placed) or max(placed) > brokers:
        raise BadInput(
            f"topics.placement {list(placed)} must name at least replication.factor={replication_factor} different "
            f"brokers out of 1…{brokers}."
        )
    return placed[:replication_factor]


def _clients(trial: Trial, cells: Sequence[Cell], partitions: Sequence[PlannedPartition]) -> tuple[PlannedClient, ...]:
    every = tuple(p.partition for p in partitions)
    clients = [PlannedClient(client=SENTINEL_CLIENT, role="sentinel", name="sentinel", partitions=every)]

    def fate(cell: Cell) -> str:
        placement = [partitions[p].assignment for p in cell.partitions]
        return f"{cell.producer.model_dump_json()} {cell.topic.model_dump_json()} {placement}"

    for _, group in groupby(sorted(cells, key=fate), key=fate):
        served = tuple(group)
        clients.append(
            PlannedClient(
                client=len(clients),
                role="producer",
                name=f"producer-{served[0].name}",
                partitions=tuple(sorted(p for cell in served for p in cell.partitions)),
                producer=served[0].producer,
            )
        )
    for role in ("reader", "audit"):
        levels = trial.isolation_levels if role == "reader" else ("read_uncommitted", "read_committed")
        for level in levels:
            clients.append(
                PlannedClient(
                    client=len(clients),
                    role=role,
                    name=f"{role}-{level}",
                    partitions=every,
                    isolation_level=level,
                )
            )
    return tuple(clients)


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


def _check_steps(plan: Plan) -> None:
    nodes = {f"broker-{b}" for b in range(1, plan.variant.brokers + 1)}
    if plan.variant.metadata_mode != "kraft-combined":
        nodes |= {f"controller-{FIRST_CONTROLLER_ID + c}" for c in range(plan.variant.controllers)}
    for step in plan.steps:
        if isinstance(step.do, FaultAction):
            for text in step.do.targets:
                target = parse_target(text)
                if target.partition is not None and target.partition >= len(plan.partitions):
                    raise BadInput(
                        f"Step {step.name!r}: {text} names partition {target.partition}, but the plan has partitions "
                        f"0…{len(plan.partitions) - 1}."
                    )
                if target.node is not None and target.node not in nodes:
                    raise BadInput(
                        f"Step {step.name!r}: there is no node {target.node!r}. Nodes: {', '.join(sorted(nodes))}."
                    )
        selector = getattr(step.do, "cells", None) or getattr(step.after, "cells", None)
        if selector and not plan.cells_matching(selector):
            raise BadInput(f"Step {step.name!r}: no cell matches {selector}. Use values of `axes`.")
