"""How the tables of a large run are shared out among tasks, and that parts of any share are the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.convert import LargeTables, write_history
from prozess.harness.history.parquet import table_path
from prozess.harness.schema import SENDS, TABLES
from prozess.spark_checkers import tables
from prozess.spark_checkers.tables import Recorded, TableShare, _count, _write, ranges_of, write_clustered
from tests.support.small_runs import make_small

START_NS = 5_000_000_000


@given(st.lists(st.integers(0, 5_000), max_size=40), st.integers(1, 8))
def test_ranges_follow_one_another_and_have_every_partition_once(rows, workers):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "SHARE_ROWS_MIN", 100)
        patched.setattr(tables, "SHARE_ROWS_MAX", 8_000)
        ranges = ranges_of(np.array(rows, dtype=np.int64), workers)
    assert [n for low, high in ranges for n in range(low, high)] == list(range(len(rows)))
    assert all(low < high for low, high in ranges)
    limit = max(workers, -(-sum(rows) // 8_000))
    assert len(ranges) <= limit
    share = sum(rows) / max(1, len(ranges))
    assert all(sum(rows[low:high]) <= max(8_000, 2 * share) + 2 * max(rows, default=0) for low, high in ranges)


def test_few_rows_are_one_range():
    assert ranges_of(np.array([3, 4, 5]), 8) == [(0, 3)]
    assert ranges_of(np.array([], dtype=np.int64), 8) == []


class Here:
    """What Spark does, done here: the same functions, one item after the other, each with its result pickled."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(tables, "_on_workers", self.on_workers)
        monkeypatch.setattr(tables, "SHARE_ROWS_MIN", 50)
        self.parts = 0

    def on_workers(self, session, description, function, items, tasks):
        assert sorted(number for task in tasks for number in task) == list(range(len(items)))
        self.parts += len(items)
        return [function(item) for item in items]


def written(small, name):
    return table_path(small.run, name).read_bytes()


def recorded(small, rng, *, shuffled=False):
    """Rows of three clients in every clustered table; two segments of the first."""
    for name in (table.name for table in TABLES.values() if table.partitioned):
        for client, count in ((3, 5_000), (1, 900), (8, 0)):
            columns = [c.name for c in TABLES[name].columns]
            values = {column: rng.integers(-5, 900, count) for column in columns}
            values["partition"] = np.sort(rng.integers(0, 40, count)) if client == 1 else rng.integers(-1, 40, count)
            if name == "sends" and not shuffled:
                values["sequence"] = np.arange(count)
            small.write(
                name, client, [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
            )


@pytest.mark.parametrize("shuffled", [False, True], ids=["sends in sequence", "sends out of sequence"])
def test_tables_in_parts_are_byte_for_byte_those_that_one_process_writes(tmp_path, monkeypatch, shuffled):
    small, here = make_small(tmp_path / "run"), Here(monkeypatch)
    recorded(small, np.random.default_rng(4), shuffled=shuffled)
    write_history(small.run)
    whole = {name: written(small, name) for name in TABLES}
    for name in TABLES:
        table_path(small.run, name).unlink()

    def elsewhere(*told):
        write_clustered(None, 2, *told)

    write_history(small.run, LargeTables(elsewhere, rows_min=1))
    assert {name: written(small, name) for name in TABLES} == whole
    tables = sum(table.partitioned for table in TABLES.values())
    assert here.parts == tables * 3 + tables * 2, "each client is counted, and each table has two parts"
    assert sorted(path.name for path in small.run.history.iterdir()) == sorted(f"{name}.parquet" for name in TABLES)


def test_a_small_run_and_one_of_verifiable_clients_are_written_here(tmp_path):
    small = make_small(tmp_path / "run")
    small.send(1, [{"partition": 0, "sequence": 0}])

    def elsewhere(*_):
        raise AssertionError("it is small")

    write_history(small.run, LargeTables(elsewhere, rows_min=2))
    plan = small.run.plan.read_text()
    small.run.plan.write_text(plan.replace('"role":"producer"', '"role":"verifiable-producer"'))
    assert "verifiable-producer" in small.run.plan.read_text()
    write_history(small.run, LargeTables(elsewhere, rows_min=1))


def test_workers_that_see_other_files_are_told(tmp_path):
    small = make_small(tmp_path / "run")
    small.send(1, [{"partition": 0, "sequence": 0}])
    with pytest.raises(
        HistoryUnreadable, match=r"has 1 files of table sends and client 1, and 2 where .* storage that they"
    ):
        _count(small.run, Recorded("sends", 1, 2, 1))
    assert [found.tolist() for found in _count(small.run, Recorded("sends", 1, 1, 1))[:2]] == [[0], [1]]
    share = TableShare("sends", (1,), (0, 3), 2, tmp_path / "part.parquet")
    with pytest.raises(HistoryUnreadable, match=r"has 1 rows in partitions 0 to 3, and 2 were counted"):
        _write(small.run, share, START_NS)


def test_parts_that_the_driver_does_not_see_are_told(tmp_path, monkeypatch):
    small = make_small(tmp_path / "run")
    small.send(1, [{"partition": 0, "sequence": 0}])
    here = Here(monkeypatch)

    def elsewhere(session, description, function, items, tasks):
        found = here.on_workers(session, description, function, items, tasks)
        for item in items:
            if isinstance(item, TableShare):
                item.path.unlink()
        return found

    monkeypatch.setattr(tables, "_on_workers", elsewhere)
    small.run.history.mkdir()
    with pytest.raises(HistoryUnreadable, match=r"table sends: Spark's workers have written .*, and it is not here"):
        write_clustered(None, 1, small.run, {"sends": [1]}, START_NS)
    assert list(small.run.history.iterdir()) == []
    assert SENDS.partitioned
