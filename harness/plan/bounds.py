"""This module says how long what a client waits for may take, by what the configuration implies, once a cluster is whole and
left in peace. Pure.

A request that was under way when a link or a server went ends by its timeout, and is then made again. What a client asks
a coordinator or a leader for, that one may ask another broker for in turn: so the timeouts of both count, one after the
other. `SPARE_MS` is for what follows: other metadata, a new connection, a coordinator that loads its state.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.plan.work import CopierWork

NS_PER_MS = 1_000_000
SPARE_MS = 10_000
BROKER_REQUEST_MS = 30_000
"""request.timeout.ms of brokers, by default. [Kafka documentation, broker configuration]"""
OUR_REQUEST_MS = 10_000
"""The time for which clients of a trial wait for an answer, unless it sets another (socket.timeout.ms)."""
_LIBRARY_REQUEST_MS = {"librdkafka": 60_000, "java": 30_000, "command": 30_000}
"""The same where the client's own library decides. [librdkafka CONFIGURATION, socket.timeout.ms; Kafka documentation,
producer configuration request.timeout.ms]"""
_REQUEST_KEYS = ("socket.timeout.ms", "request.timeout.ms")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long clients of a cell may have to wait in a whole cluster that is left in peace."""

    transaction_call_ns: int = (BROKER_REQUEST_MS + OUR_REQUEST_MS + SPARE_MS) * NS_PER_MS
    """For the return of init_transactions, of a commit and of an abort: the coordinator's request to a leader
    (WriteTxnMarkers) may run into request.timeout.ms of the brokers, and then the client's into its own timeout."""
    new_leader_ns: int = (9_000 + 5_000 + SPARE_MS) * NS_PER_MS
    """For a new leader once a partition's own is out of reach: its session ends (broker.session.timeout.ms, or
    zookeeper.session.timeout.ms), and if the active controller is gone too, its peers notice that by
    controller.quorum.fetch.timeout.ms and elect another within controller.quorum.election.timeout.ms, tried again once."""
    acknowledgement_ns: int = (BROKER_REQUEST_MS + OUR_REQUEST_MS + SPARE_MS) * NS_PER_MS
    """For an acknowledgement of one of the records that a producer sends: the leader may answer after request.timeout.ms
    that too few replicas have it, and the client's own timeout may pass."""


def bounds_of(plan: Plan, cell: Cell, settings: Mapping[str, object]) -> Bounds:
    """Returns the bounds for a cell. `settings`: what the cluster was seen to have set; else the plan's values count, and
    else Kafka's defaults."""
    told = settings.get("request.timeout.ms", plan.variant.properties.get("request.timeout.ms"))
    broker_ms = _number(told, BROKER_REQUEST_MS)
    longest_ms = broker_ms + _client_request_ms(cell) + SPARE_MS
    return Bounds(
        transaction_call_ns=longest_ms * NS_PER_MS,
        new_leader_ns=_new_leader_ms(plan, settings) * NS_PER_MS,
        acknowledgement_ns=longest_ms * NS_PER_MS,
    )


def _new_leader_ms(plan: Plan, settings: Mapping[str, object]) -> int:
    def value(key: str, otherwise: int) -> int:
        return _number(settings.get(key, plan.variant.properties.get(key)), otherwise)

    zookeeper = plan.variant.metadata_mode == "zookeeper"
    session_ms = (
        value("zookeeper.session.timeout.ms", 18_000) if zookeeper else value("broker.session.timeout.ms", 9_000)
    )
    fetch_ms, election_ms = (
        value(f"controller.quorum.{name}.timeout.ms", otherwise)
        for name, otherwise in (("fetch", 2_000), ("election", 1_000))
    )
    # Of ZooKeeper the controller's own session ends first, and then the leader's is seen to have ended.
    return session_ms + (session_ms if zookeeper else fetch_ms * 3 // 2 + 2 * election_ms) + SPARE_MS


def _client_request_ms(cell: Cell) -> int:
    """Returns for how long the cell's clients wait for an answer: the longest of those that may."""
    given = [request_ms(cell.producer)]
    if cell.transaction is not None:
        given.append(_of_properties(cell.transaction.properties, OUR_REQUEST_MS))
    if isinstance(cell.work, CopierWork):
        given.append(_of_properties(cell.work.configuration.properties, OUR_REQUEST_MS))
    return max(given)


def request_ms(producer: ProducerConfiguration) -> int:
    """Returns for how long a producer waits for an answer to a request."""
    ours = producer.defaults == "prozess" and producer.client == "librdkafka"
    return _of_properties(producer.properties, OUR_REQUEST_MS if ours else _LIBRARY_REQUEST_MS[producer.client])


def _of_properties(properties: Mapping[str, str], otherwise: int) -> int:
    return max((_number(properties[key], otherwise) for key in _REQUEST_KEYS if key in properties), default=otherwise)


def _number(told: object, otherwise: int) -> int:
    text = str(told)
    return int(text) if text.isdecimal() else otherwise
