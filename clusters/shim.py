"""The shim that is preloaded into a node's server (`shim.c`): built once, with the machine's C compiler, into the cache.

Built here and not shipped: a binary of ours for every architecture would have to be trusted unread, and whoever runs Kafka
from jars has a compiler or can have one. It uses no libc, so that one build serves every image of a container.
"""

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clusters.cache import make_cache, sha256_of
from harness.errors import HarnessFailed, ProzessError

SOURCE = Path(__file__).with_name("shim.c")
FLAGS = ("-O2", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector")
BUILD_TIMEOUT_S = 60.0
CLOCK_VARIABLE, SYNCS_VARIABLE = "PROZESS_CLOCK", "PROZESS_SYNCS"
CLOCK_BYTES = 4096
_RECORD = struct.Struct("<5q")
_SYNCED = 0
_AT_EMPTY_PATH_NO_FOLLOW = 0x100
_BIRTH_TIME = 0x800
"""STATX_BTIME. [statx(2)]"""


@dataclass(frozen=True, slots=True)
class ShimSupport:
    """The built shim; else why there is none."""

    path: Path | None
    reason: str


def shim_support() -> ShimSupport:
    """Built if need be, about 0.2 s; and seen to move a clock. Once per process."""
    return _support()


def client_shim() -> ShimSupport:
    """Of processes with librdkafka, whose waits go by the wall clock, too: they must be told the true time."""
    if not hasattr(ctypes.CDLL(None), "pthread_cond_clockwait"):
        return ShimSupport(None, "it takes glibc 2.30, whose waits can be told which clock is meant")
    return _support()


@cache
def _support() -> ShimSupport:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    name = f"shim-{os.uname().machine}-{sha256_of(SOURCE)[:16]}.so"
    try:
        built = make_cache("shims") / name
        if not built.is_file():
            if compiler is None:
                return ShimSupport(None, "no C compiler here to build the library that is preloaded (cc, gcc or clang)")
            _build(compiler, built)
        return ShimSupport(built, "a small library is preloaded into the server")
    except (ProzessError, OSError, subprocess.TimeoutExpired) as error:
        return ShimSupport(None, f"the library that is preloaded cannot be built: {error}")


def _build(compiler: str, into: Path) -> None:
    part = into.with_name(f"{into.name}.{os.getpid()}.part")
    done = subprocess.run(
        [compiler, *FLAGS, "-o", str(part), str(SOURCE)],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise HarnessFailed(f"{compiler} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    part.replace(into)


def environment(shim: Path, *, clock: Path | None = None, syncs: Path | None = None) -> dict[str, str]:
    """What a process is started with, so that it is shimmed. `clock`: `set_clock` has made it before."""
    told = {CLOCK_VARIABLE: clock, SYNCS_VARIABLE: syncs}
    return {"LD_PRELOAD": str(shim), **{name: str(path) for name, path in told.items() if path is not None}}


def set_clock(path: Path, *, offset_ns: int, drift_ppm: int, since_ns: int) -> None:
    """Whoever has the file mapped is off by that, from now on, and gains from `since_ns` (CLOCK_MONOTONIC) on."""
    if not path.exists():
        path.write_bytes(bytes(CLOCK_BYTES))
    with path.open("r+b", buffering=0) as file:
        (which,) = struct.unpack("<q", file.read(8))
        other = 1 - (which & 1)
        os.pwrite(file.fileno(), struct.pack("<3q", offset_ns, drift_ppm, since_ns), 8 + 24 * other)
        os.pwrite(file.fileno(), struct.pack("<q", other), 0)


def clock_is(path: Path) -> tuple[int, int]:
    """(offset in ns, drift in ppm) as last set; (0, 0) where there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0, 0
    (which,) = struct.unpack_from("<q", content)
    offset_ns, drift_ppm, _ = struct.unpack_from("<3q", content, 8 + 24 * (which & 1))
    return int(offset_ns), int(drift_ppm)


def get_clock(path: Path, *, now_ns: int) -> int:
    """Nanoseconds by which it says a clock is off at `now_ns` (CLOCK_MONOTONIC); 0 where there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    (which,) = struct.unpack_from("<q", content)
    offset_ns, drift_ppm, since_ns = struct.unpack_from("<3q", content, 8 + 24 * (which & 1))
    return int(offset_ns + (now_ns - since_ns) // 1000 * drift_ppm // 1000 if drift_ppm else offset_ns)


FileIdentity = tuple[int, int, int]
"""Device, inode, birth time: a file, whatever it is called now. An inode alone may have become another file's."""


def synced_sizes(path: Path) -> Mapping[FileIdentity, int]:
    """How much of each file was synced, by the records at `path`. A file that was cut and grew again has lost what came
    after the cut. A torn last record is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    sizes: dict[FileIdentity, int] = {}
    for kind, device, inode, birth_ns, size in _RECORD.iter_unpack(content[: len(content) // 40 * 40]):
        file = device, inode, birth_ns
        sizes[file] = size if kind == _SYNCED else min(size, sizes.get(file, 0))
    return sizes


class _Statx(ctypes.Structure):
    """statx(2)."""

    _fields_ = [
        ("mask_to_mode", ctypes.c_uint32 * 8),
        ("inode", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("attributes_mask", ctypes.c_uint64),
        ("access", ctypes.c_int64 * 2),
        ("birth_s", ctypes.c_int64),
        ("birth_ns", ctypes.c_uint32),
        ("padding", ctypes.c_int32),
        ("change_and_modification", ctypes.c_int64 * 4),
        ("special", ctypes.c_uint32 * 2),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("more", ctypes.c_uint64 * 14),
    ]


def identity_of(path: Path) -> FileIdentity:
    """As the shim writes it down. HarnessFailed if the file cannot be looked at."""
    libc, found = ctypes.CDLL(None, use_errno=True), _Statx()
    if libc.statx(-100, os.fsencode(path), _AT_EMPTY_PATH_NO_FOLLOW, 0x7FF | _BIRTH_TIME, ctypes.byref(found)):
        raise HarnessFailed(f"statx of {path}: {os.strerror(ctypes.get_errno())}.")
    return (found.major << 32) | found.minor, found.inode, found.birth_s * 10**9 + found.birth_ns
