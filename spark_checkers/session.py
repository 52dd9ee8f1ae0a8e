"""Starting a Spark session: on this machine, on a cluster (`--master spark://…`), or on a Spark Connect server (`--remote`).

On this machine the Java virtual machine writes its log to a directory of its own, not to your terminal. It reads one end of
a pipe that this process holds, so it ends when this process does. This process removes that directory when it ends in order.
"""

import atexit
import contextlib
import fcntl
import gc
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyspark
from filelock import FileLock, Timeout
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame as DataFrame
from pyspark.sql import SparkSession as SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from prozess.harness import installation
from prozess.harness.code_identity import CODE_SUFFIXES, OTHER_CODE, code_identity, refuse_other_code
from prozess.harness.errors import BadInput, HarnessFailed, MissingTool, NotReady, ProzessError
from prozess.harness.installation import make_cache
from prozess.harness.result_tables import ResultTable
from prozess.harness.run_directory import read_json, write_json

TASK_ATTEMPTS = 4
"""How often Spark tries a task on this machine: as often as a cluster does. A worker that was killed, by the kernel that has
no memory left for example, costs its tasks alone."""
JVM_TIMEOUT_S = 120.0
"""How long the virtual machine may take from its launch until it answers. 4 s is usual."""
_JVM = (
    "-Xms128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:-UsePerfData "
    "-XX:+ExitOnOutOfMemoryError"
)
"""Options of the virtual machine. The heap begins small, because it keeps what it has taken once. With its first compiler
alone Java reserves 48 MB for compiled code, and the texts of the second opinion fill that ("Out of space in CodeCache")."""
_WORKER_MIB = 768
"""What a worker in Python may take: a piece of a history, 430 MB, and what it imports."""
_OPTIONS = "spark.driver.extraJavaOptions"
_PREFIX, _HELD = "prozess-spark-", "held"
"""The prefix of scratch directories, and the file in each of them on which its process holds a lock."""
_lock = threading.Lock()


def local_master(workers: int) -> str:
    """Returns the Spark master that runs so many tasks at a time on this machine."""
    return f"local[{workers},{TASK_ATTEMPTS}]"


def start_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    java_home: str | None = None,
    archive: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts a Spark session. It may be called from any thread. A second call in this process returns the session that
    is there.

    `master`: where the tasks run; None = here, two at a time. `remote`: address of a Spark Connect server
    (`sc://host:port`) instead; needs no Java. `java_home`: the Java to use; None = JAVA_HOME, else `java` of the PATH.
    `archive`: its options about class-data archives; None = it uses ours, which is made first if need be. `settings`:
    Spark's own, which replace ours; Java's options are added to ours. End it with `session.stop()`.

    Raises MissingTool without Java 17, NotReady if it does not come up, HarnessFailed or BadInput if Spark refuses.
    """
    with _lock, _untouched_process():
        directory = _scratch_directory()
        if remote is not None:
            session = connect(remote, settings or {})
            prepare_workers(session, directory)
            return session
        _leave_connect_mode()
        master = master or local_master(2)
        configuration = _configuration(master, directory, settings or {})
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


def _configuration(master: str, directory: Path, given: Mapping[str, str]) -> SparkConf:
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
        # Every sort and every hash join takes a page first, and by default one of 16 MB: with small tables, that is what
        # fills the heap.
        "spark.buffer.pageSize": "1m",
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
        # Python in them reads and checks: the virtual machine only hands over. Kubernetes and YARN count Python as overhead.
        cores = given.get("spark.executor.cores", "")
        overhead_mib = _WORKER_MIB * (int(cores) if cores.isdecimal() else 1)
        settings |= {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": _JVM}
        settings |= {"spark.executor.memoryOverhead": f"{overhead_mib}m"}
    for name, value in given.items():
        settings[name] = f"{settings[name]} {value}" if name in settings and name.endswith("JavaOptions") else value
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


_directories: list[Path] = []
_holding: list[int] = []
"""The descriptors whose locks say that this process is alive."""


def _scratch_directory() -> Path:
    """Returns the directory for the files of this process's Spark. There is one for as long as the process lives,
    because the JVM stays, too. What a killed process left behind is removed first."""
    if not _directories:
        remove_abandoned(Path(tempfile.gettempdir()))
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _holding.append(_hold(directory))
        _directories.append(directory)
        atexit.register(_clean_up, os.getpid())
    return _directories[0]


def _hold(directory: Path) -> int:
    """Returns a descriptor whose lock says that the directory is in use. The file appears locked, and is never seen
    unlocked."""
    making = directory / f"{_HELD}.new"
    descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    making.rename(directory / _HELD)
    return descriptor


def remove_abandoned(parent: Path) -> None:
    """Removes the scratch directories whose process is gone. Such a process no longer holds its lock, however it ended."""
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
    gc.collect()  # proxies of Java objects inform the JVM that they are gone, while it still lives
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        logging.disable()  # py4j reports every object that outlives it, by a traceback, as soon as it is dying
        process.kill()  # it holds nothing that is worth the second its own shutdown takes
        process.wait(timeout=10)
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
    """Returns the gateway to a new virtual machine that writes to `log`."""
    answer: list[Any] = []

    def launch() -> None:
        try:
            with log.open("wb") as file:
                # A signal to all of our group (a terminal that is closed, `timeout`) is for us to obey, and not for it.
                how = {"stdout": file, "stderr": file, "start_new_session": True}
                answer.append(launch_gateway(configuration, how))  # type: ignore[no-untyped-call]
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


def _explain(message: str, master: str | None, java: Path) -> HarnessFailed | BadInput:
    if "UnsupportedClassVersionError" in message or "Exception" not in message:
        what = "it is older than Java 17" if "UnsupportedClassVersionError" in message else message
        return MissingTool(
            f"Spark could not start Java with {java}: {what}. Set JAVA_HOME to a Java 17 or newer, or check with "
            "--engine local."
        )
    return _refused(message, master)


def _refused(message: str, master: str | None) -> HarnessFailed | BadInput:
    if "master" in message.lower():
        return BadInput(
            f"Spark refuses --master {master!r}: {message}. Give local[N] or spark://host:port, for example."
        )
    return HarnessFailed(f"Spark did not start: {message}. Try --engine local.")


def _home_of(java: Path) -> str | None:
    found = java.resolve()
    return str(found.parent.parent) if found.parent.name == "bin" else None


@contextlib.contextmanager
def _untouched_process() -> Iterator[None]:
    """A context for pyspark, which takes SIGINT for itself and its settings from the environment. Afterwards both are as
    before."""
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


def _leave_connect_mode() -> None:
    """Undoes what pyspark leaves when the last session of a Spark Connect server was stopped: a variable with which it
    refuses every other kind of session in this process."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        try:
            connect.SparkSession.active()
        except PySparkException:  # there is none
            os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


def _tail(log: Path) -> str:
    """Returns what the virtual machine printed before it ended: its first complaint, or else its last words."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    complaints = [line for line in lines if "Exception" in line or line.startswith("Error")]
    old = [line for line in lines if "UnsupportedClassVersionError" in line]
    return ([*old, *complaints, *lines[-1:], "nothing"])[0].removesuffix(".")[:600]


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = [line.removeprefix(": ") for line in lines if line.startswith(": ")]  # py4j: what Java threw
    return [*message, *lines, type(error).__name__][0].removesuffix(".")


# A class-data archive (AppCDS) for Spark's virtual machine: its classes are parsed and laid out once, so that it starts
# with half of the CPU time.
#
# There is one archive of about 150 MB for each Spark, Java and set of options. It is in the cache, and one short run of
# Spark makes it. A virtual machine ignores an archive that does not fit it (-Xshare:auto), and checks size and time of
# each jar itself. But it maps a truncated archive without noticing, and dies of it. Therefore size and time of the archive
# are # kept beside it. An archive that could not be made is not tried again.


BUILD_TIMEOUT_S = 240.0
"""How long it may take to make an archive. 10 s is usual; on a machine with fifty times too much work it takes two
minutes."""
KEPT_MAX = 2
"""How many archives of other versions stay in the cache."""
_ARCHIVE, _BASE, _FACTS = "spark.jsa", "java.jsa", "facts.json"
_log = logging.getLogger(__name__)


def archive_flags(java: Path, options: str) -> str:
    """Returns options with which a virtual machine that has these `options` uses a class-data archive. If there is none
    it is made now, once, in about ten seconds. The result is empty if the archive cannot be made, or while another
    process makes it; the reason is logged."""
    try:
        directory = _directory(java, options)
        facts = _facts(directory)
        if facts is None:
            directory.mkdir(parents=True, exist_ok=True)
            with FileLock(directory.with_name(directory.name + ".flock"), timeout=0):
                facts = _facts(directory) or _made(directory, java, options)
        if "failed" in facts:
            _log.info(
                "Spark starts without a class-data archive, some seconds slower: %s (delete %s to try again)",
                facts["failed"],
                directory,
            )
            return ""
    except (ProzessError, OSError, ValueError, Timeout, subprocess.TimeoutExpired) as error:
        _log.info("Spark starts without a class-data archive, some seconds slower: %s", error)
        return ""
    return f"-XX:SharedArchiveFile={directory / _ARCHIVE} -Xshare:auto -Xlog:cds=off"


def spark_home() -> Path:
    """Returns the directory of Spark: SPARK_HOME, or else that of pyspark. Links are resolved, so that all ways there
    share an archive."""
    return Path(os.environ.get("SPARK_HOME") or Path(str(pyspark.__file__)).parent).resolve()


def warm_up(java_home: str, flags: str) -> None:
    """Runs in the process that makes an archive. A session with these further options does what a check makes it do.
    Then its virtual machine ends in order, and writes the archive as it ends."""
    from pyspark import SparkContext

    session = start_session(java_home=java_home, archive=flags)
    numbers = session.range(0, 2, 1, numPartitions=2)
    to_arrow(numbers.mapInArrow(lambda batches: batches, numbers.schema))
    session.stop()
    process: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait(timeout=BUILD_TIMEOUT_S)


def _directory(java: Path, options: str) -> Path:
    """Returns where the archive for this Java, this Spark and these options is."""
    home = spark_home()
    digest = hashlib.sha256(f"{home} {options}\n".encode())
    for path in (java.resolve(), java.resolve().parent.parent / "release", *sorted((home / "jars").iterdir())):
        if path.exists():
            stat = path.stat()
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return make_cache("spark-archives") / f"{pyspark.__version__}-{digest.hexdigest()[:12]}"


def _facts(directory: Path) -> Mapping[str, Any] | None:
    """Returns what is known of an archive: its files with their sizes and times, or that it could not be made. None:
    there is none, or its files have changed."""
    try:
        facts: dict[str, Any] = read_json(directory / _FACTS)
        files = facts.get("files", {})
        return facts if all(_stamp(directory / name) == stamp for name, stamp in files.items()) else None
    except (OSError, ValueError, HarnessFailed):
        return None


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _made(directory: Path, java: Path, options: str) -> Mapping[str, Any]:
    """Makes the archive, and returns what is known of it. The caller holds the lock."""
    _log.info("Preparing a faster start for Spark %s (once, ten seconds) …", pyspark.__version__)
    for old in directory.iterdir():
        old.unlink()
    try:
        made = _build(directory, java, options)
        facts: dict[str, Any] = {"files": {name: _stamp(directory / name) for name in made}}
    except HarnessFailed as error:  # a timeout is the machine's fault, and may be over the next time
        facts = {"failed": str(error)}
    write_json(directory / _FACTS, facts)
    others = [p for p in directory.parent.iterdir() if p.is_dir() and p != directory]
    for old in sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)[KEPT_MAX:]:
        shutil.rmtree(old, ignore_errors=True)
    return facts


def _build(directory: Path, java: Path, options: str) -> Sequence[str]:
    """Makes the archive, and returns the names of the files that this wrote. HarnessFailed if it could not be made."""
    home, made, flags = java.resolve().parent.parent, [_ARCHIVE], f"-XX:ArchiveClassesAtExit={directory / _ARCHIVE}"
    if not (home / "lib" / "server" / "classes.jsa").is_file():
        # Archives like ours lie on top of the JDK's own, which trimmed runtimes lack: make that, too.
        base = f"-XX:SharedArchiveFile={directory / _BASE}"
        _run([str(java), *options.split(), "-Xshare:dump", base], os.environ)
        made, flags = [_ARCHIVE, _BASE], f"{flags} {base}"
    arguments = str(java.parent.parent), f"{flags} -Xlog:cds=off"
    code = f"from prozess.spark_checkers.session import warm_up; warm_up{arguments!r}"
    root = str(installation.SEARCH_PATH)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="prozess-class-data-") as scratch:
        message = _run([sys.executable, "-P", "-c", code], {**os.environ, "PYTHONPATH": path, "TMPDIR": scratch})
    if not (directory / _ARCHIVE).is_file():
        raise HarnessFailed(f"Java wrote no archive; last words: {message}")
    return made


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Runs a command, and returns its last words. HarnessFailed if it failed."""
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    message = (done.stdout.strip().splitlines() or ["none"])[-1][-300:]
    if done.returncode != 0:
        raise HarnessFailed(f"{Path(command[0]).name} ended with {done.returncode}; last words: {json.dumps(message)}")
    return message


T = TypeVar("T")
CONNECT_PORT = 15002
"""The port of a Spark Connect server if the address has none (Spark documentation, "Spark Connect Overview")."""
CONNECT_TIMEOUT_S = 60.0
WORKERS_TIMEOUT_S = 120.0
"""How long a first task on the workers may take. Executors are started for it, and Python in them."""
NEEDED = ("numpy", "pyarrow", "pydantic", "scipy")
"""The packages that the kernels import."""
_PACKAGE = __name__.partition(".")[0]
"""The package of the kernels, and of what runs them."""


def context_of(session: SparkSession) -> SparkContext | None:
    """Returns the context of a session. None: it is one of Spark Connect, which has none."""
    try:
        return session.sparkContext
    except PySparkAttributeError:
        return None


def parallelism_of(session: SparkSession) -> int:
    """Returns how many tasks the session works on at a time. A session of Spark Connect does not say: 2."""
    context = context_of(session)
    return 2 if context is None else max(1, int(context.defaultParallelism))


def is_elsewhere(master: str) -> bool:
    """Returns whether the tasks of this master run outside our own virtual machine."""
    return not master.startswith("local")


def connect(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """Returns a session of a Spark Connect server with these settings. MissingTool, BadInput or NotReady."""
    missing = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard") if not _importable(name)]
    if missing:
        raise MissingTool(
            f"The Spark Connect server {remote!r} needs packages that are not installed ({', '.join(missing)}). Install "
            "them with `pip install 'prozess[connect]'`, or leave out --remote."
        )
    _reach(remote)
    try:
        session = _within(
            CONNECT_TIMEOUT_S, SparkSession.builder.remote(remote).getOrCreate, f"Spark Connect at {remote}"
        )
    except PySparkException as error:
        raise BadInput(
            f"No Spark Connect server answers at {remote!r}: {_first_line(error)}. Give --remote as sc://host:port."
        ) from error
    for name, value in settings.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            session.stop()
            raise BadInput(
                f"--conf {name}={value}: the Spark Connect server at {remote!r} refuses it ({_first_line(error)}). It is a "
                "setting of the server, which is made when that starts. Leave it out here."
            ) from error
    return session


def prepare_workers(session: SparkSession, scratch: Path) -> None:
    """Sends our packages to the workers, and runs one task there. HarnessFailed or NotReady if that fails.

    `scratch`: a directory for the archive, which must stay as long as the session.
    """
    try:
        send_modules(session, _archive(scratch))
        _within(WORKERS_TIMEOUT_S, lambda: _run_one_task(session), "a first task on Spark's workers")
    except NotReady:
        raise
    except Exception as error:  # pyspark's, py4j's, gRPC's
        if OTHER_CODE in str(error):
            raise failure_of_workers(error, "run the kernels") from error
        raise HarnessFailed(
            f"Spark's workers cannot run the kernels: {last_line(error)}. They need the same Python as here, with "
            f"{', '.join(NEEDED)}; or check with --engine local."
        ) from error


def send_modules(session: SparkSession, path: Path) -> None:
    """Gives the workers of a session a module, or an archive of modules, to import from."""
    context = context_of(session)
    if context is not None and pyspark.__version__.startswith("3."):  # its addArtifacts is for Spark Connect alone
        context.addPyFile(str(path))
    else:
        session.addArtifacts(str(path), pyfile=True)


Batches = Iterator[pa.RecordBatch]
NumberedWork = Callable[[Iterator[int]], Batches]
"""What a task does in a Python worker: it takes the numbers that are its own, and yields rows."""


def map_numbers(session: SparkSession, count: int, work: NumberedWork, schema: pa.Schema, *, tasks: int) -> DataFrame:
    """Returns the rows that `work` yields for the numbers below `count`, which at most so many tasks share out evenly. A task
    fails where other code than this runs."""
    expected = dict(code_identity())

    def of_batches(batches: Batches) -> Batches:
        refuse_other_code(expected)
        return work(number for batch in batches for number in batch.column(0).to_pylist())

    # `range` gives each of its partitions its numbers without a shuffle.
    numbers = session.range(0, count, 1, numPartitions=min(count, tasks))
    return numbers.mapInArrow(of_batches, from_arrow_schema(schema))


def to_arrow(frame: DataFrame) -> pa.Table:
    """Returns the rows of a DataFrame. Spark 3.5 has no `toArrow`; what it has under another name is what 4.0 calls."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    older: Any = frame
    batches, schema = older._collect_as_arrow(), to_arrow_schema(frame.schema)
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


_SPARK = {"i4": IntegerType(), "i8": LongType(), "text": StringType()}


def frame_without_rows(session: SparkSession, schema: pa.Schema) -> DataFrame:
    """Returns a table without rows."""
    return session.createDataFrame([], from_arrow_schema(schema))


def fields_of(table: ResultTable) -> StructType:
    """Returns the schema of a result in Spark. Each field has its meaning and unit as a comment."""
    return StructType(
        [
            StructField(c.name, _SPARK[c.kind], c.optional, {"comment": f"{c.meaning} ({c.unit})".strip()})
            for c in table.columns
        ]
    )


def last_line(error: Exception) -> str:
    """Returns the last words of an error. If it happened in a Python worker, these are the worker's own words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Unreadable", "Exception")) and ": " in line
    ]
    return [*raised[-1:], *lines[-1:], type(error).__name__][0].removesuffix(".")


def failure_of_workers(
    error: Exception,
    what: str,
    way_out: str = "Try --engine local.",
    words: Callable[[Exception], str] = last_line,
) -> HarnessFailed:
    """Returns what Spark's error says in a sentence, as `failure_named` raises it. MissingTool if the workers lack a module,
    or run other code than this."""
    text = str(error)
    if OTHER_CODE in text:
        return MissingTool(next(line for line in text.splitlines() if OTHER_CODE in line).partition(": ")[2])
    if module := _MISSING_MODULE.search(text):
        return MissingTool(
            f"the Python of Spark's workers has no {module[1]}, which a check needs. Install prozess there, in this "
            "version, or name the Python that has it (the setting spark.pyspark.python, or PYSPARK_PYTHON before the "
            "session begins)."
        )
    if lacks := _OTHER_MODULE.search(text):
        return MissingTool(
            f"the Python of Spark's workers has another prozess than this one ({lacks[0]}). Install the same there, in the "
            "same version."
        )
    return HarnessFailed(f"Spark could not {what}: {words(error)}. {way_out}".rstrip())


@contextlib.contextmanager
def failure_named(
    what: str, way_out: str = "Try --engine local.", words: Callable[[Exception], str] = last_line
) -> Iterator[None]:
    """A context in which an error of pyspark's, py4j's or a lost connection is one sentence. `what` says what Spark could
    not do, `words` what of the error is shown."""
    try:
        yield
    except ProzessError:
        raise
    except Exception as error:
        raise failure_of_workers(error, what, way_out, words) from error


_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OTHER_MODULE = re.compile(r"(?:AttributeError|ImportError): [^\n]*\bprozess\.[^\n]*")
"""What Python says where a task names something that the worker's own modules do not have."""


def _run_one_task(session: SparkSession) -> None:
    needed, schema = (*NEEDED, _PACKAGE), pa.schema([("number", pa.int64())])

    def import_all(numbers: Iterator[int]) -> Batches:
        for name in needed:
            import_module(name)
        yield pa.record_batch([pa.array(numbers, pa.int64())], schema=schema)

    to_arrow(map_numbers(session, 1, import_all, schema, tasks=1))


def _archive(scratch: Path) -> Path:
    """Makes a zip of our package that Python can import from."""
    path = scratch / "prozess-packages.zip"
    found = importlib.util.find_spec(_PACKAGE)
    assert found is not None, _PACKAGE
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in map(Path, found.submodule_search_locations or ()):
            # In a checkout the sub-packages are links.
            for folder, _, files in os.walk(root, followlinks=True):
                for file in sorted(Path(folder, name) for name in files if name.endswith(CODE_SUFFIXES)):
                    archive.write(file, Path(_PACKAGE) / file.relative_to(root))
    return path


def _reach(remote: str) -> None:
    """Raises BadInput if nobody listens there. pyspark itself would try for ten minutes."""
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
    """Returns what the work returns. NotReady after `timeout_s`. The thread that still waits does not keep this process
    alive."""
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
