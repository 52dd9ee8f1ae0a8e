"""Turns roles such as "leader(0)" into nodes at the moment when a fault strikes.

The leader of a partition is the one that a majority of the living brokers say, each asked itself: one broker's answer may
come from a zombie that was cut off, and which node is the active controller is asked of the quorum (Metadata names a
random broker in KRaft).
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeGuard

from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.impairments import CLIENTS
from prozess.harness.errors import NotReady
from prozess.harness.errors import TargetMissing as TargetMissing
from prozess.harness.interfaces import (
    CLIENT_NODE,
    AdminProtocol,
    BrokerView,
    ClientNode,
    Node,
    NodeState,
    PartitionView,
    Targets,
)
from prozess.harness.plan.schedule import CLIENT_ROLES, Target, is_role, means_client, parse_target
from prozess.harness.recording.codes import partition_for

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_STATE = "__share_group_state"
COORDINATORS = {"group-coordinator": CONSUMER_OFFSETS, "transaction-coordinator": TRANSACTION_STATE}
"""The role of a coordinator → the internal topic whose partition it leads."""
AGREE_S = 5.0
"""How long brokers may take to agree on the leader of a partition. News of an election reaches them one by one."""


def node_named(cluster: Targets, name: str) -> Node:
    """Returns the node of that name. TargetMissing if there is none."""
    for node in cluster.nodes:
        if node.name == name:
            return node
    known = ", ".join(node.name for node in cluster.nodes)
    raise TargetMissing(f"There is no node {name!r}. Nodes: {known}.")


def is_client(node: Node) -> TypeGuard[ClientNode]:
    """Reports a client of the trial from a server."""
    return node.node_id >= CLIENT_NODE


def client_nodes(nodes: Sequence[Node], target: Target, text: str) -> tuple[Node, ...]:
    """Returns the slots of the clients that `client:NAME`, `member(c, i)` or `producers` means. TargetMissing if there
    is none."""
    found = tuple(
        node
        for node in nodes
        if is_client(node)
        and means_client(target, name=node.name, role=node.client_role, cell=node.cell, instance=node.instance)
    )
    if not found:
        raise TargetMissing(f"{text}: the trial has no such client.")
    return found


class Roles:
    """Resolves roles to the nodes that have them now. `partitions`: dense partition id → (topic, number)."""

    def __init__(
        self,
        cluster: Targets,
        admin: AdminProtocol,
        partitions: Callable[[], Mapping[int, tuple[str, int]]],
        clock: Clock,
        groups: Callable[[], Mapping[int, str]] = dict,
        transactional_ids: Callable[[], Mapping[int, str]] = dict,
        shares: Callable[[], Mapping[int, str]] = dict,
        rack_of: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """`groups`: cell → the group.id of its group. `transactional_ids`: cell → the first of its transactional.ids.
        `shares`: dense partition id → the group.id of its share group. `rack_of`: broker id → its rack."""
        self._cluster, self._admin, self._partitions, self._clock = cluster, admin, partitions, clock
        self._groups, self._transactional_ids, self._shares = groups, transactional_ids, shares
        self._rack_of = rack_of

    def resolve(self, text: str, *, of_partition: bool = False) -> tuple[Node, ...]:
        """Returns the nodes of one role (`prozess.harness.plan.schedule.parse_target`), at least one. TargetMissing
        with the reason if there is none. `of_partition`: a coordinator means all replicas of its partition, led or not."""
        target = parse_target(text)
        if target.role == "node":
            assert target.node is not None
            return (node_named(self._cluster, target.node),)
        if target.role in ("active-controller", "zookeeper-leader"):
            return (self._keeper(text),)
        if target.role in ("rack", "minority", "majority"):
            return self._share(target, text)
        if target.role in COORDINATORS:
            return self._coordinator(text, target, of_partition=of_partition)
        if target.role == "share-coordinator":
            return (self._share_coordinator(text, target),)
        if target.role in ("brokers", "controllers", "zookeepers"):
            return self._every(text)
        if target.role == "partition" and target.partition is None:
            return tuple(dict.fromkeys(n for p in self._partitions() for n in self.resolve(f"partition({p})")))
        if target.role in CLIENT_ROLES:
            return client_nodes(self._cluster.nodes, target, text)
        nodes = self._of_partition(target)
        if not nodes:
            raise TargetMissing(f"{text}: the partition has no such replica now.")
        return nodes

    def side(self, others: str | Sequence[str], *, targets: Sequence[Node], roles: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the other side of a cut, as `others` says it. CLIENTS is among them for `clients`, for
        `everybody` (`all` and the clients), and for a list that names them."""
        if others == CLIENTS:
            return (CLIENTS,)
        if others == "everybody":
            return (*self._names("all", targets, roles), CLIENTS)
        if isinstance(others, str) or CLIENTS not in others:
            return self._names(others, targets, roles)
        nodes = [text for text in others if text != CLIENTS]
        return (*(self._names(nodes, targets, roles) if nodes else ()), CLIENTS)

    def _names(self, others: str | Sequence[str], targets: Sequence[Node], roles: Sequence[str]) -> tuple[str, ...]:
        return tuple(node.name for node in self.others(others, targets=targets, roles=roles))

    def others(self, others: str | Sequence[str], *, targets: Sequence[Node], roles: Sequence[str]) -> tuple[Node, ...]:
        """Returns the nodes on the other side of a cut: at least one, each once, and never a target.

        `all`, `controllers`, `brokers`, `zookeepers`; `followers` = of the partitions that the targets' own `roles` name; or
        a list of roles and names of nodes.
        """
        found = self._named_side(others, roles) if isinstance(others, str) else self._listed_side(others)
        aimed = {node.name for node in targets}
        side = tuple({node.name: node for node in found if node.name not in aimed}.values())
        if not side:
            raise TargetMissing(f"others = {others!r}: nobody is left on the other side of {', '.join(sorted(aimed))}.")
        return side

    def _named_side(self, others: str, roles: Sequence[str]) -> Iterable[Node]:
        if others == "all":
            return [node for node in self._cluster.nodes if node.roles]  # clients have none
        if others in ("controllers", "brokers", "zookeepers"):
            return self._with_role(others)
        assert others == "followers", others
        partitions = dict.fromkeys(p for text in roles if (p := parse_target(text).partition) is not None)
        if not partitions:
            raise TargetMissing(
                f"others = 'followers' means the followers of the partition a target names, but {list(roles)} names none. "
                'Give others = ["followers(p)"].'
            )
        return [node for partition in partitions for node in self.resolve(f"followers({partition})")]

    def _listed_side(self, others: Sequence[str]) -> Iterable[Node]:
        return [node for text in others for node in self.resolve(text if is_role(text) else f"node:{text}")]

    def _keeper(self, text: str) -> Node:
        """Returns the node that keeps the metadata: the active controller, or the leader of the ZooKeeper ensemble."""
        asked = self._admin.zookeeper_leader if text == "zookeeper-leader" else self._admin.active_controller
        node_id = asked()
        if node_id is None:
            raise TargetMissing(f"{text}: no server says that it has this role now.")
        return self._node(node_id, text)

    def _share(self, target: Target, text: str) -> tuple[Node, ...]:
        """Returns the brokers of a rack, or the first nodes of a kind up to a minority or majority."""
        kind = "brokers" if target.of is None else target.of
        every = sorted(self._with_role(kind), key=lambda node: node.node_id)
        if target.role == "rack":
            found = [node for node in every if self._rack_of(node.node_id) == target.rack]
        else:
            found = every[: target.count_of(len(every))]
        if not found:
            raise TargetMissing(f"{text}: this means none of the {len(every)} {kind}.")
        return tuple(found)

    def _every(self, plural: str) -> tuple[Node, ...]:
        if not (found := tuple(self._with_role(plural))):
            raise TargetMissing(f"{plural}: no node of this cluster is a {plural.removesuffix('s')}.")
        return found

    def _with_role(self, plural: str) -> list[Node]:
        return [node for node in self._cluster.nodes if plural.removesuffix("s") in node.roles]

    def _coordinator(self, text: str, target: Target, *, of_partition: bool) -> tuple[Node, ...]:
        """Returns the leader of the partition of an internal topic to which a group.id or transactional.id belongs, or all
        nodes with a replica of it."""
        assert target.cell is not None, "the role names a cell"
        of_groups = target.role == "group-coordinator"
        key = (self._groups() if of_groups else self._transactional_ids())[target.cell]
        living = [n.node_id for n in self._cluster.nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]
        views = self._views_of(living, COORDINATORS[target.role])
        topic, number = coordinated(text, target.role, key, [view for view in views.values() if view])
        view = self._agreed_view(text, topic, number)
        if of_partition:
            return tuple(self._node(replica, text) for replica in view.replicas)
        if view.leader < 0:
            raise TargetMissing(f"{text}: {topic}-{number} has no leader now.")
        return (self._node(view.leader, text),)

    def _share_coordinator(self, text: str, target: Target) -> Node:
        """Returns the leader of the partition of `__share_group_state` that keeps a share group's state of a partition. Its
        key is group.id, topic id and number. [SharePartitionKey.asCoordinatorKey; ShareCoordinatorService.partitionFor]"""
        assert target.partition is not None, "the role names a partition"
        topic, number = self._partitions()[target.partition]
        if (topic_id := self._admin.topic_ids([topic]).get(topic)) is None:
            raise TargetMissing(f"{text}: no broker says which id {topic} has.")
        living = [n.node_id for n in self._cluster.nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]
        views = self._views_of(living, SHARE_STATE).values()
        count = max((sum(name == SHARE_STATE for name, _ in view) for view in views if view), default=0)
        if not count:
            raise TargetMissing(f"{text}: no living broker knows {SHARE_STATE} now.")
        id_text = urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")  # as Kafka's Uuid.toString
        key = f"{self._shares()[target.partition]}:{id_text}:{number}"
        view = self._agreed_view(text, SHARE_STATE, partition_for(key, count))
        if view.leader < 0:
            raise TargetMissing(f"{text}: the partition of {SHARE_STATE} has no leader now.")
        return self._node(view.leader, text)

    def _of_partition(self, target: Target) -> tuple[Node, ...]:
        assert target.partition is not None
        text = f"{target.role}({target.partition})"
        partitions = self._partitions()
        if target.partition not in partitions:
            raise TargetMissing(f"{text}: the plan has no partition {target.partition}.")
        view = self._agreed_view(text, *partitions[target.partition])
        if target.role in ("replicas", "partition"):
            return tuple(self._node(replica, text) for replica in view.replicas)
        if view.leader < 0:
            raise TargetMissing(f"{text}: the partition has no leader now.")
        if target.role == "leader":
            return (self._node(view.leader, text),)
        followers = [replica for replica in view.replicas if replica != view.leader]
        if target.role == "in-sync-followers":
            followers = [replica for replica in followers if replica in view.isr]
        if target.role == "follower":
            assert target.instance is not None
            followers = followers[target.instance - 1 : target.instance]
        return tuple(self._node(replica, text) for replica in followers)

    def _agreed_view(self, text: str, topic: str, number: int) -> PartitionView:
        seen = "nothing"

        def agreed() -> PartitionView | None:
            nonlocal seen
            living = [n.node_id for n in self._cluster.nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]
            if not living:
                raise TargetMissing(f"{text}: no broker runs now that could be asked.")
            view, seen = majority_view(self._views_of(living, topic), living, (topic, number))
            return view

        try:
            return wait_until(
                agreed,
                awaited=f"a majority of the living brokers to agree on {topic}-{number}",
                timeout_s=AGREE_S,
                clock=self._clock,
                last_seen=lambda: seen,
            )
        except NotReady as error:
            raise TargetMissing(f"{text}: {error}.") from error

    def _views_of(self, living: Sequence[int], topic: str) -> Mapping[int, BrokerView | None]:
        """Asks each living broker for its own view, in parallel.

        `AdminProtocol.views` is not used, because a paused broker keeps who asks it waiting for the whole limit. A
        fault that strikes two seconds late may miss the moment that it was meant for.
        """
        if not living:
            return {}
        with ThreadPoolExecutor(max_workers=len(living), thread_name_prefix="roles") as pool:
            return dict(zip(living, pool.map(lambda broker: self._admin.view(broker, [topic]), living), strict=True))

    def _node(self, node_id: int, text: str) -> Node:
        for node in self._cluster.nodes:
            if node.node_id == node_id:
                return node
        raise TargetMissing(f"{text} is node {node_id}, which this cluster does not have.")


def coordinated(text: str, role: str, key: str, views: Iterable[BrokerView]) -> tuple[str, int]:
    """Returns the partition of an internal topic to which a group.id or transactional.id belongs: Utils.abs(key.hashCode())
    modulo the number of partitions. TargetMissing if no broker's view has the topic. [GroupCoordinatorService,
    TransactionStateManager: partitionFor]"""
    topic = COORDINATORS[role]
    count = max((sum(name == topic for name, _ in view) for view in views), default=0)
    if not count:
        raise TargetMissing(f"{text}: no living broker knows {topic} now.")
    return topic, partition_for(key, count)


def majority_view(
    views: Mapping[int, BrokerView | None], living: Sequence[int], key: tuple[str, int]
) -> tuple[PartitionView | None, str]:
    """Returns the view that more than half of the `living` brokers share (leader, epoch, replicas), and what was seen,
    for an error.

    A living broker that does not answer, or does not know the partition, counts against; a view of one that is not living
    does not count at all. The ISR of the returned view is that of one of them.
    """
    views_of_it = {broker: view[key] for broker in living if (view := views.get(broker)) is not None and key in view}
    opinions = Counter((v.leader, v.leader_epoch, v.replicas) for v in views_of_it.values())
    seen = ", ".join(
        f"broker {broker}: leader {views_of_it[broker].leader} in epoch {views_of_it[broker].leader_epoch}"
        if broker in views_of_it
        else f"broker {broker}: no answer"
        for broker in sorted(living)
    )
    for opinion, count in opinions.most_common(1):
        if 2 * count > len(living):
            return next(v for v in views_of_it.values() if (v.leader, v.leader_epoch, v.replicas) == opinion), seen
    return None, seen or "no living broker"
