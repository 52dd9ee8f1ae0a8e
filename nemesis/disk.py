"""Faults of a node's disk: it is full, slow, hanging or failing, its directory is wiped, a file is corrupted, or
unsynced writes are lost."""

from collections.abc import Collection, Sequence
from typing import Literal

from pydantic import Field

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import (
    Corrupt,
    FailedDisk,
    FrozenDisk,
    FullDisk,
    Harm,
    Impairment,
    PowerLoss,
    SlowDisk,
    Wipe,
)
from prozess.harness.interfaces import Capability, FaultContext, Node, NodeState, Undo
from prozess.harness.values import Frozen
from prozess.nemesis.faults import HarmingFault, ImpairingFault, NoParameters
from prozess.nemesis.roles import TargetMissing


class FullDiskParameters(Frozen):
    """`left_bytes`: how many bytes stay free."""

    left_bytes: int = Field(default=0, ge=0, le=2**40)


class FillDisk(ImpairingFault[FullDiskParameters]):
    """Fills the file system of a node's data until no room is left.

    A broker whose log directory fails takes it offline, and ends when it was the only one (KIP-112): so healing frees
    the room and starts the node again.

    The effect is that a write there really gets ENOSPC.
    """

    name = "disk-full"
    nature = FaultNature(stops=True)
    needs = frozenset({Capability.FILL_DISK})
    parameters_model = FullDiskParameters

    def impairments(self, context: FaultContext, parameters: FullDiskParameters) -> Sequence[tuple[Node, Impairment]]:
        return [(node, FullDisk(left_bytes=parameters.left_bytes)) for node in context.targets]

    def undos(self, context: FaultContext, parameters: FullDiskParameters) -> Sequence[Undo]:
        """Plans to free the room first and then to start the node. TargetMissing if a node does not run, because this
        fault must not start it."""
        return [*start_again(context), *super().undos(context, parameters)]


def start_again(context: FaultContext) -> list[Undo]:
    """Plans to start nodes that may end by themselves. TargetMissing if one is down already, because this fault must
    not start it."""
    for node in context.targets:
        if node.state() is NodeState.STOPPED:
            raise TargetMissing(f"the disk of {node.name} is not in use: it has no process now.")
    return [Undo(action="start", node=node.name) for node in context.targets]


class SlowDiskParameters(Frozen):
    """`bytes_per_s`: how many bytes a second the disk takes."""

    bytes_per_s: int = Field(default=65_536, ge=4096, le=10_000_000)


class SlowDownDisk(ImpairingFault[SlowDiskParameters]):
    """Limits the rate at which a node's writes reach its disk.

    Most of what Kafka writes goes to the page cache only, and Kafka never waits for the disk. Topics with
    flush.messages=1 feel a slow disk in every acknowledgement. Others feel it only where something is synced: segment
    rolls, checkpoints, the metadata log.

    The effect is that a synced write takes as long as it should at that rate.
    """

    name = "disk-slow"
    nature = FaultNature(freezes=True)
    needs = frozenset({Capability.SLOW_DISK})
    parameters_model = SlowDiskParameters
    observe_s = 20.0

    def impairments(self, context: FaultContext, parameters: SlowDiskParameters) -> Sequence[tuple[Node, Impairment]]:
        for node in context.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"the disk of {node.name} is not in use: it has no process now.")
        return [(node, SlowDisk(bytes_per_s=parameters.bytes_per_s)) for node in context.targets]


class HangDisk(ImpairingFault[NoParameters]):
    """Freezes the file system of a node's data with fsfreeze(8). A process that writes to it waits, and cannot even be
    killed.

    Kafka does not notice this by itself. A broker whose disk hangs goes on answering from memory until one of its
    threads must write, and its heartbeats come from another thread. docs/faults.md has measurements of what it does
    then.

    The effect is that a write waits.
    """

    name = "disk-hang"
    nature = FaultNature(freezes=True)
    needs = frozenset({Capability.FREEZE_DISK})
    parameters_model = NoParameters

    def impairments(self, context: FaultContext, parameters: NoParameters) -> Sequence[tuple[Node, Impairment]]:
        for node in context.targets:
            if node.state() is NodeState.STOPPED:
                raise TargetMissing(f"the disk of {node.name} is not in use: it has no process now.")
        return [(node, FrozenDisk()) for node in context.targets]


class DiskErrorParameters(Frozen):
    """`how`: "read-only" fails every write, "io-error" fails every access."""

    how: Literal["read-only", "io-error"] = "io-error"


class FailDisk(ImpairingFault[DiskErrorParameters]):
    """Makes the file system of a node's data fail: it becomes read-only after an error, or every access is an I/O
    error.

    A broker whose log directory fails takes it offline, and ends when it was the only one (KIP-112). Healing does what an
    operator does: the node is down, the file system is checked and mounted again, the node started. What had not been written
    back when the disk failed is gone.

    The effect is that a write gets EROFS, or EIO.
    """

    name = "disk-error"
    nature = FaultNature(stops=True, loses_unflushed=True)
    needs = frozenset({Capability.FAIL_DISK})
    parameters_model = DiskErrorParameters

    def impairments(self, context: FaultContext, parameters: DiskErrorParameters) -> Sequence[tuple[Node, Impairment]]:
        return [(node, FailedDisk(how=parameters.how)) for node in context.targets]

    def undos(self, context: FaultContext, parameters: DiskErrorParameters) -> Sequence[Undo]:
        """Plans to repair the disk first and then to start the node."""
        return [*start_again(context), *super().undos(context, parameters)]


WHY_KEPT = "the metadata log is not wiped, it is the cluster itself"


class WipeDirectory(HarmingFault[NoParameters]):
    """Kills a broker and replaces its data directory by an empty one, formatted as an operator would do it: for the
    same cluster and node id, with a new directory id (KIP-858). Healing starts the broker.

    A KRaft broker without meta.properties does not start ("No readable meta.properties files found"). With it, the
    broker starts with nothing and copies everything from the leaders. A controller's data is the cluster itself and is
    not wiped here.

    The effect is that the files which were in the directory are gone.
    """

    name = "wipe"
    nature = FaultNature(stops=True, destroys=True)
    needs = frozenset({Capability.KILL, Capability.CHANGE_FILES})
    parameters_model = NoParameters

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None:
        """Returns why nodes of these names cannot be wiped, or None if they can."""
        keepers = [name for name in nodes if name.startswith(("controller", "zookeeper"))]
        return None if keepers or not nodes else f"brokers are controllers here: {WHY_KEPT}"

    def harm(self, context: FaultContext, node: Node, parameters: NoParameters) -> Harm:
        return Wipe()

    def check(self, context: FaultContext, node: Node) -> None:
        if "controller" in node.roles:
            raise TargetMissing(f"{node.name} is a controller: {WHY_KEPT}.")


class CorruptParameters(Frozen):
    """`file`: "segment" is the newest segment, "index" its offset index, and "checkpoint" the broker's
    recovery-point-offset-checkpoint. `partition`: the number of the partition in the plan. `bytes`: how many bytes are
    changed. `seed`: decides at which places; None means the seed of the plan."""

    file: Literal["segment", "index", "checkpoint"] = "segment"
    partition: int = Field(default=0, ge=0)
    bytes: int = Field(default=8, ge=1, le=65_536)
    seed: int | str | None = None


class CorruptFile(HarmingFault[CorruptParameters]):
    """Kills a broker and changes bytes in one of its files. Healing starts the broker; with a broken checkpoint it is
    started at once.

    A broker that was killed checks the segments that may not be on the disk, cuts the log where a batch is broken, and
    copies the rest from the leader. It rebuilds an index that is not sane (LogSegment.recover). A file that it takes
    for whole is another matter.

    A broker that cannot read its recovery-point-offset-checkpoint logs that it resets it to 0, and goes on recovering.
    But the failure is also reported to the LogDirFailureChannel, which takes the directory offline, so the broker ends.
    It does so at every start, until somebody removes the file (seen with 4.3.1). Therefore with that file the broker is
    started at once, and healing removes the file.

    The effect is that the bytes in the file were changed.
    """

    name = "corrupt-file"
    nature = FaultNature(stops=True, destroys=True)
    needs = frozenset({Capability.KILL, Capability.CHANGE_FILES})
    parameters_model = CorruptParameters

    def harm(self, context: FaultContext, node: Node, parameters: CorruptParameters) -> Harm:
        if parameters.partition not in context.partitions:
            raise TargetMissing(f"the plan has no partition {parameters.partition}.")
        topic, number = context.partitions[parameters.partition]
        return Corrupt(
            file=parameters.file,
            topic=topic,
            number=number,
            bytes=parameters.bytes,
            seed=f"{parameters.seed} {node.name}",
        )

    def starts(self, parameters: CorruptParameters) -> bool:
        return bool(parameters.file == "checkpoint")

    def undos(self, context: FaultContext, parameters: CorruptParameters) -> Sequence[Undo]:
        """Plans to remove a broken checkpoint first and then to start the node."""
        starts = super().undos(context, parameters)
        if not self.starts(parameters):
            return starts
        return [*starts, *(Undo(action="drop-checkpoint", node=node.name) for node in context.targets)]


class LosePower(HarmingFault[NoParameters]):
    """Cuts the power of nodes: they are gone at once, and so is everything that they had not synced to the disk
    (fsync). Every target loses its power at the same time, so give several targets, or a role that means several, for a
    power cut of the whole room.

    Kafka acknowledges a record once it is in the memory of all machines of the ISR. It leaves flushing to the operating
    system unless `flush.messages` says otherwise (Kafka documentation, "Application vs. OS Flush Management"). Therefore one
    node that loses its power takes nothing from the others. If all of them lose it at once, they lose what was
    acknowledged and not yet written to disk.

    The effect is that bytes of segments which were there before are gone.
    """

    name = "power-loss"
    nature = FaultNature(stops=True, loses_unflushed=True)
    needs = frozenset({Capability.LOSE_POWER})
    parameters_model = NoParameters
    kills_first = False

    def harm(self, context: FaultContext, node: Node, parameters: NoParameters) -> Harm:
        return PowerLoss()

    def check(self, context: FaultContext, node: Node) -> None:
        if node.state() is NodeState.STOPPED:
            raise TargetMissing(f"{node.name} cannot lose its power: it has no process now.")
