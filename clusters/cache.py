"""Where prozess keeps what can be fetched or made again: Kafka's jars, class-data archives, wrapped Java homes.

Everything in it may be deleted at any time while nothing runs. Nothing in it names a repository or a user's settings.
"""

import hashlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from harness.errors import BadInput, MissingTool


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """`$PROZESS_CACHE`, else `$XDG_CACHE_HOME/prozess`, else `~/.cache/prozess`: absolute, perhaps not there yet.

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
    """`$HOME`, else the account's home. MissingTool if there is neither, as in some containers."""
    if home := environment.get("HOME"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        raise MissingTool(
            f"User id {os.getuid()} has no home directory (no HOME, no account), so there is no place for a cache. "
            "Set PROZESS_CACHE to a directory of your own."
        ) from error


def make_cache(*parts: str, environment: Mapping[str, str] = os.environ) -> Path:
    """A directory in the cache, made if need be. MissingTool if it cannot be made or written."""
    directory = cache_directory(environment).joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error.strerror or str(error)) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _unusable(directory, "not writable")
    return directory


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex. About 1 GB/s."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unusable(directory: Path, why: str) -> MissingTool:
    return MissingTool(
        f"The cache directory {str(directory)!r} cannot be used ({why}); it must be writable. "
        "Set PROZESS_CACHE to a directory of your own."
    )
