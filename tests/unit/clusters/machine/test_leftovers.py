"""What is left when everything that could clean up was killed, and who removes it."""

import fcntl
import gc
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from prozess.app.conduct import heal_killed_runs
from prozess.clusters.compose.engine import connect
from prozess.clusters.disks import volumes
from prozess.clusters.disks.volumes import ControlGroup, group_prefix, runs_with_groups
from prozess.clusters.install.tools import ensure_toxiproxy
from prozess.clusters.machine.sandbox import enter_command
from prozess.harness import machine_record
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import MissingTool
from prozess.harness.run_directory import RunDirectory
from tests.support.paths import ROOT
from tests.support.tools import engine_problem

ENGINE = ROOT / "compose" / "engine.sh"
BUILDS = "from prozess.clusters.install.tools import ensure_toxiproxy; ensure_toxiproxy()"
GO = """\
#!/bin/sh
sleep 600 &
echo $! >"$GOBIN/compiler"
sleep 600
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path):
    """With a `go` that builds for a long time, and starts another program as Go does."""
    script(tmp_path / "bin" / "go", GO)
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PROZESS_CACHE": str(tmp_path / "cache")}


def building(environment):
    """A process that builds, the ids of its builder's processes, and its workspace."""
    tools = Path(environment["PROZESS_CACHE"]) / "tools"
    process = subprocess.Popen([sys.executable, "-c", BUILDS], cwd=ROOT, env=os.environ | environment)
    (note,) = wait_until(
        lambda: [path for path in tools.glob(".building-*/compiler") if path.read_text().strip()],
        awaited="the builder to be at work",
        timeout_s=60,
        clock=SystemClock(),
    )
    return process, psutil.Process(process.pid).children(recursive=True), note.parent


def all_gone(processes):
    wait_until(
        lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes),
        awaited="the builder to be gone",
        timeout_s=30,
        clock=SystemClock(),
        last_seen=lambda: str([p for p in processes if p.is_running()]),
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_was_ended_leaves_neither_a_builder_nor_a_folder(environment, number):
    process, builders, workspace = building(environment)
    assert len(builders) >= 3, builders
    process.send_signal(number)
    process.wait(30)
    all_gone(builders)
    wait_until(lambda: not workspace.exists(), awaited="no workspace", timeout_s=30, clock=SystemClock())


def test_a_folder_of_a_build_that_was_killed_with_everything_goes_with_the_next_build(environment):
    process, builders, workspace = building(environment)
    everybody = (process, *builders)
    for one in everybody:  # stopped first: a builder that outlives its caller for a moment would clean up
        one.send_signal(signal.SIGSTOP)
    for one in everybody:
        with suppress(psutil.NoSuchProcess):  # a builder ends with what it was started by
            one.send_signal(signal.SIGKILL)
    process.wait(30)
    all_gone(builders)
    assert workspace.is_dir()
    script(
        Path(environment["PATH"].partition(":")[0]) / "go", '#!/bin/sh\n: >"$GOBIN/server"; chmod +x "$GOBIN/server"\n'
    )
    assert ensure_toxiproxy(environment=environment).is_file()
    assert not workspace.exists()


def test_the_engine_is_started_with_nothing_of_its_callers_open(tmp_path):
    """A pipe's reader sees its end, and a lock is free, while the daemon runs."""
    state = tmp_path / "state"
    script(tmp_path / "bin" / "docker", f'#!/bin/sh\n[ "$1" = compose ] || [ -e {state}/up ]\n')
    daemon = f"#!/bin/sh\nls /proc/self/fd >{state}/open; echo $$ >{state}/dockerd.pid; : >{state}/up; exec sleep 600\n"
    script(tmp_path / "bin" / "dockerd", daemon)
    place = {
        "PROZESS_ENGINE_RUN": str(state),
        "PROZESS_ENGINE_PREFIX": str(tmp_path),
        "PROZESS_ENGINE_DATA": str(tmp_path),
    }
    environment = os.environ | place | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    reading, writing = os.pipe()
    code = f"{ENGINE.read_text().rpartition('case ')[0]}\nstart_daemon; until_true 20 engine_works"
    with subprocess.Popen(["bash", "-c", code], env=environment, pass_fds=[lock, writing]) as started:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.close(lock)
        os.close(writing)
        assert started.wait(60) == 0
    daemon_pid = int((state / "dockerd.pid").read_text())
    try:
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b"", "the end of the pipe, and not: nothing yet"
        with (tmp_path / "lock").open() as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert {int(fd.name) for fd in Path(f"/proc/{daemon_pid}/fd").iterdir()} <= {0, 1, 2}
    finally:
        os.close(reading)
        os.kill(daemon_pid, signal.SIGKILL)


def test_an_engine_that_this_user_may_not_use_is_a_reason_and_leaves_no_socket(tmp_path, monkeypatch):
    """filterwarnings = error would make an error of a socket that is left open."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        with pytest.raises(MissingTool, match="Connection refused"):  # it does not listen
            connect()
    path.unlink()
    assert "No such file" in (engine_problem() or "")
    gc.collect()  # what was left open is reported now, and fails this test


def test_control_groups_of_a_run_that_was_killed_with_everything_go_with_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setattr(volumes, "_V1", tmp_path / "v1")
    monkeypatch.setattr(volumes, "_V2", tmp_path / "v2")
    killed, alive = (RunDirectory(tmp_path / "runs" / name) for name in ("killed", "alive"))
    for run in (killed, alive):
        run.create()
        run.plan.write_text("{}")
        machine_record.begin(run)
    group = ControlGroup(tmp_path / "v1" / f"{group_prefix(killed)}broker-1")
    group.directory.parent.mkdir()
    (tmp_path / "v2").mkdir()
    group.make()
    other = tmp_path / "v1" / "prozess-0123456789ab-broker-1"
    other.mkdir()
    assert runs_with_groups(tmp_path / "runs") == [RunDirectory(killed.path.resolve())]
    heal_killed_runs(tmp_path / "runs", SystemClock())
    assert not group.directory.exists()
    assert other.exists(), "of a run elsewhere"


def test_the_sandbox_looks_for_the_cache_of_who_started_it(tmp_path, monkeypatch, need):
    """Root inside a user namespace has root's home, where no HOME is set."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("PROZESS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("prozess.harness.installation.os.geteuid", lambda: 65534)
    expected = Path(pwd.getpwuid(65534).pw_dir, ".cache", "prozess")
    need("namespaces")
    code = textwrap.dedent("""
        import json, os
        from prozess.harness.installation import cache_directory
        print(json.dumps(str(cache_directory())))
    """)
    done = subprocess.run(
        enter_command([sys.executable, "-c", code]), cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert json.loads(done.stdout) == str(expected), done.stderr
