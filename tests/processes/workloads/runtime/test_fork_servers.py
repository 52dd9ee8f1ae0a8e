"""Fork servers that one trial leaves to the next of the same process: used again where nothing differs, and ended with it."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from prozess.harness.clock import wait_until
from prozess.harness.errors import HarnessFailed
from prozess.harness.schema import NONE
from prozess.workloads.runtime.processes import IDLE_MAX, ForkServers
from tests.support.log_workload import CLOCK, LIMIT_S, RESUME, alive, bench, children, on_client, plan_of


@pytest.fixture
def servers():
    made = ForkServers()
    yield made
    made.close()


def fork_server_of(b):
    """The process that the producer was forked from."""
    return psutil.Process(b.pid(b.producer)).ppid()


def kill(child):
    """Kills a child and waits until it is dead, but leaves it to its parent to notice."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def test_the_next_trial_has_the_same_and_records_as_one_that_started_its_own(servers, tmp_path):
    used = set()
    for number in range(3):
        with bench(plan_of(), tmp_path / str(number), servers=servers) as b:
            b.workload.command(RESUME)
            b.until(lambda b=b: b.total("ok") > 20, "records")
            used.add(fork_server_of(b))
            client = b.pid(b.producer)
        assert not alive(client)
        assert b.rows("clients", b.producer)["exit_code"][0] == 0
        assert b.rows("clients", b.producer)["ended_ns"][0] != NONE
    assert len(used) == 1
    assert all(alive(server) for server in used)
    servers.close()
    assert not any(alive(server) for server in used)


def test_without_others_that_want_them_none_is_left(tmp_path):
    before = children()
    with bench(plan_of(), tmp_path / "run", servers=None) as b:
        server = fork_server_of(b)
    assert not alive(server)
    assert children() == before


def test_another_environment_has_another_and_no_more_are_kept_than_may_be(servers, tmp_path, monkeypatch):
    used = []
    for number in range(IDLE_MAX + 2):
        monkeypatch.setenv("THEIRS", str(number))
        with bench(plan_of(), tmp_path / str(number), servers=servers) as b:
            used.append(fork_server_of(b))
    assert len(set(used)) == len(used)
    assert [alive(server) for server in used] == [False, False, *[True] * IDLE_MAX]


def test_one_that_was_killed_while_it_was_idle_or_in_use_is_not_used_again(servers, tmp_path):
    with bench(plan_of(), tmp_path / "first", servers=servers) as b:
        first = fork_server_of(b)
    kill(first)
    with bench(plan_of(), tmp_path / "second", servers=servers) as b:
        second = fork_server_of(b)
        os.kill(second, signal.SIGKILL)
        assert "died" in b.until_dead("producer-test")
    with bench(plan_of(), tmp_path / "third", servers=servers) as b:
        assert fork_server_of(b) not in (first, second)


def test_one_that_dies_when_it_was_just_taken_gives_way_to_another(tmp_path):
    class Dying(ForkServers):
        def take(self, key):
            if (server := super().take(key)) is not None:
                kill(server.process.pid)
            return server

    servers, used = Dying(), []
    for name in ("first", "second"):
        with bench(plan_of(), tmp_path / name, servers=servers) as b:
            used.append(fork_server_of(b))
            b.workload.command(RESUME)
            b.until(lambda b=b: b.total("ok") > 20, "records")
    servers.close()
    assert len(set(used)) == 2
    assert not any(alive(server) for server in used)


def test_where_one_died_with_its_clients_none_is_started_and_the_reason_is_said(servers, tmp_path):
    with bench(plan_of(), tmp_path / "run", servers=servers) as b:
        kill(fork_server_of(b))
        b.until_dead("producer-test")
        with pytest.raises(HarnessFailed, match="forked from has died"):
            b.workload.command(on_client("start", "producer-test"))


def test_one_from_which_a_client_was_killed_serves_the_next_trial(servers, tmp_path):
    with bench(plan_of(), tmp_path / "first", servers=servers) as b:
        first = fork_server_of(b)
        os.kill(b.pid(b.producer), signal.SIGKILL)
        b.until_dead("producer-test")
    with bench(plan_of(), tmp_path / "second", servers=servers) as b:
        assert fork_server_of(b) == first
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") > 20, "records")
        assert not b.workload.dead_clients()


def test_it_ends_with_a_process_that_is_killed(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from tests.support.log_workload import bench, plan_of\n"
        "import psutil\n"
        "with bench(plan_of(), Path(sys.argv[1])) as b: server = psutil.Process(b.pid(b.producer)).ppid()\n"
        "print(server, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "run")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    server = int(done.stdout)
    wait_until(lambda: not alive(server), awaited="its end", timeout_s=LIMIT_S, clock=CLOCK)
