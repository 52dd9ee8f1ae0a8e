"""The wall clock of a client process, as the process takes it: that of its place, which whoever runs the trial can move.

Client processes are forked from one, which has the shim preloaded where a trial moves their clocks (`clusters/shim.c`: the
wall clock alone; what is recorded is CLOCK_MONOTONIC). Each maps the clock file of its place over the one that it was born
with, and what it runs for itself (a JVM) is started with that file: so a successor in the place has the same clock.
"""

import ctypes
import mmap
import os
from pathlib import Path

VARIABLE = "PROZESS_CLOCK"
CLOCK_BYTES = 4096


def clocks_of(rows: Path) -> Path:
    """Where the files of a run are."""
    return rows.parent / "clocks"


def file_of(rows: Path, planned: int) -> Path:
    """Of one place."""
    return clocks_of(rows) / f"{planned}.clock"


def take(rows: Path, planned: int) -> None:
    """In a client process, before its Kafka client is there: from now on its wall clock is that of its place."""
    common, mine = os.environ.get(VARIABLE, ""), file_of(rows, planned)
    if not common or not mine.exists():
        return
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(common):
            _map_over(int(line.partition("-")[0], 16), mine)
    os.environ[VARIABLE] = str(mine)


def _map_over(address: int, path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fixed = 0x10  # MAP_FIXED: in place of what is there [mmap(2)]
        found = libc.mmap(address, CLOCK_BYTES, mmap.PROT_READ, mmap.MAP_SHARED | fixed, descriptor, 0)
    finally:
        os.close(descriptor)
    if found != address:
        raise OSError(ctypes.get_errno(), "a client's clock could not be mapped", str(path))
