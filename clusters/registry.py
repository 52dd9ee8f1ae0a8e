"""Every backend that a trial can ask for, by name: where Kafka runs.

A new backend is one file and one entry here (`docs/extending.md`). Each function imports its backend when it is called, so
that a trial on this machine needs neither Docker nor ssh.
"""

from prozess.harness.clock import Clock
from prozess.harness.interfaces import Backend, Cluster
from prozess.harness.plan.catalogue import named
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory


def local(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """Server processes on this machine, each in a network namespace of its own."""
    from prozess.clusters.local.cluster import LocalCluster

    return LocalCluster(plan, run, clock=clock, isolation=isolation)


def compose(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """Containers of a Compose file: the one that the plan names, or one that prozess writes."""
    from prozess.clusters.compose.cluster import compose_cluster

    return compose_cluster(plan, run, clock=clock)


def ssh(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """A cluster on other machines that is there already, and whose servers are reached over ssh."""
    from prozess.clusters.existing.ssh import SshCluster

    return SshCluster(plan, run, clock=clock)


def attach(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """A cluster that is there already, and of which only Kafka's protocol is used."""
    from prozess.clusters.existing.attach import AttachCluster

    return AttachCluster(plan, run, clock=clock)


BACKENDS: dict[str, Backend] = {
    "local": local,
    "compose": compose,
    "ssh": ssh,
    "attach": attach,
}
"""What a trial calls a backend → the function that makes the cluster of a plan."""


def backend_named(name: str) -> Backend:
    """Returns the backend of that name. BadInput with the known names if there is none."""
    return named("backend", BACKENDS, name)
