"""What is around a watch's topic: other watches and their debris, new brokers, and what one broker says of the cluster."""

import pytest

from prozess.clusters.existing.cluster_health import ask_health, health_of
from prozess.clusters.protocol.requests import MetadataAnswer
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import PartitionView
from prozess.harness.schema import NONE
from prozess.watch.surroundings import PartitionAdded, Surroundings, WatchNote, remark_on
from tests.support.clock import FakeClock

KEY = ("prozess-watch-y", 0)
ADDRESSES = {1: ("h", 1), 2: ("h", 2)}


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({KEY: (0, 10)}, {KEY: (0, 14)}, "is another watch's, which is at work"),
        ({KEY: (900, 900)}, {KEY: (900, 900)}, "is debris"),
        ({KEY: (900, 910)}, {KEY: (900, 910)}, "Look before you delete it"),
        ({KEY: (0, 0)}, {KEY: (0, 0)}, "Look before you delete it"),  # it may be another's that begins just now
        ({}, {}, "Look before you delete it"),  # its leader does not answer
    ],
)
def test_a_topic_that_grows_is_alive_and_only_one_that_is_empty_after_use_is_debris(before, now, words):
    assert words in remark_on("prozess-watch-y", before, now)


def test_partitions_without_a_leader_or_a_whole_isr_are_counted_and_absent_brokers_named():
    partitions = {
        ("a", 0): PartitionView(1, 4, (1, 2), (1, 2)),
        ("a", 1): PartitionView(-1, 4, (1, 3), (3,)),
        ("b", 0): PartitionView(2, 4, (2, 3), (2,)),
    }
    health = health_of(1, ADDRESSES, partitions, controller=2, took_s=0.1)
    assert (health.partitions, health.under_replicated, health.offline, health.absent) == (3, 2, 1, {3})


class Admin:
    """Broker 1 does not answer; broker 2 does, as one of KRaft or of ZooKeeper."""

    def __init__(self, *, kraft):
        self.kraft = kraft

    def everything(self, node, *, timeout_s):
        if node == 1:
            return None
        return MetadataAnswer(frozenset(ADDRESSES), {("a", 0): PartitionView(2, 4, (2,), (2,))}, ADDRESSES, 7)

    def is_kraft(self, node, *, timeout_s):
        return self.kraft

    def active_controller(self, *, timeout_s):
        assert self.kraft
        return 0


@pytest.mark.parametrize(("kraft", "controller"), [(True, 0), (False, 7)])
def test_the_first_broker_that_answers_is_asked_and_with_zookeeper_it_names_the_controller(kraft, controller):
    health = ask_health(Admin(kraft=kraft), ADDRESSES, clock=FakeClock(), timeout_s=1)
    assert (health.node, health.controller) == (2, controller)
    assert ask_health(Admin(kraft=kraft), {1: ("h", 1)}, clock=FakeClock(), timeout_s=1) is None


class Topic:
    """A topic of brokers 1 and 2, to which a broker can be added unless Kafka refuses."""

    name, admin = "prozess-watch-x", None

    def __init__(self, *, refuses=False):
        self.brokers, self.refuses, self.grown = {1: ("h", 1), 2: ("h", 2)}, refuses, []

    def moved(self, broker, address):
        self.brokers[broker] = address

    def grow(self, broker, address, *, timeout_s):
        if self.refuses:
            raise ClusterFailed("no room.")
        self.moved(broker, address)
        return 2


def looked(topic, monkeypatch, addresses, *, times=2):
    partitions = {("a", 0): PartitionView(1, 4, (1, 2, 3), (1, 2))}
    health = health_of(1, addresses, partitions, controller=NONE, took_s=0.0)
    monkeypatch.setattr("prozess.watch.surroundings.ask_health", lambda *_, **__: health)
    surroundings = Surroundings(topic, FakeClock())
    for _ in range(times):
        surroundings._look()
    return [event for event in surroundings.events() if event is not health]


def test_a_broker_that_comes_later_gets_a_partition_once(monkeypatch):
    topic = Topic()
    assert looked(topic, monkeypatch, {**ADDRESSES, 3: ("h", 3)}) == [PartitionAdded(3, 2)]


def test_a_broker_that_is_absent_is_named_once_and_one_that_moved_is_asked_at_its_new_address(monkeypatch):
    topic = Topic()
    (remark,) = looked(topic, monkeypatch, {1: ("h", 9)})
    assert remark == WatchNote("broker 3 has replicas and is not there. It is watched from when it comes on")
    assert topic.brokers[1] == ("h", 9)


def test_a_broker_that_cannot_be_watched_is_told_once_as_unknown(monkeypatch):
    (remark,) = looked(Topic(refuses=True), monkeypatch, {**ADDRESSES, 3: ("h", 3)})
    assert remark.unknown
    assert "broker 3 came, and is not watched: no room" in remark.text
