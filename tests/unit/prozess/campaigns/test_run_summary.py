"""What a finished run says: each file whole, or not at all."""

import pytest

from prozess.campaigns.comparing import RunSummary
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.run_directory import write_json
from tests.support.campaigns import anomaly, judged
from tests.support.small_runs import make_small


@pytest.fixture
def run(tmp_path):
    return make_small(tmp_path / "small-1-20260101T000000").run


def test_a_run_that_was_not_judged_has_no_verdict_and_counts_nothing(run):
    summary = RunSummary(run)
    assert (summary.verdict, summary.impact, summary.took_s) == (None, None, None)
    assert summary.counts("forbidden") == {}
    assert (summary.cluster_kind, summary.began) == (("local", "kraft-isolated"), "20260101T000000")


@pytest.mark.parametrize("text", ['{"verdict": "he', '{"verdict": "held"}', "[]"])
def test_a_verdict_that_is_torn_or_half_there_is_none(run, text):
    run.verdict.write_text(text)
    with pytest.raises(HistoryUnreadable, match=r"verdict\.json"):
        _ = RunSummary(run).verdict
    assert RunSummary(run).readable_verdict is None


def test_a_plan_that_is_torn_is_named(run):
    run.plan.write_text('{"backend": "loc')
    with pytest.raises(BadInput, match=r"plan\.json is damaged"):
        _ = RunSummary(run).plan


def test_witnesses_are_counted_over_all_cells_and_seconds_over_stages(run):
    lost = [anomaly("lost", "violated", "", forbidden=n, permitted=1) for n in (2, 3)]
    cells = [*([one] for one in lost), [anomaly("stalled", "unknown", "")]]
    run.verdict.write_text(judged("violated", *cells).model_dump_json())
    write_json(run.path / "seconds.json", {"run": 60.0, "run: cluster": 4.0, "check": 1.5})
    summary = RunSummary(run)
    assert (summary.counts("forbidden"), summary.counts("permitted")) == ({"lost": 5}, {"lost": 2})
    assert summary.took_s == 61.5
    (run.path / "seconds.json").write_text("{")
    assert RunSummary(run).took_s is None
