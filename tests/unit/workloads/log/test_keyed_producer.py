"""Keyed producers as real processes on librdkafka's mock cluster, and what a record header carries."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import NONE, Outcome, Role, role_named
from prozess.workloads.log.producer import key_drawing
from prozess.workloads.record.identity import VALUE_BYTES_MIN, decode, encoder, identity_values, key_id
from tests.support.log_workload import RESUME, bench


def plan_of(**base: object) -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "compaction",
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 200},
        "base": {"topic.cleanup_policy": "compact", "compaction.keys": 5, "compaction.tombstone_share": 0.5, **base},
        "axes": {"producer.acks": ["all"]},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def test_upserts_and_tombstones_are_recorded_with_their_keys_and_read_back(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 200, "200 acknowledgements")
        made.workload.finish_sends(timeout_s=10)
        (producer,) = (c.client for c in made.plan.clients if c.role == "keyed-producer")
        sends = made.rows("sends", producer)
        reader = made.clients["reader-read_uncommitted"]
        made.until(lambda: len(made.rows("reads", reader)) >= len(sends), "every record to be read")
        reads = made.rows("reads", reader)
        assert made.rows("clients", producer)["role"][0] == Role.PRODUCER
    assert (sends["outcome"] == Outcome.OK).all()
    assert (sends["log_offset"] >= 0).all()
    assert 0.3 < np.mean(sends["size"] == NONE) < 0.7
    assert len(set(sends["key"].tolist())) == 5
    assert (reads["flags"] == 0).all()
    assert (reads["sender"] == producer).all()
    where = np.argsort(reads["sequence"])
    assert (reads["sequence"][where] == np.arange(len(sends))).all()
    for column, name in (("key", "key"), ("sent_partition", "partition"), ("log_offset", "log_offset")):
        assert (reads[column][where] == sends[name]).all(), column


@given(st.integers(), st.integers(1, 50), st.floats(0, 1))
def test_the_same_seed_draws_the_same_keys_and_tombstones(seed, keys, share):
    draws = [key_drawing(random.Random(f"{seed}"), keys=keys, tombstone_share=share) for _ in range(2)]
    first, second = ([draw() for _ in range(50)] for draw in draws)
    assert first == second
    assert all(0 <= key < keys for key, _ in first)


def test_no_two_keys_of_the_workload_have_one_id():
    assert len({key_id(number.to_bytes(4, "little")) for number in range(100_000)}) == 100_000


class Record:
    """What `identity_values` needs of a message."""

    def __init__(self, value: bytes | None, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        self._value, self._headers = value, headers

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def test_a_tombstone_is_known_by_its_header_and_without_one_is_unreadable(monkeypatch):
    monkeypatch.setattr("prozess.workloads.record.identity.Message", Record)
    value, header = encoder(sender=3, value_bytes=100)(4, 5), encoder(sender=3, value_bytes=VALUE_BYTES_MIN)(4, 6)
    records = [
        Record(value),
        Record(None, [("other", b"1"), ("prozess", header)]),
        Record(None),
        Record(None, [("prozess", header[:-1] + b"?")]),
    ]
    found = decode(identity_values(records))
    assert found.sequence.tolist() == [5, 6, NONE, NONE]
    assert found.flags.tolist() == [0, 0, 1, 1]


def test_any_property_of_a_topic_may_be_set_by_its_own_name():
    plan = plan_of(**{"topic.properties.segment.ms": 1000})
    assert plan.cells[0].topic.kafka_properties()["segment.ms"] == "1000"
    with pytest.raises(BadInput, match=r"topic\.properties\.NAME"):
        plan_of(**{"topic.properties": {"segment.ms": 1000}})


def test_roles_of_the_catalogue_have_a_role_in_the_history():
    assert role_named("keyed-producer") is Role.PRODUCER
    assert role_named("audit") is Role.AUDIT
