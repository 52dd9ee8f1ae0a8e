"""What kernels find in many small partitions in one call is what they find in each of them, whatever the rows say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.agreement import nothing_where_agreed
from prozess.checkers.registry import CHECKERS, select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.exchange.synthetic.plants import parse_plants
from prozess.harness.checking import kernels
from prozess.harness.checking.checker import CellChecker, PartitionChecker
from prozess.harness.checking.kernels import check_locally
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory

PLANTED = (
    "lost=2,diverged=5,snapshot-conflict=10,out-of-sequence=6,unclean=2,illegal-transition=8,leaderless=2,stuck=2,late=3,"
    "mistimed=3,stalled=2,watermark-regression=2"
)
TOGETHER = {
    name: checker
    for name, checker in CHECKERS.items()
    if isinstance(checker, PartitionChecker) and checker.side_by_side is not None
}
OF_CELLS = ("illegal-transition", "leaderless", "stuck", "late", "stalled")
TABLES = ("sends", "reads", "replicas", "snapshots", "observations", "metadata")
IN_PIECES = {
    name: checker
    for name, checker in CHECKERS.items()
    if isinstance(checker, PartitionChecker) and checker.in_pieces and checker.side_by_side is None
}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("many") / "run")
    run.create()
    options = GenerateOptions(rows=6_000, partitions=9, kinds=("log",), planted=parse_plants(PLANTED))
    generate(run, options, command="test")
    return History.open(run)


def changed(one, seed, share=0.15):
    """The same partition, in which some values of some rows are those of other rows, in this share of its columns."""
    chance = np.random.default_rng(seed)
    tables = {}
    for name in TABLES:
        table = getattr(one, name)
        columns = {column: np.array(table[column]) for column in table}
        for values in columns.values():
            if len(values) and chance.random() < share:
                rows = chance.integers(0, len(values), size=chance.integers(1, 4))
                values[rows] = values[chance.integers(0, len(values), size=len(rows))]
        tables[name] = columns
    return replace(one, **tables)


def shown(result):
    arrays = (result.witnesses, result.windows)
    return result.count, result.judged, result.incomplete, *(array.tolist() for array in arrays)


def result_of(run, *arguments):
    """What a kernel returns; a word, if it cannot judge such rows."""
    try:
        return run(*arguments)
    except Exception:  # noqa: BLE001 - as engines do
        return "failed"


@given(seed=st.integers(0, 2**32))
def test_of_each_small_partition_a_kernel_finds_the_same_alone_and_beside_others(history, seed):
    ones = [changed(history.partition_history(p), seed + p) for p in history.partitions]
    for name, checker in TOGETHER.items():
        alone = [result_of(checker.kernel, one) for one in ones]
        beside = result_of(checker.side_by_side, ones)
        if beside != "failed":  # then each is given to the kernel alone
            assert [shown(result) for result in beside] == [shown(result) for result in alone], name


@given(seed=st.integers(0, 2**32))
def test_where_everybody_agrees_kernels_find_nothing_and_judge_what_was_counted(history, seed):
    ones = [changed(history.partition_history(p), seed + p, share=0.02) for p in history.partitions]
    cell = history.cell_history(0, only=ones)
    for name, checker in IN_PIECES.items():
        for one, nothing in zip(ones, nothing_where_agreed(cell, checker.judged_when_plain), strict=True):
            assert nothing is None or shown(checker.kernel(one)) == shown(nothing), name


def test_everybody_agrees_on_some_partitions_and_on_none_of_which_a_record_is_lost(history):
    agreed = [nothing is not None for nothing in nothing_where_agreed(history.cell_history(0), ["records"])]
    lost = [f.result.count > 0 for f in check_locally(history, select(["lost"]), workers=1)]
    assert any(lost)
    assert sum(agreed) >= 3
    assert not any(agrees and gone for agrees, gone in zip(agreed, lost, strict=True))


@given(seed=st.integers(0, 2**32))
def test_a_kernel_of_a_cell_finds_in_several_partitions_what_it_finds_in_each(history, seed):
    ones = [changed(history.partition_history(p), seed + p) for p in history.partitions]
    for name in OF_CELLS:
        checker = CHECKERS[name]
        assert isinstance(checker, CellChecker)
        assert checker.is_side_by_side
        beside = result_of(checker.kernel, history.cell_history(0, only=ones))
        if beside == "failed" or beside.incomplete:  # then each is given to the kernel alone
            continue
        each = [checker.kernel(history.cell_history(0, only=[one])) for one in ones]
        assert beside.witnesses.tolist() == [w for result in each for w in result.witnesses.tolist()], name
        assert (beside.count, beside.judged) == tuple(sum(getattr(r, f) for r in each) for f in ("count", "judged")), (
            name
        )


def test_a_check_finds_the_same_whether_small_partitions_are_together_or_not(history, monkeypatch):
    together = check_locally(history, select(), workers=2)
    rows = [history.rows_of(p) for p in history.partitions]
    for few in (0, int(np.median(rows))):  # none is small; every second one is
        monkeypatch.setattr(kernels, "FEW_ROWS", few)
        monkeypatch.setattr(kernels, "SMALL_ROWS", few)
        found = check_locally(history, select(), workers=2)
        assert [(f.anomaly, f.partition, shown(f.result)) for f in found] == [
            (f.anomaly, f.partition, shown(f.result)) for f in together
        ]
