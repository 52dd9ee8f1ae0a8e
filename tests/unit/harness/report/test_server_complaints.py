"""Servers that shout are named: what clean runs do not have, or far less often, and how much of it with no fault near."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.configuration import Variant
from prozess.harness.report.server_complaints import (
    NEAR_S,
    OFTEN,
    baseline,
    cluster_kinds,
    complaint_words,
    of_run,
    quiet_windows,
    unusual,
    with_server_errors,
)
from prozess.harness.report.server_logs import Complaint, TrialTime, complaints_in, template
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.unit.harness.report.test_server_logs import run_with

MARKERS = "[Transaction Marker Channel Manager 2]: Transaction cell-4-1 couldn't be written: UNSUPPORTED_VERSION"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Node 2 (/10.77.0.12:9092) disconnected", "Node # (/#.#.#.#:#) disconnected"),
        (
            "[UnifiedLog partition=cell-3-1, dir=/tmp/r-1/nodes/broker-2/data] x",
            "[UnifiedLog partition=NAME, dir=PATH] x",
        ),
        ("append on partition 1CyYgDpaRYKSbZGXdypF3w:cell-4-0", "append on partition ID:NAME"),
        ("append on partition abcdefghijklmnopqrstuv:orders-0", "append on partition ID:orders-#"),
        ("fetch (fetchData={__a-1=PartitionData(x)}, epoch=7) {}", "fetch (fetchData={…}"),
        ("of BrokerHeartbeatRequestData(brokerId=3, currentMetadataOffset=9", "of BrokerHeartbeatRequestData(…)"),
        ("CoordinatorNotAvailable kept", "CoordinatorNotAvailable kept"),
    ],
)
def test_a_template_has_nothing_that_differs_from_run_to_run(line, expected):
    assert template(line) == expected
    assert template(template(line)) == expected


TIMES = st.lists(st.tuples(st.integers(0, 200), st.none() | st.integers(0, 60)), max_size=6)


@given(TIMES, st.integers(0, 300))
def test_no_quiet_time_is_near_a_fault_and_all_other_time_is_quiet(drawn, end_s):
    done = [(begin, None if length is None else begin + length) for begin, length in drawn]
    windows = quiet_windows(done, end_s)
    assert windows == sorted(windows)
    for at_s in (at + 0.5 for at in range(end_s)):
        quiet = sum(begin <= at_s < end for begin, end in windows)
        near = any(begin <= at_s < (end_s if end is None else end) + NEAR_S for begin, end in done)
        assert quiet == (not near), (at_s, windows)


def complaint(kind, count=1, quiet=0, level="ERROR"):
    return Complaint(level, kind, count, 3.0, 9.0, f"ERROR {kind}", quiet)


def test_what_no_clean_run_has_is_unusual_and_what_one_has_is_so_only_a_hundred_times_as_often():
    usual = {"ERROR known": 2.0}
    assert unusual({"a": [complaint("known", 400)]}, usual, minutes=2) == ()
    (often,) = unusual({"a": [complaint("known", 300)], "b": [complaint("known", 101)]}, usual, minutes=2)
    assert (often.count, often.nodes, often.usual) == (401, ("a", "b"), 2.0)
    (new,) = unusual({"a": [complaint("new")]}, usual, minutes=2)
    assert new.usual is None
    assert "never in a clean run" in complaint_words(new)


def test_a_rare_complaint_is_not_often_because_a_run_is_short():
    assert unusual({"a": [complaint("known", OFTEN)]}, {"ERROR known": 0.1}, minutes=0.5) == ()


def test_what_comes_with_no_fault_near_comes_first():
    found = unusual({"a": [complaint("loud", 900), complaint("quiet", 3, quiet=2)]}, {}, minutes=1)
    assert [one.template for one in found] == ["quiet", "loud"]
    assert "2 with no fault near" in complaint_words(found[0])
    assert "all near a fault" in complaint_words(found[1])


@given(
    st.lists(st.integers(0, 90).map(float), max_size=30).map(sorted), st.tuples(st.integers(0, 45), st.integers(46, 99))
)
def test_lines_are_counted_in_the_windows_as_one_by_one(tmp_path_factory, times, window):
    path = tmp_path_factory.mktemp("run")
    run = run_with(path, {"broker-1": [(-30.0, "INFO", "starting"), *((at, "WARN", "again") for at in times)]})
    time = TrialTime.of(run)
    assert time is not None
    found = complaints_in(run.logs / "broker-1.log", time, [window])
    counts = [(one.count, one.quiet) for one in found]
    within = sum(window[0] <= at < window[1] for at in times)
    assert counts == ([(len(times), within)] if times else [])


def test_refused_markers_after_the_last_fault_are_named_first(tmp_path):
    near = [(12.0, "WARN", "Connection to node 1 could not be established.")]
    storm = [(60 + n / 10, "WARN", MARKERS.replace("4-1", f"4-{n % 7}")) for n in range(400)]
    run = run_with(tmp_path / "run", {"broker-2": [(-9.0, "INFO", "up"), *near, *storm]})
    found = of_run(run, ["broker-2"], ["4.4"], [(10, 20)], 90.0)
    assert found.gap is None
    (one,) = found.quiet
    assert (one.count, one.quiet, one.usual) == (400, 300, None), (
        "30 of the 40 seconds are before the last client ended"
    )
    assert "Transaction NAME couldn't be written" in one.template


def test_a_version_without_a_clean_run_has_no_usual_lines_and_says_so(tmp_path):
    run = run_with(tmp_path / "run", {"broker-1": [(1.0, "ERROR", "x")]})
    assert of_run(run, ["broker-1"], ["1.0"], [], 9.0).gap == (
        "no clean run of Kafka 1.0 says what its servers usually log"
    )
    assert of_run(run, ["broker-9"], ["4.4"], [], 9.0).gap == "no log of a server is there"


def test_the_baseline_has_templates_and_positive_rates():
    versions = baseline()
    assert "4.4" in versions
    for kind, lines in versions.items():
        assert re.fullmatch(r"\d\.\d( with ZooKeeper)?( with tiered storage)?", kind)
        for line, most in lines.items():
            level, text = line.split(" ", 1)
            assert level in ("WARN", "ERROR", "FATAL")
            assert template(text) == text, json.dumps(text)
            assert most > 0


def held(verdict=Verdict.HELD):
    return TrialVerdict(verdict=verdict, sentence="Held.", trial="t", title="t", seed=1, cells=())


def test_where_complaints_decide_a_quiet_one_violates_and_what_was_not_compared_is_unknown(tmp_path):
    storm = [(60 + n / 10, "WARN", MARKERS) for n in range(400)]
    run = run_with(tmp_path / "run", {"broker-2": [(-9.0, "INFO", "up"), *storm]})
    loud = of_run(run, ["broker-2", "broker-3"], ["4.4"], [(10, 20)], 90.0)
    verdict = with_server_errors(held(), loud)
    assert (verdict.verdict, verdict.server_errors) == (Verdict.VIOLATED, Verdict.VIOLATED)
    assert verdict.sentence.startswith(
        "Violated: server-errors: 400 × WARN on broker-2, 60 to 100 s, 300 with no fault near"
    )
    assert verdict.findings["server-errors"] == 300
    assert not verdict.by_known_defects
    near = of_run(run, ["broker-2", "broker-3"], ["4.4"], [(10, None)], 90.0)
    partly = with_server_errors(held(), near)
    assert (partly.verdict, partly.unknown_reasons) == (
        Verdict.UNKNOWN,
        ("server-errors: the log of broker-3 is not there",),
    )
    assert with_server_errors(held(Verdict.VIOLATED), near).verdict is Verdict.VIOLATED
    unread = of_run(run, ["broker-9"], ["4.4"], [], 9.0)
    assert with_server_errors(held(), unread).sentence == "Unknown: server-errors: no log of a server is there. Held."
    quiet = of_run(run, ["broker-2"], ["4.4"], [(10, None)], 90.0)
    assert with_server_errors(held(), quiet).verdict is Verdict.HELD


@pytest.mark.parametrize(
    ("changed", "versions", "kinds"),
    [
        ({}, ["4.2.1", "4.1.2", "4.2.0"], ("4.1", "4.2")),
        ({"tiered_storage": True}, ["4.4.0"], ("4.4 with tiered storage",)),
        ({"metadata_mode": "zookeeper", "controllers": 0}, ["3.9.2"], ("3.9 with ZooKeeper",)),
    ],
)
def test_each_release_of_a_cluster_has_clean_runs_of_its_own_and_so_have_zookeeper_and_tiered_storage(
    changed, versions, kinds
):
    assert cluster_kinds(Variant.model_construct(**changed), versions) == kinds
