"""Finds the Maven repository that jars come from, and fetches files by plain GETs, each with the SHA-256 of its lock.

It is `PROZESS_MAVEN_URL`, else what Maven's settings put in the place of Maven Central, else Maven Central itself. An
address is passed on, and never printed or written: it may hold a password.
"""

import errno
import os
import re
import shutil
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NameResolutionError
from urllib3.util import Retry

from prozess.clusters.install.locks import Coordinates, LockedJar
from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.installation import home_directory, sha256_of

CENTRAL = "https://repo.maven.apache.org/maven2"
FETCH_TIMEOUT_S = 900.0
CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 30.0
CONNECTIONS = 6
"""How many jars are fetched at once: a repository far away gives one connection a fraction of the line."""
ATTEMPTS = 4
"""How often the fetch of a jar that broke off is continued."""
_CHUNK_BYTES = 1 << 16
"""How many bytes are lost at most where a connection breaks off."""
_WAY_OUT = "Set PROZESS_MAVEN_URL to a Maven repository this machine can reach, or try again."


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository and how it is reached."""

    address: str = field(repr=False)
    origin: str
    """The setting that named it, for a person."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """The user name and the password."""
    proxy: str | None = field(default=None, repr=False)
    """The proxy; None for what `HTTPS_PROXY` and its like say."""

    def url(self, coordinates: Coordinates, file_name: str = "") -> str:
        """Returns the address of an artifact's jar, or of the file of that name beside it."""
        parts = (*coordinates.group.split("."), coordinates.artifact, coordinates.version)
        return "/".join((self.address.rstrip("/"), *parts, file_name or coordinates.file_name))


# Where it is


def repository_of(environment: Mapping[str, str] = os.environ) -> Repository:
    """The repository that this environment names. BadInput or MissingTool if what names it cannot be used."""
    if address := environment.get("PROZESS_MAVEN_URL"):
        if urlsplit(address).scheme not in ("http", "https"):
            raise BadInput("PROZESS_MAVEN_URL is no address of a Maven repository; it begins with https:// or http://.")
        return Repository(address, "PROZESS_MAVEN_URL")
    return MavenSettings.of(environment).repository()


class MavenSettings:
    """Describes what Maven's settings files say of Maven Central (https://maven.apache.org/settings.html).

    The user's come before those of the installation: mirrors, repositories of active profiles, servers and proxies."""

    def __init__(self, files: Sequence[Path], environment: Mapping[str, str]) -> None:
        self._roots = [root for file in files if (root := _parsed(file)) is not None]
        self._environment = environment

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "MavenSettings":
        """Reads `~/.m2/settings.xml`, and `conf/settings.xml` of the Maven on PATH."""
        files = [home_directory(environment) / ".m2" / "settings.xml"]
        if maven := shutil.which("mvn", path=environment.get("PATH", os.defpath)):
            files.append(Path(maven).resolve().parents[1] / "conf" / "settings.xml")
        return cls(files, environment)

    def repository(self) -> Repository:
        """The repository that stands for Maven Central. MissingTool if its password is one that only Maven can read."""
        name, address = self._mirror() or self._central() or ("central", CENTRAL)
        origin = "Maven Central" if address == CENTRAL else "the repository in Maven's settings"
        if urlsplit(address).scheme not in ("http", "https"):
            raise MissingTool(f"Jars are fetched over https or http, not as Maven's settings say. {_WAY_OUT}")
        return Repository(address, origin, self._login(name), self._proxy(address))

    def _mirror(self) -> tuple[str, str] | None:
        """The id and address of the mirror that names `central`, else of the first whose pattern covers it, as Maven
        chooses."""
        patterns = {mirror: self._text(mirror, "mirrorOf") for mirror in self._elements("mirrors/mirror")}
        chosen = [mirror for mirror, pattern in patterns.items() if pattern == "central"]
        chosen += [mirror for mirror, pattern in patterns.items() if _covers_central(pattern)]
        return next(((self._text(mirror, "id"), url) for mirror in chosen if (url := self._text(mirror, "url"))), None)

    def _central(self) -> tuple[str, str] | None:
        """The repository `central` of a profile that is always active."""
        active = {self._value(element) for element in self._elements("activeProfiles/activeProfile")}
        for profile in self._elements("profiles/profile"):
            by_default = (profile.findtext("{*}activation/{*}activeByDefault") or "").strip() == "true"
            if not by_default and self._text(profile, "id") not in active:
                continue
            for repository in profile.iterfind("{*}repositories/{*}repository"):
                if self._text(repository, "id") == "central" and (url := self._text(repository, "url")):
                    return "central", url
        return None

    def _login(self, name: str) -> tuple[str, str] | None:
        for server in self._elements("servers/server"):
            if self._text(server, "id") != name or not (user := self._text(server, "username")):
                continue
            password = self._text(server, "password")
            if password.startswith("{") and password.endswith("}"):
                raise MissingTool(
                    f"The password of server {name!r} in Maven's settings is encrypted, and only Maven can read it. "
                    "Set PROZESS_MAVEN_URL to https://USER:PASSWORD@HOST/PATH of that repository."
                )
            return user, password
        return None

    def _proxy(self, address: str) -> str | None:
        """The first active proxy for that protocol; for https also one for http, as Maven does."""
        to = urlsplit(address)
        for protocol in dict.fromkeys((to.scheme, "http")):
            for proxy in self._elements("proxies/proxy"):
                inactive = self._text(proxy, "active") == "false"
                direct = re.split(r"[|,\s]+", self._text(proxy, "nonProxyHosts"))
                if inactive or (self._text(proxy, "protocol") or "http") != protocol:
                    continue
                if any(fnmatch(to.hostname or "", pattern) for pattern in direct if pattern):
                    continue
                user, password = (quote(self._text(proxy, part), safe="") for part in ("username", "password"))
                login = f"{user}:{password}@" if user else ""
                return f"http://{login}{self._text(proxy, 'host')}:{self._text(proxy, 'port') or '8080'}"
        return None

    def _elements(self, path: str) -> Iterator[ElementTree.Element]:
        for root in self._roots:
            yield from root.iterfind("/".join("{*}" + part for part in path.split("/")))

    def _text(self, element: ElementTree.Element, name: str) -> str:
        found = element.find("{*}" + name)
        return "" if found is None else self._value(found)

    def _value(self, element: ElementTree.Element) -> str:
        """The text of an element, with `${env.NAME}` replaced, as Maven does."""
        text = (element.text or "").strip()
        return re.sub(r"\$\{env\.(\w+)\}", lambda match: self._environment.get(match[1], ""), text)


def _parsed(file: Path) -> ElementTree.Element | None:
    try:
        return ElementTree.parse(file).getroot()
    except FileNotFoundError:
        return None
    except (OSError, ElementTree.ParseError) as error:
        raise MissingTool(
            f"Maven's settings {str(file)!r} cannot be read ({error}), so where jars come from is not known. "
            "Repair them, or set PROZESS_MAVEN_URL."
        ) from error


def _covers_central(pattern: str) -> bool:
    names = {part.strip() for part in pattern.split(",")}
    return bool(names & {"central", "*", "external:*"}) and "!central" not in names


# Its files


def has_file(repository: Repository, coordinates: Coordinates, file_name: str, *, what: str) -> bool:
    """Is there such a file beside an artifact? MissingTool if the repository does not say."""
    with _session() as session:
        try:
            with _get(session, repository, repository.url(coordinates, file_name), {}) as response:
                if response.status_code == 404:
                    return False
                response.raise_for_status()
                return True
        except (requests.RequestException, OSError) as error:
            raise MissingTool(_failure(what, error)) from error


def realm_of(repository: Repository, coordinates: Coordinates, *, what: str) -> str:
    """Asks the repository for a jar without a login, and returns the realm that it names (RFC 7617); "" if none.

    MissingTool if it cannot be reached."""
    with _session() as session:
        try:
            with _get(session, replace(repository, login=None), repository.url(coordinates), {}) as response:
                asked = re.search(r'realm="([^"]*)"', response.headers.get("WWW-Authenticate", ""), re.IGNORECASE)
        except (requests.RequestException, OSError) as error:
            raise MissingTool(_failure(what, error)) from error
    return asked[1] if asked else ""


def fetch_locked(
    jars: Sequence[LockedJar],
    directory: Path,
    repository: Repository,
    *,
    what: str,
    lock: str = "its lock",
    clock: Clock | None = None,
    timeout_s: float = FETCH_TIMEOUT_S,
) -> None:
    """Fetches every jar into that directory, whole and with the sum of its lock, several at a time.

    A jar that is there is not fetched again, and one that is there in part (`NAME.part`) goes on where it ended. MissingTool
    if one cannot be had or is another file; what is right stays for the next attempt. `lock`: what says the sums, in a
    sentence.
    """
    fetching = _Fetching(directory, repository, what, lock, clock or SystemClock(), timeout_s)
    waiting: SimpleQueue[LockedJar] = SimpleQueue()
    for jar in sorted(jars, key=lambda jar: -jar.size):  # the largest first, so that the last to end is small
        waiting.put(jar)
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="jars") as threads:
        workers = [threads.submit(fetching.all_of, waiting) for _ in range(min(CONNECTIONS, len(jars)))]
        try:
            for worker in as_completed(workers):
                worker.result()
        finally:
            fetching.over.set()


class _Fetching:
    """Jars that are being fetched into one directory."""

    def __init__(
        self, directory: Path, repository: Repository, what: str, lock: str, clock: Clock, timeout_s: float
    ) -> None:
        self._directory, self._repository, self._what, self._lock = directory, repository, what, lock
        self._clock, self._timeout_s = clock, timeout_s
        self._deadline_ns = clock.monotonic_ns() + int(timeout_s * NS_PER_S)
        self.over = threading.Event()
        """Set once one of them failed or the caller is interrupted: then no more is read."""

    def all_of(self, waiting: "SimpleQueue[LockedJar]") -> None:
        with _session() as session:
            while not self.over.is_set():
                try:
                    jar = waiting.get_nowait()
                except Empty:
                    return
                try:
                    self._fetch(session, jar)
                except (requests.RequestException, OSError) as error:
                    raise MissingTool(_failure(self._what, error, jar.coordinates, lock=self._lock)) from error

    def _fetch(self, session: requests.Session, jar: LockedJar) -> None:
        whole = self._directory / jar.coordinates.file_name
        if whole.exists() and sha256_of(whole) == jar.sha256:
            return
        part = whole.with_name(whole.name + ".part")
        had_bytes = part.stat().st_size if part.exists() else 0
        self._read_to_end(session, jar, part)
        if had_bytes and not self.over.is_set() and sha256_of(part) != jar.sha256:  # of another file, or of none
            part.unlink()
            self._read_to_end(session, jar, part)
        if self.over.is_set():
            return
        found, size_bytes = sha256_of(part), part.stat().st_size
        if found == jar.sha256:
            part.rename(whole)
            return
        part.unlink()
        raise MissingTool(
            f"{self._what}: {whole.name} is not the file it should be (SHA-256 {found[:16]}…, {size_bytes} bytes; "
            f"{self._lock} says {jar.sha256[:16]}…, {jar.size} bytes). It was not kept; ask whoever runs that repository, "
            "or fetch from another with PROZESS_MAVEN_URL."
        )

    def _read_to_end(self, session: requests.Session, jar: LockedJar, part: Path) -> None:
        """Reads a jar until all of it is there. Raises the last error if it breaks off too often."""
        part.touch()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._read(session, jar, part)
            except (requests.exceptions.ChunkedEncodingError, requests.ConnectionError):
                if attempt == ATTEMPTS or self.over.is_set():
                    raise
        return None

    def _read(self, session: requests.Session, jar: LockedJar, part: Path) -> None:
        had_bytes = part.stat().st_size
        if had_bytes >= jar.size:
            return
        headers = {"Range": f"bytes={had_bytes}-"} if had_bytes else {}
        with _get(session, self._repository, self._repository.url(jar.coordinates), headers) as response:
            if response.status_code == 416:  # it ends before what is here
                return
            response.raise_for_status()
            goes_on = response.status_code == 206
            left_bytes = jar.size - had_bytes * goes_on
            with part.open("ab" if goes_on else "wb") as file:
                for chunk in response.iter_content(_CHUNK_BYTES):
                    file.write(chunk)
                    left_bytes -= len(chunk)
                    if left_bytes < 0 or self.over.is_set():
                        return
                    self._check_time()

    def _check_time(self) -> None:
        if self._clock.monotonic_ns() > self._deadline_ns:
            raise MissingTool(
                f"{self._what}'s jars were not there after {self._timeout_s:g} s. Try again, which goes on where this ended, "
                "or set PROZESS_MAVEN_URL to a nearer Maven repository."
            )


BACKOFF_S = 0.5
"""The pause before the second attempt; each further one is twice as long."""


def _session() -> requests.Session:
    """A session that tries again where a server is busy or cannot be reached for a moment."""
    session = requests.Session()
    retries = Retry(
        total=3, backoff_factor=BACKOFF_S, status_forcelist=(429, 502, 503, 504), respect_retry_after_header=False
    )
    retries.raise_on_status = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    return session


def _get(session: requests.Session, repository: Repository, url: str, headers: Mapping[str, str]) -> requests.Response:
    """Begins to read a file. The caller reads it to its end or closes it."""
    proxy = repository.proxy
    return session.get(
        url,
        headers={"Accept-Encoding": "identity", **headers},
        auth=repository.login,
        proxies={"http": proxy, "https": proxy} if proxy else None,
        timeout=(CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S),
        stream=True,
    )


_CAUSES: tuple[tuple[Callable[[BaseException], bool], str, str], ...] = (  # the first that fits decides
    (
        lambda error: isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT),
        "there is no room left on the disk",
        "Free space, or set PROZESS_CACHE.",
    ),
    (lambda error: _status(error) in (401, 403, 407), "the repository refuses access", _WAY_OUT),
    (
        lambda error: isinstance(error, requests.exceptions.SSLError),
        "its certificate is not trusted here",
        "Name the file of the authority that signed it in REQUESTS_CA_BUNDLE, or set PROZESS_MAVEN_URL.",
    ),
    (lambda error: isinstance(error, requests.exceptions.ProxyError), "the proxy cannot be reached", _WAY_OUT),
    (
        lambda error: isinstance(getattr(error.args[0] if error.args else None, "reason", None), NameResolutionError),
        "the name of the repository's host cannot be resolved",
        _WAY_OUT,
    ),
    (lambda error: isinstance(error, requests.Timeout), "the repository did not answer in time", _WAY_OUT),
    (lambda error: isinstance(error, requests.ConnectionError), "the repository cannot be reached", _WAY_OUT),
    (
        lambda error: isinstance(error, requests.exceptions.ChunkedEncodingError),
        "the repository broke off",
        "Try again, which goes on where this ended.",
    ),
)


def _status(error: BaseException) -> int:
    response = error.response if isinstance(error, requests.RequestException) else None
    return 0 if response is None else response.status_code


def _failure(what: str, error: Exception, coordinates: Coordinates | None = None, *, lock: str = "") -> str:
    """Says why something could not be fetched, and what to do, without any address in it."""
    head = f"{what} cannot be fetched"
    if coordinates is not None and _status(error) == 404:
        return f"{head}: the repository has no {coordinates}, which {lock} names. {_WAY_OUT}"
    for fits, cause, way_out in _CAUSES:
        if fits(error):
            return f"{head}: {cause}. {way_out}"
    if status := _status(error):
        return f"{head}: the repository answers with HTTP status {status}. {_WAY_OUT}"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"{head}: {reason}. {_WAY_OUT}"
