"""Generated histories: a check finds exactly what was planted, of every kind, witness by witness, whatever the seed."""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess import command
from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.checkers.log.records import OTHER_KEY, UNREADABLE_RECORD
from prozess.checkers.progress.acknowledgements import LONG_NS
from prozess.checkers.progress.stability import settle_ns, unstable
from prozess.checkers.transactions.index import CellIndex
from prozess.checkers.transactions.isolation import wr_edges, ww_edges
from prozess.exchange.synthetic import cells, log, members
from prozess.exchange.synthetic import history as synthetic
from prozess.exchange.synthetic.history import KINDS, GenerateOptions, generate
from prozess.exchange.synthetic.plants import PLANTS, expected_findings, parse_plants
from prozess.exchange.synthetic.witnesses import PLANTED
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.manifest import condition_of, read_manifest
from prozess.harness.history.reader import History
from prozess.harness.interfaces.witnesses import (
    AdminCase,
    EpochCase,
    GapCase,
    GroupCase,
    GroupStateCase,
    LeftCase,
    LookupCase,
    ProgressCase,
    RemoteCase,
    SnapshotCase,
    StallCase,
    TransitionCase,
)
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.anomalies import ANOMALIES
from tests.support.examples import ALL

CLOSE = 4
"""A value of `assignments.event`."""


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


def witnesses(path):
    """Rows of a file of witnesses, in an order of their own: what planted.parquet has of each."""
    return sorted(zip(*pq.read_table(path).select(PLANTED.names).to_pydict().values(), strict=True))


def differences(run, planted_in=None):
    """Witnesses that were planted, in that run or another, and not found; those that were found and not planted."""
    files = (planted_in or run).planted, run.findings / "witnesses.parquet"
    planted, found = (Counter(witnesses(path)) for path in files)
    return sorted((planted - found).elements()), sorted((found - planted).elements())


ONCE = frozenset(name for name, plant in PLANTS.items() if plant.per_partition == 1)
OF_CLUSTER = [case for case in TransitionCase if case >= TransitionCase.BROKER_EPOCH_NOT_NEW]
EVERYTHING = {name: 1 if name in ONCE else 3 for name in PLANTS}
OF_SEVERAL = ("misplaced", "starved", "unreported")
"""What takes several partitions, of which, where some are corrupt, one has no unreadable record."""
IN_TRANSACTIONS = {"torn": 3, "lost-transaction": 2, "zombie-write": 2, "aborted-read": 3, "early-read": 2}
NOT_GENERATED = {
    "undeleted": "a topic that is deleted is not audited, and every generated log is",
    "expired-early": "every generated log begins with its first record: retention removes nothing",
    "unenforced": "no send is one that brokers must refuse",
    "collateral": "no batch has a record that spoils the others",
    "split-key": "producers name the partition of each record",
    "not-exactly-once": "nobody copies records from topic to topic",
    "own-read": "transactions that read take from other clients alone",
    "information-cycle": "transactions that read take from what stands in front of them",
    "write-cycle": "transactions write in the order of their commits",
}
"""Anomaly → what a generated history does not have, without which there is none."""


def test_every_kernel_has_something_to_plant():
    assert {*PLANTS, *NOT_GENERATED} == set(ANOMALIES)
    assert not set(PLANTS) & set(NOT_GENERATED)


def test_all_kinds_at_once(tmp_path):
    run, manifest = made(tmp_path, rows=30_000, partitions=3, planted=EVERYTHING, seed=7)
    verdict, found, gaps = checked(run)
    assert found == manifest["expected"]
    assert differences(run) == ([], [])
    assert gaps == set()
    assert verdict.verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": 5, "seed": 8, "planted": EVERYTHING},
        {"partitions": 1, "seed": 5, "planted": {n: c for n, c in EVERYTHING.items() if n not in OF_SEVERAL}},
        {"partitions": 8, "seed": 1, "planted": IN_TRANSACTIONS, "transaction_records": 2},
        {"partitions": 12, "seed": 2, "planted": IN_TRANSACTIONS, "transaction_records": 3},
        {"partitions": 3, "seed": 4, "kinds": KINDS},
    ],
    ids=["five-partitions", "one-partition", "pairs", "triples", "nothing-planted"],
)
def test_every_planted_witness_is_found_and_no_other(tmp_path, options):
    run, manifest = made(tmp_path, rows=40_000, **options)
    check_run(run, CheckOptions(engine="local"))
    assert differences(run) == ([], [])
    planted = witnesses(run.planted)
    # Two log starts that fall in one partition differ only in the times that PLANTED does not have.
    apart = [one for one in planted if one[0] != "log-start-regression"]
    assert len(set(apart)) == len(apart)
    assert Counter(name for name, *_ in planted) == manifest["expected"]


def cases(run, anomaly):
    """How many witnesses of each case are found."""
    found = pq.read_table(run.findings / "witnesses.parquet").to_pandas()
    return Counter(found.loc[found["anomaly"] == anomaly, "case"].tolist())


@pytest.mark.parametrize(
    ("anomaly", "planted", "expected"),
    [
        ("corrupt", 5, {UNREADABLE_RECORD: 3, OTHER_KEY: 2}),
        ("epoch-regression", 6, {EpochCase.IN_LOG: 2, EpochCase.ANSWERED: 2, EpochCase.AUDITED: 1, EpochCase.READ: 1}),
        (
            "hanging",
            5,
            {ProgressCase.INITIALISATION: 2, ProgressCase.COMMIT: 2, ProgressCase.ABORT: 1},
        ),
        ("mistimed", 3, {LookupCase.EARLIER: 3}),
        ("stuck", 4, {ProgressCase.ACKNOWLEDGEMENT: 4}),
        ("stalled", 5, {StallCase.READER: 3, StallCase.STABLE_OFFSET: 2}),
        (
            "snapshot-conflict",
            50,
            {
                SnapshotCase.EPOCH: 11,
                SnapshotCase.LAST_BATCH: 10,
                SnapshotCase.TRANSACTION: 10,
                SnapshotCase.TIMESTAMP: 10,
                SnapshotCase.UNKNOWN_THERE: 9,
            },
        ),
        ("leaderless", 4, {ProgressCase.LEADER: 4}),
        (
            "illegal-transition",
            2 + len(OF_CLUSTER),
            dict.fromkeys(OF_CLUSTER, 1) | {TransitionCase.LEADER_NOT_IN_SYNC: 2},
        ),
        ("unanswered", 3, {ProgressCase.CONTROLLER_CALL: 2, ProgressCase.BROKER_CALL: 1}),
        ("stale-controller", 3, {0: 3}),
        ("not-linearizable", 3, {AdminCase.STALE: 3}),
        ("unstable", 4, {GroupCase.UNOWNED: 2, GroupCase.REASSIGNED: 2}),
        ("unstable", 60, {GroupCase.UNOWNED: 2, GroupCase.REASSIGNED: 58}),
        ("starved", 5, {GroupCase.IDLE: 5}),
        ("illegal-group-state", 17, dict.fromkeys(GroupStateCase, 1) | dict.fromkeys(list(GroupStateCase)[:2], 2)),
        ("remote-gap", 7, dict.fromkeys(GapCase, 1) | {GapCase.GONE: 2, GapCase.DAMAGED: 2}),
        ("remote-conflict", 4, {RemoteCase.TWIN: 4}),
        ("remote-left", 3, {LeftCase.TOPIC_DELETED: 3}),
        ("uncopied", 2, {0: 2}),
    ],
)
def test_each_case_is_planted_in_turn_and_alone_it_breaks_the_promise(tmp_path, anomaly, planted, expected):
    run, manifest = made(tmp_path, rows=20_000, partitions=3, planted={anomaly: planted}, seed=2)
    verdict, found, gaps = checked(run)
    assert (found, gaps) == (manifest["expected"], set())
    assert differences(run) == ([], [])
    assert cases(run, anomaly) == expected
    (cell,) = verdict.cells
    assert cell.anomalies[anomaly].forbidden == planted, "and nothing excuses one"


@pytest.mark.parametrize(
    ("planted", "says"),
    [
        (
            {"snapshot-conflict": 46},
            "the copies of 1 partitions have room for 45 wrong producer snapshots. Plant fewer.",
        ),
        (
            {"unreported": 1, "corrupt": 1},
            "each of the 1 partitions has an unreadable record .corrupt., which might be the one",
        ),
    ],
)
def test_what_cannot_be_planted_beside_the_rest_is_refused_with_the_way_out(tmp_path, planted, says):
    with pytest.raises(BadInput, match=says):
        made(tmp_path, rows=2_000, partitions=1, planted=planted)


def test_planted_witnesses_are_a_table_with_the_names_and_types_of_found_ones(tmp_path):
    run, _ = made(tmp_path, rows=2_000, planted={"lost": 2, "duplicate": 1}, seed=3)
    check_run(run, CheckOptions(engine="local"))
    planted, found = pq.read_schema(run.planted), pq.read_schema(run.findings / "witnesses.parquet")
    assert planted.equals(PLANTED)
    assert [found.field(name) for name in planted.names] == list(planted)
    rows = pq.read_table(run.planted).select(["anomaly", "partition"]).to_pydict()
    gap = ["out-of-sequence"] * 2  # where the lost records are not, the sequences of their producer have a gap
    assert rows["anomaly"] == ["duplicate", "late", "late", "lost", "lost", *gap]
    assert rows["partition"][1:3] == sorted(rows["partition"][1:3]) == rows["partition"][3:5] == rows["partition"][5:]


def test_one_witness_that_is_moved_is_seen_whatever_it_is_of(tmp_path):
    run, _ = made(tmp_path, rows=30_000, partitions=3, planted=EVERYTHING, seed=7)
    check_run(run, CheckOptions(engine="local"))
    table = pq.read_table(run.planted)
    names = table.column("anomaly").to_pylist()
    for name in sorted(set(names)):
        for column in PLANTED.names[1:]:
            values = table.column(column).to_numpy().copy()
            values[names.index(name)] += 1
            moved = table.set_column(PLANTED.get_field_index(column), PLANTED.field(column), pa.array(values))
            pq.write_table(moved, run.planted)
            (missing,), (strange,) = differences(run)
            assert missing[0] == strange[0] == name
            assert sum(a != b for a, b in zip(missing, strange, strict=True)) == 1


def test_a_history_whose_plants_stand_elsewhere_has_the_same_counts_and_other_witnesses(tmp_path, monkeypatch):
    options = {"rows": 30_000, "partitions": 3, "planted": EVERYTHING, "seed": 7}
    other, _ = made(tmp_path / "other", **options)
    monkeypatch.setattr(cells, "SPOT", cells.SPOT + 1)
    run, manifest = made(tmp_path / "run", **options)
    assert checked(run)[1] == manifest["expected"]
    assert differences(run) == ([], [])
    # These are put in behind a transaction, a batch or a key, or they have no position. A batch that is planted as
    # `diverged` stays, and one in which the leader epoch of a copy falls moves.
    fixed = {"compacted-away", "tombstone-lost", "commit-ahead", "commit-regression"}
    fixed |= {name for name, plant in PLANTS.items() if plant.kind == "transactions"} - {"torn"}
    fixed |= {
        "watermark-regression",
        "log-start-regression",
        "mistimed",
        "under-acknowledged",
        "unclean",
        "two-controllers",
        "stale-controller",
        "illegal-transition",
    }
    fixed |= {
        "snapshot-conflict",
        "stalled",
        "unreported",
        "not-linearizable",
        "illegal-group-state",
        "illegal-share-state",
    }
    fixed |= {"unanswered", "leaderless", "stuck", "orphaned", "unstable", "starved", "share-start-regression"}
    fixed |= {name for name, plant in PLANTS.items() if plant.kind == "tiered"}
    for side in differences(run, planted_in=other):
        assert {name for name, *_ in side} == set(PLANTS) - fixed


def test_members_are_heard_of_all_the_time_so_that_a_second_owner_is_one_in_the_longest_history(tmp_path):
    run, _ = made(tmp_path / "run", rows=4_000, partitions=4, planted={"two-owners": 3})
    files = (run.history / f"{name}.parquet" for name in ("heartbeats", "assignments"))
    beats, assignments = (pq.read_table(file).to_pandas() for file in files)
    (cell,) = History.open(run).plan.cells
    assert cell.group is not None
    # The newcomer owns nothing, and is silent until it comes.
    (newcomer,) = assignments.loc[(assignments["partition"] == NONE) & (assignments["event"] == CLOSE), "client"]
    for member in set(assignments["client"]) - {newcomer}:
        heard_ns, owned = beats.loc[beats["client"] == member, "time_ns"], assignments[assignments["client"] == member]
        assert heard_ns.diff().max() < 1e6 * (cell.group.session.timeout_ms - cell.group.session.heartbeat_ms)
        assert heard_ns.min() <= owned["started_ns"].min()
        assert heard_ns.max() >= owned["started_ns"].max() - cells.HEARTBEAT_NS
    longest = cells.STEP_NS * synthetic.ROWS_MAX // synthetic._ROWS_PER_POSITION["group"]
    assert cell.group.configuration.max_poll_interval_ms * 1e6 > longest


def test_the_manifest_covers_the_planted_witnesses(tmp_path):
    run, _ = made(tmp_path, rows=2_000, planted={"lost": 2})
    assert read_manifest(run).files[run.planted.name].part == "recorded"
    assert condition_of(run).whole
    run.planted.write_bytes(run.planted.read_bytes()[:-1])
    assert list(condition_of(run).damaged) == [run.planted.name]


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_group_whose_members_stay_is_judged_to_settle_and_no_longer_before(tmp_path, partitions):
    run, _ = made(tmp_path, rows=2_000, partitions=partitions, kinds=("group",))
    (cell,) = checked(run)[0].cells
    history = History.open(run).cell_history(0)
    assert history.cell.group is not None
    settle = settle_ns(history.cell, history.bounds.rebalance_delay_ns)
    assert settle < cells.SETTLED_AFTER_NS
    assert settle + history.cell.group.session.timeout_ms * 1_000_000 == members.MAY_EXPLAIN_NS
    assert unstable(history).judged == partitions
    assert cell.anomalies["unstable"].outcome is AnomalyOutcome.HELD


def test_what_is_planted_to_be_waited_for_in_vain_lasts_longer_than_each_bound(tmp_path):
    run, _ = made(tmp_path, rows=2_000, partitions=2, kinds=KINDS)
    history = History.open(run)
    for cell in history.plan.cells:
        bounds = history.cell_history(cell.cell).bounds
        assert max(bounds.acknowledgement_ns, bounds.transaction_call_ns, bounds.admin_call_ns) < log.VAIN_NS
        assert log.VAIN_NS + LONG_NS < cells.WAIT_NS
        assert bounds.new_leader_ns < cells.LEADERLESS_NS < cells.WAIT_NS


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
@settings(max_examples=12 if ALL else 4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_exactly_what_was_planted_is_found(planted, partitions, rows, seed):
    planted = planted | dict.fromkeys(ONCE & planted.keys(), 1)
    planted = {name: count for name, count in planted.items() if partitions > 2 or name != "starved"}
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder))
        run.create()
        options = GenerateOptions(rows=13_000 + rows, partitions=partitions, planted=planted, seed=seed)
        manifest = generate(run, options, command="test")
        assert checked(run)[1] == manifest["expected"]
        assert differences(run) == ([], [])


@given(seed=st.integers(0, 2**40), records=st.integers(2, 3), times=st.integers(1, 2))
@settings(max_examples=6 if ALL else 2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_exactly_what_was_planted_is_found_in_transactions_of_few_records_that_read(seed, records, times):
    with tempfile.TemporaryDirectory() as folder:
        run, manifest = made(
            Path(folder),
            rows=40_000,
            partitions=4 * records * times,
            planted=IN_TRANSACTIONS,
            seed=seed,
            transaction_records=records,
        )
        _, found, gaps = checked(run)
        assert (found, gaps) == (manifest["expected"], set())
        assert differences(run) == ([], [])


def test_transactions_of_few_records_are_one_after_the_other_and_depend_on_one_another_both_ways(tmp_path):
    run, _ = made(tmp_path, rows=20_000, partitions=12, kinds=("transactions",), transaction_records=3)
    history = History.open(run)
    (cell,) = history.plan.cells
    index = CellIndex.of(history.cell_history(cell.cell))
    columns = index.transactions.columns
    for client in set(columns["client"].tolist()):
        mine = columns["client"] == client
        assert (columns["completed_ns"][mine][:-1] < columns["begun_ns"][mine][1:]).all()
    assert set(np.bincount(index.transaction).tolist()) == {3}
    aborted = index.transactions.aborted
    assert aborted.any()
    records = 3 * np.count_nonzero(~aborted)
    assert len(index.transaction) == records + 3 * np.count_nonzero(aborted)
    assert len(wr_edges(index).writer) > records * 0.8
    assert len(ww_edges(index).writer) > records * 0.9


def test_records_per_transaction_that_do_not_go_into_the_partitions_are_said(tmp_path):
    for records, partitions in ((1, 4), (3, 8), (2, 4)):
        with pytest.raises(BadInput, match="--transaction-records"):
            made(tmp_path, rows=1_000, partitions=partitions, kinds=("transactions",), transaction_records=records)


def tables(run):
    return {path.name: pq.read_table(path).to_pydict() for path in (run.planted, *sorted(run.history.iterdir()))}


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
    assert expected_findings({"compacted-away": 2, "lost": 1}, cells=2) == {
        "compacted-away": 2, "lost": 3, "late": 1, "out-of-sequence": 1,
    }  # fmt: skip
    assert expected_findings({"two-controllers": 2}, cells=3) == {"two-controllers": 6}
    assert expected_findings({"corrupt": 3}, cells=1) == {"corrupt": 3, "late": 2}  # the one between has another key


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
        return command.run()

    assert called("--rows", "2000", "--plant", "lost=many") == ExitCode.BAD_INPUT
    assert called("--rows", "2000", "--plant", "lost=9999") == ExitCode.BAD_INPUT
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())
    assert called("--rows", "2000", "--plant", "lost=3,torn=2", "--seed", "5") == 0
    assert "a check finds lost 3, late 3, out-of-sequence 3, torn 2" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "out" / "source.json").read_text(encoding="utf-8"))
    assert (manifest["planted"], manifest["seed"]) == ({"lost": 3, "torn": 2}, 5)
    assert manifest["command"].startswith("prozess generate --out")
