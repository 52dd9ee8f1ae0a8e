"""Small partitions that share a row group: each is read as if it stood alone, and if the footer lies, nothing is read."""

import json
import pickle
from itertools import accumulate

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.app.run.check import CheckOptions, check_run
from prozess.exchange import imported_run
from prozess.harness.checking.findings import findings_to_arrow
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history import parquet
from prozess.harness.history.manifest import condition_of, read_manifest
from prozess.harness.history.parquet import PartitionRows, TableFile, TableWriter, filled, table_path
from prozess.harness.history.reader import History
from prozess.harness.history.row_groups import SHARED_KEY, runs_of, shared_metadata
from prozess.harness.run_directory import LostRows, RunDirectory
from prozess.harness.schema import READS, TABLES
from tests.support.edn_histories import Jepsen

COLUMNS = ["partition", "log_offset", "sequence", "span"]


def columns_of(lengths, first=0):
    """Rows of partitions with so many rows each: the third has no more numbers than one."""
    partitions = 3 * np.arange(first, first + len(lengths))
    offsets = np.concatenate([np.arange(length) for length in lengths])
    count = len(offsets)
    return {
        "partition": np.repeat(partitions, lengths),
        "log_offset": offsets,
        "sequence": np.arange(count) * 7 + first,
        "span": np.full(count, 4),
    }


def written(folder, groups):
    """A table with these row groups, each of partitions with so many rows, and what its partitions hold."""
    run, rows, first = RunDirectory(folder), {}, 0
    with TableWriter(run, READS) as writer:
        for lengths in groups:
            columns = columns_of(lengths, first)
            writer.write(filled(READS, columns, length=sum(lengths)))
            for partition in np.unique(columns["partition"]).tolist():
                mine = columns["partition"] == partition
                rows[partition] = {name: columns[name][mine] for name in COLUMNS}
            first += len(lengths)
    return run, rows


def joined(rows, partitions):
    return {name: [value for p in partitions for value in rows[p][name].tolist()] for name in COLUMNS}


def told(found):
    return {name: found[name].tolist() for name in COLUMNS}


GROUPS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=6), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(GROUPS, st.randoms(use_true_random=False), st.booleans())
def test_whatever_partitions_are_asked_for_their_rows_come_in_that_order(tmp_path_factory, groups, rng, pickled):
    run, rows = written(tmp_path_factory.mktemp("shared"), groups)
    file = TableFile(run, READS)
    assert file.metadata.num_row_groups == len(groups)
    file = pickle.loads(pickle.dumps(file)) if pickled else file
    assert list(file.row_ranges) == list(rows)
    assert {p: file.rows_of(p) for p in rows} == {p: len(one["span"]) for p, one in rows.items()}
    for _ in range(8):
        asked = rng.sample(list(rows), rng.randrange(1, len(rows) + 1))
        asked = asked if rng.random() < 0.5 else sorted(asked)
        found = file.read(COLUMNS, [part for p in asked for part in file.row_ranges[p]])
        assert told(found) == joined(rows, asked)
        assert not any(values.flags.writeable for values in found.values())
    assert told(file.read(COLUMNS)) == joined(rows, list(rows))


def test_of_many_row_groups_only_the_last_few_stay_decoded_and_all_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUPS_MANY", 1000)
    run, rows = written(tmp_path, [[3, 2]] * 40)
    file = TableFile(run, READS)
    for partition in [*rows, *rows]:
        assert told(file.read(COLUMNS, file.row_ranges[partition])) == joined(rows, [partition])
    assert len(file._shared) == parquet.SHARED_HELD


def test_rows_of_a_partition_are_found_by_offset_and_by_number_in_a_shared_row_group_too(tmp_path):
    run, rows = written(tmp_path, [[50, 20], [9]])
    for partition, own in rows.items():
        mine = PartitionRows(TableFile(run, READS), partition)
        found, numbers = mine.by_offset(3, 8)
        assert numbers.tolist() == [3, 4, 5, 6, 7]
        assert found["sequence"].tolist() == own["sequence"][3:8].tolist()
        assert mine.by_row(1, 4)[0]["sequence"].tolist() == own["sequence"][1:4].tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda runs: runs[:-1],
        lambda runs: [runs[0], [runs[1][0], runs[1][1] + 1], *runs[2:]],
        lambda runs: [[runs[0][0] + 1, runs[0][1]], *runs[1:]],
        lambda runs: [runs[1], runs[0], *runs[2:]],
        lambda runs: [runs[0], [runs[0][0], runs[1][1]], *runs[2:]],
        lambda _: [],
        lambda _: "partitions",
    ],
)
def test_a_footer_that_says_what_cannot_be_is_named_and_nothing_is_read(tmp_path, monkeypatch, change):
    def false(shared):
        return {
            SHARED_KEY: json.dumps({number: change([list(run) for run in runs]) for number, runs in shared.items()})
        }

    monkeypatch.setattr(parquet, "shared_metadata", false)
    run, rows = written(tmp_path, [[5, 4, 3]])
    with pytest.raises(HistoryUnreadable, match=r"table reads: .* is not clustered by partition"):
        TableFile(run, READS).rows_of(next(iter(rows)))


def test_without_the_list_rows_of_several_partitions_are_not_taken_for_those_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "shared_metadata", lambda _: {})
    run, rows = written(tmp_path, [[5, 4]])
    with pytest.raises(HistoryUnreadable, match=r"is not clustered by partition \(row group 0\)"):
        TableFile(run, READS).rows_of(next(iter(rows)))


def test_a_table_in_which_nothing_is_shared_says_nothing_of_it(tmp_path):
    run, _ = written(tmp_path, [[5], [4]])
    assert SHARED_KEY.encode() not in pq.read_metadata(table_path(run, "reads")).metadata
    assert shared_metadata({}) == {}


def test_partitions_that_do_not_ascend_are_refused_when_they_are_written():
    with pytest.raises(AssertionError, match="ascend"):
        runs_of(np.array([1, 1, 2, 1]))


def test_of_partitions_that_are_lost_nothing_is_read_and_their_neighbours_are(tmp_path):
    run, rows = written(tmp_path, [[5, 4], [3, 2]])
    lost = LostRows("reads", frozenset({0, 3}), whole=False, why="has changed")
    file = TableFile(RunDirectory(run.path, lost=(lost,)), READS)
    assert file.rows == 5
    assert list(file.row_ranges) == [6, 9]
    assert told(file.read(COLUMNS)) == joined(rows, [6, 9])


def history_of(keys):
    """Of these keys and how many records are sent to each; the first of every third is never received."""
    made = Jepsen()
    made.assign(1, list(keys))
    for key, count in keys.items():
        for n in range(count):
            made.send(0, key, n, n)
        made.poll(1, {key: [[n, n] for n in range(1 if key % 3 == 0 and count > 1 else 0, count)]})
    made.poll(1, {})
    return made


def imported(folder, keys):
    folder.mkdir()
    return history_of(keys).checked(folder)


def findings_in(run):
    return findings_to_arrow(check_run(run, CheckOptions(engine="local")))


def test_small_keys_of_an_import_share_row_groups_and_the_findings_are_those_of_keys_that_stand_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(imported_run, "SHARED_ROWS_MAX", 20)
    keys = dict(enumerate([3, 1, 9, 30, 2, 2, 7, 7, 7, 1, 1, 1]))
    run, verdict = imported(tmp_path / "shared", keys)
    reads = History.open(run).files["reads"]
    groups = [reads.row_group_of(part) for parts in reads.row_ranges.values() for part in parts]
    sizes = [reads.metadata.row_group(n).num_rows for n in range(reads.metadata.num_row_groups)]
    assert len(groups) == len(keys)
    assert len(sizes) < len(keys) / 2
    assert sorted(sizes)[-2] <= 20 < sorted(sizes)[-1]
    assert verdict.findings["lost"] == 3
    monkeypatch.setattr(imported_run, "SHARED_ROWS_MAX", 0)
    alone, _ = imported(tmp_path / "alone", keys)
    assert len(set(History.open(alone).files["reads"].row_ranges.values())) == len(keys)
    assert History.open(alone).files["reads"].metadata.num_row_groups == len(keys)
    assert findings_in(run).equals(findings_in(alone))
    for name, table in TABLES.items():
        one, other = (History.open(each).files[name].read(table.column_names) for each in (run, alone))
        assert all(np.array_equal(one[column], other[column]) for column in table.column_names)


def test_a_flipped_bit_in_a_shared_row_group_concerns_every_partition_that_has_rows_in_it_and_no_other(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(imported_run, "SHARED_ROWS_MAX", 12)
    run, _ = imported(tmp_path / "run", dict.fromkeys(range(9), 4))
    proofs = read_manifest(run).files["history/sends.parquet"].row_groups
    begins = list(dict.fromkeys(proof.begin for proof in proofs))
    assert (len(proofs), len(begins)) == (9, 3)
    assert (
        begins[1:] == list(accumulate((next(p.size for p in proofs if p.begin == b) for b in begins), initial=4))[1:3]
    )
    path = table_path(run, "sends")
    content = bytearray(path.read_bytes())
    content[begins[1] + 30] ^= 1
    path.write_bytes(content)
    (lost,) = condition_of(run).lost
    assert (lost.partitions, lost.whole) == (frozenset({3, 4, 5}), False)
