"""Between numpy and Arrow without pandas: pyarrow's own conversions import it, a fifth of a second in every process."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Of integers without nulls; read-only. One chunk is not copied."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    array = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])
    array.setflags(write=False)
    return array


def from_numpy(values: np.ndarray) -> pa.Array:
    """Of integers."""
    held = np.ascontiguousarray(values)
    kinds = {"i4": pa.int32(), "i8": pa.int64()}
    return pa.Array.from_buffers(kinds[held.dtype.str[1:]], len(held), [None, pa.py_buffer(held)])


def from_strings(values: Sequence[str | None]) -> pa.Array:
    """None = null."""
    encoded = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    there = np.packbits(np.array([value is not None for value in values], dtype=bool), bitorder="little")
    buffers = [pa.py_buffer(there), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)
