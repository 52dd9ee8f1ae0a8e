"""What samples of the brokers' metadata prove of elections, and what they never do."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.guarantees.evidence.ground_truth import sampled_elections
from prozess.harness.guarantees.facts.truncation import cutoff, elected_unclean, unclean_before
from prozess.harness.schema import NONE, MetadataSource, Tristate
from tests.support.cells.evidence import evidence, smoke, state, table, witnesses
from tests.support.examples import examples
from tests.unit.harness.guarantees.evidence.test_envelope import NOT_SO, UNKNOWN, envelope, one

BROKERS = (1, 2, 3)


def sample(at_s, leader, epoch, isr, elr=(), *, node=3, partition=0):
    return state(at_s, partition, leader, epoch, isr, elr) | {"source": MetadataSource.DESCRIBED, "node": node}


def proven(*rows):
    return sampled_elections(table("metadata", rows)).get(0, ())


OUTSIDE = [sample(1, 1, 4, (1,)), sample(2, NONE, 5, (1,)), sample(3, 2, 6, (2,))]


def test_who_leads_after_an_epoch_without_a_leader_and_was_in_neither_isr_nor_elr_came_from_outside():
    (election,) = proven(*OUTSIDE)
    assert (election.epoch, election.leader) == (6, 2)
    assert election.leaderless_ns < election.led_ns
    assert "the controllers' log was not read" in str(election)


def test_without_the_leaderless_sample_nothing_is_proven_since_the_isr_may_have_grown_in_between():
    assert proven(OUTSIDE[0], OUTSIDE[2]) == ()


def test_who_was_in_sync_or_eligible_came_not_from_outside():
    assert proven(sample(2, NONE, 5, (2,)), sample(3, 2, 6, (2,))) == ()
    assert proven(sample(2, NONE, 5, (), (2,)), sample(3, 2, 6, (2,))) == ()


def test_an_epoch_in_between_that_nobody_saw_proves_nothing():
    assert proven(sample(2, NONE, 5, (1,)), sample(3, 2, 7, (2,))) == ()


def test_brokers_that_do_not_agree_on_who_led_prove_nothing():
    assert proven(*OUTSIDE, sample(2.1, 1, 5, (1,), node=2)) == ()
    assert proven(*OUTSIDE, sample(3.1, 3, 6, (3,), node=2)) == ()


def test_samples_for_display_and_ground_truth_are_no_such_evidence():
    for source in (MetadataSource.SAMPLE, MetadataSource.CONTROLLER_LOG):
        assert proven(*(row | {"source": source} for row in OUTSIDE)) == ()


def history(rng):
    """(true states of a partition, epochs of true elections from outside), by the controller's rules."""
    leader, epoch, isr, elr, outside, states = 1, 0, {1, 2, 3}, set(), set(), []
    for _ in range(rng.randint(1, 25)):
        states.append((leader, epoch, frozenset(isr), frozenset(elr)))
        what = rng.random()
        if leader != NONE and what < 0.3:  # the leader changes the ISR: the epoch stays
            isr = {leader, *rng.sample(BROKERS, rng.randint(0, 3))}
            elr -= isr
        elif leader != NONE:  # it is gone
            isr, elr = (isr - {leader} or {leader}, elr) if rng.random() < 0.7 else ({leader}, set())
            clean = sorted((isr | elr) - {leader})
            pick = rng.random()
            if clean and pick < 0.5:
                leader = rng.choice(clean)
                isr, elr = {leader}, set()
            elif pick < 0.7:  # unclean at once
                new = rng.choice([b for b in BROKERS if b != leader])
                outside |= {epoch + 1} if new not in isr | elr else set()
                leader, isr, elr = new, {new}, set()
            else:
                leader = NONE
            epoch += 1
        elif what < 0.3 and len(isr | elr) > 1:  # nobody leads: members are only lost
            lost = rng.choice(sorted(isr | elr))
            isr, elr = isr - {lost}, elr - {lost}
        else:
            new = rng.choice(BROKERS)
            outside |= {epoch + 1} if new not in isr | elr else set()
            leader, isr, elr, epoch = new, {new}, set(), epoch + 1
    return states, outside


@settings(max_examples=examples(1000), deadline=None)
@given(st.randoms(use_true_random=False), st.floats(0, 1))
def test_whatever_was_sampled_nothing_is_proven_that_did_not_happen(rng, share):
    states, outside = history(rng)
    rows = [
        sample(number + late, *what[:2], what[2], what[3], node=node)
        for number, what in enumerate(states)
        for node in BROKERS
        if rng.random() < share
        for late in [rng.random() * 5]
    ]
    rng.shuffle(rows)
    assert {e.epoch for e in proven(*rows)} <= outside


def test_the_model_has_elections_from_outside_and_samples_prove_many_of_those_after_an_epoch_without_a_leader():
    true = seen = 0
    for seed in range(300):
        states, outside = history(random.Random(seed))
        true += len(outside)
        seen += len(proven(*(sample(n, *what[:2], what[2], what[3]) for n, what in enumerate(states))))
    assert true > 300
    assert seen > 100


def test_samples_may_prove_an_unclean_election_and_never_what_it_cut_off_nor_that_there_was_none():
    nothing = envelope([], acks="all")
    assert elected_unclean(nothing) is Tristate.NO  # by configuration: it is not enabled, and nobody asked
    seen = replace(nothing, sampled_unclean=proven(*OUTSIDE))
    assert elected_unclean(seen) is Tristate.YES
    assert (one(cutoff(nothing, witnesses())), one(cutoff(seen, witnesses()))) == (NOT_SO, UNKNOWN)
    assert one(unclean_before(seen, witnesses())) == UNKNOWN
    enabled = replace(nothing, unclean_enabled=True)
    assert elected_unclean(enabled) is Tristate.UNKNOWN


def test_ground_truth_leaves_no_room_for_samples():
    made = smoke()
    told = evidence(made, metadata=OUTSIDE)
    assert told.envelope(made, made.cells[0], 0).sampled_unclean == proven(*OUTSIDE)
    both = evidence(made, metadata=[*OUTSIDE, state(-10, 0, 1, 0, BROKERS)])
    assert both.envelope(made, made.cells[0], 0).sampled_unclean == ()
    assert np.size(both.timelines[0].time_ns) == 1
