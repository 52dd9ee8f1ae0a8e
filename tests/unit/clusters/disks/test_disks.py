"""Disks of nodes, for real: made, filled, frozen, failed, without power, and gone. In a mount namespace of their own."""

import json
import subprocess
import sys

import pytest

from prozess.clusters.disks.volumes import DISKS_VARIABLE, devices_of, disk_support, remove_groups, sweep, thaw
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.processes import process_status
from prozess.harness.run_directory import RunDirectory
from tests.support.paths import ROOT

HEAD = """
import json, os, sys
from pathlib import Path
from prozess.clusters.disks.volumes import Disk, SIZE_BYTES
from prozess.clusters.disks.impairers import *
from prozess.harness.clock import SystemClock
from prozess.harness.config.impairments import *
from prozess.harness.interfaces import NodeState

directory, kind = Path(sys.argv[1]), sys.argv[2]
disk = Disk(kind, directory / "data", directory / "disk.img", 64 * 1024**2)
(directory / "data").mkdir()
(directory / "data" / "meta.properties").write_text("version=1")
if kind == "loop":
    os.chown(directory / "data", 1000, 1000)
stated = {}

class Node:
    name, data_directory, running = "broker-1", disk.mount_point, True
    def kill(self):
        self.running = False
    def state(self):
        return NodeState.RUNNING if self.running else NodeState.STOPPED

def say(**what):
    stated.update(what)

def seen(part, impairment):
    return [state.name for state, _ in [part.impaired(node, impairment)]][0]

disk.take_over()
node, clock = Node(), SystemClock()
parts = {"full": FullDisks, "frozen": FrozenDisks, "failed": FailedDisks, "power": DisksWithoutPower}
part = {name: made(lambda name: disk, clock) for name, made in parts.items()}
"""
TAIL = """
print(json.dumps(stated))
disk.drop()
"""


def inside(directory, code, *, kind="loop", tail=TAIL):
    """What the code says, run in a mount namespace with that kind of disk."""
    namespaces = ["-m"] if kind == "loop" else ["-U", "-r", "-m"]
    command = ["unshare", *namespaces, sys.executable, "-c", HEAD + code + tail, str(directory), kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


FILL = """
full = FullDisk(left_bytes=100_000)
before = seen(part["full"], full)
part["full"].impair(node, full)
part["full"].impair(node, full)
say(before=before, full=seen(part["full"], full), why=part["full"].impaired(node, full)[1])
try:
    (disk.mount_point / "more").write_bytes(b"x" * 200_000)
except OSError as error:
    say(got=error.errno)
part["full"].repair(node, full)
part["full"].repair(node, full)
say(owner=disk.mount_point.stat().st_uid)
say(after=seen(part["full"], full), files=sorted(p.name for p in disk.mount_point.iterdir()))
"""


@pytest.mark.parametrize("kind", ["loop", "memory"])
def test_a_full_disk_gives_enospc_and_room_again(tmp_path, need, kind):
    need("loop-disks" if kind == "loop" else "namespaces")
    told = inside(tmp_path, FILL, kind=kind)
    assert (told["before"], told["full"], told["after"]) == ("NO", "YES", "NO")
    assert told["got"] == 28
    assert told["owner"] == (1000 if kind == "loop" else 0)
    assert "ENOSPC" in told["why"]
    assert told["files"] == ["meta.properties", "more"], "no ballast, no probe, no lost+found; what was there before is"


def test_a_frozen_disk_keeps_writers_waiting_until_it_is_thawed(tmp_path, need):
    need("loop-disks")
    told = inside(
        tmp_path,
        """
frozen = FrozenDisk()
say(before=seen(part["frozen"], frozen))
part["frozen"].impair(node, frozen)
part["frozen"].impair(node, frozen)
say(frozen=seen(part["frozen"], frozen), still=seen(part["frozen"], frozen))
part["frozen"].repair(node, frozen)
part["frozen"].repair(node, frozen)
say(after=seen(part["frozen"], frozen))
""",
    )
    assert told == {"before": "NO", "frozen": "YES", "still": "YES", "after": "NO"}


@pytest.mark.parametrize(("how", "errno"), [("read-only", "EROFS"), ("io-error", "EIO")])
def test_a_failed_disk_is_repaired_while_the_node_is_down(tmp_path, need, how, errno):
    need("loop-disks")
    told = inside(
        tmp_path,
        f"""
failed = FailedDisk(how="{how}")
say(before=seen(part["failed"], failed))
part["failed"].repair(node, failed)
say(spared=node.running)
part["failed"].impair(node, failed)
part["failed"].impair(node, failed)
say(failed=part["failed"].impaired(node, failed)[1], state=seen(part["failed"], failed))
part["failed"].repair(node, failed)
say(after=seen(part["failed"], failed), running=node.running)
say(files=sorted(p.name for p in disk.mount_point.iterdir()))
""",
    )
    assert told == {
        "before": "NO",
        "spared": True,
        "failed": f"a write gets {errno}",
        "state": "YES",
        "after": "NO",
        "running": False,
        "files": ["meta.properties"],
    }


def test_without_power_what_was_synced_stays_and_what_was_not_is_gone(tmp_path, need):
    need("loop-disks")
    told = inside(
        tmp_path,
        """
synced, unsynced = disk.mount_point / "kept.log", disk.mount_point / "lost.log"
with synced.open("wb") as file:
    file.write(b"k" * 1000)
    file.flush()
    os.fsync(file.fileno())
    file.write(b"l" * 500)
unsynced.write_bytes(b"l" * 700)
say(done=part["power"].harm(node, PowerLoss()))
say(kept=synced.stat().st_size, lost=unsynced.stat().st_size if unsynced.exists() else 0, running=node.running)
""",
    )
    assert told == {
        "done": "its file system was shut down: 1200 of 2200 bytes of segments are gone, of 2 files",
        "kept": 1000,
        "lost": 0,
        "running": False,
    }


def test_a_slow_disk_takes_its_time_and_no_more_when_it_is_repaired(tmp_path, need):
    need("loop-disks")
    need("disk-groups")
    run = RunDirectory(tmp_path)
    told = inside(
        tmp_path,
        """
from prozess.clusters.disks.volumes import ControlGroup, group_prefix, groups_support, remove_groups
from prozess.clusters.disks.impairers import SlowDisks
from prozess.harness.run_directory import RunDirectory
run = RunDirectory(directory)
group = ControlGroup(groups_support()[0] / f"{group_prefix(run)}broker-1")
group.remove()
group.make()
group.make()
part["slow"] = SlowDisks(lambda name: disk, lambda name: group, clock)
slow, other = SlowDisk(bytes_per_s=65_536), SlowDisk(bytes_per_s=8192)
say(before=seen(part["slow"], slow))
part["slow"].impair(node, slow)
say(slow=seen(part["slow"], slow), limit=group.limit_of(disk.number))
part["slow"].repair(node, other)
say(kept=group.limit_of(disk.number))
part["slow"].repair(node, slow)
part["slow"].repair(node, slow)
say(after=seen(part["slow"], slow), free=group.limit_of(disk.number))
""",
    )
    assert told == {"before": "NO", "slow": "YES", "limit": 65_536, "kept": 65_536, "after": "NO", "free": None}
    assert len(remove_groups(run)) == 1
    assert remove_groups(run) == []


def test_a_disk_of_memory_can_be_nothing_but_full(tmp_path, need):
    need("namespaces")
    told = inside(
        tmp_path,
        """
try:
    part["frozen"].impair(node, FrozenDisk())
except Exception as error:
    say(refused=str(error))
""",
        kind="memory",
    )
    assert "it can be full, and nothing else" in told["refused"]


def test_a_frozen_disk_that_was_left_behind_is_thawed_and_seen_to_go(tmp_path, need):
    need("loop-disks")
    run = RunDirectory(tmp_path / "run")
    run.create()
    place = run.path / "nodes"
    place.mkdir(parents=True, exist_ok=True)
    code = 'disk.freeze()\nprint("frozen", flush=True)\n(disk.mount_point / "waits").write_text("x")\n'
    command = ["unshare", "-m", sys.executable, "-c", HEAD + code, str(place), "loop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as left:
        try:
            assert left.stdout is not None
            assert left.stdout.readline() == "frozen\n"
            # It waits for the disk (state D), which no signal ends.
            wait_until(
                lambda: (status := process_status(left.pid)) is not None and status.state == "D",
                awaited="the writer to wait for the frozen disk",
                timeout_s=30,
                clock=SystemClock(),
                last_seen=lambda: str(process_status(left.pid)),
            )
            left.kill()
            with pytest.raises(subprocess.TimeoutExpired):
                left.wait(0.5)
            assert len(devices_of(run.path)) == 1
        finally:
            thawed = thaw(run)
        assert len(thawed.done) == 1, thawed
        left.wait(30)
    assert sweep(run).left == ()
    assert devices_of(run.path) == []
    assert thaw(run).done == ()


def test_whoever_wants_no_loop_devices_gets_memory_and_the_reason(monkeypatch):
    monkeypatch.setenv(DISKS_VARIABLE, "memory")
    support = disk_support()
    assert (support.kind, support.reason) == ("memory", "PROZESS_DISKS = memory asks for disks of memory")
