"""Connects the packages: it gives the nemesis the functions that clean up after a run, and the workloads a toolbox."""

from prozess.clusters.disks import shim
from prozess.clusters.disks.volumes import claimed, sweep, thaw
from prozess.clusters.install import tools
from prozess.clusters.install.kafka_jars import cached_extra, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.clusters.install.wheels import ensure_library
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.registry import backend_named
from prozess.harness.clock import Clock
from prozess.harness.interfaces import AdminProtocol, Cluster
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis import crash_recovery
from prozess.nemesis.crash_recovery import HealReport, Sweepers, SweepReport
from prozess.workloads.settings import Toolbox


def heal_run(run: RunDirectory, *, clock: Clock, ends_within_s: float = 0.0, trust: bool = False) -> HealReport:
    """Undoes what a run left behind, and checks that nothing is left (`prozess.nemesis.crash_recovery`)."""
    sweepers = Sweepers(thaw_disks=thaw, disks=sweep, engine=_sweep_engine, claimed=claimed, reach=reach_again)
    return crash_recovery.heal_run(run, clock=clock, sweepers=sweepers, ends_within_s=ends_within_s, trust=trust)


def reach_again(plan: Plan, run: RunDirectory, *, clock: Clock) -> tuple[Cluster, AdminProtocol]:
    """Returns the cluster of a plan as a later process reaches it, and a client that administrates it."""
    cluster = backend_named(plan.backend).make(plan, run, clock=clock)
    return cluster, Admin(cluster)


def _sweep_engine(run: RunDirectory) -> SweepReport:
    from prozess.clusters.compose.engine import sweep_run  # the Docker backend is not installed everywhere

    return sweep_run(run)


TOOLBOX = Toolbox(java=find_java, jars=ensure_jars, librdkafka=ensure_library, metrics_agent=cached_extra, clocks=shim)


def tool_versions(backend: str) -> dict[str, str]:
    """Returns the versions of what runs outside of Python, by name: of what this backend uses and what is here."""
    return {**tools.tool_versions(), **backend_named(backend).tools()}
