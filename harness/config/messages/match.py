"""These values of a trial file say which messages a trial means, and what is done to them. They are pure.

Every message between two servers, or a client and a server, is a request or the answer to one
(https://kafka.apache.org/protocol).
"""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

from prozess.harness.config.configuration import Count, refuse_counts
from prozess.harness.config.messages import names
from prozess.harness.values import Frozen

HOLD_MAX_S = 600.0
"""No message is held for longer."""


def awaited_rule(step: str) -> str:
    """Returns the name of the rule that watches for the message which a step waits for."""
    return f"before {step}"


def rules_of(step: str) -> frozenset[str]:
    """Returns the names of all rules that a step may have: that of its fault, and that of what it waits for."""
    return frozenset({step, awaited_rule(step)})


def _api(name: str) -> str:
    return names.known(name, names.api_names().values(), "an API")


def _error(name: str) -> str:
    return names.known(name, names.error_codes(), "an error code")


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


ApiName = Annotated[str, AfterValidator(_api)]
ErrorName = Annotated[str, AfterValidator(_error)]


class MessageMatch(Frozen):
    """A match says which messages are meant. What is not given may be anything.

    A match looks at the header of a message and, where a field of the body is named, at the body, by Kafka's own schemas.
    Where an answer does not name its topic, group, transactional id, producer epoch or sequence, those of its request count.
    """

    api: Annotated[tuple[ApiName, ...], BeforeValidator(_several), Field(min_length=1)]
    """The API, as Kafka names it (`Produce`, `Fetch`, `EndTxn`, `AlterPartition`, `Vote`, …); or several."""
    direction: Literal["request", "answer"] = "request"
    """`request` means what is asked, `answer` what is answered."""
    client: str | None = None
    """The client id in the header: the name of a client of the trial (`*` for any end: `producer-*`)."""
    partition: NonNegativeInt | None = None
    """A partition of the plan, by its id. It stands for `topic` and `number`."""
    topic: str | None = None
    """The name of a topic. Topic ids are looked up when the match begins."""
    number: NonNegativeInt | None = None
    """The number of a partition in its topic."""
    group: str | NonNegativeInt | None = None
    """A group.id; or the number of a cell, for its group."""
    transactional_id: str | NonNegativeInt | None = None
    """A transactional.id; or the number of a cell, for the first of its transactional.ids."""
    producer_epoch: NonNegativeInt | None = None
    """The epoch of a producer: of the request, or of a batch of records in it."""
    first_sequence: NonNegativeInt | None = None
    """The sequence of the first record of a batch (KIP-98)."""
    commit: bool | None = None
    """For an EndTxn request: true means that it commits, false that it aborts."""
    error: ErrorName | None = None
    """The error code of an answer, at the top or of the partition that is meant: `NONE` for success."""
    nth: Count | None = None
    """Only the match of this number counts: 1 is the first."""
    every: Count | None = None
    """With 3 only the third match counts, the sixth, …"""
    until: Count | None = None
    """No match after this number counts."""
    after: Annotated[str, Field(min_length=1)] | None = None
    """The name of an earlier step. Only messages that come after that step's first hit count: 1 is the first of these."""
    released: bool = False
    """True: a message that another step held counts when it goes on, too. Otherwise a message counts only when it comes."""

    @field_validator("group", "transactional_id")
    @classmethod
    def _named(cls, value: str | int | None) -> str | int | None:
        if value == "":
            raise ValueError("it must not be empty; leave it out if it may be anything")
        return value

    @model_validator(mode="after")
    def _possible(self) -> "MessageMatch":
        if self.error is not None and self.direction == "request":
            raise ValueError(f'error = "{self.error}": a request has no error code; give direction = "answer"')
        refuse_counts(self.nth, self.every, self.until, "match")
        if self.partition is not None and (self.topic is not None or self.number is not None):
            raise ValueError(f"partition = {self.partition} stands for a topic and a number; leave these out")
        if self.number is not None and self.topic is None:
            raise ValueError(f"number = {self.number} is a partition of a topic; give the topic, or partition = its id")
        if self.commit is not None and set(self.api) != {"EndTxn"}:
            raise ValueError('only an EndTxn request says whether it commits; give api = "EndTxn"')
        for name, apis in ONLY_OF.items():
            if getattr(self, name) is not None and (wrong := sorted(set(self.api) - apis)):
                raise ValueError(f"{name}: {wrong[0]} messages have no {name}; use one of: {', '.join(sorted(apis))}")
        return self


_OF_PARTITIONS = frozenset(
    {
        "Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "AddPartitionsToTxn", "TxnOffsetCommit",
        "WriteTxnMarkers", "DeleteRecords", "OffsetForLeaderEpoch", "AlterPartition", "Metadata", "ElectLeaders",
        "DescribeProducers", "AlterPartitionReassignments", "ListPartitionReassignments", "Vote", "BeginQuorumEpoch",
        "EndQuorumEpoch", "FetchSnapshot", "DescribeQuorum", "ShareFetch", "ShareAcknowledge", "CreateTopics",
        "DeleteTopics", "CreatePartitions", "OffsetDelete", "DescribeTopicPartitions", "DescribeLogDirs",
        "AssignReplicasToDirs",
    }
)  # fmt: skip
ONLY_OF: dict[str, frozenset[str]] = {
    "partition": _OF_PARTITIONS,
    "topic": _OF_PARTITIONS | {"ConsumerGroupHeartbeat"},
    "number": _OF_PARTITIONS,
    "group": frozenset(
        {
            "OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "TxnOffsetCommit",
            "AddOffsetsToTxn", "OffsetDelete", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch",
            "ShareAcknowledge", "StreamsGroupHeartbeat", "ReadShareGroupState", "WriteShareGroupState",
            "InitializeShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
        }
    ),
    "transactional_id": frozenset(
        {"Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"}
    ),
    "producer_epoch": frozenset(
        {
            "Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit",
            "WriteTxnMarkers",
        }
    ),
    "first_sequence": frozenset({"Produce"}),
}  # fmt: skip
"""The fields of a match that only some APIs have → these APIs. A match that can never be is refused."""

BETWEEN_SERVERS = frozenset(
    {
        "AllocateProducerIds", "AlterPartition", "AssignReplicasToDirs", "BeginQuorumEpoch", "BrokerHeartbeat",
        "BrokerRegistration", "ControlledShutdown", "ControllerRegistration", "EndQuorumEpoch", "Envelope",
        "FetchSnapshot", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "Vote",
    }
)  # fmt: skip
"""The APIs that only servers ask each other: no client has a method for them (Kafka's `Admin`, and the `listeners` of its
message schemas). No connection of a client has such a message."""

OF_ZOOKEEPER = frozenset({"ControlledShutdown", "LeaderAndIsr", "StopReplica", "UpdateMetadata"})
"""The APIs of a controller in ZooKeeper mode, and of one that migrates from it: KRaft has no use for them (KIP-631, KIP-866;
they are gone with Kafka 4.0, KIP-896)."""
OF_KRAFT = frozenset(
    {
        "AssignReplicasToDirs", "BeginQuorumEpoch", "BrokerHeartbeat", "BrokerRegistration", "ControllerRegistration",
        "EndQuorumEpoch", "FetchSnapshot", "Vote",
    }
)  # fmt: skip
"""The APIs of KRaft's quorum and of its brokers' registrations (KIP-595, KIP-630, KIP-631, KIP-858, KIP-919)."""
OF_CLIENTS = frozenset(
    {
        "AddOffsetsToTxn", "ConsumerGroupHeartbeat", "EndTxn", "Heartbeat", "InitProducerId", "JoinGroup", "LeaveGroup",
        "OffsetCommit", "OffsetFetch", "Produce", "ShareAcknowledge", "ShareFetch", "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat", "SyncGroup", "TxnOffsetCommit",
    }
)  # fmt: skip
"""The APIs that only clients ask for: a broker neither sends nor forwards such a request (ForwardingManager wraps requests
for the controller in Envelope, KIP-590)."""

# What is done to a message.


class LoseMessage(Frozen):
    """The message never arrives."""

    do: Literal["lose"] = "lose"
    connection: Literal["close", "keep"] = "close"
    """`close`: its connection is reset, as after a permanent loss in the network. `keep`: the connection goes on
    without it, which TCP never does."""


class HoldMessage(Frozen):
    """The message waits, and with it everything behind it on its connection, in its direction. It arrives even if its
    sender has given its connection up, as a late packet does.

    It waits for `seconds`, or until another message was seen, or until the fault is healed.
    """

    do: Literal["hold"] = "hold"
    seconds: Annotated[float, Field(gt=0, le=HOLD_MAX_S)] | None = None
    until: MessageMatch | None = None
    """A message that ends the wait, on any link of the cluster. Only messages after the wait began count: with `nth` = 2 the
    second ends the wait."""
    when_healed: Literal["deliver", "drop"] = "deliver"
    """What becomes of messages that still wait when the fault is healed. `drop` resets their connections."""

    @model_validator(mode="after")
    def _one_end(self) -> "HoldMessage":
        if self.seconds is not None and self.until is not None:
            raise ValueError("give seconds or until, and not both")
        return self


class SwapMessages(Frozen):
    """The message waits for the next one that matches, lets it pass, and follows it. On one connection TCP never does
    this; on two connections a network does."""

    do: Literal["swap"] = "swap"
    seconds: Annotated[float, Field(gt=0, le=HOLD_MAX_S)] = 10.0
    """The longest wait: then the message goes on by itself."""


class RepeatMessage(Frozen):
    """The message arrives twice. The second answer to a request that was repeated is dropped. TCP never does this; a
    client that sends a request again does."""

    do: Literal["twice"] = "twice"


class AnswerWithError(Frozen):
    """A request is answered with an error, and the broker never sees it. A Produce request with acks=0 has no answer, and
    its connection is closed, as brokers do. An answer gets this error in place of the broker's own, which no network and no
    broker does."""

    do: Literal["answer"] = "answer"
    error: ErrorName

    @field_validator("error")
    @classmethod
    def _an_error(cls, error: str) -> str:
        if error == "NONE":
            raise ValueError("NONE is no error: nothing may be acknowledged that no broker has written")
        return error


class CloseConnection(Frozen):
    """The connection of the message is reset: before it, so that it never arrives, or right after it."""

    do: Literal["close"] = "close"
    when: Literal["before", "after"] = "before"


class TruncateMessage(Frozen):
    """Only the first bytes of the message arrive, and its connection is reset."""

    do: Literal["truncate"] = "truncate"
    bytes: PositiveInt


class RecordMessage(Frozen):
    """Nothing is done to the message. It is recorded in the history, as every message that matches is."""

    do: Literal["record"] = "record"


MessageAction = Annotated[
    LoseMessage
    | HoldMessage
    | SwapMessages
    | RepeatMessage
    | AnswerWithError
    | CloseConnection
    | TruncateMessage
    | RecordMessage,
    Field(discriminator="do"),
]


def beyond_networks(match: MessageMatch, action: MessageAction) -> str | None:
    """Returns what the action does that no network and no broker does, as words; None if it does nothing of the kind.

    What Kafka promises rests on TCP: bytes of a connection arrive once, whole and in order, or the connection ends.
    """
    match action:
        case LoseMessage() if action.connection == "keep":
            return "a message was lost, and its connection went on"
        case SwapMessages():
            return "messages were swapped"
        case RepeatMessage():
            return "a message arrived twice"
        case AnswerWithError() if match.direction == "answer":
            return "a broker's answer was replaced by an error"
        case _:
            return None
