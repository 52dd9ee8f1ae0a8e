"""Copies: identity and origin of records that were derived from others, by each carrier; and the plans of copying cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import NONE, ORIGIN_SEQUENCE_BITS, ReadFlag
from prozess.workloads.exactly_once.applications import launch_application
from prozess.workloads.exactly_once.copier import IDLE_MAX_MS, launch_copier
from prozess.workloads.log.producer import text_value
from prozess.workloads.record.identity import (
    COPY_BYTES_MIN,
    HEADER_NAME,
    CopyReader,
    CopyRules,
    copy_encoder,
    decode,
    digest,
    encoder,
    identity_values,
)
from prozess.workloads.settings import LaunchContext, copy_rules
from tests.support.tools import PRETENDED

SENTINEL, SENDER, COPIER = 0, 5, 9
IN, OUT = 0, 1


class Given:
    """What `Message` says."""

    def __init__(self, value=None, key=None, headers=None) -> None:
        self._value, self._key, self._headers = value, key, headers

    def value(self):
        return self._value

    def key(self):
        return self._key

    def headers(self):
        return self._headers


@pytest.fixture(autouse=True)
def _messages(monkeypatch):
    monkeypatch.setattr("prozess.workloads.record.identity.Message", Given)
    monkeypatch.setattr("prozess.workloads.record.identity.Message", Given)


def resolved(messages, partition, **rules):
    """(sender, sequence, flags, origin) of each."""
    token = rules.pop("token", b"")
    reader = CopyReader(CopyRules(**{name: tuple(value) for name, value in rules.items()}, token=token.hex()), 2)
    partitions = np.full(len(messages), partition)
    values = reader.carriers(messages, identity_values(messages), partitions)
    identities = decode(values)
    origin = reader.resolve(messages, values, identities, partitions)
    return list(zip(identities.sender, identities.sequence, identities.flags, origin, strict=True))


def packed(sender, sequence):
    return sender << ORIGIN_SEQUENCE_BITS | sequence


@given(sequence=st.integers(0, 2**39), size=st.integers(COPY_BYTES_MIN, 300))
def test_our_copy_has_an_identity_of_its_own_and_names_its_origin(sequence, size):
    source = encoder(sender=SENDER, value_bytes=64)(IN, sequence)
    value = copy_encoder(sender=COPIER, value_bytes=size)(OUT, 3, source)
    assert len(value) == size
    assert resolved([Given(value)], OUT, transformed=[OUT]) == [(COPIER, 3, 0, packed(SENDER, sequence))]


def test_a_damaged_copy_of_ours_is_corrupt_and_names_nothing():
    value = bytearray(copy_encoder(sender=COPIER, value_bytes=100)(OUT, 3, encoder(sender=1, value_bytes=64)(IN, 2)))
    value[30] ^= 1
    assert resolved([Given(bytes(value))], OUT, transformed=[OUT]) == [(NONE, NONE, ReadFlag.CORRUPT, NONE)]


def test_a_value_that_was_handed_on_is_its_origins():
    value = encoder(sender=SENDER, value_bytes=64)(IN, 17)
    assert resolved([Given(value)], OUT, handed_on=[OUT]) == [(NONE, NONE, ReadFlag.ANONYMOUS, packed(SENDER, 17))]


def test_what_an_application_writes_of_its_own_is_not_corrupt_and_no_copy():
    assert (
        resolved([Given(b"garbage"), Given(None)], OUT, handed_on=[OUT]) == [(NONE, NONE, ReadFlag.ANONYMOUS, NONE)] * 2
    )


def test_a_header_beside_the_value_is_the_identity_on_both_sides():
    header = [(HEADER_NAME, encoder(sender=SENDER, value_bytes=28)(IN, 4))]
    assert resolved([Given(b"{}", headers=header)], IN, by_header=[IN]) == [(SENDER, 4, 0, NONE)]
    assert resolved([Given(b"{}", headers=header)], OUT, by_header=[OUT], handed_on=[OUT]) == [
        (NONE, NONE, ReadFlag.ANONYMOUS, packed(SENDER, 4))
    ]


@pytest.mark.parametrize("value", [b"{}", None])
def test_a_record_of_another_test_in_the_same_topic_is_nobodys_and_never_taken_for_one_of_this_test(value):
    ours = encoder(sender=SENDER, value_bytes=28)(IN, 4)
    damaged = ours[:9] + bytes([ours[9] ^ 1]) + ours[10:]
    seen = [
        resolved([Given(value, headers=[(HEADER_NAME, held)])], IN, by_header=[IN], shared=[IN], token=b"mine")[0][:3]
        for held in (ours + b"mine", ours + b"theirs", ours, damaged + b"mine")
    ]
    nobodys = (NONE, NONE, ReadFlag.ANONYMOUS)
    assert seen == [(SENDER, 4, 0), nobodys, nobodys, (NONE, NONE, ReadFlag.CORRUPT)]


def test_contents_have_one_digest_on_both_sides_and_the_source_keeps_its_identity():
    header = [(HEADER_NAME, encoder(sender=SENDER, value_bytes=28)(IN, 4))]
    (source,) = resolved([Given(b"v", b"k", header)], IN, by_header=[IN], digested=[IN])
    (copy,) = resolved([Given(b"v", b"k")], OUT, handed_on=[OUT], digested=[OUT])
    assert source == (SENDER, 4, 0, digest(b"k", b"v"))
    assert copy == (NONE, NONE, ReadFlag.ANONYMOUS, digest(b"k", b"v"))


def test_sentinels_stay_what_they_are():
    value = encoder(sender=SENTINEL, value_bytes=64)(OUT, 0)
    assert resolved([Given(value, b"sentinel")], OUT, handed_on=[OUT], digested=[OUT]) == [(SENTINEL, 0, 0, NONE)]


@given(a=st.tuples(*[st.none() | st.binary(max_size=6)] * 2), b=st.tuples(*[st.none() | st.binary(max_size=6)] * 2))
def test_digests_differ_where_key_or_value_differ(a, b):
    assert (digest(*a) == digest(*b)) == (a == b)
    assert digest(*a) >= 0


@given(client=st.integers(0, 99), order=st.integers(0, 10**6), size=st.integers(64, 400))
def test_text_values_are_of_the_size_asked_for_and_all_different(client, order, size):
    value = text_value(client, order, order % 100, size=size)
    assert len(value) >= size
    assert value != text_value(client, order + 1, (order + 1) % 100, size=size)


# --- plans ----------------------------------------------------------------------------------------------------------


def plan_of(kind, base):
    document = {"name": "test", "title": "test", "workload": kind, "topics": {"partitions": 2}, "base": base}
    return make_plan(parse_trial(document, source="test"), seed=1)


def test_a_copying_cell_has_a_topic_that_its_producers_write_and_one_that_its_copiers_derive():
    plan = plan_of("exactly-once", {"copier.members": 3})
    (cell,) = plan.cells
    assert (cell.written, cell.derived) == ((0, 1), (2, 3))
    assert [p.topic_name for p in plan.partitions] == ["cell-000"] * 2 + ["cell-000-copy"] * 2
    (producer,) = [c for c in plan.clients if c.role == "producer"]
    assert producer.partitions == cell.written
    copiers = [c for c in plan.clients if c.role == "copier"]
    assert len({c.transactional_id for c in copiers}) == 3
    assert len({c.group_id for c in copiers}) == 1
    assert cell.traits == {"exactly-once", "transactions"}
    assert plan_of("exactly-once", {"copier.delivery": "at-least-once"}).cells[0].traits == {"exactly-once"}


@pytest.mark.parametrize(
    ("kind", "base", "words"),
    [
        ("exactly-once", {"producer.enable_idempotence": False}, "implies enable.idempotence=true"),
        ("exactly-once", {"copier.delivery": "at-most-once", "copier.abort_share": 0.5}, "needs transactions"),
        ("exactly-once", {"copier.client": "java", "copier.delivery": "at-least-once"}, "can only do exactly-once"),
        (
            "exactly-once",
            {"copier.client": "java", "copier.protocol": "classic-eager", "copier.abort_share": 0.1},
            "it knows no abort_share",
        ),
        ("exactly-once", {"copier.transaction_timeout_ms": 10_000_000}, "transaction.max.timeout.ms"),
        ("exactly-once", {"copier.members": 0}, "copier.members"),
        ("application", {}, "application.command"),
        ("application", {"application.command": []}, "application.command"),
        ("application", {"application.command": ["copy", "{topic}"]}, "'topic' is no placeholder"),
        ("application", {"application.command": ["copy", "{"]}, "is no placeholder"),
        ("application", {"application.command": ["copy"], "application.stop_s": 99}, "application.stop_s"),
        (
            "application",
            {
                "application.command": ["c"],
                "application.input_carrier": "value",
                "application.output_carrier": "header",
            },
            "there is no header to copy",
        ),
        ("application", {"application.command": ["c"], "application.output_carrier": "value"}, "has no identity"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_the_reason(kind, base, words):
    with pytest.raises(BadInput, match=words.replace("{", "[{]")):
        plan_of(kind, base)


@pytest.mark.parametrize(
    ("base", "idle_ms"),
    [({}, IDLE_MAX_MS), ({"producer.properties.connections.max.idle.ms": "0"}, "0")],
)
def test_idle_connections_of_a_copier_are_closed_unless_the_trial_says_otherwise(base, idle_ms):
    plan = plan_of("exactly-once", base)
    copier = next(c for c in plan.clients if c.role == "copier")
    settings = launch_copier(LaunchContext(plan=plan, planned=copier, servers="a:1", limit_s=0, toolbox=PRETENDED))
    assert settings.options.producer["connections.max.idle.ms"] == idle_ms


def test_a_command_is_given_the_names_of_this_run():
    command = ["copy", "{bootstrap}", "{input}>{output}", "{group}-{instance}", "{{}}", "{delivery}"]
    plan = plan_of("application", {"application.command": command, "application.environment": {"IN": "{input}"}})
    (client,) = [c for c in plan.clients if c.role == "application"]
    settings = launch_application(LaunchContext(plan=plan, planned=client, servers="a:1", limit_s=0, toolbox=PRETENDED))
    assert settings.options.command == (
        "copy", "a:1", "cell-000>cell-000-copy", "prozess-cell-000-0", "{}", "at-least-once",
    )  # fmt: skip
    assert settings.options.environment == {"IN": "cell-000"}


@pytest.mark.parametrize(
    ("kind", "base", "rules"),
    [
        ("exactly-once", {}, {"transformed": [2, 3]}),
        (
            "application",
            {"application.command": ["c"]},
            {"by_header": [0, 1], "handed_on": [2, 3], "digested": [0, 1, 2, 3]},
        ),
        (
            "exactly-once",
            {"copier.client": "java", "copier.protocol": "classic-eager"},
            {"by_header": [0, 1], "handed_on": [2, 3], "digested": [0, 1, 2, 3]},
        ),
        (
            "application",
            {"application.command": ["c"], "application.output_carrier": "header"},
            {"by_header": [0, 1, 2, 3], "handed_on": [2, 3]},
        ),
    ],
)
def test_readers_know_where_identity_is(kind, base, rules):
    plan = plan_of(kind, base)
    audit = next(c for c in plan.clients if c.role == "audit")
    assert copy_rules(
        LaunchContext(plan=plan, planned=audit, servers="a:1", limit_s=0, toolbox=PRETENDED)
    ) == CopyRules(**{name: tuple(partitions) for name, partitions in rules.items()})
