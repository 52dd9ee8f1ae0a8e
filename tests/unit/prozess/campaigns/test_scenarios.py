"""The table of scenarios: what is left to run, what a run says, where it is written."""

import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from prozess.app.run_process import StopRequest
from prozess.campaigns.comparing.measured import MedianAndWorst
from prozess.campaigns.scenarios import (
    BEGIN,
    END,
    cells,
    judged_runs,
    new_leader_s,
    newest,
    next_seed,
    runs_at,
    scenarios,
    table_text,
    write_table,
)
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.manifest import seal_judged, seal_recorded
from prozess.harness.impact.cost import ImpactShown, WindowShown
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial import SCENARIOS, covered
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.harness.report.terminal import show_scenarios
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import CellAnomaly, CellVerdict, ControlResult, FaultShown, TrialVerdict, Verdict
from tests.support.small_runs import make_small
from tests.unit.prozess.campaigns.test_measured import struck

SAFE = make_plan(load_trial("safe"), seed=1).model_copy(update={"scenarios": ("A0", "B3")})


def sealed(path):
    """The run whose files are there, with the manifest that proves them."""
    seal_recorded(RunDirectory(path))
    seal_judged(RunDirectory(path))
    (run,) = runs_at([path])
    return run


@pytest.fixture
def run_of(tmp_path):
    """Makes the files of a judged run, and returns its summary."""
    numbers = count()

    def make(*faults, lost=1200, forbidden=0, controls=(1200, 0), verdict="held", gap_s=5.25, **changes):
        path = tmp_path / f"run-{next(numbers):03}"
        path.mkdir()
        plan = SAFE.model_copy(update=changes)
        found = {"forbidden": forbidden, "permitted": lost, "count": forbidden + lost, "known": {}}
        if verdict == "by a defect":
            verdict, found = "violated", found | {"defects": ("KAFKA-1",), "known": {"KAFKA-1": forbidden}}
        outcome = "violated" if forbidden else "permitted"
        anomaly = CellAnomaly(anomaly="lost", outcome=outcome, verdict=verdict, **found)
        cell = CellVerdict(cell=0, name="c", workload="log", axes={}, verdict=verdict, anomalies={"lost": anomaly})
        judged = TrialVerdict(
            verdict=verdict,
            sentence="",
            trial=plan.trial,
            title="",
            seed=plan.seed,
            cells=(cell,),
            controls=tuple(control(shown) for shown in controls),
            faults=tuple(
                FaultShown(step=f"step {n}", fault="kill", nodes=(), begin_s=0, end_s=None, effective=True, number=n)
                for n in range(len(faults))
            ),
        )
        windows = [] if gap_s is None else [WindowShown(partition=0, begin_s=1, end_s=1 + gap_s, fault=None)]
        impacts = [fault.model_copy(update={"fault": n}) for n, fault in enumerate(faults)]
        impact = ImpactShown(faults=tuple(impacts), windows=tuple(windows))
        for name, document in (("plan", plan), ("verdict", judged), ("impact", impact)):
            (path / f"{name}.json").write_text(document.model_dump_json())
        (path / "seconds.json").write_text('{"run": 61.4}')
        return sealed(path)

    return make


def control(shown, *, required=True):
    fired_in = (0,) if shown else ()
    return ControlResult(anomaly="lost", cells=(0,), fired_in=fired_in, count=shown, required=required)


NOBODY = MedianAndWorst(None, None)


def test_a_trial_is_run_until_it_has_its_verdict_and_an_unknown_is_tried_once_more_with_the_next_seed(run_of):
    unknown = run_of(verdict="unknown")

    def seed(*runs):
        return next_seed(runs, "safe", "kraft-isolated")

    assert seed() == 1
    assert seed(run_of()) is None
    assert seed(run_of(verdict="violated")) is None
    assert seed(unknown) == 2
    assert seed(unknown, run_of(verdict="unknown", seed=2)) is None
    zookeeper = SAFE.variant.model_copy(update={"metadata_mode": "zookeeper", "kafka_version": "3.9.2"})
    assert seed(run_of(verdict="unknown", trial="null"), run_of(variant=zookeeper)) == 1


def test_the_last_run_of_a_trial_is_the_one_that_counts(run_of):
    assert newest([run_of(verdict="unknown"), run_of(seed=2)])["safe", "kraft-isolated"].row["seed"] == 2


def test_faults_that_had_no_effect_or_depose_nobody_are_not_counted(run_of):
    def seconds(*faults):
        return new_leader_s(run_of(*faults).impacts)

    killed, slower = struck(known_ms=4_000), struck(known_ms=6_000)
    assert seconds(killed, slower) == MedianAndWorst(4.5, 6.0)
    assert seconds(killed, struck(effect="no"), struck(what="bandwidth leader")) == seconds(killed)
    assert seconds(struck(what="bandwidth leader")) == NOBODY


def test_a_line_says_what_was_permitted_and_stresses_what_was_not(run_of):
    assert cells(run_of(struck(known_ms=4_500), struck(known_ms=6_000)))[3:] == (
        "held",
        "1 of 2 fired: lost 1,200",
        "61",
        "5.2 s",
        "4.8 s, slowest 6.0 s",
        "permitted: lost 1,200",
    )
    assert "**forbidden: lost 3**" in cells(run_of(forbidden=3, verdict="violated"))[-1]
    known = cells(run_of(forbidden=3, verdict="by a defect"))
    assert known[3] == "violated, by a known defect"
    assert known[-1].endswith("known defect: KAFKA-1")
    quiet = cells(run_of(lost=0, gap_s=None, controls=(), seed=2))
    assert quiet[1] == "safe (seed 2)"
    assert quiet[4:] == ("none named", "61", "under 1 s", "–", "nothing")


def test_lines_stand_in_the_order_of_the_scenarios(run_of):
    told = table_text([run_of(trial="acks", scenarios=("C1", "A1")), run_of()]).splitlines()[2:]
    assert [line.split(" | ")[1] for line in told] == ["safe", "acks"]


def test_runs_of_one_trial_on_several_metadata_modes_stand_side_by_side(run_of):
    killed, late = struck(known_ms=4_000), struck(effect="no").model_copy(update={"longest_s": None})
    zookeeper = SAFE.variant.model_copy(update={"metadata_mode": "zookeeper", "kafka_version": "3.9.2"})
    told = table_text([run_of(killed, late), run_of(killed, variant=zookeeper)])
    assert "| safe | kraft-isolated 4.4.0 | zookeeper 3.9.2 |" in told
    assert "| step 0 | new leader 3.5 s, slowest 4.0 s; gap 5.5 s | new leader 3.5 s" in told
    assert "| step 1 | gap under 1 s | not hit |" in told


def test_the_table_is_written_anew_between_its_marks_and_nowhere_else(tmp_path, run_of):
    page = tmp_path / "page.md"
    page.write_text(f"# before\n{BEGIN}\nold\n{END}\nafter\n")
    write_table(page, [run_of()])
    write_table(page, [run_of()])
    text = page.read_text()
    assert text.startswith("# before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert text.count("safe") == 1
    assert "old" not in text
    page.write_text("no place")
    with pytest.raises(BadInput, match="no place for the table"):
        write_table(page, [run_of()])


def test_controls_of_one_anomaly_are_counted_one_by_one(run_of):
    path = Path(run_of(controls=(12, 0, 4)).row["address"])
    told = TrialVerdict.model_validate_json((path / "verdict.json").read_text())
    optional = told.model_copy(update={"controls": (*told.controls, control(9, required=False))})
    (path / "verdict.json").write_text(optional.model_dump_json())
    assert cells(sealed(path))[4] == "2 of 3 fired: lost 16"


def test_a_verdict_that_somebody_wrote_anew_says_nothing(run_of):
    path = Path(run_of(verdict="violated", forbidden=3).row["address"])
    (path / "verdict.json").write_text((path / "verdict.json").read_text().replace("violated", "held"))
    assert judged_runs(path.parent) == []


def test_a_run_that_was_not_judged_says_nothing(tmp_path):
    make_small(tmp_path / "small-1-20260101T000000")
    assert judged_runs(tmp_path) == []


def test_what_was_never_run_is_unknown_and_trials_that_there_are_not_are_refused(tmp_path, capsys):
    assert scenarios(["smoke"], tmp_path, table=None, engine="local", only_table=True) == ExitCode.UNKNOWN
    assert "| scenarios | trial |" in capsys.readouterr().out
    with pytest.raises(BadInput, match="no trial 'smok'"):
        scenarios(["smok"], tmp_path, table=None, engine="local", only_table=True)


# In the place of `prozess run`: somebody presses Ctrl-C; it is reported, as a trial is, and ends with what it has: unknown.
INTERRUPTED = """
import os, pathlib, shutil, signal, sys
template, runs = sys.argv[1], pathlib.Path(sys.argv[8])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
os.kill(os.getppid(), signal.SIGINT)
reported = signal.sigtimedwait([signal.SIGINT], 60)
shutil.copytree(template, runs / f"{sys.argv[4]}-{sys.argv[6]}-20260101T000000")
sys.exit(2 if reported else 255)
"""


def test_ctrl_c_is_told_to_the_trial_that_runs_which_is_run_again_when_the_scenarios_go_on(tmp_path, capsys):
    template, runs = tmp_path / "template", tmp_path / "runs"
    template.mkdir()
    smoke = load_trial("smoke")
    verdict = TrialVerdict(verdict=Verdict.UNKNOWN, sentence="", trial="smoke", title="", seed=1, cells=(), controls=())
    for name, document in (("plan", make_plan(smoke, seed=1)), ("verdict", verdict), ("impact", ImpactShown())):
        (template / f"{name}.json").write_text(document.model_dump_json())
    sealed(template)
    runner = (sys.executable, "-c", INTERRUPTED, str(template))
    before = signal.getsignal(signal.SIGINT)
    code = scenarios(["smoke", "null"], runs, table=None, engine="local", only_table=False, runner=runner)
    assert code == ExitCode.UNKNOWN
    assert signal.getsignal(signal.SIGINT) is before
    assert [path.name for path in runs.iterdir() if path.is_dir()] == ["interrupted"], "no second trial was begun"
    assert [path.name for path in (runs / "interrupted").iterdir()] == ["smoke-1-20260101T000000"]
    assert next_seed(judged_runs(runs), "smoke", smoke.variant.metadata_mode) == 1
    assert "The same command continues." in capsys.readouterr().out


def test_ctrl_c_while_a_trial_is_started_reaches_it_as_soon_as_it_is_there():
    stop = StopRequest()
    stop.ask()
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a shell ignores it in the background
    with subprocess.Popen(sleeping, stderr=subprocess.DEVNULL, **heard) as child:
        stop.runs_now(child)
        assert child.wait(30) != 0


# ----------------------------------------------------------------------------------------------------------------------
# Scenarios have numbers; trials say which they run.


def trials():
    return [load_trial(str(path)) for path in known_trials().values()]


def test_every_trial_names_scenarios_that_exist():
    assert {trial.name: set(trial.scenarios) - set(SCENARIOS) for trial in trials()} == {
        t.name: set() for t in trials()
    }


def test_scenarios_that_no_trial_runs_are_shown_as_such(capsys):
    found = covered(trials())
    assert list(found) == list(SCENARIOS)
    show_scenarios(trials())
    told = capsys.readouterr().out
    assert f"{sum(map(bool, found.values()))} of {len(SCENARIOS)} scenarios" in told
    show_scenarios([])
    assert told.count("none") <= capsys.readouterr().out.count("none") == len(SCENARIOS)
