"""Campaigns: what is drawn, what is noted, and what the index reports it."""

import html
import json
import re
import resource
import shlex
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess import command
from prozess.campaigns.campaign_index import facts_of, overview_of, write_index
from prozess.campaigns.campaign_plan import (
    Campaign,
    CampaignDirectory,
    Entry,
    combinations,
    draw,
    load_campaign,
    next_number,
    parse_campaign,
    trials_in_all,
)
from prozess.campaigns.campaign_runner import CampaignRequest, campaign, exit_code, find_campaign, progress, summary
from prozess.campaigns.engine import TrialAttempt, TrialJob
from prozess.harness.clock import parse_duration
from prozess.harness.errors import BadInput, StorageFull
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_campaigns, load_trial
from tests.support.campaigns import a_campaign, a_campaign_of_every_kind, anomaly, attempt, begun_in, judged, store

# --- what is drawn


@given(st.integers(0, 2**31), st.integers(0, 500))
def test_the_same_campaign_and_seed_draw_the_same_trials(seed, number):
    found = Campaign(
        name="c", title="", entries=(Entry(trial="a"), Entry(trial="b", weight=3, set={"x": (1, 2), "y": ("p", "q")}))
    )
    one = draw(found, seed, number)
    assert one == draw(found, seed, number)
    assert set(one.settings) == ({"x", "y"} if one.trial == "b" else set())


def test_a_value_is_laid_over_a_trial_as_what_it_is_in_the_campaigns_file(tmp_path):
    (tmp_path / "c.toml").write_text(
        'name = "c"\ntitle = ""\n[[entries]]\ntrial = "smoke"\n'
        'set = { "variant.brokers" = [5], settle_s = [1.0], "variant.kafka_version" = [\'4.4.0\'], x = [true] }\n'
    )
    drawn = draw(load_campaign(tmp_path / "c.toml"), 1, 0)
    for settings in (drawn.settings, TrialJob.model_validate_json(drawn.model_dump_json()).settings):
        assert settings == {"variant.brokers": 5, "settle_s": 1.0, "variant.kafka_version": "4.4.0", "x": True}
        assert [type(settings[key]) for key in sorted(settings)] == [float, int, str, bool]


@given(st.integers(0, 2**31), st.integers(1, 8))
def test_the_first_round_has_every_trial_once(seed, size):
    found = a_campaign(*(f"t{i}" for i in range(size)))
    assert {draw(found, seed, number).trial for number in range(size)} == {f"t{i}" for i in range(size)}


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_in_rounds_every_combination_is_run_once_a_round_each_time_with_another_seed(seed, rounds):
    entries = (Entry(trial="a"), Entry(trial="b", set={"x": ("1", "2"), "y": ("p", "q", "r")}))
    found = Campaign(name="c", title="", entries=entries, rounds=rounds)
    drawn = [draw(found, seed, number) for number in range(trials_in_all(found))]
    assert len(drawn) == 7 * rounds
    for first in range(0, len(drawn), 7):
        each = {(d.trial, *d.settings.values()) for d in drawn[first : first + 7]}
        assert each == {("a",), *(("b", x, y) for x in "12" for y in "pqr")}
    assert len({d.seed for d in drawn}) == len(drawn)


def test_weights_are_heeded_after_the_first_round():
    found = Campaign(name="c", title="", entries=(Entry(trial="rare", weight=0.01), Entry(trial="often", weight=10)))
    drawn = [draw(found, 1, number).trial for number in range(2, 300)]
    assert drawn.count("often") > 250


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("8h", 28_800), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_durations_are_written_with_their_unit(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["8", "", "h", "8 hours", "-1h"])
def test_a_duration_without_a_unit_is_refused(text):
    with pytest.raises(BadInput, match="--for"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"entries": []}, "entries"),
        ({"entries": [{"trial": "a", "set": {"x": []}}]}, "set.x"),
        ({"format_version": 99}, "version 99"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_bad_campaign_file_is_refused_by_name(change, what):
    document = {"name": "c", "title": "", "entries": [{"trial": "a"}]} | change
    with pytest.raises(BadInput, match=what):
        parse_campaign(document, source="c.toml")


@pytest.mark.parametrize("name", known_campaigns())
def test_every_trial_of_the_campaigns_that_come_with_prozess_can_be_planned(name):
    found = find_campaign(name)
    assert found.name == name
    for entry in found.entries:
        for settings in combinations(entry):
            assert make_plan(load_trial(entry.trial, settings), seed=1).cells


def test_a_campaign_with_a_trial_that_cannot_be_planned_is_refused_before_the_first_one_begins(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(
        'name = "c"\ntitle = "t"\n[[entries]]\ntrial = "smoke"\n[[entries]]\ntrial = "share-groups"\n'
        'set = { "variant.kafka_version" = ["4.4.0", "4.0.2"] }\n'
    )
    with pytest.raises(BadInput, match="has no valid share cell"):
        campaign(CampaignRequest(str(path), rounds=1, runs=str(tmp_path / "runs")))
    assert not (tmp_path / "runs").exists()


def test_a_trial_is_a_campaign_of_itself_and_an_unknown_name_is_refused(tmp_path):
    assert [entry.trial for entry in find_campaign("smoke").entries] == ["smoke"]
    with pytest.raises(BadInput, match="nihgtly"):
        find_campaign("nihgtly")
    with pytest.raises(BadInput, match="does not exist"):
        load_campaign(tmp_path / "none.toml")


# --- what is noted


def test_attempts_are_read_back_and_a_torn_last_line_is_none(tmp_path):
    directory = begun_in(tmp_path, a_campaign("t"))
    directory.append(attempt(0))
    with (tmp_path / "entries.jsonl").open("ab") as file:
        file.write(b'{"job": {"num')
    assert len(directory.attempts()) == 1
    directory.append(attempt(1))
    assert [a.job.number for a in directory.attempts()] == [0, 1]


def test_an_attempt_that_does_not_fit_on_the_disk_is_refused_and_the_next_one_is_noted_whole(tmp_path):
    directory = begun_in(tmp_path, a_campaign("t"))
    directory.append(attempt(0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "entries.jsonl").stat().st_size + 100, hard))
    try:
        with pytest.raises(StorageFull, match="File too large"):
            directory.append(attempt(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert [a.job.number for a in directory.attempts()] == [0]
    directory.append(attempt(1))
    assert [a.job.number for a in directory.attempts()] == [0, 1]


def test_a_damaged_entry_and_a_campaign_of_another_version_are_refused(tmp_path):
    directory = begun_in(tmp_path, a_campaign("t"))
    (tmp_path / "entries.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match="damaged"):
        directory.attempts()
    document = json.loads((tmp_path / "campaign.json").read_text()) | {"format_version": 7}
    (tmp_path / "campaign.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match="version 7"):
        directory.begun()
    with pytest.raises(BadInput, match="holds no campaign"):
        CampaignDirectory(tmp_path / "elsewhere").begun()


def test_only_what_the_machinery_failed_is_tried_again():
    assert next_number([], 1) == (0, 0)
    assert next_number([attempt(0, verdict=None)], 1) == (0, 1)
    twice = [attempt(0, verdict=None), attempt(0, verdict=None, attempts=1)]
    assert next_number(twice, 1) == (1, 0)
    assert next_number(twice, 1, count=1) is None
    for verdict in ("held", "violated", "unknown"):
        assert next_number([attempt(0, verdict=verdict)], 1) == (1, 0)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["held", "held"], ExitCode.HELD),
        (["held", "violated", "unknown"], ExitCode.VIOLATED),
        (["held", "unknown"], ExitCode.UNKNOWN),
        (["held", None], ExitCode.UNKNOWN),
        ([], ExitCode.UNKNOWN),
    ],
)
def test_unknown_and_no_verdict_never_pass(verdicts, code):
    assert exit_code([attempt(number, verdict=verdict) for number, verdict in enumerate(verdicts)]) is code


def test_a_trial_that_was_tried_again_with_success_counts_as_what_it_was_then():
    attempts = [attempt(0, verdict=None), attempt(0, attempts=1)]
    assert exit_code(attempts) is ExitCode.HELD
    assert summary(attempts) == "1 held, 1 without a verdict, because prozess failed"
    overview = overview_of(CampaignDirectory(Path("nowhere")), attempts)
    assert (overview.verdict, overview.failed, overview.left_without) == ("held", 1, 0)
    assert overview.concerns == []


# --- what the index says


@pytest.fixture
def reasons_of(tmp_path):
    """Why a run of this verdict did not hold, as the index of its campaign says."""
    numbers = count()

    def said(verdict):
        run = tmp_path / f"run-{next(numbers)}"
        store(run, verdict)
        return facts_of(run).why

    return said


def test_what_was_violated_is_said_once_for_all_cells_with_its_reason_and_what_is_known(reasons_of):
    lost = [anomaly("lost", "violated", "They are gone.", forbidden=n, defects=("KAFKA-1",)) for n in (1, 2, 3)]
    said = list(reasons_of(judged("violated", *([one] for one in lost), [anomaly("stalled", "unknown", "Slow.")])))
    assert said == ["lost 6 in cell-0, cell-1 and 1 more: They are gone. Known: KAFKA-1."]
    told = [anomaly("lost", "violated", "Gone by KAFKA-1.", forbidden=1, defects=("KAFKA-1",))]
    assert list(reasons_of(judged("violated", told))) == ["lost 1 in cell-0: Gone by KAFKA-1."], "not twice"


def test_what_is_unknown_is_said_by_reason_and_not_twice(reasons_of):
    cell = [anomaly(name, "unknown", "Step 'cut' failed.") for name in ("lost", "duplicate", "reordered")]
    reasons = ("step 'cut' failed", "the kill of step 'x' never struck")
    said = list(reasons_of(judged("unknown", cell, reasons=reasons)))
    assert said == ["3 anomalies in cell-0: Step 'cut' failed.", "The kill of step 'x' never struck."]
    assert list(reasons_of(judged("held", []))) == []


def test_the_index_tells_verdicts_by_trial_and_variant_what_was_violated_and_what_was_tried_again(tmp_path):
    directory = a_campaign_of_every_kind(tmp_path / "campaign")
    overview = overview_of(directory, directory.attempts())
    assert overview.variants == ("local, kraft-isolated, 4.4.0", "not begun")
    assert {
        t: {v: p.verdict for v, p in runs_by_variant.items()} for t, runs_by_variant in overview.runs_by_variant.items()
    } == {
        "bad": {"local, kraft-isolated, 4.4.0": "violated"},
        "broken": {"not begun": None},
        "good": {"local, kraft-isolated, 4.4.0": "held"},
    }
    assert [line.attempt.job.trial for line in overview.concerns] == ["bad", "broken"]
    assert (overview.failed, overview.left_without, overview.verdict) == (2, 1, "violated")
    assert overview.by_defects == 0
    assert all(line.bytes >= 2**20 for line in overview.lines if line.attempt.run)
    page = write_index(directory, directory.begun(), directory.attempts()).read_text()
    for said in (
        "lost 3 in cell-0: They are &lt;gone&gt;.",
        "exit 255: no cluster today",
        'href="runs/bad/report.html"',
    ):
        assert said in page, said


def test_the_command_that_runs_a_trial_again_is_right_wherever_one_stands(tmp_path, monkeypatch):
    a_campaign_of_every_kind(tmp_path / "my campaigns" / "night")
    monkeypatch.chdir(tmp_path / "my campaigns")
    directory = CampaignDirectory(Path("night"))
    page = html.unescape(write_index(directory, directory.begun(), directory.attempts()).read_text())
    (command,) = re.findall("again: <code>(.*?)</code>", page)
    prozess, replay, run = shlex.split(command)
    assert (prozess, replay, Path(run)) == ("prozess", "replay", tmp_path / "my campaigns" / "night" / "runs" / "bad")
    (directory.runs / "bad" / "plan.json").unlink()
    facts_of.cache_clear()
    assert "again: <code>" not in write_index(directory, directory.begun(), directory.attempts()).read_text()


def test_the_index_is_written_again_by_report_and_of_another_version_is_refused(tmp_path, capsys, monkeypatch):
    directory = a_campaign_of_every_kind(tmp_path / "campaign")
    monkeypatch.setattr(sys, "argv", ["prozess", "report", str(directory.path)])
    assert command.run() == ExitCode.HELD
    assert capsys.readouterr().out.strip() == str(directory.index)
    document = json.loads((directory.path / "campaign.json").read_text()) | {"format_version": 7}
    (directory.path / "campaign.json").write_text(json.dumps(document))
    assert command.run() == ExitCode.BAD_INPUT
    assert "version 7" in capsys.readouterr().err


def test_a_run_that_known_defects_alone_have_violated_is_told_from_others(tmp_path):
    known, other = (
        anomaly(n, "violated", "", forbidden=1, defects=tuple(d), known=d)
        for n, d in (("lost", {"K-1": 1}), ("duplicate", {}))
    )
    for name, cells, alone in (("a", [[known]], True), ("b", [[known], [other]], False)):
        store(tmp_path / name, judged("violated", *cells))
        assert facts_of(tmp_path / name).by_defects is alone


def test_nothing_is_said_of_a_run_that_was_changed_but_where_it_ran(tmp_path):
    store(tmp_path / "run", judged("violated", [anomaly("lost", "violated", "Gone.", forbidden=1)]))
    (tmp_path / "run" / "verdict.json").write_text(judged("held", []).model_dump_json())
    facts = facts_of(tmp_path / "run")
    assert (facts.variant, facts.why, facts.forbidden) == ("local, kraft-isolated, 4.4.0", (), ())


def test_a_run_whose_files_are_torn_says_nothing_and_breaks_nothing(tmp_path):
    (tmp_path / "plan.json").write_text('{"backend": "loc')
    assert facts_of(tmp_path).why == ()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "half a li\nprozess: waited 90 s for every ISR\nWhat was recorded is kept in runs/x.",
            "waited 90 s for every ISR",
        ),
        ("Traceback\nValueError: odd", "ValueError: odd"),
        ("", "it printed nothing"),
    ],
)
def test_why_a_trial_has_no_verdict_is_one_line(said, why):
    drawn = TrialJob(number=0, trial="smoke", seed=1, settings={})
    attempt = TrialAttempt(job=drawn, exit_code=255, verdict=None, run=None, began_s=0.0, took_s=1.0, reason=said)
    assert attempt.why == why


@pytest.mark.parametrize(
    ("over", "planned", "duration_s", "words"),
    [
        (0, None, None, "0 trials over"),
        (0, 30, None, "0 of 30 trials over"),
        (3, 30, None, "3 of 30 trials over, about 18 min left"),
        (3, 30, 150, "3 of 30 trials over, about 30 s left"),
        (1, 15_456, None, "1 of 15,456 trials over, about 7 days left"),
        (3, None, 36_000, "3 trials over, about 10 h left"),
        (3, None, 60, "3 trials over, about 0 s left"),
    ],
)
def test_progress_says_how_many_are_over_and_about_how_long_the_rest_takes(over, planned, duration_s, words):
    attempts = [attempt(number, took_s=40) for number in range(over)]
    assert progress(attempts, planned, duration_s) == words


def test_a_trial_that_was_tried_again_is_over_once():
    attempts = [attempt(0, verdict=None, took_s=10), attempt(0, attempts=1, took_s=30)]
    assert progress(attempts, 2, None) == "1 of 2 trials over, about 40 s left"
