"""What the local backend takes of its host and leaves there: ports, the sandbox, the processes that it recorded."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prozess.clusters.machine.node_network import refuse_outside
from prozess.clusters.machine.processes import PIDS_NAME, recording_command, sweep_pids
from prozess.clusters.machine.sandbox import ISOLATION_VARIABLE, enter_command, isolation_here, probe
from prozess.clusters.machine.servers import SHARED_PORTS, free_ports
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.run_directory import RunDirectory

# --- ports ----------------------------------------------------------------------------------------------------------


def test_free_ports_are_free_below_the_ephemeral_range_and_differ() -> None:
    found = free_ports(["127.0.0.1", "127.0.0.2"], 5, first=SHARED_PORTS.stop - 2)
    assert len(set(found)) == 5
    assert all(port in SHARED_PORTS for port in found)
    assert SHARED_PORTS.stop <= 32768


def test_a_port_in_use_on_one_of_the_addresses_is_not_free() -> None:
    first = free_ports(["127.0.0.1"], 1, first=SHARED_PORTS.start)[0]
    with socket.create_server(("127.0.0.1", first)):
        assert first not in free_ports(["127.0.0.1", "127.0.0.2"], 3, first=first)


# --- sandbox and pids -----------------------------------------------------------------------------------------------


def test_a_forced_level_is_passed_on_and_costs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISOLATION_VARIABLE, "signals")
    assert isolation_here() == "signals"
    assert "partition" in " ".join(probe().costs)
    done = subprocess.run(
        enter_command(["sh", "-c", f"echo ${ISOLATION_VARIABLE} $1", "sh", "a b"]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "signals a b\n"


def test_an_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISOLATION_VARIABLE, "vm")
    with pytest.raises(BadInput, match=r"'vm' must be one of namespaces, signals"):
        probe()


def test_a_command_in_the_sandbox_is_pid_1_of_an_empty_network(monkeypatch: pytest.MonkeyPatch, need: Any) -> None:
    monkeypatch.delenv(ISOLATION_VARIABLE, raising=False)
    need("namespaces")
    done = subprocess.run(
        enter_command(["sh", "-c", f"echo $$ ${ISOLATION_VARIABLE}; ip -o link | wc -l; ls /run"]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "namespaces", "1", "netns"]


def test_namespaces_are_never_made_in_the_hosts_own_network(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    routes.write_text(head + "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n")
    with pytest.raises(HarnessFailed, match="inside the sandbox"):
        refuse_outside(routes)
    routes.write_text(head + "data\t004DD50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n")
    refuse_outside(routes)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[RunDirectory, subprocess.Popen[bytes]]]:
    run = RunDirectory(tmp_path)
    command = recording_command(["sleep", "60"], name="broker-1", into=run.path / PIDS_NAME)
    process = subprocess.Popen(command)
    try:
        wait_until(
            lambda: (run.path / PIDS_NAME).exists() and (run.path / PIDS_NAME).read_text().endswith("}\n"),
            awaited="the process to record itself",
            timeout_s=10.0,
            clock=SystemClock(),
        )
        yield run, process
    finally:
        process.kill()
        process.wait()


def test_a_recorded_process_is_swept(sleeper: tuple[RunDirectory, subprocess.Popen[bytes]]) -> None:
    run, process = sleeper
    assert sweep_pids(run) == [f"killed broker-1 (pid {process.pid})"]
    assert process.wait(10) == -9
    assert sweep_pids(run) == []


@pytest.mark.parametrize("other", ["start", "boot"])
def test_a_process_that_only_has_the_recorded_pid_is_left_alone(
    sleeper: tuple[RunDirectory, subprocess.Popen[bytes]], other: str
) -> None:
    run, process = sleeper
    path = run.path / PIDS_NAME
    record = json.loads(path.read_text().splitlines()[0])
    if other == "start":
        words = record["stat"].split()
        words[21] = str(int(words[21]) - 1)
        record["stat"] = " ".join(words)
    else:
        record["boot"] = "another"
    path.write_text(json.dumps(record) + "\n" + '{"node": "torn')
    assert sweep_pids(run) == []
    assert process.poll() is None


def test_a_run_without_recorded_processes_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep_pids(RunDirectory(tmp_path)) == []
