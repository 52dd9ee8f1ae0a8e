"""The plan: a trial and a seed made concrete by `harness.planning`. One frozen value; `plan.json` is enough to run it
again."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationError

from harness import catalogue
from harness.alert_rules import AlertSpec
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
from harness.matrix import Exclusion, selects
from harness.remote_options import Adoption, AttachOptions, SshOptions
from harness.schedule import (
    FaultAction,
    Step,
)
from harness.schema import FORMAT_VERSION
from harness.trial import Limits, Traffic

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
        if self.workload == catalogue.RECORDED:  # values are the application's own
            return "header", "header"
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
        if self.workload == catalogue.RECORDED:
            has = {"group": self.group is not None, "transactions": self.transaction is not None}
            return frozenset({self.workload, *(trait for trait, there in has.items() if there), *bounded})
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
    """A client to be: a process, or its share of one."""

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
    origin: Literal["trial", "recorded", "jepsen", "verifiable", "generated"] = "trial"
    """Where the history comes from: a trial of ours, a test with recorded clients, another program, or a generator. Only a
    trial can be run again by itself."""
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
    """Faults of mixes and lists that cannot be made where it was planned for: label → why. Nothing is known of them."""
    doubts: tuple[str, ...] = ()
    """Of a test: why what its clients did cannot be judged as a whole."""
    blind: bool = False
    """Of a test on somebody else's cluster: neither the nodes' files nor the controllers' log can be read. What only they can
    show is not judged."""
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

    @property
    def cluster_in_words(self) -> str:
        """What it is to run on. Of a cluster that is only attached to nothing but its address is known before it is asked."""
        if self.attach is not None:
            return f"Kafka at {', '.join(self.attach.bootstrap_servers)}, as it is there"
        versions = " and ".join(self.variant.kafka_versions)
        return f"Kafka {versions} {self.variant.metadata_mode}, {self.variant.brokers} brokers"

    def cells_matching(self, selector: dict[str, str | tuple[str, ...]]) -> tuple[Cell, ...]:
        """The cells a selector of the trial file means."""
        return tuple(cell for cell in self.cells if selects(selector, cell.axes))


def parse_plan(text: str, *, source: str) -> Plan:
    """A plan from `plan.json`. BadInput if it is not one of this version."""
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "json_invalid":
            raise BadInput(
                f"{source} is damaged, or half written: it is no JSON. Nothing can be made of this run."
            ) from error
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise BadInput(f"{source} is not a plan of this version: {where}: {problem['msg']}.") from error
    if plan.format_version != FORMAT_VERSION:
        raise BadInput(f"{source} has format version {plan.format_version}; this prozess reads {FORMAT_VERSION}.")
    return plan


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
