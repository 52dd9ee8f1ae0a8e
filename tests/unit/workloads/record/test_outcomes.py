"""The table of error codes says `fail` exactly where anomalies.md's definition does, and nowhere else."""

import pytest
from confluent_kafka import KafkaError

from prozess.harness.schema import Outcome
from prozess.workloads.record.outcomes import REVIEWED, certain_within_ns, outcome_of, outcomes_by_code

CERTAIN_WITHOUT_RETRIES = {
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._PURGE_QUEUE,
}
EVERY_CODE = range(-300, 200)
"""librdkafka's own codes are -200…-1, Kafka's -1…~140."""


def test_with_retries_no_code_proves_that_a_record_failed():
    outcomes = {code: outcome_of(code, retries_allowed=True) for code in EVERY_CODE}
    assert outcomes == {code: Outcome.OK if code == 0 else Outcome.INFO for code in EVERY_CODE}


def test_without_retries_only_refusals_before_the_append_do():
    outcomes = {code: outcome_of(code, retries_allowed=False) for code in EVERY_CODE}
    assert {code for code, outcome in outcomes.items() if outcome is Outcome.FAIL} == CERTAIN_WITHOUT_RETRIES
    assert {code for code, outcome in outcomes.items() if outcome is Outcome.OK} == {0}


def test_every_line_is_one_code_with_librdkafkas_name_and_a_reason():
    assert len({rule.code for rule in REVIEWED}) == len(REVIEWED)
    for rule in REVIEWED:
        assert getattr(KafkaError, rule.name) == rule.code
        assert len(rule.reason) > 20


def test_a_refusal_is_certain_only_before_the_earliest_resend():
    assert certain_within_ns({}) == 80_000_000
    assert certain_within_ns({"retry.backoff.ms": "50"}) == 40_000_000
    assert certain_within_ns({"retry.backoff.ms": 500, "retry.backoff.max.ms": 200}) == 160_000_000


def test_the_callbacks_dictionary_is_the_table():
    for allowed in (True, False):
        table = outcomes_by_code(retries_allowed=allowed)
        assert {code: outcome_of(code, retries_allowed=allowed) for code in table} == table
        assert len(table) == len(REVIEWED)


@pytest.mark.parametrize(
    ("name", "number"),
    [("MSG_SIZE_TOO_LARGE", 10), ("RECORD_LIST_TOO_LARGE", 18), ("NOT_ENOUGH_REPLICAS", 19), ("INVALID_RECORD", 87)],
)
def test_librdkafkas_names_stand_for_kafkas_numbers(name, number):
    """https://kafka.apache.org/protocol#protocol_error_codes"""
    assert getattr(KafkaError, name) == number
