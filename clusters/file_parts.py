"""Files of a node that is down, wiped or changed: parts for `clusters.impairers`, for any backend whose nodes' data
directories this process sees.
"""

import random
import shutil
from pathlib import Path
from typing import Any

from clusters.properties import properties_text
from clusters.storage_format import new_kafka_uuid
from harness.errors import HarnessFailed
from harness.impairments import Corrupt, DropCheckpoint, Wipe
from harness.protocols import NodeState

_KEPT = ("meta.properties", "bootstrap.checkpoint")
CHECKPOINT = "recovery-point-offset-checkpoint"


class WipedDirectories:
    """Everything is gone, and what an operator would format anew is formatted anew: the same cluster and node ids, another
    directory id."""

    def harm(self, node: Any, harm: Wipe) -> str:  # noqa: ANN401 - of its backend
        _refuse_running(node, "wiped")
        directory: Path = node.data_directory
        kept = {name: (directory / name).read_bytes() for name in _KEPT if (directory / name).exists()}
        files = [path for path in directory.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, content in kept.items():
            text = _with_new_directory_id(content.decode()) if name == "meta.properties" else None
            (directory / name).write_bytes(content if text is None else text.encode())
        return f"{len(files)} files with {size} bytes are gone; formatted anew"


def _with_new_directory_id(text: str) -> str:
    meta = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    if "directory.id" in meta:
        meta["directory.id"] = new_kafka_uuid()
    return properties_text(meta)


class CorruptFiles:
    """Some bytes are replaced by others."""

    def harm(self, node: Any, harm: Corrupt) -> str:  # noqa: ANN401 - of its backend
        _refuse_running(node, "corrupted")
        path = _chosen(node.data_directory, harm)
        content = bytearray(path.read_bytes())
        rng = random.Random(harm.seed)
        if not content and harm.file == "checkpoint":  # written every minute, and by an orderly shutdown
            path.write_bytes(rng.randbytes(harm.bytes))
            return f"{harm.bytes} bytes of nonsense in {path.name}, which was empty"
        if not content:
            raise HarnessFailed(
                f"{node.name}: {path.name} of {path.parent.name} is empty: there is nothing to corrupt."
            )
        places = sorted(rng.sample(range(len(content)), min(harm.bytes, len(content))))
        for place in places:
            content[place] ^= rng.randrange(1, 256)
        with path.open("r+b") as file:  # in place: a new file would be another inode, and its size could differ
            file.write(content)
        what = path.relative_to(node.data_directory)
        return f"{len(places)} of {len(content)} bytes of {what} changed, from {places[0]} on"


class DroppedCheckpoints:
    """It is removed, if it is there."""

    def harm(self, node: Any, harm: DropCheckpoint) -> str:  # noqa: ANN401 - of its backend
        _refuse_running(node, "removed")
        (node.data_directory / CHECKPOINT).unlink(missing_ok=True)
        return f"{CHECKPOINT} is removed"


def _chosen(directory: Path, harm: Corrupt) -> Path:
    if harm.file == "checkpoint":
        (directory / CHECKPOINT).touch()
        found = [directory / CHECKPOINT]
    else:
        which = "*" if harm.topic is None else f"{harm.topic}-{harm.number}"
        found = sorted(directory.glob(f"{which}/*.{'log' if harm.file == 'segment' else 'index'}"))
    found = [path for path in found if path.exists()]
    if not found:
        raise HarnessFailed(f"{directory} has no {harm.file} of {harm.topic}-{harm.number}.")
    return found[-1]


def _refuse_running(node: Any, what: str) -> None:  # noqa: ANN401 - of its backend
    if (state := node.state()) is not NodeState.STOPPED:
        raise HarnessFailed(f"{node.name}: only files of a node that is down are {what}; it is {state}.")
