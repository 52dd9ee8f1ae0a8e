"""What many runs measured, put together, and written into a page."""

from dataclasses import replace

import pytest

from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.comparing.measured import (
    BEGIN,
    END,
    MedianAndWorst,
    cluster_lines,
    fault_lines,
    measured_text,
    reaction_lines,
    read_measured,
    trial_lines,
    write_into,
)
from prozess.harness.errors import BadInput
from prozess.harness.impact.cost import FaultImpact, ImpactShown, ReactionShown, RecoveryShown
from prozess.harness.run_directory import write_json
from prozess.harness.verdict import TrialVerdict
from tests.support.small_runs import make_small


def struck(*, effect="yes", apply_ms=10.0, known_ms=4_000.0, never=0, what="kill leader"):
    return FaultImpact(
        fault=0,
        name=what,
        phases=(),
        windows=1,
        open_windows=0,
        longest_s=5.5,
        after_fault=RecoveryShown(),
        after_heal=RecoveryShown(),
        unanswered=3,
        reaction=ReactionShown(
            what=what,
            effect=effect,
            seen="the process is gone",
            apply_ms=apply_ms,
            verify_ms=1.0,
            undo_ms=None,
            led=2,
            decided=RecoveryShown(partitions=2, median_ms=known_ms - 500, slowest_ms=known_ms, never=never),
            new_leader=RecoveryShown(partitions=2, median_ms=known_ms, slowest_ms=known_ms + 100, never=never),
            first_acknowledged=RecoveryShown(partitions=2, median_ms=known_ms + 200, slowest_ms=known_ms + 900),
            copies=4,
            isr_left=3,
        ),
    )


def a_run(path, *faults, verdict="held", ready_s=4.0, defect=None):
    run = make_small(path).run
    if verdict is not None:
        cell = {"cell": 0, "name": "c", "workload": "log", "axes": {}, "verdict": verdict, "anomalies": {}}
        if defect is not None:
            seen = {
                "anomaly": "duplicate",
                "outcome": "violated",
                "verdict": verdict,
                "count": 1,
                "forbidden": 1,
                "reason": "",
                "source": "",
            }
            cell["anomalies"] = {
                "duplicate": seen | {"defects": [defect] if defect else [], "known": {defect: 1} if defect else {}}
            }
        shown = {"verdict": verdict, "sentence": "", "trial": "small", "title": "", "seed": 1, "cells": [cell]}
        write_json(run.verdict, TrialVerdict.model_validate(shown).model_dump(mode="json"))
    write_json(run.cluster, {"memory_pss_mib": 400.0})
    write_json(run.path / "seconds.json", {"run": 60.0, "run: cluster": ready_s})
    run.impact.write_text(ImpactShown(faults=faults).model_dump_json(), encoding="utf-8")
    return read_measured(RunSummary(run))


def test_medians_and_the_worst_are_over_all_runs_in_one_place(tmp_path):
    runs = [
        a_run(tmp_path / "a", struck(), ready_s=4.0),
        a_run(tmp_path / "b", struck(apply_ms=30.0, known_ms=6_000.0, never=1, effect="unknown"), ready_s=9.0),
        a_run(tmp_path / "c", struck(apply_ms=None, known_ms=5_000.0), verdict="violated", ready_s=5.0),
        a_run(tmp_path / "d", verdict=None),
    ]
    (trial,) = trial_lines(runs)
    assert (trial.held, trial.violated, trial.unknown, trial.without) == (2, 1, 0, 1)
    (cluster,) = cluster_lines(runs)
    assert (cluster.runs, cluster.nodes, cluster.killed) == (4, "1 + 3", 3)
    assert (cluster.ready_s, cluster.memory_mib) == (MedianAndWorst(4.5, 9.0), MedianAndWorst(400.0, 400.0))
    assert (cluster.decided_ms, cluster.known_ms) == (MedianAndWorst(4_500, 6_000), MedianAndWorst(5_000, 6_100))
    (fault,) = fault_lines(runs)
    assert (fault.strikes, fault.seen, fault.apply_ms, fault.undo_ms) == (
        3,
        2,
        MedianAndWorst(20, 30),
        MedianAndWorst(None, None),
    )
    (reaction,) = reaction_lines(runs)
    assert (reaction.led, reaction.moved, reaction.copies, reaction.isr_left) == (6, 5, 12, 9)
    assert (reaction.longest_s, reaction.unanswered) == (5.5, 9)


def test_what_a_known_defect_alone_violated_is_told_apart(tmp_path):
    runs = [
        a_run(tmp_path / "a", verdict="violated", defect="librdkafka#4953"),
        a_run(tmp_path / "b", verdict="violated", defect=""),
        a_run(tmp_path / "c"),
    ]
    (trial,) = trial_lines(runs)
    assert (trial.held, trial.by_defects, trial.violated) == (1, 1, 1)


def test_only_leaders_that_were_killed_count_for_a_cluster(tmp_path):
    (cluster,) = cluster_lines([a_run(tmp_path / "a", struck(what="kill member"))])
    assert (cluster.killed, cluster.known_ms) == (0, MedianAndWorst(None, None))


def test_what_was_left_out_is_told_once_with_every_place(tmp_path):
    runs = [a_run(tmp_path / "a"), a_run(tmp_path / "b")]
    left_out = {"wipe of leader(0)": "brokers are controllers here"}
    plans = [
        run.plan.model_copy(update={"left_out": left_out, "backend": backend})
        for run, backend in zip(runs, ("local", "compose"), strict=True)
    ]
    text = measured_text([replace(run, plan=plan) for run, plan in zip(runs, plans, strict=True)])
    assert "| wipe of leader(0) | compose kraft-isolated, local kraft-isolated | brokers are controllers here |" in text


def test_it_is_written_between_the_marks_of_a_page_and_again(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nafter\n", encoding="utf-8")
    text = measured_text([a_run(tmp_path / "a", struck())])
    for _ in range(2):
        write_into(page, text)
        assert page.read_text().startswith(f"# Before\n\n{BEGIN}\n")
        assert page.read_text().endswith(f"{END}\n\nafter\n")
        assert page.read_text().count("| `kill leader` | local | 1 | 1 |") == 1
    assert "old" not in page.read_text()


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n", encoding="utf-8")
    with pytest.raises(BadInput, match="has no place"):
        write_into(page, "text")
    with pytest.raises(BadInput, match="cannot be read"):
        write_into(tmp_path / "missing.md", "text")
