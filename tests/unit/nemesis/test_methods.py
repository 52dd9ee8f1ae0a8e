"""The fault of methods: what it asks of which node, what undoes it, and what is refused when it is planned."""

import pytest

from prozess.harness.config.methods import WAKING_CLASS
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.plan.checks import check_parameters
from prozess.harness.schema import Tristate
from tests.support.nemesis_bench import bench as bench

MATCH = {"method": "kafka.cluster.Partition#appendRecordsToLeader", "partition": 0, "nth": 2}
PAUSE = {"do": "pause", "until": {"method": "kafka.cluster.Partition#makeFollower", "partition": 0}}
THROW = {"do": "throw", "exception": "java.lang.IllegalStateException"}


def test_the_rule_names_the_partition_as_kafka_does_and_its_effect_is_seen_when_it_is_healed(bench):
    struck = bench.strike("stand still", "method", "leader(0)", match=MATCH, action=PAUSE)
    assert struck.effects == ()
    (rule,) = bench.cluster["broker-1"].impairments
    assert (rule.meant.number, rule.until.number, rule.numbers.nth) == (0, 0, 2)
    assert rule.meant.topic == rule.until.topic != ""
    bench.nemesis.heal("stand still")
    assert [phase for phase, *_ in bench.recorder.phases()][-3:] == ["VERIFIED", "UNDONE", "UNDO_VERIFIED"]
    assert not bench.cluster["broker-1"].impairments


def test_a_rule_outlives_a_restart_and_is_taken_away_by_a_nemesis_that_never_saw_it(bench):
    bench.strike("stand still", "method", "leader(0)", match=MATCH, action=PAUSE)
    bench.strike("k", "kill", "node:broker-1")
    bench.nemesis.heal("k")
    assert bench.cluster["broker-1"].observed is NodeState.RUNNING, "a rule that pauses does not hold a node down"
    assert bench.cluster["broker-1"].impairments
    assert bench.nemesis.unhealed() == frozenset(), "it can be asked, and lead"
    bench.fresh_nemesis().heal(None)
    assert not bench.cluster["broker-1"].impairments
    assert bench.fresh_nemesis().heal(None) == []


def test_a_broker_that_ended_over_an_exception_is_started_without_the_rule(bench):
    bench.strike("throw", "method", "leader(0)", match=MATCH, action=THROW)
    bench.cluster["broker-1"].observed = NodeState.STOPPED
    assert bench.nemesis.unhealed() == {1}
    assert {effect.effect for effect in bench.nemesis.heal("throw")} == {Tristate.YES}
    done = [entry[0] for entry in bench.world.log]
    assert done.index("repair") < done.index("start")
    assert bench.cluster.is_whole()


def test_no_method_of_a_node_that_is_down_is_called(bench):
    bench.cluster["broker-1"].kill()
    with pytest.raises(ClusterFailed, match="no method of broker-1 is called"):
        bench.strike("stand still", "method", "node:broker-1", match=MATCH, action=PAUSE)
    assert bench.open() == []


@pytest.mark.parametrize("place", ["match", "until"])
def test_a_partition_that_the_plan_does_not_have_is_missing(bench, place):
    match, action = dict(MATCH), {"do": "pause", "until": dict(PAUSE["until"])}
    (match if place == "match" else action["until"])["partition"] = 7
    with pytest.raises(ClusterFailed, match="the plan has partitions 0…0"):
        bench.strike("stand still", "method", "leader(0)", match=match, action=action)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("zookeepers", "no server of Kafka"),
        ("zookeeper-leader", "no server of Kafka"),
        ("node:zookeeper-4001", "no server of Kafka"),
        ("client:producer-1", "is a client"),
        ("producers", "is a client"),
    ],
)
def test_only_kafkas_servers_have_methods(target, why):
    with pytest.raises(BadInput, match=why):
        check_parameters("method", {"match": MATCH, "action": PAUSE}, targets=[target], nodes=["broker-1"])


def test_what_wakes_the_others_cannot_stand_still_itself():
    match = {"method": f"{WAKING_CLASS}#poll"}
    with pytest.raises(BadInput, match="must not stand still itself"):
        check_parameters("method", {"match": match, "action": {"do": "delay", "seconds": 1}})
    check_parameters("method", {"match": match, "action": THROW})
