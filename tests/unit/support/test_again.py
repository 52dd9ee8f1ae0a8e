"""Tests that failed are run once more, and both results are shown."""

import os
import subprocess
import sys

from tests.support.again import FAILED_MAX
from tests.support.paths import ROOT

FAILS_ONCE = """
from pathlib import Path

def test_of_a_slow_machine():
    mark = Path(__file__).with_name("mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there

def test_that_passes():
    runs = Path(__file__).with_name("runs")
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
"""


def again(directory, text):
    file = directory / "test_x.py"
    file.write_text(text)
    command = [sys.executable, "-m", "tests.support.again", "-p", "xdist", "-n", "1", "-c", "/dev/null"]
    return subprocess.run(
        [*command, "--rootdir", directory, file], cwd=ROOT, env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_one_that_failed_once_is_run_again_alone_and_named(tmp_path):
    done = again(tmp_path, FAILS_ONCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED ONCE, and run again by itself: test_x.py::test_of_a_slow_machine" in done.stdout
    assert "PASSED THE SECOND TIME. Find out why it failed" in done.stdout
    assert (tmp_path / "runs").read_text() == "x", "what had passed is not run again"


def test_one_that_fails_again_has_failed(tmp_path):
    done = again(tmp_path, "def test_a():\n    assert False\n")
    assert done.returncode == 1
    assert "FAILED TWICE" in done.stdout


def test_many_that_fail_are_no_accident(tmp_path):
    done = again(tmp_path, "".join(f"def test_{n}():\n    assert False\n" for n in range(FAILED_MAX + 1)))
    assert done.returncode == 1
    assert "again" not in done.stdout


def test_what_cannot_be_collected_has_failed(tmp_path):
    assert again(tmp_path, "import nothing_of_that_name\n").returncode != 0
