"""The local engine: every kernel on every partition, in order, and a failing kernel is unknown, never a crash."""

import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers import registry
from prozess.checkers.registry import select
from prozess.harness.checking.checker import PartitionChecker
from prozess.harness.checking.kernels import check_cell, check_locally
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.history.convert import History, write_history
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import make_witnesses, no_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import TABLES
from tests.support.anomalies import OF_CELLS
from tests.support.damages import rot
from tests.support.examples import examples
from tests.support.finding_values import said
from tests.support.kafka_model import groups, transactions


def odd_sequences(history):
    odd = history.sends["sequence"][history.sends["sequence"] % 2 == 1]
    witnesses = make_witnesses(len(odd), {"sequence": odd, "partition": history.partition})
    return KernelResult(witnesses, count=len(odd), judged=len(history.sends["sequence"]))


def fails_on_partition_one(history):
    if history.partition == 1:
        raise ZeroDivisionError("one is odd")
    return KernelResult(no_witnesses(), count=0, judged=1)


def counts_too_little(history):
    return KernelResult(make_witnesses(2, {}), count=1, judged=1)


@pytest.fixture
def kernels(monkeypatch):
    kernels = {"odd": odd_sequences, "failing": fails_on_partition_one, "wrong": counts_too_little}
    checkers = {name: PartitionChecker(anomaly=name, kernel=kernel) for name, kernel in kernels.items()}
    monkeypatch.setattr(registry, "CHECKERS", checkers)


@pytest.fixture
def run(tmp_path, kernels):
    run = RunDirectory(tmp_path / "run")
    run.create()
    run.plan.write_text(make_plan(parse_trial({"name": "small", "title": ""}, source="t"), seed=1).model_dump_json())
    write_json(run.clock, {"start_monotonic_ns": 0})
    writer = RowWriter(run.rows, TABLES["sends"], 1)
    columns = {c.name: np.zeros(92, dtype=np.int64) for c in TABLES["sends"].columns}
    sequence, partition = np.arange(92), np.arange(92) % 3
    sequence[90:], partition[90:] = (90, 92), 2  # the last partition is the largest
    writer.extend(columns | {"sequence": sequence, "partition": partition})
    writer.close()
    write_history(run)
    return run


@pytest.mark.parametrize("workers", [1, 4])
def test_every_partition_is_checked_by_every_kernel_in_order(run, workers):
    findings = check_locally(History.open(run), select(["failing", "odd"]), workers=workers)
    assert [(f.partition, f.anomaly) for f in findings] == [(p, a) for p in range(3) for a in ("failing", "odd")]
    odd = [f.result for f in findings if f.anomaly == "odd"]
    assert [(r.count, r.judged, r.incomplete) for r in odd] == [(15, 30, None), (15, 30, None), (15, 32, None)]
    assert odd[1].witnesses["sequence"].tolist() == list(range(1, 90, 6))
    assert set(odd[2].witnesses["partition"].tolist()) == {2}


def test_a_kernel_that_raises_has_judged_nothing_and_says_why(run, caplog):
    results = {f.partition: f.result for f in check_locally(History.open(run), select(["failing"]), workers=2)}
    assert (results[0].incomplete, results[0].judged) == (None, 1)
    assert (results[1].count, results[1].judged) == (0, 0)
    assert results[1].incomplete == "the kernel failing failed: ZeroDivisionError: one is odd"
    told = [record.getMessage() for record in caplog.records]
    line = r"kernel failing on partition [135] failed: ZeroDivisionError: one is odd \(test_engine\.py:\d+\)"
    assert told, "nothing was reported"
    assert all(re.fullmatch(line, text) for text in told), told
    assert "Traceback" not in caplog.text


def test_how_a_kernel_came_to_fail_is_told_to_those_who_ask(run, caplog):
    caplog.set_level("DEBUG", "prozess.harness.checking.kernels")
    check_locally(History.open(run), select(["failing"]), workers=1)
    assert "Traceback" in caplog.text


def test_a_kernel_that_contradicts_itself_has_judged_nothing(run):
    results = [f.result for f in check_locally(History.open(run), select(["wrong"]), workers=1)]
    assert all(
        r.judged == 0 and "the kernel wrong failed: ValueError: it has 2 witnesses and counted 1:" in str(r.incomplete)
        for r in results
    )
    assert all(len(r.witnesses) == 0 for r in results)


def test_a_rotten_page_makes_what_needs_it_unknown_and_nothing_else(run):
    rot(run, "sends", row_group=0, column="sequence")  # of partition 0
    results = {f.partition: f.result for f in check_locally(History.open(run), select(["odd"]), workers=2)}
    assert "HistoryUnreadable: table sends" in str(results[0].incomplete)
    assert [results[p].incomplete for p in (1, 2)] == [None, None]


def test_a_column_that_has_one_value_in_each_row_group_is_not_decoded(run, monkeypatch):
    file = History.open(run).files["sends"]
    monkeypatch.setattr(pq, "ParquetFile", None)
    assert file.read(["partition"])["partition"].tolist() == [0] * 30 + [1] * 30 + [2] * 32
    held = file.read(["client", "log_offset"])
    assert (held["client"].tolist(), held["log_offset"].strides) == ([1] * 92, (0,))


def test_an_unreadable_history_is_an_error_for_the_user(run):
    (run.history / "reads.parquet").write_bytes(b"")
    with pytest.raises(HistoryUnreadable, match="table reads"):
        check_locally(History.open(run), select(["odd"]), workers=1)


def test_an_unknown_anomaly_is_an_error_for_the_user(run):
    with pytest.raises(BadInput, match=r"anomaly 'ood' is not known. Known: .*failing, .*odd, .*wrong"):
        check_locally(History.open(run), select(["ood"]), workers=1)


SEEDS = st.integers(0, 2**32)
MODELS = ((transactions.drawn_cell, transactions), (groups.drawn_group, groups))


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.sampled_from(MODELS))
def test_kernels_over_a_cell_find_the_same_where_its_partitions_are_made_anew_each_time(seed, model):
    draw, module = model
    cell, kinds = draw(seed), sorted(module.SPOILERS)
    module.SPOILERS[kinds[seed % len(kinds)]](cell)
    history = cell.history()
    kernels = select(OF_CELLS).cell
    anew = replace(history, partitions=MadeAnew(history.partitions))
    assert [said(f) for f in check_cell(anew, kernels)] == [said(f) for f in check_cell(history, kernels)]


class MadeAnew(dict):
    """What a cell that is too large for memory has."""

    def __getitem__(self, number):
        return replace(super().__getitem__(number))

    def values(self):
        return (self[number] for number in self)

    def items(self):
        return ((number, self[number]) for number in self)
