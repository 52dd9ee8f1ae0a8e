"""Trials as tasks of Spark: each has a cluster of its own, a killed worker loses nothing, and nothing counts twice."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from prozess.campaigns.shared_results import LEASE_S
from prozess.harness.clock import SystemClock, wait_until
from tests.support.servers.object_store import object_store
from tests.support.servers.spark import standalone

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]
# Their cheaper neighbour: tests/unit/prozess/campaigns/test_many_machines.py

MATRIX = """
name = "small"
title = "Nothing breaks"

[matrix]
seeds = [{seeds}]

[[matrix.schedules]]
name = "calm"
title = "nothing breaks"
settle_s = 0
steps = [{{ name = "traffic", after = {{ condition = "elapsed", seconds = 1 }} }}]

[topics]
partitions = 1
placement = [[1, 2, 3]]

[base]
"topic.replication_factor" = 3

[axes]
"producer.acks" = ["1", "all"]
"""
TIMEOUT_S = 1200.0
TRIALS = int(os.environ.get("PROZESS_SPARK_TRIALS", "6"))


@pytest.fixture
def matrix(tmp_path, need) -> Path:
    need("java")
    need("namespaces")
    (tmp_path / "unseen").mkdir()  # hidden from workers, which are in mount namespaces of their own then
    file = tmp_path / "small.toml"
    file.write_text(MATRIX.format(seeds=", ".join(map(str, range(1, TRIALS + 1)))), encoding="utf-8")
    return file


def begin(matrix: Path, place: str, master: str, log: Path, **environment: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "prozess", "matrix", str(matrix), "--run", place]
    options = ["--master", master, "--cores-per-trial", "1"]
    with log.open("wb") as file:
        return subprocess.Popen([*command, *options], stdout=file, stderr=file, env={**os.environ, **environment})


def trials_of_ours() -> list[psutil.Process]:
    """Every process of a trial that a task of Spark began."""
    return [
        p
        for p in psutil.process_iter(["cmdline"])
        if any("end_with_parent(" in word for word in p.info["cmdline"] or ())
    ]


def scratch() -> set[str]:
    import tempfile

    return {path.name for path in Path(tempfile.gettempdir()).glob("prozess-trial-*")}


def test_a_worker_that_is_killed_in_mid_trial_loses_nothing_and_nothing_counts_twice(matrix, tmp_path):
    place, log, before = tmp_path / "results", tmp_path / "command.log", scratch()
    with standalone(tmp_path, hidden=[tmp_path / "unseen"], cores=(None, None, None)) as master:
        command = begin(matrix, str(place), master, log)
        clock = SystemClock()

        def a_trial_runs() -> psutil.Process | None:
            assert command.poll() is None, log.read_text()
            entries = len(list(place.glob("entries/*.json")))
            running = trials_of_ours()
            return running[0] if entries >= 1 and running else None

        trial = wait_until(a_trial_runs, awaited="a trial in a task of Spark", timeout_s=TIMEOUT_S, clock=clock)
        family = [p for p in trial.parents() if "spark" in " ".join(p.cmdline())]
        worker = next(p for p in family if "deploy.worker.Worker" in " ".join(p.cmdline()))
        for process in [worker, *worker.children()]:  # the worker and its executor: Spark's processes of one machine
            process.send_signal(signal.SIGKILL)
        assert command.wait(TIMEOUT_S) in (0, 1, 2), log.read_text()
        psutil.wait_procs([trial], timeout=120)
        assert trials_of_ours() == [], "a trial outlived its task"
    told = log.read_text()
    result = json.loads((place / "result.json").read_text())
    assert [t["number"] for t in result["trials"]] == list(range(TRIALS))
    assert all(t["verdict"] is not None for t in result["trials"]), told
    lines = [json.loads(line)["job"]["number"] for line in (place / "entries.jsonl").read_text().splitlines()]
    assert Counter(lines) == dict.fromkeys(range(TRIALS), 1)
    runs = {t["run"] for t in result["trials"]}
    assert {path.name for path in (place / "runs").iterdir()} == runs
    assert f"{TRIALS} of {TRIALS} trials are over" in told
    # The task of the killed worker left its directory; the next one on that machine finds and removes it.
    assert len(scratch() - before) <= 1


def test_results_in_an_object_store_are_told_from_there_and_the_command_continues(matrix, tmp_path):
    log, uri = tmp_path / "command.log", "s3a://runs/results"
    with (
        object_store(tmp_path) as store,
        standalone(tmp_path, hidden=[tmp_path / "unseen"], cores=(None, None)) as master,
    ):
        command = begin(matrix, uri, master, log, **store.environment)
        assert command.wait(TIMEOUT_S) in (0, 1, 2), log.read_text()
        again = begin(matrix, uri, master, log, **store.environment)
        assert again.wait(TIMEOUT_S) in (0, 1, 2), log.read_text()
        assert f"{TRIALS} of {TRIALS} trials were run before" in log.read_text()
        told = subprocess.run(
            [sys.executable, "-m", "prozess", "matrix", uri, "--json"],
            capture_output=True,
            text=True,
            env={**os.environ, **store.environment},
            timeout=TIMEOUT_S,
            check=False,
        )
        assert told.returncode in (0, 1, 2), told.stderr
        assert len([t for t in json.loads(told.stdout)["trials"] if t["verdict"]]) == TRIALS
        assert (store.folder / "runs" / "results" / "matrix.html").is_file()


def test_one_command_at_a_time_writes_into_an_object_store_and_a_killed_one_holds_it_no_longer_than_its_lease(
    matrix, tmp_path
):
    first_log, uri, clock = tmp_path / "first.log", "s3a://runs/results", SystemClock()
    with (
        object_store(tmp_path) as store,
        standalone(tmp_path, hidden=[tmp_path / "unseen"], cores=(None, None)) as master,
    ):
        results = store.folder / "runs" / "results"
        first = begin(matrix, uri, master, first_log, **store.environment)

        def an_entry_is_there() -> bool:
            assert first.poll() is None, first_log.read_text()
            return any(results.glob("entries/*.json"))

        def refused(log: Path) -> str:
            other = begin(matrix, uri, master, log, **store.environment)
            assert other.wait(TIMEOUT_S) == 254, log.read_text()
            return log.read_text()

        wait_until(an_entry_is_there, awaited="the first trial's entry", timeout_s=TIMEOUT_S, clock=clock)
        assert f"another command works on these results (process {first.pid} on " in refused(tmp_path / "second.log")
        assert first.poll() is None, "the command that was refused ended the one that works"
        first.kill()
        first.wait(60)
        over = {path.name for path in results.glob("entries/*.json")}
        # Its claim has not expired yet. Nothing of its results is touched until then.
        assert "The claim of a command that was killed expires after" in refused(tmp_path / "third.log")
        assert over <= {path.name for path in results.glob("entries/*.json")}
        (claim,) = results.glob("owners/*.json")
        wait_until(
            lambda: clock.wall_ns() - claim.stat().st_mtime_ns > (LEASE_S + 1) * 1e9,
            awaited="the end of the killed command's lease",
            timeout_s=2 * LEASE_S,
            clock=clock,
        )
        last = begin(matrix, uri, master, tmp_path / "last.log", **store.environment)
        assert last.wait(TIMEOUT_S) in (0, 1, 2), (tmp_path / "last.log").read_text()
        assert re.search(rf"[1-9]\d* of {TRIALS} trials were run before", (tmp_path / "last.log").read_text())
        result = json.loads((results / "result.json").read_text())
        assert all(trial["verdict"] is not None for trial in result["trials"])
        assert not list(results.glob("owners/*.json")), "a command that ended left its claim"
