"""This module says where prozess keeps its files: this installation, with the optional Python packages it lacks, and
the cache."""

import hashlib
import json
import os
import pwd
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import BadInput, MissingTool

PACKAGE = Path(__file__).parent.parent.resolve()
"""The folder `prozess` itself. In a checkout its sub-packages are links to the folders beside it."""
SEARCH_PATH = PACKAGE.parent
"""The path from which a Python that prozess starts imports this very code: a checkout, or `site-packages`."""


def folder(name: str) -> Path | None:
    """Returns the folder `name` (`trials`, `compose`) of the checkout, or its copy in the wheel. None: neither is there."""
    checkout, copy = SEARCH_PATH / name, PACKAGE / "data" / name
    if (SEARCH_PATH / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return copy if copy.is_dir() else None


EXTRAS = {
    "aiokafka": "aiokafka",
    "confluent_kafka": "run",
    "docker": "docker",
    "jinja2": "run",
    "numpy": "run",
    "pandas": "pandas",
    "paramiko": "ssh",
    "pyarrow": "run",
    "pyspark": "spark",
    "scipy": "run",
    "testcontainers": "docker",
    "toxiproxy": "run",
}
"""For each module of an optional package, the extra that installs it."""


@contextmanager
def of_an_extra(what: str) -> Iterator[None]:
    """Yields a context for imports. If a module of an extra is missing, it raises MissingTool with the command that
    installs it. `what` is what needs the module, for the sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if extra := EXTRAS.get(missing.partition(".")[0]):
            raise MissingTool(
                f"{what} needs the Python package {missing!r}: pip install 'prozess[{extra}]'."
            ) from error
        raise


def has(module: str) -> bool:
    """Returns whether a module of an optional package can be imported. It is not imported."""
    return find_spec(module) is not None


# The cache directory, where prozess keeps what can be fetched or made again: Kafka's jars, class-data archives, copies
# of Java homes.
#
# Everything in it may be deleted at any time while nothing runs. Nothing in it names a repository or a user's settings.


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns `$PROZESS_CACHE`, or else `$XDG_CACHE_HOME/prozess`, or else `~/.cache/prozess`. The path is absolute, and
    may not exist yet.

    BadInput if PROZESS_CACHE is relative: the run stage may have another working directory. (A relative XDG_CACHE_HOME is
    ignored, as the XDG base directory specification says.)
    """
    if chosen := environment.get("PROZESS_CACHE"):
        if not Path(chosen).is_absolute():
            raise BadInput(f"PROZESS_CACHE = {chosen!r} is relative; give an absolute path, or unset it.")
        return Path(chosen)
    shared = environment.get("XDG_CACHE_HOME", "")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "prozess"
    return home_directory(environment) / ".cache" / "prozess"


def home_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns `$HOME`, or else the account's home. MissingTool if there is neither, as in some containers."""
    if home := environment.get("HOME"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError as error:
        raise MissingTool(
            f"User id {os.geteuid()} has no home directory (no HOME, no account), so there is no place for a cache. "
            "Set PROZESS_CACHE to a directory of your own."
        ) from error


def make_cache(*parts: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Returns a directory in the cache, and makes it if it is not there. MissingTool if it cannot be made or written."""
    directory = cache_directory(environment).joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error.strerror or str(error)) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _unusable(directory, "not writable")
    return directory


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hex. About 1 GB/s."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unusable(directory: Path, why: str) -> MissingTool:
    return MissingTool(
        f"The cache directory {str(directory)!r} cannot be used ({why}); it must be writable. "
        "Set PROZESS_CACHE to a directory of your own."
    )


# SHA-256 of files that do not change. It is computed again only for a file that may have changed since.
#
# Each checksum is remembered with the file's inode, size, time of modification and time of change in nanoseconds. Every
# write to a file sets the time of change, and no program can set it back. A file that changed less than two seconds
# before is not remembered, because it can change again within the same tick of the file system's clock.


MEMORY = ".checked.json"
"""The file in a directory that remembers checksums: name → inode, size, mtime (ns), ctime (ns), SHA-256."""
_FRESH_NS = 2 * NS_PER_S


def sums_in(directory: Path, names: Sequence[str]) -> dict[str, str]:
    """Returns the SHA-256 in hex of these files of one directory, by name. OSError if one cannot be read.

    Where the directory cannot be written, nothing is remembered, and all is computed each time.
    """
    memory = _recall(directory)
    known: dict[str, list[int | str]] = {}
    for name in names:
        path = directory / name
        stat = path.stat()
        identity = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        remembered = memory.get(name)
        if isinstance(remembered, list) and remembered[:-1] == identity and isinstance(remembered[-1], str):
            known[name] = remembered
        else:
            known[name] = [*identity, sha256_of(path)]
    if known != memory:
        _remember(directory, known)
    return {name: str(columns[-1]) for name, columns in known.items()}


def _recall(directory: Path) -> dict[str, list[int | str]]:
    try:
        memory = json.loads((directory / MEMORY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return memory if isinstance(memory, dict) else {}


def _remember(directory: Path, known: dict[str, list[int | str]]) -> None:
    """Writes the memory by one rename. The time now is the file system's own: that of the file just made."""
    with suppress(OSError):
        number, path = tempfile.mkstemp(prefix=MEMORY, dir=directory)
        try:
            now_ns = os.fstat(number).st_mtime_ns
            old = {name: columns for name, columns in known.items() if now_ns - int(columns[3]) > _FRESH_NS}
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(old, file)
            Path(path).rename(directory / MEMORY)
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
