"""Functions that the faults of Kafka share: they find the partitions that targets name, wait until partitions are well
again, and repeat a request until it is accepted."""

from collections.abc import Iterable, Mapping

from prozess.harness.interfaces import FaultContext, Node, NodeState, PartitionView
from prozess.harness.plan.schedule import parse_target
from prozess.nemesis.roles import COORDINATORS, TargetMissing, coordinated

# What faults of Kafka itself share: the partitions that the targets name, as Kafka has them now.


PartitionKey = tuple[str, int]


def named_partitions(context: FaultContext) -> dict[PartitionKey, PartitionView]:
    """Returns every partition that a target names, with its newest view: `partition(p)`, or that of a coordinator.

    TargetMissing if no running broker knows one of them. Partitions that do not exist yet are left out of
    `partition(*)`.
    """
    found: dict[PartitionKey, PartitionView] = {}
    for role in context.roles:
        keys = _keys_of(context, role)
        views = newest_views(context, keys)
        if len(keys) == 1 and not views:
            raise TargetMissing(f"{role}: no running broker knows it now.")
        found |= views
    if not found:
        raise TargetMissing(f"{', '.join(context.roles)}: no running broker knows any of them now.")
    return found


def _keys_of(context: FaultContext, role: str) -> list[PartitionKey]:
    target = parse_target(role)
    if target.role in COORDINATORS:
        assert target.cell is not None, "the role names a cell"
        names = context.names.groups if target.role == "group-coordinator" else context.names.transactional_ids
        asked = (context.admin.view(broker.node_id, [COORDINATORS[target.role]]) for broker in running_brokers(context))
        return [coordinated(role, target.role, names[target.cell], [view for view in asked if view])]
    return list(context.partitions.values()) if target.partition is None else [context.partitions[target.partition]]


def newest_views(context: FaultContext, keys: Iterable[PartitionKey]) -> dict[PartitionKey, PartitionView]:
    """Returns for each partition what the broker says that knows the latest leader epoch, since a zombie knows only
    earlier ones. A partition that no running broker knows is absent."""
    wanted = set(keys)
    topics = sorted({topic for topic, _ in wanted})
    found: dict[PartitionKey, PartitionView] = {}
    for broker in running_brokers(context):
        view: Mapping[PartitionKey, PartitionView] = context.admin.view(broker.node_id, topics) or {}
        for key in wanted & view.keys():
            if key not in found or view[key].leader_epoch > found[key].leader_epoch:
                found[key] = view[key]
    return dict(sorted(found.items()))


def broker_name(context: FaultContext, node_id: int) -> str:
    """Returns the name of the node with this id. TargetMissing if the cluster has none."""
    for node in context.cluster.nodes:
        if node.node_id == node_id:
            return node.name
    raise TargetMissing(f"Broker {node_id} is not a node of this cluster.")


def leader_of(seen: PartitionView) -> int:
    """Returns the id of the broker that leads the partition, or that would lead it first."""
    return seen.leader if seen.leader >= 0 else seen.replicas[0]


def text_of(key: PartitionKey) -> str:
    """Returns the partition as Kafka names it: "cell-000-1"."""
    return f"{key[0]}-{key[1]}"


INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def running_brokers(context: FaultContext) -> list[Node]:
    """Returns the brokers that could answer. A paused broker would keep who asks it waiting for the whole limit."""
    return [n for n in context.cluster.nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]
