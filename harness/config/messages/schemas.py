"""Reads and writes the bodies of Kafka's messages by Kafka's own schemas.

The schemas are those of the package kio, which are made from Kafka's. What walks along them is here, in Python: kio's own
decoder believes the length of an array, and ends the process over a dozen bytes of garbage, while a proxy must pass on
whatever comes. A body becomes a dictionary: field → number, text, bytes, UUID, None, a dictionary, or a list of these.
Times are the numbers that are sent.
"""

import struct
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin
from uuid import UUID

Value: TypeAlias = Any
"""What a field has: a number, text, bytes, a UUID, None, a structure, or a list of these."""
Body = dict[str, Value]
"""The fields of a message, or of a structure in it."""

_NUMBERS = {
    "int8": "b", "bool": "?", "int16": "h", "error_code": "h", "uint16": "H", "int32": "i", "timedelta_i32": "i",
    "int64": "q", "timedelta_i64": "q", "datetime_i64": "q", "float64": "d",
}  # fmt: skip
_LAYOUTS = {kind: struct.Struct(">" + code) for kind, code in _NUMBERS.items()}
_NONE_OF = {"datetime_i64": -1, "timedelta_i64": -1, "timedelta_i32": -1}
"""Numbers that kio shows as None are sent as these."""
_OLD_NAMES = "v3_and_below_"
"""AddPartitionsToTxn has such names for the fields of its older versions."""
_ZERO_ID = UUID(int=0)
VARINT_BITS_MAX = 35
TAGS_MAX = 1000


class UnreadableMessage(ValueError):
    """Says that the bytes are not what the schema says, or that there is no schema for them."""


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a structure. `kind`: a number's, "string", "bytes", "records", "uuid", or "" where it is a structure."""

    name: str
    kind: str
    structure: "Structure | None"
    array: bool
    nullable: bool
    tag: int | None
    default: Value
    layout: struct.Struct | None
    """The schema of a plain number, or None."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A message or a part of it, as its schema has it. `flexible`: it ends with tagged fields (KIP-482)."""

    name: str
    flexible: bool
    plain: tuple[Member, ...]
    tagged: tuple[Member, ...]
    header_version: int

    @property
    def members(self) -> tuple[Member, ...]:
        """Returns the fields of a structure, first those that every message has, then the tagged ones."""
        return (*self.plain, *self.tagged)


@cache
def structure(api: int, version: int, *, answer: bool) -> Structure:
    """Returns the schema of the requests or answers of an API in a version. UnreadableMessage if there is none."""
    from kio.schema.index import api_key_map, schema_name_map  # only trials that are about messages need it
    from kio.static.constants import EntityType

    try:
        paths = schema_name_map[api_key_map[api]][version]
        path = paths[EntityType.response if answer else EntityType.request]
    except KeyError:
        raise UnreadableMessage(f"there is no schema of API {api} in version {version}") from None
    module, _, name = path.partition(":")
    return _compiled(getattr(import_module(module), name))


@cache
def _compiled(schema: Value) -> Structure:
    members = [_member(field) for field in fields(schema)]
    return Structure(
        schema.__name__,
        bool(schema.__flexible__),
        tuple(member for member in members if member.tag is None),
        tuple(member for member in members if member.tag is not None),
        int(schema.__header_schema__.__version__),
    )


def _member(field: Field[Value]) -> Member:
    kind, nullable = _without_none(field.type)
    array = _origin(kind) is tuple
    if array:
        kind, of_items = _without_none(get_args(kind)[0])
        nullable = nullable or (of_items and not is_dataclass(kind))
    inner = _compiled(kind) if isinstance(kind, type) and is_dataclass(kind) else None
    name = "" if inner else str(field.metadata["kafka_type"])
    default = None if field.default is MISSING else field.default
    return Member(
        name=field.name.removeprefix(_OLD_NAMES),
        kind=name,
        structure=inner,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=() if array and default is not None else default if isinstance(default, int | str | bytes) else None,
        layout=None if array else _LAYOUTS.get(name),
    )


def _without_none(kind: object) -> tuple[Value, bool]:
    if _origin(kind) is UnionType:
        (inner,) = (one for one in get_args(kind) if one is not NoneType)
        return inner, True
    return kind, False


def _origin(kind: object) -> object:
    return get_origin(kind)


# Reading


class Reader:
    """Reads values from `data`, from `position` on. UnreadableMessage where the bytes end too early."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.data, self.position = data, position

    def number(self, layout: struct.Struct) -> Value:
        """Reads a number in the layout that its kind has."""
        try:
            (value,) = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise UnreadableMessage(f"the message ends at byte {len(self.data)}, within a number") from error
        self.position += layout.size
        return value

    def varint(self) -> int:
        """Reads an unsigned varint."""
        value = shift = 0
        if self.position < len(self.data) and (byte := self.data[self.position]) < 0x80:  # nearly all have one byte
            self.position += 1
            return byte
        while shift < VARINT_BITS_MAX:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise UnreadableMessage("a varint has no end")

    def take(self, length: int) -> bytes:
        """Reads so many bytes."""
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise UnreadableMessage(
                f"the message has {len(self.data)} bytes, and a field asks for {length} at {self.position}"
            )
        value = bytes(self.data[self.position : end])
        self.position = end
        return value

    def left(self) -> int:
        """Returns how many bytes are left."""
        return len(self.data) - self.position


def read(shape: Structure, reader: Reader) -> Body:
    """Reads a structure. UnreadableMessage if the bytes are not one."""
    found: Body = {}
    for member in shape.plain:
        found[member.name] = (
            _read_member(member, shape.flexible, reader) if member.layout is None else reader.number(member.layout)
        )
    for member in shape.tagged:
        found[member.name] = [] if member.array else member.default
    if shape.flexible:
        _read_tags(shape, reader, found)
    return found


def _read_tags(shape: Structure, reader: Reader, found: Body) -> None:
    count = reader.varint()
    if not count:
        return
    if count > TAGS_MAX:
        raise UnreadableMessage(f"a structure claims {count} tagged fields")
    known = {member.tag: member for member in shape.tagged}
    for _ in range(count):
        tag, size = reader.varint(), reader.varint()
        field = Reader(reader.take(size))
        if (member := known.get(tag)) is not None:
            found[member.name] = _read_member(member, shape.flexible, field)


def _read_member(member: Member, flexible: bool, reader: Reader) -> Value:
    if not member.array:
        return _read_value(member, flexible, reader, nullable=member.nullable)
    length = reader.varint() - 1 if flexible else reader.number(_LAYOUTS["int32"])
    if length < 0:
        return None
    if length > reader.left():
        raise UnreadableMessage(f"an array claims {length} elements, and {reader.left()} bytes are left")
    return [_read_value(member, flexible, reader, nullable=False) for _ in range(length)]


def _read_value(member: Member, flexible: bool, reader: Reader, *, nullable: bool) -> Value:
    if member.structure is not None:
        if nullable and member.tag is None and reader.number(_LAYOUTS["int8"]) < 0:
            return None
        return read(member.structure, reader)
    if (layout := _LAYOUTS.get(member.kind)) is not None:
        return reader.number(layout)
    if member.kind == "uuid":
        found = UUID(bytes=reader.take(16))
        return None if found == _ZERO_ID else found
    size = _LAYOUTS["int16" if member.kind == "string" else "int32"]
    length = reader.varint() - 1 if flexible else reader.number(size)
    if length < 0:
        return None
    taken = reader.take(length)
    if member.kind != "string":
        return taken
    try:
        return taken.decode()
    except UnicodeDecodeError as error:
        raise UnreadableMessage("a text is not UTF-8") from error


# Writing


def write(shape: Structure, body: Mapping[str, Value]) -> bytes:
    """Returns the bytes of a structure. A tagged field is left out where it has its default."""
    parts = [_written(member, shape.flexible, body[member.name]) for member in shape.plain]
    if shape.flexible:
        tagged = [
            (member.tag or 0, _written(member, shape.flexible, value))
            for member in shape.tagged
            if (value := body.get(member.name)) not in (member.default, [], ())
        ]
        parts.append(varint(len(tagged)))
        parts += [varint(tag) + varint(len(data)) + data for tag, data in sorted(tagged)]
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Returns an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _written(member: Member, flexible: bool, value: Value) -> bytes:
    if not member.array:
        return _written_value(member, flexible, value, nullable=member.nullable)
    if value is None:
        return varint(0) if flexible else _LAYOUTS["int32"].pack(-1)
    length = varint(len(value) + 1) if flexible else _LAYOUTS["int32"].pack(len(value))
    return length + b"".join(_written_value(member, flexible, one, nullable=False) for one in value)


def _written_value(member: Member, flexible: bool, value: Value, *, nullable: bool) -> bytes:
    if member.structure is not None:
        marked = nullable and member.tag is None
        if value is None:
            return b"\xff"
        return (b"\x01" if marked else b"") + write(member.structure, value)
    if (layout := _LAYOUTS.get(member.kind)) is not None:
        return layout.pack(_NONE_OF[member.kind] if value is None else value)
    if member.kind == "uuid":
        return (value or _ZERO_ID).bytes
    data = value.encode() if isinstance(value, str) else value
    if flexible:
        return varint(0) if data is None else varint(len(data) + 1) + data
    length = _LAYOUTS["int16" if member.kind == "string" else "int32"]
    return length.pack(-1) if data is None else length.pack(len(data)) + data


# Headers

REQUEST_HEAD = struct.Struct(">hhih")
"""API key, version, correlation id, and the length of the client id (-1 = null)."""
ANSWER_HEAD = struct.Struct(">i")
"""The correlation id."""


class RequestHead(NamedTuple):
    """The header of a request, of any version from 1 on."""

    api: int
    version: int
    correlation: int
    client: str
    body_at: int
    """Where the body, or the tagged fields before it, begin."""


def request_head(message: bytes | memoryview, at: int = 0) -> RequestHead:
    """Reads the header of a request, which begins at `at`, behind the size. UnreadableMessage if it is none."""
    if len(message) - at < REQUEST_HEAD.size:
        raise UnreadableMessage(
            f"a request has {len(message) - at} bytes, and its header alone has {REQUEST_HEAD.size}"
        )
    api, version, correlation, length = REQUEST_HEAD.unpack_from(message, at)
    reader = Reader(message, at + REQUEST_HEAD.size)
    return RequestHead(api, version, correlation, reader.take(max(length, 0)).decode(errors="replace"), reader.position)


def request_body(message: bytes | memoryview, head: RequestHead) -> Body:
    """Reads the body of a request, whose header was read of the same bytes. UnreadableMessage if the schemas do not have its
    version, or it is garbage."""
    shape = structure(head.api, head.version, answer=False)
    reader = Reader(message, head.body_at)
    if shape.header_version >= 2:
        skip_tags(reader)
    return read(shape, reader)


def answer_body(message: bytes | memoryview, api: int, version: int) -> Body:
    """Reads the body of an answer to a request of this API and version. `message`: what follows the size."""
    shape = structure(api, version, answer=True)
    reader = Reader(message, ANSWER_HEAD.size)
    if shape.header_version >= 1:
        skip_tags(reader)
    return read(shape, reader)


def answer(api: int, version: int, correlation: int, body: Mapping[str, Value]) -> bytes:
    """Returns an answer with its size and header, as it goes on the wire."""
    shape = structure(api, version, answer=True)
    data = ANSWER_HEAD.pack(correlation) + (b"\0" if shape.header_version >= 1 else b"") + write(shape, body)
    return ANSWER_HEAD.pack(len(data)) + data


def request(api: int, version: int, correlation: int, client: str, body: Mapping[str, Value]) -> bytes:
    """Returns a request with its size and header, as it goes on the wire."""
    shape = structure(api, version, answer=False)
    named = client.encode()
    head = REQUEST_HEAD.pack(api, version, correlation, len(named)) + named
    data = head + (b"\0" if shape.header_version >= 2 else b"") + write(shape, body)
    return ANSWER_HEAD.pack(len(data)) + data


def skip_tags(reader: Reader) -> None:
    """Reads tagged fields of a header, and forgets them."""
    count = reader.varint()
    if count > TAGS_MAX:
        raise UnreadableMessage(f"a header claims {count} tagged fields")
    for _ in range(count):
        reader.varint()
        reader.take(reader.varint())
