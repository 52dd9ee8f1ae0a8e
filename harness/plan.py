"""The plan: a trial and a seed made concrete. One frozen value; `plan.json` is enough to run it again.

Stage one of plan → run → check → report. Pure: no clock, no file, no cluster.
"""

import difflib
import random
from collections.abc import Callable, Collection, Sequence

from pydantic import Field, ValidationError

from harness import catalogue
from harness.alert_rules import AlertSpec
from harness.configuration import (
    CompactionConfiguration,
    Frozen,
    GroupConfiguration,
    IsolationLevel,
    ProducerConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from harness.errors import BadInput
from harness.matrix import Combination, Exclusion, expand, selects
from harness.schedule import (
    Behind,
    ClientAction,
    FaultAction,
    Send,
    Step,
    TakeOver,
    Target,
    client_target,
    draw,
    parse_target,
)
from harness.schema import FORMAT_VERSION
from harness.trial import Limits, Traffic, Trial, WorkloadSpec

FIRST_CONTROLLER_ID = 3001
"""Isolated controllers are numbered from here, as Kafka's own system tests do; brokers from 1."""
SENTINEL_CLIENT = 0
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


class Cell(Frozen):
    """One combination of configurations, with its own topic inside the trial."""

    cell: int
    name: str
    workload: str
    topic_name: str
    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    group: GroupConfiguration | None = None
    transaction: TransactionConfiguration | None = None
    compaction: CompactionConfiguration | None = None
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
    """A client to be: one process."""

    client: int
    role: str
    """producer, reader, audit, sentinel."""
    name: str
    partitions: tuple[int, ...]
    traffic: Traffic = Field(default_factory=Traffic)
    producer: ProducerConfiguration | None = None
    isolation_level: IsolationLevel | None = None
    cell: int | None = None
    """The only cell it serves, where it serves one."""
    number: int = 1
    """Which of several that are alike (`Traffic.producers`)."""
    group: GroupConfiguration | None = None
    group_id: str | None = None
    transaction: TransactionConfiguration | None = None
    transactional_id: str | None = None
    compaction: CompactionConfiguration | None = None
    instance: int = 0
    """Number among its like: member of its group, producer of its cell."""


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
    variant: Variant
    limits: Limits
    settle_s: float
    cells: tuple[Cell, ...]
    excluded: tuple[Exclusion, ...]
    partitions: tuple[PlannedPartition, ...]
    clients: tuple[PlannedClient, ...]
    steps: tuple[Step, ...]
    controls: tuple[Control, ...]
    metrics: bool = True
    alerts: tuple[AlertSpec, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults the schedule makes, each once, in order."""
        return tuple(dict.fromkeys(s.do.fault for s in self.steps if isinstance(s.do, FaultAction)))

    def cells_matching(self, selector: dict[str, str | tuple[str, ...]]) -> tuple[Cell, ...]:
        """The cells a selector of the trial file means."""
        return tuple(cell for cell in self.cells if selects(selector, cell.axes))


def make_plan(trial: Trial, *, seed: int) -> Plan:
    """The plan of a trial. The same trial and seed give the same plan, to the letter."""
    rng = random.Random(seed)
    layout = _Layout()
    for workload in trial.workloads:
        layout.add(trial, workload)
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
        steps=draw(trial.steps, rng),
        controls=_controls(trial, layout.cells),
        metrics=trial.metrics,
        alerts=trial.alerts,
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


ClientPlanner = Callable[[WorkloadSpec, Sequence[Cell], Sequence[PlannedPartition], str], Sequence[PlannedClient]]
"""(workload, its cells, all partitions, prefix of names) → its clients; their ids are given afterwards."""


class _Layout:
    """Cells and partitions as they are numbered through, over all workloads of a trial."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.partitions: list[PlannedPartition] = []
        self.excluded: list[Exclusion] = []
        self.cells_of: list[list[Cell]] = []
        """Per workload of the trial."""

    def add(self, trial: Trial, workload: WorkloadSpec) -> None:
        """The cells of one workload, each with a topic of its own."""
        combinations, excluded = expand(trial, workload)
        varying = [axis for axis, values in workload.axes.items() if len(values) > 1]
        self.excluded += excluded
        self.cells_of.append([self._add(trial, workload, c, varying) for c in combinations])

    def _add(self, trial: Trial, workload: WorkloadSpec, combination: Combination, varying: Sequence[str]) -> Cell:
        number, first = len(self.cells), len(self.partitions)
        topic_name = f"cell-{number:03d}"
        for index in range(workload.topics.partitions):
            self.partitions.append(
                PlannedPartition(
                    partition=first + index,
                    topic_name=topic_name,
                    number=index,
                    cell=number,
                    assignment=_assignment(trial, workload, combination.topic.replication_factor, index),
                )
            )
        words = [f"{axis.partition('.')[2]}_{combination.axes[axis]}" for axis in varying]
        if len(trial.workloads) > 1:
            words.insert(0, workload.kind)
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
            partitions=tuple(range(first, len(self.partitions))),
        )
        self.cells.append(cell)
        return cell


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
    for workload, cells in zip(trial.workloads, layout.cells_of, strict=True):
        plan_clients: ClientPlanner = catalogue.resolve(catalogue.WORKLOADS, workload.kind, what="workload")
        prefix = f"{workload.kind}-" if len(trial.workloads) > 1 else ""
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


def _check_steps(plan: Plan) -> None:
    nodes = {f"broker-{b}" for b in range(1, plan.variant.brokers + 1)}
    if plan.variant.metadata_mode != "kraft-combined":
        nodes |= {f"controller-{FIRST_CONTROLLER_ID + c}" for c in range(plan.variant.controllers)}
    for step in plan.steps:
        if isinstance(step.do, FaultAction):
            _check_targets(plan, step, step.do.targets, nodes)
        if isinstance(step.do, ClientAction):
            _check_client(plan, step, parse_target(client_target(step.do.client)))
        if isinstance(step.after, Behind):
            _check_brokers(plan, step, (step.after.node, *step.after.records))
        if isinstance(step.do, Send) and step.do.producer is not None:
            _check_producer(plan, step, step.do.producer)
        if isinstance(step.do, TakeOver):
            _check_take_over(plan, step, step.do)
        for part in (step.do, step.after):
            selector = getattr(part, "cells", None)
            if selector and not plan.cells_matching(selector):
                raise BadInput(f"Step {step.name!r}: no cell matches {selector}. Use values of `axes`.")


def _check_targets(plan: Plan, step: Step, targets: Sequence[str], nodes: Collection[str]) -> None:
    for text in targets:
        target = parse_target(text)
        if target.partition is not None and target.partition >= len(plan.partitions):
            raise BadInput(
                f"Step {step.name!r}: {text} names partition {target.partition}, but the plan has partitions "
                f"0…{len(plan.partitions) - 1}."
            )
        _check_client(plan, step, target)
        if target.node is not None and target.node not in nodes:
            raise BadInput(f"Step {step.name!r}: there is no node {target.node!r}. Nodes: {', '.join(sorted(nodes))}.")


def _check_brokers(plan: Plan, step: Step, names: Sequence[str]) -> None:
    brokers = [f"broker-{b}" for b in range(1, plan.variant.brokers + 1)]
    for name in names:
        if name not in brokers:
            raise BadInput(f"Step {step.name!r}: there is no broker {name!r}. Brokers: {', '.join(brokers)}.")


def _check_producer(plan: Plan, step: Step, number: int) -> None:
    most = max((client.number for client in plan.clients if client.producer is not None), default=0)
    if number > most:
        raise BadInput(f"Step {step.name!r}: producer = {number}, but there are {most} alike. Raise traffic.producers.")


def _check_take_over(plan: Plan, step: Step, action: TakeOver) -> None:
    chosen = {cell.cell for cell in plan.cells_matching(action.cells)}
    if not any(c.transactional_id is not None and c.instance and c.cell in chosen for c in plan.clients):
        raise BadInput(
            f"Step {step.name!r}: none of its {len(chosen)} cells has producers that could take a transactional.id over. "
            'Set "transaction.standby" = true for them.'
        )


def _check_client(plan: Plan, step: Step, target: Target) -> None:
    """BadInput if a target means a client, a member or a group that the plan does not have."""
    members = [c for c in plan.clients if c.role == "member" and c.cell == target.cell]
    if target.role == "client" and target.client not in (known := [c.name for c in plan.clients]):
        near = difflib.get_close_matches(str(target.client), known, n=3) or known[1:4]
        raise BadInput(f"Step {step.name!r}: there is no client {target.client!r}. Some of them: {', '.join(near)}.")
    if target.role in ("member", "group-coordinator") and not members:
        cells = sorted({c.cell for c in plan.clients if c.role == "member" and c.cell is not None})
        raise BadInput(f"Step {step.name!r}: cell {target.cell} has no group. Cells with one: {cells or 'none'}.")
    transactional = {c.cell for c in plan.clients if c.transactional_id is not None}
    if target.role == "transaction-coordinator" and target.cell not in transactional:
        raise BadInput(f"Step {step.name!r}: cell {target.cell} has no transactional producers. Name one that has.")
    if target.role == "member" and target.instance not in [c.instance for c in members]:
        raise BadInput(
            f"Step {step.name!r}: the group of cell {target.cell} has members 0…{len(members) - 1}, not {target.instance}."
        )
