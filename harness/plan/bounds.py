"""This module says how long what a client waits for may take, by what the configuration implies, once a cluster is whole and
that no fault touches. Pure.

A request that was under way when a link or a server went ends by its timeout, and is then made again. What a client asks
a coordinator or a leader for, that one may ask another broker for in turn: so the timeouts of both count, one after the
other. `SPARE_MS` is for what follows: other metadata, a new connection, a coordinator that loads its state.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.plan.cell_work import CopierWork, RecordedWork
from prozess.harness.plan.plan import Cell, Plan

NS_PER_MS = 1_000_000
SPARE_MS = 10_000
BROKER_REQUEST_MS = 30_000
"""request.timeout.ms of brokers, by default. [Kafka documentation, broker configuration]"""
OUR_REQUEST_MS = 10_000
"""The time for which clients of a trial wait for an answer, unless it sets another (socket.timeout.ms)."""
LIBRARY_REQUEST_MS = 60_000
"""The longest that a library has by default: librdkafka's. [CONFIGURATION, socket.timeout.ms]"""
_LIBRARY_REQUEST_MS = {"librdkafka": LIBRARY_REQUEST_MS, "java": 30_000, "command": 30_000}
"""The same where the client's own library decides. [librdkafka CONFIGURATION, socket.timeout.ms; Kafka documentation,
producer configuration request.timeout.ms]"""
_REQUEST_KEYS = ("socket.timeout.ms", "request.timeout.ms")
_PAUSE_KEYS = ("retry.backoff.ms", "retry.backoff.max.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms")
_DELAY_KEY = "group.initial.rebalance.delay.ms"
REBALANCE_DELAY_MS = 3_000
"""The same, by default. [Kafka documentation, broker configuration]"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long clients of a cell may have to wait in a whole cluster that no fault touches."""

    transaction_call_ns: int = (BROKER_REQUEST_MS + OUR_REQUEST_MS + SPARE_MS) * NS_PER_MS
    """For the return of init_transactions, of a commit and of an abort: the coordinator's request to a leader
    (WriteTxnMarkers) may run into request.timeout.ms of the brokers, and then the client's into its own timeout."""
    new_leader_ns: int = (9_000 + 5_000 + SPARE_MS) * NS_PER_MS
    """For a new leader once a partition's own is out of reach: its session ends (broker.session.timeout.ms, or
    zookeeper.session.timeout.ms), and if the active controller is gone too, its peers notice that by
    controller.quorum.fetch.timeout.ms and elect another within controller.quorum.election.timeout.ms, tried again once."""
    acknowledgement_ns: int = (BROKER_REQUEST_MS + OUR_REQUEST_MS + SPARE_MS) * NS_PER_MS
    """For an acknowledgement of one of the records that a producer sends: it waits for others (linger.ms), the leader may
    answer after request.timeout.ms that too few replicas have it, the client's own timeout may pass, and then as long as it
    may wait before it tries again (retry.backoff.max.ms, reconnect.backoff.max.ms)."""
    reading_ns: int = (LIBRARY_REQUEST_MS + SPARE_MS) * NS_PER_MS
    """For the next record that there is to read, of a reader that an application drives: a fetch that was under way is
    given up after the client's own timeout, and made again."""
    member_reading_ns: int = 2 * OUR_REQUEST_MS * NS_PER_MS
    """The same of a member of a group, which may lose one answer."""
    admin_call_ns: int = (BROKER_REQUEST_MS + OUR_REQUEST_MS + SPARE_MS) * NS_PER_MS
    """For the answer to an administrator's call: a broker that asks the controller may run into its request.timeout.ms, and
    then the client's request into its own timeout."""
    rebalance_delay_ns: int = 3_000 * NS_PER_MS
    """group.initial.rebalance.delay.ms: for how long a coordinator waits for more members of a group that was empty."""


def bounds_of(plan: Plan, cell: Cell, settings: Mapping[str, object]) -> Bounds:
    """Returns the bounds for a cell. `settings`: what the cluster was seen to have set; else the plan's values count, and
    else Kafka's defaults."""
    timeout = settings.get("request.timeout.ms", plan.variant.properties.get("request.timeout.ms"))
    broker_ms = _number(timeout, BROKER_REQUEST_MS)
    producer_ms = _producer_request_ms(cell)
    longest_ms = broker_ms + _client_request_ms(cell) + SPARE_MS
    delay = settings.get(_DELAY_KEY, plan.variant.properties.get(_DELAY_KEY))
    return Bounds(
        transaction_call_ns=longest_ms * NS_PER_MS,
        new_leader_ns=_new_leader_ms(plan, settings) * NS_PER_MS,
        acknowledgement_ns=(broker_ms + producer_ms + _pauses_ms(cell.producer)) * NS_PER_MS,
        reading_ns=(_reading_ms(cell, LIBRARY_REQUEST_MS) + max(500, _fetch_waits_ms(cell)) + SPARE_MS) * NS_PER_MS,
        member_reading_ns=(2 * _reading_ms(cell, _members_request_ms(cell)) + _fetch_waits_ms(cell)) * NS_PER_MS,
        admin_call_ns=(broker_ms + OUR_REQUEST_MS + SPARE_MS) * NS_PER_MS,
        rebalance_delay_ns=_number(delay, REBALANCE_DELAY_MS) * NS_PER_MS,
    )


def _pauses_ms(producer: ProducerConfiguration) -> int:
    """Returns for how long a producer may keep a record back by its own settings, and SPARE_MS at least."""
    given = producer.properties
    return int(producer.linger_ms or 0) + max(
        [SPARE_MS, *(_number(given[key], 0) for key in _PAUSE_KEYS if key in given)]
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
    # For ZooKeeper the controller's own session ends first, and then the leader's is seen to have ended.
    return session_ms + (session_ms if zookeeper else fetch_ms * 3 // 2 + 2 * election_ms) + SPARE_MS


def _client_request_ms(cell: Cell) -> int:
    """Returns for how long the cell's clients wait for an answer: the longest of those that may."""
    given = [_producer_request_ms(cell)]
    if cell.transaction is not None:
        given.append(_of_properties(cell.transaction.properties, OUR_REQUEST_MS))
    if isinstance(cell.work, CopierWork):
        given.append(_of_properties(cell.work.configuration.properties, OUR_REQUEST_MS))
    return max(given)


def _reading_ms(cell: Cell, least_ms: int) -> int:
    """Returns for how long who reads waits for an answer to a fetch. Readers outside the cell's group are not known."""
    return max(_of_properties({} if cell.group is None else cell.group.configuration.properties, 0), least_ms)


def _fetch_waits_ms(cell: Cell) -> int:
    """Returns for how long a broker may wait for records before it answers a fetch, if the group says."""
    given = {} if cell.group is None else cell.group.configuration.properties
    waits_ms = [_number(given[key], 0) for key in ("fetch.wait.max.ms", "fetch.max.wait.ms") if key in given]
    return max(waits_ms, default=0)


def _members_request_ms(cell: Cell) -> int:
    """Returns for how long members of the cell's group wait for an answer, unless its properties say more."""
    if cell.group is None or cell.group.configuration.defaults == "prozess":
        return OUR_REQUEST_MS
    return _LIBRARY_REQUEST_MS[cell.group.configuration.client]


def _producer_request_ms(cell: Cell) -> int:
    """Returns for how long the cell's producer waits for an answer to a request. What is not set of a test's own client is
    its library's default, and of a program in another language the longest that a library has."""
    if isinstance(cell.work, RecordedWork):
        return _of_properties(cell.producer.properties, LIBRARY_REQUEST_MS)
    return request_ms(cell.producer)


def request_ms(producer: ProducerConfiguration) -> int:
    """Returns for how long a producer of a trial waits for an answer to a request."""
    ours = producer.defaults == "prozess" and producer.client == "librdkafka"
    return _of_properties(producer.properties, OUR_REQUEST_MS if ours else _LIBRARY_REQUEST_MS[producer.client])


def _of_properties(properties: Mapping[str, str], otherwise: int) -> int:
    return max((_number(properties[key], otherwise) for key in _REQUEST_KEYS if key in properties), default=otherwise)


def _number(text: object, otherwise: int) -> int:
    text = str(text)
    return int(text) if text.isdecimal() else otherwise
