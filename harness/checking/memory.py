"""What the C library does with memory that is freed while a history is checked.

A check makes arrays as large as a partition, and frees them, thousands of times. It does nothing where the C library has no
such parameters.
"""

import ctypes
import resource
from pathlib import Path

_TRIM_BYTES, _MMAP_BYTES = 1 << 28, 1 << 25
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The numbers of three parameters of glibc's mallopt(3)."""
_RESIDENT_BYTES_MAX = 900_000_000
"""With more memory than this, a process that checks pieces gives back what was freed."""


def keep_what_is_freed() -> None:
    """Tells the C library to keep up to 256 MB that were freed. It would give the arrays of each partition back, and the
    kernel would clear the same pages again for the next partition: a fifth of the time of a check.

    It is for a process of our own, before it has threads: a thread that has a heap of its own, as all do unless they are
    told this early, gives each 64 MB of it back as soon as nothing is in them.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def give_back() -> None:
    """Gives memory that was freed back to the system, after a piece of a large partition, if this process has much. What is
    kept of each piece stands between holes, so memory would grow with the number of pieces."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim") and resident_bytes() > _RESIDENT_BYTES_MAX:
        library.malloc_trim(0)


def resident_bytes() -> int:
    """Returns how much memory this process has. 0: the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return 0
