"""Spark's files on disk go with their process: orderly by itself, and after a SIGKILL by the next that starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from prozess.spark_checkers.session import remove_abandoned

HOLDER = """
import sys
from prozess.spark_checkers.session import _scratch_directory
directory = _scratch_directory()
(directory / "liblz4-java.so").write_text("unpacked")
print(directory, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path, monkeypatch):
    """A process that has a scratch directory, and the directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_a_living_process_keeps_its_directory_and_takes_it_along(holder, tmp_path):
    process, directory = holder
    remove_abandoned(tmp_path)
    assert (directory / "liblz4-java.so").exists()
    process.communicate("", timeout=20)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_nothing_else(holder, tmp_path):
    process, directory = holder
    being_made, other = tmp_path / "prozess-spark-new", tmp_path / "other"
    being_made.mkdir()
    other.mkdir()
    process.kill()
    process.wait(20)
    assert directory.exists()
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, being_made]
