"""Whatever stands for a cluster where mypy does not look says every member of the protocol that it stands for."""

import pytest

from prozess.harness.interfaces import Cluster
from prozess.workloads.roles import ClientServers
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.mock_kafka import mock_kafka
from tests.support.servers.hosted import HostedCluster


def members(protocol):
    return {name for name in dir(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [HostedCluster, FakeCluster])
def test_a_cluster_that_tests_use_says_every_member_of_a_cluster(kind):
    assert {"nodes", "login", "refusal_of", "zookeeper_servers", "client_prefix"} <= members(Cluster)
    assert members(Cluster) - members(kind) == set()


def test_the_mock_says_all_that_clients_need():
    with mock_kafka() as kafka:
        assert members(ClientServers) - members(kafka) == set()
