"""Clusters in memory on a clock that a test moves."""

import pytest

from prozess.harness.interfaces import TopicSpec
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from tests.support.clock import FakeClock
from tests.support.fake_cluster.cluster import FakeCluster

TOPIC = TopicSpec("t", ((1, 2, 3),))
UNCLEAN = TopicSpec("u", ((1, 2, 3),), {"unclean.leader.election.enable": "true"})


def plan_of(**variant):
    properties = {"broker.session.timeout.ms": 4000, "replica.lag.time.max.ms": 10000}
    document = {"name": "tiny", "title": "tiny", "variant": {"properties": properties} | variant}
    return make_plan(parse_trial(document, source="here"), seed=1)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def build(clock, tmp_path):
    """A ready cluster and its administration, of this variant."""

    def make(*topics, capabilities=None, **variant):
        options = {} if capabilities is None else {"capabilities": capabilities}
        cluster = FakeCluster(plan_of(**variant), RunDirectory(tmp_path), clock=clock, **options)
        cluster.setup()
        cluster.wait_ready(timeout_s=10)
        admin = cluster.admin()
        admin.create_topics(topics, timeout_s=10)
        return cluster, admin

    return make


def node(cluster, node_id):
    return next(n for n in cluster.nodes if n.node_id == node_id)


def seen(admin, broker, topic="t"):
    view = admin.view(broker, [topic])
    return None if view is None else (view[topic, 0].leader, view[topic, 0].leader_epoch, view[topic, 0].isr)
