"""What counts as worse than the nights before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.campaigns.comparing import run_directories
from prozess.campaigns.comparing.trends import BOTTOM, TOP, night_charts, report_trends, runs_among, write_trends
from prozess.harness.errors import BadInput, ExitCode, NotJudged
from prozess.harness.impact.trends import NIGHTS_MIN, Measure, NightOfTrial, Regression, Trends, regressions


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


def test_runs_of_which_none_was_judged_are_refused_and_one_verdict_is_enough(tmp_path):
    runs = [tmp_path / name for name in ("safe-1", "safe-2")]
    for run in runs:
        run.mkdir()
        (run / "plan.json").write_text("{}")
    with pytest.raises(
        NotJudged, match=r"2 runs were found, and none has a verdict.*prozess check .*safe-1"
    ) as refused:
        report_trends([str(tmp_path)], tmp_path / "trends.html", find=None, strict=False)
    assert refused.value.exit_code is ExitCode.UNKNOWN
    assert not (tmp_path / "trends.html").exists()
    (runs[1] / "verdict.json").write_text("{}")
    assert runs_among([str(tmp_path)]) == runs


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
