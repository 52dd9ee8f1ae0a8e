"""An impairment is something that can be done to a node beyond its process. It is a value, so that a journal can hold
it and any process can undo it. A capability says which impairments a backend can make."""

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, TypeAdapter

from prozess.harness.config.messages.match import HoldMessage, MessageAction
from prozess.harness.config.messages.planned_names import MeantMessages, action_for_proxy
from prozess.harness.config.methods import (
    CallNumbers,
    MeantCalls,
    MethodAction,
    MethodMatch,
    PauseCall,
    ThrowFromCall,
    meant_calls,
)
from prozess.harness.values import Frozen

# What a backend can do to a node, by name.


@unique
class Capability(StrEnum):
    """The things that a backend may be able to do to a node."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    BLOCK = "block"
    """Drop what one node sends to another, one way."""
    CUT_CLIENTS = "cut-clients"
    """Drop what the trial's clients send to a node, or what the node sends to them."""
    LOSE = "lose"
    """Drop a share of the packets."""
    SHAPE = "shape"
    """Limit the bandwidth of a link."""
    DELAY = "delay"
    """Delay everything that passes on a link."""
    MESSAGES = "messages"
    """Hold, lose or alter single messages of Kafka's protocol on a link."""
    METHODS = "methods"
    """Delay, pause or break calls of a server's own methods."""
    RESET = "reset"
    """Reset open connections."""
    FILL_DISK = "fill-disk"
    """Fill the file system of a node's data, which no other node uses."""
    SLOW_DISK = "slow-disk"
    FREEZE_DISK = "freeze-disk"
    FAIL_DISK = "fail-disk"
    """Make a file system fail, with EROFS or EIO."""
    CHANGE_FILES = "change-files"
    """Wipe and corrupt files of a node that is down."""
    LOSE_POWER = "lose-power"
    """End a node together with everything that it has not fsynced."""
    INSTALL = "install"
    """Start a node with another version of Kafka, from then on."""
    HARM_STORE = "harm-store"
    """Keep brokers from the remote store of tiered storage, or from an object in it."""
    SHIFT_CLOCK = "shift-clock"
    """Set the wall clock of one running node."""


# An **impairment** lasts until it is repaired: a network that loses packets, a disk that is full, a clock that is off.
# A **harm** is done once and cannot be taken back: a wiped directory, a corrupted file, connections that were reset.
# Which of them a backend can do, it says by `Capability`. Nodes are named by their names; `clients` means the trial's
# clients.


CLIENTS: Literal["clients"] = "clients"
"""Names the trial's clients as the other side of a link. They are no node."""
ONLY_CLIENTS = (CLIENTS, [CLIENTS], (CLIENTS,))
"""What `others` of a fault of links may be for the connections of clients alone."""


class Loss(Frozen):
    """A share of the packets that `source` sends to the node is dropped. `source` None means anybody on the network
    that faults touch."""

    needs: ClassVar[Capability] = Capability.LOSE
    kind: Literal["loss"] = "loss"
    share: Annotated[float, Field(gt=0, lt=1)]
    source: str | None = None


class ClientCut(Frozen):
    """Everything that the trial's clients send to the node is dropped (`to-node`), or everything that it sends to
    them."""

    needs: ClassVar[Capability] = Capability.CUT_CLIENTS
    kind: Literal["client-cut"] = "client-cut"
    way: Literal["to-node", "from-node"]
    peer: Literal["clients"] = CLIENTS


class Bandwidth(Frozen):
    """What the node sends to `peer` is limited to this rate. `peer` None means anybody on the network that
    faults touch. `to-node`: what the trial's clients send to the node is limited, all of them together."""

    needs: ClassVar[Capability] = Capability.SHAPE
    kind: Literal["bandwidth"] = "bandwidth"
    bytes_per_s: PositiveInt
    peer: str | None = None
    way: Literal["from-node", "to-node"] = "from-node"
    """`to-node` is for the trial's clients alone: whatever else sends is a node, which has a limit of its own."""


class Latency(Frozen):
    """What passes on connections that `peer` opens to the node is late by `latency_ms` ± `jitter_ms`, each
    way. What the node sends on them is late by `back_ms` instead, if that is given."""

    needs: ClassVar[Capability] = Capability.DELAY
    kind: Literal["latency"] = "latency"
    peer: str
    latency_ms: NonNegativeFloat
    jitter_ms: NonNegativeFloat = 0.0
    back_ms: NonNegativeFloat | None = None

    @property
    def streams(self) -> dict[str, tuple[float, float]]:
        """Returns the delays of the proxy between the two, in ms: "upstream" and "downstream" → (late by, ±). Nothing
        is early."""
        back_ms = self.latency_ms if self.back_ms is None else self.back_ms
        ways = {"upstream": self.latency_ms, "downstream": back_ms}
        return {stream: (late_ms, min(self.jitter_ms, late_ms)) for stream, late_ms in ways.items()}


class MessageRule(Frozen):
    """Something is done to the messages that a rule means, on the connections that `peer` opens to the node."""

    needs: ClassVar[Capability] = Capability.MESSAGES
    kind: Literal["message"] = "message"
    peer: str
    rule: str
    """The name of the rule. Several links may have the same one, and it counts their messages together."""
    meant: MeantMessages
    action: MessageAction
    until: MeantMessages | None = None
    """A message that ends the wait of those that are held."""

    @property
    def for_proxy(self) -> dict[str, object]:
        """Returns the action as a proxy is informed of it."""
        return action_for_proxy(self.action)

    @property
    def delivers(self) -> bool:
        """Says whether messages that wait go on when this ends."""
        return not (isinstance(self.action, HoldMessage) and self.action.when_healed == "drop")

    @property
    def did(self) -> str:
        """Returns what is done to a message, as a word that follows "were"."""
        return DONE_TO_MESSAGES[self.action.do]


DONE_TO_MESSAGES = {
    "lose": "lost",
    "hold": "held",
    "swap": "swapped with the next",
    "twice": "repeated",
    "answer": "answered with an error",
    "close": "cut off with their connections",
    "truncate": "truncated",
    "record": "recorded",
    "wait": "held until the step was done",
    "delivered": "sent on after it was held",
    "dropped": "dropped after it was held",
    "connection gone": "held until its connection was gone",
    "not answered": "not answered with an error: it could not be",
}
"""What was done to a message, as the proxy's journal has it → as words that follow "were"."""


class MethodRule(Frozen):
    """Something is done to calls of one of the server's methods."""

    needs: ClassVar[Capability] = Capability.METHODS
    kind: Literal["method"] = "method"
    rule: str
    """The name of the rule. A node has at most one of each name."""
    meant: MeantCalls
    numbers: CallNumbers
    """Which of these calls count."""
    action: MethodAction
    until: MeantCalls | None = None
    """A call that ends the wait of those that are paused."""

    @classmethod
    def of(
        cls, rule: str, match: MethodMatch, action: MethodAction, partitions: Mapping[int, tuple[str, int]]
    ) -> "MethodRule":
        """Returns the rule of a step, with Kafka's names for the plan's partitions. KeyError if the plan has no such one."""
        until = action.until if isinstance(action, PauseCall) else None
        return cls(
            rule=rule,
            meant=meant_calls(match, partitions),
            numbers=match.numbers,
            action=action,
            until=meant_calls(until, partitions) if until is not None else None,
        )

    @property
    def seconds(self) -> float | None:
        """Returns for how long a call stands still at most; None if it does not."""
        return None if isinstance(self.action, ThrowFromCall) else self.action.seconds


class FullDisk(Frozen):
    """The file system of the node's data has no more than `left_bytes` free."""

    needs: ClassVar[Capability] = Capability.FILL_DISK
    kind: Literal["full-disk"] = "full-disk"
    left_bytes: Annotated[int, Field(ge=0)] = 0


class SlowDisk(Frozen):
    """Writes that reach the device are limited to this rate. Without `flush.messages` Kafka rarely waits for them."""

    needs: ClassVar[Capability] = Capability.SLOW_DISK
    kind: Literal["slow-disk"] = "slow-disk"
    bytes_per_s: PositiveInt


class FrozenDisk(Frozen):
    """The file system is frozen: a process that writes waits until it is thawed (fsfreeze(8))."""

    needs: ClassVar[Capability] = Capability.FREEZE_DISK
    kind: Literal["frozen-disk"] = "frozen-disk"


class FailedDisk(Frozen):
    """The file system became read-only after an error, or answers every access with EIO. It is repaired while the node
    is down."""

    needs: ClassVar[Capability] = Capability.FAIL_DISK
    kind: Literal["failed-disk"] = "failed-disk"
    how: Literal["read-only", "io-error"]


class ClockShift(Frozen):
    """The node's wall clock is off by `offset_ms`, and gains `drift_ppm` microseconds per second from then on; both may
    be negative. CLOCK_MONOTONIC stays untouched."""

    needs: ClassVar[Capability] = Capability.SHIFT_CLOCK
    kind: Literal["clock"] = "clock"
    offset_ms: float = 0.0
    drift_ppm: float = 0.0


class StoreAway(Frozen):
    """The remote store is `away`: whatever the node, and any other, reads, copies or deletes in it fails. Or it is
    `read-only`: what is there can be read."""

    needs: ClassVar[Capability] = Capability.HARM_STORE
    kind: Literal["store-away"] = "store-away"
    how: Literal["away", "read-only"] = "away"


class HarmedObject(Frozen):
    """An object of the remote store is `lost` (its files are gone), or `damaged` (bytes in the middle of its records are
    others). It is that of one segment of the partition: the `first`, the `middle` or the `last` that is there."""

    needs: ClassVar[Capability] = Capability.HARM_STORE
    kind: Literal["harmed-object"] = "harmed-object"
    topic: str
    number: int
    how: Literal["lost", "damaged"]
    which: Literal["first", "middle", "last"]


Impairment = Annotated[
    Loss
    | ClientCut
    | Bandwidth
    | Latency
    | MessageRule
    | MethodRule
    | FullDisk
    | SlowDisk
    | FrozenDisk
    | FailedDisk
    | ClockShift
    | StoreAway
    | HarmedObject,
    Field(discriminator="kind"),
]
IMPAIRMENT: TypeAdapter[Impairment] = TypeAdapter(Impairment)
"""Converts impairments from and to JSON."""


class Wipe(Frozen):
    """Empties the data directory of a node that is down."""

    needs: ClassVar[Capability] = Capability.CHANGE_FILES
    kind: Literal["wipe"] = "wipe"


class Corrupt(Frozen):
    """Changes `bytes` bytes in the newest file of that kind of a partition. Partition None means any partition, as
    `seed` decides."""

    needs: ClassVar[Capability] = Capability.CHANGE_FILES
    kind: Literal["corrupt"] = "corrupt"
    file: Literal["segment", "index", "checkpoint"]
    topic: str | None = None
    number: int | None = None
    bytes: PositiveInt = 8
    seed: int | str = 0


class DropCheckpoint(Frozen):
    """Removes the broker's recovery-point-offset-checkpoint, as an operator does if it cannot be read."""

    needs: ClassVar[Capability] = Capability.CHANGE_FILES
    kind: Literal["drop-checkpoint"] = "drop-checkpoint"


class PowerLoss(Frozen):
    """Ends the node together with everything that it had not fsynced. It starts again with what the disk has."""

    needs: ClassVar[Capability] = Capability.LOSE_POWER
    kind: Literal["power-loss"] = "power-loss"


class ResetConnections(Frozen):
    """Resets the connections between the node and `peer` (RST). `peer` None means everybody on the network that faults
    touch."""

    needs: ClassVar[Capability] = Capability.RESET
    kind: Literal["reset-connections"] = "reset-connections"
    peer: str | None = None


class Vanish(Frozen):
    """Kills the process, and lets its kernel forget every connection without a word (no FIN, no RST), as when a machine
    is gone. The others keep connections that go nowhere.

    The node must be cut off from everybody before, or else it is heard.
    """

    needs: ClassVar[Capability] = Capability.RESET
    kind: Literal["vanish"] = "vanish"


class DelayOpen(Frozen):
    """Makes the connections late that `peer` has open to the node now, by `latency_ms` each way, for `lasts_s`; then
    they are closed. Connections that are opened from then on are not late."""

    needs: ClassVar[Capability] = Capability.DELAY
    kind: Literal["delay-open"] = "delay-open"
    peer: str
    latency_ms: PositiveInt
    lasts_s: NonNegativeFloat


class Install(Frozen):
    """Starts a node that is down, with another version of Kafka from then on."""

    needs: ClassVar[Capability] = Capability.INSTALL
    kind: Literal["install"] = "install"
    version: str


class MigrationStep(Frozen):
    """Starts a node that is down, at this stage of the way from ZooKeeper to KRaft (KIP-866): `migrating` knows both,
    `kraft` only the controllers."""

    needs: ClassVar[Capability] = Capability.INSTALL
    kind: Literal["migrate"] = "migrate"
    stage: Literal["migrating", "kraft"]


Harm = Annotated[
    Wipe | Corrupt | DropCheckpoint | PowerLoss | ResetConnections | Vanish | DelayOpen | Install | MigrationStep,
    Field(discriminator="kind"),
]
