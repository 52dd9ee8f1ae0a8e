"""What many runs measured, put together, and written into a page."""

import pytest

from prozess.campaigns.comparing import RunSummary
from prozess.campaigns.comparing.measured import (
    BEGIN,
    END,
    cluster_rows,
    fault_rows,
    measured_text,
    reaction_rows,
    trial_rows,
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
    return RunSummary(run)


def texts(rows):
    return [[str(cell) for cell in row] for row in rows]


def test_medians_and_the_worst_are_over_all_runs_in_one_place(tmp_path):
    runs = [
        a_run(tmp_path / "a", struck(), ready_s=4.0),
        a_run(tmp_path / "b", struck(apply_ms=30.0, known_ms=6_000.0, never=1, effect="unknown"), ready_s=9.0),
        a_run(tmp_path / "c", struck(apply_ms=None, known_ms=5_000.0), verdict="violated", ready_s=5.0),
        a_run(tmp_path / "d", verdict=None),
    ]
    assert texts(trial_rows(runs)) == [["small", "local", "kraft-isolated", "2", "0", "1", "0", "1"]]
    (cluster,) = texts(cluster_rows(runs))
    assert cluster[3:7] == ["1 + 3", "4", "4.5, 9.0", "400, 400"]
    assert cluster[7:] == ["3", "4.5, 6.0", "5.0, 6.1", "5.2, 6.9"]
    (fault,) = texts(fault_rows(runs))
    assert fault == ["`kill leader`", "local", "3", "2", "the process is gone", "20, 30", "1.0, 1.0", "–"]
    (reaction,) = texts(reaction_rows(runs))
    assert reaction[2:5] == ["3", "6", "5"]
    assert reaction[7:] == ["9 of 12", "5.5", "9"]


def test_what_a_known_defect_alone_violated_is_told_apart(tmp_path):
    runs = [
        a_run(tmp_path / "a", verdict="violated", defect="librdkafka#4953"),
        a_run(tmp_path / "b", verdict="violated", defect=""),
        a_run(tmp_path / "c"),
    ]
    assert texts(trial_rows(runs)) == [["small", "local", "kraft-isolated", "1", "1", "1", "0", "0"]]


def test_only_leaders_that_were_killed_count_for_a_cluster(tmp_path):
    (cluster,) = texts(cluster_rows([a_run(tmp_path / "a", struck(what="kill member"))]))
    assert cluster[7:] == ["0", "–", "–", "–"]


def test_what_was_left_out_is_told_once_with_every_place(tmp_path):
    runs = [a_run(tmp_path / "a"), a_run(tmp_path / "b")]
    left_out = {"wipe of leader(0)": "brokers are controllers here"}
    for run, backend in zip(runs, ("local", "compose"), strict=True):
        plan = run.plan.model_copy(update={"left_out": left_out, "backend": backend})
        run.run.plan.write_text(plan.model_dump_json(), encoding="utf-8")
    text = measured_text([RunSummary(run.run) for run in runs])
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
