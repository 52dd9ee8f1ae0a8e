"""What libraries do with memory and with threads while a history is checked.

A check makes arrays as large as a partition, and frees them, thousands of times. Nothing is changed where the C library has
no such parameters.
"""

import ctypes
import os
import resource
from pathlib import Path

_TRIM_BYTES, _MMAP_BYTES = 1 << 28, 1 << 25
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The numbers of three parameters of glibc's mallopt(3)."""
_RESIDENT_BYTES_MAX = 900_000_000
"""With more memory than this, a process that checks pieces gives back what was freed."""


def prepare_process() -> None:
    """Prepares a process of our own for a check, before it imports numpy.

    The C library keeps up to 256 MB that were freed. It would give the arrays of each partition back, and the kernel would
    clear the same pages again for the next partition: a fifth of the time of a check. Threads share one heap: they would
    give back each 64 MB of their own as soon as nothing is in them. It must be informed before there are threads, and
    importing numpy would start those of its linear algebra, which no check asks for. They look for work, which is a tenth of
    a second for each core.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
