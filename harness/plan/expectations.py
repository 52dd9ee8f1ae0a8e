"""What must have come of a step, so that a trial has reached the situation that it is about. These are pure values.

    expect = { what = "message", did = "delivered", after = "another one leads" }

Whether it came true is read from the recorded history after the run (`prozess.harness.guarantees.verdict.expectations`).
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from prozess.harness.config.configuration import Text
from prozess.harness.values import Frozen

Selector = dict[str, Text | tuple[Text, ...]]
"""Selects cells: axis → value, or any of several values. An empty selector means all cells."""
StepName = Annotated[str, Field(min_length=1)]
NodeName = Annotated[str, Field(min_length=1)]


class Counted(Frozen):
    """An expectation that counts something. Without a number it means at least one."""

    at_least: NonNegativeInt | None = None
    at_most: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _possible(self) -> "Counted":
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least = {self.at_least} is more than at_most = {self.at_most}")
        if self.at_least == 0 and self.at_most is None:
            raise ValueError("at_least = 0 is always so; give at_most, or a greater number")
        return self

    @property
    def bounds(self) -> tuple[int, int | None]:
        """Returns the least number, and the greatest; None = there is none."""
        least = 1 if self.at_least is None and self.at_most is None else self.at_least or 0
        return least, self.at_most

    @property
    def number_in_words(self) -> str:
        """ "at least 2", "2 to 5", "none"."""
        least, most = self.bounds
        if most is None:
            return f"at least {least:,}"
        if most == 0:
            return "none"
        return f"{least:,}" if least == most else f"{least:,} to {most:,}" if least else f"at most {most:,}"


class Lasting(Frozen):
    """An expectation of the time from when the step begins to when the next one does, or the step `until`."""

    until: StepName | None = None

    @property
    def time_in_words(self) -> str:
        """ ", before 'the broker returns' begins"; empty for the time of the step itself."""
        return "" if self.until is None else f", before {self.until!r} begins"


class MessageExpected(Counted):
    """Something was done to messages that the step's fault or condition means, as the proxy's journal says."""

    what: Literal["message"] = "message"
    did: Literal[
        "record", "wait", "hold", "lose", "close", "truncate", "twice", "answer", "swapped", "delivered", "dropped"
    ]
    """What was done. `wait`: it was held by the condition of the step. `delivered`: it was held, and went on. `dropped`: it
    was held, and lost."""
    partition: NonNegativeInt | None = None
    """Only messages that were meant for this partition of the plan."""
    after: StepName | None = None
    """Only what was done after this step began."""
    before: StepName | None = None
    """Only what was done before this step began."""

    @property
    def in_words(self) -> str:
        """Returns a clause such as "at least 1 of its messages: 'dropped', of partition 0"."""
        parts = [f"{self.number_in_words} of its messages: {self.did!r}"]
        parts += [f"of partition {self.partition}"] if self.partition is not None else []
        parts += [f"after {self.after!r} began"] if self.after is not None else []
        parts += [f"before {self.before!r} began"] if self.before is not None else []
        return ", ".join(parts)


class LeaderExpected(Lasting):
    """Expects a leader of a partition, at some time from when the step begins to when the next one does. The controllers' log
    says who led.

    Give one of `node`, `moved` and `nobody`.
    """

    what: Literal["leader"] = "leader"
    of: NonNegativeInt | Annotated[str, Field(min_length=1)]
    """A partition of the plan by its id; or `group-coordinator(c)` or `transaction-coordinator(c)` for the partition of the
    internal topic whose leader that is."""
    node: NodeName | None = None
    """This node leads."""
    moved: bool | None = None
    """True: another node leads than when the step began. False: the same one leads all the time."""
    nobody: Literal[True] | None = None
    """No node leads."""

    @model_validator(mode="after")
    def _one(self) -> "LeaderExpected":
        if sum(one is not None for one in (self.node, self.moved, self.nobody)) != 1:
            raise ValueError('give one of node = "…", moved = true or false, and nobody = true')
        return self

    @property
    def in_words(self) -> str:
        """Returns a clause such as "another node leads partition 0, before 'heal' begins"."""
        what = f"partition {self.of}" if isinstance(self.of, int) else f"the partition of {self.of}"
        if self.moved is not None:
            return f"{'another' if self.moved else 'no other'} node leads {what}{self.time_in_words}"
        return f"{'nobody' if self.node is None else self.node} leads {what}{self.time_in_words}"


class ControllerExpected(Lasting):
    """Whether another node becomes the active controller, at some time from when the step begins to when the next one does,
    as the controllers' log says."""

    what: Literal["controller"] = "controller"
    moved: bool
    """True: another node is the active controller than when the step began. False: the same one is it all the time."""

    @property
    def in_words(self) -> str:
        """Returns a clause such as "another node is the active controller"."""
        return f"{'another' if self.moved else 'no other'} node is the active controller{self.time_in_words}"


class IsrExpected(Lasting):
    """Expects brokers as the ISR of a partition, at some time from when the step begins to when the next one does, as the
    controllers' log says. Give `brokers`, or `at_most`."""

    what: Literal["isr"] = "isr"
    partition: NonNegativeInt
    brokers: tuple[PositiveInt, ...] | None = None
    """The ISR is exactly these."""
    at_most: NonNegativeInt | None = None
    """No more brokers than this are in the ISR."""

    @model_validator(mode="after")
    def _one(self) -> "IsrExpected":
        if (self.brokers is None) is (self.at_most is None):
            raise ValueError("give one of brokers = […] and at_most = …")
        return self

    @property
    def in_words(self) -> str:
        """Returns a clause such as "the ISR of partition 0 is [1, 2]"."""
        if self.brokers is not None:
            return f"the ISR of partition {self.partition} is {sorted(self.brokers)}{self.time_in_words}"
        return f"the ISR of partition {self.partition} has at most {self.at_most} of its replicas{self.time_in_words}"


class TruncatedExpected(Frozen):
    """A replica lost records from its end that it had at the step's `inspect`: other records, or none, are at their offsets
    at the end of the run."""

    what: Literal["truncated"] = "truncated"
    partition: NonNegativeInt
    node: NodeName
    at_least: PositiveInt = 1

    @property
    def in_words(self) -> str:
        """Returns a clause such as "broker-1 truncated at least 1 record of partition 0 later"."""
        records = "record" if self.at_least == 1 else "records"
        return f"{self.node} truncated at least {self.at_least:,} {records} of partition {self.partition} later"


class BehindExpected(Counted):
    """At most this many records at the end of a replica are missing in another one, at the step's `inspect`."""

    what: Literal["behind"] = "behind"
    partition: NonNegativeInt
    node: NodeName
    """The node whose replica lacks them."""
    ahead: NodeName
    """The node whose replica has them."""

    @property
    def in_words(self) -> str:
        """Returns a clause such as "broker-2 ends at most 10 records before broker-1 in partition 0"."""
        return f"{self.node} ends {self.number_in_words} records before {self.ahead} in partition {self.partition}"


class SendsExpected(Counted, Lasting):
    """At most this many sends end in each partition of the selected cells, from when the step begins to when the next one
    does. With `took_s` only those count that took at least this long."""

    what: Literal["sends"] = "sends"
    outcome: Literal["acknowledged", "failed", "unacknowledged"]
    """`failed`: certainly never written. `unacknowledged`: its sender was informed that it failed, or may have."""
    took_s: PositiveFloat | None = None
    cells: Selector = Field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """Returns a clause such as "at least 2 sends failed after 5 s or more in each partition"."""
        late = "" if self.took_s is None else f" after {self.took_s:g} s or more"
        where = f"in each partition{_of_cells(self.cells)}{self.time_in_words}"
        return f"{self.number_in_words} sends {self.outcome}{late} {where}"


class EndsExpected(Counted, Lasting):
    """At most this many commits and aborts of each selected cell with transactions are answered, from when the step begins
    to when the next one does. With `took_s` only those count that took at least this long: a client that waits longer than
    its request timeout asks again."""

    what: Literal["ends"] = "ends"
    took_s: PositiveFloat | None = None
    cells: Selector = Field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """Returns a clause such as "at least 2 commits and aborts answered in each cell with transactions"."""
        late = "" if self.took_s is None else f" after {self.took_s:g} s or more"
        where = f"in each cell with transactions{_of_cells(self.cells)}{self.time_in_words}"
        return f"{self.number_in_words} commits and aborts answered{late} {where}"


class MarkersExpected(Counted, Lasting):
    """At most this many transaction markers are written to a partition, from when the step begins to when the next one
    does, by the clock of the brokers."""

    what: Literal["markers"] = "markers"
    partition: NonNegativeInt

    @property
    def in_words(self) -> str:
        """Returns a clause such as "2 to 5 transaction markers in partition 0"."""
        return f"{self.number_in_words} transaction markers in partition {self.partition}{self.time_in_words}"


class RemovedExpected(Counted):
    """Retention, or a deletion, has removed at most this many offsets from the start of each partition of the selected cells
    when the run ends, as the replicas' own files say."""

    what: Literal["removed"] = "removed"
    cells: Selector = Field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """Returns a clause such as "at least 100 offsets removed from the start of each partition"."""
        return f"{self.number_in_words} offsets removed from the start of each partition{_of_cells(self.cells)}"


def _of_cells(cells: Selector) -> str:
    if not cells:
        return ""
    named = (
        f"{axis} {' or '.join(value) if isinstance(value, tuple) else value}" for axis, value in sorted(cells.items())
    )
    return f" of cells with {', '.join(named)}"


Expectation = Annotated[
    MessageExpected
    | LeaderExpected
    | ControllerExpected
    | IsrExpected
    | TruncatedExpected
    | BehindExpected
    | SendsExpected
    | EndsExpected
    | MarkersExpected
    | RemovedExpected,
    Field(discriminator="what"),
]


def _several(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


Expectations = Annotated[tuple[Expectation, ...], BeforeValidator(_several)]
"""One expectation, or several, all of which must come true."""


def steps_named(expectation: Expectation) -> Iterator[str]:
    """Yields the steps that an expectation refers to."""
    if isinstance(expectation, MessageExpected):
        yield from (name for name in (expectation.after, expectation.before) if name is not None)
    if isinstance(expectation, Lasting) and expectation.until is not None:
        yield expectation.until


def nodes_named(expectation: Expectation) -> Iterator[str]:
    """Yields the nodes that an expectation names."""
    if isinstance(expectation, LeaderExpected | TruncatedExpected | BehindExpected) and expectation.node is not None:
        yield expectation.node
    if isinstance(expectation, BehindExpected):
        yield expectation.ahead
