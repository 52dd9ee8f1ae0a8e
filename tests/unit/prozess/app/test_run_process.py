"""How a trial that is a process of its own is asked to end."""

import re
import signal
import subprocess
import sys

import pytest

from prozess.app.run_process import RUN, StopRequest, await_end
from tests.support.paths import ROOT

SLEEPS = (sys.executable, "-c", "import time; print(flush=True)\nwhile True: time.sleep(0.05)")
"""A signal that comes just before a sleep does not end it, so no sleep is long."""


@pytest.fixture
def child():
    with subprocess.Popen(SLEEPS, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # from here on it has Python's handlers
        yield child
        child.kill()


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def ctrl_c(request):
    """How this process takes Ctrl-C: what a script starts with `&` ignores it, and its children do. Yields what is sent."""
    before = signal.signal(signal.SIGINT, request.param)
    try:
        yield signal.SIGTERM if request.param is signal.SIG_IGN else signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_trial_that_takes_too_long_is_asked_by_a_signal_that_it_hears(ctrl_c, child):
    assert await_end(child, timeout_s=0.1) == -ctrl_c


def test_a_trial_that_runs_when_the_whole_is_asked_to_end_is_asked_once(ctrl_c, child):
    stop = StopRequest()
    stop.runs_now(child)
    stop.ask()
    assert child.wait(60) == -ctrl_c


# ----------------------------------------------------------------------------------------------------------------------
# A folder that is called `prozess` where somebody works is not ours.


OURS = ("harness", "clusters", "nemesis", "workloads", "checkers", "spark_checkers")
TIMEOUT_S = 60.0


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory with a `prozess` of somebody else's."""
    (tmp_path / "prozess").mkdir()
    (tmp_path / "prozess" / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
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
        f"{path.relative_to(ROOT)}: {line.strip()}": line
        for package in OURS
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r'sys\.executable, .*"-(m|c)"', line)
    }
    assert len(started) >= len(OURS)
    assert [place for place, line in started.items() if '"-P"' not in line] == []
