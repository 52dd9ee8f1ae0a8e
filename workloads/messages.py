"""This module says what the run stage, the fork server and the client processes say to each other: typed values, and
their one encoding.

A message is a JSON object. It is checked once, where it is decoded. Both ends are this very code, so a message that is
not known is a mistake of prozess.
"""

import json
import re
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, Strict, TypeAdapter, ValidationError


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _number_of(key: object) -> int:
    """Returns the number that a key is: JSON has keys of text alone."""
    if type(key) is int:
        return key
    if not (isinstance(key, str) and _WHOLE.fullmatch(key)):
        raise ValueError(f"{key!r} is no number written as a key")
    return int(key)


_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
Text = Annotated[str, PlainValidator(_text)]
"""Any text. A path, or an error's words, may hold bytes that are no UTF-8, which pydantic's own text may not."""
Whole = Annotated[int, Strict()]
"""A whole number. A text of digits is none, and neither is true."""
Key = Annotated[int, PlainValidator(_number_of)]
"""A whole number that is the key of an object."""
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
"""Any number but an infinite one."""
Flag = Annotated[bool, Strict()]
"""True or false. A number is neither."""


class Message(BaseModel):
    """The base of all messages. A key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# Commands: from the run stage to a client. Each is answered by `DoneEvent`.


class ResumeCommand(Message):
    """Send, at the rate of the plan."""

    do: Literal["resume"] = "resume"


class PauseCommand(Message):
    """Send nothing until `ResumeCommand`."""

    do: Literal["pause"] = "pause"


class SendCommand(Message):
    """Send `count` records to each of these partitions. It is done once all have been issued."""

    partitions: list[Whole]
    count: Whole
    do: Literal["send"] = "send"


class BeginCommand(Message):
    """Write to these late partitions too: they exist now."""

    partitions: list[Whole]
    do: Literal["begin"] = "begin"


class HoldCommand(Message):
    """Stay in the middle of a transaction until `GoOnCommand`."""

    do: Literal["hold"] = "hold"


class GoOnCommand(Message):
    """Go on after `HoldCommand`: another has taken the transactional.id over."""

    do: Literal["go_on"] = "go_on"


class TakeOverCommand(Message):
    """Take the transactional.id over. It is done once the new instance is initialised."""

    do: Literal["take_over"] = "take_over"


class FinishCommand(Message):
    """Send nothing more, and end once every report has come, or after the limit."""

    timeout_s: Number
    do: Literal["finish"] = "finish"


class StopCommand(Message):
    """Asks a client to end in order."""

    do: Literal["stop"] = "stop"


class StallCommand(Message):
    """Let the member not poll for this long."""

    seconds: Number
    do: Literal["stall"] = "stall"


class DrainCommand(Message):
    """Say `DrainingEvent` again and again from now on."""

    quiet_s: Number
    do: Literal["drain"] = "drain"


class FenceCommand(Message):
    """Initialise every transactional.id once more, and say `FencedEvent`."""

    timeout_s: Number
    do: Literal["fence"] = "fence"


class LookCommand(Message):
    """Record what the groups have committed, and say `LookedEvent`."""

    timeout_s: Number
    do: Literal["look"] = "look"


class FollowCommand(Message):
    """Say `FollowedEvent` once these partitions are committed to their ends, nothing has moved for a while, or the limit has
    passed."""

    partitions: list[Whole]
    quiet_s: Number
    timeout_s: Number
    do: Literal["follow"] = "follow"


class WriteCommand(Message):
    """Write the sentinels, and say `SentinelsEvent`."""

    timeout_s: Number
    do: Literal["write"] = "write"


class ReadCommand(Message):
    """Read each partition through its sentinel, and say `AuditedEvent`. `through`: dense partition → offset."""

    through: dict[Key, Whole]
    timeout_s: Number
    do: Literal["read"] = "read"


class ReachCommand(Message):
    """Say `ReachedEvent` once each of these partitions was read through its offset."""

    through: dict[Key, Whole]
    do: Literal["reach"] = "reach"


Command = (
    ResumeCommand
    | PauseCommand
    | SendCommand
    | BeginCommand
    | HoldCommand
    | GoOnCommand
    | TakeOverCommand
    | FinishCommand
    | StopCommand
    | StallCommand
    | DrainCommand
    | FenceCommand
    | LookCommand
    | FollowCommand
    | WriteCommand
    | ReadCommand
    | ReachCommand
)


class Order(Message):
    """A command with its number, which `DoneEvent` repeats."""

    number: Whole
    command: Annotated[Command, Field(discriminator="do")]


# Events: from a client to the run stage.


class ReadyEvent(Message):
    """The Kafka client is made."""

    event: Literal["ready"] = "ready"


class DoneEvent(Message):
    """The command of this number is carried out."""

    number: Whole
    event: Literal["done"] = "done"


class ChildEvent(Message):
    """A process of its own has begun. `speaks`: the client records what it says, and ends with it."""

    session: Whole
    speaks: Flag = False
    event: Literal["child"] = "child"


class ChildEndedEvent(Message):
    """A process of its own has ended."""

    session: Whole
    event: Literal["child-ended"] = "child-ended"


class EndedEvent(Message):
    """The last message of a client: how it ended, and why."""

    code: Whole
    reason: Text
    event: Literal["ended"] = "ended"


class DrainingEvent(Message):
    """Says where a member of a group is. `at`: dense partition → (position, whether that is the end)."""

    at: dict[Key, tuple[Whole, Flag]]
    processed: Whole
    event: Literal["draining"] = "draining"


class FencedEvent(Message):
    """The answer to `FenceCommand`. `problems`: transactional.id → why it was not initialised."""

    problems: dict[Text, Text]
    event: Literal["fenced"] = "fenced"


class LookedEvent(Message):
    """The answer to `LookCommand`. `missing`: group.id → why nothing is known of it."""

    missing: dict[Text, Text]
    event: Literal["looked"] = "looked"


class FollowedEvent(Message):
    """The answer to `FollowCommand`. `behind`: by dense partition, the committed offset (NONE: nothing is committed) of those
    that are not committed to their ends, and the end."""

    behind: dict[Key, tuple[Whole, Whole]] = {}
    event: Literal["followed"] = "followed"


class SentinelsEvent(Message):
    """The answer to `WriteCommand`, by dense partition: the sentinels' offsets, and why there is none."""

    written: dict[Key, Whole]
    missing: dict[Key, Text]
    event: Literal["sentinels"] = "sentinels"


class AuditedEvent(Message):
    """The answer to `ReadCommand`, by dense partition: the offset through which it was read, or why it was not."""

    complete: dict[Key, Whole]
    incomplete: dict[Key, Text]
    event: Literal["audited"] = "audited"


class ReachedEvent(Message):
    """The answer to `ReachCommand`."""

    event: Literal["reached"] = "reached"


Answer = DrainingEvent | FencedEvent | LookedEvent | FollowedEvent | SentinelsEvent | AuditedEvent | ReachedEvent
"""What the run stage waits for beyond `DoneEvent`."""
Event = Annotated[
    ReadyEvent | DoneEvent | ChildEvent | ChildEndedEvent | EndedEvent | Answer, Field(discriminator="event")
]


# Between the run stage and the fork server.


class Fork(Message):
    """Start one process with these clients; it comes with their ends of the control pipes."""

    clients: list[Whole]
    logs: list[Text]
    log: Text
    """The log of the process."""


class Started(Message):
    """Reports that a process has started, and which clients it runs."""

    pid: Whole
    clients: list[Whole]
    event: Literal["started"] = "started"


class Exited(Message):
    """A process has ended; `status` is negative for the signal that ended it."""

    pid: Whole
    status: Whole
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
fork_server_events: Decoder[Started | Exited] = Decoder(
    TypeAdapter(Annotated[Started | Exited, Field(discriminator="event")])
)


def encoded(message: Message) -> bytes:
    """Returns a message as one line of JSON, without the line's end."""
    return json.dumps(message.model_dump()).encode()
