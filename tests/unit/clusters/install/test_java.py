"""Finding Java, and a home that Spark starts with. Launchers are scripts here; tests/system has real ones."""

import os
import subprocess
from pathlib import Path

import pytest

from prozess.clusters.install import tools as module
from prozess.clusters.install.tools import JavaRuntime, find_java, java_identity, spark_java_home
from prozess.harness.errors import MissingTool

OLD_AND_NEW = [("1.8.0_402", 8), ("11.0.2", 11), ("17", 17), ("17.0.15", 17), ("21-ea", 21), ("25.0.2", 25)]


def home(directory: Path, version: str, *, modules: str = "java.base jdk.incubator.vector") -> Path:
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text('#!/bin/sh\nfor a in "$@"; do printf \'<%s>\' "$a"; done\n')
    launcher.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return directory


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)


@pytest.mark.parametrize(("version", "major"), OLD_AND_NEW)
def test_java_17_or_newer_is_taken_and_older_refused(tmp_path: Path, version: str, major: int) -> None:
    environment = {"JAVA_HOME": str(home(tmp_path / "jdk", version)), "PATH": ""}
    if major >= 17:
        found = find_java(environment)
        assert (found.major, found.home, found.origin) == (major, tmp_path / "jdk", "JAVA_HOME")
    else:
        with pytest.raises(MissingTool, match=rf"JAVA_HOME .* is Java {major}.*prozess\[jdk\]"):
            find_java(environment)


def test_the_order_is_prozess_java_home_then_java_home_then_path(tmp_path: Path) -> None:
    homes = {name: home(tmp_path / name, "21.0.1") for name in ("own", "usual", "path")}
    environment = {
        "PROZESS_JAVA_HOME": str(homes["own"]),
        "JAVA_HOME": str(homes["usual"]),
        "PATH": str(homes["path"] / "bin"),
    }
    for origin in ("PROZESS_JAVA_HOME", "JAVA_HOME", "PATH"):
        assert find_java(environment).origin == origin
        environment.pop(origin)


def test_an_old_java_home_is_passed_over_for_a_newer_java_on_path(tmp_path: Path) -> None:
    old, new = home(tmp_path / "old", "11.0.2"), home(tmp_path / "new", "17.0.2")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_a_prozess_java_home_that_does_not_work_is_never_passed_over(tmp_path: Path) -> None:
    new = home(tmp_path / "new", "17.0.2")
    with pytest.raises(MissingTool, match=r"PROZESS_JAVA_HOME .* does not exist"):
        find_java({"PROZESS_JAVA_HOME": str(tmp_path / "none"), "JAVA_HOME": str(new)})


def test_a_link_on_path_is_followed_to_the_real_home(tmp_path: Path) -> None:
    real = home(tmp_path / "jvm" / "java-17", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.executable) == (real, real / "bin" / "java")


def test_a_launcher_script_is_asked_for_its_home(tmp_path: Path) -> None:
    real = home(tmp_path / "jdk", "21.0.1")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\nprintf '    java.home = {real}\\n    java.version = 21.0.1\\n' >&2\n")
    shim.chmod(0o755)
    found = find_java({"PATH": str(shim.parent)})
    assert (found.home, found.major, found.executable) == (real, 21, real / "bin" / "java")


@pytest.mark.parametrize(
    ("text", "reason"), [("#!/bin/sh\necho broken >&2\nexit 3\n", "exit 3: broken"), ("", "does not run")]
)
def test_a_launcher_that_does_not_run_is_named_with_what_it_says(tmp_path: Path, text: str, reason: str) -> None:
    launcher = tmp_path / "java"
    launcher.write_text(text)
    launcher.chmod(0o755)
    with pytest.raises(MissingTool, match=reason):
        find_java({"PATH": str(tmp_path)})


def test_without_any_java_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match=r"none was found.*Install Java 17.*pip install 'prozess\[jdk\]'"):
        find_java({"PATH": str(tmp_path)})


def runtime(directory: Path, modules: str) -> JavaRuntime:
    made = home(directory, "25.0.2", modules=modules)
    return JavaRuntime(made / "bin" / "java", made, 25, "test")


def test_a_whole_jdk_is_its_own_spark_home(tmp_path: Path) -> None:
    whole = runtime(tmp_path / "jdk", "java.base jdk.incubator.vector")
    assert spark_java_home(whole) == whole.home


def test_a_trimmed_runtime_gets_a_home_that_drops_only_the_option_it_cannot_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path / "cache"))
    trimmed = runtime(tmp_path / "it's here", "java.base")
    made = spark_java_home(trimmed)
    assert made != trimmed.home
    assert spark_java_home(trimmed) == made
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "",
        "a b",
        "$HOME",
        "'q'",
        "--add-modules=java.se",
        "*",
    ]
    said = subprocess.run([made / "bin" / "java", *arguments], capture_output=True, text=True, check=True, timeout=10)
    assert said.stdout == "".join(f"<{a}>" for a in arguments if a != "--add-modules=jdk.incubator.vector")


def test_two_builds_in_one_place_have_different_identities(tmp_path: Path) -> None:
    first = runtime(tmp_path / "jdk", "java.base")
    before = java_identity(first)
    assert java_identity(first) == before
    os.utime(first.executable, ns=(1, 1))
    assert java_identity(first) != before
