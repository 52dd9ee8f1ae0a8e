"""Which Docker engine is meant, and that one of another machine is refused before anything is asked of it."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from prozess.clusters.compose.engine import endpoint, sweep_run
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.run_directory import RunDirectory
from tests.support.tools import engine_problem


def context(directory: Path, name: str, host: str) -> None:
    """As `docker context create` writes it."""
    at = directory / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    at.mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (at / "meta.json").write_text(json.dumps(meta))


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker's, of a user who has none yet."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("host", ["tcp://engine.example:2376", "ssh://kafka@engine.example", "tcp://127.0.0.1:2375"])
def test_an_engine_that_may_be_of_another_machine_is_refused_with_the_ways_out(
    configuration: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(BadInput, match=rf"DOCKER_HOST = '{host}' .*needs one of this machine.*ssh or attach"):
        endpoint()
    assert "another machine" in str(engine_problem())


def test_a_local_socket_is_taken_as_it_is_said(configuration: Path) -> None:
    assert endpoint() == "unix:///var/run/docker.sock"
    assert endpoint({"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}) == "unix:///run/user/1000/docker.sock"


def test_the_context_that_is_current_or_named_counts_and_a_host_counts_more(configuration: Path) -> None:
    context(configuration, "far", "ssh://engine.example")
    context(configuration, "near", "unix:///run/user/1000/docker.sock")
    (configuration / "config.json").write_text(json.dumps({"currentContext": "far"}))
    with pytest.raises(BadInput, match=r"context 'far', 'ssh://engine\.example', may be"):
        endpoint({})
    assert endpoint({"DOCKER_CONTEXT": "near"}) == "unix:///run/user/1000/docker.sock"
    assert endpoint({"DOCKER_HOST": "unix:///var/run/docker.sock"}) == "unix:///var/run/docker.sock"
    with pytest.raises(BadInput, match=r"no Docker context 'none'"):
        endpoint({"DOCKER_CONTEXT": "none"})


def test_a_trial_on_it_is_bad_input_before_anything_starts(
    configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://engine.example")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "prozess",
            "run",
            "smoke",
            "--backend",
            "compose",
            "--runs",
            str(configuration / "r"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == ExitCode.BAD_INPUT, done.stderr
    assert "DOCKER_HOST = 'ssh://engine.example'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_left_of_a_run_in_a_local_engine_is_told_to_be_left(
    configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(configuration / "run")
    run.create()
    (run.path / "compose.yaml").touch()
    monkeypatch.setenv("DOCKER_HOST", "tcp://engine.example:2376")
    (left,) = sweep_run(run).left
    assert "engine.example" in left
