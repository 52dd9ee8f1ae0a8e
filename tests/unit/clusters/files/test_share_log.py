"""The decoder of `__share_group_state`, against a log of a real cluster and what Kafka's own decoder says of it."""

import gzip
import json
from uuid import UUID

import pytest

from prozess.clusters.files.log_directories import parse_uuid
from prozess.clusters.files.share_log import COLUMNS, TOPIC, read_share_log
from prozess.clusters.protocol.client import string
from prozess.harness.schema import NONE, ShareRecord
from tests.support.metadata_logs import keyed_batch as batch
from tests.support.metadata_logs import put, unzipped
from tests.support.paths import DATA

KINDS = {0: ShareRecord.SNAPSHOT, 1: ShareRecord.UPDATE}


def read(directory):
    problems = []
    return list(read_share_log({1: directory}, on_problem=problems.append)), problems


def rows(log):
    values = zip(*(log.columns[name].tolist() for name in COLUMNS), strict=True)
    return [(*row, *more) for row, *more in zip(values, log.groups, log.partitions, strict=True)]


def dumped():
    for line in gzip.decompress((DATA / "share-4.4.0.dump.jsonl.gz").read_bytes()).decode().splitlines():
        row = json.loads(line)
        value, key = row["value"], row["key"]
        at, whose = (
            (row["offset"], row["time_ms"], row["leader_epoch"]),
            (
                key["groupId"],
                (parse_uuid(key["topicId"]), key["partition"]),
            ),
        )
        leader = value["leaderEpoch"]
        start = (value.get("stateEpoch", NONE), leader, value["startOffset"], NONE, NONE, NONE)
        yield (*at, KINDS[row["type"]], *start, *whose)
        for one in value["stateBatches"]:
            names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
            yield (*at, ShareRecord.RANGE, NONE, leader, *(one[name] for name in names), *whose)


def test_every_record_is_what_kafkas_own_decoder_says(tmp_path):
    (log,), problems = read(put(TOPIC, tmp_path, 0, unzipped("share-4.4.0.log.gz")))
    assert (problems, log.number) == ([], 0)
    expected = list(dumped())
    assert {row[3] for row in expected} == {ShareRecord.SNAPSHOT, ShareRecord.UPDATE, ShareRecord.RANGE}
    assert rows(log) == expected


def key(kind=1, group="g", number=2):
    return kind.to_bytes(2, "big") + string(group) + UUID(int=7).bytes + number.to_bytes(4, "big")


def update(version=0, end=b"\0"):
    return version.to_bytes(2, "big") + bytes(4) + (3).to_bytes(4, "big") + (9).to_bytes(8, "big") + b"\1" + end


def test_what_is_gone_has_a_row_without_anything(tmp_path):
    (log,), problems = read(put(TOPIC, tmp_path, 0, batch(0, (key(), update()), (key(), None))))
    assert problems == []
    kept, gone = rows(log)
    assert kept[3:7] == (ShareRecord.UPDATE, NONE, 3, 9)
    assert gone[3:] == (ShareRecord.GONE, *[NONE] * 6, "g", (UUID(int=7), 2))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(0, (key(kind=2), update())), "has a key of the kind 2, while 0 and 1 are known"),
        (batch(0, (key(), update(version=1))), "has a value of version 1 of the key 1, while 0 is known"),
        (batch(0, (key(), update(end=b"\0?"))), "has a value of 21 bytes, of which 20 are explained"),
        (batch(0, (None, update())), "has a record without a key"),
        (batch(3, (key(), update())), "lacks records: it does not say what came before"),
    ],
)
def test_a_log_that_is_not_understood_or_not_whole_is_left_out_and_named(tmp_path, data, why):
    put(TOPIC, tmp_path, 1, batch(0, (key(), update())))
    logs, (problem,) = read(put(TOPIC, tmp_path, 0, data))
    assert [log.number for log in logs] == [1]
    assert "__share_group_state-0" in problem
    assert why in problem
