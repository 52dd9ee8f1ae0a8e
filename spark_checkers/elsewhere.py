"""Spark that runs elsewhere: a cluster (`--master spark://…`) or a Spark Connect server (`--remote sc://…`).

Its workers run our kernels, so they are given them: the packages of this very process, in one small archive, so that nothing
of ours need be installed there and none of another version is used. What they must have themselves: this minor version of
Python with `NEEDED`, and the run directory under the same path.
"""

import importlib.util
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from harness import catalogue
from harness.errors import BadInput, HarnessFailed, MissingTool, NotReady

T = TypeVar("T")
CONNECT_PORT = 15002
"""Of a Spark Connect server, where the address names none (Spark documentation, "Spark Connect Overview")."""
CONNECT_TIMEOUT_S = 60.0
WORKERS_TIMEOUT_S = 120.0
"""Until a first task has run there: executors are started for it, and Python in them."""
NEEDED = ("numpy", "pyarrow", "pydantic", "scipy", "networkx")
"""What the kernels import."""


def is_elsewhere(master: str) -> bool:
    """Do the tasks of this master run outside our own virtual machine?"""
    return not master.startswith("local")


def connect(remote: str) -> SparkSession:
    """A session of a Spark Connect server. MissingTool, BadInput or NotReady, each with a way out."""
    missing = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard") if not _importable(name)]
    if missing:
        raise MissingTool(
            f"The Spark Connect server {remote!r} needs packages that are not installed ({', '.join(missing)}). Install "
            "them with `pip install 'prozess[connect]'`, or leave --remote away."
        )
    _reach(remote)
    try:
        return _within(CONNECT_TIMEOUT_S, SparkSession.builder.remote(remote).getOrCreate, f"Spark Connect at {remote}")
    except PySparkException as error:
        raise BadInput(
            f"No Spark Connect server answers at {remote!r}: {_first_line(error)}. Give --remote as sc://host:port."
        ) from error


def prepare_workers(session: SparkSession, scratch: Path) -> None:
    """Give the workers our packages, and see one task run there. HarnessFailed or NotReady if it does not.

    `scratch`: a directory for the archive, which must stay as long as the session.
    """
    try:
        session.addArtifacts(str(_archive(scratch)), pyfile=True)
        _within(WORKERS_TIMEOUT_S, lambda: _run_one_task(session), "a first task on Spark's workers")
    except NotReady:
        raise
    except Exception as error:  # pyspark's, py4j's, gRPC's
        raise HarnessFailed(
            f"Spark's workers cannot run the kernels: {last_line(error)}. They need the same Python as here, with "
            f"{', '.join(NEEDED)}; or check with --engine local."
        ) from error


def last_line(error: Exception) -> str:
    """What was said last: of an error in a Python worker, the worker's own words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Unreadable", "Exception")) and ": " in line
    ]
    return [*raised[-1:], *lines[-1:], type(error).__name__][0].removesuffix(".")


def _run_one_task(session: SparkSession) -> None:
    needed = (*NEEDED, *_packages())

    def import_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in needed:
            import_module(name)
        yield from batches

    session.range(0, 1, 1, numPartitions=1).mapInArrow(import_all, "id long").toArrow()


def _packages() -> list[str]:
    """Top-level packages that the kernels are in, and what runs them."""
    kernels = {**catalogue.KERNELS, **catalogue.CELL_KERNELS, **catalogue.FACT_KERNELS}
    named = {module.partition(":")[0].partition(".")[0] for module in kernels.values()}
    return sorted({"harness", __name__.partition(".")[0], *named})


def _archive(scratch: Path) -> Path:
    """The packages as a zip that Python can import from."""
    path = scratch / "prozess-packages.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _packages():
            found = importlib.util.find_spec(name)
            assert found is not None, name
            for root in map(Path, found.submodule_search_locations or ()):
                for file in sorted(root.rglob("*.py")):
                    archive.write(file, Path(name) / file.relative_to(root))
            if found.submodule_search_locations is None and found.origin is not None:  # a module
                archive.write(found.origin, Path(found.origin).name)
    return path


def _reach(remote: str) -> None:
    """BadInput if nobody listens there: pyspark itself would try for ten minutes."""
    try:
        parts = urlsplit(remote)
        address = (str(parts.hostname or ""), parts.port or CONNECT_PORT)
    except ValueError as error:
        raise BadInput(f"--remote {remote!r} is no address: {error}. Give it as sc://host:port.") from error
    if parts.scheme != "sc" or not address[0]:
        raise BadInput(f"--remote {remote!r} is no address of a Spark Connect server. Give it as sc://host:port.")
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise BadInput(
            f"No Spark Connect server answers at {remote!r}: {error.strerror or error}. Give --remote as sc://host:port."
        ) from error


def _within(timeout_s: float, work: Callable[[], T], awaited: str) -> T:
    """What the work gives. NotReady after `timeout_s`; the thread that still waits does not keep this process."""
    done: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            done.append((None, error))

    thread = threading.Thread(target=run, name="spark-elsewhere", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not done:
        raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen="no answer; has the cluster a free worker?")
    result, failure = done[0]
    if failure is not None:
        raise failure
    value: Any = result
    return value  # type: ignore[no-any-return]


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).removesuffix(
        "."
    )
