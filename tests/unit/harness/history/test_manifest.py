"""What a manifest proves of a table whose file differs: which partitions that concerns."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from prozess.harness.history import manifest
from prozess.harness.history.manifest import condition_of, digests_of, read_manifest
from prozess.harness.history.reader import History, unreadable_cells
from prozess.harness.history.store import StoredRun
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from tests.support.stored_runs import generated_run, recorded_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return generated_run(tmp_path_factory.mktemp("generated") / "run", "log", "group")


def of_table(run, table):
    return read_manifest(run).files[f"history/{table}.parquet"]


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), table=st.sampled_from(["sends", "processed"]))
def test_a_flipped_bit_concerns_the_partition_whose_row_group_has_it_and_elsewhere_all_that_have_rows(
    run, place, bit, table
):
    path, proof = run.history / f"{table}.parquet", of_table(run, table)
    whole = path.read_bytes()
    at = int(place * len(whole))
    within = {g.partition for g in proof.row_groups if g.begin <= at < g.begin + g.size}
    try:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        condition = condition_of(run)
        assert condition.bounded
        assert list(condition.damaged) == [f"history/{table}.parquet"]
        (lost,) = condition.lost
        assert lost.partitions == (within or {g.partition for g in proof.row_groups})
        assert lost.whole == (not within)
        here = StoredRun(fs.LocalFileSystem(), str(run.path), "there").tables
        assert condition_of(RunDirectory(run.path, here)).lost == condition.lost, "and so it is at a URI"
        assert condition_of(run, hashing=partial(digests_of, run)) == condition, (
            "and so it is if others hash the row groups"
        )
    finally:
        path.write_bytes(whole)


def test_the_row_groups_of_a_manifest_are_the_whole_file_but_its_ends(run):
    for name, table in TABLES.items():
        proof = of_table(run, name)
        if not table.partitioned:
            assert (proof.row_groups, proof.rest) == ((), "")
            continue
        at = 4  # PAR1
        for begin, size in dict.fromkeys((group.begin, group.size) for group in proof.row_groups):  # some are shared
            assert begin == at
            at += size
        assert at < proof.size
    assert {g.partition for g in of_table(run, "sends").row_groups} == set(History.open(run).partitions)


@pytest.mark.parametrize("size", [0, 1, 100, 0.5, 2.0])
def test_a_file_of_another_size_concerns_all_that_have_rows_in_it(run, size):
    path, proof = run.history / "processed.parquet", of_table(run, "processed")
    whole = path.read_bytes()
    try:
        path.write_bytes((whole * 2)[: int(size * len(whole)) if isinstance(size, float) else size])
        condition = condition_of(run)
        assert condition_of(run, hashing=partial(digests_of, run)) == condition
    finally:
        path.write_bytes(whole)
    (lost,) = condition.lost
    assert (lost.whole, lost.partitions) == (True, {group.partition for group in proof.row_groups})
    plan = History.open(run).plan
    assert [plan.cells[cell].workload for cell in unreadable_cells(plan, [lost])] == ["group"]


def asking(run):
    """What was asked for so far, and a `hashing` that is asked and reads it here."""
    asked = []

    def hashing(stretches):
        asked.extend(stretches)
        return digests_of(run, stretches)

    return asked, hashing


def test_who_hashes_row_groups_elsewhere_is_given_each_once_and_believed(run):
    asked, hashing = asking(run)
    assert condition_of(run, hashing=hashing).whole
    tables = {name: of_table(run, name) for name, table in TABLES.items() if table.partitioned}
    assert sorted(asked) == sorted(
        {(f"history/{name}.parquet", g.begin, g.size) for name, proof in tables.items() for g in proof.row_groups}
    )
    condition = condition_of(run, hashing=lambda stretches: ["0" * 64] * len(stretches))
    assert condition.damaged.keys() == {name for name, _, _ in asked}
    assert condition_of(run, hashing=lambda stretches: [""] * len(stretches)).whole, (
        "read here what nobody else can read"
    )


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    return recorded_run(tmp_path_factory.mktemp("recorded") / "run")


@pytest.fixture
def recorded(sealed, tmp_path):
    """A sealed run with rows, and with a history that was made of them."""
    return RunDirectory(shutil.copytree(sealed.path, tmp_path / "copy"))


def test_files_of_rows_are_hashed_elsewhere_each_once_and_whole(recorded):
    asked, hashing = asking(recorded)
    assert condition_of(recorded, hashing=hashing).whole
    sizes = {f"rows/{path.name}": path.stat().st_size for path in recorded.rows.iterdir()}
    assert sorted(one for one in asked if one[0].startswith("rows/")) == sorted((n, 0, s) for n, s in sizes.items())
    assert len(sizes) > 2


def _truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def _flipped(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _a_directory(path):
    size = path.stat().st_size
    path.unlink()
    path.mkdir()
    assert path.stat().st_size != size


@pytest.mark.parametrize("damage", [_truncated, _flipped, Path.unlink, _a_directory])
def test_damaged_rows_are_damaged_alike_wherever_they_are_hashed(recorded, damage):
    damage(sorted(recorded.rows.iterdir())[0])
    condition = condition_of(recorded)
    assert not condition.readable
    assert condition_of(recorded, hashing=partial(digests_of, recorded)) == condition
    assert condition_of(recorded, hashing=lambda stretches: [""] * len(stretches)) == condition


def test_rows_that_others_may_read_and_this_process_may_not_are_damaged_in_the_same_words(recorded, monkeypatch):
    path, opened = sorted(recorded.rows.iterdir())[0], Path.open

    def refuse(self, *arguments, **named):
        if self == path:
            raise PermissionError(13, "Permission denied")
        return opened(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    condition = condition_of(recorded)
    assert condition.damaged == {f"rows/{path.name}": "cannot be read (Permission denied)"}
    assert condition_of(recorded, hashing=partial(digests_of, recorded)) == condition


def test_rows_count_among_what_is_large_enough_to_be_hashed_elsewhere(recorded, monkeypatch):
    rows = sum(path.stat().st_size for path in recorded.rows.iterdir())
    tables = sum(proof.size for proof in read_manifest(recorded).files.values() if proof.rest)
    monkeypatch.setattr(manifest, "SHARED_BYTES", rows + tables)
    assert manifest.is_large(recorded)
    monkeypatch.setattr(manifest, "SHARED_BYTES", rows + tables + 1)
    assert not manifest.is_large(recorded)


def test_damage_that_may_concern_everything_is_not_bounded_whatever_else_is_damaged(run):
    sends, plan = run.history / "sends.parquet", run.plan
    content, text = sends.read_bytes(), plan.read_bytes()
    try:
        sends.write_bytes(content[:-1])
        assert condition_of(run).bounded
        plan.write_bytes(text + b" ")
        condition = condition_of(run)
    finally:
        sends.write_bytes(content)
        plan.write_bytes(text)
    assert list(condition.damaged) == ["history/sends.parquet", "plan.json"]
    assert not condition.bounded
    assert condition.lost == ()
    assert condition_of(run).whole
