"""Faults that restart one server after the other: rolling restart, upgrade, migration to KRaft, and the finalizing of
new features."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from prozess.harness.clock import wait_until
from prozess.harness.config.configuration import Limit, Pause, Variant, version_numbers
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import Install, MigrationStep
from prozess.harness.interfaces import Capability, Effect, Fault, FaultContext, Node, NodeState, Undo, end_in_order
from prozess.harness.plan.schedule import FEATURES_FAULT
from prozess.harness.processes import ProcessIdentity, identify
from prozess.harness.schema import Tristate
from prozess.harness.values import Frozen
from prozess.nemesis.faults import Observation, Watch, observe
from prozess.nemesis.kafka.readiness import await_unfenced, await_whole_isr
from prozess.nemesis.roles import TargetMissing

Identity = tuple[int | None, ProcessIdentity | None]


class RollingRestartParameters(Frozen):
    """`how`: "stop" ends a server in order (SIGTERM), "kill" ends it at once. `away_s`: the time from the end of a
    process until its successor starts. `wait`: what is awaited before the next server's turn: "isr" (the server is
    unfenced, and every ISR is whole), "unfenced", or "none". `order`: "seed" draws it, "named" is that of the targets.
    `seed`: None means that of the plan. `timeout_s`: how long a server may take to end, before it is killed, and how
    long each wait may take."""

    how: Literal["stop", "kill"] = "stop"
    away_s: Pause = 0.0
    wait: Literal["isr", "unfenced", "none"] = "isr"
    order: Literal["seed", "named"] = "seed"
    seed: str | int | None = None
    timeout_s: Limit = 60.0


R = TypeVar("R", bound=RollingRestartParameters)


class Rollout(Fault[R]):
    """A fault that ends one server after the other and starts it again. A subclass has its own `name`, `needs` and
    `parameters_model`, and may start a server in another way."""

    ends_itself = True

    def __init__(self) -> None:
        self._before: dict[str, Identity] = {}
        self._killed: dict[str, str] = {}
        """The name of a server → what there is to say of its end, if it was not in order."""

    def undos(self, context: FaultContext, parameters: R) -> Sequence[Undo]:
        """Plans to start every server that is down. TargetMissing if one does not run, because another fault holds
        it."""
        for node in context.targets:
            if (state := node.state()) is not NodeState.RUNNING:
                raise TargetMissing(f"{node.name} cannot be restarted: its process is {state}.")
        return [Undo(action="start", node=node.name) for node in context.targets]

    def apply(self, context: FaultContext, parameters: R) -> None:
        self._before = {node.name: identity_of(node) for node in context.targets}
        for node in in_order(context.targets, parameters):
            if parameters.how == "kill":
                node.kill()
            else:
                self._killed[node.name] = end_in_order(node, timeout_s=parameters.timeout_s)
            if parameters.away_s:
                context.clock.sleep(parameters.away_s)
            self.start_again(node, parameters)
            await_back(node, context, parameters)

    def start_again(self, node: Node, parameters: R) -> None:
        """Starts a node that is down."""
        node.start()

    def verify(self, context: FaultContext, parameters: R) -> Sequence[Effect]:
        seen = observe(
            [Watch(node.name, None, partial(_restarted, node, self._before[node.name])) for node in context.targets],
            clock=context.clock,
        )
        return [
            e.model_copy(update={"detail": f"{e.detail}; {killed}"}) if (killed := self._killed.get(e.node)) else e
            for e in seen
        ]


class RollingRestart(Rollout[RollingRestartParameters]):
    """Restarts one server after the other, as operators do for a new version or configuration.

    With `wait = "isr"` the next server ends only when all replicas are in sync again, as Kafka's documentation asks for
    a rolling upgrade. Without it, a partition loses its replicas faster than they come back.

    The effect is that every node has a new process (another pid or start time), and that it runs.
    """

    name = "rolling-restart"
    nature = FaultNature(stops=True, restarts=True)
    needs = frozenset({Capability.KILL, Capability.STOP})
    parameters_model = RollingRestartParameters


def in_order(nodes: Sequence[Node], parameters: RollingRestartParameters) -> list[Node]:
    """Returns the nodes in the order of their turns."""
    named = list(nodes)
    if parameters.order == "seed":
        random.Random(str(parameters.seed)).shuffle(named)
    return named


def identity_of(node: Node) -> Identity:
    """Returns what distinguishes a process from its successor: its pid, and its start time where that can be looked up."""
    pid = node.os_pid
    return pid, None if pid is None else identify(pid)


def await_back(node: Node, context: FaultContext, parameters: RollingRestartParameters) -> None:
    """Waits between two nodes, as the parameter `wait` says."""
    if parameters.wait != "none":
        await_unfenced(context, node, timeout_s=parameters.timeout_s)
    if parameters.wait == "isr":
        await_whole_isr(context, timeout_s=parameters.timeout_s)


def _restarted(node: Node, before: Identity) -> Observation:
    now = identity_of(node)
    if (state := node.state()) is not NodeState.RUNNING:
        return Tristate.NO, f"its process is {state}"
    if now == before:
        return Tristate.NO, f"it is the same process still, pid {now[0]}"
    return Tristate.YES, f"process {before[0]} gave way to {now[0]}"


class UpgradeParameters(RollingRestartParameters):
    """`version`: the version of Kafka, such as 4.4.0. The other parameters are those of a rolling restart."""

    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    timeout_s: float = Field(default=120.0, gt=0)


class Upgrade(Rollout[UpgradeParameters]):
    """Shuts down one server after the other and starts it with another version of Kafka, which stays.

    This is how Kafka's documentation upgrades a cluster ("Upgrading"): one server after the other, each time waiting
    until its replicas are in sync again. Data and properties stay the same. Use `finalize-features` for the new
    features, once all servers have the new version.

    The effect is that every node has a new process, started from that version, and that it runs.
    """

    name = "upgrade"
    nature = FaultNature(stops=True, restarts=True)
    needs = frozenset({Capability.KILL, Capability.STOP, Capability.INSTALL})
    parameters_model = UpgradeParameters

    @staticmethod
    def means_nothing(variant: Variant, parameters: UpgradeParameters) -> str | None:
        """Returns why this would be no upgrade of such a cluster, or None if it would be one."""
        version, oldest = parameters.version, variant.oldest_version
        if version_numbers(version) <= version_numbers(oldest):
            return f"version = {version!r} is no newer than {oldest}, which the servers run. Give a newer one"
        if version_numbers(version)[0] - version_numbers(oldest)[0] > 1:
            return (
                f"version = {version!r}: Kafka {oldest} is upgraded to the next major version first "
                "(https://kafka.apache.org/documentation/#upgrade). Give one of that"
            )
        if (
            variant.metadata_mode == "zookeeper"
            and not variant.migration_controllers
            and version_numbers(version) >= (4,)
        ):
            return f"version = {version!r} has no ZooKeeper mode (KIP-500), and the cluster has ZooKeeper. Migrate it first"
        return None

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[str, str] = {}

    def start_again(self, node: Node, parameters: UpgradeParameters) -> None:
        self._done[node.name] = node.harm(Install(version=parameters.version))

    def verify(self, context: FaultContext, parameters: UpgradeParameters) -> Sequence[Effect]:
        seen = super().verify(context, parameters)
        return [
            e.model_copy(update={"detail": f"{e.detail}; {self._done.get(e.node, 'no version seen')}"}) for e in seen
        ]


class MigrateParameters(RollingRestartParameters):
    """`stage`: the stage of the migration that the targets have from then on. The other parameters are those of a
    rolling restart."""

    stage: Literal["migrating", "kraft"]
    timeout_s: float = 120.0


class Migrate(Rollout[MigrateParameters]):
    """Takes servers one stage further on the way from ZooKeeper to KRaft (KIP-866), one after the other.

    The documented order is ("ZooKeeper to KRaft Migration"): the controllers are started at the stage `migrating`. Then
    the brokers are restarted at that stage, upon which the controllers take over and copy the metadata. Then the
    brokers are restarted at the stage `kraft`. The controllers come last, which finalizes the migration. Until then the
    controllers also write everything to ZooKeeper.

    The effect is that every node has a new process that runs. Once all brokers migrate, a controller has taken over in
    ZooKeeper.
    """

    name = "migrate"
    nature = FaultNature(stops=True, restarts=True)
    needs = frozenset({Capability.KILL, Capability.STOP, Capability.INSTALL})
    parameters_model = MigrateParameters

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[str, str] = {}

    @staticmethod
    def means_nothing(variant: Variant, parameters: MigrateParameters) -> str | None:
        """Returns why there is nothing to migrate on such a cluster, or None if there is something."""
        if variant.metadata_mode != "zookeeper":
            return (
                f"the cluster is {variant.metadata_mode}, and a migration begins with ZooKeeper (KIP-866). Set "
                'metadata_mode = "zookeeper", or remove the step'
            )
        if not variant.migration_controllers:
            return "there are no controllers to migrate to. Set variant.migration_controllers, 3 for one"
        return None

    def undos(self, context: FaultContext, parameters: MigrateParameters) -> Sequence[Undo]:
        """Plans the same as a rolling restart. Controllers that never ran are started by the fault itself."""
        if _fresh(context.targets):
            return [Undo(action="nothing", node=node.name) for node in context.targets]
        return super().undos(context, parameters)

    def apply(self, context: FaultContext, parameters: MigrateParameters) -> None:
        if not _fresh(context.targets):
            super().apply(context, parameters)
        else:  # a quorum needs a majority: all of them, then each is awaited
            self._before = {node.name: identity_of(node) for node in context.targets}
            for node in context.targets:
                self.start_again(node, parameters)
            for node in context.targets:
                await_back(node, context, parameters.model_copy(update={"wait": "unfenced"}))
        if parameters.stage == "migrating" and all("broker" in node.roles for node in context.targets):
            _await_takeover(context, timeout_s=parameters.timeout_s)

    def start_again(self, node: Node, parameters: MigrateParameters) -> None:
        self._done[node.name] = node.harm(MigrationStep(stage=parameters.stage))

    def verify(self, context: FaultContext, parameters: MigrateParameters) -> Sequence[Effect]:
        seen = super().verify(context, parameters)
        return [e.model_copy(update={"detail": f"{e.detail}; {self._done.get(e.node, 'nothing done')}"}) for e in seen]


def _fresh(nodes: Sequence[Node]) -> bool:
    """Says whether the targets are controllers that wait for the migration."""
    return all("controller" in node.roles and node.state() is NodeState.STOPPED for node in nodes)


def _await_takeover(context: FaultContext, *, timeout_s: float) -> None:
    controllers = {node.node_id for node in context.cluster.nodes if "controller" in node.roles}
    wait_until(
        lambda: context.admin.active_controller() in controllers,
        awaited="a controller of the quorum to be named in ZooKeeper",
        timeout_s=timeout_s,
        clock=context.clock,
        last_seen=lambda: f"it names {context.admin.active_controller()}",
    )


SEEN_TIMEOUT_S = 30.0
"""How long the brokers may take to report the new levels, which they learn from the metadata log."""


class FinalizeFeaturesParameters(Frozen):
    """`features`: name → level, or "latest", which is the highest level that the brokers support. They are raised one
    after the other, in this order. `timeout_s`: how long Kafka may take to accept each."""

    features: dict[str, Annotated[int, Field(ge=0)] | Literal["latest"]] = Field(
        default={"metadata.version": "latest"}, min_length=1
    )
    timeout_s: Limit = 30.0


class FinalizeFeatures(Fault[FinalizeFeaturesParameters]):
    """Switches on what brokers of a new version can do, for the whole cluster, as `kafka-features upgrade` does once
    every server has that version (KIP-584, KIP-1022). It is not undone. The target is only named: any broker passes the
    request on.

    The effect is that the brokers report these levels.
    """

    name = FEATURES_FAULT
    nature = FaultNature(reconfigures=True)
    parameters_model = FinalizeFeaturesParameters
    ends_itself = True

    def __init__(self) -> None:
        self._wanted: dict[str, int] = {}
        self._before: dict[str, int] = {}

    @staticmethod
    def means_nothing(variant: Variant, parameters: FinalizeFeaturesParameters) -> str | None:
        """Returns why there are no features to finalize on such a cluster, or None if there are some."""
        if variant.metadata_mode == "zookeeper" and not variant.migration_controllers:
            return (
                "features are finalized by KRaft's controllers (KIP-584, KIP-1022), and the cluster has ZooKeeper. Set "
                'metadata_mode = "kraft-isolated", or remove the step'
            )
        return None

    def undos(self, context: FaultContext, parameters: FinalizeFeaturesParameters) -> Sequence[Undo]:
        """Plans nothing to undo. TargetMissing if every level is already as it is wanted, because nothing would be
        switched on."""
        now, highest = context.admin.features(), context.admin.supported_features()
        wanted = {
            feature: highest.get(feature, 0) if level == "latest" else level
            for feature, level in parameters.features.items()
        }
        if all(now.get(feature, 0) == level for feature, level in wanted.items()):
            raise TargetMissing(f"{self.name}: the levels are {wanted} already; there is nothing to switch on.")
        return [Undo(action="nothing", node=node.name) for node in context.targets]

    def apply(self, context: FaultContext, parameters: FinalizeFeaturesParameters) -> None:
        self._before = dict(context.admin.features())
        highest = context.admin.supported_features()
        for feature, level in parameters.features.items():
            self._wanted[feature] = highest.get(feature, 0) if level == "latest" else level
            context.admin.update_feature(feature, self._wanted[feature], timeout_s=parameters.timeout_s)

    def verify(self, context: FaultContext, parameters: FinalizeFeaturesParameters) -> Sequence[Effect]:
        def answered() -> bool:
            now = context.admin.features()
            return all(now.get(feature, 0) == level for feature, level in self._wanted.items())

        wait_until(
            answered,
            awaited=f"brokers to report the feature levels {self._wanted}",
            timeout_s=SEEN_TIMEOUT_S,
            clock=context.clock,
            last_seen=lambda: str(dict(context.admin.features())),
        )
        changes = ", ".join(f"{f} {self._before.get(f, 0)} → {level}" for f, level in self._wanted.items())
        return [Effect(node=node.name, effect=Tristate.YES, detail=changes) for node in context.targets]
