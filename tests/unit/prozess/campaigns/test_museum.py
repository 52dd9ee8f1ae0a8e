"""The museum: which runs an exhibit needs, when it counts, and that nothing unknown makes it count."""

import json
import sys

import pytest

from prozess.campaigns.engine import JobDirectory, TrialAttempt, exit_code_of
from prozess.campaigns.museum.exhibits import (
    ExhibitResult,
    Release,
    chosen_exhibits,
    museum_trial,
    results_of,
)
from prozess.campaigns.museum.museum import MuseumRequest, cells_of, museum, results_in
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_exhibits, known_trials, load_trial, parse_trial
from prozess.harness.verdict import CellAnomaly, CellVerdict, ExpectationResult, TrialVerdict, Verdict
from tests.support.paths import ROOT

BY_RUN, BY_CELL = "KAFKA-15489", "librdkafka#4844"


def exhibit(ticket):
    (found,) = chosen_exhibits([ticket])
    return found


def anomaly(name, forbidden=0, known=None, verdict=None):
    judged = verdict or (Verdict.VIOLATED if forbidden else Verdict.HELD)
    outcome = {"violated": "violated", "held": "held", "unknown": "unknown"}[judged]
    return CellAnomaly(
        anomaly=name, outcome=outcome, verdict=judged, count=forbidden, forbidden=forbidden, known=known or {}
    )


def verdict(*cells, of="held", **changes):
    """A verdict of these cells: (settings, anomalies) each."""
    made = []
    for number, (axes, anomalies) in enumerate(cells):
        worst = next((v for v in ("violated", "unknown") if any(a.verdict == v for a in anomalies)), "held")
        made.append(
            CellVerdict(cell=number, name=str(number), workload="log", axes=axes, verdict=worst,
                        anomalies={a.anomaly: a for a in anomalies})
        )  # fmt: skip
    return TrialVerdict(verdict=of, sentence="", trial="x", title="", seed=1, cells=tuple(made), **changes)


def attempt(job, code=1, run="a-run"):
    return TrialAttempt(job=job, exit_code=code, verdict="violated", run=run, began_s=0.0, took_s=60.0)


def found_of(one, old, new):
    """What two runs of an exhibit show, by the verdicts of its two releases."""
    first, second = one.jobs([1])
    results = [
        *results_of(one.exhibit, attempt(first), old),
        *results_of(one.exhibit, attempt(second, run="b-run"), new),
    ]
    return ExhibitResult(one, results)


SHOWN = verdict(({}, [anomaly("stale-controller", 2, {BY_RUN: 2})]), of="violated")
HELD = verdict(({}, [anomaly("stale-controller")]))


def test_an_exhibit_counts_if_the_old_release_shows_the_anomaly_of_its_ticket_and_the_new_one_holds():
    found = found_of(exhibit(BY_RUN), SHOWN, HELD)
    assert (found.shown, found.held, found.counts, found.refuted) == (1, 1, True, False)
    assert found.anomalies == {"stale-controller": 2}
    assert found.took_s == 120
    assert exit_code_of([found.verdict]) is ExitCode.HELD


@pytest.mark.parametrize(
    ("old", "why"),
    [
        (HELD, "the defect did not show"),
        (verdict(({}, [anomaly("stale-controller", 2)]), of="violated"), "its signature was not seen"),
        (verdict(({}, [anomaly("lost", 2, {BY_RUN: 2})]), of="violated"), "another anomaly than that of the ticket"),
        (verdict(({}, [anomaly("stale-controller", 2, {BY_RUN: 2})]), of="unknown"), "the situation was not reached"),
        (None, "there is no verdict"),
    ],
)
def test_an_exhibit_does_not_count_where(old, why):
    found = found_of(exhibit(BY_RUN), old, HELD)
    assert not found.counts, why
    assert exit_code_of([found.verdict]) is ExitCode.UNKNOWN


def test_a_new_release_that_is_violated_refutes_the_exhibit():
    found = found_of(exhibit(BY_RUN), SHOWN, SHOWN)
    assert (found.counts, found.refuted, exit_code_of([found.verdict])) == (False, True, ExitCode.VIOLATED)


def test_a_new_release_that_is_unknown_makes_nothing_count():
    unknown = verdict(({}, [anomaly("stale-controller")]), of="unknown", unknown_reasons=("a step was not reached",))
    found = found_of(exhibit(BY_RUN), SHOWN, unknown)
    assert not found.counts
    assert found.of(Release.MENDED)[0].why == "a step was not reached"


def test_a_violation_whose_situation_was_not_reached_shows_nothing_of_the_ticket():
    missed = ExpectationResult(
        step="a message waits", expected="it is delivered", reached=False, seen="no message matched"
    )
    found = found_of(exhibit(BY_RUN), SHOWN.model_copy(update={"expectations": (missed,)}), HELD)
    assert (found.shown, found.counts) == (0, False)
    assert (
        found.of(Release.AFFECTED)[0].why == "the situation was not reached: step 'a message waits': no message matched"
    )


def test_findings_that_the_ticket_does_not_explain_are_named_beside_it():
    old = verdict(({}, [anomaly("stale-controller", 3, {BY_RUN: 2}), anomaly("lost", 1)]), of="violated")
    (result,) = found_of(exhibit(BY_RUN), old, HELD).of(Release.AFFECTED)
    assert (result.of_ticket, result.others) == ({"stale-controller": 2}, {"stale-controller": 1, "lost": 1})


def test_both_releases_may_stand_in_cells_of_one_run():
    one = exhibit(BY_CELL)
    (job,) = one.jobs([1])
    old = ({"group.client_version": "2.12.1"}, [anomaly("commit-ahead", 9, {BY_CELL: 9})])
    new = ({"group.client_version": "2.13.2"}, [anomaly("commit-ahead")])
    found = ExhibitResult(one, results_of(one.exhibit, attempt(job), verdict(old, new, of="violated")))
    assert (found.shown, found.held, found.counts, found.took_s) == (1, 1, True, 60)
    alone = ExhibitResult(one, results_of(one.exhibit, attempt(job), verdict(old, of="violated")))
    assert not alone.counts, "no cell has the new release"


def test_every_exhibit_names_two_releases_that_its_plans_have():
    for path in known_exhibits().values():
        one = museum_trial(path)
        assert one.trial.name == path.stem
        assert one.trial.expects == "violated"
        plans = [make_plan(load_trial(job.trial, dict(job.settings)), seed=1) for job in one.jobs([1])]
        features = [[f"{name}={level}" for name, level in plan.variant.features.items()] for plan in plans]
        versions = [
            f"{plan.variant} {plan.steps} {levels} {plan.libraries}"
            for plan, levels in zip(plans, features, strict=True)
        ]
        if one.exhibit.in_one_run:
            (plan,) = plans
            values = {value for cell in plan.cells for value in cell.axes.values()}
            assert {one.exhibit.affected, one.exhibit.mended} <= values
        else:
            assert one.exhibit.affected in versions[0]
            assert one.exhibit.mended in versions[1]
            assert [step.name for step in plans[0].steps] == [step.name for step in plans[1].steps]


def test_exhibits_are_no_trials_of_the_list_and_can_be_run_by_their_names():
    assert not set(known_exhibits()) & set(known_trials())
    assert load_trial("kafka-15489").exhibit.ticket == BY_RUN


def test_a_ticket_that_the_museum_does_not_have_is_refused_with_those_that_it_has():
    with pytest.raises(BadInput, match=r"The museum does not have 'KAFKA-20323'; did you mean 'KAFKA-20322'\?"):
        chosen_exhibits(["KAFKA-20323"])


@pytest.mark.parametrize(
    "both", [{}, {"mended_by": {"variant.kafka_version": "4.4.0"}, "mended_cells": {"producer.acks": "1"}}]
)
def test_an_exhibit_says_in_one_way_where_the_new_release_is(both):
    said = {
        "ticket": "KAFKA-1",
        "story": "s",
        "trigger": "t",
        "affected": "1",
        "mended": "2",
        "anomalies": ["lost"],
    } | both
    with pytest.raises(BadInput, match=r"either mended_by .* or mended_cells"):
        parse_trial({"name": "x", "title": "x", "exhibit": said}, source="test")


RUNNER = """
import json, pathlib, shutil, sys
templates, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
runs = pathlib.Path(words[words.index("--runs") + 1])
side = "new" if "--set" in words else "old"
seed = words[words.index("--seed") + 1]
shutil.copytree(templates / side, runs / f"x-{seed}-{side}-20260101T000000")
sys.exit(1 if side == "old" else 0)
"""
"""Stands for `prozess run`: it makes the run directory that the arguments ask for."""


@pytest.fixture
def templates(tmp_path):
    for side, judged in (("old", SHOWN), ("new", HELD)):
        path = tmp_path / "templates" / side
        path.mkdir(parents=True)
        (path / "plan.json").write_text(make_plan(load_trial("kafka-15489"), seed=1).model_dump_json())
        (path / "verdict.json").write_text(judged.model_dump_json())
    return tmp_path / "templates"


def test_the_command_runs_both_releases_with_each_seed_and_does_not_run_them_again(tmp_path, templates, capsys):
    request = MuseumRequest([BY_RUN], 2, tmp_path / "museum")
    runner = (sys.executable, "-c", RUNNER, str(templates))
    assert museum(request, runner=runner) == ExitCode.HELD
    assert "exhibits that count: 1 of 1" in capsys.readouterr().out
    ran = JobDirectory(tmp_path / "museum").attempts()
    assert [(one.job.seed, bool(one.job.settings)) for one in ran] == [(1, False), (1, True), (2, False), (2, True)]
    page = (tmp_path / "museum" / "museum.html").read_text()
    assert "2 of 2" in page
    assert exhibit(BY_RUN).exhibit.trigger in page
    assert museum(request, runner=(sys.executable, "-c", "raise SystemExit(255)")) == ExitCode.HELD
    assert len(JobDirectory(tmp_path / "museum").attempts()) == len(ran)


def test_a_run_without_a_verdict_is_tried_once_more_and_makes_the_exhibit_unknown(tmp_path, capsys):
    request = MuseumRequest([BY_CELL], 1, tmp_path / "museum")
    assert museum(request, runner=(sys.executable, "-c", "raise SystemExit('prozess: no Java')")) == ExitCode.UNKNOWN
    assert "no verdict: no Java" in capsys.readouterr().out
    directory, one = JobDirectory(tmp_path / "museum"), exhibit(BY_CELL)
    results = results_in(directory, one, directory.attempts()[0])
    assert cells_of(ExhibitResult(one, results))[2] == "0 of 1, 1 not run"
    assert len(directory.attempts()) == 2


def test_a_run_of_an_older_text_of_the_exhibit_does_not_count(tmp_path, templates):
    request = MuseumRequest([BY_RUN], 1, tmp_path / "museum")
    assert museum(request, runner=(sys.executable, "-c", RUNNER, str(templates))) == ExitCode.HELD
    entries = tmp_path / "museum" / "entries.jsonl"
    lines = [json.loads(line) for line in entries.read_text().splitlines()]
    for line in lines:
        line["job"]["key"] = line["job"]["key"].rsplit(" ", 1)[0] + " 000000000000"
    entries.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert museum(MuseumRequest([BY_RUN], 1, tmp_path / "museum", only_page=True)) == ExitCode.UNKNOWN


def line_of_page(one):
    about = one.exhibit
    return f"| {about.ticket} | {about.affected} | {about.mended} | {', '.join(about.anomalies)} | {about.trigger} |"


def test_the_page_of_the_museum_has_a_line_for_each_exhibit():
    page = (ROOT / "docs" / "museum.md").read_text()
    assert [line for line in page.splitlines() if line.startswith(("| KAFKA", "| librdkafka"))] == [
        line_of_page(museum_trial(path)) for path in known_exhibits().values()
    ]


def test_a_ticket_names_all_of_its_exhibits_and_a_name_one():
    assert [one.trial.name for one in chosen_exhibits(["KAFKA-18991"])] == ["kafka-18991-append", "kafka-18991"]
    assert [one.trial.name for one in chosen_exhibits(["kafka-18991-append"])] == ["kafka-18991-append"]


def test_an_exhibit_that_servers_alone_show_counts_by_the_ticket_s_own_line():
    one = exhibit("KAFKA-13403")
    assert make_plan(one.trial, seed=1).decide == ("server-errors",)
    line = "[2026-11-29 19:00:09,733] ERROR Shutdown broker because all log dirs in /data have failed (kafka.log.LogManager)"
    fine = ({}, [anomaly("lost")])
    old = verdict(fine, of="violated", server_errors="violated", complaints={line: 1, "ERROR another": 7})
    new = verdict(fine, server_errors="held")
    found = found_of(one, old, new)
    assert (found.shown, found.held, found.counts) == (1, 1, True)
    (shown,) = found.of(Release.AFFECTED)
    assert (shown.of_ticket, shown.others) == ({"server-errors": 1}, {"server-errors": 7})
    other = verdict(fine, of="violated", server_errors="violated", complaints={"ERROR another": 7})
    assert not found_of(one, other, new).counts
    assert found_of(one, old, other).refuted
    assert not found_of(one, old, verdict(fine, of="unknown", server_errors="unknown")).counts


@pytest.mark.parametrize(
    "changed", [{"complaint": ""}, {"anomalies": ["lost"]}, {"mended_by": {}, "mended_cells": {"x": "1"}}]
)
def test_an_exhibit_by_the_servers_lines_says_which_and_runs_twice(changed):
    about = exhibit("KAFKA-13403").exhibit.model_dump()
    with pytest.raises(ValueError, match="server-errors needs"):
        type(exhibit("KAFKA-13403").exhibit).model_validate(about | changed)
