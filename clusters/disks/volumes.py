"""Disks for nodes' data: each is a file with an ext4 file system, mounted through a loop device, or a piece of memory.

Mounted where the node's data directory is, so a backend only has to make it before the node is formatted (Compose: and
bind it into the container). `loop` is for root; what is done to it is what happens to real disks. `memory` (tmpfs of a
limited size) needs no more than a mount namespace of one's own: it can be full, and no more. In the sandbox both go with
its mount namespace, and the loop device with the mount (autoclear, losetup(8)); a frozen one must be thawed first, since
whoever waits for it cannot even be killed.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast, get_args

from prozess.clusters.machine.processes import captured
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, HarnessFailed, MissingTool, NotReady, ProzessError
from prozess.harness.machine_record import home_of
from prozess.harness.run_directory import RunDirectory

DiskKind = Literal["loop", "memory"]
DISKS_VARIABLE = "PROZESS_DISKS"
"""Set it to `memory` if you do not want loop devices."""
SIZE_BYTES: dict[DiskKind, int] = {"loop": 1024**3, "memory": 256 * 1024**2}
"""A loop device's file has holes: it takes what is written, and 10 MiB for the journal. Filled memory is really taken."""
COMMAND_TIMEOUT_S = 30.0
UNMOUNT_S = 10.0
"""How long a disk is waited for until nobody has a file open there."""
EXT4_IOC_SHUTDOWN = 0x8004587D
"""The ioctl after which every access gets EIO. [Linux, fs/ext4/ext4.h]"""
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
"""The ioctls that freeze and thaw a file system. [Linux, include/uapi/linux/fs.h]"""
KEEP_ALL, LOSE_UNSYNCED = 0, 2
"""What a shut-down does with data that is not on the disk yet: EXT4_GOING_FLAGS_DEFAULT, EXT4_GOING_FLAGS_NOLOGFLUSH."""
_TOOLS = ("losetup", "mkfs.ext4", "e2fsck", "mount", "umount")


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of one node. It keeps nothing: two values with the same paths are the same disk."""

    kind: DiskKind
    mount_point: Path
    image: Path
    """The file that a loop device shows as a disk; of no meaning for `memory`."""
    size_bytes: int

    @property
    def ballast(self) -> Path:
        """Returns the path of the file that fills the disk."""
        return self.mount_point / ".ballast"

    @property
    def mounted(self) -> bool:
        """Is it mounted now, in this process's mount namespace?"""
        return self.device is not None

    @property
    def device(self) -> str | None:
        """The name that the kernel has for its device: `loop0`, `tmpfs`; None where it is not mounted."""
        return device_at(self.mount_point)

    @property
    def number(self) -> str:
        """Returns the major and minor number of its device, by which control groups know it."""
        device = self.mount_point.stat().st_dev
        return f"{os.major(device)}:{os.minor(device)}"

    def take_over(self) -> None:
        """Makes the disk, and moves onto it what the directory holds now, with its owners, synced.

        A broker with ZooKeeper makes its directory itself, and has none yet."""
        self.mount_point.mkdir(parents=True, exist_ok=True)
        beside = self.mount_point.with_name(f"{self.mount_point.name}.before")
        self.mount_point.rename(beside)
        self.make()
        shutil.copytree(beside, self.mount_point, dirs_exist_ok=True)
        for path in (beside, *beside.rglob("*")):
            found = path.stat()
            os.chown(self.mount_point / path.relative_to(beside), found.st_uid, found.st_gid)
        shutil.rmtree(beside)
        self.sync()

    def make(self) -> None:
        """Makes a fresh, empty disk and mounts it. HarnessFailed if it cannot be made."""
        self.drop()
        self.mount_point.mkdir(parents=True, exist_ok=True)
        if self.kind == "loop":
            self.image.parent.mkdir(parents=True, exist_ok=True)
            with self.image.open("wb") as file:
                file.truncate(self.size_bytes)
            # No blocks kept for root, or 5 % would be left when it is full; no discarding: the file is all holes.
            run_tool("mkfs.ext4", "-qF", "-b4096", "-m0", "-N32768", "-Jsize=8", "-Enodiscard", str(self.image))
        self._mount()

    def _mount(self) -> None:
        if self.kind == "memory":
            run_tool("mount", "-t", "tmpfs", "-o", f"size={self.size_bytes},mode=755", "tmpfs", str(self.mount_point))
            return
        # A loop device of its own, and not the one that mount(8) would find again: another mount namespace, made since, may
        # still have the file system that failed.
        device = run_tool("losetup", "--find", "--show", str(self.image)).strip()
        try:
            # Without access times: a reader would write.
            run_tool("mount", "-o", "noatime,errors=remount-ro", device, str(self.mount_point))
        finally:
            run_tool("losetup", "--detach", device)  # with the mount: losetup(8)
        with os.scandir(self.mount_point) as found:
            if any(entry.name == "lost+found" for entry in found):
                # Kafka takes every directory for a partition's.
                shutil.rmtree(self.mount_point / "lost+found")

    def drop(self) -> None:
        """Thaws and unmounts the disk, and removes its file. Safe where there is none."""
        if self.mounted:
            self.thaw()
            self._unmount()
        self.image.unlink(missing_ok=True)

    def _unmount(self) -> None:
        output = ""

        def unmounted() -> bool:
            nonlocal output
            done = tried_tool("umount", str(self.mount_point))
            output = done.stderr.strip()
            return done.returncode == 0

        wait_until(
            unmounted,
            awaited=f"{self.mount_point} to be unmounted",
            timeout_s=UNMOUNT_S,
            clock=SystemClock(),
            last_seen=lambda: output,
        )

    def sync(self) -> None:
        """Syncs the file system: what was written is on the disk now."""
        self._on_file_system(_syncfs)

    def free_bytes(self) -> int:
        """The free bytes, as df(1) counts them."""
        found = os.statvfs(self.mount_point)
        return found.f_bavail * found.f_frsize

    def freeze(self) -> None:
        """Freezes the disk: every write waits until `thaw`. Safe to repeat."""
        self._control(FIFREEZE, struct.pack("i", 0), but=errno.EBUSY)

    def thaw(self) -> None:
        """Thaws the disk. Safe where it is not frozen."""
        if self.kind == "loop":
            self._control(FITHAW, struct.pack("i", 0), but=errno.EINVAL)

    def shut_down(self, how: int) -> None:
        """Shuts the file system down: every access gets EIO from now on. `how`: KEEP_ALL or LOSE_UNSYNCED."""
        self._control(EXT4_IOC_SHUTDOWN, struct.pack("I", how), but=None)

    def trip(self) -> None:
        """Reports an error in the file system, which becomes read-only (it is mounted with errors=remount-ro)."""
        Path(f"/sys/fs/ext4/{self.device}/trigger_fs_error").write_text("prozess\n", encoding="ascii")

    def restore(self) -> None:
        """Unmounts, checks and mounts the disk of a node that is down: it then has what is on the disk, and nothing else."""
        self._unmount()
        checked = tried_tool("e2fsck", "-fy", str(self.image))
        if checked.returncode > 1:  # 1: errors were corrected. [e2fsck(8)]
            raise HarnessFailed(
                f"e2fsck of {self.image} ended with {checked.returncode}: {checked.stdout.strip()[-300:]}"
            )
        self._mount()

    def _control(self, request: int, argument: bytes, *, but: int | None) -> None:
        if self.kind != "loop":
            raise HarnessFailed(f"{self.mount_point} is a piece of memory: it can be full, and nothing else.")

        def ask(descriptor: int) -> None:
            try:
                fcntl.ioctl(descriptor, request, argument)
            except OSError as error:
                if error.errno != but:
                    raise HarnessFailed(f"{self.mount_point}: ioctl {request:#x}: {error.strerror}.") from error

        self._on_file_system(ask)

    def _on_file_system(self, do: Callable[[int], None]) -> None:
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            do(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class DiskSupport:
    """The kind of disks that can be had here, and why there is no better one; `kind` None means none at all."""

    kind: DiskKind | None
    reason: str


def disk_support() -> DiskSupport:
    """Finds out what kind of disks can be had, by trying it once per process: about 0.1 s for a loop device."""
    return _support(os.environ.get(DISKS_VARIABLE, ""))


@cache
def _support(forced: str) -> DiskSupport:
    if forced and forced not in get_args(DiskKind):
        raise BadInput(f"{DISKS_VARIABLE} = {forced!r} must be one of {', '.join(get_args(DiskKind))}, or unset.")
    if cast("DiskKind", forced) == "memory":
        return DiskSupport("memory", f"{DISKS_VARIABLE} = memory asks for disks of memory")
    if missing := [tool for tool in _TOOLS if _which(tool) is None]:
        return DiskSupport(
            "memory", f"{', '.join(missing)} not installed (util-linux, e2fsprogs): no loop-mounted disks"
        )
    if not _is_real_root():
        return DiskSupport("memory", "loop-mounted disks need root on the host")
    if problem := _try_loop():
        return DiskSupport("memory", f"no loop-mounted disks: {problem}")
    return DiskSupport("loop", "loop-mounted ext4 file systems work")


def _is_real_root() -> bool:
    """Is this root of the first user namespace, in which every id is its own? [user_namespaces(7)]"""
    try:
        mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        return False
    return os.geteuid() == 0 and mapped == ["0", "0", str(2**32 - 1)]


def _try_loop() -> str | None:
    """Tries to mount a file as a disk, in a mount namespace that ends with the attempt; why it fails, or None."""
    with tempfile.TemporaryDirectory(prefix="prozess-disk-") as directory:
        script = (
            'PATH="$PATH:/usr/sbin:/sbin"; set -e; cd "$1"; truncate -s 4M image; mkfs.ext4 -qF image; mkdir there\n'
            "mount -o loop image there; umount there\n"
        )
        try:
            done = tried_tool("unshare", "-m", "sh", "-c", script, "prozess", directory)
        except HarnessFailed as error:
            return str(error)
        return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it says nothing"])[-1]


def _syncfs(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor):
        raise HarnessFailed(f"syncfs: {os.strerror(ctypes.get_errno())}.")


def device_at(path: Path) -> str | None:
    """Returns the kernel's name of what is mounted at a path, in this process's mount namespace: `loop0`, `tmpfs`; None where
    nothing is. A bind mount counts, which is no mount point for os.path where it is of the same file system."""
    wanted = path.resolve()
    return next((device for mount, device in _mounts() if mount == wanted), None)


def _mounts() -> Iterator[tuple[Path, str]]:
    """Yields (mount point, device) of each mount in this process's mount namespace. [proc_pid_mountinfo(5)]"""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        words = line.split()
        device = os.fsdecode(words[words.index(b"-") + 2]).removeprefix("/dev/")
        yield Path(os.fsdecode(words[4].replace(rb"\040", b" "))), device


def run_tool(*command: str) -> str:
    """Runs a tool of the system, and returns what it prints. HarnessFailed, with its words, if it fails."""
    done = tried_tool(*command)
    if done.returncode:
        raise HarnessFailed(f"{' '.join(command)} failed ({done.returncode}): {done.stderr.strip()[-300:]}")
    return done.stdout


def tried_tool(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a tool of the system, wherever it is. MissingTool if it is not installed; HarnessFailed if it does not end."""
    program = _which(command[0])
    if program is None:
        raise MissingTool(f"`{command[0]}` is not installed; disks of nodes need util-linux and e2fsprogs.")
    try:
        return captured([program, *command[1:]], timeout_s=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise HarnessFailed(f"{' '.join(command)} did not end within {COMMAND_TIMEOUT_S:g} s.") from error


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


# Slow disks: what the processes of a control group write to one device passes at a limited rate (Linux, cgroup-v1/
# blkio-controller, cgroup-v2 `io.max`).
#
# The writer of a sync waits; what is only in the page cache is written back later by the kernel itself, outside the
# group. Therefore brokers feel it where they sync: with flush.messages, at segment rolls, in their metadata logs.


_V1 = Path("/sys/fs/cgroup/blkio")
_V2 = Path("/sys/fs/cgroup")
EMPTY_S = 10.0
_HASH = 12
"""How many characters of the run's hash are in the names of its groups."""
_JOIN = 'echo "$$" > "$1/cgroup.procs"; shift; exec "$@"'


def group_prefix(run: RunDirectory) -> str:
    """The beginning of the names of the run's control groups."""
    return f"prozess-{hashlib.sha256(str(home_of(run)).encode()).hexdigest()[:_HASH]}-"


def remove_groups(run: RunDirectory) -> list[str]:
    """Removes what is left of the run's control groups, and says which. NotReady if processes stay in one."""
    done = []
    for root in (_V1, _V2):
        for directory in sorted(root.glob(f"{group_prefix(run)}*")):
            ControlGroup(directory).remove()
            done.append(f"removed the control group {directory}")
    return done


def runs_with_groups(runs: Path) -> list[RunDirectory]:
    """Finds the runs under `runs` that still have control groups.

    They are under way, or were killed with everything that could have cleaned up."""
    made = [directory.name for root in (_V1, _V2) for directory in root.glob(f"prozess-{'?' * _HASH}-*")]
    found = [RunDirectory(path.parent.resolve()) for path in sorted(runs.glob("*/plan.json"))] if made else []
    return [run for run in found if any(name.startswith(group_prefix(run)) for name in made)]


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group that limits what its processes write to block devices."""

    directory: Path

    def make(self) -> None:
        """Makes the group. Safe to repeat. HarnessFailed if it cannot be made."""
        try:
            self.directory.mkdir(exist_ok=True)
        except OSError as error:
            raise HarnessFailed(f"{self.directory}: {error.strerror}.") from error

    def limit(self, device: str, bytes_per_s: int | None) -> None:
        """Limits what is written to the device `major:minor`; None takes the limit away."""
        old, new = self.directory / "blkio.throttle.write_bps_device", self.directory / "io.max"
        try:
            if old.exists():
                old.write_text(f"{device} {bytes_per_s or 0}\n", encoding="ascii")
            else:
                new.write_text(f"{device} wbps={bytes_per_s or 'max'}\n", encoding="ascii")
        except OSError as error:
            raise HarnessFailed(f"{self.directory} does not limit {device}: {error.strerror}.") from error

    def limit_of(self, device: str) -> int | None:
        """The limit of the device as it is now; None if there is none."""
        for name in ("blkio.throttle.write_bps_device", "io.max"):
            with suppress(OSError):
                for line in (self.directory / name).read_text(encoding="ascii").splitlines():
                    words = line.split()
                    if words[0] == device:
                        rate = words[1] if len(words) == 2 else dict(w.split("=") for w in words[1:])["wbps"]
                        return int(rate) if rate.isdigit() and int(rate) else None
        return None

    def joining(self, command: Sequence[str]) -> list[str]:
        """A command line that runs `command` in the group from its first instruction on."""
        return ["sh", "-c", _JOIN, "sh", str(self.directory), *command]

    def remove(self) -> None:
        """Removes the group. Safe where there is none. NotReady if processes stay in it."""

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
    """Returns where control groups can be made, and how; None with the reason if they cannot. Found by making one."""
    reasons = []
    _remove_trials()
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


def _remove_trials() -> None:
    """Removes the groups of processes that were killed as they tried."""
    for root in (_V1, _V2):
        for trial in root.glob("prozess-trial-*"):
            if not Path("/proc", trial.name.rpartition("-")[2]).exists():
                with suppress(OSError):
                    trial.rmdir()


# Disks of nodes that a run left behind: thawed, unmounted and seen to be gone, from outside, whatever became of the
# run.
#
# In the sandbox a mount goes with the last process, but whoever waits for a frozen disk never ends: so `thaw` comes
# before the processes are ended, and `sweep` after it.


DETACHED_S = 10.0
"""How long the kernel may take to detach a loop device whose mount went with its namespace."""
_THAW = 'PATH="$PATH:/usr/sbin:/sbin"; mount -o noatime "$1" "$2" && fsfreeze --unfreeze "$2"'


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Sentences about what was found of a run, what was removed, and what is left."""

    found: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def thaw(run: RunDirectory) -> LeftOver:
    """Thaws every disk of the run, wherever it is mounted. Safe to repeat. Needs root, as making them did.

    The device is mounted once more, in a mount namespace of its own: that is the same file system. One that is not frozen
    refuses, and nothing is stated of it."""
    done = []
    for device in devices_of(run.path):
        with tempfile.TemporaryDirectory(prefix="prozess-thaw-") as directory:
            try:
                thawed = tried_tool("unshare", "-m", "sh", "-c", _THAW, "prozess", f"/dev/{device}", directory)
            except ProzessError as error:
                return LeftOver(left=(f"/dev/{device} may be frozen: {error}",))
        if thawed.returncode == 0:
            done.append(f"thawed the disk /dev/{device}")
    return LeftOver(found=tuple(f"{what.removeprefix('thawed ')} is frozen" for what in done), done=tuple(done))


def sweep(run: RunDirectory) -> LeftOver:
    """Unmounts the run's disks in this mount namespace, and waits until no loop device shows a file of the run.

    Safe to repeat. The processes of the run have ended."""
    found, done, left = [], [], []
    for mount in reversed(_mounts_under(run.path)):
        found.append(f"{mount} is mounted")
        try:
            run_tool("umount", str(mount))
            done.append(f"unmounted {mount}")
        except ProzessError as error:
            left.append(f"{mount}: {error}")
    try:
        removed = remove_groups(run)
    except NotReady as error:
        left.append(str(error))
    else:
        found += [f"{line.removeprefix('removed ')} is there" for line in removed]
        done += removed
    try:
        wait_until(
            lambda: not devices_of(run.path),
            awaited="loop devices of the run to be detached",
            timeout_s=DETACHED_S,
            clock=SystemClock(),
            last_seen=lambda: ", ".join(devices_of(run.path)),
        )
    except NotReady as error:
        left.append(str(error))
    return LeftOver(tuple(found), tuple(done), tuple(left))


def claimed(run: RunDirectory) -> list[str]:
    """Says what of this machine is in the directory, and what would be done to it. It only looks."""
    mounts = [f"{mount} is mounted: --trust would unmount it" for mount in _mounts_under(run.path)]
    devices = [f"/dev/{device} has its file there: --trust would thaw it" for device in devices_of(run.path)]
    groups = (directory for root in (_V1, _V2) for directory in root.glob(f"{group_prefix(run)}*"))
    return [*mounts, *devices, *(f"{directory} is there: --trust would remove it" for directory in groups)]


def devices_of(directory: Path) -> list[str]:
    """The loop devices, such as `loop0`, whose file is under `directory`."""
    inside = f"{directory.resolve()}/"
    found = []
    for path in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        try:
            backing = path.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")
        except OSError:
            continue  # detached meanwhile
        if backing.startswith(inside):
            found.append(path.parts[3])
    return found


def _mounts_under(directory: Path) -> list[Path]:
    inside = f"{directory.resolve()}/"
    return [mount for mount, _ in _mounts() if str(mount).startswith(inside)]
