"""How long what a client waits for may take, by what its configuration and the brokers' imply."""

import pytest

from prozess.harness.plan.bounds import Bounds, bounds_of
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

S = 1_000_000_000
LINGER_NS = 5_000_000
STEPS = [{"name": "wait", "after": {"condition": "elapsed", "seconds": 1}}]


def bounds(properties=None, *, brokers=None, settings=None):
    document = {
        "name": "t",
        "title": "T",
        "scenarios": ["F1"],
        "steps": STEPS,
        "base": {f"producer.{key}": value for key, value in (properties or {}).items()},
    }
    plan = make_plan(parse_trial(document | {"variant": {"properties": brokers or {}}}, source="t"), seed=1)
    return bounds_of(plan, plan.cells[0], settings or {})


def test_by_default_they_are_those_of_kafka_and_of_our_clients():
    ours = Bounds()
    assert bounds() == Bounds(
        acknowledgement_ns=ours.acknowledgement_ns + LINGER_NS, reading_ns=ours.reading_ns + S // 2
    )


@pytest.mark.parametrize(
    ("properties", "more_s"),
    [
        ({"properties.socket.timeout.ms": "20000"}, 10),
        ({"linger_ms": 2000}, 2),
        ({"properties.reconnect.backoff.max.ms": "9000"}, 0),
        ({"properties.reconnect.backoff.max.ms": "30000"}, 20),
    ],
)
def test_an_acknowledgement_may_take_as_long_as_its_producer_may_keep_the_record_back(properties, more_s):
    assert bounds(properties | {"linger_ms": properties.get("linger_ms", 0)}).acknowledgement_ns == (
        Bounds().acknowledgement_ns + more_s * S
    )


def test_what_the_cluster_was_seen_to_have_counts_more_than_what_the_plan_gives_it():
    delay, request = "group.initial.rebalance.delay.ms", "request.timeout.ms"
    planned = bounds(brokers={delay: "1000", request: "5000"})
    assert planned.rebalance_delay_ns == 1 * S
    assert planned.transaction_call_ns == Bounds().transaction_call_ns - 25 * S
    seen = bounds(brokers={delay: "1000", request: "5000"}, settings={delay: "0", request: "40000"})
    assert seen.rebalance_delay_ns == 0
    assert seen.transaction_call_ns == Bounds().transaction_call_ns + 10 * S
