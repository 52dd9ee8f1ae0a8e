"""Words that the report, the terminal and the summary share."""

import pytest

from prozess.harness.impact.cost import FaultImpact, PhaseShown, RecoveryShown
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.report.tables import rows_of_fault
from prozess.harness.report.words import (
    SIGNS,
    cells_line,
    css_class,
    fault_name,
    found_line,
    seen_groups,
    tallies,
    verdict_words,
)
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, FaultShown, TrialVerdict, Verdict


def step(name, **parameters):
    return Step(
        name=name, at_s=1, do=FaultAction(kind="fault", fault="message", targets=("leader(0)",), parameters=parameters)
    )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, "message broker-1"),
        ({"match": {"api": "Produce"}, "action": {"do": "hold"}}, "hold Produce at broker-1"),
        ({"match": {"api": "Fetch", "direction": "answer"}, "action": {"do": "lose"}}, "lose Fetch answer at broker-1"),
        ({"match": {}, "action": {"do": "lose"}}, "lose any message at broker-1"),
        (
            {"match": {"method": "org.apache.kafka.FileRecords#append"}, "action": {"do": "throw"}},
            "throw in FileRecords#append at broker-1",
        ),
    ],
)
def test_a_fault_of_single_messages_is_named_by_what_it_did_to_which(parameters, expected):
    shown = FaultShown(step="late", fault="message", nodes=("broker-1",), begin_s=1, end_s=2, effective=True)
    assert fault_name(shown, [step("late", **parameters)]) == expected


def anomaly(name, outcome, **counts):
    verdict = Verdict.VIOLATED if outcome is AnomalyOutcome.VIOLATED else Verdict.HELD
    return CellAnomaly(anomaly=name, outcome=outcome, verdict=verdict, count=sum(counts.values()), **counts)


def verdict_of(*anomalies, cells=2):
    judged = {one.anomaly: one for one in anomalies}
    cell = CellVerdict(cell=0, name="c", workload="log", axes={}, verdict=Verdict.VIOLATED, anomalies=judged)
    findings = {name: cells * one.count for name, one in judged.items()}
    return TrialVerdict(
        verdict=Verdict.VIOLATED, sentence="", trial="t", title="", seed=1, cells=(cell,) * cells, findings=findings
    )


def test_what_no_promise_is_about_is_in_no_count_and_the_line_of_findings_says_how_much_that_is():
    verdict = verdict_of(anomaly("lost", AnomalyOutcome.VIOLATED, forbidden=5, not_applicable=2))
    assert [group.times for group in seen_groups(verdict)] == ["10"]
    assert tallies(verdict)["lost"].seen == 10
    assert found_line(verdict) == (
        "lost 14 (4 of these not judged, because somebody read a later offset, and no consumer is known to have read before "
        "the record and past it, or to have begun at the beginning)"
    )


def test_where_only_a_part_is_forbidden_both_numbers_are_named():
    verdict = verdict_of(anomaly("lost", AnomalyOutcome.VIOLATED, forbidden=5, permitted=3))
    assert [group.times for group in seen_groups(verdict)] == ["10 of 16 seen"]
    assert found_line(verdict) == "lost 16"


@pytest.mark.parametrize(
    ("acks", "line"),
    [
        (["0"] * 8 + ["1"] * 8 + ["all"] * 12, "28 = 8 with acks=0 + 8 with acks=1 + 12 with acks=all"),
        (["all"] * 3, "3"),
        (["1", None], "2"),
    ],
)
def test_the_number_of_cells_is_made_up_of_those_of_each_acks_where_acks_differ(acks, line):
    (cell, *_) = verdict_of(cells=1).cells
    axes = [{} if value is None else {"producer.acks": value} for value in acks]
    assert cells_line([cell.model_copy(update={"axes": each}) for each in axes]) == line


def test_a_cell_has_the_word_of_the_worst_that_its_settings_permit():
    lost, kept = (
        verdict_of(anomaly("lost", outcome)).cells[0] for outcome in (AnomalyOutcome.PERMITTED, AnomalyOutcome.POSSIBLE)
    )
    assert verdict_words(Verdict.HELD, [lost, kept]) == (SIGNS[AnomalyOutcome.PERMITTED], "permitted", "permitted")
    assert verdict_words(Verdict.HELD, [kept]) == ("✓", "held", "held")
    assert verdict_words(Verdict.VIOLATED, [lost]) == ("✗", "violated", "violated")


@pytest.mark.parametrize("outcome", AnomalyOutcome)
def test_the_class_of_an_outcome_is_one_word_of_the_styles(outcome):
    assert css_class(outcome).replace("-", "").isalpha()


def test_guarantees_are_listed_by_outcome_and_then_by_harm():
    verdict = verdict_of(
        anomaly("late", AnomalyOutcome.VIOLATED, forbidden=9),
        anomaly("torn", AnomalyOutcome.HELD),
        anomaly("invisible", AnomalyOutcome.NOT_JUDGED),
        anomaly("lost", AnomalyOutcome.VIOLATED, forbidden=1),
        anomaly("duplicate", AnomalyOutcome.PERMITTED, permitted=4),
    )
    found = tallies(verdict)
    assert list(found) == ["lost", "late", "duplicate", "invisible", "torn"]
    assert [name for name, tally in found.items() if tally.unjudged] == ["invisible"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (RecoveryShown(partitions=1, median_ms=4191, slowest_ms=4191), "4,191"),
        (
            RecoveryShown(partitions=2, median_ms=3902, slowest_ms=4191, never=1),
            "3,902 (slowest 4,191); 1 partition: none",
        ),
        (RecoveryShown(never=13), "13 partitions: none"),
        (RecoveryShown(), "–"),
    ],
)
def test_a_recovery_is_the_median_and_the_slowest_partition(shown, expected):
    fault = FaultImpact.model_construct(
        name="kill", reaction=None, windows=0, open_windows=0, longest_s=None, after_fault=shown, after_heal=shown,
        phases=(PhaseShown.model_construct(phase="before", acks="1", per_s=None, p50_ms=None, p99_ms=None),),
    )  # fmt: skip
    (row,) = rows_of_fault(fault)
    assert row[-2:] == (expected, expected)
