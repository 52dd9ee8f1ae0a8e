"""The harness killed or interrupted in the middle of a fault: nothing is left, and what was recorded is readable."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

from prozess.app.run_process import SAME_SIGNAL_S
from prozess.harness.clock import NS_PER_S, SystemClock, wait_until
from prozess.harness.history.convert import History, ensure_history
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.journal import read_journal
from tests.support.command import wait_nothing_left

pytestmark = pytest.mark.cluster
SMOKE = (
    *("smoke", "--set", 'axes.producer.retries=["max"]'),
    *("--set", "axes.topic.unclean_leader_election_enable=[false]", "--set", "axes.topic.min_insync_replicas=[2]"),
)
"""A few of the smoke trial's cells: what is left behind does not depend on their number."""


def frozen(event):
    return event["event"] == "step" and event["name"] == "freeze the followers"


def stage_of(run):
    words = ["prozess.app.run.inside_sandbox", str(run.path)]
    return [p for p in psutil.process_iter(["cmdline"]) if all(word in (p.info["cmdline"] or []) for word in words)]


def stands_still(process):
    stats = [task / "stat" for task in Path(f"/proc/{process.pid}/task").iterdir()]
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)


def asked_to_stop(pid):
    """Are there words in the run stage's standard input that it has not read?"""
    with open(f"/proc/{pid}/fd/0", "rb") as pipe:  # noqa: PTH123 - not a path, a descriptor of another process
        return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] > 0


def prozess_on(run, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "prozess", *arguments, str(run.path)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.long  # its cheaper neighbour is the first round of test_torture.py
def test_after_a_sigkill_in_mid_fault_nothing_is_left_and_the_history_is_readable(prozess, need):
    need("java")
    need("namespaces")
    command = prozess("run", *SMOKE, "--engine", "local")
    command.wait_event(frozen, what="frozen followers", timeout_s=180)
    run = RunDirectory(command.run_directory)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait(timeout=10)
    wait_nothing_left(run.path, timeout_s=60)
    healed = prozess_on(run, "heal")
    assert healed.returncode == 0, healed.stderr
    ensure_history(run)
    history = History.open(run)
    assert history.rows("sends") > 100
    assert history.rows("faults") > 0
    again = prozess_on(run, "check", "--engine", "local", "--quiet")
    assert again.returncode == 2, again.stdout + again.stderr
    assert again.stdout.startswith("unknown:")


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 2, id="control-c"),
        pytest.param(signal.SIGTERM, 143, id="terminated", marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, id="hung-up", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_run_heals_keeps_what_was_recorded_and_still_reports(prozess, need, number, status):
    need("java")
    need("namespaces")
    command = prozess("run", *SMOKE, "--engine", "local", "--quiet")
    command.wait_event(frozen, what="frozen followers", timeout_s=180)
    run = RunDirectory(command.run_directory)
    os.killpg(command.process.pid, number)  # as a terminal, `timeout` and a CI runner do
    os.kill(command.process.pid, number)  # and the same once more, as they do too
    output = command.output(timeout_s=120)
    assert command.process.returncode == status, command.errors
    assert output.startswith("unknown:")
    assert (run.path / "report.html").is_file()
    assert "stopped: by the user" in command.errors
    wait_nothing_left(run.path, timeout_s=60)
    faults = History.open(run).table("faults")
    assert 4 in faults["phase"], "healed: UNDONE rows are there"


@pytest.mark.long  # its cheaper neighbours: Ctrl-C once, above, and the supervisor's own tests
@pytest.mark.parametrize("isolation", ["namespaces", "signals"])
def test_control_c_twice_ends_at_once_and_leaves_nothing(prozess, need, isolation):
    need("java")
    if isolation == "namespaces":
        need("namespaces")
    command = prozess("run", *SMOKE, "--engine", "local", "--quiet", "--isolation", isolation)
    command.wait_event(frozen, what="frozen followers", timeout_s=180)
    run = RunDirectory(command.run_directory)
    # A run stage that stands still cannot heal: the first one waits for it, the second one does not.
    stages = stage_of(run)
    for stage in stages:
        os.kill(stage.pid, signal.SIGSTOP)
    # A thread that has not stopped yet would still read what is written to it.
    wait_until(lambda: all(map(stands_still, stages)), awaited="stages to stop", timeout_s=30, clock=SystemClock())
    os.kill(command.process.pid, signal.SIGINT)
    wait_until(lambda: asked_to_stop(stages[0].pid), awaited="stop in the pipe", timeout_s=30, clock=SystemClock())
    once_ns = time.monotonic_ns() + int(SAME_SIGNAL_S * NS_PER_S)  # what comes before that is the same one
    wait_until(
        lambda: time.monotonic_ns() > once_ns, awaited="a second Ctrl-C to count", timeout_s=30, clock=SystemClock()
    )
    os.kill(command.process.pid, signal.SIGINT)
    output = command.output(timeout_s=60)
    assert command.process.returncode == 2, command.errors
    assert output == ""
    assert "ended at once" in command.errors
    assert "Traceback" not in command.errors
    wait_nothing_left(run.path, timeout_s=60)
    assert read_journal(run.journal).open == ()
    assert prozess_on(run, "heal").returncode == 0
    again = prozess_on(run, "check", "--engine", "local", "--quiet")
    assert again.returncode == 2, again.stdout + again.stderr
