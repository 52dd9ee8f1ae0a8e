"""A plan fitted to a cluster that was there before: names by run, the brokers' own ids; and what a trial may say of such."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.existing.adoption import adopt, run_prefix
from prozess.harness.config.existing_clusters import Adoption, split_server
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

NODES = [{"id": 10 + i, "host": f"h{i}", "listener": f"h{i}:9092"} for i in range(3)]
MARK = "0123456789ab"
IDS = (10, 11, 12)


def plan_on(**more):
    document = {
        "name": "adopted",
        "title": "",
        "backend": "ssh",
        "ssh": {"nodes": NODES},
        "workload": "group",
        "base": {"topic.replication_factor": 3},
        "topics": {"partitions": 2, "placement": [[3, 1, 2]]},
        **more,
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def test_topics_groups_and_copies_get_the_runs_names_and_the_clusters_ids():
    plan = adopt(plan_on(), Adoption(prefix=run_prefix("r", MARK), broker_ids=IDS))
    assert (
        {p.topic_name for p in plan.partitions}
        == {"prozess-r-0123456789ab-cell-000"}
        == {c.topic_name for c in plan.cells}
    )
    assert {p.assignment for p in plan.partitions} == {(12, 10, 11)}
    assert {c.group_id for c in plan.clients if c.group_id} == {"prozess-r-0123456789ab-prozess-cell-000"}
    assert plan.broker_ids == IDS


@given(st.lists(st.integers(0, 62), min_size=3, max_size=3, unique=True), st.text("abc-", max_size=9))
def test_a_plan_that_was_adopted_before_is_adopted_anew_as_if_it_had_not_been(ids, name):
    fresh, again = Adoption(prefix=run_prefix("new", MARK), broker_ids=(0, 1, 2)), plan_on()
    before = adopt(again, Adoption(prefix=run_prefix(name, MARK), broker_ids=tuple(ids)))
    assert adopt(before, fresh) == adopt(again, fresh)


def test_another_number_of_brokers_is_refused():
    with pytest.raises(BadInput, match=r"variant\.brokers = 3, but the cluster has 2 brokers \(1, 2\)"):
        adopt(plan_on(), Adoption(broker_ids=(1, 2)))


def test_steps_name_the_nodes_that_are_there():
    step = {"name": "kill", "do": {"kind": "fault", "fault": "kill", "targets": ["node:broker-11"]}}
    assert plan_on(steps=[step]).steps
    step["do"]["targets"] = ["node:broker-1"]
    with pytest.raises(BadInput, match=r"there is no node 'broker-1'\. Nodes: broker-10, broker-11, broker-12"):
        plan_on(steps=[step])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ssh": {"nodes": []}}, "at least 1 item"),
        ({"ssh": {"nodes": [{"id": 1, "host": "h"}]}}, "a broker needs `listener`"),
        ({"ssh": {"nodes": [NODES[0], NODES[0]]}}, "two nodes have the same id"),
        ({"ssh": {"nodes": [{"id": 1, "host": "h", "roles": ["controller"]}]}}, "no node is a broker"),
        ({"ssh": {"nodes": [{"id": 1, "host": "h", "listener": "h"}]}}, "'h' is not HOST:PORT"),
        ({"attach": {"bootstrap_servers": ["h:9092", "i"]}}, "'i' is not HOST:PORT"),
        ({"attach": {"servers": ["h:9092"]}}, "servers is not a known key"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(options, why):
    with pytest.raises(BadInput, match=why):
        plan_on(**options)


def test_servers_are_split_at_the_port():
    assert split_server("h:1") == ("h", 1)
    assert split_server("[::1]:9092") == ("::1", 9092)


def test_servers_are_named_after_the_brokers_own_ids():
    plan = plan_on()
    assert plan.server_names == plan.variant.server_names()
    adopted = adopt(plan, Adoption(broker_ids=(0, 1, 2)))
    brokers = {node: name for node, name in adopted.server_names.items() if name.startswith("broker")}
    assert brokers == {0: "broker-0", 1: "broker-1", 2: "broker-2"}
    assert adopted.server_names.items() >= {(n, name) for n, name in plan.server_names.items() if n > 3}
