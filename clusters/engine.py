"""The Docker engine: reaching it, running its command line, and removing everything that belongs to one run.

Whatever the compose backend makes carries the label `prozess.run` with the run's directory: what is left of a run can be
found, and removed, by any process at any later time.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from harness.errors import BadInput, ClusterFailed, MissingTool
from harness.run_directory import RunDirectory

RUN_LABEL, NODE_LABEL = "prozess.run", "prozess.node"
"""Of containers, networks and volumes: whose run they are of; which node a container is the server of."""
REQUEST_TIMEOUT_S = 60
"""Of every single request to the engine."""
_THREADS = 8
_SOCKET = "unix:///var/run/docker.sock"
_OF_THIS_MACHINE = ("unix://", "http+unix://")
Problems = tuple[type[Exception], ...]
PROBLEMS: Problems = (DockerException, RequestException, OSError)
"""What the engine's client raises."""


def compose_directory() -> Path:
    """Where `compose/` is: of the checkout, or the copy in the wheel."""
    here = Path(__file__).resolve().parent
    for directory in (here.parent / "compose", here / "data" / "compose"):
        if (directory / "images").is_dir():
            return directory
    raise MissingTool("This installation has no `compose/` directory. Install prozess again.")


def _way_out() -> str:
    return (
        f"Start Docker, or let `bash {compose_directory() / 'engine.sh'} start` install it (Debian, as root). `docker "
        "version` and `docker compose version` must both succeed for this user."
    )


def endpoint(environment: Mapping[str, str] = os.environ) -> str:
    """Where this user's `docker` finds its engine: DOCKER_HOST, else the context of DOCKER_CONTEXT, else the current one.
    BadInput if that may be another machine: data directories are bound into containers by their paths here, their networks
    are entered from here, and clients reach them by addresses of this machine's bridges."""
    name = environment.get("DOCKER_CONTEXT") or None
    if value := environment.get("DOCKER_HOST", ""):
        said = f"DOCKER_HOST = {value!r}"
    else:
        try:
            context = ContextAPI.get_context(name)
        except Exception as error:
            raise BadInput(f"Docker's context {name or 'that is current'!r} cannot be read: {error}.") from error
        if context is None:
            raise BadInput(f"There is no Docker context {name!r}; `docker context ls` names them.")
        value = str(context.Host or _SOCKET)
        said = f"Docker's context {context.Name!r}, {value!r},"
    if not value.startswith(_OF_THIS_MACHINE):
        raise BadInput(
            f"{said} may be an engine on another machine; the compose backend needs one of this machine (unix://…), for it "
            "binds directories, enters networks and reaches containers from here. Unset it or name a local socket, run "
            "prozess on that machine, or put a cluster that runs there on trial with the ssh or attach backend."
        )
    return value


def connect() -> Any:  # noqa: ANN401 - docker.DockerClient, which has no types
    """A client of the engine that this user's `docker` talks to. MissingTool if none answers; BadInput as of `endpoint`.
    Close it."""
    host = endpoint()
    try:
        client = docker.DockerClient(base_url=host, version="auto", timeout=REQUEST_TIMEOUT_S)
    except PROBLEMS as error:
        raise MissingTool(f"No Docker engine answers ({_short(error)}). {_way_out()}") from error
    try:
        client.ping()
    except PROBLEMS as error:
        client.close()
        raise MissingTool(f"No Docker engine answers ({_short(error)}). {_way_out()}") from error
    return client


def engine_problem() -> str | None:
    """Why the compose backend cannot be used here; None if it can."""
    try:
        connect().close()
        command(["compose", "version"], timeout_s=20.0)
    except (BadInput, MissingTool, ClusterFailed) as error:
        return str(error)
    return None


def command(
    arguments: Sequence[str],
    *,
    timeout_s: float,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """What `docker …` prints. ClusterFailed with its last words if it fails or takes longer; MissingTool if there is none."""
    try:
        done = subprocess.run(
            ["docker", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            cwd=directory,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError as error:
        raise MissingTool(f"There is no `docker` on PATH. {_way_out()}") from error
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace").strip()[-500:]
        raise ClusterFailed(
            f"docker {' '.join(arguments[:2])} … did not end within {timeout_s:g} s. It said: {said or 'nothing'}"
        ) from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip())[-800:]
        if "is not a docker command" in words:
            raise MissingTool(f"This Docker has no `docker {arguments[0]}`. {_way_out()}")
        raise ClusterFailed(f"docker {' '.join(arguments[:2])} … failed (exit {done.returncode}): {words}")
    return done.stdout


def run_label(run: RunDirectory) -> str:
    """What the label says of everything of that run."""
    return str(run.path.resolve())


# --- what is left of a run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found of a run, what was removed, and what is left; one sentence each."""

    found: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def sweep_run(run: RunDirectory) -> Swept:
    """Remove what the engine has of that run: containers (their logs are kept in the run first), networks, volumes. Safe to
    repeat; nothing of anybody else's is touched. A run that never used the engine needs none."""
    if not run.compose.exists():
        return Swept()
    try:
        client = connect()
    except (BadInput, MissingTool) as error:
        return Swept(left=(f"what the Docker engine has of it: {error}",))
    with closing(client):
        return sweep(client, run)


def sweep(client: Any, run: RunDirectory) -> Swept:  # noqa: ANN401
    """As `sweep_run`, over a connection that is there."""
    save_logs(client, run)
    wanted = {"label": f"{RUN_LABEL}={run_label(run)}"}
    found: list[str] = []
    done: list[str] = []
    left: list[str] = []
    for kind, things, remove in (
        ("container", client.api.containers(all=True, filters=wanted), _remove_container),
        ("network", client.api.networks(filters=wanted), lambda c, thing: c.api.remove_network(thing["Id"])),
        ("volume", client.api.volumes(filters=wanted)["Volumes"] or [], _remove_volume),
    ):
        names = [f"{kind} {_name(thing)}" for thing in things]
        found += names
        problems = _each(lambda thing, remove=remove: remove(client, thing), things)  # type: ignore[misc]
        for name, problem in zip(names, problems, strict=True):
            (left if problem else done).append(f"{name}: {problem}" if problem else f"{name} removed")
    return Swept(tuple(found), tuple(done), tuple(left))


def save_logs(client: Any, run: RunDirectory, into: Path | None = None) -> None:  # noqa: ANN401
    """The log of every node of the run that still has a container, over every start of it: `<node>.log`."""
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


def _remove_container(client: Any, container: dict[str, Any]) -> None:  # noqa: ANN401
    with suppress(APIError):  # a frozen process does not die before it thaws
        if container["State"] == "paused":
            client.api.unpause(container["Id"])
    client.api.remove_container(container["Id"], force=True, v=True)


def _remove_volume(client: Any, volume: dict[str, Any]) -> None:  # noqa: ANN401
    client.api.remove_volume(volume["Name"], force=True)


def _each(work: Callable[[dict[str, Any]], None], things: Iterable[dict[str, Any]]) -> list[str]:
    """Do it to each, side by side; the problem of each, "" = none. What is gone already is no problem."""

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
