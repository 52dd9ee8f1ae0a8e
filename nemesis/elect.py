"""elect-preferred and elect-unclean: an election that somebody asks for, as `kafka-leader-election` does (KIP-460).

A preferred election is clean, and with acks=1 it loses all the same what the follower had not fetched: 1000 of 1000 records
were gone after one that was answered without error. An unclean one is for partitions without a leader: it takes any living
replica, and what that lacks is gone.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import PositiveFloat

from harness.configuration import Frozen
from harness.errors import ClusterFailed
from harness.protocols import Capability, Effect, PartitionView, Scene, Undo
from harness.schema import Tristate
from nemesis.effects import Seen, Watch, observe
from nemesis.kafka_partitions import PartitionKey, broker_name, named_partitions, newest_views, text_of
from nemesis.targets import TargetMissing

NOT_NEEDED = "ELECTION_NOT_NEEDED"


class ElectParameters(Frozen):
    """`timeout_s`: how long Kafka may take to elect."""

    timeout_s: PositiveFloat = 20.0


class Elect:
    """Asks for an election of the targets, `partition(p)`, that need one. `name`, `unclean` and `needs_one` are its own."""

    name: str
    unclean: bool
    needs: frozenset[Capability] = frozenset()
    parameters_model = ElectParameters
    role_parameters: frozenset[str] = frozenset()
    of_partitions = True
    ends_itself = True

    def __init__(self) -> None:
        self._before: dict[PartitionKey, PartitionView] = {}

    def needs_one(self, seen: PartitionView) -> bool:
        """Could the election change anything?"""
        raise NotImplementedError

    def undos(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Undo]:
        """There is nothing to undo; the journal names the brokers that are to lead. TargetMissing if no target needs it."""
        named = named_partitions(scene)
        self._before = {key: seen for key, seen in named.items() if self.needs_one(seen)}
        if not self._before:
            told = ", ".join(f"{text_of(key)} is led by {seen.leader}" for key, seen in list(named.items())[:2])
            raise TargetMissing(f"{self.name}: no target needs such an election now ({told}).")
        first = dict.fromkeys(seen.replicas[0] for seen in self._before.values())
        return [Undo(action="nothing", node=broker_name(scene, broker)) for broker in first]

    def apply(self, scene: Scene, parameters: Mapping[str, Any]) -> None:
        refused = scene.admin.elect_leaders(list(self._before), unclean=self.unclean, timeout_s=parameters["timeout_s"])
        if bad := {key: why for key, why in refused.items() if not why.startswith(NOT_NEEDED)}:
            key, why = next(iter(bad.items()))
            raise ClusterFailed(f"{len(bad)} of {len(self._before)} elections failed, such as {text_of(key)}: {why}.")

    def verify(self, scene: Scene, parameters: Mapping[str, Any]) -> Sequence[Effect]:
        watches = [
            Watch(broker_name(scene, seen.replicas[0]), None, partial(self._look, scene, key, seen))
            for key, seen in self._before.items()
        ]
        return observe(watches, clock=scene.clock)

    def _look(self, scene: Scene, key: PartitionKey, before: PartitionView) -> Seen:
        now = newest_views(scene, [key]).get(key)
        if now is None:
            return Tristate.UNKNOWN, f"no running broker knows {text_of(key)}"
        moved = now.leader >= 0 and now.leader_epoch > before.leader_epoch and not self.needs_one(now)
        seen = f"{text_of(key)} was led by {before.leader}, and is by {now.leader} in epoch {now.leader_epoch}"
        return Tristate(int(moved)), seen


class ElectPreferred(Elect):
    """Of partitions whose first replica is in sync and does not lead."""

    name = "elect-preferred"
    unclean = False

    def needs_one(self, seen: PartitionView) -> bool:
        return seen.leader != seen.replicas[0] and seen.replicas[0] in seen.isr


class ElectUnclean(Elect):
    """Of partitions that nobody leads: whoever of the replicas lives becomes the leader, in sync or not."""

    name = "elect-unclean"
    unclean = True

    def needs_one(self, seen: PartitionView) -> bool:
        return seen.leader < 0
