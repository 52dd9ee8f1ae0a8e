"""Settings of tiered storage: what Kafka refuses together, what is weak, and what a trial makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.validation.tiers import STORE_FACTOR, STORE_MINIMUM, of_plugin
from tests.support.predictions import SAFE_BROKER, SAFE_TOPIC, predicted

TIERED = SAFE_TOPIC | {"remote.storage.enable": "true"}
BROKER = SAFE_BROKER | {"remote.log.storage.system.enable": "true"}


def refusal(topic=None, broker=None):
    """What is said of these settings beside a topic with tiered storage; empty: nothing."""
    try:
        predicted({"acks": "all"}, topic=TIERED | (topic or {}), broker=BROKER | (broker or {}))
    except BadInput as error:
        return str(error)
    return ""


def test_a_tiered_topic_needs_brokers_with_tiered_storage():
    assert refusal() == ""
    assert "needs brokers and controllers with" in refusal(broker={"remote.log.storage.system.enable": "false"})
    with pytest.raises(BadInput, match="needs brokers and controllers with"):
        predicted({"acks": "all"}, topic=TIERED, broker=SAFE_BROKER)
    assert predicted({"acks": "all"}, topic=TIERED, broker=None), "nobody says what the brokers are set to"


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_tiered_topic_is_not_compacted_whoever_says_so(policy):
    assert "only topics with cleanup.policy = delete" in refusal({"cleanup.policy": policy})
    assert f"log.cleanup.policy = {policy}" in refusal(broker={"log.cleanup.policy": policy})
    assert refusal({"cleanup.policy": "delete"}, {"log.cleanup.policy": policy}) == ""


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize(
    ("whole", "own", "refused"),
    [
        (100, 100, False),
        (100, 99, False),
        (100, -2, False),
        (100, 101, True),
        (100, -1, True),
        (-1, -1, False),
        (-1, 9, False),
    ],
)
def test_local_retention_is_no_longer_than_retention(unit, whole, own, refused):
    """LogConfig.validateRemoteStorageRetentionTime and …Size: "Value must not be more than" retention, nor -1 where that is
    limited; -2 stands for retention itself."""
    topic = {f"retention.{unit}": str(whole), f"local.retention.{unit}": str(own)}
    assert bool(refusal(topic)) == refused
    assert bool(refusal({f"retention.{unit}": str(whole)}, {f"log.local.retention.{unit}": str(own)})) == refused


@given(st.integers(-2, 5), st.one_of(st.just(-1), st.integers(1, 5)))
def test_without_copies_local_retention_is_retention_itself(own, whole):
    topic = {"remote.log.copy.disable": "true", "retention.ms": str(whole), "local.retention.ms": str(own)}
    assert bool(refusal(topic)) == (own not in (-2, whole))


def test_without_tiered_storage_nothing_of_it_is_refused_and_what_does_nothing_is_named():
    topic = SAFE_TOPIC | {"local.retention.ms": "9", "retention.ms": "5"}
    found = predicted({"acks": "all"}, topic=topic)
    assert "local.retention.ms does nothing without remote.storage.enable=true" in found.parts.notes


def test_what_brokers_know_of_the_remote_store_is_as_safe_as_its_topic():
    def rules(**broker):
        return [c.rule for c in predicted({"acks": "all"}, topic=TIERED, broker=BROKER | broker).concerns]

    assert rules() == []
    assert rules(**{STORE_FACTOR: "1"}) == [
        "internal-remote-metadata/replication-factor-1", "internal-remote-metadata/min-insync-above-replication-factor",
    ][:1]  # fmt: skip
    assert rules(**{STORE_MINIMUM: "1"}) == ["internal-remote-metadata/min-insync-1"]
    assert rules(**{STORE_MINIMUM: "3"}) == ["internal-remote-metadata/min-insync-equals-replication-factor"]
    alone = predicted({"acks": "all"}, topic=SAFE_TOPIC, broker=BROKER | {STORE_FACTOR: "1"})
    assert alone.concerns == (), "no topic has tiered storage"


def test_one_copy_of_what_brokers_know_of_the_store_promises_no_record_in_it():
    found = predicted({"acks": "all"}, topic=TIERED, broker=BROKER | {STORE_FACTOR: "1"})
    assert {"lost", "remote-gap"}.isdisjoint(one.anomaly for one in found.promised)
    assert {"lost", "remote-gap"} <= {
        one.anomaly for one in predicted({"acks": "all"}, topic=TIERED, broker=BROKER).promised
    }


def test_the_trials_brokers_have_a_remote_store():
    found = predicted({"acks": "all"}, topic=TIERED, broker=BROKER)
    assert found.plan.variant.tiered_storage
    assert not predicted({"acks": "all"}).plan.variant.tiered_storage
    assert any("fill no segment" in note for note in found.parts.notes)
    small = predicted({"acks": "all"}, topic=TIERED | {"segment.bytes": "1048576"}, broker=BROKER)
    assert not any("fill no segment" in note for note in small.parts.notes)


@pytest.mark.parametrize(("unclean", "warned"), [("true", True), ("false", False), (None, False)])
def test_an_unclean_election_with_a_remote_store_is_warned_of(unclean, warned):
    settings = TIERED | ({} if unclean is None else {"unclean.leader.election.enable": unclean})
    notes = predicted({"acks": "all"}, topic=settings, broker=BROKER).parts.notes
    assert any("run the trial tiered-unclean" in note for note in notes) == warned


def test_settings_of_the_plugins_are_none_of_kafkas():
    assert of_plugin("rsm.config.s3.bucket.name")
    assert of_plugin("rlmm.config.remote.log.metadata.common.client.security.protocol")
    assert not of_plugin(STORE_FACTOR)
    assert not of_plugin("remote.log.storage.manager.class.name")
