"""Schedules: what happens to the cluster, and when. Pure values; a seed fixes every draw.

A step waits (for a time on the trial's clock, or for a condition), then does one thing: a fault, a heal, or a command to
the workload. Every wait has a limit; a step that times out makes what depends on it *unknown*, never a pass.
"""

import random
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from harness.configuration import Frozen, Text
from harness.targets import client_target, parse_target


class Between(Frozen):
    """A number drawn by the seed, uniformly from [low, high]."""

    between: tuple[NonNegativeFloat, NonNegativeFloat]

    @model_validator(mode="after")
    def _ordered(self) -> "Between":
        low, high = self.between
        if low > high:
            raise ValueError(f"between = [{low:g}, {high:g}]: the first number must not be greater than the second")
        return self


Seconds = NonNegativeFloat | Between
Selector = dict[str, Text | tuple[Text, ...]]
"""Which cells: axis → value, or any of several values. Empty = all cells."""


# --- conditions -----------------------------------------------------------------------------------------------------


class Elapsed(Frozen):
    """`seconds` have passed since the previous step was done."""

    condition: Literal["elapsed"]
    seconds: Seconds


class Acked(Frozen):
    """Each partition of the selected cells has at least `count` acknowledgements more than when the previous step was
    done."""

    condition: Literal["acked"]
    count: PositiveInt
    cells: Selector = Field(default_factory=dict)


class Settled(Frozen):
    """No send to the selected cells is in flight: each is completed, one way or the other."""

    condition: Literal["settled"]
    cells: Selector = Field(default_factory=dict)


class LeaderMoved(Frozen):
    """Every living broker's own view says that the partition has a leader, and that it is none of the nodes hit by
    faults which are not healed. `partition` None = every partition of the selected cells."""

    condition: Literal["leader-moved"]
    partition: int | None = None
    cells: Selector = Field(default_factory=dict)


class Offline(Frozen):
    """Every living broker's own view says that nobody leads the partition. `partition` None = every partition of the selected
    cells."""

    condition: Literal["offline"]
    partition: int | None = None
    cells: Selector = Field(default_factory=dict)


class IsrIs(Frozen):
    """Every living broker's own view of the partition's ISR is exactly these brokers; None = all replicas.
    `partition` None = every partition of the selected cells."""

    condition: Literal["isr"]
    partition: int | None = None
    brokers: tuple[int, ...] | None = None
    cells: Selector = Field(default_factory=dict)


class Unfenced(Frozen):
    """The node's own view is current again: it answers and names itself among the living brokers."""

    condition: Literal["unfenced"]
    node: str


class Behind(Frozen):
    """By the replicas' own files, now: of every partition of the selected cells, the copy on each node of `records` ends
    exactly that many offsets before the copy on `node` does. Dead and frozen nodes count: their files are read all the
    same. What a node misses is nowhere in its log; what it has, it may not have told anyone."""

    condition: Literal["behind"]
    node: str
    records: Annotated[dict[str, int], Field(min_length=1)]
    """Node → offsets; negative: it ends later."""
    cells: Selector = Field(default_factory=dict)


Condition = Annotated[
    Elapsed | Acked | Settled | LeaderMoved | Offline | IsrIs | Unfenced | Behind, Field(discriminator="condition")
]


# --- actions --------------------------------------------------------------------------------------------------------


class FaultAction(Frozen):
    """Break something. `targets` are roles, resolved when the fault strikes (see `parse_target`)."""

    kind: Literal["fault"]
    fault: str
    targets: Annotated[tuple[str, ...], Field(min_length=1)]
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_targets(self) -> "FaultAction":
        for target in self.targets:
            parse_target(target)
        return self


class HealAction(Frozen):
    """Undo the fault of an earlier step, by the step's name; None = every fault so far."""

    kind: Literal["heal"]
    step: str | None = None


class PauseSends(Frozen):
    """Producers stop issuing; what was issued goes on."""

    kind: Literal["pause_sends"]


class ResumeSends(Frozen):
    """Producers go on at their rate."""

    kind: Literal["resume_sends"]


class Send(Frozen):
    """While paused: issue `count` records to each partition of the selected cells at once."""

    kind: Literal["send"]
    count: PositiveInt
    cells: Selector = Field(default_factory=dict)
    producer: PositiveInt | None = None
    """Only the producer of this number, where a workload has several alike (`producers`); None = each of them."""


class Inspect(Frozen):
    """Read what every replica of the selected cells' partitions holds, from its own segments and checkpoints, into the
    history (tables `replicas` and `observations`, with the number of this step). Dead and frozen nodes are read too."""

    kind: Literal["inspect"]
    cells: Selector = Field(default_factory=dict)


class TakeOver(Frozen):
    """The standby of each transactional.id of the selected cells takes it over; who had it goes on as a zombie."""

    kind: Literal["take_over"]
    hold: bool = True
    """It begins a transaction before, and ends it afterwards; false: it is left as it is (paused, say)."""
    cells: Selector = Field(default_factory=dict)


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class ClientAction(Frozen):
    """Stop planned clients in order (a member leaves its group, a producer flushes), start them (a late starter, or a new
    client in the place of one that ended), or let a member stall: it does not poll for `seconds`, as an application does
    that is busy; its client's heartbeats go on."""

    kind: Literal["client"]
    do: Literal["stop", "start", "stall"]
    client: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_several), Field(min_length=1)]
    """One or several of: the name of a planned client, `member(CELL, INSTANCE)` (`*` for every one), `producers`."""
    seconds: PositiveFloat | None = None
    """Of `stall`."""

    @model_validator(mode="after")
    def _stalls_for_a_time(self) -> "ClientAction":
        if (self.do == "stall") != (self.seconds is not None):
            raise ValueError(f'do = {self.do!r}: `seconds` belongs to "stall", which needs it')
        for name in self.client:
            parse_target(client_target(name))
        return self


class AddPartitions(Frozen):
    """Create the late partitions and topics of the selected cells (`topics.late_partitions`, `late_topic_partitions`); once
    every broker knows them, producers write to them too."""

    kind: Literal["add_partitions"]
    cells: Selector = Field(default_factory=dict)


class DeleteRecords(Frozen):
    """Delete all but the last `keep` records of every partition of the selected cells (DeleteRecords, KIP-107): what
    retention does, at a chosen moment."""

    kind: Literal["delete_records"]
    keep: Annotated[int, Field(ge=0)]
    cells: Selector = Field(default_factory=dict)


def _ordered_range(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("the first number must not be greater than the second")
    return value


Range = Annotated[tuple[NonNegativeFloat, NonNegativeFloat], AfterValidator(_ordered_range)]
"""From, to: drawn uniformly by the seed."""


class MixFault(Frozen):
    """One fault that a mix may make."""

    fault: str
    targets: tuple[str, ...] = ()
    """Roles, all of which are hit each time; or `one_of`."""
    one_of: tuple[str, ...] = ()
    """Roles, one of which is drawn each time."""
    weight: PositiveFloat = 1.0
    """How often it is drawn, relative to the others."""
    lasts_s: Range = (1.0, 5.0)
    """From the end of the strike to its healing."""
    alone: bool = False
    """Never together with another, whatever `overlap` is."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """As of a step; a value may be `{ between = [a, b] }` or `{ one_of = [...] }`, drawn each time."""

    @property
    def label(self) -> str:
        """What tells it from the others of its list: "partition of leader(0): others=followers"."""
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
    """ValueError for a `between` or `one_of` from which nothing can be drawn."""
    if value.keys() == {"between"}:
        ends = value["between"]
        numbers = isinstance(ends, list | tuple) and [e for e in ends if isinstance(e, int | float) and e == e]
        if not numbers or not len(numbers) == len(ends) == 2 or numbers[0] > numbers[1]:
            raise ValueError(f"parameters.{name}.between = {ends!r} must be two numbers, the smaller one first")
    if value.keys() == {"one_of"} and not (isinstance(value["one_of"], list | tuple) and value["one_of"]):
        raise ValueError(f"parameters.{name}.one_of = {value['one_of']!r} must be a list of at least one value")


def alternatives(value: object) -> Sequence[Any]:
    """What a parameter of a MixFault may come to be; of a number between two, both ends."""
    if isinstance(value, dict) and len(value) == 1:
        (kind,) = value
        if kind in ("one_of", "between"):
            return list(value[kind])
    return [value]


class Mix(Frozen):
    """Faults by chance for a while, as ordinary steps that the seed fixes when the trial is planned (`harness.mix`). What a
    backend cannot do is left out then, and said."""

    kind: Literal["mix"]
    length_s: PositiveFloat
    """Of the whole; what waiting for whole ISRs takes comes on top."""
    quiet_s: Range = (1.0, 4.0)
    """From the beginning of a fault to that of the next; where that must wait for others to be over, from then on."""
    overlap: PositiveInt = 1
    """So many at once, at most."""
    whole_s: PositiveFloat = 60.0
    """Limit of each wait for whole ISRs."""
    faults: Annotated[tuple[MixFault, ...], Field(min_length=1)]


class Each(Frozen):
    """Every one of these faults once, one at a time, in an order that the seed draws; each healed, and whole ISRs awaited,
    before the next. As ordinary steps, like a mix (`harness.mix`). What a backend or variant cannot do is left out when it is
    planned, and said."""

    kind: Literal["each"]
    quiet_s: Range = (0.0, 2.0)
    """From whole ISRs to the next fault."""
    whole_s: PositiveFloat = 60.0
    """Limit of each wait for whole ISRs."""
    faults: Annotated[tuple[MixFault, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _different(self) -> "Each":
        labels = [fault.label for fault in self.faults]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"{twice} is there twice; each fault strikes once")
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
    | ClientAction
    | TakeOver
    | AddPartitions
    | DeleteRecords,
    Field(discriminator="kind"),
]


class Step(Frozen):
    """One step. Without `at_s` and `after` it follows the previous one at once."""

    name: Annotated[str, Field(min_length=1)]
    at_s: NonNegativeFloat | None = None
    """Not before this time on the trial's clock."""
    after: Condition | None = None
    timeout_s: PositiveFloat = 30.0
    do: Action | None = None
    """None = only wait."""
    may_miss: bool = False
    """Of a fault: if what it is aimed at is not there when it strikes, it is left out, and the schedule goes on."""


# --- targets --------------------------------------------------------------------------------------------------------


def draw(steps: Sequence[Step], rng: random.Random) -> tuple[Step, ...]:
    """The steps with every `between` replaced by a number from `rng`, in order: the same seed, the same schedule."""

    def drawn(step: Step) -> Step:
        if isinstance(step.after, Elapsed) and isinstance(step.after.seconds, Between):
            seconds = round(rng.uniform(*step.after.seconds.between), 3)
            return step.model_copy(update={"after": step.after.model_copy(update={"seconds": seconds})})
        return step

    return tuple(drawn(step) for step in steps)
