"""Images of Kafka and ZooKeeper for the compose backend: the official ones, or ones built here without a registry.

What is built (`compose/images/`) has the environment, paths and ports of the official images: Kafka's jars from Maven, a
Java runtime and the tools of faults from Debian's packages. Measured on two cores: 18 s for the base, once; 15 s per
version of Kafka; half a second when nothing changed.
"""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound
from filelock import FileLock, Timeout

from clusters.cache import make_cache
from clusters.engine import PROBLEMS, command, compose_directory, connect
from clusters.jars import ensure_jars
from harness.errors import BadInput, ClusterFailed, MissingTool, NotReady

BASE = "prozess/base:13"
OFFICIAL = {"kafka": "apache/kafka:{version}", "zookeeper": "zookeeper:3.8.4"}
"""Of ZooKeeper the version that Kafka 3.9 is built against (its `gradle/dependencies.gradle`)."""
BUILT = {"kafka": "prozess/kafka:{version}", "zookeeper": "prozess/zookeeper:{version}"}
CONTENT_LABEL, TOOLS_LABEL = "prozess.content", "prozess.tools"
"""Checksum of what an image was built from; "yes": it has iptables and iproute2."""
BUILD_TIMEOUT_S, PULL_TIMEOUT_S = 600.0, 600.0
_BASE_TIMEOUT_S = 600.0

Progress = Callable[[str], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has."""

    name: str
    id: str
    bytes: int


def list_images() -> list[Image]:
    """Every image of Kafka or ZooKeeper that the engine has and prozess would use. MissingTool without an engine."""
    wanted = {name.partition(":")[0] for name in (*OFFICIAL.values(), *BUILT.values(), BASE)}
    with closing(connect()) as client:
        found = [
            Image(tag, image["Id"], image["Size"])
            for image in client.api.images()
            for tag in image.get("RepoTags") or []
            if tag.rpartition(":")[0] in wanted
        ]
    return sorted(found, key=lambda image: image.name)


def find_image(
    kind: str, version: str, *, wanted: str | None = None, zookeeper: bool = False, progress: Progress | None = None
) -> str:
    """The image to run: `wanted`, else the official one, else one built here. Pulled if no image is here and a registry
    answers. `zookeeper`: Kafka in ZooKeeper mode, which the official image does not know. BadInput, with the way out, if
    there is none."""
    if zookeeper and kind == "kafka" and wanted is None:
        wanted = BUILT["kafka"]
    names = (
        [wanted.format(version=version)]
        if wanted
        else [images[kind].format(version=version) for images in (OFFICIAL, BUILT)]
    )
    with closing(connect()) as client:
        for name in names:
            if _image(client, name) is not None:
                return name
    try:
        (progress or _log.info)(f"Pulling {names[0]} …")
        command(["pull", "--quiet", names[0]], timeout_s=PULL_TIMEOUT_S)
    except ClusterFailed as error:
        raise BadInput(
            f"The image {names[0]!r} is not here and could not be pulled: {_reason(error)} Build one from Maven's jars: "
            f"`prozess images build --version {version}`; or name one that is here with --set compose.{kind}_image=NAME "
            "(`prozess images list`)."
        ) from error
    return names[0]


def has_tools(image: str) -> bool:
    """Has it what faults of the network are made with inside a container?"""
    with closing(connect()) as client:
        found = _image(client, image)
    return found is not None and (found["Config"].get("Labels") or {}).get(TOOLS_LABEL) == "yes"


def build_images(versions: Sequence[str], *, progress: Progress) -> list[str]:
    """Build what is missing or older than its sources, and say which names there are now: Kafka of each version, and
    ZooKeeper for 3.x. MissingTool, ClusterFailed or BadInput with the way out."""
    lock = FileLock(make_cache("images") / "build.flock", timeout=BUILD_TIMEOUT_S)
    try:
        with lock:
            return [name for version in versions for name in _build_version(version, progress)]
    except Timeout as error:
        raise NotReady(
            awaited="another process that builds images",
            timeout_s=BUILD_TIMEOUT_S,
            last_seen=f"{lock.lock_file} is held",
        ) from error


def _build_version(version: str, progress: Progress) -> list[str]:
    sources = compose_directory() / "images"
    jars = ensure_jars(version, progress=progress)
    _ensure_base(sources, progress)
    kafka = BUILT["kafka"].format(version=version)
    jar_facts = "".join(f"{jar.name} {jar.stat().st_size}\n" for jar in jars)
    built = _build(
        kafka, sources / "kafka", {"BASE": BASE, "KAFKA_VERSION": version}, seed=jar_facts, libs=jars, progress=progress
    )
    if not version.startswith("3."):
        return [kafka]
    zookeeper = BUILT["zookeeper"].format(version=version)
    _build(zookeeper, sources / "zookeeper", {"KAFKA_IMAGE": kafka}, seed=built, progress=progress)
    return [kafka, zookeeper]


def _ensure_base(sources: Path, progress: Progress) -> None:
    with closing(connect()) as client:
        if _image(client, BASE) is not None:
            return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise MissingTool(
            "Images are built from Debian's packages, which needs root on Debian. Build them there and `docker save` and "
            "`docker load` them, or use the official images of a registry."
        )
    progress(f"Building {BASE} from Debian's packages …")
    try:
        done = subprocess.run(
            ["bash", str(sources / "base.sh"), BASE],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_BASE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterFailed(
            f"{BASE} was not built within {_BASE_TIMEOUT_S:g} s. Try again on a faster network."
        ) from error
    if done.returncode:
        raise ClusterFailed(f"{BASE} could not be built (exit {done.returncode}): {done.stderr.strip()[-600:]}")


def _build(
    name: str,
    context: Path,
    arguments: dict[str, str],
    *,
    seed: str,
    libs: Sequence[Path] = (),
    progress: Progress,
) -> str:
    """Build the image unless it was built from exactly this; the checksum of what it is built from."""
    content = _checksum(context, json.dumps(arguments, sort_keys=True) + seed)
    with closing(connect()) as client:
        found = _image(client, name)
    if found is not None and (found["Config"].get("Labels") or {}).get(CONTENT_LABEL) == content:
        progress(f"{name} is up to date.")
        return content
    progress(f"Building {name} …")
    with tempfile.TemporaryDirectory(prefix="image-", dir=make_cache("images")) as scratch:
        whole = Path(scratch) / "context"
        shutil.copytree(context, whole)
        if libs:
            (whole / "libs").mkdir()
            for jar in libs:
                _link(jar, whole / "libs" / jar.name)
        options = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        labels = ["--label", f"{CONTENT_LABEL}={content}", "--label", f"{TOOLS_LABEL}=yes"]
        command(["build", "--quiet", *options, *labels, "--tag", name, str(whole)], timeout_s=BUILD_TIMEOUT_S)
    return content


def _checksum(directory: Path, seed: str) -> str:
    told = hashlib.sha256(seed.encode())
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            told.update(f"{path.relative_to(directory)}\0".encode() + path.read_bytes())
    return told.hexdigest()[:16]


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def _image(client: Any, name: str) -> dict[str, Any] | None:  # noqa: ANN401
    try:
        found: dict[str, Any] = client.api.inspect_image(name)
    except ImageNotFound:
        return None
    except PROBLEMS as error:
        raise ClusterFailed(f"The Docker engine does not tell about the image {name!r}: {error}.") from error
    return found


def _reason(error: ClusterFailed) -> str:
    """The engine's words, without the address of a mirror that may be private."""
    text = str(error)
    for sign, meaning in (
        ("no such host", "no registry can be reached."),
        ("dial tcp", "no registry can be reached."),
        ("manifest unknown", "the registry has no such image."),
        ("not found", "the registry has no such image."),
        ("denied", "the registry refuses it."),
        ("did not end within", "the registry did not give it in time."),
    ):
        if sign in text:
            return meaning
    return "the registry did not give it."
