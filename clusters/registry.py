"""Every backend that a trial can ask for, by name: where Kafka runs.

A new backend is one file and one entry here (`docs/extending.md`). Each function imports its backend when it is called, so
that a trial on this machine needs neither Docker nor ssh.
"""

from collections.abc import Mapping

from prozess.harness.clock import Clock
from prozess.harness.errors import BadInput
from prozess.harness.interfaces import Backend, Cluster
from prozess.harness.interfaces.backend import CloseConsumer, Note
from prozess.harness.plan.catalogue import named
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory

# Server processes on this machine, each in a network namespace of its own.


def local(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """Makes a cluster of server processes on this machine."""
    from prozess.clusters.local.cluster import LocalCluster

    return LocalCluster(plan, run, clock=clock, isolation=isolation)


def _prepare_local(plan: Plan, note: Note, close: CloseConsumer) -> None:
    from prozess.clusters.preparation import prepare_processes

    prepare_processes(plan, note, close)


def _refuse_tiered(plan: Plan) -> None:
    if plan.variant.tiered_storage:
        raise BadInput(
            f'variant.tiered_storage: the {plan.backend} backend gives brokers no remote store. Set backend = "local", or '
            "remove it."
        )


def _refuse_variant(plan: Plan) -> None:
    from prozess.clusters.machine.server_properties import check_variant
    from prozess.clusters.machine.tiered import check_topics

    check_variant(plan.variant)
    check_topics(plan)


def _refuse_versions(plan: Plan, note: Note | None) -> None:
    from prozess.clusters.preparation import refuse_unknown_versions

    refuse_unknown_versions(plan, note)


def _isolation_here(wanted: str, note: Note) -> str:
    from prozess.clusters.preparation import isolation_here

    return isolation_here(wanted, note)


# Containers of a Compose file: the one that the plan names, or one that prozess writes.


def compose(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """Makes or adopts a cluster of containers."""
    from prozess.clusters.compose.cluster import compose_cluster

    return compose_cluster(plan, run, clock=clock)


def _prepare_compose(plan: Plan, note: Note, close: CloseConsumer) -> None:
    from prozess.clusters.preparation import prepare_containers

    prepare_containers(plan, note, close)


def _refuse_images(plan: Plan) -> None:
    _refuse_tiered(plan)
    if plan.compose.file is None:
        from prozess.clusters.compose.file import check_images

        _refuse_variant(plan)
        check_images(plan.variant)


def _engine_version() -> Mapping[str, str]:
    from prozess.clusters.compose.engine import engine_version

    return {"docker engine": engine_version()}


def _containers_started(plan: Plan) -> list[str]:
    found = [] if plan.compose.file is None else [f"start the containers of {str(plan.compose.file)!a}"]
    images = (plan.compose.kafka_image, plan.compose.zookeeper_image)
    return found + [f"start containers of the image {image!a}" for image in images if image is not None]


# A cluster on other machines that is there already, and whose servers are reached over ssh.


def ssh(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """Reaches a cluster over ssh."""
    from prozess.clusters.existing.ssh import SshCluster

    return SshCluster(plan, run, clock=clock)


def _machines_reached(plan: Plan) -> list[str]:
    if plan.ssh is None:
        return []
    hosts = ", ".join(ascii(node.host) for node in plan.ssh.nodes)
    asked = (plan.ssh.start, plan.ssh.stop, *(command for n in plan.ssh.nodes for command in (n.start, n.stop)))
    commands = dict.fromkeys(ascii(command) for command in asked if command is not None)
    return [f"log in to {hosts} by ssh, and run {', '.join(commands)} there"]


# A cluster that is there already, and of which only Kafka's protocol is used.


def attach(plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
    """Reaches a cluster by Kafka's protocol."""
    from prozess.clusters.existing.attach import AttachCluster

    return AttachCluster(plan, run, clock=clock)


def _servers_reached(plan: Plan) -> list[str]:
    if plan.attach is None:
        return []
    return [f"connect to Kafka at {', '.join(map(ascii, plan.attach.bootstrap_servers))}, and log in there as you"]


_LEAVING = "leaving the cluster as it was found"
LOCAL = Backend(
    make=local,
    servers_from="jars in the cache",
    prepare=_prepare_local,
    refuse=_refuse_variant,
    refuse_versions=_refuse_versions,
    isolation=_isolation_here,
    from_cache=True,
    relayed=True,
)
BACKENDS: dict[str, Backend] = {
    "local": LOCAL,
    "compose": Backend(
        make=compose,
        servers_from="an image of the Docker engine",
        prepare=_prepare_compose,
        refuse=_refuse_images,
        tools=_engine_version,
        reaches=_containers_started,
    ),
    "ssh": Backend(
        make=ssh,
        servers_from="what is installed on the machines",
        refuse=_refuse_tiered,
        reaches=_machines_reached,
        lasts=True,
        stages={"cluster": "reaching the cluster, starting its stopped nodes", "teardown": _LEAVING},
    ),
    "attach": Backend(
        make=attach,
        servers_from="a cluster that was there",
        refuse=_refuse_tiered,
        reaches=_servers_reached,
        lasts=True,
        protocol_only=True,
        stages={"cluster": "reaching the cluster", "teardown": _LEAVING},
    ),
}
"""The name of a backend in a trial → the backend."""


def backend_named(name: str) -> Backend:
    """Returns the backend of that name. BadInput with the known names if there is none."""
    return named("backend", BACKENDS, name)
