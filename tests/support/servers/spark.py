"""Spark's own servers on this machine, for tests and benchmarks: a standalone master with workers, and a Spark Connect
server. On loopback, on ports that the kernel chooses; ended with everything that they started."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark

from prozess.clusters.install.tools import find_java, spark_java_home
from prozess.harness.clock import SystemClock, wait_until

HOME = Path(pyspark.__file__).parent
STARTS_TIMEOUT_S = 120.0
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def _environment(directory: Path) -> dict[str, str]:
    """Nothing of ours on the path: what Spark's workers import of prozess must have been sent to them."""
    ours = {"PYTHONPATH", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"}
    return {name: value for name, value in os.environ.items() if name not in ours} | {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": _JVM,
        "SPARK_DAEMON_MEMORY": "640m",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "JAVA_HOME": str(spark_java_home(find_java())),
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def _server(
    directory: Path,
    name: str,
    command: Sequence[str],
    says: str,
    *,
    hidden: Sequence[Path] = (),
    core: int | None = None,
) -> Iterator[str]:
    """Run a server until the block is left; gives what group 1 of `says` matched in its log. It sees empty folders in the
    place of those that are `hidden`, and has that core alone, with all that it starts; None: any."""
    log = directory / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*_hiding(hidden), *_pinned(core), str(HOME / "bin" / command[0]), *command[1:]],
            stdout=file,
            stderr=file,
            env=_environment(directory),
            cwd=directory,
            start_new_session=True,
        )

    def found() -> str | None:
        text = log.read_text(errors="replace")
        assert process.poll() is None, f"{name} ended with {process.returncode}: {text[-2000:]}"
        match = re.search(says, text)
        return match.group(1) if match else None

    try:
        yield wait_until(found, awaited=f"{says} from {name}", timeout_s=STARTS_TIMEOUT_S, clock=SystemClock())
    finally:
        _end(process)


def _hiding(folders: Sequence[Path]) -> list[str]:
    """Words that run a command where these folders are empty: in a mount namespace of its own."""
    if not folders:
        return []
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mounts = " && ".join(f"mount -t tmpfs hidden {shlex.quote(str(folder))}" for folder in folders)
    return ["unshare", *user, "--mount", "--propagation", "private", "sh", "-c", f'{mounts} && exec "$@"', "sh"]


def _pinned(core: int | None) -> list[str]:
    return [] if core is None else ["taskset", "--cpu-list", str(core)]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Of the server and of everything that it started: executors of a worker have sessions of their own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        _, left = psutil.wait_procs(family, timeout=20)
        for one in left:
            one.kill()
    process.wait(timeout=20)


@contextmanager
def standalone(
    directory: Path, *, hidden: Sequence[Path] = (), cores: Sequence[int | None] = (None, None)
) -> Iterator[str]:
    """The address of a master with a worker for each of `cores`, of one core each: that core of this machine, or any. The
    workers see empty folders in the place of those that are `hidden`."""
    deploy, anywhere = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as servers:
        master = servers.enter_context(
            _server(
                directory,
                "master",
                ["spark-class", f"{deploy}.master.Master", *anywhere],
                r"Starting Spark master at (spark://\S+)",
            )
        )
        command = ["spark-class", f"{deploy}.worker.Worker", *anywhere, "--cores", "1", "--memory", "1g", master]
        for number, core in enumerate(cores):
            says = r"(Successfully registered with master)"
            servers.enter_context(_server(directory, f"worker-{number}", command, says, hidden=hidden, core=core))
        yield master


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """The address of a Spark Connect server with two threads."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": _JVM,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    chosen = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["spark-submit", "--class", server, "--master", "local[2]", *chosen, "spark-internal"]
    with _server(directory, "connect", command, r"Spark Connect server started at: \S*?(\d+)\s") as port:
        yield f"sc://127.0.0.1:{port}"
