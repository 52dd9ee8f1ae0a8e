"""Excerpts of servers' logs are what a reader of the whole log would choose, in whatever time zone the server wrote."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.report import server_logs
from prozess.harness.report.server_logs import AROUND_S, LINES_MAX, ServerLogs, TrialTime
from prozess.harness.run_directory import RunDirectory

BEGAN = datetime(2026, 3, 28, 23, 59, 50, 250_000, UTC)


def run_with(path, logs, zone=UTC):
    """A run whose servers wrote these entries: node → (seconds of the trial, level, text)."""
    run = RunDirectory(path)
    run.logs.mkdir(parents=True, exist_ok=True)
    wall_ns = int(BEGAN.timestamp() * 1e9)
    run.clock.write_text(json.dumps({"start_monotonic_ns": 5_000, "wall_minus_monotonic_ns": wall_ns - 5_000}))
    for node, entries in logs.items():
        lines = ["I> a line before the first entry\n"]
        for at_s, level, text in entries:
            local = (BEGAN + timedelta(seconds=at_s)).astimezone(zone)
            stamp = f"{local:%Y-%m-%d %H:%M:%S},{local.microsecond // 1000:03}"
            lines.append(f"[{stamp}] {level} {text} (kafka.server.Somewhere)\n")
        (run.logs / f"{node}.log").write_text("".join(lines), encoding="utf-8")
    return run


def said(run, begin_s, end_s, partition="orders-1", nodes=("broker-1", "broker-2")):
    return [
        (line.node, round(line.at_s, 3), line.text) for line in ServerLogs(run, nodes).around(begin_s, end_s, partition)
    ]


ENTRIES = st.lists(
    st.tuples(
        st.integers(-20_000, 60_000).map(lambda ms: ms / 1000),
        st.sampled_from(["INFO", "WARN", "ERROR"]),
        st.sampled_from(
            ["nothing", "of orders-1 it says", "of orders-11", "of my-orders-1", "two\nlines\n\tat orders-1"]
        ),
    ),
    max_size=40,
).map(sorted)


@given(ENTRIES, st.integers(-5, 50), st.integers(0, 10), st.sampled_from([-11, -3.5, 0, 5.75, 14]))
def test_an_excerpt_is_what_a_reader_of_the_whole_log_would_choose(tmp_path_factory, entries, begin_s, length_s, hours):
    before = [(-60.0, "INFO", "starting")]
    run = run_with(tmp_path_factory.mktemp("run"), {"broker-1": before + entries}, timezone(timedelta(hours=hours)))
    wanted = [
        round(at_s, 3)
        for at_s, level, text in entries
        if begin_s - AROUND_S <= at_s <= begin_s + length_s + AROUND_S
        and (level != "INFO" or text == "of orders-1 it says")
    ]
    found = [at_s for _, at_s, _ in said(run, begin_s, begin_s + length_s, nodes=["broker-1"])]
    assert found == pytest.approx(wanted[:LINES_MAX], abs=0.002)


def test_servers_are_mixed_by_time_and_one_that_complains_much_leaves_room_for_the_others(tmp_path):
    loud = [(-30.0, "INFO", "up")] + [(1 + n / 100, "WARN", f"again {n}") for n in range(200)]
    run = run_with(tmp_path, {"broker-1": loud, "broker-2": [(-30.0, "INFO", "up"), (2.0, "ERROR", "once")]})
    found = said(run, 1.0, 3.0)
    assert ("broker-2", 2.0) in [line[:2] for line in found]
    assert len(found) <= LINES_MAX
    assert [line[1] for line in found] == sorted(line[1] for line in found)


def test_what_a_log_says_cannot_move_the_cursor_and_long_lines_are_cut(tmp_path):
    run = run_with(tmp_path, {"broker-1": [(-1.0, "INFO", "up"), (1.0, "WARN", "\x1b[2Jgone " + "x" * 1000)]})
    ((_, _, text),) = said(run, 1.0, 1.0)
    assert "\\x1b[2Jgone" in text
    assert len(text) <= server_logs.WIDTH_MAX + 1


def test_without_a_clock_or_a_log_there_is_no_excerpt(tmp_path):
    run = run_with(tmp_path, {"broker-1": []})
    assert said(run, 0.0, 1.0) == []
    run.clock.unlink()
    assert TrialTime.of(run) is None
    assert said(run, 0.0, 1.0) == []
    run.clock.write_text("{")
    assert TrialTime.of(run) is None


def test_a_moment_of_the_trial_has_its_time_of_day(tmp_path):
    time = TrialTime.of(run_with(tmp_path, {}))
    assert time is not None
    assert [time.brief(at_s) for at_s in (0.0, 9.75, None)] == ["23:59:50.250", "00:00:00.000", ""]
