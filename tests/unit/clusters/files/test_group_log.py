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
CLASSIC = 2
GONE = {CLASSIC: GroupRecord.CLASSIC_GONE, 3: GroupRecord.GROUP_GONE, 8: GroupRecord.MEMBER_GONE}
CASES = {3: (GroupRecord.GROUP_EPOCH, "epoch"), 6: (GroupRecord.TARGET_EPOCH, "assignmentEpoch")}


def read(directory):
    problems = []
    return list(read_group_log({1: directory}, on_problem=problems.append)), problems


def rows(log):
    values = zip(*(log.columns[name].tolist() for name in COLUMNS), strict=True)
    named = zip(log.groups, log.members, log.partitions, log.names, strict=True)
    return [(*row, *more) for row, more in zip(values, named, strict=True)]


def dumped_classic(group, value):
    epoch = value["generation"]
    yield GroupRecord.CLASSIC, epoch, group, value["leader"] or "", None, value["protocolType"]
    if value["protocol"] is not None:
        yield GroupRecord.CLASSIC_PROTOCOL, epoch, group, "", None, value["protocol"]
    for one in value["members"]:
        yield GroupRecord.CLASSIC_MEMBER, epoch, group, one["memberId"], None, one["groupInstanceId"] or ""


def dumped(name):
    for line in gzip.decompress((DATA / f"{name}.dump.jsonl.gz").read_bytes()).decode().splitlines():
        row = json.loads(line)
        member, value = row["key"].get("memberId", ""), row["value"]
        group = row["key"].get("groupId") or row["key"]["group"]
        at = (row["offset"], row["time_ms"], row["leader_epoch"])
        if value is None:
            if row["type"] in GONE:
                yield (*at, GONE[row["type"]], NONE, group, member, None, "")
        elif row["type"] == CLASSIC:
            yield from ((*at, *one) for one in dumped_classic(group, value))
        elif row["type"] in CASES:
            kind, name = CASES[row["type"]]
            yield (*at, kind, value[name], group, "", None, "")
        else:
            epoch = value["memberEpoch"]
            yield (*at, GroupRecord.MEMBER, epoch, group, member, None, "")
            for kind, name in (
                (GroupRecord.OWNED, "assignedPartitions"),
                (GroupRecord.RELEASING, "partitionsPendingRevocation"),
            ):
                for topic in value[name]:
                    for number in topic["partitions"]:
                        yield (*at, kind, epoch, group, member, (parse_uuid(topic["topicId"]), number), "")


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("groups-4.4.0", {GroupRecord.RELEASING, GroupRecord.MEMBER_GONE, GroupRecord.CLASSIC_PROTOCOL}),
        ("migrations-4.4.0", {GroupRecord.GROUP_GONE, GroupRecord.CLASSIC_GONE, GroupRecord.MEMBER_GONE}),
        ("classic-3.9.2", {GroupRecord.CLASSIC, GroupRecord.CLASSIC_PROTOCOL, GroupRecord.CLASSIC_MEMBER}),
    ],
)
def test_every_record_is_what_kafkas_own_decoder_says(tmp_path, name, kinds):
    (log,), problems = read(put(TOPIC, tmp_path, 1, unzipped(f"{name}.log.gz")))
    assert (problems, log.number) == ([], 1)
    expected = list(dumped(name))
    assert kinds <= {row[3] for row in expected}
    assert rows(log) == expected


def test_a_static_member_came_back_under_another_id_in_the_same_generation(tmp_path):
    """The real case that a rule permits: `prozess.checkers.metadata.kip_345`."""
    (log,), _ = read(put(TOPIC, tmp_path, 1, unzipped("classic-3.9.2.log.gz")))
    ids = dict[tuple[int, str], set[str]]()
    for *_, kind, epoch, _, member, _, instance in rows(log):
        if kind == GroupRecord.CLASSIC_MEMBER and instance:
            ids.setdefault((epoch, instance), set()).add(member)
    assert max(map(len, ids.values())) == 2


def key(kind, *names):
    return kind.to_bytes(2, "big") + b"".join(map(string, names))


def epoch(value, version=0):
    return version.to_bytes(2, "big") + value.to_bytes(4, "big", signed=True) + b"\0"


def assignment(value, *, end=b"\0"):
    """A member without partitions."""
    numbers = value.to_bytes(4, "big", signed=True) * 2 + b"\0"
    return b"\0\0" + numbers + b"\1\1" + end


def generation(number, *members, version=3, end=b""):
    """A record of a classic group."""
    head = version.to_bytes(2, "big") + string("consumer") + number.to_bytes(4, "big") + string("range") + string("m")
    parts = [string(member) + string("i") + string("c") + string("/h") + bytes(8) + bytes(8) for member in members]
    return head + bytes(8) + len(parts).to_bytes(4, "big") + b"".join(parts) + end


def test_commits_and_groups_of_other_protocols_are_passed_over(tmp_path):
    records = [(key(kind, "g"), b"?") for kind in (0, 1, 10, 14)]
    (log,), problems = read(put(TOPIC, tmp_path, 0, batch(0, *records, (key(3, "g"), epoch(7)))))
    assert problems == []
    assert rows(log) == [(4, 5_000, 0, GroupRecord.GROUP_EPOCH, 7, "g", "", None, "")]


def test_a_classic_group_has_a_row_and_one_for_its_protocol_and_each_member(tmp_path):
    records = [(key(CLASSIC, "g"), generation(7, "m", "n")), (key(CLASSIC, "g"), None)]
    (log,), problems = read(put(TOPIC, tmp_path, 0, batch(0, *records)))
    assert problems == []
    assert [(row[0], *row[3:]) for row in rows(log)] == [
        (0, GroupRecord.CLASSIC, 7, "g", "m", None, "consumer"),
        (0, GroupRecord.CLASSIC_PROTOCOL, 7, "g", "", None, "range"),
        (0, GroupRecord.CLASSIC_MEMBER, 7, "g", "m", None, "i"),
        (0, GroupRecord.CLASSIC_MEMBER, 7, "g", "n", None, "i"),
        (1, GroupRecord.CLASSIC_GONE, NONE, "g", "", None, ""),
    ]


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
        (
            batch(0, (key(CLASSIC, "g"), generation(1, version=2))),
            "has a value of version 2 of the key 2, while 3 is known",
        ),
        (
            batch(0, (key(CLASSIC, "g"), generation(1, "m", end=b"?"))),
            "has a group of 68 bytes, of which 67 are explained",
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
