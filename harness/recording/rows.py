"""Recorded rows: what clients write while a trial runs, as fixed-width rows in memory-mapped files that processes share.

A file survives a SIGKILL of its writer and of prozess, because its pages belong to the kernel. The last word of a row, its
mark, is the row's index + 1. It is written last, so a reader recognises a torn row and a row that was never written, and
leaves both out. Space is allocated before it is mapped, so a full disk is an error at a known place (`StorageFull`), and not
a SIGBUS. Behind its rows a file carries its proof.

A table of one client is a list of segments `<table>.<client>.<segment>.rows`. Each segment is twice as large as the one
before, up to a limit. One writer writes the rows of one table and one client.
"""

import mmap
import os
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np

from prozess.harness.columns import row_dtype
from prozess.harness.errors import StorageFull
from prozess.harness.recording.codes import Dictionaries
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import MISSING, NONE, RECORDER_CLIENT, TABLES, Column, Table

FIRST_SEGMENT_ROWS = 1 << 12
LAST_SEGMENT_ROWS = 1 << 20
_NAME = re.compile(r"(?P<table>[a-z_]+)\.(?P<client>\d+)\.(?P<segment>\d+)\.rows")


def segment_rows(segment: int) -> int:
    """Returns how many rows segment number `segment` holds."""
    return min(FIRST_SEGMENT_ROWS << min(segment, 20), LAST_SEGMENT_ROWS)


class RowWriter:
    """Appends the rows of one table and one client. It is not thread safe: one thread writes.

    `append` takes one value per column in the order of `table.columns`. A row may be completed in place with `rewrite`,
    from the same thread, for as long as the writer is open.
    """

    def __init__(self, directory: Path, table: Table, client: int) -> None:
        self.table, self.client, self.directory = table, client, directory
        self.count = 0
        self._sealed = False
        self._struct = struct.Struct(table.row_format)
        assert self._struct.size == row_dtype(table).itemsize
        self._size = self._struct.size
        self._segments: list[mmap.mmap] = []
        self._views: list[np.ndarray] = []
        self._proofs: list[SegmentProof] = []
        self._starts: list[int] = []
        self._end = 0
        self._grow()

    def append(self, *values: int) -> int:
        """Writes the next row and returns its index."""
        index = self.count
        if self._sealed:
            self._unseal()
        if index == self._end:
            self._grow()
        self._struct.pack_into(self._segments[-1], (index - self._start) * self._size, *values, index + 1)
        self.count = index + 1
        self._set_count(self.count - self._start)
        return index

    def rewrite(self, index: int, *values: int) -> None:
        """Replaces all columns of row `index`."""
        self._unseal()
        segment = self._segment_of(index)
        offset = (index - self._starts[segment]) * self._size
        # Copied over, not packed in place: pack_into clears the row first, and a SIGKILL in between would tear it.
        self._segments[segment][offset : offset + self._size] = self._struct.pack(*values, index + 1)

    def slot(self, index: int) -> tuple[mmap.mmap, int]:
        """Returns the mapping and the byte offset of row `index`, for callers that complete single columns with a struct
        of their own."""
        self._unseal()
        segment = self._segment_of(index)
        return self._segments[segment], (index - self._starts[segment]) * self._size

    def segment_at(self, index: int) -> tuple[mmap.mmap, int, int]:
        """Returns the mapping that holds row `index`, the first row in it, and the first row after it, for callers that
        complete columns themselves."""
        self._unseal()
        segment = self._segment_of(index)
        return self._segments[segment], self._starts[segment], self._starts[segment] + segment_rows(segment)

    def extend(self, columns: Mapping[str, np.ndarray]) -> None:
        """Appends many rows at once. `columns` has every column, all of one length."""
        self._unseal()
        length = len(next(iter(columns.values())))
        assert {len(values) for values in columns.values()} == {length}, f"{self.table.name}: columns of one length"
        done = 0
        while done < length:
            if self.count == self._end:
                self._grow()
            take = min(length - done, self._end - self.count)
            first = self.count - self._starts[-1]
            view = self._views[-1][first : first + take]
            for column in self.table.columns:
                view[column.name] = columns[column.name][done : done + take]
            view["mark"] = np.arange(self.count + 1, self.count + take + 1)
            self.count += take
            self._set_count(self.count - self._start)
            done += take

    def complete(self, indices: np.ndarray, columns: Mapping[str, np.ndarray | int]) -> None:
        """Sets these columns of the rows `indices` (int[n], each once, in any order). It sets one column after the
        other, in the order given, so that a process that follows the rows sees the last column change last."""
        if not len(indices):
            return
        self._unseal()
        assert int(indices.max()) < self.count, (int(indices.max()), self.count)
        if indices.min() >= self._starts[-1]:
            return _set(self._views[-1], indices - self._starts[-1], columns, slice(None))
        assert int(indices.min()) >= 0, int(indices.min())
        of = np.searchsorted(self._starts, indices, side="right") - 1
        for number in np.unique(of).tolist():
            chosen = np.flatnonzero(of == number)
            _set(self._views[number], indices[chosen] - self._starts[number], columns, chosen)

    def close(self) -> None:
        """Seals the rows, and flushes them to the file system. The mappings stay until the process ends. Rows that are
        written afterwards need another close."""
        for segment, proof, start, view in zip(self._segments, self._proofs, self._starts, self._views, strict=True):
            proof.seal(min(self.count - start, len(view)))
            segment.flush()
        self._sealed = True

    def _unseal(self) -> None:
        """Removes the seal, because rows are about to be written after a close."""
        if self._sealed:
            self._sealed = False
            for proof in self._proofs:
                proof.unseal()

    def _segment_of(self, index: int) -> int:
        assert 0 <= index < self.count, (index, self.count)
        segment = len(self._starts) - 1
        while self._starts[segment] > index:
            segment -= 1
        return segment

    def _grow(self) -> None:
        number = len(self._segments)
        rows = segment_rows(number)
        path = self.directory / f"{self.table.name}.{self.client}.{number}.rows"
        assert not path.exists(), f"{path} has another writer"
        # It gets its name when it has its size and its proof: a SIGKILL in between leaves no file that looks damaged.
        making = path.with_suffix(".making")
        descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, rows * self._size + PROOF_BYTES)
            mapping = mmap.mmap(descriptor, rows * self._size + PROOF_BYTES)
        except OSError as error:
            making.unlink(missing_ok=True)
            raise StorageFull(
                f"{path}: cannot allocate {rows * self._size} bytes for the history ({error.strerror}). "
                "Free space there or give another --runs directory; what was recorded so far is kept."
            ) from error
        finally:
            os.close(descriptor)
        proof = SegmentProof(mapping, self.table, self.client, number, rows)
        making.rename(path)
        assert len(mapping) == rows * self._size + PROOF_BYTES, f"{path} has {len(mapping)} bytes"
        self._segments.append(mapping)
        self._views.append(np.frombuffer(mapping, dtype=row_dtype(self.table), count=rows))
        self._proofs.append(proof)
        self._set_count = self._proofs[-1].row_counter()
        self._starts.append(self._end)
        self._start = self._end
        self._end += rows


def _set(rows: np.ndarray, at: np.ndarray, columns: Mapping[str, np.ndarray | int], chosen: np.ndarray | slice) -> None:
    for name, values in columns.items():
        rows[name][at] = values[chosen] if isinstance(values, np.ndarray) else values


class RowTail:
    """Follows the rows that another process is writing. It costs little to ask again and again."""

    def __init__(self, directory: Path, table: Table, client: int) -> None:
        self.directory, self.table, self.client = directory, table, client
        self._maps: list[np.ndarray] = []
        self._next = self._path()

    def _path(self) -> Path:
        return self.directory / f"{self.table.name}.{self.client}.{len(self._maps)}.rows"

    def segments(self) -> list[np.ndarray]:
        """Returns every row slot of every segment so far, written or not. Filter them by `mark`. They are views of live
        memory."""
        while True:
            try:
                size = self._next.stat().st_size
            except FileNotFoundError:
                return self._maps
            rows = segment_rows(len(self._maps))
            if size < rows * row_dtype(self.table).itemsize:
                return self._maps
            held = np.memmap(self._next, dtype=row_dtype(self.table), mode="r", shape=(rows,))
            self._maps.append(np.asarray(held))
            self._next = self._path()

    def close(self) -> None:
        """Closes the files, each of which holds a descriptor."""
        self._maps = []
        self._next = self._path()


def read_segments(directory: Path, table: Table, client: int) -> tuple[list[np.ndarray], int]:
    """The valid rows of one client segment by segment, in order, and how many torn rows were left out.

    Arrays of `row_dtype(table)`, mapped from the files (copied only where a torn row had to go). A row is valid if its mark
    is its index + 1; the first never-written row ends the table. A torn row is one with a wrong mark before the last valid
    one, or a mark that is neither 0 nor right.
    """
    parts, torn, start, segment = [], 0, 0, 0
    while (path := directory / f"{table.name}.{client}.{segment}.rows").exists():
        whole = min(path.stat().st_size // row_dtype(table).itemsize, segment_rows(segment))
        rows: np.ndarray = (
            np.memmap(path, dtype=row_dtype(table), mode="r", shape=(whole,))
            if whole
            else np.empty(0, dtype=row_dtype(table))
        )
        valid = rows["mark"] == np.arange(start + 1, start + whole + 1)
        # Example: the marks are 1 2 0 4 0 0. Rows 0, 1 and 3 are valid; row 2 is torn, being before the last valid one; 4 and
        # 5 were never written.
        last = int(np.flatnonzero(valid)[-1]) + 1 if valid.any() else 0
        torn += int((~valid[:last]).sum()) + int((rows["mark"][last:] != 0).sum())
        parts.append(rows[:last] if valid[:last].all() else rows[:last][valid[:last]])
        start += segment_rows(segment)
        segment += 1
    return parts, torn


def read_rows(directory: Path, table: Table, client: int) -> tuple[np.ndarray, int]:
    """Returns what `read_segments` returns, in one array."""
    parts, torn = read_segments(directory, table, client)
    if not parts:
        return np.empty(0, dtype=row_dtype(table)), 0
    return (np.concatenate(parts) if len(parts) > 1 else parts[0]), torn


def recorded(directory: Path) -> dict[str, list[int]]:
    """Returns which clients wrote which tables: table name → client ids, ascending. Other files are left out."""
    found: dict[str, set[int]] = {}
    for path in directory.glob("*.rows"):
        if (match := _NAME.fullmatch(path.name)) and match["table"] in TABLES:
            found.setdefault(match["table"], set()).add(int(match["client"]))
    return {table: sorted(clients) for table, clients in sorted(found.items())}


def damaged_rows(directory: Path) -> dict[str, str]:
    """Returns the files of rows that are damaged by what they say of themselves: name → what is wrong. A segment that is
    missing before a later one is damage, too. What a SIGKILL leaves behind is not."""
    found: dict[str, str] = {}
    for table, clients in recorded(directory).items():
        for client in clients:
            there = len(list(directory.glob(f"{table}.{client}.*.rows")))
            first = 0
            for segment in range(there):
                name, rows = f"{table}.{client}.{segment}.rows", segment_rows(segment)
                if not (directory / name).is_file():
                    found[name] = "is missing, although later segments are there"
                    break
                if why := damage_of(directory / name, TABLES[table], client, segment, first=first, rows=rows):
                    found[name] = why
                first += rows
    return found


def rows_in(path: Path) -> int:
    """Returns how many rows a file of rows says that it has; 0 for any other file."""
    match = _NAME.fullmatch(path.name)
    if match is None or match["table"] not in TABLES:
        return 0
    return declared_rows(path, TABLES[match["table"]], segment_rows(int(match["segment"])))


# The proof of a file of rows is in the page behind its rows. It says whose the file is, how many rows it has, and their
# checksums.
#
# identity: magic, table, client, segment, bytes of a row, and how many rows have room; then its CRC-32. It is written
# when the file is made.
#
# count: how many rows were written so far in this segment. It is a lower bound at every moment, so it survives a
# SIGKILL.
#
# seal: the number of rows, a CRC-32 of each block of them, and its own CRC-32; last a word that says that the seal is
# there. It is written when the writer ends in order, and again whenever it does.
#
# A row that is being written when its writer is killed lies behind the count. Whatever is wrong before the count is
# damage, and no torn row. A file without a seal has a writer that was killed: only the run's manifest proves what it
# holds.


PROOF_BYTES = 4096
BLOCK_ROWS = 1 << 12
_MAGIC = b"PZROWS1\0"
_IDENTITY = struct.Struct("<8s16sqIII")
_CRC, _COUNT, _SEALED = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<QI")
_COUNT_AT, _STATE_AT, _SEAL_AT = 64, 72, 80
_SEALED_STATE = b"SEALED\r\n"
_CRCS_AT = _SEAL_AT + _SEALED.size
assert _IDENTITY.size + _CRC.size <= _COUNT_AT
assert _CRCS_AT % 4 == 0


class SegmentProof:
    """The proof page of one mapped segment, for its writer. One thread uses it."""

    def __init__(self, mapping: mmap.mmap, table: Table, client: int, segment: int, rows: int) -> None:
        self._mapping, self._rows, self._size = mapping, rows, row_dtype(table).itemsize
        self._at = rows * self._size
        identity = _identity(table, client, segment, rows)
        self._put(0, identity)

    def row_counter(self) -> Callable[[int], None]:
        """Returns a function to call with the number of rows written to this segment. It is called after each row, so it
        is one native store."""
        return partial(_COUNT.pack_into, self._mapping, self._at + _COUNT_AT)

    def seal(self, rows: int) -> None:
        """Seals the first `rows` rows. They are final, unless they are written again and sealed again."""
        with memoryview(self._mapping) as view:
            crcs = _block_crcs(view, rows, self._size)
        sealed = _SEALED.pack(rows, len(crcs)) + crcs.tobytes()
        self.unseal()  # a SIGKILL in between leaves no seal, not half of one
        self._put(_SEAL_AT, sealed + _CRC.pack(zlib.crc32(sealed)))
        self._put(_STATE_AT, _SEALED_STATE)

    def unseal(self) -> None:
        """Removes the seal, because rows are about to be written again."""
        self._put(_STATE_AT, bytes(len(_SEALED_STATE)))

    def _put(self, at: int, content: bytes) -> None:
        self._mapping[self._at + at : self._at + at + len(content)] = content


def declared_rows(path: Path, table: Table, rows: int) -> int:
    """Returns how many rows the file says that it has. 0 if it says nothing."""
    with path.open("rb") as file:
        file.seek(rows * row_dtype(table).itemsize + _COUNT_AT)
        count = file.read(_COUNT.size)
    return int(_COUNT.unpack(count)[0]) if len(count) == _COUNT.size else 0


def damage_of(path: Path, table: Table, client: int, segment: int, *, first: int, rows: int) -> str | None:
    """Returns what is wrong with a segment by its own proof. None: nothing is. `first` is the index of its first row,
    `rows` is how many rows have room in it."""
    size = row_dtype(table).itemsize
    whole = rows * size + PROOF_BYTES
    if (there := path.stat().st_size) != whole:
        return f"has {there:,} bytes instead of {whole:,}"
    content = np.memmap(path, dtype=np.uint8, mode="r", shape=(whole,))
    page = content[rows * size :].tobytes()
    identity = _identity(table, client, segment, rows)
    if page[: len(identity)] != identity:
        return "says that it belongs to another segment, table or client"
    count = int(_COUNT.unpack_from(page, _COUNT_AT)[0])
    if count > rows:
        return f"says that it has {count:,} rows, and has room for {rows:,}"
    marks = content[: count * size].view(row_dtype(table))["mark"]
    if (wrong := marks != np.arange(first + 1, first + count + 1)).any():
        return f"has {int(wrong.sum()):,} of {count:,} rows torn, such as row {int(np.argmax(wrong)):,}"
    return _broken_seal(content, page, count, size)


def _broken_seal(content: np.ndarray, page: bytes, count: int, size: int) -> str | None:
    state = page[_STATE_AT:_SEAL_AT]
    if not any(state):
        return None  # its writer was killed
    rows, blocks = _SEALED.unpack_from(page, _SEAL_AT)
    end = _CRCS_AT + 4 * blocks
    sealed = page[_SEAL_AT:end]
    torn = end + _CRC.size > PROOF_BYTES or _CRC.unpack_from(page, end)[0] != zlib.crc32(sealed)
    if torn or state != _SEALED_STATE:
        return "has a seal that is damaged"
    if rows != count:
        return f"was sealed with {rows:,} rows and says that it has {count:,}"
    with memoryview(content) as view:  # type: ignore[arg-type] # numpy's arrays have the buffer protocol
        found = _block_crcs(view, rows, size)
    expected = np.frombuffer(page, dtype="<u4", count=blocks, offset=_CRCS_AT)
    if len(found) != blocks or (wrong := found != expected).any():
        at = int(np.argmax(wrong)) if len(found) == blocks else 0
        last = min((at + 1) * BLOCK_ROWS, rows) - 1
        return f"has other rows than were sealed: the checksum of rows {at * BLOCK_ROWS:,} to {last:,} is wrong"
    return None


def _identity(table: Table, client: int, segment: int, rows: int) -> bytes:
    identity = _IDENTITY.pack(_MAGIC, table.name.encode(), client, segment, row_dtype(table).itemsize, rows)
    return identity + _CRC.pack(zlib.crc32(identity))


def _block_crcs(view: memoryview, rows: int, size: int) -> np.ndarray:
    """Returns a CRC-32 for each block of rows. The last block may have fewer rows. zlib releases the interpreter's lock
    meanwhile."""
    ends = [min(first + BLOCK_ROWS, rows) for first in range(0, rows, BLOCK_ROWS)]
    crcs = (
        zlib.crc32(view[first * size : end * size]) for first, end in zip(range(0, rows, BLOCK_ROWS), ends, strict=True)
    )
    return np.fromiter(crcs, dtype="<u4", count=len(ends))


class Recorder:
    """Writes what the run stage records itself: faults, steps, metadata, observations. It writes rows of any table for
    one client id, with columns by name. It is thread safe, and once `write` has returned a SIGKILL cannot lose the row.

    One Recorder per run directory and client id, ever: another process (a later heal) takes another id.
    """

    def __init__(self, run: RunDirectory, client: int = RECORDER_CLIENT) -> None:
        self._run, self.client = run, client
        self._dictionaries = Dictionaries(run.dictionaries)
        self._writers: dict[str, RowWriter] = {}
        self._lock = threading.Lock()
        self._closed = False

    def write(self, table: str, **columns: int) -> None:
        """Appends a row. Columns that are not given are NONE, and times MISSING.

        Raises StorageFull. An unknown table or column is our own mistake.
        """
        _check(table, columns.keys())
        with self._lock:
            self._writer(table).append(*(columns.get(c.name, _unset(c)) for c in TABLES[table].columns))

    def extend(self, table: str, columns: Mapping[str, np.ndarray]) -> None:
        """Appends many rows: arrays of one length by column name. Columns that are not given are NONE, and times
        MISSING."""
        _check(table, columns.keys())
        lengths = {len(values) for values in columns.values()}
        assert len(lengths) == 1, f"{table}: columns of lengths {sorted(lengths)}"
        (length,) = lengths
        whole = {
            c.name: columns[c.name] if c.name in columns else np.full(length, _unset(c)) for c in TABLES[table].columns
        }
        with self._lock:
            self._writer(table).extend(whole)

    def code(self, dictionary: str, text: str) -> int:
        """Returns the dictionary code of `text`. A new text is in dictionaries.json before this returns."""
        return self._dictionaries.code(dictionary, text)

    def close(self) -> None:
        """Flushes the rows to the file system. It is safe to call this twice."""
        with self._lock:
            self._closed = True
            for writer in self._writers.values():
                writer.close()

    def _writer(self, table: str) -> RowWriter:
        assert not self._closed, f"{table} written after close"
        if table not in self._writers:
            self._writers[table] = RowWriter(self._run.rows, TABLES[table], self.client)
        return self._writers[table]

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _check(table: str, columns: Iterable[str]) -> None:
    unknown = set(columns) - {column.name for column in TABLES[table].columns}
    assert not unknown, f"{table} has no columns {sorted(unknown)}"


def _unset(column: Column) -> int:
    return MISSING if column.unit == "ns" else NONE
