"""Shares of a campaign, their merge, and the place where tasks of Spark leave what they ran."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.app.run_process import run_while
from prozess.campaigns.campaign_plan import (
    ALL_TRIALS,
    BegunCampaign,
    CampaignDirectory,
    Shard,
    next_number,
    parse_shard,
)
from prozess.campaigns.campaign_runner import begin_shared
from prozess.campaigns.engine import RunningJob
from prozess.campaigns.matrix_layout import read_matrix_file
from prozess.campaigns.matrix_merge import merge
from prozess.campaigns.matrix_query import read_results
from prozess.campaigns.on_spark import (
    FinishedTrial,
    opened_results,
    read_entries,
    remove_abandoned_trials,
    runs_of,
)
from prozess.campaigns.shared_results import SharedResults
from prozess.command import run
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.processes import boot_id, identify
from tests.support.campaigns import a_campaign, anomaly, attempt, judged, store

ROW = {"seed": 1, "part": 0, "parts": 1}


def share(path: Path, shard: Shard, trials: int, *, title: str = "M") -> CampaignDirectory:
    """A share of a matrix of so many trials, all of which were run."""
    directory = CampaignDirectory(path)
    directory.begin(BegunCampaign(campaign=a_campaign("m"), seed=0, shard=shard))
    rows = [{"number": number, "row": {"schedule": str(number)}, **ROW} for number in range(trials)]
    said = {"format_version": 1, "name": "m", "title": title, "values": {}, "trials": rows, "document": {}}
    (path / "matrix.json").write_text(json.dumps(said))
    for number in filter(shard.has, range(trials)):
        ran(directory, number)
    return directory


def ran(directory: CampaignDirectory, number: int) -> None:
    run = directory.runs / f"m-{number}"
    store(run, judged("held", [anomaly("lost", "held", "")]))
    (run / "history").mkdir(parents=True)
    (run / "history" / "sends.parquet").write_bytes(bytes([number]))
    directory.append(attempt(number, run=run.name))


@given(st.integers(1, 40), st.integers(1, 12))
def test_each_trial_is_in_exactly_one_share(trials, of):
    shards = [Shard(number=number, of=of) for number in range(1, of + 1)]
    assert [sum(shard.has(trial) for shard in shards) for trial in range(trials)] == [1] * trials
    for shard in shards:
        walked, attempts = [], []
        while (found := next_number(attempts, 1, shard, trials)) is not None:
            walked.append(found[0])
            attempts.append(attempt(found[0]))
        assert walked == [number for number in range(trials) if shard.has(number)]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_a_share_that_cannot_be_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match="3/16"):
        parse_shard(text)


def test_a_share_alone_judges_its_own_trials_alone(tmp_path):
    told = read_results(share(tmp_path / "a", parse_shard("2/3"), 7))
    assert ([trial.number for trial in told.trials], told.exit_code) == ([1, 4], 0)
    assert "share 2 of 3" in told.title


def test_merged_shares_are_the_results_of_one_machine(tmp_path):
    for number in (1, 2, 3):
        share(tmp_path / str(number), Shard(number=number, of=3), 7)
    share(tmp_path / "whole", ALL_TRIALS, 7)
    merge(tmp_path / "all", [tmp_path / "3", tmp_path / "1", tmp_path / "2"])
    merged, whole = (read_results(CampaignDirectory(tmp_path / name)) for name in ("all", "whole"))
    assert merged == whole
    assert (tmp_path / "all" / "runs" / "m-4" / "history" / "sends.parquet").read_bytes() == b"\4"
    assert read_matrix_file(tmp_path / "all") == read_matrix_file(tmp_path / "whole")
    assert CampaignDirectory(tmp_path / "all").begun().shard == ALL_TRIALS


def test_shares_that_do_not_belong_together_are_refused_and_leave_nothing(tmp_path):
    share(tmp_path / "a", Shard(number=1, of=2), 4)
    share(tmp_path / "again", Shard(number=1, of=2), 4)
    share(tmp_path / "other", Shard(number=2, of=2), 4, title="Another")
    with pytest.raises(BadInput, match="another matrix"):
        merge(tmp_path / "all", [tmp_path / "a", tmp_path / "other"])
    with pytest.raises(BadInput, match="ran trial 0"):
        merge(tmp_path / "all", [tmp_path / "a", tmp_path / "again"])
    with pytest.raises(BadInput, match="is there already"):
        merge(tmp_path / "a", [tmp_path / "again"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "again", "other"]


def test_of_two_entries_for_one_trial_the_first_counts_and_a_torn_one_is_not_there(tmp_path):
    cluster_kind = SharedResults.at(tmp_path)
    for number, stamp, name in ((0, 20, "second"), (0, 10, "first"), (2, 5, "other")):
        entry = FinishedTrial(attempts=(attempt(number, run=name),), host="somewhere")
        cluster_kind.write(f"entries/{number:06}-{stamp}.json", entry.model_dump_json().encode())
    cluster_kind.write("entries/000001-7.json", b'{"attempts": [{"job"')
    found = read_entries(cluster_kind)
    assert {number: trial.attempts[0].run for number, trial in found.items()} == {0: "first", 2: "other"}
    assert list(read_entries(cluster_kind, {0: None})) == [2]


def test_entries_become_lines_of_the_directory_once_and_in_order(tmp_path):
    directory = share(tmp_path / "a", ALL_TRIALS, 4)
    (directory.path / "entries.jsonl").unlink()
    ran_before = attempt(1, run="m-1")
    directory.append(ran_before)
    cluster_kind = SharedResults.at(directory.path)
    for number in (3, 1, 0):
        entry = FinishedTrial(attempts=(attempt(number, run=f"m-{number}"),), host="x")
        cluster_kind.write(f"entries/{number:06}-1.json", entry.model_dump_json().encode())
    for _ in range(2):
        with opened_results(directory.path) as opened:
            assert [line.job.number for line in opened.attempts()] == [1, 0, 3]


def test_attempts_that_a_killed_command_did_not_copy_are_copied_by_the_next_one(tmp_path):
    directory = share(tmp_path / "a", ALL_TRIALS, 2)
    (directory.path / "entries.jsonl").unlink()
    failed, held = attempt(1, verdict=None), attempt(1, attempts=1, run="m-1")
    for done in (attempt(0, run="m-0"), failed):
        directory.append(done)
    entry = FinishedTrial(attempts=(failed, held), host="x")
    SharedResults.at(directory.path).write("entries/000001-1.json", entry.model_dump_json().encode())
    for _ in range(2):
        with opened_results(directory.path) as opened:
            assert opened.attempts() == [attempt(0, run="m-0"), failed, held]


def test_results_at_a_uri_are_read_and_the_page_is_written_there(tmp_path):
    directory = share(tmp_path / "far", ALL_TRIALS, 2)
    lines = directory.attempts()
    (directory.path / "entries.jsonl").unlink()
    cluster_kind = SharedResults.at(directory.path)
    for line in lines:
        entry = FinishedTrial(attempts=(line,), host="x")
        cluster_kind.write(f"entries/{line.job.number:06}-1.json", entry.model_dump_json().encode())
    # Arrow knows this scheme for the file system of this machine, and prozess takes it for one of another.
    far = f"local://{directory.path}"
    with opened_results(far) as opened:
        assert opened.path != directory.path
        assert read_results(opened, runs_of(far)).exit_code == 0
        assert not list(opened.path.glob("runs/*")), "the runs stay where they are"
        (opened.path / "matrix.html").write_text("page")
    assert (directory.path / "matrix.html").read_text() == "page"
    assert not (directory.path / "entries.jsonl").exists()


def test_a_location_belongs_to_the_trials_with_which_it_was_begun(tmp_path):
    begun = BegunCampaign(campaign=a_campaign("m", rounds=2), seed=1)
    for _ in range(2):
        begin_shared(str(tmp_path), {"campaign.json": begun})
    assert CampaignDirectory(tmp_path).begun() == begun
    for other in (begun.model_copy(update={"seed": 2}), begun.model_copy(update={"campaign": a_campaign("n")})):
        with pytest.raises(BadInput, match=r"results of other trials.*its campaign\.json is another"):
            begin_shared(str(tmp_path), {"campaign.json": other})
    (tmp_path / "campaign.json").write_text('{"campaign": {"na')
    with pytest.raises(BadInput, match="results of other trials"):
        begin_shared(str(tmp_path), {"campaign.json": begun})


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessFailed, match=r"file cannot be written"):
        SharedResults.at(tmp_path / "file").write("entries/000000-1.json", b"")


def test_what_a_killed_task_left_is_removed_and_what_still_runs_stays(tmp_path):
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    me = identify(os.getpid())
    for name, owner in (("left", (int(gone.stdout), 1)), ("alive", (me.pid, me.start_time))):
        path = tmp_path / f"prozess-trial-{name}"
        path.mkdir()
        running = RunningJob(job=attempt().job, boot=boot_id(), owner=owner, process=(int(gone.stdout), 1))
        (path / "running.json").write_text(running.model_dump_json())
    (tmp_path / "prozess-trial-new").mkdir()
    remove_abandoned_trials(tmp_path, now_s=(tmp_path / "prozess-trial-new").stat().st_mtime)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prozess-trial-alive", "prozess-trial-new"]


def test_a_trial_whose_parent_has_ended_does_not_begin():
    done = subprocess.run([*run_while(1 << 22), "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "began this trial and has ended" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("matrix-quick", "--shard", "1/2"), "--shard says how to run a matrix"),
        (("matrix-quick", "--master", "spark://here:1"), "--master runs a matrix, which needs --run"),
        (("matrix-quick", "--run", "x", "--conf", "spark.task.maxFailures=8"), "so it needs --master"),
        (("matrix-quick", "--run", "s3a://bucket/x"), "A URI is for --master"),
        (("matrix-quick", "--run", "x", "--shard", "1/2", "--master", "spark://here:1"), "Leave --shard out"),
        (("merge",), "needs a new directory"),
        (("merge", "new"), "and then the shares"),
        (("matrix-quick", "more"), "One matrix at a time"),
    ],
)
def test_options_of_a_matrix_that_do_not_go_together_are_refused(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prozess", "matrix", *arguments])
    assert run() == 254
    assert words in " ".join(capsys.readouterr().err.split())
