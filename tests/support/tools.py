"""Tools that need not be there, for clients that are launched and not started."""

from pathlib import Path
from types import SimpleNamespace

from prozess.clusters.disks import shim
from prozess.workloads.settings import Toolbox

PRETENDED = Toolbox(
    java=lambda: SimpleNamespace(executable=Path("/jvm/bin/java")),
    jars=lambda version: (Path(f"/jars/{version}/a.jar"), Path(f"/jars/{version}/b.jar")),
    metrics_agent=lambda: Path("/jars/agent.jar"),
    clocks=shim,
)
"""A Java and two jars that need not exist."""
