"""Rows to clustered Parquet and back: nothing is lost, nothing invented."""

import json
import pickle

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.columns import row_dtype
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.history import parquet
from prozess.harness.history.convert import partition_order, write_history
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.recording.codes import Dictionaries
from prozess.harness.recording.rows import FIRST_SEGMENT_ROWS, RowWriter, segment_rows
from prozess.harness.schema import MISSING, NONE, RECORDER_CLIENT, TABLES, Isolation, ObservationKind, Role
from tests.support.small_runs import START_NS, make_small


@pytest.fixture
def small(tmp_path):
    return make_small(tmp_path / "run")


def test_an_empty_history_has_every_table_and_every_partition(small):
    history = small.history()
    assert {path.stem for path in small.run.history.iterdir()} == set(TABLES)
    assert all(history.rows(name) == 0 for name in TABLES if name not in ("partitions", "cells"))
    assert history.manifest().column("partition").to_pylist() == [0, 1, 2, 3]
    assert history.manifest().column("sends_row_groups").to_pylist() == [[], [], [], []]
    sends = history.partition_history(2).sends
    assert list(sends) == list(TABLES["sends"].column_names)
    assert all(len(sends[name]) == 0 for name in sends)
    assert sends["log_offset"].dtype == np.int64
    assert sends["outcome"].dtype == np.int32


def test_partitions_and_cells_come_from_the_plan(small):
    history = small.history()
    partitions, cells = history.table("partitions"), history.table("cells")
    texts = Dictionaries(small.run.dictionaries)
    assert partitions["partition"].tolist() == [0, 1, 2, 3]
    assert partitions["cell"].tolist() == [0, 0, 1, 1]
    assert [texts.text("topic", code) for code in partitions["topic"].tolist()] == ["cell-000"] * 2 + ["cell-001"] * 2
    assert partitions["preferred_leader"].tolist() == [1, 2, 1, 2]
    assert partitions["replicas"].tolist() == [0b1110] * 4
    assert [texts.text("cell", code) for code in cells["name"].tolist()] == ["acks_1", "acks_all"]


def test_a_partition_is_ordered_by_client_and_then_as_written(small):
    small.send(2, [{"partition": p, "sequence": s} for s, p in enumerate([3, 0, 3, 1, 0])])
    small.send(1, [{"partition": p, "sequence": s} for s, p in enumerate([0, 3, 0])])
    history = small.history()
    sends = history.partition_history(0).sends
    assert sends["client"].tolist() == [1, 1, 2, 2]
    assert sends["sequence"].tolist() == [0, 2, 1, 4]
    assert history.partition_history(3).sends["sequence"].tolist() == [1, 0, 2]
    assert history.manifest().column("sends_rows").to_pylist() == [4, 1, 0, 3]
    file = pq.ParquetFile(small.run.history / "sends.parquet")
    assert file.metadata.num_row_groups == 3
    assert [file.metadata.row_group(g).num_rows for g in range(3)] == [4, 1, 3]


def test_times_count_from_the_trials_start_and_missing_stays_missing(small):
    small.send(
        1,
        [
            {"partition": 0, "sequence": 0, "invoked_ns": START_NS - 7, "completed_ns": START_NS},
            {"partition": 0, "sequence": 1, "invoked_ns": START_NS + 9, "completed_ns": MISSING},
        ],
    )
    sends = small.history().partition_history(0).sends
    assert sends["invoked_ns"].tolist() == [-7, 9]
    assert sends["completed_ns"].tolist() == [0, MISSING]


def test_without_a_start_the_earliest_row_of_any_table_is_zero(tmp_path):
    small = make_small(tmp_path / "run", started=False)
    small.send(1, [{"partition": 0, "sequence": 0, "invoked_ns": 1_500}])
    small.write("heartbeats", 4, [{"time_ns": 1_200}, {"time_ns": 1_300}])
    history = small.history()
    assert history.partition_history(0).sends["invoked_ns"].tolist() == [300]
    assert history.table("heartbeats")["time_ns"].tolist() == [0, 100]
    assert history.files["sends"].start_monotonic_ns == 1_200


def test_columns_that_are_no_times_are_not_moved(small):
    small.write("replicas", 9, [{"partition": 1, "max_timestamp_ms": 17, "base_offset": 3}])
    table = small.history().table("replicas")
    assert (table["max_timestamp_ms"].tolist(), table["base_offset"].tolist()) == ([17], [3])


def test_a_torn_row_is_left_out_and_counted(small):
    small.send(1, [{"partition": 0, "sequence": s} for s in range(5)])
    path = small.run.rows / "sends.1.0.rows"
    size = row_dtype(TABLES["sends"]).itemsize
    with path.open("r+b") as file:
        file.seek(2 * size + size - 8)
        file.write((77).to_bytes(8, "little"))
    history = small.history()
    assert history.partition_history(0).sends["sequence"].tolist() == [0, 1, 3, 4]
    assert history.torn_rows == {"sends": 1}


def test_rows_of_several_segments_come_in_order(small):
    count = segment_rows(0) + 10
    writer = RowWriter(small.run.rows, TABLES["reads"], 3)
    columns = {c.name: np.zeros(count, dtype=np.int64) for c in TABLES["reads"].columns}
    writer.extend(columns | {"log_offset": np.arange(count), "partition": np.arange(count) % 2})
    writer.close()
    reads = small.history().partition_history(1).reads
    assert reads["log_offset"].tolist() == list(range(1, count, 2))


def test_a_missing_segment_between_others_is_named(small):
    count = segment_rows(0) + segment_rows(1) + 1
    writer = RowWriter(small.run.rows, TABLES["heartbeats"], 3)
    writer.extend({"time_ns": np.arange(count)})
    writer.close()
    (small.run.rows / "heartbeats.3.1.rows").unlink()
    with pytest.raises(HistoryUnreadable, match="heartbeats: segment 1 of client 3 is missing"):
        write_history(small.run)


def test_clients_are_as_planned_until_they_say_more(small):
    clients = small.history().partition_history(0)
    assert clients.client_role.tolist() == [
        Role.SENTINEL, Role.PRODUCER, Role.PRODUCER, Role.READER, Role.READER, Role.AUDIT, Role.AUDIT,
    ]  # fmt: skip
    none, dirty, clean = Isolation.NOT_A_READER, Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED
    assert clients.client_isolation.tolist() == [none, none, none, dirty, clean, dirty, clean]
    assert sorted(clients.client_acks[1:3].tolist()) == [-1, 1]
    assert clients.client_acks[[0, 3, 4, 5, 6]].tolist() == [0] * 5
    assert set(clients.client_issued.tolist()) == {NONE}


def test_only_a_client_that_closed_its_files_tells_what_it_issued(small):
    producer = {"role": Role.PRODUCER, "isolation": Isolation.NOT_A_READER, "issued": 12}
    small.write("clients", 1, [producer | {"complete": 1}])
    small.write("clients", 2, [producer | {"complete": 0}])
    small.write(
        "clients", 8, [{"role": Role.READER, "isolation": Isolation.READ_COMMITTED, "complete": 1, "issued": 3}]
    )
    small.write("clients", RECORDER_CLIENT, [{"complete": 1, "issued": 99}])
    facts = small.history().partition_history(0)
    assert facts.client_issued.tolist() == [NONE, 12, NONE, NONE, NONE, NONE, NONE, NONE, 3]
    assert facts.client_role[7:].tolist() == [0, Role.READER]
    assert len(facts.client_role) == 9


def test_the_latest_audit_and_the_greatest_log_start_count(small):
    audit, start = ObservationKind.AUDIT_COMPLETE, ObservationKind.LOG_START
    sentinels = [(1, 70), (1, 90), (2, 5)]
    small.write("reads", 5, [{"partition": p, "log_offset": o, "sender": SENTINEL_CLIENT} for p, o in sentinels])
    small.write(
        "observations",
        5,
        [
            {"time_ns": 30, "kind": audit, "partition": 1, "isolation": 0, "value": 70},
            {"time_ns": 20, "kind": audit, "partition": 1, "isolation": 0, "value": 90},
            {"time_ns": 40, "kind": audit, "partition": 2, "isolation": 1, "value": 5},
            {"time_ns": 41, "kind": start, "partition": 1, "value": 4},
            {"time_ns": 42, "kind": start, "partition": 1, "value": 2},
            {"time_ns": 43, "kind": ObservationKind.HIGH_WATERMARK, "partition": 1, "value": 99},
        ],
    )
    history = small.history()
    assert [dict(history.partition_history(p).audit_end) for p in range(4)] == [{}, {0: 70}, {1: 5}, {}]
    assert [history.partition_history(p).log_start for p in range(4)] == [0, 4, 0, 0]


@pytest.mark.parametrize(
    "shown",
    [
        {"log_offset": 70, "sender": 1, "client": 5},
        {"log_offset": 69, "sender": SENTINEL_CLIENT, "client": 5},
        {"log_offset": 70, "sender": SENTINEL_CLIENT, "client": 6},
        {"log_offset": 70, "sender": SENTINEL_CLIENT, "client": 5, "partition": 2},
    ],
    ids=["another record is there", "the sentinel is elsewhere", "somebody else read it", "in another partition"],
)
def test_an_audit_that_the_reads_do_not_show_is_not_complete(small, shown):
    audit = {"kind": ObservationKind.AUDIT_COMPLETE, "partition": 1, "isolation": 0, "value": 70, "time_ns": 30}
    small.write("observations", 5, [audit])
    client = shown.pop("client")
    small.write("reads", client, [{"partition": 1} | shown])
    partition = small.history().partition_history(1)
    assert dict(partition.audit_end) == {}
    assert pickle.loads(pickle.dumps(partition)).audit_end == {}


def test_compaction_is_known_from_the_plan(tmp_path):
    small = make_small(tmp_path / "run")
    plan = json.loads(small.run.plan.read_text())
    plan["cells"][1]["topic"]["cleanup_policy"] = "compact"
    small.run.plan.write_text(json.dumps(plan))
    history = small.history()
    assert [history.partition_history(p).compacted for p in range(4)] == [False, False, True, True]


def test_rows_of_a_partition_that_nobody_planned_are_still_there(small):
    small.write("reads", 3, [{"partition": 10**6, "log_offset": 10**12}, {"partition": NONE, "log_offset": 1}])
    history = small.history()
    assert history.partitions == (NONE, 0, 1, 2, 3, 10**6)
    assert history.partition_history(10**6).reads["log_offset"].tolist() == [10**12]


def test_a_kernel_cannot_change_the_evidence(small):
    small.send(1, [{"partition": 0, "sequence": 0}])
    history = small.history().partition_history(0)
    for array in (history.sends["sequence"], history.client_role, history.client_issued):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


ALWAYS = ["client", "sequence", "log_offset", "invoked_ns", "completed_ns"]


@pytest.mark.parametrize(("together_rows", "expected"), [(0, [["sequence"], ["key"]]), (3, [ALWAYS, ["key"]])])
def test_large_partitions_are_decoded_by_columns_and_those_that_all_need_at_once_unless_they_are_very_large(
    small, monkeypatch, together_rows, expected
):
    small.send(1, [{"partition": 0, "sequence": s, "key": 7} for s in range(3)])
    history = small.history()
    monkeypatch.setattr(parquet, "READ_WHOLE_ROWS", 1)
    monkeypatch.setattr(parquet, "READ_TOGETHER_ROWS", together_rows)
    asked = []
    read = history.files["sends"].read
    monkeypatch.setattr(
        history.files["sends"], "read", lambda columns, groups: asked.append(columns) or read(columns, groups)
    )
    sends = history.partition_history(0).sends
    assert sends["sequence"].tolist() == [0, 1, 2]
    assert sends["key"].tolist() == [7, 7, 7]
    assert sends["sequence"] is sends["sequence"]
    assert asked == expected
    with pytest.raises(KeyError):
        sends["no such column"]


# --- properties -----------------------------------------------------------------------------------------------------

_PARTITIONS = st.one_of(
    st.lists(st.integers(-1, 5), max_size=60),
    st.lists(st.sampled_from([0, 7, 2**20, 2**31 - 1, -(2**31)]), max_size=30),
)


@given(_PARTITIONS)
def test_clustering_is_a_stable_permutation(values):
    partition = np.array(values, dtype=np.int32)
    order, partitions, bounds = partition_order(partition)
    assert sorted(order.tolist()) == list(range(len(values)))
    assert partitions.tolist() == sorted(set(values))
    assert (bounds[0], bounds[-1]) == (0, len(values))
    for index, one in enumerate(partitions.tolist()):
        assert order[bounds[index] : bounds[index + 1]].tolist() == [n for n, v in enumerate(values) if v == one]


_VALUE = {"i8": st.integers(-(2**62), 2**62), "i4": st.integers(-(2**31), 2**31 - 1)}


def _row(table: str) -> st.SearchStrategy[dict[str, int]]:
    columns = {
        c.name: st.one_of(_VALUE[c.kind], st.just(MISSING)) if c.unit == "ns" else _VALUE[c.kind]
        for c in TABLES[table].columns
    }
    return st.fixed_dictionaries(columns | {"partition": st.integers(-1, 4)})


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.lists(_row("sends"), max_size=8), max_size=3),
    st.lists(_row("reads"), max_size=8),
)
def test_what_was_written_is_what_is_read(tmp_path_factory, sends, reads):
    small = make_small(tmp_path_factory.mktemp("run") / "run")
    for client, rows in sends.items():
        small.write("sends", client, rows)
    small.write("reads", 4, reads)
    history = small.history()
    in_sequence = {c: sorted(rows, key=lambda row: row["sequence"]) for c, rows in sends.items()}
    written = {
        "sends": [(c, row) for c in sorted(sends) for row in in_sequence[c]],
        "reads": [(4, row) for row in reads],
    }
    seen = {"sends": 0, "reads": 0}
    for partition in history.partitions:
        arrays = history.partition_history(partition)
        for table, columns in (("sends", arrays.sends), ("reads", arrays.reads)):
            expected = [(c, row) for c, row in written[table] if row["partition"] == partition]
            assert columns["client"].tolist() == [c for c, _ in expected]
            for column in TABLES[table].columns:
                shift = START_NS if column.unit == "ns" else 0
                values = [row[column.name] for _, row in expected]
                assert columns[column.name].tolist() == [v if v == MISSING else v - shift for v in values]
            seen[table] += len(expected)
    assert seen == {table: len(rows) for table, rows in written.items()}


def test_sends_are_in_sequence_even_where_their_client_told_of_them_segments_later(tmp_path):
    small = make_small(tmp_path / "run")
    told = 2 * FIRST_SEGMENT_ROWS
    late = 7  # of the first segment's sequences, reported at the very end
    sequences = [*(n for n in range(told) if n != late), late]
    template = {c.name: 1 for c in TABLES["sends"].columns} | {"partition": 0}
    small.write("sends", 3, [template | {"sequence": n} for n in sequences])
    small.write("sends", 4, [template | {"sequence": n} for n in range(5)])
    columns = small.history().partition_history(0).sends
    assert columns["client"].tolist() == [3] * told + [4] * 5
    assert columns["sequence"].tolist() == [*range(told), *range(5)]
