"""The command `prozess watch`: what it refuses before it asks any cluster, and how the status is shown."""

import io
import sys

import pytest

from prozess import command
from prozess.harness.exit_codes import ExitCode
from prozess.watch.cli import CONCLUSIONS, PLAIN_STATUS_S, StatusLine
from tests.support.clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rate", "0"], "--rate 0 must be above 0"),
        (["--rate", "1000"], "at most 100"),
        (["--rate", "nan"], "'--rate': nan is no number"),
        (["--outage", "0.5"], "--outage 0.5 must be at least 1"),
        (["--outage", "nan"], "'--outage': nan is no number"),
        (["--for", "soon"], "is not a duration"),
        (["--topic", "orders"], "must begin with prozess-watch-"),
        (["--metrics", "x"], "is no port"),
        (["--webhook", "ftp://hooks.example.org/s3cret"], "--webhook is no address of a webhook"),
        (["--client-config", "nowhere.properties"], "does not exist"),
    ],
)
def test_what_cannot_be_done_is_refused_with_254_before_any_cluster_is_asked(monkeypatch, capsys, words, why):
    monkeypatch.setenv("PROZESS_CLIENT_CONFIG", "")  # the command sets it
    monkeypatch.setattr(sys, "argv", ["prozess", "watch", "--cluster", "127.0.0.1:1", *words])
    assert command.run() == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert why in said
    assert "s3cret" not in said


def test_every_exit_code_of_a_watch_has_a_conclusion():
    assert CONCLUSIONS.keys() == {ExitCode.HELD, ExitCode.VIOLATED, ExitCode.UNKNOWN}


def test_on_a_terminal_one_line_changes_and_what_is_told_stays(monkeypatch):
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("COLUMNS", "20")
    line = StatusLine(FakeClock())
    line.show("a" * 100)
    line.report("OUTAGE")
    line.show("b")
    assert out.getvalue() == "OUTAGE\n"
    assert err.getvalue() == "\r\x1b[2K" + "a" * 19 + "\r\x1b[2K" + "\r\x1b[2Kb"


def test_elsewhere_the_status_is_printed_once_a_minute(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    clock = FakeClock()
    line = StatusLine(clock)
    for second in range(2 * int(PLAIN_STATUS_S)):
        line.show(f"after {second} s")
        clock.sleep(1)
    line.end()
    assert err.getvalue() == f"after 0 s\nafter {PLAIN_STATUS_S:.0f} s\n"
