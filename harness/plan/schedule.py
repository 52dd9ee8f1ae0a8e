"""A schedule says what happens to the cluster, when, and to whom by role. It is a pure value; a seed decides every
draw."""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from prozess.harness.config.configuration import INT_MAX, Count, Limit, Pause, Text
from prozess.harness.config.messages.match import MessageMatch
from prozess.harness.plan.expectations import Expectations
from prozess.harness.plan.expectations import Selector as Selector
from prozess.harness.schema import SENDING
from prozess.harness.values import Frozen

PartitionNumber = Annotated[int, Field(ge=0, le=INT_MAX)]
BrokerNumber = Annotated[int, Field(ge=0, le=INT_MAX)]


class Between(Frozen):
    """A number that the seed draws uniformly from [low, high]."""

    between: tuple[Pause, Pause]

    @model_validator(mode="after")
    def _ordered(self) -> "Between":
        low, high = self.between
        if low > high:
            raise ValueError(f"between = [{low:g}, {high:g}]: the first number must not be greater than the second")
        return self


Seconds = Pause | Between


# Conditions: what a step waits for before it begins.


class Elapsed(Frozen):
    """Waits until `seconds` have passed since the previous step was done."""

    condition: Literal["elapsed"] = "elapsed"
    seconds: Seconds


class Acked(Frozen):
    """Waits until each partition of the selected cells has at least `count` more acknowledgements than when the
    previous step was done."""

    condition: Literal["acked"] = "acked"
    count: Count
    cells: Selector = Field(default_factory=dict)


class Settled(Frozen):
    """Waits until no send to the selected cells is in flight: each is completed, one way or the other."""

    condition: Literal["settled"] = "settled"
    cells: Selector = Field(default_factory=dict)


class LeaderMoved(Frozen):
    """Waits until a partition has a new leader: every living broker's own view names one, and it is none of the nodes
    that open faults hit.

    `partition` None means every partition of the selected cells.
    """

    condition: Literal["leader-moved"] = "leader-moved"
    partition: PartitionNumber | None = None
    cells: Selector = Field(default_factory=dict)


class Offline(Frozen):
    """Waits until a partition has no leader, by every living broker's own view. `partition` None means every partition
    of the selected cells."""

    condition: Literal["offline"] = "offline"
    partition: PartitionNumber | None = None
    cells: Selector = Field(default_factory=dict)


class IsrIs(Frozen):
    """Waits until the ISR of a partition is exactly these brokers, by every living broker's own view. `brokers` None
    means all replicas, and `partition` None means every partition of the selected cells."""

    condition: Literal["isr"] = "isr"
    partition: PartitionNumber | None = None
    brokers: tuple[BrokerNumber, ...] | None = None
    cells: Selector = Field(default_factory=dict)


class Unfenced(Frozen):
    """Waits until the node's own view is current again: it answers and names itself among the living brokers."""

    condition: Literal["unfenced"] = "unfenced"
    node: str


class Behind(Frozen):
    """Waits until replicas lag by a number of records, as their own files show it now.

    For every partition of the selected cells, the replica on each node of `records` must end exactly that many offsets
    before the replica on `node`. Dead and frozen nodes count, because their files can be read. What a node lacks is not
    in its log, while what it has, it may not have informed anybody.
    """

    condition: Literal["behind"] = "behind"
    node: str
    records: Annotated[dict[str, int], Field(min_length=1)]
    """Node → how many offsets its replica ends before the replica on `node`; negative means that it ends later."""
    cells: Selector = Field(default_factory=dict)


class MessagePassed(Frozen):
    """Waits until a message passes on a link between two servers, or a client and a server.

    The message is held until the step has been done, so that the step comes exactly then: between a record that was
    appended and its acknowledgement, for example. With `hold` = false it goes on at once.
    """

    condition: Literal["message"] = "message"
    match: MessageMatch
    """The message; the first one unless it says otherwise (`nth`). It counts from when the previous step was done."""
    hold: bool = True


MESSAGE_FAULT = "message"
"""The name of the fault that does something to messages."""
FEATURES_FAULT = "finalize-features"
"""The name of the fault that raises feature levels."""
METHOD_FAULT = "method"
"""The name of the fault that does something to calls of a server's methods."""

Condition = Annotated[
    Elapsed | Acked | Settled | LeaderMoved | Offline | IsrIs | Unfenced | Behind | MessagePassed,
    Field(discriminator="condition"),
]


# Actions: what a step does.


class FaultAction(Frozen):
    """Makes a fault. `targets` are roles, which are resolved when the fault begins (see `parse_target`)."""

    kind: Literal["fault"] = "fault"
    fault: str
    targets: Annotated[tuple[str, ...], Field(min_length=1)]
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_targets(self) -> "FaultAction":
        for target in self.targets:
            parse_target(target)
        return self


class HealAction(Frozen):
    """Undoes the fault of an earlier step, by the step's name. None means every fault so far."""

    kind: Literal["heal"] = "heal"
    step: str | None = None


class PauseSends(Frozen):
    """Stops producers from sending new records. What they have sent goes on."""

    kind: Literal["pause_sends"] = "pause_sends"


class ResumeSends(Frozen):
    """Lets producers send again at their rate."""

    kind: Literal["resume_sends"] = "resume_sends"


class Send(Frozen):
    """While producers are paused, sends `count` records at once to each partition of the selected cells."""

    kind: Literal["send"] = "send"
    count: Count
    cells: Selector = Field(default_factory=dict)
    producer: PositiveInt | None = None
    """The number of the only producer that sends, where a workload has several alike (`producers`). None means that
    each of them sends."""


class Inspect(Frozen):
    """Reads what every replica of the selected cells' partitions holds from its own segments and checkpoints, and
    records it in the history (tables `replicas` and `observations`, with the number of this step). Dead and frozen
    nodes are read, too."""

    kind: Literal["inspect"] = "inspect"
    cells: Selector = Field(default_factory=dict)


class TakeOver(Frozen):
    """Lets the standby of each transactional.id of the selected cells take the id over. Its previous owner goes on as a
    zombie."""

    kind: Literal["take_over"] = "take_over"
    hold: bool = True
    """True means that the previous owner begins a transaction before and ends it afterwards. False leaves it as it is,
    for example paused."""
    cells: Selector = Field(default_factory=dict)


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _clients(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        parse_target(client_target(name))
    return names


ClientNames = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_several),
    Field(min_length=1),
    AfterValidator(_clients),
]
"""The clients that are meant, one or several: the name of a planned client, `member(CELL, INSTANCE)` (`*` for every one),
or `producers`."""


class ClientAction(Frozen):
    """Stops or starts planned clients.

    A client stops in order: a member leaves its group, a producer flushes. A client that starts is a late starter, or a
    new client in the place of one that ended.
    """

    kind: Literal["client"] = "client"
    do: Literal["stop", "start"]
    client: ClientNames


class StallAction(Frozen):
    """Stalls planned members of groups: they do not poll, like a busy application, while their clients' heartbeats go on."""

    kind: Literal["client"] = "client"
    do: Literal["stall"] = "stall"
    client: ClientNames
    seconds: Limit
    """How long to stall the clients."""


class AddPartitions(Frozen):
    """Creates the late partitions and topics of the selected cells (`topics.late_partitions`, `late_topic_partitions`).
    Once every broker knows them, producers write to them, too."""

    kind: Literal["add_partitions"] = "add_partitions"
    cells: Selector = Field(default_factory=dict)


class DeleteRecords(Frozen):
    """Deletes all but the last `keep` records of every partition of the selected cells (DeleteRecords, KIP-107), as
    retention does, but at a chosen moment."""

    kind: Literal["delete_records"] = "delete_records"
    keep: Annotated[int, Field(ge=0)]
    cells: Selector = Field(default_factory=dict)


class DeleteTopics(Frozen):
    """Deletes the topics of the selected cells, by their ids, and returns once no running broker knows them (KIP-516).
    Clients go on as they are: nobody informs them."""

    kind: Literal["delete_topics"] = "delete_topics"
    cells: Selector = Field(default_factory=dict)


class MakeTopics(Frozen):
    """Makes the topics of the selected cells again after `delete_topics`: topics with the same names and other ids. Each is
    a cell of its own in the plan, which a verdict judges by itself (`Cell.life`)."""

    kind: Literal["make_topics"] = "make_topics"
    cells: Selector = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    """What is set otherwise than for the one before, as in `base`: `topic.key` = value."""
    by: Literal["administrator", "clients"] = "administrator"
    """Says who makes them. clients: brokers do, once a producer asks for the topic (`auto.create.topics.enable`), with the
    settings that brokers have for new topics; the step waits for them."""


ALTERABLE = ("retention.ms", "retention.bytes", "segment.ms", "segment.bytes", "cleanup.policy")
"""What `alter_topics` may set. The fault `configure` changes other properties, and takes the change back."""


class AlterTopics(Frozen):
    """Sets properties of the topics of the selected cells for good, under the clients that use them (KIP-339), and returns
    once Kafka reports them. A verdict allows what any value that a topic had allows."""

    kind: Literal["alter_topics"] = "alter_topics"
    properties: Annotated[dict[str, Text], Field(min_length=1)]
    """Property → value: retention.ms, retention.bytes, segment.ms, segment.bytes or cleanup.policy."""
    cells: Selector = Field(default_factory=dict)

    @model_validator(mode="after")
    def _alterable(self) -> "AlterTopics":
        if other := next((name for name in self.properties if name not in ALTERABLE), None):
            raise ValueError(f"{other} is not one of {', '.join(ALTERABLE)}. Use the fault configure for it.")
        return self


def _ordered_range(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("the first number must not be greater than the second")
    return value


Range = Annotated[tuple[Pause, Pause], AfterValidator(_ordered_range)]
"""A range from which the seed draws uniformly: from, to."""


class MixFault(Frozen):
    """One fault that a mix may make."""

    fault: str
    targets: tuple[str, ...] = ()
    """Roles that are all hit each time. Give this or `one_of`."""
    one_of: tuple[str, ...] = ()
    """Roles of which one is drawn each time."""
    weight: PositiveFloat = 1.0
    """How often the fault is drawn, relative to the others."""
    lasts_s: Range = (1.0, 5.0)
    """How long the fault lasts, from the end of the strike to its healing."""
    alone: bool = False
    """True means that no other fault is ever active at the same time, whatever `overlap` is."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """The parameters of the fault, as in a step. A value may be `{ between = [a, b] }` or `{ one_of = [...] }`, and is
    then drawn each time."""

    @property
    def label(self) -> str:
        """Returns what distinguishes the fault from the others of its list: "partition of leader(0): others=followers"."""
        parameters = ", ".join(f"{name}={value}" for name, value in sorted(self.parameters.items()))
        targets = " or ".join(self.one_of) or ", ".join(self.targets)
        return f"{self.fault} of {targets}" + (f": {parameters}" if parameters else "")

    @model_validator(mode="after")
    def _aimed(self) -> "MixFault":
        if bool(self.targets) == bool(self.one_of):
            raise ValueError("give targets (all are hit) or one_of (one is drawn), and one of the two only")
        for target in (*self.targets, *self.one_of):
            parse_target(target)
        for name, value in self.parameters.items():
            if isinstance(value, dict):
                _check_drawn(name, value)
        return self


def _check_drawn(name: str, value: dict[str, Any]) -> None:
    """Raises ValueError for a `between` or `one_of` from which nothing can be drawn."""
    if value.keys() == {"between"}:
        ends = value["between"]
        numbers = isinstance(ends, list | tuple) and [e for e in ends if isinstance(e, int | float) and e == e]
        if not numbers or not len(numbers) == len(ends) == 2 or numbers[0] > numbers[1]:
            raise ValueError(f"parameters.{name}.between = {ends!r} must be two numbers, the smaller one first")
    if value.keys() == {"one_of"} and not (isinstance(value["one_of"], list | tuple) and value["one_of"]):
        raise ValueError(f"parameters.{name}.one_of = {value['one_of']!r} must be a list of at least one value")


def alternatives(value: object) -> Sequence[Any]:
    """Returns the values that a parameter of a MixFault may get; both ends of a number between two."""
    if isinstance(value, dict) and len(value) == 1:
        (kind,) = value
        if kind in ("one_of", "between"):
            return list(value[kind])
    return [value]


class Mix(Frozen):
    """Makes faults at random for a while. When the trial is planned, the seed turns it into ordinary steps
    (`prozess.harness.plan.planning`), and what a backend cannot do is left out and reported."""

    kind: Literal["mix"] = "mix"
    length_s: Limit
    """How long the mix lasts. The time to wait for whole ISRs comes on top."""
    quiet_s: Range = (1.0, 4.0)
    """The time from the beginning of one fault to that of the next. Where the next must wait for others to end, it
    counts from then on."""
    overlap: PositiveInt = 1
    """How many faults may be active at once."""
    whole_s: Limit = 60.0
    """The limit of each wait for whole ISRs."""
    faults: Annotated[tuple[MixFault, ...], Field(min_length=1)]


class Each(Frozen):
    """Makes every one of these faults once, one at a time, in an order that the seed draws. Each is healed, and all
    ISRs are whole again, before the next.

    Like a mix it becomes ordinary steps (`prozess.harness.plan.planning`). What a backend or variant cannot do is left
    out when the trial is planned, and reported.
    """

    kind: Literal["each"] = "each"
    quiet_s: Range = (0.0, 2.0)
    """The time from whole ISRs to the next fault."""
    whole_s: Limit = 60.0
    """The limit of each wait for whole ISRs."""
    faults: Annotated[tuple[MixFault, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _different(self) -> "Each":
        labels = [fault.label for fault in self.faults]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"{twice} is in the list twice, and each fault is made once; remove one of them")
        return self


Action = Annotated[
    Mix
    | Each
    | FaultAction
    | HealAction
    | PauseSends
    | ResumeSends
    | Send
    | Inspect
    | Annotated[ClientAction | StallAction, Field(discriminator="do")]
    | TakeOver
    | AddPartitions
    | DeleteRecords
    | DeleteTopics
    | MakeTopics
    | AlterTopics,
    Field(discriminator="kind"),
]

OfCells = (
    Acked | Settled | LeaderMoved | Offline | IsrIs | Behind
    | Send | Inspect | TakeOver | AddPartitions | DeleteRecords | DeleteTopics | MakeTopics
    | AlterTopics
)  # fmt: skip
"""The conditions and actions that select cells."""
ClientCommand = PauseSends | ResumeSends | Send | ClientAction | StallAction | TakeOver
"""An action that a workload's clients carry out."""


class Step(Frozen):
    """One step of a schedule. Without `at_s` and `after` it follows the previous step at once."""

    name: Annotated[str, Field(min_length=1)]
    """What the report, and other steps, call it."""
    at_s: Pause | None = None
    """The step does not begin before this time on the trial's clock."""
    after: Condition | None = None
    """The condition that must hold before it begins."""
    timeout_s: Limit = 30.0
    """How long its condition may take. Then the run is over, and unknown, unless `may_miss`."""
    do: Action | None = None
    """What the step does. None means that it only waits."""
    may_miss: bool = False
    """True means that the step is left out if its condition does not hold in time, or if the target of its fault is not
    there when it begins. The schedule goes on."""
    expect: Expectations = ()
    """How the trial checks that the step worked. If it did not, the trial has not reached its situation, and is unknown."""

    @model_validator(mode="after")
    def _lasts(self) -> "Step":
        if self.expect and isinstance(self.do, Mix | Each):
            raise ValueError(f'expect: a step of kind "{self.do.kind}" becomes many steps; leave it out')
        return self


def draw(steps: Sequence[Step], rng: random.Random) -> tuple[Step, ...]:
    """Returns the steps with every `between` replaced by a number that `rng` draws, in order. The same seed gives the
    same schedule."""

    def drawn(step: Step) -> Step:
        if isinstance(step.after, Elapsed) and isinstance(step.after.seconds, Between):
            seconds = round(rng.uniform(*step.after.seconds.between), 3)
            return step.model_copy(update={"after": step.after.model_copy(update={"seconds": seconds})})
        return step

    return tuple(drawn(step) for step in steps)


# The targets of a step: nodes and clients, by the role that they have when the step comes.


_TARGET = re.compile(
    r"(?P<role>leader|followers|in-sync-followers|replicas|share-coordinator)\((?P<partition>\d+)\)|"
    r"follower\((?P<follower>\d+), ?(?P<which>[1-9]\d*)\)|partition\((?P<whole>\d+|\*)\)|"
    r"(?P<only>active-controller|zookeeper-leader|brokers|controllers|zookeepers)|node:(?P<node>[\w.-]+)|"
    r"client:(?P<client>\S+)|member\((?P<cell>\d+|\*), ?(?P<instance>\d+|\*)\)|(?P<producers>producers)|"
    r"group-coordinator\((?P<group>\d+)\)|"
    r"transaction-coordinator\((?P<transactional>\d+)\)|"
    r"rack\((?P<rack>[^()\s]+)\)|(?P<share>minority|majority)\((?P<of>brokers|controllers|zookeepers)\)"
)


MEMBERS = frozenset({"member", "java-member", "share-member", "copier", "java-copier", "application"})
"""The roles of clients that `member(c, i)` means."""


class Target(Frozen):
    """A role that names the target of a step. It is resolved to nodes when the step comes.

    For the partition with dense id p: `leader(p)`, `followers(p)`, `replicas(p)`; `follower(p, i)`, its i-th follower
    (from 1, as assigned); `in-sync-followers(p)`, those in the ISR; and `partition(p)`, the partition itself (`*` for
    every one of the plan), which is for faults of Kafka itself and resolves to the brokers that have replicas.

    Servers: `active-controller`, `zookeeper-leader`; `brokers`, `controllers` and `zookeepers`, which mean every one of
    them; `node:NAME`; `rack(NAME)`, the brokers of a rack; `minority(KIND)` and `majority(KIND)` of the brokers,
    controllers or zookeepers, which are the largest number below half of them and the smallest above, by ascending id;
    `group-coordinator(c)`, the broker that leads the partition of `__consumer_offsets` for the group of cell c;
    `transaction-coordinator(c)`, that of `__transaction_state` for the first transactional.id of cell c; and
    `share-coordinator(p)`, that of `__share_group_state` for the share group of partition p.

    Processes of clients, which faults of processes can hit: `client:NAME`; `member(c, i)`, the i-th member of the group
    of cell c (a copier, or an instance of an application, where those are its members; `*` for either means every one);
    and `producers`, all clients that send.
    """

    role: Literal[
        "leader", "followers", "in-sync-followers", "follower", "replicas", "partition", "active-controller",
        "zookeeper-leader", "brokers", "controllers", "zookeepers", "rack", "minority", "majority", "node", "client",
        "member", "producers", "group-coordinator", "transaction-coordinator", "share-coordinator",
    ]  # fmt: skip
    partition: PartitionNumber | None = None
    """The partition of a role that names one. For `partition`, None means every partition."""
    node: str | None = None
    client: str | None = None
    cell: int | None = None
    """The cell of a role that names one. For `member`, None means every group."""
    instance: int | None = None
    """For `member`: which member; None means each of them. For `follower`: which follower, from 1."""
    rack: str | None = None
    of: Literal["brokers", "controllers", "zookeepers"] | None = None
    """The kind of nodes of which `minority` and `majority` take some."""

    def count_of(self, every: int) -> int:
        """Returns how many of so many nodes a `minority` or `majority` is."""
        return (every - 1) // 2 if self.role == "minority" else every // 2 + 1


SINGLE_WORDS = ("active-controller", "zookeeper-leader", "brokers", "controllers", "zookeepers", "producers")
"""The roles without parentheses."""


def is_role(text: str) -> bool:
    """Says whether this is a role, and not the bare name of a node."""
    return "(" in text or ":" in text or text in SINGLE_WORDS


def parse_target(text: str) -> Target:
    """Reads a role from its text. ValueError with the rule if it is none."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise ValueError(
            f"target {text!r} is not a role; give leader(p), followers(p), follower(p, i), in-sync-followers(p), "
            "replicas(p) or partition(p) with p a partition id, active-controller, zookeeper-leader, brokers, controllers, "
            "zookeepers, node:NAME, rack(NAME), minority(KIND), majority(KIND) with KIND one of those, client:NAME, "
            "producers, or member(c, i), group-coordinator(c), transaction-coordinator(c) with c a cell and i the number of "
            "a member (or * for all), or share-coordinator(p)"
        )
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    match next(iter(found)):
        case "role":
            return Target(role=match["role"], partition=int(match["partition"]))  # type: ignore[arg-type] # by the pattern
        case "follower":
            return Target(role="follower", partition=int(match["follower"]), instance=int(match["which"]))
        case "whole":
            return Target(role="partition", partition=_number(match["whole"]))
        case "node" | "client" | "rack" as role:
            return Target.model_validate({"role": role, role: match[role]})
        case "cell":
            return Target(role="member", cell=_number(match["cell"]), instance=_number(match["instance"]))
        case "group":
            return Target(role="group-coordinator", cell=int(match["group"]))
        case "transactional":
            return Target(role="transaction-coordinator", cell=int(match["transactional"]))
        case "share":
            return Target(role=match["share"], of=match["of"])  # type: ignore[arg-type] # by the pattern
        case _:
            return Target.model_validate({"role": match["only"] or match["producers"]})


def _number(text: str) -> int | None:
    return None if text == "*" else int(text)


CLIENT_ROLES = ("client", "member", "producers")
"""The roles that mean processes of clients."""


def client_target(name: str) -> str:
    """Returns the target that the `client` of a ClientAction means."""
    return name if name.startswith("member(") or name == "producers" else f"client:{name}"


def means_client(target: Target, *, name: str, role: str, cell: int | None, instance: int) -> bool:
    """Says whether the target means the client with this name, role, cell and number among its like."""
    match target.role:
        case "member":
            return role in MEMBERS and target.cell in (None, cell) and target.instance in (None, instance)
        case "producers":
            return role in SENDING
        case "client":
            return name == target.client
        case _:
            return False


def selects(selector: Selector, axes: Mapping[str, str]) -> bool:
    """Says whether these axis values satisfy the selector. An axis that the cell does not have never matches."""
    return all(axes.get(key) in (value if isinstance(value, tuple) else (value,)) for key, value in selector.items())
