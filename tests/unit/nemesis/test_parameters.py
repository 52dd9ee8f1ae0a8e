"""What is checked of a fault's parameters when a trial is planned."""

import pytest

from prozess.harness.config.configuration import Variant
from prozess.harness.errors import BadInput
from prozess.harness.plan.checks import check_parameters


@pytest.mark.parametrize(
    ("fault", "parameters", "says"),
    [
        ("partition", {"direction": "sideways"}, "direction = 'sideways': Input should be 'both'"),
        ("partition", {"others": "everyone"}, "others = 'everyone': it must be one of all, brokers"),
        ("partition", {"others": []}, "others = .*a list, not empty"),
        ("partition", {"others": ["boss(1)"]}, "'boss.1.' is not a role"),
        ("partition", {"direction": 3}, "direction = 3"),
        ("partition", {"shape": "star"}, "shape = 'star'"),
        ("partition", {"shape": "ring", "others": "brokers"}, "of the targets alone"),
        ("partition", {"shape": "halves", "direction": "to-targets"}, "of the targets alone"),
        ("loss", {"share": 0}, "share = 0: Input should be greater than"),
        ("loss", {}, "share is missing; give it"),
        ("bandwidth", {"bytes_per_s": 1}, "bytes_per_s = 1: Input should be greater"),
        ("reset", {"others": "nobody"}, "others = 'nobody': it must be one of"),
        ("partition", {"directions": "both"}, "directions is not a known key; did you mean 'direction'"),
        ("kill", {"signal": 9}, "fault 'kill': signal is not a known key; remove it"),
        ("maim", {}, "fault 'maim' is not known. Known: .*kill"),
    ],
)
def test_wrong_parameters_are_refused_when_a_trial_is_planned(fault, parameters, says):
    with pytest.raises(BadInput, match=says):
        check_parameters(fault, parameters)


ZOOKEEPER = {"metadata_mode": "zookeeper", "kafka_version": "3.9.2"}


@pytest.mark.parametrize(
    ("fault", "parameters", "variant", "says"),
    [
        ("migrate", {"stage": "kraft"}, {}, 'begins with ZooKeeper .*Set metadata_mode = "zookeeper"'),
        ("migrate", {"stage": "migrating"}, ZOOKEEPER, "Set variant.migration_controllers"),
        ("finalize-features", {}, ZOOKEEPER, "the cluster has ZooKeeper"),
        ("upgrade", {"version": "4.4.0"}, {}, "no newer than 4.4.0"),
        ("upgrade", {"version": "3.9.2"}, {}, "no newer than 4.4.0"),
        ("upgrade", {"version": "5.0.0"}, {"kafka_version": "3.9.2"}, "to the next major version first"),
        ("upgrade", {"version": "4.4.0"}, ZOOKEEPER, "has no ZooKeeper mode"),
    ],
)
def test_a_fault_that_means_nothing_on_such_a_cluster_is_refused(fault, parameters, variant, says):
    with pytest.raises(BadInput, match=says):
        check_parameters(fault, parameters, variant=Variant.model_validate(variant))


@pytest.mark.parametrize(
    ("fault", "parameters", "variant"),
    [
        ("migrate", {"stage": "kraft"}, ZOOKEEPER | {"migration_controllers": 3}),
        ("finalize-features", {}, ZOOKEEPER | {"migration_controllers": 1}),
        ("finalize-features", {}, {}),
        ("upgrade", {"version": "4.4.0"}, {"kafka_version": "3.9.2"}),
        ("upgrade", {"version": "4.4.0"}, {"versions": {"broker-1": "3.9.2"}}),
    ],
)
def test_a_fault_that_means_something_there_is_taken(fault, parameters, variant):
    check_parameters(fault, parameters, variant=Variant.model_validate(variant))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"others": "followers", "direction": "to-targets"},
        {"others": ["broker-1", "leader(0)", "node:broker-2"]},
        {"shape": "ring"},
    ],
)
def test_good_parameters_of_a_partition_are_accepted(parameters):
    check_parameters("partition", parameters)


def test_nodes_and_partitions_that_parameters_name_are_checked_against_the_plan():
    nodes = ["broker-1", "broker-2"]
    check_parameters("partition", {"others": ["broker-2", "leader(0)"]}, targets=["node:broker-1"], nodes=nodes)
    for named in ("brooker-2", "node:brooker-2"):
        with pytest.raises(BadInput, match=r"others: there is no node 'brooker-2'\. Nodes: broker-1, broker-2"):
            check_parameters("partition", {"others": [named]}, targets=["node:broker-1"], nodes=nodes)
    check_parameters("partition", {"others": "followers"}, targets=["leader(0)"], nodes=nodes)
    with pytest.raises(BadInput, match=r"name none. Give others = \["):
        check_parameters("partition", {"others": "followers"}, targets=["active-controller"], nodes=nodes)


def test_what_nobody_in_particular_sends_has_no_limit_of_its_own():
    with pytest.raises(BadInput, match="say which `others`"):
        check_parameters("bandwidth", {"bytes_per_s": 20_000, "back_bytes_per_s": 20_000})
    for others in ("clients", "everybody", ["clients"]):
        check_parameters("bandwidth", {"back_bytes_per_s": 20_000, "others": others})


@pytest.mark.parametrize(
    ("fault", "parameters", "why"),
    [
        ("bandwidth", {"others": "clients"}, "nothing is limited: give bytes_per_s, back_bytes_per_s, or both"),
        ("latency", {"latency_ms": 0}, "delays nothing: give latency_ms, back_ms, or both"),
        ("latency", {"latency_ms": 0, "back_ms": 0}, "delays nothing"),
        ("latency", {"latency_ms": 10, "back_ms": 30, "jitter_ms": 30}, "must be less than the latency, 30 ms"),
    ],
)
def test_a_fault_of_links_does_something(fault, parameters, why):
    with pytest.raises(BadInput, match=why):
        check_parameters(fault, parameters)
    check_parameters("latency", {"latency_ms": 0, "back_ms": 30, "jitter_ms": 20, "others": "clients"})
