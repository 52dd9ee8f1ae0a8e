"""Faults that move leadership: preferred elections, unclean elections, and a new active controller."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from functools import partial
from typing import Literal

from prozess.harness.config.configuration import Limit
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import (
    Capability,
    Effect,
    Fault,
    FaultContext,
    NodeState,
    PartitionView,
    Undo,
    end_in_order,
)
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import Observation, Watch, observe
from prozess.nemesis.kafka.partitions import PartitionKey, broker_name, named_partitions, newest_views, text_of
from prozess.nemesis.roles import TargetMissing

# elect-preferred and elect-unclean: an election that somebody asks for, as `kafka-leader-election` does (KIP-460).
#
# A preferred election is clean, and with acks=1 it loses all the same what the follower had not fetched: 1000 of 1000
# records were gone after one that was answered without error. An unclean one is for partitions without a leader: it
# takes any living replica, and what that lacks is gone.


NOT_NEEDED = "ELECTION_NOT_NEEDED"


class ElectParameters(Frozen):
    """`timeout_s`: how long Kafka may take to elect."""

    timeout_s: Limit = 20.0


class Elect(Fault[ElectParameters]):
    """Asks Kafka to elect a leader for those of the targets (partitions, or coordinators) that need one. A subclass has
    its own `name`, `unclean` and `needs_one`."""

    unclean: bool
    parameters_model = ElectParameters
    of_partitions = True
    ends_itself = True

    def __init__(self) -> None:
        self._before: dict[PartitionKey, PartitionView] = {}

    @abstractmethod
    def needs_one(self, seen: PartitionView) -> bool:
        """Says whether the election could change anything."""

    def undos(self, context: FaultContext, parameters: ElectParameters) -> Sequence[Undo]:
        """Plans nothing to undo, but the journal names the brokers that are to lead. TargetMissing if no target needs
        the election."""
        named = named_partitions(context)
        self._before = {key: seen for key, seen in named.items() if self.needs_one(seen)}
        if not self._before:
            text = ", ".join(f"{text_of(key)} is led by {seen.leader}" for key, seen in list(named.items())[:2])
            raise TargetMissing(f"{self.name}: no target needs such an election now ({text}).")
        first = dict.fromkeys(seen.replicas[0] for seen in self._before.values())
        return [Undo(action="nothing", node=broker_name(context, broker)) for broker in first]

    def apply(self, context: FaultContext, parameters: ElectParameters) -> None:
        refused = context.admin.elect_leaders(list(self._before), unclean=self.unclean, timeout_s=parameters.timeout_s)
        if bad := {key: why for key, why in refused.items() if not why.startswith(NOT_NEEDED)}:
            key, why = next(iter(bad.items()))
            raise ClusterFailed(f"{len(bad)} of {len(self._before)} elections failed, such as {text_of(key)}: {why}.")

    def verify(self, context: FaultContext, parameters: ElectParameters) -> Sequence[Effect]:
        watches = [
            Watch(broker_name(context, seen.replicas[0]), None, partial(self._look, context, key, seen))
            for key, seen in self._before.items()
        ]
        return observe(watches, clock=context.clock)

    def _look(self, context: FaultContext, key: PartitionKey, before: PartitionView) -> Observation:
        now = newest_views(context, [key]).get(key)
        if now is None:
            return Tristate.UNKNOWN, f"no running broker knows {text_of(key)}"
        moved = now.leader >= 0 and now.leader_epoch > before.leader_epoch and not self.needs_one(now)
        seen = f"{text_of(key)} was led by {before.leader}, and is by {now.leader} in epoch {now.leader_epoch}"
        return Tristate(int(moved)), seen


class ElectPreferred(Elect):
    """Asks Kafka to elect the preferred replica, as `kafka-leader-election` does (KIP-460). This hits partitions whose
    first replica is in sync and does not lead.

    A preferred election is clean. With acks=1 it still loses the records that the follower had not fetched: 1000 of
    1000 records were gone after an election that was answered without error.

    The effect is that the first replica leads in a later epoch.
    """

    name = "elect-preferred"
    nature = FaultNature(moves=True)
    unclean = False

    def needs_one(self, seen: PartitionView) -> bool:
        return seen.leader != seen.replicas[0] and seen.replicas[0] in seen.isr


class ElectUnclean(Elect):
    """Asks Kafka for an unclean election, as `kafka-leader-election` does (KIP-460). This hits partitions without a
    leader.

    An unclean election takes any living replica, in sync or not. The records which that replica lacks are gone.

    The effect is that the partition has a leader.
    """

    name = "elect-unclean"
    nature = FaultNature(moves=True, elects_unclean=True)
    unclean = True

    def needs_one(self, seen: PartitionView) -> bool:
        return seen.leader < 0


QUORUM_MIN = 3
"""The fewest controllers with which this works: with fewer there is no majority without the active one."""


class MoveControllerParameters(Frozen):
    """`how`: "stop" ends it in order, so that it resigns; "kill" ends it at once. `timeout_s`: how long it may take to
    end, before it is killed, and then until another controller leads."""

    how: Literal["stop", "kill"] = "kill"
    timeout_s: Limit = 30.0


class MoveController(Fault[MoveControllerParameters]):
    """Ends the active controller, so that another one leads the metadata quorum. Undone by starting the old one, which
    then follows.

    A controller that is stopped in order resigns (KIP-595, EndQuorumEpoch). One that is killed is missed after
    controller.quorum.fetch.timeout.ms.

    The effect is that DescribeQuorum names another leader.
    """

    name = "move-controller"
    nature = FaultNature(stops=True)
    needs = frozenset({Capability.KILL, Capability.STOP})
    parameters_model = MoveControllerParameters

    def __init__(self) -> None:
        self._killed = ""

    @staticmethod
    def refusal(targets: Sequence[str], nodes: Collection[str]) -> str | None:
        """Returns why this is impossible with these targets and nodes, or None if it is possible."""
        if len(targets) != 1 or not targets[0].startswith(("active-controller", "node:")):
            return (
                f'it moves the active controller, and nobody else: targets = ["active-controller"], not {list(targets)}'
            )
        servers = [name for name in nodes if not name.startswith("zookeeper")]
        controllers = [name for name in servers if name.startswith("controller")] or servers
        if len(controllers) < QUORUM_MIN:
            return f"it needs {QUORUM_MIN} controllers, and there are {len(controllers)}; set variant.controllers"
        return None

    def undos(self, context: FaultContext, parameters: MoveControllerParameters) -> Sequence[Undo]:
        (node,) = context.targets
        if (state := node.state()) is not NodeState.RUNNING:
            raise TargetMissing(f"{node.name} cannot resign: its process is {state}.")
        if (active := context.admin.active_controller()) != node.node_id:
            raise TargetMissing(f"{node.name} is not the active controller, {active} is.")
        return [Undo(action="start", node=node.name)]

    def apply(self, context: FaultContext, parameters: MoveControllerParameters) -> None:
        (node,) = context.targets
        if parameters.how == "kill":
            node.kill()
        else:
            self._killed = end_in_order(node, timeout_s=parameters.timeout_s)

    def verify(self, context: FaultContext, parameters: MoveControllerParameters) -> Sequence[Effect]:
        (node,) = context.targets

        def probe() -> Observation:
            now = context.admin.active_controller()
            seen = f"controller {now} is active, it was {node.node_id}"
            return Tristate(int(now not in (None, node.node_id))), seen + (f"; {self._killed}" if self._killed else "")

        return observe([Watch(node.name, None, probe)], clock=context.clock, timeout_s=parameters.timeout_s)
