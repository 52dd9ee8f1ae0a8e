"""The part of the administration in memory that changes Kafka: leaders, replicas, configurations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prozess.clusters.protocol.requests import Reassignment
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import ClusterFailed, NotReady
from tests.support.fake_cluster.kraft_model import PartitionKey, World


class FakeChanges:
    """As `prozess.clusters.protocol.admin.AdminChanges`, of a world in memory. A copy that is new is in sync a moment
    later."""

    def __init__(self) -> None:
        self._own: dict[str, dict[str, str]] = {}
        """Resource → what is set for exactly it."""
        self.moves_s = 0.0
        """How long a reassignment takes."""
        self._moves: dict[PartitionKey, tuple[tuple[int, ...], int]] = {}
        """Partition that is being reassigned → its new replicas, and when it has them."""

    def _world(self, timeout_s: float) -> World:
        raise NotImplementedError

    def _controlled(self, timeout_s: float) -> World:
        """The world, if a controller is active."""
        try:
            world = self._world(timeout_s)
        except NotReady as error:
            raise ClusterFailed(str(error)) from error
        world.advance()
        self._arrive(world)
        if world.active is None:
            raise ClusterFailed("No controller is active.")
        return world

    def elect_leaders(
        self, partitions: Sequence[PartitionKey], *, unclean: bool, timeout_s: float
    ) -> Mapping[PartitionKey, str]:
        world, refused = self._controlled(timeout_s), {}
        for key in partitions:
            seen, living = world.partitions[key], world.living()
            first = seen.replicas[0]
            if seen.leader >= 0 and (unclean or seen.leader == first):
                refused[key] = "ELECTION_NOT_NEEDED"
            elif unclean and not living & set(seen.replicas):
                refused[key] = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
            elif not unclean and first not in living & set(seen.isr):
                refused[key] = "PREFERRED_LEADER_NOT_AVAILABLE"
            else:
                leader = next(broker for broker in seen.replicas if broker in living) if unclean else first
                isr = seen.isr if leader in seen.isr else (leader,)
                world.partitions[key] = replace(seen, leader=leader, leader_epoch=seen.leader_epoch + 1, isr=isr)
        world.advance()
        return refused

    def reassign(self, assignments: Mapping[PartitionKey, tuple[int, ...] | None], *, timeout_s: float) -> None:
        world = self._controlled(timeout_s)
        for key, replicas in assignments.items():
            if replicas is None:
                continue
            assert key not in self._moves or self._moves[key][0] != replicas, "it is asked for what is under way"
            self._moves[key] = replicas, world.clock.monotonic_ns() + int(self.moves_s * NS_PER_S)
        self._arrive(world)

    def _arrive(self, world: World) -> None:
        """Ends each reassignment whose time has come."""
        for key, (replicas, done_ns) in list(self._moves.items()):
            if done_ns > world.clock.monotonic_ns():
                continue
            del self._moves[key]
            seen = world.partitions[key]
            isr = tuple(b for b in replicas if b in seen.isr) or (replicas[0],)
            leader = seen.leader if seen.leader in replicas else isr[0]
            epoch = seen.leader_epoch + (leader != seen.leader)
            world.partitions[key] = replace(seen, replicas=replicas, isr=isr, leader=leader, leader_epoch=epoch)
        world.advance()

    def reassignments(self, *, timeout_s: float = 5.0) -> Mapping[PartitionKey, Reassignment]:
        world = self._controlled(timeout_s)
        return {
            key: Reassignment(replicas=world.partitions[key].replicas, adding=(), removing=()) for key in self._moves
        }

    def own_configs(self, resource: str, *, timeout_s: float = 10.0) -> Mapping[str, str]:
        self._controlled(timeout_s)
        return dict(self._own.get(resource, {}))

    def alter_configs(self, resource: str, properties: Mapping[str, str | None], *, timeout_s: float = 10.0) -> None:
        self._controlled(timeout_s)
        now = self._own.setdefault(resource, {})
        for key, value in properties.items():
            now.pop(key, None)
            if value is not None:
                now[key] = value

    def describe_configs(
        self, *, brokers: Sequence[int] = (), topics: Sequence[str] = (), timeout_s: float = 10.0
    ) -> Mapping[str, Mapping[str, str | None]]:
        names = [*(f"broker:{broker}" for broker in brokers), *(f"topic:{topic}" for topic in topics)]
        return {name: dict(self.own_configs(name, timeout_s=timeout_s)) for name in names}
