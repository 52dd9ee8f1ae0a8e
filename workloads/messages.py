"""What the run stage, the fork server and the client processes say to each other: typed values, and their one encoding.

A message is a JSON object. It is checked once, where it is decoded. Both ends are this very code, so a message that is
not known is a mistake of prozess.
"""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


Text = Annotated[str, PlainValidator(_text)]
"""Any text. A path, or an error's words, may hold bytes that are no UTF-8, which pydantic's own text may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The base of all messages. A key that is not known is an error."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


# Commands: from the run stage to a client. Each is answered by `Done`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Message):
    """Send, at the rate of the plan."""

    do: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Message):
    """Send nothing until `Resume`."""

    do: Literal["pause"] = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Message):
    """Send `count` records to each of these partitions. It is done once all have been issued."""

    partitions: list[int]
    count: int
    do: Literal["send"] = "send"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Message):
    """Write to these late partitions too: they exist now."""

    partitions: list[int]
    do: Literal["begin"] = "begin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Message):
    """Stay in the middle of a transaction until `GoOn`."""

    do: Literal["hold"] = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn(Message):
    """Go on after `Hold`: another has taken the transactional.id over."""

    do: Literal["go_on"] = "go_on"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver(Message):
    """Take the transactional.id over. It is done once the new instance is initialised."""

    do: Literal["take_over"] = "take_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Message):
    """Send nothing more, and end once every report has come, or after the limit."""

    timeout_s: float
    do: Literal["finish"] = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Message):
    """End."""

    do: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(Message):
    """Do not poll for so long."""

    seconds: float
    do: Literal["stall"] = "stall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Message):
    """Say `Draining` again and again from now on."""

    quiet_s: float
    do: Literal["drain"] = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(Message):
    """Initialise every transactional.id once more, and say `Fenced`."""

    timeout_s: float
    do: Literal["fence"] = "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Message):
    """Record what the groups have committed, and say `Looked`."""

    timeout_s: float
    do: Literal["look"] = "look"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow(Message):
    """Say `Followed` once these partitions are committed to their ends, nothing has moved for so long, or the limit has
    passed."""

    partitions: list[int]
    quiet_s: float
    timeout_s: float
    do: Literal["follow"] = "follow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Message):
    """Write the sentinels, and say `Sentinels`."""

    timeout_s: float
    do: Literal["write"] = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Message):
    """Read each partition through its sentinel, and say `Audited`. `through`: dense partition → offset."""

    through: dict[int, int]
    timeout_s: float
    do: Literal["read"] = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach(Message):
    """Say `Reached` once each of these partitions was read through its offset."""

    through: dict[int, int]
    do: Literal["reach"] = "reach"


Command = (
    Resume | Pause | Send | Begin | Hold | GoOn | TakeOver | Finish | Stop | Stall | Drain | Fence | Look | Follow | Write
    | Read | Reach
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Message):
    """A command with its number, which `Done` repeats."""

    number: int
    command: Annotated[Command, Field(discriminator="do")]


# Events: from a client to the run stage.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """The Kafka client is made."""

    event: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Message):
    """The command of this number is carried out."""

    number: int
    event: Literal["done"] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(Message):
    """A process of its own has begun. `speaks`: the client records what it says, and ends with it."""

    session: int
    speaks: bool = False
    event: Literal["child"] = "child"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded(Message):
    """A process of its own has ended."""

    session: int
    event: Literal["child-ended"] = "child-ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Message):
    """The last message of a client: how it ended, and why."""

    code: int
    reason: Text
    event: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining(Message):
    """Where a member of a group is. `at`: dense partition → (position, whether that is the end)."""

    at: dict[int, tuple[int, bool]]
    processed: int
    event: Literal["draining"] = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced(Message):
    """The answer to `Fence`. `problems`: transactional.id → why it was not initialised."""

    problems: dict[Text, Text]
    event: Literal["fenced"] = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked(Message):
    """The answer to `Look`. `missing`: group.id → why nothing is known of it."""

    missing: dict[Text, Text]
    event: Literal["looked"] = "looked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed(Message):
    """The answer to `Follow`."""

    event: Literal["followed"] = "followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinels(Message):
    """The answer to `Write`, by dense partition: the sentinels' offsets, and why there is none."""

    written: dict[int, int]
    missing: dict[int, Text]
    event: Literal["sentinels"] = "sentinels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited(Message):
    """The answer to `Read`, by dense partition: the offset through which it was read, or why it was not."""

    complete: dict[int, int]
    incomplete: dict[int, Text]
    event: Literal["audited"] = "audited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached(Message):
    """The answer to `Reach`."""

    event: Literal["reached"] = "reached"


Answer = Draining | Fenced | Looked | Followed | Sentinels | Audited | Reached
"""What the run stage waits for beyond `Done`."""
Event = Annotated[Ready | Done | Child | ChildEnded | Ended | Answer, Field(discriminator="event")]


# Between the run stage and the fork server.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Message):
    """Start one process with these clients; it comes with their ends of the control pipes."""

    clients: list[int]
    logs: list[Text]
    log: Text
    """The log of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Message):
    """A process has started."""

    pid: int
    clients: list[int]
    event: Literal["started"] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Message):
    """A process has ended; `status` is negative for the signal that ended it."""

    pid: int
    status: int
    event: Literal["exited"] = "exited"


T = TypeVar("T")


class Decoder(Generic[T]):
    """Reads the messages of one direction."""

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        self._adapter = adapter

    def __call__(self, line: bytes) -> T:
        """Returns the message. AssertionError, with the message and what is wrong with it, if it is not known."""
        try:
            return self._adapter.validate_python(json.loads(line))
        except (ValidationError, ValueError) as error:
            raise AssertionError(f"{line!r} is no message of this direction: {error}") from error


order_of: Decoder[Order] = Decoder(TypeAdapter(Order))
event_of: Decoder[Event] = Decoder(TypeAdapter(Event))
fork_of: Decoder[Fork] = Decoder(TypeAdapter(Fork))
told_by_fork_server: Decoder[Started | Exited] = Decoder(
    TypeAdapter(Annotated[Started | Exited, Field(discriminator="event")])
)


def encoded(message: Message) -> bytes:
    """Returns a message as one line of JSON, without the line's end."""
    return json.dumps(asdict(message)).encode()
