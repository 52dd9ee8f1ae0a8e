"""Campaigns without a cluster: what was run is written down."""

from prozess.campaigns.campaign_plan import BegunCampaign, Campaign, CampaignDirectory, Entry, draw
from prozess.campaigns.engine import TrialAttempt
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.verdict import CellAnomaly, CellVerdict, TrialVerdict, Verdict
from tests.support.small_runs import TRIAL


def a_campaign(*trials, **more):
    return Campaign(name="test", title="A test", entries=tuple(Entry(trial=t) for t in trials), **more)


def begun_in(path, found, *, duration_s=1e-9, seed=1):
    directory = CampaignDirectory(path)
    directory.begin(BegunCampaign(campaign=found, seed=seed, duration_s=duration_s))
    return directory


def attempt(number=0, *, trial="t", verdict="held", attempts=0, run=None, took_s=1.0):
    job = draw(a_campaign(trial), 1, number).model_copy(update={"attempt": attempts})
    return TrialAttempt(job=job, exit_code=0, verdict=verdict, run=run, began_s=0, took_s=took_s)


def judged(verdict, *cells, reasons=()):
    return TrialVerdict(
        verdict=verdict, sentence="", trial="t", title="", seed=1, controls=(), unknown_reasons=reasons,
        cells=tuple(
            CellVerdict(
                cell=number, name=f"cell-{number}", workload="log", verdict=verdict, axes={},
                anomalies={a.anomaly: a for a in anomalies},
            )
            for number, anomalies in enumerate(cells)
        ),
    )  # fmt: skip


def anomaly(name, outcome, reason, **more):
    verdict = Verdict.UNKNOWN if outcome == "unknown" else Verdict.VIOLATED
    return CellAnomaly(anomaly=name, outcome=outcome, verdict=verdict, reason=reason, **more)


def a_campaign_of_every_kind(path):
    """Held, violated, and one that the machinery failed twice: the first time it was tried again."""
    directory = begun_in(path, a_campaign("good", "bad", "broken"), duration_s=None)
    for number, trial in enumerate(("good", "bad")):
        run = directory.runs / trial
        (run / "rows").mkdir(parents=True)
        (run / "rows" / "data").write_bytes(b"x" * 2**20)
        plan = make_plan(parse_trial(TRIAL | {"name": trial}, source="test"), seed=1)
        (run / "plan.json").write_text(plan.model_dump_json())
        (run / "report.html").write_text("")
        lost = anomaly("lost", "violated", "They are <gone>.", forbidden=3)
        verdict = judged("violated", [lost]) if trial == "bad" else judged("held", [])
        (run / "verdict.json").write_text(verdict.model_dump_json())
        directory.append(attempt(number, trial=trial, verdict=verdict.verdict, run=trial))
    for again in range(2):
        failed = attempt(2, trial="broken", verdict=None, attempts=again)
        directory.append(failed.model_copy(update={"reason": "no cluster today", "exit_code": 255}))
    return directory
