"""The trial: everything that a person may write in a trial file, as one frozen value."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from prozess.harness.config.configuration import (
    ComposeOptions,
    Count,
    DeliveryBound,
    IsolationLevel,
    Limit,
    MetadataMode,
    Pause,
    Variant,
)
from prozess.harness.config.existing_clusters import AttachOptions, SshOptions
from prozess.harness.plan.alerts import AlertSpec
from prozess.harness.plan.exhibit import Exhibit
from prozess.harness.plan.schedule import Selector, Step
from prozess.harness.values import Frozen

PARTITIONS_MAX = 10_000
"""How many partitions a topic may have: far more than three brokers on one machine can serve, and few enough to be
planned."""


class Traffic(Frozen):
    """Describes what the clients of a trial do while nobody stops them."""

    rate_hz: Annotated[float, Field(gt=0, le=1_000_000)] = 20.0
    """How many records per second each producer sends to each partition."""
    value_bytes: Annotated[int, Field(ge=64, le=1_000_000)] = 100
    """How many bytes the value of each record has."""
    unacknowledged_max: Count = 5_000
    """How many records of one partition may wait for their acknowledgement. What exceeds it is withheld, so that a dead
    partition cannot starve the others."""
    producers: Annotated[int, Field(ge=1, le=1_000)] = 1
    """How many producers each configuration has.

    They are alike except for their connections. A broker handles the requests of one connection one after the other, so
    with acks=all nothing overtakes what waits for followers.
    """


class Topics(Frozen):
    """The topics of every cell."""

    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] = 2
    """How many partitions each topic has when the trial begins."""
    placement: tuple[tuple[PositiveInt, ...], ...] = ()
    """The broker ids of partition 0, 1, … (repeated), preferred leader first. Empty means that partitions are spread
    over the brokers."""
    late_partitions: Annotated[int, Field(ge=0, le=PARTITIONS_MAX)] = 0
    """How many partitions a step adds to each topic (`add_partitions`)."""
    late_topic_partitions: Annotated[int, Field(ge=0, le=PARTITIONS_MAX)] = 0
    """How many partitions the second topic of each cell has, which the same step creates as NAME-late. 0 means that
    there is none."""


class Limits(Frozen):
    """Says how long each part of a run may take."""

    ready_s: Limit = 90.0
    """Until the cluster is up and every broker answers."""
    topics_s: Limit = 60.0
    """Until all topics are there and have leaders."""
    warm_up_s: Limit = 90.0
    """Until every client has done its work once, before the first step."""
    heal_s: Limit = 90.0
    """Until everything is healed and every replica is in sync again."""
    drain_s: Limit = 75.0
    """Until readers and members have read what is in the log."""
    audit_s: Limit = 90.0
    """Until the audits have read every partition from its start to its end."""


class Exclude(Frozen):
    """Combinations that the author of the trial does not want, and why."""

    when: Selector
    """Which combinations: `{ "producer.acks" = "0" }`, a list of values, or several settings that must all agree."""
    reason: Annotated[str, Field(min_length=1)]
    """Why they are left out. `prozess plan` prints it."""


class ControlSpec(Frozen):
    """Cells that are expected to show an anomaly. They prove that the trial could have seen it."""

    anomaly: str
    """The anomaly that these cells must show."""
    cells: Selector
    """Which cells, by their settings. They must permit the anomaly."""


class Share(Frozen):
    """One of several parts of a workload's cells, about equally large. Cells that one producer serves stay together."""

    part: Annotated[int, Field(ge=0)]
    """Which part, counted from 0."""
    of: PositiveInt
    """Into how many parts the cells are divided."""


class WorkloadSpec(Frozen):
    """One kind of client activity, with its own matrix of cells. Axes are `scope.key` = list of values."""

    kind: str
    """The kind of workload, such as `log`, `group`, `transactions`."""
    traffic: Traffic = Field(default_factory=Traffic)
    """What the clients do while nobody stops them."""
    topics: Topics = Field(default_factory=Topics)
    """The topics of every cell."""
    base: dict[str, Any] = Field(default_factory=dict)
    """The settings of every cell: `scope.key` = value."""
    axes: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """The settings that vary: `scope.key` = list of values. The value "default" leaves the setting to Kafka, or to
    prozess."""
    exclude: tuple[Exclude, ...] = ()
    """Combinations that are left out on purpose, beside those that Kafka refuses."""
    strength: Literal["full", 2, 3] = "full"
    """Which combinations of the axes become cells. full: every valid one; 2 or 3: as few as contain every valid pair,
    or triple, of values."""
    share: Share | None = None
    """Which part of the cells is used; None means all of them."""
    isolation_levels: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
    """The isolation levels at which one tailing reader each reads all cells of the workload."""
    delivery: DeliveryBound | None = None
    """The promise about deliveries in every cell, as `delivery.…` in `base` would state it. None means that there is
    none."""


class Trial(Frozen):
    """Everything that a trial file may say. A trial with a single workload may write that workload's keys at the top
    level, with `workload` for its kind."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=100)]
    """What runs of it are called. Lower case, digits and hyphens."""
    title: str
    """What it shows, in one sentence."""
    scenarios: tuple[str, ...] = ()
    """The numbers of the scenarios that it runs ([scenarios.md](scenarios.md))."""
    expects: Literal["held", "violated"] = "held"
    """The verdict that the author expects: "violated" for a trial that shows a known defect."""
    decide: tuple[str, ...] = ()
    """The guarantees that decide the verdict, as for `--decide`; with `server-errors`, so do the servers' complaints. Empty
    means all that can be judged."""
    exhibit: Exhibit | None = None
    """The known defect that it shows in the museum (`prozess museum`)."""
    side_by_side: tuple[MetadataMode, ...] = ()
    """The metadata modes on each of which `prozess scenarios` runs the trial. Empty means only its own variant."""
    backend: str = "local"
    """Where Kafka runs: `local`, `compose`, `ssh`, `attach`, or one of another package ([clusters.md](clusters.md))."""
    control: Literal["required", "optional"] = "optional"
    """Whether the trial must have cells that show what the others are to be free of."""
    controls: tuple[ControlSpec, ...] = ()
    """Those cells, by anomaly."""
    variant: Variant = Field(default_factory=Variant)
    """The cluster: its version, metadata mode, brokers and their settings."""
    compose: ComposeOptions = Field(default_factory=ComposeOptions)
    """Options that only the compose backend has."""
    limits: Limits = Field(default_factory=Limits)
    """How long each part may take."""
    workloads: Annotated[tuple[WorkloadSpec, ...], Field(min_length=1)]
    """What clients do, each kind with its own cells."""
    steps: tuple[Step, ...] = ()
    """What happens, and when."""
    settle_s: Pause = 1.0
    """How long traffic goes on after the last step and the healing."""
    metrics: bool = True
    """True means that metrics of servers and clients are sampled while the trial runs."""
    time_lookups: bool = False
    """True means that leaders are asked for the first record since some time, again and again. It needs `metrics`."""
    administrators: Annotated[int, Field(ge=0, le=16)] = 0
    """How many administrators make, delete, alter and describe topics of their own beside the clients, all the time."""
    alerts: tuple[AlertSpec, ...] = ()
    """Alerts of yours that the recorded metrics are to fire, or not."""
    ssh: SshOptions | None = None
    """Options that only the ssh backend has."""
    attach: AttachOptions | None = None
    """Options that only the attach backend has."""

    @model_validator(mode="after")
    def _found(self) -> "Trial":
        if self.backend == "attach" and self.attach is None:
            raise ValueError(
                'backend = "attach" needs to know where the cluster is: [attach] with bootstrap_servers = ["HOST:PORT"]'
            )
        if self.backend == "ssh" and self.ssh is None:
            raise ValueError('backend = "ssh" needs to know the machines: [[ssh.nodes]] with id and host of each')
        return self


SCENARIOS: Mapping[str, str] = {
    "A0": "no fault, and every fault, with the safest settings: nothing forbidden",
    "A1": "order within a partition",
    "A2": "committed means written to every replica in sync",
    "A3": "committed records survive while one replica that was in sync lives",
    "A4": "consumers are given committed records only",
    "B1": "one, two, three copies: brokers down, a disk wiped",
    "B2": "all copies in one rack, or spread over racks",
    "B3": "unclean elections off: offline until a replica in sync is back",
    "B4": "unclean elections on: available, and losses",
    "B5": "followers out of sync because they crashed, or because they are slow",
    "B6": "min.insync.replicas 2 of 3 with one and with two down",
    "B7": "min.insync.replicas 1, the last replica in sync loses its disk",
    "B8": "session timeouts and the time to a new leader",
    "B9": "replica.lag.time.max.ms and followers that pause",
    "B10": "power loss, with flush.messages and without",
    "B11": "a leader that lives but is not heard: fenced, no second writer",
    "C1": "acks=1, and the leader dies before its followers have fetched",
    "C2": "acks=all without retries during an election",
    "C3": "acks=0 with the cluster down",
    "C4": "retries, and outages longer and shorter than delivery.timeout.ms",
    "C5": "the answer is lost, the request was written",
    "C6": "idempotence with five requests in flight",
    "C7": "errors that no retry heals reach the caller",
    "C8": "a restarted producer sends again",
    "C9": "rolling restart of producers",
    "D1": "commit before processing, and a crash",
    "D2": "commit after processing, and a crash",
    "D3": "automatic commits, crashes and rebalances",
    "D4": "auto.offset.reset",
    "D5": "everything that starts a rebalance",
    "D6": "the eager, cooperative and consumer protocols",
    "D7": "static membership",
    "D8": "rolling restart of consumers",
    "D9": "commit when partitions are revoked, or not",
    "D10": "consumers that try again: pause, retry topic",
    "D11": "the group coordinator is killed",
    "E1": "M1 to M4 on three replicas, acks=all",
    "E2": "M1 to M4 on three replicas, acks=1",
    "E3": "the old leader returns and truncates",
    "E4": "failover after failover",
    "E5": "reassignment, replication factor, preferred leaders under load",
    "E6": "segments roll, retention and compaction under faults",
    "F1": "the active controller is killed, paused, restarted",
    "F2": "the controllers lose a minority, and the majority",
    "F3": "ZooKeeper loses a server, its leader, the majority",
    "F4": "the same trial on every metadata mode",
    "F5": "migration from ZooKeeper to KRaft",
    "F6": "rolling upgrade, mixed versions",
    "F7": "controlled shutdown against a crash",
    "G1": "atomic writes to several partitions",
    "G2": "zombies of a transactional.id",
    "G3": "the transaction coordinator is killed",
    "G4": "transactions time out",
    "G5": "consume, process, produce: exactly once",
    "G6": "what brokers know of producers survives them",
    "G7": "delayed EndTxn and Produce, transaction versions 1 and 2",
    "H1": "a client loses its connection to one broker",
    "H2": "high latency between client and broker",
    "H3": "a full disk",
    "H4": "a disk that hangs",
    "H5": "leader elections, one and many",
    "H6": "rolling restart of brokers",
    "H7": "everything at once",
    "H8": "a user's own application",
    "H9": "metrics and alerts",
    "H10": "counts and latency over time",
    "H11": "high traffic",
    "J1": "retention by time and by size together",
    "J2": "cleanup.policy=compact,delete",
    "J3": "topics are deleted, made again and grow, under load",
    "J4": "the partition of a key: partitioners alike and unlike, and partitions that are added",
    "J5": "every assignor of Kafka's: each partition has one owner, and each member its share",
    "J7": "full buffers of producers and of brokers",
    "J9": "timestamps, look-ups by time, and wrong clocks of clients",
    "J11": "compression by producers, topics and brokers, and what is read is what was sent",
    "J14": "how much a consumer fetches at a time",
}
"""Number of a scenario → what it is about."""


def covered(trials: Iterable[Trial]) -> dict[str, list[str]]:
    """Returns number → names of the trials that run the scenario. A scenario that no trial runs has an empty list."""
    found: dict[str, list[str]] = {number: [] for number in SCENARIOS}
    for trial in trials:
        for number in trial.scenarios:
            found.setdefault(number, []).append(trial.name)
    return found
