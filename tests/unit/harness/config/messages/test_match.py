"""Which messages a match means, what may be asked for, and the answers that have an error in them."""

from uuid import UUID

import pytest
from pydantic import TypeAdapter, ValidationError

from prozess.harness.config.messages import names, schemas
from prozess.harness.config.messages.error_answers import count_errors, error_answer, with_error
from prozess.harness.config.messages.facts import BATCH_HEAD, PartitionFacts, facts_of, joined
from prozess.harness.config.messages.match import MessageAction, MessageMatch, beyond_networks
from prozess.harness.config.messages.planned_names import MeantMessages, PlannedNames, action_for_proxy
from prozess.harness.config.messages.schemas import UnreadableMessage

ACTION = TypeAdapter(MessageAction)
TOPIC_ID = UUID(int=5)


def batch(producer_id=7, epoch=2, sequence=11, magic=2):
    """The head of a batch with nothing behind it."""
    return BATCH_HEAD.pack(0, BATCH_HEAD.size - 12, 0, magic, 0, 0, 0, 0, 0, producer_id, epoch, sequence, 1)


def produce(*batches, topic="t", number=3, transactional_id=None):
    """The body of a Produce request, version 9."""
    data = {"index": number, "records": b"".join(batches)}
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }


def produced(error, topic="t", number=3):
    """The body of an answer to it."""
    partition = {"index": number, "error_code": error, "base_offset": 5}
    return {"responses": [{"name": topic, "partition_responses": [partition]}], "throttle_time": 0}


def wanted(**given):
    return MeantMessages(match=MessageMatch(**given)).wanted


def test_a_produce_request_says_its_partitions_and_the_batches_in_them():
    facts = facts_of(produce(batch(), batch(sequence=12), transactional_id="x"))
    assert facts.transactional_ids == ("x",)
    assert [(p.topic, p.number, p.producer_id, p.producer_epoch, p.first_sequence) for p in facts.partitions] == [
        ("t", 3, 7, 2, 11),
        ("t", 3, 7, 2, 12),
    ]


def test_what_is_no_batch_of_format_2_says_no_sequence():
    for records in (b"", b"\0" * 20, batch(magic=1), batch()[:40]):
        (partition,) = facts_of(produce(records)).partitions
        assert (partition.number, partition.first_sequence) == (3, None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, True),
        ({"topic": "t"}, True),
        ({"topic": "u"}, False),
        ({"topic": "t", "number": 3}, True),
        ({"topic": "t", "number": 4}, False),
        ({"producer_epoch": 2}, True),
        ({"producer_epoch": 3}, False),
        ({"first_sequence": 11}, True),
        ({"first_sequence": 12}, False),
        ({"transactional_id": "x"}, True),
        ({"transactional_id": "y"}, False),
    ],
)
def test_a_match_of_a_request_means_what_it_names(given, meant):
    facts = facts_of(produce(batch(), transactional_id="x"))
    assert (wanted(api="Produce", **given).body(facts) is not None) is meant


@pytest.mark.parametrize(
    ("error", "asked", "meant"), [(0, "NONE", True), (6, "NONE", False), (6, "NOT_LEADER_OR_FOLLOWER", True)]
)
def test_a_match_of_an_answer_means_its_error_and_what_its_request_named(error, asked, meant):
    facts = joined(facts_of(produce(batch(), transactional_id="x")), facts_of(produced(error)))
    match = wanted(api="Produce", direction="answer", error=asked, topic="t", first_sequence=11, transactional_id="x")
    assert (match.body(facts) is not None) is meant


def test_an_answer_with_one_failed_partition_is_a_success_only_for_the_others():
    body = produced(0)
    body["responses"][0]["partition_responses"].append({"index": 4, "error_code": 6, "base_offset": -1})
    facts = facts_of(body)
    assert wanted(api="Produce", direction="answer", error="NONE").body(facts) is None
    found = wanted(api="Produce", direction="answer", error="NONE", topic="t", number=3).body(facts)
    assert found == (PartitionFacts("t", None, 3, None, None, None, 0),)


def test_a_topic_is_known_by_its_id_where_a_request_has_no_name():
    facts = facts_of({"topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3, "fetch_offset": 0}]}]})
    meant = MeantMessages(match=MessageMatch(api="Fetch", topic="t"), topic_id=str(TOPIC_ID))
    assert meant.wanted.body(facts)
    assert MeantMessages(match=MessageMatch(api="Fetch", topic="t")).wanted.body(facts) is None


def test_partitions_that_are_bare_numbers_are_partitions():
    transaction = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 2}
    body = {"transactions": [{**transaction, "topics": [{"name": "t", "partitions": [0, 3]}]}]}
    facts = facts_of(body)
    assert [(p.topic, p.number, p.producer_epoch) for p in facts.partitions] == [("t", 0, 2), ("t", 3, 2)]
    assert wanted(api="AddPartitionsToTxn", topic="t", number=3, producer_epoch=2).body(facts)


def test_a_client_is_meant_by_name_or_by_the_beginning_of_it():
    assert wanted(api="Produce", client="producer-*").header(0, False, "producer-1")
    assert not wanted(api="Produce", client="producer").header(0, False, "producer-1")
    assert not wanted(api="Produce", direction="answer").header(0, False, "producer-1")
    assert not wanted(api="Produce").header(1, False, "producer-1")


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"nth": 2}, [2]),
        ({"every": 3}, [3, 6]),
        ({"until": 2}, [1, 2]),
        ({"every": 2, "until": 5}, [2, 4]),
    ],
)
def test_which_matches_count(given, numbers):
    match = wanted(api="Produce", **given)
    assert [number for number in range(1, 7) if match.counts(number)] == numbers


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"api": "Prduce"}, "'Prduce' is not an API of Kafka; the nearest: Produce"),
        ({"api": "Produce", "error": "NONE"}, "a request has no error code"),
        ({"api": "Produce", "direction": "answer", "error": "NOT_LEADER"}, "the nearest: NOT_LEADER_OR_FOLLOWER"),
        ({"api": "Fetch", "group": "g"}, "group: Fetch messages have no group"),
        ({"api": ("Produce", "EndTxn"), "partition": 0}, "partition: EndTxn messages have no partition"),
        ({"api": "Produce", "nth": 1, "every": 2}, "leave out every and until"),
        ({"api": "Produce", "partition": 0, "topic": "t"}, "leave these out"),
        ({"api": "Produce", "number": 0}, "give the topic"),
        ({"api": "Produce", "commit": True}, "only an EndTxn"),
        ({"api": "JoinGroup", "group": ""}, "must not be empty"),
        ({"api": ()}, "at least 1 item"),
    ],
)
def test_a_match_that_can_never_be_is_refused_with_the_way_out(given, why):
    with pytest.raises(ValidationError, match=why):
        MessageMatch(**given)


def test_nothing_may_be_acknowledged_that_nobody_wrote():
    with pytest.raises(ValidationError, match="nothing may be acknowledged"):
        ACTION.validate_python({"do": "answer", "error": "NONE"})
    with pytest.raises(ValidationError, match="seconds or until"):
        ACTION.validate_python({"do": "hold", "seconds": 1, "until": {"api": "Fetch"}})
    assert action_for_proxy(ACTION.validate_python({"do": "answer", "error": "NOT_COORDINATOR"}))["code"] == 16
    held = ACTION.validate_python({"do": "hold", "until": {"api": "Fetch"}})
    assert action_for_proxy(held) == {"do": "hold", "seconds": None, "when_healed": "deliver"}


@pytest.mark.parametrize(
    ("action", "direction", "beyond"),
    [
        ({"do": "lose"}, "request", False),
        ({"do": "lose", "connection": "keep"}, "request", True),
        ({"do": "hold"}, "answer", False),
        ({"do": "swap"}, "request", True),
        ({"do": "twice"}, "answer", True),
        ({"do": "answer", "error": "NOT_COORDINATOR"}, "request", False),
        ({"do": "answer", "error": "NOT_COORDINATOR"}, "answer", True),
        ({"do": "truncate", "bytes": 4}, "request", False),
        ({"do": "close", "when": "after"}, "request", False),
    ],
)
def test_what_no_network_does_is_said(action, direction, beyond):
    match = MessageMatch(api="EndTxn", direction=direction)
    assert (beyond_networks(match, ACTION.validate_python(action)) is not None) is beyond


def test_what_the_plan_numbers_is_looked_up():
    planned = PlannedNames({0: ("t", 3)}, {1: "g"}, {2: "x"})
    found = planned.of(MessageMatch(api="Produce", partition=0))
    assert (found.partition, found.topic, found.number) == (None, "t", 3)
    assert planned.of(MessageMatch(api="JoinGroup", group=1)).group == "g"
    assert planned.of(MessageMatch(api="EndTxn", transactional_id=2)).transactional_id == "x"
    assert planned.missing(MessageMatch(api="Produce", partition=0)) is None
    assert planned.missing(MessageMatch(api="Produce", partition=1)) == "partition = 1: the plan has partitions 0…0"
    assert "cells with one: [1]" in planned.missing(MessageMatch(api="JoinGroup", group=0))
    assert "cells with some: [2]" in planned.missing(MessageMatch(api="EndTxn", transactional_id=0))


GROUP = {"group_id": "g", "generation_id": 1, "member_id": "m"}
TRANSACTION = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 2}
TOPICS = [{"name": "t", "partitions": [0, 3]}]
REFUSED = {
    "Produce": (9, produce(batch())),
    "Fetch": (13, {"topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3}]}], "session_id": 5}),
    "ListOffsets": (7, {"topics": [{"name": "t", "partitions": [{"partition_index": 3, "timestamp": -1}]}]}),
    "FindCoordinator": (4, {"key_type": 0, "coordinator_keys": ["g"]}),
    "JoinGroup": (9, GROUP),
    "Heartbeat": (4, GROUP),
    "SyncGroup": (5, GROUP),
    "OffsetCommit": (8, {**GROUP, "topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]}),
    "InitProducerId": (4, TRANSACTION),
    "EndTxn": (4, TRANSACTION),
    "AddPartitionsToTxn": (3, {**TRANSACTION, "topics": TOPICS}),
    "TxnOffsetCommit": (3, {**TRANSACTION, **GROUP, "topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]}),
    "ConsumerGroupHeartbeat": (0, GROUP),
    "AlterPartition": (3, {"broker_id": 1, "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 3}]}]}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_is_answered_with_an_error_in_everything_that_was_asked_for(name):
    api, (version, body) = names.api_keys()[name], REFUSED[name]
    answer = error_answer(api, version, body, 16)
    assert count_errors(answer) >= 1
    read_back = schemas.answer_body(schemas.answer(api, version, 9, answer)[4:], api, version)
    assert read_back == answer
    asked = {(p.topic, p.topic_id, p.number) for p in facts_of(body).partitions}
    told = {(p.topic, p.topic_id, p.number): p.error for p in facts_of(answer).partitions}
    if told:
        assert told == dict.fromkeys(asked, 16)
    else:
        assert facts_of(answer).errors


def test_an_answer_without_an_error_code_cannot_have_one():
    with pytest.raises(UnreadableMessage, match="nothing was asked for"):
        error_answer(0, 9, {**produce(), "topic_data": []}, 6)


def test_an_answer_gets_another_error_everywhere():
    assert facts_of(with_error(produced(0), 6)).partitions[0].error == 6
