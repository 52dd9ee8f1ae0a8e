"""Versions of what runs outside of Python: Java, librdkafka, toxiproxy, a Docker engine. For versions.json."""

import confluent_kafka

from clusters.java import find_java
from clusters.toxiproxy import VERSION, toxiproxy_server
from harness.errors import MissingTool


def tool_versions(backend: str) -> dict[str, str]:
    """Name → version of those that this backend uses and that are there."""
    told = {"librdkafka": str(confluent_kafka.libversion()[0])}
    try:
        java = find_java()
        told["java"] = f"{java.version} ({java.origin})"
    except MissingTool:
        pass  # Kafka runs elsewhere, and Spark will say it
    if (server := toxiproxy_server()) is not None:
        # `go install` does not stamp a version: one that prozess built is told by its file's name.
        told["toxiproxy"] = VERSION if VERSION in server.name else server.name
    if backend == "compose":
        told["docker engine"] = _engine_version()
    return told


def _engine_version() -> str:
    from clusters.engine import connect

    client = connect()
    try:
        return str(client.version()["Version"])
    finally:
        client.close()
