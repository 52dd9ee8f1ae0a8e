"""A small matrix on real clusters: begun, gone on with, reported, compared."""

import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
]  # its cheaper neighbour: tests/unit/prozess/campaigns/test_matrix_layout.py

MATRIX = """
name = "small"
title = "Two schedules"

[matrix]
strength = 2

[[matrix.schedules]]
name = "calm"
title = "nothing breaks"
settle_s = 0
steps = [{ name = "traffic", after = { condition = "elapsed", seconds = 1 } }]

[[matrix.schedules]]
name = "kill"
title = "a leader is killed"
settle_s = 0

[[matrix.schedules.steps]]
name = "the leader is killed"
do = { kind = "fault", fault = "kill", targets = ["leader(0)"] }

[[matrix.schedules.steps]]
name = "another leads"
after = { condition = "leader-moved" }
timeout_s = 60

[[matrix.schedules.steps]]
name = "it returns"
do = { kind = "heal" }

[variant.properties]
"broker.session.timeout.ms" = 3000
"broker.heartbeat.interval.ms" = 500

[topics]
partitions = 1
placement = [[1, 2, 3]]

[base]
"topic.replication_factor" = 3

[axes]
"producer.acks" = ["1", "all"]
"producer.enable_idempotence" = [false, true]
"topic.min_insync_replicas" = [1, 2]
"""
TIMEOUT_S = 400.0


def matrix(*arguments):
    """`prozess matrix …`: (exit code, what it printed, what it complained)."""
    command = [sys.executable, "-m", "prozess", "matrix", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def results(tmp_path_factory, need):
    """Where both trials of the matrix were run, the second by another command than the first."""
    need("java")
    need("namespaces")
    directory = tmp_path_factory.mktemp("matrix")
    file, path = directory / "small.toml", directory / "results"
    file.write_text(MATRIX, encoding="utf-8")
    code, told, complained = matrix(file, "--run", path, "--for", "0.01s")
    assert code == 2, told + complained  # the other trial is missing, which is no success
    assert "1 of 2 trials" in told
    code, told, complained = matrix(file, "--run", path)
    assert code in (0, 1, 2), told + complained
    assert "1 of 2 trials were run before" in told
    assert "2 of 2 trials, 12 cells" in told, told + complained
    return path


def test_both_trials_count_and_settings_are_told_apart(results):
    found = json.loads((results / "result.json").read_text(encoding="utf-8"))
    assert [trial["row"]["schedule"] for trial in found["trials"]] == ["calm", "kill"]
    assert all(trial["verdict"] is not None for trial in found["trials"])
    lost = found["guarantees"]["lost"]
    assert sum(lost[outcome] for outcome in ("held", "permitted", "possible", "violated", "unknown")) == 12
    assert set(found["settings"]["producer.acks"]) == {"1", "all"}
    assert found["settings"]["producer.acks"]["all"]["lost"]["permitted"] == 0
    assert set(found["settings"]["schedule"]) == {"calm", "kill"}
    assert len(found["configurations"]) == 6


def test_the_page_links_the_reports_of_both_runs(results):
    page = (results / "matrix.html").read_text(encoding="utf-8")
    for report in results.glob("runs/*/report.html"):
        assert f'href="{report.relative_to(results)}"' in page
    assert len(list(results.glob("runs/*/report.html"))) == 2


def test_nothing_is_run_twice_and_nothing_changed_since(results):
    before = (results / "entries.jsonl").read_text(encoding="utf-8")
    code, told, _ = matrix(results.parent / "small.toml", "--run", results)
    assert "2 of 2 trials were run before" in told
    assert code in (0, 1, 2)
    assert (results / "entries.jsonl").read_text(encoding="utf-8") == before
    code, told, _ = matrix("--diff", results, results)
    assert code == 0
    assert "Regressions: 0" in told


def test_another_matrix_is_not_mixed_in(results, tmp_path):
    other = tmp_path / "small.toml"
    other.write_text(MATRIX.replace('["1", "all"]', '["0", "all"]'), encoding="utf-8")
    code, _, complained = matrix(other, "--run", results)
    assert code == 254
    assert "holds results of another matrix" in complained
