"""What is done to disks of nodes (`clusters.disks`), seen to be done: parts for `clusters.impairers`, for any backend whose
nodes have a data directory that this process sees, and a disk of their own.
"""

import errno
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clusters.disks import KEEP_ALL, LOSE_UNSYNCED, Disk
from clusters.shim import identity_of, synced_sizes
from harness.clock import Clock
from harness.errors import HarnessFailed
from harness.impairments import FailedDisk, FrozenDisk, FullDisk, PowerLoss
from harness.protocols import NodeState
from harness.schema import Tristate

DiskOf = Callable[[str], Disk | None]
"""Name of a node → its disk; None = it shares one with the harness."""
Seen = tuple[Tristate, str]
PROBE_BYTES = 65_536
FROZEN_S = 0.5
"""A write that has not returned by then waits for a frozen disk: others take microseconds, into the page cache."""
_FILL_BYTES = 4 * 1024**2


class DiskPart:
    """What parts of disks share. `disk_of`: asked each time."""

    def __init__(self, disk_of: DiskOf, clock: Clock) -> None:
        self._disk_of, self._clock = disk_of, clock

    def _disk(self, node: Any) -> Disk:  # noqa: ANN401 - of its backend
        disk = self._disk_of(node.name)
        if disk is None or not disk.mounted:
            raise HarnessFailed(f"{node.name} has no disk of its own now.")
        return disk


class FullDisks(DiskPart):
    """A ballast file takes what is left, and a write really gets ENOSPC."""

    def impair(self, node: Any, impairment: FullDisk) -> None:  # noqa: ANN401
        disk = self._disk(node)
        with disk.ballast.open("ab", buffering=0) as ballast:
            while (room := disk.free_bytes() - impairment.left_bytes) > 0:
                try:
                    _take(ballast.fileno(), min(room, _FILL_BYTES))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise HarnessFailed(f"{disk.ballast}: {error.strerror}.") from error
                    return  # what df(1) says and what can be had differ by some blocks

    def repair(self, node: Any, impairment: FullDisk) -> None:  # noqa: ANN401
        disk = self._disk_of(node.name)
        if disk is not None and disk.mounted:
            disk.ballast.unlink(missing_ok=True)

    def impaired(self, node: Any, impairment: FullDisk) -> Seen:  # noqa: ANN401
        disk = self._disk(node)
        size = impairment.left_bytes + PROBE_BYTES
        failed = write_probe(disk.mount_point, size=size)
        if failed is None:
            return Tristate.NO, f"a write of {size} bytes works"
        if failed == errno.ENOSPC:
            return Tristate.YES, f"a write of {size} bytes gets ENOSPC"
        return Tristate.UNKNOWN, f"a write of {size} bytes gets {errno.errorcode.get(failed, failed)}"


class FrozenDisks(DiskPart):
    """fsfreeze(8): a write waits. Whoever looks is a process of its own, which waits with the others."""

    def __init__(self, disk_of: DiskOf, clock: Clock) -> None:
        super().__init__(disk_of, clock)
        self._waiting: dict[str, subprocess.Popen[bytes]] = {}

    def impair(self, node: Any, impairment: FrozenDisk) -> None:  # noqa: ANN401
        self._disk(node).freeze()

    def repair(self, node: Any, impairment: FrozenDisk) -> None:  # noqa: ANN401
        disk = self._disk_of(node.name)
        if disk is not None and disk.mounted:
            disk.thaw()

    def impaired(self, node: Any, impairment: FrozenDisk) -> Seen:  # noqa: ANN401
        disk = self._disk(node)
        waiting = self._waiting.get(node.name)
        if waiting is None or waiting.poll() is not None:
            target = disk.mount_point / ".probe"
            waiting = self._waiting[node.name] = subprocess.Popen(
                ["sh", "-c", 'echo > "$1" && rm "$1"', "sh", str(target)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        try:
            code = waiting.wait(FROZEN_S)
        except subprocess.TimeoutExpired:
            return Tristate.YES, f"a write has waited for {FROZEN_S:g} s"
        return (Tristate.NO, "a write works") if code == 0 else (Tristate.UNKNOWN, "a write failed")


class FailedDisks(DiskPart):
    """The file system trips over an error and is read-only; or it is shut down, and every access is EIO."""

    def impair(self, node: Any, impairment: FailedDisk) -> None:  # noqa: ANN401
        disk = self._disk(node)
        if write_probe(disk.mount_point) is not None:
            return  # failed already
        if impairment.how == "read-only":
            disk.trip()
        else:
            disk.shut_down(KEEP_ALL)

    def repair(self, node: Any, impairment: FailedDisk) -> None:  # noqa: ANN401
        """Down, checked and mounted anew. A node that held on to its broken disk is killed: there is no other way."""
        disk = self._disk_of(node.name)
        if disk is None or not disk.mounted or write_probe(disk.mount_point) in (None, errno.ENOSPC):
            return
        node.kill()
        disk.restore()

    def impaired(self, node: Any, impairment: FailedDisk) -> Seen:  # noqa: ANN401
        failed = write_probe(self._disk(node).mount_point)
        if failed is None:
            return Tristate.NO, "a write works"
        wanted = errno.EROFS if impairment.how == "read-only" else errno.EIO
        seen = f"a write gets {errno.errorcode.get(failed, failed)}"
        return (Tristate.YES if failed == wanted else Tristate.UNKNOWN), seen


class DisksWithoutPower(DiskPart):
    """The file system is shut down without writing its journal, the process killed, and the disk mounted again with what is
    on it: what a machine finds that lost its power. Nothing is modelled: ext4 itself says what had been written."""

    def harm(self, node: Any, harm: PowerLoss) -> str:  # noqa: ANN401
        disk = self._disk(node)
        if node.state() is NodeState.STOPPED:
            raise HarnessFailed(f"{node.name} is down already.")
        disk.thaw()
        before = sizes(disk.mount_point)
        disk.shut_down(LOSE_UNSYNCED)
        node.kill()
        disk.restore()
        return "its file system was shut down: " + lost_text(before, sizes(disk.mount_point))


class RecordedPower:
    """The process is killed, and of every log segment is cut off what it never synced, by the records of its shim: for who
    may not mount disks. The worst case: nothing reaches the disk unasked. What is not cut is made anew by Kafka's recovery,
    or is synced by itself (indexes, checkpoints)."""

    def __init__(self, syncs_of: Callable[[str], Path]) -> None:
        self._syncs_of = syncs_of

    def harm(self, node: Any, harm: PowerLoss) -> str:  # noqa: ANN401
        if node.state() is NodeState.STOPPED:
            raise HarnessFailed(f"{node.name} is down already.")
        node.kill()
        records = self._syncs_of(node.name)
        if not records.exists():
            raise HarnessFailed(f"{node.name} was started without the library that writes down what it syncs.")
        synced, before = synced_sizes(records), sizes(node.data_directory)
        for name, size in before.items():
            path = node.data_directory / name
            kept = synced.get(identity_of(path), 0)
            if kept < size:
                os.truncate(path, kept)
        return "what it had not synced was cut off: " + lost_text(before, sizes(node.data_directory))


def write_probe(directory: Path, *, size: int = PROBE_BYTES) -> int | None:
    """The errno that a new file of that size gets there, written and synced; None = it works. Nothing is left."""
    path = directory / ".probe"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        return error.errno
    try:
        left = size
        while left:
            left -= os.write(descriptor, b"\0" * min(left, PROBE_BYTES))
        os.fsync(descriptor)
    except OSError as error:
        return error.errno
    finally:
        os.close(descriptor)
        with suppress(OSError):  # a file system that is read-only or gone keeps it, or has lost it
            path.unlink()
    return None


def sizes(directory: Path) -> dict[str, int]:
    """Bytes of every log segment under `directory`, by its path there."""
    return {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*.log")}


def lost_text(before: dict[str, int], after: dict[str, int]) -> str:
    """What of the segments is gone."""
    shorter = {name: size - after.get(name, 0) for name, size in before.items() if after.get(name, 0) < size}
    return f"{sum(shorter.values())} of {sum(before.values())} bytes of segments are gone, of {len(shorter)} files"


def _take(descriptor: int, size: int) -> None:
    try:
        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size)
    except OSError as error:
        if error.errno == errno.ENOSPC and size > 4096:
            _take(descriptor, size // 2)
            return
        raise
