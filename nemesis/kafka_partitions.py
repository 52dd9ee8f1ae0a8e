"""What faults of Kafka itself share: the partitions that the targets name, as Kafka has them now."""

from collections.abc import Iterable, Mapping

from harness.protocols import PartitionView, Scene
from harness.targets import parse_target
from nemesis.recovery import running_brokers
from nemesis.targets import TargetMissing

PartitionKey = tuple[str, int]


def named_partitions(scene: Scene) -> dict[PartitionKey, PartitionView]:
    """Every partition that a target `partition(p)` names, with its newest view. TargetMissing if no running broker knows one
    of them; those that do not exist yet are left out of `partition(*)`."""
    found: dict[PartitionKey, PartitionView] = {}
    for role in scene.roles:
        number = parse_target(role).partition
        keys = list(scene.partitions.values()) if number is None else [scene.partitions[number]]
        views = newest_views(scene, keys)
        if number is not None and not views:
            raise TargetMissing(f"{role}: no running broker knows it now.")
        found |= views
    if not found:
        raise TargetMissing(f"{', '.join(scene.roles)}: no running broker knows any of them now.")
    return found


def newest_views(scene: Scene, keys: Iterable[PartitionKey]) -> dict[PartitionKey, PartitionView]:
    """Of each, what the broker says that knows of the latest leader epoch: a zombie knows of earlier ones only. What no
    running broker knows is not there."""
    wanted = set(keys)
    topics = sorted({topic for topic, _ in wanted})
    found: dict[PartitionKey, PartitionView] = {}
    for broker in running_brokers(scene):
        view: Mapping[PartitionKey, PartitionView] = scene.admin.view(broker.node_id, topics) or {}
        for key in wanted & view.keys():
            if key not in found or view[key].leader_epoch > found[key].leader_epoch:
                found[key] = view[key]
    return dict(sorted(found.items()))


def broker_name(scene: Scene, node_id: int) -> str:
    """The name of the node with Kafka's id. TargetMissing if the cluster has none such."""
    for node in scene.cluster.nodes:
        if node.node_id == node_id:
            return node.name
    raise TargetMissing(f"Broker {node_id} is none of this cluster's nodes.")


def leader_of(seen: PartitionView) -> int:
    """Who leads it, or would first."""
    return seen.leader if seen.leader >= 0 else seen.replicas[0]


def text_of(key: PartitionKey) -> str:
    """ "cell-000-1"."""
    return f"{key[0]}-{key[1]}"
