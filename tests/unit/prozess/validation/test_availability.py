"""Weaknesses that no anomaly says: copies, minimums and brokers, of the topic and of the topics that brokers keep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.validation.availability import CONCERNS, OFFSETS, ONE_DISK, SHARES, TRANSACTIONS, concerns
from prozess.validation.command import ValidationInput, translate
from prozess.validation.lifetimes import RULES as LIFETIMES
from prozess.validation.prediction import Prediction, acceptable
from tests.support.predictions import SAFE_BROKER, SAFE_TOPIC, predicted

TRANSACTIONAL = {"transactional.id": "orders"}
GROUP = {"auto.offset.reset": "earliest"}
TOPIC_1 = {"replication.factor": "1"}


def rules(producer=None, **more):
    return [concern.rule for concern in predicted(producer, **more).concerns]


# --- the topic


def test_three_copies_two_in_sync_have_no_weakness():
    assert rules({"acks": "all"}, brokers=3) == []
    assert rules(TRANSACTIONAL, consumer=GROUP, brokers=3) == []


@pytest.mark.parametrize(
    ("factor", "minimum", "found"),
    [
        (1, 1, ["replication-factor-1"]),
        (1, 2, ["replication-factor-1", "min-insync-above-replication-factor"]),
        (2, 1, ["min-insync-1"]),
        (3, 1, ["min-insync-1"]),
        (2, 2, ["min-insync-equals-replication-factor"]),
        (3, 3, ["min-insync-equals-replication-factor"]),
        (2, 3, ["min-insync-above-replication-factor"]),
        (3, 2, []),
        (4, 2, []),
    ],
)
def test_copies_and_minimum_decide_how_many_brokers_may_be_down(factor, minimum, found):
    topic = {"replication.factor": str(factor), "min.insync.replicas": str(minimum)}
    assert rules({"acks": "all"}, topic=topic) == [f"availability/{rule}" for rule in found]
    # Writes wait for min.insync.replicas with acks=all alone; readers are given what one replica has with any.
    assert rules({"acks": "1"}, topic=topic) == [f"availability/{rule}" for rule in found if rule in ONE_DISK]


def test_brokers_before_3_7_take_no_write_with_a_minimum_above_the_copies_and_later_ones_lower_it():
    topic = {"replication.factor": "2", "min.insync.replicas": "3"}
    (concern,) = predicted({"acks": "all"}, topic=topic, version="3.7.0").concerns
    assert concern.what == (
        "Kafka 3.7.0 never requires more replicas in sync than there are, so a partition refuses acks=all "
        "(NOT_ENOUGH_REPLICAS) as soon "
        "as one of its brokers is down"
    )
    with pytest.raises(
        BadInput, match=r"min\.insync\.replicas=3 exceeds replication\.factor=2.*Set replication\.factor=4"
    ):
        _ = predicted({"acks": "all"}, topic=topic, version="3.6.2").promised


def test_more_copies_than_brokers_cannot_be_made():
    assert rules({"acks": "all"}, brokers=2) == ["availability/fewer-brokers"]
    assert rules({"acks": "all"}, brokers=3) == []
    assert rules({"acks": "all"}, brokers=None) == [], "nobody stated how many there are"
    found = predicted(TRANSACTIONAL, consumer=GROUP, topic=TOPIC_1 | {"min.insync.replicas": "1"}, broker={}, brokers=1)
    assert [c.rule for c in found.concerns if c.rule.endswith("/fewer-brokers")] == [
        "internal-offsets/fewer-brokers",
        "internal-transactions/fewer-brokers",
    ], "Kafka's default is 3"
    offsets = next(c for c in found.concerns if c.rule == "internal-offsets/fewer-brokers")
    assert "__consumer_offsets cannot be created: its groups can neither join nor commit" in offsets.what


# --- the topics that brokers keep for themselves


def test_a_group_needs_the_offsets_topic_and_transactions_need_theirs():
    broker = SAFE_BROKER | {topic.factor: "1" for topic in (OFFSETS, TRANSACTIONS)}
    one = "replication-factor-1"
    assert rules({"acks": "all"}, broker=broker) == []
    assert rules(consumer=GROUP, broker=broker) == [f"internal-offsets/{one}"]
    assert rules(TRANSACTIONAL, broker=broker) == [f"internal-transactions/{one}"]
    assert rules(TRANSACTIONAL, consumer=GROUP, broker=broker) == [
        f"internal-offsets/{one}",
        f"internal-transactions/{one}",
    ]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"offsets.topic.replication.factor": "2", "min.insync.replicas": "2"}, "min-insync-equals-replication-factor"),
        ({"offsets.topic.replication.factor": "2", "min.insync.replicas": "3"}, "min-insync-above-replication-factor"),
        ({"min.insync.replicas": "1"}, "min-insync-1"),
        ({}, "min-insync-1"),
    ],
)
def test_the_offsets_topic_has_the_minimum_of_the_brokers_whatever_the_topic_has(values, found):
    assert rules(consumer=GROUP, broker=values) == [f"internal-offsets/{found}"]


@pytest.mark.parametrize(
    ("factor", "minimum", "found"),
    [
        ("1", "2", ["replication-factor-1"]),  # as with Kafka's default of the minimum: it is lowered to one
        ("2", "2", ["min-insync-equals-replication-factor"]),
        ("3", "1", ["min-insync-1"]),
        ("3", "2", []),
    ],
)
def test_transactions_have_a_minimum_of_their_own(factor, minimum, found):
    broker = SAFE_BROKER | {TRANSACTIONS.factor: factor, TRANSACTIONS.minimum: minimum}
    assert rules(TRANSACTIONAL, broker=broker) == [f"internal-transactions/{rule}" for rule in found]


def test_share_groups_are_told_of_where_somebody_has_set_their_topic():
    assert rules(consumer=GROUP, broker=SAFE_BROKER | {SHARES.factor: "1"}) == ["internal-shares/replication-factor-1"]
    assert rules(consumer=GROUP, broker=SAFE_BROKER | {SHARES.minimum: "1"}) == ["internal-shares/min-insync-1"]
    assert rules({"acks": "all"}, broker=SAFE_BROKER | {SHARES.factor: "1"}) == []


def test_brokers_that_elect_uncleanly_do_so_for_committed_offsets_too_and_not_for_transactions():
    safe = SAFE_TOPIC | {"unclean.leader.election.enable": "false"}
    broker = SAFE_BROKER | {"unclean.leader.election.enable": "true"}
    assert rules(consumer=GROUP, topic=safe, broker=broker) == ["internal-offsets/unclean"]
    assert rules(TRANSACTIONAL, topic=safe, broker=broker) == []
    found = predicted(consumer=GROUP, topic=safe, broker=broker)
    assert not set(OFFSETS.rests) & {guarantee.anomaly for guarantee in found.promised}


# --- the topics that frameworks make


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "worker.properties",
            "bootstrap.servers=a:9092\ngroup.id=connect\nkey.converter=a.B\nvalue.converter=a.B\n"
            "offset.storage.topic=o\nconfig.storage.topic=c\nstatus.storage.topic=s\n"
            "offset.storage.replication.factor=1\nconfig.storage.replication.factor=1\nstatus.storage.replication.factor=3\n",
            ["Connect's topic of offsets has one copy", "Connect's topic of configurations has one copy"],
        ),
        (
            "streams.properties",
            "bootstrap.servers=a:9092\napplication.id=counts\nreplication.factor=1\n",
            ["a topic that Streams creates (changelogs, repartitions) has one copy"],
        ),
        ("streams.properties", "bootstrap.servers=a:9092\napplication.id=counts\nreplication.factor=-1\n", []),
        (
            "streams.properties",
            "bootstrap.servers=a:9092\napplication.id=counts\nreplication.factor=2\ntopic.min.insync.replicas=2\n",
            ["as soon as one broker of a partition of a topic that Streams creates (changelogs, repartitions) is down"],
        ),
    ],
)
def test_topics_that_connect_and_streams_make_are_weak_as_their_files_set_them(tmp_path, name, text, found):
    (tmp_path / name).write_text(text)
    prediction = Prediction(translate(ValidationInput(applications=(tmp_path / name,))))
    told = [concern.what for concern in prediction.concerns if concern.rule.startswith("internal-framework/")]
    assert len(told) == len(found)
    assert all(what.startswith(begin) for what, begin in zip(told, found, strict=True))


# --- what nobody stated


def test_of_brokers_that_nobody_told_of_nothing_is_blamed_and_all_that_rests_on_them_is_unknown():
    alone = predicted({"acks": "all"}, consumer=GROUP, topic=None, broker=None)
    assert alone.concerns == ()
    assert alone.fault_tolerance is None
    assert {"lost", "dirty-read"} <= {guarantee.anomaly for guarantee in alone.unknown}
    said = [untold.unknown() for untold in alone.missing_settings]
    assert said[0].endswith(
        "whether they can happen depends on replication.factor, min.insync.replicas and unclean.leader.election.enable of "
        "the topic. No file sets them. Give --topic with them, or --cluster and --cluster-topic, or say "
        "--kafka-defaults if your cluster has Kafka's own defaults"
    )
    defaults = predicted({"acks": "all"}, consumer=GROUP, topic=None, broker=None, kafka_defaults=True)
    assert (defaults.missing_settings, defaults.unseen, defaults.unknown) == ((), (), ())
    assert [c.rule for c in defaults.concerns] == ["availability/replication-factor-1", "internal-offsets/min-insync-1"]
    assert defaults.concerns[0].blame == ("replication.factor=1 (Kafka's default)",)


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "replication.factor": st.sampled_from("123"),
        "min.insync.replicas": st.sampled_from("123"),
        "unclean.leader.election.enable": st.sampled_from(["true", "false"]),
    },
)
BROKERS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "default.replication.factor": st.sampled_from("123"),
        "min.insync.replicas": st.sampled_from("123"),
        "unclean.leader.election.enable": st.sampled_from(["true", "false"]),
        OFFSETS.factor: st.sampled_from("123"),
        TRANSACTIONS.factor: st.sampled_from("123"),
        TRANSACTIONS.minimum: st.sampled_from("123"),
    },
)


@given(
    st.none() | SETTINGS,
    BROKERS,
    st.sampled_from([None, {"acks": "1"}, {"acks": "all"}, TRANSACTIONAL]),
    st.sampled_from([None, GROUP]),
    st.booleans(),
)
@settings(max_examples=25)
def test_nothing_is_promised_and_unknown_or_weak_at_once_and_every_rule_can_be_accepted(
    topic, broker, producer, consumer, defaults
):
    if producer is None and consumer is None:
        consumer = GROUP
    found = predicted(producer, consumer=consumer, topic=topic, broker=broker, kafka_defaults=defaults)
    promised = {guarantee.anomaly for guarantee in found.promised}
    assert not promised & {guarantee.anomaly for guarantee in found.unknown}
    assert not promised & {weakness.guarantee.anomaly for weakness in found.weaknesses}
    assert {concern.rule for concern in found.concerns} <= {*CONCERNS, *LIFETIMES} <= acceptable()
    assert set(found.failures) <= acceptable()
    if (
        not defaults
        and broker is None
        and not {"replication.factor", "unclean.leader.election.enable"} <= set(topic or {})
    ):
        assert not {"lost", "dirty-read"} & promised, "rests on what nobody stated"
    told_worst = (topic or {}).get("replication.factor") == "1"
    assert ("availability/replication-factor-1" in {c.rule for c in found.concerns}) >= told_worst
    rules_found = [concern.rule for concern in concerns(found.parts, defaults_hold=defaults)]
    assert [concern.rule for concern in found.concerns][: len(rules_found)] == rules_found
    assert not promised & {name for concern in found.concerns for name in concern.denies}
