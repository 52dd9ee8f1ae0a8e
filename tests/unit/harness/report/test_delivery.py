"""Delivery, window by window, as reports report it: what was counted beside what was judged."""

import numpy as np
import pytest

from prozess.harness.checking.findings import write_findings
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.interfaces.checking import Finding, KernelResult
from prozess.harness.interfaces.witnesses import make_windows, no_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.report.charts import DELIVERY_BINS_MAX, delivery_panels
from prozess.harness.report.tables import OUTCOMES, Deliveries, deliveries, delivery_lines, windows_words
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import MISSING
from prozess.harness.verdict import (
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    FaultShown,
    TrialVerdict,
    Verdict,
    WindowJudged,
)

HELD, SHOWN, VIOLATED, UNKNOWN = OUTCOMES
MS = 1_000_000
PLAN = make_plan(
    parse_trial(
        {
            "name": "bounded",
            "title": "",
            "delivery": {"latency_s": 2, "window_s": 0.5, "recovery_s": 3},
            "axes": {"producer.acks": ["1", "all"]},
            "topics": {"partitions": 1},
        },
        source="test",
    ),
    seed=1,
)
FAULT = FaultShown(step="freeze", fault="pause", nodes=("broker-1",), begin_s=1.2, end_s=2.1, effective=True)


def counted(numbers, *, late=(), missing=(), nothing=()):
    """Windows of 10 records each; in those named, three were late, or missing, or none was delivered."""
    numbers = np.array(numbers)
    gone = np.isin(numbers, nothing)
    lost = np.where(gone, 10, 3 * np.isin(numbers, missing))
    columns = {
        "number": numbers,
        "sent": np.full(len(numbers), 11),
        "acknowledged": np.full(len(numbers), 10),
        "delivered": 10 - lost,
        "late": 3 * np.isin(numbers, late),
        "missing": lost,
        "open": np.zeros(len(numbers)),
        "unmeasured": np.zeros(len(numbers)),
        "unacknowledged": np.ones(len(numbers)),
        "p50_ns": np.where(gone, MISSING, 5 * MS),
        "p99_ns": np.where(gone, MISSING, 20 * MS + numbers),
        "max_ns": np.where(gone, MISSING, np.where(np.isin(numbers, late), 2500, 30) * MS),
    }
    return make_windows(columns)


def told(folder, windows, judged=(), *, faults=(FAULT,), outcome=SHOWN) -> list[Deliveries]:
    """What reports read of the first cell of two; the other has sent nothing."""
    run = RunDirectory(folder)
    run.create()
    run.plan.write_text(PLAN.model_dump_json())
    nothing = no_witnesses()
    write_findings(
        run,
        [
            Finding("lost", 0, KernelResult(nothing, 0, 9)),
            Finding("late", 0, KernelResult(nothing, 0, 9, None, windows)),
            Finding("late", 1, KernelResult(nothing, 0, 0)),
        ],
    )
    cells = tuple(
        CellVerdict(
            cell=cell.cell,
            name=cell.name,
            workload="log",
            axes=cell.axes,
            verdict=Verdict.HELD,
            anomalies={"late": CellAnomaly(anomaly="late", outcome=outcome, verdict=Verdict.HELD)},
            windows=tuple(judged) if cell.cell == 0 else (),
        )
        for cell in PLAN.cells
    )
    verdict = TrialVerdict(
        verdict=Verdict.HELD, sentence="", trial="bounded", title="", seed=1, cells=cells, faults=tuple(faults)
    )
    return deliveries(run, PLAN, verdict)


def test_each_window_says_what_was_judged_of_it_and_which_faults_were_at_work(tmp_path):
    first, _ = told(
        tmp_path,
        counted([1, 2, 3, 4, 6], late=[2], missing=[3, 4, 6]),
        [
            WindowJudged(number=2, permitted=3),
            WindowJudged(number=3, permitted=2, forbidden=1),
            WindowJudged(number=4, permitted=2, unknown=1),
        ],
    )
    assert [(w.begin_s, w.outcome, w.faults) for w in first.windows] == [
        (0.5, HELD, ()),
        (1.0, SHOWN, ("freeze",)),
        (1.5, VIOLATED, ("freeze",)),
        (2.0, UNKNOWN, ("freeze",)),
        (3.0, UNKNOWN, ("freeze",)),
    ]
    late, early = told(tmp_path / "late", counted([20, 11, 10], missing=[11, 10]))[0], counted([3, 4], late=[])
    assert [w.faults for w in late.windows] == [(), (), ("freeze",)]
    assert [w.faults for w in told(tmp_path / "early", early)[0].windows] == [("freeze",), ("freeze",)]
    assert windows_words(first) == (
        "1 of 5 windows within the bound, 1 beyond it and permitted, 1 beyond it, 2 unknown"
    )


def test_the_summary_names_the_worst_window_of_each_cell(tmp_path):
    found = told(tmp_path, counted([1, 2, 3], late=[2]), [WindowJudged(number=2, permitted=3)])
    lines = [line for line in delivery_lines(found) if line.startswith("| ")]
    assert len(lines) == 3
    assert "within 2 s, except during faults and 3 s after them | 3 | 2 | 1 | 0 | 0 | 30 | 30 | 3 | 0 |" in lines[1]
    assert "● 1–1.5 s: 99 % within 20 ms, the last after 2,500 ms, during freeze" in lines[1]
    assert "| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | nothing was sent |" in lines[2]


def test_a_window_that_missed_records_is_worse_than_a_slow_one(tmp_path):
    [line] = [x for x in delivery_lines(told(tmp_path, counted([1, 2, 3], late=[1], nothing=[3]))) if "| 30 |" in x]
    assert "? 1.5–2 s: nothing arrived, 10 never delivered, during freeze" in line


def test_without_a_bound_nothing_is_told_and_nothing_is_read(tmp_path):
    plan = make_plan(parse_trial({"name": "x", "title": ""}, source="test"), seed=1)
    verdict = TrialVerdict(verdict=Verdict.HELD, sentence="", trial="x", title="", seed=1, cells=())
    assert deliveries(RunDirectory(tmp_path), plan, verdict) == []
    assert delivery_lines([]) == []


def test_a_long_table_shows_quiet_windows_together(tmp_path):
    first, _ = told(tmp_path, counted(range(1, 200), late=[100]), [WindowJudged(number=100, permitted=3)])
    assert [(w.begin_s, w.end_s, w.count, w.produced, w.outcome) for w in first.folded] == [
        (0.5, 1.0, 1, 10, HELD),
        (1.0, 1.5, 1, 10, HELD),
        (1.5, 2.0, 1, 10, HELD),
        (2.0, 2.5, 1, 10, HELD),
        (2.5, 50.0, 95, 950, HELD),
        (50.0, 50.5, 1, 10, SHOWN),
        (50.5, 100.0, 99, 990, HELD),
    ]
    assert [w.faults for w in first.folded[:4]] == [(), *[("freeze",)] * 3]
    assert sum(w.count for w in first.folded) == len(first.windows) == 199
    few, _ = told(tmp_path / "few", counted(range(1, 50)))
    assert few.folded == few.windows


def test_the_promise_is_told_in_words():
    always = DeliveryBound(latency_s=1.5, except_during_faults=False)
    assert Deliveries(0, "a", always, AnomalyOutcome.HELD, []).promise == "within 1.5 s, whatever happens"


@pytest.mark.parametrize("length", [3, 10_000])
def test_charts_are_made_however_long_the_trial(tmp_path, length):
    late = [1, length // 2]
    found = told(tmp_path, counted(range(length), late=late, missing=[2], nothing=[0]))
    [panels] = delivery_panels(found)
    names = [series.name for panel in panels for series in panel.series]
    assert names == ["produced", "consumed", "late", "never delivered", "50 %", "99 %", "the last", "bound 2 s"]
    assert all(
        len(series.values) == len(panel.at_s) <= DELIVERY_BINS_MAX + 1 for panel in panels for series in panel.series
    )
    assert panels[1].series[0].values.sum() == 3 * len(set(late))


def test_without_anything_beyond_the_bound_there_is_no_panel_of_it(tmp_path):
    [panels] = delivery_panels(told(tmp_path, counted([1, 2, 3])))
    assert len(panels) == 2
    assert delivery_panels(told(tmp_path / "none", counted([]))) == []
