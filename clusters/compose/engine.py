"""The Docker engine: reaching it, its command line, the images of Kafka and ZooKeeper, and removing what belongs to one run.

Whatever the compose backend makes carries the label `prozess.run` with the run's directory: what is left of a run can be
found, and removed, by any process at any later time.
"""

import hashlib
import json
import logging
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from prozess.clusters.install.kafka_jars import ensure_jars
from prozess.clusters.install.tools import alone
from prozess.clusters.machine.processes import captured
from prozess.harness import installation
from prozess.harness.errors import BadInput, ClusterFailed, MissingTool
from prozess.harness.installation import make_cache, of_an_extra
from prozess.harness.machine_record import home_of, kept
from prozess.harness.run_directory import RunDirectory

with of_an_extra("Docker"):
    import docker
    from docker.context import ContextAPI
    from docker.errors import APIError, DockerException, NotFound
    from requests.exceptions import RequestException  # a dependency of docker's

with of_an_extra("Docker"):
    from docker.errors import ImageNotFound

RUN_LABEL, NODE_LABEL = "prozess.run", "prozess.node"
"""Labels of containers, networks and volumes: the run that they belong to, and the node whose server a container is."""
REQUEST_TIMEOUT_S = 60
"""The limit of every single request to the engine."""
_THREADS = 8
_SOCKET = "unix:///var/run/docker.sock"
_OF_THIS_MACHINE = ("unix://", "http+unix://")
Problems = tuple[type[Exception], ...]
PROBLEMS: Problems = (DockerException, RequestException, OSError)
"""The errors that the engine's client raises."""


class EngineApi(Protocol):
    """The calls of docker's low-level client that prozess makes; the package itself has no types."""

    def version(self) -> dict[str, Any]: ...
    def containers(self, *, all: bool, filters: Mapping[str, object]) -> list[dict[str, Any]]: ...
    def networks(self, *, filters: Mapping[str, object] | None = None) -> list[dict[str, Any]]: ...
    def volumes(self, *, filters: Mapping[str, object]) -> dict[str, Any]: ...
    def images(self) -> list[dict[str, Any]]: ...
    def inspect_container(self, container: str) -> dict[str, Any]: ...
    def inspect_image(self, image: str) -> dict[str, Any]: ...
    def remove_container(self, container: str, *, force: bool, v: bool) -> None: ...
    def remove_network(self, net_id: str) -> None: ...
    def remove_volume(self, name: str, *, force: bool) -> None: ...
    def start(self, container: str) -> None: ...
    def pause(self, container: str) -> None: ...
    def unpause(self, container: str) -> None: ...
    def kill(self, container: str, *, signal: str) -> None: ...
    def logs(self, container: str, *, since: datetime | None = None, tail: int | str = "all") -> bytes: ...
    def exec_create(self, container: str, cmd: Sequence[str], *, user: str, privileged: bool) -> dict[str, Any]: ...
    def exec_start(self, exec_id: str, *, demux: bool) -> tuple[bytes | None, bytes | None]: ...
    def exec_inspect(self, exec_id: str) -> dict[str, Any]: ...


class EngineClient(Protocol):
    """A connection to the Docker engine: a docker.DockerClient."""

    @property
    def api(self) -> EngineApi: ...
    def version(self) -> dict[str, Any]: ...
    def ping(self) -> bool: ...
    def close(self) -> None: ...


def compose_directory() -> Path:
    """Returns the folder `compose/`: that of the checkout, or the copy in the wheel."""
    if (directory := installation.folder("compose")) is None:
        raise MissingTool("This installation has no folder `compose`. Install prozess again.")
    return directory


def _way_out() -> str:
    return (
        f"Start Docker, or let `bash {compose_directory() / 'engine.sh'} start` install it (Debian, as root). `docker "
        "version` and `docker compose version` must both succeed for this user."
    )


def endpoint(environment: Mapping[str, str] = os.environ) -> str:
    """The address at which this user's `docker` finds its engine.

    It is DOCKER_HOST, else the context of DOCKER_CONTEXT, else the current one. BadInput if that may be another machine:
    data directories are bound into containers by their paths here, their networks are entered from here, and clients reach
    them by addresses of this machine's bridges."""
    name = environment.get("DOCKER_CONTEXT") or None
    if value := environment.get("DOCKER_HOST", ""):
        setting = f"DOCKER_HOST = {value!r}"
    else:
        try:
            context = ContextAPI.get_context(name)
        except Exception as error:
            raise BadInput(f"Docker's context {name or 'that is current'!r} cannot be read: {error}.") from error
        if context is None:
            raise BadInput(f"There is no Docker context {name!r}; `docker context ls` names them.")
        value = str(context.Host or _SOCKET)
        setting = f"Docker's context {context.Name!r}, {value!r},"
    if not value.startswith(_OF_THIS_MACHINE):
        raise BadInput(
            f"{setting} may be an engine on another machine; the compose backend needs one of this machine (unix://…): it "
            "binds directories, enters networks and reaches containers from here. Unset it or name a local socket, run "
            "prozess on that machine, or put a cluster that runs there on trial with the ssh or attach backend."
        )
    return value


def connect() -> EngineClient:
    """Connects to the engine that this user's `docker` talks to. Close it.

    MissingTool if none answers; BadInput as of `endpoint`."""
    host = endpoint()
    _see_that_it_may_be_used(host)
    try:
        client: EngineClient = docker.DockerClient(base_url=host, version="auto", timeout=REQUEST_TIMEOUT_S)
    except PROBLEMS as error:
        raise MissingTool(f"No Docker engine answers ({_short(error)}). {_way_out()}") from error
    try:
        client.ping()
    except PROBLEMS as error:
        client.close()
        raise MissingTool(f"No Docker engine answers ({_short(error)}). {_way_out()}") from error
    return client


def engine_version() -> str:
    """Returns the version of the engine. Errors are those of `connect`."""
    client = connect()
    try:
        return str(client.version()["Version"])
    finally:
        client.close()


def _see_that_it_may_be_used(host: str) -> None:
    """Raises MissingTool if nobody listens, or this user may not connect: docker's client would leave its socket open
    then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(REQUEST_TIMEOUT_S)
        try:
            asked.connect(host.partition("://")[2])
        except OSError as error:
            raise MissingTool(f"No Docker engine answers ({host}: {error.strerror or error}). {_way_out()}") from error


def command(
    arguments: Sequence[str],
    *,
    timeout_s: float,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Runs `docker …`, and returns what it prints. ClusterFailed if it fails or takes too long; MissingTool if there is
    none."""
    try:
        done = captured(
            ["docker", *arguments],
            timeout_s=timeout_s,
            environment={**os.environ, **(environment or {})},
            directory=directory,
        )
    except FileNotFoundError as error:
        raise MissingTool(f"There is no `docker` on PATH. {_way_out()}") from error
    except subprocess.TimeoutExpired as error:
        output = (error.stderr or b"").decode(errors="replace").strip()[-500:]
        raise ClusterFailed(
            f"docker {' '.join(arguments[:2])} … did not end within {timeout_s:g} s. It printed: {output or 'nothing'}"
        ) from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip())[-800:]
        if "is not a docker command" in words:
            raise MissingTool(f"This Docker has no `docker {arguments[0]}`. {_way_out()}")
        raise ClusterFailed(f"docker {' '.join(arguments[:2])} … failed (exit {done.returncode}): {words}")
    return done.stdout


def run_label(run: RunDirectory) -> str:
    """Returns the value of the label of everything that belongs to this run."""
    return str(home_of(run))


# What is left of a run


@dataclass(frozen=True, slots=True)
class Swept:
    """Sentences about what was found of a run, what was removed, and what is left."""

    found: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def sweep_run(run: RunDirectory) -> Swept:
    """Removes the containers, networks and volumes of a run.

    The containers' logs are kept in the run first. Safe to repeat; nothing of anybody else's is touched. A run that never
    used the engine needs none."""
    if not kept(run.compose)[0].exists():
        return Swept()
    try:
        client = connect()
    except (BadInput, MissingTool) as error:
        return Swept(left=(f"what the Docker engine has of it: {error}",))
    with closing(client):
        return sweep(client, run)


def sweep(client: EngineClient, run: RunDirectory) -> Swept:
    """Removes the containers, networks and volumes of a run over a connection that is open."""
    save_logs(client, run)
    wanted = {"label": f"{RUN_LABEL}={run_label(run)}"}
    found: list[str] = []
    done: list[str] = []
    left: list[str] = []
    for kind, things, remove in (
        ("container", client.api.containers(all=True, filters=wanted), _remove_container),
        ("network", client.api.networks(filters=wanted), _remove_network),
        ("volume", client.api.volumes(filters=wanted)["Volumes"] or [], _remove_volume),
    ):
        names = [f"{kind} {_name(thing)}" for thing in things]
        found += names
        problems = _each(lambda thing, remove=remove: remove(client, thing), things)  # type: ignore[misc]
        for name, problem in zip(names, problems, strict=True):
            (left if problem else done).append(f"{name}: {problem}" if problem else f"{name} removed")
    return Swept(tuple(found), tuple(done), tuple(left))


def save_logs(client: EngineClient, run: RunDirectory, into: Path | None = None) -> None:
    """Saves the log of every node of the run that still has a container, over all of its starts, as `<node>.log`."""
    into = into or run.logs
    into.mkdir(parents=True, exist_ok=True)
    filters = {"label": [f"{RUN_LABEL}={run_label(run)}", NODE_LABEL]}
    containers = client.api.containers(all=True, filters=filters)

    def save(container: dict[str, Any]) -> None:
        # Docker's own command: its log may be large, and streams of the client library leave their sockets open.
        part = into / f"{container['Labels'][NODE_LABEL]}.log.part"
        with part.open("wb") as file, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["docker", "logs", container["Id"]],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=REQUEST_TIMEOUT_S,
                check=False,
            )
        part.rename(part.with_suffix(""))

    _each(save, containers)


def _remove_container(client: EngineClient, container: dict[str, Any]) -> None:
    with suppress(APIError):  # a frozen process does not die before it thaws
        if container["State"] == "paused":
            client.api.unpause(container["Id"])
    client.api.remove_container(container["Id"], force=True, v=True)


def _remove_network(client: EngineClient, network: dict[str, Any]) -> None:
    client.api.remove_network(network["Id"])


def _remove_volume(client: EngineClient, volume: dict[str, Any]) -> None:
    client.api.remove_volume(volume["Name"], force=True)


def _each(work: Callable[[dict[str, Any]], None], things: Iterable[dict[str, Any]]) -> list[str]:
    """Does the work for each, side by side, and returns each one's problem: "" if there is none, or if the thing is gone."""

    def attempt(thing: dict[str, Any]) -> str:
        try:
            work(thing)
        except NotFound:
            return ""
        except PROBLEMS as error:
            return _short(error)
        return ""

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(attempt, things))


def _name(thing: dict[str, Any]) -> str:
    names = thing.get("Names")
    return str(names[0]).lstrip("/") if names else str(thing.get("Name", thing.get("Id", "?")))


def _short(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error).strip()[-300:]


# Images of Kafka and ZooKeeper for the compose backend: the official ones, or ones built here without a registry.
#
# What is built (`compose/images/`) has the environment, paths and ports of the official images: Kafka's jars from Maven, a
# Java runtime and the tools of faults from Debian's packages. Measured on two cores: 18 s for the base, once; 15 s per
# version of Kafka; half a second when nothing changed.


BASE = "prozess/base:13"
OFFICIAL = {"kafka": "apache/kafka:{version}", "zookeeper": "zookeeper:3.8.4"}
"""The official images. ZooKeeper's version is the one that Kafka 3.9 is built against (its `gradle/dependencies.gradle`)."""
BUILT = {"kafka": "prozess/kafka:{version}", "zookeeper": "prozess/zookeeper:{version}"}
CONTENT_LABEL, TOOLS_LABEL = "prozess.content", "prozess.tools"
"""Labels of an image: the checksum of what it was built from, and "yes" if it has iptables and iproute2."""
BUILD_TIMEOUT_S, PULL_TIMEOUT_S = 600.0, 600.0
_BASE_TIMEOUT_S = 600.0

Progress = Callable[[str], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the engine, by its tag, its id and its size."""

    name: str
    id: str
    bytes: int


def list_images() -> list[Image]:
    """Lists the images of Kafka and ZooKeeper that the engine has and prozess would use. MissingTool without an engine."""
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
    """Finds the image to run: `wanted`, else the official one, else one built here.

    It is pulled if no image is here and a registry answers. `zookeeper`: Kafka in ZooKeeper mode, which the official image
    does not know. BadInput, with the way out, if there is none."""
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
    """Has the image the tools by which network faults are made inside a container?"""
    with closing(connect()) as client:
        found = _image(client, image)
    return found is not None and (found["Config"].get("Labels") or {}).get(TOOLS_LABEL) == "yes"


def build_images(versions: Sequence[str], *, progress: Progress) -> list[str]:
    """Builds the images that are missing or older than their sources, and returns the names of all.

    They are Kafka of each version, and ZooKeeper for 3.x. MissingTool, ClusterFailed or BadInput with the way out."""
    with alone(
        make_cache("images") / "build.flock", awaited="another process that builds images", timeout_s=BUILD_TIMEOUT_S
    ):
        return [name for version in versions for name in _build_version(version, progress)]


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
        done = captured(["bash", str(sources / "base.sh"), BASE], timeout_s=_BASE_TIMEOUT_S)
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
    """Builds the image unless it was built from exactly this, and returns the checksum of what it is built from."""
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
    digest = hashlib.sha256(seed.encode())
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(directory)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def _image(client: EngineClient, name: str) -> dict[str, Any] | None:
    try:
        found = client.api.inspect_image(name)
    except ImageNotFound:
        return None
    except PROBLEMS as error:
        raise ClusterFailed(f"The Docker engine did not say whether it has the image {name!r}: {error}.") from error
    return found


def _reason(error: ClusterFailed) -> str:
    """Says why an image could not be pulled, without the address of a mirror, which may be private."""
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
