"""Results of a matrix: what they say together, and beside those of another."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from prozess.app.run_tables import opened_tables
from prozess.campaigns.campaign_plan import CampaignDirectory
from prozess.campaigns.matrix_query import gather_results, read_results
from prozess.campaigns.matrix_results import CellTally, MatrixTrialLine, compare, overall, sentence, write_page
from prozess.harness.errors import BadInput
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, ControlResult, TrialVerdict, Verdict
from tests.support.campaigns import a_campaign, begun_in, store


def anomaly(name, outcome, count=0, **more):
    of = {"violated": "forbidden", "permitted": "permitted", "unknown": "unknown"}.get(outcome)
    verdict = {"violated": Verdict.VIOLATED, "unknown": Verdict.UNKNOWN}.get(outcome, Verdict.HELD)
    counts = {"count": count} | ({of: count} if of else {})
    return CellAnomaly(anomaly=name, outcome=AnomalyOutcome(outcome), verdict=verdict, **counts, **more)


def verdict(cells, *, fired=()):
    """`cells`: acks → its anomalies."""
    made = [
        CellVerdict(
            cell=number,
            name=f"acks_{acks}",
            workload="log",
            axes={"workload": "log", "producer.acks": acks, "topic.replication_factor": "3"},
            verdict=Verdict.HELD,
            anomalies={a.anomaly: a for a in anomalies},
        )
        for number, (acks, anomalies) in enumerate(cells.items())
    ]
    controls = [ControlResult(anomaly="lost", cells=(0,), fired_in=fired, count=len(fired), required=False)]
    worst = Verdict.VIOLATED if any(a.forbidden for c in made for a in c.anomalies.values()) else Verdict.HELD
    return TrialVerdict(
        verdict=worst, sentence="So it is.", trial="t", title="t", seed=1, cells=tuple(made), controls=tuple(controls)
    )


def line(number, schedule="kill", **more):
    return MatrixTrialLine(
        number=number, row={"schedule": schedule}, seed=1, part=0, parts=1, run=f"run-{number}", **more
    )


def results(*verdicts):
    lines = [
        line(
            n,
            schedule=f"s{n}",
            verdict=v.verdict,
            cells=len(v.cells),
            controls_fired=("lost",) if v.controls[0].fired else (),
            controls_silent=() if v.controls[0].fired else ("lost",),
        )
        for n, v in enumerate(verdicts)
    ]
    return gathered(lines, dict(enumerate(verdicts)))


def gathered(lines, verdicts):
    """The results of trials with these verdicts, read from the directories of their runs."""
    with TemporaryDirectory() as folder:
        for number, told in verdicts.items():
            store(Path(folder) / f"run-{number}", told)
        with opened_tables([folder]) as read:
            names = read("runs", ["name", "run"]).to_pylist()
            ids = {int(of["name"].removeprefix("run-")): of["run"] for of in names}
            return gather_results("m", "M", lines, ids, read)


GOOD = {"1": [anomaly("lost", "permitted", 7)], "all": [anomaly("lost", "held", proven=True)]}
CALM = {"1": [anomaly("lost", "possible, not seen")], "all": [anomaly("lost", "held")]}
BAD = {"1": [anomaly("lost", "permitted", 5)], "all": [anomaly("lost", "violated", 3, reason="Gone.")]}


def test_outcomes_are_counted_by_guarantee_by_setting_and_by_configuration():
    told = results(verdict(GOOD, fired=(0,)), verdict(CALM))
    assert told.guarantees["lost"] == CellTally(held=2, proven=1, permitted=1, possible=1, witnesses_permitted=7)
    assert told.settings["producer.acks"]["1"]["lost"] == CellTally(permitted=1, possible=1, witnesses_permitted=7)
    assert told.settings["producer.acks"]["all"]["lost"] == CellTally(held=2, proven=1)
    assert told.settings["schedule"]["s1"]["lost"] == CellTally(held=1, possible=1)
    assert "topic.replication_factor" not in told.settings
    assert [c.key for c in told.configurations] == ["log producer.acks=1", "log producer.acks=all"]
    assert told.configurations[0].runs == {"lost": "run-0"}
    assert told.problems == ()
    assert told.exit_code == 0


def test_a_violation_is_named_with_its_run_and_decides_the_exit_code():
    told = results(verdict(GOOD, fired=(0,)), verdict(BAD))
    assert [(p.anomaly, p.count, p.run, p.reason) for p in told.problems] == [("lost", 3, "run-1", "Gone.")]
    assert told.configurations[1].tallies["lost"].worst is AnomalyOutcome.VIOLATED
    assert told.configurations[1].runs == {"lost": "run-1"}
    assert told.exit_code == 1


def test_what_is_unknown_is_told_once_per_reason_and_trial():
    dark = [anomaly("lost", "unknown", reason="Dark."), anomaly("unclean", "unknown", 2, reason="Dark.")]
    told = results(verdict({"1": dark, "all": [*dark, anomaly("late", "unknown", reason="Darker.")]}))
    assert [(p.cells, p.anomaly, p.count, p.reason) for p in told.problems] == [
        (1, "late", 0, "Darker."),
        (2, "lost, unclean", 4, "Dark."),
    ]
    assert told.guarantees["lost"].worst is AnomalyOutcome.UNKNOWN


def test_a_regression_is_what_was_held_and_is_violated_now_and_a_control_that_is_silent():
    difference = compare(results(verdict(GOOD, fired=(0,))), results(verdict(BAD)))
    assert [(c.what, c.anomaly, c.before, c.after) for c in difference.regressions] == [
        ("log producer.acks=all", "lost", "held", "violated in 1 cell, 3 records"),
        ("control of trial 0, s0", "lost", "fired", "silent"),
    ]


def test_what_is_judged_no_more_is_a_regression_and_so_is_a_trial_without_a_verdict():
    before = results(verdict(GOOD), verdict(GOOD))
    fewer = gathered([before.trials[0], line(1, schedule="s1")], {0: verdict({"1": GOOD["1"], "all": []})})
    assert [(c.what, c.anomaly, c.before, c.after) for c in compare(before, fewer).regressions] == [
        ("log producer.acks=all", "lost", "held", "not judged"),
        ("trial s1", "", "held", "no verdict"),
    ]


def test_losses_that_are_permitted_come_and_go_without_being_a_regression():
    difference = compare(results(verdict(GOOD, fired=(0,))), results(verdict(CALM, fired=(0,))))
    assert difference.regressions == ()
    assert [(c.before, c.after) for c in difference.changes] == [
        ("permitted in 1 cell, 7 records", "possible, not seen")
    ]


def test_a_result_compared_with_itself_has_no_changes():
    same = results(verdict(GOOD, fired=(0,)), verdict(BAD))
    difference = compare(same, same)
    assert (difference.regressions, difference.changes, difference.improvements) == ((), (), ())


def test_a_sentence_names_known_defects_where_nothing_else_broke_a_promise():
    label = "librdkafka#4953"
    known = anomaly("duplicate", "violated", 3, defects=(f"{label}, open in 2.16.0",), known={label: 3})
    partly = known.model_copy(update={"known": {label: 2}})
    assert "known:" not in sentence(results(verdict({"all": [partly], "1": [partly]})))
    assert "duplicate in 2 cells (known: librdkafka#4953)." in sentence(
        results(verdict({"all": [known], "1": [known]}))
    )
    other = anomaly("duplicate", "violated", 3)
    assert "duplicate in 2 cells." in sentence(results(verdict({"all": [known], "1": [other]})))


def test_a_sentence_says_what_came_of_all_trials_and_what_was_violated_in_how_many_cells():
    broken = verdict({"all": [anomaly("duplicate", "violated", 3), anomaly("lost", "unknown")], "1": []})
    told = results(broken, verdict({"1": [anomaly("lost", "permitted", 5)]}))
    assert overall(told) is Verdict.VIOLATED
    assert sentence(told) == ("1 of 2 trials held, 1 violated. Violated: duplicate in 1 cell. Unknown in up to 1 cell.")
    held = results(verdict({"1": [anomaly("lost", "permitted", 5)]}))
    assert overall(held) is Verdict.HELD
    assert sentence(held) == "1 of 1 trial held."


def test_the_page_tells_violations_losses_and_links_the_reports(tmp_path):
    (tmp_path / "runs" / "run-1").mkdir(parents=True)
    (tmp_path / "runs" / "run-1" / "report.html").touch()
    told = results(verdict(GOOD, fired=(0,)), verdict(BAD))
    data, page = write_page(tmp_path, told)
    text = page.read_text(encoding="utf-8")
    assert 'href="runs/run-1/report.html"' in text
    assert "runs/run-0/report.html" not in text
    assert "✗ 1: 3" in text
    assert "Gone." in text
    assert json.loads(data.read_text(encoding="utf-8"))["guarantees"]["lost"]["violated"] == 1
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "holds no results of a matrix: there is no matrix.json in it"),
        ('{"name": "mat', "matrix.json cannot be read"),
        ('{"format_version": 99}', "has version 99"),
    ],
)
def test_half_written_results_are_refused_in_a_sentence(tmp_path, content, words):
    if content is not None:
        (tmp_path / "matrix.json").write_text(content)
    with pytest.raises(BadInput) as error:
        read_results(CampaignDirectory(tmp_path))
    assert words in str(error.value)


def test_a_run_whose_verdict_is_torn_counts_as_one_without_a_verdict(tmp_path):
    begun_in(tmp_path, a_campaign("m"))
    row = {"number": 0, "row": {"schedule": "calm"}, "seed": 1, "part": 0, "parts": 1}
    said = {"format_version": 1, "name": "m", "title": "M", "values": {}, "trials": [row], "document": {}}
    (tmp_path / "matrix.json").write_text(json.dumps(said))
    drawn = {"number": 0, "trial": "p.json", "seed": 1}
    attempt = {"job": drawn, "exit_code": 0, "verdict": "held", "run": "r", "began_s": 0, "took_s": 1}
    (tmp_path / "entries.jsonl").write_text(json.dumps(attempt) + "\n")
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "verdict.json").write_text('{"verdict": "he')
    told = read_results(CampaignDirectory(tmp_path))
    assert told.trials[0].verdict is None
    assert "cannot be read" in told.notes[0]
    assert told.exit_code == 2
