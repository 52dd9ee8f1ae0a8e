"""Formatting a KRaft data directory without a JVM: meta.properties and bootstrap.checkpoint.

What `StorageTool format` writes. The checkpoint holds no cluster id, only the feature levels of a version, so it is made
once per version by StorageTool itself and copied to every node. Without it a node starts all the same, with the newest
metadata.version but every other feature at level 0 (no ELR, no TV2, no KIP-848); so the levels it promises are read
back from it and asserted after the start.
"""

import base64
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from clusters.properties import properties_text
from clusters.record_batches import read_batches, read_records
from clusters.wire import Cursor, Malformed
from harness.errors import ClusterFailed, NotReady

CHECKPOINT_NAME = "bootstrap.checkpoint"
STORAGE_TOOL_TIMEOUT_S = 90.0
_A_CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9095",
    "listeners": "CONTROLLER://127.0.0.1:9095",
    "controller.listener.names": "CONTROLLER",
}
"""Whose directory StorageTool formats for us."""
FEATURE_LEVEL_RECORD = 12
"""apiKey of FeatureLevelRecord (Kafka source, metadata/src/main/resources/common/metadata/FeatureLevelRecord.json)."""


def new_kafka_uuid() -> str:
    """22 characters of URL-safe base64; never with a leading `-`, which command lines would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_directory(directory: Path, *, node_id: int, cluster_id: str, checkpoint: bytes) -> None:
    """Make `directory` a freshly formatted, otherwise empty log directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / CHECKPOINT_NAME).write_bytes(checkpoint)
    meta = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_kafka_uuid()}
    (directory / "meta.properties").write_text(properties_text(meta), encoding="utf-8")


def bootstrap_checkpoint(
    version: str, *, java: Path, jars: Sequence[Path], cache: Path, features: Mapping[str, int] | None = None
) -> bytes:
    """The checkpoint of `version`, from the cache or made there by StorageTool (about a second). `features`: levels
    other than those of the version (KIP-1022).

    ClusterFailed with the tool's words if it refuses; NotReady if another process holds the cache for too long.
    """
    chosen = sorted((features or {}).items())
    cached = cache / ".".join([version, *(f"{name}={level}" for name, level in chosen), CHECKPOINT_NAME])
    if cached.is_file():
        return cached.read_bytes()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{cached}.lock", timeout=STORAGE_TOOL_TIMEOUT_S):
            if not cached.is_file():
                made = _run_storage_tool(version, java=java, jars=jars, features=chosen)
                part = cached.with_name(f"{cached.name}.{os.getpid()}.part")
                part.write_bytes(made)
                part.replace(cached)
    except Timeout as error:
        raise NotReady(
            awaited=f"the lock {cached}.lock", timeout_s=STORAGE_TOOL_TIMEOUT_S, last_seen="held by another process"
        ) from error
    return cached.read_bytes()


def _run_storage_tool(version: str, *, java: Path, jars: Sequence[Path], features: Sequence[tuple[str, int]]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="prozess-format-") as scratch:
        data = Path(scratch) / "data"
        properties = Path(scratch) / "server.properties"
        properties.write_text(properties_text({**_A_CONTROLLER, "log.dirs": str(data)}), encoding="utf-8")
        command = [
            str(java),
            "-Xmx96m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            os.pathsep.join(map(str, jars)),
        ]
        command += ["kafka.tools.StorageTool", "format", "-t", new_kafka_uuid(), "-c", str(properties)]
        for name, level in features:
            command += ["--feature", f"{name}={level}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=STORAGE_TOOL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotReady(
                awaited=f"StorageTool of Kafka {version}",
                timeout_s=STORAGE_TOOL_TIMEOUT_S,
                last_seen=str(error.stdout or "no output")[-500:],
            ) from error
        checkpoint = data / CHECKPOINT_NAME
        if done.returncode or not checkpoint.is_file():
            words = (done.stderr + done.stdout).strip()[-1500:]
            raise ClusterFailed(f"StorageTool of Kafka {version} could not format (exit {done.returncode}): {words}")
        return checkpoint.read_bytes()


def feature_levels(checkpoint: bytes) -> dict[str, int]:
    """Feature name → level that a bootstrap.checkpoint promises. ClusterFailed if it is not one."""
    try:
        found = dict(_feature_records(checkpoint))
    except Malformed as error:
        raise ClusterFailed(f"bootstrap.checkpoint {error}. Remove it from the cache.") from error
    if "metadata.version" not in found:
        raise ClusterFailed("bootstrap.checkpoint names no metadata.version. Remove it from the cache.")
    return found


def _feature_records(checkpoint: bytes) -> Iterator[tuple[str, int]]:
    found = read_batches(checkpoint)
    if found.torn_at is not None:
        raise Malformed(f"is torn at byte {found.torn_at}: {found.torn_reason}")
    for batch in found.batches:
        if batch.control:
            continue  # snapshot header and footer
        for record in read_records(batch):
            yield from _feature_record(record.value or b"")


def _feature_record(value: bytes) -> Iterator[tuple[str, int]]:
    """Frame version, record type, record version (KIP-595's metadata framing), then name (compact string) and level."""
    cursor = Cursor(value)
    cursor.unsigned_varint()
    kind = cursor.unsigned_varint()
    cursor.unsigned_varint()
    if kind == FEATURE_LEVEL_RECORD:
        yield cursor.compact_string() or "", cursor.int16()
