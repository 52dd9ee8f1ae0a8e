"""What faults of disks and clocks need of a node before it starts: a disk of its own, a library in its server. A node is
equipped with what the plan's schedule needs, and with nothing else.

For any backend whose nodes' data is in directories that this process may mount and change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.clock_parts import ShiftedClocks
from clusters.disk_parts import DisksWithoutPower, FailedDisks, FrozenDisks, FullDisks, RecordedPower
from clusters.disks import SIZE_BYTES, Disk, disk_support
from clusters.file_parts import CorruptFiles, DroppedCheckpoints, WipedDirectories
from clusters.impairers import Harmer, Impairer
from clusters.shim import environment, set_clock, shim_support
from clusters.throttles import Group, SlowDisks, group_prefix, groups_support
from harness.capabilities import Capability
from harness.clock import Clock
from harness.run_directory import RunDirectory

OF_DISKS = frozenset({Capability.FILL_DISK, Capability.SLOW_DISK, Capability.FREEZE_DISK, Capability.FAIL_DISK})
"""Who has one of these has a disk of its own."""


@dataclass(frozen=True, slots=True)
class Equipped:
    """A node: its name, where its data is, and a directory for what is ours."""

    name: str
    data: Path
    ours: Path


class Equipment:
    """Of one cluster. Nothing is touched before `install`."""

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
        """What can be done to nodes that are equipped for it, and how."""
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
        """Why not, of what belongs to disks and clocks."""
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
        """Is power lost by disks, and not by records?"""
        return self._mounts and disk_support().kind == "loop"

    @property
    def has_disks(self) -> bool:
        """Do nodes have disks of their own?"""
        wanted = bool(self._needs & OF_DISKS) or (Capability.LOSE_POWER in self._needs and self._powerless_disks)
        return wanted and self._mounts and disk_support().kind is not None

    @property
    def impairers(self) -> Mapping[str, Impairer]:
        """Parts for `clusters.impairers.Parts`."""
        return {
            "full-disk": FullDisks(self.disk_of, self._clock),
            "frozen-disk": FrozenDisks(self.disk_of, self._clock),
            "failed-disk": FailedDisks(self.disk_of, self._clock),
            "slow-disk": SlowDisks(self.disk_of, self.group_of, self._clock),
            "clock": ShiftedClocks(self.clock_of, lambda node: self._agents.get(node.node_id), self._clock),
        }

    @property
    def harmers(self) -> Mapping[str, Harmer]:
        """Parts for `clusters.impairers.Parts`."""
        by_disks = self.has_disks and self._powerless_disks
        power = DisksWithoutPower(self.disk_of, self._clock) if by_disks else RecordedPower(self.syncs_of)
        return {
            "power-loss": power,
            "wipe": WipedDirectories(),
            "corrupt": CorruptFiles(),
            "drop-checkpoint": DroppedCheckpoints(),
        }

    def disk_of(self, name: str) -> Disk | None:
        """A node's, mounted or not; None: it has none of its own."""
        kind = disk_support().kind if self.has_disks else None
        if kind is None:
            return None
        node = self._nodes[name]
        return Disk(kind, node.data, node.ours / "disk.img", SIZE_BYTES[kind])

    def syncs_of(self, name: str) -> Path:
        """Where the node's shim writes down what was synced."""
        return self._nodes[name].ours / "syncs"

    def clock_of(self, name: str) -> Path:
        """Where the node's shim reads what its clock is off by."""
        return self._nodes[name].ours / "clock"

    def group_of(self, name: str) -> Group:
        """The node's control group of block devices, there or not. Named by the run, so that it is found when all else is
        gone."""
        return Group((groups_support()[0] or Path("/nowhere")) / f"{group_prefix(self._run)}{name}")

    @property
    def has_groups(self) -> bool:
        """Do servers run in control groups of their own?"""
        return Capability.SLOW_DISK in self._needs and groups_support()[0] is not None

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """The server's command, in the node's control group if it has one."""
        return self.group_of(name).joining(command) if self.has_groups else list(command)

    def install(self) -> None:
        """Nodes are formatted, and none runs: now they get their disks, control groups and clocks."""
        for name in self._nodes:
            if self.has_groups:
                self.group_of(name).make()
            if Capability.SHIFT_CLOCK in self._needs:
                set_clock(self.clock_of(name), offset_ns=0, drift_ppm=0, since_ns=0)
            if (disk := self.disk_of(name)) is not None:
                disk.take_over()

    def environment(self, name: str) -> Mapping[str, str]:
        """What the node's server is started with."""
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
        """Whoever waits for a frozen disk goes on, so that it can be ended."""
        for name in self._nodes:
            if (disk := self.disk_of(name)) is not None and disk.mounted:
                disk.thaw()

    def dissolve(self) -> None:
        """No control group is left. Nodes are down."""
        for name in self._nodes if self.has_groups else ():
            self.group_of(name).remove()

    def remove(self) -> None:
        """No disk is left. Nodes are down."""
        for name in self._nodes:
            if (disk := self.disk_of(name)) is not None:
                disk.drop()
