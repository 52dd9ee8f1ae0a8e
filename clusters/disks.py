"""A disk of its own for a node's data: a file with an ext4 file system, mounted through a loop device, or a piece of memory.

Mounted where the node's data directory is, so a backend only has to make it before the node is formatted (Compose: and
bind it into the container). `loop` is for root; what is done to it is what happens to real disks. `memory` (tmpfs of a
limited size) needs no more than a mount namespace of one's own: it can be full, and no more. In the sandbox both go with
its mount namespace, and the loop device with the mount (autoclear, losetup(8)); a frozen one must be thawed first, since
whoever waits for it cannot even be killed.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast, get_args

from harness.clock import SystemClock, wait_until
from harness.errors import BadInput, HarnessFailed, MissingTool

DiskKind = Literal["loop", "memory"]
DISKS_VARIABLE = "PROZESS_DISKS"
"""A user may set it to `memory`, where loop devices are not wanted."""
SIZE_BYTES: dict[DiskKind, int] = {"loop": 1024**3, "memory": 256 * 1024**2}
"""A loop device's file has holes: it takes what is written, and 10 MiB for the journal. Filled memory is really taken."""
COMMAND_TIMEOUT_S = 30.0
UNMOUNT_S = 10.0
"""Until nobody has a file open there any more."""
EXT4_IOC_SHUTDOWN = 0x8004587D
"""From now on every access is EIO. [Linux, fs/ext4/ext4.h]"""
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
"""Linux, include/uapi/linux/fs.h."""
KEEP_ALL, LOSE_UNSYNCED = 0, 2
"""What a shut-down does with what is not on the disk yet: EXT4_GOING_FLAGS_DEFAULT, EXT4_GOING_FLAGS_NOLOGFLUSH."""
_TOOLS = ("losetup", "mkfs.ext4", "e2fsck", "mount", "umount")


@dataclass(frozen=True, slots=True)
class Disk:
    """One node's. Keeps nothing: whoever names the same paths means the same disk."""

    kind: DiskKind
    mount_point: Path
    image: Path
    """The file that a loop device shows as a disk; of no meaning for `memory`."""
    size_bytes: int

    @property
    def ballast(self) -> Path:
        """The file that fills it."""
        return self.mount_point / ".ballast"

    @property
    def mounted(self) -> bool:
        """Seen now, in this process's mount namespace."""
        return self.device is not None

    @property
    def device(self) -> str | None:
        """As the kernel calls it: `loop0`, `tmpfs`; None where it is not mounted."""
        wanted = os.fsencode(self.mount_point.resolve())
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            words = line.split()
            if words[4].replace(rb"\040", b" ") == wanted:
                return os.fsdecode(words[words.index(b"-") + 2]).removeprefix("/dev/")
        return None

    @property
    def number(self) -> str:
        """Major and minor number of its device, as control groups name it."""
        device = self.mount_point.stat().st_dev
        return f"{os.major(device)}:{os.minor(device)}"

    def take_over(self) -> None:
        """`make`, with what the directory holds now on it, of whom it was, and on the disk for good. A broker that makes its
        directory itself (with ZooKeeper) has none yet."""
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
        """A fresh, empty one, mounted. HarnessFailed if it cannot be made."""
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
        """Unmount it, thawed, and remove the file. Safe where there is none."""
        if self.mounted:
            self.thaw()
            self._unmount()
        self.image.unlink(missing_ok=True)

    def _unmount(self) -> None:
        said = ""

        def unmounted() -> bool:
            nonlocal said
            done = tried_tool("umount", str(self.mount_point))
            said = done.stderr.strip()
            return done.returncode == 0

        wait_until(
            unmounted,
            awaited=f"{self.mount_point} to be unmounted",
            timeout_s=UNMOUNT_S,
            clock=SystemClock(),
            last_seen=lambda: said,
        )

    def sync(self) -> None:
        """What is written is on the disk now."""
        self._on_file_system(_syncfs)

    def free_bytes(self) -> int:
        """As df(1) says."""
        found = os.statvfs(self.mount_point)
        return found.f_bavail * found.f_frsize

    def freeze(self) -> None:
        """Whoever writes waits, until `thaw`. Safe to repeat."""
        self._control(FIFREEZE, struct.pack("i", 0), but=errno.EBUSY)

    def thaw(self) -> None:
        """Safe where it is not frozen."""
        if self.kind == "loop":
            self._control(FITHAW, struct.pack("i", 0), but=errno.EINVAL)

    def shut_down(self, how: int) -> None:
        """Every access is EIO from now on. `how`: KEEP_ALL or LOSE_UNSYNCED."""
        self._control(EXT4_IOC_SHUTDOWN, struct.pack("I", how), but=None)

    def trip(self) -> None:
        """An error is found in the file system, which becomes read-only (mounted with errors=remount-ro)."""
        Path(f"/sys/fs/ext4/{self.device}/trigger_fs_error").write_text("prozess\n", encoding="ascii")

    def restore(self) -> None:
        """Unmounted, checked and mounted again: what is on the disk is there, and nothing else. Of a node that is down."""
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
    """What kind of disks can be had here, and why no better one; `kind` None: none at all."""

    kind: DiskKind | None
    reason: str


def disk_support() -> DiskSupport:
    """Found by trying it, once per process: about 0.1 s for a loop device."""
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
    """Root of the first user namespace, in which every id is its own. [user_namespaces(7)]"""
    try:
        mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        return False
    return os.geteuid() == 0 and mapped == ["0", "0", str(2**32 - 1)]


def _try_loop() -> str | None:
    """Why a file cannot be mounted as a disk, in a mount namespace that ends with the attempt; None if it can."""
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


def run_tool(*command: str) -> str:
    """What it says. HarnessFailed, with its words, if it fails."""
    done = tried_tool(*command)
    if done.returncode:
        raise HarnessFailed(f"{' '.join(command)} failed ({done.returncode}): {done.stderr.strip()[-300:]}")
    return done.stdout


def tried_tool(*command: str) -> subprocess.CompletedProcess[str]:
    """A tool of the system, wherever it is. MissingTool if it is not installed; HarnessFailed if it does not end."""
    program = _which(command[0])
    if program is None:
        raise MissingTool(f"`{command[0]}` is not installed; disks of nodes need util-linux and e2fsprogs.")
    try:
        return subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessFailed(f"{' '.join(command)} did not end within {COMMAND_TIMEOUT_S:g} s.") from error


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
