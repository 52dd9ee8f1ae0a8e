"""What a kind of fault may do to a node, as its class declares it. The judge derives from it what could have happened."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultNature:
    """Describes what a kind of fault does to a node, as far as guarantees care. All false: it harms nothing that is
    judged here."""

    stops: bool = False
    """The process ends; page cache and disk stay, so nothing that was written is lost (SIGKILL destroys nothing)."""
    restarts: bool = False
    """A successor of the process runs before the fault is proven, so from then on no node is down."""
    freezes: bool = False
    """The process stands still and goes on later with what it knew before."""
    cuts: bool = False
    """Messages from one node to another do not arrive."""
    reconfigures: bool = False
    """A setting is changed for a while, but none that decides which records may be lost."""
    moves: bool = False
    """Leaders change although nothing is wrong with any node."""
    destroys: bool = False
    """The node's replicas lose their data, from offset 0 on."""
    loses_unflushed: bool = False
    """The node's replicas lose what was not synced to its disk: in topics with flush.messages=1 nothing that was
    acknowledged, in others anything, from offset 0 on."""
    shifts_clock: bool = False
    """The node's wall clock is off: what goes by it (retention, the age of producer ids and transactions) is early or
    late."""
    elects_unclean: bool = False
    """It asks the controller for an UNCLEAN election (KIP-460)."""
    harms_store: bool = False
    """Brokers cannot read, or cannot write, what is in the remote store of tiered storage. Their own logs stay."""
