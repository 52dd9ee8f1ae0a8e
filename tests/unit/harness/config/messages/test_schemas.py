"""Bodies of messages are read and written by Kafka's schemas; kio's own reader and writer are the second opinion."""

import random
from io import BytesIO
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio import serial
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from prozess.harness.config.messages import names, schemas
from prozess.harness.config.messages.schemas import Reader, UnreadableMessage

CODES = sorted(int(code) for code in ErrorCode)
EVERY = [
    (key, version, answer)
    for key, name in api_key_map.items()
    for version, parts in schema_name_map[name].items()
    for answer in (False, True)
    if (EntityType.response if answer else EntityType.request) in parts
]


def some(member, rng):
    """A value that the field may have."""
    match member.kind:
        case "":
            return body_of(member.structure, rng)
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return 0.25
        case "error_code":
            return rng.choice(CODES)
        case "string":
            return "é" * rng.randrange(5)
        case "bytes" | "records":
            return rng.randbytes(rng.randrange(300))
        case "uuid":
            return UUID(int=rng.getrandbits(128))
        case "int8":
            return rng.randrange(-128, 128)
        case "int16" | "uint16":
            return rng.randrange(1 << 15)
        case kind:
            return rng.randrange(1 << (31 if "32" in kind else 40))


def body_of(shape, rng):
    """A body of this shape."""
    found = {}
    for member in shape.members:
        if member.array:
            found[member.name] = [some(member, rng) for _ in range(rng.randrange(3))]
        elif member.nullable and member.kind in ("", "string", "bytes", "records", "uuid") and rng.random() < 0.3:
            found[member.name] = None
        else:
            found[member.name] = some(member, rng)
    return found


SOME = [
    (key, version, answer)
    for key, version, answer in EVERY
    if version in (min(schema_name_map[api_key_map[key]]), max(schema_name_map[api_key_map[key]]))
]
"""The oldest and the newest version of each. Importing all of them takes longer than all else here."""


@pytest.mark.parametrize("key", sorted(api_key_map), ids=lambda key: names.api_name(key))
def test_what_is_written_is_read_again_and_is_the_same_to_kio_to_the_last_byte(key):
    rng = random.Random(key)
    for api, version, answer in SOME:
        if api != key:
            continue
        shape = schemas.structure(api, version, answer=answer)
        body = body_of(shape, rng)
        data = schemas.write(shape, body)
        reader = Reader(data)
        assert schemas.read(shape, reader) == body
        assert reader.left() == 0
        part = EntityType.response if answer else EntityType.request
        module, _, name = schema_name_map[api_key_map[api]][version][part].partition(":")
        kind = getattr(__import__(module, fromlist=[name]), name)
        value, size = serial.entity_reader(kind)(data, 0)
        written = BytesIO()
        serial.entity_writer(kind)(written, value)
        assert (size, written.getvalue()) == (len(data), data)


@given(st.sampled_from(SOME), st.binary(max_size=200))
def test_garbage_is_unreadable_and_never_anything_worse(which, data):
    api, version, answer = which
    shape = schemas.structure(api, version, answer=answer)
    try:
        found = schemas.read(shape, Reader(data))
    except UnreadableMessage:
        return
    assert set(found) == {member.name for member in shape.members}


def test_an_array_that_claims_more_than_there_is_costs_no_memory():
    claim = b"\x00" + schemas.varint(1 << 34) + b"\x00" * 8
    with pytest.raises(UnreadableMessage):
        schemas.read(schemas.structure(3, 12, answer=False), Reader(claim))


def test_a_version_without_a_schema_is_unreadable():
    with pytest.raises(UnreadableMessage, match="no schema of API 0 in version 99"):
        schemas.structure(0, 99, answer=False)


def test_headers_are_read_as_they_are_written():
    body = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 2, "committed": True}
    data = schemas.request(26, 4, 11, "me", body)[4:]
    head = schemas.request_head(data)
    assert (head.api, head.version, head.correlation, head.client) == (26, 4, 11, "me")
    assert schemas.request_body(data, head) == body
    told = schemas.answer(26, 4, 11, {"throttle_time": 0, "error_code": 90})[4:]
    assert schemas.answer_body(told, 26, 4) == {"throttle_time": 0, "error_code": 90}
    with pytest.raises(UnreadableMessage, match="its header alone has 10"):
        schemas.request_head(b"\0\0")


def test_names_are_kafkas_and_the_nearest_is_offered():
    assert names.api_names()[26] == "EndTxn"
    assert names.api_keys()["UpdateMetadata"] == 6
    assert names.error_codes()["NOT_LEADER_OR_FOLLOWER"] == 6
    assert names.error_name(6) == "NOT_LEADER_OR_FOLLOWER"
    assert (names.error_name(9999), names.api_name(9999)) == ("error 9999", "API 9999")
    with pytest.raises(ValueError, match=r"'Prduce' is not an API of Kafka; the nearest: Produce"):
        names.known("Prduce", names.api_keys(), "an API")
