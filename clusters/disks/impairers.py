"""Breaks the disks of nodes (`prozess.clusters.disks.volumes`) and their files, and sees that they are broken.

These are parts for `prozess.clusters.impairers`, for any backend whose nodes have a data directory that this process sees.
"""

import errno
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prozess.clusters.disks.shim import ShiftedClocks, environment, identity_of, set_clock, shim_support, synced_sizes
from prozess.clusters.disks.volumes import (
    KEEP_ALL,
    LOSE_UNSYNCED,
    SIZE_BYTES,
    ControlGroup,
    Disk,
    disk_support,
    group_prefix,
    groups_support,
)
from prozess.clusters.impairers import AnyHarmer, AnyImpairer
from prozess.clusters.machine.server_properties import properties_text
from prozess.clusters.machine.servers import CHECKPOINT_NAME, FIRST_CHECKPOINT_NAME, new_kafka_uuid
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.impairments import (
    Capability,
    Corrupt,
    DropCheckpoint,
    FailedDisk,
    FrozenDisk,
    FullDisk,
    PowerLoss,
    SlowDisk,
    Wipe,
)
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Node, NodeState
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate

DiskOf = Callable[[str], Disk | None]
"""The name of a node → its disk; None if it shares one with the harness."""
Seen = tuple[Tristate, str]
PROBE_BYTES = 65_536
FROZEN_S = 0.5
"""After this long a write is waiting for a frozen disk: others take microseconds, into the page cache."""
_FILL_BYTES = 4 * 1024**2


class DiskPart:
    """Describes what the parts that break disks share. `disk_of` is asked each time."""

    def __init__(self, disk_of: DiskOf, clock: Clock) -> None:
        self._disk_of, self._clock = disk_of, clock

    def _disk(self, node: Node) -> Disk:
        disk = self._disk_of(node.name)
        if disk is None or not disk.mounted:
            raise HarnessFailed(f"{node.name} has no disk of its own now.")
        return disk


class FullDisks(DiskPart):
    """Fills disks: a ballast file takes the space that is left, and a write really gets ENOSPC."""

    def impair(self, node: Node, impairment: FullDisk) -> None:
        disk = self._disk(node)
        with disk.ballast.open("ab", buffering=0) as ballast:
            while (room := disk.free_bytes() - impairment.left_bytes) > 0:
                try:
                    _take(ballast.fileno(), min(room, _FILL_BYTES))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise HarnessFailed(f"{disk.ballast}: {error.strerror}.") from error
                    return  # what df(1) says and what can be had differ by some blocks

    def repair(self, node: Node, impairment: FullDisk) -> None:
        disk = self._disk_of(node.name)
        if disk is not None and disk.mounted:
            disk.ballast.unlink(missing_ok=True)

    def impaired(self, node: Node, impairment: FullDisk) -> Seen:
        disk = self._disk(node)
        size = impairment.left_bytes + PROBE_BYTES
        failed = write_probe(disk.mount_point, size=size)
        if failed is None:
            return Tristate.NO, f"a write of {size} bytes works"
        if failed == errno.ENOSPC:
            return Tristate.YES, f"a write of {size} bytes gets ENOSPC"
        return Tristate.UNKNOWN, f"a write of {size} bytes gets {errno.errorcode.get(failed, failed)}"


class FrozenDisks(DiskPart):
    """Freezes disks by fsfreeze(8): every write waits. A process of its own looks, since it waits with the others."""

    def __init__(self, disk_of: DiskOf, clock: Clock) -> None:
        super().__init__(disk_of, clock)
        self._waiting: dict[str, subprocess.Popen[bytes]] = {}

    def impair(self, node: Node, impairment: FrozenDisk) -> None:
        self._disk(node).freeze()

    def repair(self, node: Node, impairment: FrozenDisk) -> None:
        disk = self._disk_of(node.name)
        if disk is not None and disk.mounted:
            disk.thaw()

    def impaired(self, node: Node, impairment: FrozenDisk) -> Seen:
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
    """Makes disks fail: the file system finds an error and is read-only, or it is shut down and every access gets EIO."""

    def impair(self, node: Node, impairment: FailedDisk) -> None:
        disk = self._disk(node)
        if write_probe(disk.mount_point) is not None:
            return  # failed already
        if impairment.how == "read-only":
            disk.trip()
        else:
            disk.shut_down(KEEP_ALL)

    def repair(self, node: Node, impairment: FailedDisk) -> None:
        """Kills a node that still uses its broken disk, which cannot be avoided, and checks and mounts the disk again."""
        disk = self._disk_of(node.name)
        if disk is None or not disk.mounted or write_probe(disk.mount_point) in (None, errno.ENOSPC):
            return
        node.kill()
        disk.restore()

    def impaired(self, node: Node, impairment: FailedDisk) -> Seen:
        failed = write_probe(self._disk(node).mount_point)
        if failed is None:
            return Tristate.NO, "a write works"
        wanted = errno.EROFS if impairment.how == "read-only" else errno.EIO
        seen = f"a write gets {errno.errorcode.get(failed, failed)}"
        return (Tristate.YES if failed == wanted else Tristate.UNKNOWN), seen


class DisksWithoutPower(DiskPart):
    """Takes a node's power away: its file system is shut down without writing its journal, and its process is killed.

    Then the disk is mounted again with what is on it. Nothing is modelled: ext4 itself says what had been written."""

    def harm(self, node: Node, harm: PowerLoss) -> str:
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
    """Takes a node's power away where no disk may be mounted: it is killed, and its log segments lose what was never synced.

    What was synced is known by the records of its shim. This is the worst case: nothing reaches the disk unasked. Other
    files are not cut: Kafka's recovery makes them anew, or they are synced by themselves (indexes, checkpoints)."""

    def __init__(self, syncs_of: Callable[[str], Path]) -> None:
        self._syncs_of = syncs_of

    def harm(self, node: Node, harm: PowerLoss) -> str:
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
    """Writes and syncs a new file of that size, removes it, and returns the errno that it got; None if it works."""
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
    """Returns the bytes of every log segment under `directory`, by its path there."""
    return {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*.log")}


def lost_text(before: dict[str, int], after: dict[str, int]) -> str:
    """Says how many bytes of the segments are gone."""
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


PROBE_S = 1.0
"""A probe writes as much as should take this long. Kernel threads write the file system's journal without a limit."""
_SLOW = 0.5
"""A probe that took this share of the time or more was slow: other writers of the group only make it slower."""
PROBE_TIMEOUT_S = 60.0


class SlowDisks:
    """Makes disks slow. `group_of` gives the node's control group, in which its server runs."""

    def __init__(self, disk_of: DiskOf, group_of: Callable[[str], ControlGroup], clock: Clock) -> None:
        self._disk_of, self._group_of, self._clock = disk_of, group_of, clock

    def impair(self, node: Node, impairment: SlowDisk) -> None:
        disk = self._disk_of(node.name)
        if disk is None or not disk.mounted:
            raise HarnessFailed(f"{node.name} has no disk of its own now.")
        self._group_of(node.name).limit(disk.number, impairment.bytes_per_s)

    def repair(self, node: Node, impairment: SlowDisk) -> None:
        """Takes the limit away, unless another fault has changed it since: that one undoes its own."""
        disk, group = self._disk_of(node.name), self._group_of(node.name)
        if disk is None or not disk.mounted or group.limit_of(disk.number) != impairment.bytes_per_s:
            return
        group.limit(disk.number, None)

    def impaired(self, node: Node, impairment: SlowDisk) -> tuple[Tristate, str]:
        disk, group = self._disk_of(node.name), self._group_of(node.name)
        assert disk is not None, node.name
        size = max(4096, int(impairment.bytes_per_s * PROBE_S))
        took_s = self._write_in(group, disk, size)
        if took_s is None:
            return Tristate.UNKNOWN, f"a synced write of {size} bytes failed"
        seen = f"a synced write of {size} bytes took {took_s:.2f} s"
        return (Tristate.YES if took_s >= _SLOW * size / impairment.bytes_per_s else Tristate.NO), seen

    def _write_in(self, group: ControlGroup, disk: Disk, size: int) -> float | None:
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


# Files of a node that is down, wiped or changed: parts for `prozess.clusters.impairers`, for any backend whose nodes' data
# directories this process sees.


_KEPT = ("meta.properties", CHECKPOINT_NAME, FIRST_CHECKPOINT_NAME)
CHECKPOINT = "recovery-point-offset-checkpoint"


class WipedDirectories:
    """Wipes data directories and formats them anew, as an operator would: same cluster and node ids, another directory id."""

    def harm(self, node: Node, harm: Wipe) -> str:
        _refuse_running(node, "wiped")
        directory = node.data_directory
        kept = {name: (directory / name).read_bytes() for name in _KEPT if (directory / name).exists()}
        files = [path for path in directory.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, content in kept.items():
            text = _with_new_directory_id(content.decode()) if name == "meta.properties" else None
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content if text is None else text.encode())
        for path in directory.rglob("*"):
            _let_it_be_as(directory, path)
        return f"{len(files)} files with {size} bytes are gone; formatted anew"


def _let_it_be_as(directory: Path, path: Path) -> None:
    """Gives a new file the owner and the rights of the data directory, since a server in a container is another user."""
    found = directory.stat()
    path.chmod(stat.S_IMODE(found.st_mode) & (0o777 if path.is_dir() else 0o666))
    if os.geteuid() == 0:
        os.chown(path, found.st_uid, found.st_gid)


def _with_new_directory_id(text: str) -> str:
    meta = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    if "directory.id" in meta:
        meta["directory.id"] = new_kafka_uuid()
    return properties_text(meta)


class CorruptFiles:
    """Corrupts files: some of their bytes are replaced by others."""

    def harm(self, node: Node, harm: Corrupt) -> str:
        _refuse_running(node, "corrupted")
        path = _chosen(node.data_directory, harm)
        content = bytearray(path.read_bytes())
        rng = random.Random(harm.seed)
        if not content and harm.file == "checkpoint":  # written every minute, and by an orderly shutdown
            path.write_bytes(rng.randbytes(harm.bytes))
            return f"{harm.bytes} bytes of nonsense in {path.name}, which was empty"
        if not content:
            raise HarnessFailed(
                f"{node.name}: {path.name} of {path.parent.name} is empty: there is nothing to corrupt."
            )
        offsets = sorted(rng.sample(range(len(content)), min(harm.bytes, len(content))))
        for offset in offsets:
            content[offset] ^= rng.randrange(1, 256)
        with path.open("r+b") as file:  # in place: a new file would be another inode, and its size could differ
            file.write(content)
        what = path.relative_to(node.data_directory)
        return f"{len(offsets)} of {len(content)} bytes of {what} changed, from {offsets[0]} on"


class DroppedCheckpoints:
    """Removes the recovery point checkpoint of a broker that is down, if it is there."""

    def harm(self, node: Node, harm: DropCheckpoint) -> str:
        _refuse_running(node, "removed")
        (node.data_directory / CHECKPOINT).unlink(missing_ok=True)
        return f"{CHECKPOINT} is removed"


def _chosen(directory: Path, harm: Corrupt) -> Path:
    if harm.file == "checkpoint":
        (directory / CHECKPOINT).touch()
        found = [directory / CHECKPOINT]
    else:
        which = "*" if harm.topic is None else f"{harm.topic}-{harm.number}"
        found = sorted(directory.glob(f"{which}/*.{'log' if harm.file == 'segment' else 'index'}"))
    found = [path for path in found if path.exists()]
    if not found:
        raise HarnessFailed(f"{directory} has no {harm.file} of {harm.topic}-{harm.number}.")
    return found[-1]


def _refuse_running(node: Node, what: str) -> None:
    if (state := node.state()) is not NodeState.STOPPED:
        raise HarnessFailed(f"{node.name}: files can be {what} only while the node is down; it is {state}.")


# What faults of disks and clocks need of a node before it starts (a disk of its own, a library in its server), and
# what is taken away behind a run. A node is equipped with what the plan's schedule needs, and with nothing else.
#
# For any backend whose nodes' data is in directories that this process may mount and change.


OF_DISKS = frozenset({Capability.FILL_DISK, Capability.SLOW_DISK, Capability.FREEZE_DISK, Capability.FAIL_DISK})
"""A node that needs one of these has a disk of its own."""


@dataclass(frozen=True, slots=True)
class Equipped:
    """A node that is to be equipped: its name, its data directory, and a directory for files of ours."""

    name: str
    data: Path
    ours: Path


class Equipment:
    """Describes what the nodes of one cluster are equipped with. Nothing is touched before `install`."""

    def __init__(
        self,
        run: RunDirectory,
        nodes: Sequence[Equipped],
        *,
        needs: frozenset[Capability],
        mounts: bool,
        agents: Mapping[int, tuple[str, int]],
        clock: Clock,
    ) -> None:
        """`needs`: what the schedule's faults need. `mounts`: this process has a mount namespace of its own, or will.
        `agents`: per node id, (host, port) of its metrics agent."""
        self._nodes, self._clock = {node.name: node for node in nodes}, clock
        self._run, self._agents = run, agents
        self._mounts = mounts
        self._needs = needs

    @property
    def capabilities(self) -> Mapping[Capability, str]:
        """The faults of disks and clocks that can be made here, and how each is made."""
        found: dict[Capability, str] = {}
        if self._mounts:
            disks = disk_support()
            if disks.kind is not None:
                found[Capability.FILL_DISK] = f"a ballast file on a disk of the node's own ({disks.kind})"
            if disks.kind == "loop":
                found[Capability.FREEZE_DISK] = "FIFREEZE, on a loop-mounted ext4 file system of the node's own"
                found[Capability.FAIL_DISK] = "errors in a loop-mounted ext4 file system of the node's own"
                found[Capability.LOSE_POWER] = "EXT4_IOC_SHUTDOWN, on a loop-mounted ext4 file system of the node's own"
                if groups_support()[0] is not None:
                    found[Capability.SLOW_DISK] = groups_support()[1]
        if Capability.LOSE_POWER not in found and shim_support().path is not None:
            found[Capability.LOSE_POWER] = (
                "SIGKILL, and what the server did not sync is cut off (recorded by a preload)"
            )
        if shim_support().path is not None and self._agents:
            found[Capability.SHIFT_CLOCK] = "a small library, preloaded into the server, that moves its wall clock"
        found[Capability.CHANGE_FILES] = "in the data directory of a node that is down"
        return found

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """Returns the faults of disks and clocks that cannot be made here, and why."""
        ours = OF_DISKS | {Capability.LOSE_POWER}
        why = disk_support().reason if self._mounts else "no mount namespace here, so no disks for nodes"
        lacking = {capability: why for capability in ours - self.capabilities.keys()}
        if Capability.SLOW_DISK in lacking and self._powerless_disks:
            lacking[Capability.SLOW_DISK] = f"no control group of block devices can be made: {groups_support()[1]}"
        if Capability.LOSE_POWER in lacking:
            lacking[Capability.LOSE_POWER] += f"; {shim_support().reason}"
        if Capability.SHIFT_CLOCK not in self.capabilities:
            no_agent = "no metrics agent in the servers, so nobody could see what time it is to them"
            lacking[Capability.SHIFT_CLOCK] = no_agent if shim_support().path is not None else shim_support().reason
        return lacking

    @property
    def _powerless_disks(self) -> bool:
        """Is power loss made by a disk of the node's own, and not by records of what was synced?"""
        return self._mounts and disk_support().kind == "loop"

    @property
    def has_disks(self) -> bool:
        """Do nodes have disks of their own?"""
        wanted = bool(self._needs & OF_DISKS) or (Capability.LOSE_POWER in self._needs and self._powerless_disks)
        return wanted and self._mounts and disk_support().kind is not None

    @property
    def impairers(self) -> Mapping[str, AnyImpairer]:
        """Returns the parts that impair disks and clocks, by kind of impairment."""
        return {
            "full-disk": FullDisks(self.disk_of, self._clock),
            "frozen-disk": FrozenDisks(self.disk_of, self._clock),
            "failed-disk": FailedDisks(self.disk_of, self._clock),
            "slow-disk": SlowDisks(self.disk_of, self.group_of, self._clock),
            "clock": ShiftedClocks(self.clock_of, lambda node: self._agents.get(node.node_id), self._clock),
        }

    @property
    def harmers(self) -> Mapping[str, AnyHarmer]:
        """Returns the parts that harm disks and files, by kind of harm."""
        by_disks = self.has_disks and self._powerless_disks
        power: AnyHarmer = DisksWithoutPower(self.disk_of, self._clock) if by_disks else RecordedPower(self.syncs_of)
        return {
            "power-loss": power,
            "wipe": WipedDirectories(),
            "corrupt": CorruptFiles(),
            "drop-checkpoint": DroppedCheckpoints(),
        }

    def disk_of(self, name: str) -> Disk | None:
        """The disk of a node, mounted or not; None if it has none of its own."""
        kind = disk_support().kind if self.has_disks else None
        if kind is None:
            return None
        node = self._nodes[name]
        return Disk(kind, node.data, node.ours / "disk.img", SIZE_BYTES[kind])

    def syncs_of(self, name: str) -> Path:
        """The file in which the node's shim writes down what was synced."""
        return self._nodes[name].ours / "syncs"

    def clock_of(self, name: str) -> Path:
        """The file in which the node's shim reads what its clock is off by."""
        return self._nodes[name].ours / "clock"

    def group_of(self, name: str) -> ControlGroup:
        """Returns the node's control group for block devices, whether it exists or not.

        It is named by the run, so that it is found when all else is gone."""
        return ControlGroup((groups_support()[0] or Path("/nowhere")) / f"{group_prefix(self._run)}{name}")

    @property
    def has_groups(self) -> bool:
        """Do servers run in control groups of their own?"""
        return Capability.SLOW_DISK in self._needs and groups_support()[0] is not None

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """The server's command, in the node's control group if it has one."""
        return self.group_of(name).joining(command) if self.has_groups else list(command)

    def install(self) -> None:
        """Gives the nodes their disks, control groups and clocks. They are formatted, and none runs."""
        for name in self._nodes:
            if self.has_groups:
                self.group_of(name).make()
            if Capability.SHIFT_CLOCK in self._needs:
                set_clock(self.clock_of(name), offset_ns=0, drift_ppm=0, since_ns=0)
            if (disk := self.disk_of(name)) is not None:
                disk.take_over()

    def environment(self, name: str) -> Mapping[str, str]:
        """The environment that the node's server is started with."""
        shifts = Capability.SHIFT_CLOCK in self._needs
        shim = shim_support().path if shifts or self._records_syncs else None
        if shim is None:
            return {}
        return environment(
            shim,
            clock=self.clock_of(name) if shifts else None,
            syncs=self.syncs_of(name) if self._records_syncs else None,
        )

    @property
    def _records_syncs(self) -> bool:
        return Capability.LOSE_POWER in self._needs and not self._powerless_disks

    def release(self) -> None:
        """Thaws the disks: a process that waits for a frozen one cannot be ended."""
        for name in self._nodes:
            if (disk := self.disk_of(name)) is not None and disk.mounted:
                disk.thaw()

    def dissolve(self) -> None:
        """Removes the control groups. The nodes are down."""
        for name in self._nodes if self.has_groups else ():
            self.group_of(name).remove()

    def remove(self) -> None:
        """Removes the disks. The nodes are down."""
        for name in self._nodes:
            if (disk := self.disk_of(name)) is not None:
                disk.drop()
