"""What a group did with the records of a partition in pieces is what it did with those of the whole."""

import random
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.checkers.chunked import groups as in_pieces
from prozess.checkers.chunked.groups import PROCESSING, ranges_of, shared_ranges, within
from prozess.checkers.chunked.partitions import perform, remainders
from prozess.checkers.groups import assignments
from prozess.checkers.registry import select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.harness.checking.checker import CellShare, Source
from prozess.harness.checking.kernels import check_cell, check_locally
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE
from tests.support.anomalies import OF_CELLS
from tests.support.damages import rot
from tests.support.examples import ALL, examples
from tests.support.finding_values import said
from tests.support.kafka_model.groups import SPOILERS, drawn_group
from tests.unit.checkers.chunked.test_pieces import Arrays, drawn_cuts

OWNERS = select(["two-owners"])
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32)
IDENTITIES = ((NONE, 5), (3, NONE), (1 << 22, 3), (2, 1 << 41), (2, 7), (4, 7))
"""Who sent a record: some are no client of ours, and have no identity key."""


def drawn_history(rng):
    group = drawn_group(rng.randrange(2**32))
    for kind in rng.sample(sorted(SPOILERS.keys() - {"starved"}), rng.randrange(4)):  # which takes two partitions
        SPOILERS[kind](group)
    steps = group.tables["processed"]
    for _ in range(rng.choice((0, 0, 1, 3, 9)) if steps else 0):
        row, other = rng.choice(steps), rng.choice(steps)
        sender, sequence = rng.choice((*IDENTITIES, (other["sender"], other["sequence"])))
        row |= {"sender": sender, "sequence": sequence}
    rng.shuffle(steps)
    return group.history()


def looked_at(history, cuts):
    [number] = history.partitions
    one = history.partitions[number]
    source = Source(one, Arrays(one.sends), Arrays(one.reads), lambda: history, Arrays(history.tables["processed"]))
    left = remainders({number: cuts}, lambda jobs: [perform(source, job) for job in jobs], {number: PROCESSING})
    return source, left[number]


def found_in_pieces(history, cuts):
    source, left = looked_at(history, cuts)
    return [said(finding) for finding in left.check_cell(source, sorted(PROCESSING))]


def known_in_parts(history, cuts):
    """When members polled, by looks at parts of the partition."""
    source, left = looked_at(history, cuts)

    def each(looks):
        found = []
        for look in looks:
            few, rows = look.part.of(source)
            found.append(assignments.look(replace(history, partitions={look.partition: few}, part=rows), look.stage))
        return found

    shares = [CellShare(source.history.partition, part.rows, part) for part in left.parts]
    return {assignments.FACTS: assignments.gather({0: shares}, each, OWNERS.order)[0]}


def test_wherever_a_partition_is_cut_its_group_processed_what_it_processed_in_the_whole():
    found: Counter[str] = Counter()

    @settings(QUICK, max_examples=examples(400))
    @given(SEEDS)
    def check(seed):
        rng = random.Random(seed)
        history = drawn_history(rng)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(in_pieces, "RANGES_MAX", rng.choice((1, 2, 4096)))
            pieces = found_in_pieces(history, drawn_cuts(next(iter(history.partitions.values())), rng))
        whole = check_cell(history, select(sorted(PROCESSING)).cell)
        assert pieces == [said(finding) for finding in whole]
        owners = [said(finding) for finding in check_cell(history, OWNERS.cell)]
        known = known_in_parts(history, drawn_cuts(next(iter(history.partitions.values())), rng))
        assert [said(finding) for finding in check_cell(replace(history, known=known), OWNERS.cell)] == owners
        found.update(f"{f.anomaly} {case}" for f in whole for case in set(f.result.witnesses["case"].tolist()))

    check()
    assert len(found) >= (8 if ALL else 5), found


KEYS = st.lists(st.integers(0, 60), max_size=30)


@settings(QUICK, max_examples=examples(500))
@given(st.lists(KEYS, min_size=1, max_size=5), st.integers(1, 6))
def test_a_key_that_two_pieces_have_is_in_the_ranges_that_they_share(parts, most):
    pieces = [np.unique(np.array(keys, dtype=np.int64)) for keys in parts]
    ranges = [ranges_of(keys, most) for keys in pieces]
    shared = shared_ranges(ranges)
    for keys, bounds in zip(pieces, ranges, strict=True):
        assert bounds.shape[1] <= most
        assert within(keys, bounds).all()
    covered = Counter(key for bounds in ranges for key in range(62) if within(np.array([key]), bounds)[0])
    assert [key for key in range(62) if within(np.array([key]), shared)[0]] == sorted(
        k for k in covered if covered[k] > 1
    )
    assert all(after > before for (_, before), (after, _) in pairwise(shared.T.tolist()))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One partition of a group, in several row groups, with whatever can be planted in it."""
    run = RunDirectory(tmp_path_factory.mktemp("generated") / "run")
    run.create()
    planted = {"unprocessed": 7, "reprocessed": 6, "commit-regression": 3, "commit-ahead": 2, "two-owners": 2}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("prozess.harness.history.parquet.ROW_GROUP_MAX", 1000)
        patched.setattr("prozess.exchange.synthetic.history.SHARED_ROWS_MAX", 0)
        generate(run, GenerateOptions(rows=40_000, partitions=1, kinds=("group",), planted=planted), command="test")
    return run


def spoiled_steps(table):
    """The same steps, of which some are further copies of a record that stands far away."""
    far = len(table["sender"]) // 2
    columns = {name: np.array(table[name]) for name in table}
    for name in ("sender", "sequence"):
        columns[name][:3] = columns[name][far : far + 3]
    return columns


@pytest.mark.parametrize("pieces", [2, 5, 9])
def test_an_engine_finds_the_same_of_a_group_in_pieces_read_from_files(run, pieces):
    rows = History.open(run).rows_of(0)
    checkers = select(OF_CELLS)
    whole = check_locally(History.open(run), checkers, workers=2)
    assert sum(finding.result.count for finding in whole) == 20
    found = check_locally(History.open(run), checkers, workers=2, rows_max=rows // pieces)
    assert [said(f) for f in found] == [said(f) for f in whole]


def test_copies_that_stand_in_pieces_far_apart_are_found(run):
    history = History.open(run)
    cell = history.cell_history(0, only=[history.partition_history(0)])
    one, tables = cell.partitions[0], dict(cell.tables)
    tables["processed"] = spoiled_steps(tables["processed"])
    cell = replace(cell, tables=tables)
    whole = {f.anomaly: said(f) for f in check_cell(cell, select(sorted(PROCESSING)).cell)}
    assert found_in_pieces(cell, drawn_cuts(one, random.Random(3))) == [whole[name] for name in sorted(PROCESSING)]
    counts = {f.anomaly: f.result.count for f in check_cell(cell, select(sorted(PROCESSING)).cell)}
    assert counts["reprocessed"] == 6 + 3


def test_a_partition_of_which_steps_cannot_be_read_is_unknown(run, tmp_path):
    path = tmp_path / "rotten"
    shutil.copytree(run.path, path)
    rot(RunDirectory(path), "processed", row_group=2, column="log_offset")
    history = History.open(RunDirectory(path))
    found = check_locally(history, select(sorted(PROCESSING)), workers=2, rows_max=history.rows_of(0) // 4)
    assert [f.result.judged for f in found] == [0, 0]
    for finding in found:
        assert f"the kernel {finding.anomaly} failed: HistoryUnreadable: table processed" in finding.result.incomplete
