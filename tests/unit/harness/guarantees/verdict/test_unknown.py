"""Unknown never passes: what gaps in the evidence do to a verdict. Partition p belongs to cell p."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.log.order import REORDERED_OR_COPY
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.guarantees.evidence.trial import EVIDENCE_TABLES, Evidence
from prozess.harness.guarantees.facts.witnessed import REORDERED_OR_COPY_CASE
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.verdict.doubts import cell_doubts
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.history.convert import ensure_history
from prozess.harness.history.reader import History
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import StepOutcome, Tristate
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, Verdict
from tests.support.cells.evidence import (
    ACKS,
    ACKS_0,
    ACKS_1,
    ACKS_ALL,
    CLUSTER,
    KILL,
    KILLED,
    SMOKE_FAULTS,
    evidence,
    failover,
    fault,
    findings,
    lost_in,
    of,
    plan,
    result,
    smoke_verdict,
    witnesses,
)
from tests.support.cells.partitions import table

IN_A_LOG_CELL = [anomaly for anomaly in TABLE if TABLE[anomaly].applies(["log"])]

# --- unknown --------------------------------------------------------------------------------------------------------


def test_without_ground_truth_an_acks_1_loss_is_unknown_and_an_acks_all_loss_is_not():
    made = plan(ACKS, steps=KILL)
    given = evidence(made, faults=KILLED, without=("metadata",))
    verdict = judge(made, findings(made, lost_in(ACKS_1) | lost_in(ACKS_ALL)), given)
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.UNKNOWN
    assert "the controllers' log says nothing about who led" in of(verdict, ACKS_1).reason
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.VIOLATED


def test_a_lag_limit_that_was_not_read_is_unknown_and_no_default():
    verdict = smoke_verdict(lost_in(ACKS_1), cluster={"kafka_version": "4.4.0"})
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.UNKNOWN


@pytest.mark.parametrize("effect", [None, Tristate.UNKNOWN, Tristate.NO])
def test_a_fault_without_proven_effect_makes_the_trial_unknown(effect):
    made = plan(ACKS, steps=KILL)
    given = evidence(made, metadata=failover(3), faults=fault(0, "kill", [1], 4.5, 8, effect=effect))
    verdict = judge(made, findings(made), given)
    assert verdict.verdict is Verdict.UNKNOWN
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.UNKNOWN
    assert verdict.faults[0].effective is (False if effect is Tristate.NO else None)
    assert verdict.sentence.startswith("Unknown: the kill of step 'kill the leader' ")
    assert len(verdict.unknown_reasons) == 1


def test_a_fault_that_never_struck_makes_the_trial_unknown():
    made = plan(ACKS, steps=KILL)
    verdict = judge(made, findings(made), evidence(made, metadata=failover(3)))
    assert verdict.verdict is Verdict.UNKNOWN
    assert verdict.unknown_reasons[0] == "the kill of step 'kill the leader' never struck"


def test_a_step_that_timed_out_makes_what_was_not_seen_unknown_and_leaves_what_was_seen():
    verdict = smoke_verdict(lost_in(ACKS_1), outcomes={0: StepOutcome.TIMED_OUT, 1: StepOutcome.SKIPPED})
    assert verdict.verdict is Verdict.UNKNOWN
    assert verdict.unknown_reasons == ("step 'freeze the followers' timed out",)
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.PERMITTED
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.UNKNOWN
    broken = smoke_verdict(lost_in(ACKS_ALL), outcomes={0: StepOutcome.TIMED_OUT, 1: StepOutcome.SKIPPED})
    assert broken.verdict is Verdict.VIOLATED


def test_a_cluster_that_was_not_whole_again_makes_what_was_not_seen_unknown_and_leaves_what_was_seen():
    lacking = (
        "waited 90 s for every replica to be in sync, on every broker's own view; last seen: no answer from broker 2"
    )
    verdict = smoke_verdict(lost_in(ACKS_1), not_whole=[lacking])
    assert verdict.verdict is Verdict.UNKNOWN
    assert verdict.unknown_reasons == (f"the cluster was not whole again after healing: {lacking}",)
    assert verdict.sentence.startswith("Unknown: the cluster was not whole again after healing: waited 90 s")
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.PERMITTED
    assert of(verdict, ACKS_ALL).outcome is AnomalyOutcome.UNKNOWN
    assert lacking in of(verdict, ACKS_ALL).reason
    broken = smoke_verdict(lost_in(ACKS_ALL), not_whole=[lacking])
    assert broken.verdict is Verdict.VIOLATED
    assert lacking in broken.unknown_reasons[0]


def test_a_stage_that_ran_into_a_limit_of_its_own_is_named_first_and_never_held():
    limits = ["the audit is incomplete after 90 s: partition 0: not read within the limit"]
    verdict = smoke_verdict(lost_in(ACKS_1), limits=limits)
    assert verdict.verdict is Verdict.UNKNOWN
    assert verdict.unknown_reasons[0] == limits[0]
    assert verdict.sentence.startswith(f"Unknown: {limits[0]}")
    assert of(verdict, ACKS_1).outcome is AnomalyOutcome.PERMITTED
    broken = smoke_verdict(lost_in(ACKS_ALL), limits=[*limits, "the drain is incomplete"])
    assert broken.verdict is Verdict.VIOLATED
    assert broken.sentence.startswith(f"Violated ({limits[0]} (and 1 more limit)): ")


def test_a_run_that_ended_early_is_unknown():
    verdict = smoke_verdict(lost_in(ACKS_1), steps_done=1)
    assert verdict.unknown_reasons == ("the run ended before step 'kill the leader'",)
    assert verdict.verdict is Verdict.UNKNOWN


def test_an_incomplete_audit_makes_a_loss_and_its_absence_unknown_but_not_a_duplicate():
    made = plan({"producer.enable_idempotence": [True]})
    found = {
        ("lost", 0): result(witnesses(3), incomplete="the sentinel was not acknowledged"),
        ("dirty-read", 0): result(make_witnesses(0, {}), incomplete="the sentinel was not acknowledged"),
        ("duplicate", 0): result(witnesses(3), incomplete="the sentinel was not acknowledged"),
    }
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(1)))
    assert of(verdict, 0, "lost").outcome is AnomalyOutcome.UNKNOWN
    assert of(verdict, 0, "lost").unknown == 3
    assert of(verdict, 0, "dirty-read").reason == "The sentinel was not acknowledged."
    assert of(verdict, 0, "duplicate").outcome is AnomalyOutcome.VIOLATED


@pytest.mark.parametrize(
    ("change", "anomalies", "text"),
    [
        ({"failures": {"lost": "MemoryError"}}, ["lost"], "Its check failed: MemoryError."),
        (
            {"incomplete": {"sends": "3 rows were torn"}},
            IN_A_LOG_CELL,
            "The history is incomplete: sends: 3 rows were torn.",
        ),
        ({"without": ("clients",)}, IN_A_LOG_CELL, "left no record of itself"),
        (
            {"dead_clients": {"reader-read_committed": "SIGSEGV"}},
            IN_A_LOG_CELL,
            "ended although nobody stopped it (SIGSEGV)",
        ),
    ],
)
def test_gaps_in_the_evidence_make_held_unknown(change, anomalies, text):
    made = plan({"producer.enable_idempotence": [True]})
    verdict = judge(made, findings(made), evidence(made, metadata=failover(1), **change))
    assert verdict.verdict is Verdict.UNKNOWN
    for anomaly in IN_A_LOG_CELL:
        outcome = of(verdict, 0, anomaly)
        assert (outcome.outcome is AnomalyOutcome.UNKNOWN) == (anomaly in anomalies), anomaly
        assert (text in outcome.reason) == (anomaly in anomalies), outcome.reason
    assert len(verdict.unknown_reasons) <= 2


def test_what_may_be_a_second_copy_is_unknown_where_no_record_may_be_out_of_order():
    made = plan({"producer.enable_idempotence": [True, False]})
    found = {("reordered", p): result(witnesses(1, partition=p, case=REORDERED_OR_COPY_CASE)) for p in (0, 1)}
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(2)))
    assert REORDERED_OR_COPY_CASE == REORDERED_OR_COPY
    assert of(verdict, 0, "reordered").outcome is AnomalyOutcome.UNKNOWN
    assert "may be a second copy" in of(verdict, 0, "reordered").reason
    assert of(verdict, 1, "reordered").outcome is AnomalyOutcome.PERMITTED


def test_a_check_without_result_is_unknown():
    made = plan({"producer.enable_idempotence": [True]})
    found = [f for f in findings(made) if f.anomaly != "phantom"]
    verdict = judge(made, found, evidence(made, metadata=failover(1)))
    assert of(verdict, 0, "phantom").reason == "Its check gave no result for partitions 0."
    assert verdict.verdict is Verdict.UNKNOWN


def test_nothing_judged_is_unknown_except_where_there_need_not_be_anything():
    made = plan({"producer.enable_idempotence": [True]})
    nothing = result(make_witnesses(0, {}), judged=0)
    found = {(anomaly, 0): nothing for anomaly in IN_A_LOG_CELL}
    verdict = judge(made, findings(made, found), evidence(made, metadata=failover(1)))
    for anomaly in IN_A_LOG_CELL:
        expected = AnomalyOutcome.UNKNOWN if TABLE[anomaly].nothing_is_unknown else AnomalyOutcome.NOT_JUDGED
        assert of(verdict, 0, anomaly).outcome is expected, anomaly
    assert of(verdict, 0, "lost").reason == "Nothing to judge: no record was acknowledged or read."
    assert verdict.verdict is Verdict.UNKNOWN


def test_witnesses_beyond_the_limit_are_unknown_unless_one_is_forbidden():
    found = {("lost", ACKS_1): result(witnesses(10, partition=ACKS_1), more=5)}
    overflow = of(smoke_verdict(found), ACKS_1)
    assert (overflow.outcome, overflow.count, overflow.unknown) == (AnomalyOutcome.UNKNOWN, 15, 5)
    assert "only the first 10 of them were kept" in overflow.reason
    found = {("lost", ACKS_ALL): result(witnesses(10, partition=ACKS_ALL), more=5)}
    assert of(smoke_verdict(found), ACKS_ALL).outcome is AnomalyOutcome.VIOLATED


# --- from the files of a run ----------------------------------------------------------------------------------------


def run_of(made: Plan, path) -> RunDirectory:
    run = RunDirectory(path)
    run.create()
    run.plan.write_text(made.model_dump_json(), encoding="utf-8")
    write_json(run.clock, {"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0, "wall_error_ns": 250_000})
    write_json(run.cluster, CLUSTER)
    write_json(run.path / "dead_clients.json", {"reader-read_committed": "killed by signal 11"})
    return run


def evidence_of(run: RunDirectory, made: Plan) -> Evidence:
    ensure_history(run)
    history = History.open(run)
    return Evidence.from_run(history, made, {name: history.table(name) for name in EVIDENCE_TABLES})


def test_evidence_is_read_from_the_files_of_a_run(tmp_path):
    made = plan(ACKS, steps=KILL)
    run = run_of(made, tmp_path)
    with Recorder(run) as recorder:
        recorder.write("steps", step=0, outcome=StepOutcome.TIMED_OUT, detail=recorder.code("detail", "waited 30 s"))
    given = evidence_of(run, made)
    assert given.clock_error_ns == 1_250_000
    assert given.setting_ms("replica.lag.time.max.ms") == 10_000
    assert given.setting_ms("producer.id.expiration.ms") is None
    assert given.incomplete == {}
    verdict = judge(made, findings(made), given)
    assert verdict.verdict is Verdict.UNKNOWN
    assert verdict.unknown_reasons[0] == "step 'kill the leader' timed out (waited 30 s)"
    assert any("ended although nobody stopped it (killed by signal 11)" in why for why in verdict.unknown_reasons)


def test_what_was_awaited_in_vain_of_a_cluster_is_read_from_the_files_of_its_run(tmp_path):
    made = plan(ACKS)
    run = run_of(made, tmp_path)
    assert evidence_of(run, made).not_whole == [], "nobody came so far"
    write_json(run.recovery, ["waited 90 s"])
    assert evidence_of(run, made).not_whole == ["waited 90 s"]
    write_json(run.recovery, {"waited": 90})
    with pytest.raises(HistoryUnreadable, match=r"recovery\.json holds no JSON list"):
        evidence_of(run, made)


def test_a_trial_whose_clock_never_started_is_unknown(tmp_path):
    made = plan(ACKS)
    run = run_of(made, tmp_path)
    run.clock.unlink()
    given = evidence_of(run, made)
    assert given.incomplete == {"clock.json": "the trial's clock never started"}
    assert judge(made, findings(made), given).verdict is Verdict.UNKNOWN


# --- doubt never helps ----------------------------------------------------------------------------------------------

DEGRADATIONS = {
    "no ground truth": {"without": ("metadata",)},
    "no clients": {"without": ("clients",)},
    "a torn table": {"incomplete": {"reads": "1 row was torn"}},
    "a cluster that did not come back": {"not_whole": ["waited 90 s for every ISR; last seen: no answer"]},
    "a stage that ran into its limit": {"limits": ["the audit is incomplete after 90 s: partition 0"]},
    "a step that timed out": {"outcomes": {0: StepOutcome.TIMED_OUT}},
    "the run ended early": {"steps_done": 1},
    "no settings": {"cluster": {}},
    "a failed check": {"failures": {"lost": "it crashed"}},
    "faults without proof": {"faults": [{**row, "effect": Tristate.UNKNOWN} for row in SMOKE_FAULTS]},
    "faults without effect": {"faults": [{**row, "effect": Tristate.NO} for row in SMOKE_FAULTS]},
    "no faults": {"faults": []},
    "a wide clock error": {"clock_error_ns": 10**9},
}


@pytest.mark.parametrize("degradation", list(DEGRADATIONS))
@settings(deadline=None, max_examples=10)
@given(
    lost=st.dictionaries(st.sampled_from([ACKS_0, ACKS_1, ACKS_ALL]), st.integers(1, 3)),
    seen_s=st.one_of(st.none(), st.just(4.5)),
    end_s=st.sampled_from([4.1, 9.0]),
)
def test_poorer_evidence_never_makes_a_trial_pass(degradation, lost, seen_s, end_s):
    found = {}
    for cell, count in lost.items():
        found |= lost_in(cell, count, end_s=end_s, **({} if seen_s is None else {"seen_s": seen_s}))
    whole, poor = smoke_verdict(found), smoke_verdict(found, **DEGRADATIONS[degradation])
    assert not (poor.verdict is Verdict.HELD and whole.verdict is not Verdict.HELD), (whole.sentence, poor.sentence)
    for before, after in zip(whole.cells, poor.cells, strict=True):
        for anomaly, outcome in after.anomalies.items():
            if outcome.outcome is AnomalyOutcome.HELD:
                assert before.anomalies[anomaly].verdict is Verdict.HELD, (before.name, anomaly)


def test_a_share_group_that_was_given_nothing_has_shown_nothing():
    document = {"name": "test", "title": "test", "workload": "verifiable-share", "axes": {"producer.acks": ["all"]}}
    made = make_plan(parse_trial(document, source="test"), seed=1)
    sharers = [c.client for c in made.clients if c.role == "verifiable-share-consumer"]

    def doubts(*issued: int) -> tuple[str, ...]:
        given = dict(zip(sharers, issued, strict=True))
        rows = [
            {"client": c.client, "exit_code": 0, "complete": 1, "issued": given.get(c.client, 0)} for c in made.clients
        ]
        return cell_doubts(made, made.cells[0], replace(evidence(made), clients=table("clients", rows)))

    assert doubts(0, 7) == ()
    assert doubts(0, 0) == ("no member of the share group prozess-share-cell-000 got a record",)


def test_of_a_program_that_consumes_nobody_knows_whether_it_sought():
    document = {
        "name": "test",
        "title": "test",
        "workload": "verifiable",
        "topics": {"partitions": 1, "placement": [[1, 2, 3]]},
        "base": {"consumer.command": ["mine"]},
    }
    made = make_plan(parse_trial(document, source="test"), seed=1)
    program = next(c.client for c in made.clients if c.role == "verifiable-consumer")
    reader = next(c.client for c in made.clients if c.role == "reader")
    later = 99
    rows = [
        {"client": c.client, "planned": c.client, "exit_code": 0, "complete": 1, "issued": 5} for c in made.clients
    ] + [{"client": later, "planned": program, "exit_code": 0, "complete": 1, "issued": 5}]

    def outcome(anomaly: str, *readers: int) -> CellAnomaly:
        found = {(anomaly, 0): result(witnesses(len(readers), reader=np.array(readers)))} if readers else {}
        seen = replace(evidence(made, metadata=failover(1)), clients=table("clients", rows))
        return of(judge(made, findings(made, found), seen), 0, anomaly)

    for anomaly in ("skipped", "rewound"):
        assert outcome(anomaly).outcome is AnomalyOutcome.HELD
        assert outcome(anomaly, program).outcome is AnomalyOutcome.UNKNOWN
        assert outcome(anomaly, later).outcome is AnomalyOutcome.UNKNOWN, "the program that took its place"
        assert outcome(anomaly, reader).outcome is AnomalyOutcome.VIOLATED
        assert outcome(anomaly, reader, program).outcome is AnomalyOutcome.VIOLATED
    assert outcome("dirty-read", program).outcome is AnomalyOutcome.VIOLATED, "wherever it went, the record was there"
    rows = [row | {"issued": 0} if row["planned"] == program else row for row in rows]
    told = cell_doubts(made, made.cells[0], replace(evidence(made), clients=table("clients", rows)))
    assert told == ("consumer-test, a program of yours, reported no record that it read",)
