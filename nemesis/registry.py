"""Every fault that a trial can ask for, and every way to undo one, by name.

A new fault is one file and one entry here, or an entry point of another package (`docs/extending.md`).
"""

from typing import cast

from prozess.harness import plugins
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.interfaces import AnyFault, Fault, UndoAction
from prozess.harness.plan.catalogue import named
from prozess.harness.values import Frozen
from prozess.nemesis import clients, disk, healing, links, messages, methods, partition, process, remote
from prozess.nemesis.kafka import configurations, elections, reassignments, rollout

_FAULTS: dict[str, type[AnyFault]] = {
    kind.name: kind
    for kind in (
        process.Kill,
        process.Stop,
        process.Pause,
        partition.Partition,
        links.LosePackets,
        links.DelayLinks,
        links.LateConnections,
        links.LimitBandwidth,
        messages.AlterMessages,
        methods.ChangeMethods,
        links.Reset,
        links.HalfOpen,
        elections.ElectPreferred,
        elections.ElectUnclean,
        reassignments.Reassign,
        configurations.Configure,
        elections.MoveController,
        rollout.RollingRestart,
        rollout.Upgrade,
        rollout.Migrate,
        rollout.FinalizeFeatures,
        clients.RestartClients,
        clients.RebalanceStorm,
        clients.DuplicateMember,
        disk.FillDisk,
        process.ClockSkew,
        clients.ClientClock,
        disk.SlowDownDisk,
        disk.HangDisk,
        disk.FailDisk,
        disk.WipeDirectory,
        disk.CorruptFile,
        disk.LosePower,
        remote.TakeStoreAway,
        remote.HarmObject,
    )
}
_UNDO_ACTIONS: dict[str, type[UndoAction]] = {
    "start": healing.Start,
    "resume": healing.Resume,
    "unblock": healing.Unblock,
    "repair": healing.Repair,
    "drop-checkpoint": healing.WithoutCheckpoint,
    "nothing": healing.Nothing,
    "reassign": reassignments.ReassignBack,
    "configure": configurations.ConfigureBack,
}


def _accept_fault(name: str, value: object) -> type[AnyFault]:
    kind = cast("type[AnyFault]", _subclass(value, Fault, "prozess.extend.Fault", ("undos", "apply", "verify")))
    if getattr(kind, "name", None) != name:
        raise plugins.NotAccepted(
            f"has name = {getattr(kind, 'name', None)!r}, and not that of its entry point, {name!r}"
        )
    model = getattr(kind, "parameters_model", None)
    if not (isinstance(model, type) and issubclass(model, Frozen)):
        raise plugins.NotAccepted("has no parameters_model that is a prozess.extend.Frozen")
    if not isinstance(kind.nature, FaultNature | None):
        raise plugins.NotAccepted(f"has nature = {kind.nature!r}, which is no prozess.extend.FaultNature")
    return kind


def _accept_undo(name: str, value: object) -> type[UndoAction]:
    of_undo = _subclass(value, UndoAction, "prozess.extend.UndoAction", ("carry_out", "undone", "holds"))
    return cast("type[UndoAction]", of_undo)


def _subclass(value: object, base: type, named: str, methods: tuple[str, ...]) -> type:
    """Returns the class if it is a subclass of an interface and has its methods. A method that is missing would be the
    interface's own, which does nothing."""
    if not (isinstance(value, type) and base in value.__mro__):
        raise plugins.NotAccepted(f"is no subclass of {named}")
    for method in methods:
        if getattr(value, method) is getattr(base, method):
            raise plugins.NotAccepted(f"has no method {method}")
    return value


FAULTS: dict[str, type[AnyFault]] = _FAULTS | plugins.offered("prozess.faults", _FAULTS, _accept_fault)
"""The name of a fault in a step → its class."""


def fault_named(name: str) -> type[AnyFault]:
    """Returns the class of the fault of that name. BadInput with the known names if there is none."""
    return named("fault", FAULTS, name)


UNDO_ACTIONS: dict[str, type[UndoAction]] = _UNDO_ACTIONS | plugins.offered(
    "prozess.undos", _UNDO_ACTIONS, _accept_undo
)
"""The name of an undo in the journal → its class."""
