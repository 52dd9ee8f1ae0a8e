"""The lines of verifiable clients: what is an event, and what is none."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.recording.verifiable_output import (
    EventLines,
    EventPartition,
    event_partition,
    event_partitions,
    expired_partition,
    foreign_identities,
    foreign_identity,
    parse_event,
    sequence_of,
)
from prozess.harness.schema import NONE
from prozess.workloads.record.identity import decode, decode_foreign, encoder

UNHURRIED = settings(deadline=None)
EVENTS = [
    {"timestamp": 1, "name": "startup_complete"},
    {"name": "producer_send_success", "key": None, "value": "3.5", "topic": "t", "partition": 0, "offset": 5},
    {"name": "shutdown_complete"},
]
OUTPUT = b"DEPRECATED: use --command-config\n" + b"".join(json.dumps(e).encode() + b"\n" for e in EVENTS) + b"{torn"


@UNHURRIED
@given(st.lists(st.integers(0, len(OUTPUT)), max_size=8))
def test_events_are_the_same_however_the_pipe_cuts_them(cuts):
    lines, found = EventLines(), []
    bounds = [0, *sorted(cuts), len(OUTPUT)]
    for low, high in pairwise(bounds):
        found += lines.feed(OUTPUT[low:high])
    assert found == EVENTS
    assert (lines.strange, lines.torn) == (1, 0)
    assert list(lines.end()) == []
    assert (lines.strange, lines.torn, lines.first_torn) == (2, 1, "{torn")


@UNHURRIED
@given(st.binary(max_size=200))
def test_garbage_is_no_event_and_never_an_error(line):
    event = parse_event(line)
    assert event is None or isinstance(event["name"], str)


@UNHURRIED
@given(
    st.lists(st.sampled_from([*(json.dumps(e).encode() for e in EVENTS), b"notice", b"{torn", b"", b"{}"])),
    st.booleans(),
)
def test_whole_lines_are_events_torn_ones_are_counted_and_notices_are_not(lines, ended):
    reader = EventLines()
    found = [*reader.feed(b"\n".join(lines) + b"\n" * ended), *reader.end()]
    assert found == [event for line in lines if (event := parse_event(line)) is not None]
    assert reader.torn == lines.count(b"{torn")
    assert reader.strange == sum(line in (b"notice", b"{torn", b"{}") for line in lines)


@UNHURRIED
@given(st.lists(st.binary(max_size=50), max_size=20))
def test_whatever_comes_out_of_a_pipe_ends_as_events_or_is_counted(chunks):
    reader = EventLines()
    found = [event for chunk in chunks for event in reader.feed(chunk)] + list(reader.end())
    lines = [line for line in b"".join(chunks).split(b"\n") if line.strip()]
    assert len(found) + reader.strange == len(lines)
    assert reader.torn <= reader.strange


@UNHURRIED
@given(st.integers(0, len(json.dumps(EVENTS[1]))))
def test_a_last_line_that_was_cut_is_torn_unless_it_is_whole(length):
    line = json.dumps(EVENTS[1]).encode()
    reader = EventLines()
    found = [*reader.feed(line[:length]), *reader.end()]
    assert (found, reader.torn) == (([EVENTS[1]], 0) if length == len(line) else ([], int(length > 0)))


@pytest.mark.parametrize("line", [b"", b"[1]", b"{}", b'{"name": 1}', b'{"name": "x"', b"null", b"{" * 100_000])
def test_what_looks_like_an_event_and_is_none(line):
    assert parse_event(line) is None


def test_places_are_read_and_wrong_ones_left_out():
    entries = [{"topic": "t", "partition": 1, "offset": 7}, {"topic": "t"}, {"topic": "t", "partition": True}, 5]
    assert event_partitions({"offsets": entries}, "offsets") == [EventPartition("t", 1, 7)]
    assert event_partitions({"offsets": "none"}, "offsets") == []
    assert event_partition({"topic": "t", "partition": 0}) == EventPartition("t", 0, NONE)


@pytest.mark.parametrize(
    "value", ["", "7", ".7", "3.", "3.x", "-3.7", "3.7.1", "٣.7", " 3.7", "3.7\0", None, 3.7, "9" * 30 + ".1"]
)
def test_a_value_of_another_form_has_no_foreign_identity(value):
    assert foreign_identity(value) == (NONE, NONE)
    if isinstance(value, str):
        sender, sequence = foreign_identities([value.encode()])
        assert (sender[0], sequence[0]) == (NONE, NONE)


def test_a_value_with_another_prefix_is_of_another_client():
    assert sequence_of("3.7", prefix=3) == 7
    assert sequence_of("3.7", prefix=4) is None


@UNHURRIED
@given(
    st.lists(
        st.one_of(st.none(), st.binary(max_size=12), st.tuples(st.integers(0, 10**9 - 1), st.integers(0, 10**12 - 1)))
    )
)
def test_a_batch_of_identities_is_what_each_is_alone(items):
    values = [f"{i[0]}.{i[1]}".encode() if isinstance(i, tuple) else i for i in items]
    sender, sequence = foreign_identities(values)
    alone = [foreign_identity(v.decode("latin-1") if v is not None else None) for v in values]
    assert list(zip(sender.tolist(), sequence.tolist(), strict=True)) == alone


def test_only_topics_that_declare_it_carry_foreign_identities():
    ours = encoder(sender=1, value_bytes=64)(4, 9)
    values = [ours, b"3.7", b"3.7", b"garbage"]
    found = decode_foreign(values, decode(values), np.array([True, True, False, True]))
    assert found.sender.tolist() == [1, 3, NONE, NONE]
    assert found.sequence.tolist() == [9, 7, NONE, NONE]
    assert found.sent_partition.tolist() == [4, NONE, NONE, NONE]
    assert found.flags.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Expiring 1 record(s) for cell-000-3:3000 ms has passed since batch creation", EventPartition("cell-000", 3)),
        ("Expiring 2 record(s) for a.b_c-10:120012 ms has passed since batch creation", EventPartition("a.b_c", 10)),
        ("Expiring 2 record(s) for t-0:30 ms has passed since last append", None),
        ("Topic t not present in metadata after 60000 ms.", None),
        (7, None),
    ],
)
def test_an_error_names_its_partition_where_a_batch_expired(message, expected):
    assert expired_partition({"message": message}) == expected
    assert expired_partition({}) is None
