"""The plan: a trial and a seed made concrete. One frozen value; `plan.json` is enough to run it again.

Stage one of plan → run → check → report. Pure: no clock, no file, no cluster.
"""

import difflib
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field, ValidationError

from harness import catalogue
from harness.alert_rules import AlertSpec
from harness.configuration import FIRST_CONTROLLER_ID as FIRST_CONTROLLER_ID
from harness.configuration import (
    ApplicationConfiguration,
    CompactionConfiguration,
    ComposeOptions,
    CopierConfiguration,
    DeliveryBound,
    Frozen,
    GroupConfiguration,
    IsolationLevel,
    ProducerConfiguration,
    ProvocationConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from harness.errors import BadInput
from harness.matrix import Combination, Exclusion, expand, selects
from harness.mix import expand as expand_mix
from harness.remote_options import Adoption, AttachOptions, SshOptions
from harness.schedule import (
    MEMBERS,
    AddPartitions,
    Behind,
    ClientAction,
    FaultAction,
    Mix,
    Send,
    Step,
    TakeOver,
    Target,
    client_target,
    draw,
    means_client,
    parse_target,
)
from harness.schema import FORMAT_VERSION, Role, role_named
from harness.trial import Limits, Traffic, Trial, WorkloadSpec

SENTINEL_CLIENT = 0
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


class GroupSession(Frozen):
    """How long the coordinator waits for a word of a member, and how often members send one."""

    timeout_ms: int
    heartbeat_ms: int


Carrier = Literal["value", "header", "content"]
"""Where a record's identity is: in the fixed header of its value; in a record header beside it; nowhere: then only its
key and value are compared."""


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
    provocation: ProvocationConfiguration | None = None
    copier: CopierConfiguration | None = None
    application: ApplicationConfiguration | None = None
    partitions: tuple[int, ...]
    """Dense ids."""
    late_partitions: tuple[int, ...] = ()
    """Those of them that a step adds (`add_partitions`)."""
    session: GroupSession | None = None
    """Of the members of its group."""
    derived_topic_name: str | None = None
    """The topic that a copier derives from the other one, or to which a group hands on what failed; None = every topic is
    written by producers."""
    derived: tuple[int, ...] = ()
    """Those of `partitions` that are of the derived topic."""
    delivery_bound: DeliveryBound | None = None
    """What the trial promises of deliveries; None = nothing."""

    @property
    def written(self) -> tuple[int, ...]:
        """Those of `partitions` that the cell's producers write."""
        return tuple(p for p in self.partitions if p not in self.derived)

    @property
    def carriers(self) -> tuple[Carrier, Carrier]:
        """How identity travels in the written topic, and in the derived one (of which it is the origin's)."""
        if self.application is not None:
            return self.application.input_carrier, self.application.output_carrier
        if self.group is not None and self.group.client == "java":  # VerifiableConsumer prints values as text
            return "header", "header"
        # TransactionalMessageCopier knows text alone, and copies no headers.
        java = self.copier is not None and self.copier.client == "java"
        return ("header", "content") if java else ("value", "value")

    @property
    def delivery(self) -> str | None:
        """How its copiers keep their progress, or say they do; None = it has none."""
        if self.copier is not None:
            return self.copier.delivery
        return self.application.delivery if self.application is not None else None

    @property
    def traits(self) -> frozenset[str]:
        """The kinds of workload whose anomalies are judged in it: its own, and what its copiers do besides; and BOUNDED where
        the trial states a delivery bound."""
        recorded = self.copier is not None and self.copier.client == "librdkafka" and self.copier.transactional
        bounded = {catalogue.BOUNDED} if self.delivery_bound is not None else set()
        return frozenset({self.workload, *({"transactions"} if recorded else ()), *bounded})


class PlannedPartition(Frozen):
    """A Kafka partition under trial. `assignment`: broker ids, preferred leader first."""

    partition: int
    topic_name: str
    number: int
    cell: int
    assignment: tuple[int, ...]
    late: bool = False
    """A step adds it."""


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
    provocation: ProvocationConfiguration | None = None
    copier: CopierConfiguration | None = None
    application: ApplicationConfiguration | None = None
    instance: int = 0
    """Number among its like: member of its group, producer of its cell, instance of its application."""
    late: bool = False
    """It starts when a step says so (`client`, do = "start")."""

    @property
    def on_standby(self) -> bool:
        """Does it do nothing until it is told to take its transactional.id over?"""
        return self.role == "transactor" and self.instance > 0


class Control(Frozen):
    """Cells expected to show `anomaly` under the trial's faults. A silent required control makes it unknown."""

    anomaly: str
    cells: tuple[int, ...]
    required: bool


class Plan(Frozen):
    """Everything a run needs."""

    format_version: int = FORMAT_VERSION
    origin: Literal["trial", "jepsen", "verifiable", "generated"] = "trial"
    """Where the history comes from: a trial of ours, another program, or a generator. Only a trial can be run."""
    audited: bool = True
    """Is there an audit? Without one L(p) is what acknowledgements and reads reveal, and nothing can be held."""
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
    left_out: dict[str, str] = Field(default_factory=dict)
    """Faults of mixes that cannot be made where it was planned for: name → why."""
    replays: str | None = None
    """The run that it repeats, and whether exactly."""
    compose: ComposeOptions = Field(default_factory=ComposeOptions)
    ssh: SshOptions | None = None
    attach: AttachOptions | None = None
    adopted: Adoption | None = None
    """How it was fitted to a cluster that was there before; None = it was not."""

    @property
    def written(self) -> frozenset[int]:
        """Dense ids of the partitions that our own clients write; the others are derived by copiers."""
        return frozenset(p for cell in self.cells for p in cell.written)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Of the cluster it is run on: 1, 2, … unless that had its own before."""
        ours = tuple(range(1, self.variant.brokers + 1))
        return (self.adopted.broker_ids or ours) if self.adopted is not None else ours

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the faults the schedule makes, each once, in order."""
        return tuple(dict.fromkeys(s.do.fault for s in self.steps if isinstance(s.do, FaultAction)))

    def cells_matching(self, selector: dict[str, str | tuple[str, ...]]) -> tuple[Cell, ...]:
        """The cells a selector of the trial file means."""
        return tuple(cell for cell in self.cells if selects(selector, cell.axes))


def make_plan(trial: Trial, *, seed: int, lacking: Mapping[str, str] | None = None) -> Plan:
    """The plan of a trial. The same trial and seed give the same plan, to the letter. `lacking`: faults that cannot be made
    where it is to run, with why: mixes do without them."""
    rng = random.Random(seed)
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
        steps=_steps(trial, rng, lacking or {}),
        left_out=_left_out(trial, lacking or {}),
        controls=_controls(trial, layout.cells),
        metrics=trial.metrics,
        alerts=trial.alerts,
        compose=trial.compose,
        ssh=trial.ssh,
        attach=trial.attach,
    )
    _check_steps(plan)
    return plan


def _steps(trial: Trial, rng: random.Random, lacking: Mapping[str, str]) -> tuple[Step, ...]:
    """With every number drawn, and mixes as the steps that they become."""
    drawn = draw(trial.steps, rng)
    expanded = ([s] if not isinstance(s.do, Mix) else expand_mix(s, s.do, rng, lacking=lacking) for s in drawn)
    return tuple(step for steps in expanded for step in steps)


def _left_out(trial: Trial, lacking: Mapping[str, str]) -> dict[str, str]:
    named = [fault.fault for step in trial.steps if isinstance(step.do, Mix) for fault in step.do.faults]
    return {name: lacking[name] for name in dict.fromkeys(named) if name in lacking}


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


HEARTBEAT_MAX_MS = 3_000
"""Default of heartbeat.interval.ms."""


def group_session(group: GroupConfiguration, variant: Variant) -> GroupSession:
    """Of the members, as they are configured; in the consumer protocol as the brokers are, where they set nothing by Kafka's
    defaults. [KIP-848; documentation of 4.3, broker configuration]"""
    if group.protocol == "consumer":
        brokers = variant.properties
        return GroupSession(
            timeout_ms=_ms(brokers, "group.consumer.session.timeout.ms", 45_000),
            heartbeat_ms=_ms(brokers, "group.consumer.heartbeat.interval.ms", 5_000),
        )
    timeout_ms = _ms(group.properties, "session.timeout.ms", group.session_timeout_ms)
    # Well below the session, which Kafka's documentation asks for: at most a third.
    heartbeat_ms = min(HEARTBEAT_MAX_MS, max(1, timeout_ms // 4))
    return GroupSession(
        timeout_ms=timeout_ms, heartbeat_ms=_ms(group.properties, "heartbeat.interval.ms", heartbeat_ms)
    )


def _ms(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default))
    if not text.isdigit():
        raise BadInput(f"{key} = {text!r}: it is a number of milliseconds. Give a whole number.")
    return int(text)


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


def _check_steps(plan: Plan) -> None:
    nodes = _node_names(plan)
    for step in plan.steps:
        _check_action(plan, step, nodes)
        if isinstance(step.after, Behind):
            _check_brokers(plan, step, (step.after.node, *step.after.records))
        for part in (step.do, step.after):
            selector = getattr(part, "cells", None)
            if selector and not plan.cells_matching(selector):
                raise BadInput(f"Step {step.name!r}: no cell matches {selector}. Use values of `axes`.")


def _node_names(plan: Plan) -> set[str]:
    """Of the nodes there will be; empty = only the cluster can tell."""
    if plan.backend == "attach":
        return set()
    if plan.ssh is not None:
        return {node.name for node in plan.ssh.nodes}
    return set(plan.variant.server_names().values())


def _check_action(plan: Plan, step: Step, nodes: Collection[str]) -> None:
    match step.do:
        case FaultAction():
            _check_targets(plan, step, step.do.targets, nodes)
        case ClientAction():
            for name in step.do.client:
                _check_client(plan, step, parse_target(client_target(name)))
                if step.do.do == "stall":
                    _check_stall(plan, step, parse_target(client_target(name)))
        case Send() if step.do.producer is not None:
            _check_producer(plan, step, step.do.producer)
        case TakeOver():
            _check_take_over(plan, step, step.do)
        case AddPartitions() if not any(cell.late_partitions for cell in plan.cells_matching(step.do.cells)):
            raise BadInput(
                f"Step {step.name!r}: its cells have no late partitions. Give topics.late_partitions or "
                "topics.late_topic_partitions."
            )


def _check_targets(plan: Plan, step: Step, targets: Sequence[str], nodes: Collection[str]) -> None:
    for text in targets:
        target = parse_target(text)
        if target.partition is not None and target.partition >= len(plan.partitions):
            raise BadInput(
                f"Step {step.name!r}: {text} names partition {target.partition}, but the plan has partitions "
                f"0…{len(plan.partitions) - 1}."
            )
        _check_client(plan, step, target)
        if why := why_nobody(target, plan.variant):
            raise BadInput(f"Step {step.name!r}: {text} {why}.")
        if target.node is not None and nodes and target.node not in nodes:
            raise BadInput(f"Step {step.name!r}: there is no node {target.node!r}. Nodes: {', '.join(sorted(nodes))}.")


def why_nobody(target: Target, variant: Variant) -> str | None:
    """Why a role of servers can mean none of the variant's; None = it can mean some."""
    counts = Counter(name.partition("-")[0] + "s" for name in variant.server_names().values())
    if variant.metadata_mode == "kraft-combined":
        counts["controllers"] = variant.brokers
    if target.role == "zookeeper-leader" and not counts["zookeepers"]:
        return f'needs metadata_mode = "zookeeper"; the variant\'s is {variant.metadata_mode}'
    if target.role == "rack":
        racks = sorted({rack for b in range(1, variant.brokers + 1) if (rack := variant.rack_of(b))})
        if target.rack not in racks:
            return f"is no rack with a broker. Racks: {', '.join(racks) or 'none; set variant.racks'}"
    if target.of is not None and not 1 <= target.count_of(every := counts[target.of]) <= every:
        return f"is nobody: the variant has {every} {target.of}"
    return None


def _check_brokers(plan: Plan, step: Step, names: Sequence[str]) -> None:
    brokers = sorted(name for name in _node_names(plan) if name.startswith("broker-"))
    for name in names:
        if brokers and name not in brokers:
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


def _check_stall(plan: Plan, step: Step, target: Target) -> None:
    """BadInput if it means a Java member, which cannot be told to stop polling."""
    for client in plan.clients:
        asked = means_client(target, name=client.name, role=client.role, cell=client.cell, instance=client.instance)
        if asked and client.role == "java-member":
            raise BadInput(
                f"Step {step.name!r}: {client.name} is a Java process that polls on its own and cannot stall. Name members "
                'with group.client = "librdkafka", or `pause` it.'
            )


def _check_client(plan: Plan, step: Step, target: Target) -> None:
    """BadInput if a target means a client, a member or a group that the plan does not have."""
    members = [c for c in plan.clients if c.role in MEMBERS and target.cell in (None, c.cell)]
    if target.role == "client" and target.client not in (known := [c.name for c in plan.clients]):
        near = difflib.get_close_matches(str(target.client), known, n=3) or known[1:4]
        raise BadInput(f"Step {step.name!r}: there is no client {target.client!r}. Some of them: {', '.join(near)}.")
    grouped = sorted({c.cell for c in plan.clients if c.group_id is not None and c.cell is not None})
    with_members = sorted({c.cell for c in plan.clients if c.role in MEMBERS and c.cell is not None})
    wanted = {"member": with_members, "group-coordinator": grouped}.get(target.role)
    if wanted is not None and (target.cell not in wanted if target.cell is not None else not wanted):
        named = "the plan" if target.cell is None else f"cell {target.cell}"
        raise BadInput(f"Step {step.name!r}: {named} has no group. Cells with one: {wanted or 'none'}.")
    transactional = {c.cell for c in plan.clients if c.transactional_id is not None}
    if target.role == "transaction-coordinator" and target.cell not in transactional:
        raise BadInput(f"Step {step.name!r}: cell {target.cell} has no transactional producers. Name one that has.")
    if target.role == "producers" and not any(role_named(c.role) is Role.PRODUCER for c in plan.clients):
        raise BadInput(f"Step {step.name!r}: nobody of this plan sends. Name clients that there are.")
    if target.role == "member" and target.instance not in [None, *(c.instance for c in members)]:
        raise BadInput(
            f"Step {step.name!r}: the group of cell {'*' if target.cell is None else target.cell} has members "
            f"0…{max(c.instance for c in members)}, not {target.instance}."
        )
