"""These values of a trial file say which calls of a server's methods a trial means, and what is done to them. They are pure.

A method is named as javadoc names it: `org.apache.kafka.storage.internals.log.UnifiedLog#appendAsFollower`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, model_validator

from prozess.harness.config.configuration import Count, refuse_counts
from prozess.harness.values import Frozen

STAND_STILL_MAX_S = 600.0
"""No call is delayed or paused for longer."""
_IDENTIFIER = r"[A-Za-z_$][\w$]*"
_CLASS = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})*"
_METHOD = re.compile(
    rf"(?P<class>{_CLASS})#(?P<method>{_IDENTIFIER})(?:\((?P<arguments>|{_CLASS}(?:\[\])*(?:, ?{_CLASS}(?:\[\])*)*)\))?"
)
WAKING_CLASS = "org.apache.kafka.common.network.Selector"
"""The class whose calls end a wait when the fault is healed: the threads of every Kafka server call it all the time."""


@dataclass(frozen=True, slots=True)
class MethodName:
    """The name of a method, or of all methods of this name that a class has."""

    class_name: str
    method: str
    arguments: tuple[str, ...] | None = None
    """The types of its arguments, with their packages or without; None means whatever it takes."""

    @classmethod
    def parse(cls, text: str) -> "MethodName":
        """Reads `package.Class#method`, or with types `package.Class#method(Type, int)`. ValueError with the rule."""
        found = _METHOD.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} names no method; give package.Class#method, or package.Class#method(Type, int) to name "
                "one of several ($ before the name of a nested class)"
            )
        arguments = found["arguments"]
        given = None if arguments is None else tuple(a.strip() for a in arguments.split(",") if a.strip())
        return cls(found["class"], found["method"], given)

    def __str__(self) -> str:
        arguments = "" if self.arguments is None else f"({', '.join(self.arguments)})"
        return f"{self.class_name}#{self.method}{arguments}"


def _method(text: str) -> str:
    MethodName.parse(text)
    return text


def _plain(text: str) -> str:
    if re.search(r'["\\]|[^\x20-\x7e]', text) or not text:
        raise ValueError(f"{text!r} must be printable ASCII without quotes and backslashes, and not empty")
    return text


def _class(text: str) -> str:
    if not re.fullmatch(_CLASS, text):
        raise ValueError(f"{text!r} is no name of a class; give it with its package, such as java.io.IOException")
    return text


class MethodCalls(Frozen):
    """Says which calls are meant. What is not given may be anything."""

    method: Annotated[str, AfterValidator(_method)]
    """The method, as javadoc names it: `package.Class#method`, or `package.Class#method(Type, int)` for one of several."""
    at: Literal["entry", "exit"] = "entry"
    """Before the first statement of the method, or when it returns. It is no exit if it throws."""
    partition: NonNegativeInt | None = None
    """A partition of the plan, by its id: the text of the object whose method is called, or of an argument, names it."""
    naming: Annotated[str, AfterValidator(_plain)] | None = None
    """The text (`toString`) of the object whose method is called, or of an argument, has this in it."""

    @property
    def name(self) -> MethodName:
        """Returns the name of the method in its parts."""
        return MethodName.parse(self.method)


class CallNumbers(Frozen):
    """Says which of the calls that are meant count, by their numbers."""

    nth: Count | None = None
    """Only the call of this number counts: 1 is the first."""
    every: Count | None = None
    """With 3 only the third call counts, the sixth, …"""
    until: Count | None = None
    """No call after this number counts."""

    @model_validator(mode="after")
    def _one_way_to_count(self) -> "CallNumbers":
        refuse_counts(self.nth, self.every, self.until, "call")
        return self

    @property
    def last(self) -> int | None:
        """Returns the number of the last call that can count; None if there is none."""
        return self.nth if self.nth is not None else self.until


class MethodMatch(MethodCalls, CallNumbers):
    """Says which calls are meant, and which of them count."""

    @property
    def numbers(self) -> CallNumbers:
        """Returns which of the calls count."""
        return CallNumbers(nth=self.nth, every=self.every, until=self.until)


# What is done to a call. A thread that makes it stands still, and everything that waits for this thread.


class DelayCall(Frozen):
    """The call goes on after a time, or when the fault is healed."""

    do: Literal["delay"] = "delay"
    seconds: Annotated[float, Field(gt=0, le=STAND_STILL_MAX_S)]


class PauseCall(Frozen):
    """The call goes on when another method is called, or when the fault is healed."""

    do: Literal["pause"] = "pause"
    until: MethodCalls | None = None
    """A call that ends the wait, on the same node."""
    seconds: Annotated[float, Field(gt=0, le=STAND_STILL_MAX_S)] = STAND_STILL_MAX_S
    """It goes on by itself after so long."""


class ThrowFromCall(Frozen):
    """The method throws this exception. One that is checked must be declared by the method."""

    do: Literal["throw"] = "throw"
    exception: Annotated[str, AfterValidator(_class)]


MethodAction = Annotated[DelayCall | PauseCall | ThrowFromCall, Field(discriminator="do")]


def beyond_code(match: MethodMatch, action: MethodAction) -> str | None:
    """Returns what the action does that Kafka's code may never do, as words; None if it does nothing of the kind.

    A thread may stand still anywhere, and for any time: no JVM promises more. An exception may be one that is never thrown
    there.
    """
    if isinstance(action, ThrowFromCall):
        name = match.name
        return f"{name.class_name.rpartition('.')[2]}#{name.method} threw {action.exception}"
    return None


class MeantCalls(Frozen):
    """Calls in Kafka's own names."""

    method: str
    at: Literal["entry", "exit"] = "entry"
    topic: str | None = None
    number: NonNegativeInt | None = None
    naming: str | None = None

    @property
    def name(self) -> MethodName:
        """Returns the name of the method in its parts."""
        return MethodName.parse(self.method)


def meant_calls(calls: MethodCalls, partitions: Mapping[int, tuple[str, int]]) -> MeantCalls:
    """Returns the calls with Kafka's names in place of the plan's numbers. KeyError if the plan has no such partition."""
    topic, number = partitions[calls.partition] if calls.partition is not None else (None, None)
    return MeantCalls(method=calls.method, at=calls.at, topic=topic, number=number, naming=calls.naming)
