"""What the local and the compose backend fetch, build and refuse before a run starts."""

from prozess.clusters.install.kafka_jars import (
    METHODS_AGENT,
    ensure_extra,
    ensure_jars,
    refuse_unpublished,
    remote_store,
)
from prozess.clusters.install.tools import ensure_toxiproxy, find_java
from prozess.clusters.machine.archives import build_archives
from prozess.clusters.machine.sandbox import probe
from prozess.clusters.methods.planned import refuse_bad_rules, refuse_missing_methods
from prozess.harness.errors import BadInput, HarnessFailed, MissingTool
from prozess.harness.interfaces import Capability
from prozess.harness.interfaces.backend import CloseConsumer, Note
from prozess.harness.plan.checks import capabilities_needed, versions_installed
from prozess.harness.plan.plan import Plan


def prepare_processes(plan: Plan, note: Note, close: CloseConsumer) -> None:
    """Fetches jars, Java and agents, and builds class archives. BadInput if a step names a method that a version does not
    have."""
    _prepare_proxies(plan, note)
    java = find_java()
    versions = (*plan.variant.kafka_versions, plan.variant.kafka_version, *versions_installed(plan))
    for version in dict.fromkeys(versions):
        jars = ensure_jars(version, progress=note)
        build_archives(version, java, jars, close=close, progress=note)
        if plan.variant.tiered_storage:
            ensure_extra(remote_store(version), progress=note)
    _prepare_metrics(plan, note)
    if plan.method_steps:
        agent = ensure_extra(METHODS_AGENT, progress=note)
        refuse_missing_methods(plan)
        refuse_bad_rules(plan, agent=agent, java=java.executable)


def prepare_containers(plan: Plan, note: Note, close: CloseConsumer) -> None:
    """Fetches or builds images. Containers of somebody's own Compose file have theirs."""
    from prozess.clusters.compose.engine import find_image  # the local backend needs no client of Docker

    _prepare_proxies(plan, note)
    compose = plan.compose
    if compose.file is not None:
        return
    zookeeper = plan.variant.metadata_mode == "zookeeper"
    for version in plan.variant.kafka_versions:
        find_image("kafka", version, wanted=compose.kafka_image, zookeeper=zookeeper, progress=note)
    if zookeeper:
        find_image("zookeeper", plan.variant.kafka_version, wanted=compose.zookeeper_image, progress=note)
    _prepare_metrics(plan, note)


def _prepare_proxies(plan: Plan, note: Note) -> None:
    if Capability.DELAY in capabilities_needed(plan):
        ensure_toxiproxy(progress=note)  # it is built before the run, because the sandbox has no network


def _prepare_metrics(plan: Plan, note: Note) -> None:
    """Fetches the JMX agent. Without it the trial runs all the same, and what only JMX reports is absent, never zero."""
    if not plan.metrics:
        return
    try:
        ensure_extra(progress=note)
    except HarnessFailed as error:
        note(f"There will be no metrics from inside the servers: {error}")


def refuse_unknown_versions(plan: Plan, note: Note | None) -> None:
    """Raises BadInput for a version of the servers that is not there, or of which nobody can say whether it is, and for a
    method that a version does not have."""
    for version in dict.fromkeys((*plan.variant.kafka_versions, *versions_installed(plan))):
        try:
            refuse_unpublished(version, progress=note)
        except MissingTool as error:  # no repository answers, so none could give its jars
            raise BadInput(str(error)) from error
    refuse_missing_methods(plan)


def isolation_here(wanted: str, note: Note) -> str:
    """Returns the isolation level: the wanted one, or for "auto" the best of this machine, with a note of what it costs."""
    if wanted != "auto":
        return wanted
    support = probe()
    if support.level != "namespaces":
        note(" ".join((f"Isolation: {support.level}. {support.reason}", *support.costs)))
    return str(support.level)
