"""A class-data archive (AppCDS) for Spark's virtual machine: its classes parsed and laid out once, so that it starts with
half of the CPU time.

One archive of about 150 MB per Spark, Java and set of options, in the cache, made by one short run of Spark. A virtual
machine ignores an archive that does not fit it (-Xshare:auto), and checks size and time of each jar itself; but it maps a
truncated one unseen and dies of it, so size and time of the archive are kept beside it. What could not be made is not tried
again.
"""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from filelock import FileLock, Timeout

from harness import catalogue
from harness.errors import HarnessFailed, ProzessError
from harness.run_directory import read_json, write_json

BUILD_TIMEOUT_S = 240.0
"""10 s are usual; on a machine with fifty times the work it can do, two minutes."""
KEPT_MAX = 2
"""Archives of other versions that stay in the cache."""
_ARCHIVE, _BASE, _FACTS = "spark.jsa", "java.jsa", "facts.json"
_log = logging.getLogger(__name__)


def archive_flags(java: Path, options: str) -> str:
    """Options by which a virtual machine with these `options` uses an archive, which is made now if it is not there: once,
    ten seconds. Empty if it cannot be made, or while another process makes it; why is logged."""
    try:
        place = _place(java, options)
        facts = _facts(place)
        if facts is None:
            place.mkdir(parents=True, exist_ok=True)
            with FileLock(place.with_name(place.name + ".flock"), timeout=0):
                facts = _facts(place) or _made(place, java, options)
        if "failed" in facts:
            _log.info(
                "Spark starts without a class-data archive, some seconds slower: %s (delete %s to try again)",
                facts["failed"],
                place,
            )
            return ""
    except (ProzessError, OSError, ValueError, Timeout, subprocess.TimeoutExpired) as error:
        _log.info("Spark starts without a class-data archive, some seconds slower: %s", error)
        return ""
    return f"-XX:SharedArchiveFile={place / _ARCHIVE} -Xshare:auto -Xlog:cds=off"


def spark_home() -> Path:
    """Where Spark is: by SPARK_HOME, else with pyspark; without links, so that all ways there share an archive."""
    return Path(os.environ.get("SPARK_HOME") or Path(str(pyspark.__file__)).parent).resolve()


def warm_up(java_home: str, flags: str) -> None:
    """In the process that makes an archive: a session with these further options does what a check has it do, and its virtual
    machine ends in order, which is when it writes the archive."""
    from pyspark import SparkContext

    from spark_checkers.session import start_session

    session = start_session(java_home=java_home, archive=flags)
    numbers = session.range(0, 2, 1, numPartitions=2)
    numbers.mapInArrow(lambda batches: batches, numbers.schema).toArrow()
    session.stop()
    process: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait(timeout=BUILD_TIMEOUT_S)


def _place(java: Path, options: str) -> Path:
    """Where the archive for these is."""
    home = spark_home()
    told = hashlib.sha256(f"{home} {options}\n".encode())
    for path in (java.resolve(), java.resolve().parent.parent / "release", *sorted((home / "jars").iterdir())):
        if path.exists():
            stat = path.stat()
            told.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    parent: Path = catalogue.service("cache")("spark-archives")
    return parent / f"{pyspark.__version__}-{told.hexdigest()[:12]}"


def _facts(place: Path) -> Mapping[str, Any] | None:
    """What is known of an archive: that it could not be made, or its files with their sizes and times, as they still are."""
    try:
        facts: dict[str, Any] = read_json(place / _FACTS)
        files = facts.get("files", {})
        return facts if all(_stamp(place / name) == stamp for name, stamp in files.items()) else None
    except (OSError, ValueError, HarnessFailed):
        return None


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _made(place: Path, java: Path, options: str) -> Mapping[str, Any]:
    """Make it. The caller holds the lock."""
    _log.info("Preparing a faster start for Spark %s (once, ten seconds) …", pyspark.__version__)
    for old in place.iterdir():
        old.unlink()
    try:
        made = _build(place, java, options)
        facts: dict[str, Any] = {"files": {name: _stamp(place / name) for name in made}}
    except HarnessFailed as error:  # a timeout is the machine's fault, and may be over the next time
        facts = {"failed": str(error)}
    write_json(place / _FACTS, facts)
    others = [p for p in place.parent.iterdir() if p.is_dir() and p != place]
    for old in sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)[KEPT_MAX:]:
        shutil.rmtree(old, ignore_errors=True)
    return facts


def _build(place: Path, java: Path, options: str) -> Sequence[str]:
    """The names of the files that it wrote. HarnessFailed if it could not."""
    home, made, flags = java.resolve().parent.parent, [_ARCHIVE], f"-XX:ArchiveClassesAtExit={place / _ARCHIVE}"
    if not (home / "lib" / "server" / "classes.jsa").is_file():
        # Archives like ours lie on top of the JDK's own, which trimmed runtimes lack: make that, too.
        base = f"-XX:SharedArchiveFile={place / _BASE}"
        _run([str(java), *options.split(), "-Xshare:dump", base], os.environ)
        made, flags = [_ARCHIVE, _BASE], f"{flags} {base}"
    arguments = str(java.parent.parent), f"{flags} -Xlog:cds=off"
    code = f"from spark_checkers.class_data import warm_up; warm_up{arguments!r}"
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="prozess-class-data-") as scratch:
        said = _run([sys.executable, "-P", "-c", code], {**os.environ, "PYTHONPATH": path, "TMPDIR": scratch})
    if not (place / _ARCHIVE).is_file():
        raise HarnessFailed(f"Java wrote no archive; last words: {said}")
    return made


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Its last words. HarnessFailed if it failed."""
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
    said = (done.stdout.strip().splitlines() or ["none"])[-1][-300:]
    if done.returncode != 0:
        raise HarnessFailed(f"{Path(command[0]).name} ended with {done.returncode}; last words: {json.dumps(said)}")
    return said
