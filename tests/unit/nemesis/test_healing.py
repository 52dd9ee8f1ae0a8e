"""Healing what an older run left: exactly its own processes, seen to be gone, safe to repeat, never a run that is alive."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from prozess.app.wiring import heal_run
from prozess.harness import machine_record
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput
from prozess.harness.interfaces import Undo
from prozess.harness.processes import boot_id, identify, is_running, process_status
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.crash_recovery import hold_alive, read_pids
from prozess.nemesis.journal import Journal, UndoState, read_journal
from tests.support.clock import FakeClock

CLOCK = SystemClock()


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    machine_record.begin(run)
    return run


@pytest.fixture
def sleeper():
    """A process to be ended, in a session of its own; gone after the test in any case."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait(timeout=10)


def break_something(run):
    entries = Journal(run.journal).plan(
        [Undo(action="start", node="broker-1")],
        number=0,
        step_number=2,
        step="kill the leader",
        fault="kill",
        targets=["broker-1"],
    )
    Journal(run.journal).mark(entries, UndoState.APPLIED)


def record(run, **line):
    for path in machine_record.kept(run.path / "pids.jsonl"):
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def test_a_run_that_ended_well_is_clean_and_nothing_is_touched(run):
    with hold_alive(run):
        pass
    report = heal_run(run, clock=CLOCK)
    assert (report.found, report.done, report.left, report.clean) == ((), (), (), True)
    assert not run.journal.exists()


def test_a_recorded_process_is_ended_even_while_it_is_stopped_and_the_journal_is_settled(run, sleeper):
    identity = identify(sleeper.pid)
    record(run, node="broker-1", pid=sleeper.pid, start_time=identity.start_time)
    break_something(run)
    os.kill(sleeper.pid, signal.SIGSTOP)
    report = heal_run(run, clock=CLOCK)
    assert not is_running(identity)
    assert report.clean
    assert any(f"broker-1 (pid {sleeper.pid}) is still there" in line for line in report.found)
    assert any("'kill the leader': kill of broker-1 was not healed" in line for line in report.found)
    assert read_journal(run.journal).open == ()
    again = heal_run(run, clock=CLOCK)
    assert (again.found, again.done, again.clean) == ((), (), True)


def test_a_process_recorded_with_its_own_stat_line_is_ended(run, sleeper):
    stat = (f"/proc/{sleeper.pid}/stat",)
    with open(*stat) as file:  # noqa: PTH123 - as the shell that records it reads it
        record(run, node="broker-2", boot=boot_id(), stat=file.read().strip())
    assert heal_run(run, clock=CLOCK).clean
    assert sleeper.wait(timeout=10) == -signal.SIGKILL


def test_a_process_that_only_has_the_same_pid_is_left_alone(run, sleeper):
    identity = identify(sleeper.pid)
    record(run, node="broker-1", pid=sleeper.pid, start_time=identity.start_time - 1)
    stat = process_status(sleeper.pid)
    assert stat is not None
    report = heal_run(run, clock=CLOCK)
    assert is_running(identity)
    assert (report.found, report.clean) == ((), True)


def test_a_process_of_another_boot_is_left_alone(run, sleeper):
    identity = identify(sleeper.pid)
    record(run, node="broker-1", boot="another", pid=sleeper.pid, start_time=identity.start_time)
    assert heal_run(run, clock=CLOCK).found == ()
    assert is_running(identity)


def test_torn_and_foreign_lines_of_the_pids_name_nobody(run, sleeper):
    identity = identify(sleeper.pid)
    record(run, node="broker-1", pid=sleeper.pid, start_time=identity.start_time)
    with (run.path / "pids.jsonl").open("a") as file:
        file.write('[1]\n{"node": "x", "stat": "12 (sh"}\n{"pid": "9"}\n{"node": "broker-2", "pi')
    assert read_pids(run.path / "pids.jsonl") == [("broker-1", identity)]


def test_a_run_that_is_alive_is_refused_and_left_alone(run, sleeper):
    identity = identify(sleeper.pid)
    record(run, node="broker-1", pid=sleeper.pid, start_time=identity.start_time)
    break_something(run)
    with hold_alive(run):
        with pytest.raises(BadInput, match=r"is alive: .*alive.lock is held. Wait until it ends"):
            heal_run(run, clock=CLOCK)
        with pytest.raises(BadInput, match="is alive"), hold_alive(run):
            pass
        with pytest.raises(BadInput, match="is alive"):
            heal_run(run, clock=FakeClock(), ends_within_s=30)
    assert is_running(identity)
    assert len(read_journal(run.journal).open) == 1


def test_a_run_that_was_just_killed_is_healed_once_its_last_process_is_gone(run):
    alive = ExitStack()

    class Passing(FakeClock):
        def sleep(self, seconds):
            alive.close()
            super().sleep(seconds)

    break_something(run)
    alive.enter_context(hold_alive(run))
    with alive:
        assert heal_run(run, clock=Passing(), ends_within_s=30).clean
    assert read_journal(run.journal).open == ()


def test_what_is_no_directory_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not a run directory"):
        heal_run(RunDirectory(tmp_path / "nothing"), clock=CLOCK)


def test_the_lock_of_a_run_that_was_sigkilled_is_free(run):
    code = f"""
import os, signal
from pathlib import Path
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.crash_recovery import hold_alive
with hold_alive(RunDirectory(Path({str(run.path)!r}))):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -signal.SIGKILL
    assert json.loads((run.path / "alive.lock").read_text())["pid"] > 0
    assert heal_run(run, clock=CLOCK).clean


def namespaces_work():
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-Urpf", "--mount-proc", "true"]
    return subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode == 0


@pytest.mark.skipif(not namespaces_work(), reason="this machine allows no user and pid namespaces")
def test_a_sandbox_whose_stage_lost_its_lock_is_found_by_its_namespace_and_ended_whole(run):
    # The first process stays, the stage under it dies: what no real run does, since there the stage is the first one.
    code = f"""
import os, subprocess, sys
from pathlib import Path
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.crash_recovery import hold_alive
if os.fork() == 0:
    with hold_alive(RunDirectory(Path({str(run.path)!r}))):
        print("held", flush=True)
        os._exit(0)
os.wait()
print("lost", flush=True)
subprocess.run(["sleep", "600"])
"""
    sandbox = subprocess.Popen(
        ["unshare", "-Urpf", "--mount-proc", "--kill-child", sys.executable, "-c", code], stdout=subprocess.PIPE
    )
    try:
        assert sandbox.stdout.readline() == b"held\n"
        assert sandbox.stdout.readline() == b"lost\n"
        report = heal_run(run, clock=CLOCK)
        assert "the run stage's sandbox" in report.found[0]
        assert report.clean
        wait_until(lambda: sandbox.poll() is not None, awaited="unshare to end", timeout_s=10, clock=CLOCK)
        assert heal_run(run, clock=CLOCK).found == ()
    finally:
        sandbox.kill()
        sandbox.wait(timeout=10)
        sandbox.stdout.close()
