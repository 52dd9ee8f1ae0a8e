"""A whole trial in containers: the same verdict as on the local backend, and nothing left in the engine, however it ends."""

import os
import re
import signal

import pytest

from prozess.clusters.compose.engine import find_image
from prozess.harness.run_directory import RunDirectory, read_json
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.contract.test_compose_cluster import left_of
from tests.support.command import wait_nothing_left
from tests.support.paths import ROOT
from tests.support.servers.clusters import ensure_images, numbered_from_zero
from tests.system.trials.test_interruptions import frozen, prozess_on

pytestmark = [pytest.mark.cluster, pytest.mark.docker]
COMPOSE = ("--backend", "compose", "--variant", "kraft-combined")


@pytest.fixture(scope="module", autouse=True)
def images(need):
    need("java")
    need("docker")
    ensure_images("4.4.0")


LOST_ANSWER = """
[[steps]]
name = "an answer to the idempotent producer is lost"
do = { kind = "fault", fault = "message", targets = ["brokers"], parameters = MESSAGE }

[[steps]]
name = "and it is reported at last"
after = { condition = "elapsed", seconds = 1 }
do = { kind = "heal" }

[[steps]]
name = "quiet"
""".replace(
    "MESSAGE",
    '{ match = { api = "Produce", direction = "answer", error = "NONE", partition = 6, nth = 2 }, action = { do = "lose" } }',
)
"""Steps before the smoke trial's pause: the message proxy stands in the links of containers, too."""


def small_smoke():
    """The smoke trial with the axes of the producer's acks and idempotence alone, 4 cells instead of 28; and one answer to
    a producer is lost."""
    whole = (ROOT / "trials" / "smoke.toml").read_text(encoding="utf-8")
    small, dropped = re.subn(r'^"(?:producer\.retries|topic\.\w+)" = \[.*\n', "", whole, flags=re.MULTILINE)
    assert dropped == 3
    quiet = '\n[[steps]]\nname = "quiet"\n'
    assert small.count(quiet) == 1
    return small.replace(quiet, LOST_ANSWER)


@pytest.mark.parametrize(
    ("trial", "cells", "lost"),
    [
        pytest.param(small_smoke(), 4, 1, id="small", marks=pytest.mark.long),
        pytest.param("smoke", 28, 0, marks=[pytest.mark.long, pytest.mark.alone]),
    ],
)
def test_the_smoke_trial_holds_in_containers_and_its_control_fires(run_trial, trial, cells, lost):
    done = run_trial(trial, *COMPOSE, "--engine", "local", seeds=(7, 8, 9))
    assert done.verdict.verdict is Verdict.HELD
    assert len(done.verdict.cells) == cells
    (control,) = [control for control in done.verdict.controls if control.required]
    assert len(control.fired_in) == len(control.cells) > 0
    for cell in done.verdict.cells:
        if cell.axes["producer.acks"] == "all":
            assert cell.anomalies["lost"].outcome is AnomalyOutcome.HELD, cell.name
    struck = {fault.fault: (fault.nodes, fault.effective) for fault in done.verdict.faults}
    assert (struck["pause"], struck["kill"]) == ((("broker-2", "broker-3"), True), (("broker-1",), True))
    assert [effective for name, (_, effective) in struck.items() if name == "message"] == [True] * lost
    messages = done.history.table("messages")
    assert messages["partition"].tolist() == [6] * lost
    cluster = read_json(done.run.cluster)
    assert cluster["backend"] == "compose"
    assert cluster["features"]["metadata.version"] > 0
    assert done.history.rows("replicas") > 0, "the replicas' own files are read after the end"
    assert done.history.rows("metadata") > 0
    assert done.history.rows("metrics") > 0
    assert all((done.run.logs / f"{node}.log").stat().st_size > 0 for node in cluster["nodes"])
    assert done.run.compose.is_file()
    assert left_of(done.run) == []


NUMBERED_FROM_ZERO = """
name = "numbered-from-zero"
title = "Brokers numbered from 0: one is cut off, and a leader is killed"
backend = "compose"

[compose]
file = "FILE"

[variant]
metadata_mode = "kraft-combined"
brokers = 3

[topics]
partitions = 2
placement = [[1, 2, 3]]

[traffic]
rate_hz = 20

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2

[axes]
"producer.acks" = ["1", "all"]

[[steps]]
name = "cut broker 0 off"
after = { condition = "elapsed", seconds = 3 }
do = { kind = "fault", fault = "partition", targets = ["node:broker-0"] }

[[steps]]
name = "it is there again"
after = { condition = "leader-moved" }
timeout_s = 60
do = { kind = "heal", step = "cut broker 0 off" }

[[steps]]
name = "every replica in sync"
after = { condition = "isr" }
timeout_s = 90

[[steps]]
name = "kill the leader"
do = { kind = "fault", fault = "kill", targets = ["leader(0)"] }

[[steps]]
name = "it returns"
after = { condition = "elapsed", seconds = 4 }
do = { kind = "heal", step = "kill the leader" }

[[steps]]
name = "every replica in sync again"
after = { condition = "isr" }
timeout_s = 90
"""


@pytest.mark.long
def test_a_trial_on_a_file_whose_brokers_are_numbered_from_0_reaches_its_verdict(run_trial, tmp_path):
    """A node 0 that does not lead the quorum was once taken for one that says it does."""
    file = tmp_path / "mine.yaml"
    file.write_text(numbered_from_zero(3, find_image("kafka", "4.4.0")), encoding="utf-8")
    done = run_trial(NUMBERED_FROM_ZERO.replace("FILE", str(file)), "--engine", "local", seeds=(7, 8))
    assert done.verdict.verdict is Verdict.HELD
    cells = {cell.axes["producer.acks"]: cell for cell in done.verdict.cells}
    for anomaly in ("lost", "stale-controller", "two-controllers", "unclean"):
        assert cells["all"].anomalies[anomaly].outcome is AnomalyOutcome.HELD, anomaly
    struck = {fault.fault: fault for fault in done.verdict.faults}
    assert (struck["partition"].nodes, struck["partition"].effective) == (("broker-0", "broker-1", "broker-2"), True)
    assert struck["kill"].effective
    assert left_of(done.run) == []


@pytest.mark.long
def test_after_a_sigkill_in_mid_fault_the_supervisor_leaves_nothing_in_the_engine(prozess):
    command = prozess("run", "smoke", *COMPOSE, "--engine", "local")
    command.wait_event(frozen, what="frozen followers", timeout_s=180)
    run = RunDirectory(command.run_directory)
    assert len(left_of(run)) == 8
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait(timeout=10)
    wait_nothing_left(run.path, timeout_s=90)
    assert left_of(run) == []
    healed = prozess_on(run, "heal")
    assert healed.returncode == 0, healed.stderr
    again = prozess_on(run, "check", "--engine", "local", "--quiet")
    assert again.returncode == 2, again.stdout + again.stderr
    assert again.stdout.startswith("unknown:")


@pytest.mark.long
def test_after_a_sigkill_of_everything_heal_leaves_nothing_in_the_engine(prozess):
    command = prozess("run", "smoke", *COMPOSE, "--engine", "local")
    command.wait_event(frozen, what="frozen followers", timeout_s=180)
    run = RunDirectory(command.run_directory)
    kill_all_of(run, command.process.pid)
    command.process.wait(timeout=10)
    wait_nothing_left(run.path, timeout_s=30)
    assert len(left_of(run)) == 8, "nobody is there to remove them"
    healed = prozess_on(run, "heal")
    assert healed.returncode == 0, healed.stderr
    assert left_of(run) == []


def kill_all_of(run, outer):
    """SIGKILL to the supervisor first, then to the rest at once: nobody gets to clean up."""
    import psutil

    def of_the_run(process):
        try:
            return str(run.path) in " ".join(process.cmdline())
        except psutil.Error:
            return False

    ours = [psutil.Process(outer), *(p for p in psutil.process_iter() if of_the_run(p) and p.pid != outer)]
    ours = [process for process in ours if "java" not in process.name()]
    for process in sorted(ours, key=lambda p: "prozess.app.run.supervisor" not in p.cmdline()):
        process.kill()
