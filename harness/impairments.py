"""What can be done to a node beyond its process: values, so that a journal holds them and any process can undo them.

An **impairment** lasts until it is repaired: a network that loses packets, a disk that is full, a clock that is off. A
**harm** is done once and cannot be taken back: a wiped directory, a corrupted file, connections that were reset. Which of
them a backend can do, it says by `Capability`. Nodes are named by their names; `clients` means the trial's clients.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, TypeAdapter

from harness.capabilities import Capability
from harness.configuration import Frozen

CLIENTS: Literal["clients"] = "clients"
"""As the other side of a link: the trial's workload clients, who are no node."""


class Loss(Frozen):
    """Of packets that `source` (None: anybody on the network that faults touch) sends to the node, a share is dropped."""

    needs: ClassVar[Capability] = Capability.LOSE
    kind: Literal["loss"] = "loss"
    share: Annotated[float, Field(gt=0, lt=1)]
    source: str | None = None


class ClientCut(Frozen):
    """Nothing that the trial's clients send reaches the node (`to-node`), or nothing that it sends reaches them."""

    needs: ClassVar[Capability] = Capability.CUT_CLIENTS
    kind: Literal["client-cut"] = "client-cut"
    way: Literal["to-node", "from-node"]
    peer: Literal["clients"] = CLIENTS


class Bandwidth(Frozen):
    """What the node sends to `peer` (None: to anybody on the network that faults touch) leaves at this rate at most."""

    needs: ClassVar[Capability] = Capability.SHAPE
    kind: Literal["bandwidth"] = "bandwidth"
    bytes_per_s: PositiveInt
    peer: str | None = None


class Latency(Frozen):
    """What passes on connections that `peer` opens to the node is late by `latency_ms` ± `jitter_ms`, each way; what the node
    sends on them by `back_ms` instead, if that is given."""

    needs: ClassVar[Capability] = Capability.DELAY
    kind: Literal["latency"] = "latency"
    peer: str
    latency_ms: NonNegativeFloat
    jitter_ms: NonNegativeFloat = 0.0
    back_ms: NonNegativeFloat | None = None

    @property
    def streams(self) -> dict[str, tuple[float, float]]:
        """Of a proxy between the two: "upstream" and "downstream" → (late by, ±), ms. Nothing is early."""
        back_ms = self.latency_ms if self.back_ms is None else self.back_ms
        ways = {"upstream": self.latency_ms, "downstream": back_ms}
        return {stream: (late_ms, min(self.jitter_ms, late_ms)) for stream, late_ms in ways.items()}


class FullDisk(Frozen):
    """The file system of the node's data has no more than `left_bytes` free."""

    needs: ClassVar[Capability] = Capability.FILL_DISK
    kind: Literal["full-disk"] = "full-disk"
    left_bytes: Annotated[int, Field(ge=0)] = 0


class SlowDisk(Frozen):
    """Writes that reach the device pass at this rate at most. Without `flush.messages` they rarely wait for it."""

    needs: ClassVar[Capability] = Capability.SLOW_DISK
    kind: Literal["slow-disk"] = "slow-disk"
    bytes_per_s: PositiveInt


class FrozenDisk(Frozen):
    """The file system stands still: whoever writes waits until it is thawed (fsfreeze(8))."""

    needs: ClassVar[Capability] = Capability.FREEZE_DISK
    kind: Literal["frozen-disk"] = "frozen-disk"


class FailedDisk(Frozen):
    """The file system became read-only after an error, or answers every access with EIO. Repaired while the node is down."""

    needs: ClassVar[Capability] = Capability.FAIL_DISK
    kind: Literal["failed-disk"] = "failed-disk"
    how: Literal["read-only", "io-error"]


class ClockShift(Frozen):
    """The node's wall clock is off by `offset_ms`, and gains `drift_ppm` microseconds per second from then on (may be
    negative). CLOCK_MONOTONIC is untouched."""

    needs: ClassVar[Capability] = Capability.SHIFT_CLOCK
    kind: Literal["clock"] = "clock"
    offset_ms: float = 0.0
    drift_ppm: float = 0.0


Impairment = Annotated[
    Loss | ClientCut | Bandwidth | Latency | FullDisk | SlowDisk | FrozenDisk | FailedDisk | ClockShift,
    Field(discriminator="kind"),
]
IMPAIRMENT: TypeAdapter[Impairment] = TypeAdapter(Impairment)
"""From and to JSON."""


class Wipe(Frozen):
    """Everything in the data directory is gone. Only of a node that is down."""

    needs: ClassVar[Capability] = Capability.CHANGE_FILES
    kind: Literal["wipe"] = "wipe"


class Corrupt(Frozen):
    """`bytes` bytes in the newest file of that sort of a partition are changed; None: of any partition, by `seed`."""

    needs: ClassVar[Capability] = Capability.CHANGE_FILES
    kind: Literal["corrupt"] = "corrupt"
    file: Literal["segment", "index", "checkpoint"]
    topic: str | None = None
    number: int | None = None
    bytes: PositiveInt = 8
    seed: int | str = 0


class DropCheckpoint(Frozen):
    """The broker's recovery-point-offset-checkpoint is removed: what an operator does with one that cannot be read."""

    needs: ClassVar[Capability] = Capability.CHANGE_FILES
    kind: Literal["drop-checkpoint"] = "drop-checkpoint"


class PowerLoss(Frozen):
    """The node is gone at once, and with it everything that it had not fsynced. It starts again with what the disk has."""

    needs: ClassVar[Capability] = Capability.LOSE_POWER
    kind: Literal["power-loss"] = "power-loss"


class ResetConnections(Frozen):
    """Connections between the node and `peer` (None: everybody on the network that faults touch) are reset (RST)."""

    needs: ClassVar[Capability] = Capability.RESET
    kind: Literal["reset-connections"] = "reset-connections"
    peer: str | None = None


class Vanish(Frozen):
    """The process is killed, and its kernel forgets every connection without a word (no FIN, no RST), as when a machine is
    gone: the others keep connections that go nowhere. Only of a node that is cut off from everybody: else it is heard."""

    needs: ClassVar[Capability] = Capability.RESET
    kind: Literal["vanish"] = "vanish"


class DelayOpen(Frozen):
    """What passes on connections that `peer` has open to the node now is late by `latency_ms`, each way; those that it opens
    from then on are not. For `lasts_s`; then they are closed."""

    needs: ClassVar[Capability] = Capability.DELAY
    kind: Literal["delay-open"] = "delay-open"
    peer: str
    latency_ms: PositiveInt
    lasts_s: NonNegativeFloat


class Install(Frozen):
    """The node starts, with another version of Kafka from now on. Only of a node that is down."""

    needs: ClassVar[Capability] = Capability.INSTALL
    kind: Literal["install"] = "install"
    version: str


class Migrate(Frozen):
    """The node starts, at this stage of the way from ZooKeeper to KRaft (KIP-866): `migrating` knows both, `kraft` the
    controllers alone. Only of a node that is down."""

    needs: ClassVar[Capability] = Capability.INSTALL
    kind: Literal["migrate"] = "migrate"
    stage: Literal["migrating", "kraft"]


Harm = Annotated[
    Wipe | Corrupt | DropCheckpoint | PowerLoss | ResetConnections | Vanish | DelayOpen | Install | Migrate,
    Field(discriminator="kind"),
]
HARM: TypeAdapter[Harm] = TypeAdapter(Harm)
"""From and to JSON."""
