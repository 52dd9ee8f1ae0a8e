"""What Maven and Ivy have in common: a request, running the resolver, reading what it laid down, and saying why it failed.

A repository's address comes from the user's environment or settings; it is passed on, and never printed or written.
"""

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.locks import Coordinates
from harness.errors import MissingTool

FETCH_TIMEOUT_S = 900.0
_CENTRAL = {"central", "*", "external:*"}


@dataclass(frozen=True, slots=True)
class Request:
    """What to fetch. `exact`: these artifacts and no others; else these and whatever they need at run time."""

    kafka_version: str
    coordinates: tuple[Coordinates, ...]
    exact: bool
    other: str = ""
    """What it is, if not Kafka: "Jolokia 2.5.1"."""

    @property
    def what(self) -> str:
        """What is fetched, for a person."""
        return self.other or f"Kafka {self.kafka_version}"


def run_resolver(
    name: str, command: Sequence[str], *, workspace: Path, request: Request, environment: Mapping[str, str]
) -> None:
    """Run a resolver in its workspace. MissingTool with one sentence if it fails or takes longer than the limit."""
    try:
        done = subprocess.run(
            list(command),
            cwd=workspace,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingTool(
            f"{request.what}'s jars were not there after {FETCH_TIMEOUT_S:g} s of {name}. "
            "Try again on a faster network, or set PROZESS_MAVEN_URL to a nearer Maven repository."
        ) from error
    except OSError as error:
        raise MissingTool(f"{name} could not be started: {error.strerror}. {_WAY_OUT}") from error
    if done.returncode != 0:
        raise MissingTool(explain_failure(name, request, done.stdout))


def laid_down(directory: Path) -> dict[Coordinates, Path]:
    """The jars below a directory in repository layout: group (one folder or several) / artifact / version / file."""
    found = {}
    for path in directory.rglob("*.jar"):
        *group, artifact, version, name = path.relative_to(directory).parts
        classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
        found[Coordinates(".".join(group), artifact, version, classifier)] = path
    return found


def mirror_of_central(settings: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Address of the first mirror in a Maven settings file that stands for Maven Central; None without one.

    Only for resolvers other than Maven, which reads its settings better itself: no passwords, no proxies. A file that is
    not XML has no mirrors. `${env.NAME}` is replaced, as Maven does.
    """
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        names = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        address = (mirror.findtext("{*}url") or "").strip()
        if address and names & _CENTRAL and "!central" not in names:
            return re.sub(r"\$\{env\.(\w+)\}", lambda match: environment.get(match[1], ""), address)
    return None


_WAY_OUT = "Set PROZESS_MAVEN_URL to a Maven repository this machine can reach, or try again."
_CAUSES = (  # first match decides; the patterns are what Maven 3.8/3.9 and Ivy 2.5 print
    (
        r"No space left on device|Disk quota exceeded",
        "there is no room left on the disk",
        "Free space, or set PROZESS_CACHE.",
    ),
    (
        r"status code: 40[137]|Not authorized|Authentication failed|HTTP response code: 40[137]|"
        r"CLIENT ERROR: (?:Unauthorized|Forbidden|Proxy)|Unauthorized",
        "the repository refuses access",
        _WAY_OUT,
    ),
    (r"offline mode", "Maven is set to offline and does not have them", "Allow it the network in its settings.xml."),
    (
        r"UnknownHost|Unknown host|Host \S+ not found|Name or service not known|name resolution|nodename nor servname",
        "the name of the repository's host cannot be resolved",
        _WAY_OUT,
    ),
    (r"PKIX|SSLHandshake|SSLException|certificate", "its certificate is not trusted by this Java", _WAY_OUT),
    (r"No plugin found for prefix", "the repository does not give Maven its dependency plugin", _WAY_OUT),
    (
        r"Connection refused|[Tt]imed out|[Cc]onnect timeout|SERVER ERROR|unreachable|No route|Connection reset|"
        r"Could not transfer|Server access [Ee]rror|status code: 5\d\d|ConnectException|SocketException",
        "the repository cannot be reached",
        _WAY_OUT,
    ),
)


def explain_failure(name: str, request: Request, output: str) -> str:
    """One sentence on why a resolver failed, and the way out, without any address in it."""
    what = f"{request.what}'s jars cannot be fetched with {name}"
    for pattern, cause, way_out in _CAUSES:
        if re.search(pattern, output):
            return f"{what}: {cause}. {way_out}"
    missing = re.search(
        r"(?:Could not find artifact|Failure to find|The following artifacts could not be resolved:) ([\w.:-]+)"
        r"|(?:module not found: |not found: )([\w.#;-]+)|([\w.-]+#[\w.-]+;[\w.-]+): not found",
        output,
    )
    if missing:
        artifact = next(filter(None, missing.groups()))
        way_out = _WAY_OUT if request.exact else "Give a version of Kafka that was published, for instance 4.3.1."
        return f"{what}: the repository has no {artifact}. {way_out}"
    said = re.sub(r"\x1b\[[\d;]*m|\w+://\S+", "", output)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["nothing"]
    telling = next((line for line in lines if "ERROR" in line), lines[-1])
    return f"{what}: it says {telling[:200]!r}. {_WAY_OUT}"
