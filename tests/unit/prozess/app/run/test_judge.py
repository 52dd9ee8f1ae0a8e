"""What an application did decides the verdict on its test, beside Kafka's promises."""

import pytest

from prozess.app.run.judge import read_application, with_application
from prozess.harness.columns import empty_rows
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.guarantees.evidence.envelope import batches_by_partition, older_epoch_from
from prozess.harness.guarantees.evidence.trial import EPOCH_COLUMNS, REPLICA_COLUMNS
from prozess.harness.guarantees.verdict.doubts import with_doubts
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, TABLES
from prozess.harness.verdict import AnomalyOutcome, TrialVerdict, Verdict
from prozess.testing.expectations import ApplicationFinding, Unjudged, application_verdict

HAZARD = ApplicationFinding("commit-first", "orders", 2, "It commits first.", fails=False)
MISSING = ApplicationFinding("missing-output", "orders → bills", 3, "Three are missing.")
UNSURE = ApplicationFinding("repeated", "orders", 0, "cannot be judged: f raised KeyError", unknown=True)
GAP = Unjudged(("unprocessed",), "orders", "another thread commits", "use processing")


def of_kafka(verdict):
    return TrialVerdict(verdict=verdict, sentence="Held: all.", trial="t", title="T", seed=0, cells=())


def judged(*found, gaps=(), forbid=(), kafka=Verdict.HELD):
    return with_application(of_kafka(kafka), application_verdict(found, gaps, forbid))


@pytest.mark.parametrize(
    ("found", "more", "verdict"),
    [
        ((), {}, Verdict.HELD),
        ((HAZARD,), {}, Verdict.HELD),
        ((HAZARD,), {"forbid": ("commit-first",)}, Verdict.VIOLATED),
        ((MISSING,), {}, Verdict.VIOLATED),
        ((MISSING, UNSURE), {}, Verdict.VIOLATED),
        ((UNSURE,), {}, Verdict.UNKNOWN),
        ((UNSURE,), {"kafka": Verdict.VIOLATED}, Verdict.VIOLATED),
        ((HAZARD,), {"kafka": Verdict.UNKNOWN}, Verdict.UNKNOWN),
        ((), {"gaps": (GAP,)}, Verdict.HELD),
        ((), {"gaps": (GAP,), "forbid": ("unprocessed",)}, Verdict.UNKNOWN),
    ],
)
def test_the_worst_of_kafka_and_the_application_is_the_verdict_and_kafkas_own_stays_known(found, more, verdict):
    whole = judged(*found, **more)
    assert whole.verdict is verdict
    assert whole.of_kafka is more.get("kafka", Verdict.HELD)
    assert bool(whole.unknown_reasons) == (UNSURE in found or (bool(more.get("gaps")) and "forbid" in more))


def test_the_sentence_says_what_the_application_did_and_never_only_that_all_held():
    assert judged(MISSING).sentence == (
        "Violated by the application: missing-output 3 in orders → bills. Kafka's own promises: held: all."
    )
    assert judged(HAZARD).sentence == (
        "Held: all. Of the application: commit-first 2 in orders; this is a hazard, and the test does not forbid it."
    )
    assert judged(UNSURE).sentence.startswith("Unknown: repeated in orders cannot be judged: f raised KeyError. ")
    assert judged(gaps=(GAP,)).sentence == "Held: all."


def test_counts_are_among_the_findings_and_a_known_defect_of_others_excuses_no_application():
    assert judged(MISSING, HAZARD).findings == {"missing-output": 3, "commit-first": 2}
    assert not judged(MISSING).by_known_defects


def test_by_files_that_nothing_proves_the_application_is_neither_right_nor_wrong():
    whole = with_doubts(judged(MISSING), ["the evidence is damaged"])
    assert whole.verdict is Verdict.UNKNOWN
    assert [one.outcome for one in whole.application.anomalies] == [AnomalyOutcome.UNKNOWN]


def test_what_a_test_wrote_is_read_again_and_what_it_did_not_write_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    found = application_verdict([MISSING], [GAP], ())
    run.application.write_text(found.model_dump_json())
    assert read_application(run) == found
    run.application.write_text('{"anomalies": 3}')
    with pytest.raises(HistoryUnreadable, match="Run the test again"):
        read_application(run)


def test_of_copies_everything_is_read_that_judging_looks_at():
    empty = empty_rows(TABLES["replicas"])
    assert batches_by_partition({name: empty[name] for name in REPLICA_COLUMNS}) == {}
    assert older_epoch_from({name: empty[name] for name in EPOCH_COLUMNS}, 0, {0: 0}) == NONE
