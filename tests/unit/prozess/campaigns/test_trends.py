"""What counts as worse than the nights before."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.campaigns.comparing import run_directories
from prozess.campaigns.comparing.trends import BOTTOM, TOP, find_trends, night_charts, report_trends, write_trends
from prozess.harness.errors import BadInput, NotJudged
from prozess.harness.exit_codes import ExitCode
from prozess.harness.impact.trends import NIGHTS_MIN, Measure, NightOfTrial, Regression, Trends, regressions
from prozess.harness.run_tables.definitions import RUN_TABLES
from prozess.harness.run_tables.location import read_table, sources_of


def nights(*verdicts, findings=()):
    """One night per entry: (held, violated, unknown)."""
    told = []
    for day, (held, violated, unknown) in enumerate(verdicts, 1):
        told.append(
            NightOfTrial("safe", f"2026-01-{day:02}", held, violated, unknown, findings[day - 1] if findings else ())
        )
    return tuple(told)


def series(*values, higher_is_worse=True):
    return tuple(
        Measure("safe", f"2026-01-{day:02}", "recovery after kill", value, "ms", 3, higher_is_worse)
        for day, value in enumerate(values, 1)
    )


def worse(*, told=(), measured=()):
    return [regression.what for regression in regressions(Trends(told, measured, 1, 0))]


def test_a_verdict_that_no_earlier_night_had_is_named_and_one_that_they_had_is_not():
    assert worse(told=nights((5, 0, 0), (4, 1, 0))) == ["1 violated, never before"]
    assert worse(told=nights((5, 1, 0), (4, 2, 0))) == []
    assert worse(told=nights((5, 0, 0), (3, 0, 2))) == ["2 unknown, never before"]


def test_the_first_night_has_nothing_to_be_worse_than():
    assert worse(told=nights((0, 3, 0)), measured=series(9.0)) == []


def test_an_anomaly_that_was_never_found_before_is_named():
    found = ((("lost", 3),), (("duplicate", 2), ("lost", 900)))
    assert worse(told=nights((1, 0, 0), (1, 0, 0), findings=found)) == ["duplicate was found 2 times, never before"]


def test_a_number_is_worse_only_beyond_both_the_usual_and_the_worst():
    assert worse(measured=series(100, 110, 90, 200)) == [
        "recovery after kill was 200.0 ms; the median of 3 nights before was 100.0"
    ]
    assert worse(measured=series(100, 300, 90, 200)) == [], "it has been worse"
    assert worse(measured=series(100, 110, 90, 120)) == [], "not by half"
    assert worse(measured=series(100, 110, 200)) == [], "too few nights to say"


def test_where_less_is_worse_a_fall_is_named():
    assert worse(measured=series(1000, 1100, 900, 300, higher_is_worse=False)) != []
    assert worse(measured=series(1000, 1100, 900, 3000, higher_is_worse=False)) == []


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=NIGHTS_MIN + 4), st.booleans())
def test_a_night_like_an_earlier_one_is_never_worse(values, higher):
    assert worse(measured=series(*values, values[0], higher_is_worse=higher)) == []


def test_runs_are_found_within_campaigns_and_none_is_refused(tmp_path):
    for name in ("campaign/runs/safe-1", "campaign/runs/safe-2"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "plan.json").write_text("{}")
    assert [run.name for run in run_directories([tmp_path])] == ["safe-1", "safe-2"]
    assert [run.name for run in run_directories([tmp_path / "campaign/runs/safe-1"])] == ["safe-1"]
    with pytest.raises(BadInput, match="no run below"):
        run_directories([tmp_path / "elsewhere"])


RUNS = [  # (trial, when it began, verdict, found, recovery after its kill)
    ("safe", "20260101T220000", "held", {"lost": 5}, 9_000.0),
    ("safe", "20260102T040000", "held", {"lost": 7}, 10_000.0),
    ("safe", "20260102T220000", "held", {}, 11_000.0),
    ("safe", "20260103T230000", "unknown", {}, None),
    ("safe", "20260103T233000", "interrupted", {}, None),
    ("safe", "20260104T230000", "violated", {"reordered": 2}, 30_000.0),
    ("null", "20260101T223000", "held", {}, None),
    ("safe", "20260104T233000", None, {}, None),
]


def tables():
    """Tables with these runs: what `prozess trends` reads."""
    runs, impacts = [], []
    for number, (trial, stamp, verdict, found, recovery_ms) in enumerate(RUNS):
        began = datetime.strptime(stamp, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        told = {"run": str(number), "trial": trial, "night": (began - timedelta(hours=12)).date()}
        told |= {"interrupted": verdict == "interrupted", "found": list(found.items())}
        runs.append(told | {"verdict": "unknown" if verdict == "interrupted" else verdict})
        if recovery_ms is not None:
            phases = [
                {"phase": "before", "acks": "all", "per_s": 100.0},
                {"phase": "after", "acks": "all", "per_s": 1.0},
            ]
            cost = {"after_fault_median_ms": recovery_ms, "longest_s": recovery_ms / 1000, "phases": phases}
            impacts.append({"run": str(number), "kind": "kill"} | cost)
    return {
        "runs": pa.Table.from_pylist(runs, RUN_TABLES["runs"].schema),
        "impacts": pa.Table.from_pylist(impacts, RUN_TABLES["impacts"].schema),
    }


@pytest.fixture(scope="module")
def found():
    made = tables()
    return find_trends(lambda table, columns: made[table].select(columns))


def test_a_night_goes_from_noon_to_noon(found):
    assert {(n.trial, n.night): (n.held, n.violated, n.unknown) for n in found.nights} == {
        ("null", "2026-01-01"): (1, 0, 0),
        ("safe", "2026-01-01"): (2, 0, 0),
        ("safe", "2026-01-02"): (1, 0, 0),
        ("safe", "2026-01-03"): (0, 0, 1),
        ("safe", "2026-01-04"): (0, 1, 0),
    }


def test_what_was_found_in_a_night_is_added_up(found):
    told = {(n.trial, n.night): n.findings for n in found.nights}
    assert told["safe", "2026-01-01"] == (("lost", 12),)
    assert told["null", "2026-01-01"] == ()


def test_recovery_is_the_median_of_the_runs_of_a_night_and_a_gap_is_the_longest(found):
    told = {(m.night, m.name): m.value for m in found.measures if m.trial == "safe"}
    assert told["2026-01-01", "recovery after kill"] == 9_500.0
    assert told["2026-01-01", "longest gap under kill"] == 10_000.0
    assert told["2026-01-04", "longest gap under kill"] == 30_000.0
    assert told["2026-01-02", "throughput before faults, acks=all"] == 100.0


def test_a_run_without_a_verdict_is_counted_and_left_out(found):
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


def test_runs_of_which_none_was_judged_are_refused(tmp_path):
    (tmp_path / "safe-1").mkdir()
    (tmp_path / "safe-1" / "plan.json").write_text("{}")
    read = partial(read_table, sources=sources_of([tmp_path]))
    with pytest.raises(NotJudged, match=r"1 run, and none has a verdict.*prozess check RUN") as refused:
        report_trends(read, tmp_path / "trends.html", strict=False)
    assert refused.value.exit_code is ExitCode.UNKNOWN
    assert not (tmp_path / "trends.html").exists()


def test_the_page_shows_verdicts_numbers_and_what_got_worse(tmp_path):
    found = Trends(nights((5, 0, 0), (4, 1, 0)), series(1.0, 2.0), 10, 0)
    page = write_trends(found, [Regression("safe", "2026-01-02", "1 <violated>")], tmp_path / "t.html").read_text()
    assert "1 &lt;violated&gt;" in page
    assert 'role="img" aria-label="recovery after kill, ms, 2 nights: from 1.0 (2026-01-01) to 2.0 (2026-01-02)' in page
    assert "<script" not in page


def test_a_chart_over_nights_begins_at_zero_and_takes_one_night_too():
    (chart,) = night_charts(series(4.0, 0.0, 2.0))
    assert [round(y) for _, y, *_ in chart.points] == [TOP, BOTTOM, (TOP + BOTTOM) // 2]
    (single,) = night_charts(series(0.0))
    assert single.words.startswith("recovery after kill, ms, one night")
