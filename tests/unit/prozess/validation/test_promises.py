"""No promise contradicts a rule of the table: whatever a configuration may meet that it is to withstand, a rule that could
permit something then is never that of a promise. And what is predicted as possible is permitted by the rule that it names."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.harness.guarantees.facts.happened import Happened
from prozess.harness.guarantees.facts.registry import FACTS, could_hold
from prozess.harness.guarantees.logic import FALSE
from prozess.harness.guarantees.table import TABLE, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import configuration_of
from prozess.harness.guarantees.verdict.evaluation import condition
from prozess.harness.schema import Tristate
from prozess.validation.availability import OFFSETS, TRANSACTIONS, UNCLEAN_OFFSETS
from prozess.validation.lifetimes import AWAY_MAX_MS, Lifetime, in_words
from prozess.validation.lifetimes import RULES as LIFETIMES
from prozess.validation.schedules import why_none
from tests.support.examples import examples
from tests.support.predictions import predicted

LEFT_OUT = {
    "asked": "an operator who asks for an unclean election",
    "topic_deleted": "an operator who deletes the topic",
    "store_harmed": "a remote store is not part of a predicted cluster",
    "faulted": "that there was a fault permits nothing by itself",
    "read_uncommitted": "by the consumer's own isolation.level",
    "read_uncommitted_inside": "by the consumer's own isolation.level",
    "rebalanced": "members come and go in every group",
    "moved": "leaders change in every cluster",
    "several_releases": "a cluster of one release",
    "partitions_added": "an operator who adds partitions",
}
REACHED = (
    "unclean",
    "cell_unclean",
    "destroyed",
    "deleted",
    "audited_slowly",
    "long_away",
    "forgotten",
    "offsets_expired",
)
"""What a configuration brings about, or not, when it meets what it is to withstand; `_met` says when."""

MS = st.sampled_from(["100", "1000", "60000", "3600000", "86399999", "86400000", "604800000", "-1"])
PRODUCERS = st.none() | st.fixed_dictionaries(
    {"acks": st.sampled_from(["0", "1", "all"])},
    optional={
        "enable.idempotence": st.sampled_from(["true", "false"]),
        "retries": st.sampled_from(["0", "3", "2147483647"]),
        "delivery.timeout.ms": st.sampled_from(["30000", "120000", "2147483647"]),
        "request.timeout.ms": st.just("1000"),
        "transactional.id": st.just("t"),
    },
)
CONSUMERS = st.none() | st.fixed_dictionaries(
    {"auto.offset.reset": st.sampled_from(["earliest", "latest", "none"])},
    optional={
        "isolation.level": st.sampled_from(["read_committed", "read_uncommitted"]),
        "enable.auto.commit": st.sampled_from(["true", "false"]),
        "check.crcs": st.sampled_from(["true", "false"]),
    },
)
TOPICS = st.fixed_dictionaries(
    {"replication.factor": st.sampled_from("123")},
    optional={
        "min.insync.replicas": st.sampled_from("12"),
        "unclean.leader.election.enable": st.sampled_from(["true", "false"]),
        "retention.ms": MS,
        "retention.bytes": st.sampled_from(["-1", "0", "1000000"]),
        "cleanup.policy": st.sampled_from(["delete", "compact"]),
        "delete.retention.ms": MS.filter(lambda ms: ms != "-1"),
        "segment.ms": st.sampled_from(["1000", "604800000"]),
    },
)
BROKERS = st.fixed_dictionaries(
    {},
    optional={
        "min.insync.replicas": st.sampled_from("12"),
        "log.retention.minutes": st.sampled_from(["1", "10080", "-1"]),
        "log.retention.hours": st.sampled_from(["1", "168"]),
        "offsets.retention.minutes": st.sampled_from(["1", "1439", "10080"]),
        "producer.id.expiration.ms": st.sampled_from(["1000", "60000", "86400000"]),
        "log.cleaner.delete.retention.ms": st.sampled_from(["100", "86400000"]),
        OFFSETS.factor: st.sampled_from("13"),
        TRANSACTIONS.factor: st.sampled_from("13"),
        TRANSACTIONS.minimum: st.sampled_from("12"),
    },
)


def _kept_ms(topic, broker):
    """[KafkaConfig.getLogRetentionTimeMillis]"""
    if "retention.ms" in topic:
        return int(topic["retention.ms"])
    if "log.retention.minutes" in broker:
        return int(broker["log.retention.minutes"]) * 60_000
    return int(broker.get("log.retention.hours", "168")) * 3_600_000


def _met(found, topic, broker, away_ms):
    """What happens to this configuration if somebody (a consumer, a group, a broker) is away for so long, every send takes as
    long as it may, a single disk is lost, and every replica in sync dies at once."""
    parts = found.parts
    base = parts.base
    unclean = base["topic.unclean_leader_election_enable"]
    one_disk = base["topic.replication_factor"] == 1 or base["topic.min_insync_replicas"] == 1
    kept_ms, compacted = _kept_ms(topic, broker), topic.get("cleanup.policy") == "compact"
    gone = 0 <= kept_ms < away_ms or int(topic.get("retention.bytes", "-1")) >= 0
    tombstones_ms = int(topic.get("delete.retention.ms") or broker.get("log.cleaner.delete.retention.ms", "86400000"))
    forgets_ms = int(broker.get("producer.id.expiration.ms", "86400000"))
    offsets_ms = int(broker.get("offsets.retention.minutes", "10080")) * 60_000
    happened = {
        "moved": True,
        "rebalanced": True,
        "unclean": unclean,
        "cell_unclean": unclean,
        "destroyed": one_disk,
        "deleted": gone and not compacted,
        "audited_slowly": compacted and tombstones_ms < away_ms,
        "long_away": compacted and tombstones_ms < away_ms,
        "forgotten": base.get("producer.delivery_timeout_ms", 0) >= forgets_ms,
        "offsets_expired": offsets_ms < away_ms,
    }
    told = parts.transactional or "group.isolation_level" in parts.origins
    transactions = parts.transactional or (told and base["group.isolation_level"] == "read_committed")
    lost = {
        **dict.fromkeys(
            OFFSETS.lost, broker.get(OFFSETS.factor) == "1" or broker.get("min.insync.replicas", "1") == "1"
        ),
        **dict.fromkeys(
            TRANSACTIONS.lost,
            transactions and "1" in (broker.get(TRANSACTIONS.factor), broker.get(TRANSACTIONS.minimum)),
        ),
    }
    return Happened(**{name: Tristate.YES if so else Tristate.NO for name, so in happened.items()}), lost


@given(PRODUCERS, CONSUMERS, TOPICS, BROKERS, st.integers(0, AWAY_MAX_MS), st.sampled_from(["java", "librdkafka"]))
@settings(max_examples=examples(120), deadline=None)
def test_no_promise_contradicts_a_rule_of_the_table(producer, consumer, topic, broker, away_ms, client):
    try:
        found = predicted(producer, consumer=consumer, topic=topic, broker=broker, client=client)
        cells = found.plan.cells
    except BadInput:
        return
    happened, lost = _met(found, topic, broker, away_ms)
    promised = {guarantee.anomaly for guarantee in found.promised}
    for cell in cells:
        configuration = configuration_of(cell, found.plan.variant.kafka_version)
        for anomaly in sorted(promised):
            if not TABLE[anomaly].applies(cell.traits):
                continue
            for rule in TABLE[anomaly].rules:
                if rule.effect is not RuleEffect.PERMITTED or not rule.change:
                    continue
                holds = condition(
                    rule,
                    lambda name, c=configuration: (
                        np.asarray(np.int8(lost[name])) if name in lost else could_hold(name, c, happened)
                    ),
                )
                assert holds == FALSE, f"{anomaly} is promised, and {rule.id} would permit it"


def test_every_thing_that_may_happen_is_met_or_left_out_by_name():
    assert {field.name for field in fields(Happened)} == {*REACHED, *LEFT_OUT}


@pytest.mark.parametrize(
    ("configuration", "rule", "denied"),
    [
        ({"topic": {"retention.ms": "60000"}}, "lifetime/records", {"skipped", "unprocessed"}),
        ({"topic": {"retention.bytes": "1"}}, "lifetime/records", {"skipped", "unprocessed"}),
        ({"broker": {"log.retention.hours": "1"}}, "lifetime/records", {"skipped", "unprocessed"}),
        ({"broker": {"offsets.retention.minutes": "1"}}, "lifetime/offsets", {"reprocessed", "commit-regression"}),
        ({"broker": {"producer.id.expiration.ms": "1000"}}, "lifetime/producers", {"duplicate"}),
        ({"topic": {"cleanup.policy": "compact", "delete.retention.ms": "100"}}, "lifetime/tombstones", {"tombstone-lost"}),
        ({"producer": {"delivery.timeout.ms": "1000", "request.timeout.ms": "500"}}, "client/gives-up", set()),
        ({"producer": {"retries": "3"}}, "client/gives-up", set()),
    ],
)  # fmt: skip
def test_what_is_forgotten_or_given_up_too_soon_is_weak_and_not_promised(configuration, rule, denied):
    safe = {
        "producer": {"acks": "all"},
        "consumer": {"auto.offset.reset": "earliest"},
        "topic": {"replication.factor": "3", "min.insync.replicas": "2"},
        "broker": {"min.insync.replicas": "2"},
    }
    assert not predicted(**safe).concerns
    weak = predicted(**{part: values | configuration.get(part, {}) for part, values in safe.items()})
    (concern,) = weak.concerns
    assert concern.rule == rule
    assert set(concern.denies) == denied
    assert not denied & {guarantee.anomaly for guarantee in weak.promised}
    assert "(the file, " in concern.sentence()
    assert "→" in concern.sentence()


@pytest.mark.parametrize(("value", "short"), [(AWAY_MAX_MS - 1, True), (AWAY_MAX_MS, False), (None, False)])
def test_what_is_kept_for_a_day_is_there_after_a_day(value, short):
    assert Lifetime("retention.ms", value, str(value)).shorter_than(AWAY_MAX_MS) is short


@pytest.mark.parametrize(
    ("ms", "said"), [(60_000, "1 minute"), (604_800_000, "7 days"), (1500, "1.5 s"), (None, "ever")]
)
def test_times_are_told_in_the_largest_whole_unit(ms, said):
    assert in_words(ms) == said


def test_the_first_lines_say_that_somebody_must_look_at_every_delivery_report():
    assert "look at every delivery report" in predicted({"acks": "all"}).duties[0]
    assert "delivery.timeout.ms=120000, the default" in predicted({"acks": "all"}).duties[0]
    assert "no delivery report" in predicted({"acks": "0"}).duties[0]
    assert predicted(consumer={"auto.offset.reset": "earliest"}).duties == ()


# What is predicted as possible is permitted by the same rule, where a trial comes to it.

_EVERYTHING_WEAK = {
    "producer": {"acks": "all"},
    "consumer": {"auto.offset.reset": "latest"},
    "topic": {"replication.factor": "1", "retention.ms": "1", "retention.bytes": "0"},
    "broker": {
        "offsets.retention.minutes": "1", "producer.id.expiration.ms": "1", OFFSETS.factor: "1",
        "unclean.leader.election.enable": "true",
    },
}  # fmt: skip


@given(PRODUCERS, CONSUMERS, TOPICS, BROKERS)
@settings(max_examples=examples(300), deadline=None)
def test_what_is_predicted_as_possible_is_permitted_by_the_rule_that_it_names(producer, consumer, topic, broker):
    try:
        found = predicted(producer, consumer=consumer, topic=topic, broker=broker)
    except BadInput:
        return
    rules = {rule.id: (name, rule) for name, guarantee in TABLE.items() for rule in guarantee.rules}
    for concern in found.concerns:
        named = {rules[rule][0] for rule in concern.permitted_by}
        beyond = set(concern.denies) - named - {"unprocessed"}  # what was deleted is in no audit: nobody finds it
        assert not beyond or concern.rule == UNCLEAN_OFFSETS, (concern.rule, beyond)
        assert all(rules[rule][1].effect is RuleEffect.PERMITTED for rule in concern.permitted_by)
    for weakness in found.weaknesses:
        assert weakness.rule.effect is RuleEffect.PERMITTED
        assert all(name.removeprefix("not ") in FACTS for name in weakness.rule.when)


def test_what_no_trial_comes_to_says_why():
    found = predicted(**_EVERYTHING_WEAK)
    assert {concern.rule for concern in found.concerns} >= {
        "lifetime/records", "lifetime/offsets", "lifetime/producers", UNCLEAN_OFFSETS
    }  # fmt: skip
    assert all(why_none(rule) for rule in (*LIFETIMES, UNCLEAN_OFFSETS))
