"""This module says what cells and clients do beyond topic and producer. A cell has one such value, and its class says
which kind of configuration it has.

Only a `GroupWork` has a group, only a `TransactionsWork` has transactions. The cells of a test may have both, and say so
in a `RecordedWork`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from prozess.harness.config.configuration import (
    ApplicationConfiguration,
    CompactionConfiguration,
    ConsumerConfiguration,
    CopierConfiguration,
    GroupConfiguration,
    ProvocationConfiguration,
    ShareConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.errors import BadInput
from prozess.harness.values import Frozen


class GroupSession(Frozen):
    """Says how long the group coordinator waits for a heartbeat of a member, and how often members send one."""

    timeout_ms: int
    heartbeat_ms: int


class PlainWork(Frozen):
    """Needs no configuration beyond those of topic and producer."""

    kind: Literal["plain"] = "plain"


class GroupWork(Frozen):
    """A consumer group processes what is written."""

    kind: Literal["group"] = "group"
    configuration: GroupConfiguration
    session: GroupSession
    """The session of its members."""


class ShareWork(Frozen):
    """A share group processes what is written."""

    kind: Literal["share"] = "share"
    configuration: ShareConfiguration


class TransactionsWork(Frozen):
    """Producers write in transactions."""

    kind: Literal["transactions"] = "transactions"
    configuration: TransactionConfiguration


class CompactionWork(Frozen):
    """Producers write keys again and again, and tombstones."""

    kind: Literal["compaction"] = "compaction"
    configuration: CompactionConfiguration


class ErrorsWork(Frozen):
    """Producers provoke an error."""

    kind: Literal["errors"] = "errors"
    configuration: ProvocationConfiguration


class ConsumerWork(Frozen):
    """A verifiable consumer reads what is written."""

    kind: Literal["consumer"] = "consumer"
    configuration: ConsumerConfiguration


class CopierWork(Frozen):
    """Copiers copy what is written to another topic."""

    kind: Literal["copier"] = "copier"
    configuration: CopierConfiguration


class ApplicationWork(Frozen):
    """Instances of the user's application copy what is written to another topic."""

    kind: Literal["application"] = "application"
    configuration: ApplicationConfiguration


class RecordedWork(Frozen):
    """The recorded work of a test's clients. It may combine the kinds above."""

    kind: Literal["recorded"] = "recorded"
    group: GroupWork | None = None
    transactions: TransactionsWork | None = None
    token: str = ""
    """Hexadecimal: what the headers of the test's own records end with."""


ConfiguredWork = (
    GroupWork | ShareWork | TransactionsWork | CompactionWork | ErrorsWork | ConsumerWork | CopierWork | ApplicationWork
)
ClientWork = Annotated[PlainWork | ConfiguredWork, Field(discriminator="kind")]
"""What a client does: `kind` says which value it is."""
CellWork = Annotated[PlainWork | ConfiguredWork | RecordedWork, Field(discriminator="kind")]
"""What the clients of a cell do: `kind` says which value it is."""
OwnConfiguration = (
    GroupConfiguration
    | ShareConfiguration
    | TransactionConfiguration
    | CompactionConfiguration
    | ProvocationConfiguration
    | ConsumerConfiguration
    | CopierConfiguration
    | ApplicationConfiguration
)
"""The one configuration that a combination may have besides those of topic, producer and delivery."""
PLAIN = PlainWork()
W = TypeVar("W", bound=PlainWork | ConfiguredWork | RecordedWork)


def work_as(kind: type[W], work: CellWork) -> W:
    """Returns the work as the kind that it must be where this is called. AssertionError: it is of another kind."""
    assert isinstance(work, kind), f"expected {kind.__name__}, got {work!r}"
    return work


def work_with(own: OwnConfiguration | None, variant: Variant) -> PlainWork | ConfiguredWork:
    """Returns the work that this configuration is for. BadInput if it is a group's, and its session is no number."""
    match own:
        case None:
            return PLAIN
        case GroupConfiguration():
            return GroupWork(configuration=own, session=group_session(own, variant))
        case ShareConfiguration():
            return ShareWork(configuration=own)
        case TransactionConfiguration():
            return TransactionsWork(configuration=own)
        case CompactionConfiguration():
            return CompactionWork(configuration=own)
        case ProvocationConfiguration():
            return ErrorsWork(configuration=own)
        case ConsumerConfiguration():
            return ConsumerWork(configuration=own)
        case CopierConfiguration():
            return CopierWork(configuration=own)
        case ApplicationConfiguration():
            return ApplicationWork(configuration=own)


def configurations_of(work: CellWork) -> tuple[OwnConfiguration, ...]:
    """Returns the configurations that the work has: none, one, or those of a test's clients."""
    match work:
        case PlainWork():
            return ()
        case RecordedWork():
            parts = (work.group, work.transactions)
            return tuple(part.configuration for part in parts if part is not None)
        case _:
            return (work.configuration,)


WORK_OF_ROLES: Mapping[str, type[ConfiguredWork]] = {
    "member": GroupWork,
    "java-member": GroupWork,
    "share-member": ShareWork,
    "transactor": TransactionsWork,
    "keyed-producer": CompactionWork,
    "errors-producer": ErrorsWork,
    "verifiable-consumer": ConsumerWork,
    "copier": CopierWork,
    "java-copier": CopierWork,
    "application": ApplicationWork,
}
"""Role of a planned client → the work that it is planned for. The work of the other roles is plain."""


HEARTBEAT_MAX_MS = 3_000
"""The default of heartbeat.interval.ms."""


def group_session(group: GroupConfiguration, variant: Variant) -> GroupSession:
    """Returns the session of a group's members as they are configured.

    In the consumer protocol it is as the brokers are configured or, where they set nothing, by Kafka's defaults.
    [KIP-848; documentation of 4.3, broker configuration]
    """
    if group.protocol == "consumer":
        brokers = variant.properties
        return GroupSession(
            timeout_ms=_ms(brokers, "group.consumer.session.timeout.ms", 45_000),
            heartbeat_ms=_ms(brokers, "group.consumer.heartbeat.interval.ms", 5_000),
        )
    timeout_ms = _ms(group.properties, "session.timeout.ms", group.session_timeout_ms)
    # Well below the session, which Kafka's documentation asks for: at most a third.
    heartbeat_ms = min(HEARTBEAT_MAX_MS, max(1, timeout_ms // 4))
    return GroupSession(
        timeout_ms=timeout_ms, heartbeat_ms=_ms(group.properties, "heartbeat.interval.ms", heartbeat_ms)
    )


def _ms(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default))
    if not text.isdigit():
        raise BadInput(f"{key} = {text!r} is not a whole number of milliseconds. Give one.")
    return int(text)
