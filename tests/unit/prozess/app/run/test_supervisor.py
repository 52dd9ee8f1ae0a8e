"""The supervisor, with real processes: it acts when the outer process dies, even by SIGKILL, and only then."""

import json
import os
import signal
import subprocess
import sys

import pytest

from prozess.app.run.supervisor import end_stage, start_supervisor
from prozess.harness import machine_record
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.processes import ProcessIdentity, identify, is_running
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.journal import read_journal

CLOCK = SystemClock()
LIMIT_S = 30.0

# A run stage in small: alive, a fault journaled, a node (stopped, in a session of its own) and a helper of its own session.
STAGE = """
import json, os, signal, subprocess, sys
from pathlib import Path
from prozess.harness import machine_record
from prozess.harness.processes import identify
from prozess.harness.interfaces import Undo
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.crash_recovery import hold_alive
from prozess.nemesis.journal import Journal
run, stubborn = RunDirectory(Path(sys.argv[1])), sys.argv[2] == "stubborn"
with hold_alive(run):
    Journal(run.journal).plan([Undo(action="resume", node="broker-1")], number=0, step_number=0, step="freeze",
                              fault="pause", targets=["broker-1"])
    node = subprocess.Popen(["sleep", "600"], start_new_session=True)
    for path in machine_record.kept(run.path / "pids.jsonl"):
        with path.open("w") as file:
            print(json.dumps({"node": "broker-1", "pid": node.pid, "start_time": identify(node.pid).start_time}), file=file)
    os.kill(node.pid, signal.SIGSTOP)
    helper = subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 600"])
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        def leave(*_):
            (run.path / "left-in-order").touch()
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, leave)
    print(json.dumps([os.getpid(), node.pid, helper.pid]), flush=True)
    while True:
        signal.pause()
"""
OUTER = """
import json, signal, subprocess, sys
from pathlib import Path
from prozess.harness.run_directory import RunDirectory
from prozess.app.run.supervisor import start_supervisor
stage = subprocess.Popen([sys.executable, "-c", sys.argv[3], sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE,
                         start_new_session=True)
pids = json.loads(stage.stdout.readline())
supervisor = start_supervisor(RunDirectory(Path(sys.argv[1])), stage.pid, grace_s=float(sys.argv[4]))
print(json.dumps([*pids, supervisor.pid]), flush=True)
signal.pause()
"""


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    machine_record.begin(run)
    return run


@pytest.fixture
def sessions():
    """Identities to be ended after the test, whatever it did."""
    started = []
    yield started
    for identity in started:
        if is_running(identity):
            os.kill(identity.pid, signal.SIGKILL)


def start_outer(run, kind, sessions, *, grace_s):
    outer = subprocess.Popen(
        [sys.executable, "-c", OUTER, str(run.path), kind, STAGE, str(grace_s)], stdout=subprocess.PIPE
    )
    line = outer.stdout.readline()
    identities = [identify(pid) for pid in json.loads(line)]
    sessions += identities
    assert None not in identities
    return outer, identities


def kill_and_await(outer, awaited):
    outer.kill()
    outer.wait(timeout=10)
    outer.stdout.close()
    wait_until(
        lambda: not any(map(is_running, awaited)),
        awaited="everything of the run to be gone",
        timeout_s=LIMIT_S,
        clock=CLOCK,
        last_seen=lambda: str([i.pid for i in awaited if is_running(i)]),
    )


def test_a_sigkilled_outer_process_leaves_nothing_and_the_journal_is_healed(run, sessions):
    outer, identities = start_outer(run, "orderly", sessions, grace_s=20)
    assert len(read_journal(run.journal).open) == 1
    kill_and_await(outer, identities)
    assert (run.path / "left-in-order").exists(), "the stage was asked before it was killed"
    assert read_journal(run.journal).open == ()
    log = (run.logs / "supervisor.log").read_text()
    assert "the run stage ended by itself" in log
    assert log.rstrip().endswith("supervisor: clean")


def test_a_stage_that_does_not_obey_is_killed_after_the_grace_period(run, sessions):
    outer, identities = start_outer(run, "stubborn", sessions, grace_s=0.3)
    kill_and_await(outer, identities)
    assert not (run.path / "left-in-order").exists()
    assert read_journal(run.journal).open == ()


def test_the_supervisor_survives_the_signals_of_a_terminal(run, sessions):
    outer, identities = start_outer(run, "orderly", sessions, grace_s=20)
    supervisor = identities[-1]
    assert os.getsid(supervisor.pid) == supervisor.pid
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.kill(supervisor.pid, number)
    kill_and_await(outer, identities)
    assert read_journal(run.journal).open == ()


def test_a_normal_end_leaves_the_stage_untouched(run, sessions):
    stage = subprocess.Popen(["sleep", "600"], start_new_session=True)
    identity = identify(stage.pid)
    sessions.append(identity)
    supervisor = start_supervisor(run, stage.pid)
    guard = identify(supervisor.pid)
    assert guard is not None
    supervisor.done()
    supervisor.done()
    assert not is_running(guard)
    assert is_running(identity)
    assert (run.logs / "supervisor.log").read_text() == ""
    stage.kill()
    stage.wait(timeout=10)


def test_done_is_harmless_when_the_supervisor_is_gone_already(run):
    supervisor = start_supervisor(run, os.getpid())
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.done()


def test_a_process_that_only_has_the_stages_old_pid_is_left_alone(sessions):
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    identity = identify(other.pid)
    sessions.append(identity)
    end_stage(ProcessIdentity(other.pid, identity.start_time - 1), grace_s=0.1, clock=CLOCK)
    end_stage(ProcessIdentity(other.pid, 0), grace_s=0.1, clock=CLOCK)
    assert is_running(identity)
    assert other.poll() is None
    other.kill()
    other.wait(timeout=10)


def test_what_a_stage_that_died_first_left_in_its_session_is_ended(sessions):
    code = "import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"
    stage = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    orphan = identify(int(stage.stdout.readline()))
    sessions.append(orphan)
    identity = identify(stage.pid)
    stage.kill()
    stage.wait(timeout=10)
    stage.stdin.close()
    stage.stdout.close()
    assert is_running(orphan)
    end_stage(identity, grace_s=0.1, clock=CLOCK)
    assert not is_running(orphan)


def test_the_supervisor_starts_without_the_heavy_packages():
    code = "import sys, prozess.app.run.supervisor; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"numpy", "pydantic", "pyarrow", "psutil", "nemesis", "typer", "rich", "argparse", "logging"}
    assert not heavy & set(loaded.stdout.split())
