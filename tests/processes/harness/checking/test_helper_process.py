"""Processes that check a large history find what threads find, say how they ended, and outlive nobody."""

import importlib
import os
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from prozess.checkers.registry import select
from prozess.exchange.commands import generate_history
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.checking import kernels
from prozess.harness.checking.checker import PartitionChecker
from prozess.harness.checking.helper_process import HelperProcess, can_be_sent
from prozess.harness.checking.kernels import Unit, check_locally, unit_checker
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import HarnessFailed, HistoryUnreadable
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import no_witnesses
from prozess.harness.processes import identify, is_running
from prozess.harness.run_directory import RunDirectory
from tests.support.finding_values import said

WITHIN_S = 20


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    path = tmp_path_factory.mktemp("generated") / "run"
    planted = ",".join(f"{name}=2" for name, plant in PLANTS.items() if plant.kind == "log")
    generate_history(path, rows=60_000, partitions=5, plant=planted, workloads=["log"], seed=3)
    return RunDirectory(path)


def helpers() -> list[int]:
    """The helpers of this process that live."""
    ours = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    return [one.pid for one in ours if "prozess.harness.checking.helper_process" in one.cmdline()]


def test_processes_find_what_threads_find_and_none_is_left(run, monkeypatch):
    by_threads = [said(finding) for finding in check_locally(History.open(run), select(), workers=2)]
    asked = []
    check = HelperProcess.check
    monkeypatch.setattr(
        HelperProcess, "check", lambda self, units: (asked.append(len(helpers())), check(self, units))[1]
    )
    monkeypatch.setattr(kernels, "PROCESSES_ROWS_MIN", 0)
    assert [said(finding) for finding in check_locally(History.open(run), select(), workers=2)] == by_threads
    assert len(asked) >= 2
    assert max(asked) == 2
    assert helpers() == []


def test_one_worker_needs_no_other_process(run, monkeypatch):
    monkeypatch.setattr(kernels, "PROCESSES_ROWS_MIN", 0)
    monkeypatch.setattr(HelperProcess, "check", None)
    assert check_locally(History.open(run), select(["lost"]), workers=1)


OWN = """
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import no_witnesses


def kernel(history):
    return KernelResult(no_witnesses(), count=4_711, judged=history.partition)
"""


def test_a_checker_that_lies_where_only_this_process_looks_is_found(run, tmp_path, monkeypatch):
    (tmp_path / "own_kernel_of_a_user.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_kernel_of_a_user")
    lost = select(["lost"])
    mine = replace(lost, partition={"lost": replace(lost.partition["lost"], kernel=own.kernel)})
    with HelperProcess(unit_checker, run, mine) as helper:
        (found,) = helper.check([Unit(3, None, 1)])
    assert (found.result.count, found.result.judged) == (4_711, 3)


def test_what_a_task_raises_is_raised_where_it_was_asked_for(run, tmp_path):
    with HelperProcess(unit_checker, RunDirectory(tmp_path / "none"), select()) as helper:
        for _ in range(2):  # and the next task is still answered
            with pytest.raises(HistoryUnreadable, match=r"plan\.json"):
                helper.check([Unit(0, None, 1)])
    assert helpers() == []


def test_a_process_that_is_killed_is_told_of_with_a_way_out(run):
    with HelperProcess(unit_checker, run, select()) as helper:
        assert helper.check([Unit(0, None, 1)])
        (pid,) = helpers()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(HarnessFailed, match=r"was killed by SIGKILL.*--workers 1"):
            helper.check([Unit(1, None, 1)])


HOLDER = """
import sys
from pathlib import Path
from prozess.checkers.registry import select
from prozess.harness.checking.helper_process import HelperProcess
from prozess.harness.checking.kernels import Unit, unit_checker
from prozess.harness.run_directory import RunDirectory
with HelperProcess(unit_checker, RunDirectory(Path(sys.argv[1])), select(["lost"])) as helper:
    helper.check([Unit(0, None, 1)])
    print(helper._process.pid, flush=True)
    sys.stdin.read()
"""


def test_a_process_ends_when_whoever_started_it_is_killed(run):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        helper = identify(pid)
        assert helper is not None
        holder.kill()
    wait_until(
        lambda: not is_running(helper),
        awaited="the helper to end",
        timeout_s=WITHIN_S,
        clock=SystemClock(),
        interval_s=0.02,
    )


def test_checkers_that_only_this_process_knows_stay_in_it():
    assert can_be_sent(select())

    def kernel(_history):
        return KernelResult(no_witnesses(), count=0, judged=0)

    assert not can_be_sent([PartitionChecker(anomaly="lost", kernel=kernel)])
    kernel.__module__, kernel.__qualname__ = "__main__", "kernel"
    sys.modules["__main__"].kernel = kernel
    try:
        assert not can_be_sent([PartitionChecker(anomaly="lost", kernel=kernel)])
    finally:
        del sys.modules["__main__"].kernel
