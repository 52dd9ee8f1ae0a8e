"""A plan is a trial and a seed made concrete by `prozess.harness.plan.planning`. It is one frozen value, and
`plan.json` is enough to run it again."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from prozess.harness.config.configuration import (
    BOUNDED,
    KEYED,
    TIERED,
    ComposeOptions,
    DeliveryBound,
    IsolationLevel,
    ProducerConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.config.existing_clusters import Adoption, AttachOptions, SshOptions
from prozess.harness.config.messages.planned_names import PlannedNames
from prozess.harness.errors import BadInput
from prozess.harness.plan import catalogue
from prozess.harness.plan.alerts import AlertSpec
from prozess.harness.plan.cell_work import (
    PLAIN,
    WORK_OF_ROLES,
    ApplicationWork,
    CellWork,
    ClientWork,
    ConsumerWork,
    CopierWork,
    GroupWork,
    PlainWork,
    RecordedWork,
    ShareWork,
    TransactionsWork,
)
from prozess.harness.plan.schedule import (
    MESSAGE_FAULT,
    METHOD_FAULT,
    DeleteTopics,
    FaultAction,
    MessagePassed,
    Step,
    selects,
)
from prozess.harness.plan.trial import Limits, Traffic
from prozess.harness.run_directory import RunDirectory, read_document, read_json
from prozess.harness.schema import FORMAT_VERSION, RECORDER_CLIENT, role_named
from prozess.harness.values import Frozen

SENTINEL_CLIENT = 0
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


ReadersBegin = Literal["start", "unstated", "anywhere"]
"""Where consumers begin to read a partition that nobody audits. start: at its beginning, so that whoever read past an offset
was given what stood there. unstated: `reads.flags` has it where it is known. anywhere: at any offset, so that a consumer owes
only what stands between two records of one span of its reading."""
Carrier = Literal["value", "header", "content"]
"""Where a record carries its identity. value: in the fixed header of its value; header: in a record header beside it;
content: nowhere, so only its key and value are compared."""


class Cell(Frozen):
    """One combination of configurations, with a topic of its own. A trial judges each cell by itself."""

    cell: int
    name: str
    workload: str
    topic_name: str
    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    work: CellWork = PLAIN
    partitions: tuple[int, ...]
    """The dense ids of the partitions. They number all partitions of the plan."""
    late_partitions: tuple[int, ...] = ()
    """The partitions among them that a step adds (`add_partitions`, `make_topics`)."""
    derived_topic_name: str | None = None
    """The topic to which a copier copies, or to which a group sends records that failed. None means that producers
    write every topic."""
    derived: tuple[int, ...] = ()
    """The partitions among `partitions` that belong to the derived topic."""
    delivery_bound: DeliveryBound | None = None
    """The promise of the trial about deliveries; None means that there is none."""
    keyed: bool = False
    """Producers leave the choice of a partition to their library, by the record's key."""
    life: int = 0
    """Which topic of its name it has, from 0. A step deletes the one before and makes this one (`make_topics`)."""

    @property
    def group(self) -> GroupWork | None:
        """Returns the consumer group of the cell, if there is one. Copiers are no such group."""
        match self.work:
            case GroupWork():
                return self.work
            case RecordedWork(group=group):
                return group
            case _:
                return None

    @property
    def transaction(self) -> TransactionConfiguration | None:
        """Returns how the producers of the cell write in transactions, if they do."""
        match self.work:
            case TransactionsWork(configuration=configuration):
                return configuration
            case ShareWork(configuration=share):
                return share.transaction
            case RecordedWork(transactions=TransactionsWork(configuration=configuration)):
                return configuration
            case _:
                return None

    @property
    def written(self) -> tuple[int, ...]:
        """Returns the partitions that the producers of the cell write."""
        return tuple(p for p in self.partitions if p not in self.derived)

    @property
    def carriers(self) -> tuple[Carrier, Carrier]:
        """Returns how records carry their identity in the written topic, and in the derived one, where it is the
        identity of the source record."""
        match self.work:
            case RecordedWork():  # values are the application's own
                return "header", "header"
            case ApplicationWork(configuration=application):
                return application.input_carrier, application.output_carrier
            case GroupWork(configuration=group) if group.client == "java":  # VerifiableConsumer prints values as text
                return "header", "header"
            case CopierWork(configuration=copier) if copier.client == "java":
                # TransactionalMessageCopier knows text alone, and copies no headers.
                return "header", "content"
            case _:
                return "value", "value"

    @property
    def delivery(self) -> str | None:
        """Returns how its copiers keep their progress, or say that they do. None if it has no copiers."""
        return self.work.configuration.delivery if isinstance(self.work, CopierWork | ApplicationWork) else None

    @property
    def traits(self) -> frozenset[str]:
        """Returns the kinds of workload whose anomalies are judged in the cell: its own, what its copiers also do, BOUNDED
        where the trial states a delivery bound, TIERED where the topic has tiered storage, and KEYED where a library chooses
        partitions."""
        bounded = () if self.delivery_bound is None else (BOUNDED,)
        tiered = (TIERED,) if self.topic.is_tiered else ()
        keyed = (KEYED,) if self.keyed else ()
        return frozenset({self.workload, *self._traits_of_work(), *bounded, *tiered, *keyed})

    def _traits_of_work(self) -> Iterator[str]:
        match self.work:
            case CopierWork(configuration=copier) if copier.client == "librdkafka" and copier.transactional:
                yield "transactions"
            case ShareWork(configuration=share) if share.transaction is not None:
                yield "transactions"
            case RecordedWork(group=group, transactions=transactions):
                if group is not None:
                    yield "group"
                if transactions is not None:
                    yield "transactions"
            case _:
                pass


class PlannedPartition(Frozen):
    """A Kafka partition of the plan. `assignment` holds broker ids, preferred leader first."""

    partition: int
    topic_name: str
    number: int
    cell: int
    assignment: tuple[int, ...]
    late: bool = False
    """True means that a step adds it."""


class EvidenceGap(Frozen):
    """What an import could not read, or what nobody could have recorded, of some partitions."""

    partitions: tuple[int, ...]
    hides: Literal["sends", "reads", "records", "end"]
    """What may be missing or wrong: what producers were answered, what consumers were given, or both, because nobody knows
    which record is which, or whether it is still there. end: what happened after all that is here."""
    why: str
    """A clause that names the file, the line and the partition."""


class ClientLibrary(Frozen):
    """A client library, and its version. None means the one that prozess runs with, or the variant's."""

    client: Literal["librdkafka", "java"]
    version: str | None = None

    def __str__(self) -> str:
        name = "Kafka's Java client" if self.client == "java" else "librdkafka"
        return name if self.version is None else f"{name} {self.version}"


def _library_of(producer: ProducerConfiguration) -> ClientLibrary | None:
    """Returns a producer's library; None if it is a program of yours."""
    return (
        None if producer.client == "command" else ClientLibrary(client=producer.client, version=producer.client_version)
    )


_OF_ITS_WORK = ("member", "java-member", "copier", "java-copier")
"""Roles whose client is stated by what only their workload has, and not by the producer's configuration."""


class PlannedClient(Frozen):
    """A client that will run, as a process or as a part of one."""

    client: int
    role: str
    """What the client does: "producer", "reader", "audit", "sentinel" and so on."""
    name: str
    partitions: tuple[int, ...]
    traffic: Traffic = Field(default_factory=Traffic)
    producer: ProducerConfiguration | None = None
    isolation_level: IsolationLevel | None = None
    cell: int | None = None
    """The only cell that it serves; None if it serves several."""
    number: int = 1
    """The number of this producer among several that are alike (`Traffic.producers`)."""
    work: ClientWork = PLAIN
    group_id: str | None = None
    transactional_id: str | None = None
    instance: int = 0
    """Its number among its like: members of its group, producers of its cell, instances of its application."""
    late: bool = False
    """True means that it starts when a step says so (`client`, do = "start")."""

    @property
    def command(self) -> tuple[str, ...]:
        """Returns the command line of the program of yours that it is; () if it is none."""
        if isinstance(self.work, ConsumerWork):
            return self.work.configuration.command
        return self.producer.command if self.producer is not None and self.role == "verifiable-producer" else ()

    @property
    def reads_by_command(self) -> bool:
        """Says whether it is a program of yours that consumes: nobody knows at which isolation level it reads, and whether
        it seeks."""
        return isinstance(self.work, ConsumerWork) and bool(self.command)

    @property
    def library(self) -> "ClientLibrary | None":
        """Returns the client library that is on trial in it. None if that is no part of the trial: the client only
        observes, or is an application of yours."""
        match self.work:
            case GroupWork(configuration=configuration) | CopierWork(configuration=configuration) if (
                self.role in _OF_ITS_WORK
            ):
                return ClientLibrary(client=configuration.client, version=configuration.client_version)
            case ShareWork(configuration=configuration):
                return ClientLibrary(client="java", version=configuration.client_version)
            case _ if self.producer is None or self.role == "verifiable-share-consumer" or self.reads_by_command:
                return None
            case _:
                return _library_of(self.producer)

    @property
    def on_standby(self) -> bool:
        """Says whether it does nothing until it is asked to take over its transactional.id."""
        return self.role == "transactor" and self.instance > 0


class Control(Frozen):
    """Cells that are expected to show `anomaly` under the trial's faults. If a required control shows nothing, the
    trial is unknown."""

    anomaly: str
    cells: tuple[int, ...]
    required: bool


class Exclusion(Frozen):
    """A combination that was left out, and why."""

    axes: dict[str, str]
    reason: str


class Plan(Frozen):
    """Everything that a run needs, and what the check and the report need to know of it."""

    format_version: int = FORMAT_VERSION
    origin: Literal["trial", "recorded", "jepsen", "verifiable", "synthetic", "generated"] = "trial"
    """Where the history comes from: a trial of prozess, a test with recorded clients, another program, or `generate`.
    Only a trial can be run again by itself. `generated`: by an earlier `generate`, which did not number batches, count what
    readers read, or write down where audits begin."""
    audited: bool = True
    """True means that there is an audit, which reads all partitions at the end. Without one the log is only what
    acknowledgements and reads reveal, and no verdict can be *held*."""
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
    time_lookups: bool = False
    administrators: int = 0
    alerts: tuple[AlertSpec, ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)
    """Label → why, for the faults of mixes and lists that could not be made where it was planned to run. Nothing is
    known about them."""
    doubts: tuple[str, ...] = ()
    """For a test: why what its clients did cannot be judged as a whole."""
    gaps: tuple[EvidenceGap, ...] = ()
    """What an import could not read of the history. Nothing is *held* of a partition with a gap."""
    readers_begin: ReadersBegin = "start"
    """Where consumers began to read. What stands below is owed to nobody."""
    blind: bool = False
    """True for a test on a cluster of somebody else: neither the nodes' files nor the controllers' log can be read, and
    what only they can show is not judged."""
    decide: tuple[str, ...] = ()
    """The guarantees that were chosen to decide the verdict. Empty means all that can be judged for this origin."""
    replays: str | None = None
    """The run that this one repeats, and whether exactly."""
    compose: ComposeOptions = Field(default_factory=ComposeOptions)
    ssh: SshOptions | None = None
    attach: AttachOptions | None = None
    adopted: Adoption | None = None
    """How the plan was fitted to a cluster that was there before. None means that it was not."""

    @property
    def written(self) -> frozenset[int]:
        """Returns the dense ids of the partitions that our own clients write. Copiers write the others."""
        return frozenset(p for cell in self.cells for p in cell.written)

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Returns the ids of the brokers: 1, 2, … unless the cluster had its own before."""
        ours = tuple(range(1, self.variant.brokers + 1))
        return (self.adopted.broker_ids or ours) if self.adopted is not None else ours

    @property
    def server_names(self) -> dict[int, str]:
        """Returns node id → name for every server, with the brokers' own ids."""
        ids = dict(zip(range(1, self.variant.brokers + 1), self.broker_ids, strict=True))
        names = self.variant.server_names()
        return {ids.get(node, node): f"broker-{ids[node]}" if node in ids else name for node, name in names.items()}

    @property
    def libraries(self) -> tuple[ClientLibrary, ...]:
        """Returns each client library on trial once. Java's always has a version: without another, the variant's."""
        found = (client.library for client in self.clients)
        named = (self.with_version(library) for library in found if library is not None)
        return tuple(dict.fromkeys(named))

    def with_version(self, library: ClientLibrary) -> ClientLibrary:
        """Returns the library with the version of the variant, if it is Java's and has none of its own."""
        if library.client != "java" or library.version is not None:
            return library
        return ClientLibrary(client="java", version=self.variant.kafka_version)

    def java_version(self, planned: PlannedClient) -> str:
        """Returns the version of Kafka whose Java client or tool this client runs."""
        library = planned.library
        other = None if library is None or library.client != "java" else library.version
        return other or self.variant.kafka_version

    @property
    def nodes_unread(self) -> bool:
        """Says whether this is a cluster of somebody else of which neither the nodes' files nor the controllers' log
        can be read."""
        ssh = self.ssh
        unread = ssh is not None and not any((ssh.data_directory, *(node.data_directory for node in ssh.nodes)))
        return self.blind or self.attach is not None or unread

    @property
    def undescribed(self) -> bool:
        """Says whether others may have done something to the cluster meanwhile that nobody could see.

        A test's cluster is its own: only the test makes faults there.
        """
        stated = self.blind or (self.attach is not None and self.attach.others == "none")
        return self.nodes_unread and not stated

    @property
    def names(self) -> PlannedNames:
        """Returns Kafka's names of what the plan numbers: partitions, and the groups and transactional ids of its cells."""
        groups = {c.cell: c.group_id for c in self.clients if c.group_id is not None and c.cell is not None}
        transactional_ids: dict[int, str] = {}
        for client in self.clients:
            if client.transactional_id is not None and client.cell is not None:
                transactional_ids.setdefault(client.cell, client.transactional_id)
        partitions = {partition: name for name, partition in self.recorded.items()}
        return PlannedNames(partitions, groups, transactional_ids)

    @property
    def recorded(self) -> Mapping[tuple[str, int], int]:
        """Returns, for each (topic, number), the dense id that clients and observers write down. It is that of the first
        partition with this name: nobody can say of which topic a record is while the trial runs."""
        return {(p.topic_name, p.number): p.partition for p in reversed(self.partitions)}

    @property
    def nameless(self) -> frozenset[int]:
        """Returns the dense ids that nobody writes down, because an earlier partition has the same name."""
        return frozenset(range(len(self.partitions))).difference(self.recorded.values())

    @property
    def topics_end(self) -> bool:
        """Says whether a step deletes topics."""
        return any(isinstance(step.do, DeleteTopics) for step in self.steps)

    def before(self, partition: int) -> tuple[int, ...]:
        """Returns the partitions of the earlier topics that had the name of this one, in order."""
        own = self.partitions[partition]
        if not self.cells[own.cell].life:
            return ()
        key = (own.topic_name, own.number)
        return tuple(p.partition for p in self.partitions[:partition] if (p.topic_name, p.number) == key)

    @property
    def shares(self) -> dict[int, str]:
        """Returns the group.id of the share group of each partition (dense id) that has one."""
        return {p: c.group_id for c in self.clients if c.role == "share-member" and c.group_id for p in c.partitions}

    @property
    def message_steps(self) -> tuple[Step, ...]:
        """Returns the steps that wait for a message, or do something to messages."""
        return tuple(
            step
            for step in self.steps
            if isinstance(step.after, MessagePassed)
            or (isinstance(step.do, FaultAction) and step.do.fault == MESSAGE_FAULT)
        )

    @property
    def method_steps(self) -> tuple[Step, ...]:
        """Returns the steps that do something to calls of the servers' methods."""
        return tuple(s for s in self.steps if isinstance(s.do, FaultAction) and s.do.fault == METHOD_FAULT)

    @property
    def faults(self) -> tuple[str, ...]:
        """Returns the names of the faults that the schedule makes, each once, in order."""
        return tuple(dict.fromkeys(s.do.fault for s in self.steps if isinstance(s.do, FaultAction)))

    @property
    def cluster_in_words(self) -> str:
        """Returns what the plan is to run on, in words. If the cluster is only attached, nothing but its address is
        known before it is asked."""
        if self.attach is not None:
            return f"Kafka at {', '.join(self.attach.bootstrap_servers)}, as it is there"
        versions = " and ".join(self.variant.kafka_versions)
        return f"Kafka {versions} {self.variant.metadata_mode}, {self.variant.brokers} brokers"

    def cells_matching(self, selector: dict[str, str | tuple[str, ...]]) -> tuple[Cell, ...]:
        """Returns the cells that a selector of the trial file means."""
        return tuple(cell for cell in self.cells if selects(selector, cell.axes))


def read_plan(run: RunDirectory) -> Plan:
    """Reads the plan of a run. HistoryUnreadable if its file is missing or torn; BadInput if it is of another version."""
    try:
        return parse_plan(read_document(run.plan), source=str(run.plan))
    except (OSError, UnicodeDecodeError, BadInput):  # this says what is wrong with the file
        return parse_plan(json.dumps(read_json(run.plan)), source=str(run.plan))


@lru_cache(maxsize=2)
def parse_plan(text: str, *, source: str) -> Plan:
    """Reads a plan from `plan.json`. BadInput if it is not a plan of this version.

    The last ones are kept: each part of a check reads the plan of its run, and there may be thousands of clients in it.
    """
    if (version := _version_in(text)) != FORMAT_VERSION:
        raise BadInput(
            f"{source} has format version {version}; this prozess reads {FORMAT_VERSION}. Use the version of prozess that "
            "wrote it, or run the trial again."
        )
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
    if (impossible := problem_of(plan)) is not None:
        raise BadInput(
            f"{source} is no plan that can be run or checked: {impossible}. Put back the file that was there."
        )
    return plan


def _version_in(text: str) -> object:
    """Returns the version that a plan states, asked first because its other keys have the meaning of that version. What
    cannot inform is taken for a plan of this version, and refused by its keys."""
    try:
        document = from_json(text)
    except ValueError:
        return FORMAT_VERSION
    return document.get("format_version", FORMAT_VERSION) if isinstance(document, dict) else FORMAT_VERSION


# What a plan.json must satisfy beyond its types, so that everything it names exists: somebody may have edited it.


PARTITIONS_END = 2**31
"""One more than the greatest number of a partition. Kafka's protocol numbers partitions in 32 bits."""


def problem_of(plan: "Plan") -> str | None:
    """Returns the first thing in a plan that is impossible, as a sentence with the value and the rule. None if there is
    none."""
    return next(chain(_names(plan), _numbers(plan), _clients(plan), _controls(plan)), None)


def _names(plan: "Plan") -> Iterator[str]:
    if not plan.trial or "/" in plan.trial or plan.trial.startswith(".") or not plan.trial.isprintable():
        yield f"trial = {plan.trial!a} is no name of a trial: it becomes a part of a directory's name"
    if plan.origin == "trial" and plan.backend not in catalogue.BACKENDS:
        yield f"backend = {plan.backend!r} is not known. Known: {', '.join(sorted(catalogue.BACKENDS))}"
    for planned in plan.partitions:
        if not planned.topic_name.isprintable():
            yield f"topic_name = {planned.topic_name!a} has characters that no topic's name has"


def _numbers(plan: "Plan") -> Iterator[str]:
    """Checks the numbers of cells and partitions, because they are found by their index."""
    cells, partitions = range(len(plan.cells)), range(len(plan.partitions))
    if plan.origin == "trial" and not (cells and partitions):  # another program's history may be empty
        yield "it has no cells, or no partitions"
    for index, cell in enumerate(plan.cells):
        if cell.cell != index:
            yield f"cell {cell.cell} stands in place {index}; cells are numbered from 0, in their order"
        yield from _beyond(f"cell {index}: its partitions", cell.partitions, partitions)
        if plan.origin == "trial" and not cell.partitions:
            yield f"cell {index} has no partitions, and no client could do anything in it"
    for index, planned in enumerate(plan.partitions):
        if planned.partition != index:
            yield f"partition {planned.partition} stands in place {index}; partitions are numbered from 0, in their order"
        if not 0 <= planned.number < PARTITIONS_END:
            yield f"partition {index}: number = {planned.number}, and Kafka's are from 0 to {PARTITIONS_END - 1}"
        yield from _beyond(f"partition {index}: its cell", [planned.cell], cells)
        yield from _beyond(f"partition {index}: brokers of its assignment", planned.assignment, range(2**31))


def _clients(plan: "Plan") -> Iterator[str]:
    cells, partitions = range(len(plan.cells)), range(len(plan.partitions))
    ids = [client.client for client in plan.clients]
    if len(set(ids)) < len(ids):
        yield "two clients have the same number"
    for client in plan.clients:
        if "/" in client.name or client.name.startswith(".") or not client.name or not client.name.isprintable():
            yield f"client {client.client}: name = {client.name!a} is no name of a client: files are named after it"
        yield from _beyond("numbers of clients", [client.client], range(RECORDER_CLIENT))
        yield from _beyond(f"client {client.client}: its partitions", client.partitions, partitions)
        yield from _beyond(f"client {client.client}: its cell", [] if client.cell is None else [client.cell], cells)
        try:
            role_named(client.role)
        except KeyError:
            yield f"client {client.client}: role = {client.role!r} is not known"
        if plan.origin == "trial" and client.role == "reader" and client.isolation_level is None:
            yield f"client {client.client}: isolation_level is not given, and a client with the role reader needs one"
        wanted = WORK_OF_ROLES.get(client.role, PlainWork)
        if plan.origin == "trial" and not isinstance(client.work, wanted):
            yield (
                f"client {client.client}: its work is of the kind {client.work.kind}, and a client with the "
                f"role {client.role} needs the kind {wanted.model_fields['kind'].default}"
            )


def _controls(plan: "Plan") -> Iterator[str]:
    for control in plan.controls:
        if control.anomaly not in catalogue.ANOMALIES:
            yield f"controls: anomaly = {control.anomaly!r} is not known"
        yield from _beyond(f"the control of {control.anomaly}: its cells", control.cells, range(len(plan.cells)))


def _beyond(what: str, numbers: Iterable[int], known: range) -> Iterator[str]:
    for number in numbers:
        if number not in known:
            yield f"{what}: {number} is none of {known.start}…{known.stop - 1}" if known else f"{what}: there are none"
