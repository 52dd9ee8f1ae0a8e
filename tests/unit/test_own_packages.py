"""`harness`, `workloads` and the others are plain names: a folder that is called so where somebody works is not ours."""

import re
import subprocess
from pathlib import Path

import pytest

from harness.own_process import RUN

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = ("harness", "clusters", "nemesis", "workloads", "checkers", "spark_checkers")
TIMEOUT_S = 60.0


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory with a `harness` of somebody else's."""
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return tmp_path


def test_a_trial_in_a_process_of_its_own_is_ours_wherever_it_is_started(elsewhere):
    done = subprocess.run([*RUN, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "Run a trial" in done.stdout
    unsafe = [word for word in RUN if word != "-P"]
    done = subprocess.run([*unsafe, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert "not ours" in done.stderr, "else this test would say nothing"


def test_every_process_of_ours_is_started_without_the_working_directory_on_its_path():
    started = {
        f"{path.relative_to(REPOSITORY)}: {line.strip()}": line
        for package in OURS
        for path in (REPOSITORY / package).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r'sys\.executable, .*"-(m|c)"', line)
    }
    assert len(started) >= len(OURS)
    assert [place for place, line in started.items() if '"-P"' not in line] == []
