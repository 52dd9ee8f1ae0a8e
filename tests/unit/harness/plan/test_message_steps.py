"""Steps about messages: in whose links a proxy must stand so that everything that they name is seen."""

import pytest

from prozess.harness.config.impairments import CLIENTS
from prozess.harness.plan.checks import watched_openers
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

REFUSED = {"match": {"api": "Produce"}, "action": {"do": "answer", "error": "NOT_LEADER_OR_FOLLOWER"}}
HELD = {"match": {"api": "Produce"}, "action": {"do": "hold"}}
HELD_UNTIL = {"match": {"api": "Produce"}, "action": {"do": "hold", "until": {"api": "AlterPartition"}}}


def watched(*steps):
    named = [{"name": f"step {number}", **step} for number, step in enumerate(steps)]
    trial = parse_trial({"name": "x", "title": "t", "steps": named}, source="x.toml")
    return watched_openers(make_plan(trial, seed=1))


def of_messages(**parameters):
    return {"do": {"kind": "fault", "fault": "message", "targets": ["brokers"], "parameters": parameters}}


def test_messages_of_clients_are_watched_on_their_links_alone():
    assert watched(of_messages(**REFUSED), of_messages(**HELD)) == {CLIENTS}


@pytest.mark.parametrize(
    "step",
    [
        of_messages(**REFUSED, others="brokers"),
        of_messages(**HELD_UNTIL),
        {"after": {"condition": "message", "match": {"api": "Produce"}}},
    ],
    ids=["between brokers", "held until a message of brokers", "a step that waits"],
)
def test_a_message_that_may_pass_anywhere_is_watched_on_every_link(step):
    assert watched(of_messages(**REFUSED), step) is None
