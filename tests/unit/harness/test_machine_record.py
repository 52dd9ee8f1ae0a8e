"""This machine's record of what a run made: who is believed, and what survives moving, copying and forging."""

import json
import os
import shutil
from uuid import uuid4

import pytest

from prozess.harness import machine_record
from prozess.harness.errors import MissingTool
from prozess.harness.machine_record import Made, begin, kept, record_of, state_directory
from prozess.harness.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "prozess"


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    return run


def test_a_run_that_began_here_is_known_and_its_files_are_kept_twice(run, state):
    assert record_of(run) is None
    assert kept(run.journal) == (run.journal,)
    record = begin(run)
    assert record_of(run) == record == begin(run), "a second begin continues the first"
    assert kept(run.journal) == (record.directory / "journal.jsonl", run.journal)
    assert record.directory.parent == state / "runs"
    assert {place.stat().st_mode & 0o777 for place in (state, state / "runs", record.directory)} == {0o700}


def test_a_directory_whose_token_nobody_here_knows_is_a_strangers(run):
    begin(run)
    for token in ("0" * 64, "../../../etc", "", "x" * 5000, "0" * 63 + "\n/"):
        (run.path / "token").write_text(token)
        assert record_of(run) is None, token


def test_a_token_that_is_a_link_or_a_pipe_is_not_read(run, tmp_path):
    record = begin(run)
    (run.path / "token").rename(tmp_path / "elsewhere")
    (run.path / "token").symlink_to(tmp_path / "elsewhere")
    assert record_of(run) is None
    (run.path / "token").unlink()
    os.mkfifo(run.path / "token")
    assert record_of(run) is None, "and nobody waits for a writer"
    assert record.directory.exists()


def test_a_directory_that_was_moved_is_known_and_a_copy_is_not(run, tmp_path):
    record = begin(run)
    moved = RunDirectory(run.path.rename(tmp_path / "moved"))
    assert record_of(moved) == record
    assert machine_record.home_of(moved) == tmp_path / "run", "by which containers and control groups are named"
    shutil.copytree(moved.path, tmp_path / "copy")
    assert record_of(RunDirectory(tmp_path / "copy")) is None


def test_another_home_knows_nothing_of_the_run(run, tmp_path, monkeypatch):
    begin(run)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert record_of(run) is None
    assert not (tmp_path / "another").exists(), "looking makes nothing"


@pytest.mark.parametrize("spoil", ["mode", "link"])
def test_a_record_that_others_could_have_written_is_not_believed(run, state, tmp_path, spoil):
    begin(run)
    if spoil == "mode":
        state.chmod(0o777)
    else:
        (state / "runs").rename(tmp_path / "theirs")
        (state / "runs").symlink_to(tmp_path / "theirs")
    with pytest.raises(MissingTool, match=r"cannot be used .* Set XDG_STATE_HOME to a directory of your own"):
        record_of(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_record_of_another_user_is_refused_and_a_home_of_another_user_is_not_used(run, state, tmp_path):
    begin(run)
    os.chown(state, 1234, 1234)
    with pytest.raises(MissingTool, match="belongs to user 1234, and this is user 0"):
        record_of(run)
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 1234, 1234)
    assert state_directory({"HOME": str(tmp_path / "home")}) != tmp_path / "home/.local/state/prozess", "as under sudo"


def test_a_state_directory_that_cannot_be_made_is_said_before_anything_is_made(run, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(MissingTool, match="cannot be used"):
        begin(run)
    assert not (run.path / "token").exists()


def test_only_the_plan_that_was_carried_out_is_ours(run):
    begin(run).keep_plan("{}")
    run.plan.write_text("{}")
    assert machine_record.is_ours(run)
    record_of(run).settle()
    assert machine_record.is_ours(run), "after the run, too"
    run.plan.write_text('{"backend": "ssh"}')
    assert not machine_record.is_ours(run)


def test_what_was_made_is_known_by_name_and_id_and_a_torn_line_was_not_made(run):
    begin(run)
    made, first, second = Made(run), uuid4(), uuid4()
    made.begin("topic", ["a", "b"])
    made.begin("group", ["g"])
    made.made({"a": first})
    made.begin("topic", ["a", "c"])
    made.gone("topic", ["b"])
    with kept(run.path / "made.jsonl")[0].open("a") as file:
        file.write('{"kind": "topic", "na')
    assert Made(run).topics == {"a": first, "c": None}
    assert Made(run).groups == ("g",)
    (run.path / "made.jsonl").write_text(
        json.dumps({"kind": "topic", "name": "theirs", "id": str(second), "gone": False})
    )
    assert "theirs" not in Made(run).topics, "the directory's copy counts only where there is no record"
