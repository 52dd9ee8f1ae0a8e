"""A producer on which nothing is set is what its library and version make of it, and the plan knows that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration
from prozess.harness.config.known_properties import default_of, properties_of, versions
from prozess.harness.config.library_defaults import (
    MEMBER_PROPERTY_OF,
    PROPERTY_OF,
    contradictions,
    members_contradictions,
    with_library_defaults,
    with_members_defaults,
)
from prozess.harness.guarantees.table.cell_configuration import commits_first, is_idempotent


def nothing_set(client, version, given=(), *, transaction_timeout_ms=None, **chosen):
    configuration = ProducerConfiguration(client=client, client_version=version, defaults="library", **chosen)
    return with_library_defaults(
        configuration,
        {*chosen, *given},
        kafka_version="4.3.1",
        transaction_timeout_ms=transaction_timeout_ms,
    )


@pytest.mark.parametrize(
    ("client", "version", "acks", "idempotent", "linger_ms", "lives_ms"),
    [
        ("java", "2.8.2", "1", False, 0, 120_000),
        ("java", "3.0.0", "all", False, 0, 120_000),  # KAFKA-13598
        ("java", "3.0.2", "all", True, 0, 120_000),
        ("java", "3.1.0", "all", False, 0, 120_000),  # KAFKA-13598
        ("java", "3.1.2", "all", True, 0, 120_000),
        ("java", "3.9.2", "all", True, 0, 120_000),
        ("java", None, "all", True, 5, 120_000),  # 4.3.1, as the brokers; KIP-1030
        ("librdkafka", None, "all", False, 5, 300_000),
        ("librdkafka", "2.0.2", "all", False, 5, 300_000),
    ],
)
def test_nothing_set_means_what_the_version_of_the_library_takes(
    client, version, acks, idempotent, linger_ms, lives_ms
):
    producer = nothing_set(client, version)
    assert (producer.acks, producer.enable_idempotence) == (acks, idempotent)
    assert (producer.linger_ms, producer.delivery_timeout_ms, producer.retries) == (linger_ms, lives_ms, "max")
    assert is_idempotent(producer) is idempotent
    assert set(producer.left_to_client) == set(PROPERTY_OF)


def test_an_idempotence_that_nobody_asked_for_is_given_up_where_it_contradicts():
    assert not nothing_set("java", "4.3.1", acks="1").enable_idempotence
    assert not nothing_set("java", "4.3.1", retries="0").enable_idempotence
    assert not nothing_set("java", "3.9.2", max_in_flight=6).enable_idempotence
    # From 4.0 on the client refuses to start, and so does the plan.
    assert nothing_set("java", "4.3.1", max_in_flight=6).enable_idempotence


def test_a_transactional_id_or_a_demand_makes_what_nobody_set_fit_idempotence():
    for client, version in (("java", "2.8.2"), ("librdkafka", None)):
        for producer in (
            nothing_set(client, version, transaction_timeout_ms=10_000),
            nothing_set(client, version, enable_idempotence=True),
        ):
            assert is_idempotent(producer)
            assert (producer.acks, producer.max_in_flight) == ("all", 5)
    # librdkafka lowers what may outlive a transaction, Java does not.
    assert nothing_set("librdkafka", None, transaction_timeout_ms=10_000).delivery_timeout_ms == 10_000
    assert nothing_set("java", None, transaction_timeout_ms=10_000).delivery_timeout_ms == 120_000


CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "acks": st.sampled_from(["0", "1", "all"]),
        "enable_idempotence": st.booleans(),
        "retries": st.sampled_from(["0", "7", "max"]),
        "max_in_flight": st.integers(1, 9),
        "delivery_timeout_ms": st.integers(1, 10**6),
        "compression_type": st.sampled_from(["none", "lz4"]),
        "linger_ms": st.floats(0, 100),
    },
)


@given(client=st.sampled_from(["java", "librdkafka"]), version=st.sampled_from(versions()), chosen=CHOICES)
def test_what_is_chosen_stays_and_everything_else_is_left_to_the_client(client, version, chosen):
    producer = nothing_set(client, version, **chosen)
    assert {name: getattr(producer, name) for name in chosen} == chosen
    assert set(producer.left_to_client) == PROPERTY_OF.keys() - chosen.keys()
    assert ProducerConfiguration.model_validate(producer.model_dump()) == producer


@given(client=st.sampled_from(["java", "librdkafka"]), version=st.sampled_from(versions()), chosen=CHOICES)
def test_the_librarys_own_word_contradicts_the_plan_only_where_it_differs(client, version, chosen):
    producer = nothing_set(client, version, **chosen)
    known = properties_of("producer", client, version)
    told = {name: default_of(name, known) for name in PROPERTY_OF.values()}
    assert contradictions(producer, told, version=version) == []
    changed = contradictions(producer, told | {"linger.ms": "77", "compression.type": "zstd"}, version=version)
    assert len(changed) == len({"linger_ms", "compression_type"} & set(producer.left_to_client))


@pytest.mark.parametrize(
    ("client", "version", "isolation", "session_ms", "first"),
    [
        ("java", "2.8.2", "read_uncommitted", 10_000, False),  # KIP-735
        ("java", "3.0.2", "read_uncommitted", 45_000, False),
        ("java", None, "read_uncommitted", 45_000, False),
        ("librdkafka", None, "read_committed", 45_000, True),
    ],
)
def test_members_on_which_nothing_is_set_skip_what_was_before_them_and_commit_by_themselves(
    client, version, isolation, session_ms, first
):
    group = GroupConfiguration(client=client, client_version=version, defaults="library", members=3)
    group = with_members_defaults(group, {"members", "client"}, kafka_version="4.3.1")
    assert (group.commit, group.auto_commit_interval_ms, group.auto_offset_reset) == ("auto", 5_000, "latest")
    assert (group.isolation_level, group.session_timeout_ms, group.protocol) == (isolation, session_ms, "classic-eager")
    assert (group.members, commits_first(group)) == (3, first)
    assert set(group.left_to_client) == set(MEMBER_PROPERTY_OF)


@given(
    client=st.sampled_from(["java", "librdkafka"]),
    version=st.sampled_from(versions()),
    chosen=st.fixed_dictionaries(
        {},
        optional={
            "protocol": st.sampled_from(["classic-cooperative", "classic-eager", "consumer"]),
            "commit": st.sampled_from(["auto", "sync-after"]),
            "auto_offset_reset": st.sampled_from(["earliest", "latest"]),
            "session_timeout_ms": st.integers(1, 10**6),
        },
    ),
)
def test_of_members_too_what_is_chosen_stays_and_the_librarys_own_word_agrees(client, version, chosen):
    group = with_members_defaults(
        GroupConfiguration(client=client, defaults="library", **chosen), chosen, kafka_version=version
    )
    assert {name: getattr(group, name) for name in chosen} == chosen
    assert set(group.left_to_client) == MEMBER_PROPERTY_OF.keys() - chosen.keys()
    known = properties_of("consumer", client, version)
    told = {name: default_of(name, known) for name in MEMBER_PROPERTY_OF.values()}
    assert members_contradictions(group, told) == []
    changed = members_contradictions(group, told | {"max.poll.interval.ms": "7"})
    assert changed == ["max.poll.interval.ms=7, not 300000"]
