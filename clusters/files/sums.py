"""Castagnoli's checksum (CRC-32C) of many stretches of bytes at once.

A loop over the bytes of each would take a second for some MB. A checksum without its initial value and its last inversion is
linear: that of a block, moved on by the length of another block, and that of the other one make the checksum of both. All
blocks of all stretches are summed side by side, a byte of each at a time, and then the blocks of each stretch are joined.
"""

import numpy as np

from prozess.clusters.files.segments import CRC32C_TABLE

_BLOCK = 512
"""bytes. The loops take as many steps as a block has bytes, and as the longest stretch has blocks."""
_TABLE = np.array(CRC32C_TABLE, dtype=np.uint32)
_ONES = np.uint32(0xFFFFFFFF)


def _moved(values: np.ndarray, steps: int) -> np.ndarray:
    """Returns these checksums after so many bytes of zero."""
    for _ in range(steps):
        values = _TABLE[values & 0xFF] ^ (values >> 8)
    return values


_MOVES = np.stack([_moved(np.arange(256, dtype=np.uint32) << np.uint32(8 * byte), _BLOCK) for byte in range(4)])
"""uint32[4, 256]: what each byte of a checksum is after a block of zeros."""


def checksums(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns uint32[n]: the checksum of each data[starts[i]:ends[i]], of at least four bytes. `data`: uint8.

    Example: of the nine bytes "123456789" it is 0xE3069283."""
    if not len(starts):
        return np.empty(0, dtype=np.uint32)
    length = ends - starts
    assert (length >= 4).all(), "a batch has more than four bytes behind its checksum"
    blocks = -(-length // _BLOCK)
    # Zeros in front change no linear checksum, so each stretch is filled up there to whole blocks.
    first = np.cumsum(blocks) - blocks
    padded = np.zeros(int(blocks.sum()) * _BLOCK, dtype=np.uint8)
    begins = first * _BLOCK + blocks * _BLOCK - length
    where = np.repeat(begins - np.cumsum(length) + length, length) + np.arange(int(length.sum()))
    padded[where] = data[np.repeat(starts - np.cumsum(length) + length, length) + np.arange(int(length.sum()))]
    padded[(begins[:, None] + np.arange(4)).ravel()] ^= 0xFF  # the initial value
    columns = np.ascontiguousarray(padded.reshape(-1, _BLOCK).T)
    sums = np.zeros(columns.shape[1], dtype=np.uint32)
    for column in columns:
        sums = _TABLE[(sums ^ column) & 0xFF] ^ (sums >> 8)
    made = np.zeros(len(starts), dtype=np.uint32)
    for number in range(int(blocks.max())):
        some = np.flatnonzero(blocks > number)
        value = made[some]
        moved = [_MOVES[byte][value >> np.uint32(8 * byte) & 0xFF] for byte in range(4)]
        made[some] = np.bitwise_xor.reduce(moved) ^ sums[first[some] + number]
    return made ^ _ONES
