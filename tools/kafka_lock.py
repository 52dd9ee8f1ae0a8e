"""Writes the lock of a version of Kafka: `python -m tools.kafka_lock VERSION` prints it.

Redirect it to `clusters/install/locks/kafka-VERSION.lock`, review it, and commit it like code.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from prozess.clusters.install.kafka_jars import check_version, resolve
from prozess.clusters.install.locks import format_lock
from prozess.clusters.install.repository import repository_of
from prozess.harness.errors import ProzessError


def resolved_lock(
    version: str, *, progress: Callable[[str], object], environment: Mapping[str, str] = os.environ
) -> str:
    """A lock for that version, from a fresh resolution of its dependencies that no older lock takes part in.

    Errors as of `ensure_jars`."""
    check_version(version)
    repository = repository_of(environment)
    with tempfile.TemporaryDirectory(prefix="prozess-lock-") as name:
        progress(f"Resolving what Kafka {version} needs, with Ivy, from {repository.origin} …")
        directory = Path(name)
        return format_lock(
            version, resolve(version, directory, repository, into=directory / "whole", environment=environment)
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.kafka_lock VERSION > clusters/install/locks/kafka-VERSION.lock")
    try:
        sys.stdout.write(resolved_lock(sys.argv[1], progress=lambda text: sys.stderr.write(f"{text}\n")))
    except ProzessError as error:
        sys.exit(str(error))
