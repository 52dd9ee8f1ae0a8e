"""Waits until a node takes part again: a broker is not fenced, a controller's log grows, every ISR is whole. A fault awaits
this between two of its own deeds. Each wait has a limit."""

from collections.abc import Callable, Mapping

from prozess.harness.clock import Clock, wait_until
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import BrokerView, FaultContext, Node
from prozess.nemesis.kafka.partitions import INTERNAL_TOPICS, running_brokers

INTERVAL_S = 0.1


def await_whole_isr(context: FaultContext, *, timeout_s: float) -> None:
    """Waits until every running broker reports every replica of every partition in sync, internal topics included.
    NotReady, with what is missing where."""
    _await(lambda: _not_whole(context), "every ISR whole on every running broker's own view", context, timeout_s)


def await_unfenced(context: FaultContext, node: Node, *, timeout_s: float) -> None:
    """Waits until a server takes part again. NotReady, with what is missing.

    A broker must answer and name itself among the living. A controller's replica of the metadata log must grow, as the
    active controller knows by its fetches. A ZooKeeper server must lead or follow.
    """
    if "broker" in node.roles:
        _await(lambda: _fenced(context, node), f"{node.name} to be unfenced", context, timeout_s)
    if "controller" in node.roles:
        begun: list[int] = []
        _await(lambda: _lags(context, node, begun), f"{node.name} to follow the metadata log", context, timeout_s)
    if "zookeeper" in node.roles:
        _await(lambda: _serves_nobody(context, node), f"{node.name} to lead or to follow", context, timeout_s)


def _await(lacking: Callable[[], str], awaited: str, context: FaultContext, timeout_s: float) -> None:
    last = "nothing"

    def well() -> bool:
        nonlocal last
        last = lacking()
        return not last

    wait_until(
        well, awaited=awaited, timeout_s=timeout_s, clock=context.clock, last_seen=lambda: last, interval_s=INTERVAL_S
    )


def _not_whole(context: FaultContext) -> str:
    """Returns what the first broker lacks that lacks something; "" if none does."""
    topics = sorted({topic for topic, _ in context.partitions.values()}) + list(INTERNAL_TOPICS)
    views: dict[str, BrokerView] = {}
    for broker in running_brokers(context):
        view = context.admin.view(broker.node_id, topics)
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


def _fenced(context: FaultContext, node: Node) -> str:
    living = context.admin.living_brokers(node.node_id)
    if living is None:
        return "it does not answer"
    return "" if node.node_id in living else f"it names {sorted(living)} as living"


def _lags(context: FaultContext, node: Node, begun: list[int]) -> str:
    """Returns why a controller still lags; "" if it does not. The quorum writes at least every half second
    (metadata.max.idle.interval.ms), so a controller that follows moves beyond what was there at the first look. The
    last value of one that is away stays the same."""
    ends: Mapping[int, int] | None = context.admin.quorum_ends()
    if ends is None:
        return "no controller is active"
    begun[:] = begun or [max(ends.values(), default=0)]
    end = ends.get(node.node_id, 0)
    return "" if end > begun[0] else f"its log ends at {end}, and has to pass {begun[0]}"


def _serves_nobody(context: FaultContext, node: Node) -> str:
    """Returns why a ZooKeeper server serves nobody; "" if it serves. One that has not joined the ensemble refuses all."""
    serving = context.admin.zookeeper_serving()
    return "" if node.node_id in serving else f"of the servers, {sorted(serving)} lead or follow"


# Changes that Kafka is asked for again until it accepts them: an undo comes when a controller may just be being
# elected.


def until_accepted(ask: Callable[[], None], *, awaited: str, timeout_s: float, clock: Clock) -> None:
    """Calls `ask` until it does not raise ClusterFailed. NotReady after the limit, with its last error."""
    last = "nothing"

    def accepted() -> bool:
        nonlocal last
        try:
            ask()
        except ClusterFailed as error:  # a controller that is just being elected
            last = str(error)
            return False
        return True

    wait_until(accepted, awaited=awaited, timeout_s=timeout_s, clock=clock, last_seen=lambda: last, interval_s=0.5)
