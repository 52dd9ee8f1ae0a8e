"""The jar cache: what is verified, what is refused, and that nothing half is ever seen. A stand-in for `mvn` lays files
down; the real one and the real Ivy run in tests/system/test_jars_from_maven.py."""

import hashlib
import stat
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters import jars as module
from clusters.cache import cache_directory, make_cache
from clusters.ivy import find_ivy, module_text
from clusters.jars import class_path, ensure_jars, roots, verify
from clusters.locks import Coordinates, LockedJar, format_lock, locked_versions, parse_lock, read_lock
from clusters.maven import project_text
from clusters.repository import Request, explain_failure, laid_down, mirror_of_central
from harness.errors import BadInput, MissingTool

VERSION = "9.8.7"
MAVEN = """#!{python}
import sys, pathlib
with open({calls!r}, "a") as calls:
    calls.write("x")
for line in pathlib.Path("pom.xml").read_text().splitlines():
    if "<dependency>" in line:
        group, artifact, version = (line.split(f"<{{t}}>")[1].split("<")[0] for t in ("groupId", "artifactId", "version"))
        place = pathlib.Path("layout", *group.split("."), artifact, version)
        place.mkdir(parents=True)
        (place / f"{{artifact}}-{{version}}.jar").write_bytes(artifact.encode())
{then}
"""


class World:
    """A machine with a cache, a Java and a `mvn`."""

    def __init__(self, directory: Path) -> None:
        self.cache, self.tools, self.calls = directory / "cache", directory / "bin", directory / "calls"
        java = directory / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.touch(mode=0o755)
        (directory / "jdk" / "release").write_text('JAVA_VERSION="17.0.1"\n')
        self.tools.mkdir()
        self.environment = {
            "PROZESS_CACHE": str(self.cache),
            "PROZESS_JAVA_HOME": str(directory / "jdk"),
            "PATH": str(self.tools),
            "HOME": str(directory),
        }
        self.told: list[str] = []

    def maven(self, then: str = "") -> None:
        script = self.tools / "mvn"
        script.write_text(MAVEN.format(python=sys.executable, calls=str(self.calls), then=then))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def ensure(self, version: str = VERSION) -> tuple[Path, ...]:
        return ensure_jars(version, progress=self.told.append, environment=self.environment)

    def leftovers(self) -> list[str]:
        return [p.name for p in (self.cache / "jars").iterdir() if not p.name.endswith(".flock")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.maven()
    return made


def test_jars_of_a_version_without_a_lock_are_usable_and_said_to_be_unverified(world: World) -> None:
    jars = world.ensure()
    assert [p.name for p in jars] == sorted(c.file_name for c in roots(VERSION))
    assert all(p.is_absolute() and p.is_file() for p in jars)
    assert "UNVERIFIED" in world.told[-1]


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


def test_a_jar_that_is_not_the_locked_one_is_named_and_nothing_is_kept(world: World) -> None:
    with pytest.raises(MissingTool, match=r"HdrHistogram-2\.2\.2\.jar is not the file it should be"):
        world.ensure("4.3.1")
    assert world.leftovers() == []


def test_a_failed_fetch_leaves_nothing_half(world: World) -> None:
    world.maven(then="sys.exit('[ERROR] something odd happened at https://secret.invalid/x')")
    with pytest.raises(MissingTool, match="something odd") as failed:
        world.ensure()
    assert "secret" not in str(failed.value)
    assert world.leftovers() == []


def test_what_a_killed_fetch_left_is_swept_by_the_next_one(world: World) -> None:
    half = world.cache / "jars" / f".fetching-{VERSION}-dead"
    half.mkdir(parents=True)
    (half / "x.jar").touch()
    world.ensure()
    assert world.leftovers() == [f"kafka-{VERSION}"]


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
    assert world.calls.read_text() == "xx"


def test_without_maven_and_ivy_the_user_is_told_to_install_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.tools / "mvn").unlink()
    monkeypatch.setattr(module, "find_ivy", lambda: None)
    with pytest.raises(MissingTool, match=r"neither Maven .* nor the Ivy"):
        world.ensure()


@pytest.mark.parametrize("version", ["", "4", "latest", "../4.3.1", "4.3.1/..", "4.3.1 "])
def test_what_is_no_version_is_the_users_mistake(world: World, version: str) -> None:
    with pytest.raises(BadInput, match="has the form"):
        world.ensure(version)


def test_no_address_of_a_repository_is_written(world: World) -> None:
    world.environment["PROZESS_MAVEN_URL"] = "https://user:secret@maven.invalid/x"
    (world.tools / "mvn").unlink()
    world.maven(then="print(open('settings.xml').read()); assert 'secret' not in open('settings.xml').read()")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "find_ivy", lambda: None)
        world.ensure()
    assert not [p for p in world.cache.rglob("*") if p.is_file() and b"secret" in p.read_bytes()]


# --- locks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
def test_the_locks_name_the_broker_its_tools_and_one_logging_binding(version: str) -> None:
    lock = read_lock(version)
    assert lock is not None
    assert version in locked_versions()
    coordinates = {jar.coordinates for jar in lock}
    assert set(roots(version)) <= coordinates
    bindings = {c.artifact for c in coordinates} & {"log4j-slf4j-impl", "log4j-slf4j2-impl", "slf4j-reload4j"}
    assert bindings == {"log4j-slf4j-impl" if version.startswith("4") else "slf4j-reload4j"}
    assert ("zookeeper" in {c.artifact for c in coordinates}) == version.startswith("3")


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


def jar(name: str, content: str = "x") -> LockedJar:
    return LockedJar(Coordinates("g", name, "1"), len(content), hashlib.sha256(content.encode()).hexdigest())


def test_exactly_the_locked_jars_verify() -> None:
    verify("1.2.3", (jar("a"), jar("b")), (jar("a"), jar("b")))


@pytest.mark.parametrize(
    ("manifest", "names"),
    [
        ((jar("a"),), "did not give b-1.jar"),
        ((jar("a"), jar("b", "y")), "b-1.jar is not the file"),
        ((jar("a"), jar("b"), jar("c")), "c-1.jar came along"),
    ],
)
def test_any_difference_from_the_lock_names_the_jar(manifest: tuple[LockedJar, ...], names: str) -> None:
    with pytest.raises(MissingTool, match=names):
        verify("1.2.3", manifest, (jar("a"), jar("b")))


# --- resolvers ------------------------------------------------------------------------------------------------------


def test_both_resolvers_layouts_give_the_same_coordinates(tmp_path: Path) -> None:
    for group in ("org/example", "org.example"):
        place = tmp_path / group.replace("/", "-") / group / "thing" / "1.0"
        place.mkdir(parents=True)
        (place / "thing-1.0.jar").touch()
        (place / "thing-1.0-linux.jar").touch()
        assert set(laid_down(tmp_path / group.replace("/", "-"))) == {
            Coordinates("org.example", "thing", "1.0"),
            Coordinates("org.example", "thing", "1.0", "linux"),
        }


@pytest.mark.parametrize(
    ("mirrors", "address"),
    [
        ("", None),
        ("<mirror><mirrorOf>central</mirrorOf><url> a </url></mirror>", "a"),
        (
            "<mirror><mirrorOf>*</mirrorOf><url>a</url></mirror><mirror><mirrorOf>central</mirrorOf><url>b</url></mirror>",
            "a",
        ),
        ("<mirror><mirrorOf>other</mirrorOf><url>a</url></mirror>", None),
        ("<mirror><mirrorOf>external:http:*</mirrorOf><url>a</url></mirror>", None),
        ("<mirror><mirrorOf>external:*, !local</mirrorOf><url>${env.PLACE}/m</url></mirror>", "here/m"),
        ("<mirror><mirrorOf>*,!central</mirrorOf><url>a</url></mirror>", None),
    ],
)
@pytest.mark.parametrize("namespace", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'])
def test_the_first_mirror_of_maven_central_counts(
    tmp_path: Path, mirrors: str, address: str | None, namespace: str
) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(f"<settings{namespace}><mirrors>{mirrors}</mirrors></settings>")
    assert mirror_of_central(settings, {"PLACE": "here"}) == address


def test_settings_that_are_missing_or_broken_have_no_mirror(tmp_path: Path) -> None:
    assert mirror_of_central(tmp_path / "none.xml") is None
    (tmp_path / "broken.xml").write_text("<settings><mirrors>")
    assert mirror_of_central(tmp_path / "broken.xml") is None


REQUEST = Request("4.3.1", roots("4.3.1"), exact=False)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            "[ERROR] … Could not find artifact org.apache.kafka:kafka_2.13:jar:4.99.0 in central",
            "has no org.apache.kafka",
        ),
        (":: org.apache.kafka#kafka-tools;4.99.0: not found", "has no org.apache.kafka#kafka-tools;4.99.0"),
        ("Host h.invalid not found. url=…\n module not found: a#b;1", "name of the repository's host"),
        ("Could not transfer artifact a:b:pom:1 from/to central: Connection refused", "cannot be reached"),
        ("SERVER ERROR: Service Unavailable url=x", "cannot be reached"),
        ("status code: 407, reason phrase: Proxy", "refuses access"),
        ("PKIX path building failed", "certificate"),
        ("Cannot access central in offline mode", "offline"),
        ("java.io.IOException: No space left on device", "no room left"),
        ("\x1b[0m\x1b[0m[ERROR] odd\nlast", "'[ERROR] odd'"),
        ("", "'nothing'"),
    ],
)
def test_a_failure_is_one_sentence_with_its_cause_and_a_way_out(output: str, cause: str) -> None:
    text = explain_failure("Maven", REQUEST, output)
    assert cause in text
    assert text.startswith("Kafka 4.3.1's jars cannot be fetched with Maven: ")
    assert "\n" not in text


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_requested_is_in_both_resolvers_files(exact: bool) -> None:
    request = Request("4.3.1", (*roots("4.3.1"), Coordinates("g", "a", "1", "linux")), exact=exact)
    for text in (project_text(request), module_text(request)):
        assert all(c.artifact in text and c.version in text for c in request.coordinates)
        assert "linux" in text
    assert ("transitive" in module_text(request)) == exact


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


def test_maven_keeps_its_repository_in_the_workspace_where_the_account_has_no_home(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusters.maven._has_home", lambda: True)
    world.maven(then=f"open({str(world.cache / 'arguments')!r}, 'w').write(' '.join(sys.argv))")
    world.ensure()
    assert "maven.repo.local" not in (world.cache / "arguments").read_text()
    monkeypatch.setattr("clusters.maven._has_home", lambda: False)
    world.ensure("9.8.8")
    assert "maven.repo.local" in (world.cache / "arguments").read_text()
