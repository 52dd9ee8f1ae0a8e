"""Every fault that a trial can ask for, and every way to undo one, by name.

A new fault is one file and one entry here (`docs/extending.md`).
"""

from prozess.harness.interfaces import AnyFault, UndoAction
from prozess.nemesis import clients, disk, healing, links, partition, process
from prozess.nemesis.kafka import changes, elections, rollout

FAULTS: dict[str, type[AnyFault]] = {
    "kill": process.Kill,
    "stop": process.Stop,
    "pause": process.Pause,
    "partition": partition.Partition,
    "loss": links.LosePackets,
    "latency": links.DelayLinks,
    "late-connections": links.LateConnections,
    "bandwidth": links.LimitBandwidth,
    "reset": links.Reset,
    "half-open": links.HalfOpen,
    "elect-preferred": elections.ElectPreferred,
    "elect-unclean": elections.ElectUnclean,
    "reassign": changes.Reassign,
    "configure": changes.Configure,
    "move-controller": elections.MoveController,
    "rolling-restart": rollout.RollingRestart,
    "upgrade": rollout.Upgrade,
    "migrate": rollout.Migrate,
    "finalize-features": rollout.FinalizeFeatures,
    "restart-clients": clients.RestartClients,
    "rebalance-storm": clients.RebalanceStorm,
    "duplicate-member": clients.DuplicateMember,
    "disk-full": disk.FillDisk,
    "clock": process.ClockSkew,
    "client-clock": clients.ClientClock,
    "disk-slow": disk.SlowDownDisk,
    "disk-hang": disk.HangDisk,
    "disk-error": disk.FailDisk,
    "wipe": disk.WipeDirectory,
    "corrupt-file": disk.CorruptFile,
    "power-loss": disk.LosePower,
}
"""The name of a fault in a step → its class."""
UNDO_ACTIONS: dict[str, type[UndoAction]] = {
    "start": healing.Start,
    "resume": healing.Resume,
    "unblock": healing.Unblock,
    "repair": healing.Repair,
    "drop-checkpoint": healing.WithoutCheckpoint,
    "nothing": healing.Nothing,
    "reassign": changes.ReassignBack,
    "configure": changes.ConfigureBack,
}
"""The name of an undo in the journal → its class."""
