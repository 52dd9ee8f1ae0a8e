"""The readable form of a table has null for what is not there, timestamps, and names in place of codes."""

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history.parquet import table_path
from prozess.harness.history.readable import RunNames, readable, readable_columns, wall_ns_of
from prozess.harness.plan.plan import read_plan
from prozess.harness.recording.codes import broker_mask
from prozess.harness.recording.metrics import METRICS
from prozess.harness.result_tables import RESULT_TABLES
from prozess.harness.schema import MISSING, NONE, TABLES, Outcome, ReadFlag
from tests.support.stored_runs import generated_run, recorded_run

BEGAN_NS = 1_767_304_800_000_000_000
NAMES = RunNames(BEGAN_NS, {"fault": ["pause", "kill"], "metric": ["own"], "detail": []}, {0: ("orders", 7)})


def made(table, names=NAMES, **values):
    """One row of a table of a history, of which only these columns are something."""
    columns = TABLES[table].stored_columns
    kinds = {"i4": pa.int32(), "i8": pa.int64()}
    absent = {c.name: MISSING if c.unit == "ns" else NONE for c in columns}
    raw = pa.table({c.name: pa.array([values.get(c.name, absent[c.name])], kinds[c.kind]) for c in columns})
    (row,) = readable(raw, readable_columns(columns, named=True), names).to_pylist()
    return row


@pytest.mark.parametrize("table", TABLES)
def test_of_a_row_that_says_nothing_everything_is_null(table):
    told = {name: value for name, value in made(table).items() if value is not None}
    # An error code of -1 is Kafka's UNKNOWN_SERVER_ERROR, and some enumerations have a name for -1.
    assert told.keys() <= {"code", "error", "isolation", "effect", "flags"}, told
    assert told.get("isolation") in (None, "not a reader")
    assert told.get("effect") in (None, "unknown")


def test_times_stay_and_have_a_timestamp_beside_them():
    row = made("sends", invoked_ns=-1, completed_ns=1_500_000_000)
    assert (row["invoked_ns"], row["completed_ns"]) == (-1, 1_500_000_000)
    assert row["invoked_at"] == datetime(2026, 1, 1, 21, 59, 59, 999999, tzinfo=UTC)
    assert row["completed_at"] == datetime(2026, 1, 1, 22, 0, 1, 500000, tzinfo=UTC)
    unnoted = made("sends", RunNames(None, {}, {}), completed_ns=1)
    assert (unnoted["completed_ns"], unnoted["completed_at"]) == (1, None)


def test_codes_become_names():
    assert [made("sends", outcome=outcome)["outcome"] for outcome in Outcome] == ["info", "ok", "fail"]
    assert made("sends", outcome=9)["outcome"] == "9"
    assert made("transactions", ended_by=2)["ended_by"] == "abort"
    assert [made("commits", mode=mode)["mode"] for mode in (1, 2, 3, 4)] == ["sync", "async", "auto", "transaction"]
    assert made("assignments", event=3)["event"] == "lost"
    assert made("faults", kind=1)["kind"] == "kill"
    assert made("faults", kind=5)["kind"] == "5", "the dictionary is too short"
    assert made("metrics", metric=METRICS[0].code)["metric"] == METRICS[0].name
    assert made("metrics", metric=0)["metric"] == "own"


def test_bits_and_masks_become_lists():
    assert made("reads", flags=ReadFlag.CORRUPT | ReadFlag.FROM_START)["flags"] == ["corrupt", "from start"]
    assert made("reads", flags=0)["flags"] == []
    assert made("metadata", isr=broker_mask((0, 3, 62)))["isr"] == [0, 3, 62]
    assert made("metadata", elr=0)["elr"] == []


def test_partitions_have_kafkas_names_beside_their_ids():
    row = made("sends", partition=0)
    assert (row["partition"], row["topic"], row["number"]) == (0, "orders", 7)
    assert made("sends", partition=5)["topic"] is None
    assert made("partitions", partition=0, number=3)["number"] == 3, "it has a number of its own"


def test_an_absent_metric_has_no_value():
    assert made("metrics", value_micro=2_500_000, absent=0)["value"] == 2.5
    assert made("metrics", value_micro=0, absent=1)["value"] is None


def test_a_code_of_an_error_is_never_null():
    assert made("sends", code=-1)["code"] == -1
    assert made("clients", complete=0)["complete"] is False


@pytest.mark.parametrize("table", [*TABLES.values(), *RESULT_TABLES.values()], ids=lambda table: table.name)
def test_every_raw_column_is_in_the_readable_form_and_says_what_null_means(table):
    columns = table.stored_columns if table.name in TABLES else table.columns
    found = readable_columns(columns, named=True)
    assert {column.source for column in found} == {column.name for column in columns}
    assert max(Counter(column.name for column in found).values()) == 1
    for column in found:
        assert "NONE" not in column.meaning
        assert "MISSING" not in column.meaning


@pytest.mark.parametrize("make", [recorded_run, lambda path: generated_run(path, "log", "group", "transactions")])
def test_histories_of_stored_runs_become_readable_row_by_row(make, tmp_path):
    run = make(tmp_path / "run")
    names = RunNames.of(run, read_plan(run))
    for table in TABLES.values():
        with pq.ParquetFile(table_path(run, table.name)) as file:
            raw = file.read()
        found = readable(raw, readable_columns(table.stored_columns, named=True), names)
        assert found.num_rows == raw.num_rows
        for column in table.stored_columns:
            if column.unit == "ns":
                told = [MISSING if value is None else value for value in found.column(column.name).to_pylist()]
                assert told == raw.column(column.name).to_pylist()


@pytest.mark.parametrize(
    "clock", [{"start_monotonic_ns": "x"}, {"start_monotonic_ns": -5}, {"start_monotonic_ns": 2**63}]
)
def test_a_clock_that_says_no_time_is_refused(clock):
    with pytest.raises(HistoryUnreadable, match=r"clock\.json"):
        wall_ns_of(clock)


def test_a_history_that_was_generated_has_no_wall_clock():
    assert wall_ns_of({"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0}) is None
    assert wall_ns_of({}) is None
