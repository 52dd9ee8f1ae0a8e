"""Faults of the remote store, on a cluster in memory: whom they concern, and what healing one of two leaves."""

import pytest

from prozess.harness.config.configuration import Variant
from prozess.harness.config.impairments import HarmedObject, StoreAway
from prozess.harness.errors import BadInput
from prozess.harness.plan.checks import check_parameters
from prozess.harness.schema import Tristate
from tests.support.nemesis_bench import FakeBench


class Bench(FakeBench):
    def impairments(self):
        return {node.name: node.impairments for node in self.cluster.nodes if node.impairments}


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "run")


def test_the_store_is_back_when_the_last_of_two_faults_is_healed_whatever_their_targets(bench):
    assert bench.strike("one", "store-away", "node:broker-2").effective is Tristate.YES
    assert bench.strike("two", "store-away", "brokers").effective is Tristate.YES
    assert bench.impairments() == {"broker-1": {StoreAway()}}
    bench.nemesis.heal("one")
    assert bench.impairments() == {"broker-1": {StoreAway()}}
    bench.nemesis.heal("two")
    assert bench.impairments() == {}


def test_nodes_that_cannot_reach_the_store_run_and_are_not_held(bench):
    bench.strike("one", "store-away", "brokers")
    bench.strike("two", "harm-object", "partition(0)", how="damaged", which="last")
    assert not bench.nemesis.unhealed()
    assert HarmedObject(topic="cell-000", number=0, how="damaged", which="last") in bench.impairments()["broker-1"]
    bench.nemesis.heal(None)
    assert bench.impairments() == {}


@pytest.mark.parametrize(("fault", "targets"), [("store-away", ["brokers"]), ("harm-object", ["partition(0)"])])
def test_without_a_remote_store_there_is_nothing_to_break(fault, targets):
    with pytest.raises(BadInput, match=r"has no remote store; set variant\.tiered_storage = true"):
        check_parameters(fault, {}, targets=targets, variant=Variant())
    check_parameters(fault, {}, targets=targets, variant=Variant(tiered_storage=True))


def test_an_object_is_that_of_a_partition():
    with pytest.raises(BadInput, match="is for partitions, and 'brokers' is none"):
        check_parameters("harm-object", {}, targets=["brokers"])
