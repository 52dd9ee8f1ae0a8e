"""Matrix files: which trials they are, what is refused, and what their results say together."""

import json
from itertools import product

import pytest

from harness.campaign.state import CampaignDirectory
from harness.cli import _main
from harness.covering import covered
from harness.errors import BadInput, UnsupportedFault
from harness.matrices.diff import compare
from harness.matrices.file import load_matrix, parse_matrix
from harness.matrices.page import write_page
from harness.matrices.results import Tally, TrialLine, gather, read_results
from harness.matrices.trials import Layout
from harness.planning import make_plan
from harness.trial import known_matrices, load_trial
from harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, ControlResult, TrialVerdict, Verdict

STEPS = [{"name": "a kill", "do": {"kind": "fault", "fault": "kill", "targets": ["leader(0)"]}}]


def document(**changes):
    """A matrix of 2 x 2 choices whose trials have 2 x 3 cells."""
    made = {
        "name": "small",
        "title": "A small matrix",
        "matrix": {
            "axes": {"variant.metadata_mode": ["kraft-isolated", "kraft-combined"]},
            "schedules": [{"name": "calm", "title": "nothing"}, {"name": "kill", "title": "a kill", "steps": STEPS}],
        },
        "workload": "log",
        "topics": {"placement": [[1, 2, 3]]},
        "axes": {"producer.acks": ["1", "all"], "topic.min_insync_replicas": [1, 2, 3]},
    }
    made["matrix"] |= changes.pop("matrix", {})
    return made | changes


def layout(**changes):
    return Layout(parse_matrix(document(**changes), source="small.toml"))


def test_the_full_product_of_clusters_schedules_and_seeds_is_run():
    made = layout(matrix={"seeds": [1, 7]})
    assert [(t.row["variant.metadata_mode"], t.row["schedule"], t.seed) for t in made.trials] == [
        (mode, schedule, seed)
        for seed in (1, 7)
        for mode, schedule in product(("kraft-isolated", "kraft-combined"), ("calm", "kill"))
    ]
    assert [t.number for t in made.trials] == list(range(8))
    plan = made.plan(made.trials[3])
    assert (plan.variant.metadata_mode, plan.faults, len(plan.cells), plan.seed) == ("kraft-combined", ("kill",), 6, 1)


def test_a_cover_of_the_trials_has_every_valid_pair_and_what_is_impossible_is_told_with_the_reason():
    axes = {
        "variant.metadata_mode": ["kraft-isolated", "kraft-combined", "zookeeper"],
        "variant.kafka_version": ["4.3.1", "3.9.2"],
        "variant.brokers": [3, 4],
    }
    made = layout(matrix={"axes": axes, "strength": 2})
    values = made.matrix.spec.values
    assert covered(made.rows, list(values), 2) == covered(made.valid, list(values), 2)
    assert len(made.rows) < len(made.valid) == 20
    done, possible, impossible = made.coverage()
    assert done == possible
    assert impossible == [{"variant.metadata_mode": "zookeeper", "variant.kafka_version": "4.3.1"}]
    assert "KIP-833" in made.why_impossible(impossible[0])


def test_cells_beyond_the_limit_are_dealt_to_further_trials_each_once():
    made = layout(matrix={"cells_per_trial": {"log": 4}})
    assert len(made.trials) == 8
    of_first_row = [t for t in made.trials if t.row == made.rows[0]]
    dealt = [cell.axes for trial in of_first_row for cell in made.plan(trial).cells]
    assert len(dealt) == 6
    assert {tuple(sorted(axes.items())) for axes in dealt} == {
        tuple(sorted(c.axes.items())) for c in layout().plan(layout().trials[0]).cells
    }


def test_dealt_in_turn_each_choice_has_one_trial_and_together_they_have_every_cell():
    workloads = [{"kind": "log", "topics": document()["topics"], "axes": document()["axes"]}] * 2
    shared = {"cells_per_trial": {"log": 4}, "deal": "in-turn"}
    bare = {key: value for key, value in document(matrix=shared).items() if key not in ("workload", "topics", "axes")}
    made = Layout(parse_matrix(bare | {"workloads": workloads}, source="small.toml"))
    assert [trial.part for trial in made.trials] == [0, 1, 0, 1]
    plans = [made.plan(trial) for trial in made.trials]
    assert [len(plan.cells) for plan in plans] == [6, 6, 6, 6]
    axes = [tuple(sorted(cell.axes.items())) for plan in plans[:2] for cell in plan.cells]
    assert len(set(axes)) == 6
    assert len(axes) == 12


def test_a_share_without_the_cells_of_a_control_is_run_without_it():
    schedule = {"name": "kill", "title": "a kill", "steps": STEPS}
    schedule["controls"] = [{"anomaly": "lost", "cells": {"producer.acks": "1"}}]
    made = layout(matrix={"cells_per_trial": {"log": 1}, "axes": {}, "schedules": [schedule]})
    controls = [(plan.cells[0].axes["producer.acks"], len(plan.controls)) for plan in map(made.plan, made.trials)]
    assert sorted(controls) == [("1", 1)] * 3 + [("all", 0)] * 3


def test_cells_that_one_producer_serves_are_dealt_together():
    made = layout(
        matrix={"cells_per_trial": {"log": 6}},
        axes={
            "producer.acks": ["1", "all"],
            "topic.flush_messages": ["default", 1],
            "topic.min_insync_replicas": [1, 2],
        },
    )
    for trial in made.trials[:2]:
        plan = made.plan(trial)
        producers = [client for client in plan.clients if client.role == "producer"]
        assert len(producers) == len(plan.cells) / 2
        assert all(len(producer.partitions) == 4 for producer in producers)


def test_a_value_that_sets_nothing_leaves_the_setting_to_kafka():
    made = layout(axes={"topic.flush_messages": ["default", 5]})
    cells = made.plan(made.trials[0]).cells
    assert [cell.topic.flush_messages for cell in cells] == [None, 5]
    assert [cell.axes["topic.flush_messages"] for cell in cells] == ["default", "5"]


def test_a_named_value_sets_whatever_belongs_together():
    timeouts = {"short": {"variant.properties.broker.session.timeout.ms": 3000}, "default": {}}
    made = layout(matrix={"axes": {"timeouts": timeouts}})
    properties = [made.plan(trial).variant.properties for trial in made.trials[::2]]
    assert properties == [{"broker.session.timeout.ms": "3000"}, {}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"matrix": {"strenght": 2}}, "matrix.strenght is not a known key; did you mean 'strength'?"),
        ({"matrix": {"axes": {"brokers": [3]}}}, "a list of values needs a key of the trial's file"),
        ({"matrix": {"axes": {"variant.brokers": []}}}, "axes.variant.brokers has no values"),
        ({"matrix": {"axes": {"schedule": ["calm"]}}}, "schedules are an axis already"),
        ({"matrix": {"schedules": []}}, "at least 1 item"),
        ({"matrix": {"schedules": [{"name": "a", "title": "a"}] * 2}}, "two schedules are named 'a'"),
        ({"matrix": {"cells_per_trial": {"lgo": 3}}}, "Did you mean 'log'?"),
        ({"matrix": {"axes": {"variant.brokers": ["three"]}}}, "variant.brokers = 'three'"),
        ({"steps": STEPS}, "belong to its [[matrix.schedules]]"),
        ({"axes": {"producer.ack": ["1"]}}, "Did you mean 'producer.acks'?"),
        ({"axes": {"producer.acks": ["2"]}}, "producer.acks = '2'"),
        ({"name": 3}, "needs a name"),
        (
            {"matrix": {"axes": {"variant.kafka_version": ["4.3.1"], "variant.metadata_mode": ["zookeeper"]}}},
            "has no valid trial: all 2 choices are excluded, the first because Kafka 4.3.1 has no ZooKeeper mode",
        ),
        (
            {"axes": {"topic.min_insync_replicas": [4]}},
            "has no valid cell: all 1 combinations are excluded, the first because min.insync.replicas=4 exceeds",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(changes, words):
    with pytest.raises(BadInput) as error:
        layout(**changes).trials[0]
    assert words in str(error.value)


def test_a_schedule_that_the_backend_cannot_do_is_refused_with_its_reason():
    def able(plan):
        if plan.faults:
            raise UnsupportedFault("Step 'a kill' needs 'kill', which this backend cannot do here: it has no hands.")

    with pytest.raises(BadInput, match=r"schedule 'kill' can be run nowhere: .*it has no hands"):
        Layout(parse_matrix(document(), source="small.toml"), able=able).trials[0]


def test_what_one_metadata_mode_cannot_do_is_left_out_there_alone():
    def able(plan):
        if plan.faults and plan.variant.metadata_mode == "kraft-combined":
            raise UnsupportedFault("not here.")

    made = Layout(parse_matrix(document(), source="small.toml"), able=able)
    assert len(made.trials) == 3
    assert made.excluded == [({"variant.metadata_mode": "kraft-combined", "schedule": "kill"}, "not here")]


@pytest.mark.parametrize("name", sorted(known_matrices()))
def test_a_matrix_that_comes_with_prozess_has_the_axes_of_the_other_and_valid_trials(name):
    made = Layout(load_matrix(name))
    done, possible, _ = made.coverage()
    assert done == possible
    for schedule in made.matrix.spec.schedules:
        row = next(row for row in made.rows if row["schedule"] == schedule.name)
        trial = made.matrix.trial(row)
        quick = [w.model_copy(update={"strength": 2}) for w in trial.workloads]
        plan = make_plan(trial.model_copy(update={"workloads": tuple(quick)}), seed=1)
        assert len(plan.steps) == len(schedule.steps)
        assert plan.partitions[0].assignment == (1, 2, 3)


def test_the_quick_matrix_is_the_full_one_with_another_strength():
    quick, full = load_matrix("matrix-quick"), load_matrix("matrix-full")
    assert quick.spec.values == full.spec.values
    quick_workloads, full_workloads = (
        [
            w.model_copy(update={"strength": "full"})
            for w in m.trial({a: v[0] for a, v in m.spec.values.items()}).workloads
        ]
        for m in (quick, full)
    )
    assert quick_workloads == full_workloads


def test_a_matrix_is_not_run_as_a_trial(tmp_path, capsys):
    with pytest.raises(BadInput, match="is a matrix of many trials: `prozess matrix matrix-quick`"):
        load_trial("matrix-quick")
    file = tmp_path / "m.toml"
    file.write_text("[matrix]\n")
    with pytest.raises(BadInput, match="is a matrix of many trials"):
        load_trial(str(file))


# --- results --------------------------------------------------------------------------------------------------------


def anomaly(name, outcome, count=0, **more):
    of = {"violated": "forbidden", "shown": "permitted", "unknown": "unknown"}.get(outcome)
    verdict = {"violated": Verdict.VIOLATED, "unknown": Verdict.UNKNOWN}.get(outcome, Verdict.HELD)
    counts = {"count": count} | ({of: count} if of else {})
    return CellAnomaly(anomaly=name, outcome=AnomalyOutcome(outcome), verdict=verdict, **counts, **more)


def verdict(cells, *, fired=()):
    """`cells`: acks → its anomalies."""
    made = [
        CellVerdict(
            cell=number,
            name=f"acks_{acks}",
            workload="log",
            axes={"workload": "log", "producer.acks": acks, "topic.replication_factor": "3"},
            verdict=Verdict.HELD,
            anomalies={a.anomaly: a for a in anomalies},
        )
        for number, (acks, anomalies) in enumerate(cells.items())
    ]
    controls = [ControlResult(anomaly="lost", cells=(0,), fired_in=fired, count=len(fired), required=False)]
    worst = Verdict.VIOLATED if any(a.forbidden for c in made for a in c.anomalies.values()) else Verdict.HELD
    return TrialVerdict(
        verdict=worst, sentence="So it is.", trial="t", title="t", seed=1, cells=tuple(made), controls=tuple(controls)
    )


def line(number, schedule="kill", **more):
    return TrialLine(number=number, row={"schedule": schedule}, seed=1, part=0, parts=1, run=f"run-{number}", **more)


def results(*verdicts):
    lines = [
        line(
            n,
            schedule=f"s{n}",
            verdict=v.verdict,
            cells=len(v.cells),
            controls_fired=("lost",) if v.controls[0].fired else (),
            controls_silent=() if v.controls[0].fired else ("lost",),
        )
        for n, v in enumerate(verdicts)
    ]
    return gather("m", "M", lines, dict(enumerate(verdicts)))


GOOD = {"1": [anomaly("lost", "shown", 7)], "all": [anomaly("lost", "held", proven=True)]}
CALM = {"1": [anomaly("lost", "permitted")], "all": [anomaly("lost", "held")]}
BAD = {"1": [anomaly("lost", "shown", 5)], "all": [anomaly("lost", "violated", 3, reason="Gone.")]}


def test_outcomes_are_counted_by_guarantee_by_setting_and_by_configuration():
    told = results(verdict(GOOD, fired=(0,)), verdict(CALM))
    assert told.guarantees["lost"] == Tally(held=2, proven=1, shown=1, permitted=1, witnesses_permitted=7)
    assert told.settings["producer.acks"]["1"]["lost"] == Tally(shown=1, permitted=1, witnesses_permitted=7)
    assert told.settings["producer.acks"]["all"]["lost"] == Tally(held=2, proven=1)
    assert told.settings["schedule"]["s1"]["lost"] == Tally(held=1, permitted=1)
    assert "topic.replication_factor" not in told.settings
    assert [c.key for c in told.configurations] == ["log producer.acks=1", "log producer.acks=all"]
    assert told.configurations[0].runs == {"lost": "run-0"}
    assert told.problems == ()
    assert told.exit_code == 0


def test_a_violation_is_named_with_its_run_and_decides_the_exit_code():
    told = results(verdict(GOOD, fired=(0,)), verdict(BAD))
    assert [(p.anomaly, p.count, p.run, p.reason) for p in told.problems] == [("lost", 3, "run-1", "Gone.")]
    assert told.configurations[1].tallies["lost"].worst is AnomalyOutcome.VIOLATED
    assert told.configurations[1].runs == {"lost": "run-1"}
    assert told.exit_code == 1


def test_what_is_unknown_is_told_once_per_reason_and_trial():
    dark = [anomaly("lost", "unknown", reason="Dark."), anomaly("unclean", "unknown", 2, reason="Dark.")]
    told = results(verdict({"1": dark, "all": [*dark, anomaly("late", "unknown", reason="Darker.")]}))
    assert [(p.cells, p.anomaly, p.count, p.reason) for p in told.problems] == [
        (1, "late", 0, "Darker."),
        (2, "lost, unclean", 4, "Dark."),
    ]
    assert told.guarantees["lost"].worst is AnomalyOutcome.UNKNOWN


def test_a_regression_is_what_was_held_and_is_violated_now_and_a_control_that_is_silent():
    difference = compare(results(verdict(GOOD, fired=(0,))), results(verdict(BAD)))
    assert [(c.what, c.anomaly, c.before, c.after) for c in difference.regressions] == [
        ("log producer.acks=all", "lost", "held", "violated in 1, 3 records"),
        ("control of trial 0, s0", "lost", "fired", "silent"),
    ]


def test_what_is_judged_no_more_is_a_regression_and_so_is_a_trial_without_a_verdict():
    before = results(verdict(GOOD), verdict(GOOD))
    fewer = gather("m", "M", [before.trials[0], line(1, schedule="s1")], {0: verdict({"1": GOOD["1"], "all": []})})
    assert [(c.what, c.anomaly, c.before, c.after) for c in compare(before, fewer).regressions] == [
        ("log producer.acks=all", "lost", "held", "not judged"),
        ("trial s1", "", "held", "no verdict"),
    ]


def test_losses_that_are_permitted_come_and_go_without_being_a_regression():
    difference = compare(results(verdict(GOOD, fired=(0,))), results(verdict(CALM, fired=(0,))))
    assert difference.regressions == ()
    assert [(c.before, c.after) for c in difference.changes] == [("seen 7 times, permitted", "permitted")]


def test_a_result_compared_with_itself_has_no_changes():
    same = results(verdict(GOOD, fired=(0,)), verdict(BAD))
    difference = compare(same, same)
    assert (difference.regressions, difference.changes, difference.improvements) == ((), (), ())


def test_the_page_tells_violations_losses_and_links_the_reports(tmp_path):
    (tmp_path / "runs" / "run-1").mkdir(parents=True)
    (tmp_path / "runs" / "run-1" / "report.html").touch()
    told = results(verdict(GOOD, fired=(0,)), verdict(BAD))
    data, page = write_page(tmp_path, told)
    text = page.read_text(encoding="utf-8")
    assert 'href="runs/run-1/report.html"' in text
    assert "runs/run-0/report.html" not in text
    assert "✗ 1: 3" in text
    assert "Gone." in text
    assert json.loads(data.read_text(encoding="utf-8"))["guarantees"]["lost"]["violated"] == 1
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "holds no results of a matrix: it has no matrix.json"),
        ('{"name": "mat', "matrix.json cannot be read"),
        ('{"format_version": 99}', "holds results of another version"),
    ],
)
def test_half_written_results_are_refused_in_a_sentence(tmp_path, content, words):
    if content is not None:
        (tmp_path / "matrix.json").write_text(content)
    with pytest.raises(BadInput) as error:
        read_results(CampaignDirectory(tmp_path))
    assert words in str(error.value)


def test_a_run_whose_verdict_is_torn_counts_as_one_without_a_verdict(tmp_path):
    row = {"number": 0, "row": {"schedule": "calm"}, "seed": 1, "part": 0, "parts": 1}
    said = {"format_version": 1, "name": "m", "title": "M", "values": {}, "trials": [row], "document": {}}
    (tmp_path / "matrix.json").write_text(json.dumps(said))
    drawn = {"number": 0, "trial": "p.json", "seed": 1}
    attempt = {"drawn": drawn, "exit_code": 0, "verdict": "held", "run": "r", "began_s": 0, "took_s": 1}
    (tmp_path / "entries.jsonl").write_text(json.dumps(attempt) + "\n")
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "verdict.json").write_text('{"verdict": "he')
    told = read_results(CampaignDirectory(tmp_path))
    assert told.trials[0].verdict is None
    assert "cannot be read" in told.notes[0]
    assert told.exit_code == 2


# --- the command ----------------------------------------------------------------------------------------------------


def carry_out(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["prozess", "matrix", *map(str, arguments)])
    code = _main()
    return code, capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Give a matrix"),
        (("smoke.toml",), "cannot be read"),
        (("matrix-quik",), "Did you mean 'matrix-quick'?"),
        (("matrix-quick", "--diff", "a", "b"), "--diff compares two directories"),
        (("--diff", "a", "b"), "holds no results of a matrix"),
        (("matrix-quick", "--for", "8h"), "it needs --run DIRECTORY"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(monkeypatch, capsys, arguments, words):
    code, said = carry_out(monkeypatch, capsys, *arguments)
    assert code == 254
    assert words in said.err
