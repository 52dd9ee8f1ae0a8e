"""Generated histories: a check finds exactly what was planted, of every kind, whatever the seed."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.checkers.transactions.index import CellIndex
from prozess.checkers.transactions.isolation import wr_edges, ww_edges
from prozess.harness.app import cli
from prozess.harness.app.histories.synthetic import cells
from prozess.harness.app.histories.synthetic import history as synthetic
from prozess.harness.app.histories.synthetic.history import KINDS, GenerateOptions, generate
from prozess.harness.app.histories.synthetic.plants import PLANTS, expected_findings, parse_plants
from prozess.harness.app.run.check import CheckOptions, check_run
from prozess.harness.app.run.judge import judge_run
from prozess.harness.errors import BadInput, ExitCode
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import Verdict
from tests.support.anomalies import ANOMALIES


def made(folder, **options):
    run = RunDirectory(folder)
    run.create()
    return run, generate(run, GenerateOptions(**options), command="test")


def checked(run):
    """Verdict; what was found; why anything was not judged."""
    findings = check_run(run, CheckOptions(engine="local"))
    verdict = judge_run(run, findings)
    found = {name: count for name, count in verdict.findings.items() if count}
    return verdict, found, {f.result.incomplete for f in findings} - {None}


NOT_GENERATED = {"untold", "unenforced", "collateral", "stalled", "not-exactly-once", "snapshot-conflict"}
NOT_GENERATED |= {"own-read", "information-cycle", "write-cycle"}
"""Of senders that meet errors, of copies, of readers that stand still, of transactions that read, of producer snapshots: it
makes none of them."""


def test_every_kernel_has_something_to_plant():
    assert set(PLANTS) | NOT_GENERATED == set(ANOMALIES)


def test_all_kinds_at_once(tmp_path):
    planted = {name: 1 if name == "orphaned" else 3 for name in PLANTS}
    run, manifest = made(tmp_path, rows=20_000, partitions=3, planted=planted, seed=7)
    verdict, found, gaps = checked(run)
    assert found == manifest["expected"]
    assert gaps == set()
    assert verdict.verdict is Verdict.VIOLATED


def test_a_history_without_plants_is_held(tmp_path):
    run, manifest = made(tmp_path, rows=10_000, partitions=2, kinds=KINDS)
    verdict, found, gaps = checked(run)
    assert (found, manifest["expected"], gaps) == ({}, {}, set())
    assert verdict.verdict is Verdict.HELD


@given(
    planted=st.dictionaries(st.sampled_from(sorted(PLANTS)), st.integers(1, 4), max_size=6),
    partitions=st.integers(2, 5),
    rows=st.integers(1, 6_000),
    seed=st.integers(0, 2**40),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_exactly_what_was_planted_is_found(planted, partitions, rows, seed):
    planted = planted | ({"orphaned": 1} if "orphaned" in planted else {})
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder))
        run.create()
        options = GenerateOptions(rows=6_000 + rows, partitions=partitions, planted=planted, seed=seed)
        manifest = generate(run, options, command="test")
        assert checked(run)[1] == manifest["expected"]


@given(seed=st.integers(0, 2**40), records=st.integers(2, 3), times=st.integers(1, 2))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_exactly_what_was_planted_is_found_in_transactions_of_few_records_that_read(seed, records, times):
    planted = {"torn": 3, "lost-transaction": 2, "zombie-write": 2, "aborted-read": 3, "early-read": 2}
    with tempfile.TemporaryDirectory() as folder:
        run, manifest = made(
            Path(folder),
            rows=40_000,
            partitions=4 * records * times,
            planted=planted,
            seed=seed,
            transaction_records=records,
        )
        _, found, gaps = checked(run)
        assert (found, gaps) == (manifest["expected"], set())


def test_transactions_of_few_records_are_one_after_the_other_and_depend_on_one_another_both_ways(tmp_path):
    run, _ = made(tmp_path, rows=20_000, partitions=12, kinds=("transactions",), transaction_records=3)
    history = History.open(run)
    (cell,) = history.plan.cells
    index = CellIndex.of(history.cell_history(cell.cell))
    columns = index.transactions.columns
    for client in set(columns["client"].tolist()):
        mine = columns["client"] == client
        assert (columns["completed_ns"][mine][:-1] < columns["begun_ns"][mine][1:]).all()
    records = len(index.transaction)  # those of aborted ones have failed
    assert set(np.bincount(index.transaction).tolist()) == {0, 3}
    assert records == 3 * np.count_nonzero(~index.transactions.aborted)
    assert len(wr_edges(index).writer) > records * 0.8
    assert len(ww_edges(index).writer) > records * 0.9


def test_records_per_transaction_that_do_not_go_into_the_partitions_are_said(tmp_path):
    for records, partitions in ((1, 4), (3, 8), (2, 4)):
        with pytest.raises(BadInput, match="--transaction-records"):
            made(tmp_path, rows=1_000, partitions=partitions, kinds=("transactions",), transaction_records=records)


def tables(run):
    return {path.name: pq.read_table(path).to_pydict() for path in sorted(run.history.iterdir())}


def test_the_same_seed_gives_the_same_history_however_it_is_cut(tmp_path, monkeypatch):
    options = {"rows": 6_000, "partitions": 2, "planted": {"lost": 2, "duplicate": 2, "torn": 1, "unprocessed": 2}}
    whole = tables(made(tmp_path / "whole", **options, seed=3)[0])
    monkeypatch.setattr(synthetic, "CHUNK", 48)
    assert tables(made(tmp_path / "cut", **options, seed=3)[0]) == whole
    assert tables(made(tmp_path / "other", **options, seed=4)[0]) != whole


def test_transactions_of_few_records_are_the_same_however_they_are_cut(tmp_path, monkeypatch):
    options = {"rows": 6_000, "partitions": 8, "planted": {"torn": 2, "early-read": 2}, "transaction_records": 2}
    whole = tables(made(tmp_path / "whole", **options)[0])
    monkeypatch.setattr(synthetic, "CHUNK", 48)
    monkeypatch.setattr(cells, "TURNS", 7)
    assert tables(made(tmp_path / "cut", **options)[0]) == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lots=1", "'lots' cannot be planted"),
        ("lost", "is not NAME=NUMBER"),
        ("lost=-1", "is not NAME=NUMBER"),
        ("lost=1.5", "is not NAME=NUMBER"),
        ("lost=1,lost=2", "twice"),
    ],
)
def test_plants_that_cannot_be_are_said(text, said):
    with pytest.raises(BadInput, match=said):
        parse_plants(text)


def test_plants_are_read():
    assert parse_plants(" lost=5, torn=0,,duplicate=12 ") == {"lost": 5, "duplicate": 12}
    assert expected_findings({"compacted-away": 2, "lost": 1}, cells=2) == {"compacted-away": 2, "lost": 3, "late": 1}
    assert expected_findings({"two-controllers": 2}, cells=3) == {"two-controllers": 6}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"planted": {"lost": 10_000}}, "Give more --rows"),
        ({"planted": {"torn": 10_000}}, "Give more --rows"),
        ({"planted": {"tombstone-lost": 10_000}}, "keys for it"),
        ({"planted": {"orphaned": 9}}, "to orphan"),
        ({"planted": {"misplaced": 1}, "partitions": 1}, "--partitions 2"),
        ({"partitions": 0}, "--partitions 0"),
        ({"rows": 0}, "--rows 0"),
        ({"kinds": ("queue",)}, "--workload 'queue'"),
    ],
)
def test_what_has_no_room_is_said(tmp_path, options, said):
    with pytest.raises(BadInput, match=said):
        made(tmp_path, **({"rows": 1_000} | options))


def test_the_command_leaves_a_manifest_or_nothing(tmp_path, monkeypatch, capsys):
    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["prozess", "generate", "--out", str(tmp_path / "out"), *arguments])
        return cli._main()

    assert called("--rows", "2000", "--plant", "lost=many") == ExitCode.BAD_INPUT
    assert called("--rows", "2000", "--plant", "lost=9999") == ExitCode.BAD_INPUT
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())
    assert called("--rows", "2000", "--plant", "lost=3,torn=2", "--seed", "5") == 0
    assert "a check finds lost 3, late 3, torn 2" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out" / "source.json").read_text(encoding="utf-8"))
    assert (manifest["planted"], manifest["seed"]) == ({"lost": 3, "torn": 2}, 5)
    assert manifest["command"].startswith("prozess generate --out")
