"""The decoder of consumer groups in `__consumer_offsets`, against a log of a real cluster and what Kafka's decoder says."""

import gzip
import json

import pytest

from prozess.clusters.files.group_log import COLUMNS, read_group_log
from prozess.clusters.files.log_directories import parse_uuid
from prozess.clusters.protocol.client import string
from prozess.harness.schema import NONE, GroupRecord
from tests.support.metadata_logs import keyed_batch as batch
from tests.support.metadata_logs import put, unzipped
from tests.support.paths import DATA

TOPIC = "__consumer_offsets"
CASES = {3: (GroupRecord.GROUP_EPOCH, "epoch"), 6: (GroupRecord.TARGET_EPOCH, "assignmentEpoch")}


def read(directory):
    problems = []
    return list(read_group_log({1: directory}, on_problem=problems.append)), problems


def rows(log):
    values = zip(*(log.columns[name].tolist() for name in COLUMNS), strict=True)
    return [(*row, *more) for row, *more in zip(values, log.groups, log.members, log.partitions, strict=True)]


def dumped():
    for line in gzip.decompress((DATA / "groups-4.4.0.dump.jsonl.gz").read_bytes()).decode().splitlines():
        row = json.loads(line)
        group, member, value = row["key"]["groupId"], row["key"].get("memberId", ""), row["value"]
        at = (row["offset"], row["time_ms"], row["leader_epoch"])
        if row["type"] in CASES:
            kind, name = CASES[row["type"]]
            yield (*at, kind, value[name], group, "", None)
        elif value is None:
            yield (*at, GroupRecord.MEMBER_GONE, NONE, group, member, None)
        else:
            epoch = value["memberEpoch"]
            yield (*at, GroupRecord.MEMBER, epoch, group, member, None)
            for kind, name in (
                (GroupRecord.OWNED, "assignedPartitions"),
                (GroupRecord.RELEASING, "partitionsPendingRevocation"),
            ):
                for topic in value[name]:
                    for number in topic["partitions"]:
                        yield (*at, kind, epoch, group, member, (parse_uuid(topic["topicId"]), number))


def test_every_record_is_what_kafkas_own_decoder_says(tmp_path):
    (log,), problems = read(put(TOPIC, tmp_path, 1, unzipped("groups-4.4.0.log.gz")))
    assert (problems, log.number) == ([], 1)
    expected = list(dumped())
    assert {GroupRecord.RELEASING, GroupRecord.MEMBER_GONE} <= {row[3] for row in expected}
    assert rows(log) == expected


def key(kind, *names):
    return kind.to_bytes(2, "big") + b"".join(map(string, names))


def epoch(value, version=0):
    return version.to_bytes(2, "big") + value.to_bytes(4, "big", signed=True) + b"\0"


def assignment(value, *, end=b"\0"):
    """A member without partitions."""
    numbers = value.to_bytes(4, "big", signed=True) * 2 + b"\0"
    return b"\0\0" + numbers + b"\1\1" + end


def test_commits_and_groups_of_other_protocols_are_passed_over(tmp_path):
    records = [(key(kind, "g"), b"?") for kind in (0, 1, 2, 10, 14)]
    (log,), problems = read(put(TOPIC, tmp_path, 0, batch(0, *records, (key(3, "g"), epoch(7)))))
    assert problems == []
    assert rows(log) == [(5, 5_000, 0, GroupRecord.GROUP_EPOCH, 7, "g", "", None)]


def test_what_is_gone_has_a_row_and_no_epoch(tmp_path):
    records = [(key(3, "g"), None), (key(6, "g"), None), (key(8, "g", "m"), None), (key(8, "g", "m"), assignment(-2))]
    (log,), problems = read(put(TOPIC, tmp_path, 0, batch(0, *records)))
    assert problems == []
    assert [row[3:7] for row in rows(log)] == [
        (GroupRecord.GROUP_GONE, NONE, "g", ""),
        (GroupRecord.MEMBER_GONE, NONE, "g", "m"),
        (GroupRecord.MEMBER, -2, "g", "m"),
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(0, (key(3, "g"), epoch(1, version=1))), "has a value of version 1 of the key 3, while 0 is known"),
        (
            batch(0, (key(8, "g", "m"), assignment(1, end=b"\0?"))),
            "has an assignment of 15 bytes, of which 14 are explained",
        ),
        (batch(0, (None, epoch(1))), "has a record without a key"),
        (batch(3, (key(3, "g"), epoch(1))), "was compacted: it does not say what came before"),
        (batch(0, (key(3, "g"), epoch(1))) + batch(2, (key(3, "g"), epoch(2))), "was compacted"),
    ],
)
def test_a_log_that_is_not_understood_or_not_whole_is_left_out_and_named(tmp_path, data, why):
    put(TOPIC, tmp_path, 1, batch(0, (key(3, "h"), epoch(1))))
    logs, (problem,) = read(put(TOPIC, tmp_path, 0, data))
    assert [log.number for log in logs] == [1]
    assert "__consumer_offsets-0" in problem
    assert why in problem
