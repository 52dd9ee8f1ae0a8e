"""Where jars come from by Maven's settings, and plain GETs against a repository on loopback: whole or not at all, several
at a time, gone on with where they ended, and nothing that is not what its SHA-256 says."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from prozess.clusters.install import locks, repository
from prozess.clusters.install.kafka_jars import ensure_jars, refuse_unpublished
from prozess.clusters.install.locks import Coordinates, LockedJar
from prozess.clusters.install.repository import (
    CENTRAL,
    MavenSettings,
    Repository,
    fetch_locked,
    realm_of,
    repository_of,
)
from prozess.harness.config.releases import RELEASES
from prozess.harness.errors import BadInput, MissingTool
from tests.support.clock import FakeClock
from tests.support.servers.maven import Served, serving

VERSION = "9.8.7"
LOGIN = "Basic " + base64.b64encode(b"me:s ecret").decode()


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


def fetch(served: Served, locked: tuple[LockedJar, ...], directory: Path, **more: object) -> None:
    fetch_locked(locked, directory, Repository(served.address, "here"), what=f"Kafka {VERSION}", **more)  # type: ignore[arg-type]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- fetching ---------------------------------------------------------------------------------------------------------


def test_every_jar_of_a_lock_is_there_under_its_own_name(served: Served, tmp_path: Path) -> None:
    locked = served.lock(**{f"jar{number}": bytes([number]) * number * 100_000 for number in range(20)})
    fetch(served, locked, tmp_path)
    assert {name: hashlib.sha256(content).hexdigest() for name, content in files(tmp_path).items()} == {
        jar.coordinates.file_name: jar.sha256 for jar in locked
    }


@pytest.mark.parametrize("spoiled", [b"other", b"longer than it should be", b""])
def test_a_jar_that_is_not_the_locked_one_is_named_and_not_kept(served: Served, tmp_path: Path, spoiled: bytes) -> None:
    locked = served.lock(a=b"right")
    served.lock(a=spoiled)
    with pytest.raises(MissingTool, match=r"a-1\.0\.jar is not the file it should be .*PROZESS_MAVEN_URL"):
        fetch(served, locked, tmp_path)
    assert files(tmp_path) == {}


def test_a_jar_that_broke_off_goes_on_where_it_ended(served: Served, tmp_path: Path) -> None:
    content = bytes(range(250)) * 800
    locked = served.lock(a=content)
    served.ends_after["a-1.0.jar"] = 100_000
    fetch(served, locked, tmp_path)
    assert [span for _, span in served.asked] == [None, "bytes=65536-", "bytes=131072-"]
    assert files(tmp_path) == {"a-1.0.jar": content}


def test_a_repository_that_cannot_go_on_begins_anew(served: Served, tmp_path: Path) -> None:
    served.resumes = False
    locked = served.lock(a=b"0123456789")
    (tmp_path / "a-1.0.jar.part").write_bytes(b"0123")
    fetch(served, locked, tmp_path)
    assert files(tmp_path) == {"a-1.0.jar": b"0123456789"}


@pytest.mark.parametrize("left", [b"01x3", b"0123456789 and more", b"x123456789"])
def test_what_is_left_of_another_file_is_not_gone_on_with(served: Served, tmp_path: Path, left: bytes) -> None:
    locked = served.lock(a=b"0123456789")
    (tmp_path / "a-1.0.jar.part").write_bytes(left)
    fetch(served, locked, tmp_path)
    assert files(tmp_path) == {"a-1.0.jar": b"0123456789"}


def test_what_is_here_and_right_is_not_asked_for_again(served: Served, tmp_path: Path) -> None:
    locked = served.lock(a=b"aaa", b=b"bbb")
    (tmp_path / "a-1.0.jar").write_bytes(b"aaa")
    fetch(served, locked, tmp_path)
    assert [name for name, _ in served.asked] == ["b-1.0.jar"]


def test_a_fetch_that_takes_too_long_ends_and_says_so(served: Served, tmp_path: Path) -> None:
    class Late(FakeClock):
        def monotonic_ns(self) -> int:
            self.sleep(10)
            return super().monotonic_ns()

    with pytest.raises(MissingTool, match=r"were not there after 5 s\. Try again, which goes on where this ended"):
        fetch(served, served.lock(a=b"aaa"), tmp_path, clock=Late(), timeout_s=5)


@pytest.mark.parametrize(
    ("status", "cause"),
    [(404, "has no org.example:a:1.0"), (403, "refuses access"), (500, "answers with HTTP status 500")],
)
def test_a_failure_is_one_sentence_with_its_cause_and_a_way_out(
    served: Served, tmp_path: Path, status: int, cause: str
) -> None:
    served.status["a-1.0.jar"] = status
    with pytest.raises(MissingTool, match=rf"Kafka 9\.8\.7 cannot be fetched: .*{cause}.*PROZESS_MAVEN_URL") as failed:
        fetch(served, served.lock(a=b"aaa"), tmp_path)
    assert "127.0.0.1" not in str(failed.value)


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("http://127.0.0.1:9/x", "the repository cannot be reached"),
        ("http://nowhere.invalid/x", "the name of the repository's host cannot be resolved"),
    ],
)
def test_a_repository_that_is_not_there_is_said_without_its_address(
    tmp_path: Path, address: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(repository, "BACKOFF_S", 0)
    jar = LockedJar(Coordinates("g", "a", "1"), 1, "0" * 64)
    with pytest.raises(MissingTool, match=cause) as failed:
        fetch_locked((jar,), tmp_path, Repository(address, "here"), what="It")
    assert "invalid" not in str(failed.value)
    assert "127" not in str(failed.value)


# --- into the cache ---------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(served: Served, tmp_path: Path) -> dict[str, str]:
    return {"PROZESS_CACHE": str(tmp_path), "HOME": str(tmp_path), "PATH": "", "PROZESS_MAVEN_URL": served.address}


def test_jars_of_a_lock_come_into_the_cache_verified_and_are_fetched_once(
    served: Served, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, told = served.lock(a=b"aaa", b=b"bbb"), list[str]()
    monkeypatch.setattr(locks, "read_lock", lambda version: locked)
    jars = ensure_jars(VERSION, progress=told.append, environment=environment)
    assert [path.name for path in jars] == ["a-1.0.jar", "b-1.0.jar"]
    assert told == [
        f"Fetching Kafka {VERSION} from PROZESS_MAVEN_URL: 2 jars, 0 MB …",
        f"Kafka {VERSION}: 2 jars, verified.",
    ]
    assert ensure_jars(VERSION, environment=environment) == jars
    assert len(served.asked) == 2


def test_after_a_failure_nothing_is_in_place_and_the_next_fetch_asks_only_for_what_lacks(
    served: Served, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = served.lock(large=b"a" * 100, small=b"b")
    monkeypatch.setattr(locks, "read_lock", lambda version: locked)
    monkeypatch.setattr("prozess.clusters.install.repository.CONNECTIONS", 1)
    served.status["small-1.0.jar"] = 403
    with pytest.raises(MissingTool, match="refuses access"):
        ensure_jars(VERSION, environment=environment)
    assert not (tmp_path / "jars" / f"kafka-{VERSION}").exists()
    served.status.clear()
    served.asked.clear()
    ensure_jars(VERSION, environment=environment)
    assert [name for name, _ in served.asked] == ["small-1.0.jar"]
    assert sorted(path.name for path in (tmp_path / "jars").iterdir()) == [f"kafka-{VERSION}", f"kafka-{VERSION}.flock"]


def test_a_locked_jar_that_changed_is_fetched_again_and_told(
    served: Served, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, told = served.lock(a=b"aaa"), list[str]()
    monkeypatch.setattr(locks, "read_lock", lambda version: locked)
    (jar,) = ensure_jars(VERSION, environment=environment)
    jar.write_bytes(b"aab")
    assert ensure_jars(VERSION, progress=told.append, environment=environment) == (jar,)
    assert jar.read_bytes() == b"aaa"
    assert "a-1.0.jar' has changed (SHA-256" in told[0]


def test_a_version_that_was_never_published_is_refused_by_one_question(
    served: Served, environment: dict[str, str]
) -> None:
    with pytest.raises(BadInput, match=r"'9\.8\.7': the repository has no such version .* knows: 4\.\d\.\d\.$"):
        refuse_unpublished(VERSION, environment=environment)
    assert served.asked == [(f"kafka-clients-{VERSION}.pom", None)]
    served.content[f"/maven2/org/apache/kafka/kafka-clients/{VERSION}/kafka-clients-{VERSION}.pom"] = b"<project/>"
    refuse_unpublished(VERSION, environment=environment)


def test_of_a_version_that_is_here_or_locked_nobody_is_asked(
    served: Served, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "jars" / f"kafka-{VERSION}").mkdir(parents=True)
    refuse_unpublished(VERSION, environment=environment)
    (tmp_path / "jars" / "kafka-9.8.6.pin").touch()
    refuse_unpublished("9.8.6", environment=environment)
    for version in RELEASES:
        refuse_unpublished(version, environment=environment)
    assert served.asked == []


def test_whether_a_version_was_published_is_not_known_where_the_repository_does_not_tell(
    served: Served, environment: dict[str, str]
) -> None:
    served.status[f"kafka-clients-{VERSION}.pom"] = 403
    with pytest.raises(
        MissingTool, match=r"PROZESS_MAVEN_URL was tried, and .*refuses access.* nearest releases .*: 4\.\d"
    ):
        refuse_unpublished(VERSION, environment=environment)


# --- where it is ------------------------------------------------------------------------------------------------------


def settings(directory: Path, inside: str, *, namespace: str = "", **environment: str) -> MavenSettings:
    path = directory / "settings.xml"
    path.write_text(f"<settings{namespace}>{inside}</settings>")
    return MavenSettings([directory / "none.xml", path], environment)


def mirror(of: str, url: str) -> str:
    return f"<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url>{url}</url></mirror>"


@pytest.mark.parametrize(
    ("mirrors", "address"),
    [
        ("", CENTRAL),
        (mirror("central", " http://a "), "http://a"),
        (mirror("*", "http://a") + mirror("central", "http://b"), "http://b"),
        (mirror("*", "http://a") + mirror("external:*", "http://b"), "http://a"),
        (mirror("other", "http://a"), CENTRAL),
        (mirror("external:http:*", "http://a"), CENTRAL),
        (mirror("external:*, !local", "http://${env.PLACE}/m"), "http://here/m"),
        (mirror("*,!central", "http://a"), CENTRAL),
    ],
)
@pytest.mark.parametrize("namespace", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'])
def test_a_mirror_stands_for_maven_central_as_maven_chooses_it(
    tmp_path: Path, mirrors: str, address: str, namespace: str
) -> None:
    found = settings(tmp_path, f"<mirrors>{mirrors}</mirrors>", namespace=namespace, PLACE="here").repository()
    assert found.address == address


PROFILE = """<profiles><profile><id>p</id>{activation}<repositories><repository><id>central</id><url>http://own</url>
</repository></repositories></profile></profiles>"""


@pytest.mark.parametrize(
    ("inside", "address"),
    [
        (PROFILE.format(activation=""), CENTRAL),
        (PROFILE.format(activation="<activation><activeByDefault>true</activeByDefault></activation>"), "http://own"),
        (
            PROFILE.format(activation="") + "<activeProfiles><activeProfile>p</activeProfile></activeProfiles>",
            "http://own",
        ),
    ],
)
def test_an_active_profile_may_put_another_repository_in_the_place_of_maven_central(
    tmp_path: Path, inside: str, address: str
) -> None:
    assert settings(tmp_path, inside).repository().address == address


SERVER = """<mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors>
<servers><server><id>x</id><username>no</username></server>
<server><id>m</id><username>me</username><password>{password}</password></server></servers>"""


def test_the_mirrors_user_and_password_are_sent_and_shown_nowhere(served: Served, tmp_path: Path) -> None:
    served.login = LOGIN
    locked = served.lock(a=b"aaa")
    found = settings(tmp_path, SERVER.format(url=served.address, password="${env.WORD}"), WORD="s ecret").repository()
    (tmp_path / "jars").mkdir()
    fetch_locked(locked, tmp_path / "jars", found, what="It")
    assert files(tmp_path / "jars") == {"a-1.0.jar": b"aaa"}
    assert "ecret" not in repr(found)
    assert served.address not in repr(found)


def test_a_user_and_password_in_the_variable_are_sent(served: Served, tmp_path: Path) -> None:
    served.login = LOGIN
    locked = served.lock(a=b"aaa")
    address = served.address.replace("http://", "http://me:s%20ecret@")
    fetch_locked(locked, tmp_path, repository_of({"PROZESS_MAVEN_URL": address}), what="It")
    assert files(tmp_path) == {"a-1.0.jar": b"aaa"}


def test_the_realm_is_the_one_that_the_repository_names(served: Served) -> None:
    (jar,) = served.lock(a=b"aaa")
    repository = Repository(served.address, "here", ("me", "s ecret"))
    assert realm_of(repository, jar.coordinates, what="It") == ""
    served.login = LOGIN
    assert realm_of(repository, jar.coordinates, what="It") == "of jars"


def test_an_encrypted_password_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match=r"password of server 'm' .* is encrypted.*PROZESS_MAVEN_URL"):
        settings(tmp_path, SERVER.format(url="https://m", password="{aGVsbG8=}")).repository()


PROXY = """<proxies><proxy><active>false</active><host>off</host></proxy><proxy><active>true</active>
<protocol>http</protocol><host>gate</host><port>3128</port><username>me</username><password>a@b</password>
<nonProxyHosts>*.local|{direct}</nonProxyHosts></proxy></proxies>"""


@pytest.mark.parametrize(
    ("direct", "proxy"), [("other", "http://me:a%40b@gate:3128"), ("repo.maven.apache.org", None), ("*.org", None)]
)
def test_the_active_proxy_is_used_but_for_hosts_that_are_reached_directly(
    tmp_path: Path, direct: str, proxy: str | None
) -> None:
    assert settings(tmp_path, PROXY.format(direct=direct)).repository().proxy == proxy


def test_the_variable_counts_before_the_settings_and_the_users_settings_before_the_installations(
    tmp_path: Path,
) -> None:
    user, installation = tmp_path / ".m2", tmp_path / "maven" / "conf"
    for directory, name in ((user, "user"), (installation, "installation")):
        directory.mkdir(parents=True)
        settings(directory, f"<mirrors>{mirror('central', f'http://{name}')}</mirrors>")
    maven = tmp_path / "maven" / "bin" / "mvn"
    maven.parent.mkdir()
    maven.touch(mode=0o755)
    environment = {"HOME": str(tmp_path), "PATH": str(maven.parent), "PROZESS_MAVEN_URL": "http://variable"}
    assert repository_of(environment).address == "http://variable"
    del environment["PROZESS_MAVEN_URL"]
    assert repository_of(environment).address == "http://user"
    (user / "settings.xml").unlink()
    assert repository_of(environment).address == "http://installation"
    del environment["PATH"]
    assert repository_of({**environment, "PATH": ""}).address == CENTRAL


def test_settings_that_are_no_xml_and_what_is_no_address_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.xml").write_text("<settings><mirrors>")
    with pytest.raises(MissingTool, match=r"broken\.xml' cannot be read .*PROZESS_MAVEN_URL"):
        MavenSettings([tmp_path / "broken.xml"], {})
    with pytest.raises(BadInput, match="begins with https"):
        repository_of({"PROZESS_MAVEN_URL": "/srv/maven"})
