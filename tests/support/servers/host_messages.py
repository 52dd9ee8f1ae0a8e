"""This module says what a caller and the host of a cluster in its sandbox say to each other: typed values, one JSON
object per line.

A request is checked once, where it is decoded, and so is an answer. Both ends are this very code, so what is not known is
a mistake of prozess.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from prozess.clusters.machine.sandbox import Isolation
from prozess.harness import errors
from prozess.harness.config.impairments import Harm, Impairment
from prozess.harness.errors import HarnessFailed, NotReady, ProzessError
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.schema import Tristate


class HostMessage(BaseModel):
    """The base of all messages. A key that is not known is an error, and nothing is converted: "5" is no number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


# Requests: from the caller to the host.


class SetupRequest(HostMessage):
    """Asks the host to start the servers."""

    ask: Literal["setup"] = "setup"


class WaitReadyRequest(HostMessage):
    """Asks the host to wait until every broker is ready."""

    timeout_s: float
    ask: Literal["wait_ready"] = "wait_ready"


class DescribeRequest(HostMessage):
    """Asks the host what the cluster is: `DescriptionAnswer`."""

    ask: Literal["describe"] = "describe"


class CollectLogsRequest(HostMessage):
    """Asks the host to copy the servers' logs into this directory."""

    into: Path
    ask: Literal["collect_logs"] = "collect_logs"


class ServerRequest(HostMessage):
    """Asks the host to start, kill, pause or resume the server of a node."""

    node: str
    do: Literal["start", "kill", "pause", "resume"]
    ask: Literal["server"] = "server"


class ShutdownRequest(HostMessage):
    """Asks the host to shut the server of a node down."""

    node: str
    timeout_s: float
    ask: Literal["stop"] = "stop"


class StateRequest(HostMessage):
    """Asks the host what state the server of a node is in: `StateAnswer`."""

    node: str
    ask: Literal["state"] = "state"


class LinkRequest(HostMessage):
    """Asks the host to block what comes to a node from another, or to let it through again."""

    node: str
    do: Literal["block", "unblock"]
    source: str
    ask: Literal["link"] = "link"


class ReceivesRequest(HostMessage):
    """Asks the host whether anything comes to a node from another: `SeenAnswer`."""

    node: str
    source: str
    ask: Literal["receives_from"] = "receives_from"


class ImpairRequest(HostMessage):
    """Asks the host to impair a node, or to repair it."""

    node: str
    do: Literal["impair", "repair"]
    impairment: Impairment
    ask: Literal["impair"] = "impair"


class ImpairedRequest(HostMessage):
    """Asks the host whether a node is impaired, and what says: `SeenAnswer`."""

    node: str
    impairment: Impairment
    ask: Literal["impaired"] = "impaired"


class HarmRequest(HostMessage):
    """Asks the host to harm what a node has stored, and what was done: `HarmedAnswer`."""

    node: str
    harm: Harm
    ask: Literal["harm"] = "harm"


ClusterRequest = SetupRequest | WaitReadyRequest | DescribeRequest | CollectLogsRequest
NodeRequest = (
    ServerRequest
    | ShutdownRequest
    | StateRequest
    | LinkRequest
    | ReceivesRequest
    | ImpairRequest
    | ImpairedRequest
    | HarmRequest
)
Request = ClusterRequest | NodeRequest


class Asked(HostMessage):
    """A request with its number, which the answer repeats."""

    number: int
    request: Annotated[Request, Field(discriminator="ask")]


# Answers: from the host to the caller.


class DoneAnswer(HostMessage):
    """The request is carried out."""

    answer: Literal["done"] = "done"


class NodeFacts(HostMessage):
    """Describes what does not change of a node."""

    address: str
    data_directory: Path


Servers = dict[int, tuple[str, int]]
"""Id of a node → the host and port of a listener of its."""


class FactsAnswer(HostMessage):
    """Describes what does not change of the cluster that the host has built. It is the host's first message."""

    isolation: Isolation
    capabilities: dict[Capability, str]
    lacks: dict[Capability, str]
    bootstrap_servers: str
    observer_servers: Servers
    controller_servers: Servers
    zookeeper_servers: Servers
    metrics_servers: Servers
    nodes: dict[str, NodeFacts]
    answer: Literal["facts"] = "facts"


class DescriptionAnswer(HostMessage):
    """The answer to `DescribeRequest`: what becomes a part of `cluster.json`, as it is."""

    description: dict[str, Any]
    answer: Literal["description"] = "description"


class StateAnswer(HostMessage):
    """The answer to `StateRequest`. `os_pid`: the pid of the server, if it runs."""

    state: NodeState
    os_pid: int | None
    answer: Literal["state"] = "state"


class SeenAnswer(HostMessage):
    """The answer to `ReceivesRequest` and `ImpairedRequest`. `what`: what says."""

    seen: Tristate
    what: str = ""
    answer: Literal["seen"] = "seen"


class HarmedAnswer(HostMessage):
    """The answer to `HarmRequest`: what was done, in words."""

    what: str
    answer: Literal["harmed"] = "harmed"


class FailedAnswer(HostMessage):
    """The request failed, with an error of this class and this text."""

    error: str
    text: str
    answer: Literal["failed"] = "failed"


class NotReadyAnswer(HostMessage):
    """The request failed because a wait ran out of time."""

    awaited: str
    timeout_s: float
    last_seen: str
    answer: Literal["not-ready"] = "not-ready"


Failure = FailedAnswer | NotReadyAnswer
Answer = DoneAnswer | FactsAnswer | DescriptionAnswer | StateAnswer | SeenAnswer | HarmedAnswer


class Told(HostMessage):
    """An answer with the number of its request."""

    number: int
    answer: Annotated[Answer | Failure, Field(discriminator="answer")]


_ERRORS: Mapping[str, type[ProzessError]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, ProzessError) and value is not NotReady
}


def failure_of(error: BaseException) -> Failure:
    """Returns an exception as an answer from which the caller can raise its like. One that is not of prozess is a
    failure of the harness."""
    if isinstance(error, NotReady):
        return NotReadyAnswer(
            awaited=_printable(error.awaited), timeout_s=error.timeout_s, last_seen=_printable(error.last_seen)
        )
    known = next((kind.__name__ for kind in type(error).__mro__ if kind in _ERRORS.values()), None)
    if known is None:
        return FailedAnswer(error=HarnessFailed.__name__, text=_printable(f"{type(error).__name__}: {error}"))
    return FailedAnswer(error=known, text=_printable(str(error)))


def error_of(failure: Failure) -> ProzessError:
    """Returns the exception that the other side raised."""
    match failure:
        case NotReadyAnswer():
            return NotReady(awaited=failure.awaited, timeout_s=failure.timeout_s, last_seen=failure.last_seen)
        case FailedAnswer():
            return _ERRORS[failure.error](failure.text)


def _printable(text: str) -> str:
    """Returns a text that can be written: what names a file may hold bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()


M = TypeVar("M", Asked, Told)


def encoded(message: Asked | Told) -> bytes:
    """Returns a message as one line."""
    return message.model_dump_json().encode() + b"\n"


def decoded(kind: type[M], line: bytes) -> M:
    """Returns the message that a line is. AssertionError, with the line and what is wrong with it, if it is none."""
    try:
        return TypeAdapter(kind).validate_json(line)
    except ValidationError as error:
        raise AssertionError(f"{line!r} is no message of this direction: {error}") from error
