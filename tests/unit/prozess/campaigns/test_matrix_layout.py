"""Matrix files: which trials they are, and what is refused."""

import shutil
import signal
from collections import Counter
from functools import cache
from itertools import product

import pytest

from prozess.campaigns.campaign_plan import CampaignDirectory
from prozess.campaigns.matrix_layout import MatrixLayout, load_matrix, parse_matrix, read_matrix_file
from prozess.campaigns.matrix_runner import begin_matrix, show_matrix
from prozess.command import run
from prozess.harness.errors import BadInput, UnsupportedFault
from prozess.harness.plan.covering import covered
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_matrices, load_trial
from tests.support.campaigns import Ending, own_process

OF_ONE = ("workload", "topics", "axes")
"""What a file says of its only workload."""
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
    return MatrixLayout(parse_matrix(document(**changes), source="small.toml"))


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
        "variant.kafka_version": ["4.4.0", "3.9.2"],
        "variant.brokers": [3, 4],
    }
    made = layout(matrix={"axes": axes, "strength": 2})
    values = made.matrix.spec.values
    choice = made.choice
    assert covered(made.rows, list(values), 2) == covered(choice.valid, list(values), 2)
    assert len(made.rows) < len(choice.valid) == 20
    assert choice.covered == choice.possible
    assert choice.impossible == [{"variant.metadata_mode": "zookeeper", "variant.kafka_version": "4.4.0"}]
    assert "KIP-833" in choice.why_impossible(choice.impossible[0])


def test_a_workload_that_a_cluster_cannot_have_is_left_out_there_and_named_with_the_reason(capsys):
    tiered = {"topic.properties.remote.storage.enable": True, "topic.replication_factor": 3}
    workloads = [
        {"kind": "log", "topics": {"placement": [[1, 2, 3]]}, "axes": {"producer.acks": ["1", "all"]}},
        {"kind": "log", "base": tiered, "axes": {"producer.acks": ["1", "all"]}},
        {"kind": "share", "base": {"topic.replication_factor": 3, "producer.acks": "all"}},
    ]
    axes = {"variant.tiered_storage": [False, True], "variant.kafka_version": ["3.9.2", "4.4.0"]}
    whole = document(matrix={"axes": axes}) | {"workloads": workloads}
    made = MatrixLayout(parse_matrix({k: v for k, v in whole.items() if k not in OF_ONE}, source="small.toml"))
    with_store, with_share = ({"variant.tiered_storage": "true"}, {"variant.kafka_version": "4.4.0"})
    for row in made.rows:
        plan = made.plan(next(trial for trial in made.trials if trial.row == row))
        traits = [(cell.workload, "tiered" in cell.traits) for cell in plan.cells]
        assert (("log", True) in traits) == (with_store.items() <= row.items())
        assert (("share", False) in traits) == (with_share.items() <= row.items())
    assert Counter(kind for kind, _ in made.left_out()) == {"log": 4, "share": 4}
    assert made.fullest == {"variant.tiered_storage": "true", "variant.kafka_version": "4.4.0", "schedule": "calm"}
    show_matrix(made)
    printed = capsys.readouterr().out
    assert "cannot have, of 8 choices (8):" in printed
    assert "4  log: the brokers have no remote store" in printed


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
    made = MatrixLayout(parse_matrix(bare | {"workloads": workloads}, source="small.toml"))
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
        ({"matrix": {"cells_per_trial": {"lgo": 3}}}, "did you mean 'log'?"),
        ({"matrix": {"axes": {"variant.brokers": ["three"]}}}, "variant.brokers = 'three'"),
        ({"steps": STEPS}, "belong to its [[matrix.schedules]]"),
        ({"axes": {"producer.ack": ["1"]}}, "did you mean 'producer.acks'?"),
        ({"axes": {"producer.acks": ["2"]}}, "producer.acks = '2'"),
        ({"name": 3}, "needs a name"),
        (
            {"matrix": {"axes": {"variant.kafka_version": ["4.4.0"], "variant.metadata_mode": ["zookeeper"]}}},
            "has no valid trial. Choices are excluded: 2 because Kafka 4.4.0 has no ZooKeeper mode",
        ),
        (
            {"axes": {"topic.min_insync_replicas": [4]}},
            "has no valid log cell. Combinations are excluded: 1 because min.insync.replicas=4 exceeds",
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
        MatrixLayout(parse_matrix(document(), source="small.toml"), able=able).trials[0]


def test_what_one_metadata_mode_cannot_do_is_left_out_there_alone():
    def able(plan):
        if plan.faults and plan.variant.metadata_mode == "kraft-combined":
            raise UnsupportedFault("not here.")

    made = MatrixLayout(parse_matrix(document(), source="small.toml"), able=able)
    assert len(made.trials) == 3
    assert made.choice.excluded == (({"variant.metadata_mode": "kraft-combined", "schedule": "kill"}, "not here"),)


@cache
def shipped(name):
    """One for all tests that only look at it: a search for the covers of matrix-wide takes seconds."""
    return MatrixLayout(load_matrix(name))


@pytest.mark.parametrize("name", sorted(known_matrices()))
def test_a_matrix_that_comes_with_prozess_covers_what_is_possible(name):
    choice = shipped(name).choice
    done, possible = choice.covered, choice.possible
    assert done == possible


@pytest.mark.parametrize("name", sorted(set(known_matrices()) - {"matrix-full"}))  # it has the same: see below
def test_each_schedule_of_a_matrix_that_comes_with_prozess_is_a_valid_trial(name):
    made = shipped(name)
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
    assert quick.spec.schedules == full.spec.schedules
    quick_workloads, full_workloads = (
        [
            w.model_copy(update={"strength": "full"})
            for w in m.trial({a: v[0] for a, v in m.spec.values.items()}).workloads
        ]
        for m in (quick, full)
    )
    assert quick_workloads == full_workloads


def begin(path):
    begin_matrix(layout(), CampaignDirectory(path))


@pytest.mark.parametrize("written", ["runs", "token", "matrix.json", "campaign.json"])
def test_a_matrix_that_was_killed_while_it_began_begins_again(tmp_path, written):
    path = tmp_path / "results"
    for later in range(3):
        assert own_process(begin, path, ending=Ending(written, 0, later, signal.SIGKILL)) == -signal.SIGKILL
        assert not CampaignDirectory(path).is_there
        begin(path)
        assert read_matrix_file(path).name == "small"
        shutil.rmtree(path)


def test_a_directory_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(BadInput, match="holds something else"):
        begin(tmp_path)


def test_a_matrix_is_not_run_as_a_trial(tmp_path, capsys):
    with pytest.raises(BadInput, match="is a matrix of many trials: `prozess matrix matrix-quick`"):
        load_trial("matrix-quick")
    file = tmp_path / "m.toml"
    file.write_text("[matrix]\n")
    with pytest.raises(BadInput, match="is a matrix of many trials"):
        load_trial(str(file))


def carry_out(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["prozess", "matrix", *map(str, arguments)])
    code = run()
    return code, capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Give the name or file of a matrix"),
        (("smoke.toml",), "Matrix file 'smoke.toml' does not exist"),
        (("matrix-quik",), "did you mean 'matrix-quick'?"),
        (("matrix-quick", "--diff", "a", "b"), "--diff compares two directories"),
        (("--diff", "a", "b"), "holds no results of a matrix"),
        (("matrix-quick", "--for", "8h"), "it needs --run DIRECTORY"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(monkeypatch, capsys, arguments, words):
    code, said = carry_out(monkeypatch, capsys, *arguments)
    assert code == 254
    assert words in said.err


def test_a_cell_of_many_axes_is_named_by_its_number_so_that_files_can_be_named_after_it():
    layout = shipped("matrix-wide")
    made = make_plan(layout.matrix.trial(layout.rows[0]), seed=1)
    names = [cell.name for cell in made.cells]
    assert len(set(names)) == len(names)
    assert any(name.startswith("group-cell-") for name in names)
    assert max(len(f"client-{client.name}~99.log") for client in made.clients) <= 255
