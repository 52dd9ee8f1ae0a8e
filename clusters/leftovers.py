"""Disks of nodes that a run left behind: thawed, unmounted and seen to be gone, from outside, whatever became of the run.

In the sandbox a mount goes with the last process, but whoever waits for a frozen disk never ends: so `thaw` comes before the
processes are ended, and `sweep` after it.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from clusters.disks import run_tool, tried_tool
from clusters.throttles import remove_groups
from harness.clock import SystemClock, wait_until
from harness.errors import NotReady, ProzessError
from harness.run_directory import RunDirectory

DETACHED_S = 10.0
"""Until the kernel has given a loop device back whose mount went with its namespace."""
_THAW = 'PATH="$PATH:/usr/sbin:/sbin"; mount -o noatime "$1" "$2" && fsfreeze --unfreeze "$2"'


@dataclass(frozen=True, slots=True)
class Left:
    """What was found of a run, what was removed, and what is left; one sentence each."""

    found: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def thaw(run: RunDirectory) -> Left:
    """Thaw every disk of the run, wherever it is mounted. Safe to repeat. Needs root, as making them did.

    The device is mounted once more, in a mount namespace of its own: that is the same file system. One that is not frozen
    refuses, and nothing is said of it."""
    done = []
    for device in devices_of(run.path):
        with tempfile.TemporaryDirectory(prefix="prozess-thaw-") as place:
            try:
                thawed = tried_tool("unshare", "-m", "sh", "-c", _THAW, "prozess", f"/dev/{device}", place)
            except ProzessError as error:
                return Left(left=(f"/dev/{device} may be frozen: {error}",))
        if thawed.returncode == 0:
            done.append(f"thawed the disk /dev/{device}")
    return Left(found=tuple(f"{what.removeprefix('thawed ')} is frozen" for what in done), done=tuple(done))


def sweep(run: RunDirectory) -> Left:
    """Unmount what this mount namespace has of the run's disks, and see that no loop device shows a file of it. Safe to
    repeat. The processes of the run have ended."""
    found, done, left = [], [], []
    for place in reversed(_mounts_under(run.path)):
        found.append(f"{place} is mounted")
        try:
            run_tool("umount", str(place))
            done.append(f"unmounted {place}")
        except ProzessError as error:
            left.append(f"{place}: {error}")
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
    return Left(tuple(found), tuple(done), tuple(left))


def devices_of(directory: Path) -> list[str]:
    """Loop devices, as `loop0`, whose file is under `directory`."""
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
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    places = (line.split()[4].replace("\\040", " ") for line in lines)
    return [Path(place) for place in places if place.startswith(inside)]
