"""What is printed for a person: nothing that matters is cut off, on a narrow terminal as in a file."""

import pytest

from prozess.harness.console import WIDE, console
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.report.terminal import describe_step, show_verdict
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import CellVerdict, TrialVerdict, Verdict

AXES = {
    "topic.replication_factor": ("3", "1"),
    "topic.min_insync_replicas": ("2", "1"),
    "producer.acks": ("all", "1"),
    "producer.delivery_timeout_ms": ("60000", "5000"),
    "producer.compression_type": ("snappy", "none"),
}


def verdict_of(count):
    """Two cells that differ in so many settings."""
    axes = dict(list(AXES.items())[:count])
    cells = tuple(
        CellVerdict(
            cell=number,
            name=f"log-{number}",
            workload="log",
            axes={axis: values[number] for axis, values in axes.items()},
            verdict=Verdict.HELD,
            anomalies={},
        )
        for number in range(2)
    )
    return TrialVerdict(
        trial="mine", title="Mine", seed=1, verdict=Verdict.HELD, sentence="Held.", cells=cells, findings={}
    )


def printed(verdict, width, *, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    show_verdict(verdict, RunDirectory(tmp_path))
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 200])
def test_every_setting_of_a_cell_can_be_read_whatever_the_width(width, tmp_path, monkeypatch, capsys):
    told = printed(verdict_of(5), width, tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)
    assert "…" not in told
    assert all(value in told for values in AXES.values() for value in values)
    assert ("configuration" in told) == (width == 80)


def test_settings_that_fit_have_a_column_each(tmp_path, monkeypatch, capsys):
    told = printed(verdict_of(2), 80, tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)
    assert "min.insync" in told
    assert "configuration" not in told


def test_what_goes_to_a_file_is_wider_than_rich_would_have_it_unless_somebody_says_how_wide(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == console(stderr=True).width == WIDE
    monkeypatch.setenv("COLUMNS", "60")
    assert console().width == 60


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            {
                "after": {"condition": "elapsed", "seconds": 5},
                "do": {
                    "kind": "fault",
                    "fault": "partition",
                    "targets": ["followers(0)"],
                    "parameters": {"others": "all"},
                },
            },
            "after 5 s, partition followers(0) (others=all)",
        ),
        ({"at_s": 2, "do": {"kind": "heal"}}, "at 2 s, heal"),
        (
            {"after": {"condition": "acked", "count": 20}, "timeout_s": 60, "do": {"kind": "send", "count": 3}},
            "once acked (count=20) (at most 60 s), send (count=3)",
        ),
    ],
)
def test_a_step_is_described_without_braces_of_python(step, said):
    trial = parse_trial({"name": "mine", "title": "Mine", "steps": [{"name": "it"} | step]}, source="test")
    (planned,) = make_plan(trial, seed=1).steps
    assert describe_step(planned) == said
