"""What is permitted, forbidden and proven, from hand-made evidence. Partition p belongs to cell p, on brokers 1, 2, 3."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.verdict.evaluation import Tally
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.guarantees.verdict.sentences import chosen_witnesses
from prozess.harness.interfaces.witnesses import WITNESSES_SHOWN, no_witnesses
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import MISSING, NONE, Outcome, StepOutcome
from prozess.harness.verdict import AnomalyOutcome, TrialVerdict, Verdict
from tests.support.cells.evidence import (
    ACKS,
    ACKS_0,
    ACKS_1,
    ACKS_ALL,
    CLUSTER,
    CONTROL,
    KILL,
    KILLED,
    UNCLEAN,
    evidence,
    failover,
    fault,
    findings,
    lost_in,
    of,
    plan,
    result,
    smoke_verdict,
    state,
    strike,
    witnesses,
)

# --- the smoke choreography -----------------------------------------------------------------------------------------


def test_smoke_holds_acks_1_loses_and_the_control_proves_acks_all():
    verdict = smoke_verdict(lost_in(ACKS_1, 1600))
    assert verdict.verdict is Verdict.HELD
    assert verdict.sentence == (
        "Held: 1 of 1 cell with acks=all kept every promise under pause and kill. "
        "Permitted, and seen: 1,600 acknowledged records are gone (acks=1)."
    )
    shown = of(verdict, ACKS_1)
    assert (shown.outcome, shown.permitted, shown.count) == (AnomalyOutcome.PERMITTED, 1600, 1600)
    assert shown.reason == (
        "1,600 acknowledged records are gone: a producer with acks=1 waits for the leader only, and the leader may fail "
        "before the followers have the record; acks=all would have kept them."
    )
    held = of(verdict, ACKS_ALL)
    assert (held.outcome, held.proven) == (AnomalyOutcome.HELD, True)
    assert of(verdict, ACKS_0).outcome is AnomalyOutcome.POSSIBLE
    lost, *_ = verdict.controls
    assert (lost.anomaly, lost.fired_in, lost.count, lost.required) == ("lost", (ACKS_1,), 1600, True)
    assert verdict.unknown_reasons == ()
    assert TrialVerdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_the_same_loss_in_an_acks_all_cell_violates():
    verdict = smoke_verdict(lost_in(ACKS_1) | lost_in(ACKS_ALL, 7))
    assert verdict.verdict is Verdict.VIOLATED
    assert verdict.sentence == (
        "Violated: 7 acknowledged or read records are gone in 1 cell with acks=all under pause and kill. "
        "Nothing permits that."
    )
    broken = of(verdict, ACKS_ALL)
    assert (broken.outcome, broken.forbidden, broken.permitted) == (AnomalyOutcome.VIOLATED, 7, 0)
    assert {w.effect for w in broken.witnesses} == {"forbidden"}
    assert {w.rule for w in broken.witnesses} == {"lost/forbidden"}
    assert broken.defects == ()


OLD_BROKERS = CLUSTER | {"kafka_version": "3.9.0"}


def a_log(*batches, partition=ACKS_ALL):
    """(node, first and last offset, leader epoch) of each batch."""
    return [
        {"partition": partition, "node": n, "base_offset": a, "last_offset": b, "leader_epoch": e, "step": NONE}
        for n, a, b, e in batches
    ]


def test_on_an_affected_release_a_loss_without_a_part_of_its_trace_is_not_named_after_a_known_defect():
    verdict = smoke_verdict(lost_in(ACKS_1) | lost_in(ACKS_ALL), cluster=OLD_BROKERS)
    assert verdict.verdict is Verdict.VIOLATED
    found = of(verdict, ACKS_ALL)
    assert (found.defects, found.known, found.possible) == ((), {}, {})
    assert "Possibly" not in found.reason
    assert "Known defect" not in found.reason
    assert not verdict.by_known_defects
    assert verdict.sentence.startswith("Violated: 100 ")
    assert "Possibly" not in verdict.sentence


def test_copies_with_an_older_epoch_behind_a_newer_one_prove_the_defect_that_leaves_them_so():
    twisted = a_log((2, 0, 99, 0), (2, 100, 149, 1), (3, 0, 99, 0), (3, 100, 149, 1), (3, 150, 250, 0))
    verdict = smoke_verdict(
        lost_in(ACKS_1) | lost_in(ACKS_ALL, log_offset=150 + np.arange(100)), cluster=OLD_BROKERS, replicas=twisted
    )
    found = of(verdict, ACKS_ALL)
    assert (found.defects, found.known, found.possible) == (
        (next(rule.defect for rule in TABLE["lost"].rules if rule.label == "KAFKA-18991"),),
        {"KAFKA-18991": 100},
        {},
    )
    assert verdict.by_known_defects
    assert verdict.sentence.startswith("Violated, only by known defects (KAFKA-18991 ×100): 100 ")


def test_where_only_some_have_the_signature_the_verdict_is_not_by_known_defects():
    twisted = a_log((2, 0, 99, 0), (2, 100, 149, 1), (3, 0, 99, 0), (3, 100, 149, 1), (3, 150, 250, 0))
    verdict = smoke_verdict(
        lost_in(ACKS_1) | lost_in(ACKS_ALL, log_offset=100 + np.arange(100)), cluster=OLD_BROKERS, replicas=twisted
    )
    found = of(verdict, ACKS_ALL)
    assert (found.known, found.possible) == ({"KAFKA-18991": 50}, {})
    assert "Known defect KAFKA-18991, fixed after 3.9.0 and 4.0.0 (50 of 100):" in found.reason
    assert not verdict.by_known_defects
    assert "Nothing permits that. By known defects: KAFKA-18991 ×50." in verdict.sentence
    assert "Possibly" not in verdict.sentence


def test_losing_an_acks_1_record_that_a_consumer_had_read_violates():
    verdict = smoke_verdict(lost_in(ACKS_1, 3, seen_s=4.2))
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.VIOLATED


def test_losing_an_acks_1_record_long_after_the_acknowledgement_violates():
    made = plan({"producer.acks": ["1"]}, steps=KILL)

    def outcome(at_s: float) -> AnomalyOutcome:
        given = evidence(made, metadata=failover(1, at_s=at_s), faults=fault(0, "kill", [1], 40, 45))
        return of(judge(made, findings(made, lost_in(0)), given), 0).outcome

    assert outcome(19.2) is AnomalyOutcome.VIOLATED
    assert outcome(18.9) is AnomalyOutcome.PERMITTED


def test_a_leader_that_died_soon_after_could_not_shrink_the_isr_however_late_the_election():
    late = smoke_verdict(lost_in(ACKS_1), metadata=failover(3, at_s=40))
    assert of(late, ACKS_1).outcome is AnomalyOutcome.PERMITTED


def test_an_election_from_elr_permits_losing_what_acks_1_acknowledged_long_before():
    made = plan({"producer.acks": ["1"]}, base={"topic.min_insync_replicas": 2}, steps=KILL)
    rows = [state(-10, 0, 1, 0, (1,), elr=(2,)), state(40, 0, 2, 1, (2,))]
    verdict = judge(made, findings(made, lost_in(0)), evidence(made, metadata=rows, faults=KILLED))
    assert of(verdict, 0).outcome is AnomalyOutcome.PERMITTED


def test_acks_1_without_any_leader_change_has_no_excuse():
    made = plan({"producer.acks": ["1"]})
    rows = [state(-10, 0, 1, 0, (1, 2, 3))]
    verdict = judge(made, findings(made, lost_in(0)), evidence(made, metadata=rows))
    assert of(verdict, 0).outcome is AnomalyOutcome.VIOLATED
    quiet = judge(made, findings(made), evidence(made, metadata=rows))
    assert of(quiet, 0).outcome is AnomalyOutcome.HELD


def test_one_forbidden_witness_among_permitted_ones_violates_and_is_shown_first():
    found = np.concatenate([witnesses(50, partition=ACKS_1), witnesses(1, partition=ACKS_1, seen_s=4.2)])
    broken = of(smoke_verdict({("lost", ACKS_1): result(found)}), ACKS_1)
    assert (broken.outcome, broken.forbidden, broken.permitted) == (AnomalyOutcome.VIOLATED, 1, 50)
    assert len(broken.witnesses) == WITNESSES_SHOWN
    assert [w.effect for w in broken.witnesses[:2]] == ["forbidden", "permitted"]


# --- unclean elections, idempotence, destroyed data -----------------------------------------------------------------


def test_an_unclean_election_permits_losing_reading_and_rewinding_what_it_cut_off():
    made = plan({"topic.unclean_leader_election_enable": [True]}, steps=KILL)
    found = lost_in(0) | {
        ("dirty-read", 0): result(witnesses(2, seen_s=4.3, reader=3)),
        ("offset-conflict", 0): result(witnesses(2, other_s=9.0, case=1)),
        ("rewound", 0): result(witnesses(1, end_s=7.0, reader=3)),
        ("skipped", 0): result(witnesses(1, end_s=7.0, reader=3)),
    }
    verdict = judge(made, findings(made, found), evidence(made, metadata=UNCLEAN, faults=KILLED))
    for anomaly in ("lost", "dirty-read", "offset-conflict", "rewound", "skipped"):
        assert of(verdict, 0, anomaly).outcome is AnomalyOutcome.PERMITTED, anomaly
        assert {w.rule for w in of(verdict, 0, anomaly).witnesses} == {f"{anomaly}/unclean"}
    assert verdict.verdict is Verdict.HELD
    assert "100 acknowledged or read records are gone (unclean elections)" in verdict.sentence


@pytest.mark.parametrize("anomaly", ["lost", "dirty-read", "offset-conflict", "rewound", "skipped"])
def test_after_a_clean_failover_the_same_is_forbidden(anomaly):
    made = plan({"topic.unclean_leader_election_enable": [True]}, steps=KILL)
    found = {(anomaly, 0): result(witnesses(2, end_s=7.0, seen_s=4.3, other_s=6.5, reader=3))}
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(1), faults=KILLED))
    assert of(verdict, 0, anomaly).outcome is AnomalyOutcome.VIOLATED


def test_a_record_that_was_sent_after_a_reader_had_passed_its_offset_was_not_skipped():
    made = plan({"topic.unclean_leader_election_enable": [True]}, steps=KILL)
    for other_s, expected in ((9.0, Verdict.HELD), (2.9, Verdict.VIOLATED)):
        found = {("skipped", 0): result(witnesses(2, begin_s=2.0, end_s=3.0, other_s=other_s, reader=3))}
        verdict = judge(made, findings(made, found), evidence(made, metadata=UNCLEAN, faults=KILLED))
        assert of(verdict, 0, "skipped").verdict is expected, other_s


def test_an_unclean_election_that_was_asked_for_excuses_its_own_partition_and_no_other():
    """The other one's leader came from outside too, and nobody had asked for that."""
    made = plan(
        {"producer.acks": ["all"], "topic.min_insync_replicas": [1, 2]},
        steps=[strike("ask", "elect-unclean", "partition(0)")],
    )
    metadata = [row | {"partition": p} for p in (0, 1) for row in UNCLEAN]
    elected = {"begin_s": 6.0, "end_s": None, "sequence": 1}
    found = {("unclean", p): result(witnesses(partition=p, **elected)) for p in (0, 1)}
    asked = fault(0, "elect-unclean", [2], 6, 6.5)
    verdict = judge(made, findings(made, found), evidence(made, metadata=metadata, faults=asked))
    assert of(verdict, 0, "unclean").outcome is AnomalyOutcome.PERMITTED
    assert of(verdict, 1, "unclean").outcome is AnomalyOutcome.VIOLATED


def test_a_fault_of_a_mix_that_was_left_out_leaves_no_doubt():
    missed = [strike("kill somebody", "kill") | {"may_miss": True}, *KILL]
    made = plan({"producer.acks": ["all"]}, steps=missed)
    killed = fault(0, "kill", [1], 4.5, 8, step=1)

    def given(outcome):
        return evidence(made, metadata=failover(1), faults=killed, outcomes={0: outcome})

    assert judge(made, findings(made), given(StepOutcome.MISSED)).verdict is Verdict.HELD
    assert judge(made, findings(made), given(StepOutcome.FAILED)).verdict is Verdict.UNKNOWN


def test_only_offsets_of_the_unclean_epoch_on_are_permitted_to_go():
    made = plan({"topic.unclean_leader_election_enable": [True]}, steps=KILL)
    segments = [
        {"partition": 0, "node": 2, "leader_epoch": 0, "base_offset": 0, "last_offset": 149},
        {"partition": 0, "node": 2, "leader_epoch": 1, "base_offset": 150, "last_offset": 300},
    ]
    given = evidence(made, metadata=UNCLEAN, faults=KILLED, replicas=segments, observations=[])
    lost = of(judge(made, findings(made, lost_in(0)), given), 0)
    assert (lost.outcome, lost.forbidden, lost.permitted) == (AnomalyOutcome.VIOLATED, 50, 50)


def test_without_idempotence_a_retry_may_stand_twice_and_with_it_never():
    made = plan({"producer.enable_idempotence": [False, True]})
    found = {("duplicate", p): result(witnesses(5, partition=p, other_offset=200)) for p in (0, 1)}
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(2)))
    assert of(verdict, 0, "duplicate").outcome is AnomalyOutcome.PERMITTED
    assert of(verdict, 0, "duplicate").reason.endswith(
        "In 0 of 5 cases a fault or a leader change happened during the send."
    )
    assert of(verdict, 1, "duplicate").outcome is AnomalyOutcome.VIOLATED
    during = {("duplicate", 0): result(witnesses(5, begin_s=4.9, end_s=6))}
    verdict = judge(made, findings(made, during), evidence(made, metadata=failover(2)))
    assert of(verdict, 0, "duplicate").reason.endswith(
        "In 5 of 5 cases a fault or a leader change happened during the send."
    )


def test_what_acks_0_lost_was_sent_and_not_acknowledged():
    verdict = smoke_verdict(lost_in(ACKS_1) | lost_in(ACKS_0, 12))
    assert of(verdict, ACKS_0).reason.startswith("12 sent records are gone: a producer with acks=0 waits for no reply")
    assert verdict.sentence.endswith(
        "Permitted, and seen: 100 acknowledged records are gone (acks=1); 12 sent records are gone (acks=0)."
    )


def test_what_is_gone_and_of_which_nobody_learned_is_one_matter():
    lost = lost_in(ACKS_0, 12)
    silent = {("unreported", partition): found for (_, partition), found in lost.items()}
    verdict = smoke_verdict(lost_in(ACKS_1) | lost | silent)
    assert of(verdict, ACKS_0, "unreported").count == 12
    assert verdict.sentence.endswith(
        "Permitted, and seen: 100 acknowledged records are gone (acks=1); "
        "12 sent records are gone, and no producer got an error (acks=0)."
    )
    # One that was stored after all: not the same records, and the sentence says so.
    fewer = {("unreported", partition): found for (_, partition), found in lost_in(ACKS_0, 11).items()}
    assert "11 records are missing from the log" in smoke_verdict(lost_in(ACKS_1) | lost | fewer).sentence


def seen_five_times(partition):
    return {(name, partition): result(witnesses(5)) for name in ("duplicate", "reordered")}


def test_without_retries_and_without_a_change_of_leader_a_duplicate_and_a_reordering_are_forbidden():
    made = plan({"producer.retries": ["0"]})
    rows = [state(-10, 0, 1, 0, (1, 2, 3))]
    verdict = judge(made, findings(made, seen_five_times(0)), evidence(made, metadata=rows))
    assert of(verdict, 0, "duplicate").outcome is AnomalyOutcome.VIOLATED
    assert of(verdict, 0, "reordered").outcome is AnomalyOutcome.VIOLATED


def test_librdkafka_resends_after_a_change_of_leader_even_without_retries_and_java_does_not():
    made = plan({"producer.client": ["librdkafka", "java"]}, base={"producer.retries": "0"}, workload="verifiable")
    found = seen_five_times(0) | seen_five_times(1)
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(2, at_s=4.05)))
    for name in ("duplicate", "reordered"):
        assert of(verdict, 0, name).outcome is AnomalyOutcome.PERMITTED
        assert of(verdict, 1, name).outcome is AnomalyOutcome.VIOLATED
    later = judge(made, findings(made, found), evidence(made, metadata=failover(2, at_s=5)))
    for name in ("duplicate", "reordered"):
        assert of(later, 0, name).outcome is AnomalyOutcome.VIOLATED, "it had learned how the send ended"


def test_a_send_that_was_given_up_may_arrive_late_and_only_idempotence_forbids_it():
    made = plan({"producer.enable_idempotence": [False, True]}, base={"producer.client": "java"}, workload="verifiable")
    late = {("reordered", p): result(witnesses(1, outcome=Outcome.INFO)) for p in (0, 1)}
    rows = [state(-10, p, 1, 0, (1, 2, 3)) for p in range(2)]
    verdict = judge(made, findings(made, late), evidence(made, metadata=rows))
    assert of(verdict, 0, "reordered").outcome is AnomalyOutcome.PERMITTED
    assert of(verdict, 1, "reordered").outcome is AnomalyOutcome.VIOLATED


def test_a_record_whose_send_nobody_knows_may_have_been_given_up():
    base = {"producer.client": "java", "producer.retries": "0"}
    made = plan({"producer.enable_idempotence": [False]}, base=base, workload="verifiable")
    rows = [state(-10, 0, 1, 0, (1, 2, 3))]
    for sent, outcome in (
        ({"outcome": NONE, "begin_ns": MISSING, "end_ns": MISSING}, AnomalyOutcome.UNKNOWN),
        ({"outcome": Outcome.INFO}, AnomalyOutcome.PERMITTED),
        ({"outcome": Outcome.OK}, AnomalyOutcome.VIOLATED),
    ):
        found = {("reordered", 0): result(witnesses(1, **sent))}
        assert of(judge(made, findings(made, found), evidence(made, metadata=rows)), 0, "reordered").outcome is outcome


def test_without_idempotence_and_retries_the_order_is_kept_until_the_leader_changes():
    made = plan({"producer.retries": ["0", "max"], "producer.max_in_flight": [1]})
    found = {("reordered", p): result(witnesses(5, partition=p)) for p in (0, 1)}
    stable = [state(-10, p, 1, 0, (1, 2, 3)) for p in (0, 1)]
    calm = judge(made, findings(made, found), evidence(made, metadata=stable))
    assert of(calm, 0, "reordered").outcome is AnomalyOutcome.VIOLATED
    assert of(calm, 1, "reordered").outcome is AnomalyOutcome.PERMITTED
    moved = judge(made, findings(made, found), evidence(made, metadata=failover(2, at_s=4.05)))
    assert of(moved, 0, "reordered").outcome is AnomalyOutcome.PERMITTED, "librdkafka's limit is one per connection"


def test_wiping_the_only_copy_permits_the_loss():
    made = plan({"topic.replication_factor": [1]}, steps=KILL)
    rows = [state(-10, 0, 1, 0, (1,)), state(5.5, 0, -1, 1, (1,)), state(8, 0, 1, 2, (1,))]
    natures = {**NATURES, "wipe": FaultNature(stops=True, destroys=True)}
    wiped = evidence(made, metadata=rows, faults=fault(0, "wipe", [1], 5, 7), natures=natures)
    assert of(judge(made, findings(made, lost_in(0)), wiped), 0).outcome is AnomalyOutcome.PERMITTED
    killed = evidence(made, metadata=rows, faults=fault(0, "kill", [1], 5, 7))
    assert of(judge(made, findings(made, lost_in(0)), killed), 0).outcome is AnomalyOutcome.VIOLATED


@pytest.mark.parametrize("anomaly", ["phantom", "corrupt", "misplaced", "resurrected"])
def test_what_nothing_permits_violates_whatever_happened(anomaly):
    made = plan({"producer.acks": ["0"], "topic.unclean_leader_election_enable": [True]}, steps=KILL)
    found = {(anomaly, 0): result(witnesses(1))}
    verdict = judge(made, findings(made, found), evidence(made, metadata=UNCLEAN, faults=KILLED))
    assert of(verdict, 0, anomaly).outcome is AnomalyOutcome.VIOLATED


# --- controls -------------------------------------------------------------------------------------------------------


def test_a_silent_required_control_makes_what_it_proves_unknown():
    verdict = smoke_verdict({})
    assert verdict.verdict is Verdict.UNKNOWN
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.UNKNOWN
    assert of(verdict, ACKS_ALL).proven is False
    assert verdict.unknown_reasons == (
        "the control for 'lost' showed nothing: 1 cell with acks=1 should have shown it",
    )
    assert of(verdict, ACKS_ALL, "rewound").outcome is AnomalyOutcome.HELD


def test_a_silent_optional_control_leaves_held_unproven():
    made = plan(ACKS, steps=KILL, controls=CONTROL)
    verdict = judge(made, findings(made), evidence(made, metadata=failover(3), faults=KILLED))
    assert verdict.verdict is Verdict.HELD
    held = of(verdict, ACKS_ALL)
    assert (held.outcome, held.proven) == (AnomalyOutcome.HELD, False)
    assert "Unproven" in held.reason
    assert verdict.sentence.startswith("Held: ")
    assert " under kill (for lost this proves nothing: its control stayed silent)." in verdict.sentence
    assert verdict.not_proven == (
        "lost was not seen in its 1 control cell, where these faults may cause it. This run did not prove that it can see "
        "lost, and 'held' proves nothing in the 1 cell that must not show it.",
    )


def test_a_silent_control_has_its_line_even_where_no_promise_rests_on_it():
    made = plan({"producer.acks": ["1"]}, steps=KILL, controls=CONTROL)
    verdict = judge(made, findings(made), evidence(made, metadata=failover(3), faults=KILLED))
    assert verdict.verdict is Verdict.HELD
    assert "proves nothing" not in verdict.sentence, "nothing of it is stated to have held"
    (told,) = verdict.not_proven
    assert "no cell's promise rests on it" in told


def test_where_controls_fired_or_were_required_nothing_is_said_to_be_unproven():
    made = plan(ACKS, steps=KILL, controls=CONTROL)
    fired = judge(made, findings(made, lost_in(ACKS_1)), evidence(made, metadata=failover(3), faults=KILLED))
    assert not any(told.startswith("lost") for told in (*fired.not_proven, *smoke_verdict({}).not_proven))
    assert "not proven" not in fired.sentence + smoke_verdict({}).sentence


def test_where_a_trial_names_no_control_the_tables_is_asked():
    made = plan(ACKS, steps=KILL)
    silent = judge(made, findings(made), evidence(made, metadata=failover(3), faults=KILLED))
    assert [(c.anomaly, c.cells, c.required) for c in silent.controls] == [("lost", (ACKS_1,), False)]
    assert of(silent, ACKS_ALL).proven is False
    fired = judge(made, findings(made, lost_in(ACKS_1)), evidence(made, metadata=failover(3), faults=KILLED))
    assert of(fired, ACKS_ALL).proven is True


def test_a_control_proves_only_cells_of_the_same_placement():
    made = plan(
        {"producer.acks": ["1", "all"], "topic.replication_factor": [1, 3]},
        steps=KILL,
        controls=[{"anomaly": "lost", "cells": {"producer.acks": "1", "topic.replication_factor": "3"}}],
    )
    verdict = judge(made, findings(made, lost_in(1)), evidence(made, metadata=failover(4), faults=KILLED))
    assert {c.name: c.anomalies["lost"].proven for c in verdict.cells if "acks_all" in c.name} == {
        "acks_all-replication_factor_1": None,
        "acks_all-replication_factor_3": True,
    }


def test_a_control_proves_only_cells_of_the_same_workload():
    made = plan(ACKS, steps=KILL, controls=CONTROL)
    other = made.cells[ACKS_ALL].model_copy(update={"workload": "another"})
    made = made.model_copy(update={"cells": (*made.cells[:ACKS_ALL], other)})
    verdict = judge(made, findings(made, lost_in(ACKS_1)), evidence(made, metadata=failover(3), faults=KILLED))
    assert of(verdict, ACKS_ALL).proven is None


# --- the whole trial ------------------------------------------------------------------------------------------------


def test_the_null_trial_holds_without_controls():
    made = plan(ACKS, base={"producer.retries": "0"})
    rows = [state(-10, p, 1, 0, (1, 2, 3)) for p in range(3)]
    verdict = judge(made, findings(made), evidence(made, metadata=rows))
    assert verdict.verdict is Verdict.HELD
    assert verdict.sentence == "Held: 1 of 1 cell with acks=all kept every promise, with no fault."
    assert verdict.controls == ()
    assert verdict.faults == ()
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.HELD
    assert of(verdict, ACKS_1).proven is None
    assert verdict.facts == {"not seen": "though possible: lost in 1 cell, reordered in 3 cells, unreported in 1 cell"}


def test_the_sentence_of_an_unknown_trial_gives_the_first_reason_and_what_was_held():
    verdict = smoke_verdict(lost_in(ACKS_1), outcomes={1: StepOutcome.FAILED})
    assert verdict.sentence == (
        "Unknown: step 'kill the leader' failed. 0 of 3 cells held under pause and kill. "
        "Permitted, and seen: 100 acknowledged records are gone (acks=1)."
    )


def test_worst_first_violated_beats_unknown_beats_held():
    verdict = smoke_verdict(lost_in(ACKS_1) | lost_in(ACKS_ALL), outcomes={1: StepOutcome.FAILED})
    assert verdict.verdict is Verdict.VIOLATED
    assert [c.verdict for c in verdict.cells] == [Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.VIOLATED]
    assert verdict.sentence.endswith(" 2 other cells are unknown.")


def test_witnesses_and_faults_are_shown_with_names_and_seconds():
    verdict = smoke_verdict(lost_in(ACKS_1, 1))
    (shown,) = of(verdict, ACKS_1).witnesses
    assert (shown.topic, shown.number, shown.begin_s, shown.end_s) == ("cell-001", 0, 4.0, 4.1)
    assert shown.faults == ("freeze the followers", "kill the leader")
    assert (shown.effect, shown.rule, shown.seen_s, shown.reader) == ("permitted", "lost/acks-1", None, None)
    pause, kill = verdict.faults
    assert (pause.fault, pause.nodes, pause.begin_s, pause.end_s) == ("pause", ("broker-2", "broker-3"), 2.999, 4.6)
    assert (kill.step, kill.nodes, kill.effective) == ("kill the leader", ("broker-1",), True)


def test_a_witness_far_from_any_fault_shows_none():
    made = plan({"producer.acks": ["1"]}, steps=KILL)
    found = lost_in(0, 1, begin_s=30.0, end_s=30.1)
    (shown,) = of(judge(made, findings(made, found), evidence(made, metadata=failover(1), faults=KILLED)), 0).witnesses
    assert shown.faults == ()


# ----------------------------------------------------------------------------------------------------------------------
# Which of many witnesses a report shows.


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 8)), max_size=300))
def test_each_rule_has_a_witness_that_is_shown_and_the_worst_come_first(judged):
    judgement = np.array([j for j, _ in judged], dtype=np.int8)
    rule = np.array([r for _, r in judged], dtype=np.int64)
    tally = Tally(np.resize(no_witnesses(), len(judged)), judgement, rule, rule, 0, 0, ())
    chosen = chosen_witnesses(tally).tolist()
    assert len(chosen) == len(set(chosen)) == min(len(judged), WITNESSES_SHOWN)
    assert {int(rule[i]) for i in chosen} == set(rule.tolist())
    assert [int(judgement[i]) for i in chosen] == sorted(int(judgement[i]) for i in chosen)
