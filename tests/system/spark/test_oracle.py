"""Kernels and the SQL of the second opinion agree on every history that the model of Kafka writes, spoiled or not."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from prozess.app.run.check import CheckOptions, check_run
from prozess.checkers.registry import CHECKERS, select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.checking.findings import read_findings
from prozess.harness.checking.kernels import check_cell, check_partition
from prozess.harness.history import reader
from prozess.harness.history.participants import client_facts
from prozess.harness.interfaces.checking import CellHistory, Finding, PartitionHistory
from prozess.harness.interfaces.witnesses import LateCase
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import ObservationKind, Outcome, Role
from prozess.spark_checkers.oracle.circles import CYCLES
from prozess.spark_checkers.oracle.second_opinion import (
    QUERIES,
    TINY_PLANS,
    ask,
    disagreements,
    not_compared,
    second_opinion,
)
from prozess.spark_checkers.session import start_session
from tests.support.anomalies import ANOMALIES, OF_PARTITIONS
from tests.support.edn_histories import found
from tests.support.kafka_model import compaction, groups, transactions
from tests.support.kafka_model.anomalies import KINDS, Spoiler
from tests.support.kafka_model.deliveries import drawn_delivery
from tests.support.kafka_model.joined_histories import moved_partition, tables_of
from tests.support.kafka_model.partition import drawn_facts
from tests.support.paths import ROOT
from tests.support.shown_histories import VARIABLE, parts_of
from tests.support.small_runs import START_NS, make_small
from tests.support.spoiled_jepsen import spoiled_jepsen
from tests.unit.checkers.transactions.test_cycles_by_brute_force import drawn as drawn_cycles

pytestmark = pytest.mark.spark
SHOWING_S = 300
RETRIES = "tests/processes/workloads/group/test_retry_topics.py"
ASKED = [name for name in OF_PARTITIONS if name in QUERIES]
KERNELS = select(ASKED).kernels
HISTORIES = 300
CELLS = 150
FAMILIES = sorted({CHECKERS[name].kernel.__module__.split(".")[2] for name in QUERIES})
"""The folders of kernels. The histories of each are asked together."""
SHOWING = sorted(
    str(path)
    for folder in FAMILIES
    for path in (ROOT / "tests/unit/checkers" / folder).glob("test_*.py")
    if "brute_force" not in path.name
)
QUICK_PLANS = TINY_PLANS | {"spark.sql.shuffle.partitions": "1"}


@pytest.fixture(scope="module")
def session(need) -> Iterator[object]:
    need("java")
    started = start_session()
    # Hundreds of small histories are little data: what costs is planning.
    for name, value in QUICK_PLANS.items():
        started.conf.set(name, value)
    yield started
    for name in QUICK_PLANS:
        started.conf.unset(name)
    started.stop()


def spoiled_history(seed: int) -> PartitionHistory:
    """A valid history, or one with some anomalies; every fifth of a compacted topic; every sixth without an audit."""
    made, rng = drawn_facts(seed, duplicates=seed % 3 == 0)
    if seed % 5 == 0:
        made, rng = compaction.cleaned((made, rng))
        for kind in rng.choices(list(compaction.SPOILERS), k=rng.choice((0, 1, 1, 2))):
            compaction.SPOILERS[kind](made, rng)
    spoiler = Spoiler(made, rng)
    for kind in rng.choices(KINDS, k=rng.choice((0, 1, 1, 2, 3, 6))):
        getattr(spoiler, kind)()
    history = made.history()
    return history if seed % 6 else replace(history, audit_end={})


def moved(findings: Sequence[Finding], world: int) -> Iterator[Finding]:
    """With the partitions' ids as in the tables."""
    for finding in findings:
        witnesses = finding.result.witnesses.copy()
        for name in ("partition", *(("case",) if finding.anomaly == "misplaced" else ())):  # its case is a partition
            witnesses[name] = moved_partition(witnesses[name], world)
        result = replace(finding.result, witnesses=witnesses)
        yield replace(finding, partition=moved_partition(finding.partition, world), result=result)


def asked(session, worlds, anomalies):
    """What SQL says, and partition → cell: each world is one."""
    tables = {name: session.createDataFrame(table) for name, table in tables_of(worlds).items()}
    cells = {moved_partition(p.partition, world): world for world, (parts, _) in enumerate(worlds) for p in parts}
    return ask(session, tables, anomalies), cells


@pytest.mark.long  # its cheaper neighbour is the history with everything that can be planted
def test_on_hundreds_of_histories_of_a_partition_kernels_and_sql_find_the_same(session):
    histories = [spoiled_history(seed) for seed in range(HISTORIES)]
    findings = [f for world, h in enumerate(histories) for f in moved(check_partition(h, KERNELS), world)]
    seen = {finding.anomaly for finding in findings if finding.result.count}
    assert seen == set(ASKED), "everything was planted"
    opinions, cells = asked(session, [([history], None) for history in histories], ASKED)
    assert disagreements(findings, opinions, cells) == ()


@pytest.mark.long  # as above
@pytest.mark.parametrize(
    ("model", "spoilers"),
    [(transactions.drawn_cell, transactions.SPOILERS), (groups.drawn_group, groups.SPOILERS)],
    ids=["transactions", "groups"],
)
def test_on_hundreds_of_cells_kernels_and_sql_find_the_same(session, model, spoilers):
    anomalies = [name for name in spoilers if name in QUERIES]
    kernels = select(anomalies).cell
    histories = []
    for seed in range(CELLS):
        made = model(seed)
        for kind in made.rng.choices(list(spoilers), k=made.rng.choice((0, 1, 1, 2, 3))):
            spoilers[kind](made)
        histories.append(made.history())
    findings = [f for world, h in enumerate(histories) for f in moved(check_cell(h, kernels), world)]
    assert {finding.anomaly for finding in findings if finding.result.count} == set(anomalies), "everything was planted"
    opinions, cells = asked(session, [(list(h.partitions.values()), h) for h in histories], anomalies)
    assert disagreements(findings, opinions, cells) == ()


@pytest.mark.long
def test_on_hundreds_of_cells_with_a_delivery_bound_kernels_and_sql_find_the_same(session):
    kernels = select(["late"]).cell
    histories = [drawn_delivery(seed) for seed in range(CELLS)]
    findings = [f for world, h in enumerate(histories) for f in moved(check_cell(h, kernels), world)]
    cases = {int(case) for finding in findings for case in finding.result.witnesses["case"]}
    assert cases == {int(case) for case in LateCase}, "everything was drawn"
    opinions, cells = asked(session, [(list(h.partitions.values()), h) for h in histories], ["late"])
    assert disagreements(findings, opinions, cells) == ()


@pytest.mark.long  # its cheaper neighbour is the history with everything that can be planted
def test_on_hundreds_of_cells_with_cycles_kernels_and_sql_find_the_same(session):
    kernels = select(CYCLES).cell
    histories = [drawn_cycles(seed).cell() for seed in range(CELLS)]
    findings = [f for world, h in enumerate(histories) for f in moved(check_cell(h, kernels), world)]
    seen = {(f.anomaly, int(case)) for f in findings for case in f.result.witnesses["case"]}
    assert len(seen) == 4, "cycles of every kind were drawn"
    opinions, cells = asked(session, [(list(h.partitions.values()), h) for h in histories], CYCLES)
    assert disagreements(findings, opinions, cells) == ()


def test_every_anomaly_has_a_text():
    assert set(QUERIES) == set(ANOMALIES)


@pytest.mark.long
def test_on_every_history_that_a_unit_test_shows_to_a_kernel_sql_finds_the_same(session, tmp_path):
    file = tmp_path / "shown.pickle"
    words = ["-q", "-p", "no:cacheprovider", "-p", "tests.support.shown_histories", *SHOWING, RETRIES]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {VARIABLE: str(file)}, capture_output=True, text=True, timeout=SHOWING_S
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    shown = [entry for entry in pickle.loads(file.read_bytes()) if entry[0] in QUERIES]
    found = {anomaly for anomaly, _, _, result in shown if result.count}
    assert found == set(QUERIES), "everything was planted"
    said, asked_of = [], 0
    for family in FAMILIES:  # not all at once: Spark has 1 GB
        entries = [one for one in shown if CHECKERS[one[0]].kernel.__module__.startswith(f"prozess.checkers.{family}.")]
        assert entries, family
        asked_of += len(entries)
        worlds = [(parts_of(h), h if isinstance(h, CellHistory) else None) for _, _, h, _ in entries]
        findings = [
            f
            for world, (anomaly, _, history, result) in enumerate(entries)
            for f in moved([Finding(anomaly, parts_of(history)[0].partition, result)], world)
        ]
        opinions, cells = asked(session, worlds, sorted({anomaly for anomaly, *_ in entries}))
        for finding, (_, test, _, _) in zip(findings, entries, strict=True):
            own = {p: cell for p, cell in cells.items() if cell == cells[finding.partition]}
            opinion = {finding.anomaly: opinions[finding.anomaly]}
            said += [f"{test}: {what}" for what in disagreements([finding], opinion, own)]
    assert said == []
    assert asked_of == len(shown), "each belongs to a family"


@pytest.mark.parametrize("in_pieces", [False, pytest.param(True, marks=pytest.mark.long)], ids=["whole", "in pieces"])
def test_a_generated_history_with_everything_that_can_be_planted_is_found_the_same(
    session, tmp_path, monkeypatch, in_pieces
):
    if in_pieces:  # as a large one, of which many rows are compiled for
        monkeypatch.setattr("prozess.spark_checkers.oracle.second_opinion.WHOLE_ROWS", 1_000)
        monkeypatch.setattr("prozess.spark_checkers.oracle.second_opinion.ROWS_PER_PIECE", 5_000)
        monkeypatch.setattr("prozess.spark_checkers.oracle.second_opinion.FEW_ROWS", 500)
    run = RunDirectory(tmp_path)
    run.create()
    planted = {name: {"orphaned": 1, "epoch-regression": 4}.get(name, 3) for name in PLANTS}
    generate(run, GenerateOptions(rows=40_000, partitions=3, planted=planted, seed=7), command="test")
    findings = check_run(run, CheckOptions(engine="local"))
    assert {f.anomaly for f in findings if f.result.count} >= set(PLANTS)
    assert second_opinion(run, findings, workers=1, session=session) == ()


def lossy_run(folder):
    """A run of one partition, whose record 1 of 0 to 2 was acknowledged and is gone."""
    made = make_small(folder)
    sends = [{"sequence": n, "log_offset": n, "outcome": Outcome.OK, "partition": 0, "size": 9} for n in range(3)]
    made.send(1, [row | {"invoked_ns": START_NS + n, "completed_ns": START_NS + n + 5} for n, row in enumerate(sends)])
    sentinel = {"sequence": 0, "log_offset": 3, "outcome": Outcome.OK, "partition": 0, "invoked_ns": START_NS + 50}
    made.send(SENTINEL_CLIENT, [sentinel])
    given = [
        {"log_offset": n, "sender": 1, "sequence": n, "sent_partition": 0, "partition": 0, "span": 0} for n in (0, 2)
    ]
    given = [row | {"flags": 0, "read_ns": START_NS + 60} for row in given]
    made.write("reads", 5, [*given, given[0] | {"log_offset": 3, "sender": SENTINEL_CLIENT, "sequence": 0}])
    seen = {"kind": ObservationKind.AUDIT_COMPLETE, "value": 3, "partition": 0, "isolation": 0}
    made.write("observations", 5, [seen])
    return made.run


def test_a_run_is_asked_from_its_own_files(session, tmp_path, monkeypatch):
    run = lossy_run(tmp_path)
    some = ("lost", "duplicate", "unseen", "phantom")  # all of them are asked of files above
    findings = check_run(run, CheckOptions(engine="local", anomalies=some))
    assert [(f.partition, f.result.count) for f in findings if f.anomaly == "lost" and f.result.count] == [(0, 1)]
    assert second_opinion(run, findings, workers=1, session=session) == ()
    monkeypatch.setitem(QUERIES, "lost", "select partition, client, sequence from sent")
    said = second_opinion(run, findings, workers=1, session=session)
    assert said == ("lost in cell 0: the kernel counted 1, SQL 3",)


def no_end(seen):
    """What would be read of audits if none were found."""
    return {}


def late_start(seen):
    """What would be read of log starts if they were one record behind the lost one."""
    return {0: 2}


def no_producers(plan, table, **more):
    """What would be read of clients if producers were taken for readers."""
    known = client_facts(plan, table, **more)
    return replace(known, role=np.where(known.role == Role.PRODUCER, Role.READER, known.role).astype(np.int32))


@pytest.mark.parametrize(
    ("function", "wrong", "said"),
    [
        ("audit_claims", no_end, "lost in cell 0: the kernel counted 0, SQL 1"),
        pytest.param(
            *("log_starts", late_start, "lost in cell 0: the kernel counted 0, SQL 1"), marks=pytest.mark.long
        ),
        pytest.param(
            *("client_facts", no_producers, "phantom in cell 0: the kernel counted 2, SQL 0"), marks=pytest.mark.long
        ),
    ],
    ids=["the end of the audit", "the start of the log", "the roles of clients"],
)
def test_what_the_kernels_reading_gets_wrong_does_not_fool_both(session, tmp_path, monkeypatch, function, wrong, said):
    monkeypatch.setattr(reader, function, wrong)
    run = lossy_run(tmp_path)
    findings = check_run(run, CheckOptions(engine="local", anomalies=("lost", "phantom")))
    assert said in second_opinion(run, findings, workers=1, session=session)


@pytest.mark.parametrize(
    ("transactions", "anomalies"),
    [
        (False, {"lost", "duplicate", "reordered", "offset-conflict", "phantom", "skipped", "rewound", "time-travel"}),
        pytest.param(
            True,
            {"lost", "duplicate", "offset-conflict", "phantom", "skipped", "torn", "lost-transaction", "own-read"},
            marks=pytest.mark.long,
        ),
    ],
    ids=["sends", "transactions"],
)
def test_an_imported_history_is_compared_as_far_as_it_can_be_without_an_audit(
    session, tmp_path, transactions, anomalies
):
    run, verdict = spoiled_jepsen(0, transactions=transactions).checked(tmp_path)
    assert set(found(verdict)) >= anomalies
    findings = read_findings(run)
    assert second_opinion(run, findings, workers=1, session=session) == ()
    said = not_compared(run, findings)
    assert said is not None
    left_out = said.partition("Not compared: ")[2].removesuffix(".").split(", ")
    assert {"dirty-read", "diverged", "stalled"} <= set(left_out)
    assert not set(left_out) & (anomalies | {"unseen", "resurrected", "corrupt", "misplaced"})


def test_a_finding_of_an_imported_history_that_was_changed_is_a_disagreement(session, tmp_path):
    run, _ = spoiled_jepsen(0, transactions=False).checked(tmp_path)
    changed = [f for f in read_findings(run) if f.anomaly in ("lost", "phantom")]
    place, lost = next((n, f) for n, f in enumerate(changed) if f.anomaly == "lost" and f.result.count)
    true_count = sum(f.result.count for f in changed if f.anomaly == "lost")
    fewer = replace(lost.result, witnesses=lost.result.witnesses[1:], count=lost.result.count - 1)
    changed[place] = replace(lost, result=fewer)
    said = second_opinion(run, changed, workers=1, session=session)
    assert said == (f"lost in cell 0: the kernel counted {true_count - 1}, SQL {true_count}",)
    other = lost.result.witnesses.copy()
    other["sequence"][0] += 1_000_000
    changed[place] = replace(lost, result=replace(lost.result, witnesses=other))
    (said,) = second_opinion(run, changed, workers=1, session=session)
    assert said.startswith("lost: the kernel and SQL found other witnesses")
