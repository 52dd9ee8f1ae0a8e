"""Steps about messages: in whose links a proxy must stand so that everything that they name is seen."""

import pytest

from prozess.harness.config.impairments import CLIENTS
from prozess.harness.errors import BadInput
from prozess.harness.plan.checks import watched_openers
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

REFUSED = {"match": {"api": "Produce"}, "action": {"do": "answer", "error": "NOT_LEADER_OR_FOLLOWER"}}
HELD = {"match": {"api": "Produce"}, "action": {"do": "hold"}}
HELD_UNTIL = {"match": {"api": "Produce"}, "action": {"do": "hold", "until": {"api": "AlterPartition"}}}


ATTACHED = {"backend": "attach", "attach": {"bootstrap_servers": ["h:9092"]}}


def planned(*steps, **more):
    named = [{"name": f"step {number}", **step} for number, step in enumerate(steps)]
    return make_plan(parse_trial({"name": "x", "title": "t", "steps": named, **more}, source="x.toml"), seed=1)


def watched(*steps):
    return watched_openers(planned(*steps))


def of_messages(**parameters):
    return {"do": {"kind": "fault", "fault": "message", "targets": ["brokers"], "parameters": parameters}}


def test_messages_of_clients_are_watched_on_their_links_alone():
    assert watched(of_messages(**REFUSED), of_messages(**HELD, others=[CLIENTS])) == {CLIENTS}


@pytest.mark.parametrize(
    "step",
    [
        of_messages(match={"api": "Fetch"}, action={"do": "hold"}, others="brokers"),
        of_messages(**HELD_UNTIL),
        {"after": {"condition": "message", "match": {"api": "Produce"}}},
    ],
    ids=["between brokers", "held until a message of brokers", "a step that waits"],
)
def test_a_message_that_may_pass_anywhere_is_watched_on_every_link(step):
    assert watched(of_messages(**REFUSED), step) is None


ISR = {"match": {"api": "AlterPartition"}, "action": {"do": "hold"}}
WAITS = {"after": {"condition": "message", "match": {"api": ["AlterPartition", "Vote"]}}}


def test_a_message_that_only_servers_send_is_not_looked_for_on_links_of_clients():
    assert planned(of_messages(**ISR, others="brokers"))
    assert planned(WAITS)
    assert planned(of_messages(match={"api": ["AlterPartition", "Fetch"]}, action={"do": "hold"}))
    with pytest.raises(
        BadInput, match=r'only servers send AlterPartition, and no client does\. Give others = "brokers"\.'
    ):
        planned(of_messages(**ISR))


@pytest.mark.parametrize("step", [of_messages(**HELD_UNTIL), WAITS], ids=["held until it comes", "a step that waits"])
def test_somebody_elses_cluster_is_not_asked_for_messages_between_its_servers(step):
    with pytest.raises(
        BadInput, match=r"only servers send AlterPartition.* only connections of the trial's clients are seen"
    ):
        planned(step, **ATTACHED)


def test_what_clients_send_is_waited_for_on_somebody_elses_cluster():
    until_fetch = {"match": {"api": "Produce"}, "action": {"do": "hold", "until": {"api": "Fetch"}}}
    assert planned(of_messages(**until_fetch), **ATTACHED)


def test_a_match_may_be_relative_to_an_earlier_step_about_messages():
    relative = {"match": {"api": "Produce", "after": "step 0"}, "action": {"do": "hold"}}
    assert planned(of_messages(**REFUSED), of_messages(**relative))
    assert planned(of_messages(**REFUSED), {"after": {"condition": "message", "match": relative["match"]}})


@pytest.mark.parametrize("name", ["step 1", "step 2", "no such step", "quiet"])
def test_a_match_relative_to_a_step_that_cannot_have_hit_anything_before_is_refused(name):
    relative = {"match": {"api": "Produce", "after": name}, "action": {"do": "hold"}}
    quiet = {"name": "quiet", "do": {"kind": "pause_sends"}}
    steps = [{"name": "step 0", **of_messages(**REFUSED)}, quiet, {"name": "step 1", **of_messages(**relative)}]
    with pytest.raises(BadInput, match=r"is no earlier step about messages\..* Such steps before it: 'step 0'\."):
        planned(*steps, {"name": "step 2", **of_messages(**REFUSED)})
