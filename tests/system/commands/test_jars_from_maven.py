"""Jars for real: a lock's from the real repository and from a mirror on loopback, Ivy, and what runs from them.

The first test needs the network once; the others serve what it fetched from loopback.
"""

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from prozess.clusters.install.kafka_jars import class_path, ensure_jars
from prozess.clusters.install.locks import read_lock
from prozess.clusters.install.tools import find_java, spark_java_home
from prozess.clusters.machine.archives import HEAP, JVM_FLAGS, archive_flags, build_archives, class_data_archive
from prozess.harness.errors import MissingTool
from prozess.workloads.librdkafka import close

pytestmark = pytest.mark.cluster
VERSION = "4.4.0"


def environment_of(cache: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("PROZESS_MAVEN_URL", "XDG_CACHE_HOME")}
    return {**kept, "PROZESS_CACHE": str(cache), **more}


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return ensure_jars(VERSION, environment=environment_of(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def repository(fetched: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fetched jars in repository layout."""
    root = tmp_path_factory.mktemp("repository")
    by_name = {p.name: p for p in fetched}
    for jar in read_lock(VERSION) or ():
        c = jar.coordinates
        place = root.joinpath(*c.group.split("."), c.artifact, c.version)
        place.mkdir(parents=True)
        (place / c.file_name).hardlink_to(by_name[c.file_name])
    return root


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def served(root: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(timeout=10)


def test_what_is_fetched_is_exactly_the_lock(fetched: tuple[Path, ...]) -> None:
    lock = read_lock(VERSION)
    assert lock is not None
    assert [p.name for p in fetched] == [jar.coordinates.file_name for jar in lock]


def test_the_environments_repository_and_the_users_mirror_give_the_same_jars(
    fetched: tuple[Path, ...], repository: Path, tmp_path: Path
) -> None:
    with served(repository) as address:
        settings = tmp_path / "home" / ".m2" / "settings.xml"
        settings.parent.mkdir(parents=True)
        settings.write_text(
            "<settings><mirrors><mirror><id>m</id><mirrorOf>external:*</mirrorOf>"
            f"<url>{address}</url></mirror></mirrors></settings>"
        )
        by_variable = environment_of(tmp_path / "one", PROZESS_MAVEN_URL=address)
        by_mirror = environment_of(tmp_path / "two", HOME=str(tmp_path / "home"))
        for environment in (by_variable, by_mirror):
            told: list[str] = []
            jars = ensure_jars(VERSION, progress=told.append, environment=environment)
            assert [p.name for p in jars] == [p.name for p in fetched]
            assert ("PROZESS_MAVEN_URL" if environment is by_variable else "Maven's settings") in told[0]
            assert "verified" in told[-1]
    written = [
        p for cache in ("one", "two") for p in (tmp_path / cache).rglob("*") if p.suffix != ".jar" and p.is_file()
    ]
    assert written
    assert not [p for p in written if b"127.0.0.1" in p.read_bytes()]


def test_a_repository_that_serves_another_file_is_found_out(repository: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(repository, forged, copy_function=os.link)
    victim = next(forged.rglob("kafka-clients-*.jar"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.unlink()
    victim.write_bytes(content)
    with served(forged) as address, pytest.raises(MissingTool, match=rf"kafka-clients-{VERSION}\.jar is not the file"):
        ensure_jars(VERSION, environment=environment_of(tmp_path / "cache", PROZESS_MAVEN_URL=address))
    assert not list((tmp_path / "cache").rglob(f"kafka-clients-{VERSION}.jar*"))
    assert not (tmp_path / "cache" / "jars" / f"kafka-{VERSION}").exists()


def test_a_repository_without_the_version_and_one_that_is_gone_are_told_apart(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        environment = environment_of(tmp_path / "cache", PROZESS_MAVEN_URL=address)
        with pytest.raises(MissingTool, match=r"has no org\.apache\.kafka.*The nearest releases"):
            ensure_jars("4.99.0", environment=environment)
    with pytest.raises(MissingTool, match="cannot be reached"):
        ensure_jars("4.99.0", environment=environment)


@pytest.mark.long  # every trial here starts servers from such jars
def test_kafkas_tools_run_from_the_jars_with_and_without_an_archive(
    fetched: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path))
    java, told = find_java(), list[str]()
    assert class_data_archive(VERSION, "broker", java, fetched) is None
    build_archives(VERSION, java, fetched, close=close, progress=told.append)
    archive = class_data_archive(VERSION, "controller", java, fetched)
    assert archive is not None, told
    counts = []
    for flags in ((), archive_flags(archive)):
        command = [str(java.executable), *HEAP["controller"], *JVM_FLAGS, *flags, "-Xlog:class+load:stderr"]
        command += ["-cp", class_path(fetched), "kafka.tools.StorageTool", "random-uuid"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert len(done.stdout.strip().splitlines()[-1]) == 22
        counts.append(done.stderr.count("shared objects file (top)"))
    assert counts[0] == 0 < counts[1]


def test_spark_finds_a_home_with_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path))
    command = [spark_java_home(find_java()) / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
