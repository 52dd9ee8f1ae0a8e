"""Reports from a hand-made verdict: what each of them must say."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from prozess.harness.columns import empty_rows
from prozess.harness.errors import BadInput
from prozess.harness.history.convert import finish_recording, write_history
from prozess.harness.history.manifest import seal_history, seal_judged
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import Recorder, RowWriter
from prozess.harness.report.charts import (
    BINS_MAX,
    ChartSeries,
    Panel,
    SendTraffic,
    make_traffic,
    numbers,
    timeline_panels,
)
from prozess.harness.report.reports import report_run
from prozess.harness.report.words import MEANINGS, SIGNS, brief, matrices, seen_in
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import METADATA, MISSING, SENDS, MetadataKind, MetadataSource, Outcome
from prozess.harness.verdict import (
    AnomalyOutcome,
    ApplicationAnomaly,
    ApplicationGap,
    ApplicationVerdict,
    ApplicationWitness,
    CellAnomaly,
    CellVerdict,
    ControlResult,
    FaultShown,
    TrialVerdict,
    Verdict,
    WitnessShown,
    worst,
)

S = 1_000_000_000


@pytest.fixture
def plan():
    document = {
        "name": "tiny",
        "title": "Two <cells>",
        "axes": {"producer.acks": ["1", "all"]},
        "topics": {"partitions": 1},
    }
    return make_plan(parse_trial(document, source="x"), seed=3)


@pytest.fixture
def verdict(plan):
    witness = WitnessShown(
        partition=0, topic="cell-000", number=0, client=1, sequence=41, log_offset=7, begin_s=1.5, end_s=1.6,
        effect="permitted", rule="lost-2", faults=("kill it",),
    )  # fmt: skip
    lost = CellAnomaly(
        anomaly="lost", outcome=AnomalyOutcome.PERMITTED, verdict=Verdict.HELD, count=1200, permitted=1200,
        reason="acks=1 waits for the leader only", source="Kafka docs: acks", witnesses=(witness,),
    )  # fmt: skip
    held = CellAnomaly(anomaly="lost", outcome=AnomalyOutcome.VIOLATED, verdict=Verdict.VIOLATED, count=2, forbidden=2)
    unsure = CellAnomaly(
        anomaly="skipped", outcome=AnomalyOutcome.UNKNOWN, verdict=Verdict.UNKNOWN, reason="audit incomplete"
    )
    cells = tuple(
        CellVerdict(cell=c.cell, name=c.name, workload=c.workload, axes=c.axes, verdict=v, anomalies=a)
        for c, v, a in zip(
            plan.cells,
            (Verdict.UNKNOWN, Verdict.VIOLATED),
            ({"lost": lost, "skipped": unsure}, {"lost": held}),
            strict=True,
        )
    )
    return TrialVerdict(
        verdict=Verdict.VIOLATED, sentence="acks=all lost 2 records & that is forbidden.", trial="tiny",
        title="Two <cells>", seed=3, cells=cells,
        controls=(ControlResult(anomaly="lost", cells=(0,), fired_in=(0,), count=1200, required=True),),
        unknown_reasons=("the audit of partition 0 is incomplete",),
        faults=(FaultShown(step="kill it", fault="kill", nodes=("broker-1",), begin_s=1.55, end_s=None, effective=True),),
    )  # fmt: skip


@pytest.fixture
def run(tmp_path, plan, verdict):
    run = RunDirectory(tmp_path)
    run.create()
    run.plan.write_text(plan.model_dump_json())
    write_json(run.clock, {"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
    writer = RowWriter(run.rows, SENDS, 1)
    for i in range(100):
        writer.append(
            i * S // 50, i * S // 50 + S // 100, i, i, -1, -1, i % 2, Outcome.OK if i % 10 else Outcome.INFO, 0, 9
        )
    recorder = Recorder(run)
    recorder.close()
    finish_recording(run)
    write_history(run)
    seal_history(run)
    run.verdict.write_text(verdict.model_dump_json())
    seal_judged(run)
    return run


def page_data(run) -> dict:
    text = (run.path / "report.html").read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_the_html_opens_offline_and_says_everything(run):
    report_run(run)
    text = (run.path / "report.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=", text)
    for said in (
        "Two &lt;cells&gt;", "acks=all lost 2 records &amp; that is forbidden.", "1,200", "acks=1 waits for the leader only",
        "the audit of partition 0 is incomplete", "broker-1", "never", "#41", "kill it", "times, in 1 cell",
        f"prozess replay {run.path}",
    ):  # fmt: skip
        assert said in text, said


def test_what_the_application_did_stands_in_every_report_with_its_story(run, verdict):
    witness = ApplicationWitness(topic="cell-000", number=0, log_offset=2, text="cell-000/0, offset 2: <committed>")
    did = ApplicationAnomaly(
        anomaly="commit-first", where="cell-000", outcome=AnomalyOutcome.VIOLATED, count=3, reason="At most & once.",
        witnesses=(witness,),
    )  # fmt: skip
    unsure = did.model_copy(update={"anomaly": "repeated", "outcome": AnomalyOutcome.UNKNOWN, "count": 0})
    gap = ApplicationGap(anomalies=("missing-output",), where="cell-000", why="nothing says it", add="add expect")
    application = ApplicationVerdict(anomalies=(did, unsure), not_judged=(gap,))
    run.verdict.write_text(verdict.model_copy(update={"application": application}).model_dump_json())
    seal_judged(run)
    report_run(run)
    page, summary = ((run.path / name).read_text() for name in ("report.html", "summary.md"))
    for said in (
        "violated</span> commit-first 3 in cell-000", "At most &amp; once.", "offset 2: &lt;committed&gt;",
        "1 of 3 witnesses", "What happened around #2 of", "missing-output in cell-000: nothing says it; add expect",
    ):  # fmt: skip
        assert said in page, said
    assert "- ✗ commit-first 3 in cell-000" in summary
    assert "- not judged: missing-output in cell-000: nothing says it; add expect" in summary
    suite = ElementTree.parse(run.path / "junit.xml").getroot()
    cases = {case.get("name"): case for case in suite.iter("testcase") if case.get("classname") == "tiny.application"}
    assert cases["no commit-first in cell-000"].find("failure") is not None
    assert cases["no repeated in cell-000"].find("error") is not None


def test_no_text_of_a_history_ends_the_script_it_stands_in(run, verdict):
    spoiled = verdict.model_copy(update={"faults": (verdict.faults[0].model_copy(update={"detail": "</script><b>&"}),)})
    run.verdict.write_text(spoiled.model_dump_json())
    seal_judged(run)
    report_run(run)
    assert (run.path / "report.html").read_text().count("</script>") == 2
    assert page_data(run)["faults"][0]["detail"] == "</script><b>&"


def test_the_data_of_the_page_names_every_cell_partition_client_and_fault(run):
    report_run(run)
    data = page_data(run)
    assert [cell[0] for cell in data["cells"]] == [0, 1]
    assert data["partitions"]["sent"] == [50, 50]
    assert [sum(data["partitions"][name]) for name in ("ok", "unknown", "refused")] == [90, 10, 0]
    assert data["faults"][0]["name"] == "kill broker-1"
    assert data["near"] == {"kill it": [[0, "lost"]]}
    assert all(len(column) == len(data["clients"]["name"]) for column in data["clients"].values())
    assert [panel["title"] for panel in data["figures"][0]["panels"]] == [
        "acknowledged per s", "unknown or refused per s", "99 % acknowledged within, ms",
    ]  # fmt: skip


def test_without_scripts_the_numbers_of_the_charts_are_tables(run):
    report_run(run)
    text = (run.path / "report.html").read_text()
    plain = re.search(r"<noscript>\s*<h2>(.*?)</noscript>", text, re.S)[1]
    for said in ("The timeline in numbers", "acknowledged per s: acks=1", "kill broker-1", "Partitions", "Clients"):
        assert said in plain, said


def test_junit_has_a_case_per_cell_and_anomaly_and_unknown_is_an_error(run):
    report_run(run)
    suite = ElementTree.parse(run.path / "junit.xml").getroot()
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": "1", "errors": "1", "skipped": "0",
    }  # fmt: skip
    assert len(suite.findall("testcase/failure")) == 1
    assert suite.find("testcase/error").get("message") == "audit incomplete"


def test_the_summary_shows_each_cell_and_the_command_that_repeats_it(run):
    report_run(run)
    text = (run.path / "summary.md").read_text()
    assert "| 1 | ? unknown | skipped unknown, lost 1,200 (permitted) |" in text
    assert all(f"{SIGNS[outcome]} *{outcome}*: {meaning}" in text for outcome, meaning in MEANINGS.items())
    assert "| all | ✗ violated | lost 2 (forbidden) |" in text
    assert f"prozess replay {run.path}" in text


def test_what_was_seen_is_told_worst_first(verdict):
    assert seen_in(verdict.cells[0]) == "skipped unknown, lost 1,200 (permitted)"


def test_a_verdict_round_trips(verdict):
    assert TrialVerdict.model_validate_json(verdict.model_dump_json()) == verdict
    assert json.loads(verdict.model_dump_json())["cells"][1]["anomalies"]["lost"]["outcome"] == "violated"


def test_the_worst_verdict_wins_and_nothing_judged_is_unknown():
    assert worst([Verdict.HELD, Verdict.UNKNOWN, Verdict.VIOLATED]) is Verdict.VIOLATED
    assert worst([Verdict.HELD, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert worst([Verdict.HELD, Verdict.NOT_JUDGED]) is Verdict.HELD
    assert worst([Verdict.NOT_JUDGED]) is Verdict.UNKNOWN
    assert worst([]) is Verdict.UNKNOWN


def traffic_of(plan, sends, *, parts=1) -> SendTraffic:
    """As it is counted from `parts` parts of the table."""
    done = sends["completed_ns"][sends["completed_ns"] != MISSING]
    span_s = float(sends["invoked_ns"].min()) / S, float(done.max()) / S
    pieces = {name: np.array_split(column, parts) for name, column in sends.items()}
    cut = [{name: pieces[name][part] for name in pieces} for part in range(parts)]
    return make_traffic(cut, [plan.cells[p.cell].producer.acks for p in plan.partitions], span_s)


def test_the_timeline_counts_every_completion_once_and_follows_the_controllers_log(plan):
    count = 40
    sends = {
        "invoked_ns": np.arange(count) * S // 10,
        "completed_ns": np.append(np.arange(count - 1) * S // 10 + S // 20, MISSING),
        "outcome": np.zeros(count, np.int32) + Outcome.OK,
        "partition": np.arange(count, dtype=np.int32) % 2,
    }
    changes = empty_rows(METADATA) | {
        "time_ns": np.array([-S, -S, 1 * S, 2 * S]),
        "partition": np.array([0, 1, 0, 0], np.int32),
        "isr": np.array([0b1110, 0b1110, 0b1100, 0b1110]),
        "replicas": np.full(4, 0b1110),
        "leader": np.array([1, 2, -1, 3], np.int32),
        "kind": np.full(4, MetadataKind.PARTITION, np.int32),
        "source": np.full(4, MetadataSource.CONTROLLER_LOG, np.int32),
    }
    traffic = traffic_of(plan, sends)
    panels = {panel.title: panel for panel in timeline_panels(plan, traffic, changes)}
    assert sum(s.values.sum() for s in panels["acknowledged per s"].series) * 0.25 == count - 1
    assert [s.name for s in panels["99 % acknowledged within, ms"].series] == ["acks=1", "acks=all"]
    for series in panels["99 % acknowledged within, ms"].series:
        known = series.values[~np.isnan(series.values)]
        assert (abs(known - 50) < 0.04 * 50).all()
    replication = panels["partitions, as the controllers' log says"]
    leaderless = dict(zip(replication.at_s.tolist(), replication.series[1].values.tolist(), strict=True))
    assert (leaderless[0.75], leaderless[1.0], leaderless[1.75], leaderless[2.0]) == (0, 1, 1, 0)


@pytest.mark.parametrize("parts", [1, 7])
def test_the_timeline_of_a_long_run_has_wider_bins_however_it_is_read(plan, parts):
    count, hours = 100_000, 3
    at_ns = np.linspace(0, hours * 3600 * S, count, dtype=np.int64)
    sends = {
        "invoked_ns": at_ns,
        "completed_ns": at_ns + S // 100,
        "outcome": np.arange(count, dtype=np.int32) % 3,
        "partition": np.arange(count, dtype=np.int32) % 2,
    }
    traffic = traffic_of(plan, sends, parts=parts)
    assert len(traffic.edges_s) <= BINS_MAX + 1
    assert traffic.completed.sum() == traffic.outcomes.sum() == count
    assert traffic.latencies.sum() == (sends["outcome"] == Outcome.OK).sum()


def test_what_was_sent_long_before_the_trial_began_is_no_spike_in_the_first_bin(plan):
    at_ns = np.array([-30 * S, -20 * S, S, 2 * S])
    sends = {
        "invoked_ns": at_ns,
        "completed_ns": at_ns + S // 100,
        "outcome": np.full(4, Outcome.OK, dtype=np.int32),
        "partition": np.zeros(4, dtype=np.int32),
    }
    traffic = make_traffic([sends], ["1", "all"], (-5.0, 3.0))
    assert traffic.completed.sum() == traffic.latencies.sum() == 2
    assert traffic.completed[:, :, 0].sum() == 0
    assert traffic.outcomes.sum() == 4


def test_a_panel_has_few_digits_and_says_where_nothing_is_known():
    assert numbers(np.array([1.0, 2 / 3, np.nan, 123456.7])) == [1, 0.6667, None, 123500.0]
    shown = Panel("x", np.array([0.25]), [ChartSeries("a", np.array([np.nan]), 1)]).as_json()
    assert (shown["at"], shown["series"]) == ([0.25], [{"name": "a", "style": 1, "y": [None]}])


def test_cells_of_two_workloads_come_in_a_table_each_with_their_own_axes():
    document = {
        "name": "two",
        "title": "Two workloads",
        "workloads": [
            {"kind": "log", "axes": {"producer.acks": ["1", "all"]}},
            {
                "kind": "group",
                "axes": {"group.protocol": ["classic-eager", "consumer"], "group.commit": ["sync-after"]},
            },
            {"kind": "log", "base": {"producer.delivery_timeout_ms": 5000}},
        ],
    }
    tables = matrices(make_plan(parse_trial(document, source="x"), seed=1).cells)
    assert [(table.workload, table.axes, len(table.cells)) for table in tables] == [
        ("log", ("producer.acks",), 2),
        ("group", ("group.protocol",), 2),
        ("log", (), 1),
    ]
    assert [table.label(table.cells[-1]) for table in tables] == ["acks=all", "protocol=consumer", ""]


def test_a_verdict_of_another_version_asks_for_a_new_check(run):
    run.verdict.write_text('{"verdict": "held"}')
    seal_judged(run)
    with pytest.raises(BadInput, match=r"not a verdict of this version: sentence: .*prozess check"):
        report_run(run)


def test_a_cell_says_of_a_known_defect_that_it_is_one():
    found = CellAnomaly(
        anomaly="duplicate",
        outcome=AnomalyOutcome.VIOLATED,
        verdict=Verdict.VIOLATED,
        count=20,
        forbidden=20,
        known={"librdkafka#4953": 20},
    )
    assert brief(found) == "duplicate 20 (forbidden; known defect librdkafka#4953 ×20)"
    assert brief(found.model_copy(update={"known": {}})) == "duplicate 20 (forbidden)"
