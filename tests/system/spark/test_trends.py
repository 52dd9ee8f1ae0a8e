"""Trends: Spark groups the verdicts and impacts of runs by trial and night."""

import json
from statistics import median

import pytest

from prozess.harness.impact.trends import regressions
from prozess.spark_checkers.session import start_session
from prozess.spark_checkers.trends import find_trends

RUNS = [  # (trial, when it began, verdict, findings, recovery after its kill)
    ("safe", "20260101T220000", "held", {"lost": 5, "duplicate": 0}, 9_000.0),
    ("safe", "20260102T040000", "held", {"lost": 7}, 10_000.0),
    ("safe", "20260102T220000", "held", {}, 11_000.0),
    ("safe", "20260103T230000", "unknown", {}, None),
    ("safe", "20260103T233000", "interrupted", {}, None),
    ("safe", "20260104T230000-1", "violated", {"reordered": 2}, 30_000.0),
    ("null", "20260101T223000", "held", {}, None),
]


def make_run(path, trial, stamp, verdict, findings, recovery_ms):
    run = path / f"{trial}-1-{stamp}"
    run.mkdir()
    (run / "plan.json").write_text("{}")
    told = {"verdict": verdict, "trial": trial, "findings": findings}
    if verdict == "interrupted":
        told |= {"verdict": "unknown", "interrupted": True}
    (run / "verdict.json").write_text(json.dumps(told))
    if recovery_ms is not None:
        phases = [{"phase": "before", "acks": "all", "per_s": 100.0}]
        fault = {"name": "kill broker-1", "phases": phases, "longest_s": recovery_ms / 1000}
        fault["after_fault"] = {"median_ms": recovery_ms, "slowest_ms": recovery_ms, "never": 0}
        (run / "impact.json").write_text(json.dumps({"faults": [fault]}))
    return run


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    runs = [make_run(path, *told) for told in RUNS]
    torn = path / "safe-1-20260104T233000"
    torn.mkdir()
    (torn / "verdict.json").write_text('{"verdict": "he')
    session = start_session()
    try:
        return find_trends(session, [*runs, torn])
    finally:
        session.stop()


def test_a_night_goes_from_noon_to_noon(found):
    told = {(n.trial, n.night): (n.held, n.violated, n.unknown) for n in found.nights}
    assert told == {
        ("null", "2026-01-01"): (1, 0, 0),
        ("safe", "2026-01-01"): (2, 0, 0),
        ("safe", "2026-01-02"): (1, 0, 0),
        ("safe", "2026-01-03"): (0, 0, 1),
        ("safe", "2026-01-04"): (0, 1, 0),
    }


def test_findings_are_added_up_and_those_that_were_not_found_are_left_out(found):
    told = {(n.trial, n.night): n.findings for n in found.nights}
    assert told["safe", "2026-01-01"] == (("lost", 12),)
    assert told["null", "2026-01-01"] == ()


def test_recovery_is_the_median_of_the_runs_of_a_night(found):
    told = {(m.night, m.name): m.value for m in found.measures if m.trial == "safe"}
    assert told["2026-01-01", "recovery after kill"] == median([9_000.0, 10_000.0])
    assert told["2026-01-04", "longest gap under kill"] == 30_000.0
    assert told["2026-01-02", "throughput before faults, acks=all"] == 100.0


def test_a_torn_verdict_is_counted_as_none(found):
    assert (found.runs, found.without_verdict) == (8, 1)


def test_a_run_that_somebody_stopped_is_no_unknown_one(found):
    told = {n.night: (n.unknown, n.interrupted) for n in found.nights if n.trial == "safe"}
    assert told["2026-01-03"] == (1, 1)
    assert told["2026-01-04"] == (0, 0)


def test_what_the_last_night_had_worse_is_named(found):
    assert {r.what for r in regressions(found)} == {
        "1 violated, never before",
        "reordered was found 2 times, never before",
    }
