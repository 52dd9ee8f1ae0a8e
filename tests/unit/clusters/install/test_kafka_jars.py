"""The jar cache: what is verified, what is refused, and that nothing half is ever seen. A stand-in for Ivy lays files
down; the real one runs in tests/system/commands/test_jars_from_maven.py. Plain GETs: test_repository.py."""

import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.install import kafka_jars as module
from prozess.clusters.install import repository as repositories
from prozess.clusters.install.kafka_jars import (
    METHODS_AGENT,
    METRICS_AGENT,
    ExtraJar,
    cached_extra,
    cached_jars,
    class_path,
    ensure_extra,
    ensure_jars,
    explain_failure,
    find_ivy,
    laid_down,
    module_text,
    remote_store,
    remote_store_versions,
    roots,
)
from prozess.clusters.install.locks import (
    Coordinates,
    LockedJar,
    format_lock,
    locked_versions,
    parse_lock,
    read_lock,
)
from prozess.harness import installation as cache
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.releases import NEWEST_PATCHES
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.installation import cache_directory, make_cache, sha256_of
from tests.support.servers.maven import Served, serving

VERSION = "9.8.7"
IVY = """#!{python}
import os, pathlib, re, sys
with open({calls!r}, "a") as calls:
    calls.write("x")
for dependency in re.findall("<dependency .*?>", pathlib.Path("ivy.xml").read_text()):
    group, artifact, version = re.findall('(?:org|name|rev)="(.*?)"', dependency)
    place = pathlib.Path("layout", group, artifact, version)
    place.mkdir(parents=True)
    (place / f"{{artifact}}-{{version}}.jar").write_bytes(artifact.encode())
{then}
"""


class World:
    """A machine with a cache, a Java that does what Ivy would, and the repository that has the same jars."""

    def __init__(self, directory: Path, served: Served) -> None:
        self.served = served
        for coordinates in roots(VERSION):
            served.add(coordinates, coordinates.artifact.encode())
        self.cache, self.calls = directory / "cache", directory / "calls"
        self.java = directory / "jdk" / "bin" / "java"
        self.java.parent.mkdir(parents=True)
        (directory / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
        self.environment = {
            "PROZESS_CACHE": str(self.cache),
            "PROZESS_JAVA_HOME": str(directory / "jdk"),
            "PATH": "",
            "HOME": str(directory),
            "PROZESS_MAVEN_URL": served.address,
        }
        self.told: list[str] = []

    def ivy(self, then: str = "") -> None:
        self.java.write_text(IVY.format(python=sys.executable, calls=str(self.calls), then=then))
        self.java.chmod(0o755)

    def ensure(self, version: str = VERSION) -> tuple[Path, ...]:
        return ensure_jars(version, progress=self.told.append, environment=self.environment)

    def leftovers(self) -> list[str]:
        return [p.name for p in (self.cache / "jars").iterdir() if not p.name.endswith(".flock")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving() as served:
        made = World(tmp_path, served)
        made.ivy()
        yield made


def test_jars_of_a_version_without_a_lock_are_usable_and_said_to_be_unverified(world: World) -> None:
    jars = world.ensure()
    assert [p.name for p in jars] == sorted(c.file_name for c in roots(VERSION))
    assert all(p.is_absolute() and p.is_file() for p in jars)
    assert "UNVERIFIED" in world.told[-1]


def test_jars_are_in_the_cache_once_they_were_fetched_and_as_long_as_they_are_what_they_were(world: World) -> None:
    assert cached_jars(VERSION, environment=world.environment) == ()
    jars = world.ensure()
    assert cached_jars(VERSION, environment=world.environment) == jars
    jars[0].write_bytes(b"changed")
    assert cached_jars(VERSION, environment=world.environment) == ()


@pytest.mark.parametrize("agent", [METRICS_AGENT, METHODS_AGENT, remote_store("4.4.0")])
def test_another_jar_that_is_not_what_the_lock_says_is_refused_and_not_kept(world: World, agent: ExtraJar) -> None:
    world.served.add(agent.locked.coordinates, b"something else")
    assert cached_extra(agent, environment=world.environment) is None
    with pytest.raises(MissingTool, match=f"{agent.name} {agent.version}"):
        ensure_extra(agent, environment=world.environment)
    assert cached_extra(agent, environment=world.environment) is None
    assert not [name for name in world.leftovers() if name.startswith(agent.product)]


def test_a_second_call_fetches_nothing(world: World) -> None:
    first = world.ensure()
    assert world.ensure() == first
    assert world.calls.read_text() == "x"


def test_several_callers_at_once_fetch_once(world: World) -> None:
    seen: list[tuple[Path, ...]] = []
    threads = [threading.Thread(target=lambda: seen.append(world.ensure())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert world.calls.read_text() == "x"


def test_a_failed_fetch_leaves_nothing_half(world: World) -> None:
    world.ivy(then="sys.exit('[ERROR] something odd happened at https://secret.invalid/x')")
    with pytest.raises(MissingTool, match="something odd") as failed:
        world.ensure()
    assert "secret" not in str(failed.value)
    assert world.leftovers() == []


def test_what_a_killed_fetch_left_is_swept_by_the_next_one(world: World) -> None:
    half = world.cache / "jars" / f".fetching-{VERSION}-dead"
    half.mkdir(parents=True)
    (half / "x.jar").touch()
    world.ensure()
    assert sorted(world.leftovers()) == [f"kafka-{VERSION}", f"kafka-{VERSION}.pin"]


@pytest.mark.parametrize("damage", ["truncated", "missing", "extra", "manifest"])
def test_a_damaged_cache_is_fetched_again(world: World, damage: str) -> None:
    jars = world.ensure()
    if damage == "truncated":
        jars[0].write_bytes(b"")
    elif damage == "missing":
        jars[0].unlink()
    elif damage == "extra":
        (jars[0].parent / "stray.jar").touch()
    else:
        (jars[0].parent / "jars.lock").write_text("nonsense")
    assert world.ensure() == jars
    assert jars[0].read_bytes() != b""
    assert not (jars[0].parent / "stray.jar").exists()
    assert world.calls.read_text() == "x"  # what they must be is pinned: nobody resolves it again


def test_what_was_resolved_once_is_pinned_and_verified_from_then_on(world: World) -> None:
    jars = world.ensure()
    pin = world.cache / "jars" / f"kafka-{VERSION}.pin"
    pinned = {jar.coordinates.file_name: jar.sha256 for jar in parse_lock(pin.read_text())}
    assert pinned == {jar.name: sha256_of(jar) for jar in jars}
    shutil.rmtree(jars[0].parent)
    assert world.ensure() == jars
    assert world.told[-1] == f"Kafka {VERSION}: {len(jars)} jars, the same as when they were first fetched here."


def test_a_repository_that_has_another_jar_than_the_pinned_one_is_refused(world: World) -> None:
    jars = world.ensure()
    shutil.rmtree(jars[0].parent)
    world.served.add(roots(VERSION)[0], b"another")
    with pytest.raises(
        MissingTool, match=rf"kafka_2\.13.* is not the file it should be .* its pin '.*{VERSION}\.pin' says"
    ):
        world.ensure()
    assert not jars[0].parent.exists()


def test_a_pin_that_cannot_be_read_is_said_and_never_replaced(world: World) -> None:
    world.ensure()
    pin = world.cache / "jars" / f"kafka-{VERSION}.pin"
    pin.write_text("nonsense")
    with pytest.raises(MissingTool, match="Remove it, and they are found out anew"):
        world.ensure()
    pin.unlink()
    world.ensure()
    assert world.calls.read_text() == "xx"


def spoil(jar: Path) -> None:
    """Two bytes, and the time of modification put back: size and time say nothing of it."""
    before, content = jar.stat(), bytearray(jar.read_bytes())
    content[:2] = bytes(255 - byte for byte in content[:2])
    jar.write_bytes(content)
    os.utime(jar, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_jar_of_which_two_bytes_changed_is_fetched_again_and_told(world: World) -> None:
    jars = world.ensure()
    world.ensure()
    whole = jars[1].read_bytes()
    spoil(jars[1])
    assert world.ensure() == jars
    assert jars[1].read_bytes() == whole
    assert any(f"{jars[1].name}' has changed (SHA-256" in told for told in world.told)


def test_a_changed_jar_that_cannot_be_fetched_again_is_refused(world: World) -> None:
    jars = world.ensure()
    spoil(jars[0])
    world.served.status[jars[0].name] = 403
    with pytest.raises(MissingTool, match=r"has changed \(SHA-256 .*the repository refuses access.*PROZESS_MAVEN_URL"):
        world.ensure()


def aged(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed from now on, as if the files were there for a while."""
    computed: list[str] = []
    monkeypatch.setattr(cache, "_FRESH_NS", -1)
    monkeypatch.setattr(cache, "sha256_of", lambda path: computed.append(path.name) or sha256_of(path))
    return computed


def test_a_sum_is_computed_once_and_again_for_a_file_that_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = aged(tmp_path, monkeypatch)
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_bytes(name.encode())
    first = cache.sums_in(tmp_path, ["a.jar", "b.jar"])
    assert cache.sums_in(tmp_path, ["a.jar", "b.jar"]) == first
    assert computed == ["a.jar", "b.jar"]
    spoil(tmp_path / "b.jar")
    assert cache.sums_in(tmp_path, ["a.jar", "b.jar"])["b.jar"] != first["b.jar"]
    assert computed == ["a.jar", "b.jar", "b.jar"]


def test_what_was_written_a_moment_ago_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")
    cache.sums_in(tmp_path, ["a.jar"])
    assert json.loads((tmp_path / cache.MEMORY).read_text()) == {}


@pytest.mark.parametrize("memory", ["", "[]", '{"a.jar": 3}', '{"a.jar": [1, 2, 3, 4, null]}', '{"a.jar": []}'])
def test_a_memory_that_is_damaged_counts_for_nothing(tmp_path: Path, memory: str) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")
    (tmp_path / cache.MEMORY).write_text(memory)
    assert cache.sums_in(tmp_path, ["a.jar"]) == {"a.jar": hashlib.sha256(b"a").hexdigest()}


def test_what_a_run_is_stamped_with_says_whether_its_jars_were_verified(world: World) -> None:
    assert module.jar_facts(VERSION, environment=world.environment) == {}
    jars = world.ensure()
    facts = module.jar_facts(VERSION, environment=world.environment)
    assert facts["verified"] is False
    assert facts["pinned"] is True
    spoil(jars[0])
    assert module.jar_facts(VERSION, environment=world.environment) == {}
    world.ensure()
    assert module.jar_facts(VERSION, environment=world.environment) == facts


@pytest.mark.parametrize("version", ["", "4", "latest", "../4.4.0", "4.4.0/..", "4.4.0 "])
def test_what_is_no_version_is_the_users_mistake(world: World, version: str) -> None:
    with pytest.raises(BadInput, match="has the form"):
        world.ensure(version)


def test_no_address_of_a_repository_is_written_or_in_the_list_of_processes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "realm_of", lambda repository, coordinates, *, what: repository.address[-9:])
    world.environment["PROZESS_MAVEN_URL"] = "https://user:secret@maven.invalid/x"
    world.ivy(
        then="assert 'secret' not in ' '.join(sys.argv) + open('ivysettings.xml').read() + open('ivy.xml').read()\n"
        "given = [os.environ[f'PROZESS_IVY_{name}'] for name in ('ROOT', 'HOST', 'REALM', 'USER', 'PASSWORD')]\n"
        "assert given == ['https://maven.invalid/x/', 'maven.invalid', 'invalid/x', 'user', 'secret'], given"
    )
    world.ensure()
    assert not [p for p in world.cache.rglob("*") if p.is_file() and b"secret" in p.read_bytes()]
    assert "secret" not in " ".join(world.told)


# --- locks ----------------------------------------------------------------------------------------------------------


BINDINGS = ("log4j-slf4j-impl", "slf4j-reload4j", "slf4j-log4j12", "log4j-slf4j2-impl")


@pytest.mark.parametrize("version", locked_versions())
def test_the_locks_name_the_broker_its_tools_and_one_logging_binding(version: str) -> None:
    lock = read_lock(version)
    assert lock is not None
    assert version in locked_versions()
    coordinates = {jar.coordinates for jar in lock}
    assert set(roots(version)) <= coordinates
    bindings = {c.artifact for c in coordinates if c.artifact in BINDINGS}
    assert bindings == {BINDINGS[0 if version.startswith("4") else 1 if version_numbers(version) >= (3, 1, 1) else 2]}
    assert ("zookeeper" in {c.artifact for c in coordinates}) == (not version.startswith("4"))


def test_there_is_a_lock_of_the_newest_patch_of_every_minor_release() -> None:
    assert set(NEWEST_PATCHES) <= set(locked_versions())


@pytest.mark.parametrize("version", remote_store_versions())
def test_the_remote_store_of_a_version_is_that_of_its_own_tests(version: str) -> None:
    coordinates = remote_store(version).locked.coordinates
    assert (coordinates.artifact, coordinates.version) == ("kafka-storage", version)
    assert coordinates.classifier == ("test-fixtures" if version_numbers(version) >= (4, 4) else "test")
    assert version in locked_versions()


def test_an_unknown_version_has_no_lock() -> None:
    assert read_lock(VERSION) is None


word = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,8}", fullmatch=True)
coordinates_of_anything = st.builds(Coordinates, word, word, word, st.just("") | word)


@given(st.lists(coordinates_of_anything, unique_by=lambda c: c.file_name), st.integers(0, 10**12), st.binary())
def test_a_lock_survives_writing_and_reading(coordinates: list[Coordinates], size: int, content: bytes) -> None:
    jars = [LockedJar(c, size, hashlib.sha256(content).hexdigest()) for c in coordinates]
    assert set(parse_lock(format_lock("1.2.3", jars))) == set(jars)


@pytest.mark.parametrize(
    "line", ["abc  1  a:b:c", "0" * 64 + "  x  a:b:c", "0" * 64 + "  1  a:b", "0" * 64 + " 1 a:b:c"]
)
def test_a_torn_lock_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_lock(f"# comment\n{line}\n")


# Which jars a version without a lock needs.


def test_what_ivy_laid_down_is_known_by_where_it_lies(tmp_path: Path) -> None:
    place = tmp_path / "org.example" / "thing" / "1.0"
    place.mkdir(parents=True)
    (place / "thing-1.0.jar").touch()
    (place / "thing-1.0-linux.jar").touch()
    assert set(laid_down(tmp_path)) == {
        Coordinates("org.example", "thing", "1.0"),
        Coordinates("org.example", "thing", "1.0", "linux"),
    }


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (":: org.apache.kafka#kafka-tools;4.99.0: not found", "has no org.apache.kafka#kafka-tools;4.99.0"),
        ("Host h.invalid not found. url=…\n module not found: a#b;1", "name of the repository's host"),
        ("Server access Error: Connection refused url=x", "cannot be reached"),
        ("SERVER ERROR: Service Unavailable url=x", "cannot be reached"),
        ("CLIENT ERROR: Unauthorized url=x", "refuses access"),
        ("PKIX path building failed", "certificate"),
        ("java.io.IOException: No space left on device", "no room left"),
        ("\x1b[0m\x1b[0m[ERROR] odd\nlast", "'[ERROR] odd'"),
        ("", "'nothing'"),
    ],
)
def test_a_failure_is_one_sentence_with_its_cause_and_a_way_out(output: str, cause: str) -> None:
    text = explain_failure("4.4.0", output)
    assert cause in text
    assert text.startswith("Kafka 4.4.0's jars cannot be fetched with Ivy: ")
    assert "\n" not in text


def test_what_is_requested_is_in_the_module() -> None:
    text = module_text(roots("4.4.0"))
    assert all(c.artifact in text and c.version in text for c in roots("4.4.0"))


def test_a_pyspark_without_ivy_is_to_be_installed_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_ivy", lambda: None)
    with pytest.raises(MissingTool, match=r"pip install --force-reinstall .prozess\[spark\]"):
        world.ensure()


def test_the_ivy_of_pyspark_is_found_without_importing_it() -> None:
    assert find_ivy() is not None


def test_a_class_path_is_the_jars_in_order() -> None:
    assert class_path((Path("/a.jar"), Path("/b.jar"))) == "/a.jar:/b.jar"


# --- the cache ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PROZESS_CACHE": "/p", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/p"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/prozess"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/prozess"),
        ({"PROZESS_CACHE": "", "HOME": "/h"}, "/h/.cache/prozess"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], expected: str) -> None:
    assert cache_directory(environment) == Path(expected)


def test_a_relative_cache_is_the_users_mistake() -> None:
    with pytest.raises(BadInput, match="absolute"):
        cache_directory({"PROZESS_CACHE": "here"})


def test_a_cache_that_cannot_be_made_says_how_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingTool, match="PROZESS_CACHE"):
        make_cache("jars", environment={"PROZESS_CACHE": str(tmp_path / "file")})


def test_a_user_without_home_or_account_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_account(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", no_account)
    with pytest.raises(MissingTool, match="PROZESS_CACHE"):
        cache_directory({})
