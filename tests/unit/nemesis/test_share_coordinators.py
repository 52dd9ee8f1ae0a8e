"""The role `share-coordinator(p)`: the broker that keeps what a share group has finished of a partition."""

from uuid import UUID

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.interfaces import PartitionView
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.codes import partition_for
from prozess.nemesis.roles import SHARE_STATE, Roles, TargetMissing
from tests.support.clock import FakeClock
from tests.unit.nemesis.test_targets import FakeCluster, FakeNode

LEADERS = {0: 2, 1: 3, 2: 1}
TOPIC_ID = UUID(int=0xFB << 120 | 0xFF)


class Admin:
    """Every broker knows three partitions of __share_group_state, and the id of the topic."""

    def __init__(self, leaders, ids):
        self._views = {
            (SHARE_STATE, number): PartitionView(leader=leader, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
            for number, leader in leaders.items()
        }
        self._ids = ids

    def view(self, node_id, topics, *, timeout_s=2.0):
        return self._views

    def topic_ids(self, topics, *, timeout_s=5.0):
        return self._ids


def resolve(number, *, leaders=LEADERS, ids=None):
    nodes = [FakeNode(f"broker-{b}", b, frozenset({"broker"})) for b in (1, 2, 3)]
    admin = Admin(leaders, {"orders": TOPIC_ID} if ids is None else ids)
    roles = Roles(FakeCluster(nodes), admin, lambda: {7: ("orders", number)}, FakeClock(), shares=lambda: {7: "g"})
    return [node.name for node in roles.resolve("share-coordinator(7)")]


@pytest.mark.parametrize("number", range(6))
def test_the_coordinator_leads_the_partition_that_group_topic_id_and_number_fall_to(number):
    # Kafka's Uuid in text is base64 for URLs, without padding: 0xfb, thirteen zeros, 0x00ff.
    key = f"g:-wAAAAAAAAAAAAAAAAAA_w:{number}"
    assert resolve(number) == [f"broker-{LEADERS[partition_for(key, 3)]}"]


def test_without_a_leader_an_id_or_a_topic_there_is_no_coordinator():
    for given, why in (
        ({"leaders": dict.fromkeys(range(3), -1)}, "has no leader now"),
        ({"leaders": {}}, "no living broker knows __share_group_state"),
        ({"ids": {}}, "which id orders has"),
    ):
        with pytest.raises(TargetMissing, match=why):
            resolve(0, **given)


def test_a_partition_without_a_share_group_has_no_such_coordinator():
    step = {"name": "s", "do": {"kind": "fault", "fault": "kill", "targets": ["share-coordinator(0)"]}}
    with pytest.raises(BadInput, match="partition 0 has no share group"):
        make_plan(parse_trial({"name": "t", "title": "", "steps": [step]}, source="t"), seed=1)
    make_plan(parse_trial({"name": "t", "title": "", "workload": "share", "steps": [step]}, source="t"), seed=1)


@pytest.mark.parametrize(
    ("share", "variant", "why"),
    [
        ({"lock_duration_ms": 4000}, {}, "lock_duration_ms=4000 is not within the brokers' bounds, 15000 to 60000"),
        ({"delivery_count_limit": 11}, {}, "delivery_count_limit=11 is not within the brokers' bounds, 2 to 10"),
        ({"delivery_count_limit": 2}, {"kafka_version": "4.2.2"}, "before 4.3 set variant.properties"),
        ({"acknowledgement": "implicit", "reject_share": 0.1}, {}, "acknowledgement=implicit accepts everything"),
        ({"late_members": 3}, {}, "late_members=3 of 2 members are more than there are"),
        ({}, {"kafka_version": "4.1.2"}, "share groups need brokers of 4.2"),
    ],
)
def test_what_a_share_group_cannot_be_is_refused_with_its_rule(share, variant, why):
    document = {"name": "t", "title": "", "workload": "share", "variant": variant}
    with pytest.raises(BadInput, match=why):
        make_plan(
            parse_trial(document | {"base": {f"share_group.{k}": v for k, v in share.items()}}, source="t"), seed=1
        )
