"""`prozess import`, `check --json` and what may not be done with an imported run."""

import json
import sys

import pytest

from prozess import command
from prozess.app import conduct
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.manifest import read_manifest
from prozess.harness.run_directory import RunDirectory
from tests.support.edn_histories import Jepsen


def called(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["prozess", *map(str, arguments)])
    return command.run()


@pytest.fixture
def history(tmp_path):
    jepsen = Jepsen()
    jepsen.send(0, 5, 0, 0)
    jepsen.send(0, 5, 1, kind="fail")
    jepsen.poll(1, {5: [[0, 0], [1, 1], [2, 9]]})
    return jepsen.write(tmp_path / "history.edn")


def test_import_then_check_prints_findings_by_name(monkeypatch, capsys, history, tmp_path):
    out = tmp_path / "out"
    assert called(monkeypatch, "import", "jepsen", history, "--out", out) == 0
    assert "2 sends, 3 reads, 1 partitions, 2 clients" in capsys.readouterr().out
    assert called(monkeypatch, "check", out, "--engine", "local", "--json") == ExitCode.VIOLATED
    told = json.loads(capsys.readouterr().out)
    assert {name: count for name, count in told["findings"].items() if count} == {"phantom": 1, "resurrected": 1}
    assert told["findings"]["lost"] == told["findings"]["unseen"] == 0
    assert called(monkeypatch, "check", out, "--engine", "local") == ExitCode.VIOLATED
    said = capsys.readouterr().out
    assert "found      phantom 1, resurrected 1" in said
    assert f"prozess import jepsen {history}" in said.replace("\n", "")


def test_check_prints_the_verdict_before_it_makes_the_report_and_makes_none_if_told_so(
    monkeypatch, capsys, history, tmp_path
):
    out, printed = tmp_path / "out", []
    called(monkeypatch, "import", "jepsen", history, "--out", out)
    reported = conduct.report_run
    monkeypatch.setattr(conduct, "report_run", lambda *of: (printed.append(capsys.readouterr().out), reported(*of))[1])
    words = ("check", out, "--engine", "local")
    assert called(monkeypatch, *words, "--no-report") == ExitCode.VIOLATED
    assert "violated" in capsys.readouterr().out
    assert (printed, (out / "verdict.json").exists(), (out / "report.html").exists()) == ([], True, False)
    assert called(monkeypatch, *words) == ExitCode.VIOLATED
    assert "violated" in printed[0]
    assert capsys.readouterr().out == f"report     {out / 'report.html'}\n"
    assert (out / "report.html").exists()


def test_an_imported_run_cannot_be_run_again(monkeypatch, capsys, history, tmp_path):
    called(monkeypatch, "import", "jepsen", history, "--out", tmp_path / "out")
    assert called(monkeypatch, "run", tmp_path / "out" / "plan.json") == ExitCode.BAD_INPUT
    assert "can be checked, but not run again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--isolation", "serializable"), "read_uncommitted, read_committed"),
        (("--faults", "some"), "unstated, none"),
        (("--transactions", "maybe"), "auto, yes, no"),
        (("--kafka-version", "four"), "is not a version"),
        (("--set", "producer.acks=7"), "producer.acks"),
        (("--set", "producer.colour=1"), "is not a setting"),
        (("--set", "producer.acks=1"), "needs acks=all"),
    ],
)
def test_options_that_cannot_be_are_said_and_nothing_is_left(monkeypatch, capsys, history, tmp_path, options, said):
    out = tmp_path / "out"
    assert called(monkeypatch, "import", "jepsen", history, "--out", out, *options) == ExitCode.BAD_INPUT
    assert said in capsys.readouterr().err
    assert not out.exists() or not any(out.iterdir())


def test_a_directory_that_holds_something_is_not_touched(monkeypatch, capsys, history, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert called(monkeypatch, "import", "jepsen", history, "--out", tmp_path / "out") == ExitCode.BAD_INPUT
    assert "not an empty directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_bad_history_leaves_nothing_behind(monkeypatch, capsys, tmp_path):
    (tmp_path / "history.edn").write_text("{:type :ok", encoding="utf-8")
    assert called(monkeypatch, "import", "jepsen", tmp_path / "history.edn", "--out", tmp_path / "out") == 254
    assert "line 1" in capsys.readouterr().err
    assert not any((tmp_path / "out").iterdir())


def test_an_imported_run_that_lost_a_table_is_said(monkeypatch, capsys, history, tmp_path):
    out = tmp_path / "out"
    called(monkeypatch, "import", "jepsen", history, "--out", out)
    (out / "history" / "reads.parquet").unlink()
    assert called(monkeypatch, "check", out, "--engine", "local") == ExitCode.UNKNOWN
    assert "history/reads.parquet is missing" in capsys.readouterr().out
    for path in (out / "history").iterdir():
        path.unlink()
    assert called(monkeypatch, "check", out, "--engine", "local") == ExitCode.UNKNOWN
    first = sorted(name for name in read_manifest(RunDirectory(out)).files if name.startswith("history/"))[0]
    assert f"{first} is missing" in capsys.readouterr().out
