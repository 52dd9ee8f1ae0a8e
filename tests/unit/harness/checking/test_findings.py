"""Findings survive the way to disk and through Arrow bit for bit; damage is named."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.checking import findings as findings_module
from prozess.harness.checking.findings import (
    findings_from_arrow,
    findings_to_arrow,
    read_findings,
    read_windows,
    write_findings,
)
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.interfaces.checking import Finding, KernelResult
from prozess.harness.interfaces.witnesses import WINDOW, WITNESS, make_witnesses, no_windows, no_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import FORMAT_VERSION, MISSING, NONE


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    trial = parse_trial({"name": "small", "title": "", "axes": {"producer.acks": ["1", "all"]}}, source="test")
    run.plan.write_text(make_plan(trial, seed=1).model_dump_json(), encoding="utf-8")
    return run


def same(left: list[Finding], right: list[Finding]) -> bool:
    return len(left) == len(right) and all(
        (a.anomaly, a.partition, a.result.count, a.result.judged, a.result.incomplete)
        == (b.anomaly, b.partition, b.result.count, b.result.judged, b.result.incomplete)
        and a.result.witnesses.dtype == b.result.witnesses.dtype == WITNESS
        and a.result.witnesses.tobytes() == b.result.witnesses.tobytes()
        and a.result.windows.dtype == b.result.windows.dtype == WINDOW
        and a.result.windows.tobytes() == b.result.windows.tobytes()
        for a, b in zip(left, right, strict=True)
    )


WINDOWS = np.zeros(3, dtype=WINDOW)
WINDOWS["number"] = [2, 5, 10**12]
SOME = [
    Finding("lost", 0, KernelResult(no_witnesses(), count=0, judged=12, windows=WINDOWS)),
    Finding("lost", 1, KernelResult(make_witnesses(2, {"sequence": np.array([3, 10**12])}), count=2, judged=12)),
    Finding(
        "misplaced", 1, KernelResult(make_witnesses(1, {"partition": 3}), count=400_000, judged=9, incomplete="ä: …")
    ),
    Finding("lost", 77, KernelResult(no_witnesses(), count=0, judged=0, incomplete="")),
]


def test_findings_come_back_from_disk_as_they_were(run):
    write_findings(run, SOME)
    assert same(read_findings(run), SOME)


def test_windows_are_told_by_cell(run):
    write_findings(run, [*SOME, Finding("late", 2, KernelResult(no_witnesses(), 0, 5, windows=WINDOWS[:1]))])
    found = read_windows(run)
    assert {cell: windows["number"].tolist() for cell, windows in found.items()} == {0: [2, 5, 10**12], 1: [2]}
    write_findings(run, [])
    assert read_windows(run) == {}
    assert no_windows().dtype == WINDOW


def test_findings_come_back_from_arrow_as_they_were():
    assert same(findings_from_arrow(pa.Table.from_batches([findings_to_arrow(SOME)])), SOME)


def test_no_findings_are_none_and_not_an_error(run):
    write_findings(run, [])
    assert read_findings(run) == []
    assert findings_from_arrow(pa.Table.from_batches([findings_to_arrow([])])) == []


def test_the_cell_of_each_partition_is_told_and_unknown_ones_are_none(run):
    write_findings(run, SOME)
    assert pq.read_table(run.findings / "findings.parquet").column("cell").to_pylist() == [0, 0, 0, NONE]
    write_findings(run, [Finding("lost", 3, KernelResult(no_witnesses(), count=0, judged=1))])
    assert pq.read_table(run.findings / "findings.parquet").column("cell").to_pylist() == [1]


def test_witnesses_on_disk_name_their_anomaly(run):
    write_findings(run, SOME)
    table = pq.read_table(run.findings / "witnesses.parquet")
    assert table.column("anomaly").to_pylist() == ["lost", "lost", "misplaced"]
    assert table.column("finding").to_pylist() == [1, 1, 2]
    assert table.column("begin_ns").to_pylist() == [MISSING] * 3
    assert table.schema.names[2:] == list(WITNESS.names)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=5),
            st.integers(-1, 9),
            st.integers(0, 5),
            st.none() | st.text(max_size=5),
            st.binary(min_size=92, max_size=92),
            st.binary(min_size=96, max_size=96),
        ),
        max_size=6,
    ),
    st.integers(1, 4),
)
def test_any_findings_survive_any_batching(rows, batch_size):
    assert (WITNESS.itemsize, WINDOW.itemsize) == (92, 96)
    made = [
        Finding(name, partition, KernelResult(np.frombuffer(raw * n, WITNESS), n, n, why, np.frombuffer(w * n, WINDOW)))
        for name, partition, n, why, raw, w in rows
    ]
    batches = [findings_to_arrow(made[i : i + batch_size]) for i in range(0, len(made), batch_size)]
    table = pa.Table.from_batches(batches, schema=findings_module.FINDINGS_SCHEMA)
    assert same(findings_from_arrow(table), made)
    assert same(findings_from_arrow(table.combine_chunks()), made)
    assert same(findings_from_arrow(table.slice(1)), made[1:])


@pytest.mark.parametrize("name", ["findings", "witnesses", "windows"])
def test_damage_is_named(run, name):
    write_findings(run, SOME)
    path = run.findings / f"{name}.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(HistoryUnreadable, match=rf"{name}\.parquet is torn"):
        read_findings(run)
    path.unlink()
    with pytest.raises(HistoryUnreadable, match=rf"{name}\.parquet is missing"):
        read_findings(run)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(HistoryUnreadable, match="format version none"):
        read_findings(run)
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({"prozess.format_version": str(FORMAT_VERSION)}), path)
    with pytest.raises(HistoryUnreadable, match="does not have the columns"):
        read_findings(run)
