"""One real smoke trial, from the command to the report."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prozess.harness.verdict import AnomalyOutcome, TrialVerdict, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


@pytest.fixture(scope="module")
def smoke(run_trial, need):
    """The finished smoke trial: (run directory, verdict). The only one of the suite."""
    need("java")
    need("namespaces")
    done = run_trial("smoke", seeds=(7, 8, 9))
    return done.run, done.verdict


def test_smoke_holds_and_its_control_fired(smoke):
    _, verdict = smoke
    assert verdict.verdict is Verdict.HELD
    assert verdict.unknown_reasons == ()
    assert len(verdict.cells) == 28
    (control,) = [control for control in verdict.controls if control.required]
    assert control.anomaly == "lost"
    assert len(control.fired_in) == len(control.cells) == 8


def test_every_acks_1_cell_lost_what_it_may_and_no_acks_all_cell_lost_anything(smoke):
    _, verdict = smoke
    for cell in verdict.cells:
        lost = cell.anomalies["lost"]
        if cell.axes["producer.acks"] == "1":
            assert (lost.outcome, lost.count >= 200) == (AnomalyOutcome.SHOWN, True), cell.name
            assert lost.witnesses
        if cell.axes["producer.acks"] == "all":
            assert (lost.outcome, lost.proven) == (AnomalyOutcome.HELD, True), cell.name


def test_both_faults_took_effect_on_the_nodes_their_roles_meant(smoke):
    run, verdict = smoke
    assert {(fault.fault, fault.nodes, fault.effective) for fault in verdict.faults} == {
        ("pause", ("broker-2", "broker-3"), True),
        ("kill", ("broker-1",), True),
    }
    resolved = json.loads(run.resolved.read_text())
    assert resolved


def test_the_local_engine_comes_to_the_same_verdict(smoke):
    run, verdict = smoke
    again = subprocess.run(
        [sys.executable, "-m", "prozess.harness.app.cli", "check", str(run.path), "--engine", "local", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    assert TrialVerdict.model_validate_json(again.stdout).cells == verdict.cells


def test_the_report_opens_in_a_browser_and_shows_the_verdict(smoke, need, tmp_path):
    need("chromium")
    run, _ = smoke
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    page = tmp_path / "page.png"
    shown = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr", f"--screenshot={page}", "--window-size=1280,2400", "--dump-dom",
            (run.path / "report.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "CONSOLE" not in shown.stderr, "the console must be clean"
    assert re.search(r'class="badge held"', shown.stdout)
    assert page.stat().st_size > 20_000


def test_each_stage_can_be_repeated_alone(smoke):
    run, _ = smoke
    for name in ("report.html", "junit.xml", "summary.md"):
        (run.path / name).unlink()
    again = subprocess.run(
        [sys.executable, "-m", "prozess.harness.app.cli", "report", str(run.path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode == 0, again.stderr
    assert {Path(line).name for line in again.stdout.split()} == {"report.html", "junit.xml", "summary.md"}
