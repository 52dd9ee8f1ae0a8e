"""A table of hundreds of cells is grouped by the settings that decide, and no cell is in two rows or in none."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.report.cell_groups import GROUPED_FROM, groups_of, kind_of
from prozess.harness.report.terminal import show_verdict
from prozess.harness.report.words import matrices
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict

AXES = {
    "producer.acks": ("0", "1", "all"),
    "topic.min_insync_replicas": ("1", "2"),
    "producer.linger_ms": ("0", "5", "100"),
    "producer.compression_type": ("none", "lz4", "zstd"),
}


def cell(number, axes, outcome, count):
    verdict = {"violated": Verdict.VIOLATED, "unknown": Verdict.UNKNOWN}.get(outcome, Verdict.HELD)
    lost = CellAnomaly(
        anomaly="lost",
        outcome=outcome,
        verdict=verdict,
        reason="",
        count=count,
        permitted=count if outcome == "seen" else 0,
    )
    return CellVerdict(
        cell=number, name=f"log-{number}", workload="log", axes=axes, verdict=verdict, anomalies={"lost": lost}
    )


def cells(decide):
    rows = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())]
    return tuple(cell(number, axes, *decide(number, axes)) for number, axes in enumerate(rows))


def lossy_unless_all(number, axes):
    if axes["producer.acks"] == "all":
        return AnomalyOutcome.HELD, 0
    return (AnomalyOutcome.PERMITTED, 20) if number % 2 else (AnomalyOutcome.POSSIBLE, 0)


def test_what_decides_makes_two_rows_of_fifty_four_cells():
    found = groups_of(matrices(cells(lossy_unless_all))[0])
    assert [(dict(group.values), len(group.cells), group.seen) for group in found] == [
        ({"producer.acks": ("0", "1")}, 36, "lost 360 in 18 of 36 (permitted)"),
        ({"producer.acks": ("all",)}, 18, "nothing"),
    ]


@given(st.lists(st.sampled_from(list(AnomalyOutcome)), min_size=54, max_size=54))
def test_each_cell_is_in_one_group_whose_values_are_its_own_and_whose_cells_came_to_the_same(outcomes):
    matrix = matrices(cells(lambda number, axes: (outcomes[number], 3)))[0]
    found = groups_of(matrix)
    assert sorted(one.cell for group in found for one in group.cells) == list(range(54))
    for group in found:
        having = {c.cell for c in matrix.cells if all(c.axes[axis] in values for axis, values in group.values.items())}
        assert having == {c.cell for c in group.cells}
        assert len({kind_of(c) for c in group.cells}) == 1


def test_a_violation_comes_first_and_the_verdict_stays_in_view(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def decide(number, axes):
        bad = axes["producer.acks"] == "all" and axes["topic.min_insync_replicas"] == "2"
        return (AnomalyOutcome.VIOLATED, 1) if bad else lossy_unless_all(number, axes)

    made = cells(decide)
    assert len(made) >= GROUPED_FROM
    verdict = TrialVerdict(
        trial="mine", title="Mine", seed=1, verdict=Verdict.VIOLATED, sentence="Violated.", cells=made, findings={}
    )
    show_verdict(verdict, RunDirectory(tmp_path))
    told = capsys.readouterr().out.splitlines()
    assert len(told) < 20
    rows = [line for line in told if "● permitted" in line or "✗ violated" in line]
    assert "✗ violated" in rows[0]
    assert "acks=all, min.insync=2" in rows[0]
    assert any("acks=0 or 1" in row and "● permitted" in row for row in rows)
