"""Builds trials in Python: everything that a trial file may say, with names that an editor completes.

    import prozess
    from prozess import trials

    mine = trials.trial(
        "mine",
        trials.workload(settings=[trials.topic(min_insync_replicas=2)], axes={"producer.acks": ["1", "all"]}),
        title="Our topic settings while a follower is cut off",
        steps=[
            trials.step(
                "cut a follower off",
                trials.fault("partition", "followers(0)", others="all"),
                after=trials.elapsed(seconds=5),
            ),
            trials.step("heal", trials.heal(), after=trials.elapsed(seconds=10)),
        ],
    )
    run = prozess.run(mine)

A trial that is built here equals the one that the same TOML gives. Every function raises BadInput for what a trial file would
be refused for. docs/python.md shows how they are used, and docs/faults.md and docs/workloads.md say what each name means.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from prozess.harness.config.configuration import (
    ApplicationConfiguration,
    CompactionConfiguration,
    ComposeOptions,
    ComposeService,
    ConsumerConfiguration,
    CopierConfiguration,
    DeliveryBound,
    GroupConfiguration,
    IsolationLevel,
    MetadataMode,
    ProducerConfiguration,
    ProvocationConfiguration,
    ShareConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.config.existing_clusters import AttachOptions, SshOptions
from prozess.harness.config.messages.match import MessageMatch
from prozess.harness.errors import BadInput
from prozess.harness.plan import catalogue
from prozess.harness.plan.alerts import AlertSpec
from prozess.harness.plan.expectations import (
    BehindExpected,
    ControllerExpected,
    EndsExpected,
    Expectation,
    IsrExpected,
    LeaderExpected,
    MarkersExpected,
    MessageExpected,
    RemovedExpected,
    SendsExpected,
    TruncatedExpected,
)
from prozess.harness.plan.schedule import (
    Acked,
    AddPartitions,
    AlterTopics,
    Behind,
    Between,
    ClientAction,
    DeleteRecords,
    DeleteTopics,
    Each,
    Elapsed,
    FaultAction,
    HealAction,
    Inspect,
    IsrIs,
    LeaderMoved,
    MakeTopics,
    MessagePassed,
    Mix,
    MixFault,
    Offline,
    PauseSends,
    ResumeSends,
    Send,
    Settled,
    StallAction,
    Step,
    TakeOver,
    Unfenced,
)
from prozess.harness.plan.trial import ControlSpec, Exclude, Limits, Share, Topics, Traffic, Trial, WorkloadSpec
from prozess.harness.plan.trial_files import known_trials, load_trial, parse_trial

P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)

Settings = (
    TopicConfiguration
    | ProducerConfiguration
    | GroupConfiguration
    | ShareConfiguration
    | TransactionConfiguration
    | CompactionConfiguration
    | ProvocationConfiguration
    | ConsumerConfiguration
    | CopierConfiguration
    | ApplicationConfiguration
    | DeliveryBound
)
"""The settings of one part of a cell: of its topic, its producer, its group and so on."""
Condition = Elapsed | Acked | Settled | LeaderMoved | Offline | IsrIs | Unfenced | Behind | MessagePassed
"""What a step waits for before it begins."""
Action = (
    FaultAction
    | HealAction
    | Mix
    | Each
    | PauseSends
    | ResumeSends
    | Send
    | Inspect
    | ClientAction
    | StallAction
    | TakeOver
    | AddPartitions
    | DeleteRecords
    | DeleteTopics
    | MakeTopics
    | AlterTopics
)
"""What a step does."""
WorkloadName = Literal[
    "log",
    "group",
    "compaction",
    "transactions",
    "verifiable",
    "verifiable-share",
    "share",
    "errors",
    "exactly-once",
    "application",
]
"""The kinds of workload that come with prozess."""
FaultName = Literal[
    "kill", "stop", "pause", "partition", "loss", "latency", "late-connections", "bandwidth", "message", "method",
    "reset", "half-open",
    "elect-preferred", "elect-unclean", "reassign", "configure", "move-controller", "rolling-restart", "upgrade", "migrate",
    "finalize-features", "restart-clients", "rebalance-storm", "duplicate-member", "disk-full", "clock", "client-clock",
    "disk-slow", "disk-hang", "disk-error", "wipe", "corrupt-file", "power-loss", "store-away", "harm-object",
]  # fmt: skip
"""The faults that come with prozess."""
_SCOPES: dict[type[BaseModel], str] = {
    TopicConfiguration: "topic",
    ProducerConfiguration: "producer",
    GroupConfiguration: "group",
    ShareConfiguration: "share_group",
    TransactionConfiguration: "transaction",
    CompactionConfiguration: "compaction",
    ProvocationConfiguration: "provocation",
    ConsumerConfiguration: "consumer",
    CopierConfiguration: "copier",
    ApplicationConfiguration: "application",
    DeliveryBound: "delivery",
}
"""How the keys of each settings begin in a trial file."""


def _builder(model: Callable[P, M], what: str) -> Callable[P, M]:
    """Returns a function with the parameters of a model, which raises BadInput where the model raises ValidationError."""

    @wraps(model)
    def build(*args: P.args, **kwargs: P.kwargs) -> M:
        try:
            return model(*args, **kwargs)
        except ValidationError as error:
            raise _bad(what, error) from None

    return build


def _bad(what: str, error: ValidationError) -> BadInput:
    problems = []
    for problem in error.errors():
        where = ".".join(map(str, problem["loc"])) or what
        if problem["type"] == "missing":
            problems.append(f"{where} is missing.")
        elif problem["type"] == "extra_forbidden":
            problems.append(f"{where} is not known.")
        else:
            problems.append(f"{where} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}.")
    return BadInput(f"{what}: {' '.join(problems)}")


# Settings of cells. What is not given is left to prozess, or to Kafka.

topic = _builder(TopicConfiguration, "topic")
"""Returns settings of the topics of the cells, `topic.…` in a trial file."""
producer = _builder(ProducerConfiguration, "producer")
"""Returns settings of the producers, `producer.…` in a trial file."""
group = _builder(GroupConfiguration, "group")
"""Returns settings of a consumer group, `group.…` in a trial file, for workloads of kind "group"."""
share_group = _builder(ShareConfiguration, "share_group")
"""Returns settings of a share group, `share_group.…` in a trial file, for workloads of kind "share"."""
transaction = _builder(TransactionConfiguration, "transaction")
"""Returns settings of transactions, `transaction.…` in a trial file, for workloads of kind "transactions"."""
compaction = _builder(CompactionConfiguration, "compaction")
"""Returns what is written to compacted topics, `compaction.…` in a trial file."""
provocation = _builder(ProvocationConfiguration, "provocation")
"""Returns which error is provoked, `provocation.…` in a trial file, for workloads of kind "errors"."""
consumer = _builder(ConsumerConfiguration, "consumer")
"""Returns who consumes, `consumer.…` in a trial file, for workloads of kind "verifiable"."""
copier = _builder(CopierConfiguration, "copier")
"""Returns settings of what copies records from topic to topic, `copier.…` in a trial file."""
application = _builder(ApplicationConfiguration, "application")
"""Returns how your own application is started, `application.…` in a trial file."""
delivery = _builder(DeliveryBound, "delivery")
"""Returns a promise about how soon records are delivered, `delivery.…` in a trial file."""

# The cluster, and the rest that a trial has once.

variant = _builder(Variant, "variant")
"""Returns which cluster is started: its metadata mode, version of Kafka, brokers and their properties."""
traffic = _builder(Traffic, "traffic")
"""Returns how fast producers send, and how large their records are."""
topics = _builder(Topics, "topics")
"""Returns how many partitions the topic of each cell has, and where they are."""
limits = _builder(Limits, "limits")
"""Returns how long each part of a run may take."""
control = _builder(ControlSpec, "control")
"""Returns which cells are expected to show an anomaly, which proves that the trial could have seen it."""
exclude = _builder(Exclude, "exclude")
"""Returns combinations that you do not want, with the reason."""
share = _builder(Share, "share")
"""Returns which part of a workload's cells is used."""
alert = _builder(AlertSpec, "alert")
"""Returns an alert over the metrics that are recorded: when it must fire, and when not."""
compose = _builder(ComposeOptions, "compose")
"""Returns options of the compose backend."""
compose_service = _builder(ComposeService, "compose_service")
"""Returns what prozess must know of a service of your own Compose file."""
ssh = _builder(SshOptions, "ssh")
"""Returns options of the ssh backend."""
attach = _builder(AttachOptions, "attach")
"""Returns options of the attach backend."""

# Conditions: what a step waits for before it begins.

between = _builder(Between, "between")
"""Returns a number that the seed draws, for `elapsed`."""
elapsed = _builder(Elapsed, "elapsed")
"""Waits until so many `seconds` have passed since the previous step was done."""
acked = _builder(Acked, "acked")
"""Waits until each partition has `count` more acknowledgements."""
settled = _builder(Settled, "settled")
"""Waits until no send is in flight."""
leader_moved = _builder(LeaderMoved, "leader_moved")
"""Waits until a partition has a new leader."""
offline = _builder(Offline, "offline")
"""Waits until a partition has no leader."""
isr = _builder(IsrIs, "isr")
"""Waits until the ISR of a partition is exactly these brokers. Without `brokers`: all replicas."""
unfenced = _builder(Unfenced, "unfenced")
"""Waits until a node's own view is current again."""
behind = _builder(Behind, "behind")
"""Waits until replicas lag by so many records."""

message = _builder(MessagePassed, "message")
"""Waits until a message of Kafka's protocol passes, and holds it until the step has been done."""
match = _builder(MessageMatch, "match")
"""Returns which messages are meant, for `message` and for the fault "message"."""

# Expectations: what must have come of a step.

expect_message = _builder(MessageExpected, "expect_message")
"""Something was done to messages that the step means."""
expect_leader = _builder(LeaderExpected, "expect_leader")
"""Names who leads a partition: give `node`, `moved` or `nobody`."""
expect_controller = _builder(ControllerExpected, "expect_controller")
"""Whether another node becomes the active controller: give `moved`."""
expect_isr = _builder(IsrExpected, "expect_isr")
"""Which brokers are in sync."""
expect_truncated = _builder(TruncatedExpected, "expect_truncated")
"""A replica later lost records from its end that it has at this `inspect`."""
expect_behind = _builder(BehindExpected, "expect_behind")
"""At most this many records of one replica are missing in another one at this `inspect`."""
expect_ends = _builder(EndsExpected, "expect_ends")
"""At most this many commits and aborts are answered, in each cell with transactions."""
expect_sends = _builder(SendsExpected, "expect_sends")
"""At most this many sends are acknowledged, or fail, in each partition."""
expect_markers = _builder(MarkersExpected, "expect_markers")
"""At most this many transaction markers are written to a partition."""
expect_removed = _builder(RemovedExpected, "expect_removed")
"""Retention has removed at most this many offsets from the start of each partition by the end of the run."""

# Actions: what a step does.

heal = _builder(HealAction, "heal")
"""Undoes the fault of the step with the name `step`. Without it: every fault so far."""
mix = _builder(Mix, "mix")
"""Makes faults at random for a while."""
each = _builder(Each, "each")
"""Makes every one of these faults once, in an order that the seed draws."""
one_fault = _builder(MixFault, "one_fault")
"""Returns one fault that `mix` or `each` may make."""
pause_sends = _builder(PauseSends, "pause_sends")
"""Stops producers from sending new records."""
resume_sends = _builder(ResumeSends, "resume_sends")
"""Lets producers send again at their rate."""
send = _builder(Send, "send")
"""Sends `count` records at once to each partition, while producers are paused."""
inspect = _builder(Inspect, "inspect")
"""Records what every replica holds, by its own files."""
client = _builder(ClientAction, "client")
"""Stops or starts planned clients."""
stall = _builder(StallAction, "stall")
"""Stalls members of groups: they do not poll."""
take_over = _builder(TakeOver, "take_over")
"""Lets the standby of each transactional.id take the id over."""
add_partitions = _builder(AddPartitions, "add_partitions")
"""Creates the late partitions and topics."""
delete_records = _builder(DeleteRecords, "delete_records")
"""Deletes all but the last `keep` records of every partition."""
delete_topics = _builder(DeleteTopics, "delete_topics")
"""Deletes topics, under the clients that use them."""
make_topics = _builder(MakeTopics, "make_topics")
"""Makes deleted topics again: other topics with the same names."""
alter_topics = _builder(AlterTopics, "alter_topics")
"""Sets retention, segments or the cleanup policy of topics for good, under the clients that use them."""


def fault(name: FaultName | str, *targets: str, **parameters: object) -> FaultAction:
    """Makes a fault of docs/faults.md. `targets` are roles, such as "leader(0)", which are resolved when it begins.

    BadInput for a fault or a role that is not known. Parameters are checked when the trial is planned.
    """
    catalogue.FAULTS.named(name)
    return _fault(fault=name, targets=targets, parameters=to_jsonable_python(parameters))


_fault = _builder(FaultAction, "fault")


def step(
    name: str,
    do: Action | None = None,
    *,
    after: Condition | None = None,
    at_s: float | None = None,
    timeout_s: float = 30.0,
    may_miss: bool = False,
    expect: Sequence[Expectation] = (),
) -> Step:
    """Returns one step of a schedule: it waits for `after`, and then does `do`.

    `do` None: it only waits. `at_s`: it does not begin before this time on the trial's clock. `timeout_s`: how long it may
    wait. `may_miss`: the step is left out if `after` does not hold in time, or the target of its fault is not there.
    `expect`: what must have come of it; if not, the trial is unknown.
    """
    return _step(name=name, do=do, after=after, at_s=at_s, timeout_s=timeout_s, may_miss=may_miss, expect=tuple(expect))


_step = _builder(Step, "step")


def workload(  # noqa: PLR0913 - the keys of a trial file
    kind: WorkloadName | str = "log",
    *,
    settings: Sequence[Settings] = (),
    base: Mapping[str, object] | None = None,
    axes: Mapping[str, Sequence[object]] | None = None,
    traffic: Traffic | None = None,
    topics: Topics | None = None,
    exclude: Sequence[Exclude] = (),
    strength: Literal["full", 2, 3] = "full",
    share: Share | None = None,
    isolation_levels: Sequence[IsolationLevel] = ("read_uncommitted", "read_committed"),
    delivery: DeliveryBound | None = None,
) -> WorkloadSpec:
    """Returns one kind of client activity, with its own cells.

    `settings`: what every cell has, as `topic(…)`, `producer(…)` and so on return it; only what you give there counts.
    `base`: more of them by their keys in a trial file, {"provocation.every": 10}, where others of that part vary. `axes`: the
    settings that vary, each with its values: {"producer.acks": ["1", "all"]}. Every valid combination becomes a cell; with
    `strength` 2 or 3 only so many that every pair, or triple, of values is in one. BadInput for a setting that is given
    twice.
    """
    given = {
        "traffic": traffic,
        "topics": topics,
        "share": share,
        "delivery": delivery,
        "axes": None if axes is None else {key: tuple(to_jsonable_python(list(axes[key]))) for key in axes},
    }
    return _workload(
        kind=kind,
        base=_base(settings, base or {}),
        exclude=tuple(exclude),
        strength=strength,
        isolation_levels=tuple(isolation_levels),
        **{key: value for key, value in given.items() if value is not None},
    )


def _workload(**keys: Any) -> WorkloadSpec:  # noqa: ANN401 - the values of any key
    try:
        return WorkloadSpec(**keys)
    except ValidationError as error:
        raise _bad("workload", error) from None


def _base(settings: Sequence[Settings], more: Mapping[str, object]) -> dict[str, Any]:
    """Returns settings as `base` of a trial file has them: only what somebody set."""
    base: dict[str, Any] = to_jsonable_python(dict(more))
    for one in settings:
        scope = _SCOPES.get(type(one))
        if scope is None:
            raise BadInput(f"settings: {one!r} is no settings. Give what topic(…), producer(…) and their like return.")
        values = one.model_dump(mode="json", exclude_unset=True)
        properties = values.pop("properties", {})
        keys = {f"{scope}.{name}": _plain(value) for name, value in values.items()}
        keys |= {f"{scope}.properties.{name}": value for name, value in properties.items()}
        if twice := sorted(base.keys() & keys.keys()):
            raise BadInput(f"settings: {twice[0]} is given twice. Give it once.")
        base |= keys
    return base


def _plain(value: object) -> object:
    """Returns a number as somebody writes it: a setting of type float has made 20.0 of 20, and cells are named by it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def trial(  # noqa: PLR0913 - the keys of a trial file
    name: str,
    *workloads: WorkloadSpec,
    title: str = "",
    steps: Sequence[Step] = (),
    variant: Variant | None = None,
    backend: str = "local",
    controls: Sequence[ControlSpec] = (),
    control: Literal["required", "optional"] = "optional",
    limits: Limits | None = None,
    settle_s: float = 1.0,
    metrics: bool = True,
    time_lookups: bool = False,
    administrators: int = 0,
    alerts: Sequence[AlertSpec] = (),
    expects: Literal["held", "violated"] = "held",
    scenarios: Sequence[str] = (),
    side_by_side: Sequence[MetadataMode] = (),
    compose: ComposeOptions | None = None,
    ssh: SshOptions | None = None,
    attach: AttachOptions | None = None,
) -> Trial:
    """Returns a trial, which `prozess.plan` and `prozess.run` take. Without `workloads` it has one of kind "log".

    The keys are those of a trial file. `title`: what it is about; empty means its name. `settle_s`: how long traffic goes on
    after the last step and the healing. BadInput for a name that is not known, two steps with one name, or a step that heals
    one that does not come before it.
    """
    given = {"variant": variant, "limits": limits, "compose": compose, "ssh": ssh, "attach": attach}
    document: dict[str, Any] = {
        "name": name,
        "title": title or name,
        "workloads": list(workloads) or [workload()],
        "steps": list(steps),
        "backend": backend,
        "controls": list(controls),
        "control": control,
        "settle_s": settle_s,
        "metrics": metrics,
        "time_lookups": time_lookups,
        "administrators": administrators,
        "alerts": list(alerts),
        "expects": expects,
        "scenarios": list(scenarios),
        "side_by_side": list(side_by_side),
    }
    return parse_trial(
        document | {key: value for key, value in given.items() if value is not None}, source=f"trial {name!r}"
    )


def names() -> list[str]:
    """Returns the names of the trials that come with prozess."""
    return [*known_trials()]


def load(name_or_path: str) -> Trial:
    """Returns the trial of that name, or in that file. BadInput if there is none, or if it is not valid."""
    return load_trial(name_or_path)
