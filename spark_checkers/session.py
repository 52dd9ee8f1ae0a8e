"""Starting Spark: small, quiet, and gone when this process is.

The Java virtual machine writes to a log in a directory of its own instead of to the user's terminal. It reads our end of a
pipe and ends with us, however we end; what it left on disk is removed when we end orderly.
"""

import atexit
import contextlib
import fcntl
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from harness.errors import BadInput, HarnessFailed, MissingTool, NotReady, ProzessError
from spark_checkers.class_data import archive_flags, spark_home
from spark_checkers.elsewhere import connect, is_elsewhere, prepare_workers

JVM_TIMEOUT_S = 120.0
"""From the launch of the virtual machine until it can be talked to; 4 s is usual."""
_JVM = "-Xms128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError"
"""The heap begins small: what it has taken once, it keeps."""
_OPTIONS = "spark.driver.extraJavaOptions"
_PREFIX, _HELD = "prozess-spark-", "held"
"""Scratch directories, and the file in each that its process holds a lock on."""
_lock = threading.Lock()


def start_session(
    *, master: str = "local[2]", remote: str | None = None, java_home: str | None = None, archive: str | None = None
) -> SparkSession:
    """A Spark session. May be called from any thread; a second call in this process returns the session there is.

    `master`: where the tasks run. `remote`: address of a Spark Connect server (`sc://host:port`) instead; needs no Java.
    `java_home`: the Java to use; None = JAVA_HOME, else `java` of the PATH. `archive`: its options about class-data archives;
    None = it uses ours (`spark_checkers.class_data`), which is made first if need be. End it with `session.stop()`.

    Raises MissingTool without Java 17, NotReady if it does not come up, HarnessFailed or BadInput if Spark refuses.
    """
    with _lock, _untouched_process():
        directory = _scratch_directory()
        if remote is not None:
            session = connect(remote)
            prepare_workers(session, directory)
            return session
        configuration = _configuration(master, directory)
        try:
            if SparkContext._gateway is None:
                java = _java(java_home)
                flags = archive_flags(java, _JVM) if archive is None else archive
                configuration.set(_OPTIONS, f"{configuration.get(_OPTIONS)} {flags}")
                gateway = _launch(configuration, directory / "spark.log", java)
                SparkContext._ensure_initialized(gateway=gateway)
            SparkContext.getOrCreate(configuration)
            session = SparkSession.builder.getOrCreate()
            if is_elsewhere(master):
                prepare_workers(session, directory)
            return session
        except ProzessError:
            raise
        except Exception as error:  # py4j raises what Java did
            raise _refused(_first_line(error), master) from error


def _configuration(master: str, directory: Path) -> SparkConf:
    settings = {
        "spark.master": master,
        "spark.app.name": "prozess",
        # The virtual machine only schedules: no row of the history passes through it.
        "spark.driver.memory": "1g",
        _OPTIONS: f"{_JVM} -Djava.io.tmpdir={directory}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
        "spark.python.worker.reuse": "true",
        # Python's workers begin without the working directory on their path: a folder `harness` there is not ours.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    if is_elsewhere(master):
        # Executors elsewhere must find the way back to the driver.
        del settings["spark.driver.bindAddress"], settings["spark.driver.host"]
        # Python in them reads and checks: the virtual machine only hands over.
        settings |= {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": _JVM}
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


_directories: list[Path] = []
_holding: list[int] = []
"""Descriptors whose locks say that this process lives."""


def _scratch_directory() -> Path:
    """Where this process's Spark keeps its files: one for as long as the process lives, since the JVM stays, too. What a
    process that was killed left behind is removed first."""
    if not _directories:
        remove_abandoned(Path(tempfile.gettempdir()))
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _holding.append(_hold(directory))
        _directories.append(directory)
        atexit.register(_clean_up, os.getpid())
    return _directories[0]


def _hold(directory: Path) -> int:
    """A descriptor that keeps the directory from being taken for abandoned. The file appears locked, never unlocked."""
    making = directory / f"{_HELD}.new"
    descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    making.rename(directory / _HELD)
    return descriptor


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch directories whose process is gone: it let go of its lock, however it ended."""
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(directory / _HELD, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # just being made, or another user's
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _clean_up(owner: int) -> None:
    if os.getpid() != owner:
        return
    if SparkContext._active_spark_context is not None:
        # Its threads here would print that they lost their connection.
        with contextlib.suppress(Exception):
            SparkContext._active_spark_context.stop()
    gc.collect()  # what stands for objects of Java's tells it that it is gone, while there is somebody to be told
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()  # it holds nothing that is worth the second its own shutdown takes
        process.wait(timeout=10)
        logging.disable()  # py4j tells of every object that outlives it, by a traceback
    for directory in _directories:
        shutil.rmtree(directory, ignore_errors=True)


def _java(java_home: str | None) -> Path:
    home = java_home or os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"{home!r} has no bin/java" if home else "JAVA_HOME is not set and there is no `java` on the PATH"
        raise MissingTool(
            f"Spark needs Java 17 or newer: {where}. Install one, or check with --engine local, which needs none."
        )
    return Path(found)


def _launch(configuration: SparkConf, log: Path, java: Path) -> Any:  # noqa: ANN401 - py4j has no types
    """The gateway to a new virtual machine that writes to `log`."""
    answer: list[Any] = []

    def launch() -> None:
        try:
            with log.open("wb") as file:
                answer.append(launch_gateway(configuration, {"stdout": file, "stderr": file}))  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - handed to the caller's thread
            answer.append(error)

    if home := _home_of(java):
        os.environ["JAVA_HOME"] = home
    # pyspark waits for the machine without a limit of its own; a thread that it keeps waiting does not keep us.
    thread = threading.Thread(target=launch, name="spark-launch", daemon=True)
    thread.start()
    thread.join(JVM_TIMEOUT_S)
    if not answer:
        raise NotReady(awaited="Spark's Java virtual machine", timeout_s=JVM_TIMEOUT_S, last_seen=_tail(log))
    if isinstance(answer[0], Exception):
        raise _explain(_tail(log), configuration.get("spark.master"), java) from answer[0]
    return answer[0]


def _explain(said: str, master: str | None, java: Path) -> HarnessFailed | BadInput:
    if "UnsupportedClassVersionError" in said or "Exception" not in said:
        what = "it is older than Java 17" if "UnsupportedClassVersionError" in said else said
        return MissingTool(
            f"Spark could not start Java with {java}: {what}. Set JAVA_HOME to a Java 17 or newer, or check with "
            "--engine local."
        )
    return _refused(said, master)


def _refused(said: str, master: str | None) -> HarnessFailed | BadInput:
    if "master" in said.lower():
        return BadInput(f"Spark refuses --master {master!r}: {said}. Give local[N] or spark://host:port, for example.")
    return HarnessFailed(f"Spark did not start: {said}. Try --engine local.")


def _home_of(java: Path) -> str | None:
    found = java.resolve()
    return str(found.parent.parent) if found.parent.name == "bin" else None


@contextlib.contextmanager
def _untouched_process() -> Iterator[None]:
    """pyspark takes SIGINT for itself, and its settings from the environment: both are as before afterwards."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    before = {
        name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_HOME")
    }
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ["SPARK_HOME"] = str(spark_home())
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if main:
            signal.signal(signal.SIGINT, handler)


def _tail(log: Path) -> str:
    """What the virtual machine said before it ended: its first complaint, else its last words."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    complaints = [line for line in lines if "Exception" in line or line.startswith("Error")]
    old = [line for line in lines if "UnsupportedClassVersionError" in line]
    return ([*old, *complaints, *lines[-1:], "nothing"])[0].removesuffix(".")[:600]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line.removeprefix(": ") for line in lines if line.startswith(": ")]  # py4j: what Java threw
    return [*said, *lines, type(error).__name__][0].removesuffix(".")
