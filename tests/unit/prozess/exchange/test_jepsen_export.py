"""Histories exported to Jepsen's form and imported again: the same is found."""

import sys

import pytest

from prozess import command
from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.exchange.imported_run import ImportOptions, new_directory, write_imported
from prozess.exchange.jepsen.history import read_jepsen, write_jepsen
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory
from tests.support.edn_histories import Jepsen, found


def again(run, folder):
    """What is found after export and import."""
    write_jepsen(History.open(run), folder / "again.edn")
    second = new_directory(folder / "second")
    write_imported(second, read_jepsen(folder / "again.edn"), ImportOptions(), command="test")
    return found(judge_run(second, check_run(second, CheckOptions(engine="local"))))


def test_there_and_back(tmp_path):
    history = Jepsen()
    for n in range(6):
        history.send(0, 5, n, n)
    history.send(0, '"a b"'[1:-1], 7, kind="fail")
    history.send(2, 5, 8, kind="info")
    history.assign(1, [5])
    history.poll(1, {5: [[0, 0], [1, 1], [3, 3]], "a b": [[0, 7], [1, 99]]})
    history.poll(1, {5: [[3, 3], [5, 4]]})
    run, verdict = history.checked(tmp_path)
    assert found(verdict)
    assert again(run, tmp_path) == found(verdict)
    assert ':poll {5 [[0 0] [1 1] [3 3]], "a b" [[0 7]' in (tmp_path / "again.edn").read_text(encoding="utf-8")


def test_transactions_there_and_back(tmp_path):
    history = Jepsen()
    history.txn(0, [[":send", 5, 0], [":send", 6, 0]], [[":send", 5, [0, 0]], [":send", 6, [0, 0]]])
    history.txn(0, [[":send", 6, 1]], [[":send", 6, [2, 1]]])
    history.txn(2, [[":send", 5, 3]], [[":send", 5, 3]], kind="fail")
    history.assign_from_start(1, [5, 6])
    history.poll(1, {5: [[0, 0], [2, 3]], 6: [[2, 1]]}, kind="info")
    history.poll(1, {6: [[2, 1]]})
    run, verdict = history.checked(tmp_path)
    assert found(verdict) == {"torn": 1, "lost": 1, "aborted-read": 1}
    assert again(run, tmp_path) == found(verdict)


def test_a_history_of_ours_shows_there_what_it_shows_here(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    planted = {"lost": 3, "duplicate": 2, "phantom": 2, "skipped": 2, "rewound": 3, "resurrected": 2}
    generate(run, GenerateOptions(rows=3_000, partitions=2, planted=planted), command="test")
    # Three clients read past each lost record, whose acknowledgement says that it ought to be there.
    assert again(run, tmp_path) == planted | {"skipped": 2 + 3 * 3}


@pytest.fixture
def exported(monkeypatch):
    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["prozess", "export", "jepsen", *map(str, arguments)])
        return command.run()

    return called


def test_the_command(exported, tmp_path, capsys):
    history = Jepsen()
    history.send(0, 5, 0, 0)
    run, _ = history.checked(tmp_path)
    assert exported(run.path, "--out", tmp_path / "x.edn") == 0
    assert "2 operations of 1 processes" in capsys.readouterr().out
    assert exported(run.path, "--out", tmp_path / "x.edn") == ExitCode.BAD_INPUT
    assert exported(tmp_path, "--out", tmp_path / "y.edn") == ExitCode.BAD_INPUT
    assert exported(run.path, "--out", tmp_path / "no" / "x.edn") == ExitCode.BAD_INPUT
