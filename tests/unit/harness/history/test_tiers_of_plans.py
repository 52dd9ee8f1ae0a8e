"""What a plan says of tiered storage: which segments have to be copied, how soon, and what retention may take."""

import pytest

from prozess.harness.history.participants import TIER_SLACK_NS, copied_segment_bytes, retention_of, tier_within_ns
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

TIERED = {"topic.properties.remote.storage.enable": True, "topic.properties.segment.bytes": 1048576}


def plan(*, properties=None, steps=(), **base):
    document = {
        "name": "t",
        "title": "t",
        "variant": {"tiered_storage": True, "properties": properties or {}},
        "topics": {"partitions": 2},
        "base": TIERED | base,
        "steps": list(steps),
    }
    return make_plan(parse_trial(document, source="a test"), seed=1)


def test_the_segments_of_a_tiered_topic_are_copied():
    assert copied_segment_bytes(plan()) == {0: 1048576, 1: 1048576}
    assert copied_segment_bytes(plan(**{"topic.properties.remote.storage.enable": False})) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"topic.properties.remote.log.copy.disable": True},
        {"topic.properties.remote.copy.lag.ms": 60_000},
        {"properties": {"log.remote.copy.lag.bytes": 10**9}},
    ],
)
def test_segments_that_may_wait_are_not_asked_for(changed):
    assert copied_segment_bytes(plan(**changed)) == {}


def test_a_fault_that_changes_the_size_of_segments_leaves_it_unknown():
    step = {"kind": "fault", "fault": "configure", "targets": ["brokers"]}
    step |= {"parameters": {"properties": {"segment.bytes": "2097152"}}}
    assert (
        copied_segment_bytes(plan(steps=[{"name": "one", "do": step}, {"name": "two", "do": {"kind": "heal"}}])) == {}
    )


def test_brokers_have_four_rounds_and_the_machine_some_time():
    assert tier_within_ns(plan()) == 4 * 500_000_000 + TIER_SLACK_NS
    slow = plan(properties={"remote.log.manager.task.interval.ms": "30000"})
    assert tier_within_ns(slow) == 4 * 30_000_000_000 + TIER_SLACK_NS


def test_retention_of_a_tiered_topic_counts_as_that_of_another():
    rule = retention_of(plan(**{"topic.properties.retention.bytes": 4_194_304}))[0]
    assert (rule.size_bytes, rule.time_ns) == (4_194_304, 7 * 24 * 3600 * 10**9)
