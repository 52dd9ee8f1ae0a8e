"""Resolves a Compose file by Compose's own rules: interpolation, env_file, extends, include, the override file beside it.

Nothing is run, pulled or built. A Compose file may be a stranger's, so other files are read only where they lie in its own
directory, are plain files and are small. What lies elsewhere is not understood, by name. Where Docker Compose is installed,
its own resolution counts (`docker compose config`); it is asked only once everything that it would read is known to be such a
file. Variables come from the `.env` beside the file alone, never from this process: a shell's are in no file. One that nobody
sets stays a placeholder."""

import json
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation import reading as documents
from prozess.validation.reading import FileMapping, as_kafka_spells, origin

FILE_BYTES_MAX = 1_048_576
"""The greatest size of a file that another one names."""
FILES_MAX, DEPTH_MAX = 50, 10
"""At most this many files one Compose file may bring in, and so deep."""
COMPOSE_TIMEOUT_S = 20.0
_SIBLING = re.compile(r"(?:docker-)?compose(?:[.-].+)?\.ya?ml")
_OVERRIDES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("compose.yaml", "compose.yml"), ("compose.override.yml", "compose.override.yaml")),
    **dict.fromkeys(
        ("docker-compose.yml", "docker-compose.yaml"), ("docker-compose.override.yml", "docker-compose.override.yaml")
    ),
}
"""The file that Compose finds by itself → what it then lays over it, the first that there is."""


@dataclass(slots=True)
class Resolved:
    """A Compose file with all that it brings in."""

    path: Path
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Service → its definition; `environment` is name → Setting, paths are absolute."""
    origins: dict[str, str] = field(default_factory=dict)
    """Service → the file and the line at which it stands."""
    volumes: dict[str, Any] = field(default_factory=dict)
    unclear: list[Unclear] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """Files that were read besides the first."""


def resolve(path: Path) -> Resolved:
    """Reads a Compose file and what it brings in. BadInput for what is no Compose file."""
    found = Resolved(path)
    reader = _Resolver(found, path.parent.resolve())
    variables = reader.variables(path.parent)
    reader.doubt_other_files(variables)
    reader.load(path, documents.load(path), variables)
    for name in _OVERRIDES.get(path.name, ()):
        over = path.with_name(name)
        if over.exists():
            found.notes.append(f"{over} lies over {path.name}, as Compose does by itself")
            document = reader.document(over.name, path.parent, over.name)
            if document is not None:
                reader.load(over, document, variables)
            break
    reader.doubt_siblings()
    reader.finish()
    if found.files and not found.unclear and not reader.unset:
        _as_docker_has_it(found)
    return found


def normal_environment(value: object, path: Path) -> dict[str, Setting]:
    """Returns an environment, which Compose takes as a mapping or as a list of NAME=VALUE. A name without a value has the
    shell's, which is in no file: a placeholder."""
    found: dict[str, Setting] = {}
    if isinstance(value, Mapping):
        for key, each in value.items():
            text = f"${{{key}}}" if each is None else as_kafka_spells(each)
            found[str(key)] = each if isinstance(each, Setting) else Setting(text, f"{origin(path, key)}, {key}")
    elif isinstance(value, list):
        for each in value:
            name, equals, text = str(each).partition("=")
            found[name] = Setting(text if equals else f"${{{name}}}", f"{origin(path, each)}, {name}")
    return found


class _Resolver:
    def __init__(self, found: Resolved, root: Path) -> None:
        self.found, self.root = found, root
        self.unset: set[str] = set()
        """Variables that no file sets."""

    def doubt(self, name: str, where: str, why: str) -> None:
        self.found.unclear.append(Unclear(name, where, why))

    # Files.

    def _inside(self, named: str, base: Path, what: str, *, required: bool = True, taken: bool = True) -> Path | None:
        """Returns the file that is named, if it may be read. None: it may not, and that is noted. `taken`: what it says
        counts, so that it is one of the files that were read."""
        where = str(self.found.path)
        if documents.placeholder_in(named):
            self.doubt(what, where, f"names {named}, whose variable no file sets")
            return None
        if re.match(r"[A-Za-z0-9+.-]+:|git@", named):
            self.doubt(what, where, f"names {named}, which is not on this machine, and prozess fetches nothing")
            return None
        file = Path(named) if Path(named).is_absolute() else base / named
        try:
            real = file.resolve()
            if not real.is_relative_to(self.root):
                why = f"names {named}, which lies outside of {self.root}: prozess reads there alone"
                self.doubt(what, where, f"{why}. Copy it there, or write its settings into the Compose file")
                return None
            status = real.stat()
        except (OSError, ValueError, RuntimeError):
            if required:
                self.doubt(what, where, f"names {named}, which is not there")
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
            self.doubt(what, where, f"names {named}, which is no plain file of at most {FILE_BYTES_MAX} bytes")
            return None
        if len(self.found.files) >= FILES_MAX:
            self.doubt(what, where, f"names {named}, and more than {FILES_MAX} files are not read")
            return None
        shown = self.found.path.parent / real.relative_to(self.root)
        if taken:
            self.found.files.append(shown)
        return shown

    def document(self, named: str, base: Path, what: str) -> object:
        file = self._inside(named, base, what)
        return None if file is None else documents.load_yaml(file)

    def variables(self, directory: Path) -> dict[str, str]:
        """Returns what the `.env` beside a file sets."""
        if not (directory / ".env").exists():
            return {}
        file = self._inside(".env", directory, ".env", required=False)
        return {} if file is None else {name: each.value for name, each in documents.load_environment(file).items()}

    def doubt_other_files(self, variables: Mapping[str, str]) -> None:
        """Notes that the `.env` names other files than the one that was given. [Compose's pre-defined variables]"""
        path = self.found.path
        usual = {path.name, *_OVERRIDES.get(path.name, ())}
        for name, mine in (("COMPOSE_FILE", usual), ("COMPOSE_ENV_FILES", {".env"})):
            separator = "," if name == "COMPOSE_ENV_FILES" else variables.get("COMPOSE_PATH_SEPARATOR", ":")
            others = [
                each
                for each in variables.get(name, "").split(separator or ":")
                if each.removeprefix("./") not in mine | {""}
            ]
            if others:
                where = str(path.with_name(".env"))
                self.doubt(name, where, f"names {', '.join(others)}, which Compose reads too, and prozess does not")

    def doubt_siblings(self) -> None:
        """Notes Compose files beside this one that define the same services, and that nothing brings in: whether they are
        merged into it (`-f`) no file says. Example: compose.prod.yml beside compose.yml."""
        path, known = self.found.path, {each.name for each in (self.found.path, *self.found.files)}
        beside = sorted(each.name for each in path.parent.iterdir())
        names = [name for name in beside if _SIBLING.fullmatch(name) and name not in known]
        for name in names[:FILES_MAX]:
            if (file := self._inside(name, path.parent, name, taken=False)) is None:
                continue
            try:
                mappings = [each for each in documents.load_yaml(file) if isinstance(each, Mapping)]
            except BadInput:
                self.doubt(name, str(path), "lies beside this file, may be merged into it (-f), and cannot be read")
                continue
            services = {service for each in mappings for service, _ in documents_of(each.get("services"))}
            if same := sorted(services & self.found.services.keys()):
                why = (
                    f"lies beside this file and defines {same[0]}, too: whether it is merged into it (-f) no file says"
                )
                self.doubt(name, str(path), f"{why}. Give what `docker compose config` prints, or move the file away")

    # Documents.

    def load(self, path: Path, document: object, variables: Mapping[str, str], depth: int = 0) -> None:
        """Takes the services of one file, over those of the files before it."""
        for each in document if isinstance(document, list) else [document]:
            if not isinstance(each, Mapping):
                continue
            whole = self._filled(each, variables)
            self._include(whole.get("include"), path, variables, depth)
            for name, service in documents_of(whole.get("services")):
                own = self._service(name, service, whole, path, variables, ())
                self.found.origins.setdefault(name, origin(path, name))
                self.found.services[name] = merged(self.found.services.get(name, {}), own)
            for name, volume in (
                (whole.get("volumes") or {}).items() if isinstance(whole.get("volumes"), Mapping) else ()
            ):
                self.found.volumes[str(name)] = volume

    def _include(self, value: object, path: Path, variables: Mapping[str, str], depth: int) -> None:
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            named = each.get("path") if isinstance(each, Mapping) else each
            if isinstance(each, Mapping) and set(each) - {"path"}:
                self.doubt("include", str(path), "has a project_directory or an env_file of its own, which is not read")
            elif depth >= DEPTH_MAX:
                self.doubt("include", str(path), f"is {DEPTH_MAX} files deep")
            else:
                for one in named if isinstance(named, list) else [named]:
                    file = self._inside(str(one), path.parent, "include")
                    if file is not None:
                        own = {**self.variables(file.parent), **variables}
                        self.load(file, documents.load_yaml(file), own, depth + 1)

    def _service(
        self,
        name: str,
        service: FileMapping,
        document: FileMapping,
        path: Path,
        variables: Mapping[str, str],
        above: tuple[tuple[Path, str], ...],
    ) -> dict[str, Any]:
        """Returns a service with what it extends, its files of variables under its environment, and absolute paths."""
        own: dict[str, Any] = {str(key): each for key, each in service.items()}
        own["environment"] = normal_environment(own.get("environment"), path)
        own["env_file"] = [
            {**each, "path": str(path.parent.resolve() / str(each.get("path", "")))}
            for each in _env_files(own.get("env_file"))
        ]
        own["volumes"] = [_absolute(each, path.parent) for each in _list(own.get("volumes"))]
        extended = own.pop("extends", None)
        if extended is None:
            return own
        file, base = (
            (extended.get("file"), str(extended.get("service")))
            if isinstance(extended, Mapping)
            else (None, str(extended))
        )
        other, whole = path, document
        if file is not None:
            found = self._inside(str(file), path.parent, f"services.{name}.extends")
            if found is None:
                return own
            other, loaded = found, documents.load_yaml(found)
            first = next((each for each in loaded if isinstance(each, Mapping)), {}) if isinstance(loaded, list) else {}
            whole = self._filled(first, variables)
        target = dict(documents_of(whole.get("services"))).get(base)
        if target is None or (other, base) in above or len(above) >= DEPTH_MAX:
            self.doubt(f"services.{name}.extends", str(path), f"names the service {base!r}, which cannot be read")
            return own
        return merged(self._service(base, target, whole, other, variables, (*above, (other, base))), own)

    def _filled(self, value: Any, variables: Mapping[str, str]) -> Any:  # noqa: ANN401
        """Puts the values of variables in; one that no file sets stays as it is."""
        if isinstance(value, Mapping):
            return {key: self._filled(each, variables) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each, variables) for each in value]
        return interpolated(value, variables, self.unset) if isinstance(value, str) and "$" in value else value

    def finish(self) -> None:
        """Lays each service's environment over its files of variables."""
        for name, service in self.found.services.items():
            variables: dict[str, Setting] = {}
            for each in service.pop("env_file", ()):
                required = each.get("required") is not False
                file = self._inside(each["path"], self.root, f"services.{name}.env_file", required=required)
                if file is not None:
                    variables |= documents.load_environment(file)
            service["environment"] = {**variables, **service["environment"]}


def documents_of(services: object) -> Iterator[tuple[str, FileMapping]]:
    """Yields the name and the mapping of each service."""
    for name, service in services.items() if isinstance(services, Mapping) else ():
        if isinstance(service, Mapping):
            yield name if isinstance(name, str) else str(name), service


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a service with another one laid over it: mappings are merged, lists are joined, `command` and `entrypoint`
    replaced. [Compose's specification, Merge]"""
    found = deepcopy(dict(below))
    for key, value in above.items():
        before = found.get(key)
        if isinstance(before, dict) and isinstance(value, Mapping):
            found[key] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list) and key not in ("command", "entrypoint"):
            found[key] = [*before, *(each for each in value if each not in before)]
        else:
            found[key] = value
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _env_files(value: object) -> Iterator[dict[str, Any]]:
    for each in _list(value):
        yield dict(each) if isinstance(each, Mapping) else {"path": str(each)}


def _absolute(mount: object, base: Path) -> object:
    """A mount whose source is a path of the host, with that path absolute."""
    if isinstance(mount, str) and mount.startswith((".", "~")) and ":" in mount:
        source, _, rest = mount.partition(":")
        return f"{base.resolve() / source}:{rest}"
    if isinstance(mount, Mapping) and str(mount.get("source", "")).startswith("."):
        return {**mount, "source": str(base.resolve() / str(mount["source"]))}
    return mount


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def interpolated(text: str, variables: Mapping[str, str], unset: set[str] | None = None) -> str:
    """Returns a text with the values of its variables. A variable that nobody sets stays as it is, with its default:
    nobody knows what the shell sets, and it is added to `unset`. `$$` is a `$`.

    Example: with A=1, `$A ${A:-2} ${B:-3}` is `1 1 ${B:-3}`."""
    made, position = [], 0
    while (at := text.find("$", position)) >= 0:
        made.append(text[position:at])
        if text.startswith("$$", at):
            made.append("$")
            position = at + 2
            continue
        braced = text.startswith("${", at)
        named = _NAME.match(text, at + 2 if braced else at + 1)
        end = (_closing(text, at + 2) if braced else named.end() if named else None) if named else None
        if named is None or end is None:
            made.append("$")
            position = at + 1
            continue
        rest = text[named.end() : end - 1] if braced else ""
        made.append(_value(text[at:end], named[0], rest, variables, unset))
        position = end
    return "".join([*made, text[position:]])


def _closing(text: str, position: int) -> int | None:
    """The end of the braces that are open here, with braces in them."""
    depth = 1
    for at in range(position, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return at + 1
    return None


def _value(whole: str, name: str, rest: str, variables: Mapping[str, str], unset: set[str] | None) -> str:
    operator = re.match(r":?[-?+]", rest)
    value = variables.get(name)
    if value is None or (rest and operator is None):
        if unset is not None:
            unset.add(name)
        return whole
    if operator is None:
        return value
    other = interpolated(rest[operator.end() :], variables, unset)
    empty_counts = operator[0].startswith(":")
    is_set = bool(value) or not empty_counts
    if operator[0].endswith("+"):
        return other if is_set else ""
    return value if is_set else other


# What Docker Compose itself makes of the file.


def _as_docker_has_it(found: Resolved) -> None:
    """Takes the services as `docker compose config` has them, where it is installed and takes the file. Origins stay ours."""
    resolved = docker_configuration(found.path)
    if resolved is None:
        return
    for name, service in documents_of(resolved.get("services")):
        ours = found.services.get(name, {}).get("environment", {})
        environment = {}
        environment_given = service.get("environment")
        for variable, value in environment_given.items() if isinstance(environment_given, Mapping) else ():
            known = ours.get(variable)
            text = "" if value is None else str(value).replace("$$", "$")
            environment[variable] = Setting(text, f"{found.path}, {variable}" if known is None else known.origin)
        found.services[name] = {**service, "environment": environment}
    found.volumes = dict(resolved.get("volumes") or {})


def docker_configuration(path: Path) -> Mapping[str, Any] | None:
    """Returns what `docker compose config` prints of a file; None where there is no Docker Compose, or it does not take the
    file. It starts no container and asks no engine; nothing is fetched, and it sees no variables of this process."""
    docker = shutil.which("docker")
    if docker is None:
        return None
    files = [path, *(over for name in _OVERRIDES.get(path.name, ()) if (over := path.with_name(name)).exists())][:2]
    named = [part for file in files for part in ("--file", str(file.resolve()))]
    command = [docker, "compose", *named, "--project-directory", str(path.parent.resolve()), "--profile", "*"]
    try:
        made = subprocess.run(
            [*command, "config", "--format", "json"],
            capture_output=True,
            timeout=COMPOSE_TIMEOUT_S,
            env=dict(_variables_of_docker(docker)),
            check=False,
            stdin=subprocess.DEVNULL,
        )
        document = json.loads(made.stdout) if made.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return document if isinstance(document, Mapping) else None


def _variables_of_docker(docker: str) -> Iterable[tuple[str, str]]:
    """What Docker needs to find its plugins, and no more."""
    yield "PATH", f"{Path(docker).parent}:/usr/local/bin:/usr/bin:/bin"
    yield "HOME", str(Path.home())
    for remote in ("GIT", "OCI"):
        yield f"COMPOSE_EXPERIMENTAL_{remote}_REMOTE", "false"


def refuse_no_service(path: Path) -> BadInput:
    """Returns the error for a file without brokers."""
    return BadInput(
        f"{path}: no service has an environment with KAFKA_* variables. Give the Compose file of the brokers."
    )
