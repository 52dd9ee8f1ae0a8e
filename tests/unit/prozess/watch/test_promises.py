"""Promises of progress as a watch judges them: only while the metadata shows that nothing holds anybody up. In seconds."""

import pytest

from prozess.harness.interfaces import PartitionView
from prozess.harness.interfaces.witnesses import STALLED_NS
from prozess.harness.plan.bounds import Bounds
from prozess.watch.promises import Promises
from prozess.watch.window import WORDS

S = 1_000_000_000
BOUNDS = Bounds()
ACKNOWLEDGED_S, LED_S, READ_S = BOUNDS.acknowledgement_ns // S, BOUNDS.new_leader_ns // S, STALLED_NS // S
WHOLE = PartitionView(leader=1, leader_epoch=4, isr=(1, 2, 3), replicas=(1, 2, 3))
SHRUNKEN = PartitionView(leader=1, leader_epoch=4, isr=(1, 2), replicas=(1, 2, 3))
MOVED = PartitionView(leader=2, leader_epoch=5, isr=(1, 2, 3), replicas=(1, 2, 3))
NOBODY = PartitionView(leader=-1, leader_epoch=5, isr=(2,), replicas=(1, 2, 3))
GONE = None


def found(until_s, views, *, unacknowledged=None, unread=None, skip=()):
    """`views`: from which second on which brokers say what; a single view is stated by all three."""
    promises, told = Promises([0], bounds=BOUNDS), []
    for second in range(until_s + 1):
        if second in skip:
            continue
        said = next(view for since, view in reversed(views) if since <= second)
        said = said if isinstance(said, dict) else dict.fromkeys((1, 2, 3), said)
        answers = {broker: None if view is GONE else {("t", 0): view} for broker, view in said.items()}
        promises.sampled("t", answers, second * S)
        waits = {0: None if unacknowledged is None else unacknowledged * S}, {0: None if unread is None else unread * S}
        told += [(second, one.name) for one in promises.check(*waits)]
        assert all(one.certain for one in promises.check(*waits)), "reported once"
    return told


def test_what_waits_in_peace_for_its_bound_is_told_once():
    assert found(100, [(0, WHOLE)], unacknowledged=5) == [(5 + ACKNOWLEDGED_S, "stuck")]
    assert found(100, [(0, WHOLE)], unread=5) == [(5 + READ_S, "stalled")]
    assert {"stuck", "stalled", "leaderless"} <= WORDS.keys()


@pytest.mark.parametrize(
    "views",
    [
        [(0, WHOLE), (30, SHRUNKEN), (31, WHOLE)],
        [(0, WHOLE), (31, MOVED)],
        [(0, WHOLE), (30, {1: WHOLE, 2: GONE, 3: WHOLE}), (31, WHOLE)],
        [(0, WHOLE), (30, {1: WHOLE, 2: MOVED, 3: WHOLE}), (31, WHOLE)],
    ],
    ids=["a replica out of sync", "another leader", "a broker without an answer", "brokers that differ"],
)
def test_the_time_begins_anew_when_something_held_it_up(views):
    assert found(79, views, unacknowledged=5) == []
    assert found(31 + ACKNOWLEDGED_S, views, unacknowledged=5) == [(31 + ACKNOWLEDGED_S, "stuck")]


def test_what_nobody_looked_at_was_not_seen():
    assert found(60, [(0, WHOLE)], unacknowledged=5, skip=range(20, 27)) == []


def test_nobody_waits_for_anything():
    assert found(100, [(0, WHOLE)]) == []


def test_a_partition_that_nobody_leads_although_one_could_is_told():
    assert found(60, [(0, WHOLE), (10, NOBODY)]) == [(10 + LED_S, "leaderless")]
    assert found(60, [(0, WHOLE), (10, {1: NOBODY, 2: GONE, 3: NOBODY})]) == [], "who is in sync does not answer"
    assert found(60, [(0, WHOLE), (10, {1: NOBODY, 2: NOBODY, 3: WHOLE})]) == [], "one knows a leader"
    assert found(10 + LED_S - 1, [(0, WHOLE), (10, NOBODY)]) == []
