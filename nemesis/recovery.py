"""Waiting for Kafka to be well again: what a fault awaits between two of its own deeds. Each wait has a limit."""

from collections.abc import Callable, Mapping

from harness.clock import wait_until
from harness.protocols import BrokerView, Node, NodeState, Scene

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
INTERVAL_S = 0.1


def running_brokers(scene: Scene) -> list[Node]:
    """The brokers that could answer: a paused one would keep whoever asks it waiting for the whole limit."""
    return [n for n in scene.cluster.nodes if "broker" in n.roles and n.state() is NodeState.RUNNING]


def await_whole_isr(scene: Scene, *, timeout_s: float) -> None:
    """Until every running broker sees every replica of every partition in sync, those of internal topics too. NotReady with
    what lacks where."""
    _await(lambda: _not_whole(scene), "every ISR whole on every running broker's own view", scene, timeout_s)


def await_unfenced(scene: Scene, node: Node, *, timeout_s: float) -> None:
    """Until a broker answers and names itself among the living, until a controller's copy of the metadata log goes on, as
    the active one knows by its fetches, and until a ZooKeeper server leads or follows. NotReady with what lacks."""
    if "broker" in node.roles:
        _await(lambda: _fenced(scene, node), f"{node.name} to be unfenced", scene, timeout_s)
    if "controller" in node.roles:
        begun: list[int] = []
        _await(lambda: _lags(scene, node, begun), f"{node.name} to follow the metadata log", scene, timeout_s)
    if "zookeeper" in node.roles:
        _await(lambda: _serves_nobody(scene, node), f"{node.name} to lead or to follow", scene, timeout_s)


def _await(lacking: Callable[[], str], awaited: str, scene: Scene, timeout_s: float) -> None:
    last = "nothing"

    def well() -> bool:
        nonlocal last
        last = lacking()
        return not last

    wait_until(
        well, awaited=awaited, timeout_s=timeout_s, clock=scene.clock, last_seen=lambda: last, interval_s=INTERVAL_S
    )


def _not_whole(scene: Scene) -> str:
    """What the first broker that lacks something lacks; "" = nothing."""
    topics = sorted({topic for topic, _ in scene.partitions.values()}) + list(INTERNAL_TOPICS)
    views: dict[str, BrokerView] = {}
    for broker in running_brokers(scene):
        view = scene.admin.view(broker.node_id, topics)
        if view is None:
            return f"{broker.name} does not answer"
        views[broker.name] = view
    known = set().union(*views.values())
    return next((f"{name}: {text}" for name, view in views.items() if (text := _lacks(view, known))), "")


def _lacks(view: BrokerView, known: set[tuple[str, int]]) -> str:
    for topic, number in sorted(known):
        seen = view.get((topic, number))
        if seen is None:
            return f"{topic}-{number} is not known"
        if seen.leader < 0 or set(seen.isr) != set(seen.replicas):
            return f"{topic}-{number} has leader {seen.leader}, ISR {list(seen.isr)} of {list(seen.replicas)}"
    return ""


def _fenced(scene: Scene, node: Node) -> str:
    living = scene.admin.living_brokers(node.node_id)
    if living is None:
        return "it does not answer"
    return "" if node.node_id in living else f"it names {sorted(living)} as living"


def _lags(scene: Scene, node: Node, begun: list[int]) -> str:
    """The quorum writes at least every half second (metadata.max.idle.interval.ms), so whoever follows moves beyond what
    was there at the first look; the last value of one that is away does not."""
    ends: Mapping[int, int] | None = scene.admin.quorum_ends()
    if ends is None:
        return "no controller is active"
    begun[:] = begun or [max(ends.values(), default=0)]
    end = ends.get(node.node_id, 0)
    return "" if end > begun[0] else f"its log ends at {end}, and has to pass {begun[0]}"


def _serves_nobody(scene: Scene, node: Node) -> str:
    """A server that has not joined the ensemble refuses everybody."""
    serving = scene.admin.zookeeper_serving()
    return "" if node.node_id in serving else f"of the servers, {sorted(serving)} lead or follow"
