"""Until when a leader may not have led yet: what it refused then, librdkafka sends again. The clock error is 1 ms."""

from typing import Any

import numpy as np
import pytest

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.facts.retention import of_each_life
from prozess.harness.guarantees.facts.stale_leaders import leader_changed, leader_may_have_refused
from prozess.harness.schema import NONE, MetadataKind
from tests.support.cells.evidence import fault, ns, state, witnesses
from tests.unit.harness.guarantees.evidence.test_envelope import NOT_SO, SO, UNKNOWN, envelope, failover, one

CREATED_S = -10.0
TOPIC = {"topic_id_high": 7, "topic_id_low": -1}
CALM = [state(CREATED_S, 0, 1, 0, (1, 2, 3))]


def answers(*told: tuple[float, int]) -> tuple[np.ndarray, np.ndarray]:
    """(seconds, leader epoch) of each answer of a leader."""
    return np.array([ns(at_s) for at_s, _ in told], dtype=np.int64), np.array([e for _, e in told], dtype=np.int64)


def refused(env: Envelope, begin_s: float, **more: Any) -> int:
    return one(leader_may_have_refused(env, witnesses(begin_s=begin_s, end_s=begin_s + 20, **more)))


def test_a_new_leader_may_refuse_until_it_answered_somebody_as_one():
    """Seen: 3.6 s and more after the election, on a machine that had much else to do."""
    env = envelope(failover(6.0), leader_answers=answers((-9, 0), (5, 0), (9.6, 1), (10.6, 1)))
    assert refused(env, 9.5) == SO
    assert one(leader_changed(env, witnesses(begin_s=9.5, end_s=30))) == NOT_SO
    assert refused(env, 9.7) == NOT_SO


def test_an_answer_of_the_old_leader_in_its_own_epoch_says_nothing_of_the_new_one():
    env = envelope(failover(6.0), leader_answers=answers((-9, 0), (7, 0), (9.6, 1)))
    assert refused(env, 8.0) == SO


def test_an_answer_in_a_later_epoch_ends_it_too():
    back = [*failover(6.0), state(7, 0, NONE, 2, (2,)), state(8, 0, 2, 3, (2,))]
    env = envelope(back, leader_answers=answers((-9, 0), (12, 3)))
    assert refused(env, 11.5) == SO
    assert refused(env, 12.5) == NOT_SO


def test_the_first_leader_may_refuse_until_it_answered_somebody():
    """Seen: topics were made, and a broker led the last of 336 partitions 11 s later than it reported its clients."""
    env = envelope(CALM, leader_answers=answers((1.4, 0), (2.4, 0)))
    assert refused(env, 1.3) == SO
    assert refused(env, 1.5) == NOT_SO


@pytest.mark.parametrize("told", [(), ((-9.5, 0), (5.0, 0))])
def test_where_nobody_was_answered_in_its_epoch_a_leader_is_given_as_long_as_any(told):
    env = envelope(failover(6.0), leader_answers=answers(*told))
    assert refused(env, 6.9) == SO
    assert refused(env, 7.1) == NOT_SO
    calm = envelope(CALM, leader_answers=answers())
    assert refused(calm, CREATED_S + 0.9) == SO
    assert refused(calm, CREATED_S + 1.1) == NOT_SO


def test_a_deposed_leader_may_answer_as_one_as_long_as_it_was_seen_to():
    env = envelope(failover(6.0), leader_answers=answers((-9, 0), (6.2, 1), (9.5, 0)))
    assert one(leader_changed(env, witnesses(begin_s=9.4, end_s=30))) == SO
    assert one(leader_changed(env, witnesses(begin_s=9.6, end_s=30))) == NOT_SO


def test_an_answer_of_the_leader_before_it_is_none_of_the_deposed_ones():
    twice = [*failover(6.0), state(8, 0, 3, 2, (3,))]
    env = envelope(twice, leader_answers=answers((-9, 0), (6.2, 1), (8.2, 2), (12.5, 0)))
    assert env.known_ns(env.timeline.elections[0]) == ns(12.5) + env.error_ns
    assert env.known_ns(env.timeline.elections[1]) == ns(9.0) + env.error_ns


def test_a_leader_that_a_fault_stopped_may_refuse_until_it_answers_somebody_again():
    """Seen: all brokers without power for 2 s, no session over: a record sent meanwhile stands behind one sent 7 s later."""
    died = fault(0, "kill", [1], 3.0, 5.0)
    env = envelope(CALM, faults=died, leader_answers=answers((-9, 0), (2.9, 0), (8.0, 0)))
    assert refused(env, 3.5) == SO
    assert refused(env, 7.9) == SO
    assert refused(env, 8.1) == NOT_SO
    other = envelope(CALM, faults=fault(0, "kill", [2], 3.0, 5.0), leader_answers=answers((-9, 0), (8.0, 0)))
    assert refused(other, 3.5) == NOT_SO


def test_whether_a_leader_may_have_refused_is_unknown_without_ground_truth():
    assert refused(envelope([]), 4) == UNKNOWN


def test_who_led_a_topic_that_was_deleted_refuses_its_records_and_the_first_leader_of_the_next_may_refuse_too():
    """Seen: sent 50 ms after the deletion, acknowledged 1.9 s after the topic was there again, behind one sent meanwhile."""
    deleted = state(5, 0, NONE, 3, ()) | TOPIC | {"kind": MetadataKind.DELETED}
    made_anew = state(7, 0, 1, 0, (1, 2, 3)) | {"topic_id_high": 8, "topic_id_low": 5}
    env = envelope([state(CREATED_S, 0, 1, 3, (1, 2, 3)) | TOPIC, deleted, made_anew], leader_answers=answers((7.8, 0)))
    for begin_s, end_s, expected in ((5.05, 8.9, SO), (4.0, 8.9, SO), (4.0, 4.5, NOT_SO), (8.0, 8.9, NOT_SO)):
        sent = witnesses(1, begin_s=begin_s, end_s=end_s)
        assert one(of_each_life(env, sent, leader_may_have_refused)) == expected, begin_s
