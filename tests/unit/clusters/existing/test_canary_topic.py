"""The topic of a watch: who leads its partitions, what it refuses to be, and that no other topic is deleted."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.existing import canary_topic
from prozess.clusters.existing.adoption import Kafka
from prozess.clusters.existing.canary_topic import PREFIX, RETENTION_MS, CanaryTopic
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.watch.window import RETENTION_NS

NAME = f"{PREFIX}test"


class Deleting:
    """A client that takes down what it is asked to delete."""

    def __init__(self):
        self.deleted = []

    def delete_topics(self, names, **_):
        self.deleted += names

        class Done:
            def result(self, _timeout_s):
                return None

        return dict.fromkeys(names, Done())


@pytest.fixture
def topic(monkeypatch):
    def make(brokers=(1, 2, 3), *, name=NAME, copies=None):
        monkeypatch.setattr(Kafka, "describe", lambda _: ("cluster", {broker: ("h", 9092) for broker in brokers}))
        made = CanaryTopic("h:9092", name, copies=copies, clock=SystemClock(), login=None)
        made.close()
        return made

    return make


@given(brokers=st.sets(st.integers(0, 62), min_size=1, max_size=9), copies=st.none() | st.integers(1, 9))
def test_every_broker_leads_one_partition_and_no_partition_has_a_broker_twice(brokers, copies):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kafka, "describe", lambda _: ("cluster", {broker: ("h", 9092) for broker in brokers}))
        if copies is not None and copies > len(brokers):
            with pytest.raises(BadInput, match="needs as many brokers"):
                CanaryTopic("h:9092", NAME, copies=copies, clock=SystemClock(), login=None)
            return
        made = CanaryTopic("h:9092", NAME, copies=copies, clock=SystemClock(), login=None)
        made.close()
    assert sorted(replicas[0] for replicas in made.assignment) == sorted(brokers)
    assert {len(set(replicas)) for replicas in made.assignment} == {made.copies}
    assert made.copies == (min(3, len(brokers)) if copies is None else copies)
    assert 1 <= made.min_in_sync <= made.copies


def test_a_name_that_does_not_say_whose_it_is_is_refused_before_anybody_is_asked():
    with pytest.raises(BadInput, match=f"must begin with {PREFIX}"):
        CanaryTopic("nowhere:1", "orders", copies=None, clock=SystemClock(), login=None)


def test_the_window_knows_how_long_the_topic_keeps_its_records(topic):
    assert RETENTION_NS == RETENTION_MS * 1_000_000
    assert topic().properties["retention.ms"] == str(RETENTION_MS)


def test_a_topic_that_was_not_made_is_not_deleted(topic, monkeypatch):
    client = Deleting()
    made = topic()
    monkeypatch.setattr(made, "_client", lambda: client)
    made.remove()
    assert client.deleted == []


@pytest.mark.parametrize(("now", "deleted"), [(UUID(int=1), [NAME]), (None, [NAME]), (UUID(int=2), [])])
def test_a_topic_of_the_same_name_with_another_id_is_somebody_elses(topic, monkeypatch, now, deleted):
    client = Deleting()
    made = topic()
    made.made, made.id = True, UUID(int=1)
    monkeypatch.setattr(made, "_client", lambda: client)
    monkeypatch.setattr(made, "_topic_id", lambda: now)
    if deleted:
        made.remove()
    else:
        with pytest.raises(ClusterFailed, match="is not the one that the watch made"):
            made.remove()
    assert client.deleted == deleted


def test_the_prefix_is_said_once():
    assert canary_topic.PREFIX == "prozess-watch-"
