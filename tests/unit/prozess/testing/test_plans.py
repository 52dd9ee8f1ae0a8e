"""The plan of a test: what its clients reported becomes cells with the configuration that they really had."""

import pytest

from prozess.harness.guarantees.table.cell_configuration import configuration_of
from prozess.harness.interfaces.application import RegisteredClient, RegisteredTopic
from prozess.harness.plan.catalogue import RECORDED
from prozess.harness.plan.plan import parse_plan
from prozess.testing.plans import RecordedTest, make_test_plan, notes_of, producer_of

TOPIC = RegisteredTopic(
    "orders", 0, ((1, 2, 3), (2, 3, 1)), {"min.insync.replicas": "2", "flush.messages": str(2**63 - 1)}
)
OTHER = RegisteredTopic("invoices", 2, ((3, 1, 2),), {"unclean.leader.election.enable": "true"})


def producer(client, *wrote, **properties):
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return RegisteredClient(client, "producer", 1, {"bootstrap.servers": "x", **named}, wrote=dict.fromkeys(wrote))


def consumer(client, *read, how=("subscribe", "commit"), **properties):
    named = {"group.id": "g", "enable.auto.commit": False} | {k.replace("_", "."): v for k, v in properties.items()}
    return RegisteredClient(client, "consumer", 1, named, read=dict.fromkeys(read), how=dict.fromkeys(how))


def plan_of(*clients, topics=(TOPIC, OTHER)):
    return make_test_plan(RecordedTest(name="t", topics=topics, clients=clients))


def test_cells_are_topics_with_what_their_clients_had():
    plan = plan_of(producer(1, "orders", acks=1), consumer(2, "orders"), producer(3, "invoices", transactional_id="t"))
    orders, invoices = plan.cells
    assert orders.workload == invoices.workload == RECORDED
    assert configuration_of(orders, "4.4.0").acks == "1"
    assert orders.topic.min_insync_replicas == 2
    assert orders.topic.flush_messages is None, "Kafka's default is no setting"
    assert invoices.topic.unclean_leader_election_enable
    assert invoices.producer.enable_idempotence, "transactions imply it"
    assert orders.traits == {RECORDED, "group"}
    assert invoices.traits == {RECORDED, "transactions"}
    assert [p.assignment for p in plan.partitions] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert parse_plan(plan.model_dump_json(), source="x") == plan


def test_client_ids_are_those_of_the_rows_and_the_audit_comes_after():
    plan = plan_of(producer(1, "orders"), consumer(2, "orders"))
    assert [(c.client, c.role) for c in plan.clients[:3]] == [
        (0, "sentinel"), (1, "recorded-producer"), (2, "recorded-member"),
    ]  # fmt: skip
    assert sorted(c.client for c in plan.clients) == list(range(len(plan.clients)))
    assert {c.role for c in plan.clients[3:]} == {"observer", "audit"}


def test_who_assigns_itself_partitions_is_a_reader():
    plan = plan_of(consumer(1, "orders", how=("assign",)))
    assert plan.clients[1].role == "recorded-reader"
    assert plan.cells[0].group is None


@pytest.mark.parametrize(
    ("properties", "how", "commit"),
    [
        ({}, ("subscribe", "commit"), "sync-after"),
        ({}, ("subscribe",), "none"),
        ({"enable_auto_commit": True}, ("subscribe",), "auto"),
        ({"enable_auto_commit": True, "enable_auto_offset_store": False}, ("subscribe",), "auto-stored"),
    ],
)
def test_how_a_group_commits_is_what_it_did(properties, how, commit):
    cell = plan_of(consumer(1, "orders", how=how, **properties)).cells[0]
    assert cell.group is not None
    assert cell.group.configuration.commit == commit


def test_producers_that_differ_on_one_topic_are_a_doubt():
    assert plan_of(producer(1, "orders", acks=1), producer(2, "invoices", acks="all")).doubts == ()
    (doubt,) = plan_of(producer(1, "orders", acks=1), producer(2, "orders", acks="all")).doubts
    assert "acks=1" in doubt
    assert "give each producer its own topic" in doubt


def test_members_that_differ_are_a_doubt_unless_only_their_instance_does():
    same = (consumer(1, "orders", group_instance_id="a"), consumer(2, "orders", group_instance_id="b"))
    assert plan_of(*same).doubts == ()
    (doubt,) = plan_of(consumer(1, "orders"), consumer(2, "orders", session_timeout_ms=9000)).doubts
    assert "members of group g" in doubt


def test_of_two_groups_on_a_topic_one_is_judged_and_the_other_named():
    reading = consumer(1, "orders", how=("subscribe",), group_id="looks")
    working = consumer(2, "orders", group_id="works")
    told = RecordedTest(name="t", topics=(TOPIC,), clients=(reading, working))
    plan = make_test_plan(told)
    assert [c.partitions for c in plan.clients[1:3]] == [(), (0, 1)]
    (note,) = notes_of(told)
    assert "prozess checks what group 'looks' read, but not what it committed" in note


def test_a_producer_without_delivery_limit_has_the_longest():
    assert producer_of({"message.timeout.ms": 0}).delivery_timeout_ms == 2**31 - 1
    assert producer_of({"request.required.acks": -1, "retries": 0}).retries == "0"
