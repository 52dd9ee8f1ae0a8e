"""Joins Parquet files that have one schema into one, without decoding them: row groups are copied as they are, and one footer
describes them all. The result is, byte for byte, the file that one writer would have written.

pyarrow reads footers and writes its own, and cannot move a row group. Therefore the footer is edited here: it is a Thrift
structure in the compact protocol, of which only offsets and ordinals change. [Parquet format, parquet.thrift; Thrift
compact protocol]"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_STOP = 0
_COPY_BYTES = 8 << 20

# What of a footer says where something is, by the numbers of the fields in parquet.thrift.
_OFFSET, _ORDINAL = "offset", "ordinal"
_Moving = Mapping[int, "str | _Moving"]
_COLUMN_META_DATA: _Moving = {9: _OFFSET, 10: _OFFSET, 11: _OFFSET, 14: _OFFSET}
_COLUMN_CHUNK: _Moving = {2: _OFFSET, 3: _COLUMN_META_DATA, 4: _OFFSET, 6: _OFFSET}
_ROW_GROUP: _Moving = {1: _COLUMN_CHUNK, 5: _OFFSET, 7: _ORDINAL}
_FILE_META_DATA: _Moving = {4: _ROW_GROUP}
_NUM_ROWS, _ROW_GROUPS = 3, 4


@dataclass(frozen=True, slots=True)
class FileToJoin:
    """A Parquet file whose row groups are to be copied into another one. It can be pickled."""

    path: Path
    rows: int
    row_groups: int
    size: int
    """How many bytes its row groups have."""
    footer: tuple[tuple[bytes, int, str], ...]
    """The row groups in the footer: bytes that stay, and after them a number that moves, of that kind."""
    tail: bytes
    """The bytes behind the last of these numbers."""

    @staticmethod
    def of(path: Path) -> "FileToJoin":
        """Returns what there is to know of a file that pyarrow has just written."""
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(end - 8)
            length = int.from_bytes(file.read(4), "little")
            file.seek(end - 8 - length)
            footer = _Footer(file.read(length))
        begin, stop, count = footer.row_groups
        edits, at = [], begin
        for first, last, value, kind in footer.moving:
            assert first >= at, "numbers in the order of the footer"
            edits.append((footer.content[at:first], value, kind))
            at = last
        return FileToJoin(
            path, footer.rows, count, end - 8 - length - len(MAGIC), tuple(edits), footer.content[at:stop]
        )

    def moved(self, *, offset: int, ordinal: int) -> bytes:
        """Returns its row groups in the footer of a file in which they begin `offset` bytes and `ordinal` row groups
        later."""
        shifts = {_OFFSET: offset, _ORDINAL: ordinal}
        assert offset >= 0 <= ordinal, (offset, ordinal)
        moved_footer = [b for kept, value, kind in self.footer for b in (kept, _zigzag(value + shifts[kind]))]
        return b"".join([*moved_footer, self.tail])


def join_files(files: Sequence[FileToJoin], empty: bytes, sink: BinaryIO) -> None:
    """Writes one file with the row groups of these, in their order. `empty` is a file without rows, with the schema and the
    key-value metadata of the result."""
    length = int.from_bytes(empty[-8:-4], "little")
    footer = _Footer(empty[-8 - length : -8])
    sink.write(MAGIC)
    at, ordinal, described = len(MAGIC), 0, []
    for file in files:
        # Example: two files with 100 and 80 bytes of row groups. The second one's begin at 4 in its file and at 104 in this
        # one: every offset in its footer grows by 100, and its row groups get the ordinals behind those of the first.
        described.append(file.moved(offset=at - len(MAGIC), ordinal=ordinal))
        at, ordinal = at + file.size, ordinal + file.row_groups
        with file.path.open("rb") as source:
            source.seek(len(MAGIC))
            _copy(source, sink, file.size)
    made = footer.filled(rows=sum(file.rows for file in files), count=ordinal, row_groups=b"".join(described))
    sink.write(made + len(made).to_bytes(4, "little") + MAGIC)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        content = source.read(min(size, _COPY_BYTES))
        assert content, "a file is shorter than its footer says"
        target.write(content)
        size -= len(content)


class _Footer:
    """A footer, and where in it the numbers are that change."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._at = 0
        self.moving: list[tuple[int, int, int, str]] = []
        """Begin and end of each number that moves, its value and its kind."""
        self.rows = 0
        self._rows_at = (0, 0)
        self._list_at = 0
        self.row_groups = (0, 0, 0)
        """Begin and end of the row groups, and how many there are."""
        last = 0
        while (header := self._field(last)) is not None:
            last, kind = header
            begin = self._at
            if last == _NUM_ROWS:
                self.rows = self._number()
                self._rows_at = (begin, self._at)
            elif last == _ROW_GROUPS:
                count, of = self._elements()
                self._list_at, first = begin, self._at
                for _ in range(count):
                    self._value(of, _ROW_GROUP)
                self.row_groups = (first, self._at, count)
            else:
                self._value(kind, {})
        assert self._at == len(content), "the footer is longer than its structure"

    def filled(self, *, rows: int, count: int, row_groups: bytes) -> bytes:
        """Returns the footer with so many rows, and these row groups instead of its own."""
        (first, last), (_, end, _) = self._rows_at, self.row_groups
        header = bytes([count << 4 | _STRUCT]) if count < 15 else bytes([0xF0 | _STRUCT]) + _varint(count)
        parts = (self.content[:first], _zigzag(rows), self.content[last : self._list_at], header, row_groups)
        return b"".join([*parts, self.content[end:]])

    def _field(self, last: int) -> tuple[int, int] | None:
        """Reads the header of a field: its number and type. None: there are no more."""
        byte = self.content[self._at]
        self._at += 1
        if byte == _STOP:
            return None
        return (last + (byte >> 4) if byte >> 4 else self._number()), byte & 15

    def _elements(self) -> tuple[int, int]:
        """Reads the header of a list: how many elements of which type."""
        byte = self.content[self._at]
        self._at += 1
        return (byte >> 4 if byte >> 4 < 15 else self._unsigned()), byte & 15

    def _value(self, kind: int, moving: "str | _Moving") -> None:
        """Passes a value. `moving`: what of it moves."""
        if kind in (_I16, _I32, _I64):
            begin = self._at
            value = self._number()
            if isinstance(moving, str) and (value or moving == _ORDINAL):  # an offset of 0 is none
                self.moving.append((begin, self._at, value, moving))
        elif kind == _BINARY:
            length = self._unsigned()
            self._at += length
        elif kind == _STRUCT:
            last = 0
            while (header := self._field(last)) is not None:
                last, of = header
                self._value(of, moving.get(last, {}) if isinstance(moving, Mapping) else {})
        elif kind in (_LIST, _SET):
            count, of = self._elements()
            for _ in range(count):
                self._value(_BYTE if of in (_TRUE, _FALSE) else of, moving)
        elif kind not in (_TRUE, _FALSE):
            self._at += {_BYTE: 1, _DOUBLE: 8}[kind]  # no footer has a map

    def _unsigned(self) -> int:
        content, value, shift = self.content, 0, 0
        while (byte := content[self._at]) >= 0x80:
            # Seven bits at a time, the lowest first; the highest bit of a byte says that more follow. Example: AC 02 is 300.
            value |= (byte & 0x7F) << shift
            self._at, shift = self._at + 1, shift + 7
        self._at += 1
        return value | byte << shift

    def _number(self) -> int:
        value = self._unsigned()
        # Zigzag: 0 1 2 3 4 mean 0 -1 1 -2 2.
        return (value >> 1) ^ -(value & 1)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
