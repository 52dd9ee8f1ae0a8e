"""Says which code this Python runs: prozess's own sources, what other packages add to it, and the interpreter.

Two machines that do one check must have the same. A version does not suffice: a checkout has one version through many
changes, and a kernel that differs finds other things without a word.
"""

import hashlib
import platform
import socket
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

from prozess.harness import installation, plugins
from prozess.harness.errors import MissingTool

_PACKAGE = __name__.partition(".")[0]
CODE_SUFFIXES = (".py", ".sql")
"""How the names of files end that a check runs."""
_ASIDE = ("__pycache__", "data")
"""Folders without code that a check runs: what Python compiled, and the wheel's copies of trials and Compose files."""


@cache
def code_identity() -> Mapping[str, str]:
    """Returns part → what identifies it: `prozess` (SHA-256 of its sources), `python`, and a part for each package that adds
    something. The package may be a folder or an archive. It takes some hundredths of a second, once."""
    parts = {"prozess": _digest(files(_PACKAGE)), "python": f"{platform.python_implementation()} {_python()}"}
    for point in plugins.entry_points_of_others():
        name = "an installed package" if point.dist is None else point.dist.name
        parts[name] = _digest_of_point(point)
    return parts


def trials_identity() -> str:
    """Returns the SHA-256 of the trials that come with prozess."""
    directory = installation.folder("trials")
    return "none" if directory is None else _digest(directory, suffixes=("",))


def refuse_other_code(expected: Mapping[str, str], found: Mapping[str, str] | None = None) -> None:
    """Raises MissingTool, with the parts that differ, unless `found` is `expected`. None: what this Python runs."""
    found = code_identity() if found is None else found
    differing = [name for name in sorted(expected.keys() | found.keys()) if expected.get(name) != found.get(name)]
    if differing:
        parts = "; ".join(
            f"{name}: {_shown(found.get(name))} there, {_shown(expected.get(name))} here" for name in differing
        )
        raise MissingTool(
            f"{OTHER_CODE} on {socket.gethostname()} ({sys.executable}) is not that of this command ({parts}). It would find "
            "what other code finds. Install the same packages for the Python of Spark's workers, in the same version."
        )


OTHER_CODE = "The code of prozess"
"""How the sentence of `refuse_other_code` begins. Spark returns a worker's error as text."""


def _shown(identity: str | None) -> str:
    return "none" if identity is None else identity if len(identity) < 64 else identity[:12]


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _digest_of_point(point: EntryPoint) -> str:
    """Returns the version of the package, and the SHA-256 of the module or the package in which the entry point is."""
    top = point.value.partition(":")[0].partition(".")[0]
    version = "" if point.dist is None else f"{point.dist.version} "
    specification = find_spec(top)
    if specification is None:
        return f"{version}missing"
    if specification.submodule_search_locations is not None:
        return version + _digest(files(top))
    origin = specification.origin
    readable = origin is not None and Path(origin).is_file()
    return version + (hashlib.sha256(Path(str(origin)).read_bytes()).hexdigest() if readable else "unreadable")


def _digest(folder: Traversable, *, suffixes: tuple[str, ...] = CODE_SUFFIXES) -> str:
    """Returns the SHA-256 over the names and contents of the files below a folder, in the order of their names."""
    digest = hashlib.sha256()
    for name, file in sorted(_files(folder, "", suffixes), key=lambda found: found[0]):
        content = file.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(folder: Traversable, prefix: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            if entry.name not in _ASIDE:
                yield from _files(entry, f"{name}/", suffixes)
        elif entry.name.endswith(suffixes):
            yield name, entry
