"""Class-data archives: only whole ones are used, and a machine that cannot make them only starts slower."""

import json
from pathlib import Path

import pytest

from prozess.clusters.install.tools import JavaRuntime
from prozess.clusters.machine import archives as module
from prozess.clusters.machine.archives import archive_flags, build_archives, class_data_archive
from prozess.harness.installation import sha256_of
from prozess.workloads.librdkafka import close


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaRuntime:
    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path / "cache"))
    launcher = tmp_path / "jdk" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\necho 'this Java is broken'\nexit 1\n")
    launcher.chmod(0o755)
    return JavaRuntime(launcher, tmp_path / "jdk", 17, "test")


@pytest.fixture
def jars(tmp_path: Path) -> tuple[Path, ...]:
    (tmp_path / "kafka.jar").write_bytes(b"jar")
    return (tmp_path / "kafka.jar",)


def lay_down(java: JavaRuntime, jars: tuple[Path, ...]) -> Path:
    place = module._archive_directory("4.4.0", java, jars)
    place.mkdir(parents=True)
    (place / "kafka.jsa").write_bytes(b"archive")
    (place / "checksums.json").write_text(json.dumps({"kafka.jsa": sha256_of(place / "kafka.jsa")}))
    return place / "kafka.jsa"


def test_there_is_no_archive_before_one_is_built(java: JavaRuntime, jars: tuple[Path, ...]) -> None:
    assert class_data_archive("4.4.0", "broker", java, jars) is None
    assert archive_flags(None) == ()


def test_brokers_and_controllers_share_a_whole_archive(java: JavaRuntime, jars: tuple[Path, ...]) -> None:
    archive = lay_down(java, jars)
    for role in ("broker", "controller"):
        assert class_data_archive("4.4.0", role, java, jars) == archive
    assert f"-XX:SharedArchiveFile={archive}" in archive_flags(archive)


@pytest.mark.parametrize("damage", ["truncated", "changed", "no checksum", "torn checksum"])
def test_a_damaged_archive_is_not_used_since_a_jvm_may_die_of_it(
    java: JavaRuntime, jars: tuple[Path, ...], damage: str
) -> None:
    archive = lay_down(java, jars)
    if damage == "truncated":
        archive.write_bytes(b"arch")
    elif damage == "changed":
        archive.write_bytes(b"archivE")
    elif damage == "no checksum":
        archive.with_name("checksums.json").unlink()
    else:
        archive.with_name("checksums.json").write_text('{"kafka')
    assert class_data_archive("4.4.0", "broker", java, jars) is None


def test_an_archive_is_not_used_with_other_jars_or_another_java(java: JavaRuntime, jars: tuple[Path, ...]) -> None:
    lay_down(java, jars)
    jars[0].write_bytes(b"another jar")
    assert class_data_archive("4.4.0", "broker", java, jars) is None
    jars[0].write_bytes(b"jar")
    java.executable.write_text("#!/bin/sh\nexit 1\n")
    assert class_data_archive("4.4.0", "broker", java, jars) is None


def test_a_java_that_cannot_make_archives_costs_speed_and_nothing_else(
    java: JavaRuntime, jars: tuple[Path, ...]
) -> None:
    told: list[str] = []
    build_archives("4.4.0", java, jars, timeout_s=10, close=close, progress=told.append)
    assert "this Java is broken" in told[-1]
    assert "slower" in told[-1]
    assert class_data_archive("4.4.0", "broker", java, jars) is None
    assert not list(module._archive_directory("4.4.0", java, jars).iterdir())
