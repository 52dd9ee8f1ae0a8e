"""Slow disks: what the processes of a control group write to one device passes at a limited rate (Linux, cgroup-v1/
blkio-controller, cgroup-v2 `io.max`).

The writer of a sync waits; what is only in the page cache is written back later by the kernel itself, outside the group. So
brokers feel it where they sync: with flush.messages, at segment rolls, in their metadata logs.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from clusters.disk_parts import DiskOf
from clusters.disks import Disk
from harness.clock import NS_PER_S, Clock, SystemClock, wait_until
from harness.errors import HarnessFailed
from harness.impairments import SlowDisk
from harness.run_directory import RunDirectory
from harness.schema import Tristate

_V1 = Path("/sys/fs/cgroup/blkio")
_V2 = Path("/sys/fs/cgroup")
PROBE_S = 1.0
"""A probe writes what should take so long. Kernel threads write its file system's journal, unthrottled."""
_SLOW = 0.5
"""A probe that took half of that, or more, was slow: other writers of the group only make it slower."""
PROBE_TIMEOUT_S = 60.0
EMPTY_S = 10.0
_JOIN = 'echo "$$" > "$1/cgroup.procs"; shift; exec "$@"'


def group_prefix(run: RunDirectory) -> str:
    """What the names of the run's groups begin with."""
    return f"prozess-{hashlib.sha256(str(run.path.resolve()).encode()).hexdigest()[:12]}-"


def remove_groups(run: RunDirectory) -> list[str]:
    """Remove what is left of the run's groups; which. NotReady if processes stay in one."""
    done = []
    for root in (_V1, _V2):
        for directory in sorted(root.glob(f"{group_prefix(run)}*")):
            Group(directory).remove()
            done.append(f"removed the control group {directory}")
    return done


@dataclass(frozen=True, slots=True)
class Group:
    """A control group of block devices."""

    directory: Path

    def make(self) -> None:
        """Safe to repeat. HarnessFailed if it cannot be made."""
        try:
            self.directory.mkdir(exist_ok=True)
        except OSError as error:
            raise HarnessFailed(f"{self.directory}: {error.strerror}.") from error

    def limit(self, device: str, bytes_per_s: int | None) -> None:
        """At most so much is written to `major:minor`; None: as much as it can."""
        old, new = self.directory / "blkio.throttle.write_bps_device", self.directory / "io.max"
        try:
            if old.exists():
                old.write_text(f"{device} {bytes_per_s or 0}\n", encoding="ascii")
            else:
                new.write_text(f"{device} wbps={bytes_per_s or 'max'}\n", encoding="ascii")
        except OSError as error:
            raise HarnessFailed(f"{self.directory} does not limit {device}: {error.strerror}.") from error

    def limit_of(self, device: str) -> int | None:
        """As it is now."""
        for name in ("blkio.throttle.write_bps_device", "io.max"):
            with suppress(OSError):
                for line in (self.directory / name).read_text(encoding="ascii").splitlines():
                    words = line.split()
                    if words[0] == device:
                        rate = words[1] if len(words) == 2 else dict(w.split("=") for w in words[1:])["wbps"]
                        return int(rate) if rate.isdigit() and int(rate) else None
        return None

    def joining(self, command: Sequence[str]) -> list[str]:
        """`command`, in the group from its first instruction on."""
        return ["sh", "-c", _JOIN, "sh", str(self.directory), *command]

    def remove(self) -> None:
        """Safe where there is none. NotReady if processes stay in it."""

        def gone() -> bool:
            try:
                self.directory.rmdir()
            except FileNotFoundError:
                return True
            except OSError:
                return False  # somebody is in it
            return True

        wait_until(
            gone, awaited=f"the control group {self.directory.name} to empty", timeout_s=EMPTY_S, clock=SystemClock()
        )


@cache
def groups_support() -> tuple[Path | None, str]:
    """(where groups can be made, how); None with the reason. Found by making one."""
    reasons = []
    for root, control in ((_V1, "blkio.throttle.write_bps_device"), (_V2, "io.max")):
        trial = root / f"prozess-trial-{os.getpid()}"
        try:
            trial.mkdir()
            offers = (trial / control).exists()
            trial.rmdir()
        except OSError as error:
            reasons.append(f"{root}: {error.strerror}")
            continue
        if offers:
            return root, f"{control} of a control group of the node's own"
        reasons.append(f"{root} has no {control}")
    return None, "; ".join(reasons)


class SlowDisks:
    """`group_of`: the node's control group, in which its server runs."""

    def __init__(self, disk_of: DiskOf, group_of: Callable[[str], Group], clock: Clock) -> None:
        self._disk_of, self._group_of, self._clock = disk_of, group_of, clock

    def impair(self, node: Any, impairment: SlowDisk) -> None:  # noqa: ANN401 - of its backend
        disk = self._disk_of(node.name)
        if disk is None or not disk.mounted:
            raise HarnessFailed(f"{node.name} has no disk of its own now.")
        self._group_of(node.name).limit(disk.number, impairment.bytes_per_s)

    def repair(self, node: Any, impairment: SlowDisk) -> None:  # noqa: ANN401
        """What another fault made of the limit since is that one's to undo."""
        disk, group = self._disk_of(node.name), self._group_of(node.name)
        if disk is None or not disk.mounted or group.limit_of(disk.number) != impairment.bytes_per_s:
            return
        group.limit(disk.number, None)

    def impaired(self, node: Any, impairment: SlowDisk) -> tuple[Tristate, str]:  # noqa: ANN401
        disk, group = self._disk_of(node.name), self._group_of(node.name)
        assert disk is not None, node.name
        size = max(4096, int(impairment.bytes_per_s * PROBE_S))
        took_s = self._write_in(group, disk, size)
        if took_s is None:
            return Tristate.UNKNOWN, f"a synced write of {size} bytes failed"
        seen = f"a synced write of {size} bytes took {took_s:.2f} s"
        return (Tristate.YES if took_s >= _SLOW * size / impairment.bytes_per_s else Tristate.NO), seen

    def _write_in(self, group: Group, disk: Disk, size: int) -> float | None:
        target = disk.mount_point / ".probe"
        begun_ns = self._clock.monotonic_ns()
        command = group.joining(["dd", "if=/dev/zero", f"of={target}", f"bs={size}", "count=1", "conv=fsync"])
        try:
            code = subprocess.run(command, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False).returncode
        except subprocess.TimeoutExpired:
            return PROBE_TIMEOUT_S
        finally:
            target.unlink(missing_ok=True)
        return None if code else (self._clock.monotonic_ns() - begun_ns) / NS_PER_S
