"""What nobody could judge in a test is stated, with what to add; and a test that forbids it fails."""

import json

import pytest

from prozess.harness.interfaces.application import RegisteredClient, RegisteredTopic
from prozess.testing.expectations import Expectation, StateExpectation, commits_first, unjudged_of
from prozess.testing.plans import RecordedTest

ORDERS, INVOICES = RegisteredTopic("orders", 0, ((1,), (1,)), {}), RegisteredTopic("invoices", 2, ((1,),), {})
EXPECTED = Expectation("orders", "invoices", lambda record: None)


def producer(client, *wrote, how=()):
    return RegisteredClient(client, "producer", 1, {}, wrote=dict.fromkeys(wrote), how=dict.fromkeys(how))


def consumer(client, *read, how=("subscribe", "commit"), hazards=(), **properties):
    named = {"group.id": "g", "enable.auto.commit": False} | {k.replace("_", "."): v for k, v in properties.items()}
    return RegisteredClient(
        client, "consumer", 1, named, read=dict.fromkeys(read), how=dict.fromkeys(how),
        hazards=dict.fromkeys(map(json.dumps, hazards)),
    )  # fmt: skip


def told(*clients):
    return RecordedTest(name="t", topics=(ORDERS, INVOICES), clients=clients)


def unjudged(*clients, identities=(), expectations=(), states=(), doubts=()):
    found = unjudged_of(told(*clients), identities=identities, expectations=expectations, states=states, doubts=doubts)
    return {(name, one.where) for one in found for name in one.anomalies}


OUTPUTS = {
    (f"{name}", "orders")
    for name in ("missing-output", "unexpected-output", "doubled-output", "unordered-output", "wrong-state")
}


def test_a_producer_without_identities_may_repeat_itself():
    assert unjudged(producer(1, "orders")) == {("repeated", "orders")}
    assert unjudged(producer(1, "orders", how=("identity",)), producer(2, "orders")) == {("repeated", "orders")}


@pytest.mark.parametrize(
    ("how", "identities", "expectations"),
    [(("identity",), (), ()), ((), ("invoices",), ()), ((), (), (EXPECTED,))],
)
def test_an_identity_or_an_expectation_of_the_topic_tells_repetitions(how, identities, expectations):
    told = unjudged(producer(1, "invoices", how=how), identities=identities, expectations=expectations)
    assert told == set()


def test_at_least_once_does_not():
    loose = Expectation("orders", "invoices", lambda record: None, at_least_once=True)
    assert unjudged(producer(1, "invoices"), expectations=(loose,)) == {("repeated", "invoices")}


def test_a_group_without_effects_and_expectations_is_not_judged_by_what_it_does():
    assert unjudged(consumer(1, "orders")) == {("commit-first", "orders"), *OUTPUTS}


@pytest.mark.parametrize("how", ["effects", "processing"])
def test_effects_and_an_expectation_tell(how):
    assert unjudged(consumer(1, "orders", how=("subscribe", "commit", how)), expectations=(EXPECTED,)) == set()


def test_automatic_commits_of_what_was_given_are_not_judged_whatever_the_application_shows():
    properties = {"enable_auto_commit": True}
    how = ("subscribe", "effects")
    assert ("commit-first", "orders") in unjudged(consumer(1, "orders", how=how, **properties))
    stored = properties | {"enable_auto_offset_store": False}
    assert ("commit-first", "orders") not in unjudged(consumer(1, "orders", how=how, **stored))


def test_asking_for_the_next_record_tells_nothing_where_another_thread_commits():
    how = ("subscribe", "commit", "effects", "handed-over")
    assert unjudged(consumer(1, "orders", how=how), expectations=(EXPECTED,)) == {("unprocessed", "orders")}
    said = (*how, "processing")
    assert unjudged(consumer(1, "orders", how=said), expectations=(EXPECTED,)) == set()


def test_a_state_says_what_becomes_of_its_input_and_dead_letters_do_not():
    group = consumer(1, "orders", how=("subscribe", "commit", "effects"))
    state = StateExpectation("orders", "invoices", lambda state, record: state)
    assert unjudged(group, producer(2, "invoices"), states=(state,)) == set()
    dead = Expectation("orders", "invoices", lambda record: None, dead_letters=True)
    assert unjudged(group, producer(2, "invoices"), expectations=(dead,)) == OUTPUTS


def test_who_reads_without_a_group_makes_nothing_of_it():
    assert unjudged(consumer(1, "orders", how=("assign",))) == set()


def test_a_doubt_is_told_with_its_first_record_and_why():
    doubts = [(1, 8, "its process ended"), (1, 7, "its process ended")]
    (found,) = [
        one for one in unjudged_of(told(), identities=(), expectations=(), doubts=doubts) if one.where == "orders"
    ]
    assert found.sentence() == (
        "unprocessed in orders: 2 records were committed, and prozess does not know whether your code was "
        "done: its process ended (the first "
        "is orders/1, offset 7); put `with consumer.processing(message):` around your code, or close the "
        "consumer where you use it"
    )


def test_hazards_are_told_by_topic_and_group_and_fail_nothing_by_themselves():
    hazard = {"partition": 1, "offset": 4, "records": 3, "what": "a record was produced to invoices"}
    clients = [consumer(number, "orders", hazards=[hazard]) for number in (1, 2)]
    (found,) = commits_first(told(*clients))
    assert (found.anomaly, found.where, found.count, found.fails) == ("commit-first", "orders", 2, False)
    assert found.witnesses[0].text == "orders/1, offset 4: committed, and then a record was produced to invoices"
