"""Errors that no retry can heal, provoked by real client processes on librdkafka's mock cluster: the caller is informed of
each, the row says so, and the records beside it live."""

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.checkers.log.records import is_bad
from prozess.harness.config.configuration import PROVOCATIONS
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, Outcome
from tests.support.log_workload import RESUME, bench
from tests.support.mock_kafka import PRODUCE_API

EVERY = 5


def plan_of(error: str, **base: object) -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "errors",
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 100},
        "base": {"provocation.error": error, "provocation.every": EVERY, **base},
        "axes": {"producer.acks": ["all"]},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def sends_of(made) -> np.ndarray:
    (producer,) = (c.client for c in made.plan.clients if c.role == "errors-producer")
    return made.rows("sends", producer)


def until_failed(made, *, ok: int, code: int) -> np.ndarray:
    """All sends once so many were acknowledged and a few were reported `code`; none is left open."""
    made.workload.command(RESUME)
    made.until(lambda: made.total("ok") >= ok, f"{ok} acknowledgements")
    made.until(lambda: np.count_nonzero(sends_of(made)["code"] == code) >= 5, f"five errors {code}")
    made.workload.finish_sends(timeout_s=60)
    sends = sends_of(made)
    assert made.workload.dead_clients() == {}
    assert (sends["completed_ns"] != MISSING).all(), "somebody learned nothing"
    return sends


@pytest.mark.parametrize("error", ["too-large-for-client", "serialization", "bad-configuration"])
def test_what_the_client_refuses_certainly_failed_and_concerns_that_record_alone(error, tmp_path):
    code = PROVOCATIONS[error].code
    with bench(plan_of(error), tmp_path) as made:
        sends = until_failed(made, ok=40, code=code)
    bad = is_bad(sends["sequence"], every=EVERY)
    assert (sends["outcome"][bad] == Outcome.FAIL).all()
    assert (sends["code"][bad] == code).all()
    assert (sends["outcome"][~bad] == Outcome.OK).all()


def test_a_full_queue_refuses_some_and_delivers_all_it_took(tmp_path):
    with bench(plan_of("full-queue"), tmp_path) as made:
        sends = until_failed(made, ok=40, code=KafkaError._QUEUE_FULL)
    refused = sends["code"] == KafkaError._QUEUE_FULL
    assert (sends["outcome"][refused] == Outcome.FAIL).all()
    assert (sends["outcome"][~refused] == Outcome.OK).all()


# "not-authorised" needs a broker with access control lists: the trial `errors`.
REFUSALS = {
    "too-large-for-broker": KafkaError.MSG_SIZE_TOO_LARGE,
    "list-too-large": KafkaError.RECORD_LIST_TOO_LARGE,
    "invalid-record": KafkaError.INVALID_RECORD,
    "invalid-timestamp": KafkaError.INVALID_TIMESTAMP,
}


@pytest.mark.parametrize(("error", "code"), REFUSALS.items())
def test_what_a_broker_refuses_is_told_once_and_the_producer_goes_on(error, code, tmp_path):
    """The mock refuses what it is asked to, whatever is in it."""
    idempotent = error != "invalid-record"
    plan = plan_of(error, **{"producer.enable_idempotence": idempotent, "producer.properties.batch.num.messages": 1})
    with bench(plan, tmp_path) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 20, "20 acknowledgements")
        made.kafka.refuse(PRODUCE_API, [code] * 5)
        sends = until_failed(made, ok=made.total("ok") + 40, code=code)
    assert PROVOCATIONS[error].code == code
    told = sends["code"] == code
    assert (sends["outcome"][told] == Outcome.INFO).all(), "with retries an earlier attempt may have been written"
    assert np.count_nonzero(sends["outcome"] == Outcome.OK) > np.count_nonzero(told)
    assert sends["sequence"][told].max() < sends["sequence"][sends["outcome"] == Outcome.OK].max(), "it went on"


def test_without_retries_a_quick_refusal_certainly_failed(tmp_path):
    plan = plan_of("too-large-for-broker", **{"producer.retries": "0", "producer.properties.batch.num.messages": 1})
    with bench(plan, tmp_path) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 20, "20 acknowledgements")
        made.kafka.refuse(PRODUCE_API, [KafkaError.MSG_SIZE_TOO_LARGE] * 5)
        sends = until_failed(made, ok=40, code=KafkaError.MSG_SIZE_TOO_LARGE)
    assert Outcome.FAIL in sends["outcome"][sends["code"] == KafkaError.MSG_SIZE_TOO_LARGE]


def test_a_delivery_timeout_is_told_and_proves_nothing(tmp_path):
    with bench(plan_of("timeout"), tmp_path) as made:
        made.workload.command(RESUME)
        made.until(lambda: made.total("ok") >= 20, "20 acknowledgements")
        made.kafka.down()
        made.until(lambda: KafkaError._MSG_TIMED_OUT in sends_of(made)["code"], "a timeout")
        made.workload.finish_sends(timeout_s=60)
        sends = sends_of(made)
    assert (sends["outcome"][sends["code"] == KafkaError._MSG_TIMED_OUT] == Outcome.INFO).all()
    assert (sends["completed_ns"] != MISSING).all()
