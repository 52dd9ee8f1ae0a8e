"""Opens the files to import: plain, or compressed by gzip.

gzip compresses repetitions a thousandfold, so a small file may hold terabytes. A file that grows more than histories
do is refused while it is read; no more than a block of it is held.
"""

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from prozess.harness.errors import BadInput

_MAGIC = b"\x1f\x8b"
_FREE_BYTES = 1 << 26
"""The largest uncompressed size of any file."""
_GROWTH_MAX = 200
"""Histories grow to 10 to 40 times their compressed size."""
_BUFFER_BYTES = 1 << 16


class _Unpacked(io.RawIOBase):
    """The content of a file compressed by gzip. BadInput while it is read, if it is damaged or grows too much."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file, self._unpacked = path, file, gzip.GzipFile(fileobj=file)
        self._most = max(_FREE_BYTES, _GROWTH_MAX * path.stat().st_size)
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override] # of bytes alone
        try:
            read = self._unpacked.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadInput(
                f"{self._path} is compressed by gzip, and damaged after {self._count:,} bytes of text ({error}). Give the "
                "whole file, or the text of it that is left."
            ) from error
        self._count += len(read)
        if self._count > self._most:
            raise BadInput(
                f"{self._path} is compressed by gzip, and holds more than {self._most:,} bytes of text, {_GROWTH_MAX} times "
                "its size: that is no history. Unpack it and give the text, if it is one."
            )
        buffer[: len(read)] = read
        return len(read)

    def close(self) -> None:
        self._unpacked.close()
        self._file.close()
        super().close()


def open_history(path: Path) -> BinaryIO:
    """Opens a file for reading bytes; one that is compressed by gzip is unpacked. OSError if it cannot be opened."""
    file = path.open("rb")
    if file.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
        return file
    return io.BufferedReader(_Unpacked(path, file), _BUFFER_BYTES)
