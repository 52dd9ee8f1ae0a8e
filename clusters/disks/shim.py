"""The shim (`shim.c`) is a small library, preloaded into a node's server, that moves its wall clock and records its syncs.

It is built once, with the machine's C compiler, into the cache.

Built here and not shipped: a binary of ours for every architecture would have to be trusted unread, and whoever runs Kafka
from jars has a compiler or can have one. It uses no libc, so that one build serves every image of a container.
"""

import ctypes
import http.client
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from prozess.clusters.files.metadata_log import write_moved_clock
from prozess.clusters.machine.processes import captured
from prozess.harness.clock import Clock
from prozess.harness.config.impairments import ClockShift
from prozess.harness.errors import HarnessFailed, ProzessError
from prozess.harness.installation import make_cache, sha256_of
from prozess.harness.interfaces import Node, NodeState
from prozess.harness.recording.jolokia import HEADERS, PATH
from prozess.harness.schema import Tristate

SOURCE = Path(__file__).with_name("shim.c")
FLAGS = ("-O2", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector")
BUILD_TIMEOUT_S = 60.0
CLOCK_VARIABLE, SYNCS_VARIABLE = "PROZESS_CLOCK", "PROZESS_SYNCS"
CLOCK_BYTES = 4096
_RECORD = struct.Struct("<5q")
assert _RECORD.size == 40, "the shim writes records of five 8-byte numbers"
_SYNCED = 0
_AT_EMPTY_PATH_NO_FOLLOW = 0x100
_BIRTH_TIME = 0x800
"""The flag STATX_BTIME of statx(2)."""


@dataclass(frozen=True, slots=True)
class ShimSupport:
    """The shim that was built, or why there is none."""

    path: Path | None
    reason: str


def shim_support() -> ShimSupport:
    """Builds the shim if need be, once per process; it takes about 0.2 s."""
    return _support()


def client_shim() -> ShimSupport:
    """Returns the shim for processes with librdkafka. Its waits go by the wall clock, too, and must learn the true
    time."""
    if not hasattr(ctypes.CDLL(None), "pthread_cond_clockwait"):
        return ShimSupport(None, "it takes glibc 2.30, whose waits can learn which clock is meant")
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
    done = captured([compiler, *FLAGS, "-o", str(part), str(SOURCE)], timeout_s=BUILD_TIMEOUT_S)
    if done.returncode:
        raise HarnessFailed(f"{compiler} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    part.replace(into)


def environment(shim: Path, *, clock: Path | None = None, syncs: Path | None = None) -> dict[str, str]:
    """Returns the environment that preloads the shim into a process. `clock`: a file that `set_clock` has made before."""
    variables = {CLOCK_VARIABLE: clock, SYNCS_VARIABLE: syncs}
    return {"LD_PRELOAD": str(shim), **{name: str(path) for name, path in variables.items() if path is not None}}


def set_clock(path: Path, *, offset_ns: int, drift_ppm: int, since_ns: int) -> None:
    """Sets what the clock of a process that has mapped this file is off by. It drifts from `since_ns` (CLOCK_MONOTONIC)
    on."""
    if not path.exists():
        path.write_bytes(bytes(CLOCK_BYTES))
    with path.open("r+b", buffering=0) as file:
        (which,) = struct.unpack("<q", file.read(8))
        other = 1 - (which & 1)
        os.pwrite(file.fileno(), struct.pack("<3q", offset_ns, drift_ppm, since_ns), 8 + 24 * other)
        os.pwrite(file.fileno(), struct.pack("<q", other), 0)


def clock_is(path: Path) -> tuple[int, int]:
    """The offset in ns and the drift in ppm as they were last set; (0, 0) where there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0, 0
    (which,) = struct.unpack_from("<q", content)
    offset_ns, drift_ppm, _ = struct.unpack_from("<3q", content, 8 + 24 * (which & 1))
    return int(offset_ns), int(drift_ppm)


def get_clock(path: Path, *, now_ns: int) -> int:
    """The nanoseconds by which the file says that a clock is off at `now_ns` (CLOCK_MONOTONIC); 0 if there is no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    (which,) = struct.unpack_from("<q", content)
    offset_ns, drift_ppm, since_ns = struct.unpack_from("<3q", content, 8 + 24 * (which & 1))
    return int(offset_ns + (now_ns - since_ns) // 1000 * drift_ppm // 1000 if drift_ppm else offset_ns)


FileIdentity = tuple[int, int, int]
"""Device, inode and birth time name a file, whatever it is called now: an inode alone may have become another file's."""


def synced_sizes(path: Path) -> Mapping[FileIdentity, int]:
    """The bytes of each file that were synced, by the records at `path`.

    A file that was cut and grew again has lost what came after the cut. A torn last record does not count."""
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
    """The structure that statx(2) fills."""

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
    """The identity of a file, as the shim writes it down. HarnessFailed if the file cannot be looked at."""
    libc, found = ctypes.CDLL(None, use_errno=True), _Statx()
    if libc.statx(-100, os.fsencode(path), _AT_EMPTY_PATH_NO_FOLLOW, 0x7FF | _BIRTH_TIME, ctypes.byref(found)):
        raise HarnessFailed(f"statx of {path}: {os.strerror(ctypes.get_errno())}.")
    return (found.major << 32) | found.minor, found.inode, found.birth_s * 10**9 + found.birth_ns


# The wall clock of one running server, moved by its shim, and seen to be where its JVM
# says it is.
#
# What a JVM takes for now, it is asked over JMX: brokers of KRaft publish how old the last metadata record is by their
# own clock, in milliseconds (kafka.server, `last-applied-record-lag-ms` + `last-applied-record-timestamp`); and every
# answer of the metrics agent is stamped with the JVM's time, in seconds.


ASK_TIMEOUT_S = 2.0
MS_NS, S_NS = 1_000_000, 1_000_000_000
_MBEAN = "kafka.server:type=broker-metadata-metrics"
_STAMP, _LAG = "last-applied-record-timestamp", "last-applied-record-lag-ms"
_READS = [
    {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "Uptime"},  # which every JVM has: for the stamp
    *({"type": "read", "mbean": _MBEAN, "attribute": name} for name in (_STAMP, _LAG, _STAMP)),
]


@dataclass(frozen=True, slots=True)
class OffBy:
    """The bounds of what a clock is off by, in ns."""

    least_ns: int
    most_ns: int

    def may_be(self, offset_ns: int) -> bool:
        """Could the clock be off by exactly this?"""
        return self.may_be_between(offset_ns, offset_ns)

    def may_be_between(self, one_ns: int, other_ns: int) -> bool:
        """Could the clock be off by anything between these two, in either order?"""
        return min(one_ns, other_ns) <= self.most_ns and max(one_ns, other_ns) >= self.least_ns

    @property
    def text(self) -> str:
        """Returns a sentence for a person."""
        middle_s, around_s = (self.least_ns + self.most_ns) / 2 / S_NS, (self.most_ns - self.least_ns) / 2 / S_NS
        return f"off by {middle_s:+.3f} s (± {around_s:.3f})"


class ShiftedClocks:
    """Moves the wall clocks of nodes, and asks their JVMs what time it is.

    `clock_of`: a node's clock file, which its server has mapped. `agent_of`: (host, port) of its metrics agent."""

    def __init__(
        self,
        clock_of: Callable[[str], Path],
        agent_of: Callable[[Node], tuple[str, int] | None],
        clock: Clock,
    ) -> None:
        self._clock_of, self._agent_of, self._clock = clock_of, agent_of, clock

    def impair(self, node: Node, impairment: ClockShift) -> None:
        path, (offset_ns, drift_ppm) = self._clock_of(node.name), _wanted(impairment)
        if not path.exists():
            raise HarnessFailed(f"{node.name} was started without the library that moves its clock.")
        if clock_is(path) != (offset_ns, drift_ppm):
            self._set(path, offset_ns, drift_ppm)

    def repair(self, node: Node, impairment: ClockShift) -> None:
        """Sets the clock right, unless another fault has changed it since: that one undoes its own."""
        path = self._clock_of(node.name)
        if path.exists() and clock_is(path) == _wanted(impairment):
            self._set(path, 0, 0)

    def _set(self, path: Path, offset_ns: int, drift_ppm: int) -> None:
        now_ns = self._clock.monotonic_ns()
        write_moved_clock(path.parent, at_ns=now_ns, offset_ns=offset_ns)
        set_clock(path, offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=now_ns)

    def impaired(self, node: Node, impairment: ClockShift) -> tuple[Tristate, str]:
        path = self._clock_of(node.name)
        asked = clock_is(path) == _wanted(impairment)
        if node.state() is NodeState.STOPPED:
            if asked:
                return Tristate.UNKNOWN, "there is no process whose clock could be looked at"
            return Tristate.NO, "there is no process, and the next one starts with another clock"
        before_ns = get_clock(path, now_ns=self._clock.monotonic_ns())
        off = self.off_by(node)
        if off is None:
            return Tristate.UNKNOWN, "its JVM did not say what time it is"
        wanted_ns = get_clock(path, now_ns=self._clock.monotonic_ns())  # one that drifts has gone on since it was asked
        if asked and off.may_be_between(before_ns, wanted_ns) and not off.may_be(0):
            return Tristate.YES, f"its JVM's clock is {off.text}"
        if not asked and (off.may_be(0) or wanted_ns):
            return Tristate.NO, f"its JVM's clock is {off.text}"
        return Tristate.UNKNOWN, f"its JVM's clock is {off.text}, and not by {wanted_ns / S_NS:+.3f} s"

    def off_by(self, node: Node) -> OffBy | None:
        """Returns what the node's JVM says its clock is off by; None if it does not say."""
        agent = self._agent_of(node)
        if agent is None:
            return None
        before_ns = self._clock.wall_ns()
        answers = _ask(agent)
        after_ns = self._clock.wall_ns()
        if answers is None:
            return None
        now_ns, resolution_ns = _lag_and_error(answers)
        return OffBy(now_ns - after_ns, now_ns + resolution_ns - before_ns)


def _wanted(impairment: ClockShift) -> tuple[int, int]:
    return round(impairment.offset_ms * MS_NS), round(impairment.drift_ppm)


def _ask(agent: tuple[str, int]) -> list[dict[str, Any]] | None:
    connection = http.client.HTTPConnection(*agent, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("POST", PATH, json.dumps(_READS), HEADERS)
        found = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    # An answer about an MBean that is not there has no stamp.
    stamped = isinstance(found, list) and len(found) == len(_READS) and isinstance(found[0].get("timestamp"), int)
    return found if stamped else None


def _lag_and_error(answers: list[dict[str, Any]]) -> tuple[int, int]:
    """The earliest time that it may be for the JVM, and how much later it may be, in ns.

    The broker's own metric says it, unless a record was applied in between, or it is no broker of KRaft."""
    stamp, *values = answers
    before, lag, after = (one.get("value") for one in values)
    if isinstance(before, int | float) and before == after and before > 0 and isinstance(lag, int | float):
        return int(before + lag) * MS_NS, MS_NS
    return int(stamp["timestamp"]) * S_NS, S_NS
