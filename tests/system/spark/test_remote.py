"""`--master` and `--remote`: a Spark cluster and a Spark Connect server find what the local engine finds."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from prozess import spark as trial
from prozess.checkers.registry import select
from prozess.exchange.commands import generate_history
from prozess.harness import installation
from prozess.harness.checking.findings import read_findings
from prozess.harness.checking.kernels import check_locally
from prozess.harness.errors import BadInput, HarnessFailed, HistoryUnreadable, MissingTool
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import Finding
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import Verdict
from prozess.spark_checkers.engine import HistoryLocation, _Spread
from prozess.spark_checkers.session import start_session
from tests.support.servers.object_store import PLAIN_CHECKSUMS, object_store
from tests.support.servers.spark import connect_server, standalone

pytestmark = pytest.mark.spark
CHECK_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    """Logs, transactions and groups over twelve partitions, with eight planted anomalies."""
    path = tmp_path_factory.mktemp("generated") / "run"
    kinds = ["log", "transactions", "group"]
    generate_history(path, rows=60_000, partitions=4, plant="lost=5,duplicate=3", workloads=kinds, seed=3)
    return RunDirectory(path)


@pytest.fixture
def machine(tmp_path, need) -> Iterator[Path]:
    """A directory for servers; afterwards nothing that was started there is left."""
    need("java")
    yield tmp_path
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
    assert left == []


def facts(finding: Finding) -> tuple[object, ...]:
    result = finding.result
    witnesses = result.witnesses.tobytes()
    return finding.anomaly, finding.partition, result.count, result.judged, result.incomplete, witnesses


def checked(run: RunDirectory, *words: str) -> list[Finding]:
    """What `prozess check` finds, as it wrote it."""
    done = subprocess.run(
        [sys.executable, "-m", "prozess", "check", str(run.path), "--quiet", *words],
        capture_output=True,
        text=True,
        timeout=CHECK_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == ExitCode.VIOLATED, done.stderr + done.stdout
    assert done.stderr == ""
    return read_findings(run)


@pytest.mark.long
def test_a_standalone_cluster_of_two_workers_finds_what_threads_find(run, machine):
    local = check_locally(History.open(run), select(), workers=1)
    assert sum(f.result.count for f in local) >= 8
    with standalone(machine) as master:
        found = checked(run, "--master", master)
        # Each worker ran one executor, with our packages and not with installed ones.
        assert len(list((machine / "work").glob("*/*/stderr"))) == 2
    assert [facts(f) for f in found] == [facts(f) for f in local]


@pytest.mark.long
def test_a_task_whose_python_dies_is_run_again_by_spark(run, machine):
    died = machine / "died"

    def dies_once(history, number):
        try:
            died.touch(exist_ok=False)
        except FileExistsError:
            return number, history.rows("sends")
        os.kill(os.getpid(), signal.SIGKILL)

    with standalone(machine) as master:
        session = start_session(master=master)
        try:
            done = _Spread(session, run, 4).apply(dies_once, range(4), "one of these dies")
        finally:
            session.stop()
    assert died.exists()
    assert done == [(number, History.open(run).rows("sends")) for number in range(4)]


@pytest.mark.long
def test_a_spark_connect_server_finds_what_threads_find(run, machine):
    local = check_locally(History.open(run), select(), workers=1)
    with connect_server(machine) as remote:
        found = checked(run, "--remote", remote, "--conf", "spark.sql.shuffle.partitions=7")
        with pytest.raises(
            BadInput, match=r"--conf spark\.executor\.memory=1g: the Spark Connect server at .* refuses it"
        ):
            start_session(remote=remote, settings={"spark.executor.memory": "1g"})
    assert [facts(f) for f in found] == [facts(f) for f in local]


@pytest.mark.long
def test_workers_that_do_not_see_the_drivers_disk_read_a_run_in_an_object_store(run, machine, need, monkeypatch):
    need("namespaces")
    for name, value in PLAIN_CHECKSUMS.items():
        monkeypatch.setenv(name, value)
    local = check_locally(History.open(run), select(), workers=1)
    with object_store(machine) as store, standalone(machine, hidden=[run.path.parent]) as master:
        session = start_session(master=master)
        try:
            for name, value in store.settings.items():
                session.sparkContext._jsc.hadoopConfiguration().set(name, value)
            with pytest.raises(HarnessFailed, match="Spark's workers must see the run directory"):
                trial.check(session, run.path)
            uri = store.put(run.path, "far")
            assert trial.check(session, uri).verdict is Verdict.VIOLATED
            rows = trial.findings(session, uri).groupBy("anomaly").sum("count").collect()
        finally:
            session.stop()
    expected: Counter[str] = Counter()
    for finding in local:
        expected[finding.anomaly] += finding.result.count
    assert {row.anomaly: row["sum(count)"] for row in rows} == expected


def test_a_worker_that_does_not_see_the_history_says_where_and_what_to_do(tmp_path):
    with pytest.raises(HistoryUnreadable, match=r"not-shared is not on .*same path: put it on storage") as refused:
        HistoryLocation(RunDirectory(tmp_path / "not-shared"), "a check").open_here()
    assert "elete" not in str(refused.value)


def test_a_worker_that_sees_another_run_under_the_same_path_refuses_it(run):
    place = HistoryLocation.of(run)
    assert place.open_here().rows("sends") > 0
    with pytest.raises(
        HistoryUnreadable, match=r"is not the run that this check was started for: plan or tables differ"
    ):
        replace(place, check="another", digest="of another run").open_here()


def test_workers_with_a_changed_kernel_are_refused_by_name_and_find_nothing(run, tmp_path_factory, need):
    """An own session has whatever is installed on its workers: there is no archive of ours."""
    need("java")
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(installation.PACKAGE, other / "prozess", ignore=shutil.ignore_patterns("__pycache__"))
    kernel = other / "prozess" / "checkers" / "log" / "duplicates.py"
    text = kernel.read_text("utf-8")
    assert text.count("def duplicate(") == 1, "the kernel has moved"
    kernel.write_text(text.replace("def duplicate(", "def duplicate(  # another\n    ", 1), "utf-8")
    session = start_session(settings={"spark.executorEnv.PYTHONPATH": str(other)})
    try:
        with pytest.raises(MissingTool, match=r"The code of prozess on .* is not that of this command \(prozess: "):
            trial.check(session, run.path)
    finally:
        session.stop()


@pytest.mark.parametrize("address", ["sc://127.0.0.1:1", "spark://127.0.0.1:1", "127.0.0.1", "sc://127.0.0.1:port"])
def test_an_address_where_no_connect_server_is_is_named(address):
    if importlib.util.find_spec("grpc") is None:
        with pytest.raises(MissingTool, match=r"prozess\[connect\]"):
            start_session(remote=address)
        return
    with pytest.raises(BadInput, match=r"sc://host:port"):
        start_session(remote=address)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "local", "--master", "local[2]"], "--master says where Spark is"),
        (["--engine", "local", "--remote", "sc://localhost"], "--remote says where Spark is"),
        (["--master", "local[2]", "--remote", "sc://localhost"], "both say where Spark is"),
        (["--engine", "sprak"], "--engine 'sprak' is not known"),
    ],
)
def test_addresses_that_contradict_are_refused_before_anything_is_done(run, words, said):
    command = [sys.executable, "-m", "prozess", "check", str(run.path), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.BAD_INPUT
    assert said in done.stderr
