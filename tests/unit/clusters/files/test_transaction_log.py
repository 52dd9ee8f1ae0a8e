"""The decoder of the transaction log, against logs of real clusters and what Kafka's own decoder says of them."""

import gzip
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.transaction_log import COLUMNS, read_transaction_log
from prozess.clusters.protocol.client import compact_string, string, unsigned_varint
from prozess.harness.schema import TransactionState
from tests.support.metadata_logs import keyed_batch as batch
from tests.support.metadata_logs import put, unzipped
from tests.support.paths import DATA

TOPIC = "__transaction_state"
STATES = {
    "Empty": TransactionState.EMPTY,
    "Ongoing": TransactionState.ONGOING,
    "PrepareCommit": TransactionState.PREPARE_COMMIT,
    "PrepareAbort": TransactionState.PREPARE_ABORT,
    "CompleteCommit": TransactionState.COMPLETE_COMMIT,
    "CompleteAbort": TransactionState.COMPLETE_ABORT,
}


def dumped(name):
    lines = gzip.decompress((DATA / f"{name}.dump.jsonl.gz").read_bytes()).decode().splitlines()
    for row in map(json.loads, lines):
        value = row["value"]
        yield (
            *(row["offset"], row["time_ms"], value["producerId"], row["leader_epoch"]),
            *(STATES[value["transactionStatus"]], value["producerEpoch"]),
            sum(len(topic["partitionIds"]) for topic in value["transactionPartitions"] or ()),
            value.get("clientTransactionVersion", 0),
            row["key"]["transactionalId"],
        )


def read(*directories):
    problems = []
    logs = list(read_transaction_log(dict(enumerate(directories)), on_problem=problems.append))
    return logs, problems


def rows(log):
    return list(zip(*(log.columns[name].tolist() for name in COLUMNS), log.ids, strict=True))


@pytest.mark.parametrize("name", ["transactions-3.9.2", "transactions-4.4.0"])
def test_every_record_is_what_kafkas_own_decoder_says(tmp_path, name):
    (log,), problems = read(put(TOPIC, tmp_path, 2, unzipped(f"{name}.log.gz")))
    assert (problems, log.number) == ([], 2)
    expected = list(dumped(name))
    assert len(expected) == 400
    assert rows(log) == expected


def key(name, version=0):
    return version.to_bytes(2, "big") + string(name)


def value(state, *, version=0, epoch=3, topics=(("t", (0, 1)),), tags=b"\0"):
    many, text, end = (unsigned_varint, compact_string, b"\0") if version else (_int32, string, b"")
    one = 1 if version else 0
    of_topics = b"".join(
        text(name) + many(len(numbers) + one) + b"".join(map(_int32, numbers)) + end for name, numbers in topics
    )
    numbers = (7).to_bytes(8, "big") + epoch.to_bytes(2, "big") + _int32(60_000) + bytes([state])
    times = (1).to_bytes(8, "big") * 2
    made = version.to_bytes(2, "big") + numbers + many(len(topics) + one) + of_topics + times
    return made + (tags if version else b"")


def _int32(number):
    return number.to_bytes(4, "big", signed=True)


ONGOING = value(TransactionState.ONGOING)


def test_a_record_without_a_value_forgets_its_id_and_keys_of_another_kind_are_passed_over(tmp_path):
    data = batch(0, (key("a"), ONGOING), (key("b", 1), b"?"), (key("a"), None))
    (log,), problems = read(put(TOPIC, tmp_path, 0, data))
    assert problems == []
    assert log.ids == ("a", "a")
    assert log.columns["log_offset"].tolist() == [0, 2]
    assert log.columns["state"].tolist() == [TransactionState.ONGOING, TransactionState.FORGOTTEN]
    assert log.columns["producer_id"].tolist() == [7, -1]


def test_the_copy_of_the_last_leader_epoch_is_read_and_of_its_copies_the_longest(tmp_path):
    old = put(TOPIC, tmp_path / "1", 0, batch(0, *[(key("a"), ONGOING)] * 5))
    short = put(
        "__transaction_state", tmp_path / "2", 0, batch(0, (key("a"), ONGOING)) + batch(1, (key("b"), ONGOING), epoch=1)
    )
    longer = put(
        TOPIC,
        tmp_path / "3",
        0,
        batch(0, (key("a"), ONGOING)) + batch(1, (key("b"), ONGOING), (key("c"), ONGOING), epoch=1),
    )
    assert [log.ids for log in read(old, short)[0]] == [("a", "b")]
    assert [log.ids for log in read(longer, old, short)[0]] == [("a", "b", "c")]
    empty = put(TOPIC, tmp_path / "4", 0, b"")
    assert [log.ids for log in read(empty, short)[0]] == [("a", "b")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(0, (key("a"), value(9))), "has a transaction in the state 9"),
        (batch(0, (key("a"), ONGOING + b"\0")), "has a value of 53 bytes, of which version 0 explains 52"),
        (batch(0, (key("a"), ONGOING[:-1])), "ends at byte 51 inside a value"),
        (batch(0, (key("a"), b"\0\2" + ONGOING)), "has a value of version 2, while 0 and 1 are known"),
        (batch(0, (None, ONGOING)), "has a record without a key"),
    ],
)
def test_a_log_that_is_not_understood_is_left_out_and_named(tmp_path, data, why):
    put(TOPIC, tmp_path, 1, batch(0, (key("b"), ONGOING)))
    logs, (problem,) = read(put(TOPIC, tmp_path, 0, data))
    assert [log.number for log in logs] == [1]
    assert "__transaction_state-0/00000000000000000000.log" in problem
    assert why in problem


def test_a_torn_end_is_no_problem_and_a_torn_middle_is(tmp_path):
    whole = batch(0, (key("a"), ONGOING))
    (log,), problems = read(put(TOPIC, tmp_path / "end", 0, whole + whole[:30]))
    assert (log.ids, problems) == (("a",), [])
    middle = put(
        "__transaction_state",
        tmp_path / "middle",
        0,
        whole + whole[:30],
        batch(9, (key("a"), ONGOING)),
        first_offsets=(0, 9),
    )
    logs, (problem,) = read(middle)
    assert logs == []
    assert "is torn at" in problem


def test_what_cannot_be_read_is_named(tmp_path):
    put(TOPIC, tmp_path, 0, batch(0, (key("a"), ONGOING)))
    shutil.rmtree(tmp_path / "__transaction_state-0")
    (tmp_path / "__transaction_state-0").mkdir()
    (tmp_path / "__transaction_state-0" / f"{0:020d}.log").mkdir()
    logs, (problem,) = read(tmp_path)
    assert logs == []
    assert "__transaction_state-0" in problem


@given(
    st.integers(0, 1),
    st.sampled_from(sorted(STATES.values())),
    st.integers(0, 2**15 - 1),
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=200), st.lists(st.integers(0, 9), max_size=3)), max_size=200),
)
def test_what_is_written_is_read(tmp_path_factory, version, state, epoch, topics):
    version_of_client = unsigned_varint(1) + unsigned_varint(2) + unsigned_varint(2) + b"\0\2"
    made = value(state, version=version, epoch=epoch, topics=topics, tags=version_of_client)
    (log,), problems = read(put(TOPIC, tmp_path_factory.mktemp("log"), 0, batch(4, (key("ü"), made), epoch=6)))
    assert problems == []
    count = sum(len(numbers) for _, numbers in topics)
    assert rows(log) == [(4, 5_000, 7, 6, state, epoch, count, 2 * version, "ü")]
    assert all(values.dtype == np.int64 for values in log.columns.values())
