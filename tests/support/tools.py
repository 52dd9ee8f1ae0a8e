"""Tools that need not be there: for clients that are launched and not started, and Docker, which may be missing."""

from pathlib import Path
from types import SimpleNamespace

from prozess.clusters.compose.engine import command, connect
from prozess.clusters.disks import shim
from prozess.harness.errors import BadInput, ClusterFailed, MissingTool
from prozess.workloads.settings import Toolbox

PRETENDED = Toolbox(
    java=lambda: SimpleNamespace(executable=Path("/jvm/bin/java")),
    jars=lambda version: (Path(f"/jars/{version}/a.jar"), Path(f"/jars/{version}/b.jar")),
    librdkafka=lambda version: Path(f"/clients/librdkafka-{version}"),
    metrics_agent=lambda: Path("/jars/agent.jar"),
    clocks=shim,
)
"""A Java and two jars that need not exist."""


def engine_problem() -> str | None:
    """Why the compose backend cannot be used here; None if it can."""
    try:
        connect().close()
        command(["compose", "version"], timeout_s=20.0)
    except (BadInput, MissingTool, ClusterFailed) as error:
        return str(error)
    return None
